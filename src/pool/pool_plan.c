// SPDX-License-Identifier: MIT
// Pool plan: what a configuration comes to, before it is a pool and after.
//
// Holds    the bounds of instructions are upper bounds of what test/pool counts.
#include "pool/pool_layout.h"

// Instructions of libmallow as released, on the longest ways.
enum {
    POOL_COST_ALLOC = 60,    // a block that empties its word, its group and its class; with
                             // `remote`, or any two of what else makes a way longer
    POOL_COST_MORE = 12,     // each of these more
    POOL_COST_CROWD = 3,     // each class that ends in a cell, where it is not the only one
    POOL_COST_COLLECT = 180, // fallback and remote: what others have freed is taken back first
    POOL_COST_SETTLE = 24,   // the same where the class is given
    POOL_COST_FREE = 60,     // a block that is the first in its word, its group and its class
    POOL_COST_ATTACHED = 20, // not in the first memory
    POOL_COST_DIVIDED = 15,  // no reciprocal, and another thread's or not in the first memory
    POOL_COST_STRANGE = 10,  // the owner is checked, and is another
    POOL_COST_REMOTE = 60,   // another thread's free that posts a group, if no other one does
    POOL_COST_POST = 10,     // with fallback
};

// What the bounds depend on.
struct pool_shape {
    size_t class_count;
    size_t far_crowd; // 0: no size is beyond the direct table
    size_t memory_count;
    bool fallback, remote, check_owner, divided;
};

static size_t pool_plan_alloc(const struct pool_shape *shape, bool by_size) {
    const bool far = by_size && shape->far_crowd != 0, fallback = by_size && shape->fallback;
    const size_t crowd = far && shape->far_crowd > 1 ? shape->far_crowd : 0;
    const size_t longer = (size_t)far + fallback + (fallback && shape->class_count > 64) +
                          (fallback && crowd != 0) + shape->check_owner + (shape->remote ? 2 : 0);
    const size_t others = by_size ? POOL_COST_COLLECT : POOL_COST_SETTLE;
    return POOL_COST_ALLOC + (longer > 2 ? (longer - 2) * POOL_COST_MORE : 0) +
           crowd * POOL_COST_CROWD + (shape->fallback && shape->remote ? others : 0);
}

static void pool_plan_costs(struct mw_pool_planned *plan, const struct pool_shape *shape) {
    const size_t attached = shape->memory_count > 1 ? POOL_COST_ATTACHED : 0;
    const size_t divided = shape->divided ? POOL_COST_DIVIDED : 0;
    const size_t remote =
        POOL_COST_REMOTE + attached + divided + (shape->fallback ? POOL_COST_POST : 0);
    const size_t own = POOL_COST_FREE + attached + (attached != 0 || shape->remote ? divided : 0);
    const size_t strange = shape->remote && shape->check_owner ? POOL_COST_STRANGE : 0;
    plan->alloc_instructions = (uint32_t)pool_plan_alloc(shape, true);
    plan->alloc_class_instructions = (uint32_t)pool_plan_alloc(shape, false);
    plan->free_instructions = (uint32_t)(strange != 0 ? remote + strange : own);
    plan->remote_instructions = shape->remote ? (uint32_t)remote : 0;
}

// Per million, rounded up. The rest is scaled so far that its product does not overflow.
static void pool_plan_overhead(struct mw_pool_planned *plan) {
    plan->overhead_bytes = plan->pool_bytes - plan->payload_bytes;
    const size_t whole = plan->overhead_bytes / plan->payload_bytes;
    uint64_t rest = plan->overhead_bytes % plan->payload_bytes, payload = plan->payload_bytes;
    for (; payload >> 43 != 0; payload /= 2) {
        rest /= 2;
    }
    const size_t part = (size_t)((rest * MW_POOL_WHOLE + payload - 1) / payload);
    plan->overhead_ppm =
        whole < SIZE_MAX / MW_POOL_WHOLE ? whole * MW_POOL_WHOLE + part : SIZE_MAX;
}

static void pool_plan_layout(const struct pool_layout *layout, struct mw_pool_planned *plan,
                             struct mw_pool_class_plan *classes) {
    for (size_t i = 0; i < layout->class_count; i++) {
        const struct pool_layout_class *const class = &layout->classes[i];
        plan->payload_bytes += class->block_bytes * class->count;
        if (classes != NULL) {
            classes[i] = (struct mw_pool_class_plan){
                .block_bytes = class->block_bytes,
                .alignment_bytes = class->alignment,
                .capacity_count = class->count,
                .metadata_bytes = pool_layout_class_bytes(layout->remote, class->count)};
        }
    }
}

