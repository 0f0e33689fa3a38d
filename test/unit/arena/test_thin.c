// SPDX-License-Identifier: MIT
// Thin slices: units of 1 KiB, runs of them, their blocks, and when they come back.
#include "arena/thin.h"

#include <pthread.h>

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

static struct slab *slab_of(uintptr_t address) {
    const struct arena *const arena = arena_of(&world.arenas, address);
    assert_non_null(arena);
    struct slab *const slab = arena_slab_at(arena, address);
    assert_int_equal(slab->kind, SLAB_THIN);
    return slab;
}

static size_t size_of(uintptr_t address) {
    return thin_size(slab_of(address), address);
}

static uintptr_t take(struct thin_unit *unit, size_t bytes) {
    assert_int_equal(size_class_bytes(size_class_of(bytes)), bytes);
    return thin_take(unit, size_class_of(bytes));
}

static uintptr_t take_run(size_t bytes) {
    return thin_take_run(set, size_class_of(bytes));
}

static bool give(uintptr_t address) {
    return thin_give(set, slab_of(address), address);
}

CASE(a_unit_is_a_kibibyte_of_blocks_side_by_side) {
    struct thin_unit unit = {NULL, 0, 0};
    assert_int_equal(take(&unit, 16), 0); // none is open
    assert_true(thin_open(set, &unit));
    const uintptr_t first = unit.bump;
    assert_int_equal(unit.end - first, THIN_UNIT_BYTES);
    assert_int_equal(first % THIN_UNIT_BYTES, 0);
    assert_int_equal(take(&unit, 48), first);
    assert_int_equal(take(&unit, 512), first + 48);
    assert_int_equal(take(&unit, 16), first + 560);
    assert_int_equal(take(&unit, 512), 0); // 448 are left
    assert_int_equal(take(&unit, 448), first + 576);
    assert_int_equal(take(&unit, 16), 0);
    assert_int_equal(size_of(first), 48);
    assert_int_equal(size_of(first + 576), 448);
}

CASE(only_the_start_of_a_live_block_has_a_size_and_can_be_freed) {
    struct thin_unit unit = {NULL, 0, 0};
    assert_true(thin_open(set, &unit));
    const uintptr_t block = take(&unit, 64);
    const uintptr_t other = take(&unit, 64);
    const struct slab *const slab = slab_of(block);
    for (uintptr_t at = block + 1; at < other; at++) {
        assert_int_equal(size_of(at), 0);
        assert_false(give(at));
        assert_false(thin_was_freed(slab, at));
    }
    assert_int_equal(thin_size(slab, other + 64), 0);        // not handed out yet
    assert_false(thin_give(set, slab_of(block), other + 64));
    assert_int_equal(thin_size(slab, block - MALLOW_SLICE_BYTES), 0);
    assert_int_equal(size_of(block), 64);
}

CASE(a_block_is_freed_once_and_is_known_to_have_been) {
    struct thin_unit unit = {NULL, 0, 0};
    assert_true(thin_open(set, &unit));
    const uintptr_t block = take(&unit, 512);
    const uintptr_t other = take(&unit, 16);
    assert_false(thin_was_freed(slab_of(block), block));
    assert_true(give(block));
    assert_true(thin_was_freed(slab_of(block), block));
    assert_int_equal(size_of(block), 0);
    assert_false(give(block));
    assert_int_equal(size_of(other), 16);
    assert_true(give(other));
    assert_false(give(other));
}

