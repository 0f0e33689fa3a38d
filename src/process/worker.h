// SPDX-License-Identifier: MIT
// Worker: gives memory back that the program has not needed for a while, without a call of the
// program's: a thread that exists while there is such memory, and no longer.
//
// Owns     struct worker, part of the process: the thread's state, and what is found to be idle.
// Threads  any polls; the thread itself, or whoever steps in its place, does the work.
// Holds    state NONE: there is no thread, but for one on its way out. RUNNING: it exists, and ends
//          by itself, back to NONE. STOPPING: it is being asked to end, and waited for.
//          In the child of a fork the state is NONE again.
//          It is never needed for correctness: where it cannot be had (by option, in a sandbox,
//          because the kernel refuses) the work is done in steps of at most one system call, on
//          slow calls.
//
// A lower layer that keeps much free memory raises os.work. A slow call of the program's that has
// made no system call, or else the fourth that has (decision 82), sees that and starts the thread,
// a bare one (os_bare.h): whatever locks of libc's its caller holds, and in one system call. The
// thread looks at regular intervals (MALLOW_TICK_MS), gives back what nobody has needed for two of
// them, and ends when nothing is left for a few more, or when the program has changed what it may
// do: its own rights stay those that it has begun with.
#ifndef MALLOW_PROCESS_WORKER_H
#define MALLOW_PROCESS_WORKER_H

#include <sys/types.h>
#include <time.h>

#include "arena/arena.h"
#include "arena/huge.h"
#include "arena/promote.h"
#include "heap/heap_holes.h"
#include "os/os_bare.h"
#include "os/os_syscall.h"

#define MALLOW_TICK_MS 400U

enum worker_state { WORKER_NONE = 0, WORKER_RUNNING, WORKER_STOPPING };

// Whether there may be a thread: not where memory is limited to little; nor, for good, where the
// program has asked for that, or a sandbox may kill for it.
enum worker_bar { WORKER_ALLOWED = 0, WORKER_UNAFFORDABLE, WORKER_BARRED };

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
    uint64_t broad_at_us;           // when growth is looked at next
    uint64_t broad_wait_us;         // and how long after that
    struct os_lock lock;            // for changes of state, but for STOPPING to NONE
    _Atomic(uint32_t) state;        // enum worker_state
    _Atomic(uint32_t) bell;         // changes when the thread is to look up at once
    _Atomic(uintptr_t) stepping;    // the thread that is doing the work in its place; 0: none
    _Atomic(bool) wanted;           // by option
    _Atomic(bool) lifts_trim;       // the limit of what is kept is not set by the program
    _Atomic(bool) keeps;            // the program wants free memory kept: nothing is done
    _Atomic(uint8_t) barred;        // enum worker_bar
    _Atomic(uint32_t) number;       // the kernel's, of the last one; 0: it is known to be gone
    unsigned parting_count;         // calls during which there must be none; under the lock
    uint64_t rights;                // of the thread, as os_thread_rights tells
    _Atomic(uint64_t) retry_ms;     // none could be had: not again before this time
    uint64_t retry_wait_ms;         // then for twice as long
    _Atomic(uint32_t) missed_count; // calls that could have started it, but for their system call
    uint64_t tick_ms;               // time of the last look of the steps
    size_t idle_arena_bytes;        // found idle, and still to be given back by the steps
    size_t idle_huge_bytes;
    size_t step_slice;              // next to be looked at by the steps' round
    size_t step_pending;            // what it has left for the next one
    bool step_round;                // it is under way
    bool step_looked;               // there has been one since there was work
    _Atomic(uint64_t) start_count;  // threads created so far
    _Atomic(uint64_t) released_bytes; // given back because nobody needed it
    size_t refused_bytes; // kept when the kernel last gave none of it back; 0: it has since
    struct os_bare bare;            // last, since most of it is not touched
};

// As early as a constructor runs; before it no thread is created.
MALLOW_INTERNAL void worker_begin(struct worker *worker);

// Where a thread is to be had, free memory need not be given back as it is freed: what is not
// needed again goes soon. Else what is owed of huge blocks is not to be left for good. Where the
// program has set a limit of its own, that holds. After changes of options.
MALLOW_INTERNAL void worker_adjust_trim(struct worker *worker);

// On slow calls when os.work is raised and there is no thread: starts it (three system calls), or
// else does a step of its work (one) if the call may step. errno is kept.
MALLOW_INTERNAL void worker_poll(struct worker *worker, bool may_step);

// Ends the thread, if it exists, and waits for its end; none is created until the next poll. Waits
// for what it is at: some 10 us, or a millisecond where growth has huge pages ahead or free memory
// is given back. Nothing in a child by vfork.
MALLOW_INTERNAL void worker_stop(struct worker *worker);

// The same until worker_rejoin: for a call that is to find the process without it, or that changes
// what threads may do. False, and nothing done, in a child by vfork.
MALLOW_INTERNAL bool worker_part(struct worker *worker);
MALLOW_INTERNAL void worker_rejoin(struct worker *worker);

// `keeps`: from now on no call begins to give back what is idle, in steps or by the thread, which
// worker_stop ends; else they do again.
MALLOW_INLINE void worker_keep(struct worker *worker, bool keeps) {
    atomic_store_explicit(&worker->keeps, keeps, memory_order_relaxed);
}

MALLOW_INLINE bool worker_is_running(const struct worker *worker) {
    return atomic_load_explicit(&worker->state, memory_order_relaxed) == WORKER_RUNNING;
}

// Whether somebody waits for the thread's end.
MALLOW_INLINE bool worker_is_awaited(const struct worker *worker) {
    return atomic_load_explicit(&worker->state, memory_order_relaxed) == WORKER_STOPPING;
}

