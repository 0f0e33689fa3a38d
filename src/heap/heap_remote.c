// SPDX-License-Identifier: MIT
// Heap and other threads: posting frees to the heap that owns a slab, and collecting them there.
// The protocol of one slab is in slab/slab_remote.h; here is the stack of posted slabs of a heap.
#include "heap/heap.h"

#include <limits.h>

#include "heap/heap_fast.h"
#include "heap/heap_gate.h"
#include "heap/heap_near.h"
#include "os/fatal.h"

MALLOW_INTERNAL enum heap_hold heap_hold_slab(struct heap *heap, struct slab *slab) {
    const uintptr_t full = (uintptr_t)heap | SLAB_OWNER_FULL;
    uintptr_t owner = atomic_load_explicit(&slab->owner, memory_order_seq_cst);
    while ((owner & ~SLAB_OWNER_PENDING) == full) {
        const uintptr_t held = (owner & ~SLAB_OWNER_FULL) | SLAB_OWNER_QUEUED;
        if (atomic_compare_exchange_weak_explicit(&slab->owner, &owner, held, memory_order_seq_cst,
                                                  memory_order_seq_cst)) {
            heap_settle_lent(heap, slab);
            return HEAP_HOLD_WAS_FULL;
        }
    }
    return (owner & ~SLAB_OWNER_FLAGS) == (uintptr_t)heap ? HEAP_HOLD_LISTED : HEAP_HOLD_LOST;
}

MALLOW_INTERNAL void heap_return_lent_block(struct heap *heap, const struct slab *current) {
    const uintptr_t address = compiler_relaxed_word(&current->last);
    struct slab *const slab = heap_fast_slab(heap, address); // only the primary arena's lend
    enum heap_hold hold = heap_hold_slab(heap, slab);
    // A thread that has seen all its blocks freed may be finding out that this is no longer so.
    for (unsigned round = 0; unlikely(hold == HEAP_HOLD_LOST); round++) {
        os_pause(round);
        hold = heap_hold_slab(heap, slab);
    }
    check_assert(hold == HEAP_HOLD_WAS_FULL);
    heap_slab_refilled(heap, slab, hold == HEAP_HOLD_WAS_FULL);
}

// By any thread, for a block that it may use: nobody then lends it, so what is read may be old.
// `hot` first: whatever has become `last` after that is not this block.
MALLOW_RACY_READ MALLOW_INTERNAL bool heap_is_lent(const struct slab *slab, size_t index) {
    const struct heap *const heap = (struct heap *)slab_owner_heap(slab);
    const struct slab *current = NULL;
    if (heap == NULL) {
        return false;
    }
    if (slab->class_index < MALLOW_DIRECT_CLASS_COUNT) {
        current = heap_current_slab(heap, slab->class_index);
    } else if (heap_medium_of(heap) != NULL) {
        current = heap_medium_of(heap)->current[slab->class_index - MALLOW_DIRECT_CLASS_COUNT];
    }
    return current != NULL &&
           atomic_load_explicit(&current->hot, memory_order_acquire) != 0 &&
           atomic_load_explicit(&current->last, memory_order_acquire) ==
               slab->start_address + index * slab->block_bytes;
}

// Takes remote frees of a slab that nobody else is at; how many. A double free is reported. What
// the work does not suffice for is posted again: to this heap, and to be gone on with first.
static unsigned heap_take_remote(struct heap *heap, struct slab *slab, struct slab_remote *remote,
                                 int *work) {
    size_t index = 0;
    bool left = false;
    const int count = slab_remote_collect_some(slab, remote, work, &left, &index);
    if (unlikely(count < 0)) {
        fatal_misuse("double free of", slab->start_address + index * slab->block_bytes,
                     "another thread freed this block as well");
    }
    if (left && slab_remote_claim_post(slab, remote)) {
        atomic_store_explicit(&remote->next_posted, heap->taken, memory_order_relaxed);
        heap->taken = remote;
    }
    return (unsigned)count;
}

