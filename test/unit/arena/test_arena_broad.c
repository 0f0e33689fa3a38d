// SPDX-License-Identifier: MIT
// Address space ahead of growth in which faults make huge pages: for which programs there is some, how
// much of it, and when it is over. What can be seen without huge pages is tested without.
#include "arena/arena_broad.h"

#include <pthread.h>
#include <sys/resource.h>

#include "../os/tree.h"
#include "../smaps.h"
#include "os/os_huge.h"
#include "world.h"

enum {
    RESERVE = 128 << 20,
    CHUNK = MALLOW_CHUNK_SLICES,
    FIRST = ARENA_BROAD_FIRST_SLICES,
    SPAN = 8,      // slices of the blocks here: 512 KiB
    SPANS_MAX = RESERVE / (64 << 10) / SPAN,
};

static struct arena_world world;
static struct arena_set *const set = &world.arenas;
static struct arena_span spans[SPANS_MAX];
static unsigned span_count;

static int begin(void **state) {
    (void)state;
    arena_world_begin_with(&world, RESERVE);
    world.os.keeps_small = true; // as after os_huge_start
    set->raise_step = ARENA_BROAD_RAISE_SLICES;
    set->os->root = "/nonexistent"; // whatever this machine has free
    span_count = 0;
    return 0;
}

static int end(void **state) {
    (void)state;
    arena_world_check(&world);
    arena_world_end(&world);
    return 0;
}

// Where a chunk is not what a huge page would be, nothing of this is ever used.
static void need_chunks(void) {
    if (world.os.page_bytes != 4096) {
        skip();
    }
}

static uintptr_t address_of(size_t slice) {
    return set->primary.base + (slice << MALLOW_SLICE_SHIFT);
}

static void write_every(uintptr_t address, size_t bytes, size_t stride) {
    for (size_t at = 0; stride != 0 && at < bytes; at += stride) {
        *(volatile unsigned char *)(address + at) = 1;
    }
}

// Grows by large blocks of `usable` bytes until `slices` are committed; in each a byte is written every
// `stride`, 0: none.
static void take(size_t usable, size_t stride) {
    const struct arena_span span = arena_take(set, SPAN, 1);
    assert_non_null(span.slab);
    slab_init_large(span.slab, span.address, SPAN, usable);
    write_every(span.address, usable, stride);
    spans[span_count++] = span;
}

static void grow(size_t slices, size_t usable, size_t stride) {
    while (set->primary.committed_slices < slices) {
        take(usable, stride);
    }
}

static const size_t whole = (size_t)SPAN << MALLOW_SLICE_SHIFT;

static bool is_probe(size_t slice) {
    return slice / CHUNK % ARENA_BROAD_PROBE_SHARE == ARENA_BROAD_PROBE_SHARE - 1;
}

static bool is_broad(void) {
    return set->broad.next < set->broad.end;
}

static void give(unsigned i) {
    slab_clear(spans[i].slab);
    arena_give(set, spans[i].slab, SPAN);
    spans[i] = spans[--span_count];
}

// The first stretch.
static void become_broad_at(size_t slices) {
    need_chunks();
    grow(slices, whole, 4096);
    assert_true(arena_broad_look(set));
    assert_true(is_broad());
}

static void become_broad(void) {
    become_broad_at(FIRST);
}

CASE(growth_by_blocks_that_are_written_whole_has_a_stretch) {
    become_broad();
    const size_t committed = set->primary.committed_slices;
    assert_true(set->broad.next >= committed);
    assert_true(set->broad.next <= committed + CHUNK); // what is mapped already
    assert_int_equal(set->broad.end - set->broad.next, committed); // no longer than what there is
    assert_int_equal(set->primary.mapped_slices, set->broad.end);
    assert_true(smaps_has_flag(address_of(set->broad.next - 1), " nh"));
    unsigned probes = 0;
    for (size_t slice = set->broad.next; slice < set->broad.end; slice += CHUNK) {
        assert_true(smaps_has_flag(address_of(slice), is_probe(slice) ? " nh" : " hg"));
        probes += is_probe(slice);
    }
    assert_int_equal(probes, 1);
    const size_t held = arena_world_check_set(set);
    const uint64_t maps = world.os.map_count;
    grow(set->broad.end, whole, 4096);
    assert_true(world.os.map_count - maps <= 4); // for headers alone
    assert_true(arena_world_check_set(set) > held);
}

