// SPDX-License-Identifier: MIT
// Huge pieces: see huge_pieces.h.
#include "arena/huge_pieces.h"

enum { PIECES_LOOKS = 4 }; // at pieces that might be given back

MALLOW_INTERNAL void huge_pieces_count_more(struct huge_cache *cache, size_t bytes) {
    cache->bytes += bytes;
    if (cache->bytes > MALLOW_WORK_BYTES) {
        os_raise_work(cache->os);
    }
}

MALLOW_INTERNAL void huge_pieces_count_less(struct huge_cache *cache, size_t bytes) {
    cache->bytes -= bytes;
    cache->bytes_low = bits_min(cache->bytes_low, cache->bytes);
}

MALLOW_INTERNAL MALLOW_NOINLINE bool huge_cache_keeps_space_still(const struct huge_cache *cache,
                                                                  struct huge_mapping range) {
    return huge_cache_in_room(cache, range) && !huge_pieces_are_full(cache) &&
           !huge_is_limited(cache->os);
}

// ---- Hollow parts -------------------------------------------------------------------------------

MALLOW_INLINE size_t hollow_bytes(struct huge_extent hollow) {
    return hollow.end - hollow.start;
}

static size_t hollow_within(struct huge_extent hollow, uintptr_t start, uintptr_t end) {
    const uintptr_t from = bits_max(hollow.start, start);
    return bits_max(bits_min(hollow.end, end), from) - from;
}

// Of two ranges side by side: both parts, if they touch; else the larger, and the other one counts.
static struct huge_extent hollow_join(struct huge_cache *cache, struct huge_extent a,
                                      struct huge_extent b) {
    if (likely(hollow_bytes(b) == 0)) {
        return a;
    }
    if (hollow_bytes(a) == 0) {
        return b;
    }
    if (a.end == b.start || b.end == a.start) {
        return (struct huge_extent){bits_min(a.start, b.start), bits_max(a.end, b.end)};
    }
    huge_pieces_count_more(cache, bits_min(hollow_bytes(a), hollow_bytes(b)));
    return hollow_bytes(a) >= hollow_bytes(b) ? a : b;
}

MALLOW_INTERNAL size_t huge_pieces_hollow_first_still(const struct huge_cache *cache,
                                                      unsigned number, size_t bytes) {
    const uintptr_t start = cache->pieces[number].address;
    return hollow_within(cache->hollow[number], start, start + bytes);
}

MALLOW_INTERNAL struct huge_extent huge_pieces_last_pages(const struct huge_cache *cache,
                                                          unsigned number) {
    const struct huge_mapping piece = cache->pieces[number];
    const struct huge_extent hollow = cache->hollow[number];
    const uintptr_t end = piece.address + piece.bytes;
    return hollow_bytes(hollow) != 0 && hollow.end == end
               ? (struct huge_extent){piece.address, hollow.start}
               : (struct huge_extent){bits_max(piece.address, hollow.end), end};
}

// ---- The list -----------------------------------------------------------------------------------

MALLOW_INTERNAL MALLOW_NOINLINE void huge_pieces_note_added(struct huge_cache *cache,
                                                            unsigned number) {
    const bool apart = !huge_cache_in_room(cache, cache->pieces[number]);
    cache->counting |= UINT64_C(1) << number;
    cache->apart |= (uint64_t)apart << number;
}

static MALLOW_NOINLINE void pieces_note_taken(struct huge_cache *cache, unsigned number) {
    cache->hollow[number] = huge_no_extent;
    cache->counting &= ~(UINT64_C(1) << number);
    cache->apart &= ~(UINT64_C(1) << number);
}

MALLOW_INTERNAL struct huge_mapping huge_pieces_take(struct huge_cache *cache, unsigned number) {
    const struct huge_mapping piece = cache->pieces[number];
    huge_index_remove(cache->index, piece, number);
    cache->pieces[number] = (struct huge_mapping){0, 0, HUGE_ONE};
    huge_pieces_set_count(cache, cache->count - 1);
    if (unlikely(cache->loose != 0)) {
        huge_pieces_set_loose(cache, cache->loose & ~(UINT64_C(1) << number));
    }
    if (unlikely(cache->room.still)) {
        pieces_note_taken(cache, number);
    }
    return piece;
}

MALLOW_INTERNAL void huge_pieces_set(struct huge_cache *cache, unsigned number,
                                     struct huge_mapping piece) {
    huge_index_remove(cache->index, cache->pieces[number], number);
    cache->pieces[number] = piece;
    huge_index_add(cache->index, piece, number);
}

