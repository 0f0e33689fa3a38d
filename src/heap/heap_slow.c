// SPDX-License-Identifier: MIT
// Heap, slow path of allocation: what happens when the current slab has no block to give. See
// heap.h.
//
// In this order, cheapest and densest first: another word of the same slab, blocks that other
// threads have freed, another slab with room, a slab of an ended thread, an empty slab of another
// class, and only then memory from the arena.
#include "heap/heap.h"

#include "heap/heap_gate.h"
#include "heap/heap_rest.h"
#include "slab/size_class.h"

enum {
    HEAP_THIN_SLICES = 5,      // what the first blocks of a heap come to, of every class
    HEAP_THIN_SLICES_MORE = 8, // for those of threads that have ended, at least
    HEAP_DRAIN_CALLS = 4096,   // that collect, after a slab has taken fresh pages before they did
    HEAP_POOR_SHARE = 16,      // of a slab's blocks: if fewer are free, it is poor
    HEAP_POOR_BLOCKS = 512,    // if it has so many: a slab of few would save few calls
    HEAP_POOR_CALLS = 64,      // that find one, before another slab is taken instead
    HEAP_EARLY_SHARE = 8,      // of a heap's slabs: no more are taken so
    HEAP_MANY_BLOCKS = 128,    // of a slab: to look through them is something
    HEAP_WIDE_BLOCKS = 640,    // open in a slab: to open more of it fills several words
};

// Looks for a slab that is wholly free and as long as needed, so that its pages serve this request
// instead of fresh ones: the spare one, or the current one of another class, of which one is looked
// at in a call. NULL: none found. One of another length stays as the spare one: the next call with
// little to do releases it.
static struct slab *heap_find_spare(struct heap *heap, unsigned slice_count, bool search) {
    if (heap->spare == NULL && search) {
        const unsigned class_index = heap->steal_cursor;
        heap->steal_cursor = class_index + 1 < MALLOW_CLASS_COUNT ? class_index + 1 : 0;
        if (!heap_is_seated(heap, class_index)) { // or several classes would have to look again
            heap->spare = heap_detach_spare(heap, class_index);
        }
    }
    struct slab *const slab = heap->spare;
    if (slab == NULL || slab->slice_count != slice_count) {
        return NULL;
    }
    heap->spare = NULL;
    return slab;
}

// A span for a slab: that of a spare one, which saves the way to the arena and back, or one from
// the arena. NULL: out of memory; else where its header is, as in `span`.
static struct slab *heap_take_slab_span(struct heap *heap, unsigned slice_count, bool search,
                                        struct arena_span *span) {
    struct slab *const spare = heap_find_spare(heap, slice_count, search);
    if (spare != NULL) {
        const uintptr_t address = bits_align_down(spare->start_address, MALLOW_SLICE_BYTES);
        heap_check_slab(heap, spare);
        slab_clear(spare);
        heap_note_effort(HEAP_EFFORT_LOOK);
        *span = (struct arena_span){.slab = spare, .address = address};
        return spare;
    }
    heap_take_span(heap, slice_count, 1, span);
    struct slab *const slab = span->slab;
    if (slab != NULL) {
        atomic_fetch_add_explicit(&heap->slab_count, 1, memory_order_relaxed);
        if (span->zeroed && unlikely(heap_has_posts(heap))) {
            heap->drain_count = HEAP_DRAIN_CALLS;
        }
    }
    return slab;
}

static struct slab *heap_fresh_slab(struct heap *heap, unsigned class_index) {
    const unsigned slice_count = size_class_slices(class_index);
    // A call that has looked at something, or may have to see to what is kept, looks for none; nor
    // one that may have to grow the arena for several slices, which few spare ones have.
    const bool search = heap_thread.effort == 0 && !heap_is_way_due(heap->shared, slice_count) &&
                        (slice_count == 1 ||
                         arena_is_low(heap->shared->arenas) == ARENA_NOT_LOW);
    struct arena_span span;
    struct slab *const slab = heap_take_slab_span(heap, slice_count, search, &span);
    if (slab == NULL) {
        return NULL;
    }
    slab_init(slab, span.address, class_index, slice_count, (uintptr_t)heap | SLAB_OWNER_QUEUED);
    if (slice_count > 1) {
        slab_set_zeroed(slab, span.zeroed ? ~UINT64_C(0) : 0);
    }
    heap_note_effort(HEAP_EFFORT_LOOK); // besides the span
    return slab;
}

