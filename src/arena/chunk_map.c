// SPDX-License-Identifier: MIT
// Chunk map: see chunk_map.h.
#include "arena/chunk_map.h"

#include "base/bits.h"
#include "base/check.h"

// Of the places at which runs of `length` begin: where two lie `more` apart, which is no more than
// that, a run longer by so much begins at the first. If there are any, those are what is kept.
MALLOW_INLINE unsigned map_longer(uint32_t *starts, unsigned length, unsigned more) {
    const uint32_t longer = *starts & (*starts >> more);
    *starts = longer != 0 ? longer : *starts;
    return longer != 0 ? length + more : length;
}

// The row of the longest run of bits; 0: there is none.
MALLOW_INLINE unsigned map_row_of(uint32_t starts) {
    const uint32_t of_2 = starts & (starts >> 1);
    if (of_2 == 0) {
        return starts != 0;
    }
    const uint32_t of_4 = of_2 & (of_2 >> 2);
    if (of_4 == 0) {
        starts = of_2;
        return map_longer(&starts, 2, 1);
    }
    const uint32_t of_8 = of_4 & (of_4 >> 4);
    if (of_8 == 0) {
        starts = of_4;
        const unsigned length = map_longer(&starts, 4, 2);
        return map_longer(&starts, length, 1);
    }
    const uint32_t of_16 = of_8 & (of_8 >> 8);
    if (of_16 == 0) {
        starts = of_8;
        unsigned length = map_longer(&starts, 8, 4);
        length = map_longer(&starts, length, 2);
        return map_longer(&starts, length, 1);
    }
    return (of_16 & (of_16 >> 16)) != 0 ? CHUNK_MAP_FULL_ROW
           : (of_16 & (of_16 >> 1)) != 0 ? CHUNK_MAP_LONG_ROW
                                         : 16;
}

static_assert(MALLOW_CHUNK_SLICES == 32 && CHUNK_MAP_EXACT_ROWS == 16, "the steps above");

// The run of bits around a span that is a part of it.
MALLOW_INLINE unsigned map_run_around(uint32_t mask, unsigned slice_index) {
    const uint32_t used_below = ~mask & ((UINT32_C(1) << slice_index) - 1);
    const unsigned first = used_below != 0 ? bits_highest(used_below) + 1 : 0;
    return bits_lowest(~((uint64_t)mask >> first));
}

// Where a chunk is in the map.
struct map_at {
    struct chunk_group *group;
    struct chunk_summary *summary;
    unsigned group_index;
    unsigned index; // in the group
};

MALLOW_INLINE struct chunk_summary *map_summary(const struct chunk_map *map, unsigned word) {
    return (struct chunk_summary *)(uintptr_t)&map->summary[word];
}

MALLOW_INLINE struct map_at map_at(const struct chunk_map *map, unsigned chunk_index) {
    const unsigned group_index = chunk_index / CHUNK_GROUP_CHUNKS;
    return (struct map_at){chunk_map_group(map, group_index), map_summary(map, group_index / 64),
                           group_index, chunk_index % CHUNK_GROUP_CHUNKS};
}

MALLOW_INLINE struct chunk *map_chunk(struct map_at at) {
    return &at.group->chunks[at.index];
}

MALLOW_INLINE void map_enter_row(struct map_at at, unsigned row) {
    at.group->rows[row] |= UINT64_C(1) << at.index;
    at.summary->rows[row] |= UINT64_C(1) << (at.group_index % 64);
    at.summary->present |= UINT64_C(1) << row;
}

// Of a row that the chunk is in. True: the group has no chunk in the row any more.
MALLOW_INLINE bool map_leave_row(struct map_at at, unsigned row) {
    if (!compiler_flip_to_zero(at.group->rows[row], UINT64_C(1) << at.index)) {
        return false;
    }
    if (compiler_flip_to_zero(at.summary->rows[row], UINT64_C(1) << (at.group_index % 64))) {
        at.summary->present ^= UINT64_C(1) << row;
    }
    return true;
}

// After slices have been taken from a chunk: puts it into the row of its longest run, if there is
// one still. As map_leave_row.
MALLOW_INLINE bool map_shorten(struct map_at at, uint32_t free_mask) {
    const unsigned before = at.group->run_rows[at.index];
    const unsigned row = map_row_of(free_mask);
    if (row == before) {
        return false;
    }
    at.group->run_rows[at.index] = (uint8_t)row;
    if (row != 0) {
        map_enter_row(at, row);
    }
    return map_leave_row(at, before);
}

// After slices have been added to it, one of whose runs belongs into this row.
MALLOW_INLINE void map_lengthen_to(struct map_at at, unsigned row) {
    const unsigned before = at.group->run_rows[at.index];
    if (row > before) {
        at.group->run_rows[at.index] = (uint8_t)row;
        map_enter_row(at, row);
        if (before != 0) {
            (void)map_leave_row(at, before);
        }
    }
}

