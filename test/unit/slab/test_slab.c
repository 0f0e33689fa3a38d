// SPDX-License-Identifier: MIT
// Slab: the bitmap of one slab. No block is ever touched, so the slab's address can be any.
#include "slab/slab.h"

#include "slab/size_class.h"

#include "../unit.h"

enum { SLOTS = 8, PAGE_BYTES = 4096 };
static struct slab slots[SLOTS];
static struct slab *const slab = &slots[0];

static const uintptr_t heap_a = 0x123000;
static const uintptr_t heap_b = 0x456000;

static uintptr_t slice_address(unsigned slice) {
    return UINT64_C(0x7a0000000000) + slice * MALLOW_SLICE_BYTES;
}

static void begin(unsigned class_index, unsigned slice) {
    memset(slots, 0, sizeof slots);
    slab_init(slab, slice_address(slice), class_index, size_class_slices(class_index), heap_a);
    while (slab_open(slab, PAGE_BYTES)) {
    }
}

// Takes whatever is left; how many blocks.
static unsigned take_all(void) {
    unsigned count = 0;
    uintptr_t address = 0;
    do {
        while (slab_take(slab, &address)) {
            count++;
        }
    } while (slab_find_word(slab));
    return count;
}

static void set_free(size_t index) {
    slab->bits[index / 64] |= UINT64_C(1) << (index % 64);
    slab->used_count--;
}

CASE(a_new_slab_is_wholly_free_and_passes_the_audit) {
    for (unsigned class_index = 0; class_index < MALLOW_CLASS_COUNT; class_index++) {
        for (unsigned slice = 0; slice < 33; slice++) {
            begin(class_index, slice);
            assert_true(slab_audit(slab));
            assert_true(slab_is_unused(slab));
            assert_int_equal(slab_count_used(slab), 0);
            assert_int_equal(slab->kind, SLAB_BLOCKS);
            assert_int_equal(slab_owner(slab), heap_a);
            for (size_t i = slab->capacity_count; i < slab->word_count * 64U; i++) {
                assert_int_equal((slab->bits[i / 64] >> (i % 64)) & 1, 0);
            }
        }
    }
}

CASE(every_block_is_handed_out_once_and_lies_in_the_slab) {
    static bool seen[MALLOW_SLAB_CAPACITY_MAX];
    for (unsigned class_index = 0; class_index < MALLOW_CLASS_COUNT; class_index++) {
        begin(class_index, class_index);
        memset(seen, 0, sizeof seen);
        const size_t span_bytes = slab->slice_count * MALLOW_SLICE_BYTES;
        unsigned count = 0;
        do {
            uintptr_t address = 0;
            while (slab_take(slab, &address)) {
                const size_t index = slab_index_of(slab, address);
                assert_true(index < slab->capacity_count);
                assert_false(seen[index]);
                assert_false(slab_is_free(slab, index));
                assert_int_equal(slab->last, address);
                const uintptr_t base = slice_address(class_index);
                assert_true(address >= base);
                assert_true(address + slab->block_bytes <= base + span_bytes);
                seen[index] = true;
                count++;
            }
        } while (slab_find_word(slab));
        assert_int_equal(count, slab->capacity_count);
        assert_int_equal(slab_count_used(slab), slab->capacity_count);
        assert_false(slab_is_unused(slab));
    }
}

CASE(the_index_is_exact_for_every_offset) {
    for (unsigned class_index = 0; class_index < MALLOW_CLASS_COUNT; class_index++) {
        begin(class_index, 5);
        const uintptr_t base = slice_address(5);
        const size_t color = slab->start_address - base;
        const size_t bytes = slab->block_bytes;
        const size_t span_bytes = slab->slice_count * MALLOW_SLICE_BYTES;
        size_t index = 0; // of the next block's start
        for (size_t offset = 0; offset < span_bytes; offset++) {
            const size_t found = slab_index_of(slab, base + offset);
            if (index < slab->capacity_count && offset == color + index * bytes) {
                if (found != index) {
                    fail_msg("class %u offset %zu: index %zu", class_index, offset, found);
                }
                index++;
            } else if (found != SIZE_MAX) {
                fail_msg("class %u offset %zu: not a start, index %zu", class_index, offset, found);
            }
        }
        assert_int_equal(index, slab->capacity_count);
    }
}

CASE(what_free_reaches_is_whole_blocks_of_the_first_slice) {
    for (unsigned class_index = 0; class_index < MALLOW_CLASS_COUNT; class_index++) {
        begin(class_index, 9);
        const size_t blocks = slab->capacity_count * slab->block_bytes;
        const uintptr_t end = slab->start_address + slab->reach_bytes;
        assert_true(slab->reach_bytes <= blocks);
        assert_true(end <= slice_address(10));
        assert_true(slab->reach_bytes == blocks || end == slice_address(10));
    }
}

