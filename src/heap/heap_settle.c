// SPDX-License-Identifier: MIT
// Settling: a call makes at most one system call, so what is more is left to calls that make none.
// See heap.h.
//
// Owns     nothing: each layer below keeps its own account of what is owed.
// Threads  any.
// Holds    what is owed falls with every slow call that has not entered the kernel itself; what
//          cannot be done is forgotten, so nothing is tried for ever.
#include "heap/heap.h"

MALLOW_INTERNAL MALLOW_NOINLINE void heap_settle_slow(struct heap_shared *shared,
                                                      uint64_t entries) {
    if (os_entries(shared->os) != entries) {
        return;
    }
    if (arena_is_low(shared->arenas)) {
        if (arena_prepare(shared->arenas)) {
            huge_owe_all(shared->huges); // as in heap_take_span
        }
    } else if (meta_is_low(shared->meta)) {
        meta_prepare(shared->meta);
    } else if (huge_owes(shared->huges)) {
        huge_settle(shared->huges);
    } else if (arena_owes(shared->arenas)) {
        arena_settle(shared->arenas);
    }
}
