// SPDX-License-Identifier: MIT
// Holes of one slab, against a model that asks of every page what lies in it.
#include "slab/slab_holes.h"

#include "../unit.h"
#include "slab/size_class.h"

static struct slab slots[8];
static struct slab *const slab = &slots[0];
static struct slab_remote part;
static const uintptr_t span_address = UINT64_C(0x7a0000030000);

// Opens all or some of a slab of a class, all of it free, not current.
static void begin(unsigned class_index, unsigned opens) {
    memset(slots, 0, sizeof slots);
    memset(&part, 0, sizeof part);
    slab_init(slab, span_address, class_index, size_class_slices(class_index),
              0x123000 | SLAB_OWNER_QUEUED);
    while (opens-- > 0 && slab_open(slab, 4096)) {
    }
}

static bool bit_of(const uint64_t *bits, size_t index) {
    return ((bits[index / 64] >> (index % 64)) & 1U) != 0;
}

// What malloc may take meanwhile, in a class that its fast path serves.
enum exposure { WORD, LOWEST, NONE };

static bool may_be_taken(size_t index, enum exposure exposure) {
    if (!slab_is_current(slab) || slab->block_bytes > MALLOW_SMALL_BYTES_MAX || exposure == NONE) {
        return false;
    }
    const size_t word = slab_word_index(slab);
    if (index / 64 != word) {
        return false;
    }
    return exposure == WORD ||
           (slab->bits[word] != 0 && index % 64 == bits_lowest(slab->bits[word]));
}

static bool is_hot_and_free(size_t index, enum exposure exposure) {
    const bool fast = slab->block_bytes <= MALLOW_SMALL_BYTES_MAX;
    return slab_is_hot(slab, index) && (!fast || exposure == NONE);
}

// The model: no block in use, nor one that malloc may hand out, touches the page.
static bool page_is_hole(uintptr_t page, size_t page_bytes, enum exposure exposure) {
    for (size_t i = 0; i < slab->capacity_count; i++) {
        const uintptr_t block = slab->start_address + i * slab->block_bytes;
        const bool pending = (slab->owner & SLAB_OWNER_PENDING) != 0;
        const bool is_free =
            ((bit_of(slab->bits, i) || (pending && bit_of((void *)part.bits, i))) &&
             !may_be_taken(i, exposure)) ||
            is_hot_and_free(i, exposure);
        if (!is_free && block < page + page_bytes && block + slab->block_bytes > page) {
            return false;
        }
    }
    return true;
}

static bool lies_in(uintptr_t page, const struct slab_range *range) {
    return page >= range->low && page < range->high;
}

// The pages that are holes only now are the ones told, and only those.
static void check_ranges(const struct slab_view *view, size_t page_bytes) {
    if (view->word_index == MALLOW_SLAB_WORDS) {
        return;
    }
    const struct slab_range word = slab_view_word(view, page_bytes);
    const struct slab_range lowest = slab_view_lowest(view, page_bytes);
    const struct slab_range hot = slab_view_hot(view, page_bytes);
    const uintptr_t end = span_address + slab->slice_count * MALLOW_SLICE_BYTES;
    for (uintptr_t page = span_address; page < end; page += page_bytes) {
        const bool at_first = page_is_hole(page, page_bytes, WORD);
        const bool then = page_is_hole(page, page_bytes, LOWEST);
        const bool at_last = page_is_hole(page, page_bytes, NONE);
        assert_true(!at_first || then);
        assert_true(!then || at_last);
        assert_true(!then || at_first || lies_in(page, &word));
        assert_true(!at_last || then || lies_in(page, &lowest) || lies_in(page, &hot));
        assert_true(!at_first || !lies_in(page, &word));
        assert_true(!then || (!lies_in(page, &lowest) && !lies_in(page, &hot)));
    }
}

static void check_view(const struct slab_view *view, size_t page_bytes, enum exposure exposure) {
    struct slab_hole hole = {span_address, 0, 0};
    size_t index = 0;
    const uintptr_t end = span_address + slab->slice_count * MALLOW_SLICE_BYTES;
    const uintptr_t opened = slab->start_address + slab->capacity_count * slab->block_bytes;
    bool more = slab_view_next(view, page_bytes, &index, &hole);
    for (uintptr_t page = span_address; page < end; page += page_bytes) {
        if (more && page == hole.address + hole.bytes) {
            const uintptr_t before = hole.address + hole.bytes;
            more = slab_view_next(view, page_bytes, &index, &hole);
            assert_true(!more || hole.address >= before);
        }
        const bool in_hole = more && page >= hole.address && page < hole.address + hole.bytes;
        assert_int_equal(in_hole, page_is_hole(page, page_bytes, exposure));
        if (in_hole) {
            assert_true(hole.opened_bytes <= hole.bytes);
            assert_int_equal(page < opened, page < hole.address + hole.opened_bytes);
        }
    }
    if (more && hole.address + hole.bytes == end) {
        more = slab_view_next(view, page_bytes, &index, &hole);
    }
    assert_false(more);
}

