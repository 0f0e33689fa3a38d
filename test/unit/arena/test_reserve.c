// SPDX-License-Identifier: MIT
// Reserve: against a model, between threads, and without a lock.
#include "arena/reserve.h"

#include <pthread.h>
#include <sys/resource.h>

#include "world.h"

enum { CHUNKS = 2, SPANS = CHUNKS * 32, THREADS = 4, STEPS = 100000 };

static struct arena_world world;
static struct reserve reserve;
static size_t committed;

static int begin(void **state) {
    (void)state;
    bool locked = false;
    arena_world_begin(&world);
    committed = arena_set_fix(&world.arenas, CHUNKS << MALLOW_CHUNK_SHIFT, &reserve, &locked);
    assert_int_equal(committed, CHUNKS << MALLOW_CHUNK_SHIFT);
    return 0;
}

static int end(void **state) {
    (void)state;
    arena_world_end(&world);
    return 0;
}

CASE(all_that_the_arena_has_is_set_apart) {
    assert_int_equal(world.arenas.primary.free_slices, 0);
    const size_t slices = committed >> MALLOW_SLICE_SHIFT;
    assert_true(reserve_free_slices(&reserve) >= slices - 1); // one slice is never handed out
    arena_world_check(&world);
}

struct span {
    struct slab *slab;
    uintptr_t address;
    unsigned count;
};

// Takes, gives and extends by chance, with every lock that others might hold taken: no call waits.
CASE(what_is_taken_overlaps_nothing_and_comes_back) {
    struct unit_chance chance = unit_chance_begin();
    static struct span spans[SPANS];
    static unsigned char used[CHUNKS * 32 + 1];
    size_t live = 0;
    const size_t all = reserve_free_slices(&reserve);
    const uintptr_t base = world.arenas.primary.base;
    os_lock_take(&world.arenas.lock);
    os_lock_take(&world.meta.lock);
    for (unsigned step = 0; step < STEPS; step++) {
        if (live > 0 && unit_below(&chance, 2) == 0) {
            const size_t at = unit_next(&chance) % live;
            struct span *const span = &spans[at];
            const size_t first = (span->address - base) >> MALLOW_SLICE_SHIFT;
            const unsigned more = 1 + unit_below(&chance, 3);
            if (unit_below(&chance, 3) == 0 && span->count + more <= 32) {
                bool room = first % 32 + span->count + more <= 32;
                for (unsigned i = 0; room && i < more; i++) {
                    room = used[first + span->count + i] == 0;
                }
                assert_int_equal(arena_extend(&world.arenas, span->slab, span->count, more), room);
                memset(&used[first + span->count], 1, room ? more : 0);
                span->count += room ? more : 0;
                continue;
            }
            memset(&used[first], 0, span->count);
            arena_give(&world.arenas, span->slab, span->count);
            *span = spans[--live];
            continue;
        }
        const unsigned count = 1 + unit_below(&chance, unit_below(&chance, 4) == 0 ? 32 : 4);
        const unsigned align = 1U << unit_below(&chance, 4);
        const struct arena_span got = reserve_take(&reserve, count, align);
        if (got.slab == NULL) {
            continue;
        }
        const size_t first = (got.address - base) >> MALLOW_SLICE_SHIFT;
        assert_int_equal(first % align, 0);
        assert_true(first / 32 == (first + count - 1) / 32);
        assert_ptr_equal(arena_slab_at(&world.arenas.primary, got.address), got.slab);
        for (unsigned i = 0; i < count; i++) {
            assert_int_equal(used[first + i]++, 0);
        }
        spans[live++] = (struct span){got.slab, got.address, count};
    }
    for (; live > 0; live--) {
        arena_give(&world.arenas, spans[live - 1].slab, spans[live - 1].count);
    }
    os_lock_drop(&world.meta.lock);
    os_lock_drop(&world.arenas.lock);
    assert_int_equal(reserve_free_slices(&reserve), all);
    // What is free is found: all of it, slice by slice, and then nothing.
    for (size_t i = 0; i < all; i++) {
        const struct arena_span got = reserve_take(&reserve, 1, 1);
        assert_non_null(got.slab);
        spans[i % SPANS] = (struct span){got.slab, got.address, 1};
    }
    assert_null(reserve_take(&reserve, 1, 1).slab);
}

static _Atomic(unsigned char) owners[CHUNKS * 32 + 1];

static void *take_and_give(void *argument) {
    struct unit_chance chance = {(uintptr_t)argument};
    const uintptr_t base = world.arenas.primary.base;
    for (unsigned step = 0; step < STEPS; step++) {
        const unsigned count = 1 + unit_below(&chance, 6);
        const struct arena_span got = reserve_take(&reserve, count, 1);
        const size_t first = (got.address - base) >> MALLOW_SLICE_SHIFT;
        for (unsigned i = 0; got.slab != NULL && i < count; i++) {
            assert_int_equal(atomic_fetch_add(&owners[first + i], 1), 0);
        }
        for (unsigned i = 0; got.slab != NULL && i < count; i++) {
            assert_int_equal(atomic_fetch_sub(&owners[first + i], 1), 1);
        }
        if (got.slab != NULL) {
            arena_give(&world.arenas, got.slab, count);
        }
    }
    return NULL;
}

CASE(threads_never_get_the_same_slice) {
    pthread_t threads[THREADS];
    const size_t all = reserve_free_slices(&reserve);
    for (uintptr_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, (void *)(i + 1)), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(reserve_free_slices(&reserve), all);
}

// Where the kernel refuses the table of the arena's reserved chunks.
CASE(a_reserve_that_cannot_be_made_keeps_no_memory) {
    struct arena_world bare;
    struct reserve none;
    arena_world_begin(&bare);
    assert_non_null(meta_take(&bare.meta, 64)); // more is at hand from now on
    const uint64_t used = atomic_load(&bare.meta.used_bytes);
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_DATA, &before), 0);
    const struct rlimit little = {1, before.rlim_max}; // 0 is none to the kernel
    assert_int_equal(setrlimit(RLIMIT_DATA, &little), 0);
    const bool obeyed = os_map(&bare.os, 64 << 10, 1) == 0; // an emulator does not
    bool made = false;
    for (unsigned i = 0; obeyed && i < 100; i++) {
        made = made || reserve_make(&none, &bare.arenas, 4);
    }
    assert_int_equal(setrlimit(RLIMIT_DATA, &before), 0);
    assert_false(made);
    assert_int_equal(atomic_load(&bare.meta.used_bytes), used);
    assert_true(reserve_make(&none, &bare.arenas, 4));
    arena_world_end(&bare);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reserve_that_cannot_be_made_keeps_no_memory),
        cmocka_unit_test_setup_teardown(all_that_the_arena_has_is_set_apart, begin, end),
        cmocka_unit_test_setup_teardown(what_is_taken_overlaps_nothing_and_comes_back, begin, end),
        cmocka_unit_test_setup_teardown(threads_never_get_the_same_slice, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
