// SPDX-License-Identifier: MIT
// Heap, large blocks: each with a span of slices of its own; any thread may free one. See heap.h.
#include "heap/heap_large.h"

#include "os/fatal.h"
#include "slab/size_class.h"

// Class index of a block that does not begin where its span does.
enum { LARGE_AT_OFFSET = MALLOW_CLASS_COUNT + 1 };

static unsigned large_slices(size_t size) {
    return (unsigned)((size + MALLOW_SLICE_BYTES - 1) >> MALLOW_SLICE_SHIFT);
}

static MALLOW_NOINLINE size_t large_usable_of_class(size_t size) {
    return size_class_bytes(size_class_of(size));
}

// What is usable is whole pages, not whole slices: the rest is never touched and costs nothing. Of
// a size that has a class, as much as of a block of the class (mw_good_size).
static size_t large_usable(const struct heap_shared *shared, size_t size) {
    if (unlikely(size <= MALLOW_SLAB_BYTES_MAX)) {
        return large_usable_of_class(size);
    }
    return bits_align_up(size, shared->os->page_bytes);
}

// What is urgent of what growth needs is seen to even by a call that moves a block, or is a
// thread's first, and has taken a span.
static void large_prepare(struct heap_shared *shared, uint64_t entries, bool grown) {
    const enum arena_low low = arena_is_low(shared->arenas);
    if (unlikely(low >= ARENA_LOW_TABLES) && os_entries(shared->os) == entries &&
        (low == ARENA_SHORT_TABLES || (!grown && heap_thread.first == 0))) {
        arena_prepare(shared->arenas);
        heap_note_effort(HEAP_EFFORT_GROWTH);
    }
}

// A span for a call with nothing else to do.
static void heap_take_span_settled(struct heap *heap, unsigned slice_count, unsigned align_slices,
                                   struct arena_span *span) {
    const uint64_t entries = os_entries(heap->shared->os);
    heap_take_span(heap, slice_count, align_slices, span);
    if (unlikely(heap->reserve != NULL)) {
        return;
    }
    if (likely(heap_thread.first_effort == 0)) {
        heap_settle(heap->shared, entries);
    } else {
        large_prepare(heap->shared, entries, span->grown);
    }
}

MALLOW_INTERNAL uintptr_t heap_large_allocate(struct heap *heap, size_t size, size_t alignment,
                                              bool zeroed) {
    struct heap_shared *const shared = heap->shared;
    const unsigned slice_count = large_slices(bits_max(size, 1));
    const unsigned align_slices =
        (unsigned)(bits_max(alignment, MALLOW_SLICE_BYTES) >> MALLOW_SLICE_SHIFT);
    struct arena_span span;
    heap_take_span_settled(heap, slice_count, align_slices, &span);
    if (span.slab == NULL) {
        return 0;
    }
    const size_t usable_bytes = large_usable(shared, size);
    slab_init_large(span.slab, span.address, slice_count, usable_bytes);
    if (unlikely(heap_allowance(heap) != NULL)) {
        heap_large_set_allowance(span.slab, heap_allowance(heap)); // for who gives the span back
    }
    if (zeroed && !span.zeroed) {
        __builtin_memset((void *)span.address, 0, usable_bytes);
    }
    return span.address;
}

MALLOW_INTERNAL uintptr_t heap_large_apart(struct heap_shared *shared, size_t size,
                                           size_t alignment, bool zeroed) {
    const uint64_t entries = os_entries(shared->os);
    const unsigned slice_count = large_slices(bits_max(size, 1));
    const unsigned align_slices =
        (unsigned)(bits_max(alignment, MALLOW_SLICE_BYTES) >> MALLOW_SLICE_SHIFT);
    struct arena_span span;
    arena_take_into(shared->arenas, slice_count, align_slices, OS_CHARGE_SOFT, &span);
    heap_note_effort(HEAP_EFFORT_SPAN);
    if (span.slab == NULL) {
        return 0;
    }
    const size_t usable_bytes = large_usable(shared, size);
    slab_init_large(span.slab, span.address, slice_count, usable_bytes);
    large_prepare(shared, entries, true);
    if (zeroed && !span.zeroed) {
        __builtin_memset((void *)span.address, 0, usable_bytes);
    }
    return span.address;
}

