// SPDX-License-Identifier: MIT
// Snapshot: pulls the counters of all layers into one struct, when somebody asks.
//
// Owns     nothing.
// Threads  any; holds the arena lock while it walks the slab headers, which their owners go on
//          changing.
// Holds    each figure is exact to within the calls in flight.
#ifndef MALLOW_OBSERVE_SNAPSHOT_H
#define MALLOW_OBSERVE_SNAPSHOT_H

#include "heap/heap.h"

// Where the counters are.
struct observe_sources {
    struct os *os;
    struct meta *meta;
    struct arena_set *arenas;
    struct huge_set *huges;
    struct heap_shared *shared;
};

struct snapshot_class {
    uint64_t slab_count;
    uint64_t live_count;
    uint64_t capacity_count;
};

struct snapshot {
    uint64_t version;
    uint64_t live_bytes, live_count;
    uint64_t small_live_bytes, small_live_count;
    uint64_t large_live_bytes, large_live_count;
    uint64_t huge_live_bytes, huge_live_count;
    uint64_t huge_mapped_bytes; // of their mappings, which reach further where aligned
    uint64_t slab_count, span_bytes;
    uint64_t thin_free_count; // free pieces in thin slices, which are of no class
    uint64_t thin_free_bytes; // of these
    uint64_t free_dirty_bytes, huge_cached_bytes;
    uint64_t committed_bytes, reserved_bytes;
    uint64_t meta_bytes, meta_used_bytes;
    uint64_t purged_bytes;
    uint64_t heap_count, heap_adopted_count;
    uint64_t os_map_count, os_unmap_count, os_advise_count, os_remap_count;
    uint64_t held_bytes, refused_count;
    uint64_t resident_bytes; // 0 until measured
    struct snapshot_class classes[MALLOW_CLASS_COUNT];
};

MALLOW_INTERNAL void snapshot_take(const struct observe_sources *sources,
                                   struct snapshot *snapshot);

// Asks the kernel how much of all that is in memory (os_resident): what RSS counts of ours.
MALLOW_INTERNAL void snapshot_measure(const struct observe_sources *sources,
                                      struct snapshot *snapshot);

#endif
