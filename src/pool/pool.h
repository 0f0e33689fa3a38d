// SPDX-License-Identifier: MIT
// Pool: blocks of declared classes in memory given to it. The structures, and what all files of
// the layer share.
//
// Owns     nothing: all state lies at the front of the memory of the pool itself.
// Threads  the owner writes everything but what is marked "others", which any thread writes by
//          atomic operations (pool_remote.c).
// Holds    a block is free iff its bit is set, or its remote bit;
//          bit w of a group's summary is set iff word w of the group is not 0;
//          a group is on its class's list, once, iff its summary is not 0;
//          a lane's word is any word of its class: its last bit is not taken there, but by way of
//          the list, so that the two lines above keep holding;
//          live blocks == (peak_count - headroom) - (remote - seen).
//
//   class -> group -> group -> NULL        4,096 blocks each
//              | summary: which of 64 words
//              v
//            word: which of 64 blocks      so two scans of a word find a block of however many
#ifndef MALLOW_POOL_POOL_H
#define MALLOW_POOL_POOL_H

#include <mallow/pool.h>
#include <mallow/pool_lane.h>
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
#define POOL_GRANULE_SHIFT 3 // sizes that the table of small sizes tells apart: 8 bytes

// 64 words of free bits, 4,096 blocks.
struct pool_group {
    uint64_t summary;        // bit w: word w is not 0
    uint64_t *words;         // the first of its words
    uintptr_t base;          // address of its first block
    struct pool_group *next; // on its class's list
};

// What other threads write of a group; only with `remote`. Those of an area lie in front of its
// remote words, the last one first.
struct pool_remote {
    _Atomic(uint64_t) summary; // bit w: remote word w is not 0 (others, owner)
    struct pool_remote *next;  // on its class's posted list
    struct pool_group *group;
    _Atomic(uint64_t) *words; // the group's first remote word: blocks that others have freed
};

// The blocks of one class in one memory. Never changes.
struct pool_area {
    uintptr_t start;      // address of its first block
    uintptr_t reciprocal; // its class's
    size_t count;         // blocks; 0 with `remote`, so that every free takes the way that looks
    uint64_t *words;
    struct pool_group *groups;
    struct pool_class *owner;
    _Atomic(uint64_t) *remote_words; // NULL without `remote`
    size_t full_count;               // blocks
};

// A class. Line 0 is what most allocs need, line 1 what the others do, line 3 what others write.
struct pool_class {
    struct mw_pool_lane lane; // lane.reciprocal: 0: divide instead
    struct pool_group *group; // the first on the list of those with room; NULL: exhausted
    uint64_t *room;           // the word of the pool's `room` with this class's bit
    uint64_t room_bit;        // 0 without fallback
    uint64_t bigger;          // the bits of bigger classes there; with fallback alone, else 0
    struct pool_class *first; // the class of that word's bit 0
    uint64_t fallback;
    uint64_t refused;
    uint16_t rank;  // by size
    uint16_t index; // in the configuration
    bool behind;    // bigger classes are to be looked for in the words behind, too

    size_t capacity; // racy reads by others
    struct pool_group *groups; // those of the first memory
    size_t alignment;
    size_t weight;             // of the memory, when more is attached
    struct pool_remote *taken; // the one being collected
    uint64_t taken_bits;       // which of its words are still to be collected
    size_t seen;               // of `remote`, what `headroom` knows of

    _Atomic(struct pool_remote *) posted; // others: groups with remote bits
    _Atomic(size_t) remote;               // others: blocks freed so far
    size_t unused_too[6];
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

// The pool begins at the first byte of its first memory; the direct table of sizes follows it, by
// (size - 1) >> POOL_GRANULE_SHIFT, and then its classes.
struct mw_pool {
    size_t bytes; // of the first memory; 0 with check_owner, so that every free takes the long way
    const uint16_t *map;
    struct pool_area *areas;
    size_t cell_shift;
    size_t direct_count;   // 0 with check_owner, so that every alloc takes the long way
    size_t reach_count;    // full_reach_count; 0 with check_owner or a crowd above 1
    size_t direct_class_count; // class_count; 0 with check_owner
    const uint8_t *ranks;      // rank by index in the configuration

    uint64_t room[POOL_ROOM_WORDS]; // with fallback: bit r: the class of rank r has a group
    uint64_t no_room[POOL_ROOM_WORDS - 1]; // 0: a class looks at this many words behind its own
    const uint8_t *far_shift; // by octave, h: cells of its sizes, 2^h + 1 to 2^(h + 1)

