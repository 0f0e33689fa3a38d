// SPDX-License-Identifier: MIT
// Heap: telling what a pointer is, freeing, and stopping at misuse with the right words.
#include <pthread.h>

#include "heap/heap_fast.h"

#include "heap_world.h"

static struct heap_world world;
static struct heap *heap;

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

static uintptr_t allocate(size_t size) {
    const uintptr_t address = heap_allocate(heap, size, false);
    assert_true(address != 0);
    return address;
}

// A block in a slab, not among the thin ones.
static uintptr_t allocate_in_slab(size_t size) {
    return heap_allocate_aligned(heap, size, 16, false);
}

// What does not lie in the first slice of a slab has no size by the shortest way, nor by the short.
static size_t fast_usable(const struct heap *of, uintptr_t address) {
    size_t other = 1;
    const size_t bytes = heap_fast_usable(of, address, &other);
    assert_true(bytes != 0 || other == 0 ||
                (other == HEAP_NOT_NEAR && heap_fast_own_usable(of, address) == 0));
    return bytes;
}

// What the short way to a size says, which the shortest says as well of what it knows.
static size_t own_usable(uintptr_t address) {
    const size_t own_bytes = heap_own_usable(heap, address);
    const bool known = own_bytes <= MALLOW_SMALL_BYTES_MAX && heap->resting == NULL;
    assert_int_equal(fast_usable(heap, address), known ? own_bytes : 0);
    return own_bytes;
}

// The short ways to a size say the same, or nothing.
static enum heap_block_kind kind_of(uintptr_t address) {
    const struct heap_block found = heap_identify(&world.shared, address);
    const size_t own_bytes = own_usable(address);
    assert_true(own_bytes == 0 ||
                (found.kind == HEAP_BLOCK_SLAB && own_bytes == found.usable_bytes));
    assert_int_equal(fast_usable((struct heap *)(uintptr_t)&heap_empty, address), 0);
    assert_int_equal(heap_own_usable((struct heap *)(uintptr_t)&heap_empty, address), 0);
    return found.kind;
}

static void release(uintptr_t address) {
    assert_true(heap_free(&world.shared, heap, address));
}

static void release_here(void *address) {
    (void)heap_free(&world.shared, heap, (uintptr_t)address);
}

// By a thread that has no heap yet.
static void release_elsewhere(void *address) {
    (void)heap_free(&world.shared, (struct heap *)(uintptr_t)&heap_empty, (uintptr_t)address);
}

static bool dies(void (*run)(void *), uintptr_t address, const char *words) {
    return unit_dies(run, (void *)address, words);
}

