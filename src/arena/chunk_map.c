// SPDX-License-Identifier: MIT
// Chunk map: see chunk_map.h.
#include "arena/chunk_map.h"

#include "base/bits.h"
#include "base/check.h"

// How many of the run rows a chunk belongs to: its longest run decides, and the rows below follow.
MALLOW_INLINE unsigned map_run_rows(uint32_t runs) {
    if (runs == 0) {
        return 0;
    }
    runs &= runs >> 1;
    if (runs == 0) {
        return 1;
    }
    runs &= runs >> 2;
    if (runs == 0) {
        return 2;
    }
    runs &= runs >> 4;
    if (runs == 0) {
        return 3;
    }
    runs &= runs >> 8;
    if (runs == 0) {
        return 4;
    }
    return (runs & (runs >> 16)) == 0 ? 5 : 6;
}

static_assert(CHUNK_MAP_RUN_ROWS == 6 && MALLOW_CHUNK_SLICES == 32, "one step a row");

// Where a chunk is in the map.
struct map_at {
    struct chunk_group *group;
    unsigned group_index;
    unsigned index; // in the group
};

MALLOW_INLINE struct map_at map_at(const struct chunk_map *map, unsigned chunk_index) {
    const unsigned group_index = chunk_index / CHUNK_GROUP_CHUNKS;
    return (struct map_at){chunk_map_group(map, group_index), group_index,
                           chunk_index % CHUNK_GROUP_CHUNKS};
}

MALLOW_INLINE struct chunk *map_chunk(struct map_at at) {
    return &at.group->chunks[at.index];
}

// The places of a chunk's bits in the bitmaps.
struct map_bits {
    uint64_t *group;   // its group's rows
    uint64_t *summary; // the summary word of row 0; those of the others follow at a distance
    uint64_t chunk_bit;
    uint64_t group_bit;
};

MALLOW_INLINE struct map_bits map_bits_of(struct chunk_map *map, struct map_at at) {
    return (struct map_bits){at.group->rows, &map->summary[0][at.group_index / 64],
                             UINT64_C(1) << at.index, UINT64_C(1) << (at.group_index % 64)};
}

MALLOW_INLINE void map_set_row(struct map_bits bits, unsigned row) {
    bits.group[row] |= bits.chunk_bit;
    bits.summary[(size_t)row * MALLOW_ARENA_SUMMARY_WORDS] |= bits.group_bit;
}

// Of a row that the chunk is in. True: the group has no chunk in the row any more.
MALLOW_INLINE bool map_clear_row(struct map_bits bits, unsigned row) {
    if (!compiler_flip_to_zero(bits.group[row], bits.chunk_bit)) {
        return false;
    }
    bits.summary[(size_t)row * MALLOW_ARENA_SUMMARY_WORDS] ^= bits.group_bit;
    return true;
}

// Takes a chunk out of the rows that it is in and, with these runs, should not be: a chunk is in
// the rows up to that of its longest run. A bit for each row of which its group has no chunk left.
MALLOW_INLINE unsigned map_leave_rows(struct map_bits bits, uint32_t runs) {
    const unsigned first = map_run_rows(runs);
    unsigned emptied = 0;
    MALLOW_UNROLL_8 // so that a row is a few instructions
    for (unsigned row = 0; row < CHUNK_MAP_RUN_ROWS; row++) {
        if (row >= first) {
            if ((bits.group[row] & bits.chunk_bit) == 0) {
                break;
            }
            if (map_clear_row(bits, row)) {
                emptied |= 1U << row;
            }
        }
    }
    return emptied;
}

// Brings it into the rows that it should be in and is not: the uppermost ones.
MALLOW_INLINE void map_enter_rows(struct map_bits bits, uint32_t runs) {
    const unsigned end = map_run_rows(runs);
    MALLOW_UNROLL_8
    for (unsigned row = CHUNK_MAP_RUN_ROWS; row > 0; row--) {
        if (row <= end) {
            if ((bits.group[row - 1] & bits.chunk_bit) != 0) {
                break;
            }
            map_set_row(bits, row - 1);
        }
    }
}

