// SPDX-License-Identifier: MIT
// Chunk map: against a naive model that keeps a byte a slice.
#include "arena/chunk_map.h"

#include "../unit.h"

enum { CHUNKS_MAX = 4500, GROUPS_MAX = (CHUNKS_MAX + 63) / 64, SLICES = MALLOW_CHUNK_SLICES };

static struct chunk_map map;
static struct chunk_group more[GROUPS_MAX - 1];
enum slice_state { USED, CLEAN, DIRTY };
static uint8_t model[CHUNKS_MAX][SLICES]; // enum slice_state

static void begin(unsigned chunk_count) {
    memset(&map, 0, sizeof map);
    memset(more, 0, sizeof more);
    memset(model, USED, sizeof model);
    map.more = more;
    map.chunk_count = chunk_count;
    for (unsigned i = 0; i < chunk_count; i++) {
        chunk_map_open(&map, i, 0);
    }
}

static void give(unsigned chunk, unsigned slice, unsigned count, bool dirty) {
    chunk_map_give(&map, chunk, slice, count, dirty);
    memset(&model[chunk][slice], dirty ? DIRTY : CLEAN, count);
}

// ---- The model's answers ------------------------------------------------------------------------

static bool model_has(unsigned chunk, unsigned slice, unsigned count, enum slice_state least) {
    if (slice + count > SLICES) {
        return false;
    }
    for (unsigned i = slice; i < slice + count; i++) {
        if (model[chunk][i] < least) {
            return false;
        }
    }
    return true;
}

static bool model_find_in(unsigned chunk, unsigned count, unsigned align, enum slice_state least,
                          unsigned *slice) {
    for (*slice = 0; *slice < SLICES; *slice += align) {
        if (model_has(chunk, *slice, count, least)) {
            return true;
        }
    }
    return false;
}

// Where the first slice is dirty, whatever the others are.
static bool model_find_dirty(unsigned chunk, unsigned count, unsigned align, unsigned *slice) {
    for (*slice = 0; *slice < SLICES; *slice += align) {
        if (model[chunk][*slice] == DIRTY && model_has(chunk, *slice, count, CLEAN)) {
            return true;
        }
    }
    return false;
}

static unsigned row_from(unsigned count) {
    return count == SLICES ? CHUNK_MAP_FULL_ROW : count > 16 ? CHUNK_MAP_LONG_ROW : count;
}

static unsigned model_row(unsigned chunk) { // of its longest run
    unsigned longest = 0;
    unsigned run = 0;
    for (unsigned slice = 0; slice < SLICES; slice++) {
        run = model[chunk][slice] == USED ? 0 : run + 1;
        longest = run > longest ? run : longest;
    }
    return row_from(longest);
}

static bool model_bit(unsigned chunk, unsigned row) {
    unsigned slice;
    return row == CHUNK_MAP_DIRTY_ROW ? model_find_in(chunk, 1, 1, DIRTY, &slice) : model_row(chunk) == row;
}

// The lowest chunk in the lowest row from this one on that has any.
static bool model_best(unsigned from, unsigned *chunk) {
    unsigned best = CHUNK_MAP_ROWS;
    for (unsigned i = 0; i < map.chunk_count; i++) {
        const unsigned row = model_row(i);
        if (row >= from && row < best) {
            best = row;
            *chunk = i;
        }
    }
    return best < CHUNK_MAP_ROWS;
}

// Exact where the chunk that fits best has such a place; any alignment is found in one chunk.
static struct chunk_place model_place(unsigned count, unsigned align) {
    struct chunk_place place = {true, 0, 0};
    if (count == 1 && align == 1) { // a dirty one in any chunk first; else within the chunk
        for (unsigned chunk = 0; chunk < map.chunk_count; chunk++) {
            place.chunk_index = chunk;
            if (model_find_dirty(chunk, 1, 1, &place.slice_index)) {
                return place;
            }
        }
    }
    place.found = model_best(row_from(count), &place.chunk_index) &&
                  (model_find_dirty(place.chunk_index, count, align, &place.slice_index) ||
                   model_find_in(place.chunk_index, count, align, CLEAN, &place.slice_index));
    return place;
}

// ---- The invariant ------------------------------------------------------------------------------

static void check_chunk(unsigned chunk) {
    for (unsigned slice = 0; slice < SLICES; slice++) {
        assert_int_equal((chunk_map_chunk(&map, chunk)->free_mask >> slice) & 1, model[chunk][slice] != USED);
        assert_int_equal((chunk_map_chunk(&map, chunk)->dirty_mask >> slice) & 1, model[chunk][slice] == DIRTY);
    }
    for (unsigned row = 0; row < CHUNK_MAP_ROWS; row++) {
        assert_int_equal((chunk_map_group(&map, chunk / 64)->rows[row] >> (chunk % 64)) & 1, model_bit(chunk, row));
    }
}

