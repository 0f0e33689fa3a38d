// SPDX-License-Identifier: MIT
// Short of memory: what the soft limit costs first, what the hard one refuses, and the reserve.
#include "heap_world.h"

#define MIB ((size_t)1 << 20)

static struct heap_world world;
static struct heap *heap;

static int begin(void **state) {
    (void)state;
    heap_world_begin(&world);
    heap = world.heap;
    return 0;
}

static int end(void **state) {
    (void)state;
    os_charge_set(&world.arena.os, UINT64_MAX, UINT64_MAX);
    heap_world_end(&world);
    return 0;
}

static size_t held(void) {
    return atomic_load(&world.arena.os.charge.held_bytes);
}

static void limit(uint64_t hard, uint64_t soft) {
    os_charge_set(&world.arena.os, hard, soft);
}

static uintptr_t take(size_t size) {
    const uintptr_t address = heap_allocate(heap, size, false);
    assert_true(address != 0);
    return address;
}

static void give(uintptr_t address) {
    assert_true(heap_free(&world.shared, heap, address));
}

// Leaves free slices with pages, as they are before they are purged.
static void leave_dirty(size_t bytes) {
    uintptr_t blocks[64];
    const size_t count = bytes / (256 << 10);
    for (size_t i = 0; i < count; i++) {
        blocks[i] = take(256 << 10);
    }
    for (size_t i = 0; i < count; i++) {
        give(blocks[i]);
    }
}

CASE(free_slices_are_purged_before_huge_blocks_exceed_the_soft_limit) {
    leave_dirty(4 * MIB);
    const size_t before = held();
    limit(UINT64_MAX, before);
    const uintptr_t block = take(2 * MIB);
    assert_in_range(held(), before - 2 * MIB, before);
    arena_world_check(&world.arena);
    const uintptr_t other = take(2 * MIB);
    assert_true(held() <= before);
    give(other);
    give(block);
    arena_world_check(&world.arena);
}

CASE(cached_mappings_are_unmapped_before_slices_exceed_the_soft_limit) {
    const uintptr_t block = take(2 * MIB);
    give(block);
    assert_int_equal(world.huges.cache.bytes, 2 * MIB);
    const size_t before = held();
    limit(UINT64_MAX, before);
    (void)take(512 << 10);
    assert_int_equal(world.huges.cache.bytes, 0);
    assert_true(held() <= before);
    arena_world_check(&world.arena);
}

CASE(above_the_soft_limit_with_nothing_to_give_back_growth_goes_on_and_shedding_is_due) {
    limit(UINT64_MAX, held() + 64);
    for (unsigned i = 0; i < 10; i++) {
        heap->attention = false;
        (void)take(1 * MIB);
    }
    assert_true(heap->attention);
    assert_true((world.arena.os.charge.events & OS_CHARGE_SHED_DUE) != 0);
    assert_true(held() > 10 * MIB);
}

CASE(less_is_kept_the_less_room_is_left_below_the_soft_limit) {
    uintptr_t blocks[4];
    for (unsigned i = 0; i < 4; i++) {
        blocks[i] = take(2 * MIB);
    }
    world.huges.cache.worth = 8 * MIB; // it has learnt to keep that much
    limit(UINT64_MAX, held() + MIB);
    for (unsigned i = 0; i < 4; i++) {
        give(blocks[i]);
        const size_t live = held() - world.huges.cache.bytes;
        const size_t room = atomic_load(&world.arena.os.charge.soft_bytes) - live;
        assert_true(world.huges.cache.bytes <= room / 2);
    }
    // The same for slices.
    leave_dirty(2 * MIB);
    limit(UINT64_MAX, held());
    give(take(512 << 10));
    const size_t dirty = world.arena.arenas.dirty_slices << MALLOW_SLICE_SHIFT;
    assert_true(dirty <= 4 * MIB);
    os_charge_press(&world.arena.os, true);
    give(take(512 << 10));
    arena_world_check(&world.arena);
}

// Fills the heap with blocks of one size until it refuses.
static size_t fill(size_t size, uintptr_t *blocks, size_t capacity) {
    size_t count = 0;
    while (count < capacity && (blocks[count] = heap_allocate(heap, size, false)) != 0) {
        memset((void *)blocks[count], 0x5a, size);
        count++;
    }
    assert_true(count < capacity);
    return count;
}

