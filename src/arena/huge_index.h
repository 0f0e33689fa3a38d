// SPDX-License-Identifier: MIT
// Huge index: finds among the pieces of the huge cache the one that fits, and those that touch a
// range, in a bounded number of steps.
//
// Owns     masks of piece numbers: by size, four classes a doubling, and by a hash of where a piece
//          begins and ends.
// Threads  under the lock of the huge set, as the cache.
// Holds    a piece's number is in exactly one mask of each kind: that of its size class, of its
//          start, of its end; a loose one's need be in none of the last two. The list of pieces
//          is the cache's.
#ifndef MALLOW_ARENA_HUGE_INDEX_H
#define MALLOW_ARENA_HUGE_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "config.h"

// How many mappings of the kernel's a range is. mremap grows what is one.
enum huge_parts {
    HUGE_ONE,
    HUGE_JOINED,  // or lies in what has been put together: one, unless both had pages before
    HUGE_SEVERAL, // may be several
};

// What two ranges side by side are together.
MALLOW_INLINE enum huge_parts huge_parts_of(enum huge_parts a, enum huge_parts b) {
    return a == HUGE_SEVERAL || b == HUGE_SEVERAL ? HUGE_SEVERAL : HUGE_JOINED;
}

struct huge_mapping {
    uintptr_t address;
    size_t bytes;
    enum huge_parts parts;
};

#define HUGE_INDEX_MASKS 64U
#define HUGE_INDEX_LOOKS 3U // pieces of one size class that a search for the best fit compares

struct huge_index {
    uint64_t used;  // numbers of pieces
    uint64_t sizes; // size classes that have a piece
    uint64_t by_size[HUGE_INDEX_MASKS];
    uint64_t by_start[HUGE_INDEX_MASKS];
    uint64_t by_end[HUGE_INDEX_MASKS];
};

static_assert(MALLOW_HUGE_CACHE_COUNT == 64, "piece numbers fit a word");

#define HUGE_INDEX_NONE MALLOW_HUGE_CACHE_COUNT

MALLOW_INTERNAL void huge_index_add(struct huge_index *index, struct huge_mapping piece,
                                    unsigned number);
// The same, but it is not found by where it begins and ends.
MALLOW_INTERNAL void huge_index_add_loose(struct huge_index *index, struct huge_mapping piece,
                                          unsigned number);
MALLOW_INTERNAL void huge_index_remove(struct huge_index *index, struct huge_mapping piece,
                                       unsigned number);

// A piece begins elsewhere now, and ends where it did; or ends elsewhere, and begins where it did.
MALLOW_INTERNAL void huge_index_begin_at(struct huge_index *index, struct huge_mapping piece,
                                         uintptr_t address, unsigned number);
MALLOW_INTERNAL void huge_index_end_at(struct huge_index *index, struct huge_mapping piece,
                                       uintptr_t address, unsigned number);

// The piece that begins, or that ends, at `address`; HUGE_INDEX_NONE: there is none.
MALLOW_INTERNAL unsigned huge_index_starting(const struct huge_index *index,
                                             const struct huge_mapping *pieces, uintptr_t address);
MALLOW_INTERNAL unsigned huge_index_ending(const struct huge_index *index,
                                           const struct huge_mapping *pieces, uintptr_t address);

// A piece of at least `bytes` bytes, and a small one: of those of about that size a few are
// compared; then one of the next larger ones. If none is so large, the largest or one of nearly its
// size. There is a piece.
MALLOW_INTERNAL unsigned huge_index_best(const struct huge_index *index,
                                         const struct huge_mapping *pieces, size_t bytes);

// The same in fewer steps, for who has a use for what is beyond that: of those of about that size
// one is looked at.
MALLOW_INTERNAL unsigned huge_index_enough(const struct huge_index *index,
                                           const struct huge_mapping *pieces, size_t bytes);

#endif