// Collects remote frees of a slab that is held. `keeps`: one that is wholly free then is kept as
// the heap's spare one, if it has none: for a malloc that may need a new slab, and has no time for
// more.
static unsigned heap_collect_held(struct heap *heap, struct slab *slab, struct slab_remote *remote,
                                  bool was_full, bool keeps, int *work) {
    heap_note_effort(HEAP_EFFORT_POST);
    const unsigned count = heap_take_remote(heap, slab, remote, work);
    if (keeps && slab->used_count == 0 && heap->spare == NULL) {
        if (!was_full) {
            heap_queue_remove(heap, slab);
        }
        heap->spare = slab;
    } else if (count > 0 || (was_full && slab->used_count != slab->capacity_count)) {
        heap_slab_refilled(heap, slab, was_full);
    } else if (was_full) {
        slab_change_owner(slab, (uintptr_t)heap | SLAB_OWNER_FULL);
    }
    return count;
}

MALLOW_INTERNAL unsigned heap_collect(struct heap *heap, struct slab *slab,
                                      struct slab_remote *remote, int *work) {
    const enum heap_hold hold = heap_hold_slab(heap, slab);
    return hold == HEAP_HOLD_LOST
               ? 0
               : heap_collect_held(heap, slab, remote, hold == HEAP_HOLD_WAS_FULL, false, work);
}

// Whether other threads have freed every block of a slab.
static bool heap_is_freed_elsewhere(const struct slab_remote *remote, size_t capacity) {
    const size_t whole = capacity / 64;
    size_t i = 0;
    for (; i + 4 <= whole; i += 4) {
        const _Atomic(uint64_t) *const bits = &remote->bits[i];
        if ((atomic_load_explicit(&bits[0], memory_order_seq_cst) &
             atomic_load_explicit(&bits[1], memory_order_seq_cst) &
             atomic_load_explicit(&bits[2], memory_order_seq_cst) &
             atomic_load_explicit(&bits[3], memory_order_seq_cst)) != ~UINT64_C(0)) {
            return false;
        }
    }
    for (; i < whole; i++) {
        if (atomic_load_explicit(&remote->bits[i], memory_order_seq_cst) != ~UINT64_C(0)) {
            return false;
        }
    }
    return capacity % 64 == 0 ||
           atomic_load_explicit(&remote->bits[whole], memory_order_seq_cst) ==
               heap_near_whole(whole, capacity);
}

// Takes the post of a slab that is nobody's off its heap's stack, if it is on top: where the
// heap's thread sleeps it would stay there, and whoever has the slab next would hear of no free in
// it until heap_sort_posts. It cannot be pushed again meanwhile, so what follows it is as it was if
// it is still on top.
static void heap_unpost(struct heap *heap, struct slab_remote *remote) {
    struct slab_remote *top = remote;
    if (atomic_load_explicit(&heap->ready, memory_order_seq_cst) == remote &&
        atomic_compare_exchange_strong_explicit(
            &heap->ready, &top, atomic_load_explicit(&remote->next_posted, memory_order_relaxed),
            memory_order_seq_cst, memory_order_relaxed)) {
        atomic_store_explicit(&remote->posted, 0, memory_order_seq_cst);
    } else if (atomic_load_explicit(&remote->posted, memory_order_relaxed) != 0 &&
               atomic_fetch_add_explicit(&heap->astray_count, 1, memory_order_relaxed) + 1 ==
                   MALLOW_WORK_BYTES >> MALLOW_SLICE_SHIFT) {
        os_raise_work(heap->shared->os);
    }
}

// Whether slabs that others have freed are left to the heap's owner: those of a reserve that ends
// chunk by chunk, whoever is at one of them.
static bool heap_ends_by_chunks(const struct heap *heap) {
    return heap->reserve != NULL && heap->reserve != heap->shared->reserve &&
           heap->reserve->allowance == NULL;
}

