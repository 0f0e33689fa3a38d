// SPDX-License-Identifier: MIT
// Pool: blocks of declared classes in memory given to it. The structures, and what all files of
// the layer share.
//
// Owns     nothing: all state lies at the front of the memory of the pool itself.
// Threads  the owner writes everything but what is marked "others", which any thread writes by
//          atomic operations (pool_remote.c).
// Holds    a block is free iff its bit is set, or it is its class's `last` and hot (bit 0 of it);
//          bit w of a group's summary is set iff word w of the group is not 0;
//          a group is on its class's list, once, iff its summary is not 0;
//          `last` is 0 in a class without a list, so a hot block exists only in one with a list;
//          used == blocks handed out and not come back to the owner <= peak.
//
//   class -> group -> group -> NULL        4,096 blocks each
//              | summary: which of 64 words
//              v
//            word: which of 64 blocks      so two scans of a word find a block of however many
#ifndef MALLOW_POOL_POOL_H
#define MALLOW_POOL_POOL_H

#include <mallow/pool.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bits.h"
#include "base/check.h"
#include "base/compiler.h"
#include "config.h"

#define POOL_MAGIC UINT64_C(0x6d616c6c6f77706c)
#define POOL_SET_MAGIC UINT64_C(0x6d616c6c6f777073)
#define POOL_WORD_SHIFT 6   // blocks of a word
#define POOL_GROUP_SHIFT 12 // blocks of a group
#define POOL_GROUP_WORDS 64
#define POOL_ROOM_WORDS (MW_POOL_CLASSES_MAX / 64)
#define POOL_HOT ((uintptr_t)1)

// 64 words of free bits, 4,096 blocks.
struct pool_group {
    uint64_t summary;        // bit w: word w is not 0
    uint64_t *words;         // the first of its words
    uintptr_t base;          // address of its first block
    struct pool_group *next; // on its class's list
};

// What other threads write of a group; only with `remote`.
struct pool_remote {
    _Atomic(uint64_t) summary; // bit w: remote word w is not 0 (others, owner)
    struct pool_remote *next;  // on its class's posted list
    struct pool_group *group;
    _Atomic(uint64_t) *words; // the group's first remote word: blocks that others have freed
};

// The blocks of one class in one memory. Never changes.
struct pool_area {
    uintptr_t start; // address of its first block
    size_t block_bytes;
    uintptr_t reciprocal; // its class's; 0 with `remote`, so that every free takes the longer way
    size_t count;
    uint64_t *words;
    struct pool_group *groups;
    struct pool_class *owner;
    struct pool_remote *remotes; // NULL without `remote`
};

// A class, in line 0 what alloc and free need.
struct pool_class {
    _Atomic(uintptr_t) last;  // block handed out last, plus POOL_HOT if it has been freed; or 0
    struct pool_group *group; // the first on the list of those with room; NULL: exhausted
    size_t block_bytes;
    size_t used; // racy reads by others
    size_t peak;
    uint64_t *room; // the word of the pool's `room` with this class's bit
    uint64_t room_bit;
    uintptr_t reciprocal; // ceil(2^w / block_bytes), w the bits of a pointer; 0: divide instead

    size_t capacity; // racy reads by others
    size_t size_bytes;
    size_t alignment;
    size_t weight; // of the memory, when more is attached
    uint64_t refused;
    uint64_t fallback;
    uint32_t index; // in the configuration
    uint32_t rank;  // by size
    size_t unused;

    _Atomic(struct pool_remote *) posted; // others: groups with remote bits
    _Atomic(size_t) remote;               // others: blocks freed so far
    struct pool_remote *taken_list;       // posted ones, taken over
    struct pool_remote *taken;            // the one being collected
    uint64_t taken_bits;                  // which of its words are still to be collected
    size_t collected;                     // blocks that others freed and that have come back
    size_t unused_too[2];
};

