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

static bool pool_is_strange(const struct mw_pool *pool) {
    return pool->check_owner &&
           atomic_load_explicit(&pool->owner, memory_order_relaxed) != pool_this_thread();
}

// The first word of the first group has become 0.
static MALLOW_NOINLINE void *pool_alloc_last(struct pool_class *class, uintptr_t block) {
    struct pool_group *const group = class->group;
    const uint64_t summary = group->summary & (group->summary - 1);
    group->summary = summary;
    if (summary == 0) {
        class->group = group->next;
        if (group->next == NULL) {
            pool_last_set(class, 0); // so that a block does not become hot in an exhausted class
            *class->room &= ~class->room_bit;
        }
    }
    return (void *)block;
}

static void *pool_alloc_exhausted(struct mw_pool *pool, struct pool_class *class);
static void *pool_alloc_exhausted_class(struct mw_pool *pool, struct pool_class *class);

// The block handed out last, if it has been freed; else the lowest block of the first group.
// `this_class`: never of another.
MALLOW_INLINE void *pool_take(struct mw_pool *pool, struct pool_class *class, bool this_class) {
    const uintptr_t last = pool_last_get(class);
    if ((last & POOL_HOT) != 0) {
        pool_last_set(class, last - POOL_HOT);
        class->used++; // no peak: it was not higher than when the block was freed
        return (void *)(last - POOL_HOT);
    }
    const struct pool_group *const group = class->group;
    if (unlikely(group == NULL)) {
        return this_class ? pool_alloc_exhausted_class(pool, class)
                          : pool_alloc_exhausted(pool, class);
    }
    const uint64_t index = bits_find_lowest(group->summary);
    uint64_t *const word = &group->words[index];
    const uint64_t value = pool_word_get(word);
    const uint64_t rest = value & (value - 1);
    const size_t place = (index << POOL_WORD_SHIFT) + bits_find_lowest(value);
    const uintptr_t block = group->base + place * class->block_bytes;
    pool_word_set(word, rest);
    pool_last_set(class, block);
    const size_t used = ++class->used;
    if (used > class->peak) {
        class->peak = used;
    }
    if (unlikely(rest == 0)) {
        return pool_alloc_last(class, block);
    }
    return (void *)block;
}

static MALLOW_NOINLINE void *pool_alloc_from(struct mw_pool *pool, struct pool_class *class) {
    return pool_take(pool, class, false);
}

// The next bigger class with room. A class that only others' frees speak for may turn out to have
// none: then the next one.
static MALLOW_NOINLINE void *pool_alloc_bigger(struct mw_pool *pool, struct pool_class *class) {
    uint64_t mask = ~UINT64_C(0) << (class->rank % 64) << 1;
    for (size_t place = class->rank / 64; place < POOL_ROOM_WORDS; place++) {
        uint64_t candidates = pool->room[place];
        if (unlikely(pool->remote)) {
            candidates |= atomic_load_explicit(&pool->posted_room[place], memory_order_relaxed);
        }
        for (candidates &= mask; candidates != 0; candidates &= candidates - 1) {
            struct pool_class *const bigger =
                &pool->classes[place * 64 + bits_find_lowest(candidates)];
            if (likely(bigger->group != NULL) || pool_collect_word(pool, bigger) != 0) {
                class->fallback++;
                return pool_alloc_from(pool, bigger);
            }
        }
        mask = ~UINT64_C(0);
    }
    class->refused++;
    return pool_refuse(pool, MW_POOL_EXHAUSTED_ALL);
}

static MALLOW_NOINLINE void *pool_alloc_exhausted_class(struct mw_pool *pool,
                                                        struct pool_class *class) {
    if (pool->remote && pool_collect_word(pool, class) != 0) {
        return pool_alloc_from(pool, class);
    }
    class->refused++;
    return pool_refuse(pool, MW_POOL_EXHAUSTED);
}

static MALLOW_NOINLINE void *pool_alloc_exhausted(struct mw_pool *pool, struct pool_class *class) {
    if (!pool->fallback) {
        return pool_alloc_exhausted_class(pool, class);
    }
    if (pool->remote && pool_collect_word(pool, class) != 0) {
        return pool_alloc_from(pool, class);
    }
    return pool_alloc_bigger(pool, class);
}

// The first of the classes beyond the direct table that holds `size`, which the largest does: a
// binary search whose steps are fixed by the number of classes.
MALLOW_INLINE const size_t *pool_step(const size_t *place, size_t half, size_t size) {
    const size_t *const next = place + half;
    return next[-1] < size ? next : place;
}

static size_t pool_search(const size_t *sizes, uint32_t steps, size_t size) {
    const size_t *place = sizes;
    switch (steps) {
    case 8: place = pool_step(place, 128, size); __attribute__((fallthrough));
    case 7: place = pool_step(place, 64, size); __attribute__((fallthrough));
    case 6: place = pool_step(place, 32, size); __attribute__((fallthrough));
    case 5: place = pool_step(place, 16, size); __attribute__((fallthrough));
    case 4: place = pool_step(place, 8, size); __attribute__((fallthrough));
    case 3: place = pool_step(place, 4, size); __attribute__((fallthrough));
    case 2: place = pool_step(place, 2, size); __attribute__((fallthrough));
    case 1: place = pool_step(place, 1, size); __attribute__((fallthrough));
    default: return (size_t)(place - sizes);
    }
}

