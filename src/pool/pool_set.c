// SPDX-License-Identifier: MIT
// Pool set: see pool_set.h.
#include "pool/pool_set.h"

enum mw_pool_status mw_pool_set_plan(const struct mw_pool_config *config, size_t pool_count,
                                     size_t *memory_bytes, size_t *alignment_bytes) {
    if (config == NULL || memory_bytes == NULL || alignment_bytes == NULL) {
        return MW_POOL_NULL_ARGUMENT;
    }
    struct mw_pool_config each = *config;
    each.memory = NULL;
    each.remote = true;
    struct mw_pool_planned plan;
    const enum mw_pool_status status = mw_pool_plan(&each, &plan, NULL);
    if (status != MW_POOL_OK) {
        return status;
    }
    const size_t head = bits_align_up(sizeof(struct mw_pool_set), plan.alignment_bytes);
    const size_t stride = bits_align_up(plan.pool_bytes, plan.alignment_bytes);
    size_t bytes = 0;
    if (pool_count == 0 || !bits_multiply(stride, pool_count, &bytes) ||
        bytes > PTRDIFF_MAX - head) {
        return pool_count == 0 ? MW_POOL_TOO_SMALL : MW_POOL_TOO_BIG;
    }
    *memory_bytes = head + bytes;
    *alignment_bytes = plan.alignment_bytes;
    return MW_POOL_OK;
}

MALLOW_INTERNAL enum mw_pool_status pool_set_create_checked(const struct mw_pool_config *config,
                                                            size_t pool_count,
                                                            struct mw_pool_set **result) {
    if (result != NULL) {
        *result = NULL;
    }
    if (config == NULL || result == NULL) {
        return MW_POOL_NULL_ARGUMENT;
    }
    size_t bytes = 0, alignment = 0;
    enum mw_pool_status status = mw_pool_set_plan(config, pool_count, &bytes, &alignment);
    if (status != MW_POOL_OK) {
        return status;
    }
    const uintptr_t start = (uintptr_t)config->memory;
    if (start == 0) {
        return MW_POOL_NEEDS_MEMORY;
    }
    if (start % alignment != 0) {
        return MW_POOL_MEMORY_MISALIGNED;
    }
    const size_t head = bits_align_up(sizeof(struct mw_pool_set), alignment);
    struct mw_pool_set *const set = (struct mw_pool_set *)start;
    *set = (struct mw_pool_set){.magic = POOL_SET_MAGIC,
                                .first = start + head,
                                .stride = (bytes - head) / pool_count,
                                .bytes = bytes - head,
                                .count = pool_count};
    struct mw_pool_config each = *config;
    each.remote = true;
    for (size_t i = 0; i < pool_count; i++) {
        struct mw_pool *pool = NULL;
        each.memory = (void *)(set->first + i * set->stride);
        status = pool_create_checked(&each, &pool, NULL);
        if (status != MW_POOL_OK) {
            return status; // never: the plan was made of the same configuration
        }
    }
    *result = set;
    return MW_POOL_OK;
}

enum mw_pool_status mw_pool_set_create_in(const struct mw_pool_config *config, size_t pool_count,
                                          struct mw_pool_set **set) {
    if (config != NULL && (config->prefault || config->lock)) {
        if (set != NULL) {
            *set = NULL;
        }
        return MW_POOL_NEEDS_HOST;
    }
    return pool_set_create_checked(config, pool_count, set);
}

size_t mw_pool_set_count(const struct mw_pool_set *set) {
    return set->count;
}

struct mw_pool *mw_pool_set_get(const struct mw_pool_set *set, size_t pool_index) {
    return pool_index < set->count ? (struct mw_pool *)(set->first + pool_index * set->stride)
                                   : NULL;
}

size_t mw_pool_set_find(const struct mw_pool_set *set, const void *pointer) {
    const size_t offset = (uintptr_t)pointer - set->first;
    return offset < set->bytes ? offset / set->stride : SIZE_MAX;
}

enum mw_pool_status mw_pool_set_free(struct mw_pool_set *set, size_t own_index, void *block) {
    const size_t index = mw_pool_set_find(set, block);
    if (unlikely(index == SIZE_MAX)) {
        return block == NULL ? MW_POOL_NULL_POINTER : MW_POOL_FOREIGN;
    }
    struct mw_pool *const pool = (struct mw_pool *)(set->first + index * set->stride);
    return index == own_index ? mw_pool_free(pool, block) : mw_pool_free_remote(pool, block);
}
