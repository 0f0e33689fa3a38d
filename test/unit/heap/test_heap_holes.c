// SPDX-License-Identifier: MIT
// Hole purge: which slabs are purged when, with how many calls, and what is left of them.
#include "heap/heap_holes.h"

#include <pthread.h> // and the time

#include "heap/heap_fast.h"
#include "heap/heap_gate.h"
#include "heap/heap_rest.h"
#include "heap_world.h"
#include "slab/slab_holes.h"

enum { BLOCK = 1000, COUNT = 640, KEEP = 16 };

static struct heap_world world;
static struct heap_holes holes;
static uintptr_t blocks[COUNT];
static uint64_t clock_ms = 1000;
static bool (*is_asleep)(uint32_t thread, uintptr_t top); // what the rounds below are told

static int begin(void **state) {
    (void)state;
    heap_world_begin(&world);
    memset(&holes, 0, sizeof holes);
    holes.shared = &world.shared;
    is_asleep = NULL;
    return 0;
}

static int end(void **state) {
    (void)state;
    heap_holes_forget(&holes);
    heap_world_end(&world);
    return 0;
}

// Of larger ones none would be free.
static void need_small_pages(void) {
    if (world.arena.os.page_bytes > 4096) {
        skip();
    }
}

// Blocks of which one in KEEP survives.
static void fill_and_thin(struct heap *heap) {
    need_small_pages();
    for (unsigned i = 0; i < COUNT; i++) {
        blocks[i] = heap_allocate(heap, BLOCK, false);
        assert_true(blocks[i] != 0);
        memset((void *)blocks[i], (int)(i % 250) + 1, BLOCK);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        if (i % KEEP != 0) {
            assert_true(heap_free(&world.shared, heap, blocks[i]));
        }
    }
}

static void check_survivors(void) {
    for (unsigned i = 0; i < COUNT; i += KEEP) {
        assert_true(unit_is_all((void *)blocks[i], (unsigned char)(i % 250 + 1), BLOCK));
    }
}

static struct heap_holes_result round_of(const struct heap *mine, unsigned patience) {
    const struct heap_holes_way way = {.now_ms = clock_ms, .mine = mine, .patience = patience,
                                       .calls = UINT32_MAX, .is_asleep = is_asleep};
    struct heap_holes_result result;
    size_t position = 0;
    heap_holes_begin(&holes);
    result = heap_holes_look(&holes, &way, &position, SIZE_MAX / 2);
    for (size_t before = 0; before != position;) { // the other arenas, if there are any
        before = position;
        const struct heap_holes_result part =
            heap_holes_look(&holes, &way, &position, SIZE_MAX / 2);
        result.released_bytes += part.released_bytes;
        result.pending_count += part.pending_count;
    }
    heap_holes_end(&holes);
    clock_ms += 100;
    return result;
}

static uint64_t now_ms(void) {
    return clock_ms += 20;
}

static uint64_t calls(void) {
    return atomic_load(&world.arena.os.advise_count);
}

CASE(ones_own_slabs_are_purged_at_once_and_the_live_blocks_stay) {
    fill_and_thin(world.heap);
    const struct heap_holes_result result = round_of(world.heap, 0);
    // One block in 16 is live, and touches a page or two of some four that 16 blocks lie in.
    assert_true(result.released_bytes >= (size_t)COUNT * BLOCK * 4 / 10);
    assert_true(result.released_bytes <= (size_t)COUNT * BLOCK);
    assert_int_equal(result.pending_count, 0);
    check_survivors();
    heap_world_check(&world, world.heap);
    const uint64_t before = calls();
    assert_int_equal(round_of(world.heap, 0).released_bytes, 0); // nothing has changed since
    assert_int_equal(calls(), before);
}

CASE(what_was_purged_can_be_used_again) {
    fill_and_thin(world.heap);
    (void)round_of(world.heap, 0);
    for (unsigned i = 0; i < COUNT; i++) {
        if (i % KEEP != 0) {
            blocks[i] = heap_allocate(world.heap, BLOCK, i % 2 == 0);
            assert_true(i % 2 != 0 || unit_is_all((void *)blocks[i], 0, BLOCK));
            memset((void *)blocks[i], (int)(i % 250) + 1, BLOCK);
        }
    }
    for (unsigned i = 0; i < COUNT; i++) {
        assert_true(unit_is_all((void *)blocks[i], (unsigned char)(i % 250 + 1), BLOCK));
    }
}

