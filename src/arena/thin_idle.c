// SPDX-License-Identifier: MIT
// Thin slices, idle memory: whole pages of free units, which an open unit or a live block elsewhere
// in the slice keeps from going back with it. See thin.h.
//
// Holds    a unit that is in neither `idle_once` nor `idle_twice` has been in use since the last
//          look, or is; one in `idle_twice` has been free since the look before that.
//          A unit that is not dirty has not been in use since its page was purged.
#include "arena/thin.h"

#include "base/bits.h"

enum { THIN_LOOK_SLICES = 64 }; // looked at with the lock held

// The units of whole pages all of whose units are in `units`.
static uint64_t thin_whole_pages(uint64_t units, size_t page_bytes) {
    const unsigned count = (unsigned)(page_bytes / THIN_UNIT_BYTES);
    uint64_t starts = units; // all units from here on, so many as a page has, are in it
    for (unsigned width = 1; width < count; width *= 2) {
        starts &= starts >> width;
    }
    uint64_t first = 0; // the first unit of each page
    for (unsigned unit = 0; unit < THIN_UNIT_COUNT; unit += count) {
        first |= UINT64_C(1) << unit;
    }
    uint64_t pages = starts & first;
    for (unsigned width = 1; width < count; width *= 2) {
        pages |= pages << width;
    }
    return pages;
}

// Units of pages that are free, as `idle` says, and hold some used since they were purged.
static uint64_t thin_purgeable(const struct thin_slice *slice, uint64_t idle, size_t page_bytes) {
    const uint64_t free_pages = thin_whole_pages(idle & slice->free_units, page_bytes);
    const uint64_t clean = ~thin_whole_pages(~slice->dirty_units, page_bytes);
    return free_pages & clean;
}

static void thin_idle_look_at_locked(struct thin_slice *slice, size_t page_bytes, bool all,
                                     struct thin_idle *result) {
    slice->idle_twice = all ? slice->free_units : slice->idle_once;
    slice->idle_once = slice->free_units;
    const uint64_t now = thin_purgeable(slice, slice->idle_twice, page_bytes);
    const uint64_t later = thin_purgeable(slice, slice->idle_once, page_bytes);
    result->bytes += bits_count(now) * THIN_UNIT_BYTES;
    result->later_bytes += bits_count(later & ~now) * THIN_UNIT_BYTES;
}

// The cursor moves on if its slice leaves the list while the lock is dropped. Two who look at once
// share it, and each sees a part.
MALLOW_INTERNAL struct thin_idle thin_idle_look(struct thin_set *set, bool all) {
    struct thin_idle result = {0, 0};
    thin_keep_none(set);
    os_lock_take_patiently(&set->lock);
    set->cursor = set->available;
    for (unsigned count = 1; set->cursor != NULL; count++) {
        thin_idle_look_at_locked(set->cursor, set->arenas->os->page_bytes, all, &result);
        set->cursor = set->cursor->next;
        if (count % THIN_LOOK_SLICES == 0) {
            os_lock_drop(&set->lock);
            os_lock_take_patiently(&set->lock);
        }
    }
    set->cursor = set->available;
    os_lock_drop(&set->lock);
    return result;
}

// Takes the first run of such pages of a slice, which nobody opens meanwhile.
static void thin_leave_locked(struct thin_set *set, struct thin_slice *slice, uint64_t units) {
    const unsigned first = bits_lowest(units);
    const uint64_t rest = ~(units >> first);
    const unsigned count = rest != 0 ? bits_lowest(rest) : THIN_UNIT_COUNT - first;
    const uint64_t run = ~UINT64_C(0) >> (THIN_UNIT_COUNT - count) << first;
    thin_keep_units_locked(set, slice, run);
    set->leaving = (struct thin_leaving){slice, run, os_this_thread()};
}

// Makes it free again; bytes released. If the kernel has refused, they count as purged: so they are
// left alone until they have been used.
static size_t thin_return_locked(struct thin_set *set, bool purged) {
    struct thin_slice *const slice = set->leaving.slice;
    const uint64_t run = set->leaving.units;
    const size_t bytes = bits_count(run & slice->dirty_units) * THIN_UNIT_BYTES;
    set->leaving = (struct thin_leaving){NULL, 0, 0};
    slice->dirty_units &= ~run;
    thin_free_units_locked(set, slice, run, false);
    return purged ? bytes : 0;
}

// Whether nobody else purges any more, or soon ceases to.
static bool thin_await_leaving_locked(struct thin_set *set) {
    if (set->leaving.slice != NULL && set->leaving.thread == 0) {
        const struct thin_leaving left = set->leaving; // whether purged nobody knows
        set->leaving = (struct thin_leaving){NULL, 0, 0};
        thin_free_units_locked(set, left.slice, left.units, false);
    }
    for (unsigned round = 0; set->leaving.slice != NULL && round < ARENA_AWAIT_ROUNDS; round++) {
        os_lock_drop(&set->lock);
        os_pause(round);
        os_lock_take_patiently(&set->lock);
    }
    return set->leaving.slice == NULL;
}

// Purges what leaves, with the lock dropped for that time; bytes released.
static size_t thin_purge_leaving_locked(struct thin_set *set) {
    const struct thin_leaving run = set->leaving;
    const uintptr_t address = run.slice->address + bits_lowest(run.units) * THIN_UNIT_BYTES;
    os_lock_drop(&set->lock);
    const bool purged =
        os_purge(set->arenas->os, address, bits_count(run.units) * THIN_UNIT_BYTES);
    if (purged) {
        arena_split(set->arenas, address);
    }
    os_lock_take_patiently(&set->lock);
    return thin_return_locked(set, purged);
}

MALLOW_INTERNAL size_t thin_idle_purge(struct thin_set *set, unsigned calls) {
    size_t released = 0;
    os_lock_take_patiently(&set->lock);
    while (calls != 0 && thin_await_leaving_locked(set) && set->cursor != NULL) {
        struct thin_slice *const slice = set->cursor;
        const uint64_t units =
            thin_purgeable(slice, slice->idle_twice, set->arenas->os->page_bytes);
        if (units == 0) {
            set->cursor = slice->next;
            continue;
        }
        calls--;
        thin_leave_locked(set, slice, units);
        released += thin_purge_leaving_locked(set);
    }
    os_lock_drop(&set->lock);
    atomic_fetch_add_explicit(&set->arenas->purged_bytes, released, memory_order_relaxed);
    return released;
}

MALLOW_INTERNAL void thin_fork_child(struct thin_set *set) {
    if (set->leaving.thread != os_this_thread()) {
        set->leaving.thread = 0;
    }
}
