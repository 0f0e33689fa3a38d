// SPDX-License-Identifier: MIT
// Heap: what owns slabs and allocates from them; one for each thread that allocates.
//
// Vocabulary (DESIGN: chunk 2 MiB, slice 64 KiB, span = slices for one purpose, slab = span cut
// into blocks of one class). A slab is *current* (malloc takes from it; one a class), *queued* (it
// has free blocks), *full* (flag in its owner word; on no list), or wholly free, and then it goes
// back to its arena unless it is current.
//
// Owns     its slabs, their queues, and the table that malloc looks sizes up in.
// Threads  its thread alone, except `ready` (any thread pushes) and `state`. The heap of a thread
//          that has ended belongs to whoever moves its state from ABANDONED to CLAIMED.
// Holds    direct[u] = current[class of u granules], or the empty slab where there is none, or it
//          rests (heap_rest.h); of a guest, which has none, its host's current slab
//          a slab on queue[c] has owner == this heap without flags, class c, and is not current
#ifndef MALLOW_HEAP_HEAP_H
#define MALLOW_HEAP_HEAP_H

#include <stdatomic.h>

#include "arena/arena.h"
#include "arena/huge.h"
#include "arena/reserve.h"
#include "arena/thin.h"
#include "config.h"
#include "heap/heap_thread.h"
#include "slab/size_class.h"
#include "slab/slab.h"
#include "slab/slab_remote.h"

enum heap_state {
    HEAP_OWNED = 0,     // by a running thread
    HEAP_ABANDONED = 1, // its thread has ended
    HEAP_CLAIMED = 2,   // somebody is working in it for a moment
};

// What a thread may use of a limit's reserve.
enum heap_refused {
    HEAP_NOT_REFUSED = 0,
    HEAP_REFUSED = 1,       // told NULL, or about to be: spans at level SPARE from the next call on
    HEAP_REFUSED_SPANS = 2, // those too: small blocks from units of a kibibyte
};

struct heap_shared;
struct heap_resting;

// Classes of more than MALLOW_SMALL_BYTES_MAX: apart, since a thread with little data has none.
#define MALLOW_MEDIUM_CLASS_COUNT (MALLOW_CLASS_COUNT - MALLOW_DIRECT_CLASS_COUNT)
struct heap_medium {
    struct slab *current[MALLOW_MEDIUM_CLASS_COUNT]; // NULL if none
    struct slab *queue[MALLOW_MEDIUM_CLASS_COUNT];
};

struct heap {
    // What free needs first: where the primary arena's slab headers are.
    uintptr_t header_mask;                          // (slices - 1) << MALLOW_SLAB_HEADER_SHIFT
    uintptr_t header_base;                          // address of the header of slice index 0
    struct slab *direct[MALLOW_DIRECT_COUNT];       // by size in granules
    struct slab *queue[MALLOW_DIRECT_CLASS_COUNT];  // rings of slabs with room
    _Atomic(struct heap_medium *) medium;           // for the classes beyond; NULL until needed
    struct heap_shared *shared;
    struct thin_unit thin;                          // where the first blocks of a class come from
    uint8_t thin_counts[MALLOW_THIN_CLASS_COUNT]; // how many of a class did
    _Atomic(uint32_t) slab_count;                   // slabs owned
    uint32_t steal_cursor;                          // next class to look for a spare slab in
    uint8_t refused;                                // enum heap_refused
    bool attention;                                 // an event of os_charge is due
    bool beating;                                   // its thread is in the program's heartbeat
    uint8_t apart_count;                            // moves that took slices: heap_is_slab_dear
    struct heap_resting *resting;                   // NULL until a class first rests (heap_rest.h)
    struct reserve *reserve;                        // where all spans come from; NULL: the arenas,
                                                    // without an allowance
    struct slab *spare;                             // wholly free, on no list; NULL if none
    struct slab_remote *taken;                      // posted slabs taken off `ready`
    struct slab_remote *later;                      // those that had too few free blocks
    _Atomic(uint32_t) busy;                         // heap_gate.h: 1 while the thread is at work
    _Atomic(uint32_t) visit;                        // enum heap_gate; written by others too
    uint32_t guests;                                // classes that are guests: see heap_seat
    uint32_t seats;                                 // those, their hosts, and some that were hosts
    uint32_t refilled_count;                        // full slabs that got free blocks
    uint32_t skipped_count;                         // calls since that left posted slabs alone
    uint32_t drain_count;                           // calls that have blocks and yet collect
    uint32_t poor_count;                            // calls that found queued slabs with few blocks
    uint32_t early_count;                           // slabs taken before those were used up
    _Atomic(uint32_t) thread;                       // whose it is (os_thread_number); 0: not known
    _Atomic(uintptr_t) thread_top;                  // its thread pointer, set before `thread`
    // Written by other threads, on a line of its own.
    _Alignas(MALLOW_CACHE_LINE) _Atomic(struct slab_remote *) ready; // stack of posted slabs
    _Atomic(uint32_t) state;                        // enum heap_state; read with every remote free
    struct heap *next_abandoned;                    // queue of abandoned heaps
    struct heap *next_heap;                         // all heaps, for snapshots
    // The visitor's alone (heap_holes.h).
    uint64_t asked_ms;                              // when it asked to be let in
    uint32_t visit_round;                           // round in which it last wanted to; 0: not
    uint32_t visit_before;                          // the gate's state before it entered
    uint64_t asleep_ms;                             // when the thread was seen asleep; 0: not yet
    uint32_t asleep_round;                          // round in which that was last asked
    _Atomic(uint32_t) visitor;                      // who is inside, or was last; 0: not known
    _Atomic(uint32_t) beside_blocks;                // that the thread has had since it entered
    _Atomic(uint32_t) beside_spans;                 // (heap_take_beside), in units and otherwise
    _Atomic(uint32_t) astray_count;                 // slabs given up, whose posts lie on `ready`
};