// What of a piece, which has so many bytes now, is hollow.
static void pieces_set_hollow(struct huge_cache *cache, unsigned number, size_t piece_bytes,
                              struct huge_extent hollow) {
    const uint64_t counts = hollow_bytes(hollow) != piece_bytes;
    // None is nowhere: no pages are looked for behind it.
    cache->hollow[number] = hollow_bytes(hollow) != 0 ? hollow : huge_no_extent;
    cache->counting = (cache->counting & ~(UINT64_C(1) << number)) | counts << number;
}

MALLOW_INTERNAL MALLOW_NOINLINE void huge_pieces_count_cut_still(struct huge_cache *cache,
                                                                 unsigned number, uintptr_t start,
                                                                 uintptr_t end) {
    const struct huge_mapping piece = cache->pieces[number];
    const struct huge_extent hollow = cache->hollow[number];
    huge_pieces_count_less(cache, end - start - hollow_within(hollow, start, end));
    if (hollow_bytes(hollow) != 0) {
        const bool first = start == piece.address;
        const struct huge_extent rest = {
            first ? bits_max(hollow.start, end) : bits_min(hollow.start, start),
            first ? bits_max(hollow.end, end) : bits_min(hollow.end, start)};
        pieces_set_hollow(cache, number, piece.bytes - (end - start), rest);
    }
}

MALLOW_INTERNAL MALLOW_NOINLINE unsigned huge_pieces_to_give(const struct huge_cache *cache,
                                                             size_t bytes) {
    const size_t enough = bits_max(bytes, 1);
    const uint64_t first = cache->counting & cache->apart;
    uint64_t rest = first != 0 ? first : cache->counting;
    unsigned found = HUGE_INDEX_NONE;
    size_t best = 0;
    for (unsigned looks = PIECES_LOOKS; rest != 0 && looks != 0; looks--) {
        const unsigned number = bits_lowest(rest);
        const size_t counted = cache->pieces[number].bytes - huge_pieces_hollow(cache, number);
        if (best < enough ? counted > best : counted >= enough && counted < best) {
            best = counted;
            found = number;
        }
        rest &= rest - 1;
    }
    return found;
}

MALLOW_INTERNAL MALLOW_NOINLINE unsigned huge_pieces_useless(const struct huge_cache *cache,
                                                             unsigned but) {
    if (cache->pieces == NULL) {
        return HUGE_INDEX_NONE;
    }
    const uint64_t others =
        but != HUGE_INDEX_NONE ? cache->index->used & ~(UINT64_C(1) << but) : cache->index->used;
    const uint64_t empty = others & ~cache->counting & cache->apart;
    uint64_t rest = empty != 0 ? empty : others & (~cache->counting | cache->index->by_size[0]);
    unsigned found = HUGE_INDEX_NONE;
    for (unsigned looks = PIECES_LOOKS; rest != 0 && looks != 0; looks--) {
        const unsigned number = bits_lowest(rest);
        if (found == HUGE_INDEX_NONE || cache->pieces[number].bytes < cache->pieces[found].bytes) {
            found = number;
        }
        rest &= rest - 1;
    }
    return found;
}

// ---- Keeping ------------------------------------------------------------------------------------

// Whether a range is to be one with what lies behind it in the room: that is pages, or both have
// none.
MALLOW_INLINE bool pieces_return(const struct huge_cache *cache, struct huge_mapping range,
                                 struct huge_extent hollow) {
    return range.address + range.bytes == cache->room.front &&
           (likely(hollow_bytes(hollow) == 0) ||
            (hollow_bytes(hollow) == range.bytes && huge_cache_gathered(cache) == 0));
}

static void pieces_set_front(struct huge_cache *cache, uintptr_t front,
                             struct huge_extent hollow) {
    cache->room.front = front;
    if (unlikely(hollow_bytes(hollow) != 0)) {
        cache->room.tail = front;
    }
}

// Makes a piece one with a range that begins where it ends.
MALLOW_INLINE void pieces_append(struct huge_cache *cache, unsigned number,
                                 struct huge_mapping range, struct huge_extent hollow) {
    struct huge_mapping *const piece = &cache->pieces[number];
    huge_index_end_at(cache->index, *piece, range.address + range.bytes, number);
    piece->bytes += range.bytes;
    piece->parts = huge_parts_of(piece->parts, range.parts);
    if (unlikely(cache->room.still)) {
        hollow = hollow_join(cache, cache->hollow[number], hollow);
        pieces_set_hollow(cache, number, piece->bytes, hollow);
    }
    if (unlikely(pieces_return(cache, *piece, hollow))) {
        pieces_set_front(cache, huge_pieces_take(cache, number).address, hollow);
    }
}

