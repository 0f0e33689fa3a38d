// SPDX-License-Identifier: MIT
// Heartbeat: see process_beat.h.
#include "process/process_beat.h"

#include <errno.h>

#include "process/process.h"

// 1 if the calling thread is in the function.
static uint32_t beat_own(void) {
    const struct heap *const heap = heap_current();
    return !heap_is_empty(heap) && heap->beating;
}

MALLOW_INTERNAL int process_beat_add(struct process *process, mw_heartbeat_function function,
                                     void *argument) {
    struct process_beat *const beat = &process->beat;
    int error = 0;
    if (function == NULL) {
        return EINVAL;
    }
    os_lock_take(&process->shed.lock);
    if (atomic_load(&beat->function) != NULL || beat->leaving) {
        error = EEXIST;
    } else {
        beat->argument = argument;
        atomic_store(&beat->function, function);
        atomic_fetch_or(&process->os.charge.events, OS_CHARGE_BEAT);
    }
    os_lock_drop(&process->shed.lock);
    struct heap *const heap = heap_current();
    if (error == 0 && !heap_is_empty(heap)) {
        heap->attention = true;
    }
    return error;
}

MALLOW_INTERNAL int process_beat_remove(struct process *process) {
    struct process_beat *const beat = &process->beat;
    os_lock_take(&process->shed.lock);
    const bool found = atomic_load(&beat->function) != NULL;
    if (found) {
        atomic_store(&beat->function, NULL);
        atomic_fetch_and(&process->os.charge.events, ~(uint32_t)OS_CHARGE_BEAT);
        beat->leaving = true;
    }
    // Also if another thread, or the function, has just taken it off; until there is a new one.
    for (unsigned round = 0; atomic_load(&beat->function) == NULL &&
                             atomic_load(&beat->running) > beat_own(); round++) {
        os_lock_drop(&process->shed.lock);
        os_pause(round);
        os_lock_take(&process->shed.lock);
    }
    if (found) {
        beat->leaving = false;
    }
    os_lock_drop(&process->shed.lock);
    return found ? 0 : ENOENT;
}

MALLOW_INTERNAL bool process_beat_run(struct process *process, bool force) {
    struct process_beat *const beat = &process->beat;
    struct heap *const heap = heap_current();
    if (heap_is_empty(heap) || heap->beating ||
        atomic_load_explicit(&beat->function, memory_order_relaxed) == NULL) {
        return false;
    }
    atomic_fetch_add(&beat->running, 1); // then the function: who takes it off sees one of the two
    const mw_heartbeat_function function = atomic_load(&beat->function);
    if (function != NULL) {
        const int error = errno;
        const struct heap_call call = heap_leave_call();
        heap->beating = true;
        function(force, atomic_fetch_add_explicit(&beat->count, 1, memory_order_relaxed) + 1,
                 beat->argument);
        heap->beating = false;
        heap_resume_call(call);
        errno = error;
    }
    atomic_fetch_sub(&beat->running, 1);
    return function != NULL;
}

MALLOW_INTERNAL void process_beat_fork_child(struct process *process) {
    atomic_store(&process->beat.running, beat_own());
    process->beat.leaving = false; // who has taken it off is gone as well
}