// Looks for room in the current slab before it is opened further, or given up for another: blocks
// that other threads have freed come first, because their pages are touched already.
static bool heap_refill_current(struct heap *heap, struct slab *slab, int *work) {
    if (slab_find_room(slab)) {
        return true;
    }
    if ((slab_owner(slab) & SLAB_OWNER_PENDING) != 0) {
        if (heap_thread.first_effort != 0 && slab_can_open(slab)) {
            return false; // a block moves: what is posted a cheap call collects (heap_collect_late)
        }
        (void)heap_collect(heap, slab, arena_remote_of(heap->shared->arenas, slab), work);
        *work = 0;
        if (slab_find_room(slab)) {
            return true;
        }
    }
    return false;
}

// Opens more of the current slab, or takes what few blocks it has, unless a queued one has some:
// that is left to a later call by one that has `collected`, if there are guests to be seen off.
static bool heap_open_current(struct heap *heap, struct slab *slab, bool collected) {
    if (slab_can_open(slab) &&
        (heap_queue_first(heap, slab->class_index) == NULL ||
         (collected && heap_is_seated(heap, slab->class_index))) &&
        slab_open(slab, heap->shared->os->page_bytes)) {
        return true;
    }
    if (heap_thread.first_effort != 0 && slab->room_count >= HEAP_MANY_BLOCKS) {
        heap_note_effort(HEAP_EFFORT_LOOK); // a move that has come by here collects nothing
    }
    return slab_find_word(slab);
}

MALLOW_INTERNAL MALLOW_NOINLINE void heap_check_pending_word(const struct heap *heap,
                                                             const struct slab *slab) {
    heap_check_twice(slab, arena_remote_of(heap->shared->arenas, slab), slab_word_index(slab));
    if (heap_thread.first_effort != 0) {
        heap_note_effort(HEAP_EFFORT_LOOK); // a move that has come by here collects nothing
    }
}

// Whether a queued slab has so few free blocks that another one would save many slow calls.
static bool heap_is_poor(const struct slab *slab) {
    return slab->room_count >= HEAP_POOR_BLOCKS && !slab_can_open(slab) &&
           (slab->capacity_count - slab->used_count) * HEAP_POOR_SHARE < slab->capacity_count;
}

// Whether the heap, which has found such a slab, may take another one before, so that those that
// are queued gather more: not often, not many, and not where it is told how much it may hold.
static MALLOW_NOINLINE bool heap_may_be_early(struct heap *heap) {
    const uint32_t count = atomic_load_explicit(&heap->slab_count, memory_order_relaxed);
    if (++heap->poor_count % HEAP_POOR_CALLS != 0 || heap->reserve != NULL ||
        heap->early_count >= count / HEAP_EARLY_SHARE ||
        os_charge_is_short(heap->shared->os, MALLOW_SLICE_BYTES)) {
        return false;
    }
    heap->early_count++;
    return true;
}

// The class's next queued slab; NULL: there is none, or it had better wait.
static struct slab *heap_take_queued(struct heap *heap, unsigned class_index) {
    struct slab *const slab = heap_queue_first(heap, class_index);
    if (slab == NULL || (heap_thread.effort < HEAP_EFFORT_POST && heap_is_poor(slab) &&
                         heap_may_be_early(heap))) {
        return NULL;
    }
    heap_queue_remove(heap, slab);
    heap_note_effort(HEAP_EFFORT_LOOK); // and one is retired
    return slab;
}