// The same of one that ends where it begins.
MALLOW_INLINE void pieces_prepend(struct huge_cache *cache, unsigned number,
                                  struct huge_mapping range, struct huge_extent hollow) {
    struct huge_mapping *const piece = &cache->pieces[number];
    huge_index_begin_at(cache->index, *piece, range.address, number);
    piece->address = range.address;
    piece->bytes += range.bytes;
    piece->parts = huge_parts_of(piece->parts, range.parts);
    if (unlikely(cache->room.still)) {
        hollow = hollow_join(cache, cache->hollow[number], hollow);
        pieces_set_hollow(cache, number, piece->bytes, hollow);
    }
}

MALLOW_INLINE void pieces_keep(struct huge_cache *cache, struct huge_mapping piece,
                               struct huge_extent hollow) {
    huge_pieces_count_more(cache, piece.bytes - hollow_bytes(hollow));
    // Mappings of the kernel's that touch are one, unless pages have been moved to them.
    const unsigned before = huge_index_ending(cache->index, cache->pieces, piece.address);
    const unsigned behind =
        huge_index_starting(cache->index, cache->pieces, piece.address + piece.bytes);
    if (before != HUGE_INDEX_NONE) {
        if (behind != HUGE_INDEX_NONE) {
            if (unlikely(cache->room.still)) {
                hollow = hollow_join(cache, hollow, cache->hollow[behind]);
            }
            const struct huge_mapping other = huge_pieces_take(cache, behind);
            piece.bytes += other.bytes;
            piece.parts = huge_parts_of(piece.parts, other.parts);
        }
        pieces_append(cache, before, piece, hollow);
    } else if (behind != HUGE_INDEX_NONE) {
        pieces_prepend(cache, behind, piece, hollow);
    } else if (pieces_return(cache, piece, hollow)) {
        // A block of the room came back before the next one went.
        pieces_set_front(cache, piece.address, hollow);
    } else {
        const unsigned number = huge_pieces_add(cache, piece);
        huge_index_add(cache->index, piece, number);
        if (unlikely(hollow_bytes(hollow) != 0)) {
            pieces_set_hollow(cache, number, piece.bytes, hollow);
        }
    }
}

MALLOW_INTERNAL void huge_pieces_keep(struct huge_cache *cache, struct huge_mapping piece) {
    pieces_keep(cache, piece, huge_no_extent);
}

MALLOW_INTERNAL MALLOW_NOINLINE void huge_pieces_keep_hollow(struct huge_cache *cache,
                                                             struct huge_mapping piece,
                                                             struct huge_extent hollow) {
    pieces_keep(cache, piece, hollow);
}

MALLOW_INTERNAL void huge_pieces_hollow_out(struct huge_cache *cache, unsigned number) {
    const struct huge_mapping piece = cache->pieces[number];
    const struct huge_extent all = {piece.address, piece.address + piece.bytes};
    huge_pieces_count_less(cache, piece.bytes - huge_pieces_hollow(cache, number));
    pieces_set_hollow(cache, number, piece.bytes, all);
    if (pieces_return(cache, piece, all)) {
        pieces_set_front(cache, huge_pieces_take(cache, number).address, all);
    }
}

// ---- Giving a part back -------------------------------------------------------------------------

MALLOW_INTERNAL struct huge_mapping huge_cache_cut_end(struct huge_cache *cache, size_t bytes) {
    const unsigned number = unlikely(cache->room.still) ? huge_pieces_to_give(cache, bytes)
                                                        : huge_pieces_last(cache);
    if (number == HUGE_INDEX_NONE) {
        return (struct huge_mapping){0, 0, HUGE_ONE};
    }
    struct huge_mapping piece = cache->pieces[number];
    const struct huge_extent pages = huge_pieces_last_pages(cache, number);
    const size_t part = huge_pieces_part(cache, pages.end - pages.start, bytes);
    struct huge_mapping end = huge_rest(piece, pages.end - part - piece.address);
    const struct huge_mapping behind = huge_rest(piece, pages.start - piece.address);
    const bool first = pages.start != piece.address && huge_cache_keeps_space(cache, behind);
    end = first ? behind : end;
    huge_pieces_count_cut(cache, number, end.address, end.address + end.bytes);
    piece.bytes -= end.bytes;
    if (piece.bytes == 0) {
        (void)huge_pieces_take(cache, number);
    } else {
        huge_pieces_set(cache, number, piece);
    }
    if (first && part < end.bytes) {
        huge_pieces_keep(cache, huge_rest(end, part));
        end.bytes = part;
    }
    return end;
}

MALLOW_INTERNAL void huge_cache_put_back(struct huge_cache *cache, struct huge_mapping end,
                                         bool purged) {
    if (unlikely(huge_pieces_are_full(cache))) {
        (void)os_unmap(cache->os, end.address, end.bytes); // or else it is lost
    } else {
        const struct huge_extent all = {end.address, end.address + end.bytes};
        huge_pieces_keep_hollow(cache, end, purged ? all : huge_no_extent);
    }
}
