// SPDX-License-Identifier: MIT
// Address map: see address_map.h.
#include "meta/address_map.h"

#include "base/compiler.h"

static unsigned map_root_index(uintptr_t address) {
    return (unsigned)(address >> (MALLOW_MAP_SHIFT + 2 * MALLOW_MAP_NODE_BITS));
}

static unsigned map_middle_index(uintptr_t address) {
    return (unsigned)(address >> (MALLOW_MAP_SHIFT + MALLOW_MAP_NODE_BITS)) &
           (MALLOW_MAP_NODE_COUNT - 1);
}

static unsigned map_leaf_index(uintptr_t address) {
    return (unsigned)(address >> MALLOW_MAP_SHIFT) & (MALLOW_MAP_NODE_COUNT - 1);
}

MALLOW_INTERNAL void address_map_init(struct address_map *map, struct meta *meta) {
    map->meta = meta;
}

MALLOW_INTERNAL uintptr_t address_map_get(const struct address_map *map, uintptr_t address) {
    if (address >> MALLOW_ADDRESS_BITS != 0) {
        return 0;
    }
    _Atomic(uintptr_t) *const root = __atomic_load_n(&map->root, __ATOMIC_ACQUIRE);
    if (root == NULL) {
        return 0;
    }
    const struct address_map_node *const middle = (const struct address_map_node *)
        atomic_load_explicit(&root[map_root_index(address)], memory_order_acquire);
    if (middle == NULL) {
        return 0;
    }
    const struct address_map_node *const leaf = (const struct address_map_node *)
        atomic_load_explicit(&middle->entries[map_middle_index(address)], memory_order_acquire);
    if (leaf == NULL) {
        return 0;
    }
    return atomic_load_explicit(&leaf->entries[map_leaf_index(address)], memory_order_acquire);
}

MALLOW_INTERNAL bool address_map_prepare_locked(struct address_map *map) {
    if (map->root == NULL) {
        _Atomic(uintptr_t) *const root =
            meta_take(map->meta, MALLOW_MAP_ROOT_COUNT * sizeof *map->root);
        if (root == NULL) {
            return false;
        }
        __atomic_store_n(&map->root, root, __ATOMIC_RELEASE);
    }
    for (unsigned i = 0; i < 2; i++) {
        if (map->spare[i] == NULL) {
            map->spare[i] = meta_take(map->meta, sizeof *map->spare[i]);
        }
        if (map->spare[i] == NULL) {
            return false;
        }
    }
    return true;
}

// The node behind `slot`, made from a spare one if there is none yet.
static struct address_map_node *map_child(struct address_map *map, _Atomic(uintptr_t) *slot) {
    struct address_map_node *child =
        (struct address_map_node *)atomic_load_explicit(slot, memory_order_relaxed);
    for (unsigned i = 0; child == NULL && i < 2; i++) {
        if (map->spare[i] != NULL) {
            child = map->spare[i];
            map->spare[i] = NULL;
            atomic_store_explicit(slot, (uintptr_t)child, memory_order_release);
        }
    }
    return child;
}

MALLOW_INTERNAL bool address_map_set_locked(struct address_map *map, uintptr_t address,
                                            uintptr_t value) {
    if (address >> MALLOW_ADDRESS_BITS != 0 || map->root == NULL) {
        return false;
    }
    struct address_map_node *const middle = map_child(map, &map->root[map_root_index(address)]);
    if (middle == NULL) {
        return false;
    }
    struct address_map_node *const leaf =
        map_child(map, &middle->entries[map_middle_index(address)]);
    if (leaf == NULL) {
        return false;
    }
    atomic_store_explicit(&leaf->entries[map_leaf_index(address)], value, memory_order_release);
    return true;
}