MALLOW_INTERNAL uintptr_t heap_allocate_at(struct heap *heap, size_t size, size_t alignment,
                                           size_t offset) {
    struct heap_shared *const shared = heap->shared;
    heap_begin_effort();
    offset %= alignment;
    if (alignment > MALLOW_LARGE_BYTES_MAX / 2 || size > MALLOW_LARGE_BYTES_MAX / 2) {
        if (heap->reserve != NULL) {
            return 0; // it has no such
        }
        const uint64_t entries = os_entries(shared->os);
        const struct heap_huge_request request = {alignment, offset, HUGE_ZEROED};
        uintptr_t address = heap_huge_try(shared, size, request, OS_CHARGE_SOFT);
        const bool plenty = address != 0;
        if (unlikely(!plenty)) {
            address = heap_huge_short(heap, size, request);
        }
        heap_note_growth(heap, plenty);
        heap_make_way(shared, HEAP_KIND_HUGE);
        heap_settle(shared, entries);
        return address;
    }
    const unsigned slice_count = large_slices(bits_max(size, 1) + alignment);
    struct arena_span span;
    heap_take_span_settled(heap, slice_count, 1, &span);
    if (span.slab == NULL) {
        return 0;
    }
    const uintptr_t address = bits_align_up(span.address + offset, alignment) - offset;
    slab_mark_interior(span.slab, slice_count); // the block may begin in any of them
    slab_init_large(span.slab, address, slice_count, bits_max(size, 1));
    span.slab->class_index = LARGE_AT_OFFSET;
    if (!span.zeroed) {
        __builtin_memset((void *)address, 0, bits_max(size, 1));
    }
    return address;
}

// Whose slices are the caller's to give back from then on: how many.
MALLOW_INLINE unsigned large_end(struct slab *slab) {
    // Two threads that free the same block: one of them finds it gone.
    const uintptr_t address = slab->start_address;
    uint8_t expected = SLAB_LARGE;
    if (!__atomic_compare_exchange_n(&slab->kind, &expected, SLAB_NONE, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED)) {
        fatal_misuse("double free of", address, "another thread is freeing this block");
    }
    const unsigned slice_count = slab->slice_count;
    heap_note_effort(HEAP_EFFORT_RELEASE);
    slab_clear(slab);
    return slice_count;
}

MALLOW_INTERNAL void heap_large_free(struct heap_shared *shared, struct slab *slab) {
    struct os_charge *const allowance = heap_large_allowance(slab);
    const unsigned slice_count = large_end(slab);
    if (unlikely(allowance != NULL)) {
        arena_give(shared->arenas, slab, slice_count);
        os_allowance_release(allowance, (size_t)slice_count << MALLOW_SLICE_SHIFT);
        return;
    }
    arena_give(shared->arenas, slab, slice_count); // the last call: no frame
}

MALLOW_INTERNAL MALLOW_NOINLINE void heap_large_free_moved(struct heap_shared *shared,
                                                           struct slab *slab, bool late) {
    if (likely(!late) || shared->reserve != NULL ||
        heap_large_allowance(slab) != NULL) {
        heap_large_free(shared, slab);
        return;
    }
    arena_put_off(shared->arenas, slab, large_end(slab));
}

// Gives back the slices at the end of a large block that it no longer needs.
static void large_cut(struct heap_shared *shared, struct slab *slab, unsigned slice_count) {
    const unsigned spare = slab->slice_count - slice_count;
    if (spare == 0) {
        return;
    }
    slab->slice_count = (uint8_t)slice_count;
    struct slab *const tail = slab + slice_count;
    tail->slice_count = (uint8_t)spare; // a span of its own, for as long as it takes to clear it
    slab_clear(tail);
    arena_give(shared->arenas, tail, spare);
    if (unlikely(heap_large_allowance(slab) != NULL)) {
        os_allowance_release(heap_large_allowance(slab), (size_t)spare << MALLOW_SLICE_SHIFT);
    }
}

// The slices right behind a large block, under the allowance that it is under.
static bool large_extend(struct heap_shared *shared, struct slab *slab, unsigned more) {
    struct os_charge *const allowance = heap_large_allowance(slab);
    const size_t bytes = (size_t)more << MALLOW_SLICE_SHIFT;
    if (unlikely(allowance != NULL) && !os_allowance_take(allowance, OS_CHARGE_HARD, bytes)) {
        return false;
    }
    const bool extended = arena_extend(shared->arenas, slab, slab->slice_count, more);
    if (unlikely(allowance != NULL) && !extended) {
        os_allowance_release(allowance, bytes);
    }
    return extended;
}

static bool large_resize(struct heap_shared *shared, struct slab *slab, size_t size) {
    const size_t usable_bytes = large_usable(shared, size);
    const unsigned wanted = large_slices(usable_bytes);
    if (size > shared->large_bytes_max || slab->class_index == LARGE_AT_OFFSET) {
        return size <= slab->block_bytes;
    }
    if (wanted > slab->slice_count) {
        if (!large_extend(shared, slab, wanted - slab->slice_count)) {
            return false;
        }
        slab->slice_count = (uint8_t)wanted;
    } else {
        large_cut(shared, slab, wanted);
    }
    slab->block_bytes = (uint32_t)usable_bytes;
    return true;
}

MALLOW_INTERNAL bool heap_resize_in_place(struct heap_shared *shared,
                                          const struct heap_block *block, size_t size) {
    switch (block->kind) {
    case HEAP_BLOCK_SLAB:
    case HEAP_BLOCK_THIN:
        return size <= block->usable_bytes;
    case HEAP_BLOCK_LARGE:
        return large_resize(shared, block->slab, size);
    case HEAP_BLOCK_HUGE:
        return heap_huge_resize(shared, block->huge, size, false) != 0;
    case HEAP_BLOCK_NONE:
    default:
        return false;
    }
}
