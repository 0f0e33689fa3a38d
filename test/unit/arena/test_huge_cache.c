// SPDX-License-Identifier: MIT
// Huge blocks: the cache of freed mappings.
#include <sys/mman.h>

#include "arena/huge_pieces.h"

#include "huge_world.h"

enum { MIB = 1 << 20, CACHE_LIMIT = 16 * MIB, APART_MAX = 256 };

static struct {
    uintptr_t start, end;
} apart[APART_MAX]; // what take_apart has given in this case
static unsigned apart_count;

static int begin(void **state) {
    (void)state;
    apart_count = 0;
    huge_world_begin_later(CACHE_LIMIT);
    return 0;
}

// As if a long run had taught it that everything is worth keeping.
static void keep_all(void) {
    set->cache.worth = SIZE_MAX;
    set->cache.room.wanted = 100;
}

static void check_counts(void) {
    size_t cached = 0;
    for (unsigned i = 0; set->cache.pieces != NULL && i < MALLOW_HUGE_CACHE_COUNT; i++) {
        cached += set->cache.pieces[i].bytes - huge_pieces_hollow(&set->cache, i);
    }
    const struct huge_room *const room = &set->cache.room;
    assert_true(room->front <= room->tail && room->tail <= room->end);
    cached += room->tail - room->front;
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
    assert_int_equal(set->charged_bytes, bytes + cached + set->late_bytes);
}

static uintptr_t take(size_t bytes) {
    const uint64_t entries = os_entries(&world.os);
    const uintptr_t address = huge_take(set, bytes, 1, false);
    assert_true(address != 0);
    assert_true(os_entries(&world.os) - entries <= 1U + set->cache.room.refused);
    const struct huge *const huge = huge_of(set, address);
    assert_non_null(huge);
    assert_true(huge->usable_bytes >= bytes);
    check_counts();
    return address;
}

static void give(uintptr_t address) {
    const uint64_t entries = os_entries(&world.os);
    assert_true(huge_give(set, address, true));
    assert_true(os_entries(&world.os) - entries <= 1U + set->cache.room.refused);
    check_counts();
}

// Blocks that do not touch, wherever the kernel puts mappings: one that would stays taken.
static uintptr_t take_apart(size_t bytes) {
    for (unsigned tries = 0; tries < APART_MAX; tries++) {
        const uintptr_t address = take(bytes);
        bool touches = false;
        for (unsigned i = 0; i < apart_count; i++) {
            touches |= address == apart[i].end || address + bytes == apart[i].start;
        }
        if (!touches) {
            assert_true(apart_count < APART_MAX);
            apart[apart_count].start = address;
            apart[apart_count++].end = address + bytes;
            return address;
        }
    }
    fail();
    return 0;
}

// Linux before 6.17 does not move several mappings at once.
static void need_room(void) {
    if (set->cache.room.refused) {
        skip();
    }
}

CASE(a_freed_mapping_serves_the_same_size_without_a_system_call) {
    keep_all();
    const uintptr_t block = take(5 * MIB);
    give(block);
    assert_int_equal(set->cache.bytes, 5 * MIB);
    const uint64_t maps = world.os.map_count;
    const uint64_t remaps = world.os.remap_count;
    assert_int_equal(take(5 * MIB), block);
    assert_int_equal(world.os.map_count, maps);
    assert_int_equal(world.os.remap_count, remaps);
    assert_int_equal(set->cache.bytes, 0);
}

CASE(a_freed_mapping_serves_a_larger_request_by_remapping) {
    keep_all();
    const uintptr_t block = take(5 * MIB);
    memset((void *)block, 0x5a, 5 * MIB);
    give(block);
    const uint64_t maps = world.os.map_count;
    const uint64_t remaps = world.os.remap_count;
    const uintptr_t again = take(9 * MIB);
    memset((void *)again, 0x77, 9 * MIB);
    assert_int_equal(world.os.map_count, maps);
    assert_int_equal(world.os.remap_count, remaps + 1);
    assert_int_equal(set->cache.count, 0);
}

CASE(a_freed_mapping_serves_a_smaller_request_and_the_rest_stays) {
    keep_all();
    const uintptr_t block = take(5 * MIB);
    memset((void *)block, 0x5a, 5 * MIB);
    give(block);
    const uint64_t calls = world.os.map_count + world.os.remap_count + world.os.unmap_count;
    assert_int_equal(take(2 * MIB), block);
    assert_int_equal(set->cache.bytes, 3 * MIB);
    assert_int_equal(take(3 * MIB), block + 2 * MIB);
    assert_int_equal(set->cache.count, 0);
    assert_int_equal(world.os.map_count + world.os.remap_count + world.os.unmap_count, calls);
}

