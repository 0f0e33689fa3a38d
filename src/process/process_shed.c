// SPDX-License-Identifier: MIT
// Shedding: see process_shed.h.
#include "process/process_shed.h"

#include <errno.h>

#include "heap/heap.h"

static uintptr_t shed_this_thread(void) {
    return (uintptr_t)__builtin_thread_pointer();
}

static bool shed_is_pair(const struct process_shed_entry *entry, mw_shed_function function,
                         const void *argument) {
    return entry->function == function && (function == NULL || entry->argument == argument);
}

// The entry of this pair, or PROCESS_SHED_MAX.
static unsigned shed_find_locked(const struct process_shed *shed, mw_shed_function function,
                                 const void *argument) {
    unsigned i = 0;
    while (i < PROCESS_SHED_MAX && !shed_is_pair(&shed->entries[i], function, argument)) {
        i++;
    }
    return i;
}

MALLOW_INTERNAL int process_shed_add(struct process_shed *shed, mw_shed_function function,
                                     void *argument) {
    int error = 0;
    if (function == NULL) {
        return EINVAL;
    }
    os_lock_take(&shed->lock);
    if (shed_find_locked(shed, function, argument) < PROCESS_SHED_MAX) {
        error = EEXIST;
    } else {
        const unsigned i = shed_find_locked(shed, NULL, NULL);
        if (i == PROCESS_SHED_MAX) {
            error = ENOSPC;
        } else {
            shed->entries[i].function = function;
            shed->entries[i].argument = argument;
            __atomic_store_n(&shed->used, i < shed->used ? shed->used : i + 1, __ATOMIC_RELAXED);
        }
    }
    os_lock_drop(&shed->lock);
    return error;
}

MALLOW_INTERNAL int process_shed_remove(struct process_shed *shed, mw_shed_function function,
                                        void *argument) {
    if (function == NULL) {
        return ENOENT;
    }
    os_lock_take(&shed->lock);
    const unsigned i = shed_find_locked(shed, function, argument);
    if (i < PROCESS_SHED_MAX) {
        shed->entries[i].function = NULL;
    }
    // Also if another thread, or the function, has just taken it off.
    for (unsigned round = 0; shed_is_pair(&shed->running, function, argument) &&
                             shed->runner != shed_this_thread(); round++) {
        os_lock_drop(&shed->lock);
        os_pause(round);
        os_lock_take(&shed->lock);
    }
    os_lock_drop(&shed->lock);
    return i < PROCESS_SHED_MAX ? 0 : ENOENT;
}

// Begins a round; false if there is nothing to call, or another round is under way.
static bool shed_begin(struct process_shed *shed) {
    if (__atomic_load_n(&shed->used, __ATOMIC_RELAXED) == 0) {
        return false; // there has never been one: no lock, then
    }
    os_lock_take(&shed->lock);
    const bool begun = shed->runner == 0 && shed->used != 0;
    if (begun) {
        shed->runner = shed_this_thread();
    }
    os_lock_drop(&shed->lock);
    return begun;
}

static bool shed_call(struct process_shed *shed, unsigned i,
                      const struct mw_shed_request *request) {
    os_lock_take(&shed->lock);
    const struct process_shed_entry entry = shed->entries[i];
    shed->running = entry;
    os_lock_drop(&shed->lock);
    if (entry.function == NULL) {
        return false;
    }
    const struct heap_call call = heap_leave_call();
    entry.function(request, entry.argument);
    heap_resume_call(call);
    os_lock_take(&shed->lock);
    shed->running.function = NULL;
    os_lock_drop(&shed->lock);
    return true;
}

MALLOW_INTERNAL bool process_shed_run(struct process_shed *shed, enum mw_shed_reason reason,
                                      uint64_t wanted_bytes, uint64_t held_bytes) {
    const struct mw_shed_request request = {sizeof request, (uint32_t)reason, wanted_bytes,
                                            held_bytes};
    const int error = errno;
    bool any = false;
    if (!shed_begin(shed)) {
        return false;
    }
    for (unsigned i = 0; i < PROCESS_SHED_MAX; i++) {
        any |= shed_call(shed, i, &request);
    }
    os_lock_take(&shed->lock);
    shed->runner = 0;
    os_lock_drop(&shed->lock);
    atomic_fetch_add_explicit(&shed->round_count, any, memory_order_relaxed);
    errno = error;
    return any;
}

MALLOW_INTERNAL void process_shed_fork_prepare(struct process_shed *shed, bool hurried) {
    os_lock_take_for_fork(&shed->lock, hurried);
}

MALLOW_INTERNAL void process_shed_fork_parent(struct process_shed *shed) {
    os_lock_drop_after_fork(&shed->lock);
}

MALLOW_INTERNAL void process_shed_fork_child(struct process_shed *shed) {
    os_lock_renew(&shed->lock);
    if (shed->runner != shed_this_thread()) {
        shed->runner = 0;
        shed->running.function = NULL;
    }
}