CASE(nor_is_there_a_second_look_without_growth) {
    become_broad();
    assert_false(arena_broad_look(set));
    grow(set->primary.committed_slices + CHUNK, whole, 4096);
    assert_true(arena_broad_look(set));
}

CASE(a_program_of_less_has_none) {
    need_chunks();
    grow(FIRST - CHUNK, whole, 4096);
    (void)arena_broad_look(set);
    assert_false(is_broad());
}

CASE(blocks_that_are_written_here_and_there_have_none) {
    need_chunks();
    grow(FIRST, whole, 64 << 10);
    (void)arena_broad_look(set);
    assert_false(is_broad());
}

CASE(nor_have_those_that_are_written_by_three_quarters) {
    need_chunks();
    grow(FIRST, whole, 0);
    for (unsigned i = 0; i < span_count; i++) {
        write_every(spans[i].address, whole / 4 * 3, 4096);
    }
    (void)arena_broad_look(set);
    assert_false(is_broad());
}

CASE(nor_those_that_leave_much_of_their_slices) {
    need_chunks();
    grow(FIRST, whole - whole / 4, 4096);
    (void)arena_broad_look(set);
    assert_false(is_broad());
}

CASE(nor_have_slabs) {
    need_chunks();
    while (set->primary.committed_slices < FIRST) {
        const struct arena_span span = arena_take(set, 1, 1);
        assert_non_null(span.slab);
        span.slab->kind = SLAB_BLOCKS;
        write_every(span.address, MALLOW_SLICE_BYTES, 4096);
    }
    (void)arena_broad_look(set);
    assert_false(is_broad());
}

CASE(nor_have_blocks_of_which_a_quarter_is_free) {
    need_chunks();
    grow(FIRST, whole, 4096);
    for (unsigned i = 0; i < span_count; i += 3) {
        give(i);
    }
    (void)arena_broad_look(set);
    assert_false(is_broad());
}

CASE(the_chunk_that_is_about_to_be_written_tells_nothing) {
    need_chunks();
    grow(FIRST, whole, 4096);
    for (unsigned i = 1; i < CHUNK / SPAN; i++) { // the rest of that chunk
        take(whole, 4096);
    }
    grow(FIRST + CHUNK, whole, 0);
    take(whole, 0);
    (void)arena_broad_look(set);
    assert_true(is_broad());
}

// A byte in a huge page is all of it, and tells nothing: of a stretch, the chunks on small pages are
// looked at.
CASE(a_stretch_that_is_written_is_followed_by_another) {
    become_broad();
    const size_t over = set->broad.end;
    grow(over, whole, 4096);
    assert_true(arena_broad_look(set));
    assert_true(is_broad());
    assert_int_equal(set->broad.next, over);
    assert_false(smaps_has_flag(address_of(over - 1), " hg"));
    assert_true(smaps_has_flag(address_of(over), " hg"));
}

CASE(one_that_is_not_is_not) {
    become_broad();
    grow(set->broad.end, whole, whole);
    assert_false(arena_broad_look(set));
    arena_broad_tick(set);
    assert_false(is_broad());
}

static void turn_sparse(void) {
    const size_t start = set->broad.next;
    size_t sparse = start;
    while (!is_probe(sparse)) {
        sparse += CHUNK;
    }
    assert_true(sparse + 2 * CHUNK < set->broad.end);
    grow(sparse + 2 * CHUNK, whole, whole);
    assert_false(arena_broad_look(set));
    arena_broad_tick(set);
    assert_false(is_broad());
}