static void check_summary(void) {
    for (unsigned row = 0; row < CHUNK_MAP_ROWS; row++) {
        for (unsigned group = 0; group < GROUPS_MAX; group++) {
            assert_int_equal((map.summary[group / 64].rows[row] >> (group % 64)) & 1,
                             chunk_map_group(&map, group)->rows[row] != 0);
        }
        for (unsigned word = 0; word < MALLOW_ARENA_SUMMARY_WORDS; word++) {
            assert_int_equal((map.summary[word].present >> row) & 1, map.summary[word].rows[row] != 0);
        }
    }
}

// One random change of one chunk, in the map and in the model.
static void change(struct unit_chance *chance) {
    const unsigned chunk = unit_below(chance, map.chunk_count);
    const unsigned slice = unit_below(chance, SLICES);
    const uint8_t state = model[chunk][slice];
    unsigned count = 1;
    const unsigned wanted = 1 + unit_below(chance, SLICES - slice);
    unsigned dirty_count = state == DIRTY;
    while (count < wanted && (model[chunk][slice + count] == USED) == (state == USED)) {
        dirty_count += model[chunk][slice + count] == DIRTY;
        count++;
    }
    if (state == USED) {
        give(chunk, slice, count, unit_below(chance, 2) == 0);
    } else if (unit_below(chance, 4) == 0) {
        chunk_map_clean(&map, chunk, slice, count);
        memset(&model[chunk][slice], CLEAN, count);
    } else {
        assert_int_equal(chunk_map_dirty(&map, chunk, slice, count), dirty_count);
        chunk_map_take(&map, chunk, slice, count);
        memset(&model[chunk][slice], USED, count);
    }
    check_chunk(chunk);
}

// Where slices would be taken.
static struct chunk_place find(unsigned count, unsigned align) {
    struct chunk_taken taken;
    if (!chunk_map_find_and_take(&map, count, align, &taken)) {
        return (struct chunk_place){false, 0, 0};
    }
    chunk_map_untake(&map, count, &taken);
    return (struct chunk_place){true, taken.chunk_index, taken.slice_index};
}

// Whether a row of the chunk's group has no chunk but this one, which is in it.
static bool is_alone(unsigned chunk) {
    return chunk_map_group(&map, chunk / 64)->rows[model_row(chunk)] == UINT64_C(1) << (chunk % 64);
}

// ---- Cases --------------------------------------------------------------------------------------

CASE(an_empty_map_has_nothing) {
    begin(3);
    for (unsigned count = 1; count <= SLICES; count++) {
        assert_false(find(count, 1).found);
    }
    unsigned chunk;
    assert_false(chunk_map_next(&map, 1, 0, &chunk));
    assert_false(chunk_map_next(&map, CHUNK_MAP_DIRTY_ROW, 3, &chunk));
}

CASE(one_chunk_is_searched_exactly_lowest_address_first_dirty_first) {
    struct unit_chance chance = unit_chance_begin();
    begin(1);
    for (unsigned round = 0; round < 2000; round++) {
        change(&chance);
        const unsigned count = 1 + unit_below(&chance, SLICES);
        const unsigned align = 1U << unit_below(&chance, 6);
        const struct chunk_place found = find(count, align);
        const struct chunk_place expected = model_place(count, align);
        assert_int_equal(found.found, expected.found);
        if (found.found) {
            assert_int_equal(found.chunk_index, expected.chunk_index);
            assert_int_equal(found.slice_index, expected.slice_index);
        }
    }
    check_summary();
}

CASE(taking_at_once_takes_what_is_found_and_can_be_undone) {
    struct unit_chance chance = unit_chance_begin();
    begin(200);
    for (unsigned round = 0; round < 4000; round++) {
        change(&chance);
        const unsigned count = 1 + unit_below(&chance, SLICES);
        const unsigned align = 1U << unit_below(&chance, 6);
        const struct chunk_place found = find(count, align);
        const unsigned row = found.found ? model_row(found.chunk_index) : 0;
        const bool alone = found.found && is_alone(found.chunk_index);
        struct chunk_taken taken;
        assert_int_equal(chunk_map_find_and_take(&map, count, align, &taken), found.found);
        if (!found.found) {
            continue;
        }
        assert_int_equal(taken.emptied,
                         alone && chunk_map_group(&map, found.chunk_index / 64)->rows[row] == 0);
        assert_int_equal(taken.chunk_index, found.chunk_index);
        assert_int_equal(taken.slice_index, found.slice_index);
        const uint32_t span = chunk_mask_span(found.slice_index, count);
        const struct chunk *const chunk = chunk_map_chunk(&map, found.chunk_index);
        assert_int_equal(chunk->free_mask & span, 0);
        assert_int_equal(taken.dirty_count, bits_count(taken.dirty_mask));
        chunk_map_untake(&map, count, &taken);
        check_chunk(found.chunk_index);
    }
    check_summary();
}

