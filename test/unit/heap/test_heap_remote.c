// SPDX-License-Identifier: MIT
// Heap and other threads: posts, draining, slabs that move while a post is on its way.
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "heap/heap_fast.h"
#include "heap_world.h"

static struct heap_world world;
static struct heap *heap;

enum { BYTES = 8192, CLASS_BLOCKS = 8, MANY = 3 * CLASS_BLOCKS };
static uintptr_t blocks[MANY];

static int begin(void **state) {
    (void)state;
    heap_world_begin(&world);
    heap = world.heap;
    return 0;
}

static int end(void **state) {
    (void)state;
    heap_world_end(&world);
    return 0;
}

// Three slabs or so of 8 KiB blocks, all but the last of them full.
static void allocate_many(void) {
    assert_true(size_class_capacity(size_class_of(BYTES)) >= CLASS_BLOCKS);
    for (unsigned i = 0; i < MANY; i++) {
        blocks[i] = heap_allocate(heap, BYTES, false);
        assert_true(blocks[i] != 0);
    }
}

CASE(a_slab_is_posted_once_however_many_of_its_blocks_are_freed) {
    allocate_many();
    for (unsigned i = 0; i < 4; i++) {
        heap_world_free_elsewhere(&world, blocks[i]);
        assert_int_equal(heap_world_posts(heap), 1);
        assert_int_equal(heap_identify(&world.shared, blocks[i]).kind, HEAP_BLOCK_NONE);
    }
    const struct slab *const slab = heap_world_slab_of(&world, blocks[4]);
    assert_int_equal(slab->used_count, slab->capacity_count); // not yet collected
    assert_int_equal(heap_drain(heap, 10, true), 1);
    assert_int_equal(heap_world_posts(heap), 0);
    assert_int_equal(slab->used_count, slab->capacity_count - 4);
    assert_ptr_equal(heap_queue_first(heap, size_class_of(BYTES)), slab); // it was full
    assert_int_equal(heap_drain(heap, 10, true), 0);
    heap_world_check(&world, heap);
}

CASE(draining_keeps_to_its_budget_and_the_rest_for_later) {
    allocate_many();
    struct slab *const slabs[] = {heap_world_slab_of(&world, blocks[0]),
                                  heap_world_slab_of(&world, blocks[CLASS_BLOCKS]),
                                  heap_world_slab_of(&world, blocks[MANY - 1])};
    assert_true(slabs[0] != slabs[1] && slabs[1] != slabs[2]);
    heap_world_free_elsewhere(&world, blocks[0]);
    heap_world_free_elsewhere(&world, blocks[CLASS_BLOCKS]);
    heap_world_free_elsewhere(&world, blocks[MANY - 1]);
    assert_int_equal(heap_world_posts(heap), 3);
    assert_int_equal(heap_drain(heap, 2, true), 2);
    heap_world_free_elsewhere(&world, blocks[MANY - 2]);
    unsigned rest = 0;
    unsigned count;
    while ((count = heap_drain(heap, 1, true)) > 0) {
        rest += count;
    }
    assert_in_range(rest, 1, 2);
    for (unsigned i = 0; i < 3; i++) {
        assert_false(slab_owner(slabs[i]) & SLAB_OWNER_PENDING);
        assert_false(
            slab_remote_any(arena_remote_of(&world.arena.arenas, slabs[i]), MALLOW_SLAB_WORDS));
    }
    heap_world_check(&world, heap);
}

// Allocates blocks of 64 bytes; the index of the first that lies in a slab which is full.
static unsigned fill_a_slab(uintptr_t *many, unsigned count) {
    enum { SMALL = 64 };
    for (unsigned i = 0; i < count; i++) {
        many[i] = heap_allocate(heap, SMALL, false);
    }
    unsigned first = 0;
    while ((slab_owner(heap_world_slab_of(&world, many[first])) & SLAB_OWNER_FULL) == 0) {
        first++;
    }
    return first;
}

