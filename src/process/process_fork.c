// SPDX-License-Identifier: MIT
// Fork: every lock is held across it, in rank order, so that the child finds our structures whole.
//
// Owns     fork_process.
// Holds    in the child, the heaps of threads that are gone stay as they are: their blocks remain
//          valid and can be freed; their free memory is not used again, because such a thread may
//          have been stopped in the middle of an operation.
//          A fork by a signal handler that has interrupted the holder of a lock of ours finds that
//          lock its own, in the child as well, where the interrupted call goes on. It does not wait
//          for ever for the others: who holds one may be waiting for the interrupted call.
//          The lock of libc's list of streams comes before all of ours, as for libc's own malloc:
//          fork takes it once these handlers have run, and who holds it (fflush(NULL)) may wait
//          for a stream whose user is inside of malloc (getline).
#include "process/process.h"

#include <sys/single_threaded.h>

#include "os/os_thread.h"

// glibc exports them. The lock counts how often its thread has taken it; in a child it is made new
// by fork before our handler runs.
extern void libc_streams_lock(void) __asm__("_IO_list_lock") __attribute__((weak));
extern void libc_streams_unlock(void) __asm__("_IO_list_unlock") __attribute__((weak));
#pragma weak __libc_single_threaded // glibc 2.32

static struct process *fork_process; // libc's handlers have no argument

// While libc knows of one thread, its fork does not touch the lock, nor make it new.
static bool process_fork_has_streams(void) {
    return libc_streams_lock != NULL && &__libc_single_threaded != NULL &&
           __libc_single_threaded == 0;
}

MALLOW_INTERNAL bool process_is_interrupted(const struct process *process) {
    return os_lock_is_mine(&process->arenas.lock) || os_lock_is_mine(&process->map.lock) ||
           os_lock_is_mine(&process->meta.lock) || os_lock_is_mine(&process->thins.lock) ||
           os_lock_is_mine(&process->start_lock) || os_lock_is_mine(&process->fallback_lock) ||
           os_lock_is_mine(&process->worker.holes.lock) ||
           os_lock_is_mine(&process->worker.lock) || os_lock_is_mine(&process->shed.lock);
}

static void process_fork_prepare(void) {
    struct process *const process = fork_process;
    const bool streams = process_fork_has_streams();
    if (streams) {
        libc_streams_lock();
    }
    const bool hurried = process_is_interrupted(process);
    worker_fork_prepare(&process->worker, hurried);
    os_lock_take_for_fork(&process->start_lock, hurried);
    os_lock_take_for_fork(&process->fallback_lock, hurried);
    os_lock_take_for_fork(&process->thins.lock, hurried);
    arena_fork_prepare(&process->arenas, hurried);
    process_shed_fork_prepare(&process->shed, hurried);
    process->fork_holds_streams = streams;
    atomic_store_explicit(&process->os.has_forked, true, memory_order_relaxed);
}

static void process_fork_parent(void) {
    struct process *const process = fork_process;
    const bool streams = process->fork_holds_streams;
    process_shed_fork_parent(&process->shed);
    arena_fork_parent(&process->arenas);
    os_lock_drop_after_fork(&process->thins.lock);
    os_lock_drop_after_fork(&process->fallback_lock);
    os_lock_drop_after_fork(&process->start_lock);
    worker_fork_parent(&process->worker);
    if (streams) {
        libc_streams_unlock();
    }
}

static void process_fork_child(void) {
    struct process *const process = fork_process;
    process_shed_fork_child(&process->shed);
    process_beat_fork_child(process);
    arena_fork_child(&process->arenas);
    huge_fork_child(&process->huges);
    thin_fork_child(&process->thins);
    os_lock_renew(&process->thins.lock);
    os_lock_renew(&process->fallback_lock);
    os_lock_renew(&process->start_lock);
    worker_fork_child(&process->worker);
    struct heap *const mine = heap_current();
    if (!heap_is_empty(mine) && atomic_load_explicit(&mine->thread, memory_order_relaxed) != 0) {
        // The thread goes on under another number.
        atomic_store_explicit(&mine->thread, os_thread_number(), memory_order_relaxed);
    }
    // A thread that was collecting for the fallback heap is gone; a new one takes its place.
    struct heap *const fallback =
        atomic_load_explicit(&process->fallback, memory_order_relaxed);
    if (fallback != NULL && !os_lock_is_mine(&process->fallback_lock) &&
        atomic_load_explicit(&fallback->state, memory_order_relaxed) != HEAP_ABANDONED) {
        struct heap *const fresh = heap_create_fallback(&process->shared);
        if (fresh != NULL) {
            atomic_store_explicit(&process->fallback, fresh, memory_order_relaxed);
        } else {
            atomic_store_explicit(&fallback->state, HEAP_ABANDONED, memory_order_relaxed);
        }
    }
}

MALLOW_INTERNAL void process_fork_register(struct process *process) {
    fork_process = process;
    (void)pthread_atfork(process_fork_prepare, process_fork_parent, process_fork_child);
}
