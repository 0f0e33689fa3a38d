// SPDX-License-Identifier: MIT
// Huge cache: pages of freed huge blocks, kept for the next ones.
//
// Owns     pieces: mappings, or parts of them, that hold memory and no block.
// Threads  any, under the lock of the huge set.
// Holds    bytes = sum over the pieces <= what may be kept, which is the option's limit and a
//          quarter of what is live, as far as keeping has proved worth it; more only where the
//          kernel refused munmap.
//          Each piece is (part of) one mapping of the kernel's, so mremap can move it.
//
// A page costs the kernel a fault and a clearing, some 2 us here; moving it, in bulk, a hundredth
// of that. So a request of any size is made up of pieces of any size: what is too large is cut, and
// the rest stays; what is too small is grown, and the pages that lack come from other pieces. Fresh
// pages fill what is then still missing. As long as what is live does not exceed what was, hardly a
// page is faulted in, and memory is not higher for it: what is kept goes into the next block.
//
// How much is kept is learnt: little at first; twice as much, or what was asked for, each time that
// a mapping has to be made after one was given back. A steady program soon gives none back; one
// that frees a large block once keeps no memory for it. Requests for zeroed memory take fresh
// pages, so what they ask for is unlearnt.
#ifndef MALLOW_ARENA_HUGE_CACHE_H
#define MALLOW_ARENA_HUGE_CACHE_H

#include "os/os.h"

// Inner bounds of the mappings that a block consists of: a piece was moved to each. 0: no more.
#define HUGE_CUTS_MAX 11U
struct huge_cuts {
    size_t offset[HUGE_CUTS_MAX]; // from the block's start, falling
};

struct huge_mapping {
    uintptr_t address;
    size_t bytes;
};

struct huge_cache {
    struct os *os;
    struct huge_mapping *pieces; // room for MALLOW_HUGE_CACHE_COUNT; NULL: none yet, keeps nothing
    unsigned count;
    size_t bytes;
    size_t bytes_low;        // fewest since the last look
    size_t bytes_low_before; // the same of the look before
    size_t limit; // by option
    size_t worth; // what has turned out to be worth keeping
    bool regret;  // memory was given back since the last mapping had to be made
};

MALLOW_INTERNAL void huge_cache_init(struct huge_cache *cache, struct os *os, size_t limit);

// A mapping of `bytes` bytes with contents of any kind; 0 if the cache cannot help. `live_bytes` is
// what is live besides. At most 2 + HUGE_CUTS_MAX system calls, none if a piece fits.
MALLOW_INTERNAL uintptr_t huge_cache_take(struct huge_cache *cache, size_t bytes,
                                          size_t live_bytes, struct huge_cuts *cuts);

// The most that taking `bytes` bytes can add to what is cached and handed out.
MALLOW_INTERNAL size_t huge_cache_growth(const struct huge_cache *cache, size_t bytes);

// Takes notice of a request of `bytes` bytes that cannot use the cache.
MALLOW_INTERNAL void huge_cache_unlearn(struct huge_cache *cache, size_t bytes);

// Keeps a mapping, or as much of its beginning as may be kept, and gives the rest back. If the
// kernel cannot unmap (no mapping to spare), it is purged and kept whatever the limit; if there is
// no place for that either, its address space is lost.
MALLOW_INTERNAL void huge_cache_give(struct huge_cache *cache, struct huge_mapping mapping,
                                     size_t live_bytes, const struct huge_cuts *cuts);

// Looks: how many bytes of it have not been needed since the look before the last. To be called at
// regular intervals.
MALLOW_INTERNAL size_t huge_cache_idle(struct huge_cache *cache);

// Gives a part of at most `bytes` back, one system call or two; bytes released, 0 if the kernel
// refuses or nothing is left.
MALLOW_INTERNAL size_t huge_cache_purge_some(struct huge_cache *cache, size_t bytes);

// Gives everything back, and forgets what was learnt; bytes released.
MALLOW_INTERNAL size_t huge_cache_purge(struct huge_cache *cache);

#endif
