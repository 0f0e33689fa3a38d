// SPDX-License-Identifier: MIT
// Heap: allocation of every size beyond the fast path, and giving memory back.
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

static size_t usable(uintptr_t address) {
    const struct heap_block block = heap_identify(&world.shared, address);
    assert_int_not_equal(block.kind, HEAP_BLOCK_NONE);
    return block.usable_bytes;
}

static uintptr_t allocate(size_t size, bool zeroed) {
    const uintptr_t address = heap_allocate(heap, size, zeroed);
    assert_true(address != 0);
    assert_int_equal(address % 16, 0);
    assert_true(usable(address) >= size);
    return address;
}

static void release(uintptr_t address) {
    assert_true(heap_free(&world.shared, heap, address));
}

CASE(every_size_has_a_block_of_its_own_kind) {
    static const struct {
        size_t size;
        enum heap_block_kind kind;
    } rows[] = {
        {0, HEAP_BLOCK_THIN},           {1, HEAP_BLOCK_THIN},
        {512, HEAP_BLOCK_THIN},         {4096, HEAP_BLOCK_THIN},
        {4097, HEAP_BLOCK_SLAB},        {8192, HEAP_BLOCK_SLAB},
        {65536, HEAP_BLOCK_SLAB},       {65537, HEAP_BLOCK_LARGE},
        {(1 << 20), HEAP_BLOCK_LARGE},  {(1 << 20) + 1, HEAP_BLOCK_HUGE},
        {(5 << 20), HEAP_BLOCK_HUGE},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const uintptr_t address = allocate(rows[i].size, false);
        assert_int_equal(heap_identify(&world.shared, address).kind, rows[i].kind);
        memset((void *)address, 0x5a, rows[i].size);
        heap_world_check(&world, heap);
        release(address);
        heap_world_check(&world, heap);
    }
}

CASE(a_lower_threshold_makes_blocks_huge_sooner) {
    world.shared.large_bytes_max = 200000;
    assert_int_equal(heap_identify(&world.shared, allocate(200000, false)).kind, HEAP_BLOCK_LARGE);
    assert_int_equal(heap_identify(&world.shared, allocate(200001, false)).kind, HEAP_BLOCK_HUGE);
}

CASE(the_first_blocks_of_a_class_are_thin_and_the_next_ones_lie_in_a_slab) {
    for (unsigned i = 0; i < MALLOW_THIN_BLOCKS_MAX; i++) {
        assert_int_equal(heap_identify(&world.shared, allocate(100, false)).kind, HEAP_BLOCK_THIN);
    }
    assert_int_equal(heap->slab_count, 0);
    assert_int_equal(heap_identify(&world.shared, allocate(100, false)).kind, HEAP_BLOCK_SLAB);
    assert_int_equal(heap->slab_count, 1);
    assert_int_equal(heap_identify(&world.shared, allocate(200, false)).kind, HEAP_BLOCK_THIN);
    heap_world_check(&world, heap);
}

CASE(of_larger_blocks_so_many_are_thin_as_make_eight_kibibytes) {
    static const struct {
        size_t bytes;
        unsigned thin_count;
    } expected[] = {{512, 16}, {576, 14}, {1024, 8}, {2048, 4}, {3584, 2}, {4096, 2}, {4608, 0}};
    for (unsigned i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        for (unsigned j = 0; j < expected[i].thin_count; j++) {
            const uintptr_t address = allocate(expected[i].bytes, false);
            assert_int_equal(heap_identify(&world.shared, address).kind, HEAP_BLOCK_THIN);
            assert_int_equal(usable(address), expected[i].bytes);
        }
        const uintptr_t address = allocate(expected[i].bytes, false);
        assert_int_equal(heap_identify(&world.shared, address).kind, HEAP_BLOCK_SLAB);
    }
    heap_world_check(&world, heap);
}

CASE(a_stdio_buffer_and_small_blocks_begin_on_one_page) {
    const uintptr_t small = allocate(24, false);
    const uintptr_t buffer = allocate(4096, false);
    assert_int_equal(small / 4096, buffer / 4096);
}

CASE(zeroed_blocks_are_zero_though_their_memory_was_written_before) {
    static const size_t sizes[] = {16, 100, 512, 600, 1024, 5000, 20000, 65536, 65537, 500000,
                                   1500000};
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (unsigned round = 0; round < 40; round++) {
            const uintptr_t address = allocate(sizes[i], true);
            const size_t bytes = usable(address);
            assert_int_equal(*(const unsigned char *)address, 0);
            assert_true(unit_is_all((const void *)address, 0, bytes));
            memset((void *)address, 0x5a, bytes);
            if (round % 3 != 0) {
                release(address);
            }
            if (world.arena.arenas.secondary != NULL) {
                break; // enough memory used
            }
        }
    }
}

