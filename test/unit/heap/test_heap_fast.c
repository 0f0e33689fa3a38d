// SPDX-License-Identifier: MIT
// The fast path: that it does what it may, and leaves to the slow path what it must.
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

static uintptr_t allocate_in_slab(size_t size) {
    const uintptr_t address = heap_allocate_aligned(heap, size, 16, false);
    assert_true(address != 0);
    return address;
}

static enum heap_fast_result fast_free(uintptr_t address) {
    struct slab *slab;
    return heap_fast_free(heap, address, &slab);
}

CASE(without_a_heap_nothing_is_allocated_and_nothing_freed) {
    struct heap *const none = (struct heap *)(uintptr_t)&heap_empty;
    const uintptr_t block = allocate_in_slab(1000);
    const uintptr_t values[] = {0, 1, 16, 65536, block, (uintptr_t)values, UINTPTR_MAX};
    assert_true(heap_is_empty(heap_current()));
    for (size_t size = 0; size <= MALLOW_SMALL_BYTES_MAX; size++) {
        uintptr_t address;
        assert_false(heap_fast_allocate(none, size, &address));
    }
    for (unsigned i = 1; i < sizeof values / sizeof values[0]; i++) {
        struct slab *slab;
        assert_int_equal(heap_fast_free(none, values[i], &slab), HEAP_FAST_SLOW);
    }
    assert_int_equal(heap_identify(&world.shared, block).kind, HEAP_BLOCK_SLAB);
}

CASE(a_size_gets_a_block_of_its_class_from_the_current_slab) {
    for (size_t size = 0; size <= MALLOW_SMALL_BYTES_MAX; size++) {
        uintptr_t address = 0;
        if (!heap_fast_allocate(heap, size, &address)) { // no slab yet, or its word is used up
            (void)allocate_in_slab(size);
            assert_true(heap_fast_allocate(heap, size, &address));
        }
        const struct heap_block block = heap_identify(&world.shared, address);
        assert_int_equal(block.kind, HEAP_BLOCK_SLAB);
        assert_int_equal(block.usable_bytes, size_class_bytes(size_class_of(size)));
    }
    heap_world_check(&world, heap);
}

// Every address of the slab: only the start of a live block is freed, and only once.
static void check_every_offset(unsigned class_index) {
    const size_t bytes = size_class_bytes(class_index);
    const uintptr_t block = allocate_in_slab(bytes);
    struct slab *const slab = heap_identify(&world.shared, block).slab;
    const uintptr_t base = bits_align_down(slab->start_address, MALLOW_SLICE_BYTES);
    slab->last = 0;
    const struct slab before = *slab;
    for (size_t offset = 0; offset < MALLOW_SLICE_BYTES; offset++) {
        const uintptr_t address = base + offset;
        const enum heap_fast_result result = fast_free(address);
        if ((result == HEAP_FAST_DONE) != (address == block)) {
            fail_msg("class %u, offset %zu: %d", class_index, offset, (int)result);
        }
    }
    assert_int_equal(slab_count_used(slab), slab_count_used(&before) - 1);
    assert_true(slab_is_free(slab, slab_index_of(slab, block)));
}

CASE(free_takes_the_start_of_a_live_block_and_no_other_address_of_the_slab) {
    for (unsigned class_index = 0; class_index < MALLOW_CLASS_COUNT; class_index += 3) {
        check_every_offset(class_index);
        heap_release_spare(heap);
    }
    heap_world_check(&world, heap);
}

CASE(the_block_handed_out_last_becomes_hot_and_is_the_next) {
    (void)allocate_in_slab(64);
    uintptr_t block = 0;
    uintptr_t again = 0;
    assert_true(heap_fast_allocate(heap, 64, &block));
    assert_int_equal(fast_free(block), HEAP_FAST_DONE);
    const struct slab *const slab = heap_current_slab(heap, size_class_of(64));
    assert_int_equal(slab->last, block);
    assert_int_equal(slab->hot, 1);
    assert_true(slab_is_free(slab, slab_index_of(slab, block)));
    assert_int_equal(fast_free(block), HEAP_FAST_SLOW); // a double free
    assert_true(heap_fast_allocate(heap, 64, &again));
    assert_int_equal(again, block);
    heap_world_check(&world, heap);
}

