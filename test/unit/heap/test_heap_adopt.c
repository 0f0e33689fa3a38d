// SPDX-License-Identifier: MIT
// Heap birth and end: heaps of ended threads go to new threads whole, to running ones slab by slab.
#include <pthread.h>

#include "heap/heap_fast.h"
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

static struct heap *create(void) {
    struct heap *const made = heap_adopt_or_create(&world.shared);
    assert_non_null(made);
    assert_int_equal(atomic_load(&made->state), HEAP_OWNED);
    return made;
}

static uintptr_t allocate_in_slab(struct heap *from, size_t size) {
    const uintptr_t address = heap_allocate_aligned(from, size, 16, false);
    assert_true(address != 0);
    return address;
}

CASE(a_new_heap_has_nothing_and_is_counted) {
    struct heap *const made = create();
    assert_ptr_not_equal(made, heap);
    assert_int_equal(made->slab_count, 0);
    assert_int_equal((uintptr_t)made & SLAB_OWNER_FLAGS, 0);
    for (size_t i = 0; i < MALLOW_DIRECT_COUNT; i++) {
        uintptr_t address;
        assert_ptr_equal(made->direct[i], heap_empty.direct[0]);
        assert_false(slab_take(made->direct[i], &address));
    }
    assert_int_equal(atomic_load(&world.shared.heap_count), 2);
    assert_ptr_equal(atomic_load(&world.shared.heaps), made);
    assert_ptr_equal(made->next_heap, heap);
    heap_world_check(&world, made);
}

CASE(all_heaps_look_for_headers_where_they_still_are) {
    static struct arena_set large;
    large = (struct arena_set){.trim_slices = SIZE_MAX};
    arena_set_init(&large, &world.arena.os, &world.arena.meta, &world.arena.map,
                   (size_t)1 << 30);
    const struct arena *const arena = &large.primary;
    const size_t whole = arena->header_bytes;
    thin_set_init(&world.thins, &large);
    world.shared.arenas = &large;
    heap_shared_init(&world.shared);
    struct heap *const mine = create();
    struct heap *const other = create();
    const uintptr_t blocks[] = {allocate_in_slab(mine, 1000), allocate_in_slab(other, 1000)};
    struct slab *const slabs[] = {heap_fast_slab(mine, blocks[0]), heap_fast_slab(mine, blocks[1])};
    arena_confine(&large, (size_t)64 << 20);
    const bool can = arena_header_part(arena).count != 0; // not where the table wraps round
    static struct heap bare; // of threads that only free
    heap_begin_bare(&world.shared, &bare);
    assert_true(heap_is_empty(&bare) && !heap_is_empty(mine));
    heap_confine(&world.shared);
    assert_int_equal(can, arena->header_bytes < whole);
    assert_int_equal(world.shared.header_mask + sizeof(struct slab), arena->header_bytes);
    assert_int_equal(world.shared.header_base, arena->header_address);
    const struct heap *const all[] = {mine, other, create(), &bare};
    for (unsigned i = 0; i < 4; i++) {
        assert_ptr_equal(heap_fast_slab(all[i], blocks[0]), slabs[0]);
        assert_ptr_equal(heap_fast_slab(all[i], blocks[1]), slabs[1]);
        for (unsigned bit = 0; bit < 64; bit++) { // any value leads to a header
            const uintptr_t value = blocks[0] ^ (uintptr_t)1 << bit;
            assert_true(arena_has_slab(arena, heap_fast_slab(all[i], value)));
        }
        assert_false(heap_fast_slab(all[i], 0)->start_address != 0); // free(NULL) meets none
    }
    (void)heap_world_free(&world, mine, blocks[1]);
    (void)heap_world_free(&world, &bare, blocks[0]);
    uintptr_t none;
    assert_false(heap_fast_allocate(&bare, 16, &none));
    heap_abandon(mine);
    heap_abandon(other);
    arena_world_check_set(&large);
    arena_world_unmap(&world.arena.os, &large.primary);
}

