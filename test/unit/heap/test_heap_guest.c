// SPDX-License-Identifier: MIT
// Guests: in a process of many heaps the classes of a doubling share a slab, until one takes much.
#include "heap/heap.h"

#include "heap/heap_fast.h"
#include "heap_world.h"

enum { GUEST = 320, HOST = 512, WIDE_GUEST = 40 << 10, WIDE_HOST = 64 << 10, MANY = 200 };

static struct heap_world world;
static uintptr_t blocks[MANY];

static int begin(void **state) {
    (void)state;
    heap_world_begin(&world);
    heap_world_crowd(&world);
    return 0;
}

static int end(void **state) {
    (void)state;
    heap_world_end(&world);
    return 0;
}

static uintptr_t take(size_t size) {
    uintptr_t block = 0;
    if (!heap_fast_allocate(world.heap, size, &block)) {
        block = heap_allocate(world.heap, size, false);
    }
    return block;
}

static size_t usable(uintptr_t block) {
    const struct heap_block found = heap_identify(&world.shared, block);
    assert_int_equal(found.kind, HEAP_BLOCK_SLAB);
    return found.usable_bytes;
}

// The blocks of a class that are thin.
static unsigned thin_blocks(size_t size) {
    const size_t most = MALLOW_THIN_BYTES_MAX / size;
    return most < MALLOW_THIN_BLOCKS_MAX ? (unsigned)most : MALLOW_THIN_BLOCKS_MAX;
}

static void take_thin(size_t size) {
    for (unsigned i = 0; i < thin_blocks(size); i++) {
        assert_true(take(size) != 0);
    }
}

// A few blocks of each class with a fast path, beyond those that are thin.
static void take_of_all(void) {
    for (unsigned class_index = 0; class_index < MALLOW_DIRECT_CLASS_COUNT; class_index++) {
        const size_t size = size_class_bytes(class_index);
        take_thin(size);
        for (unsigned i = 0; i < 4; i++) {
            const uintptr_t block = take(size);
            assert_true(block != 0);
            memset((void *)block, 1, size);
        }
    }
    heap_world_check(&world, world.heap);
}

CASE(a_heap_of_few_blocks_in_many_sizes_has_a_slab_a_doubling) {
    unsigned doublings = 0;
    for (unsigned class_index = 0; class_index < MALLOW_DIRECT_CLASS_COUNT; class_index++) {
        doublings += size_class_host(class_index) == class_index;
    }
    take_of_all();
    assert_int_equal(world.heap->slab_count, doublings);
}

CASE(where_heaps_are_few_each_class_has_its_own) {
    atomic_store(&world.shared.heap_count, MALLOW_CROWD_HEAPS - 1);
    take_of_all();
    assert_int_equal(world.heap->slab_count, MALLOW_DIRECT_CLASS_COUNT);
}

CASE(a_guest_takes_its_hosts_blocks_on_the_fast_path) {
    uintptr_t block = 0;
    take_thin(GUEST);
    assert_int_equal(usable(take(GUEST)), HOST); // it opens the slab
    assert_int_equal(usable(take(GUEST)), HOST); // and sits down
    assert_true(heap_fast_allocate(world.heap, GUEST, &block));
    assert_int_equal(usable(block), HOST);
    assert_true(heap_fast_allocate(world.heap, GUEST - MALLOW_GRANULE_BYTES, &block)); // same class
    struct slab *slab = NULL;
    assert_int_equal(heap_fast_free(world.heap, block, &slab), HEAP_FAST_DONE);
    assert_int_equal(heap_fast_free(world.heap, block, &slab), HEAP_FAST_SLOW);
    assert_null(heap_current_slab(world.heap, size_class_of(GUEST)));
    heap_world_check(&world, world.heap);
}

CASE(a_class_that_uses_its_hosts_slab_up_gets_its_own) {
    take_thin(GUEST);
    unsigned count = 0;
    do {
        assert_true(count < MANY);
        blocks[count] = take(GUEST);
        assert_true(blocks[count] != 0);
    } while (usable(blocks[count++]) == HOST);
    assert_int_equal(usable(blocks[count - 1]), GUEST);
    assert_true(count > (MALLOW_SLICE_BYTES - 4096) / HOST);
    assert_non_null(heap_current_slab(world.heap, size_class_of(GUEST)));
    heap_world_check(&world, world.heap);
    for (unsigned i = 0; i < count; i++) { // and keeps to it, whatever room there is
        assert_true(heap_free(&world.shared, world.heap, blocks[i]));
    }
    assert_int_equal(usable(take(GUEST)), GUEST);
    heap_world_check(&world, world.heap);
}

