// SPDX-License-Identifier: MIT
// Pool set: equal pools side by side, one a core or thread.
//
// Owns     nothing: the set's head and its pools lie in the memory that it is given.
// Threads  the head never changes once made.
//
//   | mw_pool_set | pool 0 | pool 1 | ... |      pool i at first + i * stride
#ifndef MALLOW_POOL_POOL_SET_H
#define MALLOW_POOL_POOL_SET_H

#include "pool/pool_create.h"

struct mw_pool_set {
    uint64_t magic;
    uintptr_t first; // address of pool 0
    size_t stride;   // bytes from pool to pool
    size_t bytes;    // of all pools
    size_t count;
    void *mapping; // what to unmap; NULL: the caller's
    size_t mapping_bytes;
    bool lock;
};

// As mw_pool_set_create_in, whatever is asked of the host.
MALLOW_INTERNAL enum mw_pool_status pool_set_create_checked(const struct mw_pool_config *config,
                                                            size_t pool_count,
                                                            struct mw_pool_set **result);

#endif