static_assert(_Alignof(struct heap) > SLAB_OWNER_FLAGS, "flags fit below a heap's address");

// What all heaps of a process share.
struct heap_shared {
    uintptr_t header_mask;                 // as in struct heap, for threads that have none
    uintptr_t header_base;
    uintptr_t remote_distance;             // from a header of the primary arena to its remote part
    struct os *os;
    struct meta *meta;
    struct arena_set *arenas;
    struct huge_set *huges;
    struct thin_set *thins;
    struct reserve *reserve;               // of all heaps of threads; NULL: the arenas
    size_t large_bytes_max;                // beyond this, a block is huge
    _Atomic(struct heap *) abandoned;      // queue, of the thread that ended first; written under
                                           // the arena's lock
    struct heap *abandoned_last;           // under that lock
    _Atomic(struct heap *) arrived;        // stack, of those that are yet to be queued
    _Atomic(struct heap *) heaps;          // all heaps ever made
    _Atomic(uint32_t) heap_count;
    _Atomic(uint64_t) adopted_count;
    struct heap_own *ended;                // heap_own.h; under the arena's lock
    _Atomic(struct heap *) bare;           // heap_empty with the table of headers, for threads that
                                           // free and do not allocate; NULL: not needed yet
    _Atomic(uint32_t) refilled_count;      // full slabs that got free blocks, of all heaps, roughly
    _Atomic(uint64_t) need_peak;           // most bytes held without what is only kept, as far as
                                           // it has been looked at
    _Atomic(uint64_t) way_bound;           // held so much, it is to be looked at again
    _Atomic(uint64_t) way_bytes;           // that what is kept has had to make way for, in all
};

// The heap of a thread that has none: every look-up in it leads to the slow path. Constant, so that
// a thread's state can begin as all zero bits.
MALLOW_EXTERN_DATA const struct heap heap_empty;

MALLOW_INLINE struct heap *heap_current(void) {
    return (struct heap *)((uintptr_t)&heap_empty + heap_thread.heap_offset);
}

// Whether a thread has none: this is heap_empty, or the process's bare one.
MALLOW_INLINE bool heap_is_empty(const struct heap *heap) {
    return heap->shared == NULL;
}

// The heap of those operators new and delete that by default call another one, which the program
// may have replaced: empty until the thread knows that they have none to call. So the fast path
// needs no test for that either.
MALLOW_INLINE struct heap *heap_operator_current(void) {
    return (struct heap *)((uintptr_t)&heap_empty + heap_thread.operator_offset);
}

MALLOW_INLINE void heap_switch(const struct heap *heap) {
    heap_thread.heap_offset = (uintptr_t)heap - (uintptr_t)&heap_empty;
    heap_thread.operator_offset = 0;
}

// ---- heap_adopt.c: birth and end ----------------------------------------------------------------

// Completes `shared`, whose members for the layers below are set.
MALLOW_INTERNAL void heap_shared_init(struct heap_shared *shared);

// After arena_confine: looks for headers in the part of their table that is needed, and gives the
// rest back. For a process of one thread: nobody else may be looking.
MALLOW_INTERNAL void heap_confine(struct heap_shared *shared);

// A heap for the calling thread: one that a thread which ended has left, preferably with few slabs,
// or a new one. NULL: no memory.
MALLOW_INTERNAL struct heap *heap_adopt_or_create(struct heap_shared *shared);

// A new heap on no thread, in state ABANDONED and on no queue: to be claimed for each use.
MALLOW_INTERNAL struct heap *heap_create_fallback(struct heap_shared *shared);

// Makes `heap`, all zero, the bare one: empty, with the table of headers.
MALLOW_INTERNAL void heap_begin_bare(struct heap_shared *shared, struct heap *heap);

// A new heap on no thread, in state OWNED, all of whose spans are of the reserve, or under its
// allowance.
MALLOW_INTERNAL struct heap *heap_create_reserved(struct heap_shared *shared,
                                                  struct reserve *reserve);

