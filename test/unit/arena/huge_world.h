// SPDX-License-Identifier: MIT
// A set of huge blocks for the tests of it: each case begins with none, and ends by freeing all.
#ifndef MALLOW_TEST_UNIT_ARENA_HUGE_WORLD_H
#define MALLOW_TEST_UNIT_ARENA_HUGE_WORLD_H

#include "arena/huge.h"

#include "world.h"

static struct arena_world world;
static struct huge_set huges;
static struct huge_set *const set = &huges;

// As at a process's start, with a cache of so many bytes.
static inline void huge_world_begin(size_t cache_limit) {
    memset(&huges, 0, sizeof huges);
    arena_world_begin(&world);
    huge_set_init(set, &world.os, &world.meta, &world.map, cache_limit);
}

// As after its first huge block.
static inline void huge_world_begin_later(size_t cache_limit) {
    huge_world_begin(cache_limit);
    assert_true(address_map_prepare_locked(&world.map));
}

static inline int huge_world_end(void **state) {
    (void)state;
    while (set->live != NULL) {
        (void)huge_give(set, set->live->address, true);
    }
    (void)huge_purge_all(set);
    arena_world_end(&world);
    return 0;
}

#endif
