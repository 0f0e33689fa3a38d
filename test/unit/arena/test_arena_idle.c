// SPDX-License-Identifier: MIT
// Arena, idle memory: what counts as not needed, and giving it back from above.
#include "arena/arena.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "world.h"

static struct arena_world world;
static struct arena_set *const set = &world.arenas;

static int begin(void **state) {
    (void)state;
    arena_world_begin(&world);
    return 0;
}

static int end(void **state) {
    (void)state;
    arena_world_end(&world);
    return 0;
}

static void take_all(struct arena_span *spans, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        spans[i] = arena_take(set, 1, 1);
        assert_non_null(spans[i].slab);
        *(unsigned char *)spans[i].address = 1;
    }
}

static void give_all(const struct arena_span *spans, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        arena_give(set, spans[i].slab, 1);
    }
}

CASE(what_was_just_freed_is_not_idle_before_two_whole_intervals) {
    struct arena_span spans[20];
    take_all(spans, 20);
    assert_int_equal(arena_idle_look(set), 0);
    give_all(spans, 20);
    assert_int_equal(arena_idle_look(set), 0); // freed within this interval
    assert_int_equal(arena_idle_look(set), 0); // one whole interval
    assert_int_equal(arena_idle_look(set), 20 * MALLOW_SLICE_BYTES);
}

CASE(what_is_taken_and_freed_again_is_not_idle) {
    struct arena_span spans[20];
    take_all(spans, 20);
    give_all(spans, 20);
    for (unsigned round = 0; round < 5; round++) {
        (void)arena_idle_look(set);
        take_all(spans, 15);
        give_all(spans, 15);
    }
    assert_int_equal(arena_idle_look(set), 5 * MALLOW_SLICE_BYTES); // what no round has needed
}

CASE(a_purge_begins_at_the_highest_address_and_stops_at_what_was_asked) {
    struct arena_span spans[80];
    take_all(spans, 80);
    give_all(spans, 80);
    const size_t released = arena_idle_purge(set, 10 * MALLOW_SLICE_BYTES, UINT32_MAX);
    assert_true(released >= 10 * MALLOW_SLICE_BYTES);
    assert_true(released < (10 + MALLOW_PURGE_SLICES) * MALLOW_SLICE_BYTES);
    arena_world_check(&world);
    uintptr_t highest_dirty = 0;
    uintptr_t lowest_clean = UINTPTR_MAX;
    for (unsigned i = 0; i < 80; i++) {
        const bool dirty = *(unsigned char *)spans[i].address != 0;
        highest_dirty = dirty ? bits_max(highest_dirty, spans[i].address) : highest_dirty;
        lowest_clean = dirty ? lowest_clean : bits_min(lowest_clean, spans[i].address);
    }
    assert_true(highest_dirty < lowest_clean);
}

CASE(a_purge_of_more_than_there_is_gives_all_back_and_no_more) {
    struct arena_span spans[100]; // more than one chunk
    take_all(spans, 100);
    const struct arena_span kept = arena_take(set, 3, 1);
    memset((void *)kept.address, 7, 3 * MALLOW_SLICE_BYTES);
    give_all(spans, 100);
    assert_int_equal(arena_idle_purge(set, SIZE_MAX, UINT32_MAX), 100 * MALLOW_SLICE_BYTES);
    assert_int_equal(set->dirty_slices, 0);
    assert_int_equal(arena_idle_purge(set, SIZE_MAX, UINT32_MAX), 0);
    assert_true(unit_is_all((void *)kept.address, 7, 3 * MALLOW_SLICE_BYTES));
    arena_world_check(&world);
    const struct arena_span again = arena_take(set, 1, 1);
    assert_true(again.zeroed);
}