CASE(a_slab_with_more_words_than_a_call_may_collect_is_gone_on_with_by_the_next) {
    enum { COUNT = 3000 };
    static uintptr_t many[COUNT];
    const unsigned first = fill_a_slab(many, COUNT);
    struct slab *const slab = heap_world_slab_of(&world, many[first]);
    const unsigned used = slab->used_count;
    unsigned freed = 0;
    for (unsigned i = 0; i < COUNT; i++) {
        if (heap_world_slab_of(&world, many[i]) == slab && slab_index_of(slab, many[i]) % 64 == 5) {
            heap_world_free_elsewhere(&world, many[i]); // one in each word
            freed++;
        }
    }
    assert_true(freed > MALLOW_CALL_WORK);
    unsigned calls = 0;
    for (unsigned before = used; slab->used_count != used - freed; calls++) {
        int work = MALLOW_CALL_WORK;
        assert_true(heap_drain_one(heap, &work, true));
        assert_true(work <= 0 || slab->used_count == used - freed);
        assert_in_range(before - slab->used_count, 1, MALLOW_CALL_WORK);
        before = slab->used_count;
        heap_world_check(&world, heap);
    }
    assert_true(calls > 2);
    assert_false(slab_owner(slab) & SLAB_OWNER_PENDING);
    int work = MALLOW_CALL_WORK;
    assert_false(heap_drain_one(heap, &work, true));
}

CASE(a_full_slab_waits_until_a_good_part_of_it_is_free) {
    enum { COUNT = 3000 };
    static uintptr_t many[COUNT];
    const unsigned first = fill_a_slab(many, COUNT);
    struct slab *const slab = heap_world_slab_of(&world, many[first]);
    const unsigned wanted = slab->capacity_count / MALLOW_WAIT_SHARE;
    unsigned freed = 0;
    for (unsigned i = first; freed < wanted; i++) {
        if (heap_world_slab_of(&world, many[i]) != slab) {
            continue;
        }
        assert_true((slab_owner(slab) & SLAB_OWNER_FULL) != 0);
        heap_world_free_elsewhere(&world, many[i]);
        freed++;
        if (freed < wanted / 2) {
            assert_int_equal(heap_drain(heap, 1, false), 1); // looked at, and put off
        }
    }
    assert_int_equal(heap_drain(heap, 1, false), 1);
    assert_int_equal(slab_owner(slab), (uintptr_t)heap | SLAB_OWNER_QUEUED);
    assert_int_equal(slab->used_count, slab->capacity_count - wanted);
    assert_int_equal(heap_drain(heap, 1, false), 0);
    heap_world_check(&world, heap);
}

CASE(a_slab_whose_blocks_were_all_freed_elsewhere_goes_back) {
    allocate_many();
    struct slab *const slab = heap_world_slab_of(&world, blocks[0]);
    for (unsigned i = 0; i < MANY && heap_world_slab_of(&world, blocks[i]) == slab; i++) {
        assert_int_equal(slab->kind, SLAB_BLOCKS);
        heap_world_free_elsewhere(&world, blocks[i]);
    }
    assert_int_equal(slab->kind, SLAB_NONE);
    assert_int_equal(heap_world_posts(heap), 0);
    heap_world_check(&world, heap);
}

CASE(a_post_of_such_a_slab_that_lies_below_another_finds_nothing_to_do) {
    allocate_many();
    struct slab *const slab = heap_world_slab_of(&world, blocks[0]);
    heap_world_free_elsewhere(&world, blocks[0]);
    heap_world_free_elsewhere(&world, blocks[MANY - 1]);
    for (unsigned i = 1; i < MANY && heap_world_slab_of(&world, blocks[i]) == slab; i++) {
        heap_world_free_elsewhere(&world, blocks[i]);
    }
    assert_int_equal(slab->kind, SLAB_NONE);
    assert_int_equal(heap_world_posts(heap), 2);
    assert_int_equal(heap_drain(heap, 10, true), 2);
    heap_world_check(&world, heap);
}

// Its thread sleeps, and handles no post.
CASE(who_has_the_slab_next_hears_of_what_is_freed_in_it) {
    struct heap *const other = heap_adopt_or_create(&world.shared);
    allocate_many();
    struct slab *const slab = heap_world_slab_of(&world, blocks[0]);
    for (unsigned i = 0; i < MANY && heap_world_slab_of(&world, blocks[i]) == slab; i++) {
        heap_world_free_elsewhere(&world, blocks[i]);
    }
    uintptr_t block;
    do {
        block = heap_allocate(other, BYTES, false);
        assert_true(block != 0);
    } while (heap_world_slab_of(&world, block) != slab);
    (void)heap_allocate(other, BYTES, false);
    heap_world_free_elsewhere(&world, block);
    assert_int_equal(heap_world_posts(other), 1);
    assert_int_equal(heap_drain(other, 10, true), 1);
    heap_world_check(&world, heap);
    heap_world_check(&world, other);
}