// Makes a full slab nobody's if other threads have freed all of its blocks. The arena's lock is
// held, as by a fork: in its child, frees into a slab that was nobody's just then would wait for
// its next owner for ever. The slab may be another heap's by now than when the caller looked.
static struct heap *heap_take_full_locked(struct slab *slab, struct slab_remote *remote) {
    uintptr_t owner = atomic_load_explicit(&slab->owner, memory_order_seq_cst);
    struct heap *const heap = (struct heap *)(owner & ~SLAB_OWNER_FLAGS);
    if ((owner & SLAB_OWNER_FULL) == 0 || heap == NULL || heap_ends_by_chunks(heap) ||
        !atomic_compare_exchange_strong_explicit(&slab->owner, &owner, owner & SLAB_OWNER_PENDING,
                                                 memory_order_seq_cst, memory_order_relaxed)) {
        return NULL; // somebody else is at it
    }
    // Nobody's now, so it holds still. A thread that would post it waits for its next owner.
    if (!heap_is_freed_elsewhere(remote, slab->capacity_count)) {
        slab_change_owner(slab, owner & ~SLAB_OWNER_PENDING); // used again since the caller looked
        return NULL;
    }
    slab_remote_take_all(slab, remote);
    return heap;
}

MALLOW_INTERNAL MALLOW_NOINLINE void heap_release_full(struct slab *slab,
                                                       struct slab_remote *remote) {
    const struct heap *const owner = (struct heap *)slab_owner_heap(slab);
    if (owner == NULL || heap_ends_by_chunks(owner) ||
        !heap_lock_arenas(owner->shared, owner->reserve == NULL || heap_allowance(owner) != NULL)) {
        return; // who owns a reserve finds out later: nobody waits for another thread there
    }
    struct heap *const heap = heap_take_full_locked(slab, remote);
    os_lock_drop_here(&owner->shared->arenas->lock);
    if (heap != NULL) {
        heap_note_effort(HEAP_EFFORT_POST); // it has been looked through three times
        heap_unpost(heap, remote);
        heap_release_slab(heap, slab);
    }
}

// Whoever frees from now on posts it. An exchange: what the caller looks at next is read after
// that, and an emulator of arm64 (qemu 7.2) lets a load pass a store that it must not.
MALLOW_INLINE void heap_note_unposted(struct slab_remote *remote) {
    (void)atomic_exchange_explicit(&remote->posted, 0, memory_order_seq_cst);
}

static void heap_push_post(struct heap *owner, struct slab_remote *remote) {
    struct slab_remote *head = atomic_load_explicit(&owner->ready, memory_order_relaxed);
    do {
        atomic_store_explicit(&remote->next_posted, head, memory_order_relaxed);
    } while (!atomic_compare_exchange_weak_explicit(&owner->ready, &head, remote,
                                                    memory_order_seq_cst, memory_order_relaxed));
}

// Whether a slab whose post has been forgotten has to be posted after all. The owner first: what
// those who saw the post have done before is seen after it.
static bool heap_needs_post(const struct slab *slab, const struct slab_remote *remote) {
    const uintptr_t owner = atomic_load_explicit(&slab->owner, memory_order_seq_cst);
    return slab_remote_any(remote, MALLOW_SLAB_WORDS) ||
           ((owner & SLAB_OWNER_PENDING) != 0 && (owner & ~SLAB_OWNER_FLAGS) != 0);
}

// Rounds in a row, with pauses, after which a stray bit is taken for one. Each looks at two things
// one after the other, between which a slab can begin and end.
enum { HEAP_STRAY_ROUNDS = 80 };

// Whether a bit is set where no slab is. Who gives a slab up has taken all bits: this is a second
// free, of which the thread did not know that the first had just given the slab up.
static MALLOW_COLD bool heap_is_stray(const struct slab *slab, const struct slab_remote *remote) {
    return __atomic_load_n(&slab->kind, __ATOMIC_ACQUIRE) != SLAB_BLOCKS &&
           slab_remote_any(remote, MALLOW_SLAB_WORDS);
}

