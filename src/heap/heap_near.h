// SPDX-License-Identifier: MIT
// Next to the fast path: what follows most often where that gives up. A malloc whose word has no
// free block goes on to another word of its slab; a free of another thread's block, or in a slab in
// which other threads have freed, sets a bit.
//
// Owns     nothing.
// Threads  taking: the heap's own. Freeing: any; it need have no heap.
// Holds    as on the fast path, nothing but the start of a live block is freed. Nothing is called:
//          whatever is more is left to others, before anything has been done or after a bit is set.
#ifndef MALLOW_HEAP_HEAP_NEAR_H
#define MALLOW_HEAP_HEAP_NEAR_H

#include "heap/heap_gate.h"

// ---- Taking -------------------------------------------------------------------------------------

// A block of another word of the current slab; false: nothing done. Not where other threads have
// freed blocks of it, nor where it is worth more to open some (slab_find_room).
MALLOW_INLINE bool heap_near_take(struct heap *heap, struct slab *slab, uintptr_t *address) {
    if (slab_is_out(slab) || !heap_gate_try_enter(heap)) {
        return false;
    }
    const bool found = (slab_owner(slab) & SLAB_OWNER_PENDING) == 0 && slab_is_roomy(slab) &&
                       slab_next_word(slab);
    if (found) {
        (void)slab_take(slab, address);
    }
    heap_gate_leave(heap);
    return found;
}

// ---- Freeing ------------------------------------------------------------------------------------

// Where a block that begins in the first slice of a slab in the primary arena is, as most do.
struct heap_near_place {
    struct slab *slab;
    size_t index;
};

// Frees a block of a full slab of this heap by lending it to the class's current slab, as the next
// to be handed out, if that has no hot block: the cache has it, and the slab stays full. Where a
// program replaces blocks of a large population, that is nearly every free. False: nothing done.
MALLOW_INLINE bool heap_near_lend(struct heap *heap, struct slab *slab, uintptr_t address) {
    if (atomic_load_explicit(&heap->slab_count, memory_order_relaxed) < MALLOW_LEND_SLABS ||
        slab->slice_count > 1) {
        return false;
    }
    struct slab *const current = heap_current_slab(heap, slab->class_index);
    if (current == NULL || compiler_relaxed_byte(&current->hot) != 0) {
        return false;
    }
    // All bits of a full slab are clear, and none of its blocks is lent: it is live.
    if (!slab_has_reused(slab)) { // else its line stays as it is
        __atomic_store_n(&slab->reused, 1, __ATOMIC_RELAXED);
    }
    slab_set_last(current, address);
    slab_set_hot(current, true);
    return true;
}

// Frees a block of a slab of this heap in which other threads have freed blocks: what the fast path
// does not do is to look whether this is one of those. False: nothing done.
MALLOW_INLINE bool heap_near_pending(struct slab *slab, const struct slab_remote *remote,
                                     uintptr_t address, size_t index) {
    const uint64_t bit = UINT64_C(1) << (index % 64);
    uint64_t *const word = &slab->bits[index / 64];
    if (slab->used_count == 1 || compiler_relaxed_word(&slab->last) == address ||
        ((*word | atomic_load_explicit(&remote->bits[index / 64], memory_order_relaxed)) & bit) !=
            0) {
        return false;
    }
    *word |= bit;
    slab->used_count--;
    return true;
}

// A bitmap word of a slab of `capacity` blocks that has every bit set that it can have.
MALLOW_INLINE uint64_t heap_near_whole(size_t word_index, size_t capacity) {
    const size_t rest = capacity - word_index * 64;
    return likely(rest >= 64) ? ~UINT64_C(0) : (UINT64_C(1) << rest) - 1;
}

// Whether the word that has the bit of block `index` is such a one.
MALLOW_INLINE bool heap_near_is_whole(uint64_t word, size_t index, size_t capacity) {
    return likely((index | 63) < capacity) ? ~word == 0
                                           : word == heap_near_whole(index / 64, capacity);
}

// Sets the bit of a block that another thread owns. NOT: it was set before; MARKED: `*capacity` is
// the number of the slab's blocks.
MALLOW_INLINE enum heap_near heap_near_mark(const struct slab *slab, struct slab_remote *remote,
                                            size_t index, size_t *capacity) {
    *capacity = slab_capacity(slab); // the slab may be gone once the bit is set
    if (unlikely(!slab_remote_set(remote, index))) {
        return HEAP_NEAR_NOT;
    }
    const uint64_t word = atomic_load_explicit(&remote->bits[index / 64], memory_order_relaxed);
    return likely(slab_remote_is_posted(slab) && !heap_near_is_whole(word, index, *capacity))
               ? HEAP_NEAR_QUIET
               : HEAP_NEAR_MARKED;
}