CASE(blocks_are_aligned_as_asked_whatever_their_size) {
    static const size_t sizes[] = {0, 1, 24, 100, 1000, 5000, 40000, 65536, 70000, 600000, 1200000};
    for (size_t alignment = 1; alignment <= (4 << 20); alignment *= 2) {
        for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            uintptr_t addresses[3];
            for (unsigned j = 0; j < 3; j++) {
                addresses[j] = heap_allocate_aligned(heap, sizes[i], alignment, j == 1);
                assert_true(addresses[j] != 0);
                assert_int_equal(addresses[j] % alignment, 0);
                assert_true(usable(addresses[j]) >= sizes[i]);
                assert_true(j != 1 || unit_is_all((const void *)addresses[j], 0, sizes[i]));
                memset((void *)addresses[j], 0x5a, sizes[i]);
            }
            for (unsigned j = 0; j < 3; j++) {
                release(addresses[j]);
            }
        }
    }
    heap_world_check(&world, heap);
}

CASE(all_memory_comes_back_when_all_blocks_of_all_sizes_are_freed) {
    enum { BLOCKS = 3000 };
    static uintptr_t blocks[BLOCKS];
    struct unit_chance chance = unit_chance_begin();
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i] = allocate(unit_below(&chance, unit_below(&chance, 8) == 0 ? 9000 : 1100), false);
    }
    heap_world_check(&world, heap);
    for (unsigned i = BLOCKS; i > 0; i--) { // in a random order
        const unsigned j = unit_below(&chance, i);
        release(blocks[j]);
        blocks[j] = blocks[i - 1];
        if (i % 500 == 0) {
            heap_world_check(&world, heap);
        }
    }
    heap_release_spare(heap);
    heap_world_check(&world, heap);
    assert_int_equal(heap->slab_count, 0);
    assert_true(heap_world_slices_used(&world) <= 1); // one thin slice stays
}

CASE(blocks_keep_their_contents_through_any_order_of_calls) {
    enum { BLOCKS = 500 };
    static uintptr_t blocks[BLOCKS];
    static size_t sizes[BLOCKS];
    struct unit_chance chance = unit_chance_begin();
    memset(blocks, 0, sizeof blocks);
    for (unsigned round = 0; round < 30000; round++) {
        const unsigned i = unit_below(&chance, BLOCKS);
        const unsigned char tag = (unsigned char)(i % 250 + 1);
        if (blocks[i] != 0) {
            assert_true(sizes[i] == 0 || *(const unsigned char *)blocks[i] == tag);
            assert_true(unit_is_all((const void *)blocks[i], tag, sizes[i]));
            release(blocks[i]);
            blocks[i] = 0;
            continue;
        }
        const unsigned kind = unit_below(&chance, 100);
        sizes[i] = unit_below(&chance, kind == 0 ? 300000 : kind < 10 ? 30000 : 1500);
        blocks[i] = allocate(sizes[i], false);
        memset((void *)blocks[i], tag, sizes[i]);
        if (round % 1000 == 0) {
            heap_world_check(&world, heap);
        }
    }
}

CASE(an_empty_slab_of_another_class_is_given_up_before_fresh_memory_is_used) {
    uintptr_t spare = 0;
    for (unsigned i = 0; i <= MALLOW_THIN_BLOCKS_MAX; i++) {
        spare = allocate(64, false);
    }
    release(spare); // the current slab of its class is wholly free now
    assert_int_equal(heap->slab_count, 1);
    heap->steal_cursor = size_class_of(64);
    const size_t before = heap_world_slices_used(&world);
    (void)allocate(5000, false);
    assert_int_equal(heap->slab_count, 1);
    assert_int_equal(heap_world_slices_used(&world), before);
    heap_world_check(&world, heap);
}

