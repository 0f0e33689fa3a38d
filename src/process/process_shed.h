// SPDX-License-Identifier: MIT
// Shedding: functions of the program that free what it can do without.
//
// Owns     the table of them, part of struct process.
// Threads  any. The lock is never held while a function runs; it is a leaf.
// Holds    one round at a time: `runner` is its thread, `running` the entry it is in.
//          An entry keeps its place, so a round passes each once. `running` outlasts its entry,
//          and the place may be another's by then.
#ifndef MALLOW_PROCESS_PROCESS_SHED_H
#define MALLOW_PROCESS_PROCESS_SHED_H

#include "mallow/limit.h"
#include "os/os.h"

enum { PROCESS_SHED_MAX = 16 };

struct process_shed_entry {
    mw_shed_function function; // NULL: free
    void *argument;
};

struct process_shed {
    struct os_lock lock;
    struct process_shed_entry entries[PROCESS_SHED_MAX];
    unsigned used;                     // entries below this may be in use
    uintptr_t runner;                  // thread of the round; 0: none
    struct process_shed_entry running; // a copy of the one whose function is; NULL: none
    _Atomic(uint64_t) round_count;
};

// 0, EINVAL, EEXIST or ENOSPC.
MALLOW_INTERNAL int process_shed_add(struct process_shed *shed, mw_shed_function function,
                                     void *argument);

// 0 or ENOENT. Either way waits until the function is not running on another thread.
MALLOW_INTERNAL int process_shed_remove(struct process_shed *shed, mw_shed_function function,
                                        void *argument);

// Calls every function once. False: there is none, or a round is under way. Keeps errno.
MALLOW_INTERNAL bool process_shed_run(struct process_shed *shed, enum mw_shed_reason reason,
                                      uint64_t wanted_bytes, uint64_t held_bytes);

MALLOW_INTERNAL void process_shed_fork_prepare(struct process_shed *shed, bool hurried);
MALLOW_INTERNAL void process_shed_fork_parent(struct process_shed *shed);
// A round of a thread that is gone is over.
MALLOW_INTERNAL void process_shed_fork_child(struct process_shed *shed);

#endif