CASE(a_full_slab_that_others_have_emptied_goes_back_while_its_owner_sleeps) {
    struct heap *const other = heap_adopt_or_create(&world.shared);
    allocate_many();
    struct slab *const slab = heap_world_slab_of(&world, blocks[0]);
    const uint32_t before = heap->slab_count;
    for (unsigned i = 0; i < MANY && heap_world_slab_of(&world, blocks[i]) == slab; i++) {
        assert_true(heap_free(&world.shared, other, blocks[i]));
    }
    assert_int_equal(slab->kind, SLAB_NONE);
    assert_int_equal(heap->slab_count, before - 1);
    assert_int_equal(other->slab_count, 0);
    assert_int_equal(heap_drain(heap, 10, true), 0);
    heap_world_check(&world, heap);
    heap_world_check(&world, other);
}

CASE(a_thread_without_a_heap_gives_such_a_slab_up_too) {
    struct heap *const none = (struct heap *)(uintptr_t)&heap_empty;
    allocate_many();
    struct slab *const slab = heap_world_slab_of(&world, blocks[0]);
    const uint32_t before = heap->slab_count;
    for (unsigned i = 0; i < MANY && heap_world_slab_of(&world, blocks[i]) == slab; i++) {
        assert_true(heap_free(&world.shared, none, blocks[i]));
    }
    assert_int_equal(slab->kind, SLAB_NONE);
    assert_int_equal(heap->slab_count, before - 1);
    (void)heap_drain(heap, 10, true);
    heap_world_check(&world, heap);
}

CASE(a_full_slab_with_a_live_block_stays_as_it_was) {
    allocate_many();
    struct slab *const slab = heap_world_slab_of(&world, blocks[0]);
    heap_world_free_elsewhere(&world, blocks[0]);
    const uintptr_t owner = slab_owner(slab);
    assert_int_equal(owner, (uintptr_t)heap | SLAB_OWNER_FULL | SLAB_OWNER_PENDING);
    heap_release_full(slab, arena_remote_of(&world.arena.arenas, slab));
    assert_int_equal(slab_owner(slab), owner);
    assert_int_equal(heap_drain(heap, 10, true), 1); // the block is not lost
    assert_int_equal(slab->used_count, slab->capacity_count - 1);
    heap_world_check(&world, heap);
}

CASE(a_slab_is_held_by_its_own_heap_alone) {
    struct heap *const other = heap_adopt_or_create(&world.shared);
    allocate_many();
    struct slab *const full = heap_world_slab_of(&world, blocks[0]);
    struct slab *const current = heap_world_slab_of(&world, blocks[MANY - 1]);
    assert_int_equal(heap_hold_slab(other, full), HEAP_HOLD_LOST);
    assert_int_equal(heap_hold_slab(heap, current), HEAP_HOLD_LISTED);
    heap_release_full(
        current, arena_remote_of(&world.arena.arenas, current)); // is not full: nothing happens
    assert_int_equal(slab_owner_heap(current), (uintptr_t)heap);
    assert_int_equal(heap_hold_slab(heap, full), HEAP_HOLD_WAS_FULL);
    heap_release_full(full, arena_remote_of(&world.arena.arenas, full)); // held
    assert_int_equal(slab_owner(full), (uintptr_t)heap | SLAB_OWNER_QUEUED);
    heap_queue_push(heap, full);
    heap_queue_remove(heap, full);
    slab_change_owner(full, (uintptr_t)heap | SLAB_OWNER_FULL);
    heap_world_check(&world, heap);
}

CASE(an_allocation_takes_blocks_that_others_have_freed_before_fresh_memory) {
    allocate_many();
    while (heap_world_slab_of(&world, heap_allocate(heap, BYTES, false)) ==
           heap_world_slab_of(&world, blocks[MANY - 1])) {
    } // the last slab is full as well
    struct slab *const current = heap_current_slab(heap, size_class_of(BYTES));
    uintptr_t last;
    do {
        last = heap_allocate(heap, BYTES, false);
    } while (slab_count_used(current) < current->capacity_count);
    const size_t before = heap_world_slices_used(&world);
    heap_world_free_elsewhere(&world, blocks[2]);
    assert_int_equal(heap_allocate(heap, BYTES, false), blocks[2]);
    heap_world_free_elsewhere(&world, last);
    (void)heap_allocate(heap, BYTES, false);
    assert_int_equal(heap_world_slices_used(&world), before);
    heap_world_check(&world, heap);
}

