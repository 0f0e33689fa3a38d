// SPDX-License-Identifier: MIT
// NUMA nodes, of a made-up machine: who gets slices that have their pages, and that it changes nothing
// on a machine with one node.
#include "arena/arena_node.h"

#include "world.h"

static struct arena_world world;
static struct arena_set *const set = &world.arenas;

static int begin(void **state) {
    (void)state;
    arena_world_begin(&world);
    world.os.node_pretended = 1;
    return 0;
}

static int end(void **state) {
    (void)state;
    arena_world_end(&world);
    return 0;
}

// The thread goes to a node.
static void go_to(unsigned node) {
    world.os.node_pretended = node + 1;
}

static unsigned chunk_of(struct arena_span span) {
    return (unsigned)((span.address - set->primary.base) >> MALLOW_CHUNK_SHIFT);
}

static struct arena_span take(unsigned slice_count) {
    const struct arena_span span = arena_take(set, slice_count, 1);
    assert_non_null(span.slab);
    memset((void *)span.address, 1, slice_count * MALLOW_SLICE_BYTES);
    return span;
}

// Node 1 makes itself known. A whole chunk, so that no chunk is of two nodes.
static struct arena_span meet_node_1(void) {
    go_to(1);
    const struct arena_span span = take(MALLOW_CHUNK_SLICES);
    assert_non_null(set->nodes);
    assert_int_equal(set->nodes[chunk_of(span)], 2);
    return span;
}

// ---- Cases --------------------------------------------------------------------------------------

CASE(with_one_node_there_is_no_table) {
    for (unsigned i = 0; i < WORLD_SLICES - 1; i++) {
        (void)take(1);
    }
    assert_null(set->nodes);
    arena_world_check(&world);
}

CASE(the_table_comes_with_the_first_growth_on_another_node_by_one_call) {
    (void)take(MALLOW_CHUNK_SLICES);
    assert_null(set->nodes);
    const uint64_t before = os_entries(&world.os);
    (void)meet_node_1();
    const uint64_t first = os_entries(&world.os) - before;
    const uint64_t then = os_entries(&world.os);
    (void)take(MALLOW_CHUNK_SLICES);
    assert_int_equal(first, os_entries(&world.os) - then + 1);
    arena_world_check(&world);
}

CASE(what_a_node_has_used_goes_to_it_again_and_not_to_another) {
    (void)meet_node_1();
    go_to(0);
    const struct arena_span of_0 = take(4);
    go_to(1);
    const struct arena_span of_1 = take(4);
    assert_int_not_equal(chunk_of(of_0), chunk_of(of_1));
    arena_give(set, of_0.slab, 4);
    arena_give(set, of_1.slab, 4);
    // Both have pages; the one of node 0 lies lower.
    assert_true(of_0.address < of_1.address);
    assert_int_equal(take(4).address, of_1.address);
    go_to(0);
    assert_int_equal(take(4).address, of_0.address);
    arena_world_check(&world);
}

CASE(single_slices_likewise_those_with_pages_first) {
    (void)meet_node_1();
    go_to(0);
    const struct arena_span of_0 = take(1);
    go_to(1);
    const struct arena_span of_1 = take(1);
    arena_give(set, of_0.slab, 1);
    arena_give(set, of_1.slab, 1);
    const struct arena_span again = take(1);
    assert_int_equal(again.address, of_1.address);
    assert_false(again.zeroed);
    assert_int_equal(chunk_of(take(1)), chunk_of(of_1)); // a fresh one, in its own chunk
    arena_world_check(&world);
}

CASE(memory_of_others_serves_where_there_is_no_more) {
    (void)meet_node_1();
    go_to(0);
    struct arena_span last = {.slab = NULL};
    // Node 0 takes all that is left, then gives one span back.
    for (;;) {
        const struct arena_span span = take(1);
        if (!arena_has_slab(&set->primary, span.slab)) {
            arena_give(set, span.slab, 1);
            (void)arena_purge_all(set);
            break;
        }
        last = span;
    }
    arena_give(set, last.slab, 1);
    go_to(1);
    assert_int_equal(take(1).address, last.address);
    arena_world_check(&world);
}

CASE(a_limit_is_no_reason_to_fail_as_long_as_others_have_some) {
    (void)meet_node_1();
    go_to(0);
    const struct arena_span of_0 = take(4);
    arena_give(set, of_0.slab, 4);
    os_charge_set(&world.os, world.os.charge.held_bytes, UINT64_MAX);
    go_to(1);
    const struct arena_span span = arena_take(set, 4, 1);
    assert_int_equal(span.address, of_0.address);
    assert_false(span.refused);
    const struct arena_span more = arena_take(set, 4, 1);
    assert_null(more.slab);
    assert_true(more.refused);
    arena_world_check(&world);
}