CASE(the_hard_limit_refuses_every_kind_of_block_and_holds_no_more_than_it_says) {
    static const size_t sizes[] = {64, 4 << 10, 40 << 10, 300 << 10, 3 * MIB};
    static uintptr_t blocks[1 << 18];
    limit(12 * MIB, UINT64_MAX);
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        heap->refused = HEAP_NOT_REFUSED;
        const size_t count = fill(sizes[i], blocks, sizeof blocks / sizeof blocks[0]);
        assert_true(held() <= 12 * MIB);
        assert_true(count * sizes[i] > 7 * MIB);
        assert_int_equal(heap->refused, HEAP_REFUSED);
        arena_world_check(&world.arena);
        for (size_t j = 0; j < count; j++) {
            give(blocks[j]);
        }
        heap_release_spare(heap);
        arena_world_check(&world.arena);
    }
}

CASE(a_thread_that_was_refused_may_use_the_reserve_for_small_things) {
    static uintptr_t blocks[1 << 12];
    limit(12 * MIB, UINT64_MAX);
    const size_t count = fill(256 << 10, blocks, 1 << 12); // spans that the reserve serves too
    assert_true(held() <= 12 * MIB - os_charge_reserve(12 * MIB));
    const size_t before = held();
    assert_int_equal(heap_allocate(heap, 2 * MIB, false), 0);
    assert_int_equal(heap_allocate(heap, MIB, false), 0);
    assert_int_equal(heap->refused, HEAP_REFUSED);
    size_t small = 0;
    while (heap_allocate(heap, 10000, false) != 0) {
        small++;
        assert_true(small < 1000);
    }
    assert_true(small >= 5);
    assert_true(held() > before);
    assert_true(held() <= atomic_load(&world.arena.os.charge.caps[OS_CHARGE_SPARE]));
    // The smallest go on: an exception, a line of a log.
    small = 0;
    while (heap_allocate(heap, 200, false) != 0) {
        small++;
        assert_true(small < 10000);
    }
    assert_true(small >= 200);
    assert_true(held() <= 12 * MIB);
    arena_world_check(&world.arena);
    // Memory that was freed serves again, and the reserve is closed.
    for (size_t i = 0; i < count / 2; i++) {
        give(blocks[i]);
    }
    (void)take(2 * MIB);
    assert_int_equal(heap->refused, HEAP_NOT_REFUSED);
    arena_world_check(&world.arena);
}

CASE(a_request_beyond_the_limit_costs_nothing_that_is_kept) {
    leave_dirty(2 * MIB);
    limit(64 * MIB, UINT64_MAX);
    const size_t dirty = world.arena.arenas.dirty_slices;
    assert_int_equal(heap_allocate(heap, 65 * MIB, false), 0);
    assert_int_equal(heap_allocate(heap, SIZE_MAX / 4, false), 0);
    assert_int_equal(world.arena.arenas.dirty_slices, dirty);
}

CASE(a_huge_block_grows_up_to_the_limit_and_stays_as_it_was_beyond) {
    limit(32 * MIB, UINT64_MAX);
    uintptr_t block = take(2 * MIB);
    memset((void *)block, 0x6b, 2 * MIB);
    for (size_t size = 3 * MIB; size <= 24 * MIB; size += MIB) {
        block = heap_huge_resize(&world.shared, huge_of(&world.huges, block), size, true);
        assert_true(block != 0);
    }
    assert_int_equal(
        heap_huge_resize(&world.shared, huge_of(&world.huges, block), 40 * MIB, true), 0);
    assert_true(unit_is_all((const void *)block, 0x6b, 2 * MIB));
    assert_true(held() <= 32 * MIB);
    // What is kept makes way.
    leave_dirty(3 * MIB);
    limit(32 * MIB, held());
    block = heap_huge_resize(&world.shared, huge_of(&world.huges, block), 26 * MIB, true);
    assert_true(block != 0);
    assert_true(held() <= atomic_load(&world.arena.os.charge.soft_bytes));
    arena_world_check(&world.arena);
}

CASE(what_other_threads_have_freed_is_collected_before_a_refusal) {
    static uintptr_t blocks[1 << 12];
    limit(12 * MIB, UINT64_MAX);
    const size_t count = fill(10000, blocks, 1 << 12);
    heap->refused = HEAP_NOT_REFUSED;
    // As another thread frees them: every block of all slabs.
    for (size_t i = 0; i < count; i++) {
        assert_true(heap_free(&world.shared, (struct heap *)(uintptr_t)&heap_empty, blocks[i]));
    }
    (void)take(2 * MIB);
    arena_world_check(&world.arena);
}

CASE(tables_are_charged_and_a_limit_too_small_for_them_refuses_cleanly) {
    limit(held() + 1, UINT64_MAX);
    assert_null(meta_take(&world.arena.meta, 1 * MIB));
    for (unsigned i = 0; i < 1000; i++) {
        (void)heap_allocate(heap, 100000, false);
    }
    assert_true(held() <= atomic_load(&world.arena.os.charge.caps[OS_CHARGE_RESERVE]));
    arena_world_check(&world.arena);
}

