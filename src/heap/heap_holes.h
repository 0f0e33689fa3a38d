// SPDX-License-Identifier: MIT
// Hole purge: pages inside slabs that are partly in use go back to the OS, whoever owns the slabs,
// and whether their thread runs, sleeps, or has ended.
//
// Owns     for each slice of each arena, what its slab looked like at the last look: the arena's
//          notes.
// Threads  any, one at a time (`lock`).
// Holds    nothing of a slab changes: its blocks stay free and can be taken at any time; their
//          pages then come back as zero. So nothing is to be undone, and no owner learns of it; but
//          that slabs of large blocks know which of these are zero now (slab_zeroed), for calloc.
//          Pages are purged without a lock. A span that is given up meanwhile is not in use again
//          before that is over (arena_visit_span), and its heap is held: by its own thread, by a
//          claim if that has ended, through its gate otherwise.
//          The word that malloc takes from, and the hot block, are looked at apart: once they have
//          stayed as they are, the slab is put to rest (heap_rest.h), and at a later look their
//          pages go, but for those of a block that a malloc which was under way then may still
//          take. They go, too, once the thread is seen asleep. The next malloc of the class takes
//          the slow path, and all is as before.
#ifndef MALLOW_HEAP_HEAP_HOLES_H
#define MALLOW_HEAP_HEAP_HOLES_H

#include "heap/heap.h"

struct heap_holes {
    struct heap_shared *shared;
    struct os_lock lock; // around the round and all notes; ranks above the arenas' locks
    uint32_t round;
    uint64_t latest_ms;  // of the looks so far; under lock
    uint64_t lead_ms;    // of what is noted before the clock; under lock
};

// What looking at some slabs has come to.
struct heap_holes_result {
    size_t released_bytes;
    size_t pending_count; // slabs that a later look may have something to purge in
    bool stopped;         // the system calls were used up: the next look goes on there
    bool in_the_way;      // a thread has needed blocks meanwhile, and had them beside its slabs
};

// How to look.
struct heap_holes_way {
    uint64_t now_ms;          // of a clock that does not go back, when the look begins or before
    const struct heap *mine;  // the calling thread's heap, in no other use now; or NULL
    uint32_t visitor;         // the calling thread, by the kernel; 0: not known
    unsigned patience;        // looks for which a slab must have stayed as it is
    unsigned calls;           // system calls that may be made in one heap_holes_look
    // Whether a thread is asleep, and in the middle of nothing (os_thread_is_asleep); NULL: cannot
    // be told. Makes system calls of its own.
    bool (*is_asleep)(uint32_t thread, uintptr_t top);
    unsigned slabs;           // that one heap_holes_look looks at; 0: any number
};

// A round over all slices: begin, look from *position 0 on until that no longer changes in a look
// that was not stopped, end. The lock is not held between.
MALLOW_INTERNAL void heap_holes_begin(struct heap_holes *holes);
// Looks at up to `count` slices of one arena from *position on (arena_idle_visit), which moves on,
// until the system calls are used up: one for each hole, and one for an arena not seen before. Ends
// behind a slab at which it was in a thread's way.
MALLOW_INTERNAL struct heap_holes_result heap_holes_look(struct heap_holes *holes,
                                                         const struct heap_holes_way *way,
                                                         size_t *position, size_t count);
MALLOW_INTERNAL void heap_holes_end(struct heap_holes *holes);

// A whole round in which other threads' heaps are only asked, then others, some ms apart.
MALLOW_INTERNAL size_t heap_holes_collect(struct heap_holes *holes, const struct heap *mine,
                                          uint64_t (*now_ms)(void),
                                          bool (*is_asleep)(uint32_t thread, uintptr_t top));

// Gives the notes back: it is all to be seen anew.
MALLOW_INTERNAL void heap_holes_forget(struct heap_holes *holes);

// In the child of a fork in which the lock could not be had.
MALLOW_INTERNAL void heap_holes_fork_child(struct heap_holes *holes);

// In the child of any fork, whose clock may be earlier than its parent's (a time namespace): what
// has been noted stays before what is to be.
MALLOW_INTERNAL void heap_holes_set_clock(struct heap_holes *holes, uint64_t now_ms);

#endif
