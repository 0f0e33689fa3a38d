// SPDX-License-Identifier: MIT
// Promotion: chunks that are dense and have been so for a while become huge pages, in the
// background.
//
// Owns     the ages of the chunks of the primary arena and of live huge blocks, which are in
//          struct arena_set and struct huge.
// Threads  one at a time: the worker's. What others change of an age (a purge splits a huge page)
//          they change under the lock of the arenas.
// Holds    a chunk is promoted only if all its slices were in use at PROMOTE_PATIENCE looks on end,
//          and none of them is a thin one.
//          filled_pages <= resident_pages / PROMOTE_GAIN_SHARE: promotion makes pages resident that
//          were not (the ends of slabs of the smallest blocks, for example), and adds at most 5 %
//          by that. The densest chunks come first. Of huge blocks the same holds for each part.
//          Of a chunk that was split, or came free while it was ripening, it takes longer the next
//          time: twice as long each time.
//          What is shared with another process, since a fork, is left alone.
//          No lock is held while the kernel works. What is given up meanwhile may be promoted all
//          the same: it costs memory until it is purged, and contents do not change.
#ifndef MALLOW_ARENA_PROMOTE_H
#define MALLOW_ARENA_PROMOTE_H

#include "arena/arena.h"
#include "arena/huge.h"

enum {
    PROMOTE_PATIENCE = 3,       // looks
    PROMOTE_MISSING_PAGES = 24, // of 512, of a part of a huge block
    PROMOTE_MEASURE_MAX = 64,   // in one call
    PROMOTE_GAIN_SHARE = 20,    // what promotion adds to what is resident: one part in so many
    PROMOTE_UNFIT_MAX = 8,      // parts that are unfit before the first is made: none ever will be
};

struct promote {
    struct os *os;
    struct arena_set *arenas;
    struct huge_set *huges;
    _Atomic(bool) able;              // the kernel can, and the system allows it
    _Atomic(uint64_t) made_count;    // huge pages made so far
    unsigned unfit_count;            // parts that were unfit, before the first of these was made
    bool left;                       // some are ripe, or ripening, as far as is known
    // Since the last look:
    unsigned pass;                   // of the search for chunks, from dense ones to less dense ones
    size_t next_chunk;               // where it goes on
    size_t resident_pages;           // of all chunks that are measured or huge, when measured
    size_t filled_pages;             // of the huge ones, those that were not resident then
};

// `able`: see above. Where not, nothing is ever done.
MALLOW_INTERNAL void promote_init(struct promote *promote, struct arena_set *arenas,
                                  struct huge_set *huges, bool able);

// The system does not allow it: nothing is ever done from now on.
MALLOW_INTERNAL void promote_deny(struct promote *promote);

// Whether growth of the heap is to raise os.work, so that somebody comes and looks.
MALLOW_INTERNAL void promote_want(struct promote *promote, bool wanted);

// Looks, at regular intervals: how many chunks are ripe or ripening.
MALLOW_INTERNAL size_t promote_look(struct promote *promote);

// Promotes the next ripe chunk: three system calls, or one; or finds out how dense some are, in a
// call each, at most PROMOTE_MEASURE_MAX. False: there is no ripe one left, or no memory for it
// now.
MALLOW_INTERNAL bool promote_one(struct promote *promote);

#endif
