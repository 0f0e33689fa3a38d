// SPDX-License-Identifier: MIT
// Heap, large blocks: their spans, blocks at an offset, resizing in place.
#include "heap_world.h"

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
    heap_world_end(&world);
    return 0;
}

static size_t slices_for(size_t bytes) {
    return (bytes + MALLOW_SLICE_BYTES - 1) >> MALLOW_SLICE_SHIFT;
}

static struct heap_block identify(uintptr_t address) {
    return heap_identify(&world.shared, address);
}

static bool resize(uintptr_t address, size_t size) {
    const struct heap_block block = identify(address);
    return heap_resize_in_place(&world.shared, &block, size);
}

CASE(a_large_block_takes_whole_slices_and_gives_them_all_back) {
    for (size_t size = 65537; size <= MALLOW_LARGE_BYTES_MAX; size += 77777) {
        const uintptr_t block = heap_large_allocate(heap, size, MALLOW_SLICE_BYTES, false);
        assert_int_equal(block % MALLOW_SLICE_BYTES, 0);
        assert_int_equal(heap_world_slices_used(&world), slices_for(size));
        const size_t usable = identify(block).usable_bytes;
        assert_int_equal(usable, bits_align_up(size, world.arena.os.page_bytes));
        memset((void *)block, 0x5a, usable);
        heap_large_free(&world.shared, identify(block).slab);
        assert_int_equal(heap_world_slices_used(&world), 0);
        arena_world_check(&world.arena);
    }
}

CASE(a_zeroed_large_block_is_zero_on_slices_that_were_written) {
    const uintptr_t written = heap_large_allocate(heap, 300000, MALLOW_SLICE_BYTES, false);
    memset((void *)written, 0x5a, identify(written).usable_bytes);
    assert_true(heap_free(&world.shared, heap, written));
    const uintptr_t zeroed = heap_large_allocate(heap, 200000, MALLOW_SLICE_BYTES, true);
    assert_int_equal(zeroed, written);
    assert_int_equal(*(const unsigned char *)zeroed, 0);
    assert_true(unit_is_all((const void *)zeroed, 0, identify(zeroed).usable_bytes));
}

CASE(a_block_at_an_offset_is_aligned_there_zeroed_and_freed_by_its_start) {
    struct unit_chance chance = unit_chance_begin();
    for (unsigned round = 0; round < 300; round++) {
        const size_t alignment = (size_t)16 << unit_below(&chance, 18);
        const size_t offset = unit_below(&chance, 100000);
        const size_t size = unit_below(&chance, round % 10 == 0 ? 2000000 : 200000);
        const uintptr_t block = heap_allocate_at(heap, size, alignment, offset);
        assert_true(block != 0);
        assert_int_equal((block + offset) % alignment, 0);
        const struct heap_block found = identify(block);
        assert_true(found.kind == HEAP_BLOCK_LARGE || found.kind == HEAP_BLOCK_HUGE);
        assert_true(found.usable_bytes >= size);
        assert_int_equal(identify(block + 16).kind, HEAP_BLOCK_NONE);
        assert_true(unit_is_all((const void *)block, 0, size));
        assert_true(size == 0 || *(const unsigned char *)block == 0);
        memset((void *)block, 0x5a, found.usable_bytes);
        assert_true(resize(block, size / 2));
        if (found.kind == HEAP_BLOCK_LARGE) { // a huge one may begin where its mapping does
            assert_false(resize(block, found.usable_bytes + 1));
        }
        assert_true(heap_free(&world.shared, heap, block));
        arena_world_check(&world.arena);
    }
    assert_int_equal(heap_world_slices_used(&world), 0);
}

CASE(a_large_block_grows_in_place_into_free_slices_and_keeps_its_contents) {
    const uintptr_t block = heap_large_allocate(heap, 100000, MALLOW_SLICE_BYTES, false);
    memset((void *)block, 0x5a, 100000);
    assert_true(resize(block, 131072)); // within its slices
    assert_int_equal(heap_world_slices_used(&world), 2);
    (void)heap_large_allocate(heap, 600000, 1 << 19, false); // commits what lies between
    const size_t before = heap_world_slices_used(&world);
    assert_true(resize(block, 131073));
    assert_int_equal(heap_world_slices_used(&world), before + 1);
    assert_true(identify(block).usable_bytes >= 131073);
    assert_int_equal(identify(block + 131072).kind, HEAP_BLOCK_NONE); // interior, no block
    assert_true(unit_is_all((const void *)block, 0x5a, 100000));
    memset((void *)block, 0x77, identify(block).usable_bytes);
    arena_world_check(&world.arena);
    assert_true(heap_free(&world.shared, heap, block));
    assert_int_equal(heap_world_slices_used(&world), before - 2);
}

