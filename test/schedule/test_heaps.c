// SPDX-License-Identifier: MIT
// Heaps that threads leave behind and take over, in every order, while others free in them; and the
// gate by which a visitor comes into a heap.
#include "world.h"

enum { BYTES = 8192, PER_SLAB = 8 };

static void take_block(unsigned number) {
    world.blocks[number] = world_take(BYTES);
}

static void free_block(unsigned number) {
    const uintptr_t address = world.blocks[number];
    world.blocks[number] = 0;
    world_free(address);
}

// Blocks 0 to PER_SLAB - 1 fill a slab of heap 0; one more is in its current slab.
static void fill_more(void) {
    (void)world_use(0);
    for (unsigned i = 0; i <= PER_SLAB; i++) {
        take_block(i);
    }
}

// The same, with another slab that has room on the queue.
static void fill_and_queue(void) {
    fill_more();
    free_block(0);
}

static void fill_and_leave(void) {
    fill_and_queue();
    heap_abandon(world.heaps[0]);
}

// Heap 0 and heap 1 have been left behind.
static void leave_two(void) {
    fill_and_leave();
    (void)world_use(1);
    take_block(10);
    heap_abandon(world.heaps[1]);
}

static void first_ends(void) {
    (void)world_use(0);
    heap_abandon(world.heaps[0]);
    heap_switch(&heap_empty);
}

static void first_takes_and_ends(void) {
    (void)world_use(0);
    take_block(20);
    heap_abandon(world.heaps[0]);
    heap_switch(&heap_empty);
}

static void second_ends(void) {
    (void)world_use(1);
    heap_abandon(world.heaps[1]);
    heap_switch(&heap_empty);
}

static void second_frees_one(void) {
    (void)world_use(1);
    free_block(1);
}

static void second_frees_two(void) {
    (void)world_use(1);
    free_block(1);
    free_block(PER_SLAB);
}

static void third_frees_one(void) {
    (void)world_use(2);
    free_block(2);
}

static void third_frees_two(void) {
    (void)world_use(2);
    free_block(2);
    free_block(3);
}

static void third_takes(void) {
    (void)world_use(2);
    take_block(22);
}

static void third_takes_and_frees(void) {
    (void)world_use(2);
    take_block(22);
    free_block(2);
}

// A thread without a heap, whose first call makes it take one over.
static void born(void) {
    struct heap *const heap = heap_adopt_or_create(&world.shared);
    EXPLORE_EXPECT(heap != NULL && atomic_load(&heap->state) == HEAP_OWNED);
    for (unsigned i = 0; i < MALLOW_THIN_CLASS_COUNT; i++) {
        heap->thin_counts[i] = MALLOW_THIN_BLOCKS_MAX;
    }
    heap_switch(heap);
    take_block(23);
}

static void born_too(void) {
    struct heap *const heap = heap_adopt_or_create(&world.shared);
    EXPLORE_EXPECT(heap != NULL && atomic_load(&heap->state) == HEAP_OWNED);
    for (unsigned i = 0; i < MALLOW_THIN_CLASS_COUNT; i++) {
        heap->thin_counts[i] = MALLOW_THIN_BLOCKS_MAX;
    }
    heap_switch(heap);
    take_block(24);
}

// A thread that only frees has none.
static void heapless_frees_one(void) {
    heap_switch(&heap_empty);
    free_block(1);
}

// ---- Checks: how many blocks are live -----------------------------------------------------------

static void check_4_live(void) {
    world_check(4);
}

static void check_5_live(void) {
    world_check(5);
}

static void check_6_live(void) {
    world_check(6);
}

static void check_7_live(void) {
    world_check(7);
}

static void check_8_live(void) {
    world_check(8);
}

static void check_9_live(void) {
    world_check(9);
}

// Every heap is somebody's, or on the queue once.
static void check_queue(unsigned abandoned) {
    unsigned count = 0;
    for (const struct heap *heap = atomic_load(&world.shared.abandoned); heap != NULL;
         heap = __atomic_load_n(&heap->next_abandoned, __ATOMIC_RELAXED)) {
        EXPLORE_EXPECT(atomic_load(&heap->state) == HEAP_ABANDONED);
        EXPLORE_EXPECT(++count <= abandoned);
    }
    EXPLORE_EXPECT(count == abandoned && atomic_load(&world.shared.arrived) == NULL);
}

static void check_two_ended(void) {
    world_check(PER_SLAB + 1);
    check_queue(2);
}

static void check_two_born(void) {
    EXPLORE_EXPECT(world.blocks[23] != world.blocks[24]);
    world_check(11);
    check_queue(0);
}

static void check_one_born(void) {
    const unsigned abandoned = atomic_load(&world.shared.heap_count) == 4 ? 1 : 0;
    world_check(PER_SLAB + 2);
    check_queue(abandoned); // it has taken over what was left, or come before that
}

// ---- The gate -----------------------------------------------------------------------------------

static struct {
    unsigned inside; // who is in the heap just now
    unsigned visits;
} gate;

static void gate_begins(void) {
    memset(&gate, 0, sizeof gate);
}

static void fill_and_ask(void) {
    fill_more();
    gate_begins();
    heap_gate_ask(world.heaps[0]);
    heap_gate_meet(world.heaps[0]); // the thread knows of it
}

// Between enter and leave nobody else is.
static void be_inside(void) {
    EXPLORE_EXPECT(gate.inside++ == 0);
    explore_point(&gate, true, __FILE__, __LINE__);
    EXPLORE_EXPECT(--gate.inside == 0);
}

