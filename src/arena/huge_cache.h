// SPDX-License-Identifier: MIT
// Huge cache: pages of freed huge blocks, kept for the next ones.
//
// Owns     pieces: address ranges that hold memory and no block (huge_pieces.h); and a room:
//          address space of its own into which they are moved, one behind the other, so that they
//          become one range (huge_room.h).
// Threads  any, under the lock of the huge set.
// Holds    bytes = sum over the pieces + what is gathered <= what may be kept: the option's
//          limit and half of what is live, as far as keeping has proved worth it; more only
//          where the kernel refused munmap, and where a call left it to a later one.
//          Pieces do not touch each other, nor the gathered range; but for loose ones, which a call
//          without the time to join them has kept: later ones do, one at a time.
//          Every function makes at most one system call, unless the kernel refuses that.
//
//   room   | handed out | gathered: pages of freed blocks | address space, no pages yet |
//                       ^ front                           ^ tail                        ^ end
//
// A page costs the kernel a fault and a clearing, some 2 us here; moving it, in bulk, a hundredth
// of that. So a request of any size is made up of pieces of any size: what is too large is cut, and
// the rest stays; what is too small is moved together. Each malloc may move one piece, and so may
// each free: what a steady program needs. Fresh pages fill what is then still missing. As long as
// what is live does not exceed what was, few pages are faulted in, and memory is not higher for it:
// what is kept goes into the next block.
//
// A block out of the room consists of several mappings of the kernel's. Linux moves such a range in
// one call from 6.17 on. Before that it refuses, and from the first refusal on the room is *still*:
// nothing is moved to it, and a block below 64 MiB that no piece serves comes from its front; but
// for zeroed and aligned ones, and small ones that grow, which have mappings of their own. So that
// pieces become one again, what is given back of the room keeps its address space: it is purged,
// and *hollow* until it is handed out (huge_pieces.h).
//
// How much is kept is learnt: little at first; twice as much, or what was asked for, each time that
// a mapping has to be made after one was given back. A steady program soon gives none back; one
// that frees a large block once keeps no memory for it. Very large requests for zeroed memory take
// fresh pages, so what they ask for is unlearnt.
#ifndef MALLOW_ARENA_HUGE_CACHE_H
#define MALLOW_ARENA_HUGE_CACHE_H

#include "arena/huge_index.h"
#include "os/os.h"

struct huge_room {
    uintptr_t begin; // 0: there is no room
    uintptr_t front; // of what is gathered
    uintptr_t tail;  // its end: what lies behind has no pages yet
    uintptr_t end;
    uintptr_t huge_from; // from here on faults make huge pages; 0: nowhere
    uintptr_t whole_from; // from here on it is one mapping of the kernel's
    unsigned wanted; // moves that are worth making: requests have lately found no piece that fits
    bool refused;    // no room
    bool still;      // the kernel moves no range of several mappings: pieces stay
    bool torn;       // it has refused to grow a piece: fresh pages are kept at hand
};

// A part of a piece: its addresses. Both the same: none.
struct huge_extent {
    uintptr_t start;
    uintptr_t end;
};

struct huge_cache {
    struct os *os;
    struct huge_mapping *pieces; // MALLOW_HUGE_CACHE_COUNT, those of no bytes unused; NULL: none
                                 // yet, keeps nothing
    struct huge_extent *hollow;  // of each, a part that has been purged and has no pages
    struct huge_index *index;    // of these
    unsigned count;          // relaxed reads
    uint64_t loose;          // pieces that may touch others; relaxed reads
    uint64_t counting;       // in a still room: pieces that are not hollow all over,
    uint64_t apart;          // and those outside of it
    size_t bytes;            // of pieces, and gathered
    size_t bytes_low;        // fewest since the last look
    size_t bytes_low_before; // the same of the look before
    struct huge_room room;
    struct huge_mapping left; // address space of the room before, without pages: it was too small.
                              // To be given back as what is owed; relaxed reads of its bytes
    size_t limit; // by option
    size_t worth; // what has turned out to be worth keeping
    size_t debt;  // to be given back by calls that have their system call to spare; relaxed reads
    bool broad;   // rooms are to have huge pages by faults; what is taken is of whole chunks then
    bool regret;  // memory was given back since the last mapping had to be made
};

MALLOW_INLINE bool huge_cache_in_room(const struct huge_cache *cache, struct huge_mapping range) {
    return range.address >= cache->room.begin && range.address < cache->room.end;
}

