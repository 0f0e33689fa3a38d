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
    slab_init(slab, span_address, class_index, 0x123000 | SLAB_OWNER_QUEUED);
    while (opens-- > 0 && slab_open(slab, 4096)) {
    }
}

static bool bit_of(const uint64_t *bits, size_t index) {
    return ((bits[index / 64] >> (index % 64)) & 1U) != 0;
}

// The model: no block in use, nor one that malloc may hand out, touches the page.
static bool page_is_hole(uintptr_t page, size_t page_bytes) {
    for (size_t i = 0; i < slab->capacity_count; i++) {
        const uintptr_t block = slab->start_address + i * slab->block_bytes;
        const bool pending = (slab->owner & SLAB_OWNER_PENDING) != 0;
        const bool taken_from =
            slab_is_current(slab) && slab->block_bytes <= MALLOW_SMALL_BYTES_MAX &&
            (size_t)(slab->word - slab->bits) == i / 64;
        const bool is_free = (bit_of(slab->bits, i) || (pending && bit_of((void *)part.bits, i))) &&
                             !taken_from;
        if (!is_free && block < page + page_bytes && block + slab->block_bytes > page) {
            return false;
        }
    }
    return true;
}

static void check(size_t page_bytes) {
    struct slab_view view;
    struct slab_hole hole = {span_address, 0, 0};
    size_t index = 0;
    assert_true(slab_view_take(&view, slab, &part, span_address));
    assert_true(slab_view_print(&view) != 0);
    const uintptr_t end = span_address + slab->slice_count * MALLOW_SLICE_BYTES;
    const uintptr_t opened = slab->start_address + slab->capacity_count * slab->block_bytes;
    bool more = slab_view_next(&view, page_bytes, &index, &hole);
    for (uintptr_t page = span_address; page < end; page += page_bytes) {
        if (more && page == hole.address + hole.bytes) {
            const uintptr_t before = hole.address + hole.bytes;
            more = slab_view_next(&view, page_bytes, &index, &hole);
            assert_true(!more || hole.address >= before);
        }
        const bool in_hole = more && page >= hole.address && page < hole.address + hole.bytes;
        assert_int_equal(in_hole, page_is_hole(page, page_bytes));
        if (in_hole) {
            assert_true(hole.opened_bytes <= hole.bytes);
            assert_int_equal(page < opened, page < hole.address + hole.opened_bytes);
        }
    }
    if (more && hole.address + hole.bytes == end) {
        more = slab_view_next(&view, page_bytes, &index, &hole);
    }
    assert_false(more);
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
        cmocka_unit_test(the_print_changes_with_each_block_and_word),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
