// SPDX-License-Identifier: MIT
// Arena, NUMA nodes: memory that one node's threads have used goes to that node's threads again.
//
// Owns     a byte a chunk of the primary arena, in the arena set: whose its pages are.
// Threads  the caller holds the arenas' lock.
// Holds    there is no table, and nothing here is called, until a thread has made the arena grow on
//          a node other than 0: a machine with one node pays a look at a pointer.
//          A chunk is the node's whose thread took the first span of it, and nobody's again when
//          all of it is free and clean. Fresh pages need no help: the kernel takes them from the
//          node that touches them first. So what matters is who gets slices that have their pages:
//          threads of the node; others only where there is no other memory.
//          Only spans of the primary arena are told apart: not those of secondary arenas, nor huge
//          blocks, nor slabs of a heap that a thread of another node takes over.
#ifndef MALLOW_ARENA_NODE_H
#define MALLOW_ARENA_NODE_H

#include "arena/arena.h"
#include "base/bits.h"
#include "os/os_node.h"

// The mark of the calling thread's node in the table.
MALLOW_INTERNAL uint8_t arena_node_mark(const struct arena_set *set);

// The arena grows: makes the table if this is the first sign of a second node. One call then, once.
MALLOW_INTERNAL void arena_node_learn_slow(struct arena_set *set);
MALLOW_INLINE void arena_node_learn_locked(struct arena_set *set) {
    if (set->nodes == NULL && os_node_is_told(set->os)) {
        arena_node_learn_slow(set);
    }
}

// As chunk_map_find_and_take, without taking, among the chunks of this mark and those of nobody;
// looks at a few of them.
MALLOW_INTERNAL struct chunk_place arena_node_find_locked(const struct arena_set *set,
                                                          unsigned slice_count,
                                                          unsigned align_slices, uint8_t mark);

// A span of a chunk has been taken by a thread of this mark.
MALLOW_INLINE void arena_node_taken_locked(struct arena_set *set, unsigned chunk_index,
                                           uint8_t mark) {
    if (set->nodes[chunk_index] == 0) {
        set->nodes[chunk_index] = mark;
    }
}

// Slices of a chunk have lost their pages.
MALLOW_INLINE void arena_node_cleaned_locked(struct arena_set *set, unsigned chunk_index) {
    if (unlikely(set->nodes != NULL)) {
        const struct chunk *const chunk = chunk_map_chunk(&set->primary.map, chunk_index);
        if (chunk->free_mask == UINT32_MAX && chunk->dirty_mask == 0) {
            set->nodes[chunk_index] = 0;
        }
    }
}

// Slices of the primary arena from `first` to committed_slices are no longer there.
MALLOW_INLINE void arena_node_decommitted_locked(struct arena_set *set, size_t first) {
    const size_t end = set->primary.committed_slices;
    for (size_t slice = bits_align_up(first, MALLOW_CHUNK_SLICES);
         unlikely(set->nodes != NULL) && slice < end; slice += MALLOW_CHUNK_SLICES) {
        set->nodes[slice / MALLOW_CHUNK_SLICES] = 0;
    }
}

#endif
