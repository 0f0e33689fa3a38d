// SPDX-License-Identifier: MIT
// Huge blocks: huge pages by faults, where programs write what they ask for.
#include "arena/huge_faults.h"

#include <pthread.h>

#include "../os/tree.h"
#include "../smaps.h"
#include "arena/huge_pieces.h"

#include "huge_world.h"

enum { MIB = 1 << 20, BLOCK = 8 * MIB, ENOUGH = 9, CACHE_LIMIT = 16 * MIB };

static uintptr_t blocks[64];
static unsigned block_count;

static int begin(void **state) {
    (void)state;
    block_count = 0;
    huge_world_begin_later(CACHE_LIMIT);
    set->os->root = "/nonexistent"; // whatever this machine has free
    return 0;
}

// Where a chunk is not what a huge page would be, nothing of this is ever used.
static void need_chunks(void) {
    if (world.os.page_bytes != 4096) {
        skip();
    }
}

static uintptr_t take(size_t bytes, bool zeroed) {
    const uint64_t entries = os_entries(&world.os);
    const uintptr_t block = huge_take(set, bytes, 1, zeroed);
    assert_true(block != 0);
    assert_true(os_entries(&world.os) - entries <= 1);
    blocks[block_count++] = block;
    return block;
}

// Blocks, and a byte written every so many.
static void take_written(unsigned count, size_t bytes, size_t stride) {
    for (unsigned i = 0; i < count; i++) {
        const uintptr_t block = take(bytes, false);
        for (size_t at = 0; at < bytes; at += stride) {
            *(volatile unsigned char *)(block + at) = 1;
        }
    }
}

static void become_broad(void) {
    need_chunks();
    take_written(ENOUGH, BLOCK, 4096);
    huge_faults_look(set);
    assert_true(set->cache.broad);
}

CASE(blocks_that_are_written_whole_get_them) {
    become_broad();
    const uintptr_t block = take(BLOCK + 1, false);
    const struct huge *const huge = huge_of(set, block);
    assert_true(huge->broad);
    assert_int_equal(block % MALLOW_CHUNK_BYTES, 0);
    assert_int_equal(huge->mapped_bytes, BLOCK + MALLOW_CHUNK_BYTES);
    assert_int_equal(huge->usable_bytes, BLOCK + 4096);
    if (!smaps_has_flag(block, " hg")) {
        fail();
    }
    for (size_t at = 0; at < BLOCK; at += 4096) {
        assert_int_equal(*(const unsigned char *)(block + at), 0);
        *(unsigned char *)(block + at) = 1;
    }
    // The next one begins on a chunk too, so that no huge page has two blocks in it.
    assert_int_equal(take(5 * MIB, false) % MALLOW_CHUNK_BYTES, 0);
}

CASE(blocks_that_are_written_here_and_there_do_not) {
    need_chunks();
    take_written(ENOUGH, BLOCK, 64 << 10);
    huge_faults_look(set);
    assert_false(set->cache.broad);
    assert_int_equal(set->cache.room.end, 0);
}

CASE(nor_do_blocks_that_are_written_by_half) {
    need_chunks();
    for (unsigned i = 0; i < ENOUGH; i++) {
        memset((void *)take(BLOCK, false), 1, BLOCK / 2);
    }
    huge_faults_look(set);
    assert_false(set->cache.broad);
}

CASE(nor_does_a_program_of_few_blocks) {
    need_chunks();
    take_written(7, BLOCK, 4096); // 56 MiB
    huge_faults_look(set);
    assert_false(set->cache.broad);
}

// What whole chunks add to all blocks is to be little beside what is free.
CASE(nor_where_little_memory_is_free) {
    need_chunks();
    tree_begin();
    set->os->root = tree_root;
    tree_set_free(300);
    take_written(12, 7 * MIB, 4096); // a megabyte each, twice that at most
    huge_faults_look(set);
    assert_false(set->cache.broad);
    tree_set_free(400);
    huge_faults_look(set);
    assert_true(set->cache.broad);
    tree_set_free(150);
    huge_faults_look(set);
    assert_false(set->cache.broad);
    tree_end();
}