// Whether a call that needs a slab looks for one of an ended thread: if it has not looked at
// anything yet; if it moves a block, only where the first that it would look at has one. Where a
// heap has a reserve of its own, others' slabs are not of its memory.
static MALLOW_NOINLINE bool heap_may_adopt(const struct heap *heap, unsigned class_index) {
    const unsigned effort = heap_thread.effort;
    if (effort > HEAP_EFFORT_MOVE || effort != heap_thread.first_effort) {
        return false;
    }
    if (class_index >= MALLOW_DIRECT_CLASS_COUNT &&
        (effort != 0 || arena_is_low(heap->shared->arenas) != ARENA_NOT_LOW)) {
        return false; // dear enough if there is none, and a block moves, or the arena has to grow
    }
    return heap->reserve == heap->shared->reserve &&
           (effort == 0 || heap_may_adopt_first(heap->shared, class_index));
}

// A slab of the class other than its current one; NULL: out of memory.
static struct slab *heap_next_slab(struct heap *heap, unsigned class_index, int *work) {
    struct slab *slab = heap_take_queued(heap, class_index);
    if (slab != NULL) {
        return slab;
    }
    if (heap_is_seated(heap, class_index)) {
        heap_note_effort(HEAP_EFFORT_LOOK); // they have to be seen off
    } else if (unlikely(heap_has_ended(heap->shared)) && heap_may_adopt(heap, class_index)) {
        slab = heap_adopt_slab(heap, class_index, work);
        heap_note_effort(heap_thread.first_effort != 0 ? HEAP_EFFORT_LOOK : 0);
    }
    if (slab == NULL) {
        slab = heap_fresh_slab(heap, class_index);
    }
    if (unlikely(slab == NULL)) {
        // What was collected before giving up may be of this class.
        slab = heap_queue_first(heap, class_index);
        if (slab != NULL) {
            heap_queue_remove(heap, slab);
        }
    }
    return slab;
}

// Whether a call that takes a queued slab should collect a posted one as well. The longer that
// waits, the more blocks it yields. But slabs of large blocks are opened in few calls, and where
// another thread frees very many at once, most would stay posted while other classes take fresh
// pages: where that happens, for a while.
static bool heap_should_drain_too(struct heap *heap) {
    if (likely(heap->drain_count == 0)) {
        return false;
    }
    heap->drain_count--;
    return true;
}

// Whether a call that is short of blocks of the class should collect a posted slab first: if it has
// little to do besides, because it can open more of the current one, unless it is to prepare growth
// instead, which is done once for many calls, while no call that opens a slab can; or if it then
// need not open another. If neither, calls of the first kind will follow before each class has had
// one of this, where slabs are opened by pages; where not, one that finds it has not been so does
// both.
static bool heap_should_drain(struct heap *heap, const struct slab *slab, unsigned class_index) {
    if (heap_queue_first(heap, class_index) != NULL) { // there may be guests to see off besides
        return !heap_is_seated(heap, class_index) && heap_should_drain_too(heap);
    }
    if (slab != NULL && slab_can_open(slab)) {
        return heap->reserve != heap->shared->reserve ||
               (arena_is_low(heap->shared->arenas) == ARENA_NOT_LOW &&
                !meta_is_low(heap->shared->meta));
    }
    // The count first: who does both has no time to look at what is next.
    if ((++heap->skipped_count > MALLOW_CLASS_COUNT && !heap_is_seated(heap, class_index)) ||
        (heap_thread.effort == 0 && heap_next_post_is_of(heap, class_index))) {
        return true;
    }
    if (heap_thread.effort == 0 && heap->skipped_count % 2 != 0) {
        heap_note_effort(HEAP_EFFORT_LOOK); // and looks for no other slab; the next such call does
    }
    return false;
}

