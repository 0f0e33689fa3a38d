// SPDX-License-Identifier: MIT
// Pool, what its owner does: alloc and free. See pool.h for what holds.
//
// Every path below is bounded, and short: what a call may execute at most is in pool_plan.c, and is
// counted by test/pool.
#include "pool/pool.h"

// ---- Alloc --------------------------------------------------------------------------------------

static void *pool_refuse(struct mw_pool *pool, enum mw_pool_status status) {
    pool->last_status = (uint32_t)status;
    return NULL;
}

// A program without libc may have no thread pointer: there the flag comes first.
static const bool pool_has_threads = __STDC_HOSTED__ != 0;

static bool pool_is_strange(const struct mw_pool *pool) {
    if (!pool_has_threads && !pool->check_owner) {
        return false;
    }
    return atomic_load_explicit(&pool->owner, memory_order_relaxed) != pool_this_thread() &&
           pool->check_owner;
}

// The lowest block of the first group. Its word becomes the lane's, unless nothing is left in it.
MALLOW_INLINE void *pool_take_listed(struct pool_class *class, struct pool_group *group) {
    struct mw_pool_lane *const lane = &class->lane;
    const uint64_t summary = group->summary;
    const uint64_t index = bits_find_lowest(summary);
    uint64_t *const words = group->words;
    const uint64_t value = pool_word_get(&words[index]);
    const uint64_t rest = value & (value - 1);
    const size_t first = index << POOL_WORD_SHIFT;
    pool_word_set(&words[index], rest);
    pool_lane_count(lane);
    if (rest != 0) {
        lane->word = &words[index];
        lane->base = group->base + first * lane->block_bytes;
        return (void *)(lane->base + bits_find_lowest(value) * lane->block_bytes);
    }
    const uintptr_t block =
        group->base + (first + bits_find_lowest(value)) * lane->block_bytes;
    const uint64_t others = summary & (summary - 1);
    group->summary = others;
    if (others == 0) {
        struct pool_group *const next = group->next;
        class->group = next;
        if (next == NULL) {
            *class->room ^= class->room_bit;
        }
    }
    return (void *)block;
}

// The class is exhausted, and neither others' frees nor the classes of its word of `room` can help.
// In a pool with fallback and remote, the bigger classes have not been looked at: one that only
// others' frees speak for may turn out to have none, then the next one.
static MALLOW_COLD void *pool_alloc_bigger(struct mw_pool *pool, struct pool_class *class) {
    const size_t end = (pool->class_count + 63) / 64;
    size_t place = class->rank / 64;
    uint64_t mask = ~UINT64_C(0) << (class->rank % 64) << 1;
    if (!pool->remote) {
        mask = ~UINT64_C(0);
        place++;
    }
    for (; place < end; place++) {
        uint64_t candidates =
            (pool->room[place] |
             atomic_load_explicit(&pool->posted_room[place], memory_order_relaxed)) & mask;
        for (; candidates != 0; candidates &= candidates - 1) {
            struct pool_class *const bigger =
                pool_class_at(pool, place * 64 + bits_find_lowest(candidates));
            if (likely(bigger->group != NULL) || pool_collect_word(pool, bigger) != 0) {
                class->fallback++;
                return pool_take_listed(bigger, bigger->group);
            }
        }
        mask = ~UINT64_C(0);
    }
    class->refused++;
    return pool_refuse(pool, MW_POOL_EXHAUSTED_ALL);
}

static MALLOW_COLD void *pool_alloc_none(struct mw_pool *pool, struct pool_class *class,
                                             bool this_class) {
    const bool any_class = pool->fallback && !this_class;
    if (any_class && (pool->remote || pool->class_count > 64)) {
        return pool_alloc_bigger(pool, class);
    }
    class->refused++;
    return pool_refuse(pool, any_class ? MW_POOL_EXHAUSTED_ALL : MW_POOL_EXHAUSTED);
}