CASE(a_new_thread_takes_over_the_heap_of_one_that_ended_with_its_slabs) {
    const uintptr_t block = allocate_in_slab(heap, 1000);
    heap_abandon(heap);
    assert_int_equal(atomic_load(&heap->state), HEAP_ABANDONED);
    heap_world_check(&world, heap);
    assert_ptr_equal(create(), heap);
    assert_int_equal(atomic_load(&world.shared.adopted_count), 1);
    assert_int_equal(atomic_load(&world.shared.heap_count), 1);
    assert_int_equal(heap->slab_count, 1);
    assert_ptr_equal(heap_identify(&world.shared, allocate_in_slab(heap, 1000)).slab,
                     heap_identify(&world.shared, block).slab);
    assert_ptr_not_equal(create(), heap); // once
    heap_world_check(&world, heap);
}

// A survivor of each of many threads, one after another.
CASE(what_dead_threads_leave_in_thin_slices_is_bounded) {
    enum { THREADS = 20000, BYTES = 100 };
    static uintptr_t survivors[THREADS];
    struct thin_set *const thins = world.shared.thins;
    for (unsigned i = 0; i < THREADS; i++) {
        survivors[i] = heap_allocate(heap, BYTES, false);
        assert_true(survivors[i] != 0);
        heap_abandon(heap);
        assert_ptr_equal(create(), heap);
    }
    assert_in_range(thin_slice_count(thins), 1, 16); // 313 if each held a unit
    // In slabs, side by side.
    assert_true(heap->slab_count <= (size_t)THREADS * BYTES * 5 / 4 / MALLOW_SLICE_BYTES);
    heap_world_check(&world, heap);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_true(heap_free(&world.shared, heap, survivors[i]));
    }
    assert_in_range(thin_slice_count(thins), 1, 2);
    heap_abandon(heap);
    assert_ptr_equal(create(), heap);
    const uintptr_t first = heap_allocate(heap, 50, false);
    assert_int_equal(heap_identify(&world.shared, first).kind, HEAP_BLOCK_THIN); // as ever
    heap_world_check(&world, heap);
}

CASE(survivors_of_threads_in_turn_lie_side_by_side) {
    enum { THREADS = 64, BYTES = 128, A_UNIT = THIN_UNIT_BYTES / BYTES };
    uintptr_t survivors[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        survivors[i] = heap_allocate(heap, BYTES, false);
        assert_int_equal(survivors[i],
                         survivors[i / A_UNIT * A_UNIT] + i % A_UNIT * (size_t)BYTES);
        heap_abandon(heap);
        assert_ptr_equal(create(), heap);
    }
    heap_world_check(&world, heap);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_true(heap_free(&world.shared, heap, survivors[i]));
    }
}

CASE(all_first_blocks_of_living_threads_are_thin_whatever_their_sizes) {
    for (unsigned i = 0; i < 40; i++) {
        struct heap *const each = create();
        for (unsigned class_index = 0; class_index < MALLOW_THIN_CLASS_COUNT; class_index++) {
            const size_t bytes = size_class_bytes(class_index);
            for (unsigned j = 0; j < MALLOW_THIN_BLOCKS_MAX && (j + 1) * bytes <= MALLOW_THIN_BYTES_MAX; j++) {
                const uintptr_t block = heap_allocate(each, bytes, false);
                assert_true(bytes > THIN_BLOCK_BYTES_MAX || // those need units side by side
                            heap_identify(&world.shared, block).kind == HEAP_BLOCK_THIN);
            }
        }
    }
}

CASE(heaps_are_taken_over_each_once) {
    struct heap *heaps[6] = {heap};
    for (unsigned i = 1; i < 6; i++) {
        heaps[i] = create();
    }
    for (unsigned i = 0; i < 6; i++) {
        heap_abandon(heaps[i]);
    }
    for (unsigned i = 0; i < 6; i++) {
        struct heap *const again = create();
        unsigned matches = 0;
        for (unsigned j = 0; j < 6; j++) {
            matches += again == heaps[j];
            heaps[j] = again == heaps[j] ? NULL : heaps[j];
        }
        assert_int_equal(matches, 1);
    }
    assert_int_equal(atomic_load(&world.shared.heap_count), 6);
}

