// SPDX-License-Identifier: MIT
// Pool statistics, and questions about pointers. Reads only.
//
// Threads  others read counters that the owner writes plainly: each is exact to within the calls in
//          flight.
#include "pool/pool.h"

// What an address in the area is that is no block's start.
MALLOW_INTERNAL MALLOW_COLD enum mw_pool_status pool_misfit(const struct pool_area *area,
                                                            uintptr_t address) {
    const size_t offset = address - area->start;
    if (address < area->start || offset / area->owner->lane.block_bytes >= area->full_count) {
        return MW_POOL_FOREIGN; // bookkeeping, or what alignment left
    }
    return address % area->owner->alignment == 0 ? MW_POOL_INTERIOR : MW_POOL_MISALIGNED;
}

enum mw_pool_status mw_pool_find(const struct mw_pool *pool, const void *pointer,
                                 size_t *class_index) {
    size_t unused;
    class_index = class_index != NULL ? class_index : &unused;
    *class_index = MW_POOL_NO_CLASS;
    const uintptr_t address = (uintptr_t)pointer;
    const struct pool_area *const area = pool_area_of(pool, address);
    if (area == NULL) {
        return address == 0 ? MW_POOL_NULL_POINTER : MW_POOL_FOREIGN;
    }
    const size_t index = pool_index_in(area, address);
    if (index == SIZE_MAX) {
        const enum mw_pool_status status = pool_misfit(area, address);
        *class_index = status == MW_POOL_FOREIGN ? MW_POOL_NO_CLASS : area->owner->index;
        return status;
    }
    *class_index = area->owner->index;
    return pool_is_free(area, index) ? MW_POOL_DOUBLE_FREE : MW_POOL_OK;
}

size_t mw_pool_usable_size(const struct mw_pool *pool, const void *block) {
    size_t class_index = 0;
    return mw_pool_find(pool, block, &class_index) == MW_POOL_OK
               ? pool_class_at(pool, pool->ranks[class_index])->lane.block_bytes
               : 0;
}

bool mw_pool_owns(const struct mw_pool *pool, const void *pointer) {
    return pool_area_of(pool, (uintptr_t)pointer) != NULL;
}

// ---- Occupancy ----------------------------------------------------------------------------------

static MALLOW_RACY_READ size_t pool_live_count(const struct pool_class *class) {
    const size_t remote = atomic_load_explicit(&class->remote, memory_order_acquire);
    const size_t held = class->lane.peak_count - (size_t)class->lane.headroom + class->seen;
    const ptrdiff_t live = (ptrdiff_t)(held - remote); // all of these move while we read
    return live > 0 ? bits_min((size_t)live, class->capacity) : 0;
}

static MALLOW_RACY_READ void pool_class_stats(const struct pool_class *class,
                                              struct mw_pool_class_stats *to) {
    *to = (struct mw_pool_class_stats){
        .block_bytes = class->lane.block_bytes,
        .capacity_count = class->capacity,
        .used_count = pool_live_count(class),
        .peak_count = bits_min(class->lane.peak_count, class->capacity),
        .refused_count = class->refused,
        .fallback_count = class->fallback,
        .remote_count = atomic_load_explicit(&class->remote, memory_order_relaxed),
    };
}

static MALLOW_RACY_READ size_t pool_capacity(const struct pool_class *class) {
    return class->capacity;
}

size_t mw_pool_used_count(const struct mw_pool *pool, size_t class_index) {
    return class_index < pool->class_count
               ? pool_live_count(pool_class_at(pool, pool->ranks[class_index]))
               : 0;
}

size_t mw_pool_capacity_count(const struct mw_pool *pool, size_t class_index) {
    return class_index < pool->class_count
               ? pool_capacity(pool_class_at(pool, pool->ranks[class_index]))
               : 0;
}

uint32_t mw_pool_occupancy_ppm(const struct mw_pool *pool) {
    uint64_t used = 0, capacity = 0;
    for (size_t rank = 0; rank < pool->class_count; rank++) {
        const struct pool_class *const class = pool_class_at(pool, rank);
        used += (uint64_t)pool_live_count(class) * class->lane.block_bytes;
        capacity += (uint64_t)pool_capacity(class) * class->lane.block_bytes;
    }
    for (; used >> 43 != 0; used /= 2) { // so that the product does not overflow
        capacity /= 2;
    }
    return capacity == 0 ? 0 : (uint32_t)(used * MW_POOL_WHOLE / capacity);
}

size_t mw_pool_stats(const struct mw_pool *pool, struct mw_pool_class_stats *stats, size_t limit) {
    for (size_t i = 0; i < pool->class_count && i < limit; i++) {
        pool_class_stats(pool_class_at(pool, pool->ranks[i]), &stats[i]);
    }
    return pool->class_count;
}
