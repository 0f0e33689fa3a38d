// SPDX-License-Identifier: MIT
// The scheme of unalloc, as its article describes it, with the density of classes as a parameter:
// every block belongs to a size class; freed blocks wait in one last-in-first-out list a class and
// never go back before the end; new blocks come from malloc.
//
// Source   "unalloc: fast by tens malloc() and free() at 25 % memory cost" (article and comments);
//          written from that description: one step to allocate, one to free, a size header.
// Owns     the lists of one layer.
// Holds    capacity_of(class) >= size for class_of(size), and class_of(capacity_of(c)) == c.
//
//   steps = classes per doubling:  capacity of class c = (steps + c mod steps) * 2^(c / steps) * unit

#ifndef MALLOW_BENCH_UNALLOC_LAYER_H
#define MALLOW_BENCH_UNALLOC_LAYER_H

#include "common.h"

enum { LAYER_STEPS_MAX = 8, LAYER_CLASSES_MAX = 64 * LAYER_STEPS_MAX, LAYER_LEAST = 32 };

struct layer_block { // the header; the list link lies in the payload while the block is free
    size_t class_index;
    size_t padding;
};

struct layer {
    unsigned step_bits; // classes per doubling: 1 << step_bits
    void *lists[LAYER_CLASSES_MAX];
};

static inline size_t layer_capacity(const struct layer *layer, size_t class_index) {
    const size_t steps = (size_t)1 << layer->step_bits;
    const size_t unit = LAYER_LEAST >> layer->step_bits;
    return (steps + class_index % steps) * unit << class_index / steps;
}

static inline size_t layer_class(const struct layer *layer, size_t size) {
    if (size <= LAYER_LEAST) {
        return 0;
    }
    const unsigned octave = 63u - (unsigned)__builtin_clzll(size - 1);
    const unsigned shift = octave - layer->step_bits;
    const size_t mantissa = ((size - 1) >> shift) + 1; // steps + 1 ... 2 * steps
    const size_t steps = (size_t)1 << layer->step_bits;
    return (octave - 5) * steps + (mantissa - steps);
}

static inline void *layer_allocate(struct layer *layer, size_t size) {
    const size_t class_index = layer_class(layer, size);
    void *const free_block = layer->lists[class_index];
    if (free_block != NULL) {
        layer->lists[class_index] = *(void **)free_block;
        return free_block;
    }
    struct layer_block *const fresh =
        (struct layer_block *)bench_malloc(sizeof *fresh + layer_capacity(layer, class_index));
    fresh->class_index = class_index;
    return fresh + 1;
}

static inline size_t layer_block_class(const void *block) {
    return ((const struct layer_block *)block - 1)->class_index;
}

static inline void layer_free(struct layer *layer, void *block) {
    const size_t class_index = layer_block_class(block);
    *(void **)block = layer->lists[class_index];
    layer->lists[class_index] = block;
}

// Moves only when the block's class is too small; shrinking never moves.
static inline void *layer_resize(struct layer *layer, void *block, size_t size, size_t old_size) {
    if (size <= layer_capacity(layer, layer_block_class(block))) {
        return block;
    }
    void *const moved = layer_allocate(layer, size);
    memcpy(moved, block, old_size);
    layer_free(layer, block);
    return moved;
}

static inline void layer_close(struct layer *layer) {
    for (size_t i = 0; i < LAYER_CLASSES_MAX; i++) {
        while (layer->lists[i] != NULL) {
            void *const next = *(void **)layer->lists[i];
            free((struct layer_block *)layer->lists[i] - 1);
            layer->lists[i] = next;
        }
    }
}

#endif