// Takes slices away from a chunk's masks, and brings the bitmaps in line. As map_leave_row.
MALLOW_INLINE bool map_take(struct map_at at, uint32_t span) {
    struct chunk *const chunk = map_chunk(at);
    const uint32_t free_mask = chunk->free_mask & ~span;
    const uint32_t dirty_before = chunk->dirty_mask;
    uint32_t dirty_mask = dirty_before & ~span;
    chunk->free_mask = free_mask;
    compiler_forget(dirty_mask); // two stores, not a vector that has to be put together
    chunk->dirty_mask = dirty_mask;
    if (dirty_mask == 0 && dirty_before != 0) {
        (void)map_leave_row(at, CHUNK_MAP_DIRTY_ROW);
    }
    return map_shorten(at, free_mask);
}

// Adds slices to them, a span.
MALLOW_INLINE void map_add(struct chunk_map *map, unsigned chunk_index, unsigned slice_index,
                           unsigned slice_count, uint32_t dirty_slices) {
    const struct map_at at = map_at(map, chunk_index);
    struct chunk *const chunk = map_chunk(at);
    const uint32_t span = chunk_mask_span(slice_index, slice_count);
    const uint32_t free_mask = chunk->free_mask | span;
    const uint32_t dirty_before = chunk->dirty_mask;
    uint32_t dirty_mask = dirty_before | dirty_slices;
    check_assert((dirty_slices & ~span) == 0 && (chunk->free_mask & span) == 0);
    chunk->free_mask = free_mask;
    compiler_forget(dirty_mask);
    chunk->dirty_mask = dirty_mask;
    if (dirty_before == 0 && dirty_mask != 0) {
        map_enter_row(at, CHUNK_MAP_DIRTY_ROW);
    }
    map_lengthen_to(at, chunk_map_row_of(map_run_around(free_mask, slice_index)));
}