static void check(size_t page_bytes) {
    struct slab_view view;
    assert_true(slab_view_take(&view, slab, &part, span_address));
    assert_true(slab_view_print(&view) != 0);
    check_view(&view, page_bytes, WORD);
    check_ranges(&view, page_bytes);
    if (view.word_index != MALLOW_SLAB_WORDS) {
        slab_view_expose(&view, SLAB_EXPOSED_LOWEST);
        check_view(&view, page_bytes, LOWEST);
        slab_view_expose(&view, SLAB_EXPOSED_NONE);
        check_view(&view, page_bytes, NONE);
    }
}

CASE(an_unused_slab_is_one_hole_and_a_full_one_has_none) {
    begin(size_class_of(256), 100);
    struct slab_view view;
    struct slab_hole hole;
    size_t index = 0;
    assert_true(slab_view_take(&view, slab, &part, span_address));
    assert_true(slab_view_next(&view, 4096, &index, &hole));
    assert_int_equal(hole.address, span_address);
    assert_int_equal(hole.bytes, MALLOW_SLICE_BYTES);
    assert_false(slab_view_next(&view, 4096, &index, &hole));
    memset(slab->bits, 0, sizeof slab->bits);
    check(4096);
}

CASE(every_class_agrees_with_the_model_at_every_page_size) {
    struct unit_chance chance = unit_chance_begin();
    for (unsigned round = 0; round < 6; round++) {
        for (unsigned class_index = 0; class_index < MALLOW_CLASS_COUNT; class_index++) {
            begin(class_index, unit_below(&chance, 3) == 0 ? 100 : 1 + unit_below(&chance, 4));
            const unsigned live_share = 2 + unit_below(&chance, 60);
            for (size_t i = 0; i < slab->capacity_count; i++) {
                if (unit_below(&chance, live_share) == 0) {
                    slab->bits[i / 64] &= ~(UINT64_C(1) << (i % 64));
                    if (unit_below(&chance, 3) == 0) {
                        part.bits[i / 64] |= UINT64_C(1) << (i % 64); // freed by another thread
                    }
                }
            }
            if (unit_below(&chance, 2) == 0) {
                slab->owner |= SLAB_OWNER_PENDING;
            }
            if (unit_below(&chance, 2) == 0) {
                slab->owner &= ~SLAB_OWNER_QUEUED;
                slab->used_count += SLAB_CURRENT;
                const size_t index = unit_below(&chance, slab->capacity_count);
                if (!bit_of(slab->bits, index)) {
                    slab_set_last(slab, slab->start_address + index * slab->block_bytes);
                    slab_set_hot(slab, unit_below(&chance, 3) != 0);
                    part.bits[index / 64] &= ~(UINT64_C(1) << (index % 64));
                }
            }
            check(4096);
            check(16384);
            check(65536);
        }
    }
}

CASE(what_is_not_a_slab_has_no_view) {
    struct slab_view view;
    memset(slots, 0, sizeof slots);
    assert_false(slab_view_take(&view, slab, &part, span_address));
    slab_init_large(slab, span_address, 3, 180000);
    assert_false(slab_view_take(&view, slab, &part, span_address));
    begin(size_class_of(64), 1);
    slab->block_bytes = 0; // caught half made
    assert_false(slab_view_take(&view, slab, &part, span_address));
}

CASE(a_part_of_the_holes_is_what_lies_in_both) {
    struct slab_view view;
    struct slab_hole hole;
    begin(size_class_of(1024), 100);
    slab->bits[0] &= ~(UINT64_C(1) << 30); // in the page from 28 KiB on, or in two
    assert_true(slab_view_take(&view, slab, &part, span_address));
    const struct slab_range range = {span_address + 8192, span_address + 40960};
    size_t index = 0;
    assert_true(slab_view_next_in(&view, 4096, &range, &index, &hole));
    assert_int_equal(hole.address, range.low);
    assert_true(hole.address + hole.bytes <= span_address + 32768);
    assert_true(slab_view_next_in(&view, 4096, &range, &index, &hole));
    assert_int_equal(hole.address + hole.bytes, range.high);
    assert_int_equal(hole.opened_bytes, hole.bytes);
    assert_false(slab_view_next_in(&view, 4096, &range, &index, &hole));
    const struct slab_range nothing = {0, 0};
    index = 0;
    assert_false(slab_view_next_in(&view, 4096, &nothing, &index, &hole));
}

