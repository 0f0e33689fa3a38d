// SPDX-License-Identifier: MIT
// Blocks that move while other threads free what has moved: realloc has no time for others' frees in
// a call that needs a slab, and there may be no other calls. Without the background thread.
#include <mallow/heap.h>
#include <mallow/limit.h>
#include <mallow/mallow.h>
#include <mallow/options.h>

#include "../support/suite.h"

#include <pthread.h>

enum {
    ROUND_BYTES = 4 << 20, // in blocks, each round
    ROUNDS = 24,
    KEPT_SHARE = 16, // of a round's blocks, one is kept
    KEPT_ROUNDS = 8, // for so long
    ROUND_BLOCKS_MAX = ROUND_BYTES / 200,
};

static void *blocks[ROUND_BLOCKS_MAX];
static void *kept[KEPT_ROUNDS][ROUND_BLOCKS_MAX / KEPT_SHARE + 1];
static size_t block_count;
static struct mw_heap *heap; // NULL: the thread's own
static pthread_barrier_t filled, freed;

static void *free_most(void *argument)
{
    (void)argument;
    for (unsigned round = 0; round < ROUNDS; round++) {
        (void)pthread_barrier_wait(&filled);
        for (size_t i = 0; i < block_count; i++) {
            if (i % KEPT_SHARE == 0) {
                void **const place = &kept[round % KEPT_ROUNDS][i / KEPT_SHARE];
                mw_free(*place);
                *place = blocks[i];
            } else {
                mw_free(blocks[i]);
            }
        }
        (void)pthread_barrier_wait(&freed);
    }
    for (unsigned i = 0; i < KEPT_ROUNDS; i++) {
        for (size_t j = 0; j < COUNT_OF(kept[i]); j++) {
            mw_free(kept[i][j]);
            kept[i][j] = NULL;
        }
    }
    return NULL;
}

static size_t held_bytes(void)
{
    struct mw_limits limits = {.size_bytes = sizeof limits};
    CHECK(mw_limits_get(&limits), "no limits");
    return limits.held_bytes;
}

// Each block is allocated as `from` bytes and then becomes one of `to`. What a round leaves free
// serves the next one.
static void move_all(size_t from, size_t to)
{
    pthread_t thread;
    size_t most = 0;
    (void)mw_collect(true);
    const size_t before = held_bytes();
    block_count = ROUND_BYTES / to;
    CHECK(pthread_create(&thread, NULL, free_most, NULL) == 0, "no thread");
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < block_count; i++) {
            void *const block = heap != NULL ? mw_heap_malloc(heap, from) : mw_malloc(from);
            CHECK(block != NULL, "%zu bytes", from);
            blocks[i] = heap != NULL ? mw_heap_realloc(heap, block, to) : mw_realloc(block, to);
            CHECK(blocks[i] != NULL && blocks[i] != block, "%zu to %zu bytes", from, to);
        }
        const size_t held = held_bytes();
        most = held > most ? held : most;
        (void)pthread_barrier_wait(&filled);
        (void)pthread_barrier_wait(&freed);
    }
    CHECK(pthread_join(thread, NULL) == 0, "not joined");
    // Where nothing is used again, what is kept pins nearly every slab of eight rounds.
    CHECK(most - before < 13 * (size_t)ROUND_BYTES / 2, "%zu to %zu bytes: %zu KiB held", from, to,
          (most - before) / KIB);
}

static void what_others_free_is_used_again_by_blocks_that_move(void **state)
{
    (void)state;
    static const size_t froms[] = {1000, 8000, 30000, 100000, 2 * MIB};
    static const size_t tos[] = {200, 3000};
    for (size_t i = 0; i < COUNT_OF(froms); i++) {
        for (size_t j = 0; j < COUNT_OF(tos); j++) {
            if (froms[i] > 2 * tos[j]) {
                move_all(froms[i], tos[j]);
            }
        }
    }
}

static void so_it_is_in_a_heap_of_its_own(void **state)
{
    const struct mw_heap_config config = {.size_bytes = sizeof config};
    (void)state;
    CHECK(mw_heap_create(&config, &heap) == MW_HEAP_OK, "no heap");
    move_all(1000, 3000);
    mw_heap_destroy(heap);
    heap = NULL;
}

int main(void)
{
    CHECK(mw_option_set("background", "0") == 0, "no option");
    CHECK(pthread_barrier_init(&filled, NULL, 2) == 0, "no barrier");
    CHECK(pthread_barrier_init(&freed, NULL, 2) == 0, "no barrier");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_others_free_is_used_again_by_blocks_that_move),
        cmocka_unit_test(so_it_is_in_a_heap_of_its_own),
    };
    return suite_run(tests);
}
