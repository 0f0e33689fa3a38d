// SPDX-License-Identifier: MIT
// What a pointer is: heap_identify in line, for the one call that is made of little else.
//
// Owns     nothing.
// Threads  as heap_identify.
// Holds    as heap_identify: kind NONE unless `address` is the start of a live block.
#ifndef MALLOW_HEAP_HEAP_IDENTIFY_H
#define MALLOW_HEAP_HEAP_IDENTIFY_H

#include "heap/heap.h"

// The head of the span that `address` lies in, and if there is none the huge block that begins
// there, or NULL: with one look-up for both.
// What is not committed is not in use: headers say so for every slice that there could be.
MALLOW_INLINE struct slab *heap_span_or_huge(const struct heap_shared *shared, uintptr_t address,
                                             struct huge **huge) {
    const struct arena *arena = &shared->arenas->primary;
    *huge = NULL;
    if (!arena_is_in_primary(shared->arenas, address)) {
        const uintptr_t entry = address_map_get(shared->huges->map, address);
        if ((entry & 1) == 0) {
            *huge = huge_of_entry(entry, address);
            return NULL;
        }
        arena = arena_of(shared->arenas, address);
        if (arena == NULL) {
            return NULL;
        }
    }
    return slab_head(arena_slab_at(arena, address));
}

MALLOW_INLINE struct heap_block heap_identify_here(const struct heap_shared *shared,
                                                   uintptr_t address) {
    struct heap_block block = {HEAP_BLOCK_NONE, NULL, NULL, 0, 0};
    struct slab *const slab = heap_span_or_huge(shared, address, &block.huge);
    if (slab == NULL) {
        if (block.huge != NULL) {
            block.kind = HEAP_BLOCK_HUGE;
            block.usable_bytes = block.huge->usable_bytes;
        }
        return block;
    }
    block.slab = slab;
    block.usable_bytes = slab->block_bytes;
    if (slab->kind == SLAB_LARGE) {
        if (address == slab->start_address) {
            block.kind = HEAP_BLOCK_LARGE;
        }
    } else if (slab->kind == SLAB_THIN) {
        block.usable_bytes = thin_size(slab, address);
        if (block.usable_bytes != 0) {
            block.kind = HEAP_BLOCK_THIN;
        }
    } else {
        // A pointer that the caller may not use: another thread may just be giving the slab up.
        const struct slab_remote *const remote = arena_remote_at(shared->arenas, slab, address);
        block.index = slab_index_of(slab, address);
        if (block.index != SIZE_MAX && remote != NULL &&
            !slab_remote_is_free(slab, remote, block.index) &&
            !(slab_has_reused(slab) && heap_is_lent(slab, block.index))) {
            block.kind = HEAP_BLOCK_SLAB;
        }
    }
    return block;
}

#endif
