// SPDX-License-Identifier: MIT
// Huge blocks: whose pages are used again, by what programs do in a row.
#include "huge_world.h"

enum { KIB = 1 << 10, MIB = 1 << 20, CACHE_LIMIT = 32 * MIB };

static int begin(void **state) {
    (void)state;
    huge_world_begin_later(CACHE_LIMIT);
    return 0;
}

static struct {
    size_t fresh, written; // pages
} touched;

// Writes each page; how many of them nobody has written before.
static void touch(uintptr_t address, size_t from, size_t bytes) {
    for (size_t offset = from; offset < bytes; offset += world.os.page_bytes) {
        unsigned char *const page = (unsigned char *)(address + offset);
        touched.fresh += *page == 0;
        touched.written++;
        *page = 1;
    }
}

static size_t some_size(unsigned *seed, size_t most) {
    *seed = *seed * 1103515245U + 12345U;
    return 1200 * KIB + (*seed >> 8) % (most - 1200 * KIB);
}

// Blocks of up to `most` bytes, `live` of them at a time, in any order.
static void replace_blocks(size_t most, unsigned live) {
    uintptr_t blocks[8] = {0};
    unsigned seed = 1;
    for (unsigned i = 0; i < 600; i++) {
        if (i == 100) {
            touched.fresh = 0;
            touched.written = 0;
        }
        const size_t bytes = some_size(&seed, most);
        uintptr_t *const block = &blocks[(seed >> 4) % live];
        assert_true(*block == 0 || huge_give(set, *block, true));
        *block = huge_take(set, bytes, 1, false);
        assert_true(*block != 0);
        touch(*block, 0, bytes);
    }
    assert_true(touched.fresh < touched.written / 4);
}

CASE(blocks_below_four_mib_of_any_sizes_have_the_pages_of_those_before) {
    replace_blocks(4000 * KIB, 1);
}

// Larger ones are put together, in a room; what they leave there serves the smaller ones, too.
CASE(so_do_those_of_which_few_are_larger) {
    replace_blocks(4200 * KIB, 1);
}

CASE(and_those_of_which_many_are) {
    replace_blocks(8 * MIB, 1);
}

CASE(and_where_several_are_alive) {
    replace_blocks(5 * MIB, 4);
}

// As before Linux 6.17, or with little address space: what is kept serves as far as it is one piece.
CASE(and_where_the_kernel_moves_nothing) {
    set->cache.room.refused = true;
    replace_blocks(4000 * KIB, 1);
}

CASE(also_where_several_are_alive_and_it_moves_nothing) {
    set->cache.room.refused = true;
    replace_blocks(4000 * KIB, 4);
}

// As before Linux 6.17 with address space enough.
CASE(and_where_pieces_stay_in_the_room) {
    set->cache.room.still = true;
    replace_blocks(9 * MIB, 3);
}

CASE(also_where_several_are_alive_and_pieces_stay) {
    set->cache.room.still = true;
    replace_blocks(8 * MIB, 8);
}

// Else each step of a block that grows and grows would be copied.
CASE(what_was_put_together_is_copied_once_where_it_grows) {
    const uintptr_t several = huge_take(set, 5 * MIB, 1, false);
    const uintptr_t kept = huge_take(set, 30 * MIB, 1, false);
    set->cache.worth = CACHE_LIMIT;
    huge_of(set, several)->parts = HUGE_SEVERAL;
    huge_of(set, kept)->parts = HUGE_SEVERAL;
    assert_true(huge_give(set, kept, true)); // of which the block instead would be one more part
    const uint64_t entries = os_entries(&world.os);
    assert_int_equal(huge_resize(set, huge_of(set, several), 6 * MIB, true), 0);
    assert_int_equal(os_entries(&world.os), entries);
    uintptr_t block = huge_take_charged(set, 6 * MIB, 1, HUGE_GROWN, OS_CHARGE_HARD);
    assert_int_equal(huge_of(set, block)->parts, HUGE_ONE);
    for (size_t bytes = 7 * MIB; bytes <= 20 * MIB; bytes += MIB) {
        block = huge_resize(set, huge_of(set, block), bytes, true);
        assert_true(block != 0);
    }
}

// Nor is one put together that has only begun to grow, or has as many pages without.
CASE(a_small_block_is_put_together_only_where_that_is_of_use) {
    set->cache.worth = CACHE_LIMIT;
    const uintptr_t block = huge_take(set, 2 * MIB, 1, false);
    assert_true(huge_give(set, block, true));
    assert_true(huge_cache_take_fresh(&set->cache, MIB).address != 0); // now there is a room
    struct huge_choice choice;
    (void)huge_cache_growth(&set->cache, 3 * MIB, false, &choice);
    assert_false(choice.gathers);
    set->cache.pieces[choice.piece].parts = HUGE_SEVERAL; // which the kernel would not grow
    (void)huge_cache_growth(&set->cache, 3 * MIB, false, &choice);
    assert_true(choice.gathers);
    (void)huge_cache_growth(&set->cache, 3 * MIB, true, &choice);
    assert_false(choice.gathers);
}

