// SPDX-License-Identifier: MIT
// Reserve: chunks of the primary arena set apart, whose slices are taken and given back without a
// lock. Or, without a chunk, an allowance (os/charge.h): spans are the arenas' then, taken and
// given back as ever.
//
// Owns     for each of its chunks, one word of free slices, and an index of those words. The chunks
//          are the arena's; it counts them as in use for as long as the reserve has them, and so
//          lets them be.
// Threads  any, with each call a few atomic operations, tried again only if another thread has
//          changed the same word in between: whoever is stopped anywhere hinders nobody.
//          reserve_make, reserve_end: one thread, before and after all others.
// Holds    a bit of `free` is set iff the slice belongs to no span; its header slot is clear then.
#ifndef MALLOW_ARENA_RESERVE_H
#define MALLOW_ARENA_RESERVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena/arena.h"
#include "arena/reserve_index.h"

struct reserve_chunk {
    _Atomic(uint32_t) free;  // 1 = slice is free
    uint32_t chunk_index;    // in the primary arena
    struct reserve *reserve; // whose it is; never changes
};

struct reserve {
    struct arena_set *arenas;
    struct reserve_chunk *chunks;
    size_t chunk_count;
    size_t chunk_limit; // that `chunks` has room for
    struct reserve_index index;  // behind `chunks`
    struct os_charge *allowance; // what spans are charged to besides; NULL: it has chunks
};

// Prepares `reserve` for up to `chunk_limit` chunks; false: no memory. May enter the kernel.
MALLOW_INTERNAL bool reserve_make(struct reserve *reserve, struct arena_set *arenas,
                                  size_t chunk_limit);

// Adds all free slices of a chunk, which the arena has just been made to count as in use.
MALLOW_INTERNAL void reserve_add(struct reserve *reserve, size_t chunk_index, uint32_t free);

// Bytes of `chunks` with its index.
MALLOW_INTERNAL size_t reserve_table_bytes(size_t chunk_limit);

// All chunks leave the reserve.
MALLOW_INTERNAL void reserve_empty(struct reserve *reserve);

// Takes a span as arena_take does, in one chunk; slab == NULL: there is none. A bounded number of
// steps; O(chunks) where it is aligned beyond a slice and no chunk has more room than that needs.
// What it holds is of no use any more (`zeroed` is false).
MALLOW_INTERNAL struct arena_span reserve_take(struct reserve *reserve, unsigned slice_count,
                                               unsigned align_slices);

// Takes these slices of a chunk; false: not all are free.
MALLOW_INTERNAL bool reserve_extend(struct reserve_chunk *chunk, uint32_t slices);

// Gives slices of a chunk back.
MALLOW_INTERNAL void reserve_give(struct reserve_chunk *chunk, uint32_t slices);

// Slices that are free just now. O(chunks).
MALLOW_INTERNAL size_t reserve_free_slices(const struct reserve *reserve);

// The chunk of a slab of any reserve; NULL: it is in none.
MALLOW_INLINE struct reserve_chunk *reserve_chunk_of(const struct arena_set *set,
                                                     const struct slab *slab) {
    struct reserve_chunk *const *const table = __atomic_load_n(&set->reserved, __ATOMIC_ACQUIRE);
    if (likely(table == NULL) || !arena_has_slab(&set->primary, slab)) {
        return NULL;
    }
    const size_t chunk = arena_slice_of(&set->primary, slab) / MALLOW_CHUNK_SLICES;
    return __atomic_load_n(&table[chunk], __ATOMIC_ACQUIRE);
}

#endif
