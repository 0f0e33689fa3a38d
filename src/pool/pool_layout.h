// SPDX-License-Identifier: MIT
// Pool layout: how a memory is cut, computed from a configuration without touching any memory.
//
// Owns     nothing. The plan and the pool itself both come from here, which is why they agree.
// Holds    areas lie in order of falling alignment, so that none but the first, and those moved for
//          the sake of the map, needs padding;
//          no cell of the map has the starts of two areas in it, besides one at its first byte, so
//          that one look at the map and one comparison find the area of an address.
//
//   first memory     | mw_pool | direct table | classes | octaves | ranks, cells | memory ...
//   memory           | memory | areas | groups | words | remote | map | blocks of area 0 | 1 | ...
//   remote           of each area: | remote parts of groups, the last one first | remote words |
#ifndef MALLOW_POOL_LAYOUT_H
#define MALLOW_POOL_LAYOUT_H

#include "pool/pool.h"

#define POOL_ALIGNMENT_MAX ((size_t)1 << 30)
#define POOL_ALIGNMENT_MIN ((size_t)8)

// One class of a layout.
struct pool_layout_class {
    size_t block_bytes;
    size_t alignment;
    size_t weight; // its part of the memory, of layout.weight_sum
    size_t count;  // blocks: given, or found by pool_layout_divide
    size_t start;  // offset of its area in the memory
};

struct pool_layout {
    struct pool_layout_class classes[MW_POOL_CLASSES_MAX]; // in the order of the configuration
    uint8_t by_rank[MW_POOL_CLASSES_MAX];                  // the class of each rank
    uint8_t by_place[MW_POOL_CLASSES_MAX];                 // the class of each area
    size_t class_count;
    size_t weight_sum;
    size_t alignment;    // of the memory
    bool counted;        // exact counts, not shares
    bool remote;
    bool first;          // with the pool and its classes in front
    size_t cell_shift;
    size_t cell_count;

    // The tables of sizes; only in the first memory.
    size_t direct_count; // sizes that lead to their class at once, by granules
    size_t far_first;    // octave of the first size beyond
    size_t far_octaves;  // up to that of the largest class; 0: no size is beyond
    size_t far_count;    // their cells
    size_t far_crowd;    // classes that end in one cell, at most
    uint8_t far_shift[sizeof(size_t) * 8]; // by octave: a cell is 2^shift sizes

    // Offsets.
    size_t class_at, octave_at, far_at, shift_at, rank_at;
    size_t memory_at, area_at, group_at, word_at, remote_at, map_at;
    size_t metadata_bytes; // end of the bookkeeping
    size_t total_bytes;    // end of the last block
};

// Words and groups of `count` blocks.
MALLOW_INLINE size_t pool_word_count(size_t count) {
    return count / 64 + (count % 64 != 0);
}

MALLOW_INLINE size_t pool_group_count(size_t count) {
    return (count >> POOL_GROUP_SHIFT) + ((count & (((size_t)1 << POOL_GROUP_SHIFT) - 1)) != 0);
}

// ceil(2^w / block_bytes).
MALLOW_INLINE uintptr_t pool_reciprocal(size_t block_bytes) {
    return UINTPTR_MAX / block_bytes + 1;
}

// Whether an area of so many blocks meets (count + 1) r < c: see pool_index_by.
MALLOW_INLINE bool pool_is_multiplied(size_t block_bytes, size_t count) {
    const uintptr_t reciprocal = pool_reciprocal(block_bytes);
    const uintptr_t rest = reciprocal * block_bytes; // 2^w + r, modulo 2^w
    size_t product = 0;
    return bits_multiply(count + 1, rest, &product) && product < reciprocal;
}

// Checks a configuration and fills in everything that does not depend on the memory. *problem
// receives the class to blame, or MW_POOL_NO_CLASS.
MALLOW_INTERNAL enum mw_pool_status pool_layout_begin(struct pool_layout *layout,
                                                      const struct mw_pool_config *config,
                                                      size_t *problem);

// The same from the classes of a pool, for a memory that is attached.
MALLOW_INTERNAL void pool_layout_again(struct pool_layout *layout, const struct mw_pool *pool);

// Divides `bytes` by the weights; or, with counts, places what was counted, in at most `bytes`
// unless that is 0.
MALLOW_INTERNAL enum mw_pool_status pool_layout_end(struct pool_layout *layout, size_t bytes,
                                                    size_t *problem);

// Bookkeeping that `count` blocks of a class need: words and groups.
MALLOW_INTERNAL size_t pool_layout_class_bytes(bool remote, size_t count);

// Blocks of the largest class.
MALLOW_INTERNAL size_t pool_layout_largest(const struct pool_layout *layout);

// Cells of an octave of sizes; those above the largest class are left out.
MALLOW_INTERNAL size_t pool_layout_octave_cells(const struct pool_layout *layout, size_t octave);

// Makes the memory at `start`, of `bytes`, what the layout says, with all blocks free, and adds
// their number to the classes of the pool. Of the first memory, the pool and its classes must have
// been made.
MALLOW_INTERNAL struct pool_memory *pool_format(struct mw_pool *pool,
                                                const struct pool_layout *layout, uintptr_t start,
                                                size_t bytes);

#endif