CASE(what_is_free_does_not_matter_to_blocks_of_whole_chunks) {
    tree_begin();
    set->os->root = tree_root;
    tree_set_free(1);
    become_broad();
    tree_end();
}

// Some in blocks that would not be of whole chunks, and cut the pieces of those that are.
CASE(nor_do_large_blocks_among_smaller_ones) {
    need_chunks();
    take_written(5, 3 * MIB, 4096); // 15 of 87 MiB
    take_written(ENOUGH, BLOCK, 4096);
    huge_faults_look(set);
    assert_false(set->cache.broad);
}

CASE(nor_do_those_to_which_whole_chunks_would_add_much) {
    need_chunks();
    take_written(ENOUGH, BLOCK + MIB / 4, 4096); // 1.75 MiB each
    huge_faults_look(set);
    assert_false(set->cache.broad);
}

CASE(it_ends_among_smaller_ones_and_not_before) {
    become_broad();
    take_written(5, 3 * MIB, 4096); // too many to begin
    huge_faults_look(set);
    assert_true(set->cache.broad);
    take_written(3, 3 * MIB, 4096); // 24 of 96 MiB
    huge_faults_look(set);
    assert_false(set->cache.broad);
}

CASE(the_block_that_is_about_to_be_written_tells_nothing) {
    need_chunks();
    take_written(ENOUGH, BLOCK, 4096);
    (void)take(BLOCK, false);
    huge_faults_look(set);
    assert_true(set->cache.broad);
}

CASE(small_blocks_and_zeroed_ones_have_small_pages) {
    become_broad();
    const struct huge *const huge = huge_of(set, take(4 * MIB + 1, false)); // or it took 6
    assert_false(huge->broad);
    assert_int_equal(huge->mapped_bytes, 4 * MIB + 4096);
    assert_false(huge_of(set, take(3 * MIB, false))->broad);
    assert_false(huge_of(set, take(BLOCK, true))->broad);
}

CASE(it_ends_when_blocks_on_small_pages_are_sparse) {
    become_broad();
    for (unsigned i = 0; i < HUGE_FAULTS_SAMPLE + 1; i++) {
        (void)take(BLOCK, true);
    }
    huge_faults_look(set);
    assert_false(set->cache.broad);
    assert_int_equal(set->cache.room.huge_from, 0);
    const uintptr_t block = take(BLOCK, false);
    assert_false(huge_of(set, block)->broad);
    assert_false(smaps_has_flag(set->cache.room.tail, " hg"));
}

CASE(what_is_on_huge_pages_tells_nothing) {
    become_broad();
    take_written(3, BLOCK, MALLOW_CHUNK_BYTES); // a byte in each is all of it
    for (unsigned i = 0; i < 3; i++) {
        (void)take(BLOCK, false); // nothing of it
    }
    huge_faults_look(set);
    assert_true(set->cache.broad);
}

CASE(it_ends_when_the_program_turns_sparse) {
    become_broad();
    take_written(3 * HUGE_BROAD_PROBE_SHARE, BLOCK, 4096);
    huge_faults_look(set);
    assert_true(set->cache.broad);
    unsigned small = 0;
    for (unsigned i = 0; i < 3 * HUGE_BROAD_PROBE_SHARE; i++) {
        small += !huge_of(set, take(BLOCK, false))->broad;
    }
    assert_int_equal(small, 3);
    huge_faults_look(set);
    assert_false(set->cache.broad);
}

CASE(a_room_that_is_used_up_is_followed_by_another) {
    become_broad();
    const uintptr_t first = set->cache.room.end;
    for (unsigned i = 0; i < 5; i++) { // all but a sixth, untouched
        assert_true(huge_of(set, take(170 * MIB, false))->broad);
    }
    huge_faults_look(set);
    assert_true(set->cache.room.end != first);
    assert_true(huge_of(set, take(512 * MIB, false))->broad);
    // One that fits no room has small pages, at one call as ever.
    assert_false(huge_of(set, take((size_t)800 * MIB, false))->broad);
}

