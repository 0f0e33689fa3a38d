// SPDX-License-Identifier: MIT
// Chunk map: see chunk_map.h.
#include "arena/chunk_map.h"

#include "base/bits.h"
#include "base/check.h"

static uint32_t map_span_mask(unsigned slice_index, unsigned slice_count) {
    return (uint32_t)(((UINT64_C(1) << slice_count) - 1) << slice_index);
}

// Bit i is set iff slices i .. i + slice_count - 1 are all set in `mask`.
static uint32_t map_runs(uint32_t mask, unsigned slice_count) {
    for (unsigned have = 1; have < slice_count;) {
        const unsigned shift = (unsigned)bits_min(have, slice_count - have);
        mask &= mask >> shift;
        have += shift;
    }
    return mask;
}

// Multiples of `align_slices` among 32 slices.
static uint32_t map_aligned_mask(unsigned align_slices) {
    static const uint32_t masks[] = {0xffffffffU, 0x55555555U, 0x11111111U,
                                     0x01010101U, 0x00010001U, 0x00000001U};
    return masks[bits_log2_ceil(align_slices)];
}

static void map_set_row(struct chunk_map *map, unsigned row, unsigned chunk_index, bool value) {
    const unsigned group_index = chunk_index / 64;
    const uint64_t chunk_bit = UINT64_C(1) << (chunk_index % 64);
    const uint64_t group_bit = UINT64_C(1) << (group_index % 64);
    uint64_t *const group = &chunk_map_group(map, group_index)->rows[row];
    uint64_t *const summary = &map->summary[row][group_index / 64];
    if (value) {
        *group |= chunk_bit;
        *summary |= group_bit;
    } else {
        *group &= ~chunk_bit;
        if (*group == 0) {
            *summary &= ~group_bit;
        }
    }
}

// Brings the bitmaps in line with the masks of one chunk.
static void map_update(struct chunk_map *map, unsigned chunk_index) {
    const struct chunk *const chunk = chunk_map_chunk(map, chunk_index);
    check_assert((chunk->dirty_mask & ~chunk->free_mask) == 0);
    uint32_t runs = chunk->free_mask;
    for (unsigned row = 0; row < CHUNK_MAP_RUN_ROWS; row++) {
        map_set_row(map, row, chunk_index, runs != 0);
        if (row + 1 < CHUNK_MAP_RUN_ROWS) {
            runs &= runs >> (1U << row);
        }
    }
    map_set_row(map, CHUNK_MAP_DIRTY_ROW, chunk_index, chunk->dirty_mask != 0);
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
    for (unsigned word = group_index / 64; word < MALLOW_ARENA_SUMMARY_WORDS; word++) {
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

// Looks for the request in one chunk: among dirty slices, then among all free ones.
static struct chunk_place map_find_in(const struct chunk_map *map, unsigned chunk_index,
                                      unsigned slice_count, uint32_t aligned) {
    const struct chunk *const chunk = chunk_map_chunk(map, chunk_index);
    uint32_t starts = map_runs(chunk->dirty_mask, slice_count) & aligned;
    if (starts == 0) {
        starts = map_runs(chunk->free_mask, slice_count) & aligned;
    }
    return starts != 0 ? map_place(chunk_index, starts) : (struct chunk_place){false, 0, 0};
}

// Tries the first few chunks that may have what is asked for.
static struct chunk_place map_find_candidates(const struct chunk_map *map, unsigned row,
                                              unsigned slice_count, uint32_t aligned) {
    unsigned from = 0;
    for (unsigned tries = 0; tries < MALLOW_FIT_CANDIDATES; tries++) {
        unsigned chunk_index;
        if (!chunk_map_next(map, row, from, &chunk_index)) {
            break;
        }
        const struct chunk_place place = map_find_in(map, chunk_index, slice_count, aligned);
        if (place.found) {
            return place;
        }
        from = chunk_index + 1;
    }
    return (struct chunk_place){false, 0, 0};
}

MALLOW_INTERNAL struct chunk_place chunk_map_find(const struct chunk_map *map, unsigned slice_count,
                                                  unsigned align_slices) {
    const uint32_t aligned = map_aligned_mask(align_slices);
    if (slice_count == 1 && align_slices == 1) {
        unsigned chunk_index;
        if (chunk_map_next(map, CHUNK_MAP_DIRTY_ROW, 0, &chunk_index)) {
            return map_place(chunk_index, chunk_map_chunk(map, chunk_index)->dirty_mask);
        }
        if (chunk_map_next(map, 0, 0, &chunk_index)) {
            return map_place(chunk_index, chunk_map_chunk(map, chunk_index)->free_mask);
        }
        return (struct chunk_place){false, 0, 0};
    }
    // The row below may fit, the row above certainly does (whatever the alignment, in its last
    // row).
    const unsigned lower = bits_highest(slice_count);
    const struct chunk_place place = map_find_candidates(map, lower, slice_count, aligned);
    if (place.found) {
        return place;
    }
    const unsigned certain = (unsigned)bits_min(
        bits_log2_ceil(slice_count + align_slices - 1), CHUNK_MAP_RUN_ROWS - 1);
    return map_find_candidates(map, certain, slice_count, aligned);
}

MALLOW_INTERNAL unsigned chunk_map_take(struct chunk_map *map, unsigned chunk_index,
                                        unsigned slice_index, unsigned slice_count) {
    struct chunk *const chunk = chunk_map_chunk(map, chunk_index);
    const uint32_t span = map_span_mask(slice_index, slice_count);
    check_assert((chunk->free_mask & span) == span);
    const unsigned dirty_count = bits_count(chunk->dirty_mask & span);
    chunk->free_mask &= ~span;
    chunk->dirty_mask &= ~span;
    map_update(map, chunk_index);
    return dirty_count;
}

MALLOW_INTERNAL void chunk_map_give(struct chunk_map *map, unsigned chunk_index,
                                    unsigned slice_index, unsigned slice_count, bool dirty) {
    struct chunk *const chunk = chunk_map_chunk(map, chunk_index);
    const uint32_t span = map_span_mask(slice_index, slice_count);
    check_assert((chunk->free_mask & span) == 0);
    chunk->free_mask |= span;
    if (dirty) {
        chunk->dirty_mask |= span;
    }
    map_update(map, chunk_index);
}

MALLOW_INTERNAL void chunk_map_clean(struct chunk_map *map, unsigned chunk_index,
                                     unsigned slice_index, unsigned slice_count) {
    chunk_map_chunk(map, chunk_index)->dirty_mask &= ~map_span_mask(slice_index, slice_count);
    map_update(map, chunk_index);
}