// A claimed post of a slab that nobody owns: it has been given up since, with every bit collected.
// But blocks of a later life of it may have been freed, and it may have been said to be pending, by
// threads that saw it as posted: so look again after saying that it no longer is. Waits where
// another thread has just taken a full slab to give it up. `address` is for the report.
static MALLOW_NOINLINE struct heap *heap_forget_post(struct slab *slab, struct slab_remote *remote,
                                                     uintptr_t address) {
    struct heap *owner = NULL;
    unsigned strays = 0;
    for (unsigned round = 0; owner == NULL; round++) {
        heap_note_unposted(remote);
        if (!heap_needs_post(slab, remote) ||
            atomic_exchange_explicit(&remote->posted, 1, memory_order_seq_cst) != 0) {
            return NULL;
        }
        os_pause(round);
        owner = (struct heap *)slab_owner_heap(slab);
        strays = heap_is_stray(slab, remote) ? strays + 1 : 0;
        if (unlikely(strays == HEAP_STRAY_ROUNDS)) {
            fatal_misuse("double free of", address, "another thread freed this block as well");
        }
    }
    heap_push_post(owner, remote);
    return owner;
}

// Brings a claimed post to the heap that owns the slab now.
// The owner after the exchange that claimed it: who gives the slab up writes the owner, and then
// looks whether it is posted.
MALLOW_INLINE struct heap *heap_route_post(struct slab *slab, struct slab_remote *remote,
                                           uintptr_t address) {
    struct heap *const owner =
        (struct heap *)(atomic_load_explicit(&slab->owner, memory_order_seq_cst) &
                        ~SLAB_OWNER_FLAGS);
    if (unlikely(owner == NULL)) {
        return heap_forget_post(slab, remote, address);
    }
    heap_push_post(owner, remote);
    return owner;
}

// The slice of a slot, for a report of what begins in it; 0 beyond the primary arena.
MALLOW_INLINE uintptr_t heap_slice_of(const struct heap_shared *shared, const struct slab *slab) {
    const struct arena *const arena = &shared->arenas->primary;
    return arena_has_slab(arena, slab)
               ? arena->base + (arena_slice_of(arena, slab) << MALLOW_SLICE_SHIFT)
               : 0;
}

// Handles one slab that was posted to this heap.
static void heap_handle_post(struct heap *heap, struct slab *slab, struct slab_remote *remote,
                             bool keeps, int *work) {
    if ((slab_owner(slab) & ~(SLAB_OWNER_FULL | SLAB_OWNER_QUEUED)) == (uintptr_t)heap) {
        // Not pending: it has been collected without its post. Who frees from now on posts it, so
        // that this post is only gone on with if that has not been done: a slab that is posted
        // twice closes the list to a ring.
        heap_note_unposted(remote);
        if (!slab_remote_is_posted(slab) ||
            atomic_exchange_explicit(&remote->posted, 1, memory_order_seq_cst) != 0) {
            heap_note_effort(HEAP_EFFORT_POST);
            return;
        }
    }
    const enum heap_hold hold = heap_hold_slab(heap, slab);
    if (hold == HEAP_HOLD_LOST) {
        heap_note_effort(HEAP_EFFORT_POST);
        (void)heap_route_post(slab, remote, heap_slice_of(heap->shared, slab)); // it has moved
        return;
    }
    atomic_store_explicit(&remote->posted, 0, memory_order_seq_cst);
    (void)heap_collect_held(heap, slab, remote, hold == HEAP_HOLD_WAS_FULL, keeps, work);
}

MALLOW_RACY_READ MALLOW_INTERNAL bool heap_next_post_is_of(const struct heap *heap,
                                                           unsigned class_index) {
    const struct slab_remote *remote = heap->taken;
    if (remote == NULL) {
        remote = atomic_load_explicit(&heap->ready, memory_order_acquire);
    }
    if (remote == NULL) {
        remote = heap->later;
    }
    const struct slab *const slab =
        remote != NULL ? __atomic_load_n(&remote->slab, __ATOMIC_RELAXED) : NULL;
    return slab != NULL && slab->class_index == class_index &&
           slab_owner_heap(slab) == (uintptr_t)heap;
}

