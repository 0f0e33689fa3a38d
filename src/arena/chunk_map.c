// SPDX-License-Identifier: MIT
// Chunk map: see chunk_map.h.
#include "arena/chunk_map.h"

#include "base/bits.h"
#include "base/check.h"

// How many of the run rows a chunk belongs to: its longest run decides, and the rows below follow.
MALLOW_INLINE unsigned map_run_rows(uint32_t runs) {
    unsigned rows = runs != 0;
    runs &= runs >> 1;
    rows += runs != 0;
    runs &= runs >> 2;
    rows += runs != 0;
    runs &= runs >> 4;
    rows += runs != 0;
    runs &= runs >> 8;
    rows += runs != 0;
    runs &= runs >> 16;
    return rows + (runs != 0);
}

static_assert(CHUNK_MAP_RUN_ROWS == 6 && MALLOW_CHUNK_SLICES == 32, "one step a row");

// The places of a chunk's bits in the bitmaps.
struct map_bits {
    uint64_t *group;   // its group's rows
    uint64_t *summary; // the summary word of row 0; those of the others follow at a distance
    uint64_t chunk_bit;
    uint64_t group_bit;
};

MALLOW_INLINE void map_set_row(struct map_bits bits, unsigned row) {
    bits.group[row] |= bits.chunk_bit;
    bits.summary[(size_t)row * MALLOW_ARENA_SUMMARY_WORDS] |= bits.group_bit;
}

MALLOW_INLINE void map_clear_row(struct map_bits bits, unsigned row) {
    bits.group[row] &= ~bits.chunk_bit;
    if (bits.group[row] == 0) {
        bits.summary[(size_t)row * MALLOW_ARENA_SUMMARY_WORDS] &= ~bits.group_bit;
    }
}

static struct map_bits map_bits_of(struct chunk_map *map, unsigned chunk_index) {
    const unsigned group_index = chunk_index / 64;
    return (struct map_bits){chunk_map_group(map, group_index)->rows,
                             &map->summary[0][group_index / 64],
                             UINT64_C(1) << (chunk_index % 64),
                             UINT64_C(1) << (group_index % 64)};
}

// Takes slices away from a chunk's masks, and brings the bitmaps in line: a chunk has the rows up
// to that of its longest run, so those that it loses are the ones above what is left.
static void map_remove(struct chunk_map *map, unsigned chunk_index, uint32_t free_slices,
                       uint32_t dirty_slices) {
    struct chunk *const chunk = chunk_map_chunk(map, chunk_index);
    const struct map_bits bits = map_bits_of(map, chunk_index);
    const uint32_t dirty_mask = chunk->dirty_mask;
    chunk->free_mask &= ~free_slices;
    chunk->dirty_mask &= ~dirty_slices;
    check_assert((chunk->dirty_mask & ~chunk->free_mask) == 0);
    if (dirty_mask != 0 && chunk->dirty_mask == 0) {
        map_clear_row(bits, CHUNK_MAP_DIRTY_ROW);
    }
    if (free_slices == 0) {
        return;
    }
    for (unsigned row = map_run_rows(chunk->free_mask);
         row < CHUNK_MAP_RUN_ROWS && (bits.group[row] & bits.chunk_bit) != 0; row++) {
        map_clear_row(bits, row);
    }
}