// What a call that has opened more of a slab has time for besides.
static void heap_end_open(struct heap *heap, const struct slab *slab, uint64_t entries, int *work) {
    if (unlikely(heap->reserve != NULL)) {
        heap_drop_spare(heap);
    } else if (heap->spare == NULL) {
        // What is prepared is so once for many calls: others' frees wait meanwhile, as they do for
        // what is owed.
        if (heap_thread.effort != 0) {
            // It has collected, say, and opened; for a block that moves it may collect yet, if
            // it has filled few words.
            const bool may_collect =
                heap_thread.first_effort != 0 && slab->capacity_count < HEAP_WIDE_BLOCKS;
            heap_note_effort(may_collect ? HEAP_EFFORT_LOOK : HEAP_EFFORT_POST);
            if (heap_thread.first_effort == 0 && !meta_is_low(heap->shared->meta) &&
                arena_is_low(heap->shared->arenas) != ARENA_SHORT_TABLES) {
                return; // enough
            }
        } else if (heap->reserve == heap->shared->reserve && !heap_owes(heap->shared) &&
                   arena_is_low(heap->shared->arenas) == ARENA_NOT_LOW &&
                   unlikely(heap_has_ended(heap->shared))) {
            *work -= 2; // a slab may be given up for it
            heap_drain_ended(heap, work);
        }
        heap_settle(heap->shared, entries);
    } else if (heap_thread.effort == 0) {
        heap_drop_spare(heap);
    } else if (heap_thread.first_effort != 0) {
        heap_note_effort(HEAP_EFFORT_LOOK); // the old block has yet to be freed
    }
}

// Makes the class's current slab, which is `slab` or NULL, one with a free block in its word; NULL:
// out of memory.
static MALLOW_NOINLINE struct slab *heap_refill(struct heap *heap, unsigned class_index,
                                                struct slab *slab) {
    struct slab *const before = slab;
    bool drained = false;
    const uint64_t entries = os_entries(heap->shared->os);
    // Less for a class that has been seated, and for a block that moves.
    int work = heap_thread.effort == 0 ? MALLOW_CALL_WORK : MALLOW_CALL_WORK / 2;
    if (slab != NULL && slab->room_count >= HEAP_POOR_BLOCKS) {
        work--; // to look through such a slab is something
    }
    if (slab == NULL && !heap_prepare_class(heap, class_index)) {
        return NULL;
    }
    if (slab != NULL && heap_refill_current(heap, slab, &work)) {
        heap_note_effort(HEAP_EFFORT_LOOK);
        heap_check_word(heap, slab);
        return slab;
    }
    // One slab of those that others have freed blocks of: with what else may follow, a call can do
    // no more. Not if it may have to give one up for it, because a spare one is there, which a call
    // that opens more drops. For a block that moves a cheap call does so later (heap_collect_late).
    if (unlikely(heap_has_posts(heap))) {
        if (heap_thread.first_effort != 0) {
            heap->skipped_count++;
        } else if (heap->spare == NULL && heap_should_drain(heap, slab, class_index)) {
            const uint32_t used = slab != NULL ? slab->used_count : 0;
            heap->skipped_count = 0;
            drained =
                heap_drain_one(heap, &work, false) && slab != NULL && slab->used_count != used;
            work = 0;
        }
    }
    if (slab != NULL) {
        // It may be the one that others have freed blocks of.
        if ((drained && slab_find_room(slab)) || heap_open_current(heap, slab, work == 0)) {
            heap_check_word(heap, slab);
            heap_end_open(heap, slab, entries, &work);
            return slab;
        }
        heap_return_lent(heap, slab);
        heap_retire(heap, slab);
    }
    slab = heap_next_slab(heap, class_index, &work);
    if (slab == NULL) {
        if (before != NULL) {
            heap_leave_place(heap, class_index);
        }
        return NULL;
    }
    if (slab_capacity(slab) == 0) {
        slab_open_first(slab, heap->shared->os->page_bytes);
    } else if (!slab_find_word(slab)) {
        (void)slab_open(slab, heap->shared->os->page_bytes);
        heap_note_effort(HEAP_EFFORT_LOOK); // a move that has come by here collects nothing
    }
    heap_set_current(heap, class_index, slab);
    heap_check_word(heap, slab);
    return slab;
}

// Whether a block that is being handed out reads as zero, as far as is known.
MALLOW_INLINE bool heap_take_zeroed(struct slab *slab, uintptr_t address) {
    if (slab->slice_count == 1) {
        return false;
    }
    const uint64_t zeroed = slab_zeroed(slab);
    if (zeroed == 0) {
        return false;
    }
    const uint64_t bit = UINT64_C(1) << (address - slab->start_address) / slab->block_bytes;
    if ((zeroed & bit) == 0) {
        return false;
    }
    slab_set_zeroed(slab, zeroed & ~bit);
    return true;
}

