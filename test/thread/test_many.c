// SPDX-License-Identifier: MIT
// Many threads alive at once: 3,000 that all hold blocks, and 500 thin ones whose resident size is
// counted. Built for both families (see support/family.h).
#include "../support/family.h"
#include "../support/suite.h"

#include <pthread.h>

enum { MANY = 3000, THIN = 500, THIN_LIMIT_KIB = 16 };

static pthread_barrier_t all_hold;
static pthread_barrier_t may_end;

static void *holding_thread(void *argument)
{
    const size_t number = (size_t)(uintptr_t)argument;
    unsigned char *blocks[24];
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        blocks[i] = fam_malloc(16 << i % 10);
        CHECK(blocks[i] != NULL, "malloc in thread %zu", number);
        tag_fill(blocks[i], 16 << i % 10, number + i);
    }
    pthread_barrier_wait(&all_hold);
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        CHECK(tag_wrong(blocks[i], 16 << i % 10, number + i) == (size_t)(16 << i % 10), "thread %zu", number);
        fam_free(blocks[i]);
    }
    pthread_barrier_wait(&may_end);
    return NULL;
}

static void three_thousand_threads_hold_blocks_at_once(void **state)
{
    (void)state;
    const size_t count = SCALED((size_t)MANY);
    pthread_t *const threads = malloc(count * sizeof *threads);
    pthread_attr_t small_stack;
    pthread_attr_init(&small_stack);
    pthread_attr_setstacksize(&small_stack, 64 * KIB);
    const size_t base = process_rss_kib();
    for (int round = 0; round < 3; round++) {
        pthread_barrier_init(&all_hold, NULL, (unsigned)count + 1);
        pthread_barrier_init(&may_end, NULL, (unsigned)count + 1);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(pthread_create(&threads[i], &small_stack, holding_thread, (void *)(uintptr_t)i), 0);
        }
        pthread_barrier_wait(&all_hold);
        const size_t alive = process_rss_kib();
        pthread_barrier_wait(&may_end);
        for (size_t i = 0; i < count; i++) {
            pthread_join(threads[i], NULL);
        }
        print_message("%zu threads: base %zu, alive %zu, after %zu KiB\n", count, base, alive, process_rss_kib());
        // 33 KiB of live blocks and the thread's own stack pages, in classes of their own.
        assert_true(alive < base + count * 160 || !FIGURES_COUNT);
    }
    free(threads);
}

static void *thin_thread(void *unused)
{
    (void)unused;
    void *blocks[40];
    for (size_t i = 0; i < COUNT_OF(blocks); i++) { // about 4 KB live, in a few sizes
        const size_t size = 40 + i % 4 * 40;
        blocks[i] = fam_malloc(size);
        CHECK(blocks[i] != NULL, "malloc");
        memset(blocks[i], 1, size);
    }
    pthread_barrier_wait(&all_hold);
    pthread_barrier_wait(&may_end);
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        fam_free(blocks[i]);
    }
    return NULL;
}

static void five_hundred_thin_threads_stay_thin(void **state)
{
    (void)state;
    if (!FIGURES_COUNT) {
        skip();
    }
    static pthread_t threads[THIN];
    pthread_barrier_init(&all_hold, NULL, THIN + 1);
    pthread_barrier_init(&may_end, NULL, THIN + 1);
    const size_t base = process_rss_kib();
    for (size_t i = 0; i < THIN; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, thin_thread, NULL), 0);
    }
    pthread_barrier_wait(&all_hold);
    const size_t alive = process_rss_kib();
    pthread_barrier_wait(&may_end);
    for (size_t i = 0; i < THIN; i++) {
        pthread_join(threads[i], NULL);
    }
    const double each = (double)(alive - base) / THIN;
    print_message("a thin thread: %.1f KiB resident, its stack included\n", each);
    assert_true(each <= THIN_LIMIT_KIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(five_hundred_thin_threads_stay_thin), // first: in a fresh process
        cmocka_unit_test(three_thousand_threads_hold_blocks_at_once),
    };
    return suite_run(tests);
}