// Makes such a heap as it was when it was new. Its slabs stay what they are, and its no longer.
MALLOW_INTERNAL void heap_forget(struct heap *heap);

// Hands the heap of a thread that ends on. O(classes).
MALLOW_INTERNAL void heap_abandon(struct heap *heap);

// Whether there are any such.
MALLOW_INLINE bool heap_has_ended(const struct heap_shared *shared) {
    return atomic_load_explicit(&shared->abandoned, memory_order_relaxed) != NULL;
}

// A slab of the class with room, taken over from a heap that a thread which ended has left.
// `work`: see heap_drain_one.
MALLOW_INTERNAL struct slab *heap_adopt_slab(struct heap *heap, unsigned class_index, int *work);

// After a free into a slab of `from`, an abandoned heap that the caller has claimed: takes it over
// if this heap has no other queued of its class. So what a thread has been left becomes its own as
// it replaces it, and no more of it than that.
MALLOW_INTERNAL void heap_take_along(struct heap *heap, struct heap *from, struct slab *slab);

// Collects what others have freed in heaps that threads which ended have left, as far as `*work`
// allows.
MALLOW_INTERNAL void heap_drain_ended(struct heap *heap, int *work);

// ---- heap_slow.c: allocation beyond the fast path -----------------------------------------------

// Any size, 16-byte aligned; 0 if there is no memory.
MALLOW_INTERNAL uintptr_t heap_allocate(struct heap *heap, size_t size, bool zeroed);

// Any size and power of two alignment.
MALLOW_INTERNAL uintptr_t heap_allocate_aligned(struct heap *heap, size_t size, size_t alignment,
                                                bool zeroed);

// To be called when malloc is about to take from another word of a slab: stops the program if
// another thread has freed a free block of it as well.
MALLOW_INTERNAL void heap_check_pending_word(const struct heap *heap, const struct slab *slab);
MALLOW_INLINE void heap_check_word(const struct heap *heap, const struct slab *slab) {
    if (unlikely((slab_owner(slab) & SLAB_OWNER_PENDING) != 0)) {
        heap_check_pending_word(heap, slab);
    }
}

// To be called when a slab that is wholly free is given up, or its span used again: the same of all
// its blocks. heap_queue.c
MALLOW_INTERNAL void heap_check_pending_slab(const struct heap *heap, const struct slab *slab);
MALLOW_INLINE void heap_check_slab(const struct heap *heap, const struct slab *slab) {
    if (unlikely((slab_owner(slab) & SLAB_OWNER_PENDING) != 0)) {
        heap_check_pending_slab(heap, slab);
    }
}

// Takes the arena's lock; false: another thread has it, and it is not to be waited for.
MALLOW_INLINE bool heap_lock_arenas(const struct heap_shared *shared, bool waits) {
    struct os_lock *const lock = &shared->arenas->lock;
    if (likely(os_lock_try(lock, os_lock_mine()))) {
        return true;
    }
    if (waits) {
        os_lock_take(lock);
    }
    return waits;
}

// ---- heap_settle.c: what a call leaves to later ones --------------------------------------------

// Ends a call that began when os_entries was `entries`: if the kernel has not been entered since,
// and little else has been done, does one piece of what earlier calls have left: gives memory back,
// or prepares some. At most one system call, mostly none.
MALLOW_INTERNAL void heap_settle_slow(struct heap_shared *shared, uint64_t entries,
                                      enum arena_low low);

MALLOW_INLINE bool heap_owes(const struct heap_shared *shared) {
    return huge_owes(shared->huges) || huge_is_loose(shared->huges) ||
           arena_owes(shared->arenas) || arena_is_late(shared->arenas);
}

MALLOW_INLINE void heap_settle(struct heap_shared *shared, uint64_t entries) {
    const enum arena_low low = arena_is_low(shared->arenas);
    if (unlikely(low >= ARENA_LOW_TABLES || meta_is_low(shared->meta) ||
                 (heap_thread.effort < MALLOW_CALL_EFFORT &&
                  (low != ARENA_NOT_LOW || heap_owes(shared))))) {
        heap_settle_slow(shared, entries, low);
    }
}

// ---- heap_remote.c: frees by other threads ------------------------------------------------------

// What one call may do for others is one slab, of which it collects up to `*work` words of bitmaps;
// the rest stays where it is for later calls. Looks at one slab that other threads have freed
// blocks of, and leaves no work; false: there is none, or no work was left.
MALLOW_INTERNAL bool heap_drain_one(struct heap *heap, int *work, bool all);

// Whether there is any, and whether one that has not been put off.
MALLOW_INLINE bool heap_has_new_posts(const struct heap *heap) {
    const struct slab_remote *const ready =
        atomic_load_explicit(&heap->ready, memory_order_relaxed);
    return ((uintptr_t)ready | (uintptr_t)heap->taken) != 0;
}
MALLOW_INLINE bool heap_has_posts(const struct heap *heap) {
    return heap_has_new_posts(heap) || heap->later != NULL;
}