// Whether the owner of a slab knows that a block is free. The hot block first: its bit is set
// before it ceases to be one.
MALLOW_RACY_READ static __attribute__((unused)) bool heap_near_is_free(const struct slab *slab,
                                                                       uintptr_t address,
                                                                       size_t index) {
    const bool is_hot = atomic_load_explicit(&slab->hot, memory_order_acquire) != 0 &&
                        atomic_load_explicit(&slab->last, memory_order_acquire) == address;
    const uint64_t word = *(const volatile uint64_t *)&slab->bits[index / 64];
    return is_hot || ((word >> (index % 64)) & 1U) != 0;
}

// Frees a block that a thread which is alive owns, another one.
//
// To look at the bitmap is to fetch lines that the owner writes with every block. A full slab has
// no free block but one that it may have lent. In a pending one the owner looks, before it uses a
// word or gives the slab up (heap_check_twice): there only a block of the word in use is looked at
// here.
MALLOW_INLINE enum heap_near heap_near_remote(struct heap_near_place place, uintptr_t word,
                                              struct slab_remote *remote, uintptr_t address,
                                              size_t *capacity) {
    struct slab *const slab = place.slab;
    const size_t word_index = place.index / 64;
    if (unlikely(slab_has_reused(slab))) {
        return HEAP_NEAR_NOT;
    }
    if ((word & SLAB_OWNER_FULL) == 0 &&
        ((word & SLAB_OWNER_PENDING) == 0 || word_index == slab_word_index(slab)) &&
        unlikely(heap_near_is_free(slab, address, place.index))) {
        return HEAP_NEAR_NOT;
    }
    return heap_near_mark(slab, remote, place.index, capacity);
}

// As heap_fast_slab, for threads that have no table.
MALLOW_INLINE struct slab *heap_near_slab(const struct heap_shared *shared, uintptr_t address) {
    const uintptr_t offset =
        (address >> (MALLOW_SLICE_SHIFT - MALLOW_SLAB_HEADER_SHIFT)) & shared->header_mask;
    return (struct slab *)(shared->header_base + offset);
}

// `slab` is in the header slot of `address`. False: no such block begins there. Of one that lies
// elsewhere the slot may be changing just now, and the slab of no moment reaches so far.
MALLOW_INLINE bool heap_near_find_in(struct slab *slab, uintptr_t address,
                                     struct heap_near_place *place) {
    const uint64_t offset = address - compiler_relaxed_plain(&slab->start_address);
    const uint32_t reciprocal = compiler_relaxed_plain(&slab->reciprocal);
    const uint64_t product = offset * reciprocal;
    place->slab = slab;
    place->index = product >> 32;
    return likely(offset < compiler_relaxed_word(&slab->reach_bytes)) &&
           likely((uint32_t)product < reciprocal);
}

MALLOW_INLINE bool heap_near_find(const struct heap_shared *shared, uintptr_t address,
                                  struct heap_near_place *place) {
    return heap_near_find_in(heap_near_slab(shared, address), address, place);
}

MALLOW_INLINE struct slab_remote *heap_near_remote_of(const struct heap_shared *shared,
                                                      const struct slab *slab) {
    return (struct slab_remote *)((uintptr_t)slab + shared->remote_distance);
}

// Frees such a block if no more than its bit need change. MARKED: `*capacity` is of its slab.
// `slab` is in the address's header slot, or heap_empty's.
MALLOW_INLINE enum heap_near heap_near_free(const struct heap_shared *shared, struct heap *heap,
                                            struct slab *slab, uintptr_t address,
                                            size_t *capacity) {
    struct heap_near_place place;
    if (!heap_near_find_in(slab, address, &place)) {
        return HEAP_NEAR_NOT;
    }
    struct slab_remote *const remote = heap_near_remote_of(shared, slab);
    const uintptr_t word = slab_owner(slab);
    const struct heap *const owner = (struct heap *)(word & ~SLAB_OWNER_FLAGS);
    if (owner == heap) {
        const bool done = (word & SLAB_OWNER_FULL) == 0
                              ? heap_near_pending(slab, remote, address, place.index)
                              : word == ((uintptr_t)heap | SLAB_OWNER_FULL) &&
                                    heap_near_lend(heap, slab, address);
        return done ? HEAP_NEAR_QUIET : HEAP_NEAR_NOT;
    }
    compiler_prefetch_write(remote->bits[place.index / 64]); // another thread had it last
    if (unlikely(owner == NULL || heap_is_abandoned(owner))) {
        return HEAP_NEAR_NOT;
    }
    return heap_near_remote(place, word, remote, address, capacity);
}

#endif
