// SPDX-License-Identifier: MIT
// Address map: for any 64-bit value, what of ours begins or lies in its megabyte.
//
// Owns     a radix tree over 48-bit addresses at a grain of 1 MiB; nodes come from meta and stay.
// Threads  look-ups any, without a lock; changes with `lock` held, which callers also hold around
//          what must be one step together with a change (moving a mapping and its entry).
// Holds    an entry is 0 or what its setter put there; a look-up takes three loads and never
//          faults.
#ifndef MALLOW_META_ADDRESS_MAP_H
#define MALLOW_META_ADDRESS_MAP_H

#include "meta/meta.h"

#define MALLOW_ADDRESS_BITS 48
#define MALLOW_MAP_NODE_BITS 9
#define MALLOW_MAP_NODE_COUNT (1U << MALLOW_MAP_NODE_BITS)
#define MALLOW_MAP_ROOT_COUNT                                                                      \
    (1U << (MALLOW_ADDRESS_BITS - MALLOW_MAP_SHIFT - 2 * MALLOW_MAP_NODE_BITS))

struct address_map_node {
    _Atomic(uintptr_t) entries[MALLOW_MAP_NODE_COUNT]; // child, or value in a leaf
};

struct address_map {
    struct meta *meta;
    struct os_lock lock;
    _Atomic(uintptr_t) *root; // MALLOW_MAP_ROOT_COUNT children; NULL until first used
    struct address_map_node *spare[2]; // taken ahead, so that a change that must not fail does not
};

MALLOW_INTERNAL void address_map_init(struct address_map *map, struct meta *meta);

// The value that covers `address`, 0 if none.
MALLOW_INTERNAL uintptr_t address_map_get(const struct address_map *map, uintptr_t address);

// Takes ahead all the memory that one change can need. False: out of memory. Lock held.
MALLOW_INTERNAL bool address_map_prepare_locked(struct address_map *map);

// Sets the value of the megabyte of `address`. Cannot fail after address_map_prepare_locked, nor
// where a value has been set in that megabyte before. Lock held.
MALLOW_INTERNAL bool address_map_set_locked(struct address_map *map, uintptr_t address,
                                            uintptr_t value);

#endif