// The same, but for who gives spans back.
static MALLOW_NOINLINE void map_add_elsewhere(struct chunk_map *map, unsigned chunk_index,
                                              unsigned slice_index, unsigned slice_count,
                                              uint32_t dirty_slices) {
    map_add(map, chunk_index, slice_index, slice_count, dirty_slices);
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
        uint64_t summary = map->summary[word].rows[row];
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

MALLOW_INTERNAL bool chunk_map_last(const struct chunk_map *map, unsigned row, unsigned end,
                                    unsigned *chunk_index) {
    const unsigned below = (unsigned)bits_min(end, map->chunk_count);
    const unsigned group_end = below / 64; // of whole groups, which the summaries tell of
    if (below % 64 != 0) {
        const uint64_t here =
            chunk_map_group(map, group_end)->rows[row] & ((UINT64_C(1) << (below % 64)) - 1);
        if (here != 0) {
            *chunk_index = group_end * 64 + bits_highest(here);
            return true;
        }
    }
    for (unsigned word = map->word_count; word-- > 0;) {
        uint64_t summary = map->summary[word].rows[row];
        if (word >= group_end / 64) {
            summary = word == group_end / 64
                          ? summary & ((UINT64_C(1) << (group_end % 64)) - 1)
                          : 0;
        }
        if (summary != 0) {
            const unsigned group = word * 64 + bits_highest(summary);
            *chunk_index = group * 64 + bits_highest(chunk_map_group(map, group)->rows[row]);
            return true;
        }
    }
    return false;
}

MALLOW_INLINE uint32_t map_lowest_of(uint32_t mask) {
    return mask & (0 - mask);
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

// The first word of the summary that has one of those rows; false if none.
MALLOW_INLINE bool map_first_word(const struct chunk_map *map, uint64_t rows, unsigned *word) {
    for (*word = 0; (map->summary[*word].present & rows) == 0;) {
        if (++*word >= map->word_count) {
            return false;
        }
    }
    return true;
}

MALLOW_INTERNAL bool chunk_map_has(const struct chunk_map *map, uint64_t rows) {
    unsigned word;
    return map_first_word(map, rows, &word);
}

// The first chunk in the lowest of those rows that has any, of a word of the summary that has one.
MALLOW_INLINE struct map_at map_first_in(const struct chunk_map *map, unsigned word,
                                         uint64_t rows) {
    struct chunk_summary *const summary = map_summary(map, word);
    const unsigned row = bits_lowest(summary->present & rows);
    const unsigned group_index = word * 64 + bits_lowest(summary->rows[row]);
    struct chunk_group *const group = chunk_map_group(map, group_index);
    return (struct map_at){group, summary, group_index, bits_lowest(group->rows[row])};
}

// The same of more than 8 GiB, in the first of them that have one; `group` NULL: none has.
static MALLOW_NOINLINE struct map_at map_first_far(const struct chunk_map *map, uint64_t rows) {
    unsigned word;
    return map_first_word(map, rows, &word) ? map_first_in(map, word, rows)
                                            : (struct map_at){.group = NULL};
}

// The same of all.
MALLOW_INLINE struct map_at map_first(const struct chunk_map *map, uint64_t rows) {
    return likely((map->summary[0].present & rows) != 0) ? map_first_in(map, 0, rows)
           : likely(map->word_count <= 1)                ? (struct map_at){.group = NULL}
                                                         : map_first_far(map, rows);
}

// A span that has been found. `at.group` NULL: there is none, and the rest means nothing.
struct map_found {
    struct map_at at;
    uint32_t span;
    uint32_t dirty; // those of its slices that are
    unsigned dirty_count;
};

// A single slice, a dirty one if there is any.
MALLOW_INLINE struct map_found map_find_slice(const struct chunk_map *map) {
    struct map_at at = map_first(map, UINT64_C(1) << CHUNK_MAP_DIRTY_ROW);
    if (likely(at.group != NULL)) {
        const uint32_t slice = map_lowest_of(map_chunk(at)->dirty_mask);
        return (struct map_found){at, slice, slice, 1};
    }
    at = map_first(map, chunk_map_rows_from(1));
    const uint32_t slice = at.group != NULL ? map_lowest_of(map_chunk(at)->free_mask) : 0;
    return (struct map_found){at, slice, 0, 0};
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

// A longer span. Where the first chunk that is looked at has no place for it, because it has to be
// aligned or is longer than what the rows tell apart, one with a run that is longer by the
// alignment has, and so has one that is all free.
MALLOW_INLINE struct map_found map_find_span(const struct chunk_map *map, unsigned slice_count,
                                             unsigned align_slices) {
    const uint32_t aligned = chunk_mask_aligned(align_slices);
    struct map_found found = {.at = map_first(map, chunk_map_rows_from(slice_count))};
    if (found.at.group == NULL) {
        return found;
    }
    uint32_t starts = map_starts(map_chunk(found.at), slice_count, aligned);
    if (unlikely(starts == 0)) {
        const unsigned run = slice_count + align_slices - 1;
        found.at = map_first(map, chunk_map_rows_from(
                                      run <= CHUNK_MAP_EXACT_ROWS ? run : MALLOW_CHUNK_SLICES));
        if (found.at.group == NULL) {
            return found;
        }
        starts = map_starts(map_chunk(found.at), slice_count, aligned);
    }
    const unsigned slice_index = bits_lowest(starts);
    found.span = chunk_mask_span(slice_index, slice_count);
    found.dirty = map_chunk(found.at)->dirty_mask & found.span;
    found.dirty_count = map_count_dirty(found.dirty, found.span, slice_index, slice_count);
    return found;
}

MALLOW_INLINE bool map_find_and_take(struct chunk_map *map, unsigned slice_count,
                                     unsigned align_slices, struct chunk_taken *taken) {
    const struct map_found found = slice_count == 1 && align_slices == 1
                                       ? map_find_slice(map)
                                       : map_find_span(map, slice_count, align_slices);
    if (unlikely(found.at.group == NULL)) {
        return false;
    }
    taken->chunk_index = found.at.group_index * CHUNK_GROUP_CHUNKS + found.at.index;
    taken->slice_index = bits_lowest(found.span);
    taken->dirty_mask = found.dirty;
    taken->dirty_count = found.dirty_count;
    taken->emptied = map_take(found.at, found.span);
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
    map_add_elsewhere(map, taken->chunk_index, taken->slice_index, slice_count,
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
    (void)map_take(at, span);
}

MALLOW_INTERNAL void chunk_map_open(struct chunk_map *map, unsigned chunk_index, uint32_t slices) {
    const struct map_at at = map_at(map, chunk_index);
    struct chunk *const chunk = map_chunk(at);
    chunk_map_reach(map, chunk_index);
    check_assert((chunk->free_mask & slices) == 0);
    chunk->free_mask |= slices;
    map_lengthen_to(at, map_row_of(chunk->free_mask));
}

MALLOW_INTERNAL void chunk_map_give(struct chunk_map *map, unsigned chunk_index,
                                    unsigned slice_index, unsigned slice_count, bool dirty) {
    map_add(map, chunk_index, slice_index, slice_count,
            dirty ? chunk_mask_span(slice_index, slice_count) : 0);
}

MALLOW_INTERNAL MALLOW_NO_FOLD void chunk_map_give_elsewhere(struct chunk_map *map,
                                                            unsigned chunk_index,
                                                            unsigned slice_index,
                                                            unsigned slice_count, bool dirty) {
    map_add_elsewhere(map, chunk_index, slice_index, slice_count,
                      dirty ? chunk_mask_span(slice_index, slice_count) : 0);
}

MALLOW_INTERNAL void chunk_map_clean(struct chunk_map *map, unsigned chunk_index,
                                     unsigned slice_index, unsigned slice_count) {
    const struct map_at at = map_at(map, chunk_index);
    struct chunk *const chunk = map_chunk(at);
    const uint32_t before = chunk->dirty_mask;
    chunk->dirty_mask = before & ~chunk_mask_span(slice_index, slice_count);
    if (before != 0 && chunk->dirty_mask == 0) {
        (void)map_leave_row(at, CHUNK_MAP_DIRTY_ROW);
    }
}
