// SPDX-License-Identifier: MIT
// The end of a thread: destructors of pthread keys that allocate through all their rounds, before and
// after the allocator's own destructor has run. Built for both families (see support/family.h).
#include "../support/family.h"
#include "../support/suite.h"

#include <pthread.h>
#include <stdatomic.h>

enum { KEYS = 3 };
static pthread_key_t keys[KEYS];
static atomic_size_t destructor_runs;
static _Thread_local void *carried[KEYS][4]; // blocks that outlive one round

// Index and round packed into a key's value, which must not be NULL.
static void *key_value(size_t index, size_t round)
{
    return (void *)(uintptr_t)(1 + index + round * KEYS);
}

static size_t key_index(const void *value)
{
    return ((uintptr_t)value - 1) % KEYS;
}

static size_t key_round(const void *value)
{
    return ((uintptr_t)value - 1) / KEYS;
}

// Sets its key again, so that the C library calls it in all PTHREAD_DESTRUCTOR_ITERATIONS rounds.
static void allocating_destructor(void *value)
{
    const size_t index = key_index(value);
    const size_t round = key_round(value);
    for (size_t i = 0; i < 10; i++) {
        const size_t size = 40 + 300 * i;
        unsigned char *const block = fam_malloc(size);
        CHECK(block != NULL, "malloc in a destructor");
        tag_fill(block, size, round + i);
        unsigned char *const other = fam_calloc(1, size);
        CHECK(nonzero_at(other, size) == size, "calloc in a destructor");
        CHECK(tag_wrong(block, size, round + i) == size, "a block of a destructor changed");
        fam_free(block);
        fam_free(other);
    }
    if (round > 0) {
        CHECK(tag_wrong(carried[index][round - 1], 500, round) == 500, "carried block changed");
        fam_free(carried[index][round - 1]);
    }
    if (round + 1 < 4) {
        carried[index][round] = fam_malloc(500);
        tag_fill(carried[index][round], 500, round + 1);
        pthread_setspecific(keys[index], key_value(index, round + 1));
    }
    atomic_fetch_add(&destructor_runs, 1);
}

static void *thread_with_destructors(void *first_use)
{
    for (size_t i = 0; i < KEYS; i++) {
        pthread_setspecific(keys[i], key_value(i, 0));
    }
    if (first_use != NULL) { // half of the threads use the allocator before they end, half only then
        fam_free(fam_malloc(100));
    }
    return NULL;
}

static void destructors_may_allocate_in_every_round(void **state)
{
    (void)state;
    pthread_attr_t small_stack;
    pthread_attr_init(&small_stack);
    pthread_attr_setstacksize(&small_stack, 64 * KIB);
    const size_t count = SCALED(20000u);
    size_t settled = 0;
    for (size_t number = 0; number < count; number++) {
        pthread_t thread;
        assert_int_equal(
            pthread_create(&thread, &small_stack, thread_with_destructors, (void *)(uintptr_t)(number % 2)), 0);
        pthread_join(thread, NULL);
        if (number == count / 20) {
            settled = process_rss_kib();
        }
    }
    const size_t after = process_rss_kib();
    print_message("resident settled: %zu KiB, after %zu threads: %zu KiB\n", settled, count, after);
    assert_int_equal(atomic_load(&destructor_runs), count * KEYS * 4);
    assert_true(after <= settled + KIB || !FIGURES_COUNT);
}

// ---- Blocks made after the last destructor, freed by another thread, and the reverse ---------------

enum { LATE = 2000 };
static pthread_key_t late_key;
static void *late_blocks[LATE];

static void late_destructor(void *value)
{
    const size_t packed = (size_t)(uintptr_t)value;
    const size_t round = packed % 10;
    const size_t number = packed / 10;
    if (round < 4) {
        pthread_setspecific(late_key, (void *)(uintptr_t)(packed + 1));
        return;
    }
    // The fourth and last round: every destructor of lower keys ran before, the allocator's as well.
    fam_free(late_blocks[number]);
    late_blocks[number] = fam_malloc(100 + number % 1000);
    CHECK(late_blocks[number] != NULL, "malloc at the very end");
    tag_fill(late_blocks[number], 100 + number % 1000, number);
}

static void *thread_that_ends_late(void *argument)
{
    const size_t number = (size_t)(uintptr_t)argument;
    late_blocks[number] = fam_malloc(333);
    pthread_setspecific(late_key, (void *)(uintptr_t)(number * 10 + 1));
    return NULL;
}

static void blocks_of_the_last_moment_are_whole(void **state)
{
    (void)state;
    assert_int_equal(pthread_key_create(&late_key, late_destructor), 0);
    for (size_t round = 0; round < 4; round++) {
        for (size_t number = 0; number < LATE; number += 8) {
            pthread_t threads[8];
            for (size_t i = 0; i < 8; i++) {
                pthread_create(&threads[i], NULL, thread_that_ends_late, (void *)(uintptr_t)(number + i));
            }
            for (size_t i = 0; i < 8; i++) {
                pthread_join(threads[i], NULL);
            }
        }
        for (size_t number = 0; number < LATE; number++) {
            const size_t size = 100 + number % 1000;
            assert_int_equal(tag_wrong(late_blocks[number], size, number), size);
            fam_free(late_blocks[number]);
        }
    }
    pthread_key_delete(late_key);
}

int main(void)
{
    for (size_t i = 0; i < KEYS; i++) {
        pthread_key_create(&keys[i], allocating_destructor);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(destructors_may_allocate_in_every_round),
        cmocka_unit_test(blocks_of_the_last_moment_are_whole),
    };
    return suite_run(tests);
}