// A block that others have freed, of a class that is exhausted; what lies in the same word comes
// back with it. No block is free by its owner's bits then, so what comes back need not be compared
// with them, nor be counted: once exhausted, the peak is the capacity for good.
MALLOW_INLINE void *pool_take_freed(struct mw_pool *pool, struct pool_class *class,
                                    bool this_class) {
    struct pool_remote *remote;
    uint64_t bits = class->taken_bits;
    if (unlikely(bits != 0)) { // rather not: the other way is the longer one
        remote = class->taken;
    } else {
        remote = pool_posted_pop(class);
        if (remote == NULL) {
            return pool_alloc_none(pool, class, this_class);
        }
        class->taken = remote;
        bits = atomic_exchange_explicit(&remote->summary, 0, memory_order_acq_rel);
    }
    const uint64_t index = bits_find_lowest(bits);
    const uint64_t others = bits & (bits - 1);
    class->taken_bits = others;
    const uint64_t freed = compiler_exchange(remote->words, index, 0);
    struct pool_group *const group = remote->group;
    const uint64_t rest = freed & (freed - 1);
    class->seen++;
    if (likely(rest != 0)) {
        pool_word_set(&group->words[index], rest);
        group->summary = bits ^ others;
        group->next = NULL;
        class->group = group;
    }
    if (unlikely(class->room_bit != 0)) {
        pool_settle_room(pool, class);
    }
    const size_t place = (index << POOL_WORD_SHIFT) + bits_find_lowest(freed);
    return (void *)(group->base + place * class->lane.block_bytes);
}

// A block of the class's list; where there is none, of a bigger class, unless `this_class`, or what
// others have freed.
MALLOW_INLINE void *pool_alloc_listed(struct mw_pool *pool, struct pool_class *class,
                                      bool this_class) {
    struct pool_group *const group = class->group;
    if (likely(group != NULL)) {
        return pool_take_listed(class, group);
    }
    const uint64_t candidates = this_class ? 0 : *class->room & class->bigger;
    if (candidates == 0) {
        return pool_take_freed(pool, class, this_class);
    }
    class->fallback++;
    struct pool_class *const bigger = class->first + bits_find_lowest(candidates);
    return pool_take_listed(bigger, bigger->group);
}

static MALLOW_NOINLINE void *pool_alloc_slow(struct mw_pool *pool, struct pool_class *class) {
    return pool_alloc_listed(pool, class, false);
}

// The same, short where there is a list.
MALLOW_INLINE void *pool_alloc_by_list(struct mw_pool *pool, struct pool_class *class) {
    struct pool_group *const group = class->group;
    return likely(group != NULL) ? pool_take_listed(class, group) : pool_alloc_slow(pool, class);
}

static MALLOW_NOINLINE void *pool_alloc_class_slow(struct mw_pool *pool,
                                                   struct pool_class *class) {
    return pool_alloc_listed(pool, class, true);
}

// A block of the lane's word, unless it is the last one there: then the list changes, too.
MALLOW_INLINE void *pool_take(struct mw_pool *pool, struct pool_class *class, bool this_class) {
    struct mw_pool_lane *const lane = &class->lane;
    uint64_t *const word = lane->word;
    const uint64_t value = pool_word_get(word);
    const uint64_t rest = value & (value - 1);
    if (unlikely(rest == 0)) {
        return this_class ? pool_alloc_class_slow(pool, class) : pool_alloc_slow(pool, class);
    }
    pool_word_set(word, rest);
    pool_lane_count(lane);
    return (void *)(lane->base + bits_find_lowest(value) * lane->block_bytes);
}

MALLOW_INLINE size_t pool_step(const size_t *sizes, size_t rank, size_t half, size_t size) {
    return rank + (sizes[rank + half - 1] < size ? half : 0);
}

// The search among the sizes of one cell but for its last step: of as many steps as the
// configuration has fixed.
static MALLOW_NOINLINE size_t pool_search(const struct mw_pool *pool, size_t rank, size_t size) {
    const size_t *const sizes = pool->sizes;
    switch (pool->far_steps) {
    case 9: rank = pool_step(sizes, rank, 256, size); __attribute__((fallthrough));
    case 8: rank = pool_step(sizes, rank, 128, size); __attribute__((fallthrough));
    case 7: rank = pool_step(sizes, rank, 64, size); __attribute__((fallthrough));
    case 6: rank = pool_step(sizes, rank, 32, size); __attribute__((fallthrough));
    case 5: rank = pool_step(sizes, rank, 16, size); __attribute__((fallthrough));
    case 4: rank = pool_step(sizes, rank, 8, size); __attribute__((fallthrough));
    case 3: rank = pool_step(sizes, rank, 4, size); __attribute__((fallthrough));
    default: return pool_step(sizes, rank, 2, size);
    }
}

