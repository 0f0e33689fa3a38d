// SPDX-License-Identifier: MIT
// Huge index: against a list that is searched from end to end.
#include "arena/huge_index.h"

#include "../unit.h"

#define MIB ((size_t)1 << 20)

static struct huge_index masks;
static struct huge_mapping pieces[MALLOW_HUGE_CACHE_COUNT];
static bool present[MALLOW_HUGE_CACHE_COUNT];

static void begin(void) {
    memset(&masks, 0, sizeof masks);
    memset(present, 0, sizeof present);
}

static void add(unsigned number, uintptr_t address, size_t bytes) {
    pieces[number] = (struct huge_mapping){address, bytes, HUGE_ONE};
    present[number] = true;
    huge_index_add(&masks, pieces[number], number);
}

static void drop(unsigned number) {
    present[number] = false;
    huge_index_remove(&masks, pieces[number], number);
}

// Gives a piece another start or end, within the place that is its own.
static void change(unsigned number, struct unit_chance *chance) {
    struct huge_mapping *const piece = &pieces[number];
    const uintptr_t end = piece->address + piece->bytes;
    if (unit_below(chance, 2) == 0) {
        const uintptr_t first = end - MIB - unit_below(chance, 1 << 12) * (uintptr_t)4096;
        huge_index_begin_at(&masks, *piece, first, number);
        *piece = (struct huge_mapping){first, end - first, HUGE_ONE};
    } else {
        const size_t bytes = MIB + unit_below(chance, 1 << 12) * (size_t)4096;
        huge_index_end_at(&masks, *piece, piece->address + bytes, number);
        piece->bytes = bytes;
    }
}

static size_t largest(void) {
    size_t most = 0;
    for (unsigned i = 0; i < MALLOW_HUGE_CACHE_COUNT; i++) {
        most = present[i] && pieces[i].bytes > most ? pieces[i].bytes : most;
    }
    return most;
}

static size_t smallest_from(size_t bytes) {
    size_t least = SIZE_MAX;
    for (unsigned i = 0; i < MALLOW_HUGE_CACHE_COUNT; i++) {
        least = present[i] && pieces[i].bytes >= bytes && pieces[i].bytes < least ? pieces[i].bytes
                                                                                 : least;
    }
    return least;
}

// Pieces of about `bytes` bytes.
static unsigned count_about(size_t bytes) {
    unsigned count = 0;
    for (unsigned i = 0; i < MALLOW_HUGE_CACHE_COUNT; i++) {
        count += present[i] && pieces[i].bytes >= bytes / 2 && pieces[i].bytes / 2 <= bytes;
    }
    return count;
}

// What is found need not be the very best, but is of the best one's size class (four a doubling),
// where no more pieces of about that size are there than are `compared`.
static void check_found(unsigned number, size_t bytes, unsigned compared) {
    assert_true(number < MALLOW_HUGE_CACHE_COUNT && present[number]);
    const size_t fit = smallest_from(bytes);
    const size_t found = pieces[number].bytes;
    if (fit == SIZE_MAX) {
        assert_true(found + found / 3 >= largest()); // of the same size class
    } else if (count_about(bytes) <= compared) {
        assert_true(found >= fit && found - fit <= fit / 4);
    }
}

static void check_searches(size_t bytes) {
    check_found(huge_index_best(&masks, pieces, bytes), bytes, HUGE_INDEX_LOOKS);
    check_found(huge_index_enough(&masks, pieces, bytes), bytes, 1);
}

static void check_neighbours(uintptr_t address) {
    unsigned starting = HUGE_INDEX_NONE;
    unsigned ending = HUGE_INDEX_NONE;
    for (unsigned i = 0; i < MALLOW_HUGE_CACHE_COUNT; i++) {
        starting = present[i] && pieces[i].address == address ? i : starting;
        ending = present[i] && pieces[i].address + pieces[i].bytes == address ? i : ending;
    }
    assert_int_equal(huge_index_starting(&masks, pieces, address), starting);
    assert_int_equal(huge_index_ending(&masks, pieces, address), ending);
}