// So the next block of a size has the place of one that was freed.
CASE(and_a_piece_that_is_grown_stays_where_it_is_if_there_is_space) {
    assert_true(huge_cache_take_fresh(&set->cache, MIB).address != 0);
    const uintptr_t block = huge_take(set, 3 * MIB, 1, false);
    assert_true(huge_give(set, block, true)); // what is not kept of it goes
    assert_int_equal(set->cache.bytes, 2 * MIB);
    assert_int_equal(huge_take(set, 3 * MIB, 1, false), block);
}

CASE(what_is_left_of_a_piece_is_kept_however_small) {
    set->cache.worth = CACHE_LIMIT;
    const uintptr_t whole = huge_take(set, 3 * MIB, 1, false);
    assert_true(huge_give(set, whole, true));
    const uint64_t entries = os_entries(&world.os);
    const uintptr_t block = huge_take(set, 3 * MIB - 64 * KIB, 1, false);
    assert_int_equal(block, whole);
    assert_int_equal(set->cache.bytes, 64 * KIB);
    assert_true(huge_give(set, block, true));
    assert_int_equal(os_entries(&world.os), entries);
    assert_int_equal(set->cache.count, 1);
    assert_int_equal(set->cache.pieces[huge_index_best(set->cache.index, set->cache.pieces, MIB)].bytes,
                     3 * MIB);
}

// Not where there are many pieces: the places are for larger ones.
CASE(few_small_pieces_are_kept) {
    uintptr_t blocks[MALLOW_HUGE_CACHE_COUNT];
    set->cache.worth = SIZE_MAX;
    set->cache.limit = SIZE_MAX / 2;
    for (unsigned i = 0; i < MALLOW_HUGE_CACHE_COUNT; i++) {
        blocks[i] = huge_take(set, 2 * MIB, 1, false);
        huge_of(set, blocks[i])->parts = HUGE_SEVERAL;
    }
    for (unsigned i = 0; i < MALLOW_HUGE_CACHE_COUNT; i += 2) { // the others keep them apart
        assert_true(huge_give(set, blocks[i], false));
    }
    for (unsigned i = 0; i < MALLOW_HUGE_CACHE_COUNT; i += 2) {
        (void)huge_take(set, 2 * MIB - 4 * KIB, 1, false);
    }
    assert_true(set->cache.count < MALLOW_HUGE_CACHE_COUNT / 2);
}

// The kernel may refuse, and has before: then there would be a second call, for a block instead.
CASE(a_block_of_joined_pieces_is_not_asked_for_where_that_would_be_one_call_of_two) {
    const uintptr_t block = huge_take(set, 2 * MIB, 1, false);
    struct huge *const huge = huge_of(set, block);
    huge->parts = HUGE_JOINED;
    set->cache.room.torn = true;
    const uint64_t entries = os_entries(&world.os);
    assert_int_equal(huge_resize(set, huge, 8 * MIB, true), 0);
    assert_int_equal(os_entries(&world.os), entries);
    const uintptr_t larger = huge_take(set, 8 * MIB, 1, false); // realloc's second step
    assert_int_equal(os_entries(&world.os), entries + 1);
    assert_int_equal(huge->parts, HUGE_JOINED);
    assert_true(huge_resize(set, huge, 80 * MIB, true) != 0); // too much to be copied
    assert_true(huge_give(set, larger, true));
}

CASE(a_zeroed_block_has_the_pages_of_one_that_was_written_whole) {
    for (unsigned i = 0; i < 10; i++) {
        const uint64_t maps = world.os.map_count;
        const uintptr_t block = huge_take(set, 3 * MIB, 1, true);
        assert_true(unit_is_all((const void *)block, 0, 3 * MIB));
        assert_true(i < 4 || world.os.map_count == maps);
        memset((void *)block, 0x5a, 3 * MIB);
        assert_true(huge_give(set, block, true));
    }
}

CASE(after_one_that_was_hardly_written_it_has_fresh_pages) {
    set->cache.worth = CACHE_LIMIT;
    for (unsigned i = 0; i < 10; i++) {
        const uint64_t entries = os_entries(&world.os); // a mapping, or what is kept given back
        const uintptr_t block = huge_take(set, 3 * MIB, 1, true);
        assert_int_equal(os_entries(&world.os), entries + 1);
        assert_int_equal(os_resident(&world.os, block, 3 * MIB), 0);
        *(unsigned char *)block = 1;
        assert_true(huge_give(set, block, true));
    }
}

