// SPDX-License-Identifier: MIT
// unalloc's published test: a pool of 1024 places; a random one is freed and allocated anew, a million
// times a round, seven rounds; sizes are even, 0 to 65534. Then the same with realloc of a random
// place. Prints the median over the rounds of malloc's time, of the time of the article's scheme laid
// over malloc (one class per doubling), and how much of the memory given out was asked for.
//
// Source   "unalloc: fast by tens malloc() and free() at 25 % memory cost" (article): its parameters.
//          Differs: ns instead of ticks; own random numbers; every block is written at both ends;
//          the article states figures for realloc, but not how they were taken.
// Checks   both ends of every block.

#include "unalloc_layer.h"

#include <malloc.h>

enum { POOL_MAX = 65536, ROUNDS_MAX = 100 };

struct place {
    void *block;
    size_t size;
};

struct result {
    double ns;
    double used_percent; // asked for, of what the live blocks hold at the end of the round
};

static struct place pool[POOL_MAX];

static size_t article_size(uint64_t *seed) {
    return (bench_random(seed) & 0x7fff) << 1;
}

static struct result run_malloc(uint64_t pool_size, uint64_t iterations, uint64_t seed) {
    memset(pool, 0, sizeof pool);
    const uint64_t start = bench_cpu_ns();
    for (uint64_t i = 0; i < iterations; i++) {
        struct place *const place = &pool[bench_below(&seed, pool_size)];
        if (place->block != NULL) {
            bench_check(place->block, place->size);
            free(place->block);
        }
        place->size = article_size(&seed);
        place->block = bench_malloc(place->size);
        bench_stamp(place->block, place->size);
    }
    struct result result = {(double)(bench_cpu_ns() - start) / (double)iterations, 0};
    uint64_t used = 0, given = 0;
    for (uint64_t i = 0; i < pool_size; i++) {
        if (pool[i].block != NULL) {
            used += pool[i].size;
            given += malloc_usable_size(pool[i].block);
            free(pool[i].block);
        }
    }
    result.used_percent = given == 0 ? 0 : 100.0 * (double)used / (double)given;
    return result;
}

static struct result run_layer(struct layer *layer, uint64_t pool_size, uint64_t iterations,
                               uint64_t seed) {
    memset(pool, 0, sizeof pool);
    const uint64_t start = bench_cpu_ns();
    for (uint64_t i = 0; i < iterations; i++) {
        struct place *const place = &pool[bench_below(&seed, pool_size)];
        if (place->block != NULL) {
            bench_check(place->block, place->size);
            layer_free(layer, place->block);
        }
        place->size = article_size(&seed);
        place->block = layer_allocate(layer, place->size);
        bench_stamp(place->block, place->size);
    }
    struct result result = {(double)(bench_cpu_ns() - start) / (double)iterations, 0};
    uint64_t used = 0, given = 0;
    for (uint64_t i = 0; i < pool_size; i++) {
        if (pool[i].block != NULL) {
            used += pool[i].size;
            given += layer_capacity(layer, layer_block_class(pool[i].block));
            layer_free(layer, pool[i].block);
        }
    }
    result.used_percent = given == 0 ? 0 : 100.0 * (double)used / (double)given;
    return result;
}

// Each step resizes a random place; sizes are even, 2 to 65536, so that none is freed meanwhile.
static double realloc_ns(struct layer *layer, uint64_t pool_size, uint64_t iterations,
                         uint64_t seed) {
    memset(pool, 0, sizeof pool);
    for (uint64_t i = 0; i < pool_size; i++) {
        pool[i].size = article_size(&seed) + 2;
        pool[i].block = layer != NULL ? layer_allocate(layer, pool[i].size)
                                      : bench_malloc(pool[i].size);
        bench_stamp(pool[i].block, pool[i].size);
    }
    const uint64_t start = bench_cpu_ns();
    for (uint64_t i = 0; i < iterations; i++) {
        struct place *const place = &pool[bench_below(&seed, pool_size)];
        const size_t size = article_size(&seed) + 2;
        bench_check(place->block, place->size);
        place->block = layer != NULL ? layer_resize(layer, place->block, size, place->size)
                                     : bench_realloc(place->block, size);
        place->size = size;
        bench_stamp(place->block, size);
    }
    const double taken = (double)(bench_cpu_ns() - start) / (double)iterations;
    for (uint64_t i = 0; i < pool_size; i++) {
        if (layer != NULL) {
            layer_free(layer, pool[i].block);
        } else {
            free(pool[i].block);
        }
    }
    return taken;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, size_t count) {
    qsort(values, count, sizeof *values, by_value);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

int main(int argc, char **argv) {
    uint64_t pool_size = 1024;
    uint64_t iterations = 1000000;
    uint64_t rounds = 7;
    const struct bench_option table[] = {
        {"pool", &pool_size, "places (POOL_SIZE)"},
        {"iterations", &iterations, "replacements a round (ITERATIONS)"},
        {"rounds", &rounds, "rounds (ROUNDS)"},
    };
    BENCH_OPTIONS(argc, argv, table);
    if (pool_size == 0 || pool_size > POOL_MAX || rounds == 0 || rounds > ROUNDS_MAX) {
        bench_fail("pool must be 1 to %d, rounds 1 to %d", POOL_MAX, ROUNDS_MAX);
    }

    static struct layer layer; // one class per doubling, as in the article
    static double ours[ROUNDS_MAX], classes[ROUNDS_MAX], grown[ROUNDS_MAX], laid[ROUNDS_MAX];
    struct result plain = {0}, scheme = {0};
    for (uint64_t round = 0; round < rounds; round++) {
        plain = run_malloc(pool_size, iterations, round);
        scheme = run_layer(&layer, pool_size, iterations, round);
        ours[round] = plain.ns;
        classes[round] = scheme.ns;
        // fewer, because most of it is copying
        grown[round] = realloc_ns(NULL, pool_size, iterations / 8 + 1, round);
        laid[round] = realloc_ns(&layer, pool_size, iterations / 8 + 1, round);
    }
    layer_close(&layer);
    const double malloc_ns = median(ours, rounds);
    bench_figure("malloc", malloc_ns, "ns");
    bench_figure("malloc_used", plain.used_percent, "%");
    bench_figure("realloc", median(grown, rounds), "ns");
    bench_figure("scheme_malloc", median(classes, rounds), "ns");
    bench_figure("scheme_used", scheme.used_percent, "%");
    bench_figure("scheme_realloc", median(laid, rounds), "ns");
    bench_score(malloc_ns, "ns/replacement");
    return 0;
}