// Size 0, a size beyond the direct table, or a pool that checks its owner.
static MALLOW_NOINLINE void *pool_alloc_far(struct mw_pool *pool, size_t size) {
    if (unlikely(pool_is_strange(pool))) {
        return NULL; // last_status is the owner's
    }
    if (unlikely(size - 1 >= pool->largest_bytes)) {
        return pool_refuse(pool, size == 0 ? MW_POOL_SIZE_ZERO : MW_POOL_SIZE_TOO_BIG);
    }
    const size_t granule = (size - 1) >> pool->granule_shift;
    const size_t rank = granule < pool->real_direct_count
                            ? pool->direct[granule]
                            : pool->large_rank + pool_search(pool->large, pool->large_steps, size);
    return pool_take(pool, &pool->classes[rank], false);
}

MALLOW_FAST void *mw_pool_alloc(struct mw_pool *pool, size_t size) {
    const size_t granule = (size - 1) >> pool->granule_shift;
    if (unlikely(granule >= pool->direct_count)) {
        return pool_alloc_far(pool, size);
    }
    return pool_take(pool, &pool->classes[pool->direct[granule]], false);
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
    return pool_take(pool, &pool->classes[pool->ranks[class_index]], true);
}

MALLOW_FAST void *mw_pool_alloc_class(struct mw_pool *pool, size_t class_index) {
    if (unlikely(class_index >= pool->direct_class_count)) {
        return pool_alloc_class_far(pool, class_index);
    }
    return pool_take(pool, &pool->classes[pool->ranks[class_index]], true);
}

// ---- Free ---------------------------------------------------------------------------------------

// The block of this index is not free by its bit. `shared`: others may have freed it.
MALLOW_INLINE enum mw_pool_status pool_give_index(struct pool_area *area, size_t index,
                                                  uintptr_t block, bool shared) {
    struct pool_class *const class = area->owner;
    uint64_t *const word = &area->words[index >> POOL_WORD_SHIFT];
    const uint64_t before = pool_word_get(word);
    uint64_t value = before;
    if (unlikely(bits_set_was_set(&value, index))) {
        return MW_POOL_DOUBLE_FREE;
    }
    if (shared && unlikely(pool_remote_is_set(area, index))) {
        return MW_POOL_DOUBLE_FREE;
    }
    const uintptr_t away = pool_last_get(class) - block;
    if (away <= POOL_HOT) {
        if (away == POOL_HOT) {
            return MW_POOL_DOUBLE_FREE;
        }
        class->used--;
        pool_last_set(class, block + POOL_HOT);
        return MW_POOL_OK;
    }
    class->used--;
    pool_word_set(word, value);
    if (unlikely(before == 0)) {
        pool_word_filled(class, &area->groups[index >> POOL_GROUP_SHIFT], index >> POOL_WORD_SHIFT);
    }
    return MW_POOL_OK;
}

// No block by its area's reciprocal: in a pool with `remote`, or with blocks too big for that, it
// may be one all the same.
static MALLOW_NOINLINE enum mw_pool_status pool_give_longer(struct pool_area *area,
                                                            uintptr_t block) {
    if (likely(area->reciprocal == 0)) {
        const size_t index = pool_index_in(area, block);
        if (likely(index != SIZE_MAX)) {
            return pool_give_index(area, index, block, area->remotes != NULL);
        }
    }
    return pool_misfit(area, block);
}

MALLOW_INLINE enum mw_pool_status pool_give(struct pool_area *area, uintptr_t block) {
    const size_t index = pool_index_by(area, area->reciprocal, block);
    if (unlikely(index == SIZE_MAX)) {
        return pool_give_longer(area, block);
    }
    return pool_give_index(area, index, block, false);
}

// Not in the first memory, or in a pool that checks its owner.
static MALLOW_NOINLINE enum mw_pool_status pool_free_elsewhere(struct mw_pool *pool,
                                                               uintptr_t address) {
    if (unlikely(pool_is_strange(pool))) {
        return pool->remote ? mw_pool_free_remote(pool, (void *)address) : MW_POOL_NOT_OWNER;
    }
    struct pool_area *const area = pool_area_of(pool, address);
    if (unlikely(area == NULL)) {
        return address == 0 ? MW_POOL_NULL_POINTER : MW_POOL_FOREIGN;
    }
    return pool_give(area, address);
}

MALLOW_FAST enum mw_pool_status mw_pool_free(struct mw_pool *pool, void *block) {
    const uintptr_t address = (uintptr_t)block;
    const size_t offset = address - (uintptr_t)pool;
    if (unlikely(offset >= pool->bytes)) {
        return pool_free_elsewhere(pool, address);
    }
    return pool_give(pool_area_in(pool->areas, pool->map, offset >> pool->cell_shift, address),
                     address);
}
