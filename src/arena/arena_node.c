// SPDX-License-Identifier: MIT
// Arena, NUMA nodes: see arena_node.h.
#include "arena/arena_node.h"

#include "base/bits.h"

enum { NODE_CANDIDATES = 32 }; // chunks looked at; the arena grows if none of them will do

MALLOW_INTERNAL uint8_t arena_node_mark(const struct arena_set *set) {
    return (uint8_t)(os_node_here(set->os) + 1);
}

MALLOW_INTERNAL void arena_node_learn_slow(struct arena_set *set) {
    if (set->primary.slice_count == 0 || os_node_here(set->os) == 0) {
        return;
    }
    const size_t bytes = bits_align_up(set->primary.slice_count / MALLOW_CHUNK_SLICES,
                                       set->os->page_bytes);
    set->nodes = (uint8_t *)os_map(set->os, bytes, 1);
}

// Looks at the chunks of a row from below, as many as *tries allows.
static struct chunk_place node_find_in_row(const struct arena_set *set, unsigned row,
                                           unsigned slice_count, unsigned align_slices,
                                           uint8_t mark, unsigned *tries) {
    const struct chunk_map *const map = &set->primary.map;
    struct chunk_place place = {false, 0, 0};
    unsigned chunk_index = 0;
    for (unsigned from = 0;
         *tries > 0 && !place.found && chunk_map_next(map, row, from, &chunk_index);
         from = chunk_index + 1) {
        --*tries;
        if (set->nodes[chunk_index] == mark || set->nodes[chunk_index] == 0) {
            place = chunk_map_find_in(map, chunk_index, slice_count, align_slices);
        }
    }
    return place;
}

MALLOW_INTERNAL struct chunk_place arena_node_find_locked(const struct arena_set *set,
                                                          unsigned slice_count,
                                                          unsigned align_slices, uint8_t mark) {
    struct chunk_place place = {false, 0, 0};
    unsigned tries = NODE_CANDIDATES;
    if (slice_count == 1) {
        place = node_find_in_row(set, CHUNK_MAP_DIRTY_ROW, 1, align_slices, mark, &tries);
    }
    tries = NODE_CANDIDATES;
    for (unsigned row = chunk_map_row_of(slice_count);
         row < CHUNK_MAP_ROWS && tries > 0 && !place.found; row++) {
        place = node_find_in_row(set, row, slice_count, align_slices, mark, &tries);
    }
    return place;
}
