// SPDX-License-Identifier: MIT
// Reserve index: against the masks themselves, and between threads.
#include "arena/reserve_index.h"

#include <pthread.h>
#include <stdlib.h>

#include "../unit.h"

enum { CHUNKS = 1000, STEPS = 200000, THREADS = 4 };

static struct reserve_index chunk_index;
static _Atomic(uint32_t) masks[CHUNKS];

static int begin(void **state) {
    (void)state;
    void *const words = calloc(1, reserve_index_bytes(CHUNKS));
    assert_non_null(words);
    reserve_index_init(&chunk_index, words, CHUNKS);
    memset((void *)masks, 0, sizeof masks);
    return 0;
}

static int end(void **state) {
    (void)state;
    free((void *)chunk_index.words);
    return 0;
}

static unsigned longest(uint32_t mask) {
    unsigned most = 0;
    unsigned run = 0;
    for (unsigned i = 0; i < 32; i++) {
        run = (mask >> i & 1U) != 0 ? run + 1 : 0;
        most = run > most ? run : most;
    }
    return most < RESERVE_INDEX_RUN_MAX ? most : RESERVE_INDEX_RUN_MAX;
}

static size_t lowest(unsigned run, size_t from) {
    while (from < CHUNKS && longest(atomic_load(&masks[from])) < run) {
        from++;
    }
    return from < CHUNKS ? from : RESERVE_INDEX_NONE;
}

static void change(struct unit_chance *chance, size_t chunk) {
    const uint32_t bits = (uint32_t)unit_next(chance) << unit_below(chance, 32);
    const bool gives = unit_below(chance, 3) == 0;
    if (gives) {
        atomic_fetch_or(&masks[chunk], bits);
    } else {
        atomic_fetch_and(&masks[chunk], unit_below(chance, 4) == 0 ? 0 : ~bits);
    }
    reserve_index_note(&chunk_index, chunk, &masks[chunk], gives);
}

static void check(void) {
    for (unsigned run = 1; run <= RESERVE_INDEX_RUN_MAX; run++) {
        for (size_t from = 0; from != RESERVE_INDEX_NONE;) {
            const size_t expected = lowest(run, from);
            assert_int_equal(reserve_index_find(&chunk_index, run, from), expected);
            from = expected == RESERVE_INDEX_NONE ? expected : expected + 1;
        }
    }
}

CASE(the_longest_run_of_a_mask_is_known) {
    struct unit_chance chance = unit_chance_begin();
    assert_int_equal(reserve_index_run(0), 0);
    assert_int_equal(reserve_index_run(UINT32_MAX), RESERVE_INDEX_RUN_MAX);
    for (unsigned i = 0; i < STEPS; i++) {
        const uint32_t mask = (uint32_t)unit_next(&chance) | (uint32_t)unit_next(&chance);
        assert_int_equal(reserve_index_run(mask), longest(mask));
    }
}

CASE(the_lowest_chunk_with_such_a_run_is_found) {
    struct unit_chance chance = unit_chance_begin();
    check();
    for (unsigned step = 0; step < STEPS / 10; step++) {
        change(&chance, unit_below(&chance, CHUNKS));
        const unsigned run = 1 + unit_below(&chance, RESERVE_INDEX_RUN_MAX);
        assert_int_equal(reserve_index_find(&chunk_index, run, 0), lowest(run, 0));
        const size_t from = unit_below(&chance, CHUNKS);
        assert_int_equal(reserve_index_find(&chunk_index, run, from), lowest(run, from));
    }
    check();
    reserve_index_clear(&chunk_index);
    assert_int_equal(reserve_index_find(&chunk_index, 1, 0), RESERVE_INDEX_NONE);
}

// All of them at the same few words.
static void *change_many(void *argument) {
    struct unit_chance chance = {(uintptr_t)argument};
    for (unsigned step = 0; step < STEPS; step++) {
        change(&chance, unit_below(&chance, 20));
    }
    return NULL;
}

CASE(what_threads_have_told_is_what_the_masks_say) {
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, change_many, (void *)(i + 1)), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    check();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_run_of_a_mask_is_known),
        cmocka_unit_test_setup_teardown(the_lowest_chunk_with_such_a_run_is_found, begin, end),
        cmocka_unit_test_setup_teardown(what_threads_have_told_is_what_the_masks_say, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
