// SPDX-License-Identifier: MIT
// Arenas: what every arena test begins with: the lower layers' structs, and a small reservation.
#ifndef MALLOW_TEST_ARENA_WORLD_H
#define MALLOW_TEST_ARENA_WORLD_H

#include "../unit.h"
#include "arena/arena.h"
#include "arena/huge.h"

struct arena_world {
    struct os os;
    struct meta meta;
    struct address_map map;
    struct arena_set arenas;
    const struct huge_set *huges; // what else is charged; NULL if the test has none
};

enum { WORLD_RESERVE_BYTES = 8 << 20, WORLD_SLICES = WORLD_RESERVE_BYTES / (64 << 10) };

// So much in the primary arena, 4 MiB in each secondary one, nothing purged as it is freed.
static inline void arena_world_begin_with(struct arena_world *world, size_t reserve_bytes) {
    memset(world, 0, sizeof *world);
    os_init(&world->os);
    world->os.address_space_limit = SIZE_MAX;
    meta_init(&world->meta, &world->os);
    address_map_init(&world->map, &world->meta);
    arena_set_init(&world->arenas, &world->os, &world->meta, &world->map, reserve_bytes);
    world->arenas.secondary_bytes = 2 * MALLOW_CHUNK_BYTES;
    world->arenas.trim_slices = SIZE_MAX;
}

static inline void arena_world_begin(struct arena_world *world) {
    arena_world_begin_with(world, WORLD_RESERVE_BYTES);
}

static inline void arena_world_unmap(struct os *os, const struct arena *arena) {
    if (arena->table_bytes != 0) {
        assert_true(os_unmap(os, arena->table_address, arena->table_bytes));
    }
    if (arena->limit_slices != 0) {
        assert_true(os_unmap(os, arena->base, arena->limit_slices << MALLOW_SLICE_SHIFT));
    }
}

// The kernel takes all of it back, so that many cases can follow each other where address space is
// limited.
static inline void arena_world_end(struct arena_world *world) {
    for (struct arena *arena = world->arenas.secondary; arena != NULL; arena = arena->next) {
        arena_world_unmap(&world->os, arena);
    }
    for (struct arena *arena = world->arenas.recycled; arena != NULL; arena = arena->next) {
        arena_world_unmap(&world->os, arena);
    }
    arena_world_unmap(&world->os, &world->arenas.primary);
    if (world->meta.region != 0) {
        const size_t page_bytes = world->os.page_bytes;
        (void)os_unmap(&world->os, world->meta.region_end - META_REGION_BYTES - page_bytes,
                       META_REGION_BYTES + 2 * page_bytes);
    }
}

// ---- What has to hold of all arenas at any time -------------------------------------------------

static inline void arena_world_add(const struct arena *arena, size_t *dirty, size_t *held) {
    size_t free_slices = 0;
    if (arena->slice_count == 0) {
        return;
    }
    *held += 2 * arena->header_slices * sizeof(struct slab);
    if (arena->map.chunk_count > CHUNK_GROUP_CHUNKS) { // groups beyond the first are in use
        const size_t chunk_count = arena->slice_count / MALLOW_CHUNK_SLICES;
        *held += bits_align_up((chunk_count - 1) / 64 * sizeof(struct chunk_group), 64 << 10);
    }
    for (unsigned i = 0; i < arena->map.chunk_count; i++) {
        free_slices += bits_count(chunk_map_chunk(&arena->map, i)->free_mask);
        *dirty += bits_count(chunk_map_chunk(&arena->map, i)->dirty_mask);
    }
    assert_int_equal(arena->free_slices, free_slices);
    // Of the primary arena one slice is barred: neither free nor in use.
    size_t barred = 0;
    for (size_t slice = 0; slice < arena->committed_slices && arena->slot_mask != SIZE_MAX; slice++) {
        barred += arena_slot_of(arena, slice) == 0;
    }
    *held += (arena->committed_slices - free_slices - barred) << MALLOW_SLICE_SHIFT;
    assert_true(arena->free_slices <= arena->committed_slices);
    assert_true(arena->committed_slices <= arena->header_slices);
    assert_true(arena->committed_slices <= arena->slice_count);
    assert_true(arena->committed_slices <= bits_max(arena->mapped_slices, arena->giant_slices));
    assert_true(arena->mapped_slices <= arena->limit_slices);
}

// Returns what the set is charged.
static inline size_t arena_world_check_set(const struct arena_set *set) {
    size_t dirty = 0;
    size_t held = 0;
    arena_world_add(&set->primary, &dirty, &held);
    for (const struct arena *arena = set->secondary; arena != NULL; arena = arena->next) {
        arena_world_add(arena, &dirty, &held);
    }
    for (const struct arena *arena = set->recycled; arena != NULL; arena = arena->next) {
        held += (arena->header_slices + arena->remote_slices) * sizeof(struct slab);
    }
    assert_int_equal(set->dirty_slices, dirty);
    return held + (dirty << MALLOW_SLICE_SHIFT);
}

static inline void arena_world_check(const struct arena_world *world) {
    size_t held = arena_world_check_set(&world->arenas) + world->meta.committed_bytes;
    if (world->huges != NULL) {
        assert_int_equal(world->huges->charged_bytes,
                         world->huges->live_bytes + world->huges->cache.bytes);
        held += world->huges->charged_bytes;
    }
    assert_int_equal(world->os.charge.held_bytes, held);
}

#endif