static void enter_twice(void) {
    for (unsigned i = 0; i < 2; i++) {
        heap_gate_enter(world.heaps[0]);
        be_inside();
        heap_gate_leave(world.heaps[0]);
    }
}

static void try_twice(void) {
    for (unsigned i = 0; i < 2; i++) {
        if (heap_gate_try_enter(world.heaps[0])) {
            be_inside();
            heap_gate_leave(world.heaps[0]);
        }
    }
}

static void visit_twice(void) {
    for (unsigned i = 0; i < 2; i++) {
        if (heap_gate_visit(world.heaps[0], false)) {
            be_inside();
            gate.visits++;
            heap_gate_end(world.heaps[0]);
        }
    }
}

static void visit_and_dismiss(void) {
    visit_twice();
    heap_gate_dismiss(world.heaps[0]);
    heap_gate_ask(world.heaps[0]);
}

// Not while the heap's thread hands it on.
static void visit_owned(void) {
    if (heap_gate_visit(world.heaps[0], false)) {
        EXPLORE_EXPECT(atomic_load(&world.heaps[0]->state) == HEAP_OWNED);
        be_inside();
        EXPLORE_EXPECT(atomic_load(&world.heaps[0]->state) == HEAP_OWNED);
        heap_gate_end(world.heaps[0]);
    }
}

static void check_gate(void) {
    EXPLORE_EXPECT(gate.inside == 0);
    EXPLORE_EXPECT(atomic_load(&world.heaps[0]->busy) == 0);
    EXPLORE_EXPECT(atomic_load(&world.heaps[0]->visit) != GATE_INSIDE);
    gate_begins();
}

static void check_gate_9(void) {
    check_gate();
    world_check(PER_SLAB + 1);
}

// ---- A heap of the program's own that ends ------------------------------------------------------

static struct heap_own *own; // in the world's memory
static struct slab *own_slab;

// A full slab of it, in which all blocks but the first have been freed by others; another slab.
static void fill_own(void) {
    own = heap_own_create_growing(&world.shared);
    EXPLORE_EXPECT(own != NULL);
    heap_switch(own->heap);
    for (unsigned i = 0; i <= PER_SLAB; i++) {
        take_block(i);
    }
    own_slab = world_slab_of(world.blocks[0]);
    world.blocks[PER_SLAB] = 0;
    (void)world_use(1);
    for (unsigned i = 1; i < PER_SLAB; i++) {
        free_block(i);
    }
}

static void first_frees_and_ends_own(void) {
    (void)world_use(0);
    free_block(0);
    heap_own_end(own);
}

// The last step of a free of a block that lay there before, of an earlier slab: whoever does that
// need not know of the heap, and nobody waits for it.
static void second_is_late(void) {
    struct slab_remote *const remote = arena_remote_of(&world.arenas, own_slab);
    (void)world_use(1);
    if (heap_is_freed_elsewhere(remote, PER_SLAB)) {
        heap_release_full(own_slab, remote);
    }
}

static void check_own_ended(void) {
    EXPLORE_EXPECT(atomic_load(&own->allowance.held_bytes) == 0);
    EXPLORE_EXPECT(atomic_load(&own->heap->slab_count) == 0);
    world_check(0);
}

static const struct world_test tests[] = {
    {{"a thread ends while others free its blocks", 3,
      {first_ends, second_frees_one, third_frees_one}, check_7_live, 2, 1, false}, fill_more},
    {{"a thread ends while others free its blocks, one of them queued", 3,
      {first_ends, second_frees_one, third_frees_two}, check_5_live, 2, 1, false}, fill_and_queue},
    {{"a thread takes and ends while another one frees and a third takes", 3,
      {first_takes_and_ends, second_frees_one, third_takes}, check_9_live, 2, 1, false},
     fill_and_queue},
    {{"a thread ends while one is born and another one frees", 3,
      {first_ends, second_frees_one, born}, check_9_live, 2, 1, false}, fill_more},
    {{"two free in an abandoned heap", 2, {second_frees_two, third_frees_two}, check_4_live, 3, 1,
      false}, fill_and_leave},
    {{"one frees in an abandoned heap, one takes of it", 2,
      {second_frees_two, third_takes_and_frees}, check_6_live, 3, 1, false}, fill_and_leave},
    {{"one frees in an abandoned heap that a new thread takes over", 3,
      {second_frees_two, third_frees_one, born}, check_6_live, 2, 1, false}, fill_and_leave},
    {{"one without a heap frees in an abandoned one", 3,
      {heapless_frees_one, third_takes_and_frees, born}, check_8_live, 2, 0, false},
     fill_and_leave},
    {{"two end at once", 2, {first_ends, second_ends}, check_two_ended, 3, 1, false}, fill_more},
    {{"one ends, one is born", 2, {first_ends, born}, check_one_born, 3, 1, false}, fill_more},
    {{"two are born where two were left", 2, {born, born_too}, check_two_born, 3, 1, false},
     leave_two},
    {{"a visitor and a thread that enters", 2, {enter_twice, visit_twice}, check_gate, 4, 2, false},
     fill_and_ask},
    {{"a visitor and a thread that tries", 2, {try_twice, visit_twice}, check_gate, 4, 2, false},
     fill_and_ask},
    {{"a visitor who comes and goes", 2, {enter_twice, visit_and_dismiss}, check_gate, 4, 2, false},
     fill_and_ask},
    {{"a visitor and a thread that ends", 2, {first_ends, visit_owned}, check_gate_9, 4, 1, false},
     fill_and_ask},
    {{"a heap of the program's own ends while a late thread gives a slab up", 2,
      {first_frees_and_ends_own, second_is_late}, check_own_ended, 3, 1, false}, fill_own},
};

WORLD_MAIN(tests)
