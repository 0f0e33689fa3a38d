// SPDX-License-Identifier: MIT
// Fork: every lock is held across it, in rank order, so that the child finds our structures whole.
//
// Holds    in the child, the heaps of threads that are gone stay as they are: their blocks remain
//          valid and can be freed; their free memory is not used again, because such a thread may
//          have been stopped in the middle of an operation.
#include "process/process.h"

static void process_fork_prepare(void) {
    struct process *const process = process_ready();
    worker_fork_prepare(&process->worker);
    os_lock_take_for_fork(&process->start_lock);
    os_lock_take_for_fork(&process->fallback_lock);
    os_lock_take_for_fork(&process->thins.lock);
    arena_fork_prepare(&process->arenas);
    process_shed_fork_prepare(&process->shed);
    atomic_store_explicit(&process->os.has_forked, true, memory_order_relaxed);
}

static void process_fork_parent(void) {
    struct process *const process = process_ready();
    process_shed_fork_parent(&process->shed);
    arena_fork_parent(&process->arenas);
    os_lock_drop_after_fork(&process->thins.lock);
    os_lock_drop_after_fork(&process->fallback_lock);
    os_lock_drop_after_fork(&process->start_lock);
    worker_fork_parent(&process->worker);
}

static void process_fork_child(void) {
    struct process *const process = process_ready();
    process_shed_fork_child(&process->shed);
    arena_fork_child(&process->arenas);
    os_lock_renew(&process->thins.lock);
    os_lock_renew(&process->fallback_lock);
    os_lock_renew(&process->start_lock);
    worker_fork_child(&process->worker);
    // A thread that was collecting for the fallback heap is gone; a new one takes its place.
    struct heap *const fallback =
        atomic_load_explicit(&process->fallback, memory_order_relaxed);
    if (fallback != NULL &&
        atomic_load_explicit(&fallback->state, memory_order_relaxed) != HEAP_ABANDONED) {
        struct heap *const fresh = heap_create_fallback(&process->shared);
        if (fresh != NULL) {
            atomic_store_explicit(&process->fallback, fresh, memory_order_relaxed);
        } else {
            atomic_store_explicit(&fallback->state, HEAP_ABANDONED, memory_order_relaxed);
        }
    }
}

MALLOW_INTERNAL void process_fork_register(void) {
    (void)pthread_atfork(process_fork_prepare, process_fork_parent, process_fork_child);
}