CASE(a_slab_must_stay_as_it_is_for_as_many_looks_as_are_asked) {
    fill_and_thin(world.heap);
    assert_int_equal(round_of(world.heap, 2).released_bytes, 0);
    assert_int_equal(round_of(world.heap, 2).released_bytes, 0);
    for (unsigned i = 0; i < COUNT; i += 2 * KEEP) { // a change in each slab
        assert_true(heap_free(&world.shared, world.heap, blocks[i]));
    }
    const struct heap_holes_result changed = round_of(world.heap, 2);
    assert_int_equal(changed.released_bytes, 0);
    assert_true(changed.pending_count > 0);
    assert_int_equal(round_of(world.heap, 2).released_bytes, 0);
    assert_true(round_of(world.heap, 2).released_bytes > 0);
}

CASE(a_look_makes_no_more_calls_than_it_may_and_goes_on_where_it_was) {
    fill_and_thin(world.heap);
    const struct heap_holes_way way = {.now_ms = clock_ms, .mine = world.heap, .calls = 1};
    size_t slice = 0;
    size_t released = 0;
    heap_holes_begin(&holes);
    for (unsigned look = 0; look < 10000; look++) {
        const size_t slice_before = slice;
        const uint64_t before = calls();
        const struct heap_holes_result part = heap_holes_look(&holes, &way, &slice, 4);
        assert_true(calls() - before <= 1);
        assert_true(slice - slice_before <= 4);
        released += part.released_bytes;
        if (slice == slice_before && part.released_bytes == 0) {
            break;
        }
    }
    heap_holes_end(&holes);
    assert_true(released >= (size_t)COUNT * BLOCK * 4 / 10);
    assert_int_equal(round_of(world.heap, 0).released_bytes, 0); // all was done
    check_survivors();
}

CASE(another_threads_slabs_are_purged_after_asking_and_a_while) {
    fill_and_thin(world.heap);
    const struct heap_holes_result first = round_of(NULL, 0); // asks
    assert_int_equal(first.released_bytes, 0);
    assert_true(first.pending_count > 0);
    assert_true(round_of(NULL, 0).released_bytes > 0);
    assert_int_equal(round_of(NULL, 0).pending_count, 0); // what malloc took from
    assert_int_equal(round_of(NULL, 0).pending_count, 0);
    assert_int_equal(atomic_load(&world.heap->visit), GATE_OPEN); // no longer asked
    check_survivors();
}

CASE(but_not_while_it_is_at_work) {
    fill_and_thin(world.heap);
    heap_gate_enter(world.heap);
    (void)round_of(NULL, 0);
    const struct heap_holes_result result = round_of(NULL, 0);
    assert_int_equal(result.released_bytes, 0);
    assert_true(result.pending_count > 0);
    heap_gate_leave(world.heap);
    assert_true(round_of(NULL, 0).released_bytes > 0);
}

// A fork by a signal handler does not wait for a visitor for ever, who may wait for the interrupted call.
CASE(nor_does_a_visitor_that_a_fork_has_left_behind_keep_the_thread_out) {
    fill_and_thin(world.heap);
    (void)round_of(NULL, 0); // asks
    os_lock_take(&holes.lock);
    assert_true(heap_gate_visit(world.heap, true));
    arena_visit_span(&world.arena.arenas, heap_current_slab(world.heap, 1));
    heap_holes_fork_child(&holes);
    os_lock_drop(&holes.lock);
    assert_null(world.arena.arenas.visited);
    assert_int_equal(atomic_load(&world.heap->visit), GATE_OPEN);
    heap_gate_enter(world.heap);
    heap_gate_leave(world.heap);
    (void)round_of(NULL, 0); // the child's own visitor asks anew
    assert_true(round_of(NULL, 0).released_bytes > 0);
    check_survivors();
}

static atomic_bool churn_ends;

static void *churn(void *argument) {
    heap_switch(world.heap);
    while (!atomic_load(&churn_ends)) {
        const uintptr_t block = heap_allocate(world.heap, 3000, false);
        assert_true(heap_free(&world.shared, world.heap, block));
    }
    return argument;
}

