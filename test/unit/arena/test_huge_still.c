// SPDX-License-Identifier: MIT
// Huge blocks where the kernel moves no range of several mappings, as before Linux 6.17: the room is
// still, and what is given back of it keeps its address space.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "arena/huge_pieces.h"

#include "huge_world.h"

enum { KIB = 1 << 10, MIB = 1 << 20, CACHE_LIMIT = 16 * MIB };

static int begin(void **state) {
    (void)state;
    huge_world_begin_later(CACHE_LIMIT);
    set->cache.room.still = true;
    return 0;
}

// ---- What has to hold ---------------------------------------------------------------------------

// What pieces count for; hollow parts lie in them, and have no pages.
static size_t check_pieces(void) {
    size_t counted = 0;
    unsigned count = 0;
    for (unsigned i = 0; set->cache.pieces != NULL && i < MALLOW_HUGE_CACHE_COUNT; i++) {
        const struct huge_mapping piece = set->cache.pieces[i];
        const struct huge_extent hollow = set->cache.hollow[i];
        const size_t hollow_bytes = hollow.end - hollow.start;
        if (hollow_bytes != 0) {
            assert_true(hollow.start >= piece.address && hollow.end > hollow.start);
            assert_true(hollow.end <= piece.address + piece.bytes);
            assert_int_equal(os_resident(&world.os, hollow.start, hollow_bytes), 0);
        }
        counted += piece.bytes - hollow_bytes;
        assert_int_equal(set->cache.counting >> i & 1, piece.bytes != hollow_bytes);
        assert_true(piece.bytes == 0 || huge_cache_in_room(&set->cache, piece) ||
                    (set->cache.apart >> i & 1) != 0);
        count += piece.bytes != 0;
    }
    assert_int_equal(set->cache.count, count);
    return counted;
}

static void check(void) {
    const struct huge_room *const room = &set->cache.room;
    assert_true(room->still && !room->refused);
    assert_true(room->begin <= room->front && room->front <= room->tail && room->tail <= room->end);
    assert_int_equal(set->cache.bytes, check_pieces() + (room->tail - room->front));
    assert_int_equal(os_resident(&world.os, room->tail, room->end - room->tail), 0);
    size_t live_bytes = 0;
    for (const struct huge *huge = set->live; huge != NULL; huge = huge->next) {
        live_bytes += huge->mapped_bytes;
        for (unsigned i = 0; set->cache.pieces != NULL && i < MALLOW_HUGE_CACHE_COUNT; i++) {
            const struct huge_mapping piece = set->cache.pieces[i];
            assert_true(piece.address + piece.bytes <= huge->map_address ||
                        huge->map_address + huge->mapped_bytes <= piece.address);
        }
        assert_true(huge->map_address + huge->mapped_bytes <= room->front ||
                    room->end <= huge->map_address);
    }
    assert_int_equal(set->live_bytes, live_bytes);
    assert_int_equal(set->charged_bytes, live_bytes + set->cache.bytes + set->late_bytes);
}

static uintptr_t take(size_t bytes) {
    const uint64_t entries = os_entries(&world.os);
    const uintptr_t block = huge_take(set, bytes, 1, false);
    assert_true(block != 0);
    assert_true(os_entries(&world.os) - entries <= 1);
    check();
    return block;
}

static void give(uintptr_t block, bool may_enter) {
    const uint64_t entries = os_entries(&world.os);
    assert_true(huge_give(set, block, may_enter));
    assert_true(os_entries(&world.os) - entries <= may_enter);
    check();
}

static uintptr_t take_written(size_t bytes) {
    const uintptr_t block = take(bytes);
    memset((void *)block, 0x5a, bytes);
    return block;
}

// What of the cache's pieces is resident.
static size_t resident(void) {
    size_t bytes = 0;
    for (unsigned i = 0; i < MALLOW_HUGE_CACHE_COUNT; i++) {
        bytes += os_resident(&world.os, set->cache.pieces[i].address, set->cache.pieces[i].bytes);
    }
    return bytes;
}