// A block from the heap's open unit, or from a new one; 0: no memory for that.
static uintptr_t heap_thin_take(struct heap *heap, unsigned class_index) {
    if (heap->thin.end - heap->thin.bump >= size_class_bytes(class_index)) {
        return thin_take(&heap->thin, class_index);
    }
    struct thin_set *const thins = heap->shared->thins;
    if (heap_thread.first_effort >= HEAP_EFFORT_MOVE && !thin_has_slice(thins)) {
        return 0; // a slab is had sooner than a slice for units
    }
    thin_close(thins, &heap->thin);
    heap_note_effort(HEAP_EFFORT_LOOK);
    return thin_resume(thins, &heap->thin, size_class_bytes(class_index)) ||
                   thin_open(thins, &heap->thin)
               ? thin_take(&heap->thin, class_index)
               : 0;
}

// Whether thin slices hold more than the first blocks of all threads that ever were alive at once:
// then what dead ones have left pins units that nobody uses again, and slabs, whose blocks are used
// again, are the denser.
static bool heap_is_thin_full(const struct heap_shared *shared) {
    const size_t heaps = atomic_load_explicit(&shared->heap_count, memory_order_relaxed);
    return thin_slice_count(shared->thins) > heaps * HEAP_THIN_SLICES + HEAP_THIN_SLICES_MORE;
}

// The first blocks of a class come from a unit that the heap shares among its classes, or from
// units beside that. Once a class has had some of them it is worth a slab. 0: it is worth one, or
// there is no memory for a unit.
static uintptr_t heap_allocate_thin(struct heap *heap, unsigned class_index, bool zeroed) {
    const size_t had = heap->thin_counts[class_index];
    if (had >= MALLOW_THIN_BLOCKS_MAX) {
        return 0;
    }
    const size_t block_bytes = size_class_bytes(class_index);
    const bool is_run = block_bytes > THIN_BLOCK_BYTES_MAX;
    struct thin_set *const thins = heap->shared->thins;
    if ((had + 1) * block_bytes > MALLOW_THIN_BYTES_MAX ||
        heap_queue_first(heap, class_index) != NULL) {
        return 0;
    }
    // A call that moves a block has enough to do without a new slice.
    if (is_run && !thin_has_run(thins, class_index, heap_thread.first_effort == 0)) {
        return 0;
    }
    if (heap_is_thin_full(heap->shared)) {
        return 0;
    }
    uintptr_t address =
        is_run ? thin_take_run(thins, class_index) : heap_thin_take(heap, class_index);
    if (address == 0 && heap_thread.first_effort == 0) {
        address = heap_thin_short(heap, class_index);
    }
    if (address == 0) {
        return 0;
    }
    heap->thin_counts[class_index]++;
    heap_note_effort(HEAP_EFFORT_LOOK);
    if (zeroed) {
        __builtin_memset((void *)address, 0, block_bytes);
    }
    return address;
}

struct heap_taken {
    struct slab *slab; // NULL: out of memory
    uintptr_t address;
    bool is_zero;
};

// Takes a block of the class's current slab, which is `slab` or NULL, after a refill if need be.
// Between enter and leave (heap_gate.h).
MALLOW_INLINE struct heap_taken heap_take_inside(struct heap *heap, unsigned class_index,
                                                 struct slab *slab) {
    struct heap_taken taken = {slab, 0, false};
    if (unlikely(heap_is_resting(heap, class_index))) {
        heap_wake_class(heap, class_index);
    }
    if (unlikely(slab == NULL || !slab_take(slab, &taken.address))) {
        taken.slab = heap_refill(heap, class_index, slab);
        if (likely(taken.slab != NULL)) {
            (void)slab_take(taken.slab, &taken.address);
        }
    }
    taken.is_zero = taken.slab != NULL && heap_take_zeroed(taken.slab, taken.address);
    return taken;
}

MALLOW_INLINE uintptr_t heap_taken_block(const struct heap_taken *taken, bool zeroed) {
    if (zeroed && !taken->is_zero) {
        __builtin_memset((void *)taken->address, 0, taken->slab->block_bytes);
    }
    return taken->address;
}

