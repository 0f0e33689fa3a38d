// SPDX-License-Identifier: MIT
// Heap, blocks that move: what a call that allocates, copies and frees leaves to later ones.
#include "heap/heap_fast.h"
#include "heap_world.h"

static struct heap_world world;
static struct heap *heap;

enum { BYTES = 8192, CLASS_BLOCKS = 8, MANY = 3 * CLASS_BLOCKS };
static uintptr_t blocks[MANY];

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

// Three slabs or so of 8 KiB blocks, all but the last of them full.
static void allocate_many(void) {
    assert_true(size_class_capacity(size_class_of(BYTES)) >= CLASS_BLOCKS);
    for (unsigned i = 0; i < MANY; i++) {
        blocks[i] = heap_allocate(heap, BYTES, false);
        assert_true(blocks[i] != 0);
    }
}

static void free_again(void *argument) {
    (void)heap_free(&world.shared, heap, *(const uintptr_t *)argument);
}

// For a block that moves nothing is collected, not even of the class, by a call that opens a slab.
CASE(the_allocation_for_a_block_that_moves_leaves_others_frees_alone) {
    allocate_many();
    heap_world_free_elsewhere(&world, blocks[0]);
    heap_world_free_elsewhere(&world, blocks[1]);
    heap_begin_move(HEAP_EFFORT_MOVE);
    assert_true(heap_allocate(heap, 20000, false) != 0);
    assert_true(heap_thread.effort >= HEAP_EFFORT_SPAN + HEAP_EFFORT_MOVE);
    heap_end_move(HEAP_EFFORT_MOVE);
    assert_int_equal(heap_world_posts_waiting(heap), 1);
    // It made a slab, or, where pages are large and the arena is low from the start, took slices.
    assert_in_range(heap_thread.effort, HEAP_EFFORT_SPAN, HEAP_EFFORT_SPAN + HEAP_EFFORT_LOOK);
    heap_begin_effort();
    assert_int_equal(heap_thread.effort, 0);
}

// Blocks from the current slab until another one is.
static void use_up_current(void) {
    const unsigned class_index = size_class_of(BYTES);
    const struct slab *const slab = heap_current_slab(heap, class_index);
    while (heap_current_slab(heap, class_index) == slab) {
        assert_true(heap_allocate(heap, BYTES, false) != 0);
    }
}

// Nor by one that takes a queued slab, although other such calls collect for a while.
CASE(a_move_that_takes_a_queued_slab_leaves_others_frees_alone) {
    allocate_many();
    heap_world_free_elsewhere(&world, blocks[0]);
    assert_true(heap_free(&world.shared, heap, blocks[CLASS_BLOCKS])); // queues its slab
    heap->drain_count = 2;
    heap_begin_move(HEAP_EFFORT_MOVE);
    use_up_current();
    heap_end_move(HEAP_EFFORT_MOVE);
    assert_int_equal(heap->drain_count, 2);
    assert_int_equal(heap_world_posts_waiting(heap), 1);
    assert_true(heap_free(&world.shared, heap, blocks[2 * CLASS_BLOCKS]));
    use_up_current();
    assert_int_equal(heap->drain_count, 1);
    assert_int_equal(heap_world_posts_waiting(heap), 0);
    heap_world_check(&world, heap);
}

// After growth that others' frees waited for, a call that has a block of a medium class at hand
// collects one as well; where none is left but what has been put off, those calls go by themselves.
CASE(a_call_with_a_block_at_hand_collects_for_a_while_after_growth) {
    allocate_many();
    heap_world_free_elsewhere(&world, blocks[0]);
    heap->drain_count = 2;
    heap->skipped_count = 1;
    assert_true(heap_free(&world.shared, heap, blocks[MANY - 1]));
    assert_int_equal(heap_take_medium(heap, BYTES), 0); // to the slow path, which collects
    assert_int_equal(heap_allocate(heap, BYTES, false), blocks[MANY - 1]);
    assert_int_equal(heap_world_posts_waiting(heap), 0);
    assert_int_equal(heap->skipped_count, 0);
    assert_int_equal(heap->drain_count, 1);
    assert_true(heap_free(&world.shared, heap, blocks[MANY - 1]));
    assert_int_equal(heap_allocate(heap, BYTES, false), blocks[MANY - 1]);
    assert_int_equal(heap->drain_count, 0);
    assert_true(heap_free(&world.shared, heap, blocks[MANY - 1]));
    assert_int_equal(heap_take_medium(heap, BYTES), blocks[MANY - 1]);
    heap_world_check(&world, heap);
}

CASE(what_has_been_put_off_keeps_no_call_from_a_block_at_hand) {
    enum { SMALLER = 1280 };
    const unsigned class_index = size_class_of(SMALLER);
    allocate_many();
    while (heap_current_slab(heap, class_index) == NULL) { // its first blocks are in no slab
        assert_true(heap_allocate(heap, SMALLER, false) != 0);
    }
    const struct slab *const slab = heap_world_fill_slab(heap, SMALLER);
    assert_true(slab->capacity_count / MALLOW_WAIT_SHARE > 1);
    heap_world_free_elsewhere(&world, slab->start_address);
    heap->drain_count = 9;
    assert_true(heap_free(&world.shared, heap, blocks[MANY - 1]));
    assert_int_equal(heap_allocate(heap, BYTES, false), blocks[MANY - 1]);
    assert_non_null(heap->later);
    assert_int_equal(heap->drain_count, 8);
    assert_true(heap_free(&world.shared, heap, blocks[MANY - 1]));
    assert_int_equal(heap_allocate(heap, BYTES, false), blocks[MANY - 1]);
    assert_non_null(heap->later);
    assert_int_equal(heap->drain_count, 0);
    heap_world_check(&world, heap);
}

