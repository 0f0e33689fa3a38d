// SPDX-License-Identifier: MIT
// Huge pieces: the list of what the huge cache keeps; its parts that touch are one.
//
// Owns     the cache's list and index of pieces, what of each has no pages, and the count of bytes.
// Threads  under the lock of the huge set, as the cache.
// Holds    a piece is *hollow* where it is known to have no pages: one part of it at most. What is
//          counted is the rest, so never less than what there is.
//          A piece that ends at the room's front and is nowhere hollow is gathered; one that is
//          hollow all over, with nothing gathered, is address space of the room again.
//          No system call, but where something is put back that has lost its place.
#ifndef MALLOW_ARENA_HUGE_PIECES_H
#define MALLOW_ARENA_HUGE_PIECES_H

#include "arena/huge_cache.h"
#include "base/bits.h"

static const struct huge_extent huge_no_extent = {0, 0};

// Smaller pieces are not worth a system call.
#define HUGE_PIECE_BYTES_MIN ((size_t)1 << 20)
// How much of a range of `have` bytes goes when `bytes` are to: all of it if too little would stay.
MALLOW_INLINE size_t huge_pieces_part(const struct huge_cache *cache, size_t have,
                                      size_t bytes) {
    const size_t part = bits_min(bits_align_up(bytes, cache->os->page_bytes), have);
    return have - part < HUGE_PIECE_BYTES_MIN ? have : part;
}

MALLOW_INLINE bool huge_pieces_are_full(const struct huge_cache *cache) {
    return cache->pieces == NULL || cache->count == MALLOW_HUGE_CACHE_COUNT;
}

// Adds to what is counted, and takes off it.
MALLOW_INTERNAL void huge_pieces_count_more(struct huge_cache *cache, size_t bytes);
MALLOW_INTERNAL void huge_pieces_count_less(struct huge_cache *cache, size_t bytes);

// The part of a mapping from `offset` on.
MALLOW_INLINE struct huge_mapping huge_rest(struct huge_mapping mapping, size_t offset) {
    return (struct huge_mapping){mapping.address + offset, mapping.bytes - offset, mapping.parts};
}

// There is a piece.
MALLOW_INLINE unsigned huge_pieces_last(const struct huge_cache *cache) {
    return bits_highest(cache->index->used);
}

// A piece that is large enough and not much larger than needed, else a largest. There is a piece.
MALLOW_INLINE unsigned huge_pieces_best(const struct huge_cache *cache, size_t bytes) {
    return huge_index_best(cache->index, cache->pieces, bytes);
}

// Gives a piece another extent.
MALLOW_INTERNAL void huge_pieces_set(struct huge_cache *cache, unsigned number,
                                     struct huge_mapping piece);

MALLOW_INLINE void huge_pieces_set_loose(struct huge_cache *cache, uint64_t loose) {
    __atomic_store_n(&cache->loose, loose, __ATOMIC_RELAXED);
}

MALLOW_INLINE void huge_pieces_set_count(struct huge_cache *cache, unsigned count) {
    __atomic_store_n(&cache->count, count, __ATOMIC_RELAXED);
}

// Notes that a piece of a still room has been added.
MALLOW_INTERNAL void huge_pieces_note_added(struct huge_cache *cache, unsigned number);

// Puts a range on the list, not yet in the index; its number.
MALLOW_INLINE unsigned huge_pieces_add(struct huge_cache *cache, struct huge_mapping piece) {
    const unsigned number = bits_lowest(~cache->index->used);
    cache->pieces[number] = piece;
    huge_pieces_set_count(cache, cache->count + 1);
    if (unlikely(cache->room.still)) {
        huge_pieces_note_added(cache, number);
    }
    return number;
}

// Keeps a range that is nowhere hollow, as it is: a loose piece. There is a place.
MALLOW_INLINE void huge_pieces_keep_loose(struct huge_cache *cache, struct huge_mapping piece) {
    huge_pieces_count_more(cache, piece.bytes);
    const unsigned number = huge_pieces_add(cache, piece);
    huge_index_add_loose(cache->index, piece, number);
    huge_pieces_set_loose(cache, cache->loose | UINT64_C(1) << number);
}

// Keeps a range, joined with those that it touches. There is a place.
MALLOW_INTERNAL void huge_pieces_keep(struct huge_cache *cache, struct huge_mapping piece);
MALLOW_INTERNAL void huge_pieces_keep_hollow(struct huge_cache *cache, struct huge_mapping piece,
                                             struct huge_extent hollow);

// A piece has no pages from now on.
MALLOW_INTERNAL void huge_pieces_hollow_out(struct huge_cache *cache, unsigned number);

// How many bytes of a piece are hollow; only in a still room any are.
MALLOW_INLINE size_t huge_pieces_hollow(const struct huge_cache *cache, unsigned number) {
    return likely(!cache->room.still) ? 0 : cache->hollow[number].end - cache->hollow[number].start;
}

// The same of its first `bytes` bytes.
MALLOW_INTERNAL size_t huge_pieces_hollow_first_still(const struct huge_cache *cache,
                                                      unsigned number, size_t bytes);
MALLOW_INLINE size_t huge_pieces_hollow_first(const struct huge_cache *cache, unsigned number,
                                              size_t bytes) {
    return likely(!cache->room.still) ? 0 : huge_pieces_hollow_first_still(cache, number, bytes);
}

// Takes a piece off the list, and what is counted stays.
MALLOW_INTERNAL struct huge_mapping huge_pieces_take(struct huge_cache *cache, unsigned number);

// The same, and off the count.
MALLOW_INLINE struct huge_mapping huge_pieces_remove(struct huge_cache *cache, unsigned number) {
    const size_t hollow = huge_pieces_hollow(cache, number);
    const struct huge_mapping piece = huge_pieces_take(cache, number);
    huge_pieces_count_less(cache, piece.bytes - hollow);
    return piece;
}

// Takes [start, end), with which a piece begins or ends, off the count; the caller cuts the piece.
MALLOW_INTERNAL void huge_pieces_count_cut_still(struct huge_cache *cache, unsigned number,
                                                 uintptr_t start, uintptr_t end);
MALLOW_INLINE void huge_pieces_count_cut(struct huge_cache *cache, unsigned number,
                                         uintptr_t start, uintptr_t end) {
    if (likely(!cache->room.still)) {
        huge_pieces_count_less(cache, end - start);
    } else {
        huge_pieces_count_cut_still(cache, number, start, end);
    }
}

// What lies behind the hollow part of a piece; if nothing does, what lies before it. The piece
// counts.
MALLOW_INTERNAL struct huge_extent huge_pieces_last_pages(const struct huge_cache *cache,
                                                          unsigned number);

// Of a still room: a piece to be given back where so many bytes are to be. One that counts, outside
// of the room if there is such a one; of the first few of these one that counts for no more than it
// has to, else for most. HUGE_INDEX_NONE: no piece counts.
MALLOW_INTERNAL unsigned huge_pieces_to_give(const struct huge_cache *cache, size_t bytes);

// Of a still room: a piece that is of no use, or less than its place: one that is hollow all over
// and outside of the room, if there is such a one; else one that is hollow, or too small for any
// block. The smallest of a few, and not `but`. HUGE_INDEX_NONE: there is none.
MALLOW_INTERNAL unsigned huge_pieces_useless(const struct huge_cache *cache, unsigned but);

// The room is still, or another, from now on: no piece is of it.
MALLOW_INLINE void huge_pieces_set_apart(struct huge_cache *cache, bool all_count) {
    cache->counting = all_count ? cache->index->used : cache->counting;
    cache->apart = cache->index->used;
}

#endif
