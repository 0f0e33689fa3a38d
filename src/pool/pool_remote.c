// SPDX-License-Identifier: MIT
// Pool, what other threads do: free a block of it; and how its owner takes such blocks back.
//
// Threads  mw_pool_free_remote: any. The rest: the owner.
// Holds    a remote bit is set from the free until the owner takes its word, whose bits it has set
//          among its own before: so who looks at the remote bit, and then at the owner's, sees that
//          a block is free if it is so all the while;
//          bit w of a remote summary is set by whoever found word w 0, and a group is posted, once,
//          by whoever found its summary 0. The owner takes the group off the list, then the
//          summary, then the words: so a group is on the list once at most, a summary bit that the
//          owner took has a word that is not 0, and a block freed after its word was taken is
//          posted anew.
//
//   other     word |= block --- was 0? ---> summary |= word --- was 0? ---> push group on `posted`
//   owner     pop a group  ---------------> its summary := 0  -> per call: one word := 0, its own
#include "pool/pool.h"

// Pushes a group (Treiber 1986). The owner alone pops, so there is no ABA.
static void pool_post(struct mw_pool *pool, struct pool_class *class, struct pool_remote *remote) {
    struct pool_remote *head = atomic_load_explicit(&class->posted, memory_order_relaxed);
    do {
        remote->next = head;
    } while (!atomic_compare_exchange_weak(&class->posted, &head, remote));
    if (pool->fallback) {
        atomic_fetch_or(&pool->posted_room[class->rank / 64], UINT64_C(1) << (class->rank % 64));
    }
}

static enum mw_pool_status pool_free_remote_again(struct mw_pool *pool, struct pool_area *area,
                                                  size_t index);

MALLOW_INLINE enum mw_pool_status pool_free_remote_index(struct mw_pool *pool,
                                                         struct pool_area *area, size_t index) {
    size_t place = index >> POOL_WORD_SHIFT;
    // By hand: of fetch_or the compiler makes a loop that keeps the mask as well.
    _Atomic(uint64_t) *const word = &area->remote_words[place];
    uint64_t before = atomic_load_explicit(word, memory_order_acquire);
    compiler_forget(place); // else it is multiplied by 8 apart
    // The owner's bits after the others', as it takes these back the other way round.
    uint64_t own = pool_word_get(&area->words[place]);
    uint64_t after = before;
    if (unlikely(bits_set_was_set(&own, index)) || unlikely(bits_set_was_set(&after, index))) {
        return MW_POOL_DOUBLE_FREE;
    }
    if (unlikely(!atomic_compare_exchange_strong(word, &before, after))) {
        return pool_free_remote_again(pool, area, index);
    }
    struct pool_class *const class = area->owner;
    atomic_fetch_add_explicit(&class->remote, 1, memory_order_relaxed);
    if (before != 0) {
        return MW_POOL_OK;
    }
    struct pool_remote *const remote = pool_remote_of(area, index);
    uint64_t summary = atomic_load_explicit(&remote->summary, memory_order_relaxed);
    do {
        after = summary;
        (void)bits_set_was_set(&after, place);
    } while (unlikely(!atomic_compare_exchange_strong(&remote->summary, &summary, after)));
    if (summary == 0) {
        pool_post(pool, class, remote);
    }
    return MW_POOL_OK;
}

// Another block of the word was freed meanwhile.
static MALLOW_COLD enum mw_pool_status pool_free_remote_again(struct mw_pool *pool,
                                                              struct pool_area *area,
                                                              size_t index) {
    return pool_free_remote_index(pool, area, index);
}

// Blocks too big to be found by multiplying; or no block.
static MALLOW_NOINLINE enum mw_pool_status pool_free_remote_divided(struct mw_pool *pool,
                                                                    struct pool_area *area,
                                                                    uintptr_t address) {
    const size_t index = pool_index_in(area, address);
    return index != SIZE_MAX ? pool_free_remote_index(pool, area, index)
                             : pool_misfit(area, address);
}

