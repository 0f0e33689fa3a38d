// SPDX-License-Identifier: MIT
// Free pages of thin slices: which go back when, against a model of units, and that no live block
// loses a byte.
#include "arena/thin.h"

#include "slab/size_class.h"
#include "world.h"

static struct arena_world world;
static struct thin_set thins;
static struct thin_set *const set = &thins;

static int begin(void **state) {
    (void)state;
    memset(&thins, 0, sizeof thins);
    arena_world_begin(&world);
    thin_set_init(set, &world.arenas);
    return 0;
}

static int end(void **state) {
    (void)state;
    arena_world_end(&world);
    return 0;
}

enum { RUNS = 14, RUN_BYTES = 4096 }; // a run of four units: a page, most often

static uintptr_t runs[RUNS];

static struct slab *slab_of(uintptr_t address) {
    return arena_slab_at(arena_of(&world.arenas, address), address);
}

static void take_runs(void) {
    for (unsigned i = 0; i < RUNS; i++) {
        runs[i] = thin_take_run(set, size_class_of(RUN_BYTES));
        assert_true(runs[i] != 0);
        memset((void *)runs[i], (int)i + 1, RUN_BYTES);
    }
}

static void give_run(unsigned i) {
    assert_true(thin_give(set, slab_of(runs[i]), runs[i]));
    runs[i] = 0;
}

static void check_runs(void) {
    for (unsigned i = 0; i < RUNS; i++) {
        assert_true(runs[i] == 0 || unit_is_all((void *)runs[i], (unsigned char)(i + 1), RUN_BYTES));
    }
}

static size_t resident(uintptr_t address) {
    return os_resident(&world.os, bits_align_down(address, MALLOW_SLICE_BYTES), MALLOW_SLICE_BYTES);
}

CASE(pages_that_stay_free_for_two_looks_go_back) {
    take_runs();
    const uintptr_t slice = runs[0];
    const size_t before = resident(slice);
    for (unsigned i = 2; i < RUNS; i += 2) {
        give_run(i);
    }
    const size_t free_bytes = (RUNS / 2 - 1) * RUN_BYTES;
    struct thin_idle idle = thin_idle_look(set, false);
    assert_int_equal(idle.bytes, 0);
    assert_int_equal(idle.later_bytes, free_bytes);
    assert_int_equal(thin_idle_purge(set, UINT32_MAX), 0);
    idle = thin_idle_look(set, false);
    assert_int_equal(idle.bytes, free_bytes);
    assert_int_equal(idle.later_bytes, 0);
    assert_int_equal(thin_idle_purge(set, UINT32_MAX), free_bytes);
    if (world.os.page_bytes <= RUN_BYTES) {
        assert_int_equal(resident(slice), before - free_bytes);
    }
    check_runs();
    idle = thin_idle_look(set, false); // and then there is nothing more
    assert_int_equal(idle.bytes + idle.later_bytes, 0);
}

CASE(what_is_used_in_between_stays) {
    take_runs();
    for (unsigned i = 2; i < RUNS; i++) {
        give_run(i);
    }
    for (unsigned look = 0; look < 10; look++) {
        (void)thin_idle_look(set, false);
        assert_int_equal(thin_idle_purge(set, UINT32_MAX), 0);
        for (unsigned i = 2; i < RUNS; i++) {
            runs[i] = thin_take_run(set, size_class_of(RUN_BYTES));
        }
        for (unsigned i = 2; i < RUNS; i++) {
            give_run(i);
        }
    }
}

CASE(a_purge_makes_no_more_calls_than_it_may) {
    take_runs();
    for (unsigned i = 1; i < RUNS; i += 2) {
        give_run(i);
    }
    assert_true(thin_idle_look(set, true).bytes > 0);
    for (unsigned i = 1; i < RUNS; i += 2) {
        const uint64_t before = atomic_load(&world.os.advise_count);
        assert_int_equal(thin_idle_purge(set, 1), RUN_BYTES);
        assert_int_equal(atomic_load(&world.os.advise_count), before + 1);
    }
    assert_int_equal(thin_idle_purge(set, 1), 0);
    check_runs();
}

CASE(a_slice_that_goes_back_while_it_is_next_is_passed_over) {
    uintptr_t all[40];
    for (unsigned i = 0; i < 40; i++) { // of three slices
        all[i] = thin_take_run(set, size_class_of(RUN_BYTES));
    }
    for (unsigned i = 0; i < 40; i += 2) {
        assert_true(thin_give(set, slab_of(all[i]), all[i]));
    }
    (void)thin_idle_look(set, true);
    assert_int_equal(thin_idle_purge(set, 1), RUN_BYTES);
    for (unsigned i = 1; i < 40; i += 2) {
        assert_true(thin_give(set, slab_of(all[i]), all[i]));
    }
    (void)thin_idle_purge(set, UINT32_MAX); // of what is left
    arena_world_check(&world);
}

CASE(a_run_is_looked_for_in_more_slices_and_made) {
    const unsigned class_index = size_class_of(RUN_BYTES);
    uintptr_t all[32];
    for (unsigned i = 0; i < 32; i++) { // two slices
        all[i] = thin_take_run_far(set, class_index, 4);
        assert_true(all[i] != 0);
    }
    assert_true(slab_of(all[0]) != slab_of(all[31]));
    assert_int_equal(thin_slice_count(set), 2);
    const uintptr_t small = thin_take_run_far(set, size_class_of(THIN_BLOCK_BYTES_MAX + 1), 4);
    assert_int_equal(thin_slice_count(set), 3);
    assert_true(thin_give(set, slab_of(all[0]), all[0])); // comes first, but for too small a run
    const uintptr_t first = thin_take_run_far(set, size_class_of(THIN_BLOCK_BYTES_MAX + 1), 4);
    assert_int_equal(first, all[0]);
    assert_int_equal(thin_take_run(set, class_index), 0);
    assert_true(thin_take_run_far(set, class_index, 4) != 0);
    assert_int_equal(thin_slice_count(set), 3);
    assert_true(thin_give(set, slab_of(small), small));
    arena_world_check(&world);
}