CASE(a_unit_comes_back_when_it_is_closed_and_all_its_blocks_are_freed) {
    struct thin_unit unit = {NULL, 0, 0};
    struct thin_unit next = {NULL, 0, 0};
    assert_true(thin_open(set, &unit));
    const uintptr_t first = take(&unit, 256);
    const uintptr_t second = take(&unit, 256);
    assert_true(give(first));
    assert_true(give(second)); // nothing live, but open
    assert_true(thin_open(set, &next));
    assert_int_not_equal(next.bump, first);
    thin_close(set, &next);
    const uintptr_t third = take(&unit, 512);
    thin_close(set, &unit);
    assert_int_equal(take(&unit, 16), 0);
    assert_true(thin_open(set, &next)); // one live
    assert_int_not_equal(next.bump, first);
    thin_close(set, &next);
    assert_true(give(third));
    assert_true(thin_open(set, &next));
    assert_int_equal(next.bump, first);
    assert_false(thin_was_freed(slab_of(first), first)); // nothing is remembered
    assert_int_equal(size_of(first), 0);
    assert_false(give(first));
}

CASE(a_slice_goes_back_with_its_last_unit_unless_it_is_the_only_one) {
    enum { UNITS = 2 * THIN_UNIT_COUNT + 1 };
    struct thin_unit units[UNITS] = {{NULL, 0, 0}};
    const struct arena *const primary = &world.arenas.primary;
    for (unsigned i = 0; i < UNITS; i++) {
        assert_true(thin_open(set, &units[i]));
        for (unsigned j = 0; j < i; j++) {
            assert_int_not_equal(units[i].bump, units[j].bump);
        }
    }
    const size_t used = primary->committed_slices - primary->free_slices;
    for (unsigned i = 0; i < UNITS; i++) {
        thin_close(set, &units[i]);
    }
    assert_int_equal(primary->committed_slices - primary->free_slices, used - 2);
    assert_non_null(set->available);
    assert_null(set->available->next);
    assert_int_equal(set->available->free_units, UINT64_MAX);
    arena_world_check(&world);
    // Two structures are kept for the next slices.
    const uint64_t meta_used = world.meta.used_bytes;
    for (unsigned i = 0; i < UNITS; i++) {
        assert_true(thin_open(set, &units[i]));
        assert_int_equal(take(&units[i], 512), units[i].end - THIN_UNIT_BYTES);
    }
    assert_int_equal(world.meta.used_bytes, meta_used);
}

CASE(a_larger_block_has_a_run_of_units_beside_the_open_one) {
    struct thin_unit unit = {NULL, 0, 0};
    assert_true(thin_open(set, &unit));
    const uintptr_t small = take(&unit, 16);
    const uintptr_t run = take_run(4096);
    assert_int_equal(run, small + THIN_UNIT_BYTES); // on one page with what was there
    const uintptr_t second = take_run(1152);
    assert_int_equal(second, run + 4096);
    assert_int_equal(take_run(640), second + 2 * THIN_UNIT_BYTES);
    assert_int_equal(size_of(run), 4096);
    for (uintptr_t at = run + 1; at < run + 4096; at++) {
        assert_int_equal(size_of(at), 0);
        assert_false(give(at));
    }
    assert_true(give(run));
    assert_false(give(run));
    assert_true(thin_was_freed(slab_of(run), run));
    assert_int_equal(size_of(second), 1152);
    // Its units serve a run or a unit again; nothing is remembered.
    const uintptr_t again = take_run(2048);
    assert_int_equal(again, run);
    struct thin_unit next = {NULL, 0, 0};
    assert_true(thin_open(set, &next));
    assert_int_equal(next.bump, again + 2048);
    assert_false(thin_was_freed(slab_of(run), next.bump));
}

CASE(a_slice_whose_free_units_do_not_lie_together_has_no_run) {
    struct thin_unit units[THIN_UNIT_COUNT] = {{NULL, 0, 0}};
    for (unsigned i = 0; i < THIN_UNIT_COUNT; i++) {
        assert_true(thin_open(set, &units[i]));
    }
    for (unsigned i = 0; i < THIN_UNIT_COUNT; i += 2) {
        thin_close(set, &units[i]);
    }
    assert_int_equal(take_run(1280), 0);
    const uintptr_t run = take_run(1024);
    assert_int_equal(run % MALLOW_SLICE_BYTES, 0);
    thin_close(set, &units[THIN_UNIT_COUNT - 1]); // the last two are free
    assert_int_equal(take_run(2048) % MALLOW_SLICE_BYTES, MALLOW_SLICE_BYTES - 2048);
    assert_int_equal(take_run(2048), 0);
}

