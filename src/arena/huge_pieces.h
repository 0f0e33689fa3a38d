// SPDX-License-Identifier: MIT
// Huge pieces: the list of what the huge cache keeps; its parts that touch are one.
//
// Owns     the cache's list and index of pieces, what of each has no pages, and the count of bytes.
// Threads  under the lock of the huge set, as the cache.
// Holds    a piece is *hollow* where it is known to have no pages: one part of it at most. What is
//          counted is the rest, so never less than what there is.
//          A piece that ends at the room's front and is nowhere hollow is gathered; one that is
//          hollow all over, with nothing gathered, is address space of the room again.
//          No system call.
#ifndef MALLOW_ARENA_HUGE_PIECES_H
#define MALLOW_ARENA_HUGE_PIECES_H

#include "arena/huge_cache.h"

MALLOW_INLINE bool huge_pieces_are_full(const struct huge_cache *cache) {
    return cache->pieces == NULL || cache->count == MALLOW_HUGE_CACHE_COUNT;
}

// Adds to what is counted, and takes off it.
MALLOW_INTERNAL void huge_pieces_count_more(struct huge_cache *cache, size_t bytes);
MALLOW_INTERNAL void huge_pieces_count_less(struct huge_cache *cache, size_t bytes);

// Keeps a range that is nowhere hollow, as it is: a loose piece. There is a place.
MALLOW_INTERNAL void huge_pieces_keep_loose(struct huge_cache *cache, struct huge_mapping piece);

// Keeps a range, joined with those that it touches. There is a place.
MALLOW_INTERNAL void huge_pieces_keep_hollow(struct huge_cache *cache, struct huge_mapping piece,
                                             struct huge_extent hollow);
MALLOW_INLINE void huge_pieces_keep(struct huge_cache *cache, struct huge_mapping piece) {
    huge_pieces_keep_hollow(cache, piece, (struct huge_extent){0, 0});
}

// Takes a piece off the list, and what is counted stays.
MALLOW_INTERNAL struct huge_mapping huge_pieces_take(struct huge_cache *cache, unsigned number);

// The same, and off the count.
MALLOW_INTERNAL struct huge_mapping huge_pieces_remove(struct huge_cache *cache, unsigned number);

// Takes [start, end), with which a piece begins or ends, off the count; the caller cuts the piece.
MALLOW_INTERNAL void huge_pieces_count_cut(struct huge_cache *cache, unsigned number,
                                           uintptr_t start, uintptr_t end);

// How many bytes of a piece are hollow.
MALLOW_INLINE size_t huge_pieces_hollow(const struct huge_cache *cache, unsigned number) {
    return cache->hollow[number].end - cache->hollow[number].start;
}

// The same of its first `bytes` bytes.
MALLOW_INTERNAL size_t huge_pieces_hollow_first(const struct huge_cache *cache, unsigned number,
                                                size_t bytes);

// What lies behind the hollow part of a piece; if nothing does, what lies before it. The piece counts.
MALLOW_INTERNAL struct huge_extent huge_pieces_last_pages(const struct huge_cache *cache,
                                                          unsigned number);

// A piece that counts for at least so many bytes, one of the smallest of these; else the one that
// counts for most; HUGE_INDEX_NONE if none counts. Looks at all.
MALLOW_INTERNAL unsigned huge_pieces_fullest(const struct huge_cache *cache, size_t bytes);

#endif