// Where what is passed over would leave too little, nothing is passed over.
CASE(no_block_reaches_beyond_the_room) {
    become_broad();
    struct huge_room *const room = &set->cache.room;
    assert_true(huge_give(set, blocks[--block_count], true)); // memory for pieces, from now on
    for (unsigned left = 8; left <= 16; left++) {
        for (unsigned pages = 0; pages < 3; pages++) {
            // A room that ends, and has been used up to, anywhere.
            huge_cache_set_broad(&set->cache, false);
            (void)huge_purge_all(set);
            set->cache.worth = SIZE_MAX;
            assert_int_equal(room->end, 0);
            huge_cache_set_broad(&set->cache, true);
            const uintptr_t start = room->front;
            room->end -= pages * 4096;
            room->front = room->tail = room->end - left * (size_t)MIB + 4096;
            assert_true(os_unmap(&world.os, start, room->front - start));
            const uintptr_t piece = huge_take(set, 6 * MIB, 1, true); // elsewhere, on small pages
            assert_true(piece != 0);
            assert_true(huge_give(set, piece, true));
            for (size_t bytes = 7; bytes <= 13; bytes += 3) {
                const uintptr_t block = take(bytes * MIB, false);
                const struct huge *const huge = huge_of(set, block);
                assert_true(block >= room->end || block + huge->mapped_bytes <= room->end);
                assert_true(room->front <= room->tail && room->tail <= room->end);
                assert_true(huge_give(set, block, true));
                block_count--;
            }
        }
    }
}

// The calls that move pieces make rooms too: those get them by the next call that has none to make.
CASE(a_room_that_a_call_has_made_gets_them_too) {
    become_broad();
    assert_true(huge_give(set, blocks[--block_count], true)); // memory for pieces, from now on
    (void)huge_cache_purge(&set->cache);
    set->cache.worth = SIZE_MAX;
    assert_int_equal(set->cache.room.end, 0);
    for (unsigned i = 0; i < block_count; i += 2) { // pieces that do not touch
        set->cache.room.wanted = 100;
        const uint64_t entries = os_entries(&world.os);
        assert_true(huge_give(set, blocks[i], true));
        assert_true(os_entries(&world.os) - entries <= 1);
    }
    if (set->cache.room.refused) {
        skip(); // Linux before 6.17
    }
    assert_true(set->cache.room.end != 0);
    assert_true(set->cache.room.huge_from != 0);
}

// What is passed over in a room may hold the rest of a huge page that a block before has touched.
CASE(nothing_of_a_room_is_lost) {
    enum { LIVE = 12, STEPS = 400 };
    struct unit_chance chance = unit_chance_begin();
    uintptr_t live[LIVE] = {0};
    become_broad();
    for (unsigned i = 0; i < ENOUGH; i++) {
        assert_true(huge_give(set, blocks[--block_count], true));
    }
    (void)huge_purge_all(set);
    const size_t mapped = smaps_flagged_bytes(" hg");
    huge_cache_set_broad(&set->cache, true);
    set->cache.worth = SIZE_MAX;
    for (unsigned step = 0; step < STEPS; step++) {
        const unsigned at = unit_below(&chance, LIVE);
        if (live[at] != 0) {
            assert_true(huge_give(set, live[at], true));
            live[at] = 0;
            continue;
        }
        const size_t bytes = unit_below(&chance, 2) == 0 ? 4 * MIB + 4096 : 6 * MIB + 4096;
        live[at] = take(bytes, false);
        block_count = 0;
        for (size_t i = 0; i < bytes; i += MALLOW_CHUNK_BYTES) {
            *(volatile unsigned char *)(live[at] + i) = 1;
        }
        if (step % 64 == 63) {
            huge_cache_set_broad(&set->cache, true); // the next room, before this one is used up
        }
    }
    for (unsigned i = 0; i < LIVE; i++) {
        assert_true(live[i] == 0 || huge_give(set, live[i], true));
    }
    (void)huge_purge_all(set);
    assert_int_equal(smaps_flagged_bytes(" hg"), mapped);
}

