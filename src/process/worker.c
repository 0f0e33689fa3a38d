// SPDX-License-Identifier: MIT
// Worker, the thread: see worker.h.
#include "process/worker.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include "os/os_thread.h"

// Of glibc 2.32 and later.
extern int pthread_attr_setsigmask_np(pthread_attr_t *attributes, const sigset_t *mask)
    __attribute__((weak));

enum {
    WORKER_STACK_BYTES = 256 << 10, // of which some 8 KiB are touched
    WORKER_QUIET_TICKS = 3,         // looks without anything left before the thread ends
    WORKER_RETRY_FIRST_MS = 1000,
    WORKER_RETRY_LAST_MS = 64000,
};

#define WORKER_LIMIT_BYTES_MIN ((size_t)1 << 30)

MALLOW_INTERNAL void worker_begin(struct worker *worker) {
    worker_note_callers(worker);
    worker->process_id = getpid();
}

// ---- The thread ---------------------------------------------------------------------------------

// While the thread exists, free memory need not be given back as it is freed: what is not needed
// again goes soon. Where the program has set a limit of its own, that holds.
static void worker_lift_trim(struct worker *worker, bool lifted) {
    const bool may = atomic_load_explicit(&worker->lifts_trim, memory_order_relaxed);
    __atomic_store_n(&worker->arenas->trim_lifted, lifted && may, __ATOMIC_RELAXED);
}

// Ends the thread's time unless there is work again, or somebody waits for it.
static bool worker_leave(struct worker *worker) {
    os_lock_take(&worker->lock);
    const bool leaves =
        worker_is_running(worker) &&
        atomic_load_explicit(&worker->os->work, memory_order_relaxed) == 0;
    if (leaves) {
        heap_holes_forget(&worker->holes);
        (void)pthread_detach(worker->thread);
        worker_lift_trim(worker, false);
        atomic_store_explicit(&worker->state, WORKER_NONE, memory_order_release);
    }
    os_lock_drop(&worker->lock);
    return leaves;
}

// An ordinary priority, whatever the creator's: a real-time thread must not be kept waiting. Set by
// the thread itself, so that it is not the creator who waits for that either.
static void worker_be_ordinary(void) {
    const struct sched_param ordinary = {0};
    (void)sched_setscheduler(0, SCHED_OTHER, &ordinary);
}

static void *worker_main(void *argument) {
    struct worker *const worker = argument;
    unsigned quiet = 0;
    atomic_store_explicit(&worker->number, os_thread_number(), memory_order_relaxed);
    worker_be_ordinary();
    worker_look_for_faults(worker); // growth has brought us here, and goes on
    for (;;) {
        const uint32_t bell = atomic_load_explicit(&worker->bell, memory_order_acquire);
        if (atomic_load_explicit(&worker->state, memory_order_acquire) == WORKER_STOPPING) {
            return NULL;
        }
        worker_rest(worker, bell);
        if (atomic_load_explicit(&worker->bell, memory_order_relaxed) != bell) {
            continue;
        }
        atomic_store_explicit(&worker->os->work, 0, memory_order_relaxed);
        quiet = worker_tick(worker) ? 0 : quiet + 1;
        const bool wanted = atomic_load_explicit(&worker->wanted, memory_order_relaxed);
        if ((quiet >= WORKER_QUIET_TICKS || !wanted) && worker_leave(worker)) {
            return NULL;
        }
    }
}

// What libc allocates for the thread comes from a heap of its own: so the program's figures do not
// change because of us, nor does its heap. NULL: there is none, or it is in use.
static struct heap *worker_take_heap(struct worker *worker) {
    struct heap_shared *const shared = worker->holes.shared;
    struct heap *heap = atomic_load_explicit(&shared->own, memory_order_relaxed);
    if (heap == NULL) {
        heap = heap_create_fallback(shared);
        if (heap == NULL) {
            return NULL;
        }
        __builtin_memset(heap->thin_counts, MALLOW_THIN_BLOCKS_MAX, sizeof heap->thin_counts);
        atomic_store_explicit(&shared->own, heap, memory_order_relaxed);
    }
    return heap_claim(heap) ? heap : NULL;
}