// ---- Cases --------------------------------------------------------------------------------------

CASE(a_kernel_that_does_not_move_several_mappings_makes_the_room_still) {
    struct huge_room *const room = &set->cache.room;
    room->still = false;
    set->cache.worth = CACHE_LIMIT;
    assert_true(huge_cache_take_fresh(&set->cache, MIB).address != 0); // now there is a room
    const uintptr_t block = huge_take(set, 5 * MIB, 1, false);
    huge_of(set, block)->parts = HUGE_SEVERAL;
    assert_true(huge_give(set, block, true));
    assert_int_equal(munmap((void *)block, MIB), 0); // so that the kernel refuses at once,
    assert_int_equal(munmap((void *)room->tail, 5 * MIB), 0); // having done this, as before 6.17
    const uintptr_t larger = huge_take(set, 8 * MIB, 1, false);
    assert_true(room->still && !room->refused && room->begin != 0);
    assert_true(larger > room->begin && larger < room->end);
    (void)mmap((void *)block, MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
               -1, 0);
}

CASE(blocks_lie_side_by_side_and_become_one_piece_whatever_may_be_kept) {
    uintptr_t blocks[4];
    for (unsigned i = 0; i < 4; i++) {
        blocks[i] = take_written(2 * MIB);
        assert_int_equal(blocks[i], blocks[0] + i * 2 * (size_t)MIB);
    }
    set->cache.worth = 0;
    give(blocks[0], true);
    give(blocks[2], true);
    give(blocks[1], true);
    assert_int_equal(set->cache.count, 1);
    assert_int_equal(set->cache.bytes, 0);
    assert_int_equal(take(6 * MIB), blocks[0]);
    assert_true(unit_is_all((const void *)blocks[0], 0, 6 * MIB));
    set->cache.worth = 0;
    give(blocks[0], true);
    give(blocks[3], true); // with what has no pages before it, it is the room's again
    assert_int_equal(set->cache.count, 0);
    assert_int_equal(set->cache.room.front, blocks[0]);
}

CASE(what_may_be_kept_of_a_block_serves_the_next_one_and_the_rest_is_learnt) {
    const uintptr_t block = take_written(6 * MIB);
    const uintptr_t fence = take(MIB);
    set->cache.worth = 2 * MIB;
    give(block, true);
    assert_int_equal(set->cache.bytes, 2 * MIB);
    assert_int_equal(take(6 * MIB), block);
    assert_true(unit_is_all((const void *)block, 0x5a, 2 * MIB));
    assert_true(unit_is_all((const void *)(block + 2 * MIB), 0, 4 * MIB));
    assert_true(set->cache.worth >= 4 * MIB);
    give(fence, true);
}

CASE(a_piece_outside_of_the_room_goes_first) {
    set->cache.worth = 4 * MIB;
    set->cache.room.still = false;
    const uintptr_t outside = huge_take(set, 4 * MIB, 1, false);
    set->cache.room.still = true;
    const uintptr_t block = take_written(3 * MIB);
    const uintptr_t fence = take(MIB);
    give(outside, true);
    give(block, true);
    assert_int_equal(set->cache.bytes, 3 * MIB);
    assert_false(os_is_mapped(&world.os, outside));
    assert_int_equal(take(3 * MIB), block);
    assert_true(unit_is_all((const void *)block, 0x5a, 3 * MIB));
    give(fence, true);
}

CASE(where_memory_is_limited_address_space_is_given_back_too) {
    const uintptr_t block = take_written(3 * MIB);
    const uintptr_t fence = take(MIB);
    set->cache.worth = 0;
    atomic_store(&world.os.charge.limited, 1);
    give(block, true);
    assert_false(os_is_mapped(&world.os, block));
    assert_int_equal(set->cache.count, 0);
    give(fence, true);
}