// A call's step, that is: it makes one system call, and one that is refused does not keep the later ones
// from what lies below.
CASE(a_step_makes_one_call_and_the_next_one_passes_what_was_refused) {
    enum { SLICES = 2 * MALLOW_CHUNK_SLICES };
    struct arena_span spans[SLICES];
    take_all(spans, SLICES);
    uintptr_t highest = 0;
    for (unsigned i = 0; i < SLICES; i++) {
        highest = bits_max(highest, spans[i].address);
    }
    give_all(spans, SLICES);
    // By its number: sanitizers have a mlock that does nothing.
    if (syscall(SYS_mlock, highest, (size_t)1) != 0) {
        skip();
    }
    uint64_t entries = os_entries(&world.os);
    assert_int_equal(arena_idle_purge(set, SIZE_MAX, 1), 0);
    assert_int_equal(os_entries(&world.os) - entries, 1);
    size_t released = 0;
    for (size_t part = 1; part != 0; released += part) {
        entries = os_entries(&world.os);
        part = arena_idle_purge(set, SIZE_MAX, 1);
        assert_int_equal(os_entries(&world.os) - entries, 1); // the last one is refused at the top
    }
    assert_in_range(released, (SLICES - MALLOW_PURGE_SLICES) * MALLOW_SLICE_BYTES,
                    (SLICES - 1) * MALLOW_SLICE_BYTES);
    assert_int_equal(syscall(SYS_munlock, highest, (size_t)1), 0);
    assert_true(arena_idle_purge(set, SIZE_MAX, UINT32_MAX) != 0);
    assert_int_equal(set->dirty_slices, 0);
    arena_world_check(&world);
}

CASE(secondary_arenas_are_purged_and_unmapped_when_they_are_free) {
    struct arena_span spans[WORLD_SLICES + 20];
    take_all(spans, WORLD_SLICES + 20);
    assert_non_null(set->secondary);
    give_all(spans, WORLD_SLICES + 20);
    const size_t dirty = set->dirty_slices;
    assert_int_equal(arena_idle_purge(set, SIZE_MAX, UINT32_MAX), dirty << MALLOW_SLICE_SHIFT);
    assert_null(set->secondary);
    arena_world_check(&world);
}

static _Atomic(bool) purger_ends;

static void *purge_on(void *argument) {
    (void)argument;
    while (!atomic_load(&purger_ends)) {
        (void)arena_idle_purge(set, SIZE_MAX, UINT32_MAX);
    }
    return NULL;
}

// A purge is in the middle of an arena when another thread gives that back, and the next one has
// its tables, of which only the first part is mapped again.
CASE(a_purge_goes_on_in_an_arena_that_has_taken_the_place_of_one) {
    enum { CHUNKS = 70, PRIMARY = WORLD_SLICES / MALLOW_CHUNK_SLICES, ROUNDS = 2000 };
    static struct arena_span spans[PRIMARY + CHUNKS];
    const unsigned slice_count = MALLOW_CHUNK_SLICES - 1; // of the primary arena one is barred
    pthread_t purger;
    set->secondary_bytes = CHUNKS * MALLOW_CHUNK_BYTES; // more than a group of the chunk map has
    atomic_store(&purger_ends, false);
    assert_int_equal(pthread_create(&purger, NULL, purge_on, NULL), 0);
    unsigned count = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        while (count < PRIMARY + CHUNKS) {
            spans[count] = arena_take(set, slice_count, 1);
            assert_non_null(spans[count++].slab);
        }
        for (unsigned i = PRIMARY; i < count; i++) { // the highest last
            arena_give(set, spans[i].slab, slice_count);
        }
        count = PRIMARY;
        (void)arena_purge_all(set); // and the next round makes the next one
    }
    atomic_store(&purger_ends, true);
    assert_int_equal(pthread_join(purger, NULL), 0);
    while (count > 0) {
        arena_give(set, spans[--count].slab, slice_count);
    }
    (void)arena_purge_all(set);
    assert_null(set->secondary);
    arena_world_check(&world);
}

enum { LEAVING = 4, ANOTHER = 1 }; // slices; a thread

// As if somebody were just purging some slices: they are taken, and charged.
static void leave_some(uintptr_t thread) {
    const struct arena_span span = arena_take(set, LEAVING, 1);
    const size_t slice = (span.address - set->primary.base) >> MALLOW_SLICE_SHIFT;
    set->leaving = (struct arena_leaving){&set->primary, thread,
                                          (unsigned)(slice / MALLOW_CHUNK_SLICES),
                                          (unsigned)(slice % MALLOW_CHUNK_SLICES), LEAVING};
}

CASE(slices_that_another_thread_was_purging_are_free_again_in_a_child) {
    leave_some(ANOTHER);
    arena_leave_fork_child(set);
    assert_int_equal(set->dirty_slices, 0); // the set may be in the middle of a change
    arena_leave_fork_child(set); // nor is there more to do in its own child
    os_lock_take(&set->lock);
    assert_int_equal(arena_await_leaving_locked(set), 0);
    os_lock_drop(&set->lock);
    assert_null(set->leaving.arena);
    assert_int_equal(set->dirty_slices, LEAVING); // their pages may be there yet
    arena_world_check(&world);
    assert_int_equal(arena_idle_purge(set, SIZE_MAX, UINT32_MAX), LEAVING * MALLOW_SLICE_BYTES);
    assert_int_equal(set->dirty_slices, 0);
    arena_world_check(&world);
}