// What a call that had a block at hand does for the heap while that collects: so what is posted all
// at once is not waiting for calls that need a slab, one in many. What has been put off is left to
// those.
static MALLOW_NOINLINE void heap_drain_besides(struct heap *heap) {
    int work = MALLOW_CALL_WORK;
    if (!heap_has_new_posts(heap)) {
        heap->drain_count = 0;
        return;
    }
    heap->drain_count--;
    heap->skipped_count = 0;
    (void)heap_drain_one(heap, &work, false);
}

static uintptr_t heap_allocate_visited(struct heap *heap, unsigned class_index, bool zeroed,
                                       bool plain);

// A block of a class for which no slab is to be had: slices of its own where a slab has several;
// else the last there is, if it need not be aligned as blocks of the class are.
static MALLOW_COLD uintptr_t heap_take_without_slab(struct heap *heap, unsigned class_index,
                                                    bool zeroed, bool plain) {
    const size_t block_bytes = size_class_bytes(class_index);
    if (block_bytes <= MALLOW_SINGLE_SLICE_BLOCK_MAX) {
        return plain ? heap_take_last(heap, block_bytes, zeroed) : 0;
    }
    // Not what is spared for those who have been refused, as this call just was. A reserve has been
    // charged when it was made.
    return (heap->reserve == NULL || heap->reserve->allowance != NULL) &&
                   os_charge_is_short(heap->shared->os, MALLOW_SLICE_BYTES)
               ? 0
               : heap_large_allocate(heap, block_bytes, MALLOW_SLICE_BYTES, zeroed);
}

// The part inside of the heap, which has been entered, and leaving it.
MALLOW_INLINE struct heap_taken heap_take_and_leave(struct heap *heap, unsigned class_index,
                                                    struct slab *slab) {
    const struct heap_taken taken = heap_take_inside(heap, class_index, slab);
    if (unlikely(heap->drain_count != 0) && heap_thread.effort == 0) {
        heap_drain_besides(heap);
    }
    heap_gate_leave(heap);
    return taken;
}

// A block of a class. `plain`: any block of its size will do if there is none. Classes without a
// fast path get every block here, so a visitor of the heap that is inside can count on none of
// their blocks being taken, nor on any ceasing to be zero.
static MALLOW_NOINLINE uintptr_t heap_allocate_in_slab(struct heap *heap, unsigned class_index,
                                                       struct slab *current, bool zeroed,
                                                       bool plain) {
    if (unlikely(!heap_gate_enter_unless_visited(heap))) {
        return heap_allocate_visited(heap, class_index, zeroed, plain);
    }
    const struct heap_taken taken = heap_take_and_leave(heap, class_index, current);
    return unlikely(taken.slab == NULL) ? heap_take_without_slab(heap, class_index, zeroed, plain)
                                        : heap_taken_block(&taken, zeroed);
}

// The same where a visitor was found inside.
static MALLOW_COLD uintptr_t heap_allocate_visited(struct heap *heap, unsigned class_index,
                                                   bool zeroed, bool plain) {
    const uintptr_t address = heap_take_beside(heap, class_index, zeroed, plain);
    if (address != 0) {
        return address;
    }
    heap_gate_enter(heap); // waits
    heap_gate_leave(heap);
    return heap_allocate_in_slab(heap, class_index, heap_current_slab(heap, class_index), zeroed,
                                 plain);
}

// The same of a class with a fast path and without a slab of its own, where heaps are many: it may
// be a guest.
static MALLOW_NOINLINE uintptr_t heap_allocate_seated(struct heap *heap, unsigned class_index,
                                                      bool zeroed) {
    unsigned seat = class_index;
    if (unlikely(!heap_gate_enter_unless_visited(heap))) {
        return heap_allocate_visited(heap, class_index, zeroed, true);
    }
    struct slab *const host_slab = heap_seat(heap, &seat);
    heap_note_effort(HEAP_EFFORT_LOOK);
    const struct heap_taken taken = heap_take_inside(heap, seat, host_slab);
    if (seat != class_index && heap_thread.effort == HEAP_EFFORT_LOOK && taken.slab != NULL) {
        heap_seat_guest(heap, class_index, taken.slab); // else the next does
    }
    heap_gate_leave(heap);
    if (unlikely(taken.slab == NULL)) {
        return heap_take_last(heap, size_class_bytes(class_index), zeroed);
    }
    return heap_taken_block(&taken, zeroed);
}

