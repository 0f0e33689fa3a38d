// SPDX-License-Identifier: MIT
// Heap, allowances: heaps that may hold only so much (heap_own.h). See heap.h and os/charge.h.
//
// A growth is charged to the heap's allowance first, and then to the process as any. What the soft
// limit refuses costs what the heap keeps: what other threads have freed of it, slabs that are
// wholly free; then the hard limit decides.
#include "heap/heap.h"

static bool allowance_take(struct heap *heap, size_t bytes) {
    struct os_charge *const allowance = heap->reserve->allowance;
    if (likely(os_allowance_take(allowance, OS_CHARGE_SOFT, bytes))) {
        return true;
    }
    while (heap_drain(heap, MALLOW_DRAIN_BUDGET, true) > 0) {
    }
    heap_release_spare(heap);
    return os_allowance_take(allowance, OS_CHARGE_HARD, bytes);
}

MALLOW_INTERNAL void heap_allowance_release(const struct heap *heap, unsigned slice_count) {
    os_allowance_release(heap->reserve->allowance, (size_t)slice_count << MALLOW_SLICE_SHIFT);
}

MALLOW_INTERNAL struct arena_span heap_allowance_span(struct heap *heap, unsigned slice_count,
                                                      unsigned align_slices) {
    struct arena_span span = {.slab = NULL};
    if (!allowance_take(heap, (size_t)slice_count << MALLOW_SLICE_SHIFT)) {
        return span;
    }
    heap_take_arena_span(heap, slice_count, align_slices, &span);
    if (span.slab == NULL) {
        heap_allowance_release(heap, slice_count);
    }
    return span;
}

// The most that the mapping of a huge block comes to; SIZE_MAX: there is no such.
static size_t allowance_mapped_most(const struct os *os, size_t size, size_t alignment) {
    const size_t mapped = bits_max(bits_align_up(size, os->page_bytes), MALLOW_MAP_BYTES);
    size_t most;
    return __builtin_add_overflow(mapped, alignment > os->page_bytes ? alignment : 0, &most)
               ? SIZE_MAX
               : most;
}

MALLOW_INTERNAL uintptr_t heap_allowance_huge(struct heap *heap, size_t size, size_t alignment,
                                              bool zeroed) {
    struct os_charge *const allowance = heap->reserve->allowance;
    if (allowance == NULL) {
        return 0; // it has no such
    }
    const size_t most = allowance_mapped_most(heap->shared->os, size, alignment);
    if (most == SIZE_MAX || !allowance_take(heap, most)) {
        return 0;
    }
    const uintptr_t address = heap_huge_allocate(heap, size, alignment, zeroed);
    if (address != 0 && huge_of(heap->shared->huges, address) != NULL) {
        huge_set_allowance(heap->shared->huges, address, allowance, most);
    } else {
        os_allowance_release(allowance, most); // none, or a span, which has been charged as such
    }
    return address;
}
