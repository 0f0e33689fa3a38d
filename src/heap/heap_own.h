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
    void *value;   // the program's
};

// A heap with `bytes` of reserve; NULL: no memory.
MALLOW_INTERNAL struct heap_own *heap_own_create(struct heap_shared *shared, size_t bytes);

// What of its reserve has no pages yet. A system call for every 2 MiB.
MALLOW_INTERNAL size_t heap_own_missing_bytes(const struct heap_own *own);

// Brings in, and locks if *lock, all that its calls touch. False: pages were not to be had; *lock
// becomes false where they could not be locked. Before the heap is used.
MALLOW_INTERNAL bool heap_own_bring_in(struct heap_own *own, bool *lock);

// A heap that grows, with no limits as yet; NULL: no memory.
MALLOW_INTERNAL struct heap_own *heap_own_create_growing(struct heap_shared *shared);

MALLOW_INLINE bool heap_own_grows(const struct heap_own *own) {
    return own->reserve.allowance != NULL;
}

// The own heap that the live block at `address` is of; NULL: none, or no block. Any value, no lock.
MALLOW_INTERNAL struct heap_own *heap_own_of(const struct heap_shared *shared, uintptr_t address);

// O(reserve), or O(all arenas / 64 KiB) for one that grows.
MALLOW_INTERNAL void heap_own_end(struct heap_own *own);

#endif