// Pages that were moved there leave mappings of the kernel's behind when they are given back.
CASE(what_the_kernel_would_not_grow_is_not_tried) {
    become_broad();
    for (unsigned i = 0; i < ENOUGH; i += 2) { // pieces that do not touch
        set->cache.room.wanted = 100;
        set->cache.worth = SIZE_MAX;
        assert_true(huge_give(set, blocks[i], true));
    }
    block_count = 0;
    if (set->cache.room.refused || set->cache.room.tail == set->cache.room.front) {
        skip(); // Linux before 6.17; or the kernel has put them side by side
    }
    (void)huge_idle_purge(set, SIZE_MAX, UINT32_MAX);
    const uintptr_t block = take(3 * BLOCK, false); // across two of what has been moved
    struct huge *const huge = huge_of(set, block);
    const uint64_t entries = os_entries(&world.os);
    if (!huge_is_fixed(huge, 4 * BLOCK)) {
        assert_true(huge_resize(set, huge, 4 * BLOCK, true) != 0);
    }
    assert_true(os_entries(&world.os) - entries <= 1);
}

// Nor does a block that is cut become larger: it may lie between others.
CASE(a_block_that_is_cut_stays_in_its_place) {
    need_chunks();
    const uintptr_t block = take(11 * MIB, false); // before it is all about whole chunks
    become_broad();
    struct huge *const huge = huge_of(set, block);
    assert_int_equal(huge_resize(set, huge, 10 * MIB + 4097, false), block);
    assert_int_equal(huge->mapped_bytes, 11 * MIB);
    assert_int_equal(huge->usable_bytes, 10 * MIB + 8192);
    assert_int_equal(huge_resize(set, huge, 9 * MIB, false), block);
    assert_int_equal(huge->mapped_bytes, 10 * MIB);
    huge->parts = HUGE_SEVERAL;
    assert_int_equal(huge_resize(set, huge, 10 * MIB, true), block);
    assert_int_equal(huge->mapped_bytes, 10 * MIB);
}

// ---- Any order of calls -------------------------------------------------------------------------

enum { MODEL_BLOCKS = 12, MODEL_STEPS = 3000, MODEL_RANGES = 128 };

struct range {
    uintptr_t start;
    size_t bytes;
};

static int compare_ranges(const void *left, const void *right) {
    const uintptr_t a = ((const struct range *)left)->start;
    const uintptr_t b = ((const struct range *)right)->start;
    return (a > b) - (a < b);
}

// Blocks, pieces, and the room's gathered pages and address space: none has a page of another, and
// what is counted is what there is.
static void check_ranges(void) {
    struct range ranges[MODEL_RANGES];
    size_t count = 0;
    const struct huge_room *const room = &set->cache.room;
    size_t cached = room->tail - room->front;
    size_t live = 0;
    for (const struct huge *huge = set->live; huge != NULL; huge = huge->next) {
        ranges[count++] = (struct range){huge->map_address, huge->mapped_bytes};
        live += huge->mapped_bytes;
    }
    for (unsigned i = 0; set->cache.pieces != NULL && i < MALLOW_HUGE_CACHE_COUNT; i++) {
        if (set->cache.pieces[i].bytes != 0) {
            ranges[count++] =
                (struct range){set->cache.pieces[i].address, set->cache.pieces[i].bytes};
            cached += set->cache.pieces[i].bytes - huge_pieces_hollow(&set->cache, i);
        }
    }
    assert_true(room->front <= room->tail && room->tail <= room->end);
    if (room->end != room->front) {
        ranges[count++] = (struct range){room->front, room->end - room->front};
    }
    assert_true(count <= MODEL_RANGES);
    qsort(ranges, count, sizeof ranges[0], compare_ranges);
    for (size_t i = 1; i < count; i++) {
        assert_true(ranges[i - 1].start + ranges[i - 1].bytes <= ranges[i].start);
    }
    assert_int_equal(cached, set->cache.bytes);
    assert_int_equal(live, set->live_bytes);
}

struct model_block {
    uintptr_t address;
    size_t bytes;
    unsigned char tag;
};

static void model_fill(struct model_block *block, unsigned char tag) {
    block->tag = tag;
    for (size_t i = 0; i < block->bytes; i += MIB) {
        *(unsigned char *)(block->address + i) = tag;
    }
}