// pthread_create, with that heap as the calling thread's for as long as it takes.
static int worker_create_thread(struct worker *worker, const pthread_attr_t *attributes) {
    const struct heap *const before = heap_current();
    struct heap *const heap = worker_take_heap(worker);
    if (heap != NULL) {
        heap_switch(heap);
    }
    const int error = pthread_create(&worker->thread, attributes, worker_main, worker);
    heap_switch(before);
    if (heap != NULL) {
        int work = MALLOW_CALL_WORK;
        heap_unclaim(heap, &work);
    }
    return error;
}

// Signals are the program's: none is to be taken by a thread that it does not know. Where libc can
// be told so, that costs no system calls.
static int worker_create_masked(struct worker *worker, pthread_attr_t *attributes) {
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    if (pthread_attr_setsigmask_np != NULL && pthread_attr_setsigmask_np(attributes, &all) == 0) {
        return worker_create_thread(worker, attributes);
    }
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = worker_create_thread(worker, attributes);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static int worker_create(struct worker *worker) {
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    if (error != 0) {
        return error;
    }
    (void)pthread_attr_setstacksize(&attributes, WORKER_STACK_BYTES);
    error = worker_create_masked(worker, &attributes);
    if (error == EINVAL) { // the program's thread-local storage needs a larger stack
        (void)pthread_attr_destroy(&attributes);
        (void)pthread_attr_init(&attributes);
        error = worker_create_masked(worker, &attributes);
    }
    (void)pthread_attr_destroy(&attributes);
    return error;
}

// Whether a thread may be created now, by this caller.
static bool worker_may_start(const struct worker *worker, uintptr_t caller) {
    const uint64_t retry_ms = atomic_load_explicit(&worker->retry_ms, memory_order_relaxed);
    return atomic_load_explicit(&worker->wanted, memory_order_relaxed) &&
           !worker_is_barred(worker) &&
           worker->process_id != 0 && worker_caller_is_fit(worker, caller) &&
           (retry_ms == 0 || worker_now_ms() >= retry_ms) && worker->process_id == getpid();
}

// Whether a thread can be had, only not on behalf of this caller: the next one that is fit gets it,
// and meanwhile no call takes a step in its place.
static bool worker_waits_for_caller(const struct worker *worker, uintptr_t caller) {
    return atomic_load_explicit(&worker->wanted, memory_order_relaxed) &&
           !worker_is_barred(worker) &&
           atomic_load_explicit(&worker->retry_ms, memory_order_relaxed) == 0 &&
           worker->process_id != 0 && worker_caller_is_told(worker, caller) &&
           !worker_caller_is_fit(worker, caller);
}

// Where the process may have little memory, a thread's stack is a good part of it, and what libc
// keeps for the thread may lie where it hinders giving back what is below.
static bool worker_is_unaffordable(struct worker *worker) {
    if (os_limit(worker->os) >= WORKER_LIMIT_BYTES_MIN) {
        return false;
    }
    atomic_store_explicit(&worker->barred, true, memory_order_relaxed);
    return true;
}

// Moves the state from NONE to STARTING: for one thread only.
static bool worker_claim_start(struct worker *worker) {
    uint32_t expected = WORKER_NONE;
    return atomic_compare_exchange_strong_explicit(&worker->state, &expected, WORKER_STARTING,
                                                   memory_order_acquire, memory_order_relaxed);
}

static void worker_start(struct worker *worker) {
    // What pthread_create allocates may lead here again: it finds the state changed.
    if (!worker_claim_start(worker)) {
        return;
    }
    const int error = worker_create(worker);
    os_lock_take(&worker->lock);
    if (error == 0) {
        atomic_store_explicit(&worker->retry_ms, 0, memory_order_relaxed);
        worker_lift_trim(worker, true);
        worker->retry_wait_ms = WORKER_RETRY_FIRST_MS;
        atomic_fetch_add_explicit(&worker->start_count, 1, memory_order_relaxed);
    } else {
        worker->retry_wait_ms =
            bits_min(bits_max(2 * worker->retry_wait_ms, WORKER_RETRY_FIRST_MS),
                     WORKER_RETRY_LAST_MS);
        atomic_store_explicit(&worker->retry_ms, worker_now_ms() + worker->retry_wait_ms,
                              memory_order_relaxed);
    }
    atomic_store_explicit(&worker->state, error == 0 ? WORKER_RUNNING : WORKER_NONE,
                          memory_order_release);
    os_lock_drop(&worker->lock);
}

static bool worker_has_grown_only(const struct worker *worker) {
    return atomic_load_explicit(&worker->os->work, memory_order_relaxed) == OS_WORK_GROWN;
}

MALLOW_INTERNAL void worker_poll(struct worker *worker, const void *caller, bool may_enter) {
    const uint32_t state = atomic_load_explicit(&worker->state, memory_order_acquire);
    if (state != WORKER_NONE || worker->os->sealed ||
        atomic_load_explicit(&worker->keeps, memory_order_relaxed)) {
        return; // sealed: nothing may be given back
    }
    const int error = errno;
    if (worker_may_start(worker, (uintptr_t)caller)) {
        if (worker_has_grown_only(worker) && !worker_may_promote(worker)) {
            // Nothing to do, nor ever: with that, growth is no work any more.
            atomic_fetch_and_explicit(&worker->os->work, ~(uint32_t)OS_WORK_GROWN,
                                      memory_order_relaxed);
        } else if (!worker_is_unaffordable(worker)) {
            worker_start(worker);
        }
    } else if (may_enter && !worker_waits_for_caller(worker, (uintptr_t)caller)) {
        worker_step(worker, heap_current());
    }
    errno = error;
}

MALLOW_INTERNAL void worker_stop(struct worker *worker, bool for_good) {
    if (worker->process_id != 0 && worker->process_id != getpid()) {
        return; // a child by vfork, say: the thread is its parent's
    }
    os_lock_take(&worker->lock);
    if (for_good) {
        atomic_store_explicit(&worker->barred, true, memory_order_relaxed);
    }
    while (atomic_load_explicit(&worker->state, memory_order_acquire) == WORKER_STARTING) {
        os_lock_drop(&worker->lock); // another thread is creating it
        os_wait(&worker->bell, atomic_load_explicit(&worker->bell, memory_order_relaxed), 1000000);
        os_lock_take(&worker->lock);
    }
    const bool runs = worker_is_running(worker);
    if (runs) {
        atomic_store_explicit(&worker->state, WORKER_STOPPING, memory_order_release);
        atomic_fetch_add_explicit(&worker->bell, 1, memory_order_release);
        os_wake(&worker->bell);
    }
    os_lock_drop(&worker->lock);
    if (runs) {
        int cancels = PTHREAD_CANCEL_ENABLE; // none of the calls that lead here is a place for that
        (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels);
        (void)pthread_join(worker->thread, NULL);
        (void)pthread_setcancelstate(cancels, NULL);
        worker_lift_trim(worker, false);
        atomic_store_explicit(&worker->state, WORKER_NONE, memory_order_release);
        os_raise_work(worker->os); // whatever it was at
    }
    // Joined, or of its own accord: the process is not yet one of one thread to the kernel.
    const uint32_t number =
        atomic_exchange_explicit(&worker->number, 0, memory_order_relaxed);
    if (number != 0) {
        os_thread_await_end(number);
    }
}

MALLOW_INTERNAL void worker_keep(struct worker *worker, bool keeps) {
    atomic_store_explicit(&worker->keeps, keeps, memory_order_relaxed);
    if (keeps) {
        worker_stop(worker, false);
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
    os_lock_renew(&worker->holes.lock);
    os_lock_renew(&worker->lock);
    worker_lift_trim(worker, false);
    atomic_store_explicit(&worker->state, WORKER_NONE, memory_order_relaxed);
    atomic_store_explicit(&worker->stepping, 0, memory_order_relaxed);
    atomic_store_explicit(&worker->number, 0, memory_order_relaxed);
    // A child that soon executes another program needs none: the next free that adds to what is
    // kept raises it.
    atomic_store_explicit(&worker->os->work, 0, memory_order_relaxed);
    worker->process_id = getpid();
}
