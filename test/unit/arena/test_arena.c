// SPDX-License-Identifier: MIT
// Arena: taking, giving and extending spans of the primary arena. More: test_arena_grow.c.
#include "arena/arena.h"

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

static struct arena_span take(unsigned slice_count, unsigned align_slices) {
    const struct arena_span span = arena_take(set, slice_count, align_slices);
    assert_non_null(span.slab);
    assert_int_equal(span.slab->kind, SLAB_NONE);
    assert_int_equal(span.address % (align_slices * MALLOW_SLICE_BYTES), 0);
    const struct arena *const arena = arena_of(set, span.address);
    assert_non_null(arena);
    assert_ptr_not_equal(span.slab, &set->primary.slabs[0]); // never handed out
    assert_ptr_equal(arena_slab_at(arena, span.address), span.slab);
    assert_ptr_equal(arena_of(set, span.address + slice_count * MALLOW_SLICE_BYTES - 1), arena);
    return span;
}

static void fill(const struct arena_span *span, unsigned slice_count, int byte) {
    memset((void *)span->address, byte, slice_count * MALLOW_SLICE_BYTES);
}

static bool reads(const struct arena_span *span, unsigned slice_count, unsigned char byte) {
    const unsigned char *const at = (const unsigned char *)span->address;
    return at[0] == byte && unit_is_all(at, byte, slice_count * MALLOW_SLICE_BYTES);
}

CASE(a_new_span_reads_as_zero_and_its_header_is_clear) {
    for (unsigned count = 1; count <= MALLOW_CHUNK_SLICES; count *= 2) {
        const struct arena_span span = take(count, 1);
        assert_true(span.zeroed);
        assert_true(reads(&span, count, 0));
        fill(&span, count, 0x5a);
        arena_world_check(&world);
    }
}

CASE(every_length_at_every_alignment_lies_in_one_chunk) {
    for (unsigned align = 1; align <= MALLOW_CHUNK_SLICES; align *= 2) {
        for (unsigned count = 1; count <= MALLOW_CHUNK_SLICES; count++) {
            const struct arena_span span = take(count, align);
            const uintptr_t last = span.address + count * MALLOW_SLICE_BYTES - 1;
            assert_int_equal(span.address >> MALLOW_CHUNK_SHIFT, last >> MALLOW_CHUNK_SHIFT);
            arena_give(set, span.slab, count);
        }
        arena_world_check(&world);
    }
}

CASE(a_span_given_back_is_dirty_and_serves_the_next_request) {
    const struct arena_span span = take(3, 1);
    fill(&span, 3, 0x5a);
    arena_give(set, span.slab, 3);
    assert_int_equal(set->dirty_slices, 3);
    const struct arena_span again = take(3, 1);
    assert_int_equal(again.address, span.address);
    assert_false(again.zeroed);
    assert_int_equal(set->dirty_slices, 0);
    arena_world_check(&world);
}

CASE(a_span_with_one_dirty_slice_does_not_claim_to_be_zero) {
    const struct arena_span span = take(1, 1);
    fill(&span, 1, 0x5a);
    arena_give(set, span.slab, 1);
    const struct arena_span larger = take(4, 1);
    assert_int_equal(larger.address, span.address);
    assert_false(larger.zeroed);
}

CASE(purging_makes_dirty_slices_zero_and_counts_their_bytes) {
    const struct arena_span spans[] = {take(2, 1), take(1, 1), take(5, 1)};
    fill(&spans[0], 2, 0x5a);
    fill(&spans[1], 1, 0x5a);
    fill(&spans[2], 5, 0x5a);
    arena_give(set, spans[0].slab, 2);
    arena_give(set, spans[2].slab, 5);
    arena_settle(set); // nothing is owed
    assert_int_equal(set->dirty_slices, 7);
    (void)arena_owe(set, 6 * MALLOW_SLICE_BYTES);
    const uint64_t calls = world.os.advise_count;
    arena_settle(set); // one run: the highest
    assert_int_equal(world.os.advise_count, calls + 1);
    assert_int_equal(set->dirty_slices, 2);
    assert_true(reads(&spans[2], 5, 0));
    assert_true(arena_owes(set));
    const struct arena_span lowest = take(2, 1); // nothing dirty is left: nothing is owed
    arena_settle(set);
    assert_false(arena_owes(set));
    assert_int_equal(lowest.address, spans[0].address);
    arena_give(set, lowest.slab, 2);
    assert_int_equal(arena_purge_all(set), 2 * MALLOW_SLICE_BYTES);
    assert_int_equal(set->dirty_slices, 0);
    assert_int_equal(set->purged_bytes, 7 * MALLOW_SLICE_BYTES);
    arena_world_check(&world);
    assert_true(reads(&spans[0], 2, 0));
    assert_true(reads(&spans[1], 1, 0x5a)); // in use: left alone
    const struct arena_span again = take(2, 1);
    assert_true(again.zeroed);
    assert_int_equal(arena_purge_all(set), 0);
}

