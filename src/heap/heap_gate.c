// SPDX-License-Identifier: MIT
// Gate: see heap_gate.h.
#include "heap/heap_gate.h"

#include "os/os_thread.h"

enum {
    GATE_ROUNDS = 1024, // of os_pause, some 50 ms, where a visit takes microseconds
    GATE_FIRST = 48,    // of them: one that lasts longer than 16 looks may have no processor
};

// A child that has been made without our knowledge has its parent's visitor inside.
MALLOW_INTERNAL MALLOW_COLD void heap_gate_look(struct heap *heap) {
    const uint32_t visitor = atomic_load_explicit(&heap->visitor, memory_order_relaxed);
    uint32_t inside = GATE_INSIDE;
    if (visitor != 0 && os_thread_is_gone(visitor)) {
        (void)atomic_compare_exchange_strong_explicit(
            &heap->visit, &inside, GATE_OPEN, memory_order_seq_cst, memory_order_relaxed);
    }
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
            heap_gate_look(heap);
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
