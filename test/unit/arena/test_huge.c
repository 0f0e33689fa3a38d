// SPDX-License-Identifier: MIT
// Huge blocks: taking, freeing, resizing, aligning. The cache: see test_huge_cache.c.
#include "huge_world.h"

enum { MIB = 1 << 20, CACHE_LIMIT = 16 * MIB };

static int begin(void **state) {
    (void)state;
    huge_world_begin(CACHE_LIMIT);
    return 0;
}

static void check_counts(void) {
    size_t cached = 0;
    for (unsigned i = 0; set->cache.pieces != NULL && i < MALLOW_HUGE_CACHE_COUNT; i++) {
        cached += set->cache.pieces[i].bytes;
    }
    cached += set->cache.room.tail - set->cache.room.front;
    assert_int_equal(set->cache.bytes, cached);
    assert_true(cached <= set->cache.worth || huge_owes(set));
    uint64_t count = 0;
    uint64_t bytes = 0;
    for (const struct huge *huge = set->live; huge != NULL; huge = huge->next) {
        count++;
        bytes += huge->mapped_bytes;
        assert_true(huge->next == NULL || huge->next->previous == huge);
    }
    assert_int_equal(set->live_count, count);
    assert_int_equal(set->live_bytes, bytes);
}

static uintptr_t take(size_t bytes) {
    const uintptr_t address = huge_take(set, bytes, 1, false);
    assert_true(address != 0);
    const struct huge *const huge = huge_of(set, address);
    assert_non_null(huge);
    assert_true(huge->usable_bytes >= bytes);
    check_counts();
    return address;
}

static void give(uintptr_t address) {
    assert_true(huge_give(set, address, true));
    check_counts();
}

static size_t held_at_rest; // of what is held: what no huge block has to do with
static size_t unmapped;     // by a call that begins now; 0: none is looked at

bool __real_os_unmap(struct os *os, uintptr_t address, size_t bytes);
bool __wrap_os_unmap(struct os *os, uintptr_t address, size_t bytes);
bool __wrap_os_unmap(struct os *os, uintptr_t address, size_t bytes) {
    if (unmapped == SIZE_MAX) {
        unmapped = bytes;
        give(take(2 * MIB)); // whose end settles what is held
        assert_true(atomic_load(&world.os.charge.held_bytes) - held_at_rest >=
                    set->live_bytes + set->cache.bytes + bytes);
    }
    return __real_os_unmap(os, address, bytes);
}

// Its pages are resident until the kernel has taken them.
CASE(what_is_being_unmapped_is_held) {
    const uintptr_t kept = take(4 * MIB);
    (void)take(20 * MIB);
    give(kept);
    held_at_rest = atomic_load(&world.os.charge.held_bytes) - set->live_bytes - set->cache.bytes;
    unmapped = SIZE_MAX;
    assert_int_equal(huge_idle_purge(set, MIB, 1), MIB);
    assert_int_equal(unmapped, MIB);
    unmapped = 0;
    assert_int_equal(atomic_load(&world.os.charge.held_bytes) - held_at_rest,
                     set->live_bytes + set->cache.bytes);
}

CASE(a_block_is_known_by_its_start_alone) {
    const uintptr_t block = take(3 * MIB + 1);
    const struct huge *const huge = huge_of(set, block);
    assert_int_equal(huge->address, block);
    assert_int_equal(huge->usable_bytes, 3 * MIB + world.os.page_bytes);
    static const size_t inside[] = {1, 16, 4096, MIB, 3 * MIB};
    for (unsigned i = 0; i < 5; i++) {
        assert_null(huge_of(set, block + inside[i]));
        assert_false(huge_give(set, block + inside[i], true));
        assert_true(huge_contains(set, block + inside[i]));
    }
    assert_true(huge_contains(set, block));
    assert_false(huge_contains(set, block - 1));
    assert_false(huge_contains(set, block + huge->mapped_bytes));
    for (unsigned bit = 0; bit < 64; bit++) {
        assert_null(huge_of(set, UINT64_C(1) << bit));
    }
    assert_null(huge_of(set, 0));
    assert_null(huge_of(set, UINTPTR_MAX));
}

