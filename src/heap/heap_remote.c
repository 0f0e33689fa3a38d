// SPDX-License-Identifier: MIT
// Heap and other threads: posting frees to the heap that owns a slab, and collecting them there.
// The protocol of one slab is in slab/slab_remote.h; here is the stack of posted slabs of a heap.
#include "heap/heap.h"

#include "os/fatal.h"

MALLOW_INTERNAL enum heap_hold heap_hold_slab(struct heap *heap, struct slab *slab) {
    const uintptr_t full = (uintptr_t)heap | SLAB_OWNER_FULL;
    uintptr_t owner = atomic_load_explicit(&slab->owner, memory_order_seq_cst);
    while ((owner & ~SLAB_OWNER_PENDING) == full) {
        const uintptr_t held = (owner & ~SLAB_OWNER_FULL) | SLAB_OWNER_QUEUED;
        if (atomic_compare_exchange_weak_explicit(&slab->owner, &owner, held, memory_order_seq_cst,
                                                  memory_order_seq_cst)) {
            return HEAP_HOLD_WAS_FULL;
        }
    }
    return (owner & ~SLAB_OWNER_FLAGS) == (uintptr_t)heap ? HEAP_HOLD_LISTED : HEAP_HOLD_LOST;
}

// Collects the remote frees of a slab that is held.
static unsigned heap_collect_held(struct heap *heap, struct slab *slab, struct slab_remote *remote,
                                  bool was_full) {
    size_t index = 0;
    const int count = slab_remote_collect(slab, remote, &index);
    if (unlikely(count < 0)) {
        fatal_misuse("double free of", slab->start_address + index * slab->block_bytes,
                     "another thread freed this block as well");
    }
    if (count > 0) {
        heap_slab_refilled(heap, slab, was_full);
    } else if (was_full) {
        slab_change_owner(slab, (uintptr_t)heap | SLAB_OWNER_FULL);
    }
    return (unsigned)count;
}

MALLOW_INTERNAL unsigned heap_collect(struct heap *heap, struct slab *slab,
                                      struct slab_remote *remote) {
    const enum heap_hold hold = heap_hold_slab(heap, slab);
    return hold == HEAP_HOLD_LOST
               ? 0
               : heap_collect_held(heap, slab, remote, hold == HEAP_HOLD_WAS_FULL);
}

MALLOW_INTERNAL void heap_take_full(struct heap *heap, struct slab *slab) {
    uintptr_t owner = atomic_load_explicit(&slab->owner, memory_order_seq_cst);
    struct heap *const before = (struct heap *)(owner & ~SLAB_OWNER_FLAGS);
    if ((owner & SLAB_OWNER_FULL) == 0 || before == NULL) {
        return;
    }
    const uintptr_t mine = (uintptr_t)heap | SLAB_OWNER_QUEUED | (owner & SLAB_OWNER_PENDING);
    if (!atomic_compare_exchange_strong_explicit(&slab->owner, &owner, mine, memory_order_seq_cst,
                                                 memory_order_relaxed)) {
        return; // somebody else is at it
    }
    atomic_fetch_sub_explicit(&before->slab_count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&heap->slab_count, 1, memory_order_relaxed);
    (void)heap_collect_held(heap, slab, arena_remote_of(heap->shared->arenas, slab), true);
}

static void heap_push_post(struct heap *owner, struct slab_remote *remote) {
    struct slab_remote *head = atomic_load_explicit(&owner->ready, memory_order_relaxed);
    do {
        atomic_store_explicit(&remote->next_posted, head, memory_order_relaxed);
    } while (!atomic_compare_exchange_weak_explicit(&owner->ready, &head, remote,
                                                    memory_order_seq_cst, memory_order_relaxed));
}

// Brings a claimed post to the heap that owns the slab now. A slab that nobody owns has been given
// up since, with every bit collected; but blocks of a later life of it may have been freed by
// threads that saw it as posted: so look again after saying that it no longer is.
static struct heap *heap_route_post(struct slab *slab, struct slab_remote *remote) {
    for (;;) {
        struct heap *const owner = (struct heap *)slab_owner_heap(slab);
        if (owner != NULL) {
            heap_push_post(owner, remote);
            return owner;
        }
        atomic_store_explicit(&remote->posted, 0, memory_order_seq_cst);
        if (!slab_remote_any(remote, MALLOW_SLAB_WORDS) ||
            atomic_exchange_explicit(&remote->posted, 1, memory_order_seq_cst) != 0) {
            return NULL;
        }
    }
}

