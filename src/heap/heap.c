// SPDX-License-Identifier: MIT
// Heap: the constants that a thread starts from. See heap.h.
#include "heap/heap.h"

// A slab without a free block: what malloc finds where there is no slab.
static const struct slab heap_empty_slab = {
    .class_index = MALLOW_CLASS_COUNT, // no class's
    .word = (uint64_t *)(uintptr_t)&heap_empty_slab.bits[0],
};

MALLOW_SHARED_DATA const struct heap heap_empty = {
    .header_mask = 0,
    .header_base = (uintptr_t)&heap_empty_slab,
    .direct = {[0 ... MALLOW_DIRECT_COUNT - 1] = (struct slab *)(uintptr_t)&heap_empty_slab},
};

MALLOW_SHARED_DATA _Thread_local struct heap_thread heap_thread;
