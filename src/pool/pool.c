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
    uint64_t index = bits_find_lowest(summary);
    uint64_t *const words = group->words;
    const uint64_t value = pool_word_get(&words[index]);
    compiler_forget(index); // here and below: else the word's address is computed apart
    const uint64_t rest = value & (value - 1);
    pool_word_set(&words[index], rest);
    if (unlikely(rest != 0)) {
        bits_count_down_or_up(&lane->headroom, &lane->peak_count);
        compiler_forget(index);
        lane->word = &words[index];
        lane->base = group->base + (index << POOL_WORD_SHIFT) * lane->block_bytes;
        return (void *)(lane->base + bits_find_lowest(value) * lane->block_bytes);
    }
    bits_count_down_or_up(&lane->headroom, &lane->peak_count);
    const uint64_t place = (index << POOL_WORD_SHIFT) + bits_find_lowest(value);
    const uintptr_t block = group->base + place * lane->block_bytes;
    const uint64_t others = summary & (summary - 1);
    group->summary = others;
    if (likely(others == 0)) {
        struct pool_group *const next = group->next;
        class->group = next;
        if (likely(next == NULL)) {
            *class->room ^= class->room_bit;
        }
    }
    return (void *)block;
}

static MALLOW_COLD void *pool_refuse_all(struct mw_pool *pool, struct pool_class *class) {
    class->refused++;
    return pool_refuse(pool, MW_POOL_EXHAUSTED_ALL);
}

