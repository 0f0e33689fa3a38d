// SPDX-License-Identifier: MIT
// Frees by other threads, in every order: what they free comes back, once, whatever the owner does
// meanwhile, and a block that is freed twice is found.
#include "world.h"

enum { BYTES = 8192, PER_SLAB = 8 };

// Fills a slab of heap 0: blocks 0 to PER_SLAB - 1, and no other one of the class.
static void fill(void) {
    (void)world_use(0);
    for (unsigned i = 0; i < PER_SLAB; i++) {
        world.blocks[i] = world_take(BYTES);
        EXPLORE_EXPECT(world_slab_of(world.blocks[i]) == world_slab_of(world.blocks[0]));
    }
}

// The same, and the slab is full: another one is current, of which block PER_SLAB is.
static void fill_more(void) {
    fill();
    world.blocks[PER_SLAB] = world_take(BYTES);
    EXPLORE_EXPECT((slab_owner(world_slab_of(world.blocks[0])) & SLAB_OWNER_FULL) != 0);
}

static void free_block(unsigned number) {
    const uintptr_t address = world.blocks[number];
    world.blocks[number] = 0;
    world_free(address);
}

static void take_block(unsigned number) {
    world.blocks[number] = world_take(BYTES);
}

// ---- The owner takes and frees while others free ------------------------------------------------

static void owner_takes_two(void) {
    (void)world_use(0);
    take_block(20);
    take_block(21);
}

static void owner_takes_and_frees(void) {
    (void)world_use(0);
    take_block(20);
    free_block(2);
    take_block(21);
}

static void owner_frees_two(void) {
    (void)world_use(0);
    free_block(2);
    free_block(3);
}

static void other_frees_0(void) {
    (void)world_use(1);
    free_block(0);
}

static void other_frees_0_and_1(void) {
    (void)world_use(1);
    free_block(0);
    free_block(1);
}

static void third_frees_1(void) {
    (void)world_use(2);
    free_block(1);
}

static void check_8_live(void) {
    world_check(PER_SLAB);
}

static void check_9_live(void) {
    world_check(PER_SLAB + 1);
}

static void check_4_live(void) {
    world_check(PER_SLAB - 4);
}

static void check_5_live(void) {
    world_check(PER_SLAB + 1 - 4);
}

// ---- A full slab, all of whose blocks others free -----------------------------------------------

static void most_freed(void) {
    fill_more();
    (void)world_use(1);
    for (unsigned i = 2; i < PER_SLAB; i++) {
        free_block(i);
    }
}

static void owner_takes_one(void) {
    (void)world_use(0);
    take_block(20);
}

static void third_takes_one(void) {
    (void)world_use(2);
    take_block(21);
}

static void third_takes_and_frees(void) {
    (void)world_use(2);
    take_block(21);
    free_block(21);
    take_block(22);
}

static void check_2_live(void) {
    world_check(2);
}

static void check_3_live(void) {
    world_check(3);
}

static void sort_posts(void) {
    heap_switch(&heap_empty);
    heap_sort_posts(&world.shared);
}

// Others have freed in slabs that were given up since, so that posts lie astray: two lives of a slab.
static void two_lives(void) {
    fill_more();
    (void)world_use(1);
    for (unsigned i = 0; i < PER_SLAB; i++) {
        free_block(i); // the last one gives the slab up
    }
    (void)world_use(2);
    for (unsigned i = 0; i < PER_SLAB; i++) {
        world.blocks[i] = world_take(BYTES); // of the same slice, mostly
    }
    atomic_store(&world.heaps[0]->astray_count, 1);
}

// ---- A slab that is nobody's while a post of it is on its old owner's list ----------------------

static void given_up(void) {
    fill_more();
    (void)world_use(1);
    free_block(0);
    free_block(PER_SLAB); // of the current slab: its post lies over that of the full one
    for (unsigned i = 1; i < PER_SLAB; i++) {
        free_block(i);
    }
    EXPLORE_EXPECT(world_check_posts(world.heaps[0]) == 2);
}

static void third_takes_and_hands_on(void) {
    (void)world_use(2);
    const uintptr_t address = world_take(BYTES);
    explore_point(&world.blocks[30], true, __FILE__, __LINE__);
    world.blocks[30] = address;
}

static void other_frees_what_is_handed_on(void) {
    (void)world_use(1);
    uintptr_t address;
    for (;;) {
        explore_point(&world.blocks[30], false, __FILE__, __LINE__);
        address = world.blocks[30];
        if (address != 0) {
            break;
        }
        explore_pause();
    }
    world.blocks[30] = 0;
    world_free(address);
}

static void check_none_live(void) {
    world_check(0);
}

// ---- A full slab that is used up once more ------------------------------------------------------

static void two_full(void) {
    fill();
    for (unsigned i = PER_SLAB; i < 2 * PER_SLAB; i++) {
        take_block(i);
    }
    (void)world_use(1);
    for (unsigned i = 1; i < PER_SLAB; i++) {
        free_block(i);
    }
}

static void owner_takes_nine(void) {
    (void)world_use(0);
    for (unsigned i = 0; i < PER_SLAB + 1; i++) {
        take_block(20 + i);
    }
}

static void check_17_live(void) {
    world_check(2 * PER_SLAB + 1);
}

