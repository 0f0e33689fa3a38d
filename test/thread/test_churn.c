// SPDX-License-Identifier: MIT
// Threads that come and go: what they leave behind must be usable and releasable by the living, and
// the process must not grow with their number. Built for both families (see support/family.h).
#include "../support/family.h"
#include "../support/suite.h"

#include <malloc.h>
#include <pthread.h>

#ifdef TEST_FAMILY_MW
#define give_back_memory() ((void)mw_collect(true))
#else
#define give_back_memory() ((void)malloc_trim(0))
#endif

static pthread_attr_t small_stack;

static void run_thread(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, &small_stack, body, argument) == 0, "pthread_create");
    CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
}

// ---- 100,000 threads, each leaves one block alive and frees one of a thread long dead -------------

enum { SURVIVORS = 1000, BLOCKS_A_THREAD = 20 };
static struct {
    unsigned char *block;
    size_t size;
    uint64_t tag;
} survivors[SURVIVORS];

static void *churning_thread(void *argument)
{
    const uint64_t number = (uint64_t)(uintptr_t)argument;
    struct chance chance = {number};
    void *blocks[BLOCKS_A_THREAD];
    for (size_t i = 0; i < BLOCKS_A_THREAD; i++) {
        const size_t size = 1 + chance_below(&chance, 600);
        blocks[i] = fam_malloc(size);
        CHECK(blocks[i] != NULL, "malloc");
        tag_fill(blocks[i], size, i);
    }
    const size_t slot = number % SURVIVORS;
    if (survivors[slot].block != NULL) {
        CHECK(tag_wrong(survivors[slot].block, survivors[slot].size, survivors[slot].tag) == survivors[slot].size,
              "the survivor in slot %zu changed", slot);
        fam_free(survivors[slot].block);
    }
    survivors[slot].size = 1 + chance_below(&chance, 600);
    survivors[slot].tag = number;
    survivors[slot].block = fam_malloc(survivors[slot].size);
    tag_fill(survivors[slot].block, survivors[slot].size, number);
    for (size_t i = 0; i < BLOCKS_A_THREAD; i++) {
        fam_free(blocks[i]);
    }
    return NULL;
}

static void a_hundred_thousand_threads_with_survivors_do_not_grow_the_process(void **state)
{
    (void)state;
    const size_t count = SCALED(100000u);
    size_t settled = 0;
    for (size_t number = 1; number <= count; number++) {
        run_thread(churning_thread, (void *)(uintptr_t)number);
        if (number == count / 10) {
            settled = process_rss_kib();
        }
    }
    const size_t after = process_rss_kib();
    print_message("resident after a tenth: %zu KiB, after all: %zu KiB\n", settled, after);
    for (size_t slot = 0; slot < SURVIVORS; slot++) {
        fam_free(survivors[slot].block);
        survivors[slot].block = NULL;
    }
    assert_true(after <= settled + 256 || !FIGURES_COUNT);
}

// ---- 20,000 orphans: all blocks of dead threads, freed by the main thread -------------------------

enum { ORPHAN_THREADS = 20000, ORPHAN_BLOCKS = 6 };
static void *orphans[ORPHAN_THREADS][ORPHAN_BLOCKS];

static void *orphaning_thread(void *argument)
{
    const size_t number = (size_t)(uintptr_t)argument;
    for (size_t i = 0; i < ORPHAN_BLOCKS; i++) {
        orphans[number][i] = fam_malloc(100 + 200 * i);
        CHECK(orphans[number][i] != NULL, "malloc");
        tag_fill(orphans[number][i], 100 + 200 * i, number);
    }
    return NULL;
}

static void twenty_thousand_dead_threads_leave_nothing_behind(void **state)
{
    (void)state;
    const size_t count = SCALED((size_t)ORPHAN_THREADS);
    size_t after_first = 0;
    size_t after = 0;
    for (int round = 0; round < 3; round++) {
        for (size_t number = 0; number < count; number++) {
            run_thread(orphaning_thread, (void *)(uintptr_t)number);
        }
        const size_t full = process_rss_kib();
        for (size_t number = 0; number < count; number++) {
            for (size_t i = 0; i < ORPHAN_BLOCKS; i++) {
                CHECK(tag_wrong(orphans[number][i], 100 + 200 * i, number) == 100 + 200 * i, "orphan changed");
                fam_free(orphans[number][i]);
            }
        }
        give_back_memory();
        after = process_rss_kib();
        print_message("all alive: %zu KiB; freed: %zu KiB\n", full, after);
        if (round == 0) {
            after_first = after;
            assert_true(after < full / 4 || !FIGURES_COUNT); // 72 MB of blocks went back
        }
    }
    assert_true(after <= after_first + 512 || !FIGURES_COUNT);
}

