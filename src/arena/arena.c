// SPDX-License-Identifier: MIT
// Arena: taking and giving spans. See arena.h.
#include "arena/arena.h"

#include "base/bits.h"

MALLOW_INTERNAL void arena_set_init(struct arena_set *set, struct os *os, struct meta *meta,
                                    struct address_map *map, size_t reserve_bytes) {
    set->os = os;
    set->meta = meta;
    set->map = map;
    set->raise_slices = SIZE_MAX;
    set->secondary_bytes = MALLOW_SECONDARY_ARENA_BYTES;
    if (os->address_space_limit != SIZE_MAX) {
        // Little address space: leave it to the program, and make arenas that can be given back.
        reserve_bytes = bits_min(reserve_bytes, os->address_space_limit / 16);
        set->secondary_bytes = bits_min(set->secondary_bytes, os->address_space_limit / 16);
    }
    set->secondary_bytes = bits_max(bits_align_down(set->secondary_bytes, MALLOW_CHUNK_BYTES),
                                    2 * MALLOW_ARENA_BYTES_MIN);
    reserve_bytes = bits_min(reserve_bytes, MALLOW_ARENA_BYTES_MAX);
    if (reserve_bytes < MALLOW_ARENA_BYTES_MIN) {
        reserve_bytes = MALLOW_ARENA_BYTES_MIN;
    }
    // A power of two, so that the fast path can mask.
    reserve_bytes = (size_t)1 << bits_highest(reserve_bytes);
    while (reserve_bytes >= MALLOW_ARENA_BYTES_MIN &&
           !arena_reserve(&set->primary, os, reserve_bytes, true)) {
        reserve_bytes /= 2;
    }
}

MALLOW_INTERNAL struct arena *arena_of(const struct arena_set *set, uintptr_t address) {
    const struct arena *arena = &set->primary;
    if (address - arena->base >= arena->slice_count << MALLOW_SLICE_SHIFT) {
        const uintptr_t entry = address_map_get(set->map, address);
        if ((entry & 1) == 0) {
            return NULL;
        }
        arena = (const struct arena *)(entry & ~(uintptr_t)1);
    }
    const size_t committed = __atomic_load_n(&arena->committed_slices, __ATOMIC_ACQUIRE);
    if (address - arena->base >= committed << MALLOW_SLICE_SHIFT) {
        return NULL;
    }
    return (struct arena *)(uintptr_t)arena;
}

// The arena that a slab's header slot belongs to.
static struct arena *arena_of_slab(const struct arena_set *set, const struct slab *slab,
                                   uintptr_t address) {
    if (arena_has_slab(&set->primary, slab)) {
        return (struct arena *)(uintptr_t)&set->primary;
    }
    return arena_of(set, address);
}

MALLOW_INTERNAL struct slab_remote *arena_remote_of(const struct arena_set *set,
                                                    const struct slab *slab) {
    const struct arena *arena = &set->primary;
    if (unlikely(!arena_has_slab(arena, slab))) {
        arena = arena_of(set, slab->start_address);
    }
    return &arena->remotes[slab - arena->slabs];
}

static struct arena_span arena_take_at_locked(struct arena_set *set, struct arena *arena,
                                              struct chunk_place place, unsigned slice_count) {
    const unsigned dirty_count =
        chunk_map_take(&arena->map, place.chunk_index, place.slice_index, slice_count);
    arena_less_dirty_locked(set, dirty_count);
    arena->free_slices -= slice_count;
    const size_t slice = (size_t)place.chunk_index * MALLOW_CHUNK_SLICES + place.slice_index;
    return (struct arena_span){&arena->slabs[arena_slot_of(arena, slice)],
                               arena->base + (slice << MALLOW_SLICE_SHIFT), dirty_count == 0,
                               false};
}

// Free slices that have their pages still are charged already; the others are now.
static bool arena_charge_locked(struct arena_set *set, const struct arena *arena,
                                struct chunk_place place, unsigned slice_count,
                                enum os_charge_level level) {
    const uint32_t mask =
        (uint32_t)(((UINT64_C(1) << slice_count) - 1) << place.slice_index);
    const uint32_t dirty = chunk_map_chunk(&arena->map, place.chunk_index)->dirty_mask & mask;
    return os_charge_take(set->os, level,
                          (size_t)(slice_count - bits_count(dirty)) << MALLOW_SLICE_SHIFT);
}