// Whether a call that needed blocks has left alone what others have freed. The next cheap move is
// to collect a slab of it then: moves that need blocks do not, and there may be no other calls.
MALLOW_INLINE bool heap_is_late(const struct heap *heap) {
    return heap->skipped_count != 0 && heap_has_posts(heap);
}
// Collects one, up to `work` words of it, or makes way for it by giving up the spare slab. Nothing
// if a visitor is inside.
MALLOW_INTERNAL void heap_collect_late(struct heap *heap, int work);

// Whether the slab that it would look at next is of the class. A hint.
MALLOW_INTERNAL bool heap_next_post_is_of(const struct heap *heap, unsigned class_index);

// Looks at up to `budget` slabs that other threads have freed blocks of; how many it found.
// Collects those of which a good part is free, or all of them.
MALLOW_INTERNAL unsigned heap_drain(struct heap *heap, unsigned budget, bool all);

// Collects remote frees of one slab of this heap, as far as `*work` allows, and acts on them; how
// many blocks came back.
MALLOW_INTERNAL unsigned heap_collect(struct heap *heap, struct slab *slab,
                                      struct slab_remote *remote, int *work);

// A full slab is on nobody's list, so whoever changes its owner word has it: its owner, to work on
// it, or a thread that has freed the last of its blocks while the owner sleeps.
enum heap_hold {
    HEAP_HOLD_LOST,     // it is another heap's now
    HEAP_HOLD_LISTED,   // this heap's: current or queued
    HEAP_HOLD_WAS_FULL, // this heap's, and on no list: the caller puts it on one
};
MALLOW_INTERNAL enum heap_hold heap_hold_slab(struct heap *heap, struct slab *slab);

// Gives the block that a current slab has been lent, if any, back to its own slab.
MALLOW_INTERNAL void heap_return_lent_block(struct heap *heap, const struct slab *current);

MALLOW_INLINE void heap_return_lent(struct heap *heap, const struct slab *current) {
    if (unlikely(slab_has_lent(current))) {
        heap_return_lent_block(heap, current);
    }
}

// Whether the block, of a full slab, is lent: free, and the next of its class to be handed out.
MALLOW_INTERNAL bool heap_is_lent(const struct slab *slab, size_t index);

// Claims an abandoned heap for a moment; false if somebody else has it.
MALLOW_INTERNAL bool heap_claim(struct heap *heap);

// Ends the claim. Collects first what was posted, as far as `*work` allows.
MALLOW_INTERNAL void heap_unclaim_slow(struct heap *heap, int *work);
MALLOW_INLINE void heap_unclaim(struct heap *heap, int *work) {
    if (*work > 0) {
        heap_unclaim_slow(heap, work);
    } else {
        atomic_store_explicit(&heap->state, HEAP_ABANDONED, memory_order_seq_cst);
    }
}

// Frees block `index` of a slab that the calling thread does not own; it need have no heap. More
// often that is done by heap_near.h, which looks at less.
MALLOW_INTERNAL void heap_free_remote(struct slab *slab, struct slab_remote *remote, size_t index);

// The same of one that its owner does not know to be free.
MALLOW_INTERNAL void heap_free_live(struct slab *slab, struct slab_remote *remote, size_t index);

// What is seldom to be done after the bit of the block at `address` has been set: its slab, which
// had `capacity` blocks, has to be posted, or all blocks of a word have been freed, maybe the last
// of a full slab, whose thread may sleep for ever: that is given up here. A few atomic operations.
MALLOW_INTERNAL void heap_free_marked(struct heap_shared *shared, uintptr_t address,
                                      size_t capacity);

// Gives a full slab of any heap up if other threads have freed all of its blocks. Does nothing if
// it is not full (any more), nor, in a heap with a reserve, where another thread has the arena's
// lock.
MALLOW_INTERNAL void heap_release_full(struct slab *slab, struct slab_remote *remote);

// Brings posts of slabs that are no longer a heap's to whose they are now, in all threads' heaps in
// which heap_release_full has left some. O(posts of those): for a thread of ours. The caller keeps
// forks out.
MALLOW_INTERNAL void heap_sort_posts(const struct heap_shared *shared);

MALLOW_INLINE bool heap_is_abandoned(const struct heap *heap) {
    return atomic_load_explicit(&heap->state, memory_order_relaxed) == HEAP_ABANDONED;
}

// ---- heap_queue.c: which slab is where ----------------------------------------------------------