CASE(an_abandoned_heap_gives_back_its_empty_slabs_and_its_thin_unit) {
    const uintptr_t blocks[] = {allocate_in_slab(heap, 1000), allocate_in_slab(heap, 20000)};
    const uintptr_t thin = heap_allocate(heap, 64, false);
    for (unsigned i = 0; i < 2; i++) {
        assert_true(heap_free(&world.shared, heap, blocks[i]));
    }
    heap_abandon(heap);
    assert_int_equal(heap->slab_count, 0);
    assert_null(heap->thin.slice);
    assert_int_equal(heap_world_slices_used(&world), 1); // the thin slice
    assert_int_equal(heap_identify(&world.shared, thin).kind, HEAP_BLOCK_THIN);
    heap_world_check(&world, heap);
}

CASE(a_running_thread_takes_a_slab_with_room_from_an_ended_one) {
    const uintptr_t block = allocate_in_slab(heap, 1000);
    struct slab *const slab = heap_identify(&world.shared, block).slab;
    struct heap *const mine = create();
    heap_abandon(heap);
    const size_t before = heap_world_slices_used(&world);
    assert_null(heap_world_adopt_slab(mine, size_class_of(5000))); // none of that class
    assert_ptr_equal(heap_world_adopt_slab(mine, size_class_of(1000)), slab);
    assert_int_equal(slab_owner(slab), (uintptr_t)mine | SLAB_OWNER_QUEUED);
    heap_queue_push(mine, slab);
    const uintptr_t other = allocate_in_slab(mine, 1000);
    assert_ptr_equal(heap_identify(&world.shared, other).slab, slab);
    assert_int_equal(slab_owner_heap(slab), (uintptr_t)mine);
    assert_int_equal(heap->slab_count, 0);
    assert_int_equal(mine->slab_count, 1);
    assert_int_equal(heap_world_slices_used(&world), before);
    heap_world_check(&world, heap);
    heap_world_check(&world, mine);
    assert_true(heap_free(&world.shared, mine, block)); // of the ended thread, now local
    assert_false(slab_owner(slab) & SLAB_OWNER_PENDING);
    assert_ptr_equal(create(), heap); // still on the queue
}

CASE(a_move_takes_a_slab_of_the_heap_abandoned_first_or_of_none) {
    const unsigned class_index = size_class_of(1000);
    struct slab *const slab = heap_identify(&world.shared, allocate_in_slab(heap, 1000)).slab;
    struct heap *const other = create();
    struct heap *const mine = create();
    heap_abandon(other); // it has none
    heap_abandon(heap);
    assert_false(heap_may_adopt_first(&world.shared, class_index));
    heap_begin_move(HEAP_EFFORT_MOVE);
    const uintptr_t fresh = allocate_in_slab(mine, 1000);
    heap_end_move(HEAP_EFFORT_MOVE);
    assert_ptr_not_equal(heap_identify(&world.shared, fresh).slab, slab);
    assert_ptr_equal(create(), other);
    assert_true(heap_may_adopt_first(&world.shared, class_index));
    assert_false(heap_may_adopt_first(&world.shared, size_class_of(5000)));
    assert_true(heap_free(&world.shared, mine, fresh));
    heap_release_spare(mine); // so that it needs another slab
    heap_begin_move(HEAP_EFFORT_MOVE);
    const uintptr_t taken = allocate_in_slab(mine, 1000);
    heap_end_move(HEAP_EFFORT_MOVE);
    assert_ptr_equal(heap_identify(&world.shared, taken).slab, slab);
    heap_world_check(&world, mine);
}

CASE(a_new_thread_takes_over_a_heap_with_few_slabs) {
    struct heap *const one = create();
    struct heap *const none = create();
    (void)allocate_in_slab(heap, 1000);
    (void)allocate_in_slab(heap, 500);
    (void)allocate_in_slab(one, 1000);
    heap_abandon(heap);
    heap_abandon(one);
    heap_abandon(none);
    assert_ptr_equal(create(), none);
    assert_ptr_equal(create(), one); // had come before `heap` by then
    assert_ptr_equal(create(), heap);
    assert_false(heap_has_ended(&world.shared));
    heap_abandon(one);
    heap_abandon(none); // that is the last of the queue, and comes first
    assert_ptr_equal(create(), none);
    assert_ptr_equal(create(), one);
    assert_false(heap_has_ended(&world.shared));
}

