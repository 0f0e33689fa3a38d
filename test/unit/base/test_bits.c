// SPDX-License-Identifier: MIT
// Bits: against the plain definition of each function.
#include "base/bits.h"

#include "../unit.h"

// Values with something at both ends of every range, then random ones.
static uint64_t value_at(unsigned i, struct unit_chance *chance) {
    if (i < 64) {
        return UINT64_C(1) << i;
    }
    if (i < 128) {
        return (UINT64_C(1) << (i - 64)) - 1;
    }
    if (i < 192) {
        return ~UINT64_C(0) << (i - 128);
    }
    return unit_next(chance) >> unit_below(chance, 64);
}
enum { VALUES = 5000 };

CASE(a_power_of_two_has_one_bit) {
    assert_false(bits_is_power_of_two(0));
    for (unsigned bit = 0; bit < 64; bit++) {
        const size_t power = (size_t)1 << bit;
        assert_true(bits_is_power_of_two(power));
        assert_int_equal(bits_is_power_of_two(power | 1), bit == 0);
        assert_int_equal(bits_is_power_of_two(power - 1), bit == 1);
    }
}

CASE(aligning_moves_to_the_nearest_multiple_on_its_side) {
    struct unit_chance chance = unit_chance_begin();
    for (unsigned i = 0; i < VALUES; i++) {
        const size_t value = value_at(i, &chance) >> 2;
        const size_t alignment = (size_t)1 << unit_below(&chance, 60);
        const size_t down = bits_align_down(value, alignment);
        const size_t up = bits_align_up(value, alignment);
        assert_int_equal(down, value - value % alignment);
        assert_int_equal(up, value % alignment == 0 ? value : down + alignment);
    }
}

CASE(scans_find_the_ends_and_the_number_of_set_bits) {
    struct unit_chance chance = unit_chance_begin();
    for (unsigned i = 0; i < VALUES; i++) {
        const uint64_t value = value_at(i, &chance);
        unsigned count = 0;
        unsigned lowest = 64;
        unsigned highest = 0;
        for (unsigned bit = 0; bit < 64; bit++) {
            if ((value >> bit) & 1) {
                count++;
                lowest = lowest == 64 ? bit : lowest;
                highest = bit;
            }
        }
        assert_int_equal(bits_count(value), count);
        const uint32_t half = (uint32_t)value;
        const unsigned upper = bits_count(value >> 32);
        assert_int_equal(bits_count_half(half), count - upper);
        if (value != 0) {
            assert_int_equal(bits_find_lowest(value), lowest);
            assert_int_equal(bits_lowest(value), lowest);
            assert_int_equal(bits_highest(value), highest);
        }
    }
}

CASE(few_bits_are_counted_as_many_are) {
    for (uint32_t value = 0; value < UINT32_C(1) << BITS_FEW; value++) {
        assert_int_equal(bits_count_few(value), bits_count(value));
    }
}

CASE(the_rounded_up_logarithm_is_the_first_power_that_is_not_below) {
    struct unit_chance chance = unit_chance_begin();
    assert_int_equal(bits_log2_ceil(1), 0);
    for (unsigned i = 0; i < VALUES; i++) {
        const uint64_t value = value_at(i, &chance) >> 1;
        if (value != 0) {
            const unsigned power = bits_log2_ceil(value);
            assert_true(UINT64_C(1) << power >= value);
            assert_true(power == 0 || UINT64_C(1) << (power - 1) < value);
        }
    }
}

CASE(setting_a_bit_tells_whether_it_was_set_and_looks_at_six_bits_of_the_index) {
    struct unit_chance chance = unit_chance_begin();
    for (unsigned i = 0; i < VALUES; i++) {
        const uint64_t before = value_at(i, &chance);
        const uint64_t index = unit_next(&chance);
        const uint64_t mask = UINT64_C(1) << (index & 63);
        uint64_t value = before;
        assert_int_equal(bits_set_was_set(&value, index), (before & mask) != 0);
        assert_int_equal(value, before | mask);
    }
}

CASE(a_product_that_does_not_fit_is_refused) {
    size_t product = 0;
    assert_true(bits_multiply(0, SIZE_MAX, &product));
    assert_int_equal(product, 0);
    assert_true(bits_multiply(SIZE_MAX, 1, &product));
    assert_int_equal(product, SIZE_MAX);
    assert_true(bits_multiply(UINT32_MAX, (size_t)UINT32_MAX + 2, &product));
    assert_int_equal(product, SIZE_MAX);
    assert_false(bits_multiply((size_t)UINT32_MAX + 1, (size_t)UINT32_MAX + 1, &product));
    assert_false(bits_multiply(SIZE_MAX, 2, &product));
    assert_false(bits_multiply(SIZE_MAX / 3 + 1, 3, &product));
}

CASE(min_and_max_pick_from_either_place) {
    assert_int_equal(bits_min(1, SIZE_MAX), 1);
    assert_int_equal(bits_min(SIZE_MAX, 1), 1);
    assert_int_equal(bits_max(1, SIZE_MAX), SIZE_MAX);
    assert_int_equal(bits_max(SIZE_MAX, 1), SIZE_MAX);
    assert_int_equal(bits_min(7, 7), 7);
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_power_of_two_has_one_bit),
        cmocka_unit_test(aligning_moves_to_the_nearest_multiple_on_its_side),
        cmocka_unit_test(scans_find_the_ends_and_the_number_of_set_bits),
        cmocka_unit_test(few_bits_are_counted_as_many_are),
        cmocka_unit_test(the_rounded_up_logarithm_is_the_first_power_that_is_not_below),
        cmocka_unit_test(setting_a_bit_tells_whether_it_was_set_and_looks_at_six_bits_of_the_index),
        cmocka_unit_test(a_product_that_does_not_fit_is_refused),
        cmocka_unit_test(min_and_max_pick_from_either_place),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
