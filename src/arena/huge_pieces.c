// SPDX-License-Identifier: MIT
// Huge pieces: see huge_pieces.h.
#include "arena/huge_pieces.h"

#include "base/bits.h"

static void pieces_set_loose(struct huge_cache *cache, uint64_t loose) {
    __atomic_store_n(&cache->loose, loose, __ATOMIC_RELAXED);
}

static void pieces_set_count(struct huge_cache *cache, unsigned count) {
    __atomic_store_n(&cache->count, count, __ATOMIC_RELAXED);
}

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

MALLOW_INTERNAL size_t huge_pieces_hollow_first(const struct huge_cache *cache, unsigned number,
                                                size_t bytes) {
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

// The number that it gets.
static unsigned pieces_add(struct huge_cache *cache, struct huge_mapping piece) {
    const unsigned number = bits_lowest(~cache->index->used);
    cache->pieces[number] = piece;
    pieces_set_count(cache, cache->count + 1);
    return number;
}

MALLOW_INTERNAL struct huge_mapping huge_pieces_take(struct huge_cache *cache, unsigned number) {
    const struct huge_mapping piece = cache->pieces[number];
    huge_index_remove(cache->index, piece, number);
    cache->pieces[number] = (struct huge_mapping){0, 0, HUGE_ONE};
    cache->hollow[number] = (struct huge_extent){0, 0};
    pieces_set_count(cache, cache->count - 1);
    if (unlikely(cache->loose != 0)) {
        pieces_set_loose(cache, cache->loose & ~(UINT64_C(1) << number));
    }
    return piece;
}

MALLOW_INTERNAL struct huge_mapping huge_pieces_remove(struct huge_cache *cache, unsigned number) {
    const size_t hollow = huge_pieces_hollow(cache, number);
    const struct huge_mapping piece = huge_pieces_take(cache, number);
    huge_pieces_count_less(cache, piece.bytes - hollow);
    return piece;
}

MALLOW_INTERNAL void huge_pieces_count_cut(struct huge_cache *cache, unsigned number,
                                           uintptr_t start, uintptr_t end) {
    struct huge_extent *const hollow = &cache->hollow[number];
    const size_t without = hollow_within(*hollow, start, end);
    huge_pieces_count_less(cache, end - start - without);
    if (unlikely(without != 0)) {
        *hollow = start == cache->pieces[number].address
                      ? (struct huge_extent){end, bits_max(hollow->end, end)}
                      : (struct huge_extent){bits_min(hollow->start, start), start};
    }
}

MALLOW_INTERNAL unsigned huge_pieces_fullest(const struct huge_cache *cache, size_t bytes) {
    const size_t enough = bits_max(bytes, 1);
    unsigned found = HUGE_INDEX_NONE;
    size_t best = 0;
    for (uint64_t rest = cache->index->used; rest != 0; rest &= rest - 1) {
        const unsigned number = bits_lowest(rest);
        const size_t kept = cache->pieces[number].bytes - huge_pieces_hollow(cache, number);
        if (best < enough ? kept > best : kept >= enough && kept < best) {
            best = kept;
            found = number;
        }
    }
    return found;
}

// ---- Keeping ------------------------------------------------------------------------------------

// Whether a piece before the front of the room is to be one with what lies there.
MALLOW_INLINE bool pieces_return(const struct huge_cache *cache, struct huge_mapping piece,
                                 struct huge_extent hollow) {
    return piece.address + piece.bytes == cache->room.front &&
           (likely(hollow_bytes(hollow) == 0) ||
            (hollow_bytes(hollow) == piece.bytes && huge_cache_gathered(cache) == 0));
}

static void pieces_set_front(struct huge_cache *cache, uintptr_t front,
                             struct huge_extent hollow) {
    cache->room.front = front;
    if (unlikely(hollow_bytes(hollow) != 0)) {
        cache->room.tail = front;
    }
}

// Makes a piece one with a range that begins where it ends.
static void pieces_append(struct huge_cache *cache, unsigned number, struct huge_mapping range,
                          struct huge_extent range_hollow) {
    struct huge_mapping *const piece = &cache->pieces[number];
    const struct huge_extent hollow = hollow_join(cache, cache->hollow[number], range_hollow);
    huge_index_end_at(cache->index, *piece, range.address + range.bytes, number);
    piece->bytes += range.bytes;
    piece->parts = huge_parts_of(piece->parts, range.parts);
    cache->hollow[number] = hollow;
    if (unlikely(pieces_return(cache, *piece, hollow))) {
        pieces_set_front(cache, huge_pieces_take(cache, number).address, hollow);
    }
}

// The same of one that ends where it begins.
static void pieces_prepend(struct huge_cache *cache, unsigned number, struct huge_mapping range,
                           struct huge_extent hollow) {
    struct huge_mapping *const piece = &cache->pieces[number];
    huge_index_begin_at(cache->index, *piece, range.address, number);
    piece->address = range.address;
    piece->bytes += range.bytes;
    piece->parts = huge_parts_of(piece->parts, range.parts);
    cache->hollow[number] = hollow_join(cache, cache->hollow[number], hollow);
}

MALLOW_INTERNAL void huge_pieces_keep_loose(struct huge_cache *cache, struct huge_mapping piece) {
    huge_pieces_count_more(cache, piece.bytes);
    const unsigned number = pieces_add(cache, piece);
    huge_index_add_loose(cache->index, piece, number);
    pieces_set_loose(cache, cache->loose | UINT64_C(1) << number);
}

MALLOW_INTERNAL void huge_pieces_keep_hollow(struct huge_cache *cache, struct huge_mapping piece,
                                             struct huge_extent hollow) {
    huge_pieces_count_more(cache, piece.bytes - hollow_bytes(hollow));
    // Mappings of the kernel's that touch are one, unless pages have been moved to them.
    const unsigned before = huge_index_ending(cache->index, cache->pieces, piece.address);
    const unsigned behind =
        huge_index_starting(cache->index, cache->pieces, piece.address + piece.bytes);
    if (before != HUGE_INDEX_NONE) {
        if (behind != HUGE_INDEX_NONE) {
            hollow = hollow_join(cache, hollow, cache->hollow[behind]);
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
        const unsigned number = pieces_add(cache, piece);
        huge_index_add(cache->index, piece, number);
        cache->hollow[number] = hollow;
    }
}