// Takes slices away from a chunk's masks, and brings the bitmaps in line. As map_leave_rows.
MALLOW_INLINE unsigned map_take(struct map_bits bits, struct chunk *chunk, uint32_t span) {
    const uint32_t free_mask = chunk->free_mask & ~span;
    const uint32_t dirty_before = chunk->dirty_mask;
    uint32_t dirty_mask = dirty_before & ~span;
    chunk->free_mask = free_mask;
    compiler_forget(dirty_mask); // two stores, not a vector that has to be put together
    chunk->dirty_mask = dirty_mask;
    if (dirty_mask == 0 && dirty_before != 0) {
        (void)map_clear_row(bits, CHUNK_MAP_DIRTY_ROW);
    }
    return map_leave_rows(bits, free_mask);
}

// Adds slices to them.
MALLOW_INLINE void map_add(struct chunk_map *map, unsigned chunk_index, uint32_t free_slices,
                           uint32_t dirty_slices) {
    const struct map_at at = map_at(map, chunk_index);
    struct chunk *const chunk = map_chunk(at);
    const struct map_bits bits = map_bits_of(map, at);
    const uint32_t free_mask = chunk->free_mask | free_slices;
    const uint32_t dirty_before = chunk->dirty_mask;
    uint32_t dirty_mask = dirty_before | dirty_slices;
    check_assert((dirty_slices & ~free_slices) == 0 && (chunk->free_mask & free_slices) == 0);
    chunk->free_mask = free_mask;
    compiler_forget(dirty_mask);
    chunk->dirty_mask = dirty_mask;
    if (dirty_before == 0 && dirty_mask != 0) {
        map_set_row(bits, CHUNK_MAP_DIRTY_ROW);
    }
    map_enter_rows(bits, free_mask);
}

// The same, but for who gives spans back.
static MALLOW_NOINLINE void map_add_elsewhere(struct chunk_map *map, unsigned chunk_index,
                                              uint32_t free_slices, uint32_t dirty_slices) {
    map_add(map, chunk_index, free_slices, dirty_slices);
}

// map_enter_rows of a chunk that is in few of them as yet, if in any: row by row from below.
MALLOW_INLINE void map_fill_rows(struct map_bits bits, uint32_t runs) {
    map_set_row(bits, 0);
    runs &= runs >> 1;
    if (runs == 0) {
        return;
    }
    map_set_row(bits, 1);
    runs &= runs >> 2;
    if (runs == 0) {
        return;
    }
    map_set_row(bits, 2);
    runs &= runs >> 4;
    if (runs == 0) {
        return;
    }
    map_set_row(bits, 3);
    runs &= runs >> 8;
    if (runs == 0) {
        return;
    }
    map_set_row(bits, 4);
    if ((runs & (runs >> 16)) != 0) {
        map_set_row(bits, 5);
    }
}

MALLOW_INTERNAL bool chunk_map_next(const struct chunk_map *map, unsigned row, unsigned from,
                                    unsigned *chunk_index) {
    if (from >= map->chunk_count) {
        return false;
    }
    unsigned group_index = from / 64;
    const uint64_t here =
        chunk_map_group(map, group_index)->rows[row] & (~UINT64_C(0) << (from % 64));
    if (here != 0) {
        *chunk_index = group_index * 64 + bits_lowest(here);
        return true;
    }
    group_index++;
    for (unsigned word = group_index / 64; word < map->word_count; word++) {
        uint64_t summary = map->summary[row][word];
        if (word == group_index / 64) {
            summary &= ~UINT64_C(0) << (group_index % 64);
        }
        if (summary != 0) {
            const unsigned group = word * 64 + bits_lowest(summary);
            *chunk_index = group * 64 + bits_lowest(chunk_map_group(map, group)->rows[row]);
            return true;
        }
    }
    return false;
}

// Where in a chunk such a span could begin: with a dirty slice if there is such a place.
MALLOW_INLINE uint32_t map_starts(const struct chunk *chunk, unsigned slice_count,
                                  uint32_t aligned) {
    const uint32_t starts = chunk_mask_runs(chunk->free_mask, slice_count) & aligned;
    const uint32_t dirty = starts & chunk->dirty_mask;
    return dirty != 0 ? dirty : starts;
}