// One memory: the first, or an attached one. Never changes. Its areas follow, in order of address,
// and one more, which begins at UINTPTR_MAX.
struct pool_memory {
    uintptr_t start;
    size_t bytes;        // up to the end of its last block
    const uint16_t *map; // where among its areas, in bytes, the area of each cell's first byte is
    size_t cell_shift;
    size_t given_bytes;
    size_t metadata_bytes;
    void *mapping; // what to unmap; NULL: the caller's
    size_t mapping_bytes;
};

// The pool begins at the first byte of its first memory.
struct mw_pool {
    size_t bytes; // of the first memory; 0 with check_owner, so that every free takes the long way
    const uint16_t *map;
    struct pool_area *areas;
    size_t cell_shift;
    size_t direct_count; // 0 with check_owner, so that every alloc takes the long way
    const uint8_t *direct; // rank by (size - 1) >> granule_shift
    size_t granule_shift;
    struct pool_class *classes; // by rank

    size_t direct_class_count; // class_count; 0 with check_owner

    uint64_t room[POOL_ROOM_WORDS]; // bit r: the class of rank r has a group
    _Atomic(uint64_t) posted_room[POOL_ROOM_WORDS]; // with fallback: class r may have posted blocks
    const size_t *large;  // block sizes by rank from large_rank on, then SIZE_MAX to a power of two
    uint32_t large_steps; // its logarithm
    uint32_t large_rank;
    uint32_t class_count;
    uint32_t last_status;
    bool fallback, remote, check_owner, prefault, lock;
    _Atomic(uintptr_t) owner; // with check_owner: the owner's thread pointer
    size_t real_direct_count;
    size_t largest_bytes;  // blocks of the largest class
    const uint8_t *ranks;  // rank by index in the configuration
    uint64_t magic;
    size_t memory_count;
    uintptr_t starts[MW_POOL_MEMORIES_MAX]; // ascending, then UINTPTR_MAX
    struct pool_memory *memories[MW_POOL_MEMORIES_MAX];
};

static_assert(sizeof(void *) != 8 || sizeof(struct pool_group) == 32, "half a cache line");
static_assert(sizeof(void *) != 8 || sizeof(struct pool_remote) == 32, "half a cache line");
static_assert(sizeof(void *) != 8 || sizeof(struct pool_area) == 64, "one cache line");
static_assert(sizeof(void *) != 8 || sizeof(struct pool_class) == 192, "three cache lines");
static_assert(sizeof(void *) != 8 || sizeof(struct pool_memory) == 64, "one cache line");

// ---- Addresses ----------------------------------------------------------------------------------

MALLOW_INLINE struct pool_area *pool_area_in(struct pool_area *areas, const uint16_t *map,
                                             size_t cell, uintptr_t address) {
    struct pool_area *const area = (struct pool_area *)((uintptr_t)areas + map[cell]);
    return address >= area[1].start ? area + 1 : area;
}

// The area of an address in any memory, or NULL.
MALLOW_INLINE struct pool_area *pool_area_of(const struct mw_pool *pool, uintptr_t address) {
    size_t place = 0; // of the last memory that begins at or below the address
    for (size_t half = MW_POOL_MEMORIES_MAX / 2; half > 0; half /= 2) {
        place += address >= pool->starts[place + half] ? half : 0;
    }
    const struct pool_memory *const memory = pool->memories[place];
    const size_t offset = address - memory->start;
    if (offset >= memory->bytes) {
        return NULL;
    }
    return pool_area_in((struct pool_area *)(uintptr_t)(memory + 1), memory->map,
                        offset >> memory->cell_shift, address);
}

// The index of a block by one multiplication, SIZE_MAX if the address is no block's start. With
// c = ceil(2^w / d) = (2^w + r) / d, the product (k d + t) c is k 2^w + k r + t c. While
// (k + 1) r < c, which pool_format sees to, its low half is below c iff t is 0, and then its high
// half is k (Lemire, Kaser and Kurz 2019). A reciprocal of 0 fits no address.
MALLOW_INLINE size_t pool_index_by(const struct pool_area *area, uintptr_t reciprocal,
                                   uintptr_t address) {
    const uintptr_t offset = address - area->start;
    uintptr_t low;
    const size_t index = bits_multiply_high(offset, reciprocal, &low);
    return likely(low < reciprocal && index < area->count) ? index : SIZE_MAX;
}