// Takes a span from `arena`, committing more of it if need be.
static struct arena_span arena_take_from_locked(struct arena_set *set, struct arena *arena,
                                                unsigned slice_count, unsigned align_slices,
                                                enum os_charge_level level) {
    if (arena->slice_count == 0) {
        return (struct arena_span){NULL, 0, false, false};
    }
    struct chunk_place place = chunk_map_find(&arena->map, slice_count, align_slices);
    if (!place.found &&
        arena_commit_locked(set, arena, slice_count, align_slices)) {
        place = chunk_map_find(&arena->map, slice_count, align_slices);
    }
    if (!place.found) {
        return (struct arena_span){NULL, 0, false, false};
    }
    if (!arena_charge_locked(set, arena, place, slice_count, level)) {
        return (struct arena_span){NULL, 0, false, true};
    }
    return arena_take_at_locked(set, arena, place, slice_count);
}

static struct arena_span arena_take_secondary_locked(struct arena_set *set, unsigned slice_count,
                                                     unsigned align_slices,
                                                     enum os_charge_level level) {
    for (struct arena *arena = set->secondary; arena != NULL; arena = arena->next) {
        const struct arena_span span =
            arena_take_from_locked(set, arena, slice_count, align_slices, level);
        if (span.slab != NULL || span.refused) {
            return span;
        }
    }
    struct arena *const added = arena_add_locked(set);
    if (added == NULL) {
        return (struct arena_span){NULL, 0, false, false};
    }
    return arena_take_from_locked(set, added, slice_count, align_slices, level);
}

MALLOW_INTERNAL struct arena_span arena_take_charged(struct arena_set *set, unsigned slice_count,
                                                     unsigned align_slices,
                                                     enum os_charge_level level) {
    os_lock_take(&set->lock);
    struct arena_span span =
        arena_take_from_locked(set, &set->primary, slice_count, align_slices, level);
    if (unlikely(span.slab == NULL && !span.refused)) {
        span = arena_take_secondary_locked(set, slice_count, align_slices, level);
    }
    os_lock_drop(&set->lock);
    return span;
}

// The span is free, so nobody else touches its pages; with the lock held nobody takes it meanwhile.
MALLOW_INTERNAL size_t arena_purge_span_locked(struct arena_set *set, struct arena *arena,
                                               unsigned chunk_index, unsigned slice_index,
                                               unsigned slice_count) {
    const size_t slice = (size_t)chunk_index * MALLOW_CHUNK_SLICES + slice_index;
    const size_t bytes = (size_t)slice_count << MALLOW_SLICE_SHIFT;
    const uintptr_t address = arena->base + (slice << MALLOW_SLICE_SHIFT);
    if (!os_purge(set->os, address, bytes)) {
        return 0;
    }
    arena_split_locked(set, address);
    chunk_map_clean(&arena->map, chunk_index, slice_index, slice_count);
    arena_less_dirty_locked(set, slice_count);
    os_charge_release(set->os, bytes);
    atomic_fetch_add_explicit(&set->purged_bytes, bytes, memory_order_relaxed);
    return bytes;
}

// Whether fewer free pages should be kept: the option says so, or the room below the soft limit,
// half of which is for them.
static bool arena_keeps_too_much(const struct arena_set *set) {
    const size_t dirty_bytes = set->dirty_slices << MALLOW_SLICE_SHIFT;
    return (set->dirty_slices > set->trim_slices &&
            !__atomic_load_n(&set->trim_lifted, __ATOMIC_RELAXED)) ||
           dirty_bytes > os_charge_room(set->os, dirty_bytes) / 2;
}

MALLOW_INTERNAL void arena_give(struct arena_set *set, struct slab *slab, unsigned slice_count) {
    os_lock_take(&set->lock);
    struct arena *arena = &set->primary;
    for (struct arena *other = set->secondary; !arena_has_slab(arena, slab); other = other->next) {
        arena = other;
    }
    const size_t slice = arena_slice_of(arena, slab);
    const unsigned chunk_index = (unsigned)(slice / MALLOW_CHUNK_SLICES);
    const unsigned slice_index = (unsigned)(slice % MALLOW_CHUNK_SLICES);
    chunk_map_give(&arena->map, chunk_index, slice_index, slice_count, true);
    arena->free_slices += slice_count;
    set->dirty_slices += slice_count;
    if (arena_keeps_too_much(set)) {
        (void)arena_purge_span_locked(set, arena, chunk_index, slice_index, slice_count);
    }
    if (set->dirty_slices > MALLOW_WORK_BYTES >> MALLOW_SLICE_SHIFT) {
        os_raise_work(set->os);
    }
    os_lock_drop(&set->lock);
}

