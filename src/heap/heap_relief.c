// SPDX-License-Identifier: MIT
// Heap, short of memory: what is given back before a growth is allowed, and before it is refused.
// See heap.h and os/charge.h. (heap_relieve, which who needs tables calls as well: heap_settle.c.)
//
// A growth that the soft limit or the kernel refuses first costs what is kept for speed: cached
// mappings of huge blocks, then free pages of the arenas, as much as is wanted. If the hard limit
// refuses it too, all of that goes, with what other threads have freed in this heap. A heap by API
// may have an allowance of its own besides.
//
// Without a limit, what is kept has another bound: it may fill what the program has needed at most,
// and what is needed now, no more. Else memory that was freed in one kind of block and is needed in
// the other, which cannot use it, would be there twice at the peak.
#include "heap/heap.h"

#include "slab/size_class.h"

// What is spared for threads that have been refused is for small things.
#define RELIEF_SPARE_SPAN_BYTES ((size_t)256 << 10)

// ---- Making way ---------------------------------------------------------------------------------

// What has made way, in all, adds a part of itself to that: so a program that turns from one kind
// to the other again and again comes to keep both, and pays no more than some multiple of that.
#define RELIEF_WAY_SHARE 16U
// Less is not worth what it costs: a whole piece goes for it, which is needed again. Else a program
// that turns between both gives back all of one each time, as long as the share of little that is
// left comes to little.
#define RELIEF_WAY_BYTES_MIN ((size_t)256 << 10)