static bool pool_layout_is_divided(const struct pool_layout *layout) {
    bool divided = false;
    for (size_t i = 0; i < layout->class_count; i++) {
        divided = divided || !pool_is_multiplied(layout->classes[i].block_bytes,
                                                 layout->classes[i].count);
    }
    return divided;
}

enum mw_pool_status mw_pool_plan(const struct mw_pool_config *config, struct mw_pool_planned *plan,
                                 struct mw_pool_class_plan *classes) {
    if (config == NULL || plan == NULL) {
        return MW_POOL_NULL_ARGUMENT;
    }
    struct pool_layout layout;
    *plan = (struct mw_pool_planned){.problem_class = MW_POOL_NO_CLASS};
    enum mw_pool_status status = pool_layout_begin(&layout, config, &plan->problem_class);
    if (status == MW_POOL_OK) {
        status = pool_layout_end(&layout, config->pool_bytes, &plan->problem_class);
    }
    if (status != MW_POOL_OK) {
        return status;
    }
    if ((uintptr_t)config->memory % layout.alignment != 0) {
        return MW_POOL_MEMORY_MISALIGNED;
    }
    pool_plan_layout(&layout, plan, classes);
    plan->pool_bytes = config->pool_bytes != 0 ? config->pool_bytes : layout.total_bytes;
    plan->metadata_bytes = layout.metadata_bytes;
    plan->alignment_bytes = layout.alignment;
    pool_plan_overhead(plan);
    pool_plan_costs(plan, &(struct pool_shape){.class_count = layout.class_count,
                                               .far_crowd = layout.far_crowd,
                                               .memory_count = 1,
                                               .fallback = config->fallback,
                                               .remote = config->remote,
                                               .check_owner = config->check_owner,
                                               .divided = pool_layout_is_divided(&layout)});
    return MW_POOL_OK;
}

// ---- A pool that exists -------------------------------------------------------------------------

// Whether blocks of a memory are found by dividing.
static bool pool_is_divided(const struct mw_pool *pool, const struct pool_memory *memory) {
    const struct pool_area *const areas = (const struct pool_area *)(uintptr_t)(memory + 1);
    bool divided = false;
    for (size_t place = 0; place < pool->class_count; place++) {
        divided = divided || areas[place].reciprocal == 0;
    }
    return divided;
}

static void pool_describe_class(const struct mw_pool *pool, const struct pool_class *class,
                                struct mw_pool_class_plan *to) {
    *to = (struct mw_pool_class_plan){.block_bytes = class->lane.block_bytes,
                                      .alignment_bytes = class->alignment,
                                      .capacity_count = class->capacity};
    for (size_t i = 0; i < pool->memory_count; i++) {
        const struct pool_area *const areas =
            (const struct pool_area *)(uintptr_t)(pool->memories[i] + 1);
        for (size_t place = 0; place < pool->class_count; place++) {
            if (areas[place].owner == class) {
                to->metadata_bytes +=
                    pool_layout_class_bytes(pool->remote, areas[place].full_count);
            }
        }
    }
}

enum mw_pool_status mw_pool_describe(const struct mw_pool *pool, struct mw_pool_planned *plan,
                                     struct mw_pool_class_plan *classes) {
    if (!pool_is_valid(pool)) {
        return MW_POOL_NOT_A_POOL;
    }
    if (plan == NULL) {
        return MW_POOL_NULL_ARGUMENT;
    }
    *plan = (struct mw_pool_planned){.problem_class = MW_POOL_NO_CLASS,
                                  .alignment_bytes = MALLOW_CACHE_LINE};
    bool divided = false;
    for (size_t i = 0; i < pool->memory_count; i++) {
        plan->pool_bytes += pool->memories[i]->given_bytes;
        plan->metadata_bytes += pool->memories[i]->metadata_bytes;
        divided = divided || pool_is_divided(pool, pool->memories[i]);
    }
    for (size_t rank = 0; rank < pool->class_count; rank++) {
        const struct pool_class *const class = pool_class_at(pool, rank);
        plan->payload_bytes += class->capacity * class->lane.block_bytes;
        plan->alignment_bytes = bits_max(plan->alignment_bytes, class->alignment);
        if (classes != NULL) {
            pool_describe_class(pool, class, &classes[class->index]);
        }
    }
    pool_plan_overhead(plan);
    pool_plan_costs(plan, &(struct pool_shape){.class_count = pool->class_count,
                                               .far_crowd = pool->far_crowd,
                                               .memory_count = pool->memory_count,
                                               .fallback = pool->fallback,
                                               .remote = pool->remote,
                                               .check_owner = pool->check_owner,
                                               .divided = divided});
    return MW_POOL_OK;
}