// The size of the block that a class without one gets, where all blocks of its host's slab are in
// use but one that another thread has freed.
static size_t usable_where_another_freed(enum heap_effort move) {
    const unsigned host = size_class_of(HOST);
    unsigned count = 0;
    take_thin(GUEST);
    take_thin(HOST);
    do {
        assert_true(count < MANY);
        blocks[count++] = take(HOST);
    } while (slab_can_open(heap_current_slab(world.heap, host)) ||
             !slab_is_out(heap_current_slab(world.heap, host)));
    heap_world_free_elsewhere(&world, blocks[0]);
    heap_begin_move(move);
    const uintptr_t block = heap_allocate(world.heap, GUEST, false);
    heap_end_move(move);
    heap_world_check(&world, world.heap);
    return usable(block);
}

CASE(a_guest_takes_what_others_have_freed_in_its_hosts_slab) {
    assert_int_equal(usable_where_another_freed(0), HOST);
}

CASE(a_class_that_a_block_moves_to_leaves_that_to_others) {
    assert_int_equal(usable_where_another_freed(HEAP_EFFORT_MOVE), GUEST);
}

CASE(a_guest_leaves_when_its_hosts_slab_does) {
    uintptr_t block = 0;
    take_thin(GUEST);
    blocks[0] = take(GUEST);
    blocks[1] = take(GUEST);
    assert_int_equal(world.heap->guests, UINT32_C(1) << size_class_of(GUEST));
    assert_true(heap_free(&world.shared, world.heap, blocks[0]));
    assert_true(heap_free(&world.shared, world.heap, blocks[1]));
    heap_release_spare(world.heap);
    assert_int_equal(world.heap->slab_count, 0);
    assert_false(heap_fast_allocate(world.heap, GUEST, &block));
    heap_world_check(&world, world.heap);
    assert_true(take(GUEST) != 0 && take(GUEST) != 0);
    heap_abandon(world.heap);
    assert_int_equal(world.heap->guests, 0);
    heap_world_check(&world, world.heap);
}

// The place of every size: none of the host's doubling leads anywhere, all others as before.
static void check_left(unsigned host, struct slab *const before[MALLOW_DIRECT_COUNT]) {
    for (size_t i = 0; i < MALLOW_DIRECT_COUNT; i++) {
        const bool left = size_class_host(size_class_of(i << MALLOW_GRANULE_SHIFT)) == host;
        assert_ptr_equal(world.heap->direct[i], left ? heap_empty.direct[0] : before[i]);
    }
}

CASE(whichever_guests_a_host_has_leave_with_it_and_no_others) {
    struct slab *before[MALLOW_DIRECT_COUNT];
    uint64_t random = 1;
    take_of_all();
    for (unsigned round = 0; round < 200; round++) {
        for (unsigned host = 0; host < MALLOW_DIRECT_CLASS_COUNT; host++) {
            struct slab *const slab = heap_current_slab(world.heap, host);
            if (size_class_host(host) != host) {
                continue;
            }
            memcpy(before, world.heap->direct, sizeof before);
            heap_hide_current(world.heap, host);
            check_left(host, before);
            assert_int_equal(world.heap->guests & size_class_guests(host), 0);
            heap_show_current(world.heap, host, slab);
            for (uint32_t guests = size_class_guests(host); guests != 0; guests &= guests - 1) {
                random = random * UINT64_C(6364136223846793005) + 1;
                if (random >> 63 != 0) {
                    heap_seat_guest(world.heap, bits_lowest(guests), slab);
                }
            }
        }
        heap_world_check(&world, world.heap);
    }
}

CASE(where_the_host_rests_its_guests_do) {
    uintptr_t block = 0;
    take_thin(GUEST);
    assert_true(take(GUEST) != 0 && take(GUEST) != 0);
    assert_true(heap_fast_allocate(world.heap, GUEST, &block));
    assert_true(heap_rest_class(world.heap, size_class_of(HOST)));
    assert_false(heap_fast_allocate(world.heap, GUEST, &block));
    heap_world_check(&world, world.heap);
    assert_int_equal(usable(heap_allocate(world.heap, GUEST, false)), HOST);
    assert_false(heap_is_resting(world.heap, size_class_of(HOST)));
    heap_world_check(&world, world.heap);
}

CASE(a_guest_without_memory_is_refused_and_nothing_else) {
    take_thin(GUEST);
    os_charge_set(&world.arena.os, 1, 1);
    assert_int_equal(take(GUEST), 0);
    heap_world_check(&world, world.heap);
    os_charge_set(&world.arena.os, UINT64_MAX, UINT64_MAX);
    assert_int_equal(usable(take(GUEST)), HOST);
    heap_world_check(&world, world.heap);
}

// ---- Classes whose slabs are of several slices: they have no fast path --------------------------

static uintptr_t take_wide(size_t size) {
    return heap_allocate(world.heap, size, false);
}

static unsigned wide_first(void) {
    return size_class_of(MALLOW_SINGLE_SLICE_BLOCK_MAX) + 1;
}