// Every range of pages has the holes that all of them have in it.
CASE(a_range_has_the_pages_of_holes_that_lie_in_it) {
    static const size_t sizes[] = {16, 48, 640, 1024, 5000, 20000};
    struct unit_chance chance = unit_chance_begin();
    for (unsigned round = 0; round < 600; round++) {
        begin(size_class_of(sizes[round % 6]), 100);
        for (unsigned i = unit_below(&chance, slab->capacity_count); i > 0; i /= 2) {
            const unsigned first = unit_below(&chance, slab->capacity_count);
            slab->bits[first / 64] &= ~(UINT64_C(1) << (first % 64));
        }
        struct slab_view view;
        assert_true(slab_view_take(&view, slab, &part, span_address));
        const unsigned pages = (unsigned)((view.span_end - view.span_start) / 4096);
        const unsigned low = unit_below(&chance, pages);
        const struct slab_range range = {
            span_address + low * 4096,
            span_address + (low + 1 + unit_below(&chance, pages - low)) * 4096};
        size_t expected = 0;
        size_t found = 0;
        size_t index = 0;
        struct slab_hole hole;
        while (slab_view_next(&view, 4096, &index, &hole)) {
            const uintptr_t end = bits_min(hole.address + hole.bytes, range.high);
            const uintptr_t start = bits_max(hole.address, range.low);
            expected += end > start ? end - start : 0;
        }
        index = 0;
        while (slab_view_next_in(&view, 4096, &range, &index, &hole)) {
            assert_true(hole.address >= range.low && hole.address + hole.bytes <= range.high);
            found += hole.bytes;
        }
        assert_int_equal(found, expected);
    }
}

CASE(the_print_of_the_word_changes_with_it_alone) {
    struct slab_view view;
    begin(size_class_of(64), 100);
    (void)slab_view_take(&view, slab, &part, span_address);
    assert_int_equal(slab_view_word_print(&view), 0); // not current
    slab->used_count += SLAB_CURRENT;
    (void)slab_view_take(&view, slab, &part, span_address);
    const uint32_t before = slab_view_word_print(&view);
    const uint32_t beside = slab_view_print(&view);
    const size_t word = slab_word_index(slab);
    for (size_t i = 0; i < slab->capacity_count; i++) {
        slab->bits[i / 64] ^= UINT64_C(1) << (i % 64);
        (void)slab_view_take(&view, slab, &part, span_address);
        assert_int_equal(slab_view_word_print(&view) != before, i / 64 == word);
        assert_int_equal(slab_view_print(&view) != beside, i / 64 != word);
        slab->bits[i / 64] ^= UINT64_C(1) << (i % 64);
    }
    slab->bits[word] &= ~UINT64_C(1);
    slab_set_last(slab, slab->start_address + word * 64 * slab->block_bytes);
    (void)slab_view_take(&view, slab, &part, span_address);
    const uint32_t cold = slab_view_word_print(&view);
    slab_set_hot(slab, true);
    (void)slab_view_take(&view, slab, &part, span_address);
    assert_int_not_equal(slab_view_word_print(&view), cold);
}

CASE(the_print_changes_with_each_block_and_word) {
    struct slab_view view;
    begin(size_class_of(64), 100);
    (void)slab_view_take(&view, slab, &part, span_address);
    const uint32_t before = slab_view_print(&view);
    for (size_t i = 0; i < slab->capacity_count; i++) {
        slab->bits[i / 64] ^= UINT64_C(1) << (i % 64);
        (void)slab_view_take(&view, slab, &part, span_address);
        assert_int_not_equal(slab_view_print(&view), before);
        slab->bits[i / 64] ^= UINT64_C(1) << (i % 64);
    }
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(an_unused_slab_is_one_hole_and_a_full_one_has_none),
        cmocka_unit_test(every_class_agrees_with_the_model_at_every_page_size),
        cmocka_unit_test(what_is_not_a_slab_has_no_view),
        cmocka_unit_test(a_part_of_the_holes_is_what_lies_in_both),
        cmocka_unit_test(a_range_has_the_pages_of_holes_that_lie_in_it),
        cmocka_unit_test(the_print_of_the_word_changes_with_it_alone),
        cmocka_unit_test(the_print_changes_with_each_block_and_word),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
