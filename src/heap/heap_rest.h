// SPDX-License-Identifier: MIT
// Rest: takes a current slab out of the way of malloc's fast path without its thread's help, until
// that thread next allocates of the class.
//
// Owns     `resting` of a heap: NULL, or one place a class with a fast path.
// Threads  heap_rest_class: a visitor, inside the heap's gate. Waking: the heap's thread, between
//          enter and leave. Reading: also the thread's free, which no gate keeps out.
// Holds    while resting[c] is a slab, that slab is the class's current one in every respect but
//          that direct[] leads malloc to the empty slab, and so to the slow path and the gate. A
//          malloc that had looked into direct[] before may still be under way: one at most, if its
//          thread has not run since. It takes the hot block if there is one, otherwise the lowest
//          free one of the current word.
#ifndef MALLOW_HEAP_HEAP_REST_H
#define MALLOW_HEAP_HEAP_REST_H

#include "heap/heap.h"

struct heap_resting {
    struct slab *slabs[MALLOW_DIRECT_CLASS_COUNT];
};

MALLOW_INLINE bool heap_is_resting(const struct heap *heap, unsigned class_index) {
    const struct heap_resting *const resting = __atomic_load_n(&heap->resting, __ATOMIC_ACQUIRE);
    return resting != NULL && class_index < MALLOW_DIRECT_CLASS_COUNT &&
           __atomic_load_n(&resting->slabs[class_index], __ATOMIC_RELAXED) != NULL;
}

// Puts the class's current slab to rest. False: there is none, or no memory to do so.
MALLOW_INTERNAL bool heap_rest_class(struct heap *heap, unsigned class_index);

// Ends the rest of a class.
MALLOW_INTERNAL MALLOW_COLD void heap_wake_class(struct heap *heap, unsigned class_index);

#endif