// A block of each such class; how many of them are of a class's own size.
static unsigned take_of_wide(void) {
    unsigned own = 0;
    for (unsigned class_index = wide_first(); class_index < MALLOW_CLASS_COUNT; class_index++) {
        const size_t size = size_class_bytes(class_index);
        const uintptr_t block = take_wide(size);
        assert_true(block != 0);
        memset((void *)block, 1, size);
        assert_true(usable(block) == size ||
                    usable(block) == size_class_bytes(size_class_host(class_index)));
        own += usable(block) == size;
    }
    heap_world_check(&world, world.heap);
    return own;
}

CASE(a_heap_of_few_large_blocks_in_many_sizes_has_a_slab_a_doubling) {
    assert_int_equal(take_of_wide(), 3); // the hosts'
    assert_int_equal(world.heap->slab_count, 3);
}

CASE(where_heaps_are_few_each_class_of_large_blocks_has_its_own) {
    atomic_store(&world.shared.heap_count, MALLOW_CROWD_HEAPS - 1);
    assert_int_equal(take_of_wide(), MALLOW_CLASS_COUNT - wide_first());
    assert_int_equal(world.heap->slab_count, MALLOW_CLASS_COUNT - wide_first());
}

CASE(where_memory_is_limited_each_class_of_large_blocks_has_its_own) {
    os_charge_set(&world.arena.os, UINT64_MAX, UINT64_MAX - 1);
    assert_int_equal(take_of_wide(), MALLOW_CLASS_COUNT - wide_first());
    os_charge_set(&world.arena.os, UINT64_MAX, UINT64_MAX);
}

CASE(a_class_of_large_blocks_that_uses_its_hosts_slab_up_gets_its_own) {
    unsigned count = 0;
    do {
        assert_true(count < MANY);
        blocks[count] = take_wide(WIDE_GUEST);
        assert_true(blocks[count] != 0);
    } while (usable(blocks[count++]) == WIDE_HOST);
    assert_int_equal(usable(blocks[count - 1]), WIDE_GUEST);
    assert_int_equal(count, size_class_capacity(size_class_of(WIDE_HOST)) + 1);
    for (unsigned i = 0; i < count; i++) { // and keeps to it, whatever room there is
        assert_true(heap_free(&world.shared, world.heap, blocks[i]));
    }
    assert_int_equal(usable(take_wide(WIDE_GUEST)), WIDE_GUEST);
    heap_world_check(&world, world.heap);
}

CASE(a_large_guest_that_is_to_be_zero_is_so_to_its_end) {
    for (unsigned i = 0; i < 2; i++) { // fresh pages, and used ones
        const uintptr_t block = heap_allocate(world.heap, WIDE_GUEST, true);
        assert_int_equal(usable(block), WIDE_HOST);
        for (size_t byte = 0; byte < WIDE_HOST; byte++) {
            assert_int_equal(((const char *)block)[byte], 0);
        }
        memset((void *)block, 1, WIDE_HOST);
        assert_true(heap_free(&world.shared, world.heap, block));
    }
    heap_world_check(&world, world.heap);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            a_heap_of_few_blocks_in_many_sizes_has_a_slab_a_doubling, begin, end),
        cmocka_unit_test_setup_teardown(where_heaps_are_few_each_class_has_its_own, begin, end),
        cmocka_unit_test_setup_teardown(a_guest_takes_its_hosts_blocks_on_the_fast_path, begin,
                                        end),
        cmocka_unit_test_setup_teardown(a_class_that_uses_its_hosts_slab_up_gets_its_own, begin,
                                        end),
        cmocka_unit_test_setup_teardown(a_guest_takes_what_others_have_freed_in_its_hosts_slab,
                                        begin, end),
        cmocka_unit_test_setup_teardown(a_class_that_a_block_moves_to_leaves_that_to_others, begin,
                                        end),
        cmocka_unit_test_setup_teardown(a_guest_leaves_when_its_hosts_slab_does, begin, end),
        cmocka_unit_test_setup_teardown(whichever_guests_a_host_has_leave_with_it_and_no_others,
                                        begin, end),
        cmocka_unit_test_setup_teardown(where_the_host_rests_its_guests_do, begin, end),
        cmocka_unit_test_setup_teardown(a_guest_without_memory_is_refused_and_nothing_else, begin,
                                        end),
        cmocka_unit_test_setup_teardown(
            a_heap_of_few_large_blocks_in_many_sizes_has_a_slab_a_doubling, begin, end),
        cmocka_unit_test_setup_teardown(
            where_heaps_are_few_each_class_of_large_blocks_has_its_own, begin, end),
        cmocka_unit_test_setup_teardown(
            where_memory_is_limited_each_class_of_large_blocks_has_its_own, begin, end),
        cmocka_unit_test_setup_teardown(
            a_class_of_large_blocks_that_uses_its_hosts_slab_up_gets_its_own, begin, end),
        cmocka_unit_test_setup_teardown(a_large_guest_that_is_to_be_zero_is_so_to_its_end, begin,
                                        end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
