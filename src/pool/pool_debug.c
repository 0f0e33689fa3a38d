// SPDX-License-Identifier: MIT
// Pool debug: alloc and free that find writes after free, by a pattern in free blocks.
//
// Holds    from mw_pool_debug_begin on, while blocks go by these calls alone: every byte of a free
//          block is FREED, unless it was written to since it was freed.
#include "pool/pool.h"

enum { POOL_DEBUG_FREED = 0xdf, POOL_DEBUG_TAKEN = 0xd0 };

static void debug_fill(void *block, size_t bytes, unsigned char byte) {
    unsigned char *const at = block;
    for (size_t i = 0; i < bytes; i++) {
        at[i] = byte;
    }
}

static bool debug_is_filled(const void *block, size_t bytes) {
    const unsigned char *const at = block;
    size_t i = 0;
    while (i < bytes && at[i] == POOL_DEBUG_FREED) {
        i++;
    }
    return i == bytes;
}

// Looks at every free block of the area, or fills it.
static void *debug_visit(const struct pool_area *area, bool fill) {
    const size_t bytes = area->owner->lane.block_bytes;
    for (size_t i = 0; i < area->full_count; i++) {
        void *const block = (void *)(area->start + i * bytes);
        if (!pool_is_free(area, i)) {
            continue;
        }
        if (fill) {
            debug_fill(block, bytes, POOL_DEBUG_FREED);
        } else if (!debug_is_filled(block, bytes)) {
            return block;
        }
    }
    return NULL;
}

static void *debug_visit_all(const struct mw_pool *pool, bool fill) {
    void *found = NULL;
    for (size_t i = 0; i < pool->memory_count && found == NULL; i++) {
        const struct pool_area *const areas =
            (const struct pool_area *)(uintptr_t)(pool->memories[i] + 1);
        for (size_t place = 0; place < pool->class_count && found == NULL; place++) {
            found = debug_visit(&areas[place], fill);
        }
    }
    return found;
}

enum mw_pool_status mw_pool_debug_begin(struct mw_pool *pool) {
    if (!pool_is_valid(pool)) {
        return MW_POOL_NOT_A_POOL;
    }
    (void)debug_visit_all(pool, true);
    return MW_POOL_OK;
}

void *mw_pool_debug_alloc(struct mw_pool *pool, size_t size, enum mw_pool_status *status) {
    void *const block = mw_pool_alloc_status(pool, size, status);
    if (block != NULL) {
        const size_t bytes = mw_pool_usable_size(pool, block);
        *status = debug_is_filled(block, bytes) ? MW_POOL_OK : MW_POOL_WRITTEN_AFTER_FREE;
        debug_fill(block, bytes, POOL_DEBUG_TAKEN);
    }
    return block;
}

enum mw_pool_status mw_pool_debug_free(struct mw_pool *pool, void *block) {
    if (pool->remote || mw_pool_last_status(pool) != MW_POOL_NOT_OWNER) { // else it stays
        debug_fill(block, mw_pool_usable_size(pool, block), POOL_DEBUG_FREED);
    }
    return mw_pool_free(pool, block);
}

enum mw_pool_status mw_pool_debug_free_remote(struct mw_pool *pool, void *block) {
    if (pool->remote) {
        debug_fill(block, mw_pool_usable_size(pool, block), POOL_DEBUG_FREED);
    }
    return mw_pool_free_remote(pool, block);
}

enum mw_pool_status mw_pool_debug_check(const struct mw_pool *pool, void **block) {
    if (!pool_is_valid(pool)) {
        return MW_POOL_NOT_A_POOL;
    }
    if (block == NULL) {
        return MW_POOL_NULL_ARGUMENT;
    }
    *block = debug_visit_all(pool, false);
    return *block == NULL ? MW_POOL_OK : MW_POOL_WRITTEN_AFTER_FREE;
}