// ---- Making way ---------------------------------------------------------------------------------

static size_t kept(void) {
    return arena_kept(&world.arena.arenas) + huge_kept(&world.huges);
}

// What is held may be more than what was ever needed by a megabyte, and by a sixteenth of what
// has made way.
static void check_bound(uint64_t need_peak) {
    heap_world_settle(&world);
    assert_true(held() - kept() <= need_peak);
    assert_in_range(held(), 0, need_peak + MIB + world.shared.way_bytes / 16);
}

CASE(free_slices_make_way_for_huge_blocks_beyond_what_was_ever_needed) {
    leave_dirty(8 * MIB);
    const size_t dirty = arena_kept(&world.arena.arenas);
    assert_true(dirty >= 8 * MIB);
    const uint64_t peak = held();
    assert_false(arena_owes(&world.arena.arenas));
    uintptr_t blocks[6];
    for (unsigned i = 0; i < 6; i++) { // no more than was needed before
        blocks[i] = take(MIB + 1);
        check_bound(peak);
    }
    assert_in_range(arena_kept(&world.arena.arenas), MIB, dirty - 4 * MIB);
    // Later, since the call has made its system call already.
    const size_t before = arena_kept(&world.arena.arenas);
    const uintptr_t last = take(4 * MIB);
    assert_int_equal(arena_kept(&world.arena.arenas), before);
    assert_true(arena_owes(&world.arena.arenas));
    heap_world_settle(&world);
    assert_true(arena_kept(&world.arena.arenas) < before);
    give(last);
    for (unsigned i = 0; i < 6; i++) {
        give(blocks[i]);
    }
    arena_world_check(&world.arena);
}

CASE(a_block_that_grows_by_the_kernel_makes_its_way) {
    const uintptr_t block = take(2 * MIB);
    leave_dirty(8 * MIB);
    const uint64_t peak = held();
    struct huge *const huge = huge_of(&world.huges, block);
    const uintptr_t moved = heap_huge_resize(&world.shared, huge, 8 * MIB, true);
    assert_true(moved != 0);
    check_bound(peak);
    assert_true(arena_kept(&world.arena.arenas) <= 4 * MIB);
    give(moved);
}

CASE(cached_mappings_make_way_for_slices) {
    const uintptr_t block = take(4 * MIB);
    world.huges.cache.worth = 8 * MIB;
    give(block);
    heap_world_settle(&world);
    assert_int_equal(huge_kept(&world.huges), 4 * MIB);
    const uint64_t peak = held();
    size_t taken = 0;
    for (; taken < 3 * MIB; taken += 256 << 10) {
        (void)take(256 << 10);
        heap_world_settle(&world); // may take slices ahead: the next calls need not grow
        assert_in_range(held(), 0, peak + MIB);
    }
    assert_true(huge_kept(&world.huges) < 4 * MIB);
    for (; taken < 6 * MIB; taken += 256 << 10) {
        (void)take(256 << 10);
        heap_world_settle(&world);
    }
    assert_int_equal(huge_kept(&world.huges), 0);
}

// Also where the slices have been committed long before, and were purged meanwhile.
CASE(cached_mappings_make_way_for_slices_whose_pages_are_fresh) {
    leave_dirty(8 * MIB);
    (void)arena_purge_all(&world.arena.arenas);
    const uintptr_t block = take(4 * MIB);
    world.huges.cache.worth = 8 * MIB;
    give(block);
    heap_world_settle(&world);
    const size_t committed = world.arena.arenas.primary.committed_slices;
    for (size_t taken = 0; taken < 7 * MIB; taken += 256 << 10) {
        (void)take(256 << 10);
        heap_world_settle(&world);
    }
    assert_int_equal(world.arena.arenas.primary.committed_slices, committed);
    assert_true(huge_kept(&world.huges) <= 2 * MIB);
}

CASE(what_is_needed_at_most_is_known_where_slices_are_committed_ahead) {
    for (size_t taken = 0; taken < 6 * MIB; taken += 256 << 10) {
        (void)take(256 << 10);
        heap_begin_effort();
        heap_settle(&world.shared, os_entries(&world.arena.os));
    }
    assert_in_range(world.shared.need_peak, held() - 3 * MIB / 2, held());
}

CASE(a_program_that_goes_on_as_it_did_gives_nothing_back) {
    leave_dirty(8 * MIB);
    for (unsigned i = 0; i < 600; i++) {
        const uintptr_t block = take(3 * MIB);
        leave_dirty(4 * MIB);
        give(block);
        heap_world_settle(&world);
    }
    const uint64_t purged = world.arena.arenas.purged_bytes;
    const uint64_t entries = os_entries(&world.arena.os);
    for (unsigned i = 0; i < 100; i++) {
        const uintptr_t block = take(3 * MIB);
        leave_dirty(4 * MIB);
        give(block);
        heap_world_settle(&world);
    }
    assert_int_equal(world.arena.arenas.purged_bytes, purged);
    assert_int_equal(os_entries(&world.arena.os), entries);
}

