// SPDX-License-Identifier: MIT
// Worker, one look: see worker.h.
#include "process/worker.h"

#include <time.h>

#include "base/bits.h"
#include "os/os_thread.h"

enum {
    WORKER_PATIENCE = 2,    // looks for which a slab must have stayed as it is
    WORKER_STEP_SLICES = 8, // looked at in a step, up to the first slab among them
    WORKER_WAY_NS = 2000000, // where a visit takes 10 to 200 us
};

// As little as this is left alone: a thread costs more.
#define WORKER_FLOOR_BYTES ((size_t)256 << 10)

static uint64_t worker_milliseconds(struct timespec time) {
    return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

MALLOW_INTERNAL uint64_t worker_thread_ms(void) {
    return worker_milliseconds(worker_clock(CLOCK_MONOTONIC_COARSE));
}

// The clock of the kernel's ticks, which is read without a system call whatever the hardware.
MALLOW_INTERNAL uint64_t worker_now_ms(void) {
    struct timespec now = {0, 0};
    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return worker_milliseconds(now);
}

static size_t worker_kept_bytes(const struct worker *worker) {
    os_lock_take_patiently(&worker->arenas->lock);
    size_t kept = worker->arenas->dirty_slices << MALLOW_SLICE_SHIFT;
    os_lock_drop(&worker->arenas->lock);
    os_lock_take_patiently(&worker->huges->map->lock);
    kept += worker->huges->cache.bytes;
    os_lock_drop(&worker->huges->map->lock);
    return kept;
}

static void worker_count(struct worker *worker, size_t bytes) {
    atomic_fetch_add_explicit(&worker->released_bytes, bytes, memory_order_relaxed);
}

static uint64_t worker_released(const struct worker *worker) {
    return atomic_load_explicit(&worker->released_bytes, memory_order_relaxed);
}

// What a thread has had beside its slabs lies in memory of its own, while nobody uses what is free
// in those: so there is not one visit of a busy heap upon the other.
static void worker_give_way(void) {
    _Atomic(uint32_t) never = 0;
    (void)os_wait(&never, 0, WORKER_WAY_NS);
}

// A round over the slabs, broken off when the thread is asked to end. *pending: slabs left for
// later ones.
static void worker_purge_holes(struct worker *worker, size_t *pending) {
    const struct heap_holes_way way = {
        .now_ms = worker_thread_ms(),
        .visitor = os_bare_number(&worker->bare),
        .patience = WORKER_PATIENCE,
        .calls = UINT32_MAX,
        .is_asleep = os_thread_is_asleep,
    };
    size_t slice = 0;
    heap_holes_begin(&worker->holes);
    for (size_t before = SIZE_MAX; slice != before;) {
        if (!worker_is_running(worker)) {
            break;
        }
        before = slice;
        const struct heap_holes_result part =
            heap_holes_look(&worker->holes, &way, &slice, MALLOW_CHUNK_SLICES);
        *pending += part.pending_count;
        worker_count(worker, part.released_bytes);
        if (part.in_the_way) {
            worker_give_way();
        }
    }
    heap_holes_end(&worker->holes);
}

static void worker_sort_posts(struct worker *worker) {
    os_lock_take_patiently(&worker->holes.lock); // so does a fork
    heap_sort_posts(worker->holes.shared);
    os_lock_drop(&worker->holes.lock);
}

// Whether what is kept is worth another look. What the program has locked is not, for as long as no
// more and no less is kept: the kernel has refused it, and goes on refusing.
static bool worker_may_release(struct worker *worker, size_t idle_bytes, uint64_t released) {
    const size_t kept = worker_kept_bytes(worker);
    if (released != 0) {
        worker->refused_bytes = 0;
    } else if (idle_bytes != 0) {
        worker->refused_bytes = kept;
    }
    return kept > WORKER_FLOOR_BYTES && kept != worker->refused_bytes;
}

MALLOW_INTERNAL bool worker_tick(struct worker *worker) {
    size_t pending = 0;
    const uint64_t entries = os_entries(worker->os);
    const uint64_t released = worker_released(worker);
    huge_give_late(worker->huges);
    size_t huge_bytes = huge_idle_look(worker->huges);
    size_t arena_bytes = arena_idle_look(worker->arenas);
    const size_t idle_bytes = huge_bytes + arena_bytes;
    worker_count(worker, worker_purge_huge(worker, &huge_bytes));
    worker_count(worker, worker_purge_slices(worker, &arena_bytes));
    if (worker_is_awaited(worker)) {
        return true;
    }
    worker_sort_posts(worker);
    worker_purge_holes(worker, &pending);
    const struct thin_idle thin = thin_idle_look(worker->holes.shared->thins, false);
    worker_count(worker, worker_purge_thins(worker));
    pending += thin.later_bytes;
    worker_look_for_faults(worker);
    const bool more = worker_look_for_huge(worker, os_entries(worker->os) - entries);
    return more || pending != 0 ||
           worker_may_release(worker, idle_bytes, worker_released(worker) - released);
}

static void worker_step_look(struct worker *worker, uint64_t now) {
    if (now - worker->tick_ms < MALLOW_TICK_MS || worker->step_round) {
        return;
    }
    worker->tick_ms = now;
    worker->idle_huge_bytes = huge_idle_look(worker->huges);
    worker->idle_arena_bytes = arena_idle_look(worker->arenas);
    const bool over = worker->step_looked && worker->step_pending == 0 &&
                      worker_kept_bytes(worker) <= WORKER_FLOOR_BYTES;
    if (over) {
        atomic_store_explicit(&worker->os->work, 0, memory_order_relaxed);
    }
    worker->step_looked = !over;
    heap_holes_begin(&worker->holes);
    worker->step_round = true;
    worker->step_slice = 0;
    worker->step_pending = 0;
}

static size_t worker_step_holes(struct worker *worker, const struct heap *mine, uint64_t now_ms) {
    const struct heap_holes_way way = {
        .now_ms = now_ms,
        .mine = mine,
        .visitor = os_thread_number(),
        .patience = WORKER_PATIENCE,
        .calls = 1,
        .slabs = 1,
    };
    const size_t before = worker->step_slice;
    const struct heap_holes_result part =
        heap_holes_look(&worker->holes, &way, &worker->step_slice, WORKER_STEP_SLICES);
    worker->step_pending += part.pending_count;
    if (worker->step_slice == before && !part.stopped) {
        heap_holes_end(&worker->holes);
        worker->step_round = false;
    }
    return part.released_bytes;
}

MALLOW_INTERNAL void worker_step(struct worker *worker, const struct heap *mine) {
    uintptr_t nobody = 0;
    if (!atomic_compare_exchange_strong_explicit(&worker->stepping, &nobody, os_this_thread(),
                                                 memory_order_acquire, memory_order_relaxed)) {
        return; // another thread is at it, or this one before a signal
    }
    const uint64_t entries = os_entries(worker->os);
    const uint64_t now_ms = worker_now_ms();
    worker_step_look(worker, now_ms);
    size_t released = 0;
    if (os_entries(worker->os) != entries) {
        // The look has taken this call's system call.
    } else if (worker->idle_huge_bytes != 0) {
        released = huge_idle_purge(worker->huges, worker->idle_huge_bytes, 1);
        worker_take_off(&worker->idle_huge_bytes, released);
    } else if (worker->idle_arena_bytes != 0) {
        released = arena_idle_purge(worker->arenas, worker->idle_arena_bytes, 1);
        worker_take_off(&worker->idle_arena_bytes, released);
    } else if (worker->step_round) {
        released = worker_step_holes(worker, mine, now_ms);
    }
    worker_count(worker, released);
    atomic_store_explicit(&worker->stepping, 0, memory_order_release);
}
