// SPDX-License-Identifier: MIT
// Size classes: every size up to 64 KiB, and every class.
#include "slab/size_class.h"

#include "../unit.h"

CASE(every_size_fits_its_block_and_wastes_at_most_an_eighth) {
    for (size_t size = 0; size <= MALLOW_SLAB_BYTES_MAX; size++) {
        const unsigned class_index = size_class_of(size);
        assert_in_range(class_index, 0, MALLOW_CLASS_COUNT - 1);
        const size_t bytes = size_class_bytes(class_index);
        assert_true(bytes >= size);
        if (size == 0) {
            assert_int_equal(bytes, 16);
        } else if (size <= 128) {
            assert_true(bytes - size <= 15);
        } else {
            assert_true((bytes - size) * 8 <= size);
        }
    }
}

CASE(a_larger_size_never_gets_a_smaller_class_and_no_class_is_skipped) {
    for (size_t size = 1; size <= MALLOW_SLAB_BYTES_MAX; size++) {
        const unsigned step = size_class_of(size) - size_class_of(size - 1);
        assert_in_range(step, 0, 1);
    }
    assert_int_equal(size_class_of(MALLOW_SLAB_BYTES_MAX), MALLOW_CLASS_COUNT - 1);
}

CASE(a_class_serves_exactly_the_sizes_above_the_class_below) {
    for (unsigned class_index = 0; class_index < MALLOW_CLASS_COUNT; class_index++) {
        const size_t bytes = size_class_bytes(class_index);
        assert_int_equal(size_class_of(bytes), class_index);
        if (class_index + 1 < MALLOW_CLASS_COUNT) {
            assert_int_equal(size_class_of(bytes + 1), class_index + 1);
            assert_true(size_class_bytes(class_index + 1) > bytes);
        }
    }
}

CASE(eight_classes_are_sixteen_bytes_apart_and_then_each_doubling_has_eight) {
    for (unsigned class_index = 0; class_index < 8; class_index++) {
        assert_int_equal(size_class_bytes(class_index), (class_index + 1) * 16);
    }
    for (unsigned class_index = 7; class_index + 8 < MALLOW_CLASS_COUNT; class_index++) {
        assert_int_equal(size_class_bytes(class_index + 8), 2 * size_class_bytes(class_index));
    }
    for (unsigned class_index = 8; class_index + 1 < MALLOW_CLASS_COUNT; class_index++) {
        const size_t below = size_class_bytes(class_index - 1);
        const size_t step = ((size_t)1 << bits_highest(below)) / 8;
        assert_int_equal(size_class_bytes(class_index) - below, step);
    }
    assert_int_equal(size_class_bytes(MALLOW_CLASS_COUNT - 1), MALLOW_SLAB_BYTES_MAX);
    assert_int_equal(size_class_of(MALLOW_SMALL_BYTES_MAX) + 1, MALLOW_DIRECT_CLASS_COUNT);
}

CASE(a_power_of_two_that_divides_the_size_divides_the_block_up_to_the_step) {
    for (size_t size = 1; size <= MALLOW_SLAB_BYTES_MAX; size++) {
        const size_t step = size <= 128 ? 16 : (size_t)1 << (bits_highest(size - 1) - 3);
        const size_t bytes = size_class_bytes(size_class_of(size));
        for (size_t power = 1; power <= step && size % power == 0; power *= 2) {
            assert_int_equal(bytes % power, 0);
        }
    }
}

CASE(a_size_rounded_up_to_an_alignment_gets_blocks_that_are_a_multiple_of_it) {
    for (size_t alignment = 1; alignment <= MALLOW_SLAB_BYTES_MAX; alignment *= 2) {
        for (size_t size = alignment; size <= MALLOW_SLAB_BYTES_MAX; size += alignment) {
            assert_int_equal(size_class_bytes(size_class_of(size)) % alignment, 0);
        }
    }
}

CASE(a_slab_of_small_blocks_is_one_slice_and_any_other_has_room_for_eight) {
    for (unsigned class_index = 0; class_index < MALLOW_CLASS_COUNT; class_index++) {
        const size_t bytes = size_class_bytes(class_index);
        const unsigned slices = size_class_slices(class_index);
        const unsigned capacity = size_class_capacity(class_index);
        if (bytes <= MALLOW_SINGLE_SLICE_BLOCK_MAX) {
            assert_int_equal(slices, 1);
        } else {
            assert_in_range(slices, 2, 8);
            assert_true((slices - 1) * MALLOW_SLICE_BYTES < 8 * bytes);
        }
        assert_true(capacity >= 8);
        assert_true(capacity <= MALLOW_SLAB_CAPACITY_MAX);
        assert_true(capacity * bytes <= slices * MALLOW_SLICE_BYTES);
        assert_true(capacity == MALLOW_SLAB_CAPACITY_MAX ||
                    (capacity + 1) * bytes > slices * MALLOW_SLICE_BYTES);
    }
}

CASE(a_doubling_ends_with_the_host_of_its_classes_whose_blocks_serve_for_theirs) {
    uint32_t guests[MALLOW_DIRECT_CLASS_COUNT] = {0};
    for (unsigned class_index = 0; class_index < MALLOW_DIRECT_CLASS_COUNT; class_index++) {
        const unsigned host = size_class_host(class_index);
        const size_t bytes = size_class_bytes(host);
        assert_true(host < MALLOW_DIRECT_CLASS_COUNT);
        assert_int_equal(size_class_host(host), host);
        assert_int_equal(bytes & (bytes - 1), 0);
        assert_true(bytes >= size_class_bytes(class_index));
        assert_true(bytes < 2 * size_class_bytes(class_index));
        if (host != class_index) {
            guests[host] |= UINT32_C(1) << class_index;
            assert_int_equal(size_class_granules(class_index), size_class_granules(host));
        }
    }
    for (unsigned class_index = 0; class_index < MALLOW_DIRECT_CLASS_COUNT; class_index++) {
        assert_int_equal(size_class_guests(class_index), guests[class_index]);
    }
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(every_size_fits_its_block_and_wastes_at_most_an_eighth),
        cmocka_unit_test(a_larger_size_never_gets_a_smaller_class_and_no_class_is_skipped),
        cmocka_unit_test(a_class_serves_exactly_the_sizes_above_the_class_below),
        cmocka_unit_test(eight_classes_are_sixteen_bytes_apart_and_then_each_doubling_has_eight),
        cmocka_unit_test(a_power_of_two_that_divides_the_size_divides_the_block_up_to_the_step),
        cmocka_unit_test(a_size_rounded_up_to_an_alignment_gets_blocks_that_are_a_multiple_of_it),
        cmocka_unit_test(a_slab_of_small_blocks_is_one_slice_and_any_other_has_room_for_eight),
        cmocka_unit_test(
            a_doubling_ends_with_the_host_of_its_classes_whose_blocks_serve_for_theirs),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
