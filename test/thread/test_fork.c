// SPDX-License-Identifier: MIT
// Fork beside busy threads: the child allocates, starts a thread and forks again; the program's own
// fork handlers allocate, registered before the allocator was loaded (.preinit_array) and after; streams
// are read and flushed meanwhile.
// A hang shows as SIGALRM in the child. Built for both families (see support/family.h).
#include "../support/family.h"
#include "../support/suite.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>

enum { BUSY_THREADS = 4, FORKS = 400, CHILD_SECONDS = 20 };

static atomic_bool busy_stop;
static atomic_bool handlers_on;
static atomic_size_t handler_runs;

// ---- Handlers --------------------------------------------------------------------------------------

static void allocating_handler(void)
{
    if (!atomic_load(&handlers_on)) {
        return;
    }
    for (size_t size = 10; size < 3 * MIB; size *= 6) {
        unsigned char *block = fam_malloc(size);
        CHECK(block != NULL, "malloc in a fork handler");
        tag_fill(block, size, size);
        block = fam_realloc(block, size * 2);
        CHECK(tag_wrong(block, size < 64 ? size : 64, size) == (size < 64 ? size : 64), "contents in a handler");
        fam_free(block);
    }
    atomic_fetch_add(&handler_runs, 1);
}

static void register_handlers(void)
{
    pthread_atfork(allocating_handler, allocating_handler, allocating_handler);
}

// The earliest code of a program: before the constructors of the libraries it is linked with.
static void register_early(int count, char **arguments, char **environment)
{
    (void)count;
    (void)arguments;
    (void)environment;
    register_handlers();
}

__attribute__((section(".preinit_array"), used)) static void (*early)(int, char **, char **) = register_early;

// ---- Load ------------------------------------------------------------------------------------------

static void work(struct chance *chance, size_t steps)
{
    struct {
        unsigned char *block;
        size_t size;
        uint64_t tag;
    } live[32];
    memset(live, 0, sizeof live);
    for (size_t step = 0; step < steps; step++) {
        const size_t slot = chance_below(chance, COUNT_OF(live));
        CHECK(tag_wrong(live[slot].block, live[slot].size, live[slot].tag) == live[slot].size, "contents");
        fam_free(live[slot].block);
        live[slot].size = chance_size(chance);
        live[slot].tag = chance_next(chance);
        live[slot].block = fam_malloc(live[slot].size);
        CHECK(live[slot].block != NULL, "malloc(%zu)", live[slot].size);
        tag_fill(live[slot].block, live[slot].size, live[slot].tag);
    }
    for (size_t slot = 0; slot < COUNT_OF(live); slot++) {
        fam_free(live[slot].block);
    }
}

// The first fork waits until every busy thread has started: libasan of gcc 12 does not hold its own
// allocator's locks across fork, and a thread that is just starting takes them; its child hung there.
static pthread_barrier_t all_started;

static void *busy_thread(void *argument)
{
    pthread_barrier_wait(&all_started);
    struct chance chance = {(uint64_t)(uintptr_t)argument};
    while (!atomic_load_explicit(&busy_stop, memory_order_relaxed)) {
        work(&chance, 200);
    }
    return NULL;
}

static void *child_thread(void *argument)
{
    struct chance chance = {(uint64_t)(uintptr_t)argument};
    work(&chance, 60);
    return NULL;
}

static void expect_clean_exit(pid_t child)
{
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child, "waitpid");
    CHECK(!(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM), "a child hangs");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child status %#x", (unsigned)status);
}

static void child_work(size_t number, unsigned char *inherited)
{
    alarm(CHILD_SECONDS);
    CHECK(tag_wrong(inherited, 1000, 7) == 1000, "an inherited block changed");
    fam_free(inherited);
    struct chance chance = {number};
    work(&chance, 60);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, child_thread, (void *)(uintptr_t)number) == 0, "pthread_create");
    work(&chance, 30);
    CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
}

static void child_life(size_t number, unsigned char *inherited)
{
    child_work(number, inherited);
    if (number % 3 == 0) {
        unsigned char *const block = fam_malloc(1000);
        tag_fill(block, 1000, 7);
        const pid_t grandchild = fork();
        if (grandchild == 0) {
            child_work(number, block);
            _exit(0);
        }
        CHECK(grandchild > 0, "fork in a child");
        expect_clean_exit(grandchild);
        fam_free(block);
    }
    _exit(0);
}

static void storm(size_t forks)
{
    pthread_t threads[BUSY_THREADS];
    atomic_store(&busy_stop, false);
    pthread_barrier_init(&all_started, NULL, BUSY_THREADS + 1);
    for (size_t i = 0; i < BUSY_THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, busy_thread, (void *)(uintptr_t)(i + 1)) == 0, "pthread_create");
    }
    pthread_barrier_wait(&all_started);
    struct chance chance = {99};
    for (size_t number = 0; number < forks; number++) {
        unsigned char *const block = fam_malloc(1000);
        tag_fill(block, 1000, 7);
        const pid_t child = fork();
        if (child == 0) {
            child_life(number, block);
        }
        CHECK(child > 0, "fork %zu", number);
        work(&chance, 20);
        expect_clean_exit(child);
        CHECK(tag_wrong(block, 1000, 7) == 1000, "the parent's block changed");
        fam_free(block);
    }
    atomic_store(&busy_stop, true);
    for (size_t i = 0; i < BUSY_THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
}

static void four_hundred_forks_beside_busy_threads(void **state)
{
    (void)state;
    storm(SCALED((size_t)FORKS));
}