// ---- Hand-over: a living thread uses and releases what a dead one left ----------------------------

enum { LEFT_SIZE = 200, LEFT_COUNT = 300000 };
static void *left[LEFT_COUNT];

static void *leaving_thread(void *unused)
{
    (void)unused;
    for (size_t i = 0; i < LEFT_COUNT; i++) {
        left[i] = fam_malloc(LEFT_SIZE);
        CHECK(left[i] != NULL, "malloc");
        tag_fill(left[i], LEFT_SIZE, i);
    }
    for (size_t i = 0; i < LEFT_COUNT; i += 2) { // half of every slab is free when the thread ends
        fam_free(left[i]);
        left[i] = NULL;
    }
    return NULL;
}

static void a_living_thread_uses_and_releases_what_a_dead_one_left(void **state)
{
    (void)state;
    fam_free(fam_malloc(LEFT_SIZE)); // this thread had a heap before
    give_back_memory();
    const size_t base = process_rss_kib();
    run_thread(leaving_thread, NULL);
    const size_t inherited = process_rss_kib();
    for (size_t i = 0; i < LEFT_COUNT; i += 2) { // as much again fits into the holes
        left[i] = fam_malloc(LEFT_SIZE);
        tag_fill(left[i], LEFT_SIZE, i);
    }
    const size_t refilled = process_rss_kib();
    for (size_t i = 0; i < LEFT_COUNT; i++) {
        CHECK(tag_wrong(left[i], LEFT_SIZE, i) == LEFT_SIZE, "block %zu changed", i);
        fam_free(left[i]);
    }
    give_back_memory();
    const size_t released = process_rss_kib();
    print_message("base %zu, inherited %zu, refilled %zu, released %zu KiB\n", base, inherited, refilled, released);
    if (FIGURES_COUNT) {
        assert_true(refilled < inherited + 8 * KIB); // 30 MB were asked for
        assert_true(released < base + 4 * KIB);
    }
}

// ---- A thread that sleeps for ever holds on to nothing that others have freed -----------------------

static pthread_barrier_t owner_filled;
static pthread_barrier_t owner_may_end;

static void *sleeping_owner(void *unused)
{
    (void)unused;
    for (size_t i = 0; i < LEFT_COUNT; i++) {
        left[i] = fam_malloc(LEFT_SIZE);
        CHECK(left[i] != NULL, "malloc");
        tag_fill(left[i], LEFT_SIZE, i);
    }
    pthread_barrier_wait(&owner_filled);
    pthread_barrier_wait(&owner_may_end);
    return NULL;
}

static void a_sleeping_thread_holds_on_to_nothing_that_others_freed(void **state)
{
    (void)state;
    pthread_barrier_init(&owner_filled, NULL, 2);
    pthread_barrier_init(&owner_may_end, NULL, 2);
    give_back_memory();
    const size_t base = process_rss_kib();
    pthread_t owner;
    assert_int_equal(pthread_create(&owner, &small_stack, sleeping_owner, NULL), 0);
    pthread_barrier_wait(&owner_filled);
    const size_t full = process_rss_kib();
    for (size_t i = 0; i < LEFT_COUNT; i++) {
        CHECK(tag_wrong(left[i], LEFT_SIZE, i) == LEFT_SIZE, "block %zu changed", i);
        fam_free(left[i]);
    }
    give_back_memory();
    const size_t freed = process_rss_kib();
    for (size_t i = 0; i < LEFT_COUNT; i++) { // as much again, from this thread
        left[i] = fam_malloc(LEFT_SIZE);
        tag_fill(left[i], LEFT_SIZE, i);
    }
    const size_t again = process_rss_kib();
    for (size_t i = 0; i < LEFT_COUNT; i++) {
        fam_free(left[i]);
    }
    pthread_barrier_wait(&owner_may_end);
    pthread_join(owner, NULL);
    print_message("base %zu, full %zu, freed by others %zu, allocated again %zu KiB\n", base, full, freed, again);
    if (FIGURES_COUNT) {
        assert_true(freed < base + (full - base) / 4); // given back while the owner sleeps
        assert_true(again < full + 8 * KIB);
    }
}

int main(void)
{
    pthread_attr_init(&small_stack);
    pthread_attr_setstacksize(&small_stack, 64 * KIB);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sleeping_thread_holds_on_to_nothing_that_others_freed),
        cmocka_unit_test(a_living_thread_uses_and_releases_what_a_dead_one_left),
        cmocka_unit_test(twenty_thousand_dead_threads_leave_nothing_behind),
        cmocka_unit_test(a_hundred_thousand_threads_with_survivors_do_not_grow_the_process),
    };
    return suite_run(tests);
}
