// SPDX-License-Identifier: MIT
// Promotion: chunks that are dense and have been so for a while become huge pages, in the
// background.
//
// Owns     the ages of the chunks of the primary arena and of live huge blocks, which are in
//          struct arena_set and struct huge.
// Threads  one at a time: the worker's. What others change of an age (a purge splits a huge page)
//          they change under the lock of the arenas.
// Holds    a chunk is promoted only if all its slices were in use at PROMOTE_PATIENCE looks on end,
//          none of them is a thin one, and all but PROMOTE_MISSING_PAGES of its pages are resident:
//          so promotion adds at most 5 % to what is resident.
//          Of a chunk that was split, or came free while it was ripening, it takes longer the next
//          time: twice as long each time.
//          No lock is held while the kernel works. What is given up meanwhile may be promoted all
//          the same: it costs memory until it is purged, and contents do not change.
#ifndef MALLOW_ARENA_PROMOTE_H
#define MALLOW_ARENA_PROMOTE_H

#include "arena/arena.h"
#include "arena/huge.h"

enum {
    PROMOTE_PATIENCE = 3,       // looks
    PROMOTE_MISSING_PAGES = 24, // of 512
};

struct promote {
    struct os *os;
    struct arena_set *arenas;
    struct huge_set *huges;
    bool able;                       // the kernel can, and the system allows it
    _Atomic(uint64_t) made_count;    // huge pages made so far
    size_t next_chunk;               // where the search for a ripe one goes on
    bool huges_done;                 // no block has been found ripe since the look
};

// `able`: see above. Where not, nothing is ever done.
MALLOW_INTERNAL void promote_init(struct promote *promote, struct arena_set *arenas,
                                  struct huge_set *huges, bool able);

// Whether growth of the heap is to raise os.work, so that somebody comes and looks.
MALLOW_INTERNAL void promote_want(struct promote *promote, bool wanted);

// Looks, at regular intervals: how many chunks are ripe or ripening.
MALLOW_INTERNAL size_t promote_look(struct promote *promote);

// Promotes the next ripe chunk, or finds that it is not worth it: two system calls, or four. False:
// there is no ripe one left, or no memory for it now.
MALLOW_INTERNAL bool promote_one(struct promote *promote);

#endif
