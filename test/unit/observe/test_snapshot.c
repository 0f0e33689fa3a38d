// SPDX-License-Identifier: MIT
// Snapshot: its figures against what the case itself has allocated.
#include "observe/snapshot.h"

#include "observe_world.h"

static struct heap_world world;
static struct heap *heap;
static struct snapshot now;

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

static void look(void) {
    const struct observe_sources sources = observe_world_sources(&world);
    snapshot_take(&sources, &now);
    uint64_t count = 0;
    uint64_t bytes = 0;
    uint64_t slabs = 0;
    for (unsigned i = 0; i < MALLOW_CLASS_COUNT; i++) {
        assert_true(now.classes[i].live_count <= now.classes[i].capacity_count);
        count += now.classes[i].live_count;
        bytes += now.classes[i].live_count * size_class_bytes(i);
        slabs += now.classes[i].slab_count;
    }
    assert_int_equal(now.small_live_count, count);
    assert_int_equal(now.small_live_bytes, bytes);
    assert_int_equal(now.slab_count, slabs);
    assert_int_equal(now.live_bytes,
                     now.small_live_bytes + now.large_live_bytes + now.huge_live_bytes);
    assert_int_equal(now.live_count,
                     now.small_live_count + now.large_live_count + now.huge_live_count);
    assert_true(now.reserved_bytes >= now.committed_bytes);
    assert_true(now.committed_bytes >= now.span_bytes + now.free_dirty_bytes);
    assert_true(now.meta_used_bytes <= now.meta_bytes);
}

static uintptr_t allocate(size_t size) {
    const uintptr_t address = heap_allocate(heap, size, false);
    assert_true(address != 0);
    return address;
}

static void release(uintptr_t address) {
    assert_true(heap_free(&world.shared, heap, address));
}

CASE(nothing_is_live_at_first) {
    look();
    assert_int_equal(now.live_count, 0);
    assert_int_equal(now.live_bytes, 0);
    assert_int_equal(now.span_bytes, 0);
    assert_int_equal(now.committed_bytes, 0);
    assert_int_equal(now.heap_count, 1);
    assert_true(now.reserved_bytes >= WORLD_RESERVE_BYTES);
    assert_true(now.os_map_count > 0);
}

CASE(every_kind_of_block_is_counted_once_and_no_longer_when_it_is_freed) {
    const uintptr_t thin = allocate(100);
    look();
    assert_int_equal(now.live_count, 1);
    assert_int_equal(now.live_bytes, 112);
    const uintptr_t small = allocate(5000);
    look();
    assert_int_equal(now.small_live_count, 2);
    assert_int_equal(now.small_live_bytes, 112 + 5120);
    assert_int_equal(now.slab_count, 1);
    const uintptr_t large = allocate(200000);
    look();
    assert_int_equal(now.large_live_count, 1);
    assert_int_equal(now.large_live_bytes, heap_identify(&world.shared, large).usable_bytes);
    const uintptr_t huge = allocate(3 << 20);
    look();
    assert_int_equal(now.huge_live_count, 1);
    assert_int_equal(now.huge_live_bytes, 3 << 20);
    assert_int_equal(now.live_count, 4);
    release(huge);
    release(large);
    release(small);
    release(thin);
    look();
    assert_int_equal(now.live_count, 0);
    assert_int_equal(now.live_bytes, 0);
    assert_int_equal(now.free_dirty_bytes, world.arena.arenas.dirty_slices * MALLOW_SLICE_BYTES);
    assert_true(now.free_dirty_bytes >= 200000);
}

CASE(blocks_of_one_class_are_counted_exactly_whether_thin_or_in_slabs) {
    enum { BLOCKS = 3000 };
    static uintptr_t blocks[BLOCKS];
    const unsigned class_index = size_class_of(64);
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i] = allocate(64);
        if (i % 100 == 0) {
            look();
            assert_int_equal(now.classes[class_index].live_count, i + 1);
        }
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        release(blocks[i]);
        if (i % 100 == 0) {
            look();
            assert_int_equal(now.live_count, BLOCKS - 1 - i);
        }
    }
}

CASE(a_block_freed_by_another_thread_is_live_no_more_before_its_owner_collects_it) {
    uintptr_t blocks[40];
    for (unsigned i = 0; i < 40; i++) {
        blocks[i] = allocate(600);
    }
    for (unsigned i = 0; i < 40; i += 2) {
        assert_true(heap_free(&world.shared, (struct heap *)(uintptr_t)&heap_empty, blocks[i]));
    }
    look();
    assert_int_equal(now.live_count, 20);
    (void)heap_drain(heap, 10, true);
    look();
    assert_int_equal(now.live_count, 20);
    assert_int_equal(now.live_bytes, 20 * 640);
}

CASE(secondary_arenas_are_looked_through_as_well) {
    enum { BLOCKS = 10 };
    uintptr_t blocks[BLOCKS];
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i] = allocate(1 << 20);
    }
    assert_non_null(world.arena.arenas.secondary);
    look();
    assert_int_equal(now.large_live_count, BLOCKS);
    assert_int_equal(now.large_live_bytes, BLOCKS << 20);
    for (unsigned i = 0; i < BLOCKS; i++) {
        release(blocks[i]);
    }
    const size_t purged = arena_purge_all(&world.arena.arenas);
    look();
    assert_int_equal(now.large_live_count, 0);
    assert_int_equal(now.purged_bytes, purged);
    assert_int_equal(now.free_dirty_bytes, 0);
}

CASE(heaps_are_counted_and_those_taken_over) {
    struct heap *const other = heap_adopt_or_create(&world.shared);
    look();
    assert_int_equal(now.heap_count, 2);
    assert_int_equal(now.heap_adopted_count, 0);
    heap_abandon(other);
    assert_ptr_equal(heap_adopt_or_create(&world.shared), other);
    look();
    assert_int_equal(now.heap_count, 2);
    assert_int_equal(now.heap_adopted_count, 1);
}

#define SNAPSHOT_CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    const struct CMUnitTest cases[] = {
        SNAPSHOT_CASE(nothing_is_live_at_first),
        SNAPSHOT_CASE(every_kind_of_block_is_counted_once_and_no_longer_when_it_is_freed),
        SNAPSHOT_CASE(blocks_of_one_class_are_counted_exactly_whether_thin_or_in_slabs),
        SNAPSHOT_CASE(
            a_block_freed_by_another_thread_is_live_no_more_before_its_owner_collects_it),
        SNAPSHOT_CASE(secondary_arenas_are_looked_through_as_well),
        SNAPSHOT_CASE(heaps_are_counted_and_those_taken_over),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