// The look ends where it was in the way, has moved on, and has not waited. Both have to run at once.
CASE(a_look_says_that_it_was_in_a_threads_way_and_goes_on_behind) {
    const struct heap_holes_way way = {.now_ms = clock_ms, .calls = UINT32_MAX};
    bool met = false;
    for (const time_t end = time(NULL) + 60; !met && time(NULL) < end;) {
        pthread_t thread;
        fill_and_thin(world.heap);
        heap_gate_ask(world.heap);
        heap_gate_enter(world.heap); // grants it
        heap_gate_leave(world.heap);
        atomic_store(&churn_ends, false);
        assert_int_equal(pthread_create(&thread, NULL, churn, NULL), 0);
        heap_holes_begin(&holes);
        size_t slice = 0;
        for (size_t before = SIZE_MAX; slice != before && !met;) {
            before = slice;
            met = heap_holes_look(&holes, &way, &slice, SIZE_MAX / 2).in_the_way;
            assert_true(!met || slice > before);
        }
        heap_holes_end(&holes);
        atomic_store(&churn_ends, true);
        assert_int_equal(pthread_join(thread, NULL), 0);
        check_survivors();
    }
    assert_true(met);
}

CASE(an_ended_threads_slabs_need_no_asking) {
    fill_and_thin(world.heap);
    heap_abandon(world.heap);
    assert_true(round_of(NULL, 0).released_bytes > 0);
    assert_true(heap_is_abandoned(world.heap));
    check_survivors();
    assert_true(heap_claim(world.heap)); // somebody else is at work there
    for (unsigned i = 0; i < COUNT; i += 2 * KEEP) {
        assert_true(heap_free(&world.shared, world.heap, blocks[i]));
    }
    const struct heap_holes_result result = round_of(NULL, 0);
    assert_int_equal(result.released_bytes, 0);
    assert_true(result.pending_count > 0);
    int work = MALLOW_CALL_WORK;
    heap_unclaim(world.heap, &work);
    assert_true(round_of(NULL, 0).released_bytes > 0);
}

CASE(collecting_asks_waits_and_does_it) {
    fill_and_thin(world.heap);
    assert_true(heap_holes_collect(&holes, NULL, now_ms, NULL) > 0);
    check_survivors();
}

// ---- The word that malloc takes from ------------------------------------------------------------

enum { SMALL = 1008, SMALLS = 40 }; // fewer than a word, more than come from a thin slice

static void free_block(uintptr_t block) {
    struct slab *slab = NULL;
    if (heap_fast_free(world.heap, block, &slab) == HEAP_FAST_SLOW) {
        assert_true(heap_free(&world.shared, world.heap, block));
    }
}

// Blocks of which none survives: what is left of them lies in the current slab's word.
static struct slab *fill_and_free(unsigned freed) {
    for (unsigned i = 0; i < SMALLS; i++) {
        blocks[i] = heap_allocate(world.heap, SMALL, false);
        memset((void *)blocks[i], (int)(i % 250) + 1, SMALL);
    }
    for (unsigned i = 0; i < freed; i++) {
        free_block(blocks[i]);
    }
    struct slab *const slab = heap_current_slab(world.heap, size_class_of(SMALL));
    assert_non_null(slab);
    return slab;
}

static size_t resident_of(const struct slab *slab) {
    return os_resident(&world.arena.os, bits_align_down(slab->start_address, MALLOW_SLICE_BYTES),
                       MALLOW_SLICE_BYTES);
}

static unsigned asked_count;
static bool nobody_is_asleep(uint32_t thread, uintptr_t top __attribute__((unused))) {
    (void)thread;
    asked_count++;
    return false;
}

static bool everybody_is_asleep(uint32_t thread, uintptr_t top __attribute__((unused))) {
    (void)thread;
    asked_count++;
    return true;
}

// So many that the kernel is asked.
static void many_heaps(void) {
    for (unsigned i = 0; i < 8; i++) {
        assert_non_null(heap_create_fallback(&world.shared));
    }
}

static void rounds(unsigned count) {
    while (count-- > 0) {
        (void)round_of(NULL, 2);
    }
}

CASE(a_sleeping_threads_word_goes_but_for_what_a_malloc_under_way_may_take) {
    const size_t page_bytes = world.arena.os.page_bytes;
    const struct slab *const slab = fill_and_free(SMALLS);
    const size_t before = resident_of(slab);
    rounds(3);
    assert_int_equal(resident_of(slab), before); // it rests
    assert_true(heap_is_resting(world.heap, slab->class_index));
    heap_world_check(&world, world.heap);
    rounds(1);
    if (page_bytes == 4096) {
        assert_true(resident_of(slab) < before);
        assert_true(resident_of(slab) <= 4 * page_bytes); // two blocks, each in one page or two
    }
    const size_t rest = resident_of(slab);
    rounds(6);
    assert_int_equal(resident_of(slab), rest);
    assert_int_equal(round_of(NULL, 2).pending_count, 0);
}