// Whether there is no thread at all.
MALLOW_INLINE bool worker_is_absent(const struct worker *worker) {
    return os_bare_number(&worker->bare) == 0;
}

// Notes a call that is not to start it, having made its system call; true if there have been so
// many that there may be no other calls. Racy counts do.
#define WORKER_MISSED_MAX 4U
MALLOW_INLINE bool worker_is_overdue(struct worker *worker) {
    const uint32_t count = atomic_load_explicit(&worker->missed_count, memory_order_relaxed) + 1;
    const bool overdue = count >= WORKER_MISSED_MAX;
    atomic_store_explicit(&worker->missed_count, overdue ? 0 : count, memory_order_relaxed);
    return overdue;
}

// From now on there is none: one that runs ends when it has nothing to do. Does not wait.
MALLOW_INTERNAL void worker_bar(struct worker *worker);
// A limit of memory has been lifted: if that was why there was none, there may be one again.
MALLOW_INTERNAL void worker_afford(struct worker *worker);
MALLOW_INLINE bool worker_may_afford(const struct worker *worker) {
    return atomic_load_explicit(&worker->barred, memory_order_relaxed) == WORKER_UNAFFORDABLE;
}

// Whether there is to be none, for now or for good.
MALLOW_INLINE bool worker_is_barred(const struct worker *worker) {
    return atomic_load_explicit(&worker->barred, memory_order_relaxed) != WORKER_ALLOWED;
}

MALLOW_INLINE bool worker_is_barred_for_good(const struct worker *worker) {
    return atomic_load_explicit(&worker->barred, memory_order_relaxed) == WORKER_BARRED;
}

MALLOW_INTERNAL void worker_fork_prepare(struct worker *worker, bool hurried);
MALLOW_INTERNAL void worker_fork_parent(struct worker *worker);
MALLOW_INTERNAL void worker_fork_child(struct worker *worker);

// ---- worker_tick.c: what it does ----------------------------------------------------------------

// Looks, and gives back all that is idle; what is left when its end is waited for is the next
// thread's. False: so little is kept that it is not worth a look.
MALLOW_INTERNAL bool worker_tick(struct worker *worker);

// A step of the same in the calling thread: at most one system call, and a look if it is time for
// one. `mine`: its heap, in no other use.
MALLOW_INTERNAL void worker_step(struct worker *worker, const struct heap *mine);

MALLOW_INTERNAL uint64_t worker_now_ms(void);

// The same for the thread, and any clock: by a system call, as what comes in place of libc's
// function (libfaketime's) has thread-local storage of its own, which the thread has not.
MALLOW_INTERNAL uint64_t worker_thread_ms(void);

// Which of the two the looks of calls go by: the thread's, whose looks note when they were, where
// there is to be one. A sandbox that bars it may kill for the system call.
typedef uint64_t worker_clock_ms(void);
MALLOW_INLINE worker_clock_ms *worker_looks_by(const struct worker *worker) {
    return atomic_load_explicit(&worker->wanted, memory_order_relaxed) &&
                   !worker_is_barred_for_good(worker)
               ? worker_thread_ms
               : worker_now_ms;
}

MALLOW_INLINE struct timespec worker_clock(clockid_t clock) {
    struct timespec now = {0, 0};
    (void)os_syscall6(SYS_clock_gettime, clock, (long)(uintptr_t)&now, 0, 0, 0, 0);
    return now;
}
// Of the monotonic clock, where ticks are too coarse: what a promotion takes, and how long the
// process has run, from first to last by this clock and no other.
MALLOW_INLINE uint64_t worker_clock_us(void) {
    const struct timespec now = worker_clock(CLOCK_MONOTONIC);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

// ---- worker_purge.c: what it gives back in pieces -----------------------------------------------

// Gives back *bytes of what is kept of huge blocks, or of slices: a few calls to the kernel at a
// time, broken off when the thread's end is waited for. *bytes: what is left by that, else 0. Bytes
// released.
MALLOW_INTERNAL size_t worker_purge_huge(struct worker *worker, size_t *bytes);
MALLOW_INTERNAL size_t worker_purge_slices(struct worker *worker, size_t *bytes);

// The same of thin slices, as the last thin_idle_look has found them.
MALLOW_INTERNAL size_t worker_purge_thins(struct worker *worker);

// Takes what a purge has released off what is still to be; all of it if it has released nothing.
MALLOW_INTERNAL void worker_take_off(size_t *bytes, size_t released);

// ---- worker_promote.c: between looks ------------------------------------------------------------

// Whether the system allows huge pages: asked once, in at most seven calls. For the thread alone.
MALLOW_INTERNAL bool worker_may_promote(struct worker *worker);

// Whether it is known not to.
MALLOW_INTERNAL bool worker_cannot_promote(const struct worker *worker);

// Looks whether fresh huge blocks are to get huge pages by faults. For the thread alone.
MALLOW_INTERNAL void worker_look_for_faults(struct worker *worker);

// The part of a look that is about huge pages; `own_entries`: the calls to the kernel that the rest
// of it has made. True: some are ripe, or ripening.
MALLOW_INTERNAL bool worker_look_for_huge(struct worker *worker, uint64_t own_entries);

// Gives back what calls of the program's owe, before others of its calls come to it.
MALLOW_INTERNAL void worker_pay(struct worker *worker);

// Waits until it is time for the next look, or the bell is no longer `bell`; pays what is owed and
// makes huge pages meanwhile. Does not wait where the time is refused. False: a filter refuses to
// wait.
MALLOW_INTERNAL bool worker_rest(struct worker *worker, uint32_t bell);

#endif
