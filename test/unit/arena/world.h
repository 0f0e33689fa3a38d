// SPDX-License-Identifier: MIT
// Arenas: what every arena test begins with: the lower layers' structs, and a small reservation.
#ifndef MALLOW_TEST_ARENA_WORLD_H
#define MALLOW_TEST_ARENA_WORLD_H

#include "../unit.h"
#include "arena/arena.h"

struct arena_world {
    struct os os;
    struct meta meta;
    struct address_map map;
    struct arena_set arenas;
};

enum { WORLD_RESERVE_BYTES = 8 << 20, WORLD_SLICES = WORLD_RESERVE_BYTES / (64 << 10) };

// 8 MiB in the primary arena, 4 MiB in each secondary one, nothing purged as it is freed.
static inline void arena_world_begin(struct arena_world *world) {
    memset(world, 0, sizeof *world);
    os_init(&world->os);
    world->os.address_space_limit = SIZE_MAX;
    meta_init(&world->meta, &world->os);
    address_map_init(&world->map, &world->meta);
    arena_set_init(&world->arenas, &world->os, &world->meta, &world->map, WORLD_RESERVE_BYTES);
    world->arenas.secondary_bytes = 2 * MALLOW_CHUNK_BYTES;
    world->arenas.trim_slices = SIZE_MAX;
}

// The kernel takes the arenas back; meta's regions stay until the program ends.
static inline void arena_world_end(struct arena_world *world) {
    for (struct arena *arena = world->arenas.secondary; arena != NULL; arena = arena->next) {
        (void)os_unmap(&world->os, arena->reserved_address, arena->reserved_bytes);
    }
    (void)os_unmap(&world->os, world->arenas.primary.reserved_address,
                   world->arenas.primary.reserved_bytes);
}

// ---- What has to hold of all arenas at any time -------------------------------------------------

static inline void arena_world_add(const struct arena *arena, size_t *dirty) {
    size_t free_slices = 0;
    for (unsigned i = 0; i < arena->map.chunk_count; i++) {
        free_slices += bits_count(chunk_map_chunk(&arena->map, i)->free_mask);
        *dirty += bits_count(chunk_map_chunk(&arena->map, i)->dirty_mask);
    }
    assert_int_equal(arena->free_slices, free_slices);
    assert_true(arena->free_slices <= arena->committed_slices);
    assert_true(arena->committed_slices <= arena->header_slices);
    assert_true(arena->committed_slices <= arena->slice_count);
}

static inline void arena_world_check_set(const struct arena_set *set) {
    size_t dirty = 0;
    arena_world_add(&set->primary, &dirty);
    for (const struct arena *arena = set->secondary; arena != NULL; arena = arena->next) {
        arena_world_add(arena, &dirty);
    }
    assert_int_equal(set->dirty_slices, dirty);
}

static inline void arena_world_check(const struct arena_world *world) {
    arena_world_check_set(&world->arenas);
}

#endif
