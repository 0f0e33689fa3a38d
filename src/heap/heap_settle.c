// SPDX-License-Identifier: MIT
// Settling: a call makes at most one system call, so what is more is left to calls that make none.
// And relief: what is kept for speed goes before memory is refused. See heap.h.
//
// Owns     nothing: each layer below keeps its own account of what is owed.
// Threads  any.
// Holds    what is owed falls with every slow call that has not entered the kernel itself; what
//          cannot be done is forgotten, so nothing is tried for ever.
#include "heap/heap.h"

// One piece of what is owed, the cheapest first.
static MALLOW_NOINLINE void settle_piece(struct heap_shared *shared) {
    if (arena_is_late(shared->arenas)) {
        arena_give_late(shared->arenas);
    } else if (huge_is_loose(shared->huges) && heap_thread.effort < HEAP_EFFORT_RELEASE) {
        huge_join(shared->huges);
    } else if (huge_owes(shared->huges)) {
        huge_settle(shared->huges);
    } else {
        arena_settle(shared->arenas);
    }
}

MALLOW_INTERNAL MALLOW_NOINLINE void heap_settle_slow(struct heap_shared *shared, uint64_t entries,
                                                      enum arena_low low) {
    struct os *const os = shared->os;
    if (os->sealed || os_entries(os) != entries ||
        heap_thread.first_effort >= HEAP_EFFORT_MOVE_REFUSED) { // it has entered the kernel before
        return;
    }
    if (low >= ARENA_LOW_TABLES ||
        (low == ARENA_LOW_SLICES && heap_thread.effort == 0)) {
        arena_prepare(shared->arenas); // at times without a system call, and enough all the same
        heap_note_effort(HEAP_EFFORT_SETTLE + HEAP_EFFORT_SETTLE);
    }
    if (meta_is_low(shared->meta) && os_entries(os) == entries) {
        meta_prepare(shared->meta);
        if (os_entries(os) != entries) { // else a limit forbids it, and the rest goes on
            heap_note_effort(HEAP_EFFORT_SETTLE);
        }
    }
    if (heap_thread.effort >= MALLOW_CALL_EFFORT) {
        return;
    }
    const bool owes = os_entries(os) == entries && heap_owes(shared);
    if (owes) {
        settle_piece(shared);
    }
    // A block that the call moves is freed with little more. Where nothing was owed, a step of the
    // work of the thread has room beside a large block that is given up, not beside more.
    heap_note_effort(owes || heap_thread.effort > HEAP_EFFORT_RELEASE ? HEAP_EFFORT_SETTLE
                                                                      : HEAP_EFFORT_LOOK);
}

// ---- Relief -------------------------------------------------------------------------------------

// A growth near the soft limit releases at least so much, lest each of a series pays.
#define RELIEF_BYTES_MIN ((size_t)1 << 20)

MALLOW_INTERNAL size_t heap_relieve(struct heap_shared *shared, size_t bytes) {
    bytes = bits_max(bytes, RELIEF_BYTES_MIN);
    arena_give_late_all(shared->arenas);
    const size_t released = huge_purge_all(shared->huges);
    return released >= bytes ? released
                             : released + arena_purge_some(shared->arenas, bytes - released);
}

MALLOW_INTERNAL MALLOW_COLD void *heap_relieve_for_table(struct heap_shared *shared,
                                                         size_t bytes) {
    if (shared->os->sealed) {
        return NULL;
    }
    (void)heap_relieve(shared, RELIEF_BYTES_MIN);
    (void)arena_decommit_all(shared->arenas);
    return meta_take(shared->meta, bytes);
}