CASE(a_block_is_freed_once) {
    const uintptr_t block = take(2 * MIB);
    give(block);
    assert_null(huge_of(set, block));
    assert_false(huge_contains(set, block));
    assert_false(huge_give(set, block, true));
    assert_false(huge_give(set, 0, true));
    check_counts();
}

CASE(a_freed_block_is_known_to_be_one) {
    const uintptr_t other = take(2 * MIB);
    const uintptr_t late = take(3 * MIB);
    const uintptr_t block = take(4 * MIB);
    assert_int_equal(huge_past_of(set, block), HUGE_UNKNOWN);
    give(block);
    assert_int_equal(huge_past_of(set, block), HUGE_KEPT);
    assert_int_equal(huge_past_of(set, block + MIB), HUGE_KEPT);
    (void)huge_purge_all(set);
    assert_int_equal(huge_past_of(set, block), HUGE_GONE);
    assert_int_equal(huge_past_of(set, block + 4 * MIB), HUGE_UNKNOWN);
    assert_true(huge_put_off(set, huge_of(set, late), late));
    assert_int_equal(huge_past_of(set, late), HUGE_KEPT);
    assert_int_equal(huge_past_of(set, other), HUGE_UNKNOWN);
    assert_int_equal(huge_past_of(set, 0), HUGE_UNKNOWN);
    assert_int_equal(huge_past_of(set, UINTPTR_MAX), HUGE_UNKNOWN);
}

CASE(at_most_one_block_begins_in_any_megabyte) {
    uintptr_t blocks[40];
    for (unsigned i = 0; i < 40; i++) {
        blocks[i] = take(i % 3 == 0 ? 1 : (size_t)i * 50000);
        for (unsigned j = 0; j < i; j++) {
            assert_true(blocks[i] >> MALLOW_MAP_SHIFT != blocks[j] >> MALLOW_MAP_SHIFT);
        }
    }
    for (unsigned i = 0; i < 40; i++) {
        assert_int_equal(huge_of(set, blocks[i])->address, blocks[i]);
    }
}

CASE(blocks_are_aligned_as_asked) {
    for (size_t alignment = 1; alignment <= 64 * MIB; alignment *= 4) {
        const uintptr_t block = huge_take(set, 2 * MIB, alignment, false);
        assert_int_equal(block % alignment, 0);
        *(volatile char *)block = 1;
        *(volatile char *)(block + 2 * MIB - 1) = 1;
        give(block);
    }
}

CASE(a_block_at_an_offset_is_aligned_there_zeroed_and_freed_whole) {
    struct unit_chance chance = unit_chance_begin();
    for (unsigned round = 0; round < 60; round++) {
        const size_t alignment = (size_t)16 << unit_below(&chance, 18);
        const size_t offset = unit_below(&chance, 5 * MIB);
        const size_t bytes = MIB / 2 + unit_below(&chance, 3 * MIB);
        const uintptr_t block = huge_take_at(set, bytes, alignment, offset);
        assert_int_equal((block + offset) % alignment, 0);
        const struct huge *const huge = huge_of(set, block);
        assert_non_null(huge);
        assert_int_equal(huge->usable_bytes, bytes);
        assert_true(huge->map_address <= block);
        assert_true(block + bytes <= huge->map_address + huge->mapped_bytes);
        assert_int_equal(((const unsigned char *)block)[0], 0);
        assert_true(unit_is_all((const void *)block, 0, bytes));
        memset((void *)block, 0x5a, bytes);
        give(block);
    }
    assert_int_equal(set->live_count, 0);
}

CASE(resizing_keeps_the_contents_and_the_accounts) {
    const uintptr_t block = take(2 * MIB);
    memset((void *)block, 0x5a, 2 * MIB);
    const uintptr_t larger = huge_resize(set, huge_of(set, block), 40 * MIB, true);
    assert_true(larger != 0);
    check_counts();
    assert_int_equal(huge_of(set, larger)->usable_bytes, 40 * MIB);
    assert_true(larger == block || huge_of(set, block) == NULL);
    assert_true(unit_is_all((const void *)larger, 0x5a, 2 * MIB));
    assert_true(unit_is_all((const void *)(larger + 2 * MIB), 0, 38 * MIB));
    const uintptr_t smaller = huge_resize(set, huge_of(set, larger), MIB + 5, false);
    assert_int_equal(smaller, larger);
    check_counts();
    assert_int_equal(huge_of(set, smaller)->usable_bytes, MIB + world.os.page_bytes);
    assert_int_equal(set->live_bytes, MIB + world.os.page_bytes);
    assert_true(unit_is_all((const void *)smaller, 0x5a, MIB + 5));
}