static void model_check(const struct model_block *block, size_t bytes) {
    for (size_t i = 0; i < bytes; i += MIB) {
        assert_int_equal(*(const unsigned char *)(block->address + i), block->tag);
    }
}

static size_t model_size(struct unit_chance *chance) {
    const size_t bytes = (1 + unit_below(chance, 14)) * (size_t)MIB;
    return unit_below(chance, 2) == 0 ? bytes : bytes + unit_below(chance, MIB);
}

static void model_take(struct model_block *block, struct unit_chance *chance, unsigned char tag) {
    const bool zeroed = unit_below(chance, 5) == 0;
    const size_t alignment = unit_below(chance, 6) == 0 ? (size_t)4096 << unit_below(chance, 12) : 1;
    block->bytes = model_size(chance);
    block->address = huge_take(set, block->bytes, alignment, zeroed);
    assert_true(block->address != 0 && block->address % alignment == 0);
    for (size_t i = 0; zeroed && i < block->bytes; i += MIB / 4) {
        assert_int_equal(*(const unsigned char *)(block->address + i), 0);
    }
    model_fill(block, tag);
}

static void model_resize(struct model_block *block, struct unit_chance *chance, unsigned char tag) {
    struct huge *const huge = huge_of(set, block->address);
    const size_t bytes = model_size(chance);
    const size_t mapped_bytes = huge->mapped_bytes;
    const uintptr_t address = huge_resize(set, huge, bytes, unit_below(chance, 2) == 0);
    if (bytes <= block->bytes) {
        assert_int_equal(address, block->address);
        assert_true(huge->mapped_bytes <= mapped_bytes);
    }
    if (address != 0) {
        block->address = address;
        model_check(block, bits_min(bytes, block->bytes));
        block->bytes = bytes;
        model_fill(block, tag);
    }
}

// What other threads, options and the program's rest may do in between.
static void model_interfere(struct unit_chance *chance) {
    switch (unit_below(chance, 12)) {
    case 0:
        (void)huge_purge_all(set);
        set->cache.worth = SIZE_MAX;
        break;
    case 1:
        (void)huge_idle_purge(set, (size_t)unit_below(chance, 16) * MIB + 4096, UINT32_MAX);
        break;
    case 2:
    case 3:
    case 4:
        huge_cache_set_broad(&set->cache, unit_below(chance, 3) != 0);
        break;
    case 5:
        (void)huge_owe(set, (size_t)unit_below(chance, 16) * MIB);
        break;
    case 6:
        os_charge_set(&world.os, UINT64_C(1) << 40, UINT64_MAX);
        break;
    case 7:
        os_charge_set(&world.os, UINT64_MAX, UINT64_MAX);
        break;
    case 8:
        huge_settle(set);
        break;
    default:
        huge_join(set);
        break;
    }
}

CASE(nothing_overlaps_in_any_order_of_calls) {
    struct unit_chance chance = unit_chance_begin();
    struct model_block live[MODEL_BLOCKS] = {{0, 0, 0}};
    need_chunks();
    set->cache.worth = SIZE_MAX;
    for (unsigned step = 0; step < MODEL_STEPS; step++) {
        struct model_block *const block = &live[unit_below(&chance, MODEL_BLOCKS)];
        if (unit_below(&chance, 4) == 0) {
            model_interfere(&chance);
        } else if (block->address == 0) {
            model_take(block, &chance, (unsigned char)step);
        } else if (unit_below(&chance, 3) == 0) {
            model_check(block, block->bytes);
            model_resize(block, &chance, (unsigned char)step);
        } else {
            model_check(block, block->bytes);
            assert_true(huge_give(set, block->address, unit_below(&chance, 2) == 0));
            block->address = 0;
        }
        check_ranges();
    }
    os_charge_set(&world.os, UINT64_MAX, UINT64_MAX);
}