// As heap_seat, for a class of slabs of several slices that has none current. All malloc of such
// classes comes by here, so no place has to lead to the host's slab. Where the heap or the process
// has a limit, the class stays itself: a host's blocks take more.
static struct slab *heap_seat_wide(const struct heap *heap, unsigned *class_index) {
    const struct heap_medium *const medium = heap_medium_of(heap);
    if ((medium != NULL && medium->queue[*class_index - MALLOW_DIRECT_CLASS_COUNT] != NULL) ||
        heap->reserve != heap->shared->reserve ||
        atomic_load_explicit(&heap->shared->os->charge.limited, memory_order_relaxed) != 0) {
        return NULL;
    }
    const unsigned host = size_class_host(*class_index);
    struct slab *const slab =
        medium != NULL ? medium->current[host - MALLOW_DIRECT_CLASS_COUNT] : NULL;
    if (slab != NULL && heap_is_host_out(slab)) {
        return NULL;
    }
    *class_index = host;
    return slab;
}

// A block of such a class where heaps are many.
static MALLOW_NOINLINE uintptr_t heap_allocate_wide(struct heap *heap, unsigned class_index,
                                                    bool zeroed) {
    unsigned seat = class_index;
    if (unlikely(!heap_gate_enter_unless_visited(heap))) {
        return heap_allocate_visited(heap, class_index, zeroed, true);
    }
    struct slab *const slab = heap_seat_wide(heap, &seat);
    const struct heap_taken taken = heap_take_and_leave(heap, seat, slab);
    return unlikely(taken.slab == NULL) ? heap_take_without_slab(heap, class_index, zeroed, true)
                                        : heap_taken_block(&taken, zeroed);
}

// A block of a class without a current slab; the first of a small one are thin.
static MALLOW_NOINLINE uintptr_t heap_allocate_first(struct heap *heap, unsigned class_index,
                                                     bool zeroed) {
    if (class_index < MALLOW_THIN_CLASS_COUNT) {
        const uintptr_t address = heap_allocate_thin(heap, class_index, zeroed);
        if (address != 0) {
            return address;
        }
        if (unlikely(heap_thread.first != 0) && class_index >= MALLOW_DIRECT_CLASS_COUNT &&
            heap->reserve == NULL) { // slices are had sooner than a slab and a place for its class
            return heap_large_allocate(heap, size_class_bytes(class_index), MALLOW_SLICE_BYTES,
                                       zeroed);
        }
    }
    if (unlikely(heap_is_crowded(heap->shared))) {
        if (class_index < MALLOW_DIRECT_CLASS_COUNT) {
            return heap_allocate_seated(heap, class_index, zeroed);
        }
        if (size_class_bytes(class_index) > MALLOW_SINGLE_SLICE_BLOCK_MAX) {
            return heap_allocate_wide(heap, class_index, zeroed);
        }
    }
    return heap_allocate_in_slab(heap, class_index, NULL, zeroed, true);
}

// Whether a slab for a block of a size is dear to make for a call that moves it: one of several
// slices while the arena is low, or of blocks that fill the better part of a slice; any if the
// arena has to grow for it.
MALLOW_INLINE bool heap_has_dear_slabs(const struct heap_shared *shared, size_t size) {
    return size > MALLOW_SLICE_BYTES / 2 ||
           (arena_is_low(shared->arenas) != ARENA_NOT_LOW &&
            (size > MALLOW_SINGLE_SLICE_BLOCK_MAX || !arena_has_free(shared->arenas)));
}

// One such move in a few makes the slab, if it has little else to do: or a program all of whose
// blocks have moved would never have one. A block above half a slice wastes less of it.
enum { HEAP_APART_MOVES = 4 };
static MALLOW_NOINLINE bool heap_has_had_apart(struct heap *heap, unsigned class_index) {
    return size_class_bytes(class_index) <= MALLOW_SLICE_BYTES / 2 && !heap_has_posts(heap) &&
           !heap_is_crowded(heap->shared) && !meta_is_low(heap->shared->meta) &&
           ++heap->apart_count % HEAP_APART_MOVES == 0;
}

