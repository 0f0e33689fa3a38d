// SPDX-License-Identifier: MIT
// Pool host: pools in memory that the kernel is asked for, once. Not in the freestanding library.
//
// Holds    one mmap makes a pool, one munmap ends it; what fails in between is undone.
#include "os/cgroup.h"
#include "os/os.h"
#include "os/os_pages.h"
#include "pool/pool_create.h"
#include "pool/pool_set.h"

// Memory for a pool: the caller's, or a mapping.
struct pool_range {
    uintptr_t start; // aligned as the pool needs it
    size_t bytes;
    uintptr_t mapping; // 0: the caller's
    size_t mapping_bytes;
};

static bool pool_map(struct pool_range *range, size_t bytes, size_t alignment) {
    struct os os = {.page_bytes = os_page_size()};
    const size_t slack = alignment > os.page_bytes ? alignment : 0;
    if (bytes > PTRDIFF_MAX - slack - os.page_bytes) {
        return false;
    }
    range->bytes = bytes;
    range->mapping_bytes = bits_align_up(bytes + slack, os.page_bytes);
    range->mapping = os_map(&os, range->mapping_bytes, os.page_bytes);
    range->start = bits_align_up(range->mapping, alignment);
    return range->mapping != 0;
}

static bool pool_unmap(uintptr_t mapping, size_t mapping_bytes) {
    struct os os = {.page_bytes = os_page_size()};
    return mapping == 0 || os_unmap(&os, mapping, mapping_bytes);
}

// Whole pages of the range: of a mapping all; of the caller's memory those that it touches.
static void pool_pages(const struct pool_range *range, uintptr_t *first, size_t *bytes) {
    const size_t page = os_page_size();
    *first = bits_align_down(range->start, page);
    *bytes = bits_align_up(range->start + range->bytes, page) - *first;
}

static enum mw_pool_status pool_bring_in(const struct pool_range *range, bool prefault, bool lock) {
    uintptr_t first = 0;
    size_t bytes = 0;
    pool_pages(range, &first, &bytes);
    if (lock && !os_lock_pages(first, bytes)) {
        if (range->mapping == 0) { // it may have locked a part
            (void)os_unlock_pages(first, bytes);
        }
        return MW_POOL_LOCK_FAILED;
    }
    if (prefault && !lock && !os_prefault(first, bytes)) {
        return MW_POOL_PREFAULT_FAILED;
    }
    return MW_POOL_OK;
}

// Whether there is memory for it: the kernel would not refuse, but kill. What the caller's memory
// has in already cannot be known. No root but the system's: this layer knows no options.
static bool pool_is_to_be_had(const struct mw_pool_config *config, size_t bytes) {
    return config->memory != NULL || !(config->prefault || config->lock) ||
           bytes < OS_SPARED_BYTES || os_fits(bytes, os_free_bytes(""));
}

// Where a pool or a set is to lie: the caller's memory, or a new mapping; brought in.
static enum mw_pool_status pool_range_get(const struct mw_pool_config *config, size_t bytes,
                                          size_t alignment, struct pool_range *range) {
    *range = (struct pool_range){.start = (uintptr_t)config->memory, .bytes = bytes};
    if (!pool_is_to_be_had(config, bytes)) {
        return MW_POOL_PREFAULT_FAILED;
    }
    if (config->memory == NULL && !pool_map(range, bytes, alignment)) {
        return MW_POOL_MAP_FAILED;
    }
    const enum mw_pool_status status = pool_bring_in(range, config->prefault, config->lock);
    if (status != MW_POOL_OK) {
        (void)pool_unmap(range->mapping, range->mapping_bytes);
    }
    return status;
}

enum mw_pool_status mw_pool_create(const struct mw_pool_config *config, struct mw_pool **pool,
                                   size_t *problem_class) {
    pool_create_none(pool, problem_class);
    if (config == NULL || pool == NULL) {
        return MW_POOL_NULL_ARGUMENT;
    }
    struct mw_pool_planned plan;
    enum mw_pool_status status = mw_pool_plan(config, &plan, NULL);
    if (problem_class != NULL) {
        *problem_class = plan.problem_class;
    }
    if (status != MW_POOL_OK) {
        return status;
    }
    struct pool_range range;
    status = pool_range_get(config, plan.pool_bytes, plan.alignment_bytes, &range);
    if (status != MW_POOL_OK) {
        return status;
    }
    struct mw_pool_config placed = *config;
    placed.memory = (void *)range.start;
    status = pool_create_checked(&placed, pool, NULL);
    if (status != MW_POOL_OK) { // never: it has been planned
        (void)pool_unmap(range.mapping, range.mapping_bytes);
        return status;
    }
    (*pool)->memories[0]->mapping = (void *)range.mapping;
    (*pool)->memories[0]->mapping_bytes = range.mapping_bytes;
    return MW_POOL_OK;
}

