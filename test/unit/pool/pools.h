// SPDX-License-Identifier: MIT
// What the tests of pools share: memory to put them in, configurations by chance, and an audit of
// what must hold.
#ifndef TEST_UNIT_POOL_POOLS_H
#define TEST_UNIT_POOL_POOLS_H

#include "../unit.h"
#include "pool/pool.h"

// A configuration with room for its classes.
struct pools_case {
    struct mw_pool_config config;
    struct mw_pool_class classes[MW_POOL_CLASSES_MAX];
    struct mw_pool_planned plan;
    struct mw_pool_class_plan planned[MW_POOL_CLASSES_MAX];
};

// Aligned memory that is not zero, with guards around it that pools_check_guards looks at.
void *pools_memory(size_t bytes, size_t alignment);
void pools_check_guards(void);

// A configuration by chance that has a plan.
void pools_by_chance(struct pools_case *it, struct unit_chance *chance);

// Every equation at the head of pool.h.
void pools_audit(const struct mw_pool *pool);

// Creates the pool of a case in pools_memory.
struct mw_pool *pools_create(struct pools_case *it);

#endif
