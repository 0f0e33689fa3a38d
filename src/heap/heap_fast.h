// SPDX-License-Identifier: MIT
// The fast path: malloc and free as most calls run them. Budgeted: test/arch counts the
// instructions.
//
// Owns     nothing.
// Threads  the calling thread's own heap.
// Holds    every rare thing is reached because something that is looked at anyway does not match:
//          no free block in the word (also: no heap yet), an owner that is not this heap (also: a
//          full slab, a large block), an offset beyond the slab (also: NULL, huge and foreign
//          addresses).
#ifndef MALLOW_HEAP_HEAP_FAST_H
#define MALLOW_HEAP_HEAP_FAST_H

#include "heap/heap.h"

// Where blocks of `size` <= MALLOW_SMALL_BYTES_MAX bytes come from. A visitor may change it
// (heap_rest.h).
MALLOW_INLINE struct slab *heap_fast_current(const struct heap *heap, size_t size) {
    return __atomic_load_n(
        &heap->direct[(size + MALLOW_GRANULE_BYTES - 1) >> MALLOW_GRANULE_SHIFT], __ATOMIC_RELAXED);
}

// A block of `size` <= MALLOW_SMALL_BYTES_MAX bytes; false: take the slow path.
MALLOW_INLINE bool heap_fast_allocate(struct heap *heap, size_t size, uintptr_t *address) {
    return slab_take(heap_fast_current(heap, size), address);
}

// The header slot of the slice that `address` would lie in if it lay in the primary arena. Every
// slot is readable, whatever the address.
MALLOW_INLINE struct slab *heap_fast_slab(const struct heap *heap, uintptr_t address) {
    const uintptr_t offset =
        (address >> (MALLOW_SLICE_SHIFT - MALLOW_SLAB_HEADER_SHIFT)) & heap->header_mask;
    return (struct slab *)(heap->header_base + offset);
}

// What heap_identify says of a block that heap_own_usable has found, of so many usable bytes.
MALLOW_INLINE struct heap_block heap_fast_block_of(const struct heap *heap, uintptr_t address,
                                                   size_t usable_bytes) {
    struct slab *const slab = heap_fast_slab(heap, address);
    const uint64_t product = (address - slab->start_address) * slab->reciprocal;
    return (struct heap_block){HEAP_BLOCK_SLAB, slab, NULL, product >> 32, usable_bytes};
}

enum heap_fast_result {
    HEAP_FAST_DONE,
    HEAP_FAST_EMPTIED, // done, and the slab must be looked after
    HEAP_FAST_SLOW,    // nothing done
};

// A block that free has found its way to.
struct heap_fast_block {
    uint64_t word_index;  // of its word in the bitmap
    uint64_t free_blocks; // that word, with the block's bit set
};

// From an address in a slab of this heap to its bit; false: not the start of a block, or free
// already.
MALLOW_INLINE bool heap_fast_find(const struct slab *slab, uint64_t offset,
                                  struct heap_fast_block *block) {
    // offset / block_bytes in the high half; the low half is below the reciprocal iff it divides.
    const uint64_t product = offset * slab->reciprocal;
    if (unlikely((uint32_t)product >= slab->reciprocal)) {
        return false;
    }
    // The word's index is the top of the block's; the bit instruction looks at its low six bits.
    uint64_t word_index = product >> (32 + 6);
    block->free_blocks = slab->bits[word_index];
    compiler_forget(word_index); // or the address is computed once, in an instruction of its own
    block->word_index = word_index;
    return likely(!bits_set_was_set(&block->free_blocks, product >> 32));
}

// Of an address of which heap_own_usable knows nothing: it lies in no slab's first slice, or in
// another heap's.
#define HEAP_NOT_NEAR SIZE_MAX

// What heap_own_usable says, of blocks of malloc's fast path; 0 also of others, and `*other` is 0
// or HEAP_NOT_NEAR then.
MALLOW_INLINE size_t heap_fast_usable(const struct heap *heap, uintptr_t address, size_t *other) {
    const struct slab *const slab = heap_fast_slab(heap, address);
    const uint64_t offset = address - compiler_relaxed_plain(&slab->start_address);
    const uintptr_t flags = SLAB_OWNER_QUEUED | SLAB_OWNER_FULL;
    struct heap_fast_block block;
    if (unlikely(offset >= compiler_relaxed_word(&slab->reach_bytes))) {
        *other = HEAP_NOT_NEAR;
        return 0;
    }
    if (unlikely((compiler_relaxed_word(&slab->owner) & ~flags) != (uintptr_t)heap)) {
        *other = HEAP_NOT_NEAR;
        return 0;
    }
    *other = 0;
    if (unlikely(slab->block_bytes > MALLOW_SMALL_BYTES_MAX) ||
        !heap_fast_find(slab, offset, &block)) {
        return 0;
    }
    // Free without a bit: the block that malloc hands out next, which may be one of a full slab.
    // In this order: a class that a visitor has put to rest has none (heap_current_slab).
    const struct slab *const current = __atomic_load_n(
        &heap->direct[slab->block_bytes >> MALLOW_GRANULE_SHIFT], __ATOMIC_ACQUIRE);
    return unlikely(compiler_relaxed_word(&current->last) == address &&
                    compiler_relaxed_byte(&current->hot) != 0) ||
                   unlikely(__atomic_load_n(&heap->resting, __ATOMIC_RELAXED) != NULL)
               ? 0
               : slab->block_bytes;
}