static const struct {
    size_t size;
    enum heap_block_kind kind;
} kinds[] = {
    {100, HEAP_BLOCK_THIN},   {1000, HEAP_BLOCK_THIN},    {4000, HEAP_BLOCK_THIN},
    {5000, HEAP_BLOCK_SLAB},  {40000, HEAP_BLOCK_SLAB},   {300000, HEAP_BLOCK_LARGE},
    {(3 << 20), HEAP_BLOCK_HUGE},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

CASE(only_the_start_of_a_live_block_is_one) {
    for (unsigned i = 0; i < KINDS; i++) {
        const uintptr_t block = allocate(kinds[i].size);
        const struct heap_block found = heap_identify(&world.shared, block);
        assert_int_equal(found.kind, kinds[i].kind);
        assert_true(found.usable_bytes >= kinds[i].size);
        for (size_t offset = 1; offset < found.usable_bytes; offset += offset < 64 ? 1 : 997) {
            assert_int_equal(kind_of(block + offset), HEAP_BLOCK_NONE);
        }
        release(block);
        assert_int_equal(kind_of(block), HEAP_BLOCK_NONE);
    }
}

CASE(any_value_can_be_asked_about) {
    (void)allocate(1000);
    (void)allocate(3 << 20);
    struct unit_chance chance = unit_chance_begin();
    const uintptr_t base = world.arena.arenas.primary.base;
    for (unsigned i = 0; i < 20000; i++) {
        const uintptr_t wild = (uintptr_t)unit_next(&chance);
        assert_int_equal(kind_of(wild), HEAP_BLOCK_NONE);
        assert_int_equal(kind_of(base + (wild % WORLD_RESERVE_BYTES | 1)), HEAP_BLOCK_NONE);
    }
    for (unsigned bit = 0; bit < 64; bit++) {
        assert_int_equal(kind_of(UINT64_C(1) << bit), HEAP_BLOCK_NONE);
        assert_int_equal(kind_of(UINTPTR_MAX << bit), HEAP_BLOCK_NONE);
    }
    assert_int_equal(kind_of(0), HEAP_BLOCK_NONE);
}

CASE(an_address_that_is_not_ours_is_left_to_others) {
    static char elsewhere[64];
    assert_false(heap_free(&world.shared, heap, (uintptr_t)elsewhere));
    assert_false(heap_free(&world.shared, heap, (uintptr_t)&elsewhere[8]));
    assert_false(heap_free(&world.shared, heap, 4096));
    assert_false(heap_free(&world.shared, heap, UINTPTR_MAX));
    heap_report_misuse(&world.shared, (uintptr_t)elsewhere, "realloc"); // returns
}

CASE(a_second_free_of_any_kind_stops_the_program) {
    for (unsigned i = 0; i < KINDS; i++) {
        const uintptr_t block = allocate(kinds[i].size);
        (void)allocate(kinds[i].size); // keeps the slab
        release(block);
        assert_true(dies(release_here, block, "double free"));
        assert_true(dies(release_elsewhere, block, "double free"));
    }
}

CASE(a_block_freed_by_another_thread_and_then_by_its_owner_stops_the_program) {
    const uintptr_t block = allocate_in_slab(1000);
    (void)allocate_in_slab(1000);
    release_elsewhere((void *)block);
    assert_true(dies(release_here, block, "double free"));
    assert_true(dies(release_elsewhere, block, "double free"));
    (void)heap_drain(heap, 1, true);
    assert_true(dies(release_here, block, "double free"));
    assert_true(dies(release_elsewhere, block, "double free"));
}

CASE(interior_and_misaligned_pointers_stop_the_program) {
    for (unsigned i = 0; i < KINDS; i++) {
        const uintptr_t block = allocate(kinds[i].size);
        assert_true(dies(release_here, block + 16, "interior pointer"));
        assert_true(dies(release_here, block + 8, "misaligned pointer"));
        const bool counted = kinds[i].kind == HEAP_BLOCK_SLAB || kinds[i].kind == HEAP_BLOCK_LARGE;
        assert_true(dies(release_here, block + 1,
                         counted ? "misaligned pointer, 1 byte into" : "misaligned pointer"));
        assert_true(dies(release_elsewhere, block + 32, "invalid free of 0x"));
        assert_int_equal(kind_of(block), kinds[i].kind);
    }
}

// The later slices of a large block carry no mark that leads to it.
CASE(a_pointer_into_a_later_slice_of_a_large_block_stops_the_program) {
    const uintptr_t block = allocate(900000);
    for (size_t offset = MALLOW_SLICE_BYTES; offset < 900000; offset += 100016) {
        assert_true(dies(release_here, block + offset, "interior pointer"));
        assert_true(dies(release_here, block + offset + 1, "misaligned pointer"));
        assert_int_equal(kind_of(block + offset), HEAP_BLOCK_NONE);
    }
    release(block);
    assert_true(dies(release_here, block + MALLOW_SLICE_BYTES, "no block is in use there"));
}

CASE(memory_of_ours_where_no_block_is_stops_the_program) {
    const uintptr_t block = allocate_in_slab(1000);
    const struct arena *const primary = &world.arena.arenas.primary;
    const uintptr_t last = primary->base + (primary->committed_slices << MALLOW_SLICE_SHIFT);
    assert_int_equal(arena_slab_at(primary, last - 64)->kind, SLAB_NONE);
    assert_true(dies(release_here, last - 64, "no block is in use there"));
    const struct slab *const slab = heap_identify(&world.shared, block).slab;
    const uintptr_t tail = slab->start_address + slab->capacity_count * slab->block_bytes;
    if (tail < bits_align_up(block, MALLOW_SLICE_BYTES)) {
        assert_true(dies(release_here, tail, "behind the last block"));
    }
    // Blocks of the slab that were never handed out: one that is open, and one that is not.
    const uintptr_t open = slab->start_address + (slab->capacity_count - 1U) * slab->block_bytes;
    assert_int_not_equal(open, block);
    assert_true(dies(release_here, open, "double free"));
    if (world.arena.os.page_bytes < MALLOW_SLICE_BYTES) {
        assert_true(slab_can_open(slab));
        assert_true(dies(release_here, open + slab->block_bytes, "behind the last block"));
    }
}

CASE(a_free_turns_a_full_slab_into_a_queued_one_and_an_empty_one_is_given_back) {
    enum { BYTES = 8192 };
    uintptr_t blocks[64];
    const unsigned capacity = size_class_capacity(size_class_of(BYTES));
    for (unsigned i = 0; i <= capacity; i++) { // one more: the first slab is full then
        blocks[i] = allocate_in_slab(BYTES);
    }
    struct slab *const slab = heap_identify(&world.shared, blocks[0]).slab;
    assert_ptr_equal(slab, heap_identify(&world.shared, blocks[capacity - 1]).slab);
    assert_int_equal(slab_owner(slab), (uintptr_t)heap | SLAB_OWNER_FULL);
    assert_null(heap_queue_first(heap, size_class_of(BYTES)));
    release(blocks[3]);
    assert_ptr_equal(heap_queue_first(heap, size_class_of(BYTES)), slab);
    heap_world_check(&world, heap);
    for (unsigned i = 0; i < capacity; i++) {
        if (i != 3) {
            assert_int_equal(slab->kind, SLAB_BLOCKS);
            release(blocks[i]);
            heap_world_check(&world, heap);
        }
    }
    assert_int_equal(slab->kind, SLAB_NONE);
    assert_null(heap_queue_first(heap, size_class_of(BYTES)));
    assert_int_equal(heap->slab_count, 1); // the current one stays, even when empty
    release(blocks[capacity]);
    assert_int_equal(heap->slab_count, 1);
    heap_world_check(&world, heap);
}

// ---- Lent blocks ------------------------------------------------------------------------------

// A full slab of 64 byte blocks, another that is current, and a heap that passes for a large one.
static struct slab *full_slab(uintptr_t blocks[MALLOW_SLAB_CAPACITY_MAX], unsigned *count) {
    struct slab *slab = NULL;
    *count = 0;
    for (;;) {
        const uintptr_t block = allocate_in_slab(64);
        struct slab *const other = heap_identify(&world.shared, block).slab;
        if (slab != NULL && other != slab) {
            break;
        }
        slab = other;
        blocks[(*count)++] = block;
    }
    assert_true((slab_owner(slab) & SLAB_OWNER_FULL) != 0);
    atomic_fetch_add(&heap->slab_count, MALLOW_LEND_SLABS);
    return slab;
}

static void check_again(void) {
    atomic_fetch_sub(&heap->slab_count, MALLOW_LEND_SLABS);
    heap_world_check(&world, heap);
    atomic_fetch_add(&heap->slab_count, MALLOW_LEND_SLABS);
}

CASE(a_full_slab_lends_a_block_which_is_handed_out_next_and_stays_full) {
    static uintptr_t blocks[MALLOW_SLAB_CAPACITY_MAX];
    unsigned count;
    const struct slab *const slab = full_slab(blocks, &count);
    for (unsigned i = 0; i < count; i += 7) {
        assert_true(heap_world_lend(&world, heap, blocks[i]));
        assert_int_equal(kind_of(blocks[i]), HEAP_BLOCK_NONE);
        assert_true((slab_owner(slab) & SLAB_OWNER_FULL) != 0);
        check_again();
        uintptr_t again = 0;
        assert_true(heap_fast_allocate(heap, 64, &again));
        assert_int_equal(again, blocks[i]);
        assert_int_equal(kind_of(again), HEAP_BLOCK_SLAB);
    }
    assert_false(heap_world_lend(&world, heap, blocks[0] + 16)); // no block's start
    atomic_fetch_sub(&heap->slab_count, MALLOW_LEND_SLABS);
    assert_false(heap_world_lend(&world, heap, blocks[0])); // a small heap does not lend
}

CASE(the_short_way_finds_the_size_of_own_blocks) {
    static uintptr_t blocks[MALLOW_SLAB_CAPACITY_MAX];
    unsigned count;
    struct slab *const slab = full_slab(blocks, &count);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(own_usable(blocks[i]), 64);
    }
    release(blocks[2]); // queued now
    assert_int_equal(own_usable(blocks[2]), 0);
    assert_int_equal(own_usable(blocks[3]), 64);
    assert_int_equal(own_usable(blocks[3] + 16), 0);
    assert_int_equal(own_usable(allocate_in_slab(5000)), 5120); // no block of malloc's fast path
    const uintptr_t newest = allocate_in_slab(640);
    assert_int_equal(own_usable(newest), 640); // in a current slab
    release(newest);
    assert_int_equal(kind_of(newest), HEAP_BLOCK_NONE); // hot
    heap_free_remote(slab, arena_remote_of(&world.arena.arenas, slab),
                     slab_index_of(slab, blocks[9]));
    assert_int_equal(own_usable(blocks[9]), 0);
    assert_int_equal(kind_of(blocks[3]), HEAP_BLOCK_SLAB); // by the long way
}

