// SPDX-License-Identifier: MIT
// Heap and other threads: a post that is handled while another thread posts the slab anew. The two meet
// within nanoseconds, so there are many rounds; without what is tested about every second run fails.
#include <limits.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "heap/heap_fast.h"
#include "heap_world.h"

static struct heap_world world;
static struct heap *heap;

enum { BYTES = 8192 };

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

static uintptr_t allocate(void) {
    const uintptr_t address = heap_allocate(heap, BYTES, false);
    assert_true(address != 0);
    return address;
}

static _Atomic(uintptr_t) handed; // to the thread that frees it
static atomic_bool hand_over;

static void rest_a_little(uint64_t *state) {
    *state = *state * 6364136223846793005U + 1;
    for (volatile uint64_t i = *state >> 33 & 63; i > 0; i--) {
    }
}

static void *free_what_is_handed(void *argument) {
    uint64_t state = 2;
    while (!atomic_load(&hand_over)) {
        const uintptr_t address = atomic_load(&handed);
        if (address != 0) {
            rest_a_little(&state);
            heap_world_free_elsewhere(&world, address);
            atomic_store(&handed, 0);
        }
    }
    return argument;
}

CASE(a_slab_that_is_freed_into_while_its_post_is_handled_is_on_no_list_twice) {
    pthread_t thread;
    uint64_t state = 1;
    struct slab *const slab = heap_fast_slab(heap, allocate()); // stays, with room
    struct slab_remote *const remote = arena_remote_of(&world.arena.arenas, slab);
    heap_world_free_elsewhere(&world, allocate());
    atomic_store(&hand_over, false);
    assert_int_equal(pthread_create(&thread, NULL, free_what_is_handed, NULL), 0);
    const time_t end_s = time(NULL) + 3; // where the two share a processor, few rounds have to do
    for (unsigned round = 0; round < 200000 && time(NULL) < end_s; round++) {
        int work = INT_MAX;
        (void)heap_collect(heap, slab, remote, &work); // its post stays
        const uintptr_t block = allocate();
        assert_ptr_equal(heap_fast_slab(heap, block), slab);
        atomic_store(&handed, block);
        rest_a_little(&state);
        (void)heap_drain_one(heap, &work, true);
        while (atomic_load(&handed) != 0) { // no pause: the two are to meet
        }
        // What was not handled is posted, and known to be.
        assert_int_equal(atomic_load(&heap->ready) == remote, atomic_load(&remote->posted));
        if (atomic_load(&remote->posted) == 0) {
            heap_world_free_elsewhere(&world, allocate());
        }
    }
    atomic_store(&hand_over, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)heap_drain(heap, 10, true);
    heap_world_check(&world, heap);
}

// A slab of an earlier life of which a post is on the stack of `heap`, and which is `next_heap`'s from
// one moment on.
static struct heap *next_heap;
static struct slab *slab_between;
static struct slab_remote *remote_between;
static bool late_posts; // the late thread was told to post it itself

// Frees late: its bit has been collected in that earlier life.
static void *free_late(void *argument) {
    uint64_t state = 2;
    while (!atomic_load(&hand_over)) {
        if (atomic_load(&handed) != 0) {
            rest_a_little(&state);
            slab_set_owner(slab_between, (uintptr_t)next_heap | SLAB_OWNER_FULL);
            late_posts = slab_remote_claim_post(slab_between, remote_between);
            atomic_store(&handed, 0);
        }
    }
    return argument;
}

