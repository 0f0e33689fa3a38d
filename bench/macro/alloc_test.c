// SPDX-License-Identifier: MIT
// Random allocation and freeing over a large live set: sizes and places follow Pareto-like
// distributions, so a few places turn over fast and many blocks live long.
//
// Source   "Testing Memory Allocators: ptmalloc2 vs tcmalloc vs hoard vs jemalloc, while trying to
//          simulate real-world loads" (ITHare.com, 2018): its description of the load; own program.
// Checks   both ends of every block.
// Holds    the steps and the places are shared out over the threads.

#include "common.h"

struct tester {
    uint64_t steps;
    uint64_t places;
    uint64_t most_log2; // largest block, as a power of two
    uint64_t seed;
};

// 2^u with u uniform: the likelihood of x falls as 1/x, the heart of a Pareto distribution.
static uint64_t falling(uint64_t *seed, uint64_t limit_log2) {
    const uint64_t exponent = bench_below(seed, limit_log2);
    return (UINT64_C(1) << exponent) + bench_below(seed, UINT64_C(1) << exponent);
}

static void *work(void *argument) {
    struct tester *const self = argument;
    struct place {
        unsigned char *block;
        size_t size;
    } *const places = bench_calloc(self->places, sizeof *places);
    uint64_t places_log2 = 0;
    while ((UINT64_C(2) << places_log2) <= self->places) {
        places_log2++;
    }
    for (uint64_t step = 0; step < self->steps; step++) {
        const bool hot = bench_below(&self->seed, 2) == 0;
        const uint64_t at =
            hot ? falling(&self->seed, places_log2) - 1 : bench_below(&self->seed, self->places);
        struct place *const place = &places[at];
        if (place->block == NULL) {
            place->size = falling(&self->seed, self->most_log2);
            place->block = bench_malloc(place->size);
            bench_stamp(place->block, place->size);
        } else {
            bench_check(place->block, place->size);
            free(place->block);
            place->block = NULL;
        }
    }
    for (uint64_t i = 0; i < self->places; i++) {
        free(places[i].block);
    }
    free(places);
    return NULL;
}

int main(int argc, char **argv) {
    uint64_t threads = 1;
    uint64_t steps = 40000000;
    uint64_t places = UINT64_C(1) << 17;
    uint64_t most_log2 = 10;
    const struct bench_option table[] = {
        {"threads", &threads, "threads"},
        {"steps", &steps, "allocations and frees in all"},
        {"places", &places, "places for live blocks, over all threads"},
        {"most_log2", &most_log2, "the largest block is 2 to this power"},
    };
    BENCH_OPTIONS(argc, argv, table);
    if (threads == 0 || threads > BENCH_THREADS_MAX || places / threads < 2 || most_log2 == 0) {
        bench_fail("threads must be 1 to %d, with two places each", BENCH_THREADS_MAX);
    }

    static struct tester items[BENCH_THREADS_MAX];
    for (uint64_t i = 0; i < threads; i++) {
        items[i] = (struct tester){steps / threads, places / threads, most_log2, i};
    }
    const uint64_t start = bench_now_ns();
    bench_parallel(work, items, sizeof items[0], threads);
    bench_score((double)steps / ((double)(bench_now_ns() - start) / 1e9) / 1e6, "Mops/s");
    return 0;
}