MALLOW_INTERNAL struct chunk_place chunk_map_find_in(const struct chunk_map *map,
                                                     unsigned chunk_index, unsigned slice_count,
                                                     unsigned align_slices) {
    const uint32_t starts = map_starts(chunk_map_chunk(map, chunk_index), slice_count,
                                       chunk_mask_aligned(align_slices));
    return starts != 0 ? (struct chunk_place){true, chunk_index, bits_lowest(starts)}
                       : (struct chunk_place){false, 0, 0};
}

// The first chunk that has a bit in `row`; false if none.
MALLOW_INLINE bool map_first(const struct chunk_map *map, unsigned row, struct map_at *at) {
    if (likely((map->summary[row][0] & 1U) != 0)) { // all that most programs have
        *at = (struct map_at){chunk_map_group(map, 0), 0, bits_lowest(map->first.rows[row])};
        return true;
    }
    unsigned word = 0;
    uint64_t summary = map->summary[row][0];
    while (summary == 0) {
        if (++word >= map->word_count) {
            return false;
        }
        summary = map->summary[row][word];
    }
    at->group_index = word * 64 + bits_lowest(summary);
    at->group = &map->more[at->group_index - 1]; // not the first
    at->index = bits_lowest(at->group->rows[row]);
    return true;
}

MALLOW_INTERNAL bool chunk_map_has(const struct chunk_map *map, unsigned row) {
    unsigned word = 0;
    while (map->summary[row][word] == 0) {
        if (++word >= map->word_count) {
            return false;
        }
    }
    return true;
}

// Where a single slice is, and one of a free span's begins: a bit at least, or 0 if there is none.
MALLOW_INLINE uint32_t map_find_slice(const struct chunk_map *map, struct map_at *at) {
    if (map_first(map, CHUNK_MAP_DIRTY_ROW, at)) {
        return map_chunk(*at)->dirty_mask;
    }
    return map_first(map, 0, at) ? map_chunk(*at)->free_mask : 0;
}

// The same of a span. The first chunk of the row below may fit, that of the row above certainly
// does (whatever the alignment, in its last row).
MALLOW_INLINE uint32_t map_find_span(const struct chunk_map *map, unsigned slice_count,
                                     unsigned align_slices, struct map_at *at) {
    const uint32_t aligned = chunk_mask_aligned(align_slices);
    const unsigned below = bits_highest(slice_count);
    if (!map_first(map, below, at)) {
        return 0; // nor is a chunk in a row above
    }
    const uint32_t starts = map_starts(map_chunk(*at), slice_count, aligned);
    if (starts != 0) {
        return starts;
    }
    const unsigned wanted = align_slices == 1 ? below + 1 // a power of two would have been found
                                              : bits_log2_ceil(slice_count + align_slices - 1);
    const unsigned certain = (unsigned)bits_min(wanted, CHUNK_MAP_RUN_ROWS - 1);
    return certain != below && map_first(map, certain, at)
               ? map_starts(map_chunk(*at), slice_count, aligned)
               : 0;
}

MALLOW_INLINE uint32_t map_find(const struct chunk_map *map, unsigned slice_count,
                                unsigned align_slices, struct map_at *at) {
    return slice_count == 1 && align_slices == 1
               ? map_find_slice(map, at)
               : map_find_span(map, slice_count, align_slices, at);
}

// How many of the slices of a span, which begins at `slice_index`, are dirty.
MALLOW_INLINE unsigned map_count_dirty(uint32_t dirty, uint32_t span, unsigned slice_index,
                                       unsigned slice_count) {
    if (dirty == 0 || dirty == span) {
        return dirty == 0 ? 0 : slice_count;
    }
    return slice_count <= BITS_FEW ? bits_count_few(dirty >> slice_index)
                                   : bits_count_half(dirty);
}