// Pages of a block that hold memory.
static size_t resident_bytes(uintptr_t address, size_t bytes) {
    static unsigned char pages[(32 * MIB) / 4096];
    assert_int_equal(mincore((void *)address, bytes, pages), 0);
    size_t resident = 0;
    for (size_t i = 0; i < bytes / world.os.page_bytes; i++) {
        resident += (pages[i] & 1U) * world.os.page_bytes;
    }
    return resident;
}

CASE(a_large_block_is_made_up_of_the_pages_of_small_ones) {
    keep_all();
    uintptr_t blocks[4];
    for (unsigned i = 0; i < 4; i++) {
        blocks[i] = take_apart((i + 2) * (size_t)MIB); // 14 MiB in all
        memset((void *)blocks[i], 0x5a, (i + 2) * (size_t)MIB);
    }
    for (unsigned i = 0; i < 4; i++) {
        give(blocks[i]);
    }
    const uint64_t maps = world.os.map_count;
    const uintptr_t large = take(16 * MIB);
    assert_int_equal(world.os.map_count, maps);
    need_room();
    const size_t left = set->cache.bytes; // moves that no call has had time for
    assert_true(left <= 3 * MIB);
    assert_int_equal(resident_bytes(large, 16 * MIB), 14 * MIB - left);
    memset((void *)large, 0x77, 16 * MIB);
    struct huge *const huge = huge_of(set, large);
    assert_int_equal(huge_resize(set, huge, 20 * MIB, true), 0); // several mappings: not grown
    assert_int_equal(huge_resize(set, huge, 11 * MIB, true), large);
    assert_true(unit_is_all((const void *)large, 0x77, 11 * MIB));
    give(large);
    assert_int_equal(set->cache.bytes, 11 * MIB + left);
}

CASE(pieces_are_moved_together_one_in_a_call) {
    keep_all();
    uintptr_t blocks[3];
    for (unsigned i = 0; i < 3; i++) {
        blocks[i] = take_apart(5 * MIB);
        memset((void *)blocks[i], (int)i + 1, 5 * MIB);
    }
    give(blocks[0]); // alone: nothing to do
    assert_int_equal(set->cache.room.end, 0);
    give(blocks[1]); // a room is made
    if (set->cache.count == 1) {
        skip(); // the kernel has put them side by side
    }
    assert_true(set->cache.room.end != 0);
    assert_int_equal(set->cache.count, 2);
    const uint64_t remaps = world.os.remap_count;
    give(blocks[2]); // one of them is moved
    assert_int_equal(world.os.remap_count, remaps + 1);
    need_room();
    const size_t gathered = set->cache.room.tail - set->cache.room.front;
    assert_true(gathered >= 5 * MIB); // more if a piece touched the room
    const uintptr_t block = take(10 * MIB); // and another, if needed
    assert_int_equal(world.os.remap_count, remaps + 1 + (gathered < 10 * MIB));
    assert_int_equal(resident_bytes(block, 10 * MIB), 10 * MIB);
    assert_int_equal(set->cache.bytes, 5 * MIB);
    give(block); // it comes back before anything else goes: gathered again
    assert_true(set->cache.room.front <= block);
    (void)huge_purge_all(set);
    assert_int_equal(set->cache.bytes, 0);
    assert_int_equal(set->cache.room.end, 0);
}

CASE(what_may_not_be_given_back_now_is_owed) {
    keep_all();
    const uintptr_t first = take_apart(9 * MIB);
    const uintptr_t second = take_apart(12 * MIB);
    set->cache.worth = 10 * MIB;
    const uint64_t entries = os_entries(&world.os);
    assert_true(huge_give(set, first, false));
    assert_false(huge_owes(set)); // it may be kept
    assert_true(huge_give(set, second, false));
    assert_int_equal(os_entries(&world.os), entries);
    assert_int_equal(set->cache.bytes, 21 * MIB);
    while (huge_is_loose(set)) {
        huge_join(set);
    }
    assert_int_equal(os_entries(&world.os), entries);
    assert_int_equal(set->cache.bytes, 21 * MIB);
    assert_true(huge_owes(set)); // said by who joins it
    for (unsigned i = 0; huge_owes(set) && i < 4; i++) {
        const uint64_t before = os_entries(&world.os);
        huge_settle(set);
        assert_int_equal(os_entries(&world.os), before + 1);
    }
    assert_false(huge_owes(set));
    assert_true(set->cache.bytes <= 10 * MIB);
    check_counts();
    (void)huge_owe(set, SIZE_MAX);
    while (huge_owes(set)) {
        huge_settle(set);
    }
    assert_int_equal(set->cache.bytes, 0);
}

