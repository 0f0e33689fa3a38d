// SPDX-License-Identifier: MIT
// What the slices of a large block are charged to besides the process: kept where a slab has the
// word that malloc takes from. Not by the owner word: where that leads, others may post what they
// know of an earlier life of the slot.
//
// Owns     that use of `word`.
// Holds    a value with the mark is an allowance, whatever the slab is by now: slabs and thin
//          slices have addresses of words there. So who only asks may come too late.
#ifndef MALLOW_HEAP_LARGE_H
#define MALLOW_HEAP_LARGE_H

#include "heap/heap.h"

#define HEAP_LARGE_MARK ((uintptr_t)1)

// NULL: nothing. Of a large block that is the caller's, or for a comparison.
MALLOW_INLINE struct os_charge *heap_large_allowance(const struct slab *slab) {
    const uintptr_t word = (uintptr_t)__atomic_load_n(&slab->word, __ATOMIC_RELAXED);
    return (void *)(word & ~HEAP_LARGE_MARK);
}

MALLOW_INLINE void heap_large_set_allowance(struct slab *slab, const struct os_charge *allowance) {
    __atomic_store_n(&slab->word, (void *)((uintptr_t)allowance | HEAP_LARGE_MARK),
                     __ATOMIC_RELAXED);
}

#endif