// Of any thread's heap: whoever finds it finds it zeroed, or as its owner has it now.
MALLOW_INLINE struct heap_medium *heap_medium_of(const struct heap *heap) {
    return atomic_load_explicit(&heap->medium, memory_order_acquire);
}
// What rests, in the class's place; NULL if nothing does.
MALLOW_INTERNAL struct slab *heap_resting_slab(const struct heap *heap, unsigned class_index);
// The current slab of a class with a fast path, which serves so many granules; NULL: there is none.
// A guest's place leads to one of another class.
MALLOW_INLINE struct slab *heap_current_direct(const struct heap *heap, unsigned class_index,
                                               size_t granules) {
    struct slab *const slab = __atomic_load_n(&heap->direct[granules], __ATOMIC_ACQUIRE);
    if (likely(__atomic_load_n(&slab->class_index, __ATOMIC_RELAXED) == class_index)) {
        return slab;
    }
    return slab != heap_empty.direct[0] ||
                   likely(__atomic_load_n(&heap->resting, __ATOMIC_RELAXED) == NULL)
               ? NULL
               : heap_resting_slab(heap, class_index);
}
// The class's current slab; NULL if there is none.
MALLOW_INLINE struct slab *heap_current_slab(const struct heap *heap, unsigned class_index) {
    if (class_index < MALLOW_DIRECT_CLASS_COUNT) {
        return heap_current_direct(heap, class_index,
                                   size_class_bytes(class_index) >> MALLOW_GRANULE_SHIFT);
    }
    const struct heap_medium *const medium = heap_medium_of(heap);
    return medium != NULL ? medium->current[class_index - MALLOW_DIRECT_CLASS_COUNT] : NULL;
}
// The first slab of the class's queue; NULL if there is none. Of another heap, a hint.
MALLOW_INLINE struct slab *heap_queue_first(const struct heap *heap, unsigned class_index) {
    if (class_index < MALLOW_DIRECT_CLASS_COUNT) {
        return heap->queue[class_index];
    }
    const struct heap_medium *const medium = heap_medium_of(heap);
    return medium != NULL ? medium->queue[class_index - MALLOW_DIRECT_CLASS_COUNT] : NULL;
}
// Whether the heap that was abandoned first has a slab of the class with room. A hint.
MALLOW_RACY_READ static __attribute__((unused)) bool
heap_may_adopt_first(const struct heap_shared *shared, unsigned class_index) {
    const struct heap *const first =
        atomic_load_explicit(&shared->abandoned, memory_order_acquire);
    return first != NULL && heap_queue_first(first, class_index) != NULL;
}
// Makes room for the places of a medium class; false: no memory.
MALLOW_INTERNAL bool heap_prepare_class(struct heap *heap, unsigned class_index);
MALLOW_INTERNAL void heap_set_current(struct heap *heap, unsigned class_index, struct slab *slab);
// Guests: in a process of many heaps, what a heap has little of several classes of one doubling
// lies in a slab of the doubling's largest, their host, whose place theirs leads to. So a heap of
// few blocks in many sizes does not hold a slab of each. A class without a slab of its own, of
// those that have a fast path, is seated: `*class_index` becomes the class to take from. That is
// itself once it finds the host's slab used up: a class that takes much finds that soon. Returns
// the host's current slab; NULL if it has none, or the class stays itself. Both between enter and
// leave (heap_gate.h).
MALLOW_INLINE bool heap_is_crowded(const struct heap_shared *shared) {
    return atomic_load_explicit(&shared->heap_count, memory_order_relaxed) >= MALLOW_CROWD_HEAPS;
}
MALLOW_INTERNAL struct slab *heap_seat(const struct heap *heap, unsigned *class_index);
// Whether a host's slab is used up, for a guest. For a block that moves, what others have freed in
// it stays there.
MALLOW_INLINE bool heap_is_host_out(const struct slab *slab) {
    return slab_is_out(slab) && !slab_can_open(slab) &&
           ((slab_owner(slab) & SLAB_OWNER_PENDING) == 0 || heap_thread.first_effort != 0);
}
// Leads malloc of a class to its host's current slab, for as long as that is current, does not
// rest, and the class has none of its own.
MALLOW_INTERNAL void heap_seat_guest(struct heap *heap, unsigned class_index, struct slab *slab);
// Keeps malloc's fast path from the class's current slab, or leads it to `slab` again
// (heap_rest.h).
MALLOW_INTERNAL void heap_hide_current(struct heap *heap, unsigned class_index);
MALLOW_INTERNAL void heap_show_current(struct heap *heap, unsigned class_index, struct slab *slab);
// When a full slab of this heap ceases to be full: the block that it has lent comes back.
MALLOW_INTERNAL void heap_settle_lent(struct heap *heap, struct slab *slab);
// Takes the current slab, without a lent block, out of its place and queues, marks or releases it
// according to what it holds.
MALLOW_INTERNAL void heap_retire_current(struct heap *heap, unsigned class_index);
// The same in two parts, for a call that puts another slab in its place, or leaves that empty.
MALLOW_INTERNAL void heap_retire(struct heap *heap, struct slab *slab);
MALLOW_INTERNAL void heap_leave_place(struct heap *heap, unsigned class_index);
// To the end of the queue: a slab that has just got its first free block should gather more of them
// before it is used, so that each use of the slow path yields many blocks.
MALLOW_INTERNAL void heap_queue_push(struct heap *heap, struct slab *slab);
MALLOW_INTERNAL void heap_queue_remove(struct heap *heap, struct slab *slab);
// Before the free blocks of a word of the bitmap are used: stops the program if other threads have
// freed any of them as well.
MALLOW_INTERNAL void heap_check_twice(const struct slab *slab, const struct slab_remote *remote,
                                      unsigned word_index);