// No two pieces touch, nor does one touch what is gathered.
static void check_joined(void) {
    for (unsigned i = 0; i < MALLOW_HUGE_CACHE_COUNT; i++) {
        const struct huge_mapping piece = set->cache.pieces[i];
        assert_true(piece.bytes == 0 || piece.address + piece.bytes != set->cache.room.front);
        for (unsigned j = 0; piece.bytes != 0 && j < MALLOW_HUGE_CACHE_COUNT; j++) {
            assert_true(set->cache.pieces[j].bytes == 0 ||
                        set->cache.pieces[j].address != piece.address + piece.bytes);
        }
    }
}

// By calls that have no time to join them; meanwhile they serve requests, and are joined by others.
CASE(loose_pieces_are_pieces_and_are_joined_later) {
    enum { LIVE = 24 };
    struct unit_chance chance = unit_chance_begin();
    uintptr_t blocks[LIVE];
    keep_all();
    for (unsigned i = 0; i < LIVE; i++) {
        blocks[i] = take((2 + i % 3) * MIB);
    }
    for (unsigned round = 0; round < 400; round++) {
        const unsigned number = unit_below(&chance, LIVE);
        if (blocks[number] == 0) {
            blocks[number] = take((1 + unit_below(&chance, 6)) * MIB);
        } else if (unit_below(&chance, 3) == 0) {
            give(blocks[number]);
            blocks[number] = 0;
        } else {
            const uint64_t entries = os_entries(&world.os);
            const size_t cached = set->cache.bytes;
            const size_t bytes = huge_of(set, blocks[number])->mapped_bytes;
            assert_true(huge_give(set, blocks[number], false));
            blocks[number] = 0;
            assert_int_equal(os_entries(&world.os), entries);
            assert_int_equal(set->cache.bytes, cached + bytes);
            assert_true(huge_is_loose(set) || set->cache.count == 0);
            check_counts();
        }
        if (round % 16 == 0) {
            huge_join(set);
            check_counts();
        }
    }
    const size_t cached = set->cache.bytes;
    const uint64_t entries = os_entries(&world.os);
    for (unsigned i = 0; huge_is_loose(set); i++) {
        assert_true(i < MALLOW_HUGE_CACHE_COUNT);
        huge_join(set);
        check_counts();
    }
    assert_int_equal(os_entries(&world.os), entries);
    assert_int_equal(set->cache.bytes, cached);
    check_joined();
    (void)huge_purge_all(set);
    assert_int_equal(set->cache.bytes, 0);
}

// Without a call between that could prepare memory for their records.
CASE(thousands_of_blocks_take_one_system_call_each) {
    enum { COUNT = 6000 };
    static uintptr_t blocks[COUNT];
    meta_prepare(&world.meta);
    for (unsigned i = 0; i < COUNT; i++) {
        blocks[i] = take(MIB);
        if (i % 16 == 0) { // calls that had none to make themselves
            meta_prepare(&world.meta);
        }
    }
    for (unsigned i = 0; i < COUNT; i++) {
        give(blocks[i]);
    }
}

// The same of blocks whose alignment always takes a mapping.
CASE(so_do_thousands_of_aligned_ones) {
    enum { COUNT = 6000, ALIGNMENT = 128 << 10 };
    static uintptr_t blocks[COUNT];
    meta_prepare(&world.meta);
    for (unsigned i = 0; i < COUNT; i++) {
        const uint64_t entries = os_entries(&world.os);
        blocks[i] = huge_take(set, MIB, ALIGNMENT, false);
        assert_true(blocks[i] != 0 && blocks[i] % ALIGNMENT == 0);
        if (os_entries(&world.os) == entries) { // as such a call ends
            meta_prepare(&world.meta);
        }
        assert_true(os_entries(&world.os) - entries <= 1);
    }
    check_counts();
    for (unsigned i = 0; i < COUNT; i++) {
        give(blocks[i]);
    }
}