CASE(a_chunk_that_is_wholly_purged_is_nobody_s) {
    const struct arena_span of_1 = meet_node_1();
    const unsigned chunk = chunk_of(of_1);
    arena_give(set, of_1.slab, MALLOW_CHUNK_SLICES);
    assert_int_equal(set->nodes[chunk], 2);
    (void)arena_purge_all(set);
    assert_int_equal(set->nodes[chunk], 0);
    go_to(2);
    // The rest of the first chunk has no owner either, as nobody was known when it was begun.
    const struct arena_span span = take(MALLOW_CHUNK_SLICES);
    assert_int_equal(chunk_of(span), chunk);
    assert_int_equal(set->nodes[chunk], 3);
}

CASE(what_is_decommitted_is_nobody_s) {
    const struct arena_span of_1 = meet_node_1();
    const unsigned chunk = chunk_of(of_1);
    arena_give(set, of_1.slab, MALLOW_CHUNK_SLICES);
    assert_true(arena_decommit_all(set) > 0);
    assert_int_equal(set->nodes[chunk], 0);
    arena_world_check(&world);
}

CASE(without_memory_for_the_table_all_is_one_node) {
    go_to(1);
    world.os.sealed = false;
    (void)take(MALLOW_CHUNK_SLICES);
    assert_non_null(set->nodes);
    assert_true(os_unmap(&world.os, (uintptr_t)set->nodes, 4096));
    set->nodes = NULL;
    (void)take(1); // no growth: nobody asks
    assert_null(set->nodes);
    arena_world_check(&world);
}

// Threads of three nodes take and give at random, and purges come between: a span lies in a chunk that
// was its node's or nobody's, unless the arena was full.
CASE(at_random_a_span_is_of_its_node_unless_the_arena_is_full) {
    struct {
        struct arena_span span;
        unsigned slice_count;
    } held[200];
    unsigned count = 0;
    unsigned misses = 0;
    struct unit_chance chance = unit_chance_begin();
    (void)meet_node_1();
    for (unsigned step = 0; step < 30000; step++) {
        go_to(unit_below(&chance, 3));
        if (unit_below(&chance, 512) == 0) {
            (void)arena_purge_all(set);
        }
        if (count > 0 && (unit_below(&chance, 2) == 0 || count == 40)) {
            const unsigned i = unit_below(&chance, count);
            arena_give(set, held[i].span.slab, held[i].slice_count);
            held[i] = held[--count];
            continue;
        }
        uint8_t before[WORLD_RESERVE_BYTES >> MALLOW_CHUNK_SHIFT];
        memcpy(before, set->nodes, sizeof before);
        const unsigned slice_count = unit_below(&chance, 4) + 1;
        const struct arena_span span = arena_take(set, slice_count, 1);
        assert_non_null(span.slab);
        held[count].slice_count = slice_count;
        held[count++].span = span;
        if (arena_has_slab(&set->primary, span.slab)) {
            const uint8_t mark = arena_node_mark(set);
            const uint8_t now = set->nodes[chunk_of(span)];
            assert_true(now != 0);
            assert_true(before[chunk_of(span)] != 0 || now == mark);
            misses += now != mark;
            // Another's only when nothing could be committed any more.
            assert_true(now == mark ||
                        set->primary.committed_slices + MALLOW_CHUNK_SLICES > set->primary.slice_count ||
                        span.grown);
        }
        arena_world_check(&world);
    }
    assert_true(misses < 30000 / 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define CASE_ENTRY(name) cmocka_unit_test_setup_teardown(name, begin, end)
        CASE_ENTRY(with_one_node_there_is_no_table),
        CASE_ENTRY(the_table_comes_with_the_first_growth_on_another_node_by_one_call),
        CASE_ENTRY(what_a_node_has_used_goes_to_it_again_and_not_to_another),
        CASE_ENTRY(single_slices_likewise_those_with_pages_first),
        CASE_ENTRY(memory_of_others_serves_where_there_is_no_more),
        CASE_ENTRY(a_limit_is_no_reason_to_fail_as_long_as_others_have_some),
        CASE_ENTRY(a_chunk_that_is_wholly_purged_is_nobody_s),
        CASE_ENTRY(what_is_decommitted_is_nobody_s),
        CASE_ENTRY(without_memory_for_the_table_all_is_one_node),
        CASE_ENTRY(at_random_a_span_is_of_its_node_unless_the_arena_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
