// SPDX-License-Identifier: MIT
// The fill table of unalloc: with 1, 2, 4 or 8 size classes per doubling between 32 B and 8 MiB, how
// much of the memory given out is used, what a replacement costs, how often a growing block moves.
// Then the same questions to the malloc in use.
//
// Source   "unalloc: fast by tens malloc() and free() at 25 % memory cost": its table of 10, 20, 40
//          and 80 lists with 75, 88, 93 and 97 % used (the printed figures stand beside ours in
//          `mallow-bench classics`). `expected` is exact for sizes that are uniform in a doubling:
//          the mean of a step's two ends over its upper end, summed over the steps.
// Checks   a class is large enough for the sizes it serves, and the next smaller one is not.

#include "unalloc_layer.h"

#include <malloc.h>

enum { MOST_LOG2 = 23, DENSITIES = 4 }; // 8 MiB

// Share used when sizes are uniform over one doubling; the same in every doubling.
static double expected_percent(unsigned steps) {
    double used = 0, given = 0;
    for (unsigned i = 0; i < steps; i++) {
        const double low = 1 + (double)i / steps, high = 1 + (double)(i + 1) / steps;
        used += (low + high) / 2;
        given += high;
    }
    return 100 * used / given;
}

static double layer_percent(const struct layer *layer, uint64_t samples) {
    uint64_t seed = 1, used = 0, given = 0;
    for (uint64_t i = 0; i < samples; i++) {
        const uint64_t octave = bench_between(&seed, 5, MOST_LOG2 - 1);
        const size_t size = (UINT64_C(1) << octave) + 1 + bench_below(&seed, UINT64_C(1) << octave);
        const size_t class_index = layer_class(layer, size);
        const size_t capacity = layer_capacity(layer, class_index);
        if (capacity < size ||
            (class_index > 0 && layer_capacity(layer, class_index - 1) >= size)) {
            bench_fail("class %zu of %zu bytes is wrong for %zu", class_index, capacity, size);
        }
        used += size << (MOST_LOG2 - octave); // every doubling weighs the same
        given += capacity << (MOST_LOG2 - octave);
    }
    return 100 * (double)used / (double)given;
}

static double layer_ns(struct layer *layer, uint64_t ops) {
    static void *blocks[1024];
    memset(blocks, 0, sizeof blocks);
    uint64_t seed = 2;
    uint64_t start = bench_cpu_ns();
    for (uint64_t i = 0; i < ops * 2; i++) {
        if (i == ops) {
            start = bench_cpu_ns(); // the first half only fills the lists
        }
        void **const place = &blocks[bench_below(&seed, 1024)];
        if (*place != NULL) {
            layer_free(layer, *place);
        }
        *place = layer_allocate(layer, 1 + bench_below(&seed, 65536));
        *(volatile char *)*place = 1;
    }
    const double taken = (double)(bench_cpu_ns() - start) / (double)ops;
    for (size_t i = 0; i < 1024; i++) {
        if (blocks[i] != NULL) {
            layer_free(layer, blocks[i]);
        }
    }
    layer_close(layer);
    return taken;
}

// A block grows by an eighth from 32 B to 8 MiB: how many of the steps move it?
static double layer_moves(struct layer *layer) {
    size_t size = LAYER_LEAST, steps = 0, moves = 0;
    void *block = layer_allocate(layer, size);
    while (size < (UINT64_C(1) << MOST_LOG2)) {
        const size_t grown = size + size / 8;
        void *const moved = layer_resize(layer, block, grown, size);
        moves += moved != block;
        steps++;
        block = moved;
        size = grown;
    }
    layer_free(layer, block);
    layer_close(layer);
    return 100.0 * (double)moves / (double)steps;
}

static void malloc_figures(uint64_t samples, uint64_t ops) {
    static void *blocks[1024];
    uint64_t seed = 1, used = 0, given = 0;
    for (uint64_t i = 0; i < samples; i++) {
        const uint64_t octave = bench_between(&seed, 5, MOST_LOG2 - 1);
        const size_t size = (UINT64_C(1) << octave) + 1 + bench_below(&seed, UINT64_C(1) << octave);
        void *const block = bench_malloc(size);
        used += size << (MOST_LOG2 - octave);
        given += malloc_usable_size(block) << (MOST_LOG2 - octave);
        free(block);
    }
    seed = 2;
    const uint64_t start = bench_cpu_ns();
    for (uint64_t i = 0; i < ops; i++) {
        void **const place = &blocks[bench_below(&seed, 1024)];
        free(*place);
        *place = bench_malloc(1 + bench_below(&seed, 65536));
        *(volatile char *)*place = 1;
    }
    const double taken = (double)(bench_cpu_ns() - start) / (double)ops;
    for (size_t i = 0; i < 1024; i++) {
        free(blocks[i]);
    }
    size_t size = LAYER_LEAST, steps = 0, moves = 0;
    void *block = bench_malloc(size);
    for (; size < (UINT64_C(1) << MOST_LOG2); size += size / 8, steps++) {
        const uintptr_t before = (uintptr_t)block;
        block = bench_realloc(block, size + size / 8);
        moves += (uintptr_t)block != before;
    }
    free(block);
    const double percent = 100 * (double)used / (double)given;
    bench_figure("malloc_used", percent, "%");
    bench_figure("malloc_replace", taken, "ns");
    bench_figure("malloc_moves", 100.0 * (double)moves / (double)steps, "%");
    bench_score(percent, "%_used");
}

static void scheme_figure(unsigned steps, const char *what, double value, const char *unit) {
    char name[32];
    snprintf(name, sizeof name, "scheme%u_%s", steps, what);
    bench_figure(name, value, unit);
}

int main(int argc, char **argv) {
    uint64_t samples = 200000;
    uint64_t ops = 4000000;
    const struct bench_option table[] = {
        {"samples", &samples, "sizes drawn for the fill column"},
        {"ops", &ops, "replacements for the ns column"},
    };
    BENCH_OPTIONS(argc, argv, table);

    for (unsigned density = 0; density < DENSITIES; density++) {
        static struct layer layer;
        layer = (struct layer){.step_bits = density};
        const unsigned steps = 1u << density;
        const size_t classes = layer_class(&layer, (size_t)1 << MOST_LOG2) + 1;
        scheme_figure(steps, "classes", (double)classes, "");
        scheme_figure(steps, "expected", expected_percent(steps), "%");
        scheme_figure(steps, "used", layer_percent(&layer, samples), "%");
        scheme_figure(steps, "replace", layer_ns(&layer, ops), "ns");
        scheme_figure(steps, "moves", layer_moves(&layer), "%");
    }
    malloc_figures(samples, ops);
    return 0;
}
