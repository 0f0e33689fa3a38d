// SPDX-License-Identifier: MIT
// Secondary arenas: made where the primary one is used up, and given back. See arena.h.
//
// Holds    an arena that is given back leaves its tables, for the next one that they are large
//          enough for; so there are never more than were once needed at a time, of each size.
#include "arena/arena.h"

// Sets or clears the address map's entries of a secondary arena, of slices from `first` on.
static bool arena_register(struct arena_set *set, const struct arena *arena, size_t first,
                           uintptr_t value) {
    const size_t bytes = arena->limit_slices << MALLOW_SLICE_SHIFT;
    bool done = true;
    os_lock_take(&set->map->lock);
    for (size_t offset = first << MALLOW_SLICE_SHIFT; done && offset < bytes;
         offset += MALLOW_MAP_BYTES) {
        done = (value == 0 || address_map_prepare_locked(set->map)) &&
               (address_map_set_locked(set->map, arena->base + offset, value) || value == 0);
    }
    os_lock_drop(&set->map->lock);
    return done;
}

// One that was given back and whose tables have room for so many slices; 0: one without tables.
static struct arena *arena_take_recycled_locked(struct arena_set *set, size_t slice_count) {
    struct arena **link = &set->recycled;
    while (*link != NULL && (slice_count != 0 ? (*link)->table_slices < slice_count
                                              : (*link)->table_slices != 0)) {
        link = &(*link)->next;
    }
    struct arena *const arena = *link;
    if (arena != NULL) {
        *link = arena->next;
    }
    return arena;
}

static void arena_recycle_locked(struct arena_set *set, struct arena *arena) {
    arena->slice_count = 0;
    arena->limit_slices = 0;
    arena->free_slices = 0;
    __atomic_store_n(&arena->committed_slices, 0, __ATOMIC_RELEASE);
    arena->mapped_slices = 0;
    arena->next = set->recycled;
    set->recycled = arena;
}

// With tables that are there already, if any are large enough; NULL: no memory for a new one.
static struct arena *arena_find_locked(struct arena_set *set, size_t bytes,
                                       enum arena_reserved *reserved) {
    struct arena *arena = arena_take_recycled_locked(set, bytes >> MALLOW_SLICE_SHIFT);
    if (arena != NULL) {
        *reserved = arena_reserve_again(arena, set->os, bytes) ? ARENA_RESERVED : ARENA_NO_SPACE;
        return arena;
    }
    arena = arena_take_recycled_locked(set, 0);
    if (arena == NULL) {
        arena = meta_take(set->meta, sizeof *arena);
    }
    if (arena != NULL) {
        *reserved = arena_reserve(arena, set->os, bytes, false);
    }
    return arena;
}

MALLOW_INTERNAL struct arena *arena_add_locked(struct arena_set *set) {
    for (size_t bytes = set->secondary_bytes; bytes >= MALLOW_ARENA_BYTES_MIN;
         bytes = bits_align_down(bytes / 2, MALLOW_CHUNK_BYTES)) {
        enum arena_reserved reserved;
        struct arena *const arena = arena_find_locked(set, bytes, &reserved);
        if (arena == NULL) {
            return NULL;
        }
        if (reserved == ARENA_RESERVED && arena_register(set, arena, 0, (uintptr_t)arena | 1)) {
            arena->next = set->secondary;
            set->secondary = arena;
            return arena;
        }
        if (reserved == ARENA_RESERVED) {
            (void)arena_register(set, arena, 0, 0);
            (void)os_unmap(set->os, arena->base, bytes);
        }
        arena_recycle_locked(set, arena);
        if (reserved != ARENA_NO_SPACE) {
            return NULL;
        }
    }
    return NULL;
}

static void arena_shorten_locked(struct arena_set *set, struct arena *arena) {
    const size_t end = bits_align_up(arena->committed_slices, MALLOW_CHUNK_SLICES);
    const size_t before = arena->limit_slices;
    if (end < before) {
        (void)arena_register(set, arena, end, 0);
        __atomic_store_n(&arena->limit_slices, end, __ATOMIC_SEQ_CST);
        arena->mapped_slices = bits_min(arena->mapped_slices, end);
        (void)os_unmap(set->os, arena->base + (end << MALLOW_SLICE_SHIFT),
                       (before - end) << MALLOW_SLICE_SHIFT);
    }
}

MALLOW_INTERNAL void arena_shorten_secondary(struct arena_set *set) {
    os_lock_take(&set->lock);
    for (struct arena *arena = set->secondary; arena != NULL; arena = arena->next) {
        arena_shorten_locked(set, arena);
    }
    os_lock_drop(&set->lock);
}

MALLOW_INTERNAL bool arena_forget_notes(struct arena_set *set, struct arena *arena) {
    if (arena->notes == NULL) {
        return true;
    }
    if (!os_unmap(set->os, (uintptr_t)arena->notes, arena->notes_bytes)) {
        return false;
    }
    arena->notes = NULL;
    arena->notes_bytes = 0;
    return true;
}

MALLOW_INTERNAL bool arena_remove_locked(struct arena_set *set, struct arena *arena) {
    if (arena->visit != ARENA_ALONE) {
        arena->visit = ARENA_VISITED_AND_DUE;
        return false;
    }
    const size_t group_bytes = arena_group_charge(arena);
    size_t dirty_count = 0; // not 0 where the kernel refused to purge
    for (unsigned i = 0; i < arena->map.chunk_count; i++) {
        dirty_count += bits_count(chunk_map_chunk(&arena->map, i)->dirty_mask);
    }
    (void)arena_register(set, arena, 0, 0);
    if (!os_unmap(set->os, arena->base, arena->limit_slices << MALLOW_SLICE_SHIFT)) {
        (void)arena_register(set, arena, 0, (uintptr_t)arena | 1);
        return false;
    }
    if (group_bytes != 0) {
        (void)os_decommit(set->os, (uintptr_t)arena->map.more, group_bytes);
    }
    (void)arena_forget_notes(set, arena);
    arena_less_dirty_locked(set, dirty_count);
    os_charge_release(set->os, group_bytes + (dirty_count << MALLOW_SLICE_SHIFT));
    struct arena **link = &set->secondary;
    while (*link != arena) {
        link = &(*link)->next;
    }
    *link = arena->next;
    arena_recycle_locked(set, arena);
    return true;
}
