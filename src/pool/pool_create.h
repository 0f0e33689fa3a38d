// SPDX-License-Identifier: MIT
// Pool create: what the hosted calls (pool_host.c) and the sets (pool_set.c) build on.
#ifndef MALLOW_POOL_CREATE_H
#define MALLOW_POOL_CREATE_H

#include "pool/pool_layout.h"

// What a creation that fails leaves in its results; either may be NULL.
MALLOW_INTERNAL void pool_create_none(struct mw_pool **pool, size_t *problem);

// As mw_pool_create_in, whatever is asked of the host.
MALLOW_INTERNAL enum mw_pool_status pool_create_checked(const struct mw_pool_config *config,
                                                        struct mw_pool **result, size_t *problem);

// The layout of `bytes` that are to be attached; fails as mw_pool_attach does.
MALLOW_INTERNAL enum mw_pool_status pool_attach_layout(const struct mw_pool *pool, size_t bytes,
                                                       struct pool_layout *layout);

// Attaches memory that fits its layout and overlaps no other.
MALLOW_INTERNAL struct pool_memory *pool_attach_formatted(struct mw_pool *pool,
                                                          const struct pool_layout *layout,
                                                          uintptr_t start, size_t bytes);

#endif