CASE(it_is_one_of_the_few_whose_threads_ended_first) {
    struct heap *heaps[MALLOW_BIRTH_BUDGET + 1];
    for (unsigned i = 0; i <= MALLOW_BIRTH_BUDGET; i++) {
        heaps[i] = create();
        if (i < MALLOW_BIRTH_BUDGET) {
            (void)allocate_in_slab(heaps[i], 1000);
        }
    }
    for (unsigned i = 0; i <= MALLOW_BIRTH_BUDGET; i++) {
        heap_abandon(heaps[i]);
    }
    assert_ptr_equal(create(), heaps[0]);
    heap_abandon(heap);
    assert_ptr_equal(create(), heaps[MALLOW_BIRTH_BUDGET]); // one of the few by now
    for (unsigned i = 1; i < MALLOW_BIRTH_BUDGET; i++) {
        assert_ptr_equal(create(), heaps[i]);
    }
    assert_ptr_equal(create(), heap);
}

enum { LEFT_BYTES = 1000, LEFT_SLABS = 3 };

// Full slabs of an ended thread, and a running one's heap; blocks[i] is in slabs[i].
static struct heap *leave_full_slabs(uintptr_t blocks[LEFT_SLABS],
                                     struct slab *slabs[LEFT_SLABS]) {
    struct heap *const mine = create();
    for (unsigned i = 0; i < LEFT_SLABS; i++) {
        blocks[i] = allocate_in_slab(heap, LEFT_BYTES);
        slabs[i] = heap_identify(&world.shared, blocks[i]).slab;
        for (unsigned count = slabs[i]->room_count; count > 1; count--) {
            assert_ptr_equal(
                heap_identify(&world.shared, allocate_in_slab(heap, LEFT_BYTES)).slab, slabs[i]);
        }
    }
    heap_abandon(heap);
    return mine;
}

CASE(a_slab_of_an_ended_thread_comes_along_with_who_frees_in_it_one_of_a_class) {
    uintptr_t blocks[LEFT_SLABS];
    struct slab *slabs[LEFT_SLABS];
    struct heap *const mine = leave_full_slabs(blocks, slabs);
    assert_true(heap_free(&world.shared, mine, blocks[0]));
    assert_int_equal(slab_owner(slabs[0]), (uintptr_t)mine | SLAB_OWNER_QUEUED);
    assert_true(heap_free(&world.shared, mine, blocks[1])); // it has one
    assert_int_equal(slab_owner(slabs[1]), (uintptr_t)heap | SLAB_OWNER_QUEUED);
    assert_int_equal(mine->slab_count, 1);
    assert_int_equal(heap->slab_count, LEFT_SLABS - 1);
    heap_world_check(&world, heap);
    heap_world_check(&world, mine);
    assert_int_equal(allocate_in_slab(mine, LEFT_BYTES), blocks[0]); // its queue is empty now
    assert_true(heap_free(&world.shared, mine, blocks[2]));
    assert_int_equal(slab_owner(slabs[2]), (uintptr_t)mine | SLAB_OWNER_QUEUED);
    heap_world_check(&world, heap);
    heap_world_check(&world, mine);
}

