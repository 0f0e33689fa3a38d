// SPDX-License-Identifier: MIT
// mallow: pools without a call. Alloc and free of one class, inlined into the program.
//
// A *lane* is the part of a pool that the typical alloc and free of one class need. Where the class
// is known when the program is written, mw_pool_take and mw_pool_give do what mw_pool_alloc_class
// and mw_pool_free do, with the same checks and the same answers, in some ten and twenty
// instructions without a call; what is not typical goes to the library. Both ways may be mixed on
// one pool, block by block.
//
//     struct mw_pool_lane *lane = mw_pool_lane_of(pool, 0);     // once
//     struct message *message = mw_pool_take(pool, lane);
//     if (mw_pool_give(pool, lane, message) != MW_POOL_OK) ...
//
// Threads, cost and errors are those of the calls of mallow/pool.h that they stand for. The layout
// of a lane is an interface between the compiled program and the library: it has a number, which is
// part of the name of the function that gives lanes out, so that a program never meets a library
// with another one.
#ifndef MALLOW_POOL_LANE_H
#define MALLOW_POOL_LANE_H

#include <mallow/pool.h>

#ifdef __cplusplus
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast" // clang's: to g++ what is extern "C" may have C's
extern "C" {
#endif

// Owned by the pool; for the functions below alone.
struct mw_pool_lane {
    uint64_t *word;      // bits of free blocks: where the next ones come from
    uintptr_t base;      // address of the block of its bit 0
    size_t block_bytes;
    ptrdiff_t headroom;  // peak_count less live blocks, as the owner sees them
    size_t peak_count;   // the most that were live at once
    uintptr_t start;     // first block of the class in the pool's first memory
    uintptr_t reciprocal; // ceil(2^w / block_bytes), w the bits of a pointer
    size_t block_count;  // blocks from there on that mw_pool_give may free; 0: it may none
    uint64_t *words;     // their bits
};

// The lane of a class, by its index in the configuration; NULL: there is no such class, or the pool
// has `check_owner`, whose every call must look. It stays valid until the pool's end.
MW_API struct mw_pool_lane *mw_pool_lane_v1(struct mw_pool *pool, size_t class_index);

static inline struct mw_pool_lane *mw_pool_lane_of(struct mw_pool *pool, size_t class_index) {
    return mw_pool_lane_v1(pool, class_index);
}

// The rest of mw_pool_take and mw_pool_give: not to be called by programs.
MW_API void *mw_pool_take_far(struct mw_pool *pool, struct mw_pool_lane *lane);
MW_API enum mw_pool_status mw_pool_give_far(struct mw_pool_lane *lane, size_t index);

// mw_pool_take: a block of the lane's class, as mw_pool_alloc_class.
// mw_pool_give: frees a block of this class, or of any, as mw_pool_free.
#if defined(__GNUC__) && defined(__SIZEOF_INT128__)
__extension__ typedef unsigned __int128 mw_pool_two_words;

MW_MUST_USE static inline void *mw_pool_take(struct mw_pool *pool, struct mw_pool_lane *lane) {
    const uint64_t value = __atomic_load_n(lane->word, __ATOMIC_RELAXED);
    const uint64_t rest = value & (value - 1);
    if (__builtin_expect(rest == 0, 0)) { // the last one: bookkeeping is due
        return mw_pool_take_far(pool, lane);
    }
    __atomic_store_n(lane->word, rest, __ATOMIC_RELAXED);
    if (__builtin_expect(--lane->headroom < 0, 0)) {
        lane->headroom = 0;
        lane->peak_count++;
    }
    return (void *)(lane->base + (size_t)__builtin_ctzll(value) * lane->block_bytes);
}

static inline enum mw_pool_status mw_pool_give(struct mw_pool *pool, struct mw_pool_lane *lane,
                                               void *block) {
    const uintptr_t offset = (uintptr_t)block - lane->start;
    const mw_pool_two_words product = (mw_pool_two_words)offset * lane->reciprocal;
    const size_t index = (size_t)(product >> 64);
    if (__builtin_expect((uint64_t)product < lane->reciprocal && index < lane->block_count, 1)) {
        uint64_t *word = &lane->words[index / 64], *const at_hand = lane->word;
        if (__builtin_expect(word == at_hand, 1)) { // the same, but known before the index is:
            word = at_hand;                         // what is freed at once is there, and the next
            __asm__("" : "+r"(word));               // take need not wait for where it went to
        }
        const uint64_t before = __atomic_load_n(word, __ATOMIC_RELAXED);
        const uint64_t bit = (uint64_t)1 << (index % 64);
        if (__builtin_expect((before & bit) == 0, 1)) {
            __atomic_store_n(word, before | bit, __ATOMIC_RELAXED);
            lane->headroom++;
            return __builtin_expect(before != 0, 1) ? MW_POOL_OK : mw_pool_give_far(lane, index);
        }
    }
    return mw_pool_free(pool, block);
}
#else
MW_MUST_USE static inline void *mw_pool_take(struct mw_pool *pool, struct mw_pool_lane *lane) {
    return mw_pool_take_far(pool, lane);
}

static inline enum mw_pool_status mw_pool_give(struct mw_pool *pool, struct mw_pool_lane *lane,
                                               void *block) {
    (void)lane;
    return mw_pool_free(pool, block);
}
#endif

#ifdef __cplusplus
}
#pragma GCC diagnostic pop
#endif

#endif