    uint16_t *const *far; // by octave: its cells, less 2^h >> shift; as far as they are needed
    struct pool_class *classes; // by rank
    size_t full_bytes;          // of the first memory
    size_t remote_bytes;        // the same with `remote`, else 0
    uint32_t far_crowd; // classes of sizes beyond the direct table that share a cell, at most
    uint32_t class_count;
    uint32_t last_status;
    bool fallback, remote, check_owner, prefault, lock;
    bool watched; // in debugging: free blocks are hidden
    size_t full_direct_count; // granules of the direct table
    size_t full_reach_count;  // granules of the largest class
    _Atomic(uintptr_t) owner; // with check_owner: the owner's thread pointer
    uint64_t magic;
    _Atomic(uint64_t) posted_room[POOL_ROOM_WORDS]; // with fallback: class r may have posted blocks
    size_t memory_count;
    uintptr_t starts[MW_POOL_MEMORIES_MAX]; // ascending, then UINTPTR_MAX
    struct pool_memory *memories[MW_POOL_MEMORIES_MAX];
};

#define POOL_DIRECT_MAX 2048 // granules
#define POOL_PLACE_SHIFT 3   // tables of sizes hold a class's place in its pool, by 8 bytes

static_assert(sizeof(void *) != 8 || sizeof(struct pool_group) == 32, "half a cache line");
static_assert(sizeof(void *) != 8 || sizeof(struct pool_remote) == 32, "half a cache line");
static_assert(sizeof(void *) != 8 || sizeof(struct pool_area) == 64, "one cache line");
static_assert(sizeof(void *) != 8 || sizeof(struct pool_class) == 256, "four cache lines");
static_assert(sizeof(void *) != 8 || offsetof(struct pool_class, posted) == 192, "others' line");
static_assert(sizeof(void *) != 8 || sizeof(struct pool_memory) == 64, "one cache line");
static_assert(offsetof(struct pool_class, lane) == 0, "a class is found by its lane");
static_assert((sizeof(struct mw_pool) + POOL_DIRECT_MAX * sizeof(uint16_t) + MALLOW_CACHE_LINE +
               MW_POOL_CLASSES_MAX * sizeof(struct pool_class)) >> POOL_PLACE_SHIFT <= UINT16_MAX,
              "an entry of a table of sizes");

MALLOW_INLINE struct pool_class *pool_class_at(const struct mw_pool *pool, size_t rank) {
    return pool->classes + rank;
}

// The direct table.
MALLOW_INLINE uint16_t *pool_direct(const struct mw_pool *pool) {
    return (uint16_t *)((uintptr_t)pool + sizeof(struct mw_pool));
}

// The class of an entry of a table of sizes.
MALLOW_INLINE struct pool_class *pool_class_of(const struct mw_pool *pool, size_t entry) {
    return (struct pool_class *)((uintptr_t)pool + (entry << POOL_PLACE_SHIFT));
}

// ---- Addresses ----------------------------------------------------------------------------------

MALLOW_INLINE struct pool_area *pool_area_in(struct pool_area *areas, const uint16_t *map,
                                             size_t cell, uintptr_t address) {
    struct pool_area *area = (struct pool_area *)((uintptr_t)areas + map[cell]);
    if (unlikely(address >= area[1].start)) {
        area++;
    }
    compiler_forget(area); // of what was loaded: else the usual way takes an instruction more
    return area;
}

// The last memory that begins at or below an address; another one where there is none. Four
// comparisons, each with its own two ways: an instruction less than selecting by one.
MALLOW_INLINE struct pool_memory *pool_memory_of_2(const struct mw_pool *pool, uintptr_t address,
                                                   size_t at) {
    return address >= pool->starts[at + 1] ? pool->memories[at + 1] : pool->memories[at];
}

MALLOW_INLINE struct pool_memory *pool_memory_of_4(const struct mw_pool *pool, uintptr_t address,
                                                   size_t at) {
    return address >= pool->starts[at + 2] ? pool_memory_of_2(pool, address, at + 2)
                                           : pool_memory_of_2(pool, address, at);
}

MALLOW_INLINE struct pool_memory *pool_memory_of_8(const struct mw_pool *pool, uintptr_t address,
                                                   size_t at) {
    return address >= pool->starts[at + 4] ? pool_memory_of_4(pool, address, at + 4)
                                           : pool_memory_of_4(pool, address, at);
}

MALLOW_INLINE struct pool_memory *pool_memory_below(const struct mw_pool *pool,
                                                    uintptr_t address) {
    return address >= pool->starts[8] ? pool_memory_of_8(pool, address, 8)
                                      : pool_memory_of_8(pool, address, 0);
}

// The area of an address in this memory.
MALLOW_INLINE struct pool_area *pool_area_at(const struct pool_memory *memory, uintptr_t address) {
    const size_t cell = (address - memory->start) >> memory->cell_shift;
    struct pool_area *area = (struct pool_area *)((uintptr_t)(memory + 1) + memory->map[cell]);
    if (likely(address >= area[1].start)) { // rather not: the longest way has no jump in it
        area++;
    }
    compiler_forget(area); // as above
    return area;
}

// The area of an address in any memory, or NULL.
MALLOW_INLINE struct pool_area *pool_area_of(const struct mw_pool *pool, uintptr_t address) {
    const struct pool_memory *const memory = pool_memory_below(pool, address);
    return address - memory->start < memory->bytes ? pool_area_at(memory, address) : NULL;
}

// The index of a block by one multiplication; false: the address is no block's start. With
// c = ceil(2^w / d) = (2^w + r) / d, the product (k d + t) c is k 2^w + k r + t c. While
// (k + 1) r < c, which pool_format sees to, its low half is below c iff t is 0, and then its high
// half is k (Lemire, Kaser and Kurz 2019). A reciprocal of 0 fits no address. The index may still
// be beyond the area's blocks.
MALLOW_INLINE bool pool_index_by(const struct pool_area *area, uintptr_t address, size_t *index) {
    const uintptr_t reciprocal = area->reciprocal;
    uintptr_t low;
    *index = bits_multiply_high(address - area->start, reciprocal, &low);
    return low < reciprocal;
}

// The same by division: where blocks are too big for that, above 2^64 / area bytes.
MALLOW_INLINE bool pool_index_divided(const struct pool_area *area, uintptr_t address,
                                      size_t *index) {
    const size_t bytes = area->owner->lane.block_bytes;
    const uintptr_t offset = address - area->start;
    *index = offset / bytes;
    return offset % bytes == 0;
}

// The index of a block in any area, SIZE_MAX if the address is no block's start.
MALLOW_INLINE size_t pool_index_in(const struct pool_area *area, uintptr_t address) {
    size_t index;
    const bool fits = likely(area->reciprocal != 0) ? pool_index_by(area, address, &index)
                                                    : pool_index_divided(area, address, &index);
    return likely(fits && index < area->full_count) ? index : SIZE_MAX;
}

// The part of a block's group that others write.
MALLOW_INLINE struct pool_remote *pool_remote_of(const struct pool_area *area, size_t index) {
    return (struct pool_remote *)(uintptr_t)area->remote_words +
           (ptrdiff_t)~(index >> POOL_GROUP_SHIFT);
}

// Whether others have freed a block, which its owner does not know of yet. Who is not the owner
// asks this before looking at the owner's bit (pool_remote.c).
MALLOW_INLINE bool pool_remote_is_set(const struct pool_area *area, size_t index) {
    const uint64_t bits = atomic_load_explicit(&area->remote_words[index >> POOL_WORD_SHIFT],
                                               memory_order_acquire);
    return (bits >> (index % 64) & 1) != 0;
}

// ---- State --------------------------------------------------------------------------------------
// Words are the owner's, and looked at by others: plain moves, but never torn.

MALLOW_INLINE uint64_t pool_word_get(const uint64_t *word) {
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

MALLOW_INLINE void pool_word_set(uint64_t *word, uint64_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

// Whether a block is free, as its owner sees it or as others have left it.
MALLOW_INLINE bool pool_is_free(const struct pool_area *area, size_t index) {
    if (area->remote_words != NULL && pool_remote_is_set(area, index)) {
        return true;
    }
    const uint64_t word = pool_word_get(&area->words[index >> POOL_WORD_SHIFT]);
    return (word >> (index % 64) & 1) != 0;
}

// What an address in the area is that is no block's start.
MALLOW_INTERNAL enum mw_pool_status pool_misfit(const struct pool_area *area, uintptr_t address);

// Word `word` (modulo 64) of the group was 0 and is not any more.
MALLOW_INLINE void pool_word_filled(struct pool_class *class, struct pool_group *group,
                                    size_t word) {
    uint64_t summary = group->summary;
    if (likely(summary == 0)) { // rather not: the longest way has no jump in it
        struct pool_group *const next = class->group;
        group->next = next;
        class->group = group;
        *class->room |= class->room_bit;
    }
    (void)bits_set_was_set(&summary, word);
    group->summary = summary;
}

// A block is handed out.
MALLOW_INLINE void pool_lane_count(struct mw_pool_lane *lane) {
    if (unlikely(bits_count_down(&lane->headroom))) {
        lane->headroom = 0;
        lane->peak_count++;
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

// Takes a group off the list of those that others have posted; NULL: there is none.
MALLOW_INLINE struct pool_remote *pool_posted_pop(struct pool_class *class) {
    struct pool_remote *head = atomic_load_explicit(&class->posted, memory_order_acquire);
    if (unlikely(head == NULL)) {
        return NULL;
    }
    // Others only push: nobody else can change `next`, or bring the head back, or empty the list.
    while (unlikely(!atomic_compare_exchange_strong(&class->posted, &head, head->next))) {
    }
    if (head == NULL) {
        __builtin_unreachable();
    }
    return head;
}

// In a pool with fallback, after a word has been taken back: brings the class's bits in `room` and
// `posted_room` in line.
MALLOW_INTERNAL void pool_settle_room(struct mw_pool *pool, struct pool_class *class);

// Takes one word of blocks back that others have freed; returns how many, 0: there are none.
MALLOW_INTERNAL size_t pool_collect_word(struct mw_pool *pool, struct pool_class *class);

#endif