// Takes a posted slab off the lists: first what was posted last, and what was put off after that.
static struct slab_remote *heap_next_post(struct heap *heap) {
    if (heap->taken == NULL) {
        if (atomic_load_explicit(&heap->ready, memory_order_relaxed) != NULL) {
            heap->taken = atomic_exchange_explicit(&heap->ready, NULL, memory_order_seq_cst);
        } else {
            heap->taken = heap->later;
            heap->later = NULL;
        }
    }
    struct slab_remote *const remote = heap->taken;
    if (remote != NULL) {
        heap->taken = atomic_load_explicit(&remote->next_posted, memory_order_relaxed);
    }
    return remote;
}

// Whether so little of a slab of this heap is free that it had better gather more: as long as it is
// full, only other threads work on it, and its lines stay with them.
static bool heap_should_wait(const struct heap *heap, const struct slab *slab,
                             const struct slab_remote *remote) {
    const unsigned capacity = slab_capacity(slab);
    return (slab_owner(slab) & ~SLAB_OWNER_PENDING) == ((uintptr_t)heap | SLAB_OWNER_FULL) &&
           !slab_remote_has(remote, (capacity + 63) / 64, capacity / MALLOW_WAIT_SHARE);
}

MALLOW_INTERNAL bool heap_drain_one(struct heap *heap, int *work, bool all) {
    struct slab_remote *const remote = *work > 0 ? heap_next_post(heap) : NULL;
    if (remote == NULL) {
        return false;
    }
    struct slab *const slab = __atomic_load_n(&remote->slab, __ATOMIC_RELAXED);
    if (!all && heap_should_wait(heap, slab, remote)) {
        atomic_store_explicit(&remote->next_posted, heap->later, memory_order_relaxed);
        heap->later = remote;
        heap_note_effort(HEAP_EFFORT_LOOK);
    } else {
        heap_handle_post(heap, slab, remote, !all, work);
    }
    *work = 0;
    return true;
}

MALLOW_INTERNAL void heap_collect_late(struct heap *heap, int work) {
    if (!heap_gate_enter_unless_visited(heap)) {
        return;
    }
    if (heap->spare != NULL) {
        heap_drop_spare(heap);
    } else {
        heap->skipped_count = 0;
        (void)heap_drain_one(heap, &work, false);
    }
    heap_gate_leave(heap);
}

MALLOW_INTERNAL unsigned heap_drain(struct heap *heap, unsigned budget, bool all) {
    unsigned count = 0;
    int work = INT_MAX;
    while (count < budget && heap_drain_one(heap, &work, all)) {
        work = INT_MAX;
        count++;
    }
    return count;
}

MALLOW_INTERNAL bool heap_claim(struct heap *heap) {
    uint32_t expected = HEAP_ABANDONED;
    return atomic_compare_exchange_strong_explicit(&heap->state, &expected, HEAP_CLAIMED,
                                                   memory_order_seq_cst, memory_order_relaxed);
}

// A thread that posts a slab to an abandoned heap collects it itself if nobody else is at work
// there. Whoever is looks for posts once more after the claim has ended: post before state there,
// state before posts here, so that one of the two sees the other. What the budget does not reach
// stays posted, for whoever next frees into the heap, looks for slabs in it or takes it over.
MALLOW_INTERNAL void heap_unclaim_slow(struct heap *heap, int *work) {
    for (unsigned round = 0; round < MALLOW_ADOPT_BUDGET; round++) {
        (void)heap_drain_one(heap, work, true);
        atomic_store_explicit(&heap->state, HEAP_ABANDONED, memory_order_seq_cst);
        if (*work <= 0 || atomic_load_explicit(&heap->ready, memory_order_seq_cst) == NULL ||
            !heap_claim(heap)) {
            return;
        }
    }
    atomic_store_explicit(&heap->state, HEAP_ABANDONED, memory_order_seq_cst);
}

