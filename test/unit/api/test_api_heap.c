// SPDX-License-Identifier: MIT
// mallow/heap.h: calls for one heap by two threads at once.
#include "api/api_heap.h"

#include <pthread.h>

#include "../unit.h"
#include "process/process.h"

enum { MIB = 1 << 20 };

static struct mw_heap *heap;

static void check_limits(uint64_t limit_bytes, uint64_t soft_bytes) {
    struct mw_heap_stats stats = {.size_bytes = sizeof stats};
    assert_true(mw_heap_stats_get(heap, &stats));
    assert_int_equal(stats.limit_bytes, limit_bytes);
    assert_int_equal(stats.soft_bytes, soft_bytes);
}

static void *set_limits(void *unused) {
    (void)unused;
    assert_int_equal(mw_heap_set_limits(heap, 32 * MIB, 16 * MIB), MW_HEAP_OK);
    return NULL;
}

// So one thread's soft limit is not with another's hard one.
CASE(both_limits_are_set_under_the_lock_of_those_of_the_process) {
    const struct mw_heap_config config = {.size_bytes = sizeof config};
    struct os_lock *const lock = &process_ready()->start_lock;
    pthread_t setter;
    assert_int_equal(mw_heap_create(&config, &heap), MW_HEAP_OK);
    os_lock_take(lock);
    assert_int_equal(pthread_create(&setter, NULL, set_limits, NULL), 0);
    usleep(50000);
    check_limits(UINT64_MAX, UINT64_MAX);
    os_lock_drop(lock);
    assert_int_equal(pthread_join(setter, NULL), 0);
    check_limits(32 * MIB, 16 * MIB);
    mw_heap_destroy(heap);
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(both_limits_are_set_under_the_lock_of_those_of_the_process),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
