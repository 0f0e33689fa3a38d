// SPDX-License-Identifier: MIT
// Heap, beside a visitor: blocks for a thread that needs a free block of its slabs while another is
// having the kernel take back pages of theirs (heap_gate.h). See heap.h.
//
// Such a visit takes 10 to 200 us, or as long as the visitor has no processor: nobody waits for it
// who can have a block that lies in no slab. Not many that need slices of their own, each of which
// costs some 64 KiB of addresses.
#include "heap/heap.h"

#include "heap/heap_gate.h"
#include "slab/size_class.h"

enum {
    BESIDE_SPANS_MAX = 256,      // beside one visit: 16 MiB of addresses
    BESIDE_LOOK_BLOCKS = 65536,  // of units, after so many it is asked whether there is a visitor
    BESIDE_RUN_LOOKS = 4,        // slices that are looked at for a run of units; one by a move
};

// From the heap's unit, or a new one; from a run of units.
static uintptr_t beside_thin(struct heap *heap, unsigned class_index) {
    struct thin_set *const thins = heap->shared->thins;
    if (size_class_bytes(class_index) > THIN_BLOCK_BYTES_MAX) {
        return thin_take_run_far(thins, class_index,
                                 heap_thread.first_effort != 0 ? 1 : BESIDE_RUN_LOOKS);
    }
    const uintptr_t address = thin_take(&heap->thin, class_index);
    if (address != 0) {
        return address;
    }
    thin_close(thins, &heap->thin);
    return thin_open(thins, &heap->thin) ? thin_take(&heap->thin, class_index) : 0;
}

static uintptr_t beside_span(struct heap *heap, size_t block_bytes, bool zeroed) {
    if (atomic_load_explicit(&heap->beside_spans, memory_order_relaxed) >= BESIDE_SPANS_MAX) {
        return 0;
    }
    atomic_fetch_add_explicit(&heap->beside_spans, 1, memory_order_relaxed);
    return heap_large_allocate(heap, block_bytes, MALLOW_SLICE_BYTES, zeroed);
}

MALLOW_INTERNAL MALLOW_COLD uintptr_t heap_take_beside(struct heap *heap, unsigned class_index,
                                                       bool zeroed, bool plain) {
    const size_t block_bytes = size_class_bytes(class_index);
    if (heap->reserve != NULL || os_charge_is_short(heap->shared->os, MALLOW_SLICE_BYTES)) {
        return 0;
    }
    const uint64_t entries = os_entries(heap->shared->os);
    const size_t slices = thin_slice_count(heap->shared->thins);
    const uintptr_t address =
        plain && block_bytes <= THIN_RUN_BYTES_MAX ? beside_thin(heap, class_index) : 0;
    if (address == 0) {
        heap_note_effort(HEAP_EFFORT_LOOK);
        return beside_span(heap, block_bytes, zeroed);
    }
    // No call that refills a slab prepares growth meanwhile: one that had its units at hand does.
    if (heap_thread.first_effort == 0 && slices == thin_slice_count(heap->shared->thins)) {
        heap_settle(heap->shared, entries);
    }
    heap_note_effort(HEAP_EFFORT_LOOK);
    if (atomic_fetch_add_explicit(&heap->beside_blocks, 1, memory_order_relaxed) %
            BESIDE_LOOK_BLOCKS == BESIDE_LOOK_BLOCKS - 1) {
        heap_gate_look(heap);
    }
    if (zeroed) {
        __builtin_memset((void *)address, 0, block_bytes);
    }
    return address;
}
