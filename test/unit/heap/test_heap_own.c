// SPDX-License-Identifier: MIT
// Heaps under an allowance: what is charged is what their blocks lie in, at any time, whoever frees
// and resizes them; a limit holds; and the end of a heap gives all of it back.
#include "heap/heap_large.h"
#include "heap/heap_own.h"
#include "heap_world.h"

enum { BLOCKS = 300, STEPS = 20000, LIMIT = 6 << 20 };

static struct heap_world world;
static struct heap_own *own;

static int begin(void **state) {
    (void)state;
    heap_world_begin(&world);
    own = heap_own_create_growing(&world.shared);
    assert_non_null(own);
    return 0;
}

static int end(void **state) {
    (void)state;
    heap_world_end(&world);
    return 0;
}

static size_t held(void) {
    return atomic_load(&own->allowance.held_bytes);
}

static size_t slices_in(const struct arena *arena) {
    size_t slices = 0;
    for (size_t i = 0; i < arena->committed_slices; i++) {
        const struct slab *const slab = &arena->slabs[arena_slot_of(arena, i)];
        const bool is_its =
            (slab->kind == SLAB_BLOCKS && slab_owner_heap(slab) == (uintptr_t)own->heap) ||
            (slab->kind == SLAB_LARGE && heap_large_allowance(slab) == &own->allowance);
        slices += is_its ? slab->slice_count : 0;
    }
    return slices;
}

// What the heap's spans and mappings come to, by looking at all there are.
static size_t counted(void) {
    const struct arena_set *const set = &world.arena.arenas;
    size_t slices = slices_in(&set->primary);
    size_t bytes = 0;
    for (const struct arena *arena = set->secondary; arena != NULL; arena = arena->next) {
        slices += slices_in(arena);
    }
    for (const struct huge *huge = world.huges.live; huge != NULL; huge = huge->next) {
        bytes += huge->allowance == &own->allowance ? huge->mapped_bytes : 0;
    }
    return bytes + (slices << MALLOW_SLICE_SHIFT);
}

static void check(void) {
    assert_int_equal(held(), counted());
    heap_world_check(&world, own->heap);
}

static void free_in(struct heap *heap, uintptr_t address) {
    (void)heap_world_free(&world, heap, address);
}

static size_t any_size(struct unit_chance *chance) {
    const unsigned dice = unit_below(chance, 100);
    return dice < 60   ? 1 + unit_below(chance, 1024)
           : dice < 85 ? 1 + unit_below(chance, 65536)
           : dice < 97 ? 1 + unit_below(chance, 1 << 20)
                       : 1 + unit_below(chance, 3 << 20);
}

struct block {
    uintptr_t address;
    size_t size;
};

static void resize(const struct block *block, size_t *size, struct unit_chance *chance) {
    const struct heap_block found = heap_identify(&world.shared, block->address);
    assert_true(found.usable_bytes >= block->size);
    const size_t wanted = any_size(chance);
    if (heap_resize_in_place(&world.shared, &found, wanted)) {
        *size = wanted;
    }
}

// Random calls, by the heap's user and by a thread with a heap of its own.
static size_t churn(struct unit_chance *chance, uint64_t limit, struct block *blocks) {
    size_t refused = 0;
    for (unsigned step = 0; step < STEPS; step++) {
        struct block *const block = &blocks[unit_below(chance, BLOCKS)];
        const unsigned dice = unit_below(chance, 8);
        if (block->address == 0) {
            block->size = any_size(chance);
            block->address =
                dice == 0 ? heap_allocate_aligned(own->heap, block->size,
                                                  (size_t)16 << unit_below(chance, 18), false)
                          : heap_allocate(own->heap, block->size, dice == 1);
            refused += block->address == 0;
            if (block->address != 0) {
                memset((void *)block->address, (int)step | 1, bits_min(block->size, 64));
            }
        } else if (dice == 0) {
            resize(block, &block->size, chance);
        } else {
            free_in(dice < 4 ? own->heap : world.heap, block->address);
            block->address = 0;
        }
        assert_true(held() <= limit);
        if (step % 500 == 0) {
            check();
        }
    }
    check();
    return refused;
}

CASE(what_is_charged_is_what_the_blocks_lie_in) {
    static struct block blocks[BLOCKS];
    struct unit_chance chance = unit_chance_begin();
    memset(blocks, 0, sizeof blocks);
    (void)churn(&chance, UINT64_MAX, blocks);
    for (size_t i = 0; i < BLOCKS; i++) {
        if (blocks[i].address != 0) {
            free_in(i % 2 == 0 ? own->heap : world.heap, blocks[i].address);
        }
    }
    while (heap_drain(own->heap, MALLOW_DRAIN_BUDGET, true) > 0) {
    }
    heap_release_spare(own->heap);
    check();
    assert_int_equal(held(), 0);
}

