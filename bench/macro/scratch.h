// SPDX-License-Identifier: MIT
// The worker that cache_scratch and cache_thrash share; see there for source and meaning.
//
// Owns     nothing beyond a run.
// Holds    blocks * writes is the same for every number of threads.

#ifndef MALLOW_BENCH_SCRATCH_H
#define MALLOW_BENCH_SCRATCH_H

#include "common.h"

struct scratcher {
    unsigned char *given; // from the main thread, freed first; NULL: none
    uint64_t blocks;
    uint64_t writes;
    uint64_t size;
};

static void *scratch_work(void *argument) {
    const struct scratcher *const self = (const struct scratcher *)argument;
    free(self->given);
    for (uint64_t i = 0; i < self->blocks; i++) {
        volatile unsigned char *const block = (volatile unsigned char *)bench_malloc(self->size);
        for (uint64_t at = 0; at < self->size; at++) {
            block[at] = (unsigned char)at;
        }
        for (uint64_t n = 0; n < self->writes; n++) {
            for (uint64_t at = 0; at < self->size; at++) {
                block[at]++;
            }
        }
        if (block[0] != (unsigned char)self->writes) {
            bench_fail("a block lost its contents");
        }
        free((void *)block);
    }
    return NULL;
}

static int scratch_main(int argc, char **argv, bool hand_out) {
    uint64_t threads = 2;
    uint64_t blocks = 2000;
    uint64_t writes = 100000;
    uint64_t size = 8;
    const struct bench_option table[] = {
        {"threads", &threads, "worker threads"},
        {"blocks", &blocks, "blocks in all"},
        {"writes", &writes, "times each block is written"},
        {"size", &size, "bytes of each block"},
    };
    BENCH_OPTIONS(argc, argv, table);
    if (threads == 0 || threads > BENCH_THREADS_MAX || size == 0) {
        bench_fail("threads must be 1 to %d, size at least 1", BENCH_THREADS_MAX);
    }

    static struct scratcher items[BENCH_THREADS_MAX];
    for (uint64_t i = 0; i < threads; i++) {
        items[i].given = hand_out ? (unsigned char *)bench_malloc(size) : NULL;
        items[i].blocks = blocks / threads;
        items[i].writes = writes;
        items[i].size = size;
    }
    const uint64_t start = bench_now_ns();
    bench_parallel(scratch_work, items, sizeof items[0], threads);
    bench_score((double)(bench_now_ns() - start) / 1e9, "s");
    return 0;
}

#endif
