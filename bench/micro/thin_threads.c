// SPDX-License-Identifier: MIT
// Many threads that hold little: what does a thread cost in memory before it does anything?
//
// Source   own program; the per-thread footprint row that server operators ask for.
// Checks   both ends of every block, after all threads have started.
// Holds    every thread owns `live` bytes in blocks of 64 to 512 bytes while RSS is read.

#include "common.h"

enum { BLOCKS_MAX = 128 };

struct gate {
    pthread_barrier_t all_live;
    pthread_barrier_t may_leave;
    uint64_t live;
};

struct thin {
    struct gate *gate;
    uint64_t seed;
};

static void *hold_a_little(void *argument) {
    struct thin *const thin = argument;
    void *blocks[BLOCKS_MAX];
    size_t sizes[BLOCKS_MAX];
    size_t count = 0;
    uint64_t bytes = 0;
    while (bytes < thin->gate->live && count < BLOCKS_MAX) {
        sizes[count] = UINT64_C(64) << bench_below(&thin->seed, 4);
        blocks[count] = bench_malloc(sizes[count]);
        memset(blocks[count], 1, sizes[count]);
        bench_stamp(blocks[count], sizes[count]);
        bytes += sizes[count++];
    }
    pthread_barrier_wait(&thin->gate->all_live);
    pthread_barrier_wait(&thin->gate->may_leave);
    for (size_t i = 0; i < count; i++) {
        bench_check(blocks[i], sizes[i]);
        free(blocks[i]);
    }
    return NULL;
}

int main(int argc, char **argv) {
    uint64_t threads = 500;
    uint64_t live = 4096;
    const struct bench_option table[] = {
        {"threads", &threads, "threads alive at once"},
        {"live", &live, "bytes each of them holds"},
    };
    BENCH_OPTIONS(argc, argv, table);
    if (threads == 0 || threads > BENCH_THREADS_MAX) {
        bench_fail("threads must be 1 to %d", BENCH_THREADS_MAX);
    }

    static pthread_t handles[BENCH_THREADS_MAX];
    static struct thin items[BENCH_THREADS_MAX];
    static struct gate gate;
    gate.live = live;
    pthread_barrier_init(&gate.all_live, NULL, (unsigned)threads + 1);
    pthread_barrier_init(&gate.may_leave, NULL, (unsigned)threads + 1);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 128 * BENCH_KIB);

    const uint64_t before = bench_rss_bytes();
    for (uint64_t i = 0; i < threads; i++) {
        items[i] = (struct thin){&gate, i};
        const int error = pthread_create(&handles[i], &attributes, hold_a_little, &items[i]);
        if (error != 0) {
            bench_fail("pthread_create: %s", strerror(error));
        }
    }
    pthread_barrier_wait(&gate.all_live);
    const uint64_t during = bench_rss_bytes();
    pthread_barrier_wait(&gate.may_leave);
    for (uint64_t i = 0; i < threads; i++) {
        pthread_join(handles[i], NULL);
    }
    printf("%" PRIu64 " threads with %" PRIu64
           " bytes each: RSS %.2f MiB, before %.2f, after %.2f\n",
           threads, live, bench_mb(during), bench_mb(before), bench_mb(bench_rss_bytes()));
    bench_score((double)(during - before) / (double)BENCH_KIB / (double)threads, "KiB/thread");
    return 0;
}
