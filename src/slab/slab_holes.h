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
//          it takes from count as in use.
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

// A figure that most likely differs if the slab has been used since, and is never 0.
MALLOW_INTERNAL uint32_t slab_view_print(const struct slab_view *view);

#endif