// In a pool with fallback and remote: the classes above that have groups, or that others' frees
// speak for; one of these may turn out to have none, then the next one.
static MALLOW_COLD void *pool_alloc_bigger(struct mw_pool *pool, struct pool_class *class) {
    uint64_t mask = ~UINT64_C(0) << (class->rank % 64) << 1;
    for (size_t place = class->rank / 64; place < POOL_ROOM_WORDS; place++) {
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
    return pool_refuse_all(pool, class);
}

static MALLOW_COLD void *pool_alloc_none(struct mw_pool *pool, struct pool_class *class,
                                             bool this_class) {
    const bool any_class = pool->fallback && !this_class;
    if (any_class && pool->remote) {
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
    uint64_t bits;
    if (unlikely(class->taken_bits != 0)) { // rather not: the other way is the longer one
        compiler_forget(class);             // which this one is to load its bits for itself
        remote = class->taken;
        bits = class->taken_bits;
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
    bits ^= others;
    compiler_forget(bits); // here and below: else there are too few registers
    struct pool_group *const group = remote->group;
    _Atomic(uint64_t) *words = remote->words;
    compiler_forget(words);
    const uint64_t freed = atomic_load_explicit(&words[index], memory_order_relaxed);
    const uint64_t rest = freed & (freed - 1);
    class->seen++;
    if (likely(rest != 0)) {
        pool_word_set(&group->words[index], rest);
        group->summary = bits;
        compiler_clear(group->next);
        class->group = group;
    }
    if (unlikely(!compiler_take_all(words, index, freed))) {
        class->taken_bits |= UINT64_C(1) << index; // more was freed just now: another time
    }
    if (unlikely(class->room_bit != 0)) {
        pool_settle_room(pool, class);
    }
    const size_t place = (index << POOL_WORD_SHIFT) + bits_find_lowest(freed);
    return (void *)(group->base + place * class->lane.block_bytes);
}

// The class of the lowest bit in a word of `room`, which comes `words` behind that of `class`.
MALLOW_INLINE struct pool_class *pool_class_behind(const struct pool_class *class, uint64_t bits,
                                                   size_t words) {
    compiler_forget(class); // else what it says is loaded ahead, into one more register
    struct pool_class *bigger = class->first + bits_find_lowest(bits);
    compiler_forget(bigger);
    return bigger + words * 64;
}

// The class is exhausted, and so are the bigger ones of its word of `room`: the other words.
MALLOW_INLINE void *pool_take_behind(struct mw_pool *pool, struct pool_class *class) {
    const uint64_t *room = class->room;
    struct pool_class *bigger;
    if (unlikely(room[1] != 0)) {
        compiler_forget(room); // that a word is compared in memory, and loaded when it is the one
        bigger = pool_class_behind(class, room[1], 1);
    } else if (unlikely(room[2] != 0)) {
        compiler_forget(room);
        bigger = pool_class_behind(class, room[2], 2);
    } else {
        const uint64_t bits = room[3];
        if (unlikely(bits == 0)) {
            return pool_refuse_all(pool, class);
        }
        bigger = pool_class_behind(class, bits, 3);
    }
    class->fallback++;
    return pool_take_listed(bigger, bigger->group);
}

// A block for a class that is exhausted: of the next bigger class with room, unless `this_class`,
// or what others have freed. With `remote` these speak for bigger classes, too: `bigger` is 0 then.
MALLOW_INLINE void *pool_take_elsewhere(struct mw_pool *pool, struct pool_class *class,
                                        bool this_class) {
    const uint64_t bits = this_class ? 0 : *class->room & class->bigger;
    if (likely(bits != 0)) {
        class->fallback++;
        struct pool_class *const bigger = pool_class_behind(class, bits, 0);
        return pool_take_listed(bigger, bigger->group);
    }
    return !this_class && class->behind ? pool_take_behind(pool, class)
                                        : pool_take_freed(pool, class, this_class);
}

// A block of the class's list, or from elsewhere.
MALLOW_INLINE void *pool_alloc_slow(struct mw_pool *pool, struct pool_class *class) {
    struct pool_group *const group = class->group;
    return likely(group != NULL) ? pool_take_listed(class, group)
                                 : pool_take_elsewhere(pool, class, false);
}

static MALLOW_NOINLINE void *pool_alloc_elsewhere(struct mw_pool *pool, struct pool_class *class) {
    return pool_take_elsewhere(pool, class, false);
}

// The same as pool_alloc_slow, inlined as far as the list goes.
MALLOW_INLINE void *pool_alloc_by_list(struct mw_pool *pool, struct pool_class *class) {
    struct pool_group *const group = class->group;
    return likely(group != NULL) ? pool_take_listed(class, group)
                                 : pool_alloc_elsewhere(pool, class);
}

static MALLOW_NOINLINE void *pool_alloc_class_slow(struct mw_pool *pool,
                                                   struct pool_class *class) {
    struct pool_group *const group = class->group;
    return likely(group != NULL) ? pool_take_listed(class, group)
                                 : pool_take_elsewhere(pool, class, true);
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

// A size beyond the direct table, which the largest class holds: the smallest class that ends in
// its cell, or the next one, or in a crowded cell one of the next.
MALLOW_INLINE struct pool_class *pool_class_far(const struct mw_pool *pool, size_t size,
                                                bool crowded) {
    const size_t last = size - 1, octave = bits_highest(last);
    size_t entry = pool->far[octave][last >> pool->far_shift[octave]];
    if (unlikely(pool_class_of(pool, entry)->lane.block_bytes >= size)) {
        compiler_forget(entry); // here and below: else the address is computed before it is needed
        return pool_class_of(pool, entry);
    }
    compiler_forget(entry); // rather not: the other way is the longer one
    struct pool_class *class = pool_class_of(pool, entry) + 1;
    if (crowded && unlikely(class->lane.block_bytes < size)) {
        do {
            class++;
        } while (class->lane.block_bytes < size);
    }
    return class;
}

static MALLOW_COLD void *pool_refuse_size(struct mw_pool *pool, size_t size) {
    return pool_refuse(pool, size == 0 ? MW_POOL_SIZE_ZERO : MW_POOL_SIZE_TOO_BIG);
}

// No size that there is; or a pool that checks its owner, or has crowded cells.
static MALLOW_NOINLINE void *pool_alloc_odd(struct mw_pool *pool, size_t size, size_t granule) {
    if (unlikely(pool_is_strange(pool))) {
        return NULL; // last_status is the owner's
    }
    if (likely(granule < pool->full_direct_count)) {
        return pool_alloc_by_list(pool, pool_class_of(pool, pool_direct(pool)[granule]));
    }
    return likely(granule < pool->full_reach_count)
               ? pool_alloc_by_list(pool, pool_class_far(pool, size, true))
               : pool_refuse_size(pool, size);
}

// A size beyond the direct table, or 0, or an odd pool.
static MALLOW_NOINLINE void *pool_alloc_far(struct mw_pool *pool, size_t size, size_t granule) {
    return likely(granule < pool->reach_count)
               ? pool_alloc_by_list(pool, pool_class_far(pool, size, false))
               : pool_alloc_odd(pool, size, granule);
}

MALLOW_FAST void *mw_pool_alloc(struct mw_pool *pool, size_t size) {
    const size_t granule = (size - 1) >> POOL_GRANULE_SHIFT;
    if (unlikely(granule >= pool->direct_count)) {
        return pool_alloc_far(pool, size, granule);
    }
    return pool_take(pool, pool_class_of(pool, pool_direct(pool)[granule]), false);
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
        enum mw_pool_status status = MW_POOL_OK;
        compiler_forget(status); // else the longest way has a jump in it, to the other end
        return status;
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
    if (unlikely(area->reciprocal != 0 || !pool_index_divided(area, block, &index))) {
        return pool_misfit(area, block);
    }
    return likely(index < area->count) ? pool_give_index(area, index, false)
                                       : pool_give_shared(area, block, index);
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

MALLOW_INLINE enum mw_pool_status pool_free_attached(struct mw_pool *pool,
                                                              uintptr_t address) {
    const struct pool_memory *const memory = pool_memory_below(pool, address);
    if (unlikely(address - memory->start >= memory->bytes)) {
        return address == 0 ? MW_POOL_NULL_POINTER : MW_POOL_FOREIGN;
    }
    return pool_give(pool_area_at(memory, address), address);
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
    if (likely(offset >= pool->full_bytes)) {
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