CASE(where_memory_is_limited_nothing_changes) {
    need_chunks();
    take_written(ENOUGH, BLOCK, 4096);
    world.os.locks_all = true;
    huge_faults_look(set);
    assert_false(set->cache.broad);
    world.os.locks_all = false;
    os_charge_set(&world.os, UINT64_C(1) << 40, UINT64_MAX);
    huge_faults_look(set);
    assert_false(set->cache.broad);
    os_charge_set(&world.os, UINT64_MAX, UINT64_MAX);
    huge_faults_look(set);
    assert_true(set->cache.broad);
    os_charge_set(&world.os, UINT64_C(1) << 40, UINT64_MAX); // what is charged is what is asked for
    assert_int_equal(huge_of(set, take(BLOCK + 1, false))->mapped_bytes, BLOCK + 4096);
    os_charge_set(&world.os, UINT64_MAX, UINT64_MAX);
}

static _Atomic(bool) looking_ends;

static void *look_again_and_again(void *data) {
    (void)data;
    while (!atomic_load(&looking_ends)) {
        huge_faults_look(set);
    }
    return NULL;
}

static void *take_and_give_again_and_again(void *data) {
    (void)data;
    uintptr_t mine[4] = {0};
    for (unsigned i = 0; i < 400; i++) {
        uintptr_t *const place = &mine[i % 4];
        if (*place != 0) {
            assert_true(huge_give(set, *place, true));
        }
        const size_t bytes = (4 + i % 7) * (size_t)MIB - i * 64;
        *place = huge_take(set, bytes, 1, i % 5 == 0);
        assert_true(*place != 0);
        *(volatile unsigned char *)(*place + bytes - 1) = 1;
    }
    return NULL;
}

// For a build with ThreadSanitizer above all.
CASE(it_looks_while_others_take_and_give) {
    pthread_t looks;
    pthread_t takes[2];
    need_chunks();
    take_written(ENOUGH, BLOCK, 4096);
    atomic_store(&looking_ends, false);
    assert_int_equal(pthread_create(&looks, NULL, look_again_and_again, NULL), 0);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&takes[i], NULL, take_and_give_again_and_again, NULL), 0);
    }
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(takes[i], NULL), 0);
    }
    atomic_store(&looking_ends, true);
    assert_int_equal(pthread_join(looks, NULL), 0);
}

#define FAULTS_CASE(name) cmocka_unit_test_setup_teardown(name, begin, huge_world_end)

int main(void) {
    const struct CMUnitTest cases[] = {
        FAULTS_CASE(blocks_that_are_written_whole_get_them),
        FAULTS_CASE(blocks_that_are_written_here_and_there_do_not),
        FAULTS_CASE(nor_do_blocks_that_are_written_by_half),
        FAULTS_CASE(nor_does_a_program_of_few_blocks),
        FAULTS_CASE(nor_where_little_memory_is_free),
        FAULTS_CASE(what_is_free_does_not_matter_to_blocks_of_whole_chunks),
        FAULTS_CASE(nor_do_large_blocks_among_smaller_ones),
        FAULTS_CASE(nor_do_those_to_which_whole_chunks_would_add_much),
        FAULTS_CASE(it_ends_among_smaller_ones_and_not_before),
        FAULTS_CASE(the_block_that_is_about_to_be_written_tells_nothing),
        FAULTS_CASE(small_blocks_and_zeroed_ones_have_small_pages),
        FAULTS_CASE(it_ends_when_blocks_on_small_pages_are_sparse),
        FAULTS_CASE(what_is_on_huge_pages_tells_nothing),
        FAULTS_CASE(it_ends_when_the_program_turns_sparse),
        FAULTS_CASE(a_room_that_is_used_up_is_followed_by_another),
        FAULTS_CASE(no_block_reaches_beyond_the_room),
        FAULTS_CASE(a_room_that_a_call_has_made_gets_them_too),
        FAULTS_CASE(nothing_of_a_room_is_lost),
        FAULTS_CASE(what_the_kernel_would_not_grow_is_not_tried),
        FAULTS_CASE(a_block_that_is_cut_stays_in_its_place),
        FAULTS_CASE(nothing_overlaps_in_any_order_of_calls),
        FAULTS_CASE(where_memory_is_limited_nothing_changes),
        FAULTS_CASE(it_looks_while_others_take_and_give),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
