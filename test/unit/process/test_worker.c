// SPDX-License-Identifier: MIT
// The worker's looks and steps, without its thread: what one does, and in how many system calls.
#include "process/worker.h"

#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../heap/heap_world.h"

static struct heap_world world;
static struct worker worker;

// What is given back to the kernel, and what comes of it.
static unsigned given_count;  // calls
static unsigned awaited_at;   // in this one somebody begins to wait for the thread; 0: nobody does
static unsigned refused_count; // the first so many are refused

static bool give(void) {
    given_count++;
    if (given_count == awaited_at) {
        atomic_store(&worker.state, WORKER_STOPPING);
    }
    return given_count > refused_count;
}

bool __real_os_purge(struct os *os, uintptr_t address, size_t bytes);
bool __wrap_os_purge(struct os *os, uintptr_t address, size_t bytes);
bool __wrap_os_purge(struct os *os, uintptr_t address, size_t bytes) {
    return give() && __real_os_purge(os, address, bytes);
}

bool __real_os_unmap(struct os *os, uintptr_t address, size_t bytes);
bool __wrap_os_unmap(struct os *os, uintptr_t address, size_t bytes);
bool __wrap_os_unmap(struct os *os, uintptr_t address, size_t bytes) {
    return give() && __real_os_unmap(os, address, bytes);
}

static int begin(void **state) {
    (void)state;
    awaited_at = refused_count = 0;
    heap_world_begin(&world);
    memset(&worker, 0, sizeof worker);
    worker.os = &world.arena.os;
    worker.arenas = &world.arena.arenas;
    worker.huges = &world.huges;
    worker.holes.shared = &world.shared;
    return 0;
}

static int end(void **state) {
    (void)state;
    heap_holes_forget(&worker.holes);
    heap_world_end(&world);
    return 0;
}

// Large blocks that are freed: dirty slices.
static void leave_dirty(unsigned count) {
    uintptr_t blocks[200];
    for (unsigned i = 0; i < count; i++) {
        blocks[i] = heap_allocate(world.heap, 100000, false);
        memset((void *)blocks[i], 1, 100000);
    }
    for (unsigned i = 0; i < count; i++) {
        assert_true(heap_free(&world.shared, world.heap, blocks[i]));
    }
    assert_true(world.arena.arenas.dirty_slices >= 2 * count);
}

// A huge block that is freed, and kept.
static void give_huge(size_t bytes) {
    worker.huges->cache.worth = bytes;
    worker.huges->cache.limit = bits_max(worker.huges->cache.limit, bytes);
    assert_true(heap_free(&world.shared, world.heap, heap_allocate(world.heap, bytes, false)));
    assert_int_equal(huge_kept(worker.huges), bytes);
}

static uint64_t calls(void) {
    const struct os *const os = &world.arena.os;
    return atomic_load(&os->map_count) + atomic_load(&os->unmap_count) +
           atomic_load(&os->advise_count) + atomic_load(&os->remap_count);
}

// Whatever else there is: what is owed goes, at once, and no more than that.
CASE(what_calls_owe_is_paid_between_looks) {
    leave_dirty(60);
    give_huge(3 << 20);
    worker_pay(&worker);
    const size_t dirty = arena_kept(worker.arenas);
    worker_pay(&worker);
    assert_int_equal(arena_kept(worker.arenas), dirty);
    assert_int_equal(arena_owe(worker.arenas, 1 << 20), 1 << 20);
    assert_int_equal(arena_owe(worker.arenas, 1 << 20), 0); // that is owed already
    assert_int_equal(huge_owe(worker.huges, SIZE_MAX), huge_kept(worker.huges));
    worker_pay(&worker);
    assert_in_range(arena_kept(worker.arenas), dirty - (5 << 18), dirty - (1 << 20));
    assert_int_equal(huge_kept(worker.huges), 0);
    assert_false(arena_owes(worker.arenas) || huge_owes(worker.huges));
}

CASE(the_third_look_gives_back_what_was_free_before_the_first) {
    leave_dirty(30);
    assert_true(worker_tick(&worker));
    assert_true(worker_tick(&worker));
    assert_int_equal(atomic_load(&worker.released_bytes), 0);
    assert_false(worker_tick(&worker)); // and nothing is left
    assert_int_equal(world.arena.arenas.dirty_slices, 0);
    assert_true(atomic_load(&worker.released_bytes) >= 30 * 100000);
}

