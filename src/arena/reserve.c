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

MALLOW_INTERNAL size_t reserve_table_bytes(size_t chunk_limit) {
    return chunk_limit * sizeof(struct reserve_chunk) + reserve_index_bytes(chunk_limit);
}

MALLOW_INTERNAL bool reserve_make(struct reserve *reserve, struct arena_set *arenas,
                                  size_t chunk_limit) {
    if (arenas->primary.slice_count == 0 || chunk_limit > arenas->primary.slice_count) {
        return false;
    }
    *reserve = (struct reserve){.arenas = arenas, .chunk_limit = chunk_limit};
    os_lock_take(&arenas->lock);
    const bool made = reserve_table_locked(arenas);
    os_lock_drop(&arenas->lock);
    if (made) { // only then: what meta has given it does not take back
        reserve->chunks = meta_take(arenas->meta, reserve_table_bytes(chunk_limit));
    }
    if (reserve->chunks == NULL) {
        return false;
    }
    reserve_index_init(&reserve->index, (void *)&reserve->chunks[chunk_limit], chunk_limit);
    return true;
}

// Slices of the chunk have been taken, or given.
static void reserve_note(struct reserve_chunk *chunk, bool given) {
    struct reserve *const reserve = chunk->reserve;
    reserve_index_note(&reserve->index, (size_t)(chunk - reserve->chunks), &chunk->free, given);
}

MALLOW_INTERNAL void reserve_add(struct reserve *reserve, size_t chunk_index, uint32_t free) {
    check_assert(reserve->chunk_count < reserve->chunk_limit);
    struct reserve_chunk *const chunk = &reserve->chunks[reserve->chunk_count++];
    chunk->chunk_index = (uint32_t)chunk_index;
    chunk->reserve = reserve;
    atomic_init(&chunk->free, free);
    reserve_note(chunk, true);
    __atomic_store_n(&reserve->arenas->reserved[chunk_index], chunk, __ATOMIC_RELEASE);
}

MALLOW_INTERNAL void reserve_empty(struct reserve *reserve) {
    reserve->chunk_count = 0;
    reserve_index_clear(&reserve->index);
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
        const uint32_t left = free & ~chunk_mask_span(first, slice_count);
        if (atomic_compare_exchange_weak_explicit(&chunk->free, &free, left, memory_order_acquire,
                                                  memory_order_relaxed)) {
            reserve_note(chunk, false);
            return first;
        }
    }
}

// The same in any chunk that has a run of `run_slices`.
static struct arena_span reserve_take_of(struct reserve *reserve, unsigned slice_count,
                                         uint32_t aligned, unsigned run_slices) {
    struct arena *const arena = &reserve->arenas->primary;
    const unsigned run = run_slices < RESERVE_INDEX_RUN_MAX ? run_slices : RESERVE_INDEX_RUN_MAX;
    size_t i = reserve_index_find(&reserve->index, run, 0);
    for (; i != RESERVE_INDEX_NONE; i = reserve_index_find(&reserve->index, run, i + 1)) {
        struct reserve_chunk *const chunk = &reserve->chunks[i];
        const unsigned first = reserve_take_in(chunk, slice_count, aligned);
        if (likely(first < MALLOW_CHUNK_SLICES)) {
            const size_t slice = (size_t)chunk->chunk_index * MALLOW_CHUNK_SLICES + first;
            return (struct arena_span){.slab = &arena->slabs[arena_slot_of(arena, slice)],
                                       .address = arena->base + (slice << MALLOW_SLICE_SHIFT)};
        }
        if (aligned == UINT32_MAX) { // who has taken it may be stopped before having said so
            reserve_index_note(&reserve->index, i, &chunk->free, false);
        }
    }
    return (struct arena_span){.slab = NULL};
}

MALLOW_INTERNAL struct arena_span reserve_take(struct reserve *reserve, unsigned slice_count,
                                               unsigned align_slices) {
    const uint32_t aligned = chunk_mask_aligned(align_slices);
    // In a run so long some span of it is aligned.
    const struct arena_span span =
        reserve_take_of(reserve, slice_count, aligned, slice_count + align_slices - 1);
    return likely(span.slab != NULL || align_slices == 1)
               ? span
               : reserve_take_of(reserve, slice_count, aligned, slice_count);
}

MALLOW_INTERNAL bool reserve_extend(struct reserve_chunk *chunk, uint32_t slices) {
    uint32_t free = atomic_load_explicit(&chunk->free, memory_order_relaxed);
    while ((free & slices) == slices) {
        if (atomic_compare_exchange_weak_explicit(&chunk->free, &free, free & ~slices,
                                                  memory_order_acquire, memory_order_relaxed)) {
            reserve_note(chunk, false);
            return true;
        }
    }
    return false;
}

MALLOW_INTERNAL void reserve_give(struct reserve_chunk *chunk, uint32_t slices) {
    atomic_fetch_or_explicit(&chunk->free, slices, memory_order_release);
    reserve_note(chunk, true);
}

MALLOW_INTERNAL size_t reserve_free_slices(const struct reserve *reserve) {
    size_t count = 0;
    for (size_t i = 0; i < reserve->chunk_count; i++) {
        count += bits_count(atomic_load_explicit(&reserve->chunks[i].free, memory_order_relaxed));
    }
    return count;
}