// The first class beyond the direct table that holds `size`, which the largest does. A cell of the
// table leads to the first that may; in most configurations it is that one or the next.
MALLOW_INLINE struct pool_class *pool_class_far(const struct mw_pool *pool, size_t size) {
    size_t rank = pool->far[(size - 1) >> pool->far_shift];
    if (unlikely(pool->far_steps > 1)) {
        rank = pool_search(pool, rank, size);
    }
    struct pool_class *const class = pool_class_at(pool, rank);
    return class->lane.block_bytes < size ? class + 1 : class;
}

static MALLOW_NOINLINE void *pool_alloc_checked_far(struct mw_pool *pool, size_t size) {
    return pool_alloc_slow(pool, pool_class_far(pool, size));
}

static MALLOW_COLD void *pool_refuse_size(struct mw_pool *pool, size_t size) {
    return pool_refuse(pool, size == 0 ? MW_POOL_SIZE_ZERO : MW_POOL_SIZE_TOO_BIG);
}

// Where callers are looked at.
static MALLOW_NOINLINE void *pool_alloc_checked(struct mw_pool *pool, size_t size) {
    if (unlikely(pool_is_strange(pool))) {
        return NULL; // last_status is the owner's
    }
    const size_t granule = (size - 1) >> POOL_GRANULE_SHIFT;
    if (likely(granule < pool->full_direct_count)) {
        return pool_alloc_by_list(pool, pool_class_at(pool, pool->direct[granule]));
    }
    return size - 1 < pool->largest_bytes ? pool_alloc_checked_far(pool, size)
                                          : pool_refuse_size(pool, size);
}

// A size beyond the direct table, or 0, or a pool that checks its owner.
static MALLOW_NOINLINE void *pool_alloc_far(struct mw_pool *pool, size_t size) {
    if (unlikely(pool->check_owner)) {
        return pool_alloc_checked(pool, size);
    }
    return likely(size - 1 < pool->largest_bytes)
               ? pool_alloc_by_list(pool, pool_class_far(pool, size))
               : pool_refuse_size(pool, size);
}

MALLOW_FAST void *mw_pool_alloc(struct mw_pool *pool, size_t size) {
    const size_t granule = (size - 1) >> POOL_GRANULE_SHIFT;
    if (unlikely(granule >= pool->direct_count)) {
        return pool_alloc_far(pool, size);
    }
    return pool_take(pool, pool_class_at(pool, pool->direct[granule]), false);
}

enum mw_pool_status mw_pool_last_status(const struct mw_pool *pool) {
    return pool_is_strange(pool) ? MW_POOL_NOT_OWNER : (enum mw_pool_status)pool->last_status;
}

void *mw_pool_alloc_status(struct mw_pool *pool, size_t size, enum mw_pool_status *status) {
    void *const block = mw_pool_alloc(pool, size);
    *status = block != NULL ? MW_POOL_OK : mw_pool_last_status(pool);
    return block;
}

static MALLOW_NOINLINE void *pool_alloc_class_far(struct mw_pool *pool, size_t class_index) {
    if (unlikely(pool_is_strange(pool))) {
        return NULL;
    }
    if (unlikely(class_index >= pool->class_count)) {
        return pool_refuse(pool, MW_POOL_BAD_CLASS_INDEX);
    }
    return pool_take(pool, pool_class_at(pool, pool->ranks[class_index]), true);
}

MALLOW_FAST void *mw_pool_alloc_class(struct mw_pool *pool, size_t class_index) {
    if (unlikely(class_index >= pool->direct_class_count)) {
        return pool_alloc_class_far(pool, class_index);
    }
    return pool_take(pool, pool_class_at(pool, pool->ranks[class_index]), true);
}

// ---- Lanes --------------------------------------------------------------------------------------

struct mw_pool_lane *mw_pool_lane_v1(struct mw_pool *pool, size_t class_index) {
    return class_index < pool->direct_class_count
               ? &pool_class_at(pool, pool->ranks[class_index])->lane
               : NULL;
}

void *mw_pool_take_far(struct mw_pool *pool, struct mw_pool_lane *lane) {
    return pool_alloc_class_slow(pool, (struct pool_class *)lane);
}

