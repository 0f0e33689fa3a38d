// SPDX-License-Identifier: MIT
// Heaps: a private heap_shared over a small arena, as process.c makes one.
#ifndef MALLOW_TEST_HEAP_WORLD_H
#define MALLOW_TEST_HEAP_WORLD_H

#include "../arena/world.h"
#include "heap/heap.h"
#include "heap/heap_fast.h"
#include "heap/heap_near.h"
#include "heap/heap_rest.h"
#include "slab/size_class.h"

struct heap_world {
    struct arena_world arena;
    struct huge_set huges;
    struct thin_set thins;
    struct heap_shared shared;
    struct heap *heap; // of this thread, made by the first case that needs one
};

static inline void heap_world_begin(struct heap_world *world) {
    memset(world, 0, sizeof *world);
    arena_world_begin(&world->arena);
    huge_set_init(&world->huges, &world->arena.os, &world->arena.meta, &world->arena.map, 8 << 20);
    world->arena.huges = &world->huges;
    thin_set_init(&world->thins, &world->arena.arenas);
    world->shared.os = &world->arena.os;
    world->shared.meta = &world->arena.meta;
    world->shared.arenas = &world->arena.arenas;
    world->shared.huges = &world->huges;
    world->shared.thins = &world->thins;
    world->shared.large_bytes_max = MALLOW_LARGE_BYTES_MAX;
    heap_shared_init(&world->shared);
    world->heap = heap_adopt_or_create(&world->shared);
    assert_non_null(world->heap);
}

static inline void heap_world_end(struct heap_world *world) {
    while (world->huges.live != NULL) {
        (void)huge_give(&world->huges, world->huges.live->address, true);
    }
    (void)huge_purge_all(&world->huges);
    arena_world_end(&world->arena);
}

// As if so many threads had allocated that classes share slabs (heap_seat).
static inline void heap_world_crowd(struct heap_world *world) {
    atomic_store(&world->shared.heap_count, MALLOW_CROWD_HEAPS);
}

// With what a call may spend on others' frees.
static inline void heap_world_unclaim(struct heap *heap) {
    int work = MALLOW_CALL_WORK;
    heap_unclaim(heap, &work);
}

static inline struct slab *heap_world_adopt_slab(struct heap *heap, unsigned class_index) {
    int work = MALLOW_CALL_WORK;
    return heap_adopt_slab(heap, class_index, &work);
}

static inline struct slab *heap_world_slab_of(struct heap_world *world, uintptr_t address) {
    return heap_identify(&world->shared, address).slab;
}

// As a thread that does not own the slab would.
static inline void heap_world_free_elsewhere(struct heap_world *world, uintptr_t address) {
    struct slab *const slab = heap_world_slab_of(world, address);
    heap_begin_effort();
    heap_free_remote(slab, arena_remote_of(&world->arena.arenas, slab),
                     slab_index_of(slab, address));
}

// Fills a slab with blocks of `bytes`.
static inline struct slab *heap_world_fill_slab(struct heap *heap, size_t bytes) {
    struct slab *const slab = heap_fast_slab(heap, heap_allocate(heap, bytes, false));
    while (slab_owner(slab) != ((uintptr_t)heap | SLAB_OWNER_FULL)) {
        assert_true(heap_allocate(heap, bytes, false) != 0);
    }
    return slab;
}

static inline unsigned heap_world_posts(const struct heap *heap) {
    unsigned count = 0;
    const struct slab_remote *post = atomic_load(&heap->ready);
    for (; post != NULL; post = atomic_load(&post->next_posted)) {
        count++;
    }
    return count;
}

// All that are waiting to be collected.
static inline unsigned heap_world_posts_waiting(const struct heap *heap) {
    unsigned count = heap_world_posts(heap);
    const struct slab_remote *const lists[] = {heap->taken, heap->later};
    for (unsigned i = 0; i < 2; i++) {
        for (const struct slab_remote *post = lists[i]; post != NULL;
             post = atomic_load(&post->next_posted)) {
            count++;
        }
    }
    return count;
}

// As the slow path of free does: what is near the fast path first. How far that came.
static inline enum heap_near heap_world_free(struct heap_world *world, struct heap *heap,
                                             uintptr_t address) {
    size_t capacity = 0;
    const enum heap_near near = heap_near_free(
        &world->shared, heap, heap_near_slab(&world->shared, address), address, &capacity);
    if (near == HEAP_NEAR_MARKED) {
        heap_free_marked(&world->shared, address, capacity);
    } else if (near == HEAP_NEAR_NOT) {
        assert_true(heap_free(&world->shared, heap, address));
    }
    return near;
}

