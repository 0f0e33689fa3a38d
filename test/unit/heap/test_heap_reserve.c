// SPDX-License-Identifier: MIT
// Heaps with a reserve: everything they do, while somebody who never wakes holds every lock there is;
// and exhaustion.
#include <pthread.h>
#include <unistd.h>

#include "heap_world.h"

enum { RESERVE_BYTES = 6 << 20, BLOCKS = 512, STEPS = 200000, RING = 64 };

static struct heap_world world;
static struct reserve reserve;

static void hold_every_lock(bool hold);
static bool held;

static int begin(void **state) {
    (void)state;
    bool locked = false;
    heap_world_begin(&world);
    assert_true(arena_set_fix(&world.arena.arenas, RESERVE_BYTES, &reserve, &locked) != 0);
    assert_true(meta_fix(&world.arena.meta, 1 << 20, &locked));
    world.shared.reserve = &reserve;
    world.arena.os.sealed = true;
    return 0;
}

static int end(void **state) {
    (void)state;
    if (held) { // a case has failed
        hold_every_lock(false);
    }
    world.arena.os.sealed = false;
    heap_world_end(&world);
    return 0;
}

// No lock can be taken twice: whoever wants one of these from now on hangs, and the test with it.
static void hold_every_lock(bool hold) {
    held = hold;
    struct os_lock *const locks[] = {&world.thins.lock, &world.arena.arenas.lock,
                                     &world.arena.map.lock, &world.arena.meta.lock};
    for (size_t i = 0; i < sizeof locks / sizeof locks[0]; i++) {
        if (hold) {
            os_lock_take(locks[i]);
        } else {
            os_lock_drop(locks[i]);
        }
    }
}

struct block {
    uintptr_t address;
    size_t size;
};

static size_t any_size(struct unit_chance *chance) {
    const unsigned dice = unit_below(chance, 100);
    return dice < 80   ? 1 + unit_below(chance, 1024)
           : dice < 95 ? 1 + unit_below(chance, 60000)
                       : 1 + unit_below(chance, 400000);
}

// Blocks go from one thread to the other, to be freed there.
static struct ring {
    _Atomic(uintptr_t) slots[RING];
} rings[2];

static void free_in(struct heap *heap, uintptr_t address) {
    (void)heap_world_free(&world, heap, address);
}

static void work(size_t me, struct unit_chance *chance) {
    struct block *const blocks = calloc(BLOCKS, sizeof *blocks);
    struct heap *const heap = heap_adopt_or_create(&world.shared); // nor does this take one
    assert_non_null(heap);
    for (unsigned step = 0; step < STEPS; step++) {
        struct block *const block = &blocks[unit_below(chance, BLOCKS)];
        const uintptr_t others = atomic_exchange(&rings[me].slots[unit_below(chance, RING)], 0);
        if (others != 0) {
            free_in(heap, others);
        }
        if (block->address == 0) {
            const size_t size = any_size(chance);
            block->size = size;
            block->address = unit_below(chance, 10) == 0
                                 ? heap_allocate_aligned(heap, size, 64U << unit_below(chance, 8), false)
                                 : heap_allocate(heap, size, unit_below(chance, 4) == 0);
            if (block->address != 0) {
                *(unsigned char *)block->address = (unsigned char)me;
            }
            continue;
        }
        assert_int_equal(*(unsigned char *)block->address, me);
        const struct heap_block found = heap_identify(&world.shared, block->address);
        assert_true(found.usable_bytes >= block->size);
        if (found.kind == HEAP_BLOCK_LARGE && unit_below(chance, 2) == 0) {
            const size_t size = 70000 + unit_below(chance, 400000);
            block->size = heap_resize_in_place(&world.shared, &found, size) ? size : block->size;
            continue;
        }
        const bool away = unit_below(chance, 2) == 0;
        const uintptr_t address = block->address;
        block->address = 0;
        const uintptr_t back = !away ? address
                                     : atomic_exchange(&rings[!me].slots[unit_below(chance, RING)],
                                                       address);
        if (back != 0) {
            free_in(heap, back);
        }
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        if (blocks[i].address != 0) {
            free_in(heap, blocks[i].address);
        }
    }
    heap_abandon(heap);
    free(blocks);
}