// ---- Free ---------------------------------------------------------------------------------------

// The block of this index, unless it is free. `shared`: others may have freed it.
MALLOW_INLINE enum mw_pool_status pool_give_index(struct pool_area *area, size_t index,
                                                  bool shared) {
    const size_t place = index >> POOL_WORD_SHIFT;
    uint64_t *const words = area->words;
    const uint64_t before = pool_word_get(&words[place]);
    uint64_t value = before;
    if (unlikely(bits_set_was_set(&value, index))) {
        return MW_POOL_DOUBLE_FREE;
    }
    if (shared && unlikely(pool_remote_is_set(area, index))) {
        return MW_POOL_DOUBLE_FREE;
    }
    struct pool_class *const class = area->owner;
    pool_word_set(&words[place], value);
    class->lane.headroom++;
    if (unlikely(before == 0)) {
        pool_word_filled(class, &area->groups[index >> POOL_GROUP_SHIFT], place);
        return MW_POOL_OK;
    }
    return MW_POOL_OK;
}

// Beyond the area's blocks; or others may free, and it must be looked whether they have.
MALLOW_INLINE enum mw_pool_status pool_give_shared(struct pool_area *area, uintptr_t block,
                                                   size_t index) {
    return likely(index < area->full_count) ? pool_give_index(area, index, true)
                                            : pool_misfit(area, block);
}

// A block was freed by its lane, the first one in its word.
enum mw_pool_status mw_pool_give_far(struct mw_pool_lane *lane, size_t index) {
    struct pool_class *const class = (struct pool_class *)lane;
    pool_word_filled(class, &class->groups[index >> POOL_GROUP_SHIFT], index >> POOL_WORD_SHIFT);
    return MW_POOL_OK;
}

// No block by its area's reciprocal: where blocks are too big for that it may be one all the same.
static MALLOW_NOINLINE enum mw_pool_status pool_give_divided(struct pool_area *area,
                                                             uintptr_t block) {
    size_t index;
    if (area->reciprocal == 0 && pool_index_divided(area, block, &index) &&
        index < area->full_count) {
        return pool_give_index(area, index, area->remote_words != NULL);
    }
    return pool_misfit(area, block);
}

MALLOW_INLINE enum mw_pool_status pool_give(struct pool_area *area, uintptr_t block) {
    size_t index;
    if (unlikely(!pool_index_by(area, block, &index))) {
        return pool_give_divided(area, block);
    }
    if (unlikely(index >= area->count)) {
        return pool_give_shared(area, block, index);
    }
    return pool_give_index(area, index, false);
}

static MALLOW_NOINLINE enum mw_pool_status pool_free_attached(struct mw_pool *pool,
                                                              uintptr_t address) {
    struct pool_area *const area = pool_area_of(pool, address);
    if (unlikely(area == NULL)) {
        return address == 0 ? MW_POOL_NULL_POINTER : MW_POOL_FOREIGN;
    }
    return pool_give(area, address);
}

static MALLOW_COLD enum mw_pool_status pool_free_strange(struct mw_pool *pool, uintptr_t address) {
    return pool->remote ? mw_pool_free_remote(pool, (void *)address) : MW_POOL_NOT_OWNER;
}

// Not in the first memory, or in a pool that checks its owner.
static MALLOW_NOINLINE enum mw_pool_status pool_free_elsewhere(struct mw_pool *pool,
                                                               uintptr_t address,
                                                               size_t offset) {
    if (unlikely(pool_is_strange(pool))) {
        return pool_free_strange(pool, address);
    }
    if (unlikely(offset >= pool->full_bytes)) {
        return pool_free_attached(pool, address);
    }
    return pool_give(pool_area_in(pool->areas, pool->map, offset >> pool->cell_shift, address),
                     address);
}

MALLOW_FAST enum mw_pool_status mw_pool_free(struct mw_pool *pool, void *block) {
    const uintptr_t address = (uintptr_t)block;
    const size_t offset = address - (uintptr_t)pool;
    if (unlikely(offset >= pool->bytes)) {
        return pool_free_elsewhere(pool, address, offset);
    }
    return pool_give(pool_area_in(pool->areas, pool->map, offset >> pool->cell_shift, address),
                     address);
}