CASE(so_they_are_for_who_gives_all_back) {
    leave_some(ANOTHER);
    arena_leave_fork_child(set);
    assert_int_equal(arena_purge_all(set), LEAVING * MALLOW_SLICE_BYTES);
    assert_null(set->leaving.arena);
    arena_world_check(&world);
}

// A handler that forks has interrupted the purge, which goes on in the child.
CASE(slices_that_the_child_itself_purges_stay_its_own) {
    leave_some(os_this_thread());
    arena_leave_fork_child(set);
    assert_int_equal(arena_idle_purge(set, SIZE_MAX, UINT32_MAX), 0);
    os_lock_take(&set->lock);
    assert_int_equal(set->leaving.count, LEAVING);
    arena_return_locked(set, true);
    os_lock_drop(&set->lock);
    arena_world_check(&world);
}

static void *end_leaving(void *argument) {
    const struct timespec moment = {0, 10000000};
    (void)nanosleep(&moment, NULL);
    os_lock_take(&set->lock);
    arena_return_locked(set, false);
    os_lock_drop(&set->lock);
    return argument;
}

CASE(who_is_short_of_memory_waits_for_what_is_being_purged) {
    pthread_t thread;
    leave_some(ANOTHER);
    assert_int_equal(pthread_create(&thread, NULL, end_leaving, NULL), 0);
    assert_int_equal(arena_purge_some(set, SIZE_MAX), LEAVING * MALLOW_SLICE_BYTES);
    assert_int_equal(pthread_join(thread, NULL), 0);
    arena_world_check(&world);
}

CASE(nobody_waits_for_ever_for_one_who_has_gone) {
    leave_some(ANOTHER);
    assert_int_equal(arena_purge_some(set, SIZE_MAX), 0);
    assert_int_equal(arena_idle_purge(set, SIZE_MAX, UINT32_MAX), 0);
    arena_leave_fork_child(set);
}

CASE(a_span_that_is_visited_is_given_up_but_not_used) {
    const struct arena_span visited = arena_take(set, 1, 1);
    const struct arena_span other = arena_take(set, 1, 1);
    const size_t free_slices = set->primary.free_slices;
    arena_visit_span(set, visited.slab);
    arena_give(set, visited.slab, 1);
    assert_int_equal(set->primary.free_slices, free_slices);
    assert_true(arena_is_late(set));
    assert_false(arena_give_late(set));
    arena_give_late_all(set);
    arena_give(set, other.slab, 1); // others are
    assert_int_equal(set->primary.free_slices, free_slices + 1);
    arena_visit_span(set, NULL);
    assert_true(arena_give_late(set));
    assert_false(arena_is_late(set));
    assert_int_equal(set->primary.free_slices, free_slices + 2);
    arena_world_check(&world);
}

CASE(slices_are_late_up_to_so_many_and_are_given_a_span_a_call) {
    enum { SPANS = ARENA_LATE_SLICES / 2 };
    struct arena_span spans[SPANS + 1];
    for (unsigned i = 0; i <= SPANS; i++) {
        spans[i] = arena_take(set, 2, 1);
    }
    const size_t free_slices = set->primary.free_slices;
    for (unsigned i = 0; i < SPANS; i++) {
        arena_put_off(set, spans[i].slab, 2);
    }
    assert_int_equal(set->late_slices, ARENA_LATE_SLICES);
    assert_int_equal(set->primary.free_slices, free_slices);
    arena_put_off(set, spans[SPANS].slab, 2); // is given
    assert_int_equal(set->primary.free_slices, free_slices + 2);
    for (unsigned given = 1; arena_give_late(set); given++) {
        assert_int_equal(set->primary.free_slices, free_slices + 2 + given * 2);
    }
    assert_int_equal(set->primary.free_slices, free_slices + 2 * (SPANS + 1));
    assert_int_equal(set->late_slices, 0);
    arena_world_check(&world);
}

