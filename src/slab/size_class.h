// SPDX-License-Identifier: MIT
// Size classes: size -> class -> block size, and the shape of a class's slabs.
//
// Owns     a table of the block size of each class, for slow paths, which ask for it several times
//          in a call (decision 70). The fast paths have no use for it. All else is arithmetic.
// Holds    with the 8 steps a doubling that are shipped (config.h; decision 7 has the others'
//          figures): classes 0..7 are 16, 32 ... 128 bytes; from there each doubling has 8, so a
//          block is at most 12.5 % larger than asked for (plus 15 bytes below 128).
//          A block size is a multiple of every power of two that divides the size asked for, up to
//          the step of its doubling, so rounding a size up to an alignment makes its blocks
//          aligned.
#ifndef MALLOW_SLAB_SIZE_CLASS_H
#define MALLOW_SLAB_SIZE_CLASS_H

#include <assert.h>

#include "base/bits.h"
#include "config.h"

#define SIZE_CLASS_STEP_BITS MALLOW_CLASS_STEP_BITS
#define SIZE_CLASS_STEP_MASK (MALLOW_CLASS_STEPS - 1U)
#define SIZE_CLASS_LINEAR_COUNT MALLOW_CLASS_STEPS // classes 16 apart: up to 128 bytes
#define SIZE_CLASS_LINEAR_SHIFT (MALLOW_GRANULE_SHIFT + SIZE_CLASS_STEP_BITS) // 128 = 1 << 7

// size <= MALLOW_SLAB_BYTES_MAX
MALLOW_INLINE unsigned size_class_of(size_t size) {
    if (size <= SIZE_CLASS_LINEAR_COUNT * MALLOW_GRANULE_BYTES) {
        return size == 0 ? 0 : (unsigned)((size - 1) >> MALLOW_GRANULE_SHIFT);
    }
    const unsigned doubling = bits_highest(size - 1);
    const unsigned step = (unsigned)((size - 1) >> (doubling - SIZE_CLASS_STEP_BITS)) &
                          SIZE_CLASS_STEP_MASK;
    return SIZE_CLASS_LINEAR_COUNT +
           ((doubling - SIZE_CLASS_LINEAR_SHIFT) << SIZE_CLASS_STEP_BITS) + step;
}

// By class; there are at most so many with any number of steps (config.h).
enum { SIZE_CLASS_TABLE_COUNT = 80 };
static_assert(MALLOW_CLASS_COUNT <= SIZE_CLASS_TABLE_COUNT, "a place for each class");
MALLOW_EXTERN_DATA const uint32_t size_class_table[SIZE_CLASS_TABLE_COUNT];

MALLOW_INLINE size_t size_class_bytes(unsigned class_index) {
    return size_class_table[class_index];
}

// How many sizes in granules the class serves, of which its blocks' is the largest.
MALLOW_INLINE unsigned size_class_granules(unsigned class_index) {
    return class_index < SIZE_CLASS_LINEAR_COUNT
               ? 1
               : 1U << ((class_index - SIZE_CLASS_LINEAR_COUNT) >> SIZE_CLASS_STEP_BITS);
}

// The largest class of a class's doubling, whose blocks may serve for those of the class: a power
// of two.
MALLOW_INLINE unsigned size_class_host(unsigned class_index) {
    if (class_index >= SIZE_CLASS_LINEAR_COUNT) {
        return class_index | SIZE_CLASS_STEP_MASK;
    }
    return class_index == 0 ? 0 : (2U << bits_highest(class_index)) - 1;
}

// The classes below MALLOW_DIRECT_CLASS_COUNT that have such a one for their host, as a mask.
MALLOW_INLINE uint32_t size_class_guests(unsigned class_index) {
    const uint32_t below = UINT32_C(1) << class_index;
    if (class_index >= SIZE_CLASS_LINEAR_COUNT) {
        return (class_index & SIZE_CLASS_STEP_MASK) == SIZE_CLASS_STEP_MASK
                   ? below - (below >> SIZE_CLASS_STEP_MASK)
                   : 0;
    }
    return (class_index & (class_index + 1)) == 0 ? below - (UINT32_C(1) << (class_index + 1) / 2)
                                                  : 0;
}

// Slices of one slab: one for small blocks; for larger ones, room for at least eight.
MALLOW_INLINE unsigned size_class_slices(unsigned class_index) {
    const size_t block_bytes = size_class_bytes(class_index);
    if (block_bytes <= MALLOW_SINGLE_SLICE_BLOCK_MAX) {
        return 1;
    }
    return (unsigned)((8 * block_bytes + MALLOW_SLICE_BYTES - 1) >> MALLOW_SLICE_SHIFT);
}

MALLOW_INLINE unsigned size_class_capacity(unsigned class_index) {
    const size_t span_bytes = (size_t)size_class_slices(class_index) << MALLOW_SLICE_SHIFT;
    const size_t fit = span_bytes / size_class_bytes(class_index);
    return (unsigned)bits_min(fit, MALLOW_SLAB_CAPACITY_MAX);
}

#endif