// Spans are taken from below, so that is what is taken next; whichever was given last.
CASE(what_is_owed_is_purged_from_above) {
    const struct arena_span spans[] = {take(2, 1), take(1, 1), take(5, 1)};
    arena_give(set, spans[2].slab, 5);
    arena_give(set, spans[0].slab, 2);
    (void)arena_owe(set, MALLOW_SLICE_BYTES);
    arena_settle(set);
    assert_int_equal(set->dirty_slices, 2);
    arena_give(set, spans[1].slab, 1);
    assert_int_equal(arena_purge_some(set, MALLOW_SLICE_BYTES), 3 * MALLOW_SLICE_BYTES);
}

// A refusal seldom comes alone, and a growth near a limit asks again each time.
CASE(what_the_kernel_keeps_refusing_is_not_tried_on_and_on) {
    enum { HOLES = 20 };
    struct arena_span spans[2 * HOLES];
    for (unsigned i = 0; i < 2 * HOLES; i++) {
        spans[i] = take(1, 1);
    }
    for (unsigned i = 0; i < 2 * HOLES; i += 2) {
        // By its number: sanitizers have a mlock that does nothing.
        if (syscall(SYS_mlock, spans[i].address, (size_t)1) != 0) {
            skip();
        }
        arena_give(set, spans[i].slab, 1);
    }
    const uint64_t calls = world.os.advise_count;
    assert_int_equal(arena_purge_some(set, SIZE_MAX), 0);
    assert_in_range(world.os.advise_count - calls, 1, 8);
    for (unsigned i = 0; i < 2 * HOLES; i += 2) {
        assert_int_equal(syscall(SYS_munlock, spans[i].address, (size_t)1), 0);
    }
    assert_int_equal(arena_purge_some(set, SIZE_MAX), HOLES * MALLOW_SLICE_BYTES);
}

CASE(beyond_the_threshold_a_freed_span_is_owed_to_the_system) {
    set->trim_slices = 2;
    const struct arena_span spans[] = {take(2, 1), take(1, 1)};
    fill(&spans[1], 1, 0x5a);
    arena_give(set, spans[0].slab, 2);
    assert_int_equal(set->dirty_slices, 2); // not beyond
    assert_false(arena_owes(set));
    arena_give(set, spans[1].slab, 1);
    assert_int_equal(set->purged_bytes, 0); // giving does not enter the kernel
    assert_true(arena_owes(set));
    arena_settle(set);
    assert_int_equal(set->purged_bytes, 3 * MALLOW_SLICE_BYTES); // the run that it is part of
    assert_false(arena_owes(set));
    assert_true(reads(&spans[1], 1, 0));
    arena_world_check(&world);
}

CASE(a_span_is_extended_by_the_free_slices_right_behind_it_and_no_others) {
    const struct arena_span span = take(4, 1);
    const struct arena_span spare = take(3, 1);
    const struct arena_span wall = take(1, 1);
    assert_int_equal(spare.address, span.address + 4 * MALLOW_SLICE_BYTES);
    slab_init_large(span.slab, span.address, 4, 4 * MALLOW_SLICE_BYTES);
    assert_false(arena_extend(set, span.slab, 4, 1));
    arena_give(set, spare.slab, 3);
    assert_false(arena_extend(set, span.slab, 4, 4)); // the fourth is the wall
    assert_int_equal(set->dirty_slices, 3);
    assert_true(arena_extend(set, span.slab, 4, 2));
    assert_int_equal(set->dirty_slices, 1);
    arena_world_check(&world);
    const struct arena_span left = take(1, 1);
    assert_int_equal(left.address, spare.address + 2 * MALLOW_SLICE_BYTES);
    (void)wall;
}

