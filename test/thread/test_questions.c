// SPDX-License-Identifier: MIT
// Any value may be asked about (mw_is_owned, mw_heap_of), also that of a block which another thread is just
// freeing, with its slab, its slices or its arena. Twice: ctest sets MALLOW_ARENA_RESERVE for the second time,
// where slabs lie beyond the primary arena.
#include <mallow/heap.h>

#include "../support/suite.h"

#include <pthread.h>
#include <stdatomic.h>

enum { BLOCKS = 96, ROUNDS = FIGURES_COUNT ? 100000 : 3000, FILL_BYTES = 60000, FILL_COUNT = 100 };

static const size_t sizes[] = {48, 600, 4000, 8000, 30000, 100000};
static _Atomic(void *) asked[BLOCKS]; // live, or freed already
static atomic_bool stopped;

static void *take_and_free(void *argument)
{
    void *blocks[BLOCKS];
    for (size_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < BLOCKS; i++) {
            blocks[i] = mw_malloc(sizes[round % COUNT_OF(sizes)]);
            CHECK(blocks[i] != NULL, "round %zu", round);
            atomic_store_explicit(&asked[i], blocks[i], memory_order_relaxed);
        }
        for (size_t i = BLOCKS; i > 0; i--) {
            mw_free(blocks[i - 1]);
        }
    }
    atomic_store(&stopped, true);
    return argument;
}

static void *ask(void *argument)
{
    size_t owned_count = 0;
    while (!atomic_load(&stopped)) {
        for (size_t i = 0; i < BLOCKS; i++) {
            const void *const block = atomic_load_explicit(&asked[i], memory_order_relaxed);
            owned_count += mw_is_owned(block);
            CHECK(mw_heap_of(block) == NULL, "%p is of a heap, of which there is none", block);
        }
    }
    CHECK(owned_count != 0, "no live block was asked about");
    return argument;
}

static void what_is_being_freed_may_be_asked_about(void **state)
{
    pthread_t threads[2];
    void *fill[FILL_COUNT];
    (void)state;
    for (size_t i = 0; i < FILL_COUNT; i++) { // a small primary arena is used up by them
        fill[i] = mw_malloc(FILL_BYTES);
        CHECK(fill[i] != NULL, "block %zu", i);
    }
    CHECK(pthread_create(&threads[0], NULL, take_and_free, NULL) == 0, "no thread");
    CHECK(pthread_create(&threads[1], NULL, ask, NULL) == 0, "no thread");
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        CHECK(pthread_join(threads[i], NULL) == 0, "not joined");
    }
    for (size_t i = 0; i < FILL_COUNT; i++) {
        mw_free(fill[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_being_freed_may_be_asked_about),
    };
    return suite_run(tests);
}
