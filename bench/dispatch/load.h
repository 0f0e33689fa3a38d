// SPDX-License-Identifier: MIT
// Load of the dispatch simulation: pieces of work that arrive in bursts, each with a class of blocks,
// how many it will take, how fast, and for how long. Made from a seed before the run, so that every
// policy meets the same.
//
//   arrival    each class has a process of its own that is calm or bursting (Markov-modulated
//              Poisson): calm, 0.7 of its mean rate for 400 ticks in the mean; bursting, 2.8 of it
//              for 66
//   blocks     bounded Pareto, 0.3 % to 12 % of a core's blocks of the class, exponent 1.1: most work
//              is small, most blocks are in work that is big
//   taken      evenly over 4 to 24 ticks, so that a core goes on filling after the work has landed
//   held       bounded Pareto, 250 to 4,000 ticks, exponent 1.5
//   pinned     a quarter of the work cannot be routed: it belongs to a core, core k with a weight of
//              1 / (k + 3)
//   handed on  a third is freed by another core than the one that took the blocks

#ifndef MALLOW_BENCH_DISPATCH_LOAD_H
#define MALLOW_BENCH_DISPATCH_LOAD_H

#include "common.h"

#include <math.h>

enum { LOAD_CLASSES = 4, LOAD_CORES_MAX = 64 };

static const struct {
    size_t block_bytes;
    size_t block_count; // of one core
} load_classes[LOAD_CLASSES] = {{64, 4096}, {256, 2048}, {1024, 1024}, {4096, 512}};

struct work {
    uint32_t arrival;
    uint32_t hold; // ticks from the last block to the end
    uint32_t wanted;
    uint32_t rate; // blocks a tick
    uint32_t taken;
    uint32_t next; // in whatever list it is
    uint8_t class_index;
    bool is_pinned;
    uint8_t core;    // that it is pinned to, then that it went to
    uint8_t freeing; // core that frees it
    void *blocks;    // its blocks, linked through their first words
};

struct load {
    struct work *work; // in the order of arrival
    uint32_t count;
    uint32_t ticks;
};

static inline double load_uniform(uint64_t *random) {
    return ((double)(bench_random(random) >> 11) + 0.5) / 9007199254740992.0;
}

static inline double load_pareto(uint64_t *random, double low, double high, double exponent) {
    const double u = load_uniform(random);
    const double tail = 1 - pow(low / high, exponent);
    return low / pow(1 - u * tail, 1 / exponent);
}

static inline double load_pareto_mean(double low, double high, double exponent) {
    const double tail = 1 - pow(low / high, exponent);
    return pow(low, exponent) / tail * exponent / (exponent - 1) *
           (1 / pow(low, exponent - 1) - 1 / pow(high, exponent - 1));
}

// Knuth's method; the means here are small.
static inline uint32_t load_poisson(uint64_t *random, double mean) {
    const double limit = exp(-mean);
    uint32_t count = 0;
    for (double product = load_uniform(random); product > limit; count++) {
        product *= load_uniform(random);
    }
    return count;
}

static inline uint8_t load_pinned_core(uint64_t *random, uint32_t cores) {
    double sum = 0;
    for (uint32_t core = 0; core < cores; core++) {
        sum += 1.0 / (core + 3);
    }
    double left = load_uniform(random) * sum;
    uint32_t core = 0;
    while (core + 1 < cores && (left -= 1.0 / (core + 3)) > 0) {
        core++;
    }
    return (uint8_t)core;
}

static inline struct work load_work(uint64_t *random, uint32_t tick, unsigned class_index,
                                    uint32_t cores) {
    const double share = load_pareto(random, 0.003, 0.12, 1.1);
    const uint32_t wanted = (uint32_t)ceil(share * (double)load_classes[class_index].block_count);
    const uint32_t ramp = 4 + (uint32_t)(load_uniform(random) * 21);
    struct work work = {
        .arrival = tick,
        .hold = (uint32_t)load_pareto(random, 250, 4000, 1.5),
        .wanted = wanted,
        .rate = (wanted + ramp - 1) / ramp,
        .class_index = (uint8_t)class_index,
        .is_pinned = load_uniform(random) < 0.25,
        .freeing = UINT8_MAX,
    };
    work.core = load_pinned_core(random, cores);
    const uint8_t other = (uint8_t)(load_uniform(random) * cores);
    if (load_uniform(random) < 1.0 / 3) {
        work.freeing = other;
    }
    return work;
}

// `use` is the mean share of all blocks that would be in use if nothing were refused.
static inline struct load load_make(uint64_t seed, uint32_t ticks, uint32_t cores, double use) {
    static const double calm = 0.7, bursting = 2.8;
    uint64_t random = bench_random(&seed); // neighbouring seeds begin far apart
    const double hold = load_pareto_mean(250, 4000, 1.5) + 14 / 2.0;
    const double rate = use * cores / (load_pareto_mean(0.003, 0.12, 1.1) * hold);
    const size_t most = (size_t)(rate * LOAD_CLASSES * ticks * 2) + 1000;
    struct load load = {.work = calloc(most, sizeof(struct work)), .ticks = ticks};
    if (load.work == NULL) {
        bench_fail("no memory for the load");
    }
    bool is_bursting[LOAD_CLASSES] = {false};
    for (uint32_t tick = 0; tick < ticks; tick++) {
        for (unsigned index = 0; index < LOAD_CLASSES; index++) {
            const double change = is_bursting[index] ? 1 / 66.0 : 1 / 400.0;
            if (load_uniform(&random) < change) {
                is_bursting[index] = !is_bursting[index];
            }
            uint32_t arrivals =
                load_poisson(&random, rate * (is_bursting[index] ? bursting : calm));
            for (; arrivals > 0 && load.count < most; arrivals--) {
                load.work[load.count++] = load_work(&random, tick, index, cores);
            }
        }
    }
    return load;
}

#endif