MALLOW_INTERNAL bool arena_extend(struct arena_set *set, struct slab *slab, unsigned slice_count,
                                  unsigned more_slices) {
    struct arena *const arena = arena_of_slab(set, slab, slab->start_address);
    const size_t slice = arena_slice_of(arena, slab);
    const unsigned chunk_index = (unsigned)(slice / MALLOW_CHUNK_SLICES);
    const unsigned next = (unsigned)(slice % MALLOW_CHUNK_SLICES) + slice_count;
    if (next + more_slices > MALLOW_CHUNK_SLICES) {
        return false;
    }
    const uint32_t wanted = (uint32_t)(((UINT64_C(1) << more_slices) - 1) << next);
    os_lock_take(&set->lock);
    const struct chunk_place place = {.chunk_index = chunk_index, .slice_index = next};
    const bool fits = (chunk_map_chunk(&arena->map, chunk_index)->free_mask & wanted) == wanted &&
                      arena_charge_locked(set, arena, place, more_slices, OS_CHARGE_SOFT);
    if (fits) {
        arena_less_dirty_locked(set, chunk_map_take(&arena->map, chunk_index, next, more_slices));
        arena->free_slices -= more_slices;
    }
    os_lock_drop(&set->lock);
    return fits;
}

// Purges dirty slices, from below, until `bytes` are released.
static size_t arena_purge_locked(struct arena_set *set, struct arena *arena, size_t bytes) {
    size_t released = 0;
    unsigned from = 0;
    unsigned chunk_index;
    while (released < bytes &&
           chunk_map_next(&arena->map, CHUNK_MAP_DIRTY_ROW, from, &chunk_index)) {
        uint32_t dirty = chunk_map_chunk(&arena->map, chunk_index)->dirty_mask;
        while (dirty != 0 && released < bytes) {
            const unsigned first = bits_lowest(dirty);
            const unsigned count = bits_lowest(~((uint64_t)dirty >> first));
            released += arena_purge_span_locked(set, arena, chunk_index, first, count);
            dirty &= ~(uint32_t)(((UINT64_C(1) << count) - 1) << first);
        }
        from = chunk_index + 1;
    }
    return released;
}

MALLOW_INTERNAL size_t arena_purge_some(struct arena_set *set, size_t bytes) {
    os_lock_take(&set->lock);
    size_t released =
        set->primary.slice_count != 0 ? arena_purge_locked(set, &set->primary, bytes) : 0;
    for (struct arena *arena = set->secondary; arena != NULL && released < bytes;
         arena = arena->next) {
        released += arena_purge_locked(set, arena, bytes - released);
    }
    os_lock_drop(&set->lock);
    return released;
}

MALLOW_INTERNAL size_t arena_purge_all(struct arena_set *set) {
    os_lock_take(&set->lock);
    size_t released =
        set->primary.slice_count != 0 ? arena_purge_locked(set, &set->primary, SIZE_MAX) : 0;
    struct arena *next;
    for (struct arena *arena = set->secondary; arena != NULL; arena = next) {
        next = arena->next;
        released += arena_purge_locked(set, arena, SIZE_MAX);
        if (arena->free_slices == arena->committed_slices) {
            (void)arena_remove_locked(set, arena);
        }
    }
    os_lock_drop(&set->lock);
    return released;
}

MALLOW_INTERNAL size_t arena_decommit_all(struct arena_set *set) {
    os_lock_take(&set->lock);
    size_t released = set->primary.slice_count != 0 ? arena_decommit_locked(set, &set->primary) : 0;
    for (struct arena *arena = set->secondary; arena != NULL; arena = arena->next) {
        released += arena_decommit_locked(set, arena);
    }
    os_lock_drop(&set->lock);
    return released;
}

MALLOW_INTERNAL void arena_fork_prepare(struct arena_set *set) {
    os_lock_take_for_fork(&set->lock);
    os_lock_take_for_fork(&set->map->lock);
    os_lock_take_for_fork(&set->meta->lock);
}

MALLOW_INTERNAL void arena_fork_parent(struct arena_set *set) {
    os_lock_drop_after_fork(&set->meta->lock);
    os_lock_drop_after_fork(&set->map->lock);
    os_lock_drop_after_fork(&set->lock);
}

MALLOW_INTERNAL void arena_fork_child(struct arena_set *set) {
    os_lock_renew(&set->meta->lock);
    os_lock_renew(&set->map->lock);
    os_lock_renew(&set->lock);
}
