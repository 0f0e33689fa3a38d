// SPDX-License-Identifier: MIT
// Huge blocks: while something is owed, pages of what is kept are given back by the call that needs
// fresh ones, in place of a mapping.
#include "huge_world.h"

#include <sys/syscall.h>
#include <unistd.h>

enum { MIB = 1 << 20, CACHE_LIMIT = 8 * MIB, BLOCK = 4 * MIB };

static int begin(void **state) {
    (void)state;
    huge_world_begin_later(CACHE_LIMIT);
    return 0;
}

static uintptr_t take_written(size_t bytes, unsigned char value) {
    const uintptr_t address = huge_take(set, bytes, 1, false);
    assert_true(address != 0);
    memset((void *)address, value, bytes);
    return address;
}

static void assert_zero(uintptr_t address, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 512) {
        assert_int_equal(((const unsigned char *)address)[i], 0);
    }
}

// A block of so many bytes is kept, and as much of it owed.
static uintptr_t keep_and_owe(size_t bytes, size_t owed) {
    const uintptr_t address = take_written(bytes, 1);
    assert_true(huge_give(set, address, false));
    if (owed != 0) {
        assert_int_equal(huge_owe(set, owed), owed);
    }
    return address;
}

static uint64_t maps(void) {
    return atomic_load(&world.os.map_count);
}

// A block at an offset is taken out of what is kept at `kept`, and no mapping made.
static void take_at_offset_out_of(uintptr_t kept) {
    const uint64_t before = maps();
    const uintptr_t block = huge_take_at(set, BLOCK, 16, 8);
    assert_int_equal(block, kept + 8);
    assert_zero(block, BLOCK);
    assert_int_equal(maps(), before);
    assert_true(huge_give(set, block, false));
}

CASE(aligned_blocks_have_what_is_owed) {
    const uintptr_t kept = keep_and_owe(BLOCK + MIB, BLOCK);
    const uint64_t before = maps();
    const uint64_t entries = os_entries(&world.os);
    const uintptr_t block = huge_take(set, BLOCK, MIB, true);
    assert_true(block >= kept && block < kept + MIB && block % MIB == 0);
    assert_zero(block, BLOCK);
    assert_int_equal(maps(), before);
    assert_int_equal(os_entries(&world.os), entries + 1);
    assert_true(huge_give(set, block, false));
}

CASE(so_have_those_at_an_offset) {
    take_at_offset_out_of(keep_and_owe(BLOCK + world.os.page_bytes, BLOCK));
}

// Larger than what would be cleared.
CASE(so_have_zeroed_ones) {
    enum { LARGE = 40 * MIB };
    const uintptr_t kept = keep_and_owe(LARGE, LARGE);
    const uint64_t before = maps();
    const uintptr_t block = huge_take(set, LARGE, 1, true);
    assert_int_equal(block, kept);
    assert_zero(block, LARGE);
    assert_int_equal(maps(), before);
    assert_true(huge_give(set, block, false));
}

CASE(what_is_left_of_a_piece_stays) {
    keep_and_owe(3 * BLOCK, 2 * BLOCK);
    const uintptr_t block = huge_take_at(set, BLOCK, 16, 8);
    const size_t taken = BLOCK + world.os.page_bytes;
    assert_int_equal(set->cache.bytes, 3 * BLOCK - taken);
    assert_int_equal(set->cache.debt, 2 * BLOCK - taken);
    assert_true(huge_give(set, block, false));
}

CASE(not_while_nothing_is_owed) {
    keep_and_owe(BLOCK + MIB, 0);
    const uint64_t before = maps();
    const uintptr_t block = huge_take(set, BLOCK, MIB, true);
    assert_zero(block, BLOCK);
    assert_int_equal(maps(), before + 1);
    assert_int_equal(set->cache.bytes, BLOCK + MIB);
    assert_true(huge_give(set, block, false));
}

CASE(nor_a_piece_that_is_too_small) {
    keep_and_owe(BLOCK - MIB, BLOCK - MIB);
    const uint64_t before = maps();
    const uintptr_t block = huge_take_at(set, BLOCK, 16, 8);
    assert_int_equal(maps(), before + 1);
    assert_int_equal(set->cache.bytes, BLOCK - MIB);
    assert_true(huge_give(set, block, false));
}

CASE(nor_one_that_is_locked) {
    const uintptr_t kept = take_written(BLOCK + MIB, 1);
    if (syscall(SYS_mlock, kept, world.os.page_bytes) != 0) {
        skip();
    }
    assert_true(huge_give(set, kept, false));
    assert_int_equal(huge_owe(set, BLOCK), BLOCK);
    const uintptr_t block = huge_take(set, BLOCK, MIB, true);
    assert_true(block < kept || block >= kept + BLOCK + MIB);
    assert_zero(block, BLOCK);
    assert_int_equal(set->cache.bytes, BLOCK + MIB);
    assert_true(huge_give(set, block, false));
    assert_int_equal(syscall(SYS_munlock, kept, world.os.page_bytes), 0);
}

// And where all places are taken, what is left of it has none.
CASE(nor_one_that_is_locked_among_as_many_as_there_may_be) {
    enum { PIECES = MALLOW_HUGE_CACHE_COUNT, BLOCKS = 3 * PIECES, LARGE = 10 * MIB };
    uintptr_t blocks[BLOCKS]; // every other one stays, so that pieces hardly touch
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i] = huge_take(set, i == 0 ? LARGE : 2 * MIB, 1, false);
        assert_true(blocks[i] != 0);
    }
    if (syscall(SYS_mlock, blocks[0], world.os.page_bytes) != 0) {
        skip();
    }
    for (unsigned i = 0; i < BLOCKS && set->cache.count < PIECES; i += 2) {
        assert_true(huge_give(set, blocks[i], false));
        huge_join(set);
    }
    assert_int_equal(set->cache.count, PIECES);
    assert_true(huge_owes(set) || huge_owe(set, LARGE) != 0);
    const uintptr_t block = huge_take(set, 4 * MIB, MIB, true);
    assert_zero(block, 4 * MIB);
    assert_int_equal(set->cache.count, PIECES);
    assert_int_equal(set->cache.debt, 0);
    assert_true(huge_give(set, block, true));
    assert_int_equal(syscall(SYS_munlock, blocks[0], world.os.page_bytes), 0);
}

// As before Linux 6.17.
CASE(also_where_pieces_stay_in_the_room) {
    set->cache.room.still = true;
    take_at_offset_out_of(keep_and_owe(2 * BLOCK, BLOCK));
}

#define HUGE_CASE(name) cmocka_unit_test_setup_teardown(name, begin, huge_world_end)

int main(void) {
    const struct CMUnitTest cases[] = {
        HUGE_CASE(aligned_blocks_have_what_is_owed),
        HUGE_CASE(so_have_those_at_an_offset),
        HUGE_CASE(so_have_zeroed_ones),
        HUGE_CASE(what_is_left_of_a_piece_stays),
        HUGE_CASE(not_while_nothing_is_owed),
        HUGE_CASE(nor_a_piece_that_is_too_small),
        HUGE_CASE(nor_one_that_is_locked),
        HUGE_CASE(nor_one_that_is_locked_among_as_many_as_there_may_be),
        HUGE_CASE(also_where_pieces_stay_in_the_room),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