// As if somebody were just purging the page of a run.
static void leave_run(unsigned i, uintptr_t thread) {
    struct slab *const slab = slab_of(runs[i]);
    struct thin_slice *const slice = (struct thin_slice *)slab->word;
    const size_t unit = (runs[i] - slice->address) / THIN_UNIT_BYTES;
    give_run(i);
    const uint64_t units = UINT64_C(15) << unit;
    assert_true((slice->free_units & units) == units);
    thin_keep_units_locked(set, slice, units);
    set->leaving = (struct thin_leaving){slice, units, thread};
}

CASE(pages_that_another_thread_was_purging_are_free_again_in_a_child) {
    take_runs();
    const uintptr_t address = runs[0];
    leave_run(0, 1);
    thin_fork_child(set);
    assert_true(set->leaving.units != 0); // the set may be in the middle of a change
    thin_fork_child(set);
    (void)thin_idle_look(set, true);
    assert_int_equal(thin_idle_purge(set, UINT32_MAX), 0); // it was not looked at
    assert_null(set->leaving.slice);
    assert_true(thin_idle_look(set, true).bytes >= RUN_BYTES);
    assert_int_equal(thin_idle_purge(set, UINT32_MAX) % RUN_BYTES, 0);
    assert_int_equal(thin_take_run(set, size_class_of(RUN_BYTES)), address);
    check_runs();
}

// A handler that forks has interrupted the purge, which goes on in the child.
CASE(pages_that_the_child_itself_purges_stay_its_own) {
    take_runs();
    const uintptr_t address = runs[0];
    leave_run(0, os_this_thread());
    thin_fork_child(set);
    (void)thin_idle_look(set, true);
    assert_int_equal(thin_idle_purge(set, UINT32_MAX), 0); // after some 50 ms
    assert_int_equal(set->leaving.thread, os_this_thread());
    assert_int_not_equal(thin_take_run(set, size_class_of(RUN_BYTES)), address);
}

// ---- Against a model ----------------------------------------------------------------------------

enum { BLOCKS = 120, STEPS = 4000 };

struct model_block {
    uintptr_t address;
    size_t bytes;
    unsigned char tag;
};

static struct model_block blocks[BLOCKS];
static struct thin_unit open_unit;

static void model_take(struct model_block *block, struct unit_chance *chance) {
    const unsigned class_index = unit_below(chance, MALLOW_THIN_CLASS_COUNT);
    block->bytes = size_class_bytes(class_index);
    if (block->bytes > THIN_BLOCK_BYTES_MAX) {
        block->address = thin_take_run(set, class_index);
    } else {
        block->address = thin_take(&open_unit, class_index);
        if (block->address == 0) {
            thin_close(set, &open_unit);
            assert_true(thin_open(set, &open_unit));
            block->address = thin_take(&open_unit, class_index);
        }
    }
    if (block->address != 0) {
        block->tag = (unsigned char)(1 + unit_below(chance, 255));
        memset((void *)block->address, block->tag, block->bytes);
    }
}

static void model_give(struct model_block *block) {
    assert_true(unit_is_all((void *)block->address, block->tag, block->bytes));
    assert_true(thin_give(set, slab_of(block->address), block->address));
    block->address = 0;
}

CASE(no_live_block_loses_a_byte_whatever_comes_and_goes) {
    struct unit_chance chance = unit_chance_begin();
    size_t released = 0;
    memset(blocks, 0, sizeof blocks);
    open_unit = (struct thin_unit){NULL, 0, 0};
    for (unsigned step = 0; step < STEPS; step++) {
        struct model_block *const block = &blocks[unit_below(&chance, BLOCKS)];
        const bool filling = step / 500 % 2 == 0;
        if (block->address != 0) {
            model_give(block);
        } else if (filling || unit_below(&chance, 6) == 0) {
            model_take(block, &chance);
        }
        if (unit_below(&chance, 20) == 0) {
            (void)thin_idle_look(set, unit_below(&chance, 3) == 0);
            released += thin_idle_purge(set, 1 + unit_below(&chance, 5));
        }
    }
    assert_true(released > 0);
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (blocks[i].address != 0) {
            model_give(&blocks[i]);
        }
    }
    thin_close(set, &open_unit);
    arena_world_check(&world);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pages_that_stay_free_for_two_looks_go_back, begin, end),
        cmocka_unit_test_setup_teardown(what_is_used_in_between_stays, begin, end),
        cmocka_unit_test_setup_teardown(a_purge_makes_no_more_calls_than_it_may, begin, end),
        cmocka_unit_test_setup_teardown(a_slice_that_goes_back_while_it_is_next_is_passed_over,
                                        begin, end),
        cmocka_unit_test_setup_teardown(a_run_is_looked_for_in_more_slices_and_made, begin, end),
        cmocka_unit_test_setup_teardown(
            pages_that_another_thread_was_purging_are_free_again_in_a_child, begin, end),
        cmocka_unit_test_setup_teardown(pages_that_the_child_itself_purges_stay_its_own, begin, end),
        cmocka_unit_test_setup_teardown(no_live_block_loses_a_byte_whatever_comes_and_goes, begin,
                                        end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