static void *other(void *argument) {
    struct unit_chance chance = {(uintptr_t)argument};
    work(1, &chance);
    return NULL;
}

CASE(two_threads_work_while_every_lock_is_held) {
    struct unit_chance chance = unit_chance_begin();
    hold_every_lock(true);
    // What earlier rounds left is queued once the lock is free: until then each makes new heaps.
    for (unsigned round = 0; round < 3; round++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, other, (void *)(uintptr_t)unit_next(&chance)), 0);
        work(0, &chance);
        pthread_join(thread, NULL);
    }
    for (size_t i = 0; i < 2 * RING; i++) {
        const uintptr_t left = atomic_exchange(&rings[i / RING].slots[i % RING], 0);
        if (left != 0) {
            free_in((struct heap *)(uintptr_t)&heap_empty, left);
        }
    }
    hold_every_lock(false);
    assert_false(heap_has_ended(&world.shared));
    for (unsigned i = 0; i < 6; i++) { // each of them once
        (void)heap_adopt_or_create(&world.shared);
    }
    assert_int_equal(atomic_load(&world.shared.adopted_count), 6);
    assert_false(heap_has_ended(&world.shared));
}

CASE(the_last_slice_is_had_and_then_nothing_until_something_comes_back) {
    struct heap *const heap = heap_adopt_or_create(&world.shared);
    hold_every_lock(true);
    static uintptr_t blocks[RESERVE_BYTES / MALLOW_SLICE_BYTES + 1];
    size_t count = 0;
    while ((blocks[count] = heap_allocate(heap, MALLOW_SLAB_BYTES_MAX + 1, false)) != 0) {
        count++;
    }
    assert_true(count >= RESERVE_BYTES / (2 * MALLOW_SLICE_BYTES) - 1);
    assert_int_equal(heap_allocate(heap, MALLOW_CHUNK_BYTES, false), 0);
    assert_int_equal(heap_allocate(heap, (size_t)1 << 40, false), 0); // never a mapping of its own
    assert_int_equal(heap_allocate_aligned(heap, 100, (size_t)1 << 30, false), 0);
    assert_int_equal(heap_allocate_at(heap, MALLOW_LARGE_BYTES_MAX, 4096, 64), 0);
    // Small blocks of every size until there is no room for those either.
    size_t small = 0;
    for (size_t size = 16; size <= 4096; size += 16) {
        while (heap_allocate(heap, size, false) != 0) {
            small++;
        }
    }
    assert_int_equal(heap_allocate(heap, 8192, false), 0);
    free_in(heap, blocks[--count]);
    assert_true(heap_allocate(heap, 8192, false) != 0);
    hold_every_lock(false);
}

static atomic_bool locks_taken;

static void *hold_locks_for_a_while(void *argument) {
    hold_every_lock(true);
    atomic_store(&locks_taken, true);
    usleep(50000);
    hold_every_lock(false);
    return argument;
}

// A thread has a heap of an ended one, if it must, rather than none.
CASE(a_lock_is_waited_for_where_no_heap_can_be_made) {
    struct heap *const first = heap_adopt_or_create(&world.shared);
    pthread_t thread;
    while (heap_adopt_or_create(&world.shared) != NULL) { // as much as there is memory for
    }
    heap_abandon(first);
    atomic_store(&locks_taken, false);
    assert_int_equal(pthread_create(&thread, NULL, hold_locks_for_a_while, NULL), 0);
    while (!atomic_load(&locks_taken)) {
    }
    assert_ptr_equal(heap_adopt_or_create(&world.shared), first);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_null(heap_adopt_or_create(&world.shared));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(two_threads_work_while_every_lock_is_held, begin, end),
        cmocka_unit_test_setup_teardown(
            the_last_slice_is_had_and_then_nothing_until_something_comes_back, begin, end),
        cmocka_unit_test_setup_teardown(a_lock_is_waited_for_where_no_heap_can_be_made, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
