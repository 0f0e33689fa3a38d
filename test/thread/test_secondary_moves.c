// SPDX-License-Identifier: MIT
// Blocks that move out of full slabs beyond the primary arena (ctest sets MALLOW_ARENA_RESERVE): what
// is free then, and is in no bitmap, is found again when the thread ends.
#include <mallow/mallow.h>

#include "../support/suite.h"

#include <pthread.h>

enum {
    PRIMARY_BYTES = 8 << 20, // as MALLOW_ARENA_RESERVE says
    LARGE_BYTES = 1 << 20,
    BLOCK_BYTES = 64,
    BLOCK_COUNT = (20 << 20) / BLOCK_BYTES, // a heap that large lends (decision 42)
    THREADS = 16,                           // one after another
    SECONDS_MAX = 60,
};

static void **blocks;

static void *move_one_and_end(void *argument)
{
    const size_t moves = *(const size_t *)argument; // one in the middle of what is full
    for (size_t i = 0; i < BLOCK_COUNT; i++) {
        blocks[i] = mw_malloc(BLOCK_BYTES);
        CHECK(blocks[i] != NULL, "block %zu", i);
    }
    blocks[moves] = mw_realloc(blocks[moves], 5 * BLOCK_BYTES);
    CHECK(blocks[moves] != NULL, "not moved");
    return NULL;
}

static void what_a_full_slab_lends_comes_back_in_any_arena(void **state)
{
    void *large[2 * PRIMARY_BYTES / LARGE_BYTES];
    (void)state;
    blocks = mw_malloc(BLOCK_COUNT * sizeof *blocks);
    CHECK(blocks != NULL, "no list");
    for (size_t i = 0; i < COUNT_OF(large); i++) { // no slab comes to lie in the primary arena
        large[i] = mw_malloc(LARGE_BYTES);
        CHECK(large[i] != NULL, "large block %zu", i);
    }
    (void)alarm(SECONDS_MAX);
    for (size_t round = 0; round < THREADS; round++) {
        pthread_t thread;
        size_t moves = BLOCK_COUNT / 4 + round * (BLOCK_COUNT / 2 / THREADS);
        CHECK(pthread_create(&thread, NULL, move_one_and_end, &moves) == 0, "no thread");
        CHECK(pthread_join(thread, NULL) == 0, "not joined");
        for (size_t i = 0; i < BLOCK_COUNT; i++) {
            mw_free(blocks[i]);
        }
    }
    (void)alarm(0);
    for (size_t i = 0; i < COUNT_OF(large); i++) {
        mw_free(large[i]);
    }
    mw_free(blocks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_full_slab_lends_comes_back_in_any_arena),
    };
    return suite_run(tests);
}