// ---- A block that two free ----------------------------------------------------------------------

static void other_frees_0_too(void) {
    (void)world_use(1);
    world_free(world.blocks[0]);
}

static void third_frees_0_too(void) {
    (void)world_use(2);
    world_free(world.blocks[0]);
}

static void owner_frees_0_too(void) {
    (void)world_use(0);
    world_free(world.blocks[0]);
}

// Whatever the order was: when all is collected, the second free is found; or the owner got the block
// between the two, and the second free is one of what it got.
static void check_found(void) {
    if (!explore_has_reported()) {
        heap_switch(&heap_empty);
        world_collect();
        EXPLORE_EXPECT(world.blocks[20] == world.blocks[0]);
        explore_report();
    }
}

// ---- Lending ------------------------------------------------------------------------------------

static void fill_and_lend(void) {
    fill_more();
    // As in a heap of many slabs.
    atomic_store(&world.heaps[0]->slab_count, atomic_load(&world.heaps[0]->slab_count) +
                                                  MALLOW_LEND_SLABS);
}

static void owner_lends_and_takes(void) {
    (void)world_use(0);
    free_block(0); // lent to the current slab
    take_block(20);
}

static void owner_lends(void) {
    (void)world_use(0);
    free_block(0);
}

static void other_frees_1_and_2(void) {
    (void)world_use(1);
    free_block(1);
    free_block(2);
}

static void check_lent_7(void) {
    world_check(PER_SLAB + 1 - 2);
}

static void check_lent_6(void) {
    world_check(PER_SLAB + 1 - 3);
}

static void owner_frees_0_and_takes(void) {
    (void)world_use(0);
    world_free(world.blocks[0]);
    take_block(20);
}

static const struct world_test tests[] = {
    {{"two free in a current slab while the owner takes", 3,
      {owner_takes_two, other_frees_0, third_frees_1}, check_8_live, 2, 1, false}, fill},
    {{"two free in a full slab while the owner takes", 3,
      {owner_takes_two, other_frees_0, third_frees_1}, check_9_live, 3, 1, false}, fill_more},
    {{"two free in a full slab while the owner takes and frees", 3,
      {owner_takes_and_frees, other_frees_0, third_frees_1}, check_8_live, 2, 1, false}, fill_more},
    {{"owner and others free in a current slab", 3,
      {owner_frees_two, other_frees_0, third_frees_1}, check_4_live, 3, 1, false}, fill},
    {{"owner and others free in a full slab", 3,
      {owner_frees_two, other_frees_0, third_frees_1}, check_5_live, 3, 1, false}, fill_more},
    {{"the last blocks of a full slab are freed by two", 3,
      {owner_takes_one, other_frees_0, third_frees_1}, check_2_live, 2, 1, false}, most_freed},
    {{"a full slab is given up and taken by a third", 3,
      {owner_takes_one, other_frees_0_and_1, third_takes_one}, check_3_live, 2, 1, false},
     most_freed},
    {{"a full slab is given up and used by a third", 2,
      {other_frees_0_and_1, third_takes_and_frees}, check_2_live, 3, 1, false}, most_freed},
    {{"a full slab is about to be given up and is used up again", 2,
      {other_frees_0, owner_takes_nine}, check_17_live, 3, 1, false}, two_full},
    {{"a slab's second life, with posts of its first", 3,
      {sort_posts, other_frees_0_and_1, third_takes_one}, check_8_live, 3, 1, false}, two_lives},
    {{"a slab's second life, and the first owner takes", 3,
      {owner_takes_one, other_frees_0_and_1, third_takes_one}, check_9_live, 2, 1, false},
     two_lives},
    {{"a slab's second life begins, and posts of its first are sorted", 3,
      {sort_posts, other_frees_what_is_handed_on, third_takes_and_hands_on}, check_none_live, 3, 1,
      false}, given_up},
    {{"two others free one block", 2, {other_frees_0_too, third_frees_0_too}, check_found, 4, 1,
      true}, fill_more},
    {{"two others free one block of a current slab", 2,
      {other_frees_0_too, third_frees_0_too}, check_found, 4, 1, true}, fill},
    {{"two others free one block while the owner takes", 3,
      {other_frees_0_too, third_frees_0_too, owner_takes_one}, check_found, 3, 1, true}, fill_more},
    {{"owner and another one free one block", 2,
      {owner_frees_0_too, other_frees_0_too}, check_found, 4, 1, true}, fill_more},
    {{"owner and another one free one block of a current slab", 2,
      {owner_frees_0_too, other_frees_0_too}, check_found, 4, 1, true}, fill},
    {{"owner and another one free one block, and the owner takes", 2,
      {owner_frees_0_and_takes, other_frees_0_too}, check_found, 4, 1, true}, fill},
    {{"a block is lent and taken while another one frees", 2,
      {owner_lends_and_takes, other_frees_1_and_2}, check_lent_7, 3, 1, false}, fill_and_lend},
    {{"a block is lent while another one frees", 2,
      {owner_lends, other_frees_1_and_2}, check_lent_6, 4, 1, false}, fill_and_lend},
    {{"owner and another one free one block, which can be lent", 2,
      {owner_frees_0_too, other_frees_0_too}, check_found, 4, 1, true}, fill_and_lend},
};

WORLD_MAIN(tests)