MALLOW_INLINE bool map_find_and_take(struct chunk_map *map, unsigned slice_count,
                                     unsigned align_slices, struct chunk_taken *taken) {
    struct map_at at;
    const uint32_t starts = map_find(map, slice_count, align_slices, &at);
    if (unlikely(starts == 0)) {
        return false;
    }
    struct chunk *const chunk = map_chunk(at);
    const unsigned slice_index = bits_lowest(starts);
    const uint32_t span = chunk_mask_span(slice_index, slice_count);
    const uint32_t dirty = chunk->dirty_mask & span;
    taken->chunk_index = at.group_index * CHUNK_GROUP_CHUNKS + at.index;
    taken->slice_index = slice_index;
    taken->dirty_mask = dirty;
    taken->dirty_count = map_count_dirty(dirty, span, slice_index, slice_count);
    taken->emptied = map_take(map_bits_of(map, at), chunk, span);
    return true;
}

MALLOW_INTERNAL MALLOW_NO_FOLD bool
chunk_map_find_and_take(struct chunk_map *map, unsigned slice_count, unsigned align_slices,
                        struct chunk_taken *taken) {
    return map_find_and_take(map, slice_count, align_slices, taken);
}

MALLOW_INTERNAL MALLOW_NO_FOLD bool
chunk_map_take_elsewhere(struct chunk_map *map, unsigned slice_count, unsigned align_slices,
                         struct chunk_taken *taken) {
    return map_find_and_take(map, slice_count, align_slices, taken);
}

MALLOW_INTERNAL void chunk_map_untake(struct chunk_map *map, unsigned slice_count,
                                      const struct chunk_taken *taken) {
    map_add_elsewhere(map, taken->chunk_index, chunk_mask_span(taken->slice_index, slice_count),
                      taken->dirty_mask);
}

MALLOW_INTERNAL unsigned chunk_map_dirty(const struct chunk_map *map, unsigned chunk_index,
                                         unsigned slice_index, unsigned slice_count) {
    const uint32_t span = chunk_mask_span(slice_index, slice_count);
    return map_count_dirty(chunk_map_chunk(map, chunk_index)->dirty_mask & span, span,
                           slice_index, slice_count);
}

MALLOW_INTERNAL void chunk_map_take(struct chunk_map *map, unsigned chunk_index,
                                    unsigned slice_index, unsigned slice_count) {
    const struct map_at at = map_at(map, chunk_index);
    const uint32_t span = chunk_mask_span(slice_index, slice_count);
    check_assert((map_chunk(at)->free_mask & span) == span);
    (void)map_take(map_bits_of(map, at), map_chunk(at), span);
}

MALLOW_INTERNAL void chunk_map_open(struct chunk_map *map, unsigned chunk_index, uint32_t slices) {
    const unsigned word_count = chunk_index / 64 / 64 + 1;
    const struct map_at at = map_at(map, chunk_index);
    struct chunk *const chunk = map_chunk(at);
    map->word_count = word_count > map->word_count ? word_count : map->word_count;
    check_assert((chunk->free_mask & slices) == 0);
    chunk->free_mask |= slices;
    if (likely(chunk->free_mask != 0)) { // or the span that it is opened for is all of it
        map_fill_rows(map_bits_of(map, at), chunk->free_mask);
    }
}

MALLOW_INTERNAL void chunk_map_give(struct chunk_map *map, unsigned chunk_index,
                                    unsigned slice_index, unsigned slice_count, bool dirty) {
    const uint32_t span = chunk_mask_span(slice_index, slice_count);
    map_add(map, chunk_index, span, dirty ? span : 0);
}

MALLOW_INTERNAL MALLOW_NO_FOLD void chunk_map_give_elsewhere(struct chunk_map *map,
                                                            unsigned chunk_index,
                                                            unsigned slice_index,
                                                            unsigned slice_count, bool dirty) {
    const uint32_t span = chunk_mask_span(slice_index, slice_count);
    map_add_elsewhere(map, chunk_index, span, dirty ? span : 0);
}

MALLOW_INTERNAL void chunk_map_clean(struct chunk_map *map, unsigned chunk_index,
                                     unsigned slice_index, unsigned slice_count) {
    const struct map_at at = map_at(map, chunk_index);
    struct chunk *const chunk = map_chunk(at);
    const uint32_t before = chunk->dirty_mask;
    chunk->dirty_mask = before & ~chunk_mask_span(slice_index, slice_count);
    if (before != 0 && chunk->dirty_mask == 0) {
        (void)map_clear_row(map_bits_of(map, at), CHUNK_MAP_DIRTY_ROW);
    }
}
