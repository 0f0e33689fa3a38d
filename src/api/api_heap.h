// SPDX-License-Identifier: MIT
// API: what the calls of mallow/heap.h have in common.
//
// Owns     nothing.
// Threads  as the heap's: one at a time.
#ifndef MALLOW_API_API_HEAP_H
#define MALLOW_API_API_HEAP_H

#include "api/api.h"
#include "heap/heap_own.h"
#include "mallow/heap.h"

// What the public pointer points to.
struct mw_heap {
    struct heap_own own;
};

MALLOW_INLINE struct heap_own *api_own(struct mw_heap *heap) {
    return &heap->own;
}

// NULL, with errno, the status, and one more refusal counted.
MALLOW_INTERNAL void *api_heap_refuse(struct heap_own *own, enum mw_heap_status status, int error);

// A block, or NULL as above; `alignment` is a power of two. A zeroed one is so to its very end.
MALLOW_INTERNAL void *api_heap_allocate(struct heap_own *own, size_t size, size_t alignment,
                                        bool zeroed);

// Does what is due after a block of a heap that grows has been resized where it is, or with its
// pages. `entries`: os_entries when the call began.
MALLOW_INTERNAL void api_heap_attend_resized(struct heap_own *own, uint64_t entries);

#endif