static MALLOW_NOINLINE void heap_post(struct slab *slab, struct slab_remote *remote,
                                      uintptr_t address) {
    struct heap *const owner = heap_route_post(slab, remote, address);
    int work = heap_call_work();
    if (owner != NULL && work > 0 &&
        atomic_load_explicit(&owner->state, memory_order_seq_cst) == HEAP_ABANDONED &&
        heap_claim(owner)) {
        heap_unclaim(owner, &work); // collects
    }
}

// The heap's thread may take and push at any time. Between, what it has no part in is nowhere.
static void sort_posts_of(struct heap *heap) {
    struct slab_remote *remote =
        atomic_exchange_explicit(&heap->ready, NULL, memory_order_seq_cst);
    while (remote != NULL) {
        struct slab_remote *const next =
            atomic_load_explicit(&remote->next_posted, memory_order_relaxed);
        struct slab *const slab = __atomic_load_n(&remote->slab, __ATOMIC_RELAXED);
        heap_post(slab, remote, heap_slice_of(heap->shared, slab));
        remote = next;
    }
}

// Not of heaps of the program's own, whose end counts on no post being on its way.
MALLOW_INTERNAL void heap_sort_posts(const struct heap_shared *shared) {
    struct heap *heap = atomic_load_explicit(&shared->heaps, memory_order_acquire);
    for (; heap != NULL; heap = heap->next_heap) {
        if (atomic_load_explicit(&heap->astray_count, memory_order_relaxed) != 0 &&
            heap->reserve == shared->reserve) {
            atomic_store_explicit(&heap->astray_count, 0, memory_order_relaxed);
            sort_posts_of(heap);
        }
    }
}

static MALLOW_NORETURN MALLOW_COLD void heap_report_remote(const struct slab *slab, size_t index) {
    fatal_misuse("double free of", slab->start_address + index * slab->block_bytes,
                 "this block was freed before, and is still free");
}

static MALLOW_NOINLINE void heap_after_remote_free(struct slab *slab, struct slab_remote *remote,
                                                   size_t capacity, uintptr_t address) {
    if (slab_remote_claim_post(slab, remote)) {
        heap_post(slab, remote, address);
    }
    if (heap_thread.effort == 0 && heap_is_freed_elsewhere(remote, capacity)) {
        heap_release_full(slab, remote);
    }
}

// A call that has done something already leaves a slab that is free now to its owner. No frame.
static MALLOW_NOINLINE void heap_after_remote(struct slab *slab, struct slab_remote *remote,
                                              size_t capacity, uintptr_t address) {
    if (heap_thread.effort == 0) {
        heap_after_remote_free(slab, remote, capacity, address);
    } else if (slab_remote_claim_post(slab, remote)) {
        (void)heap_route_post(slab, remote, address);
    }
}

MALLOW_INTERNAL void heap_free_marked(struct heap_shared *shared, uintptr_t address,
                                      size_t capacity) {
    struct heap_near_place place;
    (void)heap_near_find(shared, address, &place); // the slab may be gone; its slot is where it was
    heap_begin_effort();
    heap_after_remote(place.slab, heap_near_remote_of(shared, place.slab), capacity,
                      address);
}

MALLOW_INTERNAL void heap_free_live(struct slab *slab, struct slab_remote *remote, size_t index) {
    size_t capacity;
    const uintptr_t address = slab->start_address + index * slab->block_bytes;
    const enum heap_near near = heap_near_mark(slab, remote, index, &capacity);
    if (unlikely(near == HEAP_NEAR_NOT)) {
        heap_report_remote(slab, index);
    }
    if (near == HEAP_NEAR_MARKED) {
        heap_after_remote(slab, remote, capacity, address);
    }
}

MALLOW_INTERNAL void heap_free_remote(struct slab *slab, struct slab_remote *remote, size_t index) {
    if (unlikely(slab_remote_is_free(slab, remote, index) ||
                 (slab_has_reused(slab) && heap_is_lent(slab, index)))) {
        heap_report_remote(slab, index);
    }
    heap_free_live(slab, remote, index);
}