CASE(every_length_and_alignment_is_found_in_a_free_chunk_at_its_start) {
    begin(70);
    give(66, 0, SLICES, false);
    for (unsigned count = 1; count <= SLICES; count++) {
        for (unsigned align = 1; align <= SLICES; align *= 2) {
            const struct chunk_place place = find(count, align);
            assert_true(place.found);
            assert_int_equal(place.chunk_index, 66);
            assert_int_equal(place.slice_index, 0);
        }
    }
}

CASE(among_many_chunks_the_best_fit_is_found_and_a_certain_one_is_never_missed) {
    struct unit_chance chance = unit_chance_begin();
    begin(200);
    for (unsigned round = 0; round < 5000; round++) {
        change(&chance);
        const unsigned count = 1 + unit_below(&chance, SLICES);
        const unsigned align = 1U << unit_below(&chance, 6);
        const struct chunk_place place = find(count, align);
        if (place.found) {
            assert_true(place.chunk_index < map.chunk_count);
            assert_int_equal(place.slice_index % align, 0);
            assert_true(model_has(place.chunk_index, place.slice_index, count, CLEAN));
        }
        const struct chunk_place expected = model_place(count, align);
        if (expected.found) {
            assert_true(place.found);
            assert_int_equal(place.chunk_index, expected.chunk_index);
            assert_int_equal(place.slice_index, expected.slice_index);
        }
        unsigned chunk; // within a run that is longer by the alignment it fits wherever that lies
        const unsigned certain = count + align - 1 <= 16 ? count + align - 1 : CHUNK_MAP_FULL_ROW;
        assert_true(place.found || !model_best(certain, &chunk));
    }
    check_summary();
}

CASE(a_single_slice_is_the_lowest_dirty_one_of_all_else_one_that_fits_best) {
    begin(300);
    give(2, 3, 2, false);
    give(7, 3, 1, false);
    give(250, 9, 3, true);
    give(280, 1, 1, true);
    struct chunk_place place = find(1, 1);
    assert_true(place.found && place.chunk_index == 250 && place.slice_index == 9);
    chunk_map_clean(&map, 250, 9, 3);
    place = find(1, 1);
    assert_true(place.found && place.chunk_index == 280 && place.slice_index == 1);
    assert_int_equal(chunk_map_dirty(&map, 280, 1, 1), 1);
    chunk_map_take(&map, 280, 1, 1);
    place = find(1, 1);
    assert_true(place.found && place.chunk_index == 7 && place.slice_index == 3);
}

CASE(next_and_last_find_the_nearest_chunk_from_anywhere_across_groups_and_summary_words) {
    static const unsigned places[] = {0, 63, 64, 700, 4095, 4096, 4499};
    begin(CHUNKS_MAX);
    for (unsigned i = 0; i < sizeof places / sizeof places[0]; i++) {
        give(places[i], 4, 8, true);
    }
    for (unsigned row = 0; row < CHUNK_MAP_ROWS; row++) {
        unsigned next = 0; // the lowest place that is not below `from`
        for (unsigned from = 0; from <= CHUNKS_MAX; from++) {
            while (next < sizeof places / sizeof places[0] && places[next] < from) {
                next++;
            }
            const bool exists = next < sizeof places / sizeof places[0] &&
                                (row == 8 || row == CHUNK_MAP_DIRTY_ROW);
            unsigned chunk = 0;
            assert_int_equal(chunk_map_next(&map, row, from, &chunk), exists);
            if (exists) {
                assert_int_equal(chunk, places[next]);
            }
            const bool below = next > 0 && (row == 8 || row == CHUNK_MAP_DIRTY_ROW);
            assert_int_equal(chunk_map_last(&map, row, from, &chunk), below);
            if (below) {
                assert_int_equal(chunk, places[next - 1]);
            }
        }
    }
    check_summary();
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(an_empty_map_has_nothing),
        cmocka_unit_test(one_chunk_is_searched_exactly_lowest_address_first_dirty_first),
        cmocka_unit_test(taking_at_once_takes_what_is_found_and_can_be_undone),
        cmocka_unit_test(every_length_and_alignment_is_found_in_a_free_chunk_at_its_start),
        cmocka_unit_test(among_many_chunks_the_best_fit_is_found_and_a_certain_one_is_never_missed),
        cmocka_unit_test(a_single_slice_is_the_lowest_dirty_one_of_all_else_one_that_fits_best),
        cmocka_unit_test(
            next_and_last_find_the_nearest_chunk_from_anywhere_across_groups_and_summary_words),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
