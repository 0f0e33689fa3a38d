// SPDX-License-Identifier: MIT
// Gate: lets another thread look after the free blocks of a heap that its own thread may be using,
// or may be asleep on.
//
// Owns     `busy` and `visit` of a heap.
// Threads  enter and leave: the heap's thread, around whatever makes free blocks ready for its fast
//          path (the choice of the word that malloc takes from, and with it of the current slab),
//          and around handing the heap on. ask, visit, end, dismiss: one visitor at a time
//          (struct heap_holes has a lock).
// Holds    while a visitor is inside, the thread is not between enter and leave, so malloc's fast
//          path takes from the words that it took from before and from no others. Its free may set
//          bits all the time: so a visitor changes none, and what it finds free stays free. Who
//          needs a block meanwhile has it from elsewhere (heap_beside.c); for other work it waits.
//
// The thread's part is two plain stores and a load; the price is paid by the visitor, who waits:
//
//   thread                              visitor
//   busy = 1                            visit: OPEN -> ASKED
//   visit is not OPEN? meet             ... MALLOW_GATE_GRACE_MS pass, or it is GRANTED ...
//   (its work)                          visit: ASKED or GRANTED -> INSIDE
//   busy = 0                            busy? then back, and out
//
// After the grace, a thread that entered before it was asked either shows as busy, since a store
// leaves the processor's buffer in far less (at once when the thread is preempted), or has left; a
// thread that enters later finds itself asked. It then says GRANTED, and from there on orders its
// store of `busy` before its look at `visit` by a fence, so that a visitor of a busy thread needs
// no grace: one of the two sees the other.
#ifndef MALLOW_HEAP_HEAP_GATE_H
#define MALLOW_HEAP_HEAP_GATE_H

#include "heap/heap.h"
#include "slab/size_class.h"

#define MALLOW_GATE_GRACE_MS 2U

enum heap_gate {
    GATE_OPEN = 0, // no visitor
    GATE_ASKED,    // one would like to enter
    GATE_GRANTED,  // and the thread knows it
    GATE_INSIDE,   // it has entered
};

// The thread, which says that it is busy, has found somebody at the gate, and answers. False: a
// visitor is inside.
MALLOW_INTERNAL bool heap_gate_answer(struct heap *heap);

// The same; waits while a visitor is inside, 10 to 200 us, or as long as that has no processor.
MALLOW_INTERNAL void heap_gate_meet(struct heap *heap);

// The thread has seen a visitor inside for long: opens the gate if there is no such thread, as in a
// child that has been made without our knowledge. A system call, and up to four in such a child.
MALLOW_INTERNAL void heap_gate_look(struct heap *heap);

MALLOW_INLINE void heap_gate_enter(struct heap *heap) {
    atomic_store_explicit(&heap->busy, 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    // Acquire: what a visitor who has left has done comes before what follows here.
    if (unlikely(atomic_load_explicit(&heap->visit, memory_order_acquire) != GATE_OPEN)) {
        heap_gate_meet(heap);
    }
}

MALLOW_INLINE void heap_gate_leave(struct heap *heap) {
    atomic_store_explicit(&heap->busy, 0, memory_order_release);
}

// Enters without waiting; false: a visitor is inside, and nothing is done.
MALLOW_INLINE bool heap_gate_enter_unless_visited(struct heap *heap) {
    atomic_store_explicit(&heap->busy, 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    if (unlikely(atomic_load_explicit(&heap->visit, memory_order_acquire) != GATE_OPEN) &&
        !heap_gate_answer(heap)) {
        heap_gate_leave(heap);
        return false;
    }
    return true;
}

// Enters, unless somebody has yet to be answered or waited for; false: not entered. Calls nothing.
MALLOW_INLINE bool heap_gate_try_enter(struct heap *heap) {
    atomic_store_explicit(&heap->busy, 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    const uint32_t visit = atomic_load_explicit(&heap->visit, memory_order_acquire);
    if (likely(visit == GATE_OPEN)) {
        return true;
    }
    if (visit == GATE_GRANTED) {
        atomic_exchange_explicit(&heap->busy, 1, memory_order_seq_cst); // a fence
        if (atomic_load_explicit(&heap->visit, memory_order_seq_cst) != GATE_INSIDE) {
            return true;
        }
    }
    heap_gate_leave(heap);
    return false;
}

// A block of more than MALLOW_SMALL_BYTES_MAX and at most MALLOW_SINGLE_SLICE_BLOCK_MAX bytes, out
// of the word that its class takes from; 0: take the slow path. Through the gate, as all of those.
MALLOW_INLINE uintptr_t heap_take_medium(struct heap *heap, size_t size) {
    const struct heap_medium *const medium = heap_medium_of(heap);
    if (unlikely(medium == NULL)) {
        return 0;
    }
    struct slab *const slab = medium->current[size_class_of(size) - MALLOW_DIRECT_CLASS_COUNT];
    uintptr_t address = 0;
    if (likely(slab != NULL) && likely(heap->drain_count == 0) &&
        likely(heap_gate_try_enter(heap))) {
        if (!slab_take(slab, &address)) {
            address = 0;
        }
        heap_gate_leave(heap);
    }
    return address;
}

// Asks to be let in, unless that has been asked.
MALLOW_INTERNAL void heap_gate_ask(struct heap *heap);

// Enters, if the heap has a thread and that can be done without waiting. `asked_before`: the grace
// has passed since it was asked. False: not now.
MALLOW_INTERNAL bool heap_gate_visit(struct heap *heap, bool asked_before);

// Leaves. The gate stays as it was before, so that the next visit needs no asking.
MALLOW_INTERNAL void heap_gate_end(struct heap *heap);

// Whether the thread has had blocks beside its slabs during the last visit.
MALLOW_INLINE bool heap_gate_was_in_the_way(const struct heap *heap) {
    return (atomic_load_explicit(&heap->beside_blocks, memory_order_relaxed) |
            atomic_load_explicit(&heap->beside_spans, memory_order_relaxed)) != 0;
}

// Asks no longer.
MALLOW_INTERNAL void heap_gate_dismiss(struct heap *heap);

#endif