MALLOW_INLINE enum mw_pool_status pool_give_remote(struct mw_pool *pool, struct pool_area *area,
                                                   uintptr_t address) {
    size_t index;
    if (unlikely(!pool_index_by(area, address, &index) || index >= area->full_count)) {
        return pool_free_remote_divided(pool, area, address);
    }
    return pool_free_remote_index(pool, area, index);
}

// Not in the first memory; or a pool without `remote`.
static MALLOW_NOINLINE enum mw_pool_status pool_free_remote_elsewhere(struct mw_pool *pool,
                                                                      uintptr_t address) {
    if (unlikely(!pool->remote)) {
        return MW_POOL_NOT_SHARED;
    }
    const struct pool_memory *const memory = pool_memory_below(pool, address);
    if (unlikely(address - memory->start >= memory->bytes)) {
        return address == 0 ? MW_POOL_NULL_POINTER : MW_POOL_FOREIGN;
    }
    return pool_give_remote(pool, pool_area_at(memory, address), address);
}

MALLOW_FAST enum mw_pool_status mw_pool_free_remote(struct mw_pool *pool, void *block) {
    const uintptr_t address = (uintptr_t)block;
    const size_t offset = address - (uintptr_t)pool;
    if (unlikely(offset >= pool->remote_bytes)) {
        return pool_free_remote_elsewhere(pool, address);
    }
    return pool_give_remote(
        pool, pool_area_in(pool->areas, pool->map, offset >> pool->cell_shift, address), address);
}

// The class's bit in posted_room is set while it has posted groups, or a taken one with words left;
// it goes before another look at the list, and comes after a push, so that a group which the look
// misses has its bit afterwards.
MALLOW_INTERNAL void pool_settle_room(struct mw_pool *pool, struct pool_class *class) {
    if (class->group != NULL) {
        *class->room |= class->room_bit;
    }
    _Atomic(uint64_t) *const posted = &pool->posted_room[class->rank / 64];
    if (class->taken_bits != 0 || atomic_load(&class->posted) != NULL) {
        return;
    }
    if ((atomic_load_explicit(posted, memory_order_relaxed) & class->room_bit) != 0) {
        atomic_fetch_and(posted, ~class->room_bit);
        if (atomic_load(&class->posted) != NULL) {
            atomic_fetch_or(posted, class->room_bit);
        }
    }
}

static bool pool_take_posted(struct pool_class *class) {
    struct pool_remote *const remote = pool_posted_pop(class);
    if (remote == NULL) {
        return false;
    }
    class->taken = remote;
    class->taken_bits = atomic_exchange_explicit(&remote->summary, 0, memory_order_acq_rel);
    return true;
}

MALLOW_INTERNAL size_t pool_collect_word(struct mw_pool *pool, struct pool_class *class) {
    if (class->taken_bits == 0 && !pool_take_posted(class)) {
        if (class->room_bit != 0) {
            pool_settle_room(pool, class); // its bit came late
        }
        return 0;
    }
    const struct pool_remote *const remote = class->taken;
    const size_t index = bits_find_lowest(class->taken_bits);
    class->taken_bits &= class->taken_bits - 1;
    uint64_t *const word = remote->group->words + index;
    const uint64_t own = pool_word_get(word);
    uint64_t freed = atomic_load_explicit(&remote->words[index], memory_order_relaxed);
    do { // a bit is in both words before it is in the owner's alone
        pool_word_set(word, own | freed);
    } while (unlikely(!atomic_compare_exchange_strong(&remote->words[index], &freed, 0)));
    const size_t count = bits_count(freed & ~own); // a bit in both was freed twice at one time
    class->lane.headroom += (ptrdiff_t)count;
    class->seen += bits_count(freed);
    if (own == 0 && freed != 0) {
        pool_word_filled(class, remote->group, index);
    }
    if (class->room_bit != 0) {
        pool_settle_room(pool, class);
    }
    return count;
}

size_t mw_pool_collect(struct mw_pool *pool, size_t word_limit) {
    size_t count = 0;
    for (size_t rank = 0; rank < pool->class_count; rank++) {
        size_t got = 1;
        while (word_limit > 0 && got != 0) {
            got = pool_collect_word(pool, pool_class_at(pool, rank));
            count += got;
            word_limit -= got != 0;
        }
    }
    return count;
}
