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
    struct address_map_node *spare[3]; // taken ahead, so that a change that must not fail does not:
                                       // two are enough, the third saves the next call taking it
};

MALLOW_INTERNAL void address_map_init(struct address_map *map, struct meta *meta);

MALLOW_INLINE unsigned address_map_root_index(uintptr_t address) {
    return (unsigned)(address >> (MALLOW_MAP_SHIFT + 2 * MALLOW_MAP_NODE_BITS));
}

MALLOW_INLINE unsigned address_map_middle_index(uintptr_t address) {
    return (unsigned)(address >> (MALLOW_MAP_SHIFT + MALLOW_MAP_NODE_BITS)) &
           (MALLOW_MAP_NODE_COUNT - 1);
}

MALLOW_INLINE unsigned address_map_leaf_index(uintptr_t address) {
    return (unsigned)(address >> MALLOW_MAP_SHIFT) & (MALLOW_MAP_NODE_COUNT - 1);
}

// The value that covers `address`, 0 if none.
MALLOW_INLINE uintptr_t address_map_get(const struct address_map *map, uintptr_t address) {
    if (address >> MALLOW_ADDRESS_BITS != 0) {
        return 0;
    }
    _Atomic(uintptr_t) *const root = __atomic_load_n(&map->root, __ATOMIC_ACQUIRE);
    if (root == NULL) {
        return 0;
    }
    const struct address_map_node *const middle = (const struct address_map_node *)
        atomic_load_explicit(&root[address_map_root_index(address)], memory_order_acquire);
    if (middle == NULL) {
        return 0;
    }
    const struct address_map_node *const leaf = (const struct address_map_node *)
        atomic_load_explicit(&middle->entries[address_map_middle_index(address)],
                             memory_order_acquire);
    if (leaf == NULL) {
        return 0;
    }
    return atomic_load_explicit(&leaf->entries[address_map_leaf_index(address)],
                                memory_order_acquire);
}

// Takes a node more than that ahead, if there is none: for a call with little to do. True: there
// was no memory for it, and the kernel has been entered to have some, which only one that
// `may_enter` does. Lock held.
MALLOW_INTERNAL bool address_map_stock_locked(struct address_map *map, bool may_enter);

// Takes ahead all the memory that one change can need. False: out of memory. Lock held.
MALLOW_INTERNAL bool address_map_prepare_slow(struct address_map *map);
MALLOW_INLINE bool address_map_prepare_locked(struct address_map *map) {
    return likely(map->spare[0] != NULL && map->spare[1] != NULL) || address_map_prepare_slow(map);
}

// Where the value of the megabyte of `address` is kept, for ever; NULL: no memory for that, which
// cannot be after address_map_prepare_locked. Lock held; so it is when a value is stored there.
MALLOW_INTERNAL _Atomic(uintptr_t) *address_map_place_locked(struct address_map *map,
                                                             uintptr_t address);

// Sets the value of the megabyte of `address`. Cannot fail after address_map_prepare_locked, nor
// where a value has been set in that megabyte before. Lock held.
MALLOW_INTERNAL bool address_map_set_locked(struct address_map *map, uintptr_t address,
                                            uintptr_t value);

#endif
