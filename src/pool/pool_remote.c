// SPDX-License-Identifier: MIT
// Pool, what other threads do: free a block of it; and how its owner takes such blocks back.
//
// Threads  mw_pool_free_remote: any. The rest: the owner.
// Holds    a remote bit is set from the free until the owner takes its word by exchange;
//          bit w of a remote summary is set by whoever found word w 0, and a group is posted, once,
//          by whoever found its summary 0. The owner takes the group off its list, then the
//          summary, then the words: so a group is on one list at most, a summary bit that the owner
//          took has a word that is not 0, and a block freed after its word was taken is posted
//          anew.
//
//   other     word |= block --- was 0? ---> summary |= word --- was 0? ---> push group on `posted`
//   owner     posted := NULL  -> per group: summary := 0  -> per call: one word := 0, into its own
#include "pool/pool.h"

// Pushes a group (Treiber 1986). The owner takes the whole list, so there is no ABA.
static void pool_post(struct mw_pool *pool, struct pool_class *class, struct pool_remote *remote) {
    struct pool_remote *head = atomic_load_explicit(&class->posted, memory_order_relaxed);
    do {
        remote->next = head;
    } while (!atomic_compare_exchange_weak(&class->posted, &head, remote));
    if (pool->fallback) {
        atomic_fetch_or(&pool->posted_room[class->rank / 64], UINT64_C(1) << (class->rank % 64));
    }
}

enum mw_pool_status mw_pool_free_remote(struct mw_pool *pool, void *block) {
    const uintptr_t address = (uintptr_t)block;
    if (unlikely(!pool->remote)) {
        return MW_POOL_NOT_SHARED;
    }
    struct pool_area *const area = pool_area_of(pool, address);
    if (unlikely(area == NULL)) {
        return address == 0 ? MW_POOL_NULL_POINTER : MW_POOL_FOREIGN;
    }
    const size_t index = pool_index_in(area, address);
    if (unlikely(index == SIZE_MAX)) {
        return pool_misfit(area, address);
    }
    if (unlikely(pool_is_free(area, index, address))) {
        return MW_POOL_DOUBLE_FREE;
    }
    struct pool_remote *const remote = &area->remotes[index >> POOL_GROUP_SHIFT];
    const size_t word = (index >> POOL_WORD_SHIFT) % POOL_GROUP_WORDS;
    const uint64_t bit = UINT64_C(1) << (index % 64);
    const uint64_t before =
        atomic_fetch_or_explicit(&remote->words[word], bit, memory_order_acq_rel);
    if (unlikely((before & bit) != 0)) {
        return MW_POOL_DOUBLE_FREE;
    }
    atomic_fetch_add_explicit(&area->owner->remote, 1, memory_order_relaxed);
    if (before == 0 && atomic_fetch_or_explicit(&remote->summary, UINT64_C(1) << word,
                                                memory_order_acq_rel) == 0) {
        pool_post(pool, area->owner, remote);
    }
    return MW_POOL_OK;
}

// Takes the list that others have posted; NULL: nothing. The bit in posted_room goes before the
// look at the list, and comes after the push: a group that the look misses has its bit afterwards.
static struct pool_remote *pool_take_list(struct mw_pool *pool, struct pool_class *class) {
    const uint64_t bit = UINT64_C(1) << (class->rank % 64);
    _Atomic(uint64_t) *const room = &pool->posted_room[class->rank / 64];
    if ((atomic_load_explicit(room, memory_order_relaxed) & bit) != 0) {
        atomic_fetch_and(room, ~bit);
    }
    if (atomic_load(&class->posted) == NULL) {
        return NULL;
    }
    if (pool->fallback) {
        atomic_fetch_or_explicit(room, bit, memory_order_relaxed); // until nothing is left of it
    }
    return atomic_exchange_explicit(&class->posted, NULL, memory_order_acquire);
}

// The next group that others have posted becomes the one being collected.
static bool pool_take_posted(struct mw_pool *pool, struct pool_class *class) {
    struct pool_remote *remote = class->taken_list;
    if (remote == NULL && (remote = pool_take_list(pool, class)) == NULL) {
        return false;
    }
    class->taken_list = remote->next; // before the summary: with that, it may be posted again
    class->taken = remote;
    class->taken_bits = atomic_exchange_explicit(&remote->summary, 0, memory_order_acq_rel);
    return true;
}

MALLOW_INTERNAL size_t pool_collect_word(struct mw_pool *pool, struct pool_class *class) {
    if (class->taken_bits == 0 && !pool_take_posted(pool, class)) {
        return 0;
    }
    const struct pool_remote *const remote = class->taken;
    const size_t index = bits_find_lowest(class->taken_bits);
    class->taken_bits &= class->taken_bits - 1;
    uint64_t *const word = remote->group->words + index;
    const uint64_t own = pool_word_get(word);
    const uint64_t freed =
        atomic_exchange_explicit(&remote->words[index], 0, memory_order_acquire);
    const size_t count = bits_count(freed & ~own); // a bit in both was freed twice at one time
    if ((pool_last_get(class) & POOL_HOT) == 0) {
        pool_last_set(class, 0); // it may be among these
    }
    class->used -= count;
    class->collected += bits_count(freed);
    pool_word_set(word, own | freed);
    if (own == 0 && freed != 0) {
        pool_word_filled(class, remote->group, index);
    }
    return count;
}

size_t mw_pool_collect(struct mw_pool *pool, size_t word_limit) {
    size_t count = 0;
    for (size_t rank = 0; rank < pool->class_count; rank++) {
        size_t got = 1;
        while (word_limit > 0 && got != 0) {
            got = pool_collect_word(pool, &pool->classes[rank]);
            count += got;
            word_limit -= got != 0;
        }
    }
    return count;
}
