// SPDX-License-Identifier: MIT
// World: the allocator up to its heaps, as one unit with points, and what scenarios begin with: a few
// heaps over a small arena that need not grow.
#ifndef MALLOW_TEST_SCHEDULE_WORLD_H
#define MALLOW_TEST_SCHEDULE_WORLD_H

#include "points.h"

#include "base/format.c"

#include "os/os.c"
#include "os/os_lock.c"
#include "os/charge.c"
#include "os/os_file.c"
#include "os/cgroup.c"
#include "os/os_pages.c"
#include "os/os_huge.c"
#include "os/os_node.c"
#include "os/os_giant.c"
#include "os/os_thread.c"
#define os_write(fd, text, length) ((void)(fd), explore_message((text), (length)), true)
#include "os/fatal.c"
#undef os_write

#include "meta/meta.c"
#include "meta/address_map.c"

#include "slab/size_class.c"
#include "slab/slab.c"
#include "slab/slab_remote.c"
#include "slab/slab_holes.c"

#include "arena/chunk_map.c"
#include "arena/reserve_index.c"
#include "arena/reserve.c"
#include "arena/arena_leave.c"
#include "arena/arena.c"
#include "arena/arena_grow.c"
#include "arena/arena_secondary.c"
static bool world_purge(uintptr_t address, size_t bytes);
#define os_purge(os, address, bytes) ((void)(os), world_purge((address), (bytes)))
#include "arena/arena_idle.c"
#undef os_purge
#include "arena/arena_broad.c"
#include "arena/arena_node.c"
#include "arena/arena_giant.c"
#include "arena/huge.c"
#include "arena/huge_faults.c"
#include "arena/huge_index.c"
#include "arena/huge_pieces.c"
#include "arena/huge_room.c"
#include "arena/huge_cache.c"
#include "arena/thin.c"
#define os_purge(os, address, bytes) ((void)(os), world_purge((address), (bytes)))
#include "arena/thin_idle.c"
#undef os_purge
#include "arena/promote.c"

#include "heap/heap.c"
#include "heap/heap_gate.c"
#include "heap/heap_queue.c"
#include "heap/heap_rest.c"
#include "heap/heap_remote.c"
#include "heap/heap_settle.c"
#include "heap/heap_slow.c"
#include "heap/heap_relief.c"
#include "heap/heap_beside.c"
#include "heap/heap_adopt.c"
#include "heap/heap_free.c"
#include "heap/heap_large.c"
#include "heap/heap_huge.c"
#define os_purge(os, address, bytes) ((void)(os), world_purge((address), (bytes)))
#include "heap/heap_holes.c"
#undef os_purge
#include "heap/heap_own.c"

#include <stdio.h>
#include <string.h>

enum { WORLD_RESERVE_BYTES = 4 << 20, WORLD_HEAPS_MAX = 4, WORLD_BLOCKS_MAX = 64 };

static struct {
    struct os os;
    struct meta meta;
    struct address_map map;
    struct arena_set arenas;
    struct huge_set huges;
    struct thin_set thins;
    struct heap_shared shared;
    struct heap *heaps[WORLD_HEAPS_MAX];
    uintptr_t blocks[WORLD_BLOCKS_MAX]; // live ones, or ones to be freed; 0: none
    size_t block_bytes;                 // of each of them
    unsigned purge_count;               // holes purged
    _Alignas(64) char memory[64 << 10]; // of heaps
} world;

static void world_begin(unsigned heap_count) {
    memset(&world, 0, sizeof world);
    os_init(&world.os);
    world.os.address_space_limit = SIZE_MAX;
    meta_init(&world.meta, &world.os);
    meta_lend(&world.meta, world.memory, sizeof world.memory);
    address_map_init(&world.map, &world.meta);
    arena_set_init(&world.arenas, &world.os, &world.meta, &world.map, WORLD_RESERVE_BYTES);
    world.arenas.trim_slices = SIZE_MAX;
    huge_set_init(&world.huges, &world.os, &world.meta, &world.map, 8 << 20);
    thin_set_init(&world.thins, &world.arenas);
    world.shared.os = &world.os;
    world.shared.meta = &world.meta;
    world.shared.arenas = &world.arenas;
    world.shared.huges = &world.huges;
    world.shared.thins = &world.thins;
    world.shared.large_bytes_max = MALLOW_LARGE_BYTES_MAX;
    heap_shared_init(&world.shared);
    for (unsigned i = 0; i < heap_count; i++) {
        world.heaps[i] = heap_adopt_or_create(&world.shared);
        for (unsigned c = 0; c < MALLOW_THIN_CLASS_COUNT; c++) {
            world.heaps[i]->thin_counts[c] = MALLOW_THIN_BLOCKS_MAX; // blocks come from slabs
        }
    }
    // Slices enough that no thread has to ask the kernel for some.
    const struct arena_span span = arena_take(&world.arenas, MALLOW_CHUNK_SLICES / 2, 1);
    arena_give(&world.arenas, span.slab, MALLOW_CHUNK_SLICES / 2);
}