// Whether other classes may take from the class's current slab, or it from another's.
MALLOW_INLINE bool heap_is_seated(const struct heap *heap, unsigned class_index) {
    return class_index < MALLOW_DIRECT_CLASS_COUNT && (heap->seats >> class_index & 1) != 0;
}
// Takes the class's current slab out of its place if it is wholly free; else NULL. The caller
// releases it, or uses its span.
MALLOW_INTERNAL struct slab *heap_detach_spare(struct heap *heap, unsigned class_index);
// Gives a slab that is wholly free and on no queue back to its arena.
MALLOW_INTERNAL void heap_release_slab(struct heap *heap, struct slab *slab);
// Keeps such a slab for the next one that is needed, or gives it back if there is one already.
MALLOW_INTERNAL void heap_keep_spare(struct heap *heap, struct slab *slab);
// Acts on blocks having come back to a slab of this heap that is held: one that was full is queued,
// an empty one released.
MALLOW_INTERNAL void heap_slab_refilled(struct heap *heap, struct slab *slab, bool was_full);

// Gives the spare slab back, if there is one.
MALLOW_INTERNAL void heap_drop_spare(struct heap *heap);
// Gives up the spare slab and all current slabs that are wholly free.
MALLOW_INTERNAL void heap_release_spare(struct heap *heap);

// ---- heap_free.c: freeing beyond the fast path, and asking about pointers -----------------------

// What a pointer is. `huge` for the last, `slab` for the others.
enum heap_block_kind {
    HEAP_BLOCK_NONE,
    HEAP_BLOCK_SLAB,
    HEAP_BLOCK_THIN,
    HEAP_BLOCK_LARGE,
    HEAP_BLOCK_HUGE,
};
struct heap_block {
    enum heap_block_kind kind;
    struct slab *slab;
    struct huge *huge;
    size_t index; // of the block in its slab
    size_t usable_bytes;
};

MALLOW_INLINE enum heap_effort heap_move_effort(enum heap_block_kind kind) {
    return kind >= HEAP_BLOCK_LARGE ? HEAP_EFFORT_MOVE_FAR : HEAP_EFFORT_MOVE;
}

// Identifies any 64-bit value. Kind NONE: not the start of a live block, as far as that can be told
// without a lock: exact for a pointer that the caller may use.
MALLOW_INTERNAL struct heap_block heap_identify(const struct heap_shared *shared,
                                                uintptr_t address);

// Usable bytes of a live block that begins in the first slice of a slab of this heap in which no
// other thread has freed: as most do that are asked about, at the least cost. 0: heap_identify.
MALLOW_INTERNAL size_t heap_own_usable(const struct heap *heap, uintptr_t address);

// What has become of a free that was tried next to the fast path (heap_near.h).
enum heap_near {
    HEAP_NEAR_NOT,    // nothing
    HEAP_NEAR_QUIET,  // done, and nothing but the block's bit has changed
    HEAP_NEAR_MARKED, // its bit is set; heap_free_marked has to follow
};

// Frees `address` on behalf of a thread whose heap is `heap` (an empty one if it has none). False:
// it is no address of ours at all. Misuse of one that is ours stops the program.
MALLOW_INTERNAL bool heap_free(struct heap_shared *shared, struct heap *heap, uintptr_t address);

// Frees a block that the call under way has identified and moved as another thread would, if its
// slab is this heap's, has no other block, and is not simply to become the spare one: so a later
// call gives that up. False: nothing done.
MALLOW_INTERNAL bool heap_hand_on(struct heap_shared *shared, const struct heap *heap,
                                  const struct heap_block *block);

// The same of any block of a slab that the call under way has identified and moved. If others free
// it meanwhile as well, that is found when its bitmaps are brought together. A call that has taken
// a span or a mapping leaves even an own slab's bitmap to a later one.
MALLOW_INTERNAL void heap_free_moved_now(struct heap_shared *shared, struct heap *heap,
                                         const struct heap_block *block);
MALLOW_INLINE void heap_free_moved(struct heap_shared *shared, struct heap *heap,
                                   const struct heap_block *block) {
    if (heap_thread.effort >= HEAP_EFFORT_HUGE) {
        heap_free_live(block->slab, arena_remote_of(shared->arenas, block->slab), block->index);
    } else {
        heap_free_moved_now(shared, heap, block);
    }
}

// heap_free of a block that need not begin in the first slice of a slab of the primary arena.
MALLOW_INTERNAL bool heap_free_far(struct heap_shared *shared, struct heap *heap,
                                   uintptr_t address);

// Stops the program if `address` lies in memory of ours, saying what is wrong with it; else
// returns. `call` begins the message: "free", "realloc" ...
MALLOW_INTERNAL void heap_report_misuse(const struct heap_shared *shared, uintptr_t address,
                                        const char *call);

