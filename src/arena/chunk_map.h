// SPDX-License-Identifier: MIT
// Chunk map: which slices of an arena are free, and the chunk that serves a request best.
//
// Owns     two masks a chunk, and above them bitmaps in three levels (chunk, group of 64 chunks,
//          summary of 64 groups), a row for each length of run: every search is a few scans.
// Threads  the caller holds the arena's lock.
// Holds    a chunk with free slices is in one row of runs, that of its longest, and in the dirty
//          row if one of them is dirty;  a summary's row has a group's bit  <=>  the group has a
//          chunk in that row;  a row is present  <=>  it has a bit.  A dirty bit is only set where
//          the free bit is.
//          A span goes where the longest run is the least that is long enough (best fit), and
//          among such chunks, and in them, to the lowest address: memory in use stays dense.
#ifndef MALLOW_ARENA_CHUNK_MAP_H
#define MALLOW_ARENA_CHUNK_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bits.h"
#include "base/compiler.h"
#include "config.h"

// Rows of the bitmaps: a free slice that is dirty; a longest free run of 1, 2 ... 16 slices, of
// more, of 32. Few spans are longer than 16, so that longer runs need not be told apart.
#define CHUNK_MAP_DIRTY_ROW 0U
#define CHUNK_MAP_EXACT_ROWS 16U
#define CHUNK_MAP_LONG_ROW (CHUNK_MAP_EXACT_ROWS + 1U)
#define CHUNK_MAP_FULL_ROW (CHUNK_MAP_LONG_ROW + 1U)
#define CHUNK_MAP_ROWS (CHUNK_MAP_FULL_ROW + 1U)

struct chunk {
    uint32_t free_mask;  // 1 = slice is free and committed
    uint32_t dirty_mask; // 1 = free slice may have pages that are not zero
};

#define CHUNK_GROUP_CHUNKS 64U
struct chunk_group {
    uint64_t rows[CHUNK_MAP_ROWS];
    struct chunk chunks[CHUNK_GROUP_CHUNKS];
    uint8_t run_rows[CHUNK_GROUP_CHUNKS]; // that each chunk is in; 0: in none
};

struct chunk_summary {
    uint64_t present; // the rows that are not empty, a bit each
    uint64_t rows[CHUNK_MAP_ROWS];
};

struct chunk_map {
    struct chunk_summary summary[MALLOW_ARENA_SUMMARY_WORDS];
    struct chunk_group *more; // groups 1, 2 ...
    unsigned chunk_count;     // that there are groups for; may grow
    struct chunk_group first; // here, so that a program of up to 128 MiB needs no page for a table
    unsigned word_count;      // summary words of chunks that have been opened
};

MALLOW_INLINE struct chunk_group *chunk_map_group(const struct chunk_map *map,
                                                  unsigned group_index) {
    return group_index == 0 ? (struct chunk_group *)(uintptr_t)&map->first
                            : &map->more[group_index - 1];
}

MALLOW_INLINE struct chunk *chunk_map_chunk(const struct chunk_map *map, unsigned chunk_index) {
    return &chunk_map_group(map, chunk_index / CHUNK_GROUP_CHUNKS)
                ->chunks[chunk_index % CHUNK_GROUP_CHUNKS];
}

// ---- Masks of the slices of one chunk -----------------------------------------------------------

MALLOW_INLINE uint32_t chunk_mask_span(unsigned slice_index, unsigned slice_count) {
    return (uint32_t)(((UINT64_C(1) << slice_count) - 1) << slice_index);
}

// Bit i is set iff slices i .. i + slice_count - 1 are all set in `mask`.
MALLOW_INLINE uint32_t chunk_mask_runs(uint32_t mask, unsigned slice_count) {
    if (slice_count < 2) {
        return mask;
    }
    mask &= mask >> 1;
    if (slice_count < 4) {
        return mask & (mask >> (slice_count - 2));
    }
    mask &= mask >> 2;
    if (slice_count < 8) {
        return mask & (mask >> (slice_count - 4));
    }
    mask &= mask >> 4;
    if (slice_count < 16) {
        return mask & (mask >> (slice_count - 8));
    }
    mask &= mask >> 8;
    return mask & (mask >> (slice_count - 16));
}

// Multiples of `align_slices` among 32 slices.
MALLOW_INLINE uint32_t chunk_mask_aligned(unsigned align_slices) {
    static const uint32_t masks[] = {0xffffffffU, 0x55555555U, 0x11111111U,
                                     0x01010101U, 0x00010001U, 0x00000001U};
    return masks[bits_log2_ceil(align_slices)];
}