CASE(and_wholly_if_it_is_seen_asleep_after_that) {
    const struct slab *const slab = fill_and_free(SMALLS);
    many_heaps();
    asked_count = 0;
    is_asleep = everybody_is_asleep;
    rounds(3);
    assert_int_equal(asked_count, 0); // what was so before it rests does not count
    rounds(1);
    assert_int_equal(asked_count, 1);
    assert_int_equal(resident_of(slab), 0);
    assert_int_equal(round_of(NULL, 2).pending_count, 0);
}

// Two whose rounds lie across each other, as of the background thread and of malloc_trim: what the
// one notes is not taken for earlier, or later, than it was.
CASE(what_was_seen_before_it_rests_does_not_count_for_another_visitor_either) {
    enum { OTHERS = 60 };
    need_small_pages();
    (void)fill_and_free(SMALLS);
    many_heaps();
    rounds(3);
    for (unsigned i = 0; i < OTHERS; i++) {
        blocks[i] = heap_allocate(world.heap, SMALL / 2, false);
        memset((void *)blocks[i], 7, SMALL / 2);
    }
    for (unsigned i = 0; i < OTHERS - 1; i++) {
        free_block(blocks[i]);
    }
    struct slab *const rested = heap_current_slab(world.heap, size_class_of(SMALL / 2));
    clock_ms += 1000;
    struct heap_holes_way trim = {.now_ms = clock_ms, .calls = UINT32_MAX};
    const struct heap_holes_way worker = {.now_ms = clock_ms + 50, .calls = UINT32_MAX,
                                          .patience = 2, .is_asleep = everybody_is_asleep};
    size_t positions[2] = {0, 0};
    heap_holes_begin(&holes);
    heap_holes_begin(&holes);
    asked_count = 0;
    (void)heap_holes_look(&holes, &worker, &positions[0], SIZE_MAX / 2);
    assert_int_equal(asked_count, 1);
    (void)heap_holes_look(&holes, &trim, &positions[1], SIZE_MAX / 2);
    assert_true(heap_is_resting(world.heap, rested->class_index));
    heap_holes_end(&holes);
    trim.now_ms += 200;
    positions[1] = 0;
    heap_holes_begin(&holes);
    (void)heap_holes_look(&holes, &trim, &positions[1], SIZE_MAX / 2);
    heap_holes_end(&holes);
    uintptr_t taken = 0; // by a malloc that was under way before it was put to rest
    assert_true(slab_take(rested, &taken));
    assert_int_equal(*(unsigned char *)taken, 7);
}

CASE(who_began_before_a_heap_was_asked_waits_for_it_all_the_same) {
    fill_and_thin(world.heap);
    clock_ms += 1000;
    const struct heap_holes_way early = {.now_ms = clock_ms, .calls = UINT32_MAX};
    const struct heap_holes_way late = {.now_ms = clock_ms + 100, .calls = UINT32_MAX};
    size_t positions[2] = {0, 0};
    heap_holes_begin(&holes);
    heap_holes_begin(&holes);
    assert_int_equal(heap_holes_look(&holes, &late, &positions[0], SIZE_MAX / 2).released_bytes, 0);
    assert_int_equal(atomic_load(&world.heap->visit), GATE_ASKED);
    assert_int_equal(heap_holes_look(&holes, &early, &positions[1], SIZE_MAX / 2).released_bytes, 0);
    heap_holes_end(&holes);
}

CASE(or_in_a_few_looks_more_and_then_no_longer) {
    const struct slab *const slab = fill_and_free(SMALLS);
    many_heaps();
    is_asleep = nobody_is_asleep;
    rounds(5);
    assert_true(resident_of(slab) > 0);
    is_asleep = everybody_is_asleep;
    rounds(1);
    assert_int_equal(resident_of(slab), 0);
    const uintptr_t block = heap_allocate(world.heap, SMALL, true); // awake
    assert_true(unit_is_all((void *)block, 0, SMALL));
    free_block(block);
    is_asleep = nobody_is_asleep;
    asked_count = 0;
    rounds(20);
    assert_in_range(asked_count, 1, 7);
    assert_int_equal(round_of(NULL, 2).pending_count, 0);
}

CASE(few_heaps_are_not_worth_asking_for) {
    (void)fill_and_free(SMALLS);
    is_asleep = everybody_is_asleep;
    asked_count = 0;
    rounds(10);
    assert_int_equal(asked_count, 0);
}