// The same in any area: by division where blocks are too big for that, above 2^64 / area bytes.
MALLOW_INLINE size_t pool_index_in(const struct pool_area *area, uintptr_t address) {
    const uintptr_t reciprocal = area->owner->reciprocal;
    if (likely(reciprocal != 0)) {
        return pool_index_by(area, reciprocal, address);
    }
    const uintptr_t offset = address - area->start;
    const size_t index = offset / area->block_bytes;
    return offset % area->block_bytes == 0 && index < area->count ? index : SIZE_MAX;
}

// What an address in the area is that is no block's start.
MALLOW_INLINE enum mw_pool_status pool_misfit(const struct pool_area *area, uintptr_t address) {
    const size_t offset = address - area->start;
    if (address < area->start || offset / area->block_bytes >= area->count) {
        return MW_POOL_FOREIGN; // bookkeeping, or what alignment left
    }
    return address % area->owner->alignment == 0 ? MW_POOL_INTERIOR : MW_POOL_MISALIGNED;
}

// Whether others have freed a block, which its owner does not know of yet.
MALLOW_INLINE bool pool_remote_is_set(const struct pool_area *area, size_t index) {
    const struct pool_remote *const remote = &area->remotes[index >> POOL_GROUP_SHIFT];
    const size_t word = (index >> POOL_WORD_SHIFT) % POOL_GROUP_WORDS;
    const uint64_t bits = atomic_load_explicit(&remote->words[word], memory_order_relaxed);
    return (bits >> (index % 64) & 1) != 0;
}

// ---- State --------------------------------------------------------------------------------------
// Words and `last` are the owner's, and looked at by others: plain moves, but never torn.

MALLOW_INLINE uint64_t pool_word_get(const uint64_t *word) {
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

MALLOW_INLINE void pool_word_set(uint64_t *word, uint64_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

MALLOW_INLINE uintptr_t pool_last_get(const struct pool_class *class) {
    return atomic_load_explicit(&class->last, memory_order_relaxed);
}

MALLOW_INLINE void pool_last_set(struct pool_class *class, uintptr_t value) {
    atomic_store_explicit(&class->last, value, memory_order_relaxed);
}

// Whether a block is free, as its owner sees it or as others have left it.
MALLOW_INLINE bool pool_is_free(const struct pool_area *area, size_t index, uintptr_t block) {
    const uint64_t word = pool_word_get(&area->words[index >> POOL_WORD_SHIFT]);
    return (word >> (index % 64) & 1) != 0 || pool_last_get(area->owner) == block + POOL_HOT ||
           (area->remotes != NULL && pool_remote_is_set(area, index));
}

// Word `word` (modulo 64) of the group was 0 and is not any more.
MALLOW_INLINE void pool_word_filled(struct pool_class *class, struct pool_group *group,
                                    size_t word) {
    const uint64_t before = group->summary;
    uint64_t summary = before;
    (void)bits_set_was_set(&summary, word);
    group->summary = summary;
    if (before == 0) {
        struct pool_group *const next = class->group;
        group->next = next;
        class->group = group;
        if (next == NULL) {
            *class->room |= class->room_bit;
        }
    }
}

// The thread that calls, as a number; the check of owners has no other use for it.
#if defined(__x86_64__) || defined(__aarch64__)
MALLOW_INLINE uintptr_t pool_this_thread(void) {
    return (uintptr_t)__builtin_thread_pointer();
}
#else
MALLOW_INLINE uintptr_t pool_this_thread(void) {
    return 0; // every thread is taken for the owner
}
#endif

MALLOW_INLINE bool pool_is_valid(const struct mw_pool *pool) {
    return pool != NULL && pool->magic == POOL_MAGIC;
}

// ---- Others' frees (pool_remote.c) --------------------------------------------------------------

// Takes one word of blocks back that others have freed; returns how many, 0: there are none.
MALLOW_INTERNAL size_t pool_collect_word(struct mw_pool *pool, struct pool_class *class);

#endif
