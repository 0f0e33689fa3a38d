// SPDX-License-Identifier: MIT
// Free memory goes back to the OS while the program is idle, by a thread that is there only then, and
// that the program does not notice. Built for both families (see support/family.h).
#include "idle.h"

#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#ifdef TEST_SCALED
enum { FILL = 24 << 20 };
#else
enum { FILL = 128 << 20 };
#endif
enum { RETURN_MS = 2000, SLACK_KIB = 3000, END_MS = 4000 };

static void expect_return(size_t before_kib)
{
    const bool returned = wait_for_rss(before_kib + SLACK_KIB, RETURN_MS);
    CHECK(!RSS_IS_OURS || returned, "%zu KiB before, %zu after %d ms", before_kib,
          process_rss_kib(), RETURN_MS);
}

// ---- Cases -------------------------------------------------------------------------------------------

static void a_small_program_has_one_thread(void **state)
{
    (void)state;
    struct load load;
    for (int round = 0; round < 20; round++) {
        load_fill(&load, 10000, 200);
        load_free(&load);
    }
    assert_true(thread_count() <= 1); // 0: a sanitizer's thread, which is taken off, is not there yet
    rest_ms(600);
    assert_true(thread_count() <= 1);
}

static void small_blocks_go_back_and_the_thread_ends(void **state)
{
    (void)state;
    struct load load;
    load_fill(&load, 1000, 200);
    load_free(&load);
    const size_t before = process_rss_kib();
    load_fill(&load, FILL / 200, 200);
    load_free(&load);
    expect_return(before + FILL / KIB / 200); // headers
    assert_true(wait_for_threads(1, END_MS));
}

static void large_and_huge_blocks_go_back(void **state)
{
    (void)state;
    const size_t sizes[] = {100 * KIB, 900 * KIB, 3 * MIB, 20 * MIB};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        const size_t before = process_rss_kib();
        for (int round = 0; round < 4; round++) { // so that keeping them turns out to be worth it
            struct load load;
            load_fill(&load, FILL / sizes[i] + 1, sizes[i]);
            load_free(&load);
        }
        expect_return(before);
    }
    assert_true(wait_for_threads(1, END_MS));
}

// No call of free is made: blocks shrink, in place or by a move.
static void what_realloc_leaves_goes_back(void **state)
{
    (void)state;
    const struct {
        size_t from;
        size_t to;
    } sizes[] = {{1000, 16}, {600 * KIB, 128 * KIB}, {900 * KIB, 100}, {2 * MIB, 128 * KIB}};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        const size_t before = process_rss_kib();
        struct load load;
        load_fill(&load, FILL / sizes[i].from, sizes[i].from);
        for (size_t j = 0; j < load.count; j++) {
            load.blocks[j] = fam_realloc(load.blocks[j], sizes[i].to);
            assert_non_null(load.blocks[j]);
        }
        load.size = sizes[i].to;
        // What is left, the list of it, headers of what there was.
        expect_return(before + load.count * (sizes[i].to + sizeof *load.blocks) / KIB + FILL / KIB / 200);
        load_check(&load);
        load_free(&load);
    }
    assert_true(wait_for_threads(1, END_MS));
}

// A thread says that it is done, and then sleeps until it is let go.
struct meeting {
    sem_t done;
    sem_t leave;
};

static void *fill_and_sleep(void *argument)
{
    struct meeting *const meeting = argument;
    struct load load;
    load_fill(&load, FILL / 300, 300);
    load_free(&load);
    sem_post(&meeting->done);
    while (sem_wait(&meeting->leave) != 0) {
    }
    return NULL;
}

static void a_thread_that_frees_and_sleeps_gives_back(void **state)
{
    (void)state;
    struct meeting meeting;
    sem_init(&meeting.done, 0, 0);
    sem_init(&meeting.leave, 0, 0);
    const size_t before = process_rss_kib();
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fill_and_sleep, &meeting), 0);
    while (sem_wait(&meeting.done) != 0) {
    }
    expect_return(before + FILL / KIB / 200);
    sem_post(&meeting.leave);
    pthread_join(thread, NULL);
}