CASE(live_blocks_are_counted_by_their_size) {
    uint32_t counts[MALLOW_THIN_CLASS_COUNT] = {0};
    struct thin_unit unit = {NULL, 0, 0};
    assert_true(thin_open(set, &unit));
    const uintptr_t gone = take(&unit, 48);
    (void)take(&unit, 48);
    (void)take(&unit, 48);
    const uintptr_t last = take(&unit, THIN_BLOCK_BYTES_MAX);
    const uintptr_t run = take_run(THIN_RUN_BYTES_MAX);
    assert_int_not_equal(run, 0);
    assert_true(give(gone));
    const size_t units_bytes = MALLOW_SLICE_BYTES - THIN_UNIT_BYTES - THIN_RUN_BYTES_MAX;
    struct thin_free free = thin_count(slab_of(last), counts);
    assert_int_equal(free.count, 2); // the one given back, and the units behind
    assert_int_equal(free.bytes, 48 + units_bytes);
    for (unsigned class_index = 0; class_index < MALLOW_THIN_CLASS_COUNT; class_index++) {
        const size_t bytes = size_class_bytes(class_index);
        const bool once = bytes == THIN_BLOCK_BYTES_MAX || bytes == THIN_RUN_BYTES_MAX;
        assert_int_equal(counts[class_index], bytes == 48 ? 2 : once);
    }
    assert_true(give(run)); // its mark stays until the units are used again
    free = thin_count(slab_of(last), counts);
    assert_int_equal(free.count, 2);
    assert_int_equal(free.bytes, 48 + units_bytes + THIN_RUN_BYTES_MAX);
}

CASE(blocks_of_several_heaps_keep_their_contents_and_never_overlap) {
    enum { HEAPS = 5, BLOCKS = 400 };
    struct unit_chance chance = unit_chance_begin();
    struct thin_unit units[HEAPS] = {{NULL, 0, 0}};
    uintptr_t blocks[BLOCKS] = {0};
    unsigned runs = 0;
    for (unsigned round = 0; round < 40000; round++) {
        const unsigned i = unit_below(&chance, BLOCKS);
        const unsigned char tag = (unsigned char)(i % 250 + 1);
        if (blocks[i] != 0) {
            const size_t bytes = size_of(blocks[i]);
            assert_in_range(bytes, 16, THIN_RUN_BYTES_MAX);
            assert_int_equal(*(const unsigned char *)blocks[i], tag);
            assert_true(unit_is_all((const void *)blocks[i], tag, bytes));
            assert_true(give(blocks[i]));
            blocks[i] = 0;
            continue;
        }
        struct thin_unit *const unit = &units[unit_below(&chance, HEAPS)];
        const unsigned class_index = unit_below(&chance, MALLOW_THIN_CLASS_COUNT);
        const size_t bytes = size_class_bytes(class_index);
        if (bytes > THIN_BLOCK_BYTES_MAX) {
            blocks[i] = thin_take_run(set, class_index);
            if (blocks[i] == 0) {
                continue;
            }
            runs++;
        } else {
            while ((blocks[i] = thin_take(unit, class_index)) == 0) {
                thin_close(set, unit);
                assert_true(thin_open(set, unit));
            }
        }
        assert_int_equal(size_of(blocks[i]), bytes);
        memset((void *)blocks[i], tag, bytes);
    }
    assert_true(runs > 0);
}

// ---- Threads ------------------------------------------------------------------------------------

enum { THREADS = 4, SHARED_BLOCKS = 3000 };
static uintptr_t shared_blocks[SHARED_BLOCKS];
static _Atomic(unsigned) freed_count;