// ---- The map ------------------------------------------------------------------------------------

// Where a span lies. `found` false: the rest is meaningless.
struct chunk_place {
    bool found;
    unsigned chunk_index;
    unsigned slice_index;
};

// Finds (and does not take) `slice_count` (1 .. 32) free slices in a chunk, the first of them a
// multiple of `align_slices` (a power of two, at most 32). Slices with dirty pages first.
MALLOW_INTERNAL struct chunk_place chunk_map_find_in(const struct chunk_map *map,
                                                     unsigned chunk_index, unsigned slice_count,
                                                     unsigned align_slices);

// The same in any chunk, and takes them; false: there are none.
struct chunk_taken {
    unsigned chunk_index;
    unsigned slice_index;
    uint32_t dirty_mask; // those that are dirty
    unsigned dirty_count;
    bool emptied; // a row of the group's has lost its last chunk
};
MALLOW_INTERNAL bool chunk_map_find_and_take(struct chunk_map *map, unsigned slice_count,
                                             unsigned align_slices, struct chunk_taken *taken);

// The same for whoever does so seldom: the first has one caller, and becomes a part of it.
MALLOW_INTERNAL bool chunk_map_take_elsewhere(struct chunk_map *map, unsigned slice_count,
                                              unsigned align_slices, struct chunk_taken *taken);

// Undoes that.
MALLOW_INTERNAL void chunk_map_untake(struct chunk_map *map, unsigned slice_count,
                                      const struct chunk_taken *taken);

// How many of these slices are dirty.
MALLOW_INTERNAL unsigned chunk_map_dirty(const struct chunk_map *map, unsigned chunk_index,
                                         unsigned slice_index, unsigned slice_count);

// Marks slices as in use.
MALLOW_INTERNAL void chunk_map_take(struct chunk_map *map, unsigned chunk_index,
                                    unsigned slice_index, unsigned slice_count);

// Has look-ups reach a chunk from now on.
MALLOW_INLINE void chunk_map_reach(struct chunk_map *map, unsigned chunk_index) {
    const unsigned word_count = chunk_index / 64 / 64 + 1;
    map->word_count = word_count > map->word_count ? word_count : map->word_count;
}

// Opens slices of a chunk: they are free, and clean, for the first time (again).
MALLOW_INTERNAL void chunk_map_open(struct chunk_map *map, unsigned chunk_index, uint32_t slices);

// Marks slices of opened chunks as free, dirty or clean.
MALLOW_INTERNAL void chunk_map_give(struct chunk_map *map, unsigned chunk_index,
                                    unsigned slice_index, unsigned slice_count, bool dirty);

// The same for whoever does so seldom.
MALLOW_INTERNAL void chunk_map_give_elsewhere(struct chunk_map *map, unsigned chunk_index,
                                              unsigned slice_index, unsigned slice_count,
                                              bool dirty);

// Marks free slices as clean.
MALLOW_INTERNAL void chunk_map_clean(struct chunk_map *map, unsigned chunk_index,
                                     unsigned slice_index, unsigned slice_count);

// The row of a longest run of so many, 1 at least.
MALLOW_INLINE unsigned chunk_map_row_of(unsigned run) {
    return run <= CHUNK_MAP_LONG_ROW    ? run
           : run != MALLOW_CHUNK_SLICES ? CHUNK_MAP_LONG_ROW
                                        : CHUNK_MAP_FULL_ROW;
}

// The rows of runs that may be of `slice_count`, a bit each: they are, but for the LONG row's.
MALLOW_INLINE uint64_t chunk_map_rows_from(unsigned slice_count) {
    return ~UINT64_C(0) << chunk_map_row_of(slice_count);
}

// Whether any chunk is in one of those rows.
MALLOW_INTERNAL bool chunk_map_has(const struct chunk_map *map, uint64_t rows);

// The lowest chunk at or above `from` that is in `row`; false if none.
MALLOW_INTERNAL bool chunk_map_next(const struct chunk_map *map, unsigned row, unsigned from,
                                    unsigned *chunk_index);

// The highest chunk below `end` that is; false if none.
MALLOW_INTERNAL bool chunk_map_last(const struct chunk_map *map, unsigned row, unsigned end,
                                    unsigned *chunk_index);

#endif