// Page faults of a program that frees and takes the same again every tenth of a second, with a pause.
static void what_a_steady_program_frees_it_keeps(void **state)
{
    (void)state;
    if (!RSS_IS_OURS) {
        skip();
    }
    long faults = 0;
    for (int round = 0; round < 30; round++) {
        struct rusage before;
        struct rusage after;
        struct load load;
        getrusage(RUSAGE_SELF, &before);
        load_fill(&load, FILL / 4096, 4096);
        load_free(&load);
        getrusage(RUSAGE_SELF, &after);
        const long here = after.ru_minflt - before.ru_minflt - (long)(FILL / 4096 * sizeof(void *) / 4096);
        faults += round >= 5 ? here : 0;
        rest_ms(100);
    }
    CHECK(faults < 25 * (FILL / 4096) / 50, "%ld faults in 25 rounds of %d pages", faults, FILL / 4096);
}

static void a_child_of_a_fork_has_its_own(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); // it does not follow threads of such a child
#endif
    struct load load;
    load_fill(&load, FILL / 500, 500);
    load_free(&load);
    rest_ms(100);
    CHECK(!RSS_IS_OURS || thread_count() == 2, "%zu threads", thread_count());
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(60);
        CHECK(thread_count() == 1, "a child begins with one thread");
        load_fill(&load, FILL / 500, 500);
        CHECK(thread_count() == 1, "nothing to do yet");
        load_free(&load);
        // Under a sanitizer free may call what it otherwise jumps to; then it starts no thread.
        CHECK(!RSS_IS_OURS || wait_for_threads(2, 200), "freed in the child: no thread");
        expect_return(8000 + FILL / KIB / 200);
        CHECK(wait_for_threads(1, END_MS), "the thread stays");
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(wait_for_threads(1, END_MS));
}

// ---- Signals: the program's are the program's --------------------------------------------------------

static atomic_int signals_taken;
static pid_t expected_thread;

static void take_signal(int number)
{
    (void)number;
    CHECK((pid_t)syscall(SYS_gettid) == expected_thread, "a signal was taken by a foreign thread");
    atomic_fetch_add(&signals_taken, 1);
}

static void signals_are_never_taken_by_the_thread(void **state)
{
    (void)state;
    const struct sigaction action = {.sa_handler = take_signal, .sa_flags = SA_RESTART};
    struct sigaction before;
    sigset_t usr1;
    sigset_t pending;
    expected_thread = (pid_t)syscall(SYS_gettid);
    sigaction(SIGUSR1, &action, &before);
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    struct load load;
    load_fill(&load, FILL / 1000, 1000);
    load_free(&load);
    pthread_sigmask(SIG_BLOCK, &usr1, NULL);
    for (int i = 0; i < 2000; i++) { // nobody but the worker could take it now
        kill(getpid(), SIGUSR1);
    }
    rest_ms(50);
    sigpending(&pending);
    assert_true(sigismember(&pending, SIGUSR1));
    assert_int_equal(atomic_load(&signals_taken), 0);
    pthread_sigmask(SIG_UNBLOCK, &usr1, NULL);
    for (int i = 0; i < 2000; i++) {
        kill(getpid(), SIGUSR1);
    }
    assert_true(atomic_load(&signals_taken) > 0);
    assert_true(wait_for_threads(1, END_MS));
    sigaction(SIGUSR1, &before, NULL);
}

// ---- The end -----------------------------------------------------------------------------------------

static void exit_is_not_delayed(void **state)
{
    (void)state;
    enum { CHILDREN = 9, SOON_MS = 100 };
    uint64_t *const left_at = mmap(NULL, sizeof *left_at, PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(left_at != MAP_FAILED);
    unsigned soon = 0;
    for (unsigned i = 0; i < CHILDREN; i++) {
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            struct load load;
            load_fill(&load, FILL / 2000 / 4, 2000);
            load_free(&load);
            rest_ms(i * 60); // at various points of its time
            *left_at = now_ms();
            exit(0);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        soon += now_ms() - *left_at < SOON_MS * PATIENCE;
    }
    assert_true(soon > CHILDREN / 2); // some of them may be kept waiting by the machine
    munmap(left_at, sizeof *left_at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_program_has_one_thread),
        cmocka_unit_test(small_blocks_go_back_and_the_thread_ends),
        cmocka_unit_test(large_and_huge_blocks_go_back),
        cmocka_unit_test(what_realloc_leaves_goes_back),
        cmocka_unit_test(a_thread_that_frees_and_sleeps_gives_back),
        cmocka_unit_test(what_a_steady_program_frees_it_keeps),
        cmocka_unit_test(a_child_of_a_fork_has_its_own),
        cmocka_unit_test(signals_are_never_taken_by_the_thread),
        cmocka_unit_test(exit_is_not_delayed),
    };
    return suite_run(tests);
}