CASE(a_lent_block_comes_back_when_its_slab_ceases_to_be_full) {
    static uintptr_t blocks[MALLOW_SLAB_CAPACITY_MAX];
    unsigned count;
    const struct slab *const slab = full_slab(blocks, &count);
    assert_true(heap_world_lend(&world, heap, blocks[3]));
    assert_false(heap_world_lend(&world, heap, blocks[4])); // one at a time
    release(blocks[4]);
    assert_int_equal(slab->used_count, slab->capacity_count - 2U);
    assert_int_equal(kind_of(blocks[3]), HEAP_BLOCK_NONE);
    check_again();
    while ((slab_owner(slab) & SLAB_OWNER_FULL) == 0) {
        assert_true(allocate_in_slab(64) != 0);
    }
    // And when the current slab is to be one no more.
    assert_true(heap_world_lend(&world, heap, blocks[5]));
    heap_return_lent(heap, heap_current_slab(heap, slab->class_index));
    assert_int_equal(slab->used_count, slab->capacity_count - 1U);
    assert_int_equal(kind_of(blocks[5]), HEAP_BLOCK_NONE);
    check_again();
    assert_true(kind_of(blocks[6]) == HEAP_BLOCK_SLAB);
    atomic_fetch_sub(&heap->slab_count, MALLOW_LEND_SLABS);
    heap_abandon(heap);
    heap_world_check(&world, heap);
}

