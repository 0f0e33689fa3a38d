// SPDX-License-Identifier: MIT
// Huge index: see huge_index.h.
#include "arena/huge_index.h"

#include "base/bits.h"

enum {
    INDEX_FIRST_SHIFT = 20, // smaller pieces are in class 0; those of 48 GiB and more in the last
    INDEX_STEP_BITS = 2,
    INDEX_FIRST = ((INDEX_FIRST_SHIFT - INDEX_STEP_BITS + 1) << INDEX_STEP_BITS) - 1, // class 1
};

// Not less for a larger size.
static unsigned index_class(size_t bytes) {
    if (bytes < (size_t)1 << INDEX_FIRST_SHIFT) {
        return 0;
    }
    // The leading bits count the steps, and carry into the doubling: each class adds one.
    const unsigned shift = bits_highest(bytes) - INDEX_STEP_BITS;
    const unsigned found = (shift << INDEX_STEP_BITS) + (unsigned)(bytes >> shift) - INDEX_FIRST;
    return (unsigned)bits_min(found, HUGE_INDEX_MASKS - 1);
}

static unsigned index_hash(uintptr_t address) {
    return (unsigned)(((address >> 12) * UINT64_C(0x9e3779b97f4a7c15)) >> 58);
}

static void index_enter_size(struct huge_index *index, unsigned size, uint64_t bit) {
    index->by_size[size] |= bit;
    index->sizes |= UINT64_C(1) << size;
}

static void index_leave_size(struct huge_index *index, unsigned size, uint64_t bit) {
    index->by_size[size] &= ~bit;
    if (index->by_size[size] == 0) {
        index->sizes &= ~(UINT64_C(1) << size);
    }
}

MALLOW_INTERNAL void huge_index_add(struct huge_index *index, struct huge_mapping piece,
                                    unsigned number) {
    const uint64_t bit = UINT64_C(1) << number;
    index->used |= bit;
    index_enter_size(index, index_class(piece.bytes), bit);
    index->by_start[index_hash(piece.address)] |= bit;
    index->by_end[index_hash(piece.address + piece.bytes)] |= bit;
}

MALLOW_INTERNAL void huge_index_add_loose(struct huge_index *index, struct huge_mapping piece,
                                          unsigned number) {
    const uint64_t bit = UINT64_C(1) << number;
    index->used |= bit;
    index_enter_size(index, index_class(piece.bytes), bit);
}

MALLOW_INTERNAL void huge_index_remove(struct huge_index *index, struct huge_mapping piece,
                                       unsigned number) {
    const uint64_t bit = UINT64_C(1) << number;
    index->used &= ~bit;
    index_leave_size(index, index_class(piece.bytes), bit);
    index->by_start[index_hash(piece.address)] &= ~bit;
    index->by_end[index_hash(piece.address + piece.bytes)] &= ~bit;
}

static void index_change_size(struct huge_index *index, size_t before, size_t bytes,
                              uint64_t bit) {
    const unsigned left = index_class(before);
    const unsigned entered = index_class(bytes);
    if (left != entered) {
        index_leave_size(index, left, bit);
        index_enter_size(index, entered, bit);
    }
}

MALLOW_INTERNAL void huge_index_begin_at(struct huge_index *index, struct huge_mapping piece,
                                         uintptr_t address, unsigned number) {
    const uint64_t bit = UINT64_C(1) << number;
    index_change_size(index, piece.bytes, piece.address + piece.bytes - address, bit);
    index->by_start[index_hash(piece.address)] &= ~bit;
    index->by_start[index_hash(address)] |= bit;
}

MALLOW_INTERNAL void huge_index_end_at(struct huge_index *index, struct huge_mapping piece,
                                       uintptr_t address, unsigned number) {
    const uint64_t bit = UINT64_C(1) << number;
    index_change_size(index, piece.bytes, address - piece.address, bit);
    index->by_end[index_hash(piece.address + piece.bytes)] &= ~bit;
    index->by_end[index_hash(address)] |= bit;
}

MALLOW_INTERNAL unsigned huge_index_starting(const struct huge_index *index,
                                             const struct huge_mapping *pieces,
                                             uintptr_t address) {
    for (uint64_t rest = index->by_start[index_hash(address)]; rest != 0; rest &= rest - 1) {
        if (pieces[bits_lowest(rest)].address == address) {
            return bits_lowest(rest);
        }
    }
    return HUGE_INDEX_NONE;
}

MALLOW_INTERNAL unsigned huge_index_ending(const struct huge_index *index,
                                           const struct huge_mapping *pieces, uintptr_t address) {
    for (uint64_t rest = index->by_end[index_hash(address)]; rest != 0; rest &= rest - 1) {
        const struct huge_mapping *const piece = &pieces[bits_lowest(rest)];
        if (piece->address + piece->bytes == address) {
            return bits_lowest(rest);
        }
    }
    return HUGE_INDEX_NONE;
}

// Of the first few in `mask`: the smallest with at least `bytes` bytes; HUGE_INDEX_NONE: none.
static unsigned index_smallest(const struct huge_mapping *pieces, uint64_t mask, size_t bytes) {
    unsigned best = HUGE_INDEX_NONE;
    size_t least = PTRDIFF_MAX; // more than needed; what is smaller than needed wraps round
    for (unsigned looks = 0; looks < HUGE_INDEX_LOOKS && mask != 0; looks++) {
        const unsigned number = bits_lowest(mask);
        const size_t more = pieces[number].bytes - bytes;
        mask &= mask - 1;
        if (more < least) {
            best = number;
            least = more;
        }
    }
    return best;
}

// One of the smallest pieces of a larger class, else one of the largest of all. There is a piece.
// Those of one class are of nearly one size.
static unsigned index_larger(const struct huge_index *index, unsigned size) {
    const uint64_t larger = size < HUGE_INDEX_MASKS - 1
                                ? index->sizes & (~UINT64_C(0) << (size + 1))
                                : 0;
    return bits_lowest(
        index->by_size[larger != 0 ? bits_lowest(larger) : bits_highest(index->sizes)]);
}

MALLOW_INTERNAL unsigned huge_index_best(const struct huge_index *index,
                                         const struct huge_mapping *pieces, size_t bytes) {
    const unsigned size = index_class(bytes);
    const unsigned found = index_smallest(pieces, index->by_size[size], bytes);
    return found != HUGE_INDEX_NONE ? found : index_larger(index, size);
}

MALLOW_INTERNAL unsigned huge_index_enough(const struct huge_index *index,
                                           const struct huge_mapping *pieces, size_t bytes) {
    const unsigned size = index_class(bytes);
    const uint64_t mask = index->by_size[size];
    if (mask != 0 && pieces[bits_lowest(mask)].bytes >= bytes) {
        return bits_lowest(mask);
    }
    return index_larger(index, size);
}
