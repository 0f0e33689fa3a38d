// SPDX-License-Identifier: MIT
// Process: birth, threads, fork and end; the one place with state of its own.
//
// Owns     struct process, and with it every lower layer's struct; the thread-specific key.
// Threads  any. Locks and their order: worker -> start -> fallback -> thins -> arenas -> address
//          map -> meta -> shed.
// Holds    phase only rises: RAW -> MEMORY (allocation works, through the fallback heap) -> THREADS
//          (threads get heaps of their own). An IFUNC resolver may allocate before libc and the
//          thread's storage are set up; what it gets comes from the fallback heap and stays valid.
#ifndef MALLOW_PROCESS_PROCESS_H
#define MALLOW_PROCESS_PROCESS_H

#include <pthread.h>

#include "heap/heap.h"
#include "observe/snapshot.h"
#include "process/process_beat.h"
#include "process/process_limit.h"
#include "process/process_operators.h"
#include "process/process_options.h"
#include "process/process_shed.h"
#include "process/worker.h"

enum process_phase { PROCESS_RAW = 0, PROCESS_MEMORY = 1, PROCESS_THREADS = 2 };

enum { PROCESS_FIRST_MEMORY_BYTES = 80 << 10, PROCESS_REPORT_BYTES = 16 << 10 };

// Which file a descriptor is.
struct process_file {
    dev_t holder;  // the device that has it
    ino_t number;  // on that
    dev_t device;  // the device that it is
};

struct process {
    _Atomic(uint32_t) phase;         // enum process_phase; read by every slow call, seldom written
    struct os os;
    struct meta meta;
    struct address_map map;
    struct arena_set arenas;
    struct huge_set huges;
    struct thin_set thins;
    struct reserve reserve;          // all of the arena, with MALLOW_MODE=realtime
    struct heap_shared shared;
    struct process_options options;
    struct process_limit limit;
    struct process_shed shed;
    struct process_beat beat;
    struct os_lock start_lock;       // for raising the phase, and for changing options and limits
    struct os_lock fallback_lock;    // one thread at a time in the fallback heap
    _Atomic(struct heap *) fallback; // of threads that have none: too early, or after their end;
                                     // NULL: not needed yet; set under fallback_lock
    pthread_key_t key;
    bool key_valid;
    uint64_t start_us;               // monotonic clock at start
    int stats_fd;                    // a copy of stderr, for statistics and complaints at the end,
                                     // or 2; -1: it was closed (process_report_fd)
    struct process_file stats_file;  // what it was; all 0: nobody has looked
    _Atomic(bool) libc_is_used;      // it has been seen to have a block, or to have had one
    struct observe_sources sources;  // where the counters are
    struct process_operators operators;
    struct worker worker;            // returns memory while the program is idle
    bool fork_holds_streams;         // from its preparation to its end; libc's lock, see there
    // The first structures: on the page, of all that a small program touches, that the state above
    // has begun. What is not handed out costs no memory.
    _Alignas(MALLOW_CACHE_LINE) unsigned char first_memory[PROCESS_FIRST_MEMORY_BYTES];
    struct heap bare;                // see struct heap_shared; behind all that others touch
    _Atomic(uint32_t) bare_is_begun; // by a thread that makes it, or has
    struct process_libc libc;        // whom of its functions a call has looked up
    char report[PROCESS_REPORT_BYTES]; // MALLOW_REPORT's text: a thread's stack may have no room
};

// The process, with memory ready. First use sets it up.
MALLOW_INTERNAL struct process *process_ready(void);

// The same; NULL if it has yet to be set up.
MALLOW_INTERNAL struct process *process_if_ready(void);

// What all heaps share. Before the first use nothing in it is set.
MALLOW_INTERNAL const struct heap_shared *process_shared(void);

// For a thread that frees, and has no heap: it finds headers as fast as others from now on, where
// that can be. Its heap, which is as empty as before.
MALLOW_INTERNAL struct heap *process_enter_bare(struct process *process);

// A heap for one operation of the calling thread: its own from now on, or the fallback heap, held.
// NULL: no memory for a heap. process_leave ends the operation.
MALLOW_INTERNAL struct heap *process_enter(void);
MALLOW_INTERNAL void process_leave(struct heap *heap);

// The first of the two, for a thread that has no heap yet; NULL: it cannot have one.
MALLOW_INTERNAL struct heap *process_enter_own(void);

// By option.
MALLOW_INTERNAL bool process_is_realtime(const struct process *process);

// With MALLOW_MODE=realtime: takes all memory, brings it in and locks it, and seals the way to the
// kernel. One line on stderr for what could not be done.
MALLOW_INTERNAL void process_start_realtime(struct process *process);

// With MALLOW_GIANT_PAGES: takes them, before any other memory is. One line on stderr if there were
// not enough.
MALLOW_INTERNAL void process_start_giant(struct process *process);

// Sets an option and makes it count; one call at a time. 0, or why not (mw_option_set).
MALLOW_INTERNAL int process_set_option(struct process *process, const char *name,
                                       const char *value, bool as_default);
// The same of one that is a number already.
MALLOW_INTERNAL void process_set_trim_threshold(struct process *process, uint64_t bytes);

// Whether a call that has made its system call is to start the thread besides; counts it otherwise.
MALLOW_INTERNAL bool process_polls_late(struct process *process);

// After slow calls, with no lock held: has memory looked after that nobody needs, unless the call
// has done much, or made its system call. `entries`: os_entries when it began; `effort_max`: how
// much; `may_step`: not only by the background thread. All calls may make their system call: so one
// in four does that besides, and each while much is owed (decision 82).
MALLOW_INLINE void process_poll_after(struct process *process, uint64_t entries,
                                      unsigned effort_max, bool may_step) {
    if (unlikely(atomic_load_explicit(&process->os.work, memory_order_relaxed) != 0) &&
        worker_is_absent(&process->worker) && heap_thread.effort <= effort_max) {
        const bool entered = os_entries(&process->os) != entries;
        if (!entered || process_polls_late(process)) {
            worker_poll(&process->worker,
                        may_step && !entered && heap_thread.effort < MALLOW_CALL_EFFORT);
        }
    }
}

MALLOW_INLINE void process_poll(struct process *process, uint64_t entries, bool may_step) {
    process_poll_after(process, entries, MALLOW_CALL_EFFORT, may_step);
}

// Gives all that is only kept for speed back to the OS; bytes released.
MALLOW_INTERNAL size_t process_collect(bool force);

// Tries to hand a pointer that is not ours to the allocator that owns it. False: not known.
MALLOW_INTERNAL bool process_foreign_free(struct process *process, void *block);
// Its usable size there; 0: not known.
MALLOW_INTERNAL size_t process_foreign_size(struct process *process, void *block);
// Looks up now what these need of libc, which they do not look up then.
MALLOW_INTERNAL void process_foreign_look(struct process *process);

// process_fork.c. With the first allocation, which constructors of other libraries make before ours
// run: who registers a handler first is called last before a fork, and a handler called after ours
// could wait for a thread that needs a lock of ours.
MALLOW_INTERNAL void process_fork_register(struct process *process);
// Whether this is a signal handler that has interrupted its own thread with a lock of ours: then
// there is no waiting for who may wait for that.
MALLOW_INTERNAL bool process_is_interrupted(const struct process *process);

#endif
