// SPDX-License-Identifier: MIT
// Worker, the thread: see worker.h.
#include "process/worker.h"

#include <errno.h>
#include <sched.h>

#include "arena/arena_broad.h"
#include "os/os_syscall.h"
#include "os/os_thread.h"

enum {
    WORKER_QUIET_TICKS = 3, // looks without anything left before the thread ends
    WORKER_RETRY_FIRST_MS = 1000,
    WORKER_RETRY_LAST_MS = 64000,
};

#define WORKER_LIMIT_BYTES_MIN ((size_t)1 << 30)

MALLOW_INTERNAL void worker_begin(struct worker *worker) {
    worker->os->process_id = os_process_number();
    worker_adjust_trim(worker);
}

MALLOW_INTERNAL void worker_adjust_trim(struct worker *worker) {
    const bool may_be = atomic_load_explicit(&worker->wanted, memory_order_relaxed) &&
                        atomic_load_explicit(&worker->retry_ms, memory_order_relaxed) == 0 &&
                        !worker_is_barred(worker) && worker->os->process_id != 0;
    const bool lifted = may_be && atomic_load_explicit(&worker->lifts_trim, memory_order_relaxed);
    __atomic_store_n(&worker->arenas->trim_lifted, lifted, __ATOMIC_RELAXED);
    __atomic_store_n(&worker->huges->alone, !may_be, __ATOMIC_RELAXED);
}

MALLOW_INTERNAL void worker_bar(struct worker *worker) {
    atomic_store_explicit(&worker->barred, WORKER_BARRED, memory_order_relaxed);
    worker_adjust_trim(worker);
}

// From one of the two that are not for good to the other; a sandbox may begin at any time.
static void worker_change_bar(struct worker *worker, uint8_t from, uint8_t to) {
    if (atomic_compare_exchange_strong_explicit(&worker->barred, &from, to, memory_order_relaxed,
                                                memory_order_relaxed)) {
        worker_adjust_trim(worker);
    }
}

MALLOW_INTERNAL void worker_afford(struct worker *worker) {
    if (os_limit(worker->os) >= WORKER_LIMIT_BYTES_MIN) {
        worker_change_bar(worker, WORKER_UNAFFORDABLE, WORKER_ALLOWED);
    }
}

// ---- The thread ---------------------------------------------------------------------------------

static bool worker_has_work(const struct worker *worker) {
    return atomic_load_explicit(&worker->os->work, memory_order_seq_cst) != 0;
}

// Ends the thread's time unless somebody waits for it, or there is work again, which may come up
// until the last moment. `hurried`: even then, and what it knows of slabs is left to the next one.
static bool worker_leave(struct worker *worker, bool hurried) {
    os_lock_take(&worker->lock);
    bool leaves = worker_is_running(worker) && (hurried || !worker_has_work(worker));
    if (leaves) {
        if (!hurried) {
            heap_holes_forget(&worker->holes);
        }
        atomic_store_explicit(&worker->state, WORKER_NONE, memory_order_seq_cst);
        if (!hurried && worker_has_work(worker)) {
            atomic_store_explicit(&worker->state, WORKER_RUNNING, memory_order_release);
            leaves = false;
        }
    }
    os_lock_drop(&worker->lock);
    return leaves;
}

// An ordinary priority, whatever the creator's: a real-time thread must not be kept waiting. Nor is
// one that has a processor to itself to have ours on it, which would wait there with a lock that
// others need.
static void worker_be_ordinary(void) {
    const struct sched_param ordinary = {0};
    (void)os_syscall6(SYS_sched_setscheduler, 0, SCHED_OTHER, (long)(uintptr_t)&ordinary, 0, 0, 0);
    os_thread_widen();
}

// Where the process may have little memory, nothing is kept for the thread to give back.
static bool worker_is_unaffordable(struct worker *worker) {
    if (os_limit(worker->os) >= WORKER_LIMIT_BYTES_MIN) {
        return false;
    }
    worker_change_bar(worker, WORKER_ALLOWED, WORKER_UNAFFORDABLE);
    return true;
}

// Growth alone is no work where the system makes no huge pages. False: there is other work.
static bool worker_is_needless(struct worker *worker) {
    const uint32_t before = atomic_fetch_and_explicit(
        &worker->os->work, ~(uint32_t)OS_WORK_GROWN, memory_order_relaxed);
    return (before & OS_WORK_KEPT) == 0;
}