// 64 KiB. Not by mlock, which sanitizers make do nothing.
static void lock_pages(uintptr_t address) {
    if (syscall(SYS_mlock, address, (size_t)64 * KIB) != 0) {
        skip(); // not allowed here
    }
}

CASE(what_the_kernel_does_not_purge_is_unmapped) {
    const uintptr_t block = take_written(2 * MIB);
    const uintptr_t fence = take(MIB);
    lock_pages(block);
    set->cache.worth = 0;
    give(block, true);
    while (huge_owes(set)) {
        huge_settle(set);
    }
    assert_int_equal(set->cache.bytes, 0);
    assert_false(os_is_mapped(&world.os, block));
    give(fence, true);
}

CASE(so_is_what_is_gathered) {
    const uintptr_t block = take_written(2 * MIB);
    lock_pages(block);
    set->cache.worth = 0;
    give(block, true);
    while (huge_owes(set)) {
        huge_settle(set);
    }
    check();
    assert_int_equal(set->cache.bytes, 0);
    assert_false(os_is_mapped(&world.os, block));
}

// Others have taken all places while it was purged.
CASE(what_cannot_be_put_back_is_unmapped) {
    uintptr_t blocks[2 * MALLOW_HUGE_CACHE_COUNT];
    for (unsigned i = 0; i < 2 * MALLOW_HUGE_CACHE_COUNT; i++) {
        blocks[i] = take(MIB);
    }
    for (unsigned i = 0; i < 2 * MALLOW_HUGE_CACHE_COUNT; i += 2) {
        give(blocks[i], false);
    }
    assert_int_equal(set->cache.count, MALLOW_HUGE_CACHE_COUNT);
    const struct huge_mapping end = {os_map(&world.os, MIB, 1), MIB, HUGE_ONE};
    huge_cache_put_back(&set->cache, end, true);
    assert_false(os_is_mapped(&world.os, end.address));
    check();
}

CASE(a_room_that_is_used_up_is_followed_by_another) {
    struct huge_room *const room = &set->cache.room;
    set->cache.worth = CACHE_LIMIT;
    const uintptr_t first = take_written(3 * MIB);
    room->end = room->tail + 2 * MIB;
    const uintptr_t last = take_written(2 * MIB);
    const uintptr_t next = take(4 * MIB);
    assert_int_equal(next, room->begin);
    give(last, true);
    give(first, true);
    assert_int_equal(take(5 * MIB), first); // joined there, too
    give(next, true);
}

CASE(what_is_left_of_a_room_that_is_used_up_leaves_its_places_to_others) {
    uintptr_t blocks[2 * MALLOW_HUGE_CACHE_COUNT];
    set->cache.worth = 0;
    for (unsigned i = 0; i < 2 * MALLOW_HUGE_CACHE_COUNT; i++) {
        blocks[i] = take(MIB);
    }
    for (unsigned i = 0; i < 2 * MALLOW_HUGE_CACHE_COUNT; i += 2) {
        give(blocks[i], true);
    }
    assert_int_equal(set->cache.count, MALLOW_HUGE_CACHE_COUNT);
    set->cache.room.end = set->cache.room.tail;
    const uintptr_t next = take_written(3 * MIB);
    const uintptr_t fence = take(2 * MIB);
    assert_int_equal(next, set->cache.room.begin);
    set->cache.worth = CACHE_LIMIT;
    give(next, true);
    assert_int_equal(set->cache.bytes, 3 * MIB);
    assert_int_equal(take(3 * MIB), next);
    assert_true(unit_is_all((const void *)next, 0x5a, 3 * MIB));
    give(fence, true);
}

