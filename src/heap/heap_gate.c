// SPDX-License-Identifier: MIT
// Gate: see heap_gate.h.
#include "heap/heap_gate.h"

#include "os/os_thread.h"

enum {
    GATE_ROUNDS = 1024, // of os_pause, some 50 ms, where a visit takes microseconds
    GATE_FIRST = 48,    // of them: one that lasts longer than 16 looks may have no processor
    GATE_LONG = 100 * GATE_ROUNDS, // some 5 s: nobody who can go on stays inside for that
};

// Whether there is no such thread in this memory. A child by vfork, or another that shares its
// parent's memory, must not take the parent's thread for gone, whose number is none of its own: it
// would be given blocks in pages that the thread is about to purge. `surely`: where the kernel does
// not say whose memory it is, or knows nobody of that number (from another namespace), it may be
// the parent's.
static bool gate_is_left(const struct heap *heap, uint32_t visitor, bool surely) {
    const pid_t home = heap->shared->os->process_id;
    const pid_t here = os_process_number();
    if (!os_thread_is_gone(here, visitor)) {
        return false;
    }
    if (home == here || home == 0 || os_thread_is_apart_from(home)) {
        return true;
    }
    return os_thread_is_within(home) ? os_thread_is_gone(home, visitor) : !surely;
}

// A child that has been made without our knowledge has its parent's visitor inside.
static void gate_look(struct heap *heap, bool surely) {
    const uint32_t visitor = atomic_load_explicit(&heap->visitor, memory_order_relaxed);
    uint32_t inside = GATE_INSIDE;
    if (visitor != 0 && gate_is_left(heap, visitor, surely)) {
        (void)atomic_compare_exchange_strong_explicit(
            &heap->visit, &inside, GATE_OPEN, memory_order_seq_cst, memory_order_relaxed);
    }
}

MALLOW_INTERNAL MALLOW_COLD void heap_gate_look(struct heap *heap) {
    gate_look(heap, true);
}

MALLOW_INTERNAL MALLOW_NOINLINE bool heap_gate_answer(struct heap *heap) {
    for (;;) {
        uint32_t visit = atomic_load_explicit(&heap->visit, memory_order_acquire);
        if (visit == GATE_INSIDE) {
            return false;
        }
        if (visit == GATE_ASKED) {
            if (atomic_compare_exchange_strong_explicit(&heap->visit, &visit, GATE_GRANTED,
                                                        memory_order_seq_cst,
                                                        memory_order_relaxed)) {
                return true; // who enters now sees us busy
            }
        } else {
            atomic_exchange_explicit(&heap->busy, 1, memory_order_seq_cst); // a fence
            if (atomic_load_explicit(&heap->visit, memory_order_seq_cst) != GATE_INSIDE) {
                return true;
            }
        }
    }
}

MALLOW_INTERNAL MALLOW_COLD void heap_gate_meet(struct heap *heap) {
    for (unsigned round = GATE_FIRST; !heap_gate_answer(heap); round++) {
        os_pause(round);
        if (unlikely(round % GATE_ROUNDS == GATE_ROUNDS - 1)) {
            gate_look(heap, round < GATE_LONG);
        }
    }
}

MALLOW_INTERNAL void heap_gate_ask(struct heap *heap) {
    uint32_t expected = GATE_OPEN;
    (void)atomic_compare_exchange_strong_explicit(&heap->visit, &expected, GATE_ASKED,
                                                  memory_order_seq_cst, memory_order_relaxed);
}

MALLOW_INTERNAL bool heap_gate_visit(struct heap *heap, bool asked_before) {
    uint32_t visit = atomic_load_explicit(&heap->visit, memory_order_relaxed);
    atomic_store_explicit(&heap->beside_blocks, 0, memory_order_relaxed);
    atomic_store_explicit(&heap->beside_spans, 0, memory_order_relaxed);
    if ((visit != GATE_GRANTED && !(visit == GATE_ASKED && asked_before)) ||
        !atomic_compare_exchange_strong_explicit(&heap->visit, &visit, GATE_INSIDE,
                                                 memory_order_seq_cst, memory_order_relaxed)) {
        return false;
    }
    heap->visit_before = visit;
    if (atomic_load_explicit(&heap->busy, memory_order_seq_cst) != 0 ||
        atomic_load_explicit(&heap->state, memory_order_seq_cst) != HEAP_OWNED) {
        heap_gate_end(heap);
        return false;
    }
    return true;
}

MALLOW_INTERNAL void heap_gate_end(struct heap *heap) {
    atomic_store_explicit(&heap->visit, heap->visit_before, memory_order_release);
}

MALLOW_INTERNAL void heap_gate_dismiss(struct heap *heap) {
    atomic_store_explicit(&heap->visit, GATE_OPEN, memory_order_release);
}
