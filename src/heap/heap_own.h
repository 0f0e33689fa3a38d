// SPDX-License-Identifier: MIT
// Own heaps: a heap on no thread with a reserve of its own (reserve.h), or one that grows as a
// thread's does, under an allowance.
//
// Owns     its chunks, from creation to end; what it holds of the arenas and of huge blocks.
// Threads  creation and end: any, with the arena's lock for a moment. In between the heap is its
//          user's, one thread at a time; what others free comes to it as to any heap.
// Holds    of a heap that grows: allowance.held_bytes = spans and mappings of its blocks.
//          A slab of it has the heap as owner; large and huge blocks lead to the allowance.
//          A structure is never given up, since the list of all heaps leads to its heap: it is kept
//          for the next own heap that needs no more chunks.
#ifndef MALLOW_HEAP_HEAP_OWN_H
#define MALLOW_HEAP_HEAP_OWN_H

#include "heap/heap.h"

struct mw_shed_request;

struct heap_own {
    struct heap *heap;
    struct reserve reserve;
    struct os_charge allowance; // in use iff reserve.allowance leads here
    struct heap_shared *shared;
    struct heap_own *next; // of those that are kept
    bool locked;           // its pages are
    uint32_t last_status;  // the API's: why the last request was refused
    uint64_t refused_count;
    // The API's as well: the program's function, and rounds of it.
    void (*shed)(const struct mw_shed_request *request, void *argument);
    void *shed_argument;
    uint64_t shed_count;
    uint64_t soft_bytes; // as set, also where it is above the hard limit; UINT64_MAX: none
    bool shedding; // it is running
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

// A heap that grows, with no limits as yet; NULL: no memory.
MALLOW_INTERNAL struct heap_own *heap_own_create_growing(struct heap_shared *shared);

MALLOW_INLINE bool heap_own_grows(const struct heap_own *own) {
    return own->reserve.allowance != NULL;
}

// O(reserve), or O(all arenas / 64 KiB) for one that grows.
MALLOW_INTERNAL void heap_own_end(struct heap_own *own);

#endif
