// SPDX-License-Identifier: MIT
// Every thread holds a working set of 1024 places and, at random places, frees what is there and
// allocates anew; sizes from 4 to 32768 bytes, whose likelihood falls as a power law.
//
// Source   glibc's benchtests "malloc-thread" as its comments describe it: working set, range and
//          distribution of sizes; own program. Differs: a fixed number of operations, shared out.
// Checks   both ends of every block.

#include "common.h"

#include <math.h>

enum { PLACES = 1024, SIZES = 8192 };

struct worker {
    uint64_t ops;
    uint64_t seed;
    const uint32_t *sizes; // SIZES draws from the distribution
};

// Inverse of the distribution function of x^exponent between `least` and `most`.
static void draw_sizes(uint32_t *sizes, double least, double most) {
    const double exponent = -1.5;
    const double low = pow(least, exponent + 1), high = pow(most, exponent + 1);
    uint64_t seed = 7;
    for (size_t i = 0; i < SIZES; i++) {
        const double u = (double)(bench_random(&seed) >> 11) / 9007199254740992.0;
        sizes[i] = (uint32_t)pow((high - low) * u + low, 1 / (exponent + 1));
    }
}

static void *work(void *argument) {
    struct worker *const self = argument;
    void *blocks[PLACES] = {NULL};
    uint32_t sizes[PLACES];
    for (uint64_t i = 0; i < self->ops; i++) {
        const uint64_t r = bench_random(&self->seed);
        const size_t at = r % PLACES;
        if (blocks[at] != NULL) {
            bench_check(blocks[at], sizes[at]);
            free(blocks[at]);
        }
        sizes[at] = self->sizes[(r >> 32) % SIZES];
        blocks[at] = bench_malloc(sizes[at]);
        bench_stamp(blocks[at], sizes[at]);
    }
    for (size_t i = 0; i < PLACES; i++) {
        free(blocks[i]);
    }
    return NULL;
}

int main(int argc, char **argv) {
    uint64_t threads = 2;
    uint64_t ops = 80000000;
    const struct bench_option table[] = {
        {"threads", &threads, "threads"},
        {"ops", &ops, "replacements in all"},
    };
    BENCH_OPTIONS(argc, argv, table);
    if (threads == 0 || threads > BENCH_THREADS_MAX) {
        bench_fail("threads must be 1 to %d", BENCH_THREADS_MAX);
    }

    static uint32_t sizes[SIZES];
    static struct worker items[BENCH_THREADS_MAX];
    draw_sizes(sizes, 4, 32768);
    for (uint64_t i = 0; i < threads; i++) {
        items[i] = (struct worker){ops / threads, i, sizes};
    }
    const uint64_t start = bench_now_ns();
    bench_parallel(work, items, sizeof items[0], threads);
    bench_score((double)ops / ((double)(bench_now_ns() - start) / 1e9) / 1e6, "Mops/s");
    return 0;
}