CASE(a_limit_holds_and_refuses_cleanly) {
    static struct block blocks[BLOCKS];
    struct unit_chance chance = unit_chance_begin();
    memset(blocks, 0, sizeof blocks);
    os_allowance_set(&own->allowance, LIMIT, LIMIT / 2);
    assert_true(churn(&chance, LIMIT, blocks) > 0);
    assert_true(own->allowance.refused_count > 0);
    heap_own_end(own);
    assert_int_equal(held(), 0);
}

// Also while others' blocks are of whole chunks, for the sake of huge pages.
CASE(what_fits_below_a_limit_by_its_pages_has_them_and_no_more) {
    enum { SIZE = 9 << 20, MORE = SIZE + (300 << 10), TIGHT = SIZE + (512 << 10) };
    os_allowance_set(&own->allowance, TIGHT, UINT64_MAX);
    huge_cache_set_broad(&world.huges.cache, true);
    for (unsigned i = 0; i < 2; i++) {
        const bool zeroed = i != 0;
        const uintptr_t address = heap_allocate(own->heap, SIZE, zeroed);
        assert_true(address != 0);
        assert_true(held() <= TIGHT);
        check();
        struct huge *const huge = huge_of(&world.huges, address);
        const bool several = huge->parts == HUGE_SEVERAL; // by where the room lies: it stays
        const uintptr_t moved = heap_huge_resize(&world.shared, huge, MORE, true);
        assert_true(moved != 0 || several);
        assert_true(held() <= TIGHT);
        check();
        free_in(own->heap, moved != 0 ? moved : address);
        assert_int_equal(held(), 0);
    }
}

CASE(its_end_gives_everything_back_and_the_next_begins_anew) {
    static struct block blocks[BLOCKS];
    struct unit_chance chance = unit_chance_begin();
    uintptr_t outside[20];
    for (size_t i = 0; i < 20; i++) { // of another heap, in between
        outside[i] = heap_allocate(world.heap, 100000 * i + 30, false);
        memset((void *)outside[i], 7, 30);
    }
    for (unsigned round = 0; round < 3; round++) {
        memset(blocks, 0, sizeof blocks);
        (void)churn(&chance, UINT64_MAX, blocks);
        heap_own_end(own);
        assert_int_equal(held(), 0);
        assert_int_equal(counted(), 0);
        heap_world_check(&world, own->heap);
        heap_world_check(&world, world.heap);
        struct heap_own *const next = heap_own_create_growing(&world.shared);
        assert_ptr_equal(next, own); // the same structure
    }
    for (size_t i = 0; i < 20; i++) {
        assert_true(unit_is_all((void *)outside[i], 7, 30));
        free_in(world.heap, outside[i]);
    }
}

CASE(near_the_soft_limit_what_others_have_freed_comes_back_first) {
    enum { COUNT = 64 };
    uintptr_t blocks[COUNT];
    os_allowance_set(&own->allowance, UINT64_MAX, 4 << 20);
    for (unsigned round = 0; round < 20; round++) {
        for (size_t i = 0; i < COUNT; i++) {
            blocks[i] = heap_allocate(own->heap, 50000, false);
            assert_true(blocks[i] != 0);
        }
        assert_true(held() <= 4 << 20); // 3.2 MB, and the odd slab
        for (size_t i = 0; i < COUNT; i++) {
            free_in(world.heap, blocks[i]);
        }
        // Other sizes need other slabs: those of these must come back for them.
        for (size_t i = 0; i < COUNT; i++) {
            blocks[i] = heap_allocate(own->heap, 30000 + 500 * round, false);
            assert_true(blocks[i] != 0);
        }
        assert_true(held() <= 4 << 20);
        for (size_t i = 0; i < COUNT; i++) {
            free_in(world.heap, blocks[i]);
        }
    }
    check();
}

CASE(small_blocks_have_slabs_of_the_heaps_own) {
    for (size_t size = 1; size <= 4096; size += 100) {
        const uintptr_t block = heap_allocate(own->heap, size, true);
        const struct heap_block found = heap_identify(&world.shared, block);
        assert_int_equal(found.kind, HEAP_BLOCK_SLAB);
        assert_int_equal(slab_owner_heap(found.slab), (uintptr_t)own->heap);
    }
    check();
}