// Blocks that live side by side never share a page, however they are made up.
static void keep_contents(void) {
    enum { PLACES = 10, STEPS = 1500, STRIDE = 64 << 10 };
    struct {
        uintptr_t address;
        size_t bytes;
        unsigned char tag;
    } live[PLACES] = {{0, 0, 0}};
    uint64_t seed = 7;
    for (unsigned step = 0; step < STEPS; step++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        const unsigned at = (unsigned)(seed >> 33) % PLACES;
        for (size_t i = 0; i < live[at].bytes; i += STRIDE) {
            assert_int_equal(((const unsigned char *)live[at].address)[i], live[at].tag);
        }
        if (live[at].address != 0) {
            give(live[at].address);
        }
        live[at].bytes = (1 + (size_t)(seed >> 40) % 12) * (size_t)MIB + (size_t)(seed >> 50) * 4096 % MIB;
        live[at].tag = (unsigned char)step;
        live[at].address = take(live[at].bytes);
        for (size_t i = 0; i < live[at].bytes; i += STRIDE) {
            ((unsigned char *)live[at].address)[i] = live[at].tag;
        }
    }
}

CASE(what_is_live_keeps_its_contents_through_any_order_of_sizes) {
    keep_contents();
}

CASE(so_it_does_with_huge_pages_by_faults) {
    keep_all();
    huge_cache_set_broad(&set->cache, true);
    keep_contents();
}

CASE(the_smallest_cached_mapping_that_is_large_enough_is_used) {
    static const size_t sizes[] = {6 * MIB, 2 * MIB, 4 * MIB};
    keep_all();
    uintptr_t blocks[3];
    for (unsigned i = 0; i < 3; i++) {
        blocks[i] = take_apart(sizes[i]);
    }
    for (unsigned i = 0; i < 3; i++) {
        give(blocks[i]);
    }
    assert_int_equal(take(3 * MIB), blocks[2]);
}

// So many blocks that are given one by one, where only the number of pieces is limited.
static void take_many_apart(uintptr_t *blocks, unsigned count) {
    keep_all();
    set->cache.limit = (size_t)1 << 40;
    set->cache.room.refused = true; // pieces stay where they are
    for (unsigned i = 0; i < count; i++) {
        blocks[i] = take_apart(MIB);
    }
}

CASE(the_cache_keeps_no_more_than_its_limit_and_its_places) {
    keep_all();
    const uintptr_t large = take(CACHE_LIMIT + MIB);
    const uint64_t unmaps = world.os.unmap_count;
    give(large);
    assert_int_equal(set->cache.bytes, CACHE_LIMIT); // its beginning
    assert_int_equal(world.os.unmap_count, unmaps + 1);
    (void)huge_purge_all(set);
    uintptr_t blocks[MALLOW_HUGE_CACHE_COUNT + 4];
    take_many_apart(blocks, MALLOW_HUGE_CACHE_COUNT + 4);
    for (unsigned i = 0; i < MALLOW_HUGE_CACHE_COUNT + 4; i++) {
        give(blocks[i]);
        assert_true(set->cache.count <= MALLOW_HUGE_CACHE_COUNT);
    }
    assert_int_equal(set->cache.count, MALLOW_HUGE_CACHE_COUNT);
    assert_int_equal(huge_purge_all(set), MALLOW_HUGE_CACHE_COUNT * (size_t)MIB);
    assert_int_equal(set->cache.count, 0);
    assert_int_equal(set->cache.bytes, 0);
}

CASE(what_has_no_place_is_late_where_no_system_call_may_be_made) {
    uintptr_t blocks[MALLOW_HUGE_CACHE_COUNT + 3];
    take_many_apart(blocks, MALLOW_HUGE_CACHE_COUNT + 3);
    const uint64_t held = world.os.charge.held_bytes;
    const uint64_t live = set->live_count;
    const uint64_t entries = os_entries(&world.os);
    for (unsigned i = 0; i < MALLOW_HUGE_CACHE_COUNT + 3; i++) {
        assert_true(huge_give(set, blocks[i], false));
        assert_false(huge_give(set, blocks[i], false));
    }
    assert_int_equal(os_entries(&world.os), entries);
    assert_int_equal(set->late_bytes, 3 * MIB);
    assert_int_equal(set->live_count, live - (MALLOW_HUGE_CACHE_COUNT + 3));
    assert_int_equal(world.os.charge.held_bytes, held);
    assert_true(huge_owes(set));
    huge_settle(set); // there is no place yet: one goes back
    assert_int_equal(os_entries(&world.os), entries + 1);
    assert_int_equal(set->late_bytes, 2 * MIB);
    assert_true(world.os.charge.held_bytes < held);
    const uintptr_t taken = take(MIB);
    set->cache.debt = 0;
    huge_settle(set); // now there is
    assert_int_equal(os_entries(&world.os), entries + 1);
    assert_int_equal(set->late_bytes, MIB);
    assert_true(huge_give(set, taken, true));
    huge_give_late(set);
    assert_int_equal(set->late_bytes, 0);
    check_counts();
}