static void fork_handlers_may_allocate(void **state)
{
    (void)state;
    register_handlers(); // after the allocator's own; register_early came before
    atomic_store(&handlers_on, true);
    storm(SCALED((size_t)FORKS / 2));
    assert_true(atomic_load(&handler_runs) >= SCALED((size_t)FORKS / 2) * 4);
    atomic_store(&handlers_on, false);
}

// ---- Streams ---------------------------------------------------------------------------------------
//
// A thread flushes all streams: it holds libc's list of them and waits for one that is being read, whose
// reader allocates; fork wants the list as well, and the allocator's locks.

enum { READERS = 3 };

static ssize_t read_and_allocate(void *cookie, char *buffer, size_t size)
{
    (void)cookie;
    for (int i = 0; i < 50; i++) {
        fam_free(fam_malloc(300 * KIB));
    }
    memset(buffer, 'x', size);
    return (ssize_t)size;
}

// So that others get the locks as well, which are not fair.
static void pause_briefly(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

static void *read_stream(void *argument)
{
    (void)argument;
    FILE *const stream = fopencookie(NULL, "r", (cookie_io_functions_t){.read = read_and_allocate});
    CHECK(stream != NULL, "fopencookie");
    setvbuf(stream, NULL, _IONBF, 0);
    pthread_barrier_wait(&all_started);
    while (!atomic_load_explicit(&busy_stop, memory_order_relaxed)) {
        CHECK(getc(stream) == 'x', "getc");
        pause_briefly();
    }
    fclose(stream);
    return NULL;
}

static void *flush_all(void *argument)
{
    (void)argument;
    pthread_barrier_wait(&all_started);
    while (!atomic_load_explicit(&busy_stop, memory_order_relaxed)) {
        fflush(NULL);
        pause_briefly();
    }
    return NULL;
}

static void *flush_once(void *argument)
{
    fflush(NULL);
    return argument;
}

static void forks_beside_threads_that_read_and_flush_streams(void **state)
{
    (void)state;
    pthread_t threads[READERS + 1];
    atomic_store(&busy_stop, false);
    pthread_barrier_init(&all_started, NULL, COUNT_OF(threads) + 1);
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        CHECK(pthread_create(&threads[i], NULL, i < READERS ? read_stream : flush_all, NULL) == 0, "pthread_create");
    }
    pthread_barrier_wait(&all_started);
    for (size_t number = 0; number < SCALED((size_t)FORKS); number++) {
        const pid_t child = fork();
        CHECK(child >= 0, "fork %zu", number);
        if (child == 0) {
            alarm(CHILD_SECONDS);
            pthread_t thread; // another one: its own may take the list again while it holds it
            CHECK(pthread_create(&thread, NULL, flush_once, NULL) == 0, "pthread_create");
            CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
            _exit(0);
        }
        expect_clean_exit(child);
    }
    atomic_store(&busy_stop, true);
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        pthread_join(threads[i], NULL);
    }
}

// ---- Threads that end ------------------------------------------------------------------------------

// Their destructors are called after ours, which has handed the heap on: what they ask for is done with
// a heap that all such threads share.
static pthread_key_t end_key;

static void trim_at_the_end(void *value)
{
    const uintptr_t round = (uintptr_t)value;
    if (round < 4) {
        pthread_setspecific(end_key, (void *)(round + 1));
    }
    fam_free(fam_malloc(100));
    fam_trim();
}

static void *end_soon(void *argument)
{
    fam_free(fam_malloc(100));
    pthread_setspecific(end_key, (void *)1);
    return argument;
}

static void *end_again_and_again(void *argument)
{
    while (!atomic_load_explicit(&busy_stop, memory_order_relaxed)) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, end_soon, NULL) == 0, "pthread_create");
        pthread_join(thread, NULL);
    }
    return argument;
}

static void forks_beside_threads_that_trim_as_they_end(void **state)
{
    (void)state;
    pthread_t thread;
    CHECK(pthread_key_create(&end_key, trim_at_the_end) == 0, "pthread_key_create");
    atomic_store(&busy_stop, false);
    CHECK(pthread_create(&thread, NULL, end_again_and_again, NULL) == 0, "pthread_create");
    fflush(NULL);
    for (size_t number = 0; number < SCALED((size_t)FORKS); number++) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(CHILD_SECONDS);
            fam_free(fam_malloc(1000));
            fam_trim();
            _exit(0);
        }
        CHECK(child > 0, "fork %zu", number);
        expect_clean_exit(child);
    }
    atomic_store(&busy_stop, true);
    pthread_join(thread, NULL);
    pthread_key_delete(end_key);
}

// ---- No handlers -----------------------------------------------------------------------------------

// _Fork runs no handlers at all: the child of a single-threaded moment must still allocate.
static void a_child_without_handlers_allocates(void **state)
{
    (void)state;
    fflush(NULL);
    for (int round = 0; round < 50; round++) {
        const pid_t child = _Fork();
        if (child == 0) {
            alarm(CHILD_SECONDS);
            struct chance chance = {(uint64_t)round};
            work(&chance, 500);
            _exit(0);
        }
        expect_clean_exit(child);
    }
}

int main(void)
{
    alarm(160); // a hang of the parent itself
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_without_handlers_allocates),
        cmocka_unit_test(four_hundred_forks_beside_busy_threads),
        cmocka_unit_test(fork_handlers_may_allocate),
        cmocka_unit_test(forks_beside_threads_that_read_and_flush_streams),
        cmocka_unit_test(forks_beside_threads_that_trim_as_they_end),
    };
    return suite_run(tests);
}
