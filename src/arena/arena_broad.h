// SPDX-License-Identifier: MIT
// Arena, broad: address space ahead of growth in which a fault makes a huge page, for programs that
// fill the arena with large blocks and write these whole.
//
// Owns     struct arena_broad, part of the set: the stretch of the primary arena that is so.
// Threads  the background thread's alone, but for what is said to hold the lock.
// Holds    a stretch is made, and goes on, only while the newest chunks on small pages are large
//          blocks nearly throughout (ARENA_BROAD_SHARE) and nearly all of these are resident to the
//          end. Pages that are huge tell nothing, so one chunk in ARENA_BROAD_PROBE_SHARE of a
//          stretch has small ones. It is no longer than what there is already, nor than a part
//          (ARENA_BROAD_FREE_SHARE) of what the machine or the process's group has free: where a
//          program turns sparse in it, it has pages that nobody writes, and the kernel kills who
//          has too many. After one that was wrong none is made for a while, ever longer.
//          Only what growth has yet to reach stays broad: in chunks that are in use a purged page
//          comes back as a small one, and nobody fills what was given back.
//          A free slice of a chunk that growth has passed is dirty if it has pages, though nobody
//          has had it.
//
// A huge page by a fault costs a fifth of what its small ones cost one by one. But the program
// waits for all of it at once, some 0.2 ms: as long as for writing half a megabyte on small pages,
// and longer where the kernel has to make room for it.
#ifndef MALLOW_ARENA_ARENA_BROAD_H
#define MALLOW_ARENA_ARENA_BROAD_H

#include "arena/arena.h"

enum {
    ARENA_BROAD_PROBE_SHARE = 8,
    ARENA_BROAD_LOOK_CHUNKS = 4,     // the newest on small pages, by which growth is judged
    ARENA_BROAD_LOOK_CHUNKS_MIN = 3, // fewer tell nothing
    ARENA_BROAD_SKIP_CHUNKS = 1,     // the newest of all, which the program is about to write
    ARENA_BROAD_BLOCKS_MIN = 6,
    ARENA_BROAD_SHARE = 8, // of blocks, slices and bytes one part in so many may be otherwise
    ARENA_BROAD_FIRST_SLICES = 8 * MALLOW_CHUNK_SLICES,  // 16 MiB are in use before the first
    ARENA_BROAD_MOST_SLICES = 256 * MALLOW_CHUNK_SLICES, // of one stretch
    ARENA_BROAD_FREE_SHARE = 16,
    ARENA_BROAD_LEAST_SLICES = 8 * MALLOW_CHUNK_SLICES, // a shorter one is not worth the look
    ARENA_BROAD_REST_SLICES = 16 * MALLOW_CHUNK_SLICES, // of growth, after the first that was wrong
    ARENA_BROAD_FAILURES_MAX = 16,                      // it doubles with each
    // So much less growth raises os.work with each chunk of large blocks: 16 MiB are as 64.
    ARENA_BROAD_RAISE_SLICES = 6 * MALLOW_CHUNK_SLICES,
};

// Looks whether growth is by large blocks that are written whole: then a stretch ahead of it
// becomes broad; where they are sparse, the one there is ends. To be called often while growth goes
// on. A system call for each block looked at, and for every ARENA_BROAD_PROBE_SHARE chunks of a
// stretch; before one, some thirty to see what is free. True: growth goes on, and nothing is known
// against it: another look soon is worth it.
MALLOW_INTERNAL bool arena_broad_look(struct arena_set *set);

// To be called at regular intervals: what growth has reached of a stretch is broad no longer, and
// all of it if growth has come to an end, or memory is limited now. A system call for each chunk
// reached and each free slice of it, and up to three.
MALLOW_INTERNAL void arena_broad_tick(struct arena_set *set);

// All of it is over, for when nobody will look any more. As arena_broad_tick.
MALLOW_INTERNAL void arena_broad_stop(struct arena_set *set);

// What growth has not reached of a stretch is as what lies behind it: for before all memory is
// locked. Any thread; at most one system call.
MALLOW_INTERNAL void arena_broad_end(struct arena_set *set);

// The free slices that have pages by huge ones since the last of these calls are dirty. For who is
// about to purge all. A system call for each clean slice reached since. Lock held.
MALLOW_INTERNAL void arena_broad_settle_locked(struct arena_set *set);

// What lies behind slice `end` is not committed any more. Lock held.
MALLOW_INLINE void arena_broad_cut_locked(struct arena_set *set, size_t end) {
    set->broad.end = bits_min(set->broad.end, bits_align_up(end, MALLOW_CHUNK_SLICES));
}

#endif
