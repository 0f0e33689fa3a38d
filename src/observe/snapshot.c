// SPDX-License-Identifier: MIT
// Snapshot: see snapshot.h.
#include "observe/snapshot.h"

#include "mallow/observe.h"
#include "slab/size_class.h"

MALLOW_RACY_READ static void snapshot_add_slab(struct snapshot *snapshot, const struct slab *slab,
                                               const struct slab_remote *remote) {
    const unsigned class_index = slab->class_index;
    if (class_index >= MALLOW_CLASS_COUNT) {
        return;
    }
    uint64_t live = slab_count_used(slab);
    for (unsigned i = 0; i < slab->word_count; i++) {
        live -= bits_count(atomic_load_explicit(&remote->bits[i], memory_order_relaxed));
    }
    if (live > slab->capacity_count) {
        live = 0; // caught between two steps of its owner
    }
    live -= slab_has_lent(slab); // another slab counts it; the sum is what matters
    struct snapshot_class *const row = &snapshot->classes[class_index];
    row->slab_count++;
    row->live_count += live;
    row->capacity_count += slab->room_count;
    snapshot->slab_count++;
    snapshot->small_live_count += live;
    snapshot->small_live_bytes += live * size_class_bytes(class_index);
}

// Blocks of a thin slice count in the rows of their classes, without a slab.
static void snapshot_add_thin(struct snapshot *snapshot, const struct slab *slab) {
    uint32_t counts[MALLOW_THIN_CLASS_COUNT] = {0};
    const struct thin_free free = thin_count(slab, counts);
    snapshot->thin_free_count += free.count;
    snapshot->thin_free_bytes += free.bytes;
    for (unsigned class_index = 0; class_index < MALLOW_THIN_CLASS_COUNT; class_index++) {
        struct snapshot_class *const row = &snapshot->classes[class_index];
        row->live_count += counts[class_index];
        row->capacity_count += counts[class_index];
        snapshot->small_live_count += counts[class_index];
        snapshot->small_live_bytes += counts[class_index] * size_class_bytes(class_index);
    }
}

MALLOW_RACY_READ static void snapshot_add_arena(struct snapshot *snapshot,
                                                const struct arena *arena) {
    for (size_t i = 0; i < arena->committed_slices; i++) {
        const size_t slot = arena_slot_of(arena, i);
        const struct slab *const slab = &arena->slabs[slot];
        const uint8_t kind = __atomic_load_n(&slab->kind, __ATOMIC_ACQUIRE);
        if (kind == SLAB_BLOCKS) {
            snapshot_add_slab(snapshot, slab, &arena->remotes[slot]);
            snapshot->span_bytes += (uint64_t)slab->slice_count << MALLOW_SLICE_SHIFT;
        } else if (kind == SLAB_THIN) {
            snapshot_add_thin(snapshot, slab);
            snapshot->span_bytes += MALLOW_SLICE_BYTES;
        } else if (kind == SLAB_LARGE) {
            snapshot->large_live_count++;
            snapshot->large_live_bytes += slab->block_bytes;
            snapshot->span_bytes += (uint64_t)slab->slice_count << MALLOW_SLICE_SHIFT;
        }
    }
    snapshot->committed_bytes +=
        (uint64_t)bits_max(arena->committed_slices, arena->mapped_slices) << MALLOW_SLICE_SHIFT;
    snapshot->reserved_bytes +=
        arena->table_bytes + ((uint64_t)arena->limit_slices << MALLOW_SLICE_SHIFT);
    snapshot->meta_bytes += arena_header_charge(arena) + arena_group_charge(arena);
}

static uint64_t snapshot_load(const _Atomic(uint64_t) *counter) {
    return atomic_load_explicit(counter, memory_order_relaxed);
}