CASE(a_block_that_may_not_move_stays_or_is_left_as_it_was) {
    const uintptr_t block = take(2 * MIB);
    // The neighbourhood is taken, so that it cannot grow where it is.
    const uintptr_t wall = block + 2 * MIB;
    assert_true(os_is_mapped(&world.os, wall) ||
                os_commit(&world.os, wall, world.os.page_bytes));
    struct huge *const huge = huge_of(set, block);
    assert_int_equal(huge_resize(set, huge, 8 * MIB, false), 0);
    assert_ptr_equal(huge_of(set, block), huge);
    assert_int_equal(huge->usable_bytes, 2 * MIB);
    check_counts();
    assert_int_equal(huge_resize(set, huge, 2 * MIB, false), block);
    assert_int_equal(huge_resize(set, huge, SIZE_MAX, true), 0);
    assert_int_equal(huge_resize(set, huge, PTRDIFF_MAX, true), 0);
    assert_ptr_equal(huge_of(set, block), huge);
    check_counts();
}

CASE(sizes_that_cannot_be_are_refused_and_change_nothing) {
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 4095, (size_t)PTRDIFF_MAX + 1, PTRDIFF_MAX};
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(huge_take(set, sizes[i], 1, false), 0);
        assert_int_equal(huge_take(set, sizes[i], (size_t)1 << 40, true), 0);
        assert_int_equal(huge_take_at(set, sizes[i], 64, 8), 0);
    }
    assert_int_equal(huge_take(set, 2 * MIB, (size_t)1 << 63, false), 0);
    assert_int_equal(huge_take_at(set, 2 * MIB, (size_t)1 << 63, 8), 0);
    check_counts();
    assert_int_equal(set->live_count, 0);
}

CASE(records_are_used_again) {
    give(take(MIB));
    give(take(MIB)); // the address map has its nodes now, and two in reserve
    uintptr_t blocks[5];
    uint64_t used = 0;
    for (unsigned round = 0; round < 100; round++) {
        for (unsigned i = 0; i < 5; i++) {
            blocks[i] = take(MIB);
            assert_int_equal(huge_take(set, PTRDIFF_MAX, 1, false), 0);
        }
        used = round == 10 ? world.meta.used_bytes : used;
        for (unsigned i = 0; i < 5; i++) {
            give(blocks[i]);
        }
    }
    assert_int_equal(world.meta.used_bytes, used);
}

CASE(there_may_be_a_room_again_once_a_limit_of_address_space_is_lifted) {
    assert_true(os_confine(&world.os, (size_t)1 << 36));
    huge_confine(set);
    assert_true(set->cache.room.refused);
    huge_unconfine(set); // it is limited yet
    assert_true(set->cache.room.refused);
    assert_true(os_unconfine(&world.os, SIZE_MAX));
    huge_unconfine(set);
    assert_false(set->cache.room.refused);
}

#define HUGE_CASE(name) cmocka_unit_test_setup_teardown(name, begin, huge_world_end)

int main(void) {
    const struct CMUnitTest cases[] = {
        HUGE_CASE(a_block_is_known_by_its_start_alone),
        HUGE_CASE(a_block_is_freed_once),
        HUGE_CASE(a_freed_block_is_known_to_be_one),
        HUGE_CASE(at_most_one_block_begins_in_any_megabyte),
        HUGE_CASE(blocks_are_aligned_as_asked),
        HUGE_CASE(a_block_at_an_offset_is_aligned_there_zeroed_and_freed_whole),
        HUGE_CASE(resizing_keeps_the_contents_and_the_accounts),
        HUGE_CASE(a_block_that_may_not_move_stays_or_is_left_as_it_was),
        HUGE_CASE(sizes_that_cannot_be_are_refused_and_change_nothing),
        HUGE_CASE(records_are_used_again),
        HUGE_CASE(what_is_being_unmapped_is_held),
        HUGE_CASE(there_may_be_a_room_again_once_a_limit_of_address_space_is_lifted),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
