// SPDX-License-Identifier: MIT
// Arena, giant pages: see arena_giant.h.
#include "arena/arena_giant.h"

#include "base/bits.h"
#include "os/os_giant.h"

MALLOW_INTERNAL void arena_giant_use(struct arena_set *set, size_t bytes) {
    struct arena *const arena = &set->primary;
    set->os->giant_address = arena->base;
    set->os->giant_bytes = bytes;
    arena->giant_slices = bytes >> MALLOW_SLICE_SHIFT;
}

MALLOW_INTERNAL size_t arena_giant_take(struct arena_set *set, size_t count, unsigned node_count) {
    struct arena *const arena = &set->primary;
    struct os *const os = set->os;
    const size_t room = (arena->slice_count << MALLOW_SLICE_SHIFT) / OS_GIANT_BYTES;
    size_t taken = 0;
    enum os_giant_result result = OS_GIANT_TAKEN;
    if (arena->committed_slices != 0 || arena->base % OS_GIANT_BYTES != 0) {
        return 0;
    }
    while (taken < bits_min(count, room) && result == OS_GIANT_TAKEN &&
           os_charge_take(os, OS_CHARGE_HARD, OS_GIANT_BYTES)) {
        const unsigned node = (unsigned)(taken % node_count);
        result = os_giant_take(os, arena->base + taken * OS_GIANT_BYTES,
                               node_count > 1 ? node : OS_GIANT_ANY_NODE);
        if (result == OS_GIANT_TAKEN) {
            taken++;
        } else {
            os_charge_release(os, OS_GIANT_BYTES);
        }
    }
    if (result == OS_GIANT_LOST) {
        // A part of the reservation may be another's now: the arena must not be used.
        arena->slice_count = 0;
        arena->limit_slices = 0;
        os_charge_release(os, taken * OS_GIANT_BYTES);
        return 0;
    }
    arena_giant_use(set, taken * OS_GIANT_BYTES);
    return taken;
}