CASE(when_the_program_turns_sparse_it_is_over) {
    become_broad_at(12 * CHUNK);
    turn_sparse();
    assert_false(smaps_has_flag(address_of(set->broad.end), " wr"));
}

CASE(and_not_again_before_much_more_is_written) {
    become_broad_at(12 * CHUNK);
    turn_sparse();
    const size_t rest = set->primary.committed_slices + ARENA_BROAD_REST_SLICES;
    grow(rest - CHUNK, whole, 4096);
    assert_false(arena_broad_look(set));
    assert_false(is_broad());
    grow(rest, whole, 4096);
    assert_true(arena_broad_look(set));
    assert_true(is_broad());
    turn_sparse();
    assert_int_equal(set->broad.rest - set->primary.committed_slices, 2 * ARENA_BROAD_REST_SLICES);
}

// Frees are not: there is no next one, but this one goes on.
CASE(a_stretch_of_which_much_is_freed_goes_on) {
    become_broad();
    const size_t start = set->broad.next;
    grow(start + 2 * CHUNK, whole, 4096);
    for (unsigned i = 0; i < span_count; i += 2) {
        give(i);
    }
    arena_world_check(&world);
    (void)arena_broad_look(set);
    assert_true(is_broad());
}

CASE(what_growth_has_reached_is_so_no_longer) {
    become_broad();
    const size_t start = set->broad.next;
    arena_broad_tick(set);
    grow(start + 3 * CHUNK, whole, 4096);
    arena_broad_tick(set);
    assert_int_equal(set->broad.next, start + 3 * CHUNK);
    assert_true(smaps_has_flag(address_of(start), " nh"));
    assert_true(smaps_has_flag(address_of(start + 3 * CHUNK - 1), " nh"));
    assert_true(smaps_has_flag(address_of(start + 3 * CHUNK), " hg"));
}

static void expect_over(size_t start) {
    assert_false(is_broad());
    assert_int_equal(set->primary.mapped_slices, start);
    assert_false(smaps_has_flag(address_of(start), " wr"));
    grow(start + 2 * CHUNK, whole, 4096);
    assert_true(smaps_has_flag(address_of(start), " nh"));
}

CASE(when_growth_ends_it_is_over) {
    become_broad();
    const size_t start = set->broad.next;
    arena_broad_tick(set);
    assert_true(is_broad()); // it has grown since the last one
    arena_broad_tick(set);
    expect_over(start);
}

CASE(when_memory_is_limited_it_is_over) {
    become_broad();
    const size_t start = set->broad.next;
    world.os.locks_all = true;
    arena_broad_tick(set);
    expect_over(start);
}

CASE(where_nobody_will_look_any_more_it_is_over) {
    become_broad();
    const size_t start = set->broad.next;
    grow(start + 1, whole, 4096);
    arena_broad_stop(set);
    expect_over(start + CHUNK);
}

CASE(where_data_is_limited_there_is_none) {
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_DATA, &before), 0);
    const struct rlimit limit = {(rlim_t)1 << 62, before.rlim_max};
    become_broad();
    const size_t start = set->broad.next;
    assert_int_equal(setrlimit(RLIMIT_DATA, &limit), 0);
    arena_broad_tick(set);
    assert_false(is_broad());
    grow(start + 8 * CHUNK, whole, 4096);
    (void)arena_broad_look(set);
    assert_false(is_broad());
    assert_int_equal(setrlimit(RLIMIT_DATA, &before), 0);
}

CASE(where_little_memory_is_free_there_is_none) {
    need_chunks();
    tree_begin();
    set->os->root = tree_root;
    tree_set_free(240);
    grow(FIRST, whole, 4096);
    (void)arena_broad_look(set);
    assert_false(is_broad());
    tree_set_free(272);
    const size_t rest = FIRST + ARENA_BROAD_REST_SLICES;
    grow(rest - CHUNK, whole, 4096);
    assert_false(arena_broad_look(set)); // nor is it asked for all the time
    assert_false(is_broad());
    grow(rest, whole, 4096);
    assert_true(arena_broad_look(set));
    assert_int_equal(set->broad.end - set->broad.next, ARENA_BROAD_LEAST_SLICES);
    tree_end();
}

