// SPDX-License-Identifier: MIT
// API: mallow/limit.h.
#include "mallow/limit.h"

#include <stddef.h>
#include <string.h>

#include "api/api.h"
#include "process/process.h"

int mw_shed_register(mw_shed_function function, void *argument) {
    return process_shed_add(&process_ready()->shed, function, argument);
}

int mw_shed_unregister(mw_shed_function function, void *argument) {
    return process_shed_remove(&process_ready()->shed, function, argument);
}

int mw_heartbeat_register(mw_heartbeat_function function, void *argument) {
    return process_beat_add(process_ready(), function, argument);
}

int mw_heartbeat_unregister(void) {
    return process_beat_remove(process_ready());
}

bool mw_limits_get(struct mw_limits *limits) {
    const struct process *const process = process_ready();
    const struct os_charge *const charge = &process->os.charge;
    const uint64_t hard_bytes = __atomic_load_n(&process->limit.hard_bytes, __ATOMIC_RELAXED);
    if (limits->size_bytes < offsetof(struct mw_limits, limit_bytes)) {
        return false;
    }
    const struct mw_limits full = {
        .size_bytes = limits->size_bytes,
        .held_bytes = atomic_load_explicit(&charge->held_bytes, memory_order_relaxed),
        .limit_bytes = hard_bytes,
        .reserve_bytes = hard_bytes != UINT64_MAX ? os_charge_reserve(hard_bytes) : 0,
        .soft_bytes = __atomic_load_n(&process->limit.soft_bytes, __ATOMIC_RELAXED),
        .refused_count = atomic_load_explicit(&charge->refused_count, memory_order_relaxed),
        .shed_count = atomic_load_explicit(&process->shed.round_count, memory_order_relaxed),
        .pressed = atomic_load_explicit(&process->limit.pressed, memory_order_relaxed) != 0,
    };
    memcpy(limits, &full, bits_min(limits->size_bytes, sizeof full));
    return true;
}
