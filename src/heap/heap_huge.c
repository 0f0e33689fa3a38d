// SPDX-License-Identifier: MIT
// Heap, huge blocks: each with a mapping of its own, out of the set that all heaps share, or
// charged to a heap's allowance besides. See heap.h.
#include "heap/heap.h"

// Ends a call that has taken a huge block, and had used `used_bytes` of meta before. What is kept
// of slices makes way for it; what is owed by then, or because of that, is given by a later call
// than the one that has had so much to do.
MALLOW_INLINE void heap_end_huge(struct heap_shared *shared, uint64_t entries, uint64_t used_bytes,
                                 bool zeroed) {
    if (likely(heap_thread.first_effort == 0)) { // else a block moves, and what is next makes way
        const bool due = heap_is_way_due(shared, 0) && !arena_owes(shared->arenas);
        if (unlikely(due)) {
            heap_make_way_slow(shared, HEAP_KIND_HUGE);
        }
        // Or a record was made, or a node of the map; or pages that are to be cleared were looked
        // at and cut off.
        if (unlikely(due || meta_used_bytes(shared->meta) != used_bytes) ||
            (unlikely(zeroed) && os_entries(shared->os) == entries)) {
            heap_note_effort(HEAP_EFFORT_LOOK);
        }
    }
    heap_settle(shared, entries);
}

static enum huge_use heap_huge_use(bool zeroed) {
    return zeroed ? HUGE_ZEROED : HUGE_ANY;
}

MALLOW_INTERNAL uintptr_t heap_allocate_apart(struct heap_shared *shared, size_t size,
                                              size_t alignment, bool zeroed) {
    heap_begin_effort();
    if (size <= shared->large_bytes_max) {
        return heap_large_apart(shared, size, alignment, zeroed);
    }
    const uint64_t entries = os_entries(shared->os);
    const struct heap_huge_request request = {.alignment = alignment,
                                              .use = heap_huge_use(zeroed)};
    const uint64_t used_bytes = meta_used_bytes(shared->meta);
    const uintptr_t address = heap_huge_try(shared, size, request, OS_CHARGE_SOFT);
    heap_note_effort(HEAP_EFFORT_HUGE + HEAP_EFFORT_LOOK); // for what the caller has looked at
    if (likely(address != 0) && heap_thread.first_effort == 0) {
        heap_end_huge(shared, entries, used_bytes, zeroed);
    }
    return address;
}

// A huge block for which the kernel has no mapping to spare. An arena grows without one.
static MALLOW_COLD uintptr_t heap_huge_in_slices(struct heap *heap, size_t size, size_t alignment,
                                                 bool zeroed) {
    return size <= MALLOW_CHUNK_BYTES && alignment <= MALLOW_SLICE_BYTES &&
                   !os_charge_is_short(heap->shared->os, size)
               ? heap_large_allocate(heap, size, MALLOW_SLICE_BYTES, zeroed)
               : 0;
}

static uintptr_t heap_huge_allocate(struct heap *heap, size_t size, size_t alignment,
                                    enum huge_use use) {
    struct heap_shared *const shared = heap->shared;
    const uint64_t entries = os_entries(shared->os);
    const struct heap_huge_request request = {.alignment = alignment, .use = use};
    const uint64_t used_bytes = meta_used_bytes(shared->meta);
    uintptr_t address = heap_huge_try(shared, size, request, OS_CHARGE_SOFT);
    const bool plenty = address != 0;
    if (unlikely(!plenty)) {
        address = heap_huge_short(heap, size, request);
        if (address == 0 && heap->reserve == NULL) {
            address = heap_huge_in_slices(heap, size, alignment, use == HUGE_ZEROED);
        }
    }
    heap_note_effort(HEAP_EFFORT_HUGE);
    heap_note_growth(heap, plenty);
    if (likely(heap_thread.first == 0)) {
        heap_end_huge(shared, entries, used_bytes, use == HUGE_ZEROED);
    }
    return address;
}

// The most that the mapping of a huge block comes to; SIZE_MAX: there is no such.
static size_t allowance_mapped_most(const struct os *os, size_t size, size_t alignment,
                                    enum huge_use use) {
    const size_t mapped = bits_max(bits_align_up(size, os->page_bytes), MALLOW_MAP_BYTES);
    const bool ends = alignment > os->page_bytes && use != HUGE_ALONE;
    size_t most;
    return __builtin_add_overflow(mapped, ends ? alignment : 0, &most) ? SIZE_MAX : most;
}

// The same of a heap with a reserve, which has none, or an allowance. Where that is limited, what
// is mapped besides an aligned block would count as well, and a mapping of 1 MiB for one of less.
static MALLOW_COLD uintptr_t heap_huge_allowed(struct heap *heap, size_t size, size_t alignment,
                                               bool zeroed) {
    struct os_charge *const allowance = heap->reserve->allowance;
    const struct os *const os = heap->shared->os;
    const bool limited = allowance == NULL ||
                         atomic_load_explicit(&allowance->limited, memory_order_relaxed) != 0;
    if (limited && heap_fits_slices(size, alignment)) { // whatever others have a mapping for
        return heap_large_allocate(heap, size, alignment, zeroed);
    }
    if (allowance == NULL) {
        return 0;
    }
    const enum huge_use use =
        limited && alignment > os->page_bytes ? HUGE_ALONE : heap_huge_use(zeroed);
    const size_t most = allowance_mapped_most(os, size, alignment, use);
    if (most == SIZE_MAX || !heap_allowance_take(heap, most)) {
        return 0;
    }
    const uintptr_t address = heap_huge_allocate(heap, size, alignment, use);
    if (address == 0) {
        os_allowance_release(allowance, most);
        return heap_huge_in_slices(heap, size, alignment, zeroed);
    }
    huge_set_allowance(heap->shared->huges, address, allowance, most);
    return address;
}

MALLOW_INTERNAL uintptr_t heap_allocate_huge(struct heap *heap, size_t size, size_t alignment,
                                             bool zeroed) {
    return likely(heap->reserve == NULL)
               ? heap_huge_allocate(heap, size, alignment, heap_huge_use(zeroed))
               : heap_huge_allowed(heap, size, alignment, zeroed);
}