// Adds slices to a chunk's masks; the rows that it gains are the uppermost of those it has then.
static void map_add(struct chunk_map *map, unsigned chunk_index, uint32_t free_slices,
                    uint32_t dirty_slices) {
    struct chunk *const chunk = chunk_map_chunk(map, chunk_index);
    const struct map_bits bits = map_bits_of(map, chunk_index);
    check_assert((dirty_slices & ~free_slices) == 0 && (chunk->free_mask & free_slices) == 0);
    if (chunk->dirty_mask == 0 && dirty_slices != 0) {
        map_set_row(bits, CHUNK_MAP_DIRTY_ROW);
    }
    chunk->free_mask |= free_slices;
    chunk->dirty_mask |= dirty_slices;
    for (unsigned row = map_run_rows(chunk->free_mask);
         row > 0 && (bits.group[row - 1] & bits.chunk_bit) == 0; row--) {
        map_set_row(bits, row - 1);
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

static struct chunk_place map_place(unsigned chunk_index, uint32_t starts) {
    return (struct chunk_place){true, chunk_index, bits_lowest(starts)};
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
    return starts != 0 ? map_place(chunk_index, starts) : (struct chunk_place){false, 0, 0};
}

// The first chunk that has a bit in `row`; NULL if none.
MALLOW_INLINE const struct chunk *map_first(const struct chunk_map *map, unsigned row,
                                            unsigned *chunk_index) {
    for (unsigned word = 0; word < map->word_count; word++) {
        const uint64_t summary = map->summary[row][word];
        if (summary != 0) {
            const unsigned group_index = word * 64 + bits_lowest(summary);
            const struct chunk_group *const group = chunk_map_group(map, group_index);
            const unsigned index = bits_lowest(group->rows[row]);
            *chunk_index = group_index * 64 + index;
            return &group->chunks[index];
        }
    }
    return NULL;
}

MALLOW_INTERNAL bool chunk_map_has(const struct chunk_map *map, unsigned row) {
    for (unsigned word = 0; word < map->word_count; word++) {
        if (map->summary[row][word] != 0) {
            return true;
        }
    }
    return false;
}

static struct chunk_place map_find_slice(const struct chunk_map *map) {
    unsigned chunk_index;
    const struct chunk *chunk = map_first(map, CHUNK_MAP_DIRTY_ROW, &chunk_index);
    if (chunk != NULL) {
        return map_place(chunk_index, chunk->dirty_mask);
    }
    chunk = map_first(map, 0, &chunk_index);
    return chunk != NULL ? map_place(chunk_index, chunk->free_mask)
                         : (struct chunk_place){false, 0, 0};
}

MALLOW_INTERNAL struct chunk_place chunk_map_find(const struct chunk_map *map, unsigned slice_count,
                                                  unsigned align_slices) {
    if (slice_count == 1 && align_slices == 1) {
        return map_find_slice(map);
    }
    // The first chunk of the row below may fit, that of the row above certainly does (whatever the
    // alignment, in its last row).
    const uint32_t aligned = chunk_mask_aligned(align_slices);
    const unsigned certain = (unsigned)bits_min(
        bits_log2_ceil(slice_count + align_slices - 1), CHUNK_MAP_RUN_ROWS - 1);
    for (unsigned row = bits_highest(slice_count);; row = certain) {
        unsigned chunk_index;
        const struct chunk *const chunk = map_first(map, row, &chunk_index);
        const uint32_t starts = chunk != NULL ? map_starts(chunk, slice_count, aligned) : 0;
        if (starts != 0) {
            return map_place(chunk_index, starts);
        }
        if (row == certain) {
            return (struct chunk_place){false, 0, 0};
        }
    }
}

MALLOW_INTERNAL unsigned chunk_map_dirty(const struct chunk_map *map, unsigned chunk_index,
                                         unsigned slice_index, unsigned slice_count) {
    const uint32_t span = chunk_mask_span(slice_index, slice_count);
    const uint32_t dirty = chunk_map_chunk(map, chunk_index)->dirty_mask & span;
    return dirty == 0 ? 0 : dirty == span ? slice_count : bits_count(dirty);
}

MALLOW_INTERNAL void chunk_map_take(struct chunk_map *map, unsigned chunk_index,
                                    unsigned slice_index, unsigned slice_count) {
    const uint32_t span = chunk_mask_span(slice_index, slice_count);
    check_assert((chunk_map_chunk(map, chunk_index)->free_mask & span) == span);
    map_remove(map, chunk_index, span, span);
}

MALLOW_INTERNAL void chunk_map_open(struct chunk_map *map, unsigned chunk_index, uint32_t slices) {
    const unsigned word_count = chunk_index / 64 / 64 + 1;
    map->word_count = word_count > map->word_count ? word_count : map->word_count;
    map_add(map, chunk_index, slices, 0);
}

MALLOW_INTERNAL void chunk_map_give(struct chunk_map *map, unsigned chunk_index,
                                    unsigned slice_index, unsigned slice_count, bool dirty) {
    const uint32_t span = chunk_mask_span(slice_index, slice_count);
    map_add(map, chunk_index, span, dirty ? span : 0);
}

MALLOW_INTERNAL void chunk_map_clean(struct chunk_map *map, unsigned chunk_index,
                                     unsigned slice_index, unsigned slice_count) {
    map_remove(map, chunk_index, 0, chunk_mask_span(slice_index, slice_count));
}