// Pages of freed blocks that are one range in the room.
MALLOW_INLINE size_t huge_cache_gathered(const struct huge_cache *cache) {
    return cache->room.tail - cache->room.front;
}

MALLOW_INTERNAL void huge_cache_init(struct huge_cache *cache, struct os *os, size_t limit);

// Memory that is lent to it for its pieces, zeroed: without it nothing is kept.
struct huge_cache_memory {
    struct huge_mapping pieces[MALLOW_HUGE_CACHE_COUNT];
    struct huge_extent hollow[MALLOW_HUGE_CACHE_COUNT];
    struct huge_index index;
};
MALLOW_INLINE void huge_cache_lend(struct huge_cache *cache, struct huge_cache_memory *memory) {
    cache->pieces = memory != NULL ? memory->pieces : NULL;
    cache->hollow = memory != NULL ? memory->hollow : NULL;
    cache->index = memory != NULL ? &memory->index : NULL;
}

// What a request would be served from.
struct huge_choice {
    unsigned piece; // the best one; HUGE_INDEX_NONE: there is no piece
    bool gathers;   // none is large enough, and it is put together in the room
    bool moves;     // a piece may be moved for that: not for a block that grows, which soon moves
};

// The most that taking `bytes` bytes can add to what is cached and handed out; chooses. `grows`:
// the block is likely to, and is not put together if that costs more than it saves.
MALLOW_INTERNAL size_t huge_cache_growth(const struct huge_cache *cache, size_t bytes, bool grows,
                                         struct huge_choice *choice);

// The same for a block that is to be cleared, out of the piece alone: a good one, or none.
MALLOW_INTERNAL size_t huge_cache_growth_whole(const struct huge_cache *cache, size_t bytes,
                                               unsigned *piece);

// A mapping of `bytes` bytes with contents of any kind, out of what huge_cache_growth has chosen;
// address 0 if the cache cannot help, and the kernel has not been entered. `live_bytes` is what is
// live besides.
MALLOW_INTERNAL struct huge_mapping huge_cache_take(struct huge_cache *cache, size_t bytes,
                                                    struct huge_choice choice, size_t live_bytes);

// The same out of the piece that huge_cache_growth_whole has chosen.
MALLOW_INTERNAL struct huge_mapping huge_cache_take_whole(struct huge_cache *cache, size_t bytes,
                                                          unsigned piece, size_t live_bytes);

// What a block needs to become one of `total_bytes` in place: the beginning of the piece behind it,
// with contents of any kind. Address 0: there is none, or too little; that is learnt from.
MALLOW_INTERNAL struct huge_mapping huge_cache_take_behind(struct huge_cache *cache,
                                                           struct huge_mapping block,
                                                           size_t total_bytes, size_t live_bytes);

// Fresh pages from the address space of a room, which is made if there is none: so that calls have
// their system call to spare for something else. Address 0: none to be had, or not without one.
MALLOW_INTERNAL struct huge_mapping huge_cache_take_fresh(struct huge_cache *cache, size_t bytes);

// Where far more is kept than is live, what no call has looked at yet, all of which have had enough
// to do, is owed from now on.
MALLOW_INTERNAL void huge_cache_owe_plenty(struct huge_cache *cache, size_t live_bytes);

// As huge_cache_take_fresh, out of a piece while something is owed: what it has is given back, so
// that its pages are fresh ones, and that is the system call. Address 0: no piece is large enough.
MALLOW_INTERNAL struct huge_mapping huge_cache_take_owed(struct huge_cache *cache, size_t bytes,
                                                         size_t live_bytes);

// Whether memory is limited, so that none of it is to be charged that no block needs.
MALLOW_INLINE bool huge_is_limited(const struct os *os) {
    return os_is_confined(os) || __atomic_load_n(&os->locks_all, __ATOMIC_RELAXED) ||
           atomic_load_explicit(&os->charge.limited, memory_order_relaxed) != 0;
}

// Whether blocks that are large enough are to be of whole chunks; any thread.
MALLOW_INLINE bool huge_cache_is_broad(const struct huge_cache *cache) {
    return __atomic_load_n(&cache->broad, __ATOMIC_RELAXED) && !huge_is_limited(cache->os);
}