CASE(a_span_is_not_extended_beyond_its_chunk) {
    (void)take(31, 1); // the rest of the first chunk
    const struct arena_span whole = take(32, 32);
    const struct arena_span next = take(32, 32);
    assert_int_equal(next.address, whole.address + MALLOW_CHUNK_BYTES);
    arena_give(set, whole.slab, 32);
    arena_give(set, next.slab, 32);
    const struct arena_span span = take(30, 1);
    assert_int_equal(span.address, whole.address);
    slab_init_large(span.slab, span.address, 30, 30 * MALLOW_SLICE_BYTES);
    assert_false(arena_extend(set, span.slab, 30, 3));
    assert_true(arena_extend(set, span.slab, 30, 2));
}

CASE(the_remote_part_of_a_slab_is_its_own_and_writable) {
    const struct arena_span a = take(1, 1);
    const struct arena_span b = take(1, 1);
    struct slab_remote *const remote_a = arena_remote_of(set, a.slab);
    struct slab_remote *const remote_b = arena_remote_of(set, b.slab);
    assert_int_equal(remote_b - remote_a, b.slab - a.slab);
    atomic_store(&remote_a->bits[MALLOW_SLAB_WORDS - 1], ~UINT64_C(0));
    assert_int_equal(atomic_load(&remote_b->bits[MALLOW_SLAB_WORDS - 1]), 0);
}

CASE(no_two_spans_overlap_and_the_counts_hold_whatever_is_taken_and_given) {
    enum { SPANS = 40, ROUNDS = 4000 };
    struct unit_chance chance = unit_chance_begin();
    struct arena_span spans[SPANS] = {{.slab = NULL}};
    unsigned counts[SPANS] = {0};
    for (unsigned round = 0; round < ROUNDS; round++) {
        const unsigned i = unit_below(&chance, SPANS);
        if (spans[i].slab != NULL) {
            // Every slice still has what was written: nobody else got it.
            for (unsigned slice = 0; slice < counts[i]; slice++) {
                const uintptr_t at = spans[i].address + slice * MALLOW_SLICE_BYTES;
                assert_int_equal(*(const uint64_t *)at, i + 1);
            }
            arena_give(set, spans[i].slab, counts[i]);
            spans[i].slab = NULL;
        } else {
            counts[i] = 1 + unit_below(&chance, unit_below(&chance, 4) == 0 ? 32 : 6);
            const unsigned align = 1U << unit_below(&chance, 4);
            spans[i] = take(counts[i], align);
            for (unsigned slice = 0; slice < counts[i]; slice++) {
                uint64_t *const at =
                    (uint64_t *)(spans[i].address + slice * MALLOW_SLICE_BYTES);
                assert_true(!spans[i].zeroed || *at == 0);
                *at = i + 1;
            }
        }
        if (unit_below(&chance, 100) == 0) {
            (void)(unit_below(&chance, 2) == 0 ? arena_purge_all(set) : arena_decommit_all(set));
        }
        arena_world_check(&world);
    }
}

CASE(the_forking_thread_passes_through_the_locks_that_it_holds) {
    arena_fork_prepare(set, false);
    const struct arena_span span = take(1, 1);
    arena_give(set, span.slab, 1);
    arena_fork_parent(set);
    arena_world_check(&world);
    arena_fork_prepare(set, false);
    arena_fork_child(set);
    assert_int_equal(atomic_load(&set->lock.state), 0);
    assert_int_equal(atomic_load(&world.map.lock.state), 0);
    assert_int_equal(atomic_load(&world.meta.lock.state), 0);
}

#define ARENA_CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    const struct CMUnitTest cases[] = {
        ARENA_CASE(a_new_span_reads_as_zero_and_its_header_is_clear),
        ARENA_CASE(every_length_at_every_alignment_lies_in_one_chunk),
        ARENA_CASE(a_span_given_back_is_dirty_and_serves_the_next_request),
        ARENA_CASE(a_span_with_one_dirty_slice_does_not_claim_to_be_zero),
        ARENA_CASE(purging_makes_dirty_slices_zero_and_counts_their_bytes),
        ARENA_CASE(what_is_owed_is_purged_from_above),
        ARENA_CASE(what_the_kernel_keeps_refusing_is_not_tried_on_and_on),
        ARENA_CASE(beyond_the_threshold_a_freed_span_is_owed_to_the_system),
        ARENA_CASE(a_span_is_extended_by_the_free_slices_right_behind_it_and_no_others),
        ARENA_CASE(a_span_is_not_extended_beyond_its_chunk),
        ARENA_CASE(the_remote_part_of_a_slab_is_its_own_and_writable),
        ARENA_CASE(no_two_spans_overlap_and_the_counts_hold_whatever_is_taken_and_given),
        ARENA_CASE(the_forking_thread_passes_through_the_locks_that_it_holds),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