static void *free_all(void *argument) {
    (void)argument;
    for (unsigned i = 0; i < SHARED_BLOCKS; i++) {
        struct slab *const slab =
            arena_slab_at(&world.arenas.primary, shared_blocks[i]);
        if (thin_give(set, slab, shared_blocks[i])) {
            atomic_fetch_add(&freed_count, 1);
        }
    }
    return NULL;
}

CASE(of_several_threads_that_free_the_same_block_one_succeeds) {
    struct thin_unit unit = {NULL, 0, 0};
    uintptr_t keep[64]; // a live block in each slice, so that none goes back under the race
    unsigned keep_count = 0;
    atomic_store(&freed_count, 0);
    for (unsigned i = 0; i < SHARED_BLOCKS; i++) {
        while ((shared_blocks[i] = take(&unit, 64)) == 0) {
            thin_close(set, &unit);
            assert_true(thin_open(set, &unit));
            if (unit.bump % MALLOW_SLICE_BYTES == 0) {
                keep[keep_count++] = take(&unit, 16);
            }
        }
    }
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, free_all, NULL), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(atomic_load(&freed_count), SHARED_BLOCKS);
    while (keep_count > 0) {
        assert_true(give(keep[--keep_count]));
    }
    thin_close(set, &unit);
    assert_null(set->available->next); // all the others went back
    arena_world_check(&world);
}

CASE(what_an_ended_thread_had_open_is_gone_on_with) {
    struct thin_unit unit = {NULL, 0, 0};
    assert_false(thin_resume(set, &unit, 16)); // none is kept
    assert_true(thin_open(set, &unit));
    const uintptr_t first = take(&unit, 128);
    thin_leave(set, &unit);
    assert_null(unit.slice);
    assert_false(thin_resume(set, &unit, THIN_UNIT_BYTES)); // so much is not left
    assert_true(thin_resume(set, &unit, THIN_UNIT_BYTES - 128));
    assert_int_equal(take(&unit, 512), first + 128);
    assert_false(thin_resume(set, &(struct thin_unit){NULL, 0, 0}, 16)); // it has one opener
    thin_leave(set, &unit);
    assert_true(give(first));
    assert_true(give(first + 128));
    assert_true(thin_resume(set, &unit, 64));
    assert_int_equal(take(&unit, 16), first + 640);
    thin_leave(set, &unit);
    assert_true(thin_resume(set, &unit, 64));
    assert_int_equal(take(&unit, 16), first + 704); // threads share no cache line
    assert_true(give(first + 640));
    assert_true(give(first + 704));
    thin_leave(set, &unit);
    assert_false(thin_resume(set, &unit, 16)); // nothing was live any more
    assert_true(thin_open(set, &unit));
    assert_true(give(take(&unit, 16)) && take(&unit, 16) != 0);
    const uintptr_t last = unit.bump - 16;
    thin_leave(set, &unit);
    assert_true(give(last));
    assert_int_not_equal(set->available->free_units, UINT64_MAX); // nothing live, but kept
    (void)thin_idle_look(set, false);
    assert_int_equal(set->available->free_units, UINT64_MAX);
    assert_false(thin_resume(set, &unit, 16));
    arena_world_check(&world);
}

CASE(a_unit_that_is_of_no_more_use_is_not_kept) {
    struct thin_unit unit = {NULL, 0, 0};
    thin_leave(set, &unit); // none is open
    assert_true(thin_open(set, &unit));
    assert_true(give(take(&unit, 128)));
    thin_leave(set, &unit); // nothing live in it
    assert_int_equal(set->available->free_units, UINT64_MAX);
    assert_true(thin_open(set, &unit));
    const uintptr_t first = take(&unit, 512);
    assert_int_equal(take(&unit, 512), first + 512);
    thin_leave(set, &unit); // full
    assert_false(thin_resume(set, &unit, 16));
    assert_true(give(first));
    assert_true(give(first + 512));
    assert_int_equal(set->available->free_units, UINT64_MAX);
}