CASE(much_that_is_kept_raises_work_and_little_does_not) {
    enum { LITTLE = (int)(MALLOW_WORK_BYTES >> MALLOW_SLICE_SHIFT) };
    struct arena_span spans[LITTLE + 1];
    take_all(spans, LITTLE + 1);
    give_all(spans, LITTLE);
    assert_int_equal(atomic_load(&world.os.work), 0);
    arena_give(set, spans[LITTLE].slab, 1);
    assert_int_equal(atomic_load(&world.os.work), 1);
}

CASE(a_lifted_limit_keeps_what_is_freed) {
    struct arena_span spans[20];
    set->trim_slices = 5;
    set->trim_lifted = true;
    take_all(spans, 20);
    give_all(spans, 20);
    assert_int_equal(set->dirty_slices, 20);
    assert_false(arena_owes(set));
    set->trim_lifted = false;
    take_all(spans, 20);
    give_all(spans, 20);
    assert_int_equal(set->dirty_slices, 20);
    assert_true(arena_owes(set)); // by later calls
    while (arena_owes(set)) {
        arena_settle(set);
        arena_world_check(&world);
    }
    assert_true(set->dirty_slices <= 5);
}

// Against a model: at any time, a look tells the fewest dirty slices of the last two intervals.
CASE(looks_agree_with_a_model_over_random_work) {
    struct unit_chance chance = unit_chance_begin();
    struct arena_span spans[64];
    unsigned count = 0;
    size_t low = 0;
    size_t low_before = 0;
    for (unsigned step = 0; step < 20000; step++) {
        const unsigned what = unit_below(&chance, 100);
        if (what < 50 && count < 64) {
            take_all(&spans[count++], 1);
        } else if (what < 97 && count > 0) {
            const unsigned index = unit_below(&chance, count);
            arena_give(set, spans[index].slab, 1);
            spans[index] = spans[--count];
        } else if (what == 98) {
            (void)arena_idle_purge(set, unit_below(&chance, 8) * MALLOW_SLICE_BYTES, UINT32_MAX);
        } else if (what == 99) {
            const size_t idle = bits_min(low, low_before);
            assert_int_equal(arena_idle_look(set), idle << MALLOW_SLICE_SHIFT);
            low_before = low;
            low = set->dirty_slices;
        }
        low = bits_min(low, set->dirty_slices);
        arena_world_check(&world);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            what_was_just_freed_is_not_idle_before_two_whole_intervals, begin, end),
        cmocka_unit_test_setup_teardown(what_is_taken_and_freed_again_is_not_idle, begin, end),
        cmocka_unit_test_setup_teardown(
            a_purge_begins_at_the_highest_address_and_stops_at_what_was_asked, begin, end),
        cmocka_unit_test_setup_teardown(
            a_purge_of_more_than_there_is_gives_all_back_and_no_more, begin, end),
        cmocka_unit_test_setup_teardown(
            a_step_makes_one_call_and_the_next_one_passes_what_was_refused, begin, end),
        cmocka_unit_test_setup_teardown(
            secondary_arenas_are_purged_and_unmapped_when_they_are_free, begin, end),
        cmocka_unit_test_setup_teardown(
            a_purge_goes_on_in_an_arena_that_has_taken_the_place_of_one, begin, end),
        cmocka_unit_test_setup_teardown(
            slices_that_another_thread_was_purging_are_free_again_in_a_child, begin, end),
        cmocka_unit_test_setup_teardown(so_they_are_for_who_gives_all_back, begin, end),
        cmocka_unit_test_setup_teardown(slices_that_the_child_itself_purges_stay_its_own, begin,
                                        end),
        cmocka_unit_test_setup_teardown(
            who_is_short_of_memory_waits_for_what_is_being_purged, begin, end),
        cmocka_unit_test_setup_teardown(nobody_waits_for_ever_for_one_who_has_gone, begin, end),
        cmocka_unit_test_setup_teardown(a_span_that_is_visited_is_given_up_but_not_used, begin,
                                        end),
        cmocka_unit_test_setup_teardown(
            slices_are_late_up_to_so_many_and_are_given_a_span_a_call, begin, end),
        cmocka_unit_test_setup_teardown(much_that_is_kept_raises_work_and_little_does_not, begin,
                                        end),
        cmocka_unit_test_setup_teardown(a_lifted_limit_keeps_what_is_freed, begin, end),
        cmocka_unit_test_setup_teardown(looks_agree_with_a_model_over_random_work, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