CASE(a_piece_that_was_put_together_grows_in_one_call_whatever_the_kernel_says) {
    keep_all();
    const uintptr_t whole = take(6 * MIB);
    give(whole);
    uintptr_t blocks[2] = {take(3 * MIB), take(3 * MIB)}; // cut from it
    assert_int_equal(blocks[1], blocks[0] + 3 * MIB);
    give(blocks[1]);
    give(blocks[0]);
    assert_int_equal(set->cache.count, 1);
    set->cache.room.front = set->cache.room.tail = set->cache.room.end = 0;
    const uintptr_t larger = take(12 * MIB); // counts its entries
    assert_true(set->cache.room.refused || set->cache.room.end != 0); // fresh pages are at hand now
    assert_true(set->cache.room.refused || set->cache.count == 1);    // and the piece is there still
    give(larger);
}

// What was put together is not taken for one mapping later.
CASE(so_does_what_was_cut_from_one) {
    keep_all();
    const uintptr_t whole = take(6 * MIB);
    give(whole);
    uintptr_t blocks[3] = {take(3 * MIB), take(3 * MIB)};
    give(blocks[1]);
    give(blocks[0]);
    for (unsigned i = 0; i < 3; i++) {
        blocks[i] = take(2 * MIB);
        assert_int_equal(blocks[i], whole + i * 2 * (size_t)MIB);
    }
    set->cache.room.front = set->cache.room.tail = set->cache.room.end = 0;
    const uint64_t remaps = world.os.remap_count;
    give(blocks[1]);
    const uintptr_t larger = take(12 * MIB);
    assert_true(set->cache.room.refused || world.os.remap_count == remaps);
    assert_true(set->cache.room.refused || set->cache.room.end != 0);
    give(blocks[0]);
    give(blocks[2]);
    give(larger);
}

// Puts a mapping with pages of its own in place of a part of a block.
static void tear(uintptr_t address, size_t bytes) {
    const uintptr_t other = os_map(&world.os, bytes, 1);
    memset((void *)other, 0x33, bytes);
    assert_ptr_equal(
        mremap((void *)other, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)address),
        (void *)address);
}

CASE(a_block_that_the_kernel_does_not_grow_moves_without_a_second_call) {
    keep_all();
    struct huge_room *const room = &set->cache.room;
    const uintptr_t torn = take(6 * MIB);
    memset((void *)torn, 0x22, 6 * MIB);
    tear(torn + 3 * MIB, 3 * MIB);
    struct huge *const huge = huge_of(set, torn);
    huge->parts = HUGE_JOINED;
    room->refused = false; // which is here
    room->front = room->tail = room->whole_from = os_map(&world.os, 64 * MIB, 1);
    room->end = room->front + 64 * (size_t)MIB;
    const uint64_t entries = os_entries(&world.os);
    assert_int_equal(huge_resize(set, huge, 10 * MIB, true), 0);
    const uintptr_t larger = take(10 * MIB); // realloc's second step
    assert_int_equal(os_entries(&world.os), entries + 1);
    assert_int_equal(huge->parts, HUGE_SEVERAL);
    assert_int_equal(huge_resize(set, huge, 10 * MIB, true), 0); // not asked again
    assert_int_equal(os_entries(&world.os), entries + 1);
    assert_true(unit_is_all((const void *)torn, 0x22, 3 * MIB));
    give(torn);
    give(larger);
}

// A room, and a piece of so many bytes beside it.
static void make_room_and_piece(size_t bytes) {
    keep_all();
    set->cache.room.torn = true; // as after a kernel that has refused to grow a piece
    give(take(bytes));
    take(bytes + 2 * MIB);
    need_room();
    assert_int_equal(set->cache.bytes, bytes);
}