enum mw_pool_status mw_pool_grow(struct mw_pool *pool, size_t memory_bytes) {
    struct pool_layout layout;
    enum mw_pool_status status = pool_attach_layout(pool, memory_bytes, &layout);
    if (status != MW_POOL_OK) {
        return status;
    }
    const struct mw_pool_config config = {.prefault = pool->prefault, .lock = pool->lock};
    struct pool_range range;
    status = pool_range_get(&config, memory_bytes, layout.alignment, &range);
    if (status != MW_POOL_OK) {
        return status;
    }
    struct pool_memory *const memory =
        pool_attach_formatted(pool, &layout, range.start, memory_bytes);
    memory->mapping = (void *)range.mapping;
    memory->mapping_bytes = range.mapping_bytes;
    return MW_POOL_OK;
}

static bool pool_give_up(const struct pool_memory *memory, bool locked) {
    const struct pool_range range = {.start = memory->start, .bytes = memory->given_bytes};
    if (memory->mapping != NULL) {
        return pool_unmap((uintptr_t)memory->mapping, memory->mapping_bytes);
    }
    uintptr_t first = 0;
    size_t bytes = 0;
    pool_pages(&range, &first, &bytes);
    return !locked || os_unlock_pages(first, bytes);
}

enum mw_pool_status mw_pool_destroy(struct mw_pool *pool) {
    if (!pool_is_valid(pool)) {
        return MW_POOL_NOT_A_POOL;
    }
    (void)mw_pool_debug_end(pool);
    const bool locked = pool->lock; // what was attached may be so too, but not by us
    struct pool_memory memories[MW_POOL_MEMORIES_MAX]; // the pool goes with one of them
    const size_t count = pool->memory_count;
    for (size_t i = 0; i < count; i++) {
        memories[i] = *pool->memories[i];
    }
    pool->magic = 0;
    bool all = true;
    for (size_t i = 0; i < count; i++) {
        all = pool_give_up(&memories[i], locked && memories[i].start == (uintptr_t)pool) && all;
    }
    return all ? MW_POOL_OK : MW_POOL_UNMAP_FAILED;
}

enum mw_pool_status mw_pool_set_create(const struct mw_pool_config *config, size_t pool_count,
                                       struct mw_pool_set **set) {
    if (set != NULL) {
        *set = NULL;
    }
    if (config == NULL || set == NULL) {
        return MW_POOL_NULL_ARGUMENT;
    }
    size_t bytes = 0, alignment = 0;
    enum mw_pool_status status = mw_pool_set_plan(config, pool_count, &bytes, &alignment);
    if (status != MW_POOL_OK) {
        return status;
    }
    struct pool_range range;
    status = pool_range_get(config, bytes, alignment, &range);
    if (status != MW_POOL_OK) {
        return status;
    }
    struct mw_pool_config placed = *config;
    placed.memory = (void *)range.start;
    status = pool_set_create_checked(&placed, pool_count, set);
    if (status != MW_POOL_OK) {
        (void)pool_unmap(range.mapping, range.mapping_bytes);
        return status;
    }
    (*set)->mapping = (void *)range.mapping;
    (*set)->mapping_bytes = range.mapping_bytes;
    (*set)->lock = config->lock;
    return MW_POOL_OK;
}

// What a pool of a set has grown by lies apart from the set.
static bool pool_give_up_grown(const struct mw_pool *pool) {
    bool all = true;
    for (size_t i = 0; pool_is_valid(pool) && i < pool->memory_count; i++) {
        const struct pool_memory memory = *pool->memories[i]; // a copy: it goes with itself
        all = pool_give_up(&memory, false) && all;
    }
    return all;
}

enum mw_pool_status mw_pool_set_destroy(struct mw_pool_set *set) {
    if (set == NULL || set->magic != POOL_SET_MAGIC) {
        return MW_POOL_NOT_A_POOL;
    }
    const struct pool_memory memory = {.start = (uintptr_t)set,
                                       .given_bytes = set->first + set->bytes - (uintptr_t)set,
                                       .mapping = set->mapping,
                                       .mapping_bytes = set->mapping_bytes};
    const bool locked = set->lock;
    bool all = true;
    for (size_t i = 0; i < set->count; i++) {
        (void)mw_pool_debug_end(mw_pool_set_get(set, i));
        all = pool_give_up_grown(mw_pool_set_get(set, i)) && all;
    }
    set->magic = 0;
    return pool_give_up(&memory, locked) && all ? MW_POOL_OK : MW_POOL_UNMAP_FAILED;
}