CASE(a_pending_slab_is_posted_whoever_was_late) {
    pthread_t thread;
    uint64_t state = 1;
    next_heap = heap_adopt_or_create(&world.shared);
    slab_between = heap_fast_slab(heap, allocate());
    remote_between = arena_remote_of(&world.arena.arenas, slab_between);
    const uintptr_t owner = slab_owner(slab_between);
    atomic_store(&handed, 0);
    atomic_store(&hand_over, false);
    assert_int_equal(pthread_create(&thread, NULL, free_late, NULL), 0);
    const time_t end_s = time(NULL) + 3;
    bool lost = false;
    for (unsigned round = 0; round < 400000 && !lost && time(NULL) < end_s; round++) {
        int work = INT_MAX;
        slab_set_owner(slab_between, 0);
        remote_between->slab = slab_between;
        atomic_store(&remote_between->next_posted, NULL);
        atomic_store(&remote_between->posted, 1);
        atomic_store(&heap->ready, remote_between);
        atomic_store(&handed, 1);
        rest_a_little(&state);
        assert_true(heap_drain_one(heap, &work, true));
        while (atomic_load(&handed) != 0) { // no pause: the two are to meet
        }
        const bool is_posted = atomic_exchange(&next_heap->ready, NULL) == remote_between;
        lost = late_posts == is_posted;
        assert_null(atomic_load(&heap->ready));
    }
    atomic_store(&hand_over, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(lost);
    atomic_store(&remote_between->posted, 0);
    slab_set_owner(slab_between, owner);
    heap_world_check(&world, heap);
}

// ---- A full slab that is given up ---------------------------------------------------------------

static struct slab *slab_to_free;

static void *free_all_of_it(void *argument) {
    for (size_t i = 0; i < slab_to_free->room_count; i++) {
        heap_world_free_elsewhere(&world, slab_to_free->start_address + i * BYTES);
    }
    return argument;
}

// A fork takes the arena's lock: in its child, a slab that was nobody's at that moment would be so for
// ever, and whoever handled its post would wait for its owner.
CASE(a_full_slab_is_nobodys_only_while_no_fork_can_be) {
    pthread_t thread;
    slab_to_free = heap_fast_slab(heap, allocate());
    while (heap_fast_slab(heap, allocate()) == slab_to_free) {
    }
    assert_int_equal(slab_owner(slab_to_free), (uintptr_t)heap | SLAB_OWNER_FULL);
    os_lock_take(&world.arena.arenas.lock);
    assert_int_equal(pthread_create(&thread, NULL, free_all_of_it, NULL), 0);
    (void)nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    const uintptr_t owner = slab_owner(slab_to_free);
    os_lock_drop(&world.arena.arenas.lock);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(owner, (uintptr_t)heap | SLAB_OWNER_FULL | SLAB_OWNER_PENDING);
    assert_int_equal(slab_to_free->kind, SLAB_NONE); // it has been given up all the same
    heap_world_check(&world, heap);
}

// ---- Posts astray -------------------------------------------------------------------------------

enum { SLABS = 3 };

static struct slab *fill_slab(struct heap *owner) {
    return heap_world_fill_slab(owner, BYTES);
}

static void free_elsewhere(struct slab *slab, size_t first, size_t end) {
    for (size_t i = first; i < end; i++) {
        heap_world_free_elsewhere(&world, slab->start_address + i * BYTES);
    }
}

CASE(a_post_under_others_of_a_thread_that_sleeps_is_brought_to_the_slabs_next_heap) {
    struct heap *const next = heap_adopt_or_create(&world.shared);
    struct slab *slabs[SLABS];
    for (unsigned i = 0; i < SLABS; i++) {
        slabs[i] = fill_slab(heap);
    }
    const size_t count = slabs[0]->room_count;
    for (unsigned i = 0; i < SLABS; i++) {
        free_elsewhere(slabs[i], 0, 1);
    }
    heap_sort_posts(&world.shared);
    free_elsewhere(slabs[0], 1, count);
    assert_int_equal(slabs[0]->kind, SLAB_NONE);
    assert_int_equal(heap_world_posts(heap), SLABS); // one of them of a slab that is no more
    while (fill_slab(next) != slabs[0]) {
    }
    free_elsewhere(slabs[0], 2, 4);
    assert_int_equal(heap_world_posts(next), 0);
    heap_sort_posts(&world.shared);
    assert_int_equal(heap_world_posts(heap), SLABS - 1);
    assert_int_equal(heap_world_posts(next), 1);
    assert_int_equal(heap_drain(next, 10, true), 1);
    assert_int_equal(slabs[0]->used_count, count - 2);
    heap_sort_posts(&world.shared);
    assert_int_equal(heap_drain(heap, 10, true), SLABS - 1);
    heap_world_check(&world, heap);
    heap_world_check(&world, next);
}

// The others' thread posts, and takes what is posted, beside the sorting: nothing is lost.
static atomic_bool sort_stop;

static void *sort_on_and_on(void *argument) {
    while (!atomic_load(&sort_stop)) {
        atomic_store(&heap->astray_count, 1);
        heap_sort_posts(&world.shared);
    }
    return argument;
}

CASE(no_post_is_lost_while_they_are_sorted) {
    enum { BLOCKS = 400 };
    static uintptr_t blocks[BLOCKS];
    pthread_t thread;
    atomic_store(&sort_stop, false);
    assert_int_equal(pthread_create(&thread, NULL, sort_on_and_on, NULL), 0);
    const time_t end_s = time(NULL) + 3;
    for (unsigned round = 0; round < 2000 && time(NULL) < end_s; round++) {
        for (unsigned i = 0; i < BLOCKS; i++) {
            blocks[i] = allocate();
        }
        for (unsigned i = 0; i < BLOCKS; i++) {
            heap_world_free_elsewhere(&world, blocks[i * 7 % BLOCKS]);
        }
        (void)heap_drain(heap, 3, true);
    }
    atomic_store(&sort_stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)heap_drain(heap, 1000, true);
    heap_release_spare(heap);
    assert_int_equal(heap_world_posts_waiting(heap), 0);
    assert_int_equal(atomic_load(&heap->slab_count), 0);
    heap_world_check(&world, heap);
}

// Two threads free a block at the same time: the slab is given up when the first is through, and
// the second has looked before that.
static void free_in_a_slab_just_given_up(void *argument) {
    (void)argument;
    struct slab *const slab = heap_fast_slab(heap, allocate());
    struct slab_remote *const remote = arena_remote_of(&world.arena.arenas, slab);
    alarm(20);
    slab_set_owner(slab, 0);
    __atomic_store_n(&slab->kind, SLAB_NONE, __ATOMIC_RELEASE);
    heap_free_live(slab, remote, 0);
}

// The same, where a post of the slab was on its way: whoever handles that finds out.
static void handle_a_post_of_a_slab_given_up(void *argument) {
    (void)argument;
    const uintptr_t block = allocate();
    struct slab *const slab = heap_fast_slab(heap, block);
    int work = INT_MAX;
    heap_world_free_elsewhere(&world, block);
    alarm(20);
    slab_clear(slab);
    (void)heap_drain_one(heap, &work, true);
}

CASE(a_second_free_that_comes_as_the_slab_is_given_up_is_told) {
    const char *const words = "another thread freed this block as well";
    assert_true(unit_dies(free_in_a_slab_just_given_up, NULL, words));
    assert_true(unit_dies(handle_a_post_of_a_slab_given_up, NULL, words));
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test_setup_teardown(a_second_free_that_comes_as_the_slab_is_given_up_is_told,
                                        begin, end),
        cmocka_unit_test_setup_teardown(a_full_slab_is_nobodys_only_while_no_fork_can_be, begin,
                                        end),
        cmocka_unit_test_setup_teardown(
            a_post_under_others_of_a_thread_that_sleeps_is_brought_to_the_slabs_next_heap, begin,
            end),
        cmocka_unit_test_setup_teardown(no_post_is_lost_while_they_are_sorted, begin, end),
        cmocka_unit_test_setup_teardown(a_pending_slab_is_posted_whoever_was_late, begin, end),
        cmocka_unit_test_setup_teardown(
            a_slab_that_is_freed_into_while_its_post_is_handled_is_on_no_list_twice, begin, end),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