CASE(the_hot_block_is_free_and_the_next_to_be_handed_out) {
    begin(3, 0);
    uintptr_t first = 0;
    uintptr_t second = 0;
    uintptr_t again = 0;
    assert_true(slab_take(slab, &first));
    assert_true(slab_take(slab, &second));
    assert_int_equal(slab_count_used(slab), 2);
    assert_int_equal(slab->last, second);
    slab_set_hot(slab, true);
    assert_true(slab_is_free(slab, slab_index_of(slab, second)));
    assert_false(slab_is_free(slab, slab_index_of(slab, first)));
    assert_int_equal(slab_count_used(slab), 1);
    assert_true(slab_take(slab, &again));
    assert_int_equal(again, second);
    assert_int_equal(slab->hot, 0);
    assert_int_equal(slab->last, second);
    assert_false(slab_is_free(slab, slab_index_of(slab, second)));
    assert_int_equal(slab_count_used(slab), 2);
}

CASE(cooling_makes_the_hot_block_an_ordinary_free_one) {
    begin(3, 0);
    uintptr_t block = 0;
    assert_true(slab_take(slab, &block));
    slab_set_hot(slab, true);
    for (unsigned round = 0; round < 2; round++) { // the second changes nothing
        slab_cool(slab);
        assert_int_equal(slab->hot, 0);
        assert_int_equal(slab->last, 0);
        assert_true(slab_is_unused(slab));
    }
}

CASE(a_slab_is_opened_by_pages_from_its_first_block_on) {
    for (unsigned class_index = 0; class_index < MALLOW_CLASS_COUNT; class_index++) {
        memset(slots, 0, sizeof slots);
        memset(slab->bits, 0xff, sizeof slab->bits); // of an earlier life
        slab_init(slab, slice_address(3), class_index, size_class_slices(class_index), heap_a);
        assert_int_equal(slab_index_of(slab, slab->start_address), SIZE_MAX);
        size_t before = 0;
        while (slab_can_open(slab)) {
            assert_true(slab_open(slab, PAGE_BYTES));
            const size_t open = slab->capacity_count;
            const size_t bytes = slab->block_bytes;
            const uintptr_t end = slab->start_address + open * bytes;
            assert_in_range(open, before + 1, slab->room_count);
            // Half as much again, and then no page more.
            assert_true(end <= bits_align_up(slab->start_address +
                                                 (before + bits_max(before / 2, 1)) * bytes,
                                             PAGE_BYTES));
            assert_true(open == slab->room_count || open >= before + before / 2);
            assert_true(slab_audit(slab));
            assert_int_equal(slab_count_used(slab), 0);
            assert_int_equal(slab_index_of(slab, end - bytes), open - 1);
            assert_int_equal(slab_index_of(slab, end), SIZE_MAX);
            uintptr_t address = 0;
            assert_true(slab_take(slab, &address));
            assert_in_range((address - slab->start_address) / bytes, before / 64 * 64, before);
            set_free((address - slab->start_address) / bytes);
            before = open;
        }
        assert_false(slab_open(slab, PAGE_BYTES));
        // No other one has room; or bits for the blocks of another page.
        const size_t bytes = slab->block_bytes;
        const size_t color = slab->start_address % PAGE_BYTES;
        const size_t pages_end = bits_align_up(color + before * bytes, PAGE_BYTES);
        assert_true(color + (before + 1) * bytes > slab->slice_count * MALLOW_SLICE_BYTES ||
                    (color + (before + 1) * bytes > pages_end &&
                     before + PAGE_BYTES / bytes >= MALLOW_SLAB_CAPACITY_MAX));
    }
}

CASE(a_slab_of_the_smallest_blocks_leaves_little_of_its_pages) {
    for (unsigned class_index = 0; size_class_bytes(class_index) <= 48; class_index++) {
        for (unsigned slice = 1; slice < 20; slice++) {
            slab_init(slab, slice_address(slice), class_index, 1, heap_a);
            const size_t color = slab->start_address - slice_address(slice);
            const size_t bytes = slab->room_count * slab->block_bytes;
            assert_true(slab->room_count <= MALLOW_SLAB_CAPACITY_MAX);
            const size_t rest = bits_align_up(color + bytes, PAGE_BYTES) - (color + bytes);
            assert_true(color < 256 && rest < slab->block_bytes);
        }
    }
}

