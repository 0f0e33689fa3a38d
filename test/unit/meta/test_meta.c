// SPDX-License-Identifier: MIT
// Meta: memory for our own structures.
#include "meta/meta.h"

#include <pthread.h>
#include <sys/resource.h>

#include "../unit.h"

static struct os os;
static struct meta meta;

static int begin(void **state) {
    (void)state;
    memset(&os, 0, sizeof os);
    memset(&meta, 0, sizeof meta);
    os_init(&os);
    os.address_space_limit = SIZE_MAX; // also where the tests run under one
    meta_init(&meta, &os);
    return 0;
}

static void touch(void *address) {
    *(volatile char *)address = 1;
}

static bool faults(uintptr_t address) {
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        touch((void *)address);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status);
}

CASE(structures_are_zero_on_lines_of_their_own_and_never_overlap) {
    enum { COUNT = 2000 };
    static unsigned char *taken[COUNT];
    static size_t sizes[COUNT];
    struct unit_chance chance = unit_chance_begin();
    for (unsigned i = 0; i < COUNT; i++) {
        sizes[i] = 1 + unit_below(&chance, i % 100 == 0 ? 200000 : 300);
        taken[i] = meta_take(&meta, sizes[i]);
        assert_non_null(taken[i]);
        assert_int_equal((uintptr_t)taken[i] % MALLOW_CACHE_LINE, 0);
        assert_int_equal(taken[i][0], 0);
        assert_true(unit_is_all(taken[i], 0, sizes[i]));
        memset(taken[i], (int)(i % 250 + 1), sizes[i]);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(taken[i][0], i % 250 + 1);
        assert_true(unit_is_all(taken[i], (unsigned char)(i % 250 + 1), sizes[i]));
    }
}

CASE(the_counters_add_up) {
    assert_int_equal(meta.used_bytes, 0);
    (void)meta_take(&meta, 1);
    assert_int_equal(meta.used_bytes, MALLOW_CACHE_LINE);
    assert_int_equal(meta.committed_bytes, 256 << 10);
    (void)meta_take(&meta, 100);
    assert_int_equal(meta.used_bytes, 3 * MALLOW_CACHE_LINE);
    (void)meta_take(&meta, 300000);
    assert_true(meta.committed_bytes >= (256 << 10) + 300000);
    const uint64_t maps = os.map_count;
    assert_int_equal(maps, 3); // one reservation, and two steps
    while (meta.bump_end - meta.bump >= MALLOW_CACHE_LINE) { // to the end of the region
        (void)meta_take(&meta, MALLOW_CACHE_LINE);
    }
    assert_int_equal(os.map_count, maps);
}

CASE(what_is_lent_is_handed_out_before_a_region_is_made) {
    static _Alignas(MALLOW_CACHE_LINE) unsigned char lent[1024];
    meta_lend(&meta, lent, sizeof lent);
    assert_int_equal(meta.committed_bytes, sizeof lent);
    assert_ptr_equal(meta_take(&meta, 1), lent);
    assert_ptr_equal(meta_take(&meta, 1024 - MALLOW_CACHE_LINE), lent + MALLOW_CACHE_LINE);
    assert_int_equal(os.map_count, 0);
    const uintptr_t next = (uintptr_t)meta_take(&meta, 1);
    assert_true(next - (uintptr_t)lent >= sizeof lent);
    assert_int_equal(os.map_count, 2);
    assert_true(faults(next - 1));
}

CASE(a_region_lies_between_two_pages_that_nobody_can_touch) {
    const uintptr_t first = (uintptr_t)meta_take(&meta, 64);
    assert_false(faults(first));
    assert_true(faults(first - 1));
    assert_false(faults(meta.bump_end - 1));
    assert_true(faults(meta.bump_end));
}

CASE(where_address_space_is_limited_late_none_is_kept_ready) {
    meta_confine(&meta); // there is none yet
    touch(meta_take(&meta, 100));
    assert_true(meta.region_end - meta.region > META_REGION_BYTES / 2);
    assert_true(os_confine(&os, (size_t)1 << 30));
    assert_false(os_confine(&os, (size_t)1 << 30)); // no less
    assert_false(os_unconfine(&os, (size_t)1 << 30));
    assert_true(os_is_confined(&os));
    meta_confine(&meta);
    assert_int_equal(meta.region_end, meta.region);
    assert_true(faults(meta.region)); // what is in use lies before a guard yet
    for (unsigned i = 0; i < 5000; i++) {
        touch(meta_take(&meta, 300));
    }
    assert_true(meta.region_end - meta.region < META_REGION_BYTES / 100);
    meta_confine(&meta);
}