CASE(a_block_grows_into_kept_pages_behind_it) {
    set->cache.worth = CACHE_LIMIT;
    const uintptr_t large = huge_take(set, 6 * MIB, 1, false);
    memset((void *)large, 0x5a, 6 * MIB);
    assert_true(huge_give(set, large, true));
    const uintptr_t block = huge_take(set, 2 * MIB, 1, false);
    assert_int_equal(block, large);
    const uint64_t entries = os_entries(&world.os);
    for (size_t bytes = 2 * MIB + 4 * KIB; bytes <= 6 * MIB; bytes += 68 * KIB) {
        assert_int_equal(huge_resize(set, huge_of(set, block), bytes, true), block);
        assert_true(huge_of(set, block)->extended);
        assert_int_equal(set->cache.bytes, 6 * MIB - huge_of(set, block)->mapped_bytes);
        assert_int_equal(set->charged_bytes, 6 * MIB);
    }
    const size_t mapped_bytes = huge_of(set, block)->mapped_bytes;
    assert_int_equal(huge_resize(set, huge_of(set, block), mapped_bytes, true), block);
    assert_false(huge_of(set, block)->extended); // not by this call
    assert_int_equal(os_entries(&world.os), entries);
    assert_true(unit_is_all((const void *)block, 0x5a, 5 * MIB));
    const uintptr_t grown = huge_resize(set, huge_of(set, block), 9 * MIB, true);
    assert_true(grown != 0);
    assert_false(huge_of(set, grown)->extended); // by the kernel, and moved
    assert_true(unit_is_all((const void *)grown, 0x5a, 5 * MIB));
}

CASE(one_that_grows_again_and_again_has_the_pages_of_those_before) {
    for (unsigned round = 0; round < 40; round++) {
        if (round == 8) {
            touched.fresh = 0;
            touched.written = 0;
        }
        size_t bytes = 1100 * KIB;
        uintptr_t block = huge_take(set, bytes, 1, false);
        touch(block, 0, bytes);
        while (bytes < 3 * MIB) {
            block = huge_resize(set, huge_of(set, block), bytes + 24 * KIB, true);
            assert_true(block != 0);
            touch(block, bytes, bytes + 24 * KIB);
            bytes += 24 * KIB;
        }
        assert_true(huge_give(set, block, true));
    }
    assert_true(touched.fresh < touched.written / 4);
}

// What takes more than was asked for is charged for that, or is not done.
CASE(fresh_pages_instead_of_a_piece_that_is_not_grown_are_within_a_limit) {
    struct os_charge *const charge = &world.os.charge;
    set->cache.worth = CACHE_LIMIT;
    set->cache.room.torn = true; // so that no piece is asked to grow
    assert_true(huge_give(set, huge_take(set, 2 * MIB, 1, false), true));
    assert_int_equal(set->cache.bytes, 2 * MIB);
    const uint64_t limit = atomic_load(&charge->held_bytes) + 2 * MIB;
    os_charge_set(&world.os, limit, UINT64_MAX);
    static const enum huge_use uses[] = {HUGE_ANY, HUGE_GROWN};
    for (unsigned i = 0; i < 2; i++) {
        const uintptr_t refused = huge_take_charged(set, 3 * MIB, 1, uses[i], OS_CHARGE_HARD);
        assert_true(atomic_load(&charge->held_bytes) <= limit);
        assert_int_equal(refused, 0);
    }
    assert_int_equal(huge_purge_all(set), 2 * MIB);
    assert_true(huge_take_charged(set, 3 * MIB, 1, HUGE_GROWN, OS_CHARGE_HARD) != 0);
    assert_true(atomic_load(&charge->held_bytes) <= limit);
}

#define HUGE_CASE(name) cmocka_unit_test_setup_teardown(name, begin, huge_world_end)

int main(void) {
    const struct CMUnitTest cases[] = {
        HUGE_CASE(blocks_below_four_mib_of_any_sizes_have_the_pages_of_those_before),
        HUGE_CASE(so_do_those_of_which_few_are_larger),
        HUGE_CASE(and_those_of_which_many_are),
        HUGE_CASE(and_where_several_are_alive),
        HUGE_CASE(and_where_the_kernel_moves_nothing),
        HUGE_CASE(also_where_several_are_alive_and_it_moves_nothing),
        HUGE_CASE(and_where_pieces_stay_in_the_room),
        HUGE_CASE(also_where_several_are_alive_and_pieces_stay),
        HUGE_CASE(what_was_put_together_is_copied_once_where_it_grows),
        HUGE_CASE(a_small_block_is_put_together_only_where_that_is_of_use),
        HUGE_CASE(and_a_piece_that_is_grown_stays_where_it_is_if_there_is_space),
        HUGE_CASE(what_is_left_of_a_piece_is_kept_however_small),
        HUGE_CASE(few_small_pieces_are_kept),
        HUGE_CASE(a_block_of_joined_pieces_is_not_asked_for_where_that_would_be_one_call_of_two),
        HUGE_CASE(a_zeroed_block_has_the_pages_of_one_that_was_written_whole),
        HUGE_CASE(after_one_that_was_hardly_written_it_has_fresh_pages),
        HUGE_CASE(a_block_grows_into_kept_pages_behind_it),
        HUGE_CASE(one_that_grows_again_and_again_has_the_pages_of_those_before),
        HUGE_CASE(fresh_pages_instead_of_a_piece_that_is_not_grown_are_within_a_limit),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
