// SPDX-License-Identifier: MIT
// Heap queues: rings, places in the table, and where a slab goes when its counts change.
#include "heap_world.h"

static struct heap_world world;
static struct heap *heap;
static struct slab *slabs[4];
enum { MEDIUM_BYTES = 4096 };

// Four wholly free slabs of a class, on no queue and not current.
static void make_slabs(unsigned class_index) {
    assert_true(heap_prepare_class(heap, class_index));
    for (unsigned i = 0; i < 4; i++) {
        const struct arena_span span = arena_take(&world.arena.arenas, 1, 1);
        assert_non_null(span.slab);
        slabs[i] = span.slab;
        slab_init(slabs[i], span.address, class_index, size_class_slices(class_index),
                  (uintptr_t)heap | SLAB_OWNER_QUEUED);
        while (slab_open(slabs[i], 4096)) {
        }
        heap->slab_count++;
    }
}

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

static void take_one(struct slab *slab) {
    uintptr_t address;
    assert_true(slab_take(slab, &address));
}

static const unsigned classes[] = {0, 9, MALLOW_DIRECT_CLASS_COUNT - 1, MALLOW_DIRECT_CLASS_COUNT,
                                   40}; // in the direct table and beyond it

CASE(a_slab_goes_to_the_end_of_its_ring_and_leaves_it_from_anywhere) {
    for (unsigned i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        for (unsigned leaving = 0; leaving < 4; leaving++) {
            make_slabs(classes[i]);
            for (unsigned j = 0; j < 4; j++) {
                heap_queue_push(heap, slabs[j]);
                assert_ptr_equal(heap_queue_first(heap, classes[i]), slabs[0]);
            }
            heap_world_check(&world, heap);
            heap_queue_remove(heap, slabs[leaving]);
            assert_null(slabs[leaving]->next);
            assert_null(slabs[leaving]->previous);
            heap_release_slab(heap, slabs[leaving]);
            for (unsigned j = 0; j < 4; j++) { // the others come in their order
                if (j != leaving) {
                    assert_ptr_equal(heap_queue_first(heap, classes[i]), slabs[j]);
                    heap_queue_remove(heap, slabs[j]);
                    heap_release_slab(heap, slabs[j]);
                }
            }
            assert_null(heap_queue_first(heap, classes[i]));
            assert_int_equal(heap->slab_count, 0);
        }
    }
    heap_world_check(&world, heap);
    assert_int_equal(heap_world_slices_used(&world), 0);
}

CASE(the_current_slab_is_in_the_place_of_each_size_of_its_class_and_of_no_other) {
    for (unsigned class_index = 0; class_index < MALLOW_DIRECT_CLASS_COUNT; class_index++) {
        make_slabs(class_index);
        assert_null(heap_current_slab(heap, class_index));
        heap_set_current(heap, class_index, slabs[0]);
        assert_ptr_equal(heap_current_slab(heap, class_index), slabs[0]);
        assert_int_equal(slab_owner(slabs[0]), (uintptr_t)heap); // no flag: it is the current one
        for (size_t size = 0; size <= MALLOW_SMALL_BYTES_MAX; size++) {
            const struct slab *const found =
                heap->direct[(size + MALLOW_GRANULE_BYTES - 1) >> MALLOW_GRANULE_SHIFT];
            assert_int_equal(found == slabs[0], size_class_of(size) == class_index);
        }
        heap_retire_current(heap, class_index); // it was empty
        assert_null(heap_current_slab(heap, class_index));
        assert_int_equal(slabs[0]->kind, SLAB_NONE);
        for (unsigned i = 1; i < 4; i++) {
            heap_release_slab(heap, slabs[i]);
        }
        heap_world_check(&world, heap);
    }
}