static size_t address_space_pages(void) {
    size_t pages = 0;
    FILE *const file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%zu", &pages), 1);
    fclose(file);
    return pages;
}

// No limit that is known of, but nowhere so much in one piece.
CASE(where_a_region_finds_no_room_a_small_one_serves) {
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    const uintptr_t filler = os_reserve(&os, META_REGION_BYTES / 2, 4096);
    assert_int_not_equal(filler, 0);
    struct rlimit limit = before;
    limit.rlim_cur = address_space_pages() * os.page_bytes;
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    assert_true(os_unmap(&os, filler, META_REGION_BYTES / 2));
    void *const first = meta_take(&meta, 64);
    void *second = NULL;
    while (first != NULL && meta.region_end - meta.bump >= 4096) {
        second = meta_take(&meta, 4096);
    }
    second = meta_take(&meta, 4096); // of another region
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_non_null(first);
    assert_non_null(second);
}

CASE(memory_is_prepared_before_it_is_needed) {
    (void)meta_take(&meta, 64);
    assert_false(meta_is_low(&meta));
    while (!meta_is_low(&meta)) {
        (void)meta_take(&meta, 4096);
    }
    const uint64_t maps = os.map_count;
    meta_prepare(&meta);
    assert_int_equal(os.map_count, maps + 1);
    assert_false(meta_is_low(&meta));
    meta_prepare(&meta); // not needed
    assert_int_equal(os.map_count, maps + 1);
    while (!meta_is_low(&meta)) {
        assert_true(unit_is_all(meta_take(&meta, 4096), 0, 4096));
    }
    assert_int_equal(os.map_count, maps + 1);
}

CASE(a_refusal_of_the_kernel_leaves_all_as_it_was) {
    unsigned char *const before = meta_take(&meta, 64);
    const uint64_t used = meta.used_bytes;
    assert_null(meta_take(&meta, (size_t)1 << 60));
    assert_int_equal(meta.used_bytes, used);
    assert_ptr_equal(meta_take(&meta, 64), before + 64);
}

enum { THREADS = 4, EACH = 3000 };
static uint64_t *taken_by[THREADS][EACH];

static void *take_many(void *argument) {
    const size_t me = (size_t)(uintptr_t)argument;
    for (size_t i = 0; i < EACH; i++) {
        taken_by[me][i] = meta_take(&meta, 64);
        *taken_by[me][i] = me * EACH + i + 1;
    }
    return NULL;
}

CASE(threads_get_different_structures) {
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, take_many, (void *)i), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    for (size_t i = 0; i < THREADS * EACH; i++) {
        assert_int_equal(*taken_by[i / EACH][i % EACH], i + 1);
    }
    assert_int_equal(meta.used_bytes, THREADS * EACH * 64);
}

CASE(what_is_fixed_serves_when_the_kernel_does_not) {
    bool locked = false;
    assert_true(meta_fix(&meta, 200000, &locked));
    os.sealed = true;
    size_t taken = 0;
    while (meta_take(&meta, 4096) != NULL) {
        taken += 4096;
    }
    assert_true(taken >= 200000 / 4096 * 4096);
    assert_false(meta_fix(&meta, 200000, &locked));
    os.sealed = false;
    assert_non_null(meta_take(&meta, 4096));
}

#define META_CASE(name) cmocka_unit_test_setup(name, begin)

int main(void) {
    const struct CMUnitTest cases[] = {
        META_CASE(structures_are_zero_on_lines_of_their_own_and_never_overlap),
        META_CASE(the_counters_add_up),
        META_CASE(what_is_lent_is_handed_out_before_a_region_is_made),
        META_CASE(a_region_lies_between_two_pages_that_nobody_can_touch),
        META_CASE(where_a_region_finds_no_room_a_small_one_serves),
        META_CASE(memory_is_prepared_before_it_is_needed),
        META_CASE(where_address_space_is_limited_late_none_is_kept_ready),
        META_CASE(a_refusal_of_the_kernel_leaves_all_as_it_was),
        META_CASE(what_is_fixed_serves_when_the_kernel_does_not),
        META_CASE(threads_get_different_structures),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
