// SPDX-License-Identifier: MIT
// Giant pages under the beginning of the primary arena: what is taken from them and given back, on
// ordinary pages in their place; and that without any the reservation is as it was.
#include "arena/arena_giant.h"

#include <sys/mman.h>

#include "arena/promote.h"
#include "os/os_giant.h"
#include "world.h"

static struct arena_world world;
static struct arena_set *const set = &world.arenas;

enum { GIANT_SLICES = (1 << 30) / (64 << 10), GIANT_CHUNKS = GIANT_SLICES / MALLOW_CHUNK_SLICES };

// Where the one slice lies that is never handed out: in which GiB of the arena.
static size_t barred_gib(void) {
    return ((set->primary.slice_count - set->primary.rotation) & set->primary.slot_mask) /
           GIANT_SLICES;
}

// An arena of 4 GiB, such that the barred slice is in the last of them. Those in other places stay
// reserved, so that the next comes to lie elsewhere.
static int begin(void **state) {
    (void)state;
    do {
        memset(&world, 0, sizeof world);
        os_init(&world.os);
        world.os.address_space_limit = SIZE_MAX;
        world.os.wants_giant = true;
        meta_init(&world.meta, &world.os);
        address_map_init(&world.map, &world.meta);
        arena_set_init(set, &world.os, &world.meta, &world.map, (size_t)4 << 30);
    } while (barred_gib() != 3);
    set->trim_slices = SIZE_MAX;
    return 0;
}

static int end(void **state) {
    (void)state;
    arena_world_end(&world);
    return 0;
}

static uint64_t held(void) {
    return atomic_load(&world.os.charge.held_bytes);
}

// One giant page, as far as the arena can tell.
static void have_one(void) {
    assert_true(os_commit(&world.os, set->primary.base, OS_GIANT_BYTES));
    os_charge_add(&world.os, OS_GIANT_BYTES);
    arena_giant_use(set, OS_GIANT_BYTES);
}

static bool system_has_some(void) {
    FILE *const file =
        fopen("/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages", "re");
    unsigned count = 0;
    const bool some = file != NULL && fscanf(file, "%u", &count) == 1 && count != 0;
    if (file != NULL) {
        fclose(file);
    }
    return some;
}

static bool is_beyond(struct arena_span span) {
    return span.address - set->primary.base >= OS_GIANT_BYTES;
}

// Takes whole chunks, untouched, until all of the giant page is in use.
static void use_up(void) {
    for (unsigned i = 0; i < GIANT_CHUNKS; i++) {
        assert_false(is_beyond(arena_take(set, MALLOW_CHUNK_SLICES, 1)));
    }
}

// ---- Cases --------------------------------------------------------------------------------------

CASE(the_arena_begins_on_one) {
    assert_int_equal(set->primary.base % OS_GIANT_BYTES, 0);
    assert_int_equal(set->primary.giant_slices, 0);
}

CASE(where_the_system_has_none_all_is_as_it_was) {
    if (system_has_some()) {
        skip();
    }
    const uint64_t before = held();
    assert_int_equal(arena_giant_take(set, 2, 2), 0);
    assert_int_equal(set->primary.giant_slices, 0);
    assert_int_equal(held(), before);
    // The reservation has no hole that another mapping could come to lie in.
    const uintptr_t there = set->primary.base;
    assert_true((uintptr_t)mmap((void *)there, 4096, PROT_NONE,
                                MAP_PRIVATE | MAP_ANONYMOUS | 0x100000 /* not in place of others */,
                                -1, 0) == (uintptr_t)MAP_FAILED);
    assert_true(arena_take(set, 3, 1).grown);
    arena_world_check(&world);
}

CASE(those_of_the_system_are_taken_zeroed) {
    if (!system_has_some()) {
        skip();
    }
    assert_int_equal(arena_giant_take(set, 1, 1), 1);
    const struct arena_span span = arena_take(set, 4, 1);
    assert_true(span.zeroed);
    assert_true(unit_is_all((void *)span.address, 0, 4 * MALLOW_SLICE_BYTES));
}

CASE(after_the_arena_is_in_use_it_is_too_late) {
    (void)arena_take(set, 1, 1);
    assert_int_equal(arena_giant_take(set, 1, 1), 0);
}

CASE(a_limit_holds_for_them) {
    os_charge_set(&world.os, held() + OS_GIANT_BYTES / 2, UINT64_MAX);
    const uint64_t calls = os_entries(&world.os);
    assert_int_equal(arena_giant_take(set, 1, 1), 0);
    assert_int_equal(os_entries(&world.os), calls);
}

CASE(slices_of_them_cost_no_call_and_no_charge) {
    have_one();
    const struct arena_span first = arena_take(set, 8, 1);
    assert_int_equal(first.address - set->primary.base, 0);
    const uint64_t before = held();
    const uint64_t calls = os_entries(&world.os);
    for (unsigned i = 0; i < 3; i++) { // headers are there already
        assert_int_equal(arena_take(set, MALLOW_CHUNK_SLICES, 1).address - set->primary.base,
                         (i + 1) * MALLOW_CHUNK_BYTES);
    }
    assert_int_equal(os_entries(&world.os), calls);
    assert_int_equal(held(), before);
}