// Stops the program: `address` is nobody's block, not even libc's.
MALLOW_INTERNAL MALLOW_NORETURN void heap_report_foreign(const struct heap_shared *shared,
                                                         uintptr_t address, const char *call);

// ---- heap_settle.c, heap_relief.c: short of memory ----------------------------------------------

// Gives back at least `bytes` of what is kept for speed, if there is so much; bytes released.
MALLOW_INTERNAL size_t heap_relieve(struct heap_shared *shared, size_t bytes);

// Memory for a structure of ours (meta_take), for which what is kept gives way if need be.
MALLOW_INTERNAL void *heap_relieve_for_table(struct heap_shared *shared, size_t bytes);
MALLOW_INLINE void *heap_take_table(struct heap_shared *shared, size_t bytes) {
    void *const table = meta_take(shared->meta, bytes);
    return likely(table != NULL) ? table : heap_relieve_for_table(shared, bytes);
}

// After memory of one kind has grown: what is kept of the other kind, which cannot serve it, makes
// way for it as far as more is held than was ever needed. Makes no system call: it is owed.
enum heap_kind { HEAP_KIND_SLICES, HEAP_KIND_HUGE };
MALLOW_INTERNAL void heap_make_way_slow(struct heap_shared *shared, enum heap_kind grown);
// Whether that is to be looked at once so many slices more are held.
MALLOW_INLINE bool heap_is_way_due(const struct heap_shared *shared, unsigned slice_count) {
    const size_t more = (size_t)slice_count << MALLOW_SLICE_SHIFT;
    return atomic_load_explicit(&shared->os->charge.held_bytes, memory_order_relaxed) + more >
           atomic_load_explicit(&shared->way_bound, memory_order_relaxed);
}
MALLOW_INLINE void heap_make_way(struct heap_shared *shared, enum heap_kind grown) {
    if (unlikely(heap_is_way_due(shared, 0))) {
        heap_make_way_slow(shared, grown);
    }
}
// Notes what is needed, and leaves the rest to a later call.
MALLOW_INTERNAL void heap_note_need_slow(struct heap_shared *shared);
MALLOW_INLINE void heap_note_need(struct heap_shared *shared) {
    if (unlikely(heap_is_way_due(shared, 0))) {
        heap_note_need_slow(shared);
    }
}
// So much more may be held than was ever needed.
#define HEAP_WAY_SLACK_BYTES ((size_t)1 << 20)

// A span, or a huge block, that was refused at level SOFT or by the kernel: gives back what is
// kept, and tries again up to the hard limit; for a thread that was refused before, a span up to
// level SPARE.
MALLOW_INTERNAL struct arena_span heap_take_span_short(struct heap *heap, unsigned slice_count,
                                                       unsigned align_slices);
// A block of the first of a class, from units of a slice that was refused at level SOFT: gives back
// what is kept, and tries again up to the hard limit. 0: that is not why, or there is no memory.
MALLOW_INTERNAL uintptr_t heap_thin_short(struct heap *heap, unsigned class_index);
// A small block for a thread that has been refused before, from units of a kibibyte, up to the
// limit itself; 0 if it has not, or there is none.
MALLOW_INTERNAL uintptr_t heap_take_last(struct heap *heap, size_t size, bool zeroed);
// heap_beside.c: a block of a class for a thread that has found a visitor at its slabs
// (heap_gate.h), from units of a kibibyte, or with slices of its own; 0 if there have been many of
// these, or there is no memory for it. `plain`: need not be aligned as blocks of the class are.
MALLOW_INTERNAL uintptr_t heap_take_beside(struct heap *heap, unsigned class_index, bool zeroed,
                                           bool plain);
struct heap_huge_request {
    size_t alignment;
    size_t offset; // not 0: address + offset is what is aligned, and the block reads as zero
    enum huge_use use; // not GROWN: that is told by whether a block moves
};
MALLOW_INTERNAL uintptr_t heap_huge_short(struct heap *heap, size_t size,
                                          struct heap_huge_request request);
// One attempt, at one level.
MALLOW_INTERNAL uintptr_t heap_huge_try(struct heap_shared *shared, size_t size,
                                        struct heap_huge_request request,
                                        enum os_charge_level level);

// huge_resize; if the soft limit refuses, once more after giving back.
MALLOW_INTERNAL uintptr_t heap_huge_resize(struct heap_shared *shared, struct huge *huge,
                                           size_t size, bool may_move);

// After a growth: notes for the owner's next slow call whether something is due. `plenty`: it has
// succeeded at level SOFT, and what was refused before is over.
MALLOW_INLINE void heap_note_growth(struct heap *heap, bool plenty) {
    if (plenty) {
        heap->refused = HEAP_NOT_REFUSED;
    }
    heap->attention =
        atomic_load_explicit(&heap->shared->os->charge.events, memory_order_relaxed) != 0;
}

// ---- Allowances: heaps that may hold only so much -----------------------------------------------