// The program has given up rights, or got others: the next thread has them, too.
static bool worker_has_other_rights(const struct worker *worker) {
    return os_thread_rights((uint32_t)worker->os->process_id) != worker->rights;
}

// Has looked, and given back what is idle; the thread's time is over if true.
static bool worker_ends(struct worker *worker, unsigned *quiet) {
    atomic_store_explicit(&worker->os->work, 0, memory_order_relaxed);
    *quiet = worker_tick(worker) ? 0 : *quiet + 1;
    const bool wanted = atomic_load_explicit(&worker->wanted, memory_order_relaxed) &&
                        !worker_is_barred(worker);
    if (worker_has_other_rights(worker)) {
        os_raise_work(worker->os); // whatever is left is another's
        return worker_leave(worker, true);
    }
    if (wanted && *quiet < WORKER_QUIET_TICKS) {
        return false;
    }
    arena_broad_stop(worker->arenas);
    if (*quiet == 0) {
        os_raise_work(worker->os); // whatever is left is for steps
    }
    return worker_leave(worker, *quiet == 0);
}

static void worker_main(void *argument) {
    struct worker *const worker = argument;
    unsigned quiet = 0;
    const pid_t process_id = os_process_number();
    if (process_id < 0) { // a filter refuses even that
        worker_bar(worker);
        (void)worker_leave(worker, true);
        return;
    }
    if (process_id != worker->os->process_id) {
        // A child by vfork has begun it: it must hold no lock when that child ends.
        atomic_store_explicit(&worker->retry_ms, worker_thread_ms() + WORKER_RETRY_FIRST_MS,
                              memory_order_relaxed);
        return;
    }
    os_bare_part_files();
    heap_thread = (struct heap_thread){0};
    const uint32_t number = os_bare_number(&worker->bare);
    atomic_store_explicit(&worker->number, number, memory_order_relaxed);
    worker->rights = os_thread_rights(number);
    worker_be_ordinary();
    if ((worker_is_unaffordable(worker) ||
         (!worker_may_promote(worker) && worker_is_needless(worker))) &&
        worker_leave(worker, true)) {
        return;
    }
    worker_look_for_faults(worker); // growth has brought us here, and goes on
    for (;;) {
        const uint32_t bell = atomic_load_explicit(&worker->bell, memory_order_acquire);
        if (atomic_load_explicit(&worker->state, memory_order_acquire) == WORKER_STOPPING) {
            arena_broad_stop(worker->arenas);
            return;
        }
        if (worker_clock_us() == 0 || !worker_rest(worker, bell)) {
            // A filter refuses to tell the time, which the program's calls know without it, or to
            // wait: looks would follow without a pause.
            worker_bar(worker);
        }
        if (atomic_load_explicit(&worker->bell, memory_order_relaxed) == bell &&
            worker_ends(worker, &quiet)) {
            return;
        }
    }
}

// ---- Its beginning and end ----------------------------------------------------------------------

static bool worker_may_start(const struct worker *worker) {
    const uint64_t retry_ms = atomic_load_explicit(&worker->retry_ms, memory_order_relaxed);
    return atomic_load_explicit(&worker->wanted, memory_order_relaxed) &&
           !worker_is_barred(worker) && worker->os->process_id != 0 &&
           (retry_ms == 0 || worker_now_ms() >= retry_ms);
}

// RUNNING though there is no thread: a child by vfork had begun it, and is gone.
static void worker_start_locked(struct worker *worker) {
    if (os_bare_number(&worker->bare) != 0 || worker->parting_count != 0) {
        return;
    }
    atomic_store_explicit(&worker->state, WORKER_RUNNING, memory_order_release);
    if (os_bare_start(&worker->bare, worker_main, worker, &heap_thread)) {
        atomic_store_explicit(&worker->retry_ms, 0, memory_order_relaxed);
        atomic_store_explicit(&worker->missed_count, 0, memory_order_relaxed);
        worker_adjust_trim(worker);
        worker->retry_wait_ms = WORKER_RETRY_FIRST_MS;
        atomic_fetch_add_explicit(&worker->start_count, 1, memory_order_relaxed);
        return;
    }
    atomic_store_explicit(&worker->state, WORKER_NONE, memory_order_release);
    worker->retry_wait_ms = bits_min(bits_max(2 * worker->retry_wait_ms, WORKER_RETRY_FIRST_MS),
                                     WORKER_RETRY_LAST_MS);
    atomic_store_explicit(&worker->retry_ms, worker_now_ms() + worker->retry_wait_ms,
                          memory_order_relaxed);
    worker_adjust_trim(worker);
}

