// SPDX-License-Identifier: MIT
// What is asked about a block (mw_heap_of) while its slices are given up and used for something else,
// in every order: heaps of threads are none of the program's, whatever the slices are meanwhile.
#include "world.h"

enum { LARGE_BYTES = 100000, SMALL_BYTES = 8192, THIN_BYTES = 48, PAGE = 4096 };

static void take_large(void) {
    (void)world_use(0);
    world.blocks[0] = world_take(LARGE_BYTES);
    EXPLORE_EXPECT(world_slab_of(world.blocks[0])->kind == SLAB_LARGE);
}

static void free_large(void) {
    (void)world_use(0);
    world_free(world.blocks[0]);
}

// Takes `bytes`, and they lie where the large block was.
static void take_there(size_t bytes, enum slab_kind kind) {
    const uintptr_t address = world_take(bytes);
    EXPLORE_EXPECT(address - world.blocks[0] < MALLOW_SLICE_BYTES);
    EXPLORE_EXPECT(world_slab_of(address)->kind == kind);
}

static void becomes_thin(void) {
    free_large();
    for (unsigned c = 0; c < MALLOW_THIN_CLASS_COUNT; c++) {
        world.heaps[0]->thin_counts[c] = 0;
    }
    take_there(THIN_BYTES, SLAB_THIN);
}

static void becomes_slab(void) {
    free_large();
    take_there(SMALL_BYTES, SLAB_BLOCKS);
}

// The slab is given up at once, as if others had freed all its blocks.
static void becomes_slab_and_large(void) {
    free_large();
    const struct arena_span span = arena_take(&world.arenas, 1, 1);
    EXPLORE_EXPECT(span.address == world.blocks[0]);
    slab_init(span.slab, span.address, size_class_of(SMALL_BYTES), 1, (uintptr_t)world.heaps[0]);
    EXPLORE_EXPECT(slab_open(span.slab, PAGE));
    arena_give(&world.arenas, span.slab, 1);
    take_there(LARGE_BYTES, SLAB_LARGE);
}

static void ask(void) {
    EXPLORE_EXPECT(heap_own_of(&world.shared, world.blocks[0]) == NULL);
}

static void check_nothing(void) {}

static const struct world_test tests[] = {
    {{"a large block's slice becomes a thin one", 2, {becomes_thin, ask}, check_nothing, 3, 1, false},
     take_large},
    {{"a large block's slice becomes a slab", 2, {becomes_slab, ask}, check_nothing, 3, 1, false},
     take_large},
    {{"a large block's slice becomes a slab, and a large block again", 2,
      {becomes_slab_and_large, ask}, check_nothing, 3, 1, false}, take_large},
};

WORLD_MAIN(tests)
