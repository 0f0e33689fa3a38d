// SPDX-License-Identifier: MIT
// Holes: whole OS pages of a slab that no live block touches.
//
// Owns     nothing.
// Threads  any, also while the owner goes on freeing and taking blocks: what is told is exact for
//          blocks that can neither be handed out nor made ready for it meanwhile, which is for the
//          caller to see to (heap/heap_gate.h).
// Holds    a page is in a hole iff all of it that is part of the span lies in free blocks, in front
//          of block 0, or behind the last block that is open.
//          Of a current slab of a class that malloc's fast path serves, the blocks of the word that
//          it takes from (the *exposed* word) and the hot block count as in use unless
//          slab_view_expose says otherwise. In other classes the hot block is free.
#ifndef MALLOW_SLAB_SLAB_HOLES_H
#define MALLOW_SLAB_SLAB_HOLES_H

#include "slab/slab.h"
#include "slab/slab_remote.h"

// A slab as it was at one moment.
struct slab_view {
    uint64_t free_bits[MALLOW_SLAB_WORDS]; // also what other threads have freed
    uintptr_t span_start;
    uintptr_t span_end;
    uintptr_t start_address;  // of block 0
    size_t block_bytes;
    size_t capacity_count;
    size_t word_index;   // of the exposed word; MALLOW_SLAB_WORDS if there is none
    uint64_t word_bits;  // its free blocks
    uint64_t word_mine;  // of them, those that malloc may take
    size_t hot_index;    // the hot block, exposed as well; SIZE_MAX if there is none
};

// What malloc may still take of the exposed word.
enum slab_exposure {
    SLAB_EXPOSED_LOWEST, // the lowest free block, or the hot one: one malloc may be under way
    SLAB_EXPOSED_NONE,   // no block: none is, and none can begin
};

struct slab_range {
    uintptr_t low;
    uintptr_t high;
};

struct slab_hole {
    uintptr_t address;
    size_t bytes;
    size_t opened_bytes; // of them, those that blocks have lain in
};

// Looks at a slab of blocks whose first slice is at `span_start`. False: it is not one (any more).
MALLOW_INTERNAL bool slab_view_take(struct slab_view *view, const struct slab *slab,
                                    const struct slab_remote *remote, uintptr_t span_start);

// The next hole from block *index on, which moves behind it; false if there is none. Begin with 0.
MALLOW_INTERNAL bool slab_view_next(const struct slab_view *view, size_t page_bytes, size_t *index,
                                    struct slab_hole *hole);

// The same, of those pages alone that lie in `range`.
MALLOW_INTERNAL bool slab_view_next_in(const struct slab_view *view, size_t page_bytes,
                                       const struct slab_range *range, size_t *index,
                                       struct slab_hole *hole);

// The block that an address lies in, or the nearest to it.
MALLOW_INTERNAL size_t slab_view_block_at(const struct slab_view *view, uintptr_t address);

// Whether the slab has several slices, and so remembers which blocks are zero (slab_zeroed).
MALLOW_INLINE bool slab_view_is_long(const struct slab_view *view) {
    return view->span_end - view->span_start > MALLOW_SLICE_BYTES;
}

// The blocks of such a slab, open or not, all of which lies in a hole.
MALLOW_INTERNAL uint64_t slab_view_blocks_in(const struct slab_view *view,
                                             const struct slab_hole *hole);

// A figure that most likely differs if the slab has been used since, but for its exposed word; and
// is never 0.
MALLOW_INTERNAL uint32_t slab_view_print(const struct slab_view *view);

// The same of the exposed word and the hot block; 0 if nothing of them is free.
MALLOW_INTERNAL uint32_t slab_view_word_print(const struct slab_view *view);

// From now on only what `exposure` says counts as in use.
MALLOW_INTERNAL void slab_view_expose(struct slab_view *view, enum slab_exposure exposure);

// Pages that the exposed word's blocks touch, or its lowest free block, or the hot block: those
// that are in no hole until then. Empty if there are none.
MALLOW_INTERNAL struct slab_range slab_view_word(const struct slab_view *view, size_t page_bytes);
MALLOW_INTERNAL struct slab_range slab_view_lowest(const struct slab_view *view, size_t page_bytes);
MALLOW_INTERNAL struct slab_range slab_view_hot(const struct slab_view *view, size_t page_bytes);

#endif
