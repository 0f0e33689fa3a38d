// SPDX-License-Identifier: MIT
// Arena, idle memory: free slices that hold pages and that nobody has needed for a while. See
// arena.h.
//
// Holds    what lay dirty through two whole intervals has not been needed for as long: the fewest
//          dirty slices of both are what a purge cannot take from a program that goes on as it did.
//          So one that frees and takes the same again and again keeps it, and one that stops gives
//          all back.
#include "arena/arena.h"

#include "base/bits.h"

MALLOW_INTERNAL size_t arena_idle_look(struct arena_set *set) {
    arena_give_late_all(set); // no call has come by that had little to do
    os_lock_take_patiently(&set->lock);
    const size_t idle = bits_min(set->dirty_low_before, set->dirty_low);
    set->dirty_low_before = set->dirty_low;
    set->dirty_low = set->dirty_slices;
    os_lock_drop(&set->lock);
    return idle << MALLOW_SLICE_SHIFT;
}

// The highest few of the dirty slices of the highest chunk below *end that has some, taken; false:
// there are none. From above, because what is taken next is taken from below. The arena may be
// another than *end was of, with the same tables, of which fewer are mapped as yet.
static bool idle_take_locked(struct arena_set *set, struct arena *arena, unsigned *end) {
    unsigned chunk_index;
    if (arena->slice_count == 0 ||
        !chunk_map_last(&arena->map, CHUNK_MAP_DIRTY_ROW, *end, &chunk_index)) {
        *end = 0;
        return false;
    }
    const uint32_t dirty = chunk_map_chunk(&arena->map, chunk_index)->dirty_mask;
    const unsigned last = bits_highest(dirty);
    // A huge page all of which is dirty goes at once, which is quicker than a part of it.
    const bool whole =
        dirty == UINT32_MAX &&
        arena_is_huge_locked(set, arena->base + ((uintptr_t)chunk_index << MALLOW_CHUNK_SHIFT));
    const unsigned most = whole ? MALLOW_CHUNK_SLICES : MALLOW_PURGE_SLICES;
    unsigned first = last;
    while (first > 0 && last - first + 1 < most && (dirty >> (first - 1)) & 1U) {
        first--;
    }
    const struct arena_leaving span = {arena, 0, chunk_index, first, last - first + 1};
    arena_leave_locked(set, &span);
    return true;
}

// Takes a few slices, purges them without the lock, and gives them back; bytes released. Nobody
// waits for the kernel meanwhile, and a child that has been made without our knowledge finds the
// lock free.
static size_t idle_purge_step_locked(struct arena_set *set, struct arena *arena, unsigned *end,
                                     unsigned *calls) {
    if (!idle_take_locked(set, arena, end)) {
        return 0;
    }
    *calls -= 1;
    const struct arena_leaving span = set->leaving;
    const size_t slice = (size_t)span.chunk_index * MALLOW_CHUNK_SLICES + span.first;
    const size_t bytes = (size_t)span.count << MALLOW_SLICE_SHIFT;
    os_lock_drop(&set->lock);
    const bool clean = os_purge(set->os, arena->base + (slice << MALLOW_SLICE_SHIFT), bytes);
    os_lock_take_patiently(&set->lock);
    arena_return_locked(set, clean);
    *end = clean ? span.chunk_index + 1 : span.chunk_index; // refused: not again in this round
    return clean ? bytes : 0;
}

MALLOW_INTERNAL struct arena_place arena_idle_visit(struct arena_set *set, size_t *position) {
    size_t at = *position;
    const size_t committed = __atomic_load_n(&set->primary.committed_slices, __ATOMIC_ACQUIRE);
    if (at < committed) {
        return (struct arena_place){&set->primary, at, set->primary.slice_count};
    }
    os_lock_take_patiently(&set->lock);
    struct arena *arena = set->secondary;
    size_t first = set->primary.slice_count; // position of the arena's slice 0
    for (; arena != NULL; arena = arena->next) {
        at = bits_max(at, first);
        if (at - first < arena->committed_slices) {
            break;
        }
        first += arena->slice_count;
    }
    if (arena != NULL) {
        arena->visit = ARENA_VISITED;
        *position = at;
    }
    os_lock_drop(&set->lock);
    return arena != NULL ? (struct arena_place){arena, at - first, first + arena->slice_count}
                         : (struct arena_place){NULL, 0, 0};
}

MALLOW_INTERNAL void arena_idle_leave(struct arena_set *set, struct arena *arena) {
    if (arena == &set->primary) {
        return;
    }
    os_lock_take_patiently(&set->lock);
    const bool due = arena->visit == ARENA_VISITED_AND_DUE;
    arena->visit = ARENA_ALONE;
    if (due && arena->free_slices == arena->committed_slices) {
        (void)arena_remove_locked(set, arena);
    }
    os_lock_drop(&set->lock);
}

// The arena after `arena` in the order of purging: the newest first, the primary one last.
static struct arena *idle_next_locked(struct arena_set *set, const struct arena *arena) {
    if (arena == &set->primary) {
        return NULL;
    }
    struct arena *const next = arena == NULL ? set->secondary : arena->next;
    return next != NULL ? next : &set->primary;
}

// Where a call that may make `calls` system calls begins: at the top, or behind what the last one
// of few calls was refused.
static struct arena *idle_first_locked(struct arena_set *set, unsigned calls, unsigned *end) {
    struct arena *const first = idle_next_locked(set, NULL);
    struct arena *arena = calls != UINT32_MAX && set->refused.arena != NULL ? first : NULL;
    while (arena != NULL && arena != set->refused.arena) {
        arena = idle_next_locked(set, arena);
    }
    *end = arena != NULL ? set->refused.chunk_index : first->map.chunk_count;
    set->refused.arena = arena;
    return arena != NULL ? arena : first;
}

// From slices below chunk `end` of an arena on. With slices taken, a secondary arena is not wholly
// free, and stays; so does the one that is purged next, as long as the lock is held between two
// steps. True: there are no more.
static bool idle_purge_locked(struct arena_set *set, struct arena *arena, unsigned end,
                              size_t bytes, unsigned *calls, size_t *released) {
    while (arena != NULL && *released < bytes && *calls != 0) {
        const unsigned before = *calls;
        const size_t part = idle_purge_step_locked(set, arena, &end, calls);
        if (part == 0 && *calls != before) {
            set->refused.arena = arena;
            set->refused.chunk_index = end;
        }
        *released += part;
        if (end == 0) {
            struct arena *const done = arena;
            arena = idle_next_locked(set, arena);
            end = arena != NULL ? arena->map.chunk_count : 0;
            if (done != &set->primary && done->free_slices == done->committed_slices) {
                (void)arena_remove_locked(set, done);
            }
        }
    }
    return arena == NULL;
}

MALLOW_INTERNAL size_t arena_idle_purge(struct arena_set *set, size_t bytes, unsigned calls) {
    size_t released = 0;
    os_lock_take_patiently(&set->lock);
    (void)arena_await_leaving_locked(set);
    bool from_top = false;
    while (set->leaving.arena == NULL && released < bytes && calls != 0 && !from_top) {
        unsigned end;
        struct arena *const first = idle_first_locked(set, calls, &end);
        from_top = set->refused.arena == NULL;
        if (idle_purge_locked(set, first, end, bytes, &calls, &released)) {
            set->refused.arena = NULL;
        }
    }
    os_lock_drop(&set->lock);
    return released;
}