CASE(a_malloc_that_was_under_way_finds_its_block_as_it_left_it) {
    if (world.arena.os.page_bytes >= MALLOW_SLICE_BYTES) {
        skip(); // nothing of a slab could go, so it is not put to rest
    }
    for (unsigned hot = 0; hot < 2; hot++) {
        // The last block handed out is live, or free and hot.
        struct slab *const slab = fill_and_free(hot != 0 ? SMALLS : SMALLS - 1);
        rounds(3);
        assert_true(heap_is_resting(world.heap, slab->class_index));
        // It has looked into direct[] before, and writes to its block before the next look.
        uintptr_t block = 0;
        assert_int_equal(atomic_load(&slab->hot) != 0, hot != 0);
        struct slab_view view;
        assert_true(slab_view_take(&view, slab, arena_remote_of(&world.arena.arenas, slab),
                                   bits_align_down(slab->start_address, MALLOW_SLICE_BYTES)));
        slab_view_expose(&view, SLAB_EXPOSED_LOWEST);
        assert_true(slab_take(slab, &block));
        const size_t index = (block - slab->start_address) / slab->block_bytes;
        assert_false((view.free_bits[index / 64] >> (index % 64)) & 1U);
        memset((void *)block, 77, SMALL);
        rounds(6);
        assert_true(unit_is_all((void *)block, 77, SMALL));
        assert_true(heap_free(&world.shared, world.heap, block));
        assert_true(hot != 0 || heap_free(&world.shared, world.heap, blocks[SMALLS - 1]));
        heap_world_check(&world, world.heap);
        (void)heap_allocate(world.heap, SMALL, false); // wakes the class
    }
}

CASE(a_thread_that_comes_by_keeps_its_word) {
    const struct slab *const slab = fill_and_free(SMALLS);
    const size_t before = resident_of(slab);
    for (unsigned i = 0; i < 6; i++) {
        rounds(3);
        const uintptr_t block = heap_allocate(world.heap, SMALL, false);
        assert_false(heap_is_resting(world.heap, slab->class_index));
        assert_true(heap_free(&world.shared, world.heap, block));
        assert_int_equal(resident_of(slab), before);
    }
}

CASE(a_class_without_a_fast_path_needs_no_rest) {
    enum { MEDIUM = 8000 };
    uintptr_t all[4];
    for (unsigned i = 0; i < 4; i++) {
        all[i] = heap_allocate(world.heap, MEDIUM, false);
        memset((void *)all[i], 1, MEDIUM);
    }
    const struct slab *const slab = heap_current_slab(world.heap, size_class_of(MEDIUM));
    for (unsigned i = 0; i < 4; i++) {
        assert_true(heap_free(&world.shared, world.heap, all[i])); // the last one is hot
    }
    rounds(4);
    assert_int_equal(resident_of(slab), 0);
}

// ---- Blocks that are known to be zero -----------------------------------------------------------

// Larger than two pages, whatever their size, less 16 bytes: no block begins with a page.
static size_t large_size(void) {
    return bits_min(2 * world.arena.os.page_bytes + 9000, 40000);
}

static size_t resident_at(uintptr_t address, size_t bytes) {
    const size_t page_bytes = world.arena.os.page_bytes;
    const uintptr_t first = bits_align_up(address, page_bytes);
    const uintptr_t end = bits_align_down(address + bytes, page_bytes);
    return first < end ? os_resident(&world.arena.os, first, end - first) : 0;
}

CASE(calloc_of_what_lies_in_a_hole_touches_nothing) {
    enum { LARGES = 8 };
    uintptr_t all[LARGES];
    const size_t size = large_size();
    for (unsigned i = 0; i < LARGES; i++) {
        all[i] = heap_allocate(world.heap, size, false);
        memset((void *)all[i], 1, size);
    }
    const struct slab *const slab = heap_identify(&world.shared, all[1]).slab;
    assert_true(slab->slice_count > 1);
    for (unsigned i = 1; i < LARGES - 1; i++) { // by others, too
        assert_true(heap_free(&world.shared, i % 2 == 0 ? world.heap : NULL, all[i]));
    }
    assert_true(round_of(world.heap, 0).released_bytes > 0);
    unsigned untouched = 0;
    for (unsigned i = 1; i < LARGES - 1; i++) {
        const uintptr_t block = heap_allocate(world.heap, size, true);
        untouched += resident_at(block, size) == 0;
        assert_true(unit_is_all((void *)block, 0, size));
        memset((void *)block, 2, size);
        assert_true(heap_free(&world.shared, world.heap, block)); // and is not known to be zero now
        const uintptr_t again = heap_allocate(world.heap, size, true);
        assert_int_equal(again, block);
        assert_true(unit_is_all((void *)again, 0, size));
        memset((void *)again, 3, size);
    }
    if (world.arena.os.page_bytes <= 4096) {
        assert_in_range(untouched, LARGES - 4, LARGES - 2); // but for those at the ends of a hole
    }
    assert_true(unit_is_all((void *)all[0], 1, size));
    assert_true(unit_is_all((void *)all[LARGES - 1], 1, size));
}

