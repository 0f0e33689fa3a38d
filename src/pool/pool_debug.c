// SPDX-License-Identifier: MIT
// Pool debug: alloc and free that find writes after free, by a pattern in free blocks, and tell
// tools that watch memory which blocks are free.
//
// Holds    from mw_pool_debug_begin on, while blocks go by these calls alone: every byte of a free
//          block is FREED, unless it was written to since it was freed; and the block is hidden.
#include "pool/pool.h"
#include "pool/pool_watch.h"

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

// What is done at each block of a pool; non-NULL ends the round.
typedef void *debug_function(const struct mw_pool *pool, void *block, size_t bytes, bool is_free);

static void *debug_visit(const struct mw_pool *pool, const struct pool_area *area,
                         debug_function *function) {
    const size_t bytes = area->owner->lane.block_bytes;
    void *found = NULL;
    for (size_t i = 0; i < area->full_count && found == NULL; i++) {
        void *const block = (void *)(area->start + i * bytes);
        found = function(pool, block, bytes, pool_is_free(area, i));
    }
    return found;
}

static void *debug_visit_all(const struct mw_pool *pool, debug_function *function) {
    void *found = NULL;
    for (size_t i = 0; i < pool->memory_count && found == NULL; i++) {
        const struct pool_area *const areas =
            (const struct pool_area *)(uintptr_t)(pool->memories[i] + 1);
        for (size_t place = 0; place < pool->class_count && found == NULL; place++) {
            found = debug_visit(pool, &areas[place], function);
        }
    }
    return found;
}

static void *debug_look(const struct mw_pool *pool, void *block, size_t bytes, bool is_free) {
    (void)pool;
    if (!is_free) {
        return NULL;
    }
    pool_watch_show(block, bytes);
    const bool is_filled = debug_is_filled(block, bytes);
    pool_watch_hide(block, bytes);
    return is_filled ? NULL : block;
}

static void *debug_take_over(const struct mw_pool *pool, void *block, size_t bytes, bool is_free) {
    if (is_free) {
        pool_watch_show(block, bytes); // it may be hidden from an earlier time
        debug_fill(block, bytes, POOL_DEBUG_FREED);
        pool_watch_hide(block, bytes);
    } else {
        pool_watch_mempool_alloc(pool, block, bytes);
        pool_watch_defined(block, bytes);
    }
    return NULL;
}

static void *debug_let_go(const struct mw_pool *pool, void *block, size_t bytes, bool is_free) {
    (void)pool;
    if (is_free) {
        pool_watch_show(block, bytes);
    }
    return NULL;
}

// Filled and hidden before the pool has it: from then on another thread may be given it.
static void debug_hide(const struct mw_pool *pool, void *block) {
    const size_t bytes = mw_pool_usable_size(pool, block);
    if (bytes != 0) {
        debug_fill(block, bytes, POOL_DEBUG_FREED);
        pool_watch_mempool_free(pool, block);
        pool_watch_hide(block, bytes);
    }
}

enum mw_pool_status mw_pool_debug_begin(struct mw_pool *pool) {
    if (!pool_is_valid(pool)) {
        return MW_POOL_NOT_A_POOL;
    }
    pool->watched = true;
    pool_watch_mempool(pool);
    (void)debug_visit_all(pool, debug_take_over);
    return MW_POOL_OK;
}

enum mw_pool_status mw_pool_debug_end(struct mw_pool *pool) {
    if (!pool_is_valid(pool)) {
        return MW_POOL_NOT_A_POOL;
    }
    if (pool->watched) {
        pool_watch_mempool_end(pool);
        (void)debug_visit_all(pool, debug_let_go);
        pool->watched = false;
    }
    return MW_POOL_OK;
}

void *mw_pool_debug_alloc(struct mw_pool *pool, size_t size, enum mw_pool_status *status) {
    if (!pool_is_valid(pool)) {
        *status = MW_POOL_NOT_A_POOL;
        return NULL;
    }
    void *const block = mw_pool_alloc_status(pool, size, status);
    if (block != NULL) {
        const size_t bytes = mw_pool_usable_size(pool, block);
        pool_watch_show(block, bytes);
        *status = debug_is_filled(block, bytes) ? MW_POOL_OK : MW_POOL_WRITTEN_AFTER_FREE;
        debug_fill(block, bytes, POOL_DEBUG_TAKEN);
        pool_watch_mempool_alloc(pool, block, bytes);
    }
    return block;
}

enum mw_pool_status mw_pool_debug_free(struct mw_pool *pool, void *block) {
    if (!pool_is_valid(pool)) {
        return MW_POOL_NOT_A_POOL;
    }
    if (pool->remote || mw_pool_last_status(pool) != MW_POOL_NOT_OWNER) { // else it stays
        debug_hide(pool, block);
    }
    return mw_pool_free(pool, block);
}

enum mw_pool_status mw_pool_debug_free_remote(struct mw_pool *pool, void *block) {
    if (!pool_is_valid(pool)) {
        return MW_POOL_NOT_A_POOL;
    }
    if (pool->remote) {
        debug_hide(pool, block);
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
    *block = debug_visit_all(pool, debug_look);
    return *block == NULL ? MW_POOL_OK : MW_POOL_WRITTEN_AFTER_FREE;
}
