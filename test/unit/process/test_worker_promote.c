// SPDX-License-Identifier: MIT
// When the worker makes huge pages: only while the program neither faults nor changes mappings, one at
// a time, with rests between. Works without huge pages, too: then nothing is made.
#include "process/worker.h"

#include <sys/mman.h>

#include "../heap/heap_world.h"
#include "os/os_huge.h"

static struct heap_world world;
static struct worker worker;

static int begin(void **state) {
    (void)state;
    heap_world_begin(&world);
    memset(&worker, 0, sizeof worker);
    worker.os = &world.arena.os;
    worker.arenas = &world.arena.arenas;
    worker.huges = &world.huges;
    worker.holes.shared = &world.shared;
    worker.state = WORKER_RUNNING;
    promote_init(&worker.promote, worker.arenas, worker.huges, true);
    worker.promote_asked = true;
    return 0;
}

static int end(void **state) {
    (void)state;
    heap_holes_forget(&worker.holes);
    heap_world_end(&world);
    return 0;
}

static uint64_t made(void) {
    return atomic_load(&worker.promote.made_count);
}

// Two chunks, at least, that are full of touched slices.
static void fill(void) {
    for (;;) {
        const struct arena_span span = arena_take(worker.arenas, 1, 1);
        assert_non_null(span.slab);
        if (!arena_has_slab(&worker.arenas->primary, span.slab)) {
            return;
        }
        memset((void *)span.address, 1, MALLOW_SLICE_BYTES);
    }
}

static void ripen(void) {
    fill();
    for (unsigned i = 0; i <= PROMOTE_PATIENCE; i++) {
        assert_true(worker_look_for_huge(&worker, 0));
    }
}

static void touch_pages(size_t count) {
    unsigned char *const pages =
        mmap(NULL, count * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(pages, MAP_FAILED);
    for (size_t i = 0; i < count; i++) {
        ((volatile unsigned char *)pages)[i * 4096] = 1;
    }
    assert_int_equal(munmap(pages, count * 4096), 0);
}

static void need_kernel(void) {
    if (os_huge_setting(worker.os) == OS_HUGE_NEVER || !worker.promote.able ||
        worker.os->page_bytes != 4096) {
        print_message("no huge pages here\n");
        skip();
    }
}

CASE(in_a_calm_program_ripe_chunks_become_huge_while_it_rests) {
    ripen();
    assert_true(worker.calm);
    for (unsigned i = 0; i < 50 && worker.promote.left; i++) {
        worker_rest(&worker, 0);
        (void)worker_look_for_huge(&worker, 0);
    }
    need_kernel();
    assert_true(made() >= 2);
    assert_false(worker_look_for_huge(&worker, 0)); // and nothing is left to stay for
}

CASE(not_while_the_program_faults) {
    ripen();
    touch_pages(100);
    worker_rest(&worker, 0);
    assert_int_equal(made(), 0);
    assert_false(worker.calm);
    touch_pages(100);
    assert_true(worker_look_for_huge(&worker, 0)); // it is still to come
    assert_false(worker.calm);
    worker_rest(&worker, 0);
    assert_int_equal(made(), 0);
    (void)worker_look_for_huge(&worker, 0);
    assert_true(worker.calm);
    worker_rest(&worker, 0);
    need_kernel();
    assert_true(made() >= 1);
}

CASE(not_while_the_heap_asks_the_kernel_for_memory) {
    ripen();
    for (unsigned i = 0; i < 5; i++) {
        const uintptr_t address = os_map(worker.os, 4096, 1);
        assert_true(os_unmap(worker.os, address, 4096));
    }
    worker_rest(&worker, 0);
    assert_int_equal(made(), 0);
    assert_true(worker.promote.left);
}

CASE(the_worker_s_own_calls_do_not_count) {
    ripen();
    for (unsigned i = 0; i < 10; i++) {
        (void)os_unmap(worker.os, os_map(worker.os, 4096, 1), 4096);
    }
    (void)worker_look_for_huge(&worker, 20);
    assert_true(worker.calm);
}

CASE(it_rests_after_each_for_as_long_as_that_took) {
    ripen();
    const uint64_t start = worker_now_ms();
    while (made() < 2 && worker.promote.left && worker_now_ms() - start < 30000) {
        const uint64_t at = worker.promote_at_us;
        worker_rest(&worker, 0);
        assert_true(worker.promote_at_us >= at);
        (void)worker_look_for_huge(&worker, 0);
    }
    need_kernel();
    assert_true(worker_now_ms() - start + 8 >= 20); // a gap between two
}

CASE(it_looks_up_when_the_bell_rings) {
    atomic_store(&worker.bell, 1);
    const uint64_t start = worker_now_ms();
    worker_rest(&worker, 0);
    assert_true(worker_now_ms() - start < MALLOW_TICK_MS);
}

CASE(the_system_is_asked_once_and_its_never_is_final) {
    worker.promote_asked = false;
    const bool may = worker_may_promote(&worker);
    assert_int_equal(may, os_huge_setting(worker.os) != OS_HUGE_NEVER &&
                              os_limit(worker.os) == SIZE_MAX);
    assert_true(worker.promote_asked);
    promote_deny(&worker.promote);
    assert_false(worker_may_promote(&worker));
    fill();
    assert_false(worker_look_for_huge(&worker, 0));
}

CASE(where_address_space_is_limited_it_is_denied) {
    worker.promote_asked = false;
    worker.os->address_space_limit = (size_t)1 << 40;
    assert_false(worker_may_promote(&worker));
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define CASE_ENTRY(name) cmocka_unit_test_setup_teardown(name, begin, end)
        CASE_ENTRY(in_a_calm_program_ripe_chunks_become_huge_while_it_rests),
        CASE_ENTRY(not_while_the_program_faults),
        CASE_ENTRY(not_while_the_heap_asks_the_kernel_for_memory),
        CASE_ENTRY(the_worker_s_own_calls_do_not_count),
        CASE_ENTRY(it_rests_after_each_for_as_long_as_that_took),
        CASE_ENTRY(it_looks_up_when_the_bell_rings),
        CASE_ENTRY(the_system_is_asked_once_and_its_never_is_final),
        CASE_ENTRY(where_address_space_is_limited_it_is_denied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