static void world_end(void) {
    const struct arena *const arena = &world.arenas.primary;
    (void)os_unmap(&world.os, arena->table_address, arena->table_bytes);
    (void)os_unmap(&world.os, arena->base, arena->limit_slices << MALLOW_SLICE_SHIFT);
}

// Every schedule begins with the world as it is now.
static void world_keep(void) {
    const struct arena *const arena = &world.arenas.primary;
    explore_forget();
    explore_own(&heap_thread, sizeof heap_thread);
    explore_keep(&world, sizeof world);
    explore_keep(arena->slabs, arena->slice_count * sizeof(struct slab));
    explore_keep(arena->remotes, arena->slice_count * sizeof(struct slab_remote));
    EXPLORE_EXPECT(world.meta.region == 0);
}

// The running thread's heap from now on.
static struct heap *world_use(unsigned number) {
    heap_switch(world.heaps[number]);
    return world.heaps[number];
}

// As the public call does.
static uintptr_t world_take(size_t bytes) {
    struct heap *const heap = heap_current();
    uintptr_t address = 0;
    if (bytes > MALLOW_SMALL_BYTES_MAX || (!heap_fast_allocate(heap, bytes, &address) &&
                                           !heap_near_take(heap, heap_fast_current(heap, bytes),
                                                           &address))) {
        address = heap_allocate(heap, bytes, false);
    }
    EXPLORE_EXPECT(address != 0);
    return address;
}

// In place of the kernel: no block that somebody has may be among the pages.
static bool world_purge(uintptr_t address, size_t bytes) {
    explore_point(&world.purge_count, true, __FILE__, __LINE__);
    world.purge_count++;
    for (unsigned i = 0; i < WORLD_BLOCKS_MAX; i++) {
        EXPLORE_EXPECT(world.blocks[i] == 0 || world.blocks[i] >= address + bytes ||
                       world.blocks[i] + world.block_bytes <= address);
    }
    return true;
}

// As the public call does.
static void world_free(uintptr_t address) {
    struct heap *const heap = heap_current();
    struct slab *slab;
    const uint64_t entries = os_entries(&world.os);
    const enum heap_fast_result result = heap_fast_free(heap, address, &slab);
    if (result == HEAP_FAST_DONE) {
        return;
    }
    if (result == HEAP_FAST_EMPTIED) {
        heap_begin_effort();
        heap_slab_refilled(heap, slab, false);
        heap_settle(&world.shared, entries);
        return;
    }
    size_t capacity = 0;
    const enum heap_near near = heap_near_free(
        &world.shared, heap, heap_near_slab(&world.shared, address), address, &capacity);
    if (near == HEAP_NEAR_MARKED) {
        heap_free_marked(&world.shared, address, capacity);
    } else if (near == HEAP_NEAR_NOT) {
        EXPLORE_EXPECT(heap_free(&world.shared, heap, address));
    }
    heap_settle(&world.shared, entries);
}

// ---- What has to hold when nobody is at work ----------------------------------------------------

static struct slab *world_slab_of(uintptr_t address) {
    return arena_slab_at(&world.arenas.primary, address);
}

// No list of posts is a ring, and a slab is on one list at most, iff it says so.
static unsigned world_check_posts(const struct heap *heap) {
    unsigned count = 0;
    const struct slab_remote *const lists[] = {atomic_load(&heap->ready), heap->taken,
                                               heap->later};
    for (unsigned i = 0; i < 3; i++) {
        for (const struct slab_remote *post = lists[i]; post != NULL;
             post = atomic_load(&post->next_posted)) {
            EXPLORE_EXPECT(atomic_load(&post->posted) == 1);
            EXPLORE_EXPECT(++count <= world.arenas.primary.slice_count);
        }
    }
    return count;
}

// Collects what others have freed in a heap, as its thread would in time; whether there was any.
static bool world_collect_heap(struct heap *heap) {
    const bool abandoned = atomic_load(&heap->state) == HEAP_ABANDONED;
    if (world_check_posts(heap) == 0) {
        return false;
    }
    EXPLORE_EXPECT(!abandoned || heap_claim(heap));
    while (heap_drain(heap, 64, true) > 0) {
    }
    if (abandoned) {
        int work = MALLOW_CALL_WORK;
        heap_unclaim(heap, &work);
    }
    return true;
}

// The same in all heaps. What is posted to a heap may be another's, and goes there.
static void world_collect(void) {
    bool any = true;
    for (unsigned round = 0; any; round++) {
        any = false;
        EXPLORE_EXPECT(round < WORLD_HEAPS_MAX);
        for (struct heap *heap = atomic_load(&world.shared.heaps); heap != NULL;
             heap = heap->next_heap) {
            EXPLORE_EXPECT(atomic_load(&heap->state) != HEAP_CLAIMED);
            any |= world_collect_heap(heap);
        }
    }
}

