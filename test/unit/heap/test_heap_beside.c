// SPDX-License-Identifier: MIT
// Blocks beside a visitor: who needs one while its slabs are being visited has it without waiting,
// and it is a block like others.
#include "heap/heap_gate.h"

#include <sys/wait.h>
#include <unistd.h>

#include "heap_world.h"
#include "os/os_thread.h"

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

// A visitor who stays: a call that waited for it would not return.
static void visitor_enters(void) {
    heap_gate_ask(heap);
    assert_true(heap_gate_visit(heap, true));
}

static void visitor_leaves(void) {
    heap_gate_end(heap);
    heap_gate_dismiss(heap);
}

static struct heap_block take_beside(size_t size, size_t alignment, bool zeroed) {
    const uint64_t entries = os_entries(&world.arena.os);
    const uintptr_t address = alignment > 16
                                  ? heap_allocate_aligned(heap, size, alignment, zeroed)
                                  : heap_allocate(heap, size, zeroed);
    assert_true(os_entries(&world.arena.os) <= entries + 1);
    const struct heap_block block = heap_identify(&world.shared, address);
    assert_true(block.kind == HEAP_BLOCK_THIN || block.kind == HEAP_BLOCK_LARGE);
    assert_int_equal(address % alignment, 0);
    assert_int_equal(block.usable_bytes,
                     size_class_bytes(size_class_of(bits_align_up(size, alignment))));
    assert_true(!zeroed || unit_is_all((void *)address, 0, size));
    memset((void *)address, 0xa5, block.usable_bytes);
    assert_true(heap_free(&world.shared, heap, address));
    return block;
}

CASE(a_block_of_any_size_is_had_without_the_slabs) {
    for (size_t size = 1; size <= MALLOW_SLAB_BYTES_MAX; size += size / 3 + 1) {
        while (heap_identify(&world.shared, heap_allocate(heap, size, false)).kind !=
               HEAP_BLOCK_SLAB) { // the first few of a size have none in any case
        }
        visitor_enters();
        for (unsigned i = 0; i < 4; i++) {
            (void)take_beside(size, i % 2 == 0 ? 16 : 256, i / 2 == 0);
        }
        visitor_leaves();
        heap_gate_enter(heap);
        heap_gate_leave(heap);
        heap_world_check(&world, heap);
    }
}

CASE(so_it_is_where_classes_share_slabs) {
    heap_world_crowd(&world);
    visitor_enters();
    for (size_t size = 16; size <= MALLOW_SMALL_BYTES_MAX; size *= 2) {
        heap->thin_counts[size_class_of(size)] = MALLOW_THIN_BLOCKS_MAX; // its first ones are over
        assert_int_equal(take_beside(size, 16, false).kind, HEAP_BLOCK_THIN);
    }
    visitor_leaves();
}

CASE(of_one_visit_there_are_not_many_with_slices_of_their_own) {
    const unsigned class_index = size_class_of(2 * THIN_RUN_BYTES_MAX);
    unsigned count = 0;
    visitor_enters();
    while (heap_take_beside(heap, class_index, false, true) != 0) {
        assert_true(++count <= 1000);
    }
    assert_true(count >= 100);
    assert_true(heap_gate_was_in_the_way(heap));
    assert_int_equal(take_beside(1, 16, false).kind, HEAP_BLOCK_THIN); // others there are
    visitor_leaves();
    visitor_enters(); // and with the next one anew
    assert_false(heap_gate_was_in_the_way(heap));
    assert_true(heap_take_beside(heap, class_index, false, true) != 0);
    assert_true(heap_gate_was_in_the_way(heap));
    visitor_leaves();
}

// As in a child that has been made without our knowledge.
CASE(a_visitor_who_is_gone_is_noticed_in_time) {
    visitor_enters();
    atomic_store(&heap->visitor, INT32_MAX); // no thread's number
    for (unsigned i = 0; atomic_load(&heap->visit) == GATE_INSIDE; i++) {
        assert_true(i < 1000000);
        (void)take_beside(16 + i % 1000, 16, false);
    }
    assert_int_equal(heap_identify(&world.shared, heap_allocate_aligned(heap, 64, 16, false)).kind,
                     HEAP_BLOCK_SLAB);
}

static int gate_after_look_in(pid_t child) {
    int status = 0;
    assert_true(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

// Its number is none of the child's own threads; but in one memory it goes on with its visit.
CASE(a_child_that_shares_the_memory_does_not_take_its_parents_visitor_for_gone) {
    static volatile bool is_seen;
    visitor_enters();
    world.arena.os.process_id = getpid();
    atomic_store(&heap->visitor, os_thread_number());
    const pid_t sharing = vfork();
    if (sharing == 0) {
        is_seen = true;
        heap_gate_look(heap);
        _exit((int)atomic_load(&heap->visit));
    }
    const int gate = gate_after_look_in(sharing);
    assert_true(!is_seen || gate == GATE_INSIDE); // a sanitizer or an emulator makes a fork of it
    const pid_t apart = fork();
    if (apart == 0) {
        const bool known = os_thread_is_apart_from(world.arena.os.process_id);
        heap_gate_look(heap);
        _exit(known ? (int)atomic_load(&heap->visit) : GATE_OPEN);
    }
    assert_int_equal(gate_after_look_in(apart), GATE_OPEN);
    visitor_leaves();
}

CASE(what_others_have_freed_is_collected_later) {
    const uintptr_t block = heap_allocate_aligned(heap, 2048, 16, false);
    heap_world_free_elsewhere(&world, block);
    visitor_enters();
    heap_collect_late(heap, MALLOW_CALL_WORK);
    assert_int_equal(heap_world_posts_waiting(heap), 1);
    visitor_leaves();
    heap_collect_late(heap, MALLOW_CALL_WORK);
    assert_int_equal(heap_world_posts_waiting(heap), 0);
}

#define BESIDE_CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    const struct CMUnitTest cases[] = {
        BESIDE_CASE(a_block_of_any_size_is_had_without_the_slabs),
        BESIDE_CASE(so_it_is_where_classes_share_slabs),
        BESIDE_CASE(of_one_visit_there_are_not_many_with_slices_of_their_own),
        BESIDE_CASE(a_visitor_who_is_gone_is_noticed_in_time),
        BESIDE_CASE(a_child_that_shares_the_memory_does_not_take_its_parents_visitor_for_gone),
        BESIDE_CASE(what_others_have_freed_is_collected_later),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