// A thread that allocates and frees, and one that purges all the time.
static _Atomic(bool) at_work;

static void *purge(void *argument) {
    (void)argument;
    while (atomic_load(&at_work)) {
        const struct heap_holes_way way = {.now_ms = clock_ms += 20, .calls = UINT32_MAX};
        size_t position = 0;
        heap_holes_begin(&holes);
        for (size_t before = SIZE_MAX; before != position;) {
            before = position;
            (void)heap_holes_look(&holes, &way, &position, 64);
        }
        heap_holes_end(&holes);
    }
    return NULL;
}

CASE(calloc_gives_zero_whatever_is_purged_meanwhile) {
    enum { SLOTS = 40, STEPS = 40000 };
    struct unit_chance chance = unit_chance_begin();
    struct {
        unsigned char *block;
        size_t size;
    } slots[SLOTS];
    pthread_t thread;
    unsigned known = 0;
    memset(slots, 0, sizeof slots);
    atomic_store(&at_work, true);
    assert_int_equal(pthread_create(&thread, NULL, purge, NULL), 0);
    for (unsigned step = 0; step < STEPS; step++) {
        const unsigned i = unit_below(&chance, SLOTS);
        if (slots[i].block == NULL) {
            const bool zeroed = unit_below(&chance, 2) == 0;
            slots[i].size = 8200 + unit_below(&chance, 8) * 7000;
            slots[i].block = (unsigned char *)heap_allocate(world.heap, slots[i].size, zeroed);
            known += zeroed && resident_at((uintptr_t)slots[i].block, slots[i].size) == 0;
            assert_true(!zeroed || unit_is_all(slots[i].block, 0, slots[i].size));
            memset(slots[i].block, (int)i + 1, slots[i].size);
        } else {
            assert_true(unit_is_all(slots[i].block, (unsigned char)(i + 1), slots[i].size));
            const bool by_other = unit_below(&chance, 4) == 0;
            assert_true(heap_free(&world.shared, by_other ? NULL : world.heap,
                                  (uintptr_t)slots[i].block));
            slots[i].block = NULL;
        }
    }
    atomic_store(&at_work, false);
    pthread_join(thread, NULL);
    assert_true(known > 0 || world.arena.os.page_bytes > 4096);
}

// ---- Secondary arenas ---------------------------------------------------------------------------

// Takes all that the primary arena has.
static void fill_primary(void) {
    for (;;) {
        const struct arena_span span = arena_take(&world.arena.arenas, 1, 1);
        assert_non_null(span.slab);
        if (!arena_has_slab(&world.arena.arenas.primary, span.slab)) {
            arena_give(&world.arena.arenas, span.slab, 1);
            return;
        }
    }
}

static unsigned secondary_count(void) {
    unsigned count = 0;
    os_lock_take(&world.arena.arenas.lock);
    for (const struct arena *arena = world.arena.arenas.secondary; arena != NULL;
         arena = arena->next) {
        count++;
    }
    os_lock_drop(&world.arena.arenas.lock);
    return count;
}

CASE(slabs_in_secondary_arenas_are_purged_as_well) {
    enum { MANY = 12000, BYTES = 1000 }; // more than two arenas of 4 MiB
    static uintptr_t many[MANY];
    need_small_pages();
    fill_primary();
    for (unsigned by_other = 0; by_other < 2; by_other++) {
        for (unsigned i = 0; i < MANY; i++) {
            many[i] = heap_allocate(world.heap, BYTES, false);
            assert_true(many[i] != 0);
            memset((void *)many[i], (int)(i % 250) + 1, BYTES);
        }
        assert_true(secondary_count() >= 3);
        for (unsigned i = 0; i < MANY; i++) {
            if (i % KEEP != 0) {
                assert_true(heap_free(&world.shared, world.heap, many[i]));
            }
        }
        const struct heap *const mine = by_other != 0 ? NULL : world.heap;
        size_t released = round_of(mine, 0).released_bytes;
        released += by_other != 0 ? round_of(mine, 0).released_bytes : 0; // it asked before
        assert_true(released >= (size_t)MANY * BYTES * 4 / 10);
        for (unsigned i = 0; i < MANY; i += KEEP) {
            assert_true(unit_is_all((void *)many[i], (unsigned char)(i % 250 + 1), BYTES));
            assert_true(heap_free(&world.shared, world.heap, many[i]));
        }
        heap_world_check(&world, world.heap);
    }
    heap_release_spare(world.heap);
    (void)arena_purge_all(&world.arena.arenas); // with their notes
    heap_world_check(&world, world.heap);
}