CASE(a_block_of_a_queued_slab_is_counted_and_the_last_one_is_told) {
    enum { BYTES = 8192 };
    uintptr_t blocks[20];
    const unsigned capacity = size_class_capacity(size_class_of(BYTES));
    for (unsigned i = 0; i <= capacity; i++) {
        blocks[i] = allocate_in_slab(BYTES);
    }
    struct slab *const slab = heap_identify(&world.shared, blocks[0]).slab;
    assert_int_equal(fast_free(blocks[0]), HEAP_FAST_SLOW); // full: the slow path queues it
    assert_true(heap_free(&world.shared, heap, blocks[0]));
    for (unsigned i = 1; i + 1 < capacity; i++) {
        assert_int_equal(fast_free(blocks[i]), HEAP_FAST_DONE);
        assert_int_equal(slab->used_count, capacity - 1 - i);
        assert_int_equal(fast_free(blocks[i]), HEAP_FAST_SLOW);
    }
    assert_int_equal(fast_free(blocks[capacity - 1]), HEAP_FAST_EMPTIED);
    assert_int_equal(slab->used_count, 0);
}

CASE(pending_foreign_and_huge_addresses_go_the_slow_way) {
    static char foreign[64];
    const uintptr_t block = allocate_in_slab(1000);
    const uintptr_t other = allocate_in_slab(1000);
    struct slab *const slab = heap_identify(&world.shared, block).slab;
    heap_free_remote(slab, arena_remote_of(&world.arena.arenas, slab), slab_index_of(slab, other));
    assert_int_equal(fast_free(block), HEAP_FAST_SLOW);
    assert_int_equal(fast_free((uintptr_t)foreign), HEAP_FAST_SLOW);
    assert_int_equal(fast_free(heap_allocate(heap, 200000, false)), HEAP_FAST_SLOW);
    assert_int_equal(fast_free(heap_allocate(heap, 3 << 20, false)), HEAP_FAST_SLOW);
    assert_int_equal(fast_free(heap_allocate(heap, 64, false)), HEAP_FAST_SLOW); // thin
    struct heap *const stranger = heap_adopt_or_create(&world.shared);
    struct slab *found;
    assert_int_equal(heap_fast_free(stranger, block, &found), HEAP_FAST_SLOW);
}

CASE(another_word_of_the_slab_comes_next_unless_somebody_else_has_a_hand_in_it) {
    static uintptr_t blocks[MALLOW_SLAB_CAPACITY_MAX];
    unsigned count = 0;
    uintptr_t address = 0;
    blocks[count++] = allocate_in_slab(64);
    struct slab *const slab = heap_current_slab(heap, size_class_of(64));
    while (slab_can_open(slab) || !slab_is_out(slab)) {
        blocks[count++] = allocate_in_slab(64);
    }
    assert_false(heap_near_take(heap, slab, &address)); // there is none
    assert_int_equal(fast_free(blocks[5]), HEAP_FAST_DONE);
    assert_false(heap_fast_allocate(heap, 64, &address)); // not in the word in use
    heap_gate_ask(heap);
    assert_false(heap_near_take(heap, slab, &address)); // somebody waits for an answer
    heap_gate_dismiss(heap);
    assert_true(heap_near_take(heap, slab, &address));
    assert_int_equal(address, blocks[5]);
    assert_int_equal(atomic_load(&heap->busy), 0);
    heap_world_check(&world, heap);
    assert_int_equal(fast_free(blocks[6]), HEAP_FAST_DONE);
    heap_free_remote(slab, arena_remote_of(&world.arena.arenas, slab),
                     slab_index_of(slab, blocks[7]));
    assert_false(heap_near_take(heap, slab, &address)); // another thread has freed in it
    assert_true(slab_is_free(slab, slab_index_of(slab, blocks[6])));
    assert_int_equal(atomic_load(&heap->busy), 0);
}

#define FAST_CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    const struct CMUnitTest cases[] = {
        FAST_CASE(without_a_heap_nothing_is_allocated_and_nothing_freed),
        FAST_CASE(another_word_of_the_slab_comes_next_unless_somebody_else_has_a_hand_in_it),
        FAST_CASE(a_size_gets_a_block_of_its_class_from_the_current_slab),
        FAST_CASE(free_takes_the_start_of_a_live_block_and_no_other_address_of_the_slab),
        FAST_CASE(the_block_handed_out_last_becomes_hot_and_is_the_next),
        FAST_CASE(a_block_of_a_queued_slab_is_counted_and_the_last_one_is_told),
        FAST_CASE(pending_foreign_and_huge_addresses_go_the_slow_way),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
