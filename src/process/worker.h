// SPDX-License-Identifier: MIT
// Worker: gives memory back that the program has not needed for a while, without a call of the
// program's: a thread that exists while there is such memory, and no longer.
//
// Owns     struct worker, part of the process: the thread's state, and what is found to be idle.
// Threads  any polls; the thread itself, or whoever steps in its place, does the work.
// Holds    state NONE: there is no thread. STARTING: somebody is creating it. RUNNING: it exists,
//          and ends by itself, back to NONE. STOPPING: it is being asked to end, and joined.
//          In the child of a fork the state is NONE again.
//          It is never needed for correctness: where it cannot be had (by option, in a sandbox,
//          because pthread_create fails) the work is done in steps of at most one system call, on
//          slow calls.
//
// A lower layer that keeps much free memory raises os.work. A slow call of the program's sees that
// and starts the thread: at the outermost level, with no lock of ours held, so that what
// pthread_create allocates is served like any other request; and not on behalf of libc or the
// loader, which may hold locks that pthread_create takes (worker_caller.c). The thread looks at
// regular intervals (MALLOW_TICK_MS), gives back what nobody has needed for two of them, and ends
// when nothing is left for a few more.
#ifndef MALLOW_PROCESS_WORKER_H
#define MALLOW_PROCESS_WORKER_H

#include <pthread.h>
#include <sys/types.h>

#include "arena/arena.h"
#include "arena/huge.h"
#include "arena/promote.h"
#include "heap/heap_holes.h"

#define MALLOW_TICK_MS 400U

enum worker_state { WORKER_NONE = 0, WORKER_STARTING, WORKER_RUNNING, WORKER_STOPPING };

// Where code lies that must not be a caller when a thread is created: what it is part of.
enum worker_range_of {
    WORKER_RANGE_LIBC = 0,
    WORKER_RANGE_LOADER,
    WORKER_RANGE_THREADS, // the library that pthread_create comes from
    WORKER_RANGE_OWN,
    WORKER_RANGE_COUNT,
};
struct worker_range {
    uintptr_t start;
    uintptr_t bytes;
};

struct worker {
    struct os *os;
    struct arena_set *arenas;
    struct huge_set *huges;
    struct heap_holes holes;
    struct promote promote;         // of the thread alone: no step does any of it
    _Atomic(bool) promote_asked;    // what the system allows is known
    bool faults_huge;               // as far as is known, faults may make huge pages
    bool faults_asked;              // what the system says to that is known
    bool calm;                      // the program neither faults nor changes mappings
    uint64_t calm_faults;           // page faults when it was last looked at
    uint64_t calm_entries;          // mallow's calls to the kernel, by then
    uint64_t promote_at_us;         // no huge page is made before
    struct os_lock lock;            // for changes of state
    _Atomic(uint32_t) state;        // enum worker_state
    _Atomic(uint32_t) bell;         // changes when the thread is to look up at once
    _Atomic(uint32_t) stepping;     // 1: somebody is doing the work in its place
    _Atomic(bool) wanted;           // by option
    _Atomic(bool) lifts_trim;       // the limit of what is kept is not set by the program
    _Atomic(bool) keeps;            // the program wants free memory kept: nothing is done
    _Atomic(bool) barred;           // never: a sandbox may kill for it, or memory is limited
    pthread_t thread;               // valid while RUNNING
    _Atomic(uint32_t) number;       // the kernel's, of the last one; 0: it is known to be gone
    pid_t process_id;               // the process that may create it: not a child by vfork
    struct worker_range ranges[WORKER_RANGE_COUNT]; // 0 bytes: part of the program, or not found
    bool blind;                     // callers cannot be told apart: no thread is created
    _Atomic(uint64_t) retry_ms;     // pthread_create has failed: not again before this time
    uint64_t retry_wait_ms;         // then for twice as long
    uint64_t tick_ms;               // time of the last look of the steps
    size_t idle_arena_bytes;        // found idle, and still to be given back by the steps
    size_t idle_huge_bytes;
    size_t step_slice;              // next to be looked at by the steps' round
    size_t step_pending;            // what it has left for the next one
    bool step_round;                // it is under way
    _Atomic(uint64_t) start_count;  // threads created so far
    _Atomic(uint64_t) released_bytes; // given back because nobody needed it
};