// As a thread that has freed the last block of a full slab, and then finds that the owner was faster.
static void *put_back_soon(void *slab) {
    for (unsigned round = 64; round < 164; round++) {
        os_pause(round);
    }
    slab_change_owner(slab, (uintptr_t)heap | SLAB_OWNER_FULL);
    return slab;
}

CASE(a_lent_block_comes_back_to_a_slab_that_somebody_is_looking_at) {
    static uintptr_t blocks[MALLOW_SLAB_CAPACITY_MAX];
    unsigned count;
    pthread_t other;
    struct slab *const slab = full_slab(blocks, &count);
    assert_true(heap_world_lend(&world, heap, blocks[3]));
    slab_set_owner(slab, 0);
    assert_int_equal(pthread_create(&other, NULL, put_back_soon, slab), 0);
    heap_return_lent(heap, heap_current_slab(heap, slab->class_index));
    assert_int_equal(pthread_join(other, NULL), 0);
    assert_false(slab_has_lent(heap_current_slab(heap, slab->class_index)));
    assert_int_equal(slab->used_count, slab->capacity_count - 1U);
    assert_int_equal(kind_of(blocks[3]), HEAP_BLOCK_NONE);
    check_again();
}

CASE(a_lent_block_that_is_freed_again_stops_the_program) {
    static uintptr_t blocks[MALLOW_SLAB_CAPACITY_MAX];
    unsigned count;
    (void)full_slab(blocks, &count);
    assert_true(heap_world_lend(&world, heap, blocks[3]));
    assert_true(dies(release_here, blocks[3], "double free of"));
    assert_true(dies(release_elsewhere, blocks[3], "double free of"));
    struct slab *const slab = heap_fast_slab(heap, blocks[3]);
    heap_free_remote(slab, arena_remote_of(&world.arena.arenas, slab),
                     slab_index_of(slab, blocks[9])); // pending now
    assert_true(dies(release_elsewhere, blocks[3], "double free of"));
    assert_true(dies(release_here, blocks[3], "double free of"));
}