enum { PIECE_CALLS = 8, ARENAS_MAX = 4 }; // those that are empty are unmapped besides

// Has somebody wait for the thread from its next call on; how many it makes then.
static unsigned give_back_awaited(bool looks) {
    const unsigned before = given_count;
    awaited_at = before + 1;
    if (looks) {
        assert_true(worker_tick(&worker));
    } else {
        worker_pay(&worker);
    }
    assert_int_equal(atomic_load(&worker.state), WORKER_STOPPING);
    atomic_store(&worker.state, WORKER_NONE);
    awaited_at = 0;
    return given_count - before;
}

CASE(a_look_whose_end_is_waited_for_leaves_the_rest_to_the_next) {
    leave_dirty(200);
    give_huge(20 << 20);
    assert_true(worker_tick(&worker));
    assert_true(worker_tick(&worker));
    assert_in_range(give_back_awaited(true), 1, PIECE_CALLS); // of the huge block
    assert_in_range(huge_kept(worker.huges), 1, 19 << 20);
    assert_true(arena_kept(worker.arenas) >= 200 * 100000);
    (void)huge_purge_all(worker.huges);
    assert_in_range(give_back_awaited(true), 1, PIECE_CALLS + ARENAS_MAX); // of the slices
    assert_in_range(arena_kept(worker.arenas), 1, 199 * 100000);
    (void)worker_tick(&worker);
    assert_int_equal(arena_kept(worker.arenas), 0);
}

CASE(what_is_owed_and_not_paid_since_its_end_is_waited_for_stays_owed) {
    leave_dirty(200);
    give_huge(20 << 20);
    const size_t dirty = arena_kept(worker.arenas);
    (void)arena_owe(worker.arenas, dirty);
    (void)huge_owe(worker.huges, SIZE_MAX);
    assert_in_range(give_back_awaited(false), 1, PIECE_CALLS);
    assert_int_equal(arena_kept(worker.arenas), dirty);
    assert_in_range(huge_owed(worker.huges), 1, 19 << 20);
    worker_pay(&worker);
    assert_int_equal(arena_kept(worker.arenas) + huge_kept(worker.huges), 0);
}

// What the program has locked, say: more of it than a piece.
CASE(what_the_kernel_refuses_is_passed_over) {
    leave_dirty(200);
    assert_true(worker_tick(&worker));
    assert_true(worker_tick(&worker));
    refused_count = given_count + PIECE_CALLS + 1;
    (void)worker_tick(&worker);
    assert_in_range(atomic_load(&worker.released_bytes), 1 << 20, SIZE_MAX);
    refused_count = UINT32_MAX; // all of it: there is an end nevertheless
    leave_dirty(200);
    assert_true(worker_tick(&worker));
    assert_true(worker_tick(&worker));
    const uint64_t before = atomic_load(&worker.released_bytes);
    (void)worker_tick(&worker);
    assert_int_equal(atomic_load(&worker.released_bytes), before);
    refused_count = 0;
}

CASE(a_look_leaves_alone_what_is_used_in_between) {
    for (unsigned round = 0; round < 6; round++) {
        leave_dirty(30);
        assert_true(worker_tick(&worker));
    }
    assert_int_equal(atomic_load(&worker.released_bytes), 0);
}

// A full slab that others have freed, whose post lies under another one, is the next heap's: what is
// freed in it then comes to that heap with a look.
CASE(a_look_brings_posts_to_the_next_owners_of_their_slabs) {
    struct heap *const next = heap_adopt_or_create(&world.shared);
    struct slab *slabs[2];
    for (unsigned i = 0; i < 2; i++) {
        slabs[i] = heap_world_fill_slab(world.heap, 8192);
    }
    const size_t count = slabs[0]->room_count;
    for (size_t i = 0; i < count; i++) {
        heap_world_free_elsewhere(&world, slabs[0]->start_address + i * 8192);
        if (i == 0) {
            heap_world_free_elsewhere(&world, slabs[1]->start_address);
        }
    }
    assert_int_equal(slabs[0]->kind, SLAB_NONE);
    while (heap_world_fill_slab(next, 8192) != slabs[0]) {
    }
    heap_world_free_elsewhere(&world, slabs[0]->start_address);
    assert_int_equal(heap_world_posts(next), 0);
    (void)worker_tick(&worker);
    assert_int_equal(heap_world_posts(next), 1);
}