MALLOW_INTERNAL void worker_poll(struct worker *worker, bool may_step) {
    if (worker->os->sealed || atomic_load_explicit(&worker->keeps, memory_order_relaxed)) {
        return; // sealed: nothing may be given back
    }
    const int error = errno;
    if (worker_cannot_promote(worker) && worker_is_needless(worker)) {
        return;
    }
    if (!worker_may_start(worker)) {
        if (may_step) {
            worker_step(worker, heap_current());
        }
    } else if (os_lock_try(&worker->lock, os_lock_mine())) { // else somebody starts or ends it
        worker_start_locked(worker);
        os_lock_drop(&worker->lock);
    }
    errno = error;
}

// In a child by vfork, say: the thread is its parent's.
static bool worker_is_anothers(const struct worker *worker) {
    return worker->os->process_id != 0 && worker->os->process_id != os_process_number();
}

MALLOW_INTERNAL bool worker_part(struct worker *worker) {
    if (worker_is_anothers(worker)) {
        return false;
    }
    os_lock_take(&worker->lock);
    const bool runs = worker_is_running(worker);
    worker->parting_count++; // or the next one would begin before the end of this one is seen
    if (runs) {
        atomic_store_explicit(&worker->state, WORKER_STOPPING, memory_order_release);
        atomic_fetch_add_explicit(&worker->bell, 1, memory_order_release);
        os_wake(&worker->bell);
    }
    os_lock_drop(&worker->lock);
    os_bare_await(&worker->bare);
    if (runs) {
        atomic_store_explicit(&worker->state, WORKER_NONE, memory_order_release);
        os_raise_work(worker->os); // whatever it was at
    }
    // Ended, or of its own accord: the process is not yet one of one thread to the kernel.
    const uint32_t number =
        atomic_exchange_explicit(&worker->number, 0, memory_order_relaxed);
    if (number != 0) {
        os_thread_await_end(number);
    }
    return true;
}

MALLOW_INTERNAL void worker_rejoin(struct worker *worker) {
    if (!worker_is_anothers(worker)) {
        os_lock_take(&worker->lock);
        // 0: this is a child by fork, in a handler that has interrupted the call.
        worker->parting_count -= worker->parting_count != 0;
        os_lock_drop(&worker->lock);
    }
}

MALLOW_INTERNAL void worker_stop(struct worker *worker) {
    if (worker_part(worker)) {
        worker_rejoin(worker);
    }
}

MALLOW_INTERNAL void worker_fork_prepare(struct worker *worker, bool hurried) {
    os_lock_take_for_fork(&worker->lock, hurried);
    os_lock_take_for_fork(&worker->holes.lock, hurried);
}

MALLOW_INTERNAL void worker_fork_parent(struct worker *worker) {
    os_lock_drop_after_fork(&worker->holes.lock);
    os_lock_drop_after_fork(&worker->lock);
}

MALLOW_INTERNAL void worker_fork_child(struct worker *worker) {
    if (!os_lock_is_mine(&worker->holes.lock)) { // not waited for: its table may be half changed
        heap_holes_fork_child(&worker->holes);
    }
    heap_holes_set_clock(&worker->holes, worker_looks_by(worker)());
    os_lock_renew(&worker->holes.lock);
    os_lock_renew(&worker->lock);
    os_bare_fork_child(&worker->bare);
    worker->parting_count = 0;
    if (!os_lock_is_mine(&worker->lock)) { // else it has interrupted who sets it next
        atomic_store_explicit(&worker->state, WORKER_NONE, memory_order_relaxed);
    }
    if (atomic_load_explicit(&worker->stepping, memory_order_relaxed) != os_this_thread()) {
        atomic_store_explicit(&worker->stepping, 0, memory_order_relaxed);
    }
    atomic_store_explicit(&worker->number, 0, memory_order_relaxed);
    // A child that soon executes another program needs none: the next free that adds to what is
    // kept raises it.
    atomic_store_explicit(&worker->os->work, 0, memory_order_relaxed);
    if (worker->os->process_id != 0) { // else this is a constructor's fork, before ours has run
        worker->os->process_id = os_process_number();
    }
    worker_adjust_trim(worker);
}