// Whether a block of a full slab can be lent; it is then.
static inline bool heap_world_lend(struct heap_world *world, struct heap *heap,
                                   uintptr_t address) {
    struct heap_near_place place;
    return heap_near_find(&world->shared, address, &place) &&
           slab_owner(place.slab) == ((uintptr_t)heap | SLAB_OWNER_FULL) &&
           heap_near_lend(heap, place.slab, address);
}

// ---- What has to hold of a heap whenever nobody is at work in it --------------------------------

// Walks one class: its current slab, its queue; returns how many slabs that is.
static inline unsigned heap_world_check_class(const struct heap *heap, unsigned class_index) {
    unsigned count = 0;
    const struct slab *const current = heap_current_slab(heap, class_index);
    if (current != NULL) {
        assert_int_equal(current->class_index, class_index);
        assert_true(slab_is_current(current));
        assert_int_equal(slab_owner(current) & ~SLAB_OWNER_PENDING, (uintptr_t)heap);
        assert_true(slab_audit(current));
        count++;
    }
    const struct slab *const first = heap_queue_first(heap, class_index);
    const struct slab *slab = first;
    while (slab != NULL) {
        assert_int_equal(slab->class_index, class_index);
        assert_false(slab_is_current(slab));
        assert_int_equal(slab_owner(slab) & ~SLAB_OWNER_PENDING,
                         (uintptr_t)heap | SLAB_OWNER_QUEUED);
        assert_ptr_equal(slab->next->previous, slab);
        assert_true(slab_audit(slab));
        assert_true(slab->used_count < slab->room_count);
        count++;
        slab = slab->next != first ? slab->next : NULL;
    }
    return count;
}

static inline void heap_world_check(const struct heap_world *world, const struct heap *heap) {
    unsigned listed = 0;
    for (unsigned class_index = 0; class_index < MALLOW_CLASS_COUNT; class_index++) {
        listed += heap_world_check_class(heap, class_index);
    }
    assert_true(listed <= heap->slab_count); // the others are full
    for (size_t granules = 0; granules < MALLOW_DIRECT_COUNT; granules++) {
        const unsigned class_index = size_class_of(granules << MALLOW_GRANULE_SHIFT);
        const struct slab *const current = heap_current_slab(heap, class_index);
        const bool hidden = current == NULL || heap_is_resting(heap, class_index);
        if (class_index < MALLOW_DIRECT_CLASS_COUNT && (heap->guests >> class_index & 1) != 0) {
            const unsigned host = size_class_host(class_index);
            assert_true(host != class_index && hidden && !heap_is_resting(heap, host));
            assert_non_null(heap_current_slab(heap, host));
            assert_ptr_equal(heap->direct[granules], heap_current_slab(heap, host));
        } else {
            assert_ptr_equal(heap->direct[granules], hidden ? heap_empty.direct[0] : current);
        }
    }
    unsigned owned = 0;
    const struct arena *const primary = &world->arena.arenas.primary;
    for (size_t i = 0; i < primary->committed_slices; i++) {
        const struct slab *const slab = &primary->slabs[arena_slot_of(primary, i)];
        owned += slab->kind == SLAB_BLOCKS && slab_owner_heap(slab) == (uintptr_t)heap;
    }
    for (const struct arena *arena = world->arena.arenas.secondary; arena != NULL;
         arena = arena->next) {
        for (size_t i = 0; i < arena->committed_slices; i++) {
            owned += arena->slabs[i].kind == SLAB_BLOCKS &&
                     slab_owner_heap(&arena->slabs[i]) == (uintptr_t)heap;
        }
    }
    assert_int_equal(owned, heap->slab_count);
    arena_world_check(&world->arena);
}

// As calls that have nothing else to do: each makes at most one system call.
static inline void heap_world_settle(struct heap_world *world) {
    struct os *const os = &world->arena.os;
    while (arena_owes(&world->arena.arenas) || huge_owes(&world->huges)) {
        const uint64_t entries = os_entries(os);
        heap_begin_effort();
        heap_settle(&world->shared, entries);
        assert_true(os_entries(os) <= entries + 1);
    }
}

// Slices in use of the primary arena; the one in slot 0 never is.
static inline size_t heap_world_slices_used(const struct heap_world *world) {
    const struct arena *const primary = &world->arena.arenas.primary;
    return primary->committed_slices == 0 ? 0
                                          : primary->committed_slices - primary->free_slices - 1;
}

#endif