CASE(a_retired_slab_is_queued_full_or_given_back_by_what_it_holds) {
    const unsigned class_index = size_class_of(MEDIUM_BYTES);
    make_slabs(class_index);
    heap_set_current(heap, class_index, slabs[0]);
    take_one(slabs[0]);
    heap_retire_current(heap, class_index);
    assert_ptr_equal(heap_queue_first(heap, class_index), slabs[0]);
    assert_int_equal(slab_owner(slabs[0]), (uintptr_t)heap | SLAB_OWNER_QUEUED);
    assert_int_equal(slabs[0]->used_count, 1);
    heap_set_current(heap, class_index, slabs[1]);
    uintptr_t address = 0;
    while (slab_take(slabs[1], &address)) {
    }
    heap_retire_current(heap, class_index);
    assert_int_equal(slab_owner(slabs[1]), (uintptr_t)heap | SLAB_OWNER_FULL);
    assert_int_equal(slabs[1]->used_count, slabs[1]->capacity_count);
    assert_ptr_equal(slabs[0]->next, slabs[0]); // the full one is on no queue
    heap_set_current(heap, class_index, slabs[2]);
    assert_true(slab_take(slabs[2], &address));
    slab_set_hot(slabs[2], true); // freed just now: nothing is live
    heap_retire_current(heap, class_index);
    assert_int_equal(slabs[2]->kind, SLAB_NONE);
    assert_int_equal(heap->slab_count, 3);
    heap_queue_push(heap, slabs[3]);
    heap_world_check(&world, heap);
}

CASE(a_refilled_slab_is_queued_when_it_was_full_and_released_when_it_is_empty) {
    const unsigned class_index = size_class_of(MEDIUM_BYTES);
    make_slabs(class_index);
    struct slab *const slab = slabs[0];
    uintptr_t address = 0;
    while (slab_take(slab, &address)) {
    }
    slab->last = 0;
    slab_set_owner(slab, (uintptr_t)heap | SLAB_OWNER_FULL);
    assert_int_equal(heap_hold_slab(heap, slab), HEAP_HOLD_WAS_FULL);
    slab->bits[0] = 1;
    slab->used_count = slab->capacity_count - 1U;
    heap_slab_refilled(heap, slab, true);
    assert_ptr_equal(heap_queue_first(heap, class_index), slab);
    assert_int_equal(slab_owner(slab), (uintptr_t)heap | SLAB_OWNER_QUEUED);
    assert_int_equal(heap_hold_slab(heap, slab), HEAP_HOLD_LISTED);
    slab->bits[0] = 3;
    slab->used_count--;
    heap_slab_refilled(heap, slab, false); // queued already: stays
    assert_ptr_equal(slab->next, slab);
    slab->bits[0] = (UINT64_C(1) << slab->capacity_count) - 1;
    slab->used_count = 0;
    heap_slab_refilled(heap, slab, false);
    assert_int_equal(slab->kind, SLAB_NONE);
    assert_null(heap_queue_first(heap, class_index));
    heap_set_current(heap, class_index, slabs[1]);
    heap_slab_refilled(heap, slabs[1], false); // empty, but current: it stays
    assert_ptr_equal(heap_current_slab(heap, class_index), slabs[1]);
    assert_int_equal(heap->slab_count, 3);
}

CASE(medium_classes_have_no_places_until_one_is_needed) {
    assert_null(heap->medium);
    assert_true(heap_prepare_class(heap, MALLOW_DIRECT_CLASS_COUNT - 1));
    assert_null(heap->medium);
    assert_null(heap_current_slab(heap, MALLOW_CLASS_COUNT - 1));
    assert_null(heap_queue_first(heap, MALLOW_CLASS_COUNT - 1));
    assert_true(heap_prepare_class(heap, MALLOW_DIRECT_CLASS_COUNT));
    const struct heap_medium *const medium = heap->medium;
    assert_non_null(medium);
    assert_true(heap_prepare_class(heap, MALLOW_CLASS_COUNT - 1));
    assert_ptr_equal(heap->medium, medium);
}

#define QUEUE_CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    const struct CMUnitTest cases[] = {
        QUEUE_CASE(a_slab_goes_to_the_end_of_its_ring_and_leaves_it_from_anywhere),
        QUEUE_CASE(the_current_slab_is_in_the_place_of_each_size_of_its_class_and_of_no_other),
        QUEUE_CASE(a_retired_slab_is_queued_full_or_given_back_by_what_it_holds),
        QUEUE_CASE(a_refilled_slab_is_queued_when_it_was_full_and_released_when_it_is_empty),
        QUEUE_CASE(medium_classes_have_no_places_until_one_is_needed),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
