// SPDX-License-Identifier: MIT
// Hole purge: which slabs are purged when, with how many calls, and what is left of them.
#include "heap/heap_holes.h"

#include "heap/heap_gate.h"
#include "heap_world.h"

enum { BLOCK = 1000, COUNT = 640, KEEP = 16 };

static struct heap_world world;
static struct heap_holes holes;
static uintptr_t blocks[COUNT];
static uint64_t clock_ms = 1000;

static int begin(void **state) {
    (void)state;
    heap_world_begin(&world);
    memset(&holes, 0, sizeof holes);
    holes.shared = &world.shared;
    return 0;
}

static int end(void **state) {
    (void)state;
    heap_holes_forget(&holes);
    heap_world_end(&world);
    return 0;
}

// Blocks of which one in KEEP survives.
static void fill_and_thin(struct heap *heap) {
    if (world.arena.os.page_bytes > 4096) {
        skip(); // no page of a larger size would be free
    }
    for (unsigned i = 0; i < COUNT; i++) {
        blocks[i] = heap_allocate(heap, BLOCK, false);
        assert_true(blocks[i] != 0);
        memset((void *)blocks[i], (int)(i % 250) + 1, BLOCK);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        if (i % KEEP != 0) {
            assert_true(heap_free(&world.shared, heap, blocks[i]));
        }
    }
}

static void check_survivors(void) {
    for (unsigned i = 0; i < COUNT; i += KEEP) {
        assert_true(unit_is_all((void *)blocks[i], (unsigned char)(i % 250 + 1), BLOCK));
    }
}

static struct heap_holes_result round_of(const struct heap *mine, unsigned patience) {
    const struct heap_holes_way way = {clock_ms, mine, patience, UINT32_MAX};
    struct heap_holes_result result;
    size_t slice = 0;
    heap_holes_begin(&holes);
    result = heap_holes_look(&holes, &way, &slice, SIZE_MAX / 2);
    heap_holes_end(&holes);
    clock_ms += 100;
    return result;
}

static uint64_t now_ms(void) {
    return clock_ms += 20;
}

static uint64_t calls(void) {
    return atomic_load(&world.arena.os.advise_count);
}

CASE(ones_own_slabs_are_purged_at_once_and_the_live_blocks_stay) {
    fill_and_thin(world.heap);
    const struct heap_holes_result result = round_of(world.heap, 0);
    // One block in 16 is live, and touches a page or two of some four that 16 blocks lie in.
    assert_true(result.released_bytes >= (size_t)COUNT * BLOCK * 4 / 10);
    assert_true(result.released_bytes <= (size_t)COUNT * BLOCK);
    assert_int_equal(result.pending_count, 0);
    check_survivors();
    heap_world_check(&world, world.heap);
    const uint64_t before = calls();
    assert_int_equal(round_of(world.heap, 0).released_bytes, 0); // nothing has changed since
    assert_int_equal(calls(), before);
}

CASE(what_was_purged_can_be_used_again) {
    fill_and_thin(world.heap);
    (void)round_of(world.heap, 0);
    for (unsigned i = 0; i < COUNT; i++) {
        if (i % KEEP != 0) {
            blocks[i] = heap_allocate(world.heap, BLOCK, i % 2 == 0);
            assert_true(i % 2 != 0 || unit_is_all((void *)blocks[i], 0, BLOCK));
            memset((void *)blocks[i], (int)(i % 250) + 1, BLOCK);
        }
    }
    for (unsigned i = 0; i < COUNT; i++) {
        assert_true(unit_is_all((void *)blocks[i], (unsigned char)(i % 250 + 1), BLOCK));
    }
}

CASE(a_slab_must_stay_as_it_is_for_as_many_looks_as_are_asked) {
    fill_and_thin(world.heap);
    assert_int_equal(round_of(world.heap, 2).released_bytes, 0);
    assert_int_equal(round_of(world.heap, 2).released_bytes, 0);
    for (unsigned i = 0; i < COUNT; i += 2 * KEEP) { // a change in each slab
        assert_true(heap_free(&world.shared, world.heap, blocks[i]));
    }
    const struct heap_holes_result changed = round_of(world.heap, 2);
    assert_int_equal(changed.released_bytes, 0);
    assert_true(changed.pending_count > 0);
    assert_int_equal(round_of(world.heap, 2).released_bytes, 0);
    assert_true(round_of(world.heap, 2).released_bytes > 0);
}