// A post that does not help is left where it is by a call that has a slab to open, and collected by
// one of those that open more of it.
CASE(a_posted_slab_of_another_class_waits_for_a_call_with_little_to_do) {
    enum { OTHER = 20000, CALLS = 8 };
    allocate_many();
    struct slab *const slab = heap_world_slab_of(&world, blocks[0]);
    for (unsigned i = 0; i + 1 < CLASS_BLOCKS; i++) {
        heap_world_free_elsewhere(&world, blocks[i]);
    }
    const uint32_t before = heap->slab_count;
    uintptr_t other = heap_allocate(heap, OTHER, false);
    assert_int_equal(heap->slab_count, before + 1);
    assert_int_equal(heap_world_posts_waiting(heap), 1);
    assert_true((slab_owner(slab) & SLAB_OWNER_PENDING) != 0);
    assert_int_equal(heap->skipped_count, 1);
    for (unsigned i = 0; i < CALLS; i++) {
        other = heap_allocate(heap, OTHER, false);
        assert_true(other != 0);
    }
    assert_int_equal(heap_world_posts_waiting(heap), 0);
    assert_false(slab_owner(slab) & SLAB_OWNER_PENDING);
    assert_int_equal(heap->skipped_count, 0);
    heap_world_check(&world, heap);
}

// Where no such call comes, one that has left it often enough collects it all the same.
CASE(a_posted_slab_does_not_wait_for_ever) {
    allocate_many();
    heap_world_free_elsewhere(&world, blocks[0]);
    heap_world_free_elsewhere(&world, blocks[1]);
    heap->skipped_count = MALLOW_CLASS_COUNT;
    assert_true(heap_allocate(heap, 20000, false) != 0);
    assert_int_equal(heap_world_posts(heap), 0);
    assert_int_equal(heap->skipped_count, 0);
    heap_world_check(&world, heap);
}

CASE(a_call_with_little_to_do_collects_for_an_ended_thread) {
    struct heap *const other = heap_create_fallback(&world.shared);
    allocate_many();
    heap_abandon(heap);
    assert_true(heap_claim(heap));
    heap_world_free_elsewhere(&world, blocks[0]);
    heap_world_free_elsewhere(&world, blocks[CLASS_BLOCKS]);
    atomic_store(&heap->state, HEAP_ABANDONED);
    for (unsigned left = 2; left > 0; left--) {
        int work = MALLOW_CALL_WORK;
        assert_int_equal(heap_world_posts_waiting(heap), left);
        heap_begin_effort();
        heap_drain_ended(other, &work);
        assert_int_equal(work, 0);
    }
    assert_int_equal(heap_world_posts_waiting(heap), 0);
    heap_world_check(&world, heap);
}

CASE(the_owner_that_frees_into_a_pending_slab_leaves_it_posted) {
    allocate_many();
    struct slab *const slab = heap_world_slab_of(&world, blocks[0]);
    heap_world_free_elsewhere(&world, blocks[0]);
    heap_world_free_elsewhere(&world, blocks[1]);
    assert_true(heap_free(&world.shared, heap, blocks[2]));
    assert_true(slab_owner(slab) & SLAB_OWNER_PENDING);
    assert_int_equal(slab->used_count, slab->capacity_count - 1);
    assert_int_equal(heap_world_posts(heap), 1);
    assert_int_equal(heap_drain(heap, 10, true), 1);
    assert_false(slab_owner(slab) & SLAB_OWNER_PENDING);
    assert_int_equal(slab->used_count, slab->capacity_count - 3);
    heap_world_check(&world, heap);
}