CASE(a_slab_is_opened_only_as_far_as_its_live_blocks_need) {
    enum { BYTES = 5000, LIVE = 6 };
    uintptr_t blocks[LIVE];
    for (unsigned i = 0; i < LIVE; i++) {
        blocks[i] = allocate(BYTES, false);
    }
    const struct slab *const slab = heap_identify(&world.shared, blocks[0]).slab;
    const size_t page_blocks = world.arena.os.page_bytes / BYTES + 1; // whole pages are opened
    assert_in_range(slab->capacity_count, LIVE, bits_max(2 * LIVE, page_blocks));
    // Freed by another thread, block by block: each comes back before more is opened.
    const unsigned open = slab->capacity_count;
    for (unsigned i = 0; i < 50 * LIVE; i++) {
        struct heap *const none = (struct heap *)(uintptr_t)&heap_empty;
        assert_true(heap_free(&world.shared, none, blocks[i % LIVE]));
        blocks[i % LIVE] = allocate(BYTES, false);
        assert_ptr_equal(heap_identify(&world.shared, blocks[i % LIVE]).slab, slab);
    }
    assert_int_equal(slab->capacity_count, open);
    // What is not open is not lost: the slab fills before another is taken.
    for (unsigned i = open; i < slab->room_count; i++) {
        assert_ptr_equal(heap_identify(&world.shared, allocate(BYTES, false)).slab, slab);
    }
    heap_world_check(&world, heap);
}

static void fill_slabs(uintptr_t *blocks, size_t size, unsigned slab_count) {
    const unsigned per_slab = (unsigned)(MALLOW_SLICE_BYTES / size);
    for (unsigned i = 0; i < slab_count * per_slab; i++) {
        blocks[i] = allocate(size, false);
    }
}

// Posts wait for calls that open slabs, of which blocks this large need few. Where another class
// takes fresh pages meanwhile, they do not.
CASE(calls_that_take_a_queued_slab_collect_posted_ones_once_fresh_pages_were_taken_before) {
    enum { SLABS = 4, MINE = 8192, OTHERS = 4096, FRESH = 64, FREED = 8 };
    static uintptr_t mine[SLABS * MALLOW_SLICE_BYTES / MINE];
    static uintptr_t others[SLABS * MALLOW_SLICE_BYTES / OTHERS];
    struct heap *const none = (struct heap *)(uintptr_t)&heap_empty;
    fill_slabs(others, OTHERS, SLABS);
    fill_slabs(mine, MINE, SLABS);
    for (unsigned i = 0; i < SLABS; i++) { // all but the current one have room
        release(mine[i * MALLOW_SLICE_BYTES / MINE]);
    }
    assert_non_null(heap_queue_first(heap, size_class_of(MINE)));
    for (unsigned i = 0; i < FREED; i++) { // of the first of them, by another thread
        assert_true(heap_free(&world.shared, none, others[i]));
    }
    assert_true(heap_has_posts(heap));
    assert_null(heap_queue_first(heap, size_class_of(OTHERS)));
    const struct slab *const first = heap_queue_first(heap, size_class_of(MINE));
    while (heap_queue_first(heap, size_class_of(MINE)) == first) {
        (void)allocate(MINE, false);
    }
    assert_true(heap_has_posts(heap)); // they wait
    while (heap->drain_count == 0) { // the first slab of a class: it is not opened further
        (void)allocate(FRESH, false);
    }
    assert_true(heap_has_posts(heap));
    while (heap_queue_first(heap, size_class_of(MINE)) != NULL) {
        (void)allocate(MINE, false);
    }
    assert_false(heap_has_posts(heap));
    assert_non_null(heap_queue_first(heap, size_class_of(OTHERS)));
    heap_world_check(&world, heap);
}

CASE(memory_kept_for_speed_is_given_back_before_an_allocation_fails) {
    world.huges.cache.worth = SIZE_MAX;
    const uintptr_t kept = allocate(3 << 20, false);
    release(kept);
    assert_true(world.huges.cache.bytes > 0);
    assert_int_equal(heap_allocate(heap, (size_t)1 << 60, false), 0);
    assert_int_equal(world.huges.cache.bytes, 0);
    assert_int_equal(heap_allocate(heap, PTRDIFF_MAX, false), 0);
    assert_int_equal(heap_allocate(heap, SIZE_MAX, true), 0);
    assert_int_equal(heap_allocate_aligned(heap, 64, (size_t)1 << 62, false), 0);
    assert_int_equal(heap_allocate_aligned(heap, SIZE_MAX, 64, false), 0);
    heap_world_check(&world, heap);
    (void)allocate(100, false);
}

// ---- Queued slabs with few free blocks ----------------------------------------------------------

enum { POOR_SLABS = 160, POOR_BYTES = 64, POOR_CALLS = 64 };

static uintptr_t poor_blocks[POOR_SLABS * 1024];

