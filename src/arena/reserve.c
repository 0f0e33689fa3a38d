// SPDX-License-Identifier: MIT
// Reserve: see reserve.h.
#include "arena/reserve.h"

#include "base/bits.h"
#include "base/check.h"

// The table that says which chunks of the arena are in a reserve; address space until it is used.
static bool reserve_table_locked(struct arena_set *set) {
    if (set->reserved != NULL) {
        return true;
    }
    const size_t count = set->primary.slice_count / MALLOW_CHUNK_SLICES;
    const size_t bytes =
        bits_align_up(count * sizeof(struct reserve_chunk *), set->os->page_bytes);
    struct reserve_chunk **const table = (struct reserve_chunk **)os_map(set->os, bytes, 1);
    __atomic_store_n(&set->reserved, table, __ATOMIC_RELEASE);
    return table != NULL;
}

MALLOW_INTERNAL bool reserve_make(struct reserve *reserve, struct arena_set *arenas,
                                  size_t chunk_limit) {
    if (arenas->primary.slice_count == 0 || chunk_limit > SIZE_MAX / sizeof *reserve->chunks) {
        return false;
    }
    *reserve = (struct reserve){.arenas = arenas, .chunk_limit = chunk_limit};
    os_lock_take(&arenas->lock);
    const bool made = reserve_table_locked(arenas);
    os_lock_drop(&arenas->lock);
    if (made) { // only then: what meta has given it does not take back
        reserve->chunks = meta_take(arenas->meta, chunk_limit * sizeof *reserve->chunks);
    }
    return reserve->chunks != NULL;
}

MALLOW_INTERNAL void reserve_add(struct reserve *reserve, size_t chunk_index, uint32_t free) {
    check_assert(reserve->chunk_count < reserve->chunk_limit);
    struct reserve_chunk *const chunk = &reserve->chunks[reserve->chunk_count++];
    chunk->chunk_index = (uint32_t)chunk_index;
    atomic_init(&chunk->free, free);
    __atomic_store_n(&reserve->arenas->reserved[chunk_index], chunk, __ATOMIC_RELEASE);
}

// Where a span begins that this thread has taken in the chunk; 32: it has no room.
static unsigned reserve_take_in(struct reserve_chunk *chunk, unsigned slice_count,
                                uint32_t aligned) {
    uint32_t free = atomic_load_explicit(&chunk->free, memory_order_relaxed);
    for (;;) {
        const uint32_t starts = chunk_mask_runs(free, slice_count) & aligned;
        if (starts == 0) {
            return MALLOW_CHUNK_SLICES;
        }
        const unsigned first = bits_lowest(starts);
        if (atomic_compare_exchange_weak_explicit(&chunk->free, &free,
                                                  free & ~chunk_mask_span(first, slice_count),
                                                  memory_order_acquire, memory_order_relaxed)) {
            return first;
        }
    }
}

MALLOW_INTERNAL struct arena_span reserve_take(struct reserve *reserve, unsigned slice_count,
                                               unsigned align_slices) {
    struct arena *const arena = &reserve->arenas->primary;
    const uint32_t aligned = chunk_mask_aligned(align_slices);
    for (size_t i = 0; i < reserve->chunk_count; i++) {
        struct reserve_chunk *const chunk = &reserve->chunks[i];
        const unsigned first = reserve_take_in(chunk, slice_count, aligned);
        if (first < MALLOW_CHUNK_SLICES) {
            const size_t slice = (size_t)chunk->chunk_index * MALLOW_CHUNK_SLICES + first;
            return (struct arena_span){.slab = &arena->slabs[arena_slot_of(arena, slice)],
                                       .address = arena->base + (slice << MALLOW_SLICE_SHIFT)};
        }
    }
    return (struct arena_span){.slab = NULL};
}

MALLOW_INTERNAL size_t reserve_free_slices(const struct reserve *reserve) {
    size_t count = 0;
    for (size_t i = 0; i < reserve->chunk_count; i++) {
        count += bits_count(atomic_load_explicit(&reserve->chunks[i].free, memory_order_relaxed));
    }
    return count;
}
