// SPDX-License-Identifier: MIT
// A visitor purges pages of free blocks in a heap whose thread takes and frees meanwhile, in every
// order: never one of a block that somebody has.
#define POINT_BITMAPS
#include "world.h"

enum { PAGE = 4096 };

static struct heap_holes holes;
static uint64_t clock_ms;
static bool purged; // in any schedule of the scenario

// Time passes from look to look, however little is done between.
static uint64_t now_ms(void) {
    explore_time_passes();
    return clock_ms += 100;
}

// To write to a block and to purge pages are points to each other.
static void take_block(unsigned number) {
    const uintptr_t address = world_take(world.block_bytes);
    explore_point(&world.purge_count, false, __FILE__, __LINE__);
    world.blocks[number] = address;
}

static void free_block(unsigned number) {
    const uintptr_t address = world.blocks[number];
    world.blocks[number] = 0;
    world_free(address);
}

static void begin_holes(void) {
    memset(&holes, 0, sizeof holes);
    holes.shared = &world.shared;
    clock_ms = 1000;
    heap_holes_begin(&holes); // makes room for its notes
    heap_holes_end(&holes);
}

static void keep_holes(void) {
    purged = false;
    explore_keep(&holes, sizeof holes);
    explore_keep(&clock_ms, sizeof clock_ms);
    explore_keep(world.arenas.primary.notes, world.arenas.primary.notes_bytes);
}

// Blocks of a kibibyte, one word of bits: of 48 that were live, those on every third page are.
static void one_word(void) {
    begin_holes();
    world.block_bytes = 1024;
    (void)world_use(0);
    for (unsigned i = 0; i < 48; i++) {
        take_block(i);
    }
    for (unsigned i = 0; i < 48; i++) {
        if (world.blocks[i] / PAGE % 3 != 0) {
            free_block(i);
        }
    }
}

// Blocks of half of that, two words: malloc's has four blocks left, all of the other are free.
static void two_words(void) {
    enum { COUNT = 120, KEPT = 60 };
    uintptr_t taken[COUNT];
    begin_holes();
    world.block_bytes = 512;
    (void)world_use(0);
    for (unsigned i = 0; i < COUNT; i++) {
        taken[i] = world_take(world.block_bytes);
        EXPLORE_EXPECT(world_slab_of(taken[i]) == world_slab_of(taken[0]));
    }
    for (unsigned i = COUNT; i-- > 0;) { // so that none of them is the one handed out last
        if (i < KEPT) {
            world.blocks[i] = taken[i];
        } else {
            world_free(taken[i]);
        }
    }
    struct slab *const slab = world_slab_of(taken[0]);
    slab_cool(slab);
    slab_set_word(slab, 0);
    EXPLORE_EXPECT(bits_count(slab->bits[0]) == 64 - KEPT);
}

static void three_blocks_a_page_apart(void) {
    begin_holes();
    world.block_bytes = 8192;
    (void)world_use(0);
    for (unsigned i = 0; i < 7; i++) {
        take_block(i);
    }
    free_block(1);
    free_block(3);
    free_block(5);
}

// A queued slab with holes, beside the current one.
static void holes_in_a_queued_slab(void) {
    begin_holes();
    world.block_bytes = 8192;
    (void)world_use(0);
    for (unsigned i = 0; i < 9; i++) {
        take_block(i);
    }
    for (unsigned i = 1; i < 8; i++) {
        free_block(i);
    }
}

// Blocks of two slices each, of which three are free, with their pages.
static void dirty_slices(void) {
    begin_holes();
    world.block_bytes = 100000;
    (void)world_use(0);
    for (unsigned i = 0; i < 5; i++) {
        world.blocks[i] = world_take(world.block_bytes);
    }
    for (unsigned i = 0; i < 5; i += 2) {
        free_block(i);
    }
}

// Runs of units of thin slices, a page each; four are free, with their pages.
static void take_run(unsigned number) {
    const uintptr_t address = thin_take_run(&world.thins, size_class_of(PAGE));
    explore_point(&world.purge_count, false, __FILE__, __LINE__);
    world.blocks[number] = address;
}

static void dirty_runs(void) {
    begin_holes();
    world.block_bytes = PAGE;
    (void)world_use(0);
    for (unsigned i = 0; i < 7; i++) {
        take_run(i);
    }
    for (unsigned i = 0; i < 7; i += 2) {
        free_block(i);
    }
}

static void purge_runs(void) {
    heap_switch(&heap_empty);
    (void)thin_idle_look(&world.thins, true);
    (void)thin_idle_purge(&world.thins, UINT32_MAX);
}

static void owner_takes_two_runs_and_frees(void) {
    (void)world_use(0);
    take_run(60);
    take_run(61);
    free_block(1);
}

static void other_takes_a_run_and_frees(void) {
    (void)world_use(1);
    take_run(62);
    free_block(3);
}