CASE(the_smallest_of_a_few_that_fit_is_found_else_one_of_the_largest) {
    begin();
    add(3, 0x10000000, 3 * MIB);
    add(9, 0x20000000, 5 * MIB);
    add(60, 0x30000000, 5 * MIB + 4096);
    assert_int_equal(huge_index_best(&masks, pieces, 1), 3);
    assert_int_equal(huge_index_best(&masks, pieces, 3 * MIB), 3);
    assert_int_equal(huge_index_best(&masks, pieces, 3 * MIB + 1), 9);
    assert_int_equal(huge_index_best(&masks, pieces, 5 * MIB + 1), 60);
    add(61, 0x40000000, 5 * MIB + 8192);
    assert_int_equal(huge_index_best(&masks, pieces, 5 * MIB + 4097), 61); // the third that is seen
    drop(61);
    assert_int_not_equal(huge_index_best(&masks, pieces, 6 * MIB), 3);
    assert_int_not_equal(huge_index_best(&masks, pieces, SIZE_MAX), 3);
    assert_int_equal(huge_index_enough(&masks, pieces, 3 * MIB), 3);
    assert_int_equal(huge_index_enough(&masks, pieces, 3 * MIB + 1), 9);
    assert_int_equal(huge_index_enough(&masks, pieces, 5 * MIB + 1), 9); // alone is looked at
    drop(60);
    assert_int_equal(huge_index_best(&masks, pieces, SIZE_MAX), 9);
    assert_int_equal(huge_index_enough(&masks, pieces, SIZE_MAX), 9);
    drop(9);
    assert_int_equal(huge_index_best(&masks, pieces, SIZE_MAX), 3);
}

CASE(pieces_that_touch_are_found_by_where_they_begin_and_end) {
    begin();
    add(0, 0x40000000, 2 * MIB);
    add(1, 0x40000000 + 4 * MIB, MIB);
    assert_int_equal(huge_index_ending(&masks, pieces, 0x40000000 + 2 * MIB), 0);
    assert_int_equal(huge_index_starting(&masks, pieces, 0x40000000 + 4 * MIB), 1);
    assert_int_equal(huge_index_starting(&masks, pieces, 0x40000000 + 2 * MIB), HUGE_INDEX_NONE);
    drop(0);
    assert_int_equal(huge_index_ending(&masks, pieces, 0x40000000 + 2 * MIB), HUGE_INDEX_NONE);
}

CASE(any_pieces_in_any_order_are_found_as_a_search_of_all_would) {
    struct unit_chance chance = unit_chance_begin();
    begin();
    for (unsigned round = 0; round < 100000; round++) {
        const unsigned number = unit_below(&chance, MALLOW_HUGE_CACHE_COUNT);
        const uintptr_t begin_before = pieces[number].address;
        const uintptr_t end_before = begin_before + pieces[number].bytes;
        if (present[number] && round % 3 != 0) {
            change(number, &chance);
        } else if (present[number]) {
            drop(number);
        } else { // places that do not overlap
            add(number, ((uintptr_t)number + 1) << 40,
                (MIB << unit_below(&chance, round % 7 == 0 ? 15 : 4)) +
                    unit_below(&chance, 1 << 20) / 4096 * 4096);
        }
        check_neighbours(begin_before);
        check_neighbours(end_before);
        const unsigned other = unit_below(&chance, MALLOW_HUGE_CACHE_COUNT);
        check_neighbours(pieces[other].address);
        check_neighbours(pieces[other].address + pieces[other].bytes);
        if (masks.sizes != 0) {
            check_searches(MIB + unit_below(&chance, 1 << 24));
            check_searches(SIZE_MAX);
        }
    }
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(the_smallest_of_a_few_that_fit_is_found_else_one_of_the_largest),
        cmocka_unit_test(pieces_that_touch_are_found_by_where_they_begin_and_end),
        cmocka_unit_test(any_pieces_in_any_order_are_found_as_a_search_of_all_would),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
