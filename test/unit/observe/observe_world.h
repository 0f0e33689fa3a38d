// SPDX-License-Identifier: MIT
// Observing: the sources of figures over a private heap.
#ifndef MALLOW_TEST_OBSERVE_WORLD_H
#define MALLOW_TEST_OBSERVE_WORLD_H

#include "../heap/heap_world.h"
#include "observe/snapshot.h"

static inline struct observe_sources observe_world_sources(struct heap_world *world) {
    return (struct observe_sources){&world->arena.os, &world->arena.meta, &world->arena.arenas,
                                    &world->huges, &world->shared};
}

#endif