CASE(a_look_makes_no_more_calls_than_it_may_and_goes_on_where_it_was) {
    fill_and_thin(world.heap);
    const struct heap_holes_way way = {clock_ms, world.heap, 0, 1};
    size_t slice = 0;
    size_t released = 0;
    heap_holes_begin(&holes);
    for (unsigned look = 0; look < 10000; look++) {
        const size_t slice_before = slice;
        const uint64_t before = calls();
        const struct heap_holes_result part = heap_holes_look(&holes, &way, &slice, 4);
        assert_true(calls() - before <= 1);
        assert_true(slice - slice_before <= 4);
        released += part.released_bytes;
        if (slice == slice_before && part.released_bytes == 0) {
            break;
        }
    }
    heap_holes_end(&holes);
    assert_true(released >= (size_t)COUNT * BLOCK * 4 / 10);
    assert_int_equal(round_of(world.heap, 0).released_bytes, 0); // all was done
    check_survivors();
}

CASE(another_threads_slabs_are_purged_after_asking_and_a_while) {
    fill_and_thin(world.heap);
    const struct heap_holes_result first = round_of(NULL, 0); // asks
    assert_int_equal(first.released_bytes, 0);
    assert_true(first.pending_count > 0);
    assert_true(round_of(NULL, 0).released_bytes > 0);
    assert_int_equal(round_of(NULL, 0).pending_count, 0);
    assert_int_equal(atomic_load(&world.heap->visit), GATE_OPEN); // no longer asked
    check_survivors();
}

CASE(but_not_while_it_is_at_work) {
    fill_and_thin(world.heap);
    heap_gate_enter(world.heap);
    (void)round_of(NULL, 0);
    const struct heap_holes_result result = round_of(NULL, 0);
    assert_int_equal(result.released_bytes, 0);
    assert_true(result.pending_count > 0);
    heap_gate_leave(world.heap);
    assert_true(round_of(NULL, 0).released_bytes > 0);
}

CASE(an_ended_threads_slabs_need_no_asking) {
    fill_and_thin(world.heap);
    heap_abandon(world.heap);
    assert_true(round_of(NULL, 0).released_bytes > 0);
    assert_true(heap_is_abandoned(world.heap));
    check_survivors();
    assert_true(heap_claim(world.heap)); // somebody else is at work there
    for (unsigned i = 0; i < COUNT; i += 2 * KEEP) {
        assert_true(heap_free(&world.shared, world.heap, blocks[i]));
    }
    const struct heap_holes_result result = round_of(NULL, 0);
    assert_int_equal(result.released_bytes, 0);
    assert_true(result.pending_count > 0);
    int work = MALLOW_CALL_WORK;
    heap_unclaim(world.heap, &work);
    assert_true(round_of(NULL, 0).released_bytes > 0);
}

CASE(collecting_asks_waits_and_does_it) {
    fill_and_thin(world.heap);
    assert_true(heap_holes_collect(&holes, NULL, now_ms) > 0);
    check_survivors();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            ones_own_slabs_are_purged_at_once_and_the_live_blocks_stay, begin, end),
        cmocka_unit_test_setup_teardown(what_was_purged_can_be_used_again, begin, end),
        cmocka_unit_test_setup_teardown(
            a_slab_must_stay_as_it_is_for_as_many_looks_as_are_asked, begin, end),
        cmocka_unit_test_setup_teardown(
            a_look_makes_no_more_calls_than_it_may_and_goes_on_where_it_was, begin, end),
        cmocka_unit_test_setup_teardown(another_threads_slabs_are_purged_after_asking_and_a_while,
                                        begin, end),
        cmocka_unit_test_setup_teardown(but_not_while_it_is_at_work, begin, end),
        cmocka_unit_test_setup_teardown(an_ended_threads_slabs_need_no_asking, begin, end),
        cmocka_unit_test_setup_teardown(collecting_asks_waits_and_does_it, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