MALLOW_INTERNAL void snapshot_take(const struct observe_sources *sources,
                                   struct snapshot *snapshot) {
    *snapshot = (struct snapshot){.slab_count = 0};
    struct arena_set *const arenas = sources->arenas;
    os_lock_take(&arenas->lock);
    if (arenas->primary.slice_count != 0) {
        snapshot_add_arena(snapshot, &arenas->primary);
    }
    for (const struct arena *arena = arenas->secondary; arena != NULL; arena = arena->next) {
        snapshot_add_arena(snapshot, arena);
    }
    for (const struct arena *arena = arenas->recycled; arena != NULL; arena = arena->next) {
        snapshot_add_arena(snapshot, arena); // its tables
    }
    snapshot->free_dirty_bytes = (uint64_t)arenas->dirty_slices << MALLOW_SLICE_SHIFT;
    os_lock_drop(&arenas->lock);
    struct huge_set *const huges = sources->huges;
    os_lock_take(&huges->map->lock);
    for (const struct huge *huge = huges->live; huge != NULL; huge = huge->next) {
        snapshot->huge_live_bytes += huge->usable_bytes;
    }
    snapshot->huge_mapped_bytes = huges->live_bytes;
    snapshot->huge_live_count = huges->live_count;
    snapshot->huge_cached_bytes = huges->cache.bytes + huges->late_bytes;
    os_lock_drop(&huges->map->lock);
    snapshot->committed_bytes += snapshot->huge_mapped_bytes + snapshot->huge_cached_bytes;
    snapshot->reserved_bytes += snapshot->huge_mapped_bytes + snapshot->huge_cached_bytes;
    snapshot->meta_bytes += snapshot_load(&sources->meta->committed_bytes);
    snapshot->version = MALLOW_STATS_VERSION;
    snapshot->live_bytes = snapshot->small_live_bytes + snapshot->large_live_bytes +
                           snapshot->huge_live_bytes;
    snapshot->live_count = snapshot->small_live_count + snapshot->large_live_count +
                           snapshot->huge_live_count;
    snapshot->meta_used_bytes = snapshot_load(&sources->meta->used_bytes) +
                                (snapshot->slab_count + snapshot->large_live_count) *
                                    sizeof(struct slab);
    snapshot->purged_bytes = snapshot_load(&arenas->purged_bytes);
    snapshot->heap_count =
        atomic_load_explicit(&sources->shared->heap_count, memory_order_relaxed);
    snapshot->heap_adopted_count = snapshot_load(&sources->shared->adopted_count);
    snapshot->os_map_count = snapshot_load(&sources->os->map_count);
    snapshot->os_unmap_count = snapshot_load(&sources->os->unmap_count);
    snapshot->os_advise_count = snapshot_load(&sources->os->advise_count);
    snapshot->os_remap_count = snapshot_load(&sources->os->remap_count);
    snapshot->held_bytes = snapshot_load(&sources->os->charge.held_bytes);
    snapshot->refused_count = snapshot_load(&sources->os->charge.refused_count);
}

static uint64_t snapshot_resident_of(const struct os *os, const struct arena *arena) {
    // RSS does not count giant pages.
    const size_t first = bits_min(arena->giant_slices, arena->committed_slices);
    const uintptr_t blocks = arena->base + (first << MALLOW_SLICE_SHIFT);
    const uintptr_t end = arena->base + (arena->committed_slices << MALLOW_SLICE_SHIFT);
    const uint64_t table_bytes = arena_tables_resident(arena, os);
    return table_bytes + (arena->slice_count != 0 ? os_resident(os, blocks, end - blocks) : 0);
}

MALLOW_INTERNAL void snapshot_measure(const struct observe_sources *sources,
                                      struct snapshot *snapshot) {
    const struct os *const os = sources->os;
    struct arena_set *const arenas = sources->arenas;
    struct huge_set *const huges = sources->huges;
    os_lock_take(&arenas->lock);
    uint64_t bytes = snapshot_resident_of(os, &arenas->primary);
    for (const struct arena *arena = arenas->secondary; arena != NULL; arena = arena->next) {
        bytes += snapshot_resident_of(os, arena);
    }
    for (const struct arena *arena = arenas->recycled; arena != NULL; arena = arena->next) {
        bytes += snapshot_resident_of(os, arena);
    }
    os_lock_drop(&arenas->lock);
    os_lock_take(&huges->map->lock);
    for (const struct huge *huge = huges->live; huge != NULL; huge = huge->next) {
        bytes += os_resident(os, huge->map_address, huge->mapped_bytes);
    }
    for (const struct huge *huge = huges->late; huge != NULL; huge = huge->next) {
        bytes += os_resident(os, huge->map_address, huge->mapped_bytes);
    }
    for (unsigned i = 0; huges->cache.count > 0 && i < MALLOW_HUGE_CACHE_COUNT; i++) {
        bytes += os_resident(os, huges->cache.pieces[i].address, huges->cache.pieces[i].bytes);
    }
    os_lock_drop(&huges->map->lock);
    // Our own structures are handed out from one end of their regions and used at once.
    snapshot->resident_bytes = bytes + snapshot_load(&sources->meta->used_bytes);
}