CASE(an_open_slab_has_room_if_an_eighth_of_it_is_free_and_a_whole_one_if_any_is) {
    memset(slots, 0, sizeof slots);
    slab_init(slab, slice_address(3), size_class_of(64), size_class_slices(size_class_of(64)),
              heap_a);
    assert_true(slab_open(slab, 2 * PAGE_BYTES));
    const unsigned open = slab->capacity_count;
    assert_int_equal(take_all(), open);
    assert_false(slab_find_room(slab));
    for (unsigned index = 0; index < open; index++) {
        assert_int_equal(slab_find_room(slab), index >= 16 || (index > 0 && index * 8 >= open));
        set_free(index);
    }
    begin(size_class_of(64), 3);
    (void)take_all();
    assert_false(slab_find_room(slab));
    set_free(77);
    assert_true(slab_find_room(slab));
}

CASE(find_word_finds_the_only_free_block_wherever_it_is) {
    for (unsigned class_index = 0; class_index < MALLOW_CLASS_COUNT; class_index += 3) {
        begin(class_index, 7);
        assert_int_equal(take_all(), slab->capacity_count);
        assert_false(slab_find_word(slab));
        for (size_t index = 0; index < slab->capacity_count; index++) {
            uintptr_t address = 0;
            set_free(index);
            assert_true(slab_find_word(slab));
            assert_true(slab_take(slab, &address));
            assert_int_equal(slab_index_of(slab, address), index);
            assert_false(slab_find_word(slab));
        }
    }
}

CASE(is_unused_sees_a_single_block_in_use) {
    for (unsigned class_index = 0; class_index < MALLOW_CLASS_COUNT; class_index++) {
        begin(class_index, 0);
        for (size_t index = 0; index < slab->capacity_count; index++) {
            slab->bits[index / 64] &= ~(UINT64_C(1) << (index % 64));
            slab->used_count++;
            assert_false(slab_is_unused(slab));
            assert_int_equal(slab_count_used(slab), 1);
            set_free(index);
        }
        assert_true(slab_is_unused(slab));
    }
}

CASE(the_audit_sees_each_equation_broken) {
    begin(20, 0); // 320 bytes: the last word is not whole
    assert_int_not_equal(slab->capacity_count % 64, 0);
    const struct slab whole = *slab;
    slab->used_count = 1;
    assert_false(slab_audit(slab));
    slab->used_count = SLAB_CURRENT;
    assert_true(slab_audit(slab));
    slab->bits[0] &= ~UINT64_C(1);
    slab_set_last(slab, slab->start_address);
    slab_set_hot(slab, true);
    assert_false(slab_audit(slab));
    slab->used_count++; // the hot block counts as used
    assert_true(slab_audit(slab));
    *slab = whole;
    slab_set_last(slab, slab->start_address);
    slab_set_hot(slab, true);
    slab->used_count = slab_count_used(slab);
    assert_false(slab_audit(slab));
    *slab = whole;
    slab->word_base += slab->block_bytes;
    assert_false(slab_audit(slab));
    *slab = whole;
    slab->word = &slab->bits[slab->word_count];
    assert_false(slab_audit(slab));
    *slab = whole;
    slab->room_count = (uint16_t)(slab->capacity_count - 1U);
    assert_false(slab_audit(slab));
    *slab = whole;
    slab->bits[slab->capacity_count / 64] |= UINT64_C(1) << 63;
    slab->used_count = slab_count_used(slab);
    assert_false(slab_audit(slab));
    *slab = whole;
    assert_true(slab_audit(slab));
}

CASE(small_blocks_begin_at_another_line_in_each_slice_and_keep_their_alignment) {
    for (unsigned class_index = 0; class_index < MALLOW_CLASS_COUNT; class_index++) {
        const size_t bytes = size_class_bytes(class_index);
        const size_t natural = bytes & (0 - bytes);
        size_t before = SIZE_MAX;
        for (unsigned slice = 0; slice < 40; slice++) {
            begin(class_index, slice);
            const size_t color = slab->start_address - slice_address(slice);
            assert_true(color < 1024);
            assert_int_equal(color % natural, 0);
            if (natural > 512 || slab->slice_count > 1) {
                assert_int_equal(color, 0);
            } else {
                assert_int_equal(color % MALLOW_CACHE_LINE, 0);
                assert_int_not_equal(color, before);
            }
            before = color;
        }
    }
}

