// SPDX-License-Identifier: MIT
// A storm of SIGALRM without SA_RESTART while threads allocate, map, unmap and fork: an interrupted
// system call must not surface as a failure. Built for both families (see support/family.h).
#include "../support/family.h"
#include "../support/suite.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <sys/wait.h>

// A fork that a signal interrupts begins anew. Where it takes longer than the storm's interval (an
// emulator, a loaded machine) it would never end, so the storm rests until it has.
enum { WORKERS = 3, STORM_SECONDS = 4, STORM_MICROSECONDS = 200, SIGNALS_PER_FORK = 200 };

static atomic_size_t signals_seen;
static atomic_size_t signals_since_fork;
static atomic_bool storm_over;

static void set_storm(suseconds_t microseconds)
{
    const struct itimerval storm = {.it_interval = {.tv_usec = microseconds},
                                    .it_value = {.tv_usec = microseconds}};
    setitimer(ITIMER_REAL, &storm, NULL);
}

static void on_alarm(int signal_number)
{
    (void)signal_number;
    const int saved = errno;
    atomic_fetch_add_explicit(&signals_seen, 1, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&signals_since_fork, 1, memory_order_relaxed) == SIGNALS_PER_FORK) {
        set_storm(0);
    }
    errno = saved;
}

static void *worker(void *argument)
{
    struct chance chance = {(uint64_t)(uintptr_t)argument};
    while (!atomic_load_explicit(&storm_over, memory_order_relaxed)) {
        const size_t size = chance_below(&chance, 4) == 0 ? chance_below(&chance, 6 * MIB) : chance_size(&chance);
        errno = 0;
        unsigned char *block = fam_malloc(size);
        CHECK(block != NULL && errno == 0, "malloc(%zu): %p, errno %d", size, (void *)block, errno);
        tag_fill(block, size, size);
        unsigned char *const zeroed = fam_calloc(1, size);
        CHECK(zeroed != NULL && errno == 0, "calloc(%zu), errno %d", size, errno);
        CHECK(nonzero_at(zeroed, size < 4096 ? size : 4096) >= (size < 4096 ? size : 4096), "calloc is not zero");
        block = fam_realloc(block, size * 2 + 1);
        CHECK(block != NULL && errno == 0, "realloc(%zu), errno %d", size * 2, errno);
        const size_t ends = size < 64 ? size : 64;
        CHECK(tag_wrong(block, ends, size) == ends, "contents after realloc");
        errno = EINTR;
        fam_free(block);
        fam_free(zeroed);
        CHECK(errno == EINTR, "free changed errno to %d", errno);
    }
    return NULL;
}

static void a_storm_of_signals_does_not_reach_the_caller(void **state)
{
    (void)state;
    const struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    pthread_t threads[WORKERS];
    for (size_t i = 0; i < WORKERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, worker, (void *)(uintptr_t)(i + 1)), 0);
    }
    const uint64_t end = now_ns(CLOCK_MONOTONIC) + STORM_SECONDS * UINT64_C(1000000000);
    size_t forks = 0;
    while (now_ns(CLOCK_MONOTONIC) < end) {
        atomic_store_explicit(&signals_since_fork, 0, memory_order_relaxed);
        set_storm(STORM_MICROSECONDS);
        const pid_t child = fork();
        CHECK(child >= 0, "fork");
        if (child == 0) {
            fam_free(fam_malloc(3 * MIB));
            _exit(fam_malloc(100) != NULL ? 0 : 1);
        }
        int status = 0;
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
        }
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child status %#x", (unsigned)status);
        forks++;
    }
    set_storm(0);
    atomic_store(&storm_over, true);
    for (size_t i = 0; i < WORKERS; i++) {
        pthread_join(threads[i], NULL);
    }
    print_message("%zu signals, %zu forks\n", atomic_load(&signals_seen), forks);
    assert_true(atomic_load(&signals_seen) > 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_storm_of_signals_does_not_reach_the_caller),
    };
    return suite_run(tests);
}