CASE(what_others_have_freed_and_it_has_not_heard_of_is_forgotten_with_it) {
    enum { SIZE = 8000, PER_SLAB = 8 };
    struct heap *const other = heap_adopt_or_create(&world.shared);
    uintptr_t blocks[2 * PER_SLAB];
    for (size_t i = 0; i < 2 * PER_SLAB; i++) {
        blocks[i] = heap_allocate(world.heap, SIZE, false);
    }
    struct slab *const slab = heap_identify(&world.shared, blocks[0]).slab;
    struct slab_remote *const remote = arena_remote_of(&world.arena.arenas, slab);
    free_in(other, blocks[0]);
    free_in(other, blocks[2 * PER_SLAB - 1]); // posted on top
    for (size_t i = 1; i < PER_SLAB; i++) {
        free_in(other, blocks[i]);
    }
    assert_int_equal(slab->kind, SLAB_NONE); // given up, and its post is still on that heap's stack
    assert_int_equal(atomic_load(&remote->posted), 1);
    blocks[0] = heap_allocate(own->heap, SIZE, false);
    blocks[1] = heap_allocate(own->heap, SIZE, false);
    assert_ptr_equal(heap_identify(&world.shared, blocks[0]).slab, slab);
    free_in(other, blocks[1]); // not posted again
    assert_false(heap_has_posts(own->heap));
    heap_own_end(own);
    assert_false(slab_remote_any(remote, MALLOW_SLAB_WORDS));
    blocks[0] = heap_allocate(other, SIZE, false);
    blocks[1] = heap_allocate(other, SIZE, false);
    assert_ptr_equal(heap_identify(&world.shared, blocks[1]).slab, slab);
    while (heap_drain(world.heap, MALLOW_DRAIN_BUDGET, true) > 0) {
    }
    free_in(world.heap, blocks[1]);
    while (heap_drain(other, MALLOW_DRAIN_BUDGET, true) > 0) {
    }
    assert_int_equal(heap_identify(&world.shared, blocks[0]).kind, HEAP_BLOCK_SLAB);
    heap_world_check(&world, other);
    assert_int_equal(held(), 0);
}

CASE(other_heaps_with_a_reserve_use_the_structure_again) {
    heap_own_end(own);
    struct heap_own *const reserved = heap_own_create(&world.shared, 1);
    assert_ptr_equal(reserved, own);
    assert_false(heap_own_grows(reserved));
    const uintptr_t block = heap_allocate(reserved->heap, 100000, false);
    assert_non_null(reserve_chunk_of(&world.arena.arenas,
                                     heap_identify(&world.shared, block).slab));
    assert_int_equal(heap_allocate(reserved->heap, 2 << 20, false), 0);
    heap_own_end(reserved);
    assert_int_equal(held(), 0);
    arena_world_check(&world.arena);
}

// It ends chunk by chunk: a thread that were giving up a slab of one just then would give it twice.
CASE(slabs_of_a_reserve_that_others_have_freed_are_left_to_its_owner) {
    struct heap_own *const fixed = heap_own_create(&world.shared, 2 << 20);
    assert_non_null(fixed);
    static uintptr_t blocks[4096];
    size_t count = 0;
    for (; count < 4096; count++) {
        blocks[count] = heap_allocate(fixed->heap, 1024, false);
        if (blocks[count] == 0) {
            break;
        }
    }
    const size_t before = reserve_free_slices(&fixed->reserve);
    for (size_t i = 0; i < count; i++) {
        (void)heap_world_free(&world, (struct heap *)(uintptr_t)&heap_empty, blocks[i]);
    }
    assert_int_equal(before, 0);
    assert_int_equal(reserve_free_slices(&fixed->reserve), before);
    assert_true(heap_allocate(fixed->heap, 1 << 20, false) != 0); // they are collected for it
    assert_true(reserve_free_slices(&fixed->reserve) > 0);
    heap_own_end(fixed);
    heap_world_check(&world, own->heap);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_charged_is_what_the_blocks_lie_in, begin, end),
        cmocka_unit_test_setup_teardown(a_limit_holds_and_refuses_cleanly, begin, end),
        cmocka_unit_test_setup_teardown(what_fits_below_a_limit_by_its_pages_has_them_and_no_more,
                                        begin, end),
        cmocka_unit_test_setup_teardown(its_end_gives_everything_back_and_the_next_begins_anew,
                                        begin, end),
        cmocka_unit_test_setup_teardown(
            near_the_soft_limit_what_others_have_freed_comes_back_first, begin, end),
        cmocka_unit_test_setup_teardown(small_blocks_have_slabs_of_the_heaps_own, begin, end),
        cmocka_unit_test_setup_teardown(
            what_others_have_freed_and_it_has_not_heard_of_is_forgotten_with_it, begin, end),
        cmocka_unit_test_setup_teardown(other_heaps_with_a_reserve_use_the_structure_again, begin,
                                        end),
        cmocka_unit_test_setup_teardown(
            slabs_of_a_reserve_that_others_have_freed_are_left_to_its_owner, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