// Whether the kernel is to be asked to make a block of joined pieces one of `bytes` bytes: not if
// it has refused that before, and a block instead would take another call. But a very large one is
// not copied for that.
MALLOW_INTERNAL bool huge_cache_may_ask(const struct huge_cache *cache, size_t bytes);

// Whether as many fresh pages of the room are to be had without a system call.
MALLOW_INLINE bool huge_cache_has_fresh(const struct huge_cache *cache, size_t bytes) {
    const struct huge_room *const room = &cache->room;
    return !room->refused && room->end - room->tail >= bytes &&
           (room->tail == room->front || cache->count != MALLOW_HUGE_CACHE_COUNT);
}

// Whether as many fresh pages of the room are to be had that come as huge ones.
MALLOW_INLINE bool huge_cache_has_broad(const struct huge_cache *cache, size_t bytes) {
    const struct huge_room *const room = &cache->room;
    return room->huge_from != 0 && room->end - room->tail >= bytes + MALLOW_CHUNK_BYTES;
}

// From now on fresh pages of rooms are to come as huge ones, or no more. Where there is no room, or
// little left of it, makes one. Up to four system calls: for the background thread.
MALLOW_INTERNAL void huge_cache_set_broad(struct huge_cache *cache, bool broad);

// Takes notice of a request of `bytes` bytes that cannot use the cache.
MALLOW_INTERNAL void huge_cache_unlearn(struct huge_cache *cache, size_t bytes);

// Of one that has not used it: `missed`, since there was nothing that it could have used.
MALLOW_INTERNAL void huge_cache_note_unused(struct huge_cache *cache, size_t bytes, bool missed,
                                            size_t live_bytes);

// Keeps a mapping, or as much of its beginning as may be kept, and gives the rest back; or moves a
// piece, if all is kept. `may_enter` false: keeps all, as a loose piece, and leaves the rest, and
// unless memory is limited also what is owed, to the call that joins it. If the kernel cannot unmap
// (no mapping to spare), the memory is purged and kept whatever the limit; if there is no place for
// that either, its address space is lost.
MALLOW_INTERNAL void huge_cache_give(struct huge_cache *cache, struct huge_mapping mapping,
                                     size_t live_bytes, bool may_enter);

// Joins a loose piece with those that it touches, and notes what is owed then. There is one.
MALLOW_INTERNAL void huge_cache_join(struct huge_cache *cache, size_t live_bytes);
// The same in a still room; what the cache counts may become more by that.
MALLOW_INTERNAL void huge_cache_join_still(struct huge_cache *cache, size_t live_bytes);

// Looks: how many bytes of it have not been needed since the look before the last. To be called at
// regular intervals.
MALLOW_INTERNAL size_t huge_cache_idle(struct huge_cache *cache);

// Cuts the end of a piece off, which is no longer the cache's: at most `bytes` bytes, or a little
// more where the rest would be too small. If that is to keep its address space, it is instead what
// touches a part before it that has no pages: of two such parts of a piece one would count again.
// There is a piece; of no bytes: but none that has pages. No system call.
MALLOW_INTERNAL struct huge_mapping huge_cache_cut_end(struct huge_cache *cache, size_t bytes);

// Whether a range keeps its address space when it is given back, and is only purged: a hole in a
// room whose pieces are not moved would be between what could be one.
MALLOW_INTERNAL bool huge_cache_keeps_space_still(const struct huge_cache *cache,
                                                  struct huge_mapping range);
MALLOW_INLINE bool huge_cache_keeps_space(const struct huge_cache *cache,
                                          struct huge_mapping range) {
    return unlikely(cache->room.still) && huge_cache_keeps_space_still(cache, range);
}

// Takes it back: as it was, or without its pages.
MALLOW_INTERNAL void huge_cache_put_back(struct huge_cache *cache, struct huge_mapping end,
                                         bool purged);

// Gives as much of what is gathered back. One system call; bytes released, 0 if the kernel refuses
// or nothing is left.
MALLOW_INTERNAL size_t huge_cache_purge_gathered(struct huge_cache *cache, size_t bytes);

// No room from now on: its address space would not be without pages.
MALLOW_INTERNAL void huge_cache_close_room(struct huge_cache *cache);

// Gives one piece of what is owed back.
MALLOW_INTERNAL void huge_cache_settle(struct huge_cache *cache);

// Gives everything back, a piece a system call, and forgets what was learnt; bytes released.
MALLOW_INTERNAL size_t huge_cache_purge(struct huge_cache *cache);

#endif