// What the heap may hold; NULL: that is not said.
MALLOW_INLINE struct os_charge *heap_allowance(const struct heap *heap) {
    return likely(heap->reserve == NULL) ? NULL : heap->reserve->allowance;
}

// Slices of a span of such a heap have been given back to the arenas.
MALLOW_INLINE void heap_allowance_release(const struct heap *heap, unsigned slice_count) {
    os_allowance_release(heap->reserve->allowance, (size_t)slice_count << MALLOW_SLICE_SHIFT);
}

// Charges a growth of such a heap. Near the soft limit what it keeps, and what others have freed in
// it, is given back first. heap_relief.c
MALLOW_INTERNAL bool heap_allowance_take(struct heap *heap, size_t bytes);

// ---- heap_large.c: blocks with a span of their own ----------------------------------------------

// A span from the heap's reserve, or under its allowance. What the heap keeps, and what others have
// freed in it, is given back before this fails. heap_relief.c
MALLOW_INTERNAL struct arena_span heap_take_reserved(struct heap *heap, unsigned slice_count,
                                                     unsigned align_slices);

// A span from the arenas. Memory that is only kept for speed is given back before this fails.
MALLOW_INLINE void heap_take_arena_span(struct heap *heap, unsigned slice_count,
                                        unsigned align_slices, struct arena_span *span) {
    arena_take_into(heap->shared->arenas, slice_count, align_slices, OS_CHARGE_SOFT, span);
    const bool plenty = span->slab != NULL;
    heap_note_effort(HEAP_EFFORT_SPAN);
    if (unlikely(!plenty)) {
        *span = heap_take_span_short(heap, slice_count, align_slices);
    } else if (unlikely(span->zeroed)) { // its pages are fresh ones
        if (span->grown) { // the next such call that has not grown makes way
            heap_note_effort(HEAP_EFFORT_GROWTH);
            heap_note_need(heap->shared);
        } else if (heap_thread.effort <= HEAP_EFFORT_SPAN) {
            heap_make_way(heap->shared, HEAP_KIND_SLICES);
        }
    }
    heap_note_growth(heap, plenty);
}

// A span from where the heap's come from.
MALLOW_INLINE void heap_take_span(struct heap *heap, unsigned slice_count, unsigned align_slices,
                                  struct arena_span *span) {
    if (unlikely(heap->reserve != NULL)) {
        *span = heap_take_reserved(heap, slice_count, align_slices);
        return;
    }
    heap_take_arena_span(heap, slice_count, align_slices, span);
}

// Whether slices can hold such a block at all, whatever has a mapping of its own elsewhere.
MALLOW_INLINE bool heap_fits_slices(size_t size, size_t alignment) {
    return size <= MALLOW_LARGE_BYTES_MAX && alignment <= MALLOW_CHUNK_BYTES / 2;
}

MALLOW_INTERNAL uintptr_t heap_large_allocate(struct heap *heap, size_t size, size_t alignment,
                                              bool zeroed);
// A huge block; 0: no memory. Of a heap with a reserve, out of what it has been given.
MALLOW_INTERNAL uintptr_t heap_allocate_huge(struct heap *heap, size_t size, size_t alignment,
                                             bool zeroed);
// A block of more than MALLOW_SLAB_BYTES_MAX bytes for a thread that has no heap yet, and needs
// none for that; 0: none without giving something back.
MALLOW_INTERNAL uintptr_t heap_allocate_apart(struct heap_shared *shared, size_t size,
                                              size_t alignment, bool zeroed);
MALLOW_INTERNAL uintptr_t heap_large_apart(struct heap_shared *shared, size_t size,
                                           size_t alignment, bool zeroed); // if it is a large one
// A zeroed block whose (address + offset) is a multiple of `alignment`, for an offset that is not:
// the one kind of block that does not begin where its span does.
MALLOW_INTERNAL uintptr_t heap_allocate_at(struct heap *heap, size_t size, size_t alignment,
                                           size_t offset);
MALLOW_INTERNAL void heap_large_free(struct heap_shared *shared, struct slab *slab);
// The same of one that the call under way has moved. `late`: that leaves the slices to a later one
// (arena_put_off).
MALLOW_INTERNAL void heap_large_free_moved(struct heap_shared *shared, struct slab *slab,
                                           bool late);
// Whether it is seen at a glance that a large block cannot grow in place.
MALLOW_INLINE bool heap_is_large_fixed(const struct heap_shared *shared, const struct slab *slab,
                                       size_t size) {
    const size_t wanted = (size + MALLOW_SLICE_BYTES - 1) >> MALLOW_SLICE_SHIFT;
    return wanted > slab->slice_count &&
           arena_is_blocked(shared->arenas, slab->start_address, slab->slice_count,
                            (unsigned)wanted - slab->slice_count);
}

// Resizes in place; false (and nothing changed) if that cannot be done.
MALLOW_INTERNAL bool heap_resize_in_place(struct heap_shared *shared,
                                          const struct heap_block *block, size_t size);

#endif