// The next cheap call collects one instead. If there is a spare slab, that makes way first.
CASE(what_moves_leave_alone_is_collected_by_a_cheap_call) {
    allocate_many();
    heap_world_free_elsewhere(&world, blocks[0]);
    assert_false(heap_is_late(heap));
    heap_begin_move(HEAP_EFFORT_MOVE);
    use_up_current();
    heap_end_move(HEAP_EFFORT_MOVE);
    assert_int_equal(heap_world_posts_waiting(heap), 1);
    assert_true(heap_is_late(heap));
    assert_null(heap->spare);
    for (unsigned i = CLASS_BLOCKS; heap->spare == NULL; i++) {
        struct slab *const slab = heap_world_slab_of(&world, blocks[i]);
        assert_true(heap_free(&world.shared, heap, blocks[i]));
        if (slab->used_count == 1) {
            const struct heap_block last = heap_identify(&world.shared, blocks[i + 1]);
            assert_int_equal(heap_fast_free_found(heap, &last, blocks[i + 1]), HEAP_FAST_EMPTIED);
            heap_queue_remove(heap, slab);
            heap_keep_spare(heap, slab);
        }
    }
    heap_collect_late(heap, MALLOW_CALL_WORK);
    assert_null(heap->spare);
    assert_int_equal(heap_world_posts_waiting(heap), 1);
    assert_true(heap_is_late(heap));
    heap_collect_late(heap, MALLOW_CALL_WORK);
    assert_int_equal(heap_world_posts_waiting(heap), 0);
    assert_false(heap_is_late(heap));
    heap_world_check(&world, heap);
}

// What a move that has been dear enough leaves to later calls: a slab with one block left.
CASE(the_last_block_of_a_slab_can_be_handed_on_and_the_slab_is_given_up_later) {
    allocate_many();
    struct slab *const slab = heap_world_slab_of(&world, blocks[0]);
    unsigned of_slab = 0;
    while (of_slab < MANY && heap_world_slab_of(&world, blocks[of_slab]) == slab) {
        of_slab++;
    }
    assert_in_range(of_slab, 2, MANY - 1);
    for (unsigned i = 2; i < of_slab; i++) {
        assert_true(heap_free(&world.shared, heap, blocks[i]));
    }
    struct heap_block found = heap_identify(&world.shared, blocks[1]);
    assert_false(heap_hand_on(&world.shared, heap, &found)); // another one is live
    assert_true(heap_free(&world.shared, heap, blocks[1]));
    found = heap_identify(&world.shared, blocks[0]);
    assert_false(heap_hand_on(&world.shared, &heap_empty, &found)); // not its slab
    assert_false(heap_hand_on(&world.shared, heap, &found));        // it would be the spare one
    heap->spare = heap_world_slab_of(&world, blocks[MANY - 1]);     // stands for one that is there
    assert_true(heap_hand_on(&world.shared, heap, &found));
    heap->spare = NULL;
    assert_int_equal(heap_world_posts_waiting(heap), 1);
    assert_int_equal(heap_identify(&world.shared, blocks[0]).kind, HEAP_BLOCK_NONE);
    assert_true(unit_dies(free_again, &blocks[0], "double free"));
    found = heap_identify(&world.shared, blocks[MANY - 1]); // of the current slab
    assert_false(heap_hand_on(&world.shared, heap, &found));
    const size_t free_slices = world.arena.arenas.primary.free_slices;
    (void)heap_drain(heap, 1, true);
    assert_int_equal(heap_world_posts_waiting(heap), 0);
    assert_true(world.arena.arenas.primary.free_slices > free_slices);
    heap_world_check(&world, heap);
}

// The same of a block of a full slab, whatever else that holds.
CASE(what_moves_out_of_a_full_slab_after_a_span_was_taken_is_collected_later) {
    allocate_many();
    struct slab *const slab = heap_world_slab_of(&world, blocks[0]);
    assert_true(slab_owner(slab) & SLAB_OWNER_FULL);
    const struct heap_block found = heap_identify(&world.shared, blocks[0]);
    heap_begin_effort();
    heap_note_effort(HEAP_EFFORT_SPAN);
    heap_free_moved(&world.shared, heap, &found);
    assert_int_equal(heap_world_posts_waiting(heap), 1);
    assert_true(slab_owner(slab) & SLAB_OWNER_FULL); // untouched
    assert_true(unit_dies(free_again, &blocks[0], "double free"));
    heap_begin_effort();
    (void)heap_drain(heap, 1, true);
    assert_int_equal(slab->used_count, slab->capacity_count - 1);
    const struct heap_block second = heap_identify(&world.shared, blocks[1]);
    heap_free_moved(&world.shared, heap, &second); // of a call that has done little
    assert_int_equal(heap_world_posts_waiting(heap), 0);
    assert_int_equal(slab->used_count, slab->capacity_count - 2);
    heap_world_check(&world, heap);
}

#define HEAP_CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    const struct CMUnitTest cases[] = {
        HEAP_CASE(the_allocation_for_a_block_that_moves_leaves_others_frees_alone),
        HEAP_CASE(a_move_that_takes_a_queued_slab_leaves_others_frees_alone),
        HEAP_CASE(a_call_with_a_block_at_hand_collects_for_a_while_after_growth),
        HEAP_CASE(what_has_been_put_off_keeps_no_call_from_a_block_at_hand),
        HEAP_CASE(what_moves_leave_alone_is_collected_by_a_cheap_call),
        HEAP_CASE(the_last_block_of_a_slab_can_be_handed_on_and_the_slab_is_given_up_later),
        HEAP_CASE(what_moves_out_of_a_full_slab_after_a_span_was_taken_is_collected_later),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
