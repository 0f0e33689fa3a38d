// SPDX-License-Identifier: MIT
// A program, or a library (libfaketime), with a clock of its own in place of libc's: how long the process has
// run is told by one clock, whichever that is; and what is idle is collected by the kernel's.
#include <mallow/mallow.h>
#include <mallow/observe.h>

#include "../support/check.h"

#include <pthread.h>
#include <sys/syscall.h>

enum { AHEAD_SECONDS = 1000000, THREADS = 4, BLOCKS = 100000, SIZE = 64 };

static _Atomic(bool) is_frozen;
static pthread_barrier_t freed;

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (is_frozen) {
        *now = (struct timespec){AHEAD_SECONDS, 0};
        return 0;
    }
    const long result = syscall(SYS_clock_gettime, clock, now);
    now->tv_sec += AHEAD_SECONDS;
    return (int)result;
}

static void *leave_holes(void *argument)
{
    static unsigned char *blocks[THREADS][BLOCKS];
    unsigned char **const mine = blocks[(uintptr_t)argument];
    for (size_t i = 0; i < BLOCKS; i++) {
        mine[i] = mw_malloc(SIZE);
        memset(mine[i], 1, SIZE);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        if (i % 512 != 0) {
            mw_free(mine[i]);
        }
    }
    pthread_barrier_wait(&freed);
    pthread_barrier_wait(&freed); // never more than asleep
    return NULL;
}

// What sleeping threads have left is given back at once, though this clock never goes on.
static void collect_under_a_frozen_clock(void)
{
    pthread_t threads[THREADS];
    CHECK(pthread_barrier_init(&freed, NULL, THREADS + 1) == 0, "barrier");
    for (size_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, leave_holes, (void *)i) == 0, "pthread_create");
    }
    pthread_barrier_wait(&freed);
    is_frozen = true;
    const size_t before = process_status_kib("VmRSS:");
    mw_collect(true);
    const size_t after = process_status_kib("VmRSS:");
    CHECK(after + THREADS * BLOCKS / 2 * SIZE / 1024 < before, "%zu KiB of %zu are left", after, before);
    pthread_barrier_wait(&freed);
    for (size_t i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0, "pthread_join");
    }
}

int main(void)
{
    struct mw_process_info info;
    mw_process_info_get(&info);
    CHECK(info.elapsed_us < UINT64_C(600000000), "%llu us", (unsigned long long)info.elapsed_us);
    if (sysconf(_SC_PAGESIZE) == 4096) { // larger ones are all in use
        collect_under_a_frozen_clock();
    }
    return 0;
}