CASE(a_large_block_with_a_neighbour_does_not_grow_and_is_left_as_it_was) {
    const uintptr_t block = heap_large_allocate(heap, 131072, MALLOW_SLICE_BYTES, false);
    const uintptr_t wall = heap_large_allocate(heap, 70000, MALLOW_SLICE_BYTES, false);
    assert_int_equal(wall, block + 131072);
    assert_false(resize(block, 131073));
    assert_false(resize(block, MALLOW_LARGE_BYTES_MAX + 1));
    assert_false(resize(block, SIZE_MAX));
    assert_int_equal(identify(block).usable_bytes, 131072);
    assert_int_equal(heap_world_slices_used(&world), 4);
}

CASE(a_large_block_that_shrinks_gives_its_end_back) {
    const uintptr_t block = heap_large_allocate(heap, 600000, MALLOW_SLICE_BYTES, false);
    memset((void *)block, 0x5a, 600000);
    assert_true(resize(block, 70000));
    assert_int_equal(heap_world_slices_used(&world), 2);
    arena_world_check(&world.arena);
    const uintptr_t next = heap_large_allocate(heap, 300000, MALLOW_SLICE_BYTES, false);
    assert_int_equal(next, block + 2 * MALLOW_SLICE_BYTES);
    memset((void *)next, 0x77, identify(next).usable_bytes);
    assert_true(unit_is_all((const void *)block, 0x5a, 70000));
    assert_true(heap_free(&world.shared, heap, block));
    assert_int_equal(identify(next).kind, HEAP_BLOCK_LARGE);
    arena_world_check(&world.arena);
}

CASE(other_blocks_are_resized_in_place_only_within_what_is_usable) {
    static const size_t sizes[] = {100, 1000, 30000};
    for (unsigned i = 0; i < 3; i++) {
        const uintptr_t block = heap_allocate(heap, sizes[i], false);
        const size_t usable = identify(block).usable_bytes;
        assert_true(resize(block, usable));
        assert_true(resize(block, 0));
        assert_false(resize(block, usable + 1));
        assert_int_equal(identify(block).usable_bytes, usable);
    }
    assert_false(resize(64, 1)); // no block
    const uintptr_t huge = heap_allocate(heap, 3 << 20, false);
    assert_true(resize(huge, 2 << 20));
    assert_int_equal(identify(huge).usable_bytes, 2 << 20);
}

// Leaves about `bytes` of free slices that have been written.
static void leave_dirty(size_t bytes) {
    uintptr_t blocks[64];
    const size_t count = bytes / (4 * MALLOW_SLICE_BYTES);
    assert_in_range(count, 1, 64);
    for (size_t i = 0; i < count; i++) {
        blocks[i] = heap_large_allocate(heap, 4 * MALLOW_SLICE_BYTES, MALLOW_SLICE_BYTES, false);
        assert_true(blocks[i] != 0);
    }
    for (size_t i = 0; i < count; i++) {
        heap_large_free(&world.shared, identify(blocks[i]).slab);
    }
}

CASE(a_call_that_has_entered_the_kernel_settles_nothing) {
    leave_dirty(4 << 20);
    (void)arena_owe(&world.arena.arenas, 1);
    const size_t before = world.arena.arenas.dirty_slices;
    const uint64_t entries = os_entries(&world.arena.os);
    heap_settle(&world.shared, entries - 1);
    assert_int_equal(os_entries(&world.arena.os), entries);
    assert_int_equal(world.arena.arenas.dirty_slices, before);
    heap_world_settle(&world);
    assert_true(world.arena.arenas.dirty_slices < before);
}

#define LARGE_CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    const struct CMUnitTest cases[] = {
        LARGE_CASE(a_large_block_takes_whole_slices_and_gives_them_all_back),
        LARGE_CASE(a_zeroed_large_block_is_zero_on_slices_that_were_written),
        LARGE_CASE(a_block_at_an_offset_is_aligned_there_zeroed_and_freed_by_its_start),
        LARGE_CASE(a_large_block_grows_in_place_into_free_slices_and_keeps_its_contents),
        LARGE_CASE(a_large_block_with_a_neighbour_does_not_grow_and_is_left_as_it_was),
        LARGE_CASE(a_large_block_that_shrinks_gives_its_end_back),
        LARGE_CASE(a_call_that_has_entered_the_kernel_settles_nothing),
        LARGE_CASE(other_blocks_are_resized_in_place_only_within_what_is_usable),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