// Time does not stand still here: the steps are told that their last look was long ago.
static void let_time_pass(void) {
    worker.tick_ms = 0;
}

CASE(a_step_makes_one_system_call_at_most_and_many_do_all) {
    leave_dirty(30);
    huge_idle_purge(&world.huges, SIZE_MAX, UINT32_MAX);
    os_raise_work(worker.os);
    unsigned steps = 0;
    for (; world.arena.arenas.dirty_slices != 0; steps++) {
        assert_true(steps < 10000);
        const uint64_t before = calls();
        worker_step(&worker, world.heap);
        // The table of looks is mapped once, at the first.
        assert_true(calls() - before <= (steps == 0 ? 2 : 1));
        let_time_pass();
    }
    assert_true(steps >= 60 / MALLOW_PURGE_SLICES);
    for (; atomic_load(&worker.os->work) != 0; steps++) { // and then it rests
        assert_true(steps < 10000);
        worker_step(&worker, world.heap);
        let_time_pass();
    }
}

CASE(steps_do_not_look_again_before_it_is_time) {
    leave_dirty(30);
    for (unsigned i = 0; i < 500; i++) {
        worker_step(&worker, world.heap);
    }
    assert_int_equal(atomic_load(&worker.released_bytes), 0);
}

// Whether the thread that forks is taken to be the one that steps, in the child.
static int stepping_in_child(void) {
    int status = -1;
    const pid_t child = fork();
    if (child == 0) {
        worker_fork_child(&worker);
        const uintptr_t thread = atomic_load(&worker.stepping);
        _exit(thread == 0 ? 0 : thread == os_this_thread() ? 1 : 2);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

CASE(who_finds_another_thread_stepping_does_nothing) {
    leave_dirty(10);
    atomic_store(&worker.stepping, 1);
    const uint64_t before = calls();
    for (unsigned i = 0; i < 100; i++) {
        let_time_pass();
        worker_step(&worker, world.heap);
    }
    assert_int_equal(calls(), before);
    assert_int_equal(stepping_in_child(), 0); // which has not that thread
}

// A handler that forks has interrupted the step, which goes on in the child.
CASE(who_steps_does_so_in_a_child_as_well) {
    atomic_store(&worker.stepping, os_this_thread());
    assert_int_equal(stepping_in_child(), 1);
    atomic_store(&worker.stepping, 0);
}

CASE(nothing_is_started_before_the_process_has_begun_and_errno_is_kept) {
    atomic_store(&worker.wanted, true);
    os_raise_work(worker.os);
    errno = 4711;
    worker_poll(&worker, true);
    assert_int_equal(errno, 4711);
    assert_int_equal(atomic_load(&worker.state), WORKER_NONE);
}

CASE(it_starts_stops_when_told_and_starts_again_but_not_for_good) {
    worker_begin(&worker);
    atomic_store(&worker.wanted, true);
    os_raise_work(worker.os);
    worker_poll(&worker, true);
    assert_true(worker_is_running(&worker) && !worker_is_absent(&worker));
    worker_stop(&worker);
    assert_int_equal(atomic_load(&worker.state), WORKER_NONE);
    assert_true(worker_is_absent(&worker));
    worker_poll(&worker, true);
    assert_true(worker_is_running(&worker)); // again
    worker_bar(&worker);
    worker_stop(&worker);
    worker_poll(&worker, true);
    assert_int_equal(atomic_load(&worker.state), WORKER_NONE); // and never more
    assert_int_equal(atomic_load(&worker.start_count), 2);
}

CASE(while_the_program_parts_there_is_none) {
    worker_begin(&worker);
    atomic_store(&worker.wanted, true);
    os_raise_work(worker.os);
    worker_poll(&worker, true);
    worker_part(&worker);
    worker_part(&worker); // another thread
    worker_rejoin(&worker);
    worker_poll(&worker, true);
    assert_true(worker_is_absent(&worker));
    worker_rejoin(&worker);
    worker_poll(&worker, true);
    assert_true(worker_is_running(&worker));
    worker_stop(&worker);
}

static atomic_bool polling;

static void *poll_on(void *unused) {
    (void)unused;
    while (atomic_load(&polling)) {
        os_raise_work(worker.os);
        worker_poll(&worker, false);
    }
    return NULL;
}

CASE(who_waits_for_its_end_is_not_overtaken_by_its_next_beginning) {
    pthread_t poller;
    worker_begin(&worker);
    atomic_store(&worker.wanted, true);
    atomic_store(&polling, true);
    assert_int_equal(pthread_create(&poller, NULL, poll_on, NULL), 0);
    (void)alarm(100); // one that nobody knows of ends late, if ever
    while (atomic_load(&worker.start_count) < 1000) {
        worker_stop(&worker);
    }
    atomic_store(&polling, false);
    assert_int_equal(pthread_join(poller, NULL), 0);
    worker_stop(&worker);
    assert_true(worker_is_absent(&worker));
    (void)alarm(0);
}

// As after the end of a child by vfork that had begun it.
CASE(one_that_is_gone_without_a_word_is_followed_by_another) {
    worker_begin(&worker);
    atomic_store(&worker.wanted, true);
    os_raise_work(worker.os);
    atomic_store(&worker.state, WORKER_RUNNING);
    worker_poll(&worker, true);
    assert_false(worker_is_absent(&worker));
    worker_stop(&worker);
}

// Free memory is not given back as it is freed if a thread is to come and do so.
CASE(the_limit_of_what_is_kept_holds_where_no_thread_is_to_be_had) {
    atomic_store(&worker.wanted, true);
    atomic_store(&worker.lifts_trim, true);
    worker_adjust_trim(&worker);
    assert_false(worker.arenas->trim_lifted); // the process has yet to begin
    worker_begin(&worker);
    assert_true(worker.arenas->trim_lifted);
    worker_bar(&worker);
    assert_false(worker.arenas->trim_lifted);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_calls_owe_is_paid_between_looks, begin, end),
        cmocka_unit_test_setup_teardown(
            the_third_look_gives_back_what_was_free_before_the_first, begin, end),
        cmocka_unit_test_setup_teardown(
            a_look_whose_end_is_waited_for_leaves_the_rest_to_the_next, begin, end),
        cmocka_unit_test_setup_teardown(
            what_is_owed_and_not_paid_since_its_end_is_waited_for_stays_owed, begin, end),
        cmocka_unit_test_setup_teardown(what_the_kernel_refuses_is_passed_over, begin, end),
        cmocka_unit_test_setup_teardown(a_look_leaves_alone_what_is_used_in_between, begin, end),
        cmocka_unit_test_setup_teardown(
            a_look_brings_posts_to_the_next_owners_of_their_slabs, begin, end),
        cmocka_unit_test_setup_teardown(a_step_makes_one_system_call_at_most_and_many_do_all,
                                        begin, end),
        cmocka_unit_test_setup_teardown(steps_do_not_look_again_before_it_is_time, begin, end),
        cmocka_unit_test_setup_teardown(who_finds_another_thread_stepping_does_nothing, begin,
                                        end),
        cmocka_unit_test_setup_teardown(who_steps_does_so_in_a_child_as_well, begin, end),
        cmocka_unit_test_setup_teardown(
            nothing_is_started_before_the_process_has_begun_and_errno_is_kept, begin, end),
        cmocka_unit_test_setup_teardown(
            it_starts_stops_when_told_and_starts_again_but_not_for_good, begin, end),
        cmocka_unit_test_setup_teardown(while_the_program_parts_there_is_none, begin, end),
        cmocka_unit_test_setup_teardown(
            who_waits_for_its_end_is_not_overtaken_by_its_next_beginning, begin, end),
        cmocka_unit_test_setup_teardown(one_that_is_gone_without_a_word_is_followed_by_another,
                                        begin, end),
        cmocka_unit_test_setup_teardown(
            the_limit_of_what_is_kept_holds_where_no_thread_is_to_be_had, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