// What the short way tells is what the long way does, and it tells nothing of what is not live.
CASE(a_block_of_the_threads_own_is_told_at_less_cost) {
    enum { COUNT = 3000, SIZE = 64 };
    static uintptr_t blocks[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        blocks[i] = allocate_in_slab(SIZE);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        const struct heap_block found = heap_identify(&world.shared, blocks[i]);
        const size_t usable_bytes = own_usable(blocks[i]);
        const struct heap_block near = heap_fast_block_of(heap, blocks[i], usable_bytes);
        assert_int_equal(near.kind, found.kind);
        assert_ptr_equal(near.slab, found.slab);
        assert_int_equal(near.index, found.index);
        assert_int_equal(near.usable_bytes, found.usable_bytes);
        assert_int_equal(own_usable(blocks[i] + 16), 0);
    }
    const uintptr_t last = allocate_in_slab(SIZE);
    struct slab *slab;
    assert_int_equal(heap_fast_free(heap, last, &slab), HEAP_FAST_DONE); // hot
    assert_int_equal(own_usable(last), 0);
    release(blocks[7]);
    assert_int_equal(own_usable(blocks[7]), 0);
    release_elsewhere((void *)blocks[8]); // what others do is for the long way
    assert_int_equal(own_usable(blocks[9]), 0);
    assert_int_equal(kind_of(blocks[9]), HEAP_BLOCK_SLAB);
    assert_int_equal(heap_own_usable(&heap_empty, blocks[10]), 0);
    assert_int_equal(own_usable(0), 0);
    assert_int_equal(own_usable(allocate(300000)), 0);
}

#define HEAP_CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

// ---- Elsewhere ----------------------------------------------------------------------------------

static atomic_bool elsewhere_stop;

static void *make_and_give_up_slabs(void *argument) {
    struct heap *const other = heap_adopt_or_create(&world.shared);
    uintptr_t made[40];
    while (!atomic_load(&elsewhere_stop)) {
        for (unsigned i = 0; i < 40; i++) {
            made[i] = heap_allocate(other, 4000 + 500 * (i % 5), false);
        }
        for (unsigned i = 0; i < 40; i++) {
            (void)heap_world_free(&world, other, made[i]);
        }
    }
    return argument;
}

// Every address has a header slot, that of a huge block too: of a slab that is just being made, say. For
// ThreadSanitizer as well.
CASE(an_address_elsewhere_is_told_while_the_slab_in_its_slot_comes_and_goes) {
    const struct arena *const arena = &world.arena.arenas.primary;
    const size_t arena_bytes = arena->slice_count << MALLOW_SLICE_SHIFT;
    pthread_t thread;
    size_t capacity;
    size_t other;
    atomic_store(&elsewhere_stop, false);
    assert_int_equal(pthread_create(&thread, NULL, make_and_give_up_slabs, NULL), 0);
    for (unsigned round = 0; round < 3000; round++) {
        for (size_t slice = 0; slice < 32; slice++) {
            const uintptr_t address = arena->base + arena_bytes + (slice << MALLOW_SLICE_SHIFT);
            assert_int_equal(heap_near_free(&world.shared, heap, heap_fast_slab(heap, address),
                                            address, &capacity),
                             HEAP_NEAR_NOT);
            assert_int_equal(heap_fast_usable(heap, address, &other), 0);
            assert_int_equal(other, HEAP_NOT_NEAR);
            assert_int_equal(heap_own_usable(heap, address), 0);
        }
    }
    atomic_store(&elsewhere_stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test_setup_teardown(
            an_address_elsewhere_is_told_while_the_slab_in_its_slot_comes_and_goes, begin, end),
        HEAP_CASE(only_the_start_of_a_live_block_is_one),
        HEAP_CASE(any_value_can_be_asked_about),
        HEAP_CASE(a_block_of_the_threads_own_is_told_at_less_cost),
        HEAP_CASE(an_address_that_is_not_ours_is_left_to_others),
        HEAP_CASE(a_second_free_of_any_kind_stops_the_program),
        HEAP_CASE(a_block_freed_by_another_thread_and_then_by_its_owner_stops_the_program),
        HEAP_CASE(interior_and_misaligned_pointers_stop_the_program),
        HEAP_CASE(a_pointer_into_a_later_slice_of_a_large_block_stops_the_program),
        HEAP_CASE(memory_of_ours_where_no_block_is_stops_the_program),
        HEAP_CASE(a_free_turns_a_full_slab_into_a_queued_one_and_an_empty_one_is_given_back),
        HEAP_CASE(a_full_slab_lends_a_block_which_is_handed_out_next_and_stays_full),
        HEAP_CASE(the_short_way_finds_the_size_of_own_blocks),
        HEAP_CASE(a_lent_block_comes_back_when_its_slab_ceases_to_be_full),
        HEAP_CASE(a_lent_block_comes_back_to_a_slab_that_somebody_is_looking_at),
        HEAP_CASE(a_lent_block_that_is_freed_again_stops_the_program),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