// Handles one slab that was posted to this heap.
static void heap_handle_post(struct heap *heap, struct slab_remote *remote) {
    struct slab *const slab = __atomic_load_n(&remote->slab, __ATOMIC_RELAXED);
    const enum heap_hold hold = heap_hold_slab(heap, slab);
    if (hold == HEAP_HOLD_LOST) {
        (void)heap_route_post(slab, remote); // it has moved since
        return;
    }
    atomic_store_explicit(&remote->posted, 0, memory_order_seq_cst);
    (void)heap_collect_held(heap, slab, remote, hold == HEAP_HOLD_WAS_FULL);
}

MALLOW_INTERNAL unsigned heap_drain(struct heap *heap, unsigned budget) {
    unsigned count = 0;
    for (; count < budget; count++) {
        if (heap->taken == NULL) {
            if (atomic_load_explicit(&heap->ready, memory_order_relaxed) == NULL) {
                break;
            }
            heap->taken = atomic_exchange_explicit(&heap->ready, NULL, memory_order_seq_cst);
            if (heap->taken == NULL) {
                break;
            }
        }
        struct slab_remote *const remote = heap->taken;
        heap->taken = atomic_load_explicit(&remote->next_posted, memory_order_relaxed);
        heap_handle_post(heap, remote);
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
// state before posts here, so that one of the two sees the other.
MALLOW_INTERNAL void heap_unclaim(struct heap *heap) {
    for (unsigned round = 0; round < MALLOW_ADOPT_BUDGET; round++) {
        (void)heap_drain(heap, MALLOW_UNCLAIM_BUDGET);
        atomic_store_explicit(&heap->state, HEAP_ABANDONED, memory_order_seq_cst);
        if (atomic_load_explicit(&heap->ready, memory_order_seq_cst) == NULL || !heap_claim(heap)) {
            return;
        }
    }
    atomic_store_explicit(&heap->state, HEAP_ABANDONED, memory_order_seq_cst);
}

// Whether every block of the slab has been freed by others, given that all of a word's may have.
static MALLOW_NOINLINE bool heap_all_freed(const struct slab *slab,
                                           const struct slab_remote *remote) {
    const size_t capacity = slab->capacity_count;
    for (size_t i = 0; i * 64 < capacity; i++) {
        const size_t rest = capacity - i * 64;
        const uint64_t whole = rest >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << rest) - 1;
        if (atomic_load_explicit(&remote->bits[i], memory_order_relaxed) != whole) {
            return false;
        }
    }
    return (slab_owner(slab) & SLAB_OWNER_FULL) != 0;
}

MALLOW_INTERNAL bool heap_free_remote(struct slab *slab, struct slab_remote *remote, size_t index) {
    // A full slab has no block that its owner knows to be free.
    const bool is_free = (slab_owner(slab) & SLAB_OWNER_FULL) == 0 &&
                         slab_remote_is_free(slab, remote, index);
    if (unlikely(is_free) || !slab_remote_set(remote, index)) {
        fatal_misuse("double free of", slab->start_address + index * slab->block_bytes,
                     "this block was freed before, and is still free");
    }
    if (slab_remote_claim_post(slab, remote)) {
        struct heap *const owner = heap_route_post(slab, remote);
        if (owner != NULL &&
            atomic_load_explicit(&owner->state, memory_order_seq_cst) == HEAP_ABANDONED &&
            heap_claim(owner)) {
            heap_unclaim(owner); // collects
        }
    }
    // Once its bit is set the slab may be gone, and another in its place: what follows is a hint,
    // and heap_take_full looks again. Ones from bit 0 on without a gap: the word may be whole.
    const uint64_t word = atomic_load_explicit(&remote->bits[index / 64], memory_order_relaxed);
    return (word & (word + 1)) == 0 && heap_all_freed(slab, remote);
}