CASE(idle_pages_go_and_their_address_space_stays) {
    set->cache.worth = CACHE_LIMIT;
    const uintptr_t block = take_written(8 * MIB);
    const uintptr_t fence = take(MIB);
    give(block, true);
    (void)huge_idle_look(set);
    (void)huge_idle_look(set);
    assert_int_equal(huge_idle_look(set), 8 * MIB);
    assert_true(huge_idle_purge(set, 3 * MIB, UINT32_MAX) >= 3 * MIB);
    check();
    assert_int_equal(resident(), 5 * MIB);
    assert_true(huge_idle_purge(set, SIZE_MAX, UINT32_MAX) >= 5 * MIB);
    check();
    assert_int_equal(resident(), 0);
    assert_int_equal(huge_idle_purge(set, SIZE_MAX, UINT32_MAX), 0);
    assert_int_equal(take(8 * MIB), block);
    give(fence, true);
}

CASE(idle_pages_go_from_before_and_behind_what_has_none) {
    const uintptr_t first = take_written(3 * MIB);
    const uintptr_t middle = take_written(3 * MIB);
    const uintptr_t last = take_written(5 * MIB);
    const uintptr_t fence = take(MIB);
    set->cache.worth = 0;
    give(middle, true);
    set->cache.worth = CACHE_LIMIT;
    give(first, true);
    give(last, true);
    assert_int_equal(set->cache.count, 1);
    assert_int_equal(resident(), 8 * MIB);
    assert_int_equal(huge_idle_purge(set, 2 * MIB, UINT32_MAX), 2 * MIB);
    check();
    assert_int_equal(resident(), 6 * MIB);
    assert_int_equal(huge_idle_purge(set, 6 * MIB, UINT32_MAX), 6 * MIB);
    check();
    assert_int_equal(resident(), 0);
    give(fence, true);
}

CASE(idle_pages_of_a_room_that_is_used_up_go_to_the_last) {
    set->cache.worth = 6 * MIB;
    const uintptr_t block = take_written(8 * MIB);
    const uintptr_t fence = take(MIB);
    give(block, true);
    assert_int_equal(set->cache.bytes, 6 * MIB); // and no pages behind that
    set->cache.room.end = set->cache.room.tail;
    const uintptr_t next = take(9 * MIB);
    assert_int_equal(next, set->cache.room.begin);
    assert_int_equal(huge_idle_purge(set, 6 * MIB, UINT32_MAX), 6 * MIB);
    check();
    assert_int_equal(set->cache.bytes, 0);
    give(next, true);
    give(fence, true);
}

CASE(idle_pages_that_the_program_has_locked_go_too) {
    set->cache.worth = CACHE_LIMIT;
    const uintptr_t block = take_written(3 * MIB);
    const uintptr_t fence = take(MIB);
    lock_pages(block + 3 * MIB - 64 * KIB);
    give(block, true);
    assert_int_equal(huge_idle_purge(set, 3 * MIB, UINT32_MAX), 3 * MIB);
    check();
    assert_int_equal(set->cache.bytes, 0);
    assert_false(os_is_mapped(&world.os, block + 3 * MIB - 1));
    give(fence, true);
}

CASE(all_is_given_back_in_the_end) {
    set->cache.worth = 3 * MIB;
    uintptr_t blocks[8];
    for (unsigned i = 0; i < 8; i++) {
        blocks[i] = take_written(2 * MIB);
    }
    for (unsigned i = 0; i < 8; i += 2) {
        give(blocks[i], true);
    }
    const size_t kept = set->cache.bytes;
    assert_true(kept != 0 && set->cache.count != 0);
    assert_int_equal(huge_purge_all(set), kept);
    assert_int_equal(set->cache.count, 0);
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(os_is_mapped(&world.os, blocks[i]), i % 2 != 0);
    }
}

// ---- Any order ----------------------------------------------------------------------------------

enum { PLACES = 12, STEPS = 3000 };

static struct {
    uintptr_t address;
    size_t bytes;
    unsigned char stamp;
} places[PLACES];

