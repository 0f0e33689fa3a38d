// SPDX-License-Identifier: MIT
// Address map: see address_map.h.
#include "meta/address_map.h"

#include "base/compiler.h"

// What a process's first huge block needs.
struct address_map_first {
    _Atomic(uintptr_t) root[MALLOW_MAP_ROOT_COUNT];
    struct address_map_node nodes[2];
};

MALLOW_INTERNAL void address_map_init(struct address_map *map, struct meta *meta) {
    map->meta = meta;
}

MALLOW_INTERNAL bool address_map_prepare_slow(struct address_map *map) {
    if (map->root == NULL) { // in one: each is a lock taken, and a dear call's work besides
        struct address_map_first *const first = meta_take(map->meta, sizeof *first);
        if (first == NULL) {
            return false;
        }
        map->spare[0] = &first->nodes[0];
        map->spare[1] = &first->nodes[1];
        __atomic_store_n(&map->root, first->root, __ATOMIC_RELEASE);
        return true;
    }
    if (map->spare[0] == NULL && map->spare[1] == NULL) {
        map->spare[0] = meta_take(map->meta, 2 * sizeof *map->spare[0]);
        map->spare[1] = map->spare[0] != NULL ? map->spare[0] + 1 : NULL;
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

MALLOW_INTERNAL bool address_map_stock_locked(struct address_map *map, bool may_enter) {
    if (map->spare[2] != NULL || map->root == NULL) {
        return false;
    }
    if (meta_has(map->meta, sizeof *map->spare[2])) {
        map->spare[2] = meta_take(map->meta, sizeof *map->spare[2]);
        return false;
    }
    if (!may_enter || !meta_is_low(map->meta)) {
        return false;
    }
    const uint64_t entries = os_entries(map->meta->os);
    meta_prepare(map->meta);
    return os_entries(map->meta->os) != entries;
}

// The node behind `slot`, which has none yet, made from a spare one.
static MALLOW_COLD struct address_map_node *map_new_child(struct address_map *map,
                                                          _Atomic(uintptr_t) *slot) {
    struct address_map_node *child = NULL;
    for (unsigned i = 3; child == NULL && i > 0; i--) {
        if (map->spare[i - 1] != NULL) {
            child = map->spare[i - 1];
            map->spare[i - 1] = NULL;
            atomic_store_explicit(slot, (uintptr_t)child, memory_order_release);
        }
    }
    return child;
}

static struct address_map_node *map_child(struct address_map *map, _Atomic(uintptr_t) *slot) {
    struct address_map_node *const child =
        (struct address_map_node *)atomic_load_explicit(slot, memory_order_relaxed);
    return likely(child != NULL) ? child : map_new_child(map, slot);
}

MALLOW_INTERNAL _Atomic(uintptr_t) *address_map_place_locked(struct address_map *map,
                                                             uintptr_t address) {
    if (address >> MALLOW_ADDRESS_BITS != 0 || map->root == NULL) {
        return NULL;
    }
    struct address_map_node *const middle =
        map_child(map, &map->root[address_map_root_index(address)]);
    if (middle == NULL) {
        return NULL;
    }
    struct address_map_node *const leaf =
        map_child(map, &middle->entries[address_map_middle_index(address)]);
    return leaf != NULL ? &leaf->entries[address_map_leaf_index(address)] : NULL;
}

MALLOW_INTERNAL bool address_map_set_locked(struct address_map *map, uintptr_t address,
                                            uintptr_t value) {
    _Atomic(uintptr_t) *const place = address_map_place_locked(map, address);
    if (place == NULL) {
        return false;
    }
    atomic_store_explicit(place, value, memory_order_release);
    return true;
}