CASE(who_has_no_heap_or_none_of_the_class_takes_no_slab_along) {
    uintptr_t blocks[LEFT_SLABS];
    struct slab *slabs[LEFT_SLABS];
    const uintptr_t medium[] = {allocate_in_slab(heap, 5000), allocate_in_slab(heap, 5000)};
    struct slab *const medium_slab = heap_identify(&world.shared, medium[0]).slab;
    struct heap *const mine = leave_full_slabs(blocks, slabs);
    assert_true(heap_free(&world.shared, (struct heap *)(uintptr_t)&heap_empty, blocks[0]));
    assert_int_equal(slab_owner(slabs[0]), (uintptr_t)heap | SLAB_OWNER_QUEUED);
    assert_null(heap_medium_of(mine));
    assert_true(heap_free(&world.shared, mine, medium[0]));
    assert_int_equal(slab_owner(medium_slab), (uintptr_t)heap | SLAB_OWNER_QUEUED);
    assert_true(heap_prepare_class(mine, size_class_of(5000)));
    assert_true(heap_free(&world.shared, mine, allocate_in_slab(mine, 9000)));
    assert_true(heap_free(&world.shared, mine, medium[1])); // the last one: it is given up
    assert_int_equal(slab_owner_heap(medium_slab), 0);
    heap_world_check(&world, heap);
    heap_world_check(&world, mine);
}

CASE(a_free_collects_what_was_posted_to_an_ended_thread_and_takes_nothing_along) {
    uintptr_t blocks[LEFT_SLABS];
    struct slab *slabs[LEFT_SLABS];
    struct heap *const mine = leave_full_slabs(blocks, slabs);
    int work = 0;
    assert_true(heap_claim(heap));
    heap_world_free_elsewhere(&world, blocks[1]);
    heap_unclaim(heap, &work); // leaves it
    assert_int_equal(heap_world_posts_waiting(heap), 1);
    assert_true(heap_free(&world.shared, mine, blocks[0]));
    assert_int_equal(heap_world_posts_waiting(heap), 0);
    assert_int_equal(slab_owner(slabs[0]), (uintptr_t)heap | SLAB_OWNER_QUEUED);
    assert_int_equal(mine->slab_count, 0);
    heap_world_check(&world, heap);
}

CASE(a_claimed_heap_is_passed_over_and_stays_on_the_queue) {
    heap_abandon(heap);
    assert_true(heap_claim(heap));
    assert_false(heap_claim(heap));
    struct heap *const other = create();
    assert_ptr_not_equal(other, heap);
    heap_world_unclaim(heap);
    assert_int_equal(atomic_load(&heap->state), HEAP_ABANDONED);
    assert_ptr_equal(create(), heap);
    assert_false(heap_claim(heap)); // owned
}

// In a child of fork such a claim never ends.
CASE(a_heap_that_stays_claimed_keeps_no_other_from_new_threads) {
    struct heap *const one = create();
    struct heap *const two = create();
    heap_abandon(heap);
    heap_abandon(one);
    assert_true(heap_claim(heap));
    const uint32_t made = atomic_load(&world.shared.heap_count);
    for (unsigned i = 0; i < 2 * MALLOW_BIRTH_BUDGET; i++) {
        struct heap *const taken = create();
        assert_ptr_equal(taken, one);
        heap_abandon(taken);
    }
    heap_abandon(two); // has nothing either
    assert_ptr_not_equal(create(), heap);
    assert_ptr_not_equal(create(), heap);
    assert_int_equal(atomic_load(&world.shared.heap_count), made);
    heap_world_unclaim(heap);
    assert_ptr_equal(create(), heap);
    assert_false(heap_has_ended(&world.shared));
}

CASE(a_fallback_heap_is_claimed_for_each_use_and_never_taken_over) {
    struct heap *const fallback = heap_create_fallback(&world.shared);
    assert_int_equal(atomic_load(&fallback->state), HEAP_ABANDONED);
    assert_ptr_not_equal(create(), fallback);
    assert_true(heap_claim(fallback));
    const uintptr_t block = allocate_in_slab(fallback, 1000);
    heap_world_unclaim(fallback);
    assert_int_equal(slab_owner_heap(heap_identify(&world.shared, block).slab),
                     (uintptr_t)fallback);
}

// ---- Threads that come and go -------------------------------------------------------------------

enum { THREADS = 4, LIVES = 40, BLOCKS = 60, PASSED = 30 };
static _Atomic(bool) went_wrong;
static _Atomic(uintptr_t) passed_on[THREADS]; // a block that the next thread frees

