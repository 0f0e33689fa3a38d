// SPDX-License-Identifier: MIT
// Rest: a class that rests is as it was to everybody but malloc's fast path, whatever happens to its
// slab meanwhile.
#include "heap/heap_rest.h"

#include "heap/heap_fast.h"
#include "heap_world.h"

static struct heap_world world;

static int begin(void **state) {
    (void)state;
    heap_world_begin(&world);
    return 0;
}

static int end(void **state) {
    (void)state;
    heap_world_end(&world);
    return 0;
}

enum { SIZE = 320, COUNT = 60 };

static uintptr_t blocks[COUNT];

static void fill(void) {
    for (unsigned i = 0; i < COUNT; i++) {
        blocks[i] = heap_allocate(world.heap, SIZE, false);
        assert_true(blocks[i] != 0);
    }
}

CASE(malloc_is_sent_to_the_slow_path_which_wakes_the_class) {
    uintptr_t block = 0;
    const unsigned class_index = size_class_of(SIZE);
    assert_false(heap_rest_class(world.heap, class_index)); // there is no slab
    fill();
    struct slab *const slab = heap_current_slab(world.heap, class_index);
    assert_true(heap_fast_allocate(world.heap, SIZE, &block));
    assert_true(heap_rest_class(world.heap, class_index));
    assert_true(heap_is_resting(world.heap, class_index));
    assert_ptr_equal(heap_current_slab(world.heap, class_index), slab);
    assert_true(slab_is_current(slab));
    for (size_t size = 0; size <= MALLOW_SMALL_BYTES_MAX; size++) {
        assert_true(size_class_of(size) != class_index ||
                    !heap_fast_allocate(world.heap, size, &block));
    }
    heap_world_check(&world, world.heap);
    assert_true(heap_allocate(world.heap, SIZE, false) != 0);
    assert_false(heap_is_resting(world.heap, class_index));
    assert_true(heap_fast_allocate(world.heap, SIZE, &block));
    heap_world_check(&world, world.heap);
}

CASE(classes_without_a_fast_path_do_not_rest) {
    assert_true(heap_allocate(world.heap, 20000, false) != 0);
    assert_false(heap_rest_class(world.heap, size_class_of(20000)));
    assert_false(heap_is_resting(world.heap, size_class_of(20000)));
}

CASE(frees_go_on_and_a_second_one_is_found) {
    struct slab *slab = NULL;
    fill();
    assert_true(heap_rest_class(world.heap, size_class_of(SIZE)));
    for (unsigned i = 20; i < COUNT; i++) { // the first came from a thin slice
        assert_int_equal(heap_fast_free(world.heap, blocks[i], &slab), HEAP_FAST_DONE);
        assert_int_equal(heap_fast_free(world.heap, blocks[i], &slab), HEAP_FAST_SLOW);
    }
    assert_true(heap_is_resting(world.heap, size_class_of(SIZE)));
    heap_world_check(&world, world.heap);
}

CASE(what_rests_can_be_released_taken_for_another_class_or_left_behind) {
    fill();
    for (unsigned i = 0; i < COUNT; i++) {
        assert_true(heap_free(&world.shared, world.heap, blocks[i]));
    }
    assert_true(heap_rest_class(world.heap, size_class_of(SIZE)));
    heap_release_spare(world.heap);
    assert_null(heap_current_slab(world.heap, size_class_of(SIZE)));
    assert_false(heap_is_resting(world.heap, size_class_of(SIZE)));
    heap_world_check(&world, world.heap);
    fill();
    assert_true(heap_rest_class(world.heap, size_class_of(SIZE)));
    heap_abandon(world.heap);
    assert_false(heap_is_resting(world.heap, size_class_of(SIZE)));
    heap_world_check(&world, world.heap);
    struct heap *const again = heap_adopt_or_create(&world.shared);
    assert_ptr_equal(again, world.heap);
    fill();
    heap_world_check(&world, world.heap);
}