static void purge_slices(void) {
    heap_switch(&heap_empty);
    (void)arena_idle_purge(&world.arenas, SIZE_MAX, UINT32_MAX);
}

static void other_purges_slices(void) {
    heap_switch(&heap_empty);
    (void)arena_purge_some(&world.arenas, SIZE_MAX);
    (void)arena_idle_purge(&world.arenas, SIZE_MAX, UINT32_MAX);
}

static void owner_takes_two_and_frees(void) {
    (void)world_use(0);
    take_block(60);
    take_block(61);
    free_block(1);
}

static void other_takes_and_frees(void) {
    (void)world_use(1);
    take_block(62);
    free_block(3);
}

static void visit(void) {
    heap_switch(&heap_empty);
    (void)heap_holes_collect(&holes, NULL, now_ms, NULL);
}

static void owner_takes_two(void) {
    (void)world_use(0);
    take_block(60);
    take_block(61);
}

static void owner_takes_frees_takes(void) {
    (void)world_use(0);
    take_block(60);
    free_block(60);
    take_block(61);
}

static void owner_takes_six(void) {
    (void)world_use(0);
    for (unsigned i = 60; i < 64; i++) {
        take_block(i);
    }
    (void)world_take(world.block_bytes);
    (void)world_take(world.block_bytes);
}

static void owner_ends(void) {
    (void)world_use(0);
    take_block(60);
    heap_abandon(world.heaps[0]);
    heap_switch(&heap_empty);
}

static void owner_gives_up(void) {
    (void)world_use(0);
    free_block(0);
    heap_drop_spare(world.heaps[0]);
}

static void other_frees(void) {
    (void)world_use(1);
    free_block(0);
}

static void third_takes(void) {
    (void)world_use(2);
    take_block(62);
}

static void leave(void) {
    three_blocks_a_page_apart();
    heap_abandon(world.heaps[0]);
}

static unsigned count_live(void) {
    unsigned live = 0;
    for (unsigned i = 0; i < WORLD_BLOCKS_MAX; i++) {
        live += world.blocks[i] != 0;
    }
    return live;
}

static void check_live(unsigned live) {
    purged |= world.purge_count != 0;
    world_check(live);
    EXPLORE_EXPECT(atomic_load(&world.heaps[0]->visit) != GATE_INSIDE);
}

static void check(void) {
    check_live(count_live());
}

static void check_two_more(void) {
    check_live(count_live() + 2);
}

// Large blocks are not among those that world_check counts.
static void check_slices(void) {
    purged |= world.purge_count != 0;
    world_check_arena();
}

static void expect_purged(void) {
    EXPLORE_EXPECT(purged);
}

static const struct world_test tests[] = {
    {{"a word is put to rest and purged while its thread takes", 2,
      {owner_takes_two, visit}, check, 3, 1, false}, one_word},
    {{"the same while it takes, frees and takes", 2,
      {owner_takes_frees_takes, visit}, check, 3, 1, false}, one_word},
    {{"the word beside is purged while its thread goes on to it", 2,
      {owner_takes_six, visit}, check_two_more, 3, 1, false}, two_words},
    {{"medium blocks are purged while their thread takes", 2,
      {owner_takes_two, visit}, check, 3, 1, false}, three_blocks_a_page_apart},
    {{"the same while it takes and another one frees", 3,
      {owner_takes_two, visit, other_frees}, check, 2, 1, false}, three_blocks_a_page_apart},
    {{"the same while the slab is given up and taken by another one", 3,
      {owner_gives_up, visit, third_takes}, check, 2, 1, false}, holes_in_a_queued_slab},
    {{"the same while the thread ends", 2, {owner_ends, visit}, check, 3, 1, false},
     three_blocks_a_page_apart},
    {{"free slices are purged while others take and free", 3,
      {owner_takes_two_and_frees, purge_slices, other_takes_and_frees}, check_slices, 2, 0, false},
     dirty_slices},
    {{"two purge free slices while another one takes and frees", 3,
      {owner_takes_two_and_frees, purge_slices, other_purges_slices}, check_slices, 2, 0, false},
     dirty_slices},
    {{"free pages of thin slices are purged while others take and free", 3,
      {owner_takes_two_runs_and_frees, purge_runs, other_takes_a_run_and_frees}, check, 2, 0, false},
     dirty_runs},
    {{"two purge such pages while another one takes and frees", 3,
      {owner_takes_two_runs_and_frees, purge_runs, purge_runs}, check, 2, 0, false}, dirty_runs},
    {{"what a thread has left is purged while another one takes it over", 3,
      {other_frees, visit, third_takes}, check, 2, 1, false}, leave},
};

int main(int argc, char **argv) {
    world_before = keep_holes;
    world_after = expect_purged;
    return world_run(tests, sizeof tests / sizeof tests[0], argc, argv);
}