CASE(of_those_kept_the_one_that_fits_best_is_gone_on_with) {
    static const size_t taken[] = {512, 16, 512, 256}; // left: 512, all but a line, 512, 768
    struct thin_unit units[4];
    uintptr_t blocks[4];
    for (unsigned i = 0; i < 4; i++) {
        assert_true(thin_open(set, &units[i]));
        blocks[i] = take(&units[i], taken[i]);
    }
    for (unsigned i = 0; i < 4; i++) {
        thin_leave(set, &units[i]);
    }
    struct thin_unit unit;
    assert_true(thin_resume(set, &unit, 513)); // 768
    assert_int_equal(unit.end - unit.bump, 768);
    thin_leave(set, &unit);
    for (unsigned i = 0; i < 2; i++) {
        assert_true(thin_resume(set, &unit, 512));
        assert_int_equal(unit.end - unit.bump, 512);
        thin_close(set, &unit);
    }
    assert_true(thin_resume(set, &unit, 769));
    assert_int_equal(unit.end - unit.bump, 1024 - MALLOW_CACHE_LINE);
    thin_close(set, &unit);
    assert_false(thin_resume(set, &unit, 769));
    assert_true(thin_resume(set, &unit, 0));
    thin_close(set, &unit);
    assert_false(thin_resume(set, &unit, 0));
    for (unsigned i = 0; i < 4; i++) {
        assert_true(give(blocks[i]));
    }
    assert_int_equal(set->available->free_units, UINT64_MAX);
}

CASE(no_more_units_are_kept_than_stated) {
    struct thin_unit units[THIN_KEPT_COUNT + 2];
    uintptr_t blocks[THIN_KEPT_COUNT + 2];
    for (unsigned i = 0; i < THIN_KEPT_COUNT + 2; i++) {
        assert_true(thin_open(set, &units[i]));
        blocks[i] = take(&units[i], 16);
    }
    for (unsigned i = 0; i < THIN_KEPT_COUNT + 2; i++) {
        thin_leave(set, &units[i]);
        assert_null(units[i].slice);
        assert_true(give(blocks[i]));
    }
    assert_int_equal(bits_count(~set->available->free_units), THIN_KEPT_COUNT);
    for (unsigned i = 0; i < THIN_KEPT_COUNT; i++) {
        assert_true(thin_resume(set, &units[i], 16));
        thin_close(set, &units[i]);
    }
    assert_false(thin_resume(set, &units[0], 16));
    assert_int_equal(set->available->free_units, UINT64_MAX);
}

#define THIN_CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    const struct CMUnitTest cases[] = {
        THIN_CASE(a_unit_is_a_kibibyte_of_blocks_side_by_side),
        THIN_CASE(only_the_start_of_a_live_block_has_a_size_and_can_be_freed),
        THIN_CASE(a_block_is_freed_once_and_is_known_to_have_been),
        THIN_CASE(a_unit_comes_back_when_it_is_closed_and_all_its_blocks_are_freed),
        THIN_CASE(a_slice_goes_back_with_its_last_unit_unless_it_is_the_only_one),
        THIN_CASE(a_larger_block_has_a_run_of_units_beside_the_open_one),
        THIN_CASE(a_slice_whose_free_units_do_not_lie_together_has_no_run),
        THIN_CASE(live_blocks_are_counted_by_their_size),
        THIN_CASE(blocks_of_several_heaps_keep_their_contents_and_never_overlap),
        THIN_CASE(what_an_ended_thread_had_open_is_gone_on_with),
        THIN_CASE(a_unit_that_is_of_no_more_use_is_not_kept),
        THIN_CASE(of_those_kept_the_one_that_fits_best_is_gone_on_with),
        THIN_CASE(no_more_units_are_kept_than_stated),
        THIN_CASE(of_several_threads_that_free_the_same_block_one_succeeds),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