// As early as a constructor runs; before it no thread is created.
MALLOW_INTERNAL void worker_begin(struct worker *worker);

// On slow calls when os.work is raised: starts the thread, or does a step of its work. `caller`:
// where the program's call came from. errno is kept.
// `may_enter` false: the call has made its system call, so no step is done in it.
MALLOW_INTERNAL void worker_poll(struct worker *worker, const void *caller, bool may_enter);

// Ends the thread, if it exists, and waits for its end; none is created until the next poll, or
// never again if `for_good`. Waits for what it is at: some 10 us.
MALLOW_INTERNAL void worker_stop(struct worker *worker, bool for_good);

// `keeps`: from now on nothing is given back for being idle, by the thread or by steps; else it is
// again. May wait as worker_stop does.
MALLOW_INTERNAL void worker_keep(struct worker *worker, bool keeps);

MALLOW_INLINE bool worker_is_running(const struct worker *worker) {
    return atomic_load_explicit(&worker->state, memory_order_relaxed) == WORKER_RUNNING;
}

MALLOW_INLINE bool worker_is_none(const struct worker *worker) {
    return atomic_load_explicit(&worker->state, memory_order_relaxed) == WORKER_NONE;
}

// Whether there will be none any more.
MALLOW_INLINE bool worker_is_barred(const struct worker *worker) {
    return atomic_load_explicit(&worker->barred, memory_order_relaxed);
}

MALLOW_INTERNAL void worker_fork_prepare(struct worker *worker, bool hurried);
MALLOW_INTERNAL void worker_fork_parent(struct worker *worker);
MALLOW_INTERNAL void worker_fork_child(struct worker *worker);

// ---- worker_caller.c: on whose behalf it may be created -----------------------------------------

// Finds out what lies where.
MALLOW_INTERNAL void worker_note_callers(struct worker *worker);
MALLOW_INTERNAL bool worker_caller_is_fit(const struct worker *worker, uintptr_t caller);
// False: who has made the call cannot be told, nor, most likely, who will make the next.
MALLOW_INTERNAL bool worker_caller_is_told(const struct worker *worker, uintptr_t caller);

// ---- worker_tick.c: what it does ----------------------------------------------------------------

// Looks, and gives back all that is idle. False: so little is kept that it is not worth a look.
MALLOW_INTERNAL bool worker_tick(struct worker *worker);

// A step of the same in the calling thread: at most one system call, and a look if it is time for
// one. `mine`: its heap, in no other use.
MALLOW_INTERNAL void worker_step(struct worker *worker, const struct heap *mine);

MALLOW_INTERNAL uint64_t worker_now_ms(void);

// ---- worker_promote.c: between looks ------------------------------------------------------------

// Whether the system allows huge pages: asked once, in at most four calls.
MALLOW_INTERNAL bool worker_may_promote(struct worker *worker);

// Looks whether fresh huge blocks are to get huge pages by faults. For the thread alone.
MALLOW_INTERNAL void worker_look_for_faults(struct worker *worker);

// The part of a look that is about huge pages; `own_entries`: the calls to the kernel that the rest
// of it has made. True: some are ripe, or ripening.
MALLOW_INTERNAL bool worker_look_for_huge(struct worker *worker, uint64_t own_entries);

// Gives back what calls of the program's owe, before others of its calls come to it.
MALLOW_INTERNAL void worker_pay(struct worker *worker);

// Waits until it is time for the next look, or the bell is no longer `bell`; pays what is owed and
// makes huge pages meanwhile.
MALLOW_INTERNAL void worker_rest(struct worker *worker, uint32_t bell);

#endif