// Whether the process is stopped by what `act` does: in a child.
static bool stops(void (*act)(void)) {
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        (void)freopen("/dev/null", "w", stderr);
        act();
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void free_first(void) {
    (void)heap_free(&world.shared, heap, blocks[0]);
}

CASE(the_owner_finds_that_another_thread_has_freed_its_block) {
    allocate_many();
    heap_world_free_elsewhere(&world, blocks[0]);
    assert_true(slab_owner(heap_world_slab_of(&world, blocks[0])) &
                SLAB_OWNER_FULL); // not collected yet
    assert_true(stops(free_first));
}

// A current slab of small blocks, with several words and pending: another thread has freed the
// second block, the owner the first.
static uintptr_t small[MALLOW_SLAB_CAPACITY_MAX + 1];
static unsigned small_count;
static struct slab *pending_slab(void) {
    struct slab *slab;
    small_count = 0;
    do {
        small[small_count] = heap_allocate_aligned(heap, 64, 16, false);
        slab = heap_world_slab_of(&world, small[small_count++]);
    } while (slab_word_index(slab) < 2);
    assert_true(slab_is_current(slab) && slab == heap_world_slab_of(&world, small[0]));
    assert_true(heap_free(&world.shared, heap, small[0]));
    heap_world_free_elsewhere(&world, small[1]);
    return slab;
}

// Others free the first block again: not in the word in use.
static struct slab *slab_with_a_block_freed_twice(void) {
    struct slab *const slab = pending_slab();
    const struct heap *const nobody = &heap_empty;
    (void)heap_world_free(&world, (struct heap *)(uintptr_t)nobody, small[0]);
    return slab;
}

CASE(near_freeing_says_whether_more_than_a_bit_has_changed) {
    struct slab *const slab = pending_slab();
    const unsigned used = slab->used_count;
    assert_int_equal(heap_world_free(&world, heap, small[70]), HEAP_NEAR_QUIET);
    assert_int_equal(slab->used_count, used - 1);
    assert_true(slab_is_free(slab, slab_index_of(slab, small[70])));
    size_t capacity;
    assert_int_equal(heap_near_free(&world.shared, heap, slab, small[71] + 16, &capacity),
                     HEAP_NEAR_NOT);
    // By a thread without a heap: the first posts the slab, if it was not, the others set a bit.
    const struct heap *const nobody = &heap_empty;
    struct heap *const stranger = (struct heap *)(uintptr_t)nobody;
    assert_int_equal(heap_world_free(&world, stranger, small[72]), HEAP_NEAR_QUIET);
    allocate_many();
    const unsigned before = heap_world_posts(heap);
    assert_int_equal(heap_world_free(&world, stranger, blocks[0]), HEAP_NEAR_MARKED);
    assert_int_equal(heap_world_posts(heap), before + 1);
    assert_int_equal(heap_world_free(&world, stranger, blocks[1]), HEAP_NEAR_QUIET);
    assert_int_equal(heap_world_free(&world, heap, blocks[2]), HEAP_NEAR_NOT); // was full
    assert_int_equal(heap_world_free(&world, heap, blocks[3]), HEAP_NEAR_QUIET);
}

static uintptr_t freed_again;
static void free_near_again(void) {
    (void)heap_world_free(&world, heap, freed_again);
}

CASE(a_second_free_in_a_pending_slab_is_found) {
    const struct slab *const slab = pending_slab();
    assert_true((slab_owner(slab) & SLAB_OWNER_PENDING) != 0);
    freed_again = small[70];
    free_near_again();
    assert_true(stops(free_near_again)); // by the owner, twice
    freed_again = small[1];
    assert_true(stops(free_near_again)); // by another thread before
    uintptr_t last = 0;
    assert_true(heap_fast_allocate(heap, 64, &last));
    freed_again = last;
    free_near_again();
    assert_true(stops(free_near_again)); // the block handed out last
}

static void allocate_until_the_first_comes_back(void) {
    while (heap_allocate_aligned(heap, 64, 16, false) != small[0]) {
    }
}

CASE(a_block_freed_twice_in_a_pending_slab_is_found_before_it_is_handed_out_again) {
    struct slab *const slab = slab_with_a_block_freed_twice();
    while (slab_open(slab, 4096)) { // so that any word with a free block will do for malloc
    }
    assert_true(stops(allocate_until_the_first_comes_back));
}

static void free_the_others(void) {
    for (unsigned i = 2; i < small_count; i++) {
        (void)heap_free(&world.shared, heap, small[i]);
    }
    heap_release_spare(heap);
}

// Its post stays on the heap's stack, and outlives even the arena.
CASE(a_slab_that_all_others_have_freed_may_go_with_its_arena_before_its_post_is_handled) {
    struct arena_set *const arenas = &world.arena.arenas;
    const unsigned capacity = size_class_capacity(size_class_of(BYTES));
    struct arena_span chunk;
    struct arena_span in_primary = {.slab = NULL};
    assert_true(capacity <= MANY);
    while (chunk = arena_take(arenas, MALLOW_CHUNK_SLICES, 1), arenas->secondary == NULL) {
        in_primary = chunk;
    }
    struct arena_span slice;
    do {
        slice = arena_take(arenas, 1, 1);
    } while (arena_of(arenas, slice.address) == &arenas->primary);
    for (unsigned i = 0; i < capacity; i++) {
        blocks[i] = heap_allocate(heap, BYTES, false);
        assert_ptr_equal(arena_of(arenas, blocks[i]), arenas->secondary);
    }
    arena_give(arenas, slice.slab, 1);
    arena_give(arenas, chunk.slab, MALLOW_CHUNK_SLICES);
    arena_give(arenas, in_primary.slab, MALLOW_CHUNK_SLICES);
    const uintptr_t next = heap_allocate(heap, BYTES, false); // the slab is full
    assert_ptr_equal(arena_of(arenas, next), &arenas->primary);
    for (unsigned i = 0; i < capacity; i++) {
        heap_world_free_elsewhere(&world, blocks[i]);
        if (i == 0) {
            heap_world_free_elsewhere(&world, next); // whose post lies on top of the slab's
        }
    }
    assert_int_equal(heap_world_posts(heap), 2);
    (void)arena_purge_all(arenas);
    assert_null(arenas->secondary);
    assert_int_equal(heap_drain(heap, 10, true), 2);
    assert_int_equal(heap_world_posts_waiting(heap), 0);
    heap_world_check(&world, heap);
}

// As if the second block had been collected alone: so the slab may become wholly free.
static void collect_the_second(struct slab *slab) {
    const size_t second = slab_index_of(slab, small[1]);
    const uint64_t mask = UINT64_C(1) << (second % 64);
    atomic_fetch_and(&arena_remote_of(&world.arena.arenas, slab)->bits[second / 64], ~mask);
    slab->bits[second / 64] |= mask;
    slab->used_count--;
}

CASE(a_pending_slab_with_a_block_freed_twice_is_not_given_up) {
    collect_the_second(slab_with_a_block_freed_twice());
    assert_true(stops(free_the_others));
}

// Another class takes the slab's span while its post waits.
static void free_the_others_and_use_the_span(void) {
    for (unsigned i = 2; i < small_count; i++) {
        (void)heap_free(&world.shared, heap, small[i]);
    }
    heap->steal_cursor = size_class_of(64);
    heap->skipped_count = 1;
    (void)heap_allocate_aligned(heap, 96, 16, false);
}

CASE(the_span_of_a_pending_slab_with_a_block_freed_twice_is_not_used_again) {
    collect_the_second(slab_with_a_block_freed_twice());
    assert_true(stops(free_the_others_and_use_the_span));
}

static void free_the_last_elsewhere(void) {
    struct slab *const slab = heap_world_slab_of(&world, small[0]);
    heap_free_remote(slab, arena_remote_of(&world.arena.arenas, slab),
                     slab_index_of(slab, small[small_count - 1]));
}

CASE(a_block_of_the_word_in_use_freed_twice_is_found_at_once) {
    (void)slab_with_a_block_freed_twice();
    assert_true(heap_free(&world.shared, heap, small[small_count - 1]));
    assert_true(stops(free_the_last_elsewhere));
}

CASE(a_post_follows_a_slab_that_has_moved_to_another_heap) {
    struct heap *const other = heap_adopt_or_create(&world.shared);
    assert_true(heap_prepare_class(other, size_class_of(BYTES)));
    allocate_many();
    assert_true(heap_free(&world.shared, heap, blocks[3]));
    struct slab *const slab = heap_world_slab_of(&world, blocks[0]);
    heap_abandon(heap);
    assert_true(heap_claim(heap)); // so that the free below only posts
    heap_world_free_elsewhere(&world, blocks[0]);
    assert_int_equal(heap_world_posts(heap), 1);
    heap_queue_remove(heap, slab);
    heap->slab_count--;
    other->slab_count++;
    slab_change_owner(slab, (uintptr_t)other | SLAB_OWNER_QUEUED);
    heap_queue_push(other, slab);
    heap_world_unclaim(heap); // finds that the slab has moved
    assert_int_equal(heap_world_posts(heap), 0);
    assert_int_equal(heap_world_posts(other), 1);
    assert_int_equal(heap_drain(other, 10, true), 1);
    assert_int_equal(slab->used_count, slab->capacity_count - 2);
    heap_world_check(&world, heap);
    heap_world_check(&world, other);
}

CASE(a_post_of_a_slab_that_fills_in_another_heap_does_not_wait) {
    enum { SMALL = 64, COUNT = 3000 };
    struct heap *const other = heap_adopt_or_create(&world.shared);
    struct slab *slab = NULL;
    for (unsigned i = 0; i < COUNT; i++) {
        const uintptr_t block = heap_allocate(heap, SMALL, false);
        slab = slab == NULL && i > COUNT / 4 ? heap_world_slab_of(&world, block) : slab;
    }
    assert_true((slab_owner(slab) & SLAB_OWNER_FULL) != 0);
    heap_world_free_elsewhere(&world, slab->start_address);
    assert_int_equal(heap_drain(heap, 1, false), 1);
    assert_int_equal(heap_world_posts(other), 0); // put off: little of it is free
    heap->slab_count--;
    other->slab_count++;
    slab_change_owner(slab, (uintptr_t)other | SLAB_OWNER_FULL);
    assert_int_equal(heap_drain(heap, 1, false), 1);
    assert_int_equal(heap_world_posts(other), 1);
    assert_int_equal(heap_drain(other, 1, true), 1);
    assert_int_equal(slab->used_count, slab->capacity_count - 1);
    heap_world_check(&world, heap);
    heap_world_check(&world, other);
}

CASE(a_free_into_the_heap_of_an_ended_thread_is_collected_at_once) {
    allocate_many();
    heap_abandon(heap);
    for (unsigned i = 0; i < MANY; i++) {
        heap_world_free_elsewhere(&world, blocks[i]);
        assert_int_equal(heap_world_posts(heap), 0);
        assert_int_equal(atomic_load(&heap->state), HEAP_ABANDONED);
        heap_world_check(&world, heap);
    }
    assert_int_equal(heap->slab_count, 0);
    assert_int_equal(heap_world_slices_used(&world), 0);
}

// Many slabs posted to a heap while somebody was at work in it: a call that frees one more block
// does not pay for all of them.
CASE(a_free_into_the_heap_of_an_ended_thread_collects_within_its_budget) {
    enum { COUNT = 40 * CLASS_BLOCKS, LEFT = 1 };
    static uintptr_t many[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        many[i] = heap_allocate(heap, BYTES, false);
    }
    heap_abandon(heap);
    assert_true(heap_claim(heap));
    unsigned posted = 0;
    for (unsigned i = 0; i < COUNT; i++) {
        if (heap_world_slab_of(&world, many[i]) !=
            heap_world_slab_of(&world, many[(i + 1) % COUNT])) {
            heap_world_free_elsewhere(&world, many[i]);
            many[i] = 0;
            posted++;
        }
    }
    assert_true(posted > 30 && heap_world_posts(heap) == posted);
    heap_world_unclaim(heap);
    const unsigned before = heap_world_posts_waiting(heap);
    assert_in_range(before, posted - LEFT, posted - 1);
    assert_true(heap_free(&world.shared, (struct heap *)(uintptr_t)&heap_empty, many[0]));
    assert_in_range(heap_world_posts_waiting(heap), before - LEFT, before - 1);
    assert_int_equal(atomic_load(&heap->state), HEAP_ABANDONED);
    for (unsigned i = 1; i < COUNT; i++) { // the rest is collected by those that follow
        if (many[i] != 0) {
            assert_true(heap_free(&world.shared, (struct heap *)(uintptr_t)&heap_empty, many[i]));
        }
    }
    assert_int_equal(heap_world_posts_waiting(heap), 0);
    assert_int_equal(heap->slab_count, 0);
    assert_int_equal(heap_world_slices_used(&world), 0);
}

// ---- Producers and consumers --------------------------------------------------------------------

enum { PAIRS = 2, ROUNDS = 200000, SLOTS = 64 };
static _Atomic(uintptr_t) slots[PAIRS][SLOTS];
static _Atomic(bool) went_wrong;

static void *produce(void *argument) {
    _Atomic(uintptr_t) *const row = slots[(size_t)argument];
    struct heap *const mine = heap_adopt_or_create(&world.shared);
    for (unsigned round = 0; round < ROUNDS; round++) {
        const size_t size = 16 + 8 * (round % 120);
        const uintptr_t block = heap_allocate(mine, size, false);
        *(uint64_t *)block = block;
        *(uint64_t *)(block + 8) = round;
        uintptr_t expected = 0;
        if (!atomic_compare_exchange_strong(&row[round % SLOTS], &expected, block)) {
            (void)heap_free(&world.shared, mine, block); // the consumer is behind
        }
    }
    heap_abandon(mine);
    return NULL;
}

static void *consume(void *argument) {
    _Atomic(uintptr_t) *const row = slots[(size_t)argument];
    struct heap *const mine = heap_adopt_or_create(&world.shared);
    for (unsigned round = 0; round < ROUNDS; round++) {
        const uintptr_t block = atomic_exchange(&row[round % SLOTS], 0);
        if (block != 0) {
            if (*(const uint64_t *)block != block) {
                atomic_store(&went_wrong, true);
            }
            (void)heap_free(&world.shared, mine, block);
        }
    }
    heap_abandon(mine);
    return NULL;
}

CASE(nothing_is_lost_when_threads_free_what_others_allocate) {
    pthread_t threads[2 * PAIRS];
    memset(slots, 0, sizeof slots);
    for (size_t i = 0; i < PAIRS; i++) {
        assert_int_equal(pthread_create(&threads[2 * i], NULL, produce, (void *)i), 0);
        assert_int_equal(pthread_create(&threads[2 * i + 1], NULL, consume, (void *)i), 0);
    }
    for (size_t i = 0; i < 2 * PAIRS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_false(atomic_load(&went_wrong));
    for (size_t i = 0; i < PAIRS * SLOTS; i++) {
        const uintptr_t block = atomic_load(&slots[i / SLOTS][i % SLOTS]);
        assert_true(block == 0 || heap_free(&world.shared, heap, block));
    }
    for (struct heap *at = atomic_load(&world.shared.heaps); at != NULL; at = at->next_heap) {
        // What was posted while somebody was at work in it waits for whoever is there next.
        while (atomic_load(&at->state) == HEAP_ABANDONED && heap_world_posts_waiting(at) != 0) {
            assert_true(heap_claim(at));
            heap_world_unclaim(at);
        }
        assert_int_equal(heap_world_posts_waiting(at), 0);
        assert_int_equal(at->slab_count, 0);
        heap_world_check(&world, at);
    }
    assert_true(heap_world_slices_used(&world) <= 1); // a thin slice
}

#define HEAP_CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    const struct CMUnitTest cases[] = {
        HEAP_CASE(a_slab_is_posted_once_however_many_of_its_blocks_are_freed),
        HEAP_CASE(draining_keeps_to_its_budget_and_the_rest_for_later),
        HEAP_CASE(a_slab_with_more_words_than_a_call_may_collect_is_gone_on_with_by_the_next),
        HEAP_CASE(a_full_slab_waits_until_a_good_part_of_it_is_free),
        HEAP_CASE(a_slab_whose_blocks_were_all_freed_elsewhere_goes_back),
        HEAP_CASE(a_post_of_such_a_slab_that_lies_below_another_finds_nothing_to_do),
        HEAP_CASE(who_has_the_slab_next_hears_of_what_is_freed_in_it),
        HEAP_CASE(a_full_slab_that_others_have_emptied_goes_back_while_its_owner_sleeps),
        HEAP_CASE(a_thread_without_a_heap_gives_such_a_slab_up_too),
        HEAP_CASE(a_full_slab_with_a_live_block_stays_as_it_was),
        HEAP_CASE(a_slab_is_held_by_its_own_heap_alone),
        HEAP_CASE(an_allocation_takes_blocks_that_others_have_freed_before_fresh_memory),
        HEAP_CASE(a_posted_slab_of_another_class_waits_for_a_call_with_little_to_do),
        HEAP_CASE(a_posted_slab_does_not_wait_for_ever),
        HEAP_CASE(a_call_with_little_to_do_collects_for_an_ended_thread),
        HEAP_CASE(the_owner_that_frees_into_a_pending_slab_leaves_it_posted),
        HEAP_CASE(the_owner_finds_that_another_thread_has_freed_its_block),
        HEAP_CASE(near_freeing_says_whether_more_than_a_bit_has_changed),
        HEAP_CASE(a_second_free_in_a_pending_slab_is_found),
        HEAP_CASE(a_block_freed_twice_in_a_pending_slab_is_found_before_it_is_handed_out_again),
        HEAP_CASE(
            a_slab_that_all_others_have_freed_may_go_with_its_arena_before_its_post_is_handled),
        HEAP_CASE(a_pending_slab_with_a_block_freed_twice_is_not_given_up),
        HEAP_CASE(the_span_of_a_pending_slab_with_a_block_freed_twice_is_not_used_again),
        HEAP_CASE(a_block_of_the_word_in_use_freed_twice_is_found_at_once),
        HEAP_CASE(a_post_follows_a_slab_that_has_moved_to_another_heap),
        HEAP_CASE(a_post_of_a_slab_that_fills_in_another_heap_does_not_wait),
        HEAP_CASE(a_free_into_the_heap_of_an_ended_thread_is_collected_at_once),
        HEAP_CASE(a_free_into_the_heap_of_an_ended_thread_collects_within_its_budget),
        HEAP_CASE(nothing_is_lost_when_threads_free_what_others_allocate),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