// The arena's counts are what its masks say, and nobody has slices to himself.
static void world_check_arena(void) {
    const struct arena *const arena = &world.arenas.primary;
    size_t free_count = 0;
    size_t dirty_count = 0;
    for (unsigned i = 0; i < arena->map.chunk_count; i++) {
        const struct chunk *const chunk = chunk_map_chunk(&arena->map, i);
        EXPLORE_EXPECT((chunk->dirty_mask & ~chunk->free_mask) == 0);
        free_count += bits_count(chunk->free_mask);
        dirty_count += bits_count(chunk->dirty_mask);
    }
    EXPLORE_EXPECT(free_count == arena->free_slices);
    EXPLORE_EXPECT(dirty_count == world.arenas.dirty_slices);
    EXPLORE_EXPECT(world.arenas.leaving.arena == NULL && world.arenas.visited == NULL);
    EXPLORE_EXPECT(world.thins.leaving.slice == NULL && atomic_load(&world.thins.lock.state) == 0);
    EXPLORE_EXPECT(atomic_load(&world.arenas.lock.state) == 0);
}

// Live blocks beside slabs, where a visitor was at those (heap_take_beside).
static unsigned world_count_beside(const struct slab *slab) {
    uint32_t counts[MALLOW_THIN_CLASS_COUNT] = {0};
    unsigned count = slab->kind == SLAB_LARGE;
    if (slab->kind == SLAB_THIN) {
        (void)thin_count(slab, counts);
    }
    for (unsigned i = 0; i < MALLOW_THIN_CLASS_COUNT; i++) {
        count += counts[i];
    }
    return count;
}

// Every slab is sound, no free of others is left behind, and `live` blocks are in use, those of
// `world.blocks` among them.
static void world_check(unsigned live) {
    const struct arena *const arena = &world.arenas.primary;
    unsigned used = 0;
    heap_switch(&heap_empty);
    heap_thread.effort = 0;
    heap_thread.first_effort = 0;
    world_collect();
    world_check_arena();
    for (size_t slice = 0; slice < arena->committed_slices; slice++) {
        const size_t slot = arena_slot_of(arena, slice);
        const struct slab *const slab = &arena->slabs[slot];
        const struct slab_remote *const remote = &arena->remotes[slot];
        EXPLORE_EXPECT(!slab_remote_any(remote, MALLOW_SLAB_WORDS));
        EXPLORE_EXPECT(atomic_load(&remote->posted) == 0);
        if (slab->kind != SLAB_BLOCKS) {
            used += world_count_beside(slab);
            continue;
        }
        EXPLORE_EXPECT(slab_audit(slab));
        EXPLORE_EXPECT((slab_owner(slab) & SLAB_OWNER_PENDING) == 0);
        EXPLORE_EXPECT(slab_owner_heap(slab) != 0);
        const bool own_hot = slab->hot != 0 && slab_has_own_last(slab);
        used += slab_count_used(slab);
        // A block that another slab has been lent, or that is hot, counts as used, and is free.
        used -= slab_is_current(slab) && slab->hot != 0 && !own_hot;
    }
    EXPLORE_EXPECT(used == live);
    for (unsigned i = 0; i < WORLD_BLOCKS_MAX; i++) {
        if (world.blocks[i] == 0) {
            continue;
        }
        const struct heap_block block = heap_identify(&world.shared, world.blocks[i]);
        EXPLORE_EXPECT(block.kind == HEAP_BLOCK_SLAB || block.kind == HEAP_BLOCK_THIN ||
                       block.kind == HEAP_BLOCK_LARGE);
        for (unsigned j = 0; j < i; j++) {
            EXPLORE_EXPECT(world.blocks[i] != world.blocks[j]);
        }
    }
}

// ---- Tests --------------------------------------------------------------------------------------

struct world_test {
    struct explore_scenario scenario;
    void (*setup)(void);
};

// What a program does besides before a scenario (explore_keep) and after it; NULL: nothing.
static void (*world_before)(void);
static void (*world_after)(void);

// Runs those whose name has the words of the first argument in it; all, if there is none.
static int world_run(const struct world_test *tests, size_t count, int argc, char **argv) {
    unsigned run_count = 0;
    for (size_t i = 0; i < count; i++) {
        if (argc > 1 && strstr(tests[i].scenario.name, argv[1]) == NULL) {
            continue;
        }
        world_begin(3);
        tests[i].setup();
        world_keep();
        if (world_before != NULL) {
            world_before();
        }
        const struct explore_result result = explore_run(&tests[i].scenario);
        printf("%s: %llu schedules, %u points at most\n", tests[i].scenario.name,
               (unsigned long long)result.schedule_count, result.point_count);
        if (world_after != NULL) {
            world_after();
        }
        world_end();
        run_count++;
    }
    return run_count == 0; // no such test
}

#define WORLD_MAIN(tests)                                                                          \
    int main(int argc, char **argv) {                                                              \
        return world_run(tests, sizeof(tests) / sizeof((tests)[0]), argc, argv);                   \
    }

#endif
