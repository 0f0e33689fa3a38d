// SPDX-License-Identifier: MIT
// Own heaps: a heap with a reserve of its own, on no thread. See reserve.h.
//
// Owns     its chunks, from creation to end.
// Threads  creation and end: any, with the arena's lock for a moment. In between the heap is its
//          user's, one thread at a time; what others free comes to it as to any heap.
// Holds    a structure is never given up, since the list of all heaps leads to its heap: it is kept
//          for the next own heap that needs no more chunks.
#ifndef MALLOW_HEAP_HEAP_OWN_H
#define MALLOW_HEAP_HEAP_OWN_H

#include "heap/heap.h"

struct heap_own {
    struct heap *heap;
    struct reserve reserve;
    struct heap_shared *shared;
    struct heap_own *next; // of those that are kept
    bool locked;           // its pages are
    uint32_t last_status;  // the API's: why the last request was refused
    uint64_t refused_count;
};

enum heap_own_result {
    HEAP_OWN_MADE,
    HEAP_OWN_NO_MEMORY,
    HEAP_OWN_NOT_IN,     // pages were not to be had
    HEAP_OWN_NOT_LOCKED, // nor to be locked, which was asked for
};

// A heap with `bytes` of reserve; *own on success. `lock` implies `prefault`.
MALLOW_INTERNAL enum heap_own_result heap_own_create(struct heap_shared *shared, size_t bytes,
                                                     bool prefault, bool lock,
                                                     struct heap_own **own);

MALLOW_INTERNAL void heap_own_end(struct heap_own *own);

#endif