// Whether a call that makes a heap, or moves a block for which a slab is dear, had better take
// slices for the block itself than make a slab of them as well: there is none of the class with
// room. Such blocks have more address space than they need, of which they touch no more. What
// others have freed is collected by a cheap move then (heap_collect_late).
static MALLOW_NOINLINE bool heap_is_slab_dear(struct heap *heap, unsigned class_index,
                                              const struct slab *current) {
    if (heap->reserve != NULL || (current != NULL && !slab_is_out(current))) {
        return false;
    }
    if (heap_thread.first != 0) {
        return true; // of several slices
    }
    if (heap_thread.first_effort < HEAP_EFFORT_MOVE ||
        (current != NULL && slab_can_open(current))) {
        return false;
    }
    if (class_index >= MALLOW_DIRECT_CLASS_COUNT) {
        if (arena_has_plenty(heap->shared->arenas) && heap_has_had_apart(heap, class_index)) {
            return false;
        }
        if (heap_medium_of(heap) == NULL) {
            return true; // with a structure to make besides
        }
    }
    if (heap_queue_first(heap, class_index) != NULL) {
        return false;
    }
    heap->skipped_count += heap_has_posts(heap) ? 1 : 0;
    return true;
}

MALLOW_INTERNAL uintptr_t heap_allocate(struct heap *heap, size_t size, bool zeroed) {
    heap_begin_effort();
    if (likely(size <= MALLOW_SLAB_BYTES_MAX)) {
        const unsigned class_index = size_class_of(size);
        struct slab *const current =
            size <= MALLOW_SMALL_BYTES_MAX
                ? heap_current_direct(heap, class_index,
                                      (size + MALLOW_GRANULE_BYTES - 1) >> MALLOW_GRANULE_SHIFT)
                : heap_current_slab(heap, class_index);
        if (unlikely(heap_thread.first_effort != 0) &&
            unlikely(heap_thread.first != 0
                         ? size > MALLOW_SINGLE_SLICE_BLOCK_MAX
                         : heap_has_dear_slabs(heap->shared, size)) &&
            heap_is_slab_dear(heap, class_index, current)) {
            return heap_large_allocate(heap, size, MALLOW_SLICE_BYTES, zeroed);
        }
        return current == NULL
                   ? heap_allocate_first(heap, class_index, zeroed)
                   : heap_allocate_in_slab(heap, class_index, current, zeroed, true);
    }
    if (size <= heap->shared->large_bytes_max) {
        return heap_large_allocate(heap, size, MALLOW_SLICE_BYTES, zeroed);
    }
    return heap_allocate_huge(heap, size, 1, zeroed);
}

MALLOW_INTERNAL uintptr_t heap_allocate_aligned(struct heap *heap, size_t size, size_t alignment,
                                                bool zeroed) {
    heap_begin_effort();
    if (alignment <= MALLOW_SLICE_BYTES && size <= MALLOW_SLAB_BYTES_MAX) {
        // Slabs begin at slices, and a class that serves a multiple of the alignment has blocks
        // that are one (size_class.h).
        const size_t rounded = bits_align_up(bits_max(size, 1), alignment);
        if (unlikely(heap_thread.first != 0) && heap->reserve == NULL &&
            (rounded > MALLOW_SINGLE_SLICE_BLOCK_MAX || !arena_has_free(heap->shared->arenas))) {
            // As in heap_allocate; smaller blocks have no units if they are aligned.
            return heap_large_allocate(heap, size, alignment, zeroed);
        }
        if (rounded <= MALLOW_SLAB_BYTES_MAX) {
            const unsigned class_index = size_class_of(rounded);
            return heap_allocate_in_slab(heap, class_index, heap_current_slab(heap, class_index),
                                         zeroed, false);
        }
    }
    if (size <= heap->shared->large_bytes_max && alignment <= MALLOW_CHUNK_BYTES / 2) {
        return heap_large_allocate(heap, size, alignment, zeroed);
    }
    return heap_allocate_huge(heap, size, alignment, zeroed);
}