CASE(the_later_slices_lead_back_to_the_head_until_the_span_is_cleared) {
    begin(MALLOW_CLASS_COUNT - 1, 0);
    assert_int_equal(slab->slice_count, SLOTS);
    for (unsigned i = 1; i < SLOTS; i++) {
        assert_int_equal(slots[i].kind, SLAB_INTERIOR);
        assert_ptr_equal(slab_head(&slots[i]), slab);
        assert_int_equal(slots[i].start_address, 0);
        assert_int_equal(slots[i].reach_bytes, 0);
    }
    slab_clear(slab);
    assert_int_equal(slab->kind, SLAB_NONE);
    for (unsigned i = 0; i < SLOTS; i++) {
        assert_null(slab_head(&slots[i])); // whatever mark it has
        assert_int_equal(slots[i].slice_count, 0);
        assert_int_equal(slots[i].start_address, 0);
        assert_int_equal(slots[i].reach_bytes, 0);
        assert_int_equal(slab_owner(&slots[i]), 0);
    }
}

CASE(marks_of_a_span_that_is_no_more_lead_to_none_that_lies_there_now) {
    begin(MALLOW_CLASS_COUNT - 1, 0);
    slab_clear(slab);
    slab_init_large(slab, slice_address(0), 3, 150000);
    slab_init_large(&slots[4], slice_address(4), 2, 100000);
    slab_mark_interior(&slots[4], 2);
    struct slab *const heads[] = {slab, slab, slab, NULL, &slots[4], &slots[4], NULL, NULL};
    for (unsigned i = 0; i < SLOTS && i < sizeof heads / sizeof heads[0]; i++) {
        assert_ptr_equal(slab_head(&slots[i]), heads[i]);
    }
    slab_clear(slab); // what lay behind it leads nowhere, also over the head of another
    slab_init_large(&slots[2], slice_address(2), 1, 60000);
    assert_null(slab_head(&slots[1]));
    assert_ptr_equal(slab_head(&slots[2]), &slots[2]);
    assert_null(slab_head(&slots[3]));
}

CASE(a_large_block_and_a_thin_slice_send_free_to_the_slow_path) {
    memset(slots, 0, sizeof slots);
    slab_init_large(slab, slice_address(0), 3, 150000);
    assert_int_equal(slab->kind, SLAB_LARGE);
    assert_int_equal(slab->reach_bytes, 0);
    assert_int_equal(slab->block_bytes, 150000);
    assert_int_equal(slots[1].kind, SLAB_NONE); // no block begins there
    assert_true(slab_audit(slab));
    int described;
    slab_init_thin(slab, slice_address(0), &described);
    assert_int_equal(slab->kind, SLAB_THIN);
    assert_int_equal(slab->reach_bytes, 0);
    assert_ptr_equal(slab->word, &described);
}

CASE(a_change_of_owner_keeps_the_pending_flag_and_nothing_else) {
    begin(0, 0);
    slab_change_owner(slab, heap_b | SLAB_OWNER_FULL);
    assert_int_equal(slab_owner(slab), heap_b | SLAB_OWNER_FULL);
    slab_set_owner(slab, heap_b | SLAB_OWNER_FULL | SLAB_OWNER_PENDING);
    slab_change_owner(slab, heap_a | SLAB_OWNER_QUEUED);
    assert_int_equal(slab_owner(slab), heap_a | SLAB_OWNER_QUEUED | SLAB_OWNER_PENDING);
    assert_int_equal(slab_owner_heap(slab), heap_a);
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_new_slab_is_wholly_free_and_passes_the_audit),
        cmocka_unit_test(every_block_is_handed_out_once_and_lies_in_the_slab),
        cmocka_unit_test(the_index_is_exact_for_every_offset),
        cmocka_unit_test(what_free_reaches_is_whole_blocks_of_the_first_slice),
        cmocka_unit_test(the_hot_block_is_free_and_the_next_to_be_handed_out),
        cmocka_unit_test(cooling_makes_the_hot_block_an_ordinary_free_one),
        cmocka_unit_test(a_slab_is_opened_by_pages_from_its_first_block_on),
        cmocka_unit_test(a_slab_of_the_smallest_blocks_leaves_little_of_its_pages),
        cmocka_unit_test(an_open_slab_has_room_if_an_eighth_of_it_is_free_and_a_whole_one_if_any_is),
        cmocka_unit_test(find_word_finds_the_only_free_block_wherever_it_is),
        cmocka_unit_test(is_unused_sees_a_single_block_in_use),
        cmocka_unit_test(the_audit_sees_each_equation_broken),
        cmocka_unit_test(small_blocks_begin_at_another_line_in_each_slice_and_keep_their_alignment),
        cmocka_unit_test(the_later_slices_lead_back_to_the_head_until_the_span_is_cleared),
        cmocka_unit_test(marks_of_a_span_that_is_no_more_lead_to_none_that_lies_there_now),
        cmocka_unit_test(a_large_block_and_a_thin_slice_send_free_to_the_slow_path),
        cmocka_unit_test(a_change_of_owner_keeps_the_pending_flag_and_nothing_else),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