CASE(before_all_is_locked_it_is_over) {
    become_broad();
    const size_t start = set->broad.next;
    grow(start + 1, whole, 4096);
    arena_broad_end(set);
    assert_int_equal(set->broad.end, start + CHUNK); // which growth has reached
    arena_broad_tick(set);
    expect_over(start + CHUNK);
}

CASE(what_is_given_back_at_the_end_is_not_of_a_stretch) {
    become_broad();
    const size_t start = set->broad.next;
    grow(start + CHUNK, whole, 4096);
    while (span_count > 2) {
        give(span_count - 1);
    }
    assert_true(arena_decommit_all(set) != 0);
    assert_false(is_broad());
    arena_broad_tick(set);
    arena_broad_tick(set);
    grow(start + CHUNK, whole, 4096);
    assert_false(smaps_has_flag(address_of(start), " hg"));
}

// In a chunk that has become huge, slices that nobody has had have pages: they are given back as others
// that are free.
static void find_dirty(void (*look)(void)) {
    become_broad();
    arena_broad_tick(set); // so that growth goes on for the next one
    const size_t start = set->broad.next;
    grow(start + 1, whole, 4096);
    const size_t first = bits_align_up(set->primary.committed_slices - 1, CHUNK) - CHUNK;
    if (smaps_huge_kib(address_of(first)) < MALLOW_CHUNK_BYTES / 1024) {
        skip(); // there are none now
    }
    assert_true(set->primary.free_slices >= CHUNK / 2);
    look();
    assert_true(set->dirty_slices >= CHUNK / 2);
    (void)arena_purge_all(set);
    assert_int_equal(set->dirty_slices, 0);
    assert_int_equal(os_resident(&world.os, address_of(first + CHUNK / 2),
                                 MALLOW_CHUNK_BYTES / 2), 0);
    assert_int_equal(arena_purge_all(set), 0); // there is nothing left
}

static void look_by_tick(void) {
    arena_broad_tick(set);
}

static void look_by_purge(void) {
    os_lock_take(&set->lock);
    arena_broad_settle_locked(set);
    os_lock_drop(&set->lock);
}

CASE(free_slices_of_a_huge_chunk_are_dirty) {
    find_dirty(look_by_tick);
}

CASE(they_are_for_who_purges_before_that) {
    find_dirty(look_by_purge);
}

// Also where a part of it has been given up and purged since.
static void look_after_purge(void) {
    give(span_count - 1);
    assert_true(arena_purge_some(set, whole) == whole);
    arena_broad_tick(set);
}

CASE(those_that_are_left_of_one_that_was_split_are_too) {
    find_dirty(look_after_purge);
}

CASE(a_huge_chunk_is_known_as_one) {
    static struct arena_age ages[RESERVE / MALLOW_CHUNK_BYTES];
    become_broad();
    set->ages = ages;
    const size_t start = set->broad.next;
    grow(start + CHUNK, whole, 4096);
    arena_broad_tick(set);
    const bool huge = smaps_huge_kib(address_of(start)) != 0;
    assert_int_equal(ages[start / CHUNK].looks == ARENA_AGE_HUGE, huge);
    assert_int_equal(ages[start / CHUNK - 2].looks, 0);
}

// So that somebody comes and looks: large blocks raise that by themselves, long before 64 MiB.
CASE(growth_by_large_blocks_raises_it_sooner) {
    set->raise_slices = 1024;
    grow(FIRST, whole, 0);
    assert_int_not_equal(world.os.work & OS_WORK_GROWN, 0);
}