CASE(nor_does_it_matter_which_node_has_used_them) {
    enum { MANY = 12000, BYTES = 1000 };
    static uintptr_t many[MANY];
    need_small_pages();
    for (unsigned i = 0; i < MANY; i++) { // three nodes, beyond what the primary arena has
        world.arena.os.node_pretended = i / 100 % 3 + 1;
        many[i] = heap_allocate(world.heap, BYTES, false);
        memset((void *)many[i], (int)(i % 250) + 1, BYTES);
    }
    assert_non_null(world.arena.arenas.nodes);
    assert_true(secondary_count() >= 1);
    for (unsigned i = 0; i < MANY; i++) {
        if (i % KEEP != 0) {
            assert_true(heap_free(&world.shared, world.heap, many[i]));
        }
    }
    world.arena.os.node_pretended = 2;
    assert_true(round_of(world.heap, 0).released_bytes >= (size_t)MANY * BYTES * 4 / 10);
    for (unsigned i = 0; i < MANY; i += KEEP) {
        assert_true(unit_is_all((void *)many[i], (unsigned char)(i % 250 + 1), BYTES));
    }
    heap_world_check(&world, world.heap);
}

CASE(steps_of_one_call_come_to_the_same) {
    enum { MANY = 6000, BYTES = 1000 };
    static uintptr_t many[MANY];
    need_small_pages();
    fill_primary();
    for (unsigned i = 0; i < MANY; i++) {
        many[i] = heap_allocate(world.heap, BYTES, false);
        memset((void *)many[i], 1, BYTES);
    }
    for (unsigned i = 0; i < MANY; i++) {
        if (i % KEEP != 0) {
            assert_true(heap_free(&world.shared, world.heap, many[i]));
        }
    }
    const struct heap_holes_way way = {.now_ms = clock_ms, .mine = world.heap, .calls = 1, .slabs = 1};
    size_t released = 0;
    size_t position = 0;
    size_t before = SIZE_MAX;
    bool stopped = false;
    heap_holes_begin(&holes);
    for (unsigned step = 0; position != before || stopped; step++) {
        assert_in_range(step, 0, 10000);
        before = position;
        const uint64_t entries = os_entries(&world.arena.os);
        const struct heap_holes_result part = heap_holes_look(&holes, &way, &position, 8);
        assert_true(os_entries(&world.arena.os) <= entries + 1);
        released += part.released_bytes;
        stopped = part.stopped;
    }
    heap_holes_end(&holes);
    assert_true(released >= (size_t)MANY * BYTES * 4 / 10);
    assert_int_equal(round_of(world.heap, 0).released_bytes, 0);
}

CASE(an_arena_that_is_looked_at_stays_until_that_is_over) {
    struct arena_set *const set = &world.arena.arenas;
    fill_primary();
    const uintptr_t block = heap_allocate(world.heap, 100000, false);
    size_t position = 0;
    (void)arena_purge_all(set);
    struct arena_place place = arena_idle_visit(set, &position);
    assert_ptr_equal(place.arena, &set->primary);
    position = place.beyond - 1; // which is not committed, or the last one
    while (place.arena == &set->primary) {
        position++;
        place = arena_idle_visit(set, &position);
    }
    assert_ptr_equal(place.arena, set->secondary);
    assert_int_equal(place.slice, 0);
    heap_large_free(&world.shared, heap_identify(&world.shared, block).slab);
    (void)arena_purge_all(set);
    assert_int_equal(secondary_count(), 1);
    (void)*(volatile uint8_t *)&place.arena->slabs[0].kind; // still mapped
    arena_idle_leave(set, place.arena);
    assert_int_equal(secondary_count(), 0);
    position = set->primary.slice_count;
    assert_null(arena_idle_visit(set, &position).arena);
    arena_world_check(&world.arena);
}

