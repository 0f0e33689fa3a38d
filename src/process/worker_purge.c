// SPDX-License-Identifier: MIT
// Worker, what it gives back in pieces: see worker.h.
//
// Holds    between two pieces it looks whether its end is waited for: who waits does so for a few
//          calls to the kernel, however much there is to give back.
#include "process/worker.h"

#include "base/bits.h"

enum { WORKER_PIECE_CALLS = 8 };

MALLOW_INTERNAL void worker_take_off(size_t *bytes, size_t released) {
    *bytes -= released != 0 ? bits_min(released, *bytes) : *bytes;
}

MALLOW_INTERNAL size_t worker_purge_huge(struct worker *worker, size_t *bytes) {
    size_t released = 0;
    while (*bytes != 0 && !worker_is_awaited(worker)) {
        const size_t piece = huge_idle_purge(worker->huges, *bytes, WORKER_PIECE_CALLS);
        worker_take_off(bytes, piece);
        released += piece;
    }
    return released;
}

// Whether a piece of which nothing was released has others behind it, since the kernel has refused
// it. Not while somebody else purges.
static bool worker_was_refused(const struct worker *worker) {
    os_lock_take_patiently(&worker->arenas->lock);
    const bool refused =
        worker->arenas->refused.arena != NULL && worker->arenas->leaving.arena == NULL;
    os_lock_drop(&worker->arenas->lock);
    return refused;
}

MALLOW_INTERNAL size_t worker_purge_slices(struct worker *worker, size_t *bytes) {
    size_t released = 0;
    while (*bytes != 0 && !worker_is_awaited(worker)) {
        const size_t piece = arena_idle_purge(worker->arenas, *bytes, WORKER_PIECE_CALLS);
        const bool refused = piece == 0 && worker_was_refused(worker);
        // Each call a slice at least.
        worker_take_off(bytes, refused ? WORKER_PIECE_CALLS * MALLOW_SLICE_BYTES : piece);
        released += piece;
    }
    return released;
}

// Whether thin slices are left to be looked through, and nobody else is at one.
static bool worker_has_thins(struct thin_set *thins) {
    os_lock_take_patiently(&thins->lock);
    const bool has = thins->cursor != NULL && thins->leaving.slice == NULL;
    os_lock_drop(&thins->lock);
    return has;
}

MALLOW_INTERNAL size_t worker_purge_thins(struct worker *worker) {
    struct thin_set *const thins = worker->holes.shared->thins;
    size_t released = 0;
    for (bool has = true; has && !worker_is_awaited(worker); has = worker_has_thins(thins)) {
        released += thin_idle_purge(thins, WORKER_PIECE_CALLS);
    }
    return released;
}
