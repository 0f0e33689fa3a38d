// SPDX-License-Identifier: MIT
// A thread's state: where its heap is (heap.h), and what the call under way has cost so far.
//
// Owns     heap_thread.
// Threads  each its own.
// Holds    all zero is the state of a thread that has not called yet: its heap is heap_empty.
//          `effort` is 0 where a call has done no more than the fast path does.
#ifndef MALLOW_HEAP_HEAP_THREAD_H
#define MALLOW_HEAP_HEAP_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "config.h"

// A thread's state. All zero means: not initialised. heap_offset is relative to heap_empty, so that
// zero is heap_empty itself and the fast path needs no test.
struct heap_thread {
    uintptr_t heap_offset;
    uintptr_t operator_offset; // the same, or 0: see heap_operator_current
    uint8_t ended;         // 1 after the thread's destructor has run
    uint8_t apart;         // blocks of slices, without a heap, that it had and that fit a slab
    uint16_t first;        // 1 during its first call, which makes its heap
    uint16_t effort;       // what the call under way has cost so far: see heap_note_effort
    uint16_t first_effort; // with what its allocation begins
};

MALLOW_EXTERN_DATA _Thread_local struct heap_thread heap_thread;

MALLOW_INLINE bool heap_operators_settled(void) {
    return heap_thread.operator_offset != 0;
}

MALLOW_INLINE void heap_settle_operators(void) {
    heap_thread.operator_offset = heap_thread.heap_offset;
}

// Effort, in units of some hundred instructions: what is more than a few steps says so, and what
// can wait for a later call looks first. So no call does several such things that need not be done
// in one.
enum heap_effort {
    HEAP_EFFORT_LOOK = 1,     // at what others have freed, or left
    HEAP_EFFORT_MOVE = 3,     // the allocation is for a block that moves
    HEAP_EFFORT_MOVE_FAR = 4, // the same out of a span or a mapping of its own
    HEAP_EFFORT_MOVE_REFUSED = 9, // the same, and the kernel has been asked for it in vain
    HEAP_EFFORT_POST = 2,     // a slab posted by others
    HEAP_EFFORT_RELEASE = 2,  // a slab, or a large block, given up
    HEAP_EFFORT_SETTLE = 2,   // a piece of what is owed
    HEAP_EFFORT_HUGE = 3,
    HEAP_EFFORT_SPAN = 5,     // one taken
    HEAP_EFFORT_GROWTH = 3,   // besides: memory was committed for it
};

MALLOW_INLINE void heap_begin_effort(void) {
    heap_thread.effort = heap_thread.first_effort;
}

// Around the allocation for a block that moves, which has to be copied and freed as well.
MALLOW_INLINE void heap_begin_move(enum heap_effort effort) {
    heap_thread.first_effort = (uint16_t)effort;
}

MALLOW_INLINE void heap_end_move(enum heap_effort effort) {
    heap_thread.first_effort = 0;
    if (heap_thread.effort != 0) { // else it was a fast one
        heap_thread.effort = (uint16_t)(heap_thread.effort - effort);
    }
}

// Around the allocation of a thread's first call, which has made its heap: enough to do.
MALLOW_INLINE void heap_begin_first(void) {
    heap_thread.first = 1;
    heap_thread.first_effort = (uint16_t)(heap_thread.first_effort + HEAP_EFFORT_LOOK);
}

MALLOW_INLINE void heap_end_first(void) {
    heap_thread.first = 0;
    heap_thread.first_effort = (uint16_t)(heap_thread.first_effort - HEAP_EFFORT_LOOK);
}

// Around a function of the program that a call runs: what it calls begins with nothing spent, and
// the call goes on with what it has spent itself.
struct heap_call {
    uint16_t effort;
    uint16_t first_effort;
};

MALLOW_INLINE struct heap_call heap_leave_call(void) {
    const struct heap_call call = {heap_thread.effort, heap_thread.first_effort};
    heap_thread.first_effort = 0;
    return call;
}

MALLOW_INLINE void heap_resume_call(struct heap_call call) {
    heap_thread.effort = call.effort;
    heap_thread.first_effort = call.first_effort;
}

// Whether the allocation for a block that moves has cost so much that what can wait of freeing the
// block is left to later calls.
MALLOW_INLINE bool heap_is_move_dear(void) {
    return heap_thread.effort >= HEAP_EFFORT_POST;
}

MALLOW_INLINE void heap_note_effort(enum heap_effort effort) {
    heap_thread.effort = (uint16_t)(heap_thread.effort + effort);
}

// What this call may do for others, in words of bitmaps (heap_drain_one).
MALLOW_INLINE int heap_call_work(void) {
    return heap_thread.effort == 0 ? MALLOW_CALL_WORK : 0;
}

#endif