CASE(what_is_freed_stays_and_is_not_known_to_be_zero) {
    have_one();
    const struct arena_span span = arena_take(set, 4, 1);
    assert_true(span.zeroed);
    memset((void *)span.address, 7, 4 * MALLOW_SLICE_BYTES);
    const uint64_t before = held();
    arena_give(set, span.slab, 4);
    assert_int_equal(set->dirty_slices, 0);
    assert_int_equal(arena_purge_all(set), 0);
    assert_int_equal(arena_purge_some(set, SIZE_MAX), 0);
    assert_int_equal(arena_idle_purge(set, 1, UINT32_MAX), 0);
    assert_int_equal(arena_decommit_all(set), 0);
    assert_int_equal(held(), before);
    assert_false(os_purge(&world.os, span.address, 4096));
    const struct arena_span again = arena_take(set, 4, 1);
    assert_int_equal(again.address, span.address);
    assert_false(again.zeroed);
    assert_true(unit_is_all((void *)span.address, 7, 4 * MALLOW_SLICE_BYTES));
}

CASE(beyond_them_all_is_as_without) {
    have_one();
    use_up();
    const uint64_t before = held();
    const struct arena_span span = arena_take(set, 4, 1);
    assert_int_equal(span.address - set->primary.base, OS_GIANT_BYTES);
    assert_true(span.grown && span.zeroed);
    memset((void *)span.address, 7, 4 * MALLOW_SLICE_BYTES);
    arena_give(set, span.slab, 4);
    assert_int_equal(set->dirty_slices, 4);
    assert_int_equal(arena_purge_all(set), 4 * MALLOW_SLICE_BYTES);
    assert_true(arena_take(set, 4, 1).zeroed);
    assert_true(held() >= before + 4 * MALLOW_SLICE_BYTES);
    arena_give(set, span.slab, 4);
    assert_true(arena_decommit_all(set) > 0);
    assert_int_equal(set->primary.committed_slices, GIANT_SLICES);
}

// Whatever is taken and given, what is charged at the end is the giant page and the tables.
CASE(the_charge_is_that_of_the_pages_whatever_comes_and_goes) {
    struct {
        struct arena_span span;
        unsigned slice_count;
    } live[300];
    unsigned count = 0;
    struct unit_chance chance = unit_chance_begin();
    static struct arena_span chunks[GIANT_CHUNKS - 2];
    have_one();
    for (unsigned i = 0; i < GIANT_CHUNKS - 2; i++) { // headers are charged as they are made
        chunks[i] = arena_take(set, MALLOW_CHUNK_SLICES, 1);
    }
    for (unsigned i = 0; i < GIANT_CHUNKS - 2; i++) {
        assert_false(is_beyond(chunks[i]));
        arena_give(set, chunks[i].slab, MALLOW_CHUNK_SLICES);
    }
    const uint64_t before = held();
    for (unsigned step = 0; step < 20000; step++) {
        if (count == 300 || (count > 0 && unit_below(&chance, 2) == 0)) {
            const unsigned i = unit_below(&chance, count);
            arena_give(set, live[i].span.slab, live[i].slice_count);
            live[i] = live[--count];
        } else {
            live[count].slice_count = unit_below(&chance, MALLOW_CHUNK_SLICES) + 1;
            live[count].span = arena_take(set, live[count].slice_count, 1);
            assert_non_null(live[count].span.slab);
            count++;
        }
        assert_int_equal(held(), before);
        assert_int_equal(set->dirty_slices, 0);
    }
}

CASE(no_huge_page_is_made_of_a_part_of_one) {
    struct huge_set huges = {.os = NULL};
    struct promote promote = {.os = NULL};
    huge_set_init(&huges, &world.os, &world.meta, &world.map, 0);
    promote_init(&promote, set, &huges, true);
    have_one();
    const struct arena_span span = arena_take(set, MALLOW_CHUNK_SLICES, 1);
    memset((void *)span.address, 1, MALLOW_CHUNK_BYTES);
    for (unsigned i = 0; i < 6; i++) {
        assert_int_equal(promote_look(&promote), 0);
        assert_false(promote_one(&promote));
    }
    assert_true(promote.able);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define CASE_ENTRY(name) cmocka_unit_test_setup_teardown(name, begin, end)
        CASE_ENTRY(the_arena_begins_on_one),
        CASE_ENTRY(where_the_system_has_none_all_is_as_it_was),
        CASE_ENTRY(those_of_the_system_are_taken_zeroed),
        CASE_ENTRY(after_the_arena_is_in_use_it_is_too_late),
        CASE_ENTRY(a_limit_holds_for_them),
        CASE_ENTRY(slices_of_them_cost_no_call_and_no_charge),
        CASE_ENTRY(what_is_freed_stays_and_is_not_known_to_be_zero),
        CASE_ENTRY(beyond_them_all_is_as_without),
        CASE_ENTRY(the_charge_is_that_of_the_pages_whatever_comes_and_goes),
        CASE_ENTRY(no_huge_page_is_made_of_a_part_of_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