CASE(arenas_come_and_go_while_they_are_looked_at) {
    enum { SLOTS = 60, STEPS = 20000 };
    struct unit_chance chance = unit_chance_begin();
    uintptr_t slots[SLOTS] = {0};
    pthread_t thread;
    unsigned gone = 0;
    fill_primary();
    atomic_store(&at_work, true);
    assert_int_equal(pthread_create(&thread, NULL, purge, NULL), 0);
    for (unsigned step = 0; step < STEPS; step++) {
        uintptr_t *const slot = &slots[unit_below(&chance, SLOTS)];
        if (*slot == 0) {
            const size_t size = 1 + unit_below(&chance, step % 1000 < 500 ? 300000 : 20000);
            *slot = heap_allocate(world.heap, size, false);
            memset((void *)*slot, 1, bits_min(size, 5000));
        } else {
            assert_true(heap_free(&world.shared, world.heap, *slot));
            *slot = 0;
        }
        if (step % 500 == 499) {
            for (unsigned i = 0; i < SLOTS; i++) {
                assert_true(slots[i] == 0 || heap_free(&world.shared, world.heap, slots[i]));
                slots[i] = 0;
            }
            heap_release_spare(world.heap);
            const unsigned before = secondary_count();
            (void)arena_purge_all(&world.arena.arenas);
            gone += before > secondary_count();
        }
    }
    atomic_store(&at_work, false);
    pthread_join(thread, NULL);
    assert_true(gone > 0);
    arena_world_check(&world.arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(slabs_in_secondary_arenas_are_purged_as_well, begin, end),
        cmocka_unit_test_setup_teardown(nor_does_it_matter_which_node_has_used_them, begin, end),
        cmocka_unit_test_setup_teardown(steps_of_one_call_come_to_the_same, begin, end),
        cmocka_unit_test_setup_teardown(an_arena_that_is_looked_at_stays_until_that_is_over, begin,
                                        end),
        cmocka_unit_test_setup_teardown(arenas_come_and_go_while_they_are_looked_at, begin, end),
        cmocka_unit_test_setup_teardown(calloc_of_what_lies_in_a_hole_touches_nothing, begin, end),
        cmocka_unit_test_setup_teardown(calloc_gives_zero_whatever_is_purged_meanwhile, begin, end),
        cmocka_unit_test_setup_teardown(
            a_sleeping_threads_word_goes_but_for_what_a_malloc_under_way_may_take, begin, end),
        cmocka_unit_test_setup_teardown(and_wholly_if_it_is_seen_asleep_after_that, begin, end),
        cmocka_unit_test_setup_teardown(what_was_seen_before_it_rests_does_not_count_for_another_visitor_either, begin, end),
        cmocka_unit_test_setup_teardown(who_began_before_a_heap_was_asked_waits_for_it_all_the_same, begin, end),
        cmocka_unit_test_setup_teardown(or_in_a_few_looks_more_and_then_no_longer, begin, end),
        cmocka_unit_test_setup_teardown(few_heaps_are_not_worth_asking_for, begin, end),
        cmocka_unit_test_setup_teardown(a_malloc_that_was_under_way_finds_its_block_as_it_left_it,
                                        begin, end),
        cmocka_unit_test_setup_teardown(a_thread_that_comes_by_keeps_its_word, begin, end),
        cmocka_unit_test_setup_teardown(a_class_without_a_fast_path_needs_no_rest, begin, end),
        cmocka_unit_test_setup_teardown(
            ones_own_slabs_are_purged_at_once_and_the_live_blocks_stay, begin, end),
        cmocka_unit_test_setup_teardown(what_was_purged_can_be_used_again, begin, end),
        cmocka_unit_test_setup_teardown(
            a_slab_must_stay_as_it_is_for_as_many_looks_as_are_asked, begin, end),
        cmocka_unit_test_setup_teardown(
            a_look_makes_no_more_calls_than_it_may_and_goes_on_where_it_was, begin, end),
        cmocka_unit_test_setup_teardown(another_threads_slabs_are_purged_after_asking_and_a_while,
                                        begin, end),
        cmocka_unit_test_setup_teardown(but_not_while_it_is_at_work, begin, end),
        cmocka_unit_test_setup_teardown(a_look_says_that_it_was_in_a_threads_way_and_goes_on_behind,
                                        begin, end),
        cmocka_unit_test_setup_teardown(
            nor_does_a_visitor_that_a_fork_has_left_behind_keep_the_thread_out, begin, end),
        cmocka_unit_test_setup_teardown(an_ended_threads_slabs_need_no_asking, begin, end),
        cmocka_unit_test_setup_teardown(collecting_asks_waits_and_does_it, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