static struct slab *slab_of(uintptr_t address) {
    return heap_identify(&world.shared, address).slab;
}

static struct slab *poor_current(void) {
    return heap_current_slab(heap, size_class_of(POOR_BYTES));
}

// POOR_SLABS slabs, of which only the last, which is current, has no free block.
static void poor_begin(void) {
    unsigned count = 0;
    while (heap->slab_count < POOR_SLABS || !slab_is_out(poor_current()) ||
           slab_can_open(poor_current())) {
        poor_blocks[count++] = allocate(POOR_BYTES, false);
    }
    const struct slab *last = poor_current();
    for (unsigned i = count; i-- > MALLOW_THIN_BLOCKS_MAX;) {
        if (slab_of(poor_blocks[i]) != last) {
            last = slab_of(poor_blocks[i]);
            release(poor_blocks[i]);
        }
    }
    assert_int_equal(heap->slab_count, POOR_SLABS);
}

CASE(slabs_with_few_free_blocks_gather_more_when_many_calls_have_found_such) {
    poor_begin();
    for (unsigned i = 1; i < POOR_CALLS; i++) {
        (void)allocate(POOR_BYTES, false);
        assert_int_equal(heap->slab_count, POOR_SLABS);
    }
    const struct slab *const waits = heap_queue_first(heap, size_class_of(POOR_BYTES));
    const uintptr_t block = allocate(POOR_BYTES, false);
    assert_int_equal(heap->slab_count, POOR_SLABS + 1);
    assert_int_equal(heap->early_count, 1);
    assert_ptr_equal(slab_of(block), poor_current());
    assert_ptr_equal(heap_queue_first(heap, size_class_of(POOR_BYTES)), waits);
    heap_world_check(&world, heap);
    for (unsigned i = 0; i < 2 * POOR_SLABS + 2048; i++) {
        (void)allocate(POOR_BYTES, false);
    }
    assert_null(heap_queue_first(heap, size_class_of(POOR_BYTES))); // none is forgotten
    heap_world_check(&world, heap);
}

CASE(slabs_taken_so_are_a_bounded_part_of_a_heap) {
    poor_begin();
    heap->early_count = heap->slab_count / 8;
    for (unsigned i = 1; i < POOR_SLABS; i++) {
        (void)allocate(POOR_BYTES, false);
    }
    assert_int_equal(heap->slab_count, POOR_SLABS);
    heap_world_check(&world, heap);
}

CASE(a_heap_under_a_limit_takes_none_so) {
    poor_begin();
    os_charge_set(&world.arena.os, UINT64_MAX, world.arena.os.charge.held_bytes);
    for (unsigned i = 1; i < POOR_SLABS; i++) {
        (void)allocate(POOR_BYTES, false);
    }
    assert_int_equal(heap->slab_count, POOR_SLABS);
}

#define HEAP_CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    const struct CMUnitTest cases[] = {
        HEAP_CASE(every_size_has_a_block_of_its_own_kind),
        HEAP_CASE(a_lower_threshold_makes_blocks_huge_sooner),
        HEAP_CASE(the_first_blocks_of_a_class_are_thin_and_the_next_ones_lie_in_a_slab),
        HEAP_CASE(of_larger_blocks_so_many_are_thin_as_make_eight_kibibytes),
        HEAP_CASE(a_stdio_buffer_and_small_blocks_begin_on_one_page),
        HEAP_CASE(zeroed_blocks_are_zero_though_their_memory_was_written_before),
        HEAP_CASE(blocks_are_aligned_as_asked_whatever_their_size),
        HEAP_CASE(all_memory_comes_back_when_all_blocks_of_all_sizes_are_freed),
        HEAP_CASE(blocks_keep_their_contents_through_any_order_of_calls),
        HEAP_CASE(an_empty_slab_of_another_class_is_given_up_before_fresh_memory_is_used),
        HEAP_CASE(a_slab_is_opened_only_as_far_as_its_live_blocks_need),
        HEAP_CASE(calls_that_take_a_queued_slab_collect_posted_ones_once_fresh_pages_were_taken_before),
        HEAP_CASE(slabs_with_few_free_blocks_gather_more_when_many_calls_have_found_such),
        HEAP_CASE(slabs_taken_so_are_a_bounded_part_of_a_heap),
        HEAP_CASE(a_heap_under_a_limit_takes_none_so),
        HEAP_CASE(memory_kept_for_speed_is_given_back_before_an_allocation_fails),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