// The most that was ever needed, with what is needed now.
static uint64_t relief_peak(struct heap_shared *shared, uint64_t need) {
    uint64_t peak = atomic_load_explicit(&shared->need_peak, memory_order_relaxed);
    while (need > peak &&
           !atomic_compare_exchange_weak_explicit(&shared->need_peak, &peak, need,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
    return bits_max(peak, need);
}

MALLOW_INTERNAL MALLOW_NOINLINE void heap_note_need_slow(struct heap_shared *shared) {
    const uint64_t held =
        atomic_load_explicit(&shared->os->charge.held_bytes, memory_order_relaxed);
    const size_t kept = arena_kept(shared->arenas) + huge_kept(shared->huges);
    (void)relief_peak(shared, held - bits_min(held, kept));
}

MALLOW_INTERNAL void heap_make_way_slow(struct heap_shared *shared, enum heap_kind grown) {
    const uint64_t held =
        atomic_load_explicit(&shared->os->charge.held_bytes, memory_order_relaxed);
    const size_t dirty = arena_kept(shared->arenas);
    const size_t cached = huge_kept(shared->huges);
    const uint64_t need = held - bits_min(held, dirty + cached);
    const uint64_t way = atomic_load_explicit(&shared->way_bytes, memory_order_relaxed);
    const uint64_t bound =
        relief_peak(shared, need) + HEAP_WAY_SLACK_BYTES + way / RELIEF_WAY_SHARE;
    const size_t other = grown == HEAP_KIND_HUGE ? dirty : cached;
    const size_t owed = (size_t)bits_min(held - bits_min(held, bound), other);
    atomic_store_explicit(&shared->way_bound, bound, memory_order_relaxed);
    if (owed < RELIEF_WAY_BYTES_MIN || heap_thread.effort > HEAP_EFFORT_SPAN) {
        return; // what is needed has been noted; what is owed then, a call that has not grown finds
    }
    const size_t more = grown == HEAP_KIND_HUGE ? arena_owe(shared->arenas, owed)
                                                : huge_owe(shared->huges, owed);
    atomic_fetch_add_explicit(&shared->way_bytes, more, memory_order_relaxed);
}

// All that this thread can give back without the program's help.
static void heap_relieve_fully(struct heap *heap) {
    while (heap_drain(heap, MALLOW_DRAIN_BUDGET, true) > 0) {
    }
    heap_release_spare(heap);
    (void)huge_purge_all(heap->shared->huges);
    (void)arena_purge_all(heap->shared->arenas);
}

// ---- Allowances: heaps that may hold only so much (heap_own.h) ----------------------------------

// A growth is charged to the heap's allowance first, and then to the process as any. What the soft
// limit refuses costs what the heap keeps, and what others have freed in it; then the hard limit
// decides.
MALLOW_INTERNAL bool heap_allowance_take(struct heap *heap, size_t bytes) {
    struct os_charge *const allowance = heap->reserve->allowance;
    if (likely(os_allowance_take(allowance, OS_CHARGE_SOFT, bytes))) {
        return true;
    }
    while (heap_drain(heap, MALLOW_DRAIN_BUDGET, true) > 0) {
    }
    heap_release_spare(heap);
    return os_allowance_take(allowance, OS_CHARGE_HARD, bytes);
}

static struct arena_span heap_allowance_span(struct heap *heap, unsigned slice_count,
                                             unsigned align_slices) {
    struct arena_span span = {.slab = NULL};
    if (!heap_allowance_take(heap, (size_t)slice_count << MALLOW_SLICE_SHIFT)) {
        return span;
    }
    heap_take_arena_span(heap, slice_count, align_slices, &span);
    if (span.slab == NULL) {
        heap_allowance_release(heap, slice_count);
    }
    return span;
}

// ---- Spans and blocks for those who fall short --------------------------------------------------

MALLOW_INTERNAL struct arena_span heap_take_reserved(struct heap *heap, unsigned slice_count,
                                                     unsigned align_slices) {
    if (heap->reserve->allowance != NULL) {
        return heap_allowance_span(heap, slice_count, align_slices);
    }
    const struct arena_span span = reserve_take(heap->reserve, slice_count, align_slices);
    heap_note_effort(HEAP_EFFORT_SPAN);
    if (likely(span.slab != NULL)) {
        return span;
    }
    while (heap_drain(heap, MALLOW_DRAIN_BUDGET, true) > 0) {
    }
    heap_release_spare(heap);
    return reserve_take(heap->reserve, slice_count, align_slices);
}

MALLOW_INTERNAL MALLOW_COLD struct arena_span
heap_take_span_short(struct heap *heap, unsigned slice_count, unsigned align_slices) {
    struct arena_set *const arenas = heap->shared->arenas;
    const size_t bytes = (size_t)slice_count << MALLOW_SLICE_SHIFT;
    struct arena_span span = {.slab = NULL};
    if (!os_charge_can_fit(heap->shared->os, bytes)) {
        return span;
    }
    (void)heap_relieve(heap->shared, bytes);
    span = arena_take_charged(arenas, slice_count, align_slices, OS_CHARGE_HARD);
    if (span.slab == NULL) {
        heap_relieve_fully(heap);
        span = arena_take_charged(arenas, slice_count, align_slices, OS_CHARGE_HARD);
    }
    if (span.slab != NULL) {
        heap->refused = HEAP_NOT_REFUSED;
    } else if (heap->refused == HEAP_NOT_REFUSED) {
        heap->refused = HEAP_REFUSED;
    } else if (bytes <= RELIEF_SPARE_SPAN_BYTES) {
        span = arena_take_charged(arenas, slice_count, align_slices, OS_CHARGE_SPARE);
        heap->refused = span.slab != NULL ? HEAP_REFUSED : HEAP_REFUSED_SPANS;
    }
    return span;
}

// A slab instead would be a slice as well, and for this heap and class alone.
MALLOW_INTERNAL MALLOW_COLD uintptr_t heap_thin_short(struct heap *heap, unsigned class_index) {
    struct heap_shared *const shared = heap->shared;
    uintptr_t address = 0;
    if (!os_charge_is_short(shared->os, MALLOW_SLICE_BYTES) ||
        !os_charge_can_fit(shared->os, MALLOW_SLICE_BYTES)) {
        return 0;
    }
    (void)heap_relieve(shared, MALLOW_SLICE_BYTES);
    heap_note_effort(HEAP_EFFORT_SPAN);
    if (size_class_bytes(class_index) > THIN_BLOCK_BYTES_MAX) {
        address = thin_take_run_charged(shared->thins, class_index, OS_CHARGE_HARD);
    } else if (thin_open_charged(shared->thins, &heap->thin, OS_CHARGE_HARD)) {
        address = thin_take(&heap->thin, class_index);
    }
    if (address != 0) {
        heap->refused = HEAP_NOT_REFUSED;
        heap_note_growth(heap, false);
    }
    return address;
}

MALLOW_INTERNAL MALLOW_COLD uintptr_t heap_take_last(struct heap *heap, size_t size, bool zeroed) {
    if (size > THIN_BLOCK_BYTES_MAX || heap->refused != HEAP_REFUSED_SPANS ||
        heap->reserve != NULL) {
        return 0;
    }
    const unsigned class_index = size_class_of(size);
    uintptr_t address = thin_take(&heap->thin, class_index);
    if (address == 0) {
        thin_close(heap->shared->thins, &heap->thin);
        if (!thin_open_charged(heap->shared->thins, &heap->thin, OS_CHARGE_RESERVE)) {
            return 0;
        }
        address = thin_take(&heap->thin, class_index);
    }
    if (zeroed) {
        __builtin_memset((void *)address, 0, size_class_bytes(class_index));
    }
    return address;
}

MALLOW_INTERNAL MALLOW_COLD uintptr_t heap_huge_short(struct heap *heap, size_t size,
                                                      struct heap_huge_request request) {
    struct heap_shared *const shared = heap->shared;
    uintptr_t address = 0;
    if (os_charge_can_fit(shared->os, size)) {
        (void)heap_relieve(shared, size);
        address = heap_huge_try(shared, size, request, OS_CHARGE_HARD);
        if (address == 0) {
            heap_relieve_fully(heap);
            (void)arena_decommit_all(shared->arenas);
            address = heap_huge_try(shared, size, request, OS_CHARGE_HARD);
        }
    }
    if (address != 0) {
        heap->refused = HEAP_NOT_REFUSED;
    } else if (heap->refused == HEAP_NOT_REFUSED) {
        heap->refused = HEAP_REFUSED;
    }
    return address;
}

// Whether a move to a huge block has more to do besides than others: memory for records to prepare,
// or an old block that cannot be left to a later call.
MALLOW_INLINE bool heap_is_hurried(const struct heap_shared *shared) {
    return meta_is_low(shared->meta) || !huge_may_put_off(shared->huges) ||
           !arena_may_put_off(shared->arenas);
}

MALLOW_INTERNAL uintptr_t heap_huge_try(struct heap_shared *shared, size_t size,
                                        struct heap_huge_request request,
                                        enum os_charge_level level) {
    enum huge_use use = request.use;
    if (use == HUGE_ANY && heap_thread.first_effort != 0) { // a block moves
        use = unlikely(heap_is_hurried(shared)) ? HUGE_HURRIED : HUGE_GROWN;
    }
    return request.offset == 0
               ? huge_take_charged(shared->huges, size, request.alignment, use, level)
               : huge_take_at_charged(shared->huges, size, request.alignment, request.offset,
                                      level);
}

MALLOW_INTERNAL uintptr_t heap_huge_resize(struct heap_shared *shared, struct huge *huge,
                                           size_t size, bool may_move) {
    // One that the kernel may refuse to let grow is not tried where the old block could not be left
    // to a later call.
    if (huge_is_fixed(huge, size) ||
        (unlikely(!huge_may_put_off(shared->huges)) && may_move && huge->parts == HUGE_JOINED &&
         size > huge->mapped_bytes)) {
        return 0;
    }
    uintptr_t address =
        huge_resize_charged(shared->huges, huge, size, may_move, OS_CHARGE_SOFT);
    if (unlikely(address == 0 && huge->map_address == huge->address) &&
        os_charge_is_short(shared->os, size - bits_min(size, huge->mapped_bytes))) {
        (void)heap_relieve(shared, size - bits_min(size, huge->mapped_bytes));
        address = huge_resize_charged(shared->huges, huge, size, may_move, OS_CHARGE_HARD);
    }
    if (address != 0) { // else the block moves
        if (huge->extended) { // in place of a system call, after which no more is done
            heap_note_effort(MALLOW_CALL_EFFORT);
        }
        heap_make_way(shared, HEAP_KIND_HUGE);
    }
    return address;
}