CASE(growth_by_slabs_does_not) {
    set->raise_slices = 1024;
    while (set->primary.committed_slices < 1024 - CHUNK) {
        const struct arena_span span = arena_take(set, 1, 1);
        span.slab->kind = SLAB_BLOCKS;
    }
    assert_int_equal(world.os.work, 0);
    while (set->primary.committed_slices < 1024) {
        assert_non_null(arena_take(set, 1, 1).slab);
    }
    assert_int_not_equal(world.os.work & OS_WORK_GROWN, 0);
}

// Threads that grow, give and take while the background thread looks and others purge.
static void *take_and_give(void *seed) {
    struct unit_chance chance = {(uintptr_t)seed};
    struct arena_span mine[24] = {{.slab = NULL}};
    for (unsigned i = 0; i < 4000; i++) {
        struct arena_span *const span = &mine[unit_below(&chance, 24)];
        if (span->slab != NULL) {
            slab_clear(span->slab);
            arena_give(set, span->slab, SPAN);
        }
        *span = arena_take(set, SPAN, 1);
        assert_non_null(span->slab);
        slab_init_large(span->slab, span->address, SPAN, whole);
        write_every(span->address, whole, 4096);
        if (unit_below(&chance, 500) == 0) {
            (void)arena_purge_all(set);
        }
    }
    for (unsigned i = 0; i < 24; i++) {
        slab_clear(mine[i].slab);
        arena_give(set, mine[i].slab, SPAN);
    }
    return NULL;
}

CASE(it_looks_while_others_take_and_give) {
    pthread_t threads[2];
    become_broad();
    for (uintptr_t i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, (void *)(i + 1)), 0);
    }
    for (unsigned i = 0; i < 200; i++) {
        (void)arena_broad_look(set);
        if (i % 5 == 0) {
            arena_broad_tick(set);
        }
        usleep(500);
    }
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    for (unsigned i = 0; i < span_count; i++) {
        assert_true(unit_is_all((const void *)spans[i].address, 1, 1));
    }
}

#define BROAD_CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    const struct CMUnitTest cases[] = {
        BROAD_CASE(growth_by_blocks_that_are_written_whole_has_a_stretch),
        BROAD_CASE(nor_is_there_a_second_look_without_growth),
        BROAD_CASE(a_program_of_less_has_none),
        BROAD_CASE(blocks_that_are_written_here_and_there_have_none),
        BROAD_CASE(nor_have_those_that_are_written_by_three_quarters),
        BROAD_CASE(nor_those_that_leave_much_of_their_slices),
        BROAD_CASE(nor_have_slabs),
        BROAD_CASE(nor_have_blocks_of_which_a_quarter_is_free),
        BROAD_CASE(the_chunk_that_is_about_to_be_written_tells_nothing),
        BROAD_CASE(a_stretch_that_is_written_is_followed_by_another),
        BROAD_CASE(one_that_is_not_is_not),
        BROAD_CASE(when_the_program_turns_sparse_it_is_over),
        BROAD_CASE(and_not_again_before_much_more_is_written),
        BROAD_CASE(a_stretch_of_which_much_is_freed_goes_on),
        BROAD_CASE(what_growth_has_reached_is_so_no_longer),
        BROAD_CASE(when_growth_ends_it_is_over),
        BROAD_CASE(when_memory_is_limited_it_is_over),
        BROAD_CASE(where_nobody_will_look_any_more_it_is_over),
        BROAD_CASE(where_data_is_limited_there_is_none),
        BROAD_CASE(where_little_memory_is_free_there_is_none),
        BROAD_CASE(before_all_is_locked_it_is_over),
        BROAD_CASE(what_is_given_back_at_the_end_is_not_of_a_stretch),
        BROAD_CASE(free_slices_of_a_huge_chunk_are_dirty),
        BROAD_CASE(they_are_for_who_purges_before_that),
        BROAD_CASE(those_that_are_left_of_one_that_was_split_are_too),
        BROAD_CASE(a_huge_chunk_is_known_as_one),
        BROAD_CASE(growth_by_large_blocks_raises_it_sooner),
        BROAD_CASE(growth_by_slabs_does_not),
        BROAD_CASE(it_looks_while_others_take_and_give),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