CASE(a_lent_block_finds_its_way_back) {
    enum { BLOCK = 512, MANY = 130 * 128 }; // heaps of so many slabs lend
    static uintptr_t many[MANY];
    const unsigned class_index = size_class_of(BLOCK);
    unsigned count = 0;
    for (; count < MANY && world.heap->slab_count < MALLOW_LEND_SLABS; count++) {
        many[count] = heap_allocate(world.heap, BLOCK, false);
        if (many[count] == 0) {
            skip(); // the arena of the test is too small
        }
    }
    const uintptr_t lent = many[100];
    struct slab *const full = heap_fast_slab(world.heap, lent);
    struct slab *const current = heap_current_slab(world.heap, class_index);
    slab_cool(current);
    assert_true(heap_world_lend(&world, world.heap, lent));
    assert_true(heap_rest_class(world.heap, class_index));
    assert_true(heap_is_lent(full, slab_index_of(full, lent))); // so a second free is found
    assert_true(heap_free(&world.shared, world.heap, many[101])); // it ceases to be full
    assert_false(slab_has_lent(current));
    assert_true(slab_is_free(full, slab_index_of(full, lent)));
    heap_world_check(&world, world.heap);
}

// ---- Against a model ----------------------------------------------------------------------------

enum { PLACES = 400, STEPS = 30000 };

struct place {
    uintptr_t address;
    size_t size;
    unsigned char tag;
};

static struct place places[PLACES];

static void step_of(struct heap *heap, struct unit_chance *chance, bool filling) {
    struct place *const place = &places[unit_below(chance, PLACES)];
    struct slab *slab = NULL;
    if (place->address != 0) {
        assert_true(unit_is_all((void *)place->address, place->tag, place->size));
        const enum heap_fast_result result = heap_fast_free(heap, place->address, &slab);
        if (result == HEAP_FAST_EMPTIED) {
            heap_slab_refilled(heap, slab, false);
        } else if (result == HEAP_FAST_SLOW) {
            assert_true(heap_free(&world.shared, heap, place->address));
        }
        place->address = 0;
    } else if (filling || unit_below(chance, 8) == 0) {
        place->size = 16 + unit_below(chance, 1000);
        place->tag = (unsigned char)(1 + unit_below(chance, 250));
        if (!heap_fast_allocate(heap, place->size, &place->address)) {
            place->address = heap_allocate(heap, place->size, false);
        }
        assert_true(place->address != 0);
        memset((void *)place->address, place->tag, place->size);
    }
}

static void rest_now_and_then(void) {
    struct unit_chance chance = unit_chance_begin();
    unsigned rested = 0;
    memset(places, 0, sizeof places);
    for (unsigned step = 0; step < STEPS; step++) {
        step_of(world.heap, &chance, step / 2000 % 2 == 0);
        if (unit_below(&chance, 10) == 0) {
            rested += heap_rest_class(world.heap, unit_below(&chance, MALLOW_DIRECT_CLASS_COUNT));
        }
        if (unit_below(&chance, 500) == 0) {
            heap_release_spare(world.heap);
        }
        if (unit_below(&chance, 2000) == 0) {
            heap_abandon(world.heap);
            assert_ptr_equal(heap_adopt_or_create(&world.shared), world.heap);
        }
        if (step % 100 == 0) {
            heap_world_check(&world, world.heap);
        }
    }
    assert_true(rested > 100);
}

CASE(resting_now_and_then_changes_nothing) {
    rest_now_and_then();
}

CASE(nor_does_it_where_classes_share_slabs) {
    heap_world_crowd(&world);
    rest_now_and_then();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(malloc_is_sent_to_the_slow_path_which_wakes_the_class,
                                        begin, end),
        cmocka_unit_test_setup_teardown(classes_without_a_fast_path_do_not_rest, begin, end),
        cmocka_unit_test_setup_teardown(frees_go_on_and_a_second_one_is_found, begin, end),
        cmocka_unit_test_setup_teardown(
            what_rests_can_be_released_taken_for_another_class_or_left_behind, begin, end),
        cmocka_unit_test_setup_teardown(a_lent_block_finds_its_way_back, begin, end),
        cmocka_unit_test_setup_teardown(resting_now_and_then_changes_nothing, begin, end),
        cmocka_unit_test_setup_teardown(nor_does_it_where_classes_share_slabs, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