// The first and the last page, and a few between.
static void write_place(unsigned i) {
    for (size_t offset = 0; offset < places[i].bytes; offset += 256 * KIB) {
        *(unsigned char *)(places[i].address + offset) = places[i].stamp;
    }
    *(unsigned char *)(places[i].address + places[i].bytes - 1) = places[i].stamp;
}

static void check_place(unsigned i, size_t bytes) {
    for (size_t offset = 0; offset < bytes; offset += 256 * KIB) {
        assert_int_equal(*(unsigned char *)(places[i].address + offset), places[i].stamp);
    }
}

static void step(struct unit_chance *chance) {
    const unsigned i = (unsigned)unit_below(chance, PLACES);
    const size_t bytes = MIB + unit_below(chance, unit_below(chance, 8) == 0 ? 80 * MIB : 9 * MIB);
    const size_t before = places[i].bytes;
    if (before == 0) {
        places[i].address = take(bytes);
        places[i].bytes = bytes;
        places[i].stamp = (unsigned char)(1 + unit_below(chance, 255));
        write_place(i);
        return;
    }
    check_place(i, before);
    if (unit_below(chance, 4) != 0) {
        places[i].bytes = 0;
        give(places[i].address, unit_below(chance, 8) != 0);
        return;
    }
    struct huge *const huge = huge_of(set, places[i].address);
    const uintptr_t moved = huge_resize(set, huge, bytes, unit_below(chance, 2) == 0);
    check();
    if (moved != 0) {
        places[i].address = moved;
        places[i].bytes = bytes;
        check_place(i, bits_min(before, bytes));
        write_place(i);
    }
}

CASE(what_is_live_keeps_its_contents_in_any_order) {
    struct unit_chance chance = unit_chance_begin();
    memset(places, 0, sizeof places);
    for (unsigned i = 0; i < STEPS; i++) {
        set->cache.worth = unit_below(&chance, 16) == 0 ? unit_below(&chance, 64 * MIB)
                                                        : set->cache.worth;
        step(&chance);
        if (unit_below(&chance, 4) == 0) {
            huge_join(set);
            check();
        }
        if (unit_below(&chance, 4) == 0 && huge_owes(set)) {
            huge_settle(set);
            check();
        }
        if (unit_below(&chance, 64) == 0) {
            (void)huge_idle_purge(set, unit_below(&chance, 16 * MIB), UINT32_MAX);
            check();
        }
    }
    assert_true(resident() <= set->cache.bytes);
}

#define HUGE_CASE(name) cmocka_unit_test_setup_teardown(name, begin, huge_world_end)

int main(void) {
    const struct CMUnitTest cases[] = {
        HUGE_CASE(a_kernel_that_does_not_move_several_mappings_makes_the_room_still),
        HUGE_CASE(blocks_lie_side_by_side_and_become_one_piece_whatever_may_be_kept),
        HUGE_CASE(what_may_be_kept_of_a_block_serves_the_next_one_and_the_rest_is_learnt),
        HUGE_CASE(a_piece_outside_of_the_room_goes_first),
        HUGE_CASE(where_memory_is_limited_address_space_is_given_back_too),
        HUGE_CASE(what_the_kernel_does_not_purge_is_unmapped),
        HUGE_CASE(so_is_what_is_gathered),
        HUGE_CASE(what_cannot_be_put_back_is_unmapped),
        HUGE_CASE(a_room_that_is_used_up_is_followed_by_another),
        HUGE_CASE(what_is_left_of_a_room_that_is_used_up_leaves_its_places_to_others),
        HUGE_CASE(idle_pages_go_and_their_address_space_stays),
        HUGE_CASE(idle_pages_go_from_before_and_behind_what_has_none),
        HUGE_CASE(idle_pages_of_a_room_that_is_used_up_go_to_the_last),
        HUGE_CASE(idle_pages_that_the_program_has_locked_go_too),
        HUGE_CASE(all_is_given_back_in_the_end),
        HUGE_CASE(what_is_live_keeps_its_contents_in_any_order),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