// 8 MiB of slices and as much in huge blocks, one after the other: less and less is given back, and
// in all no more than some multiple of that.
CASE(a_program_that_turns_from_one_kind_to_the_other_comes_to_keep_both) {
    world.huges.cache.worth = 8 * MIB;
    for (unsigned i = 0; i < 300; i++) {
        leave_dirty(8 * MIB);
        heap_world_settle(&world);
        give(take(8 * MIB));
        heap_world_settle(&world);
    }
    const uint64_t way = world.shared.way_bytes;
    assert_in_range(way, 4 * MIB, 160 * MIB);
    leave_dirty(8 * MIB);
    give(take(8 * MIB));
    assert_in_range(world.shared.way_bytes, way, way + MIB);
}

// It has made that, and may have searched and cut what is cached, and looked what is to make way.
CASE(a_huge_block_that_needs_a_record_leaves_what_is_owed_to_a_later_call) {
    struct os *const os = &world.arena.os;
    const uintptr_t block = take(8 * MIB);
    leave_dirty(8 * MIB);
    world.huges.cache.worth = 8 * MIB;
    give(block);
    heap_world_settle(&world);
    assert_int_equal(huge_kept(&world.huges), 8 * MIB);
    assert_true(arena_owe(&world.arena.arenas, 4 * MIB) != 0);
    uint64_t entries = os_entries(os);
    (void)take(2 * MIB); // by the record of the block before
    assert_int_equal(os_entries(os), entries + 1);
    assert_true(arena_owes(&world.arena.arenas));
    entries = os_entries(os);
    (void)take(2 * MIB);
    assert_int_equal(os_entries(os), entries);
    assert_true(arena_owes(&world.arena.arenas));
    heap_world_settle(&world);
}

CASE(a_loose_piece_is_joined_by_a_call_with_little_to_do) {
    const uintptr_t block = take(2 * MIB);
    assert_true(huge_give(&world.huges, block, false));
    assert_true(huge_is_loose(&world.huges));
    heap_begin_effort();
    heap_note_effort(HEAP_EFFORT_HUGE);
    heap_settle(&world.shared, os_entries(&world.arena.os));
    assert_true(huge_is_loose(&world.huges));
    heap_begin_effort();
    heap_settle(&world.shared, os_entries(&world.arena.os));
    assert_false(huge_is_loose(&world.huges));
    assert_int_equal(world.huges.cache.bytes, 2 * MIB);
}

#define RELIEF_CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    const struct CMUnitTest cases[] = {
        RELIEF_CASE(free_slices_are_purged_before_huge_blocks_exceed_the_soft_limit),
        RELIEF_CASE(cached_mappings_are_unmapped_before_slices_exceed_the_soft_limit),
        RELIEF_CASE(
            above_the_soft_limit_with_nothing_to_give_back_growth_goes_on_and_shedding_is_due),
        RELIEF_CASE(less_is_kept_the_less_room_is_left_below_the_soft_limit),
        RELIEF_CASE(the_hard_limit_refuses_every_kind_of_block_and_holds_no_more_than_it_says),
        RELIEF_CASE(a_thread_that_was_refused_may_use_the_reserve_for_small_things),
        RELIEF_CASE(a_huge_block_that_needs_a_record_leaves_what_is_owed_to_a_later_call),
        RELIEF_CASE(a_loose_piece_is_joined_by_a_call_with_little_to_do),
        RELIEF_CASE(a_request_beyond_the_limit_costs_nothing_that_is_kept),
        RELIEF_CASE(a_huge_block_grows_up_to_the_limit_and_stays_as_it_was_beyond),
        RELIEF_CASE(what_other_threads_have_freed_is_collected_before_a_refusal),
        RELIEF_CASE(tables_are_charged_and_a_limit_too_small_for_them_refuses_cleanly),
        RELIEF_CASE(free_slices_make_way_for_huge_blocks_beyond_what_was_ever_needed),
        RELIEF_CASE(a_block_that_grows_by_the_kernel_makes_its_way),
        RELIEF_CASE(cached_mappings_make_way_for_slices),
        RELIEF_CASE(cached_mappings_make_way_for_slices_whose_pages_are_fresh),
        RELIEF_CASE(what_is_needed_at_most_is_known_where_slices_are_committed_ahead),
        RELIEF_CASE(a_program_that_goes_on_as_it_did_gives_nothing_back),
        RELIEF_CASE(a_program_that_turns_from_one_kind_to_the_other_comes_to_keep_both),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