// heap_own_usable, where no call is wanted.
MALLOW_INLINE size_t heap_fast_own_usable(const struct heap *heap, uintptr_t address) {
    const struct slab *const slab = heap_fast_slab(heap, address);
    const uint64_t offset = address - compiler_relaxed_plain(&slab->start_address);
    const uintptr_t flags = SLAB_OWNER_QUEUED | SLAB_OWNER_FULL;
    struct heap_fast_block block;
    if (offset >= compiler_relaxed_word(&slab->reach_bytes) ||
        (compiler_relaxed_word(&slab->owner) & ~flags) != (uintptr_t)heap ||
        !heap_fast_find(slab, offset, &block)) {
        return 0;
    }
    // Free without a bit: the block that malloc hands out next, which may be one of a full slab.
    const struct slab *const current = heap_current_slab(heap, slab->class_index);
    if (current != NULL && compiler_relaxed_byte(&current->hot) != 0 &&
        compiler_relaxed_word(&current->last) == address) {
        return 0;
    }
    return slab->block_bytes;
}

// Frees a block of the thread's own heap that begins in the first slice of its slab. Exact: nothing
// but the start of a live block gets to DONE.
MALLOW_INLINE enum heap_fast_result heap_fast_free(struct heap *heap, uintptr_t address,
                                                   struct slab **slab_out) {
    struct slab *const slab = heap_fast_slab(heap, address);
    struct heap_fast_block block;
    *slab_out = slab;
    // Current or queued: one branch for both, since which of them it is cannot be predicted. The
    // owner first: another thread's slab is left with its line 0, since line 1 is what its malloc
    // writes.
    const uintptr_t owner = compiler_relaxed_word(&slab->owner);
    if (unlikely((owner & ~SLAB_OWNER_QUEUED) != (uintptr_t)heap)) {
        return HEAP_FAST_SLOW;
    }
    if (compiler_relaxed_word(&slab->last) == address) {
        // The block handed out last, of a current slab: its bit is not set, so unless it is hot it
        // is live.
        if (unlikely(compiler_relaxed_byte(&slab->hot) != 0)) {
            return HEAP_FAST_SLOW;
        }
        slab_set_hot(slab, true);
        return HEAP_FAST_DONE;
    }
    // One comparison: address in another slice or arena, in the tail.
    const uint64_t offset = address - slab->start_address;
    if (unlikely(offset >= compiler_relaxed_word(&slab->reach_bytes)) ||
        unlikely(!heap_fast_find(slab, offset, &block))) { // hot is only `last`, seen above
        return HEAP_FAST_SLOW;
    }
    slab->bits[block.word_index] = block.free_blocks;
    return unlikely(--slab->used_count == 0) ? HEAP_FAST_EMPTIED : HEAP_FAST_DONE;
}

// Frees a block of a slab, found by heap_identify or heap_fast_block_of, wherever in the slab it
// begins. As exact.
MALLOW_INLINE enum heap_fast_result heap_fast_free_found(const struct heap *heap,
                                                         const struct heap_block *block,
                                                         uintptr_t address) {
    struct slab *const slab = block->slab;
    if (unlikely((compiler_relaxed_word(&slab->owner) & ~SLAB_OWNER_QUEUED) != (uintptr_t)heap)) {
        return HEAP_FAST_SLOW;
    }
    if (compiler_relaxed_word(&slab->last) == address) {
        if (unlikely(compiler_relaxed_byte(&slab->hot) != 0)) {
            return HEAP_FAST_SLOW;
        }
        slab_set_hot(slab, true);
        return HEAP_FAST_DONE;
    }
    uint64_t *const word = &slab->bits[block->index / 64];
    if (unlikely(bits_set_was_set(word, block->index % 64))) {
        return HEAP_FAST_SLOW;
    }
    return unlikely(--slab->used_count == 0) ? HEAP_FAST_EMPTIED : HEAP_FAST_DONE;
}

#endif