// As where there are as many mappings as the kernel allows: here because the piece begins with a hole.
CASE(what_cannot_be_moved_to_the_room_is_not_counted_as_there) {
    make_room_and_piece(5 * MIB);
    struct huge_room *const room = &set->cache.room;
    const uintptr_t hole = set->cache.pieces[huge_index_best(set->cache.index, set->cache.pieces, 1)].address;
    assert_int_equal(munmap((void *)hole, MIB), 0);
    room->end = room->tail + 9 * (size_t)MIB;
    const uintptr_t fence = room->end;
    for (size_t bytes = 8 * (size_t)MIB; bytes < 11 * (size_t)MIB; bytes += MIB) {
        const uintptr_t block = huge_take(set, bytes, 1, false);
        assert_true(block >= fence || block + bytes <= fence);
        assert_true(room->front <= room->tail && room->tail <= room->end && room->refused);
    }
    (void)mmap((void *)hole, MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
}

// Faults of a few pages are saved where it is put together, and all of it is copied when it grows.
CASE(a_large_block_is_not_put_together_for_the_sake_of_a_few_pages) {
    make_room_and_piece(7 * MIB);
    const uintptr_t block = take(64 * MIB);
    *(char *)block = 1;
    const uintptr_t larger = huge_resize(set, huge_of(set, block), 128 * MIB, true);
    assert_true(larger != 0 && *(char *)larger == 1);
    check_counts();
}

CASE(for_an_eighth_of_its_pages_it_is) {
    make_room_and_piece(8 * MIB);
    const uintptr_t block = take(64 * MIB);
    assert_int_equal(huge_of(set, block)->parts, HUGE_SEVERAL);
    assert_int_equal(set->cache.bytes, 0);
    check_counts();
}

CASE(what_is_kept_is_learnt_from_what_had_to_be_made_anew) {
    const size_t worth_at_first = set->cache.worth;
    give(take(9 * MIB));
    assert_true(set->cache.bytes <= worth_at_first); // freed once: not worth it
    unsigned rounds = 0;
    uint64_t maps;
    do { // a program that goes on with it soon makes no mapping any more
        maps = world.os.map_count;
        const uintptr_t first = take(9 * MIB);
        const uintptr_t second = take(4 * MIB);
        give(first);
        give(second);
    } while (world.os.map_count != maps && ++rounds < 20);
    assert_true(rounds < 20);
    set->cache.limit = 4 * MIB; // the option, and half of what is live, go before it
    const uintptr_t kept = take(8 * MIB);
    give(take(12 * MIB));
    assert_int_equal(set->cache.bytes, 8 * MIB);
    give(kept); // less is live: less is kept, as soon as a call has its system call to spare
    while (huge_owes(set)) {
        huge_settle(set);
    }
    assert_true(set->cache.bytes <= 4 * MIB);
    set->cache.limit = 0;
    give(take(9 * MIB));
    assert_int_equal(set->cache.bytes, 0);
    set->cache.limit = CACHE_LIMIT;
    keep_all();
    give(take(9 * MIB));
    const size_t worth = set->cache.worth = 12 * MIB;
    give(huge_take(set, 4 * MIB, 1, true)); // zeroed memory does not come from the cache
    assert_int_equal(set->cache.worth, worth - 4 * MIB);
    (void)huge_purge_all(set); // and purging forgets it
    assert_int_equal(set->cache.worth, worth_at_first);
}

CASE(a_zeroed_block_is_zero_even_when_the_cache_holds_a_written_one) {
    keep_all();
    const uintptr_t block = take(3 * MIB);
    memset((void *)block, 0x5a, 3 * MIB);
    give(block);
    const uintptr_t zeroed = huge_take(set, 3 * MIB, 1, true);
    assert_int_equal(*(const unsigned char *)zeroed, 0);
    assert_true(unit_is_all((const void *)zeroed, 0, 3 * MIB));
}

CASE(what_is_cached_and_not_needed_for_two_intervals_is_idle) {
    keep_all();
    const uintptr_t blocks[2] = {take(3 * MIB), take(5 * MIB)};
    assert_int_equal(huge_idle_look(set), 0);
    give(blocks[0]);
    give(blocks[1]);
    assert_int_equal(huge_idle_look(set), 0);
    assert_int_equal(huge_idle_look(set), 0);
    assert_int_equal(huge_idle_look(set), 8 * MIB);
    give(take(5 * MIB)); // needed in this interval
    assert_int_equal(huge_idle_look(set), 3 * MIB);
    assert_int_equal(huge_idle_look(set), 3 * MIB);
    assert_int_equal(huge_idle_look(set), 8 * MIB);
}

CASE(idle_mappings_are_given_back_in_parts_and_the_rest_serves_on) {
    keep_all();
    const uintptr_t block = take(6 * MIB);
    memset((void *)block, 0x5a, 6 * MIB);
    give(block);
    assert_int_equal(huge_idle_purge(set, 2 * MIB, UINT32_MAX), 2 * MIB);
    check_counts();
    assert_int_equal(set->cache.bytes, 4 * MIB);
    assert_true(unit_is_all((const void *)take(4 * MIB), 0x5a, 4 * MIB)); // from the front
    assert_int_equal(huge_idle_purge(set, MIB, UINT32_MAX), 0);
    give(take(2 * MIB));
    assert_int_equal(huge_idle_purge(set, SIZE_MAX, UINT32_MAX), 2 * MIB);
    assert_int_equal(set->cache.count, 0);
    check_counts();
}

CASE(a_step_gives_back_one_piece_in_one_call) {
    uintptr_t blocks[8];
    keep_all();
    for (unsigned i = 0; i < 8; i++) {
        blocks[i] = take(2 * MIB);
    }
    for (unsigned i = 0; i < 8; i += 2) { // the others lie between
        give(blocks[i]);
    }
    while (set->cache.bytes != 0) {
        const uint64_t entries = os_entries(&world.os);
        assert_in_range(huge_idle_purge(set, SIZE_MAX, 1), 1, 2 * MIB);
        assert_int_equal(os_entries(&world.os) - entries, 1);
    }
}

// Pages that were moved together are charged, idle and given back as pieces are.
CASE(what_is_gathered_is_idle_and_given_back_too) {
    keep_all();
    uintptr_t blocks[8]; // every other one stays: between those that go
    for (unsigned i = 0; i < 8; i++) {
        blocks[i] = take(5 * MIB);
        memset((void *)blocks[i], 0x5a, 5 * MIB);
    }
    for (unsigned i = 0; i < 8; i += 2) {
        give(blocks[i]);
    }
    need_room();
    if (set->cache.room.tail == set->cache.room.front) {
        skip(); // the kernel has put them side by side
    }
    struct huge_choice choice;
    assert_true(huge_cache_growth(&set->cache, 30 * MIB, false, &choice) >= 10 * MIB);
    (void)huge_idle_look(set);
    (void)huge_idle_look(set);
    assert_int_equal(huge_idle_look(set), 20 * MIB);
    for (size_t left = 20 * MIB; left > 0;) {
        const uint64_t entries = os_entries(&world.os);
        const size_t part = huge_idle_purge(set, MIB, UINT32_MAX);
        assert_int_equal(os_entries(&world.os), entries + 1);
        assert_in_range(part, MIB, left);
        left -= part;
        assert_int_equal(set->cache.bytes, left);
        assert_true(set->cache.bytes_low <= left);
    }
    assert_int_equal(huge_idle_purge(set, MIB, UINT32_MAX), 0);
    const uintptr_t again = take(9 * MIB); // the room serves on
    memset((void *)again, 0x77, 9 * MIB);
    give(again);
}

// What somebody was just unmapping when the process was forked may be mapped by another by now.
CASE(what_another_thread_was_unmapping_is_not_used_again_in_a_child) {
    keep_all();
    give(take(8 * MIB));
    const size_t kept = set->cache.bytes;
    set->leaving = huge_cache_cut_end(&set->cache, 3 * MIB);
    assert_int_equal(set->leaving.bytes, 3 * MIB);
    assert_int_equal(set->cache.bytes, kept - 3 * MIB);
    const uintptr_t gone = set->leaving.address;
    assert_int_equal(huge_idle_purge(set, SIZE_MAX, UINT32_MAX), 0); // one at a time
    void *const anothers = mmap((void *)gone, 3 * MIB, PROT_NONE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    assert_ptr_equal(anothers, (void *)gone);
    huge_fork_child(set);
    assert_int_equal(set->leaving.bytes, 0);
    assert_int_equal(set->cache.bytes, kept - 3 * MIB);
    for (size_t size = MIB; size <= 16 * MIB; size *= 2) {
        const uintptr_t block = take(size);
        assert_true(block + size <= gone || block >= gone + 3 * MIB);
        memset((void *)block, 0x5a, size);
        give(block);
    }
    check_counts();
    assert_int_equal(munmap(anothers, 3 * MIB), 0);
}

// A handler that forks has interrupted it: it goes on in the child.
CASE(what_the_child_itself_unmaps_stays_on_its_way) {
    keep_all();
    give(take(8 * MIB));
    set->leaving = huge_cache_cut_end(&set->cache, 3 * MIB);
    set->leaving_thread = os_this_thread();
    huge_fork_child(set);
    assert_int_equal(set->leaving.bytes, 3 * MIB);
    assert_int_equal(huge_idle_purge(set, SIZE_MAX, UINT32_MAX), 0);
}

// Whether the kernel has anything mapped there.
static bool is_mapped(uintptr_t address) {
    unsigned char page;
    return mincore((void *)address, world.os.page_bytes, &page) == 0;
}

CASE(address_space_of_a_room_that_is_too_small_is_given_back) {
    const size_t room_bytes = (size_t)1 << 30; // what each has beside the block that it is made for
    keep_all();
    set->cache.room.torn = true; // as after a kernel that has refused to grow a piece
    give(take(2 * MIB));
    take(6 * MIB);
    assert_int_equal(set->cache.room.end - set->cache.room.tail, room_bytes);
    const uintptr_t left = set->cache.room.tail;
    take(room_bytes + 16 * MIB);
    const uintptr_t second = set->cache.room.tail;
    assert_true(second != left);
    assert_int_equal(set->cache.room.end - second, room_bytes);
    assert_true(is_mapped(left) && huge_owes(set));
    // One room waits for that, no more.
    take(room_bytes + 16 * MIB);
    assert_int_equal(set->cache.room.tail, second);
    const uint64_t entries = os_entries(&world.os);
    const size_t cached = set->cache.bytes;
    huge_settle(set);
    assert_int_equal(os_entries(&world.os), entries + 1);
    assert_int_equal(set->cache.bytes, cached);
    assert_false(is_mapped(left) || is_mapped(left + room_bytes - world.os.page_bytes));
    assert_false(huge_owes(set));
    take(room_bytes + 16 * MIB);
    assert_true(set->cache.room.tail != second && huge_owes(set));
    huge_confine(set);
    assert_false(is_mapped(second) || huge_owes(set));
}

CASE(much_that_is_cached_raises_work) {
    keep_all();
    give(take(2 * MIB));
    assert_int_equal(atomic_load(&world.os.work), 0);
    give(take(MALLOW_WORK_BYTES + MIB));
    assert_int_equal(atomic_load(&world.os.work), 1);
}

#define HUGE_CASE(name) cmocka_unit_test_setup_teardown(name, begin, huge_world_end)

int main(void) {
    const struct CMUnitTest cases[] = {
        HUGE_CASE(a_freed_mapping_serves_the_same_size_without_a_system_call),
        HUGE_CASE(a_freed_mapping_serves_a_larger_request_by_remapping),
        HUGE_CASE(a_freed_mapping_serves_a_smaller_request_and_the_rest_stays),
        HUGE_CASE(a_large_block_is_made_up_of_the_pages_of_small_ones),
        HUGE_CASE(pieces_are_moved_together_one_in_a_call),
        HUGE_CASE(what_may_not_be_given_back_now_is_owed),
        HUGE_CASE(loose_pieces_are_pieces_and_are_joined_later),
        HUGE_CASE(thousands_of_blocks_take_one_system_call_each),
        HUGE_CASE(so_do_thousands_of_aligned_ones),
        HUGE_CASE(what_is_live_keeps_its_contents_through_any_order_of_sizes),
        HUGE_CASE(so_it_does_with_huge_pages_by_faults),
        HUGE_CASE(the_smallest_cached_mapping_that_is_large_enough_is_used),
        HUGE_CASE(the_cache_keeps_no_more_than_its_limit_and_its_places),
        HUGE_CASE(what_has_no_place_is_late_where_no_system_call_may_be_made),
        HUGE_CASE(a_piece_that_was_put_together_grows_in_one_call_whatever_the_kernel_says),
        HUGE_CASE(so_does_what_was_cut_from_one),
        HUGE_CASE(a_block_that_the_kernel_does_not_grow_moves_without_a_second_call),
        HUGE_CASE(what_is_kept_is_learnt_from_what_had_to_be_made_anew),
        HUGE_CASE(a_zeroed_block_is_zero_even_when_the_cache_holds_a_written_one),
        HUGE_CASE(what_is_cached_and_not_needed_for_two_intervals_is_idle),
        HUGE_CASE(idle_mappings_are_given_back_in_parts_and_the_rest_serves_on),
        HUGE_CASE(a_step_gives_back_one_piece_in_one_call),
        HUGE_CASE(what_cannot_be_moved_to_the_room_is_not_counted_as_there),
        HUGE_CASE(a_large_block_is_not_put_together_for_the_sake_of_a_few_pages),
        HUGE_CASE(for_an_eighth_of_its_pages_it_is),
        HUGE_CASE(what_is_gathered_is_idle_and_given_back_too),
        HUGE_CASE(what_another_thread_was_unmapping_is_not_used_again_in_a_child),
        HUGE_CASE(what_the_child_itself_unmaps_stays_on_its_way),
        HUGE_CASE(address_space_of_a_room_that_is_too_small_is_given_back),
        HUGE_CASE(much_that_is_cached_raises_work),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