static void *live_often(void *argument) {
    const size_t me = (size_t)(uintptr_t)argument;
    for (unsigned life = 0; life < LIVES; life++) {
        struct heap *const mine = heap_adopt_or_create(&world.shared);
        uintptr_t blocks[BLOCKS];
        for (unsigned i = 0; i < BLOCKS; i++) {
            blocks[i] = heap_allocate(mine, 16 + 31 * i, false);
            memset((void *)blocks[i], (int)me + 1, 16 + 31 * i);
        }
        // Those that others free, of slabs, which may come along.
        for (unsigned i = 0; i < PASSED; i++) {
            const uintptr_t block = heap_allocate_aligned(mine, 200 + 60 * (i % 4), 16, false);
            const uintptr_t other = atomic_exchange(&passed_on[(me + 1) % THREADS], block);
            if (other != 0) {
                (void)heap_free(&world.shared, mine, other);
            }
        }
        for (unsigned i = 0; i < BLOCKS; i++) {
            if (!unit_is_all((const void *)blocks[i], (unsigned char)(me + 1), 16 + 31 * i)) {
                atomic_store(&went_wrong, true);
            }
            (void)heap_free(&world.shared, mine, blocks[i]);
        }
        heap_abandon(mine);
    }
    return NULL;
}

CASE(threads_that_come_and_go_use_few_heaps_and_leave_nothing) {
    heap_abandon(heap);
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, live_often, (void *)i), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_false(atomic_load(&went_wrong));
    // A birth finds a heap of an ended thread, unless the others hold them all: each its own, one
    // that it puts back, and those that it looks through for a slab.
    assert_true(atomic_load(&world.shared.heap_count) <= THREADS * (2 + MALLOW_ADOPT_BUDGET));
    struct heap *const last = create();
    for (size_t i = 0; i < THREADS; i++) {
        const uintptr_t block = atomic_load(&passed_on[i]);
        assert_true(heap_free(&world.shared, last, block));
    }
    heap_abandon(last);
    for (const struct heap *at = atomic_load(&world.shared.heaps); at != NULL; at = at->next_heap) {
        heap_world_check(&world, at);
        assert_int_equal(at->slab_count, 0);
    }
}

#define HEAP_CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    const struct CMUnitTest cases[] = {
        HEAP_CASE(a_new_heap_has_nothing_and_is_counted),
        HEAP_CASE(all_heaps_look_for_headers_where_they_still_are),
        HEAP_CASE(a_new_thread_takes_over_the_heap_of_one_that_ended_with_its_slabs),
        HEAP_CASE(what_dead_threads_leave_in_thin_slices_is_bounded),
        HEAP_CASE(survivors_of_threads_in_turn_lie_side_by_side),
        HEAP_CASE(all_first_blocks_of_living_threads_are_thin_whatever_their_sizes),
        HEAP_CASE(heaps_are_taken_over_each_once),
        HEAP_CASE(an_abandoned_heap_gives_back_its_empty_slabs_and_its_thin_unit),
        HEAP_CASE(a_running_thread_takes_a_slab_with_room_from_an_ended_one),
        HEAP_CASE(a_move_takes_a_slab_of_the_heap_abandoned_first_or_of_none),
        HEAP_CASE(a_new_thread_takes_over_a_heap_with_few_slabs),
        HEAP_CASE(it_is_one_of_the_few_whose_threads_ended_first),
        HEAP_CASE(a_slab_of_an_ended_thread_comes_along_with_who_frees_in_it_one_of_a_class),
        HEAP_CASE(who_has_no_heap_or_none_of_the_class_takes_no_slab_along),
        HEAP_CASE(a_free_collects_what_was_posted_to_an_ended_thread_and_takes_nothing_along),
        HEAP_CASE(a_claimed_heap_is_passed_over_and_stays_on_the_queue),
        HEAP_CASE(a_heap_that_stays_claimed_keeps_no_other_from_new_threads),
        HEAP_CASE(a_fallback_heap_is_claimed_for_each_use_and_never_taken_over),
        HEAP_CASE(threads_that_come_and_go_use_few_heaps_and_leave_nothing),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
