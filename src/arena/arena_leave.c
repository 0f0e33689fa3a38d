// SPDX-License-Identifier: MIT
// Arena, memory on its way back to the OS: free slices that are being purged, and spans whose holes
// are, without the arena's lock.
//
// Owns     `leaving` and `visited` of an arena set.
// Threads  any; what is _locked with the arenas' lock held.
// Holds    slices that leave are neither free nor in use by anybody else, and charged; there is one
//          run of them at a time. A span that is visited is not free before the visit ends.
#include "arena/arena.h"

#include "arena/arena_node.h"
#include "base/bits.h"

MALLOW_INTERNAL void arena_leave_locked(struct arena_set *set, const struct arena_leaving *span) {
    struct arena *const arena = span->arena;
    chunk_map_take(&arena->map, span->chunk_index, span->first, span->count);
    arena_less_dirty_locked(set, span->count);
    arena->free_slices -= span->count;
    set->leaving = *span;
    set->leaving.thread = os_this_thread();
}

MALLOW_INTERNAL void arena_return_locked(struct arena_set *set, bool clean) {
    const struct arena_leaving span = set->leaving;
    struct arena *const arena = span.arena;
    set->leaving = (struct arena_leaving){NULL, 0, 0, 0, 0};
    chunk_map_give(&arena->map, span.chunk_index, span.first, span.count, !clean);
    arena->free_slices += span.count;
    if (!clean) {
        arena_set_dirty_locked(set, set->dirty_slices + span.count);
        return;
    }
    const size_t bytes = (size_t)span.count << MALLOW_SLICE_SHIFT;
    arena_split_locked(set, arena->base + ((uintptr_t)span.chunk_index << MALLOW_CHUNK_SHIFT));
    if (arena == &set->primary) {
        arena_node_cleaned_locked(set, span.chunk_index);
    }
    os_charge_release(set->os, bytes);
    atomic_fetch_add_explicit(&set->purged_bytes, bytes, memory_order_relaxed);
}

MALLOW_INTERNAL size_t arena_await_leaving_locked(struct arena_set *set) {
    if (set->leaving.arena != NULL && set->leaving.thread == 0) {
        arena_return_locked(set, false);
    }
    const size_t bytes = (size_t)set->leaving.count << MALLOW_SLICE_SHIFT;
    for (unsigned round = 0; set->leaving.arena != NULL && round < ARENA_AWAIT_ROUNDS; round++) {
        os_lock_drop(&set->lock);
        os_pause(round);
        os_lock_take(&set->lock);
    }
    return set->leaving.arena == NULL ? bytes : 0;
}

MALLOW_INTERNAL void arena_split(struct arena_set *set, uintptr_t address) {
    os_lock_take(&set->lock);
    arena_split_locked(set, address);
    os_lock_drop(&set->lock);
}

MALLOW_INTERNAL void arena_visit_span(struct arena_set *set, struct slab *slab) {
    os_lock_take(&set->lock);
    set->visited = slab;
    os_lock_drop(&set->lock);
}

MALLOW_INTERNAL void arena_leave_fork_child(struct arena_set *set) {
    if (set->leaving.thread != os_this_thread()) {
        set->leaving.thread = 0;
    }
}
