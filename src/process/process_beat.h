// SPDX-License-Identifier: MIT
// Heartbeat: the program's function that is called as its threads allocate.
//
// Owns     the function, part of struct process.
// Threads  any; a beat takes no lock. Who takes the function off waits for those that are in it.
// Holds    while there is one, OS_CHARGE_BEAT is set in the process's events and stays: so a heap
//          that has grown has `attention`, and keeps it. `argument` changes only while there is no
//          function, and nobody in it: one that is being taken off keeps its place until then.
#ifndef MALLOW_PROCESS_PROCESS_BEAT_H
#define MALLOW_PROCESS_PROCESS_BEAT_H

#include "heap/heap.h"
#include "mallow/limit.h"

struct process_beat {
    _Atomic(mw_heartbeat_function) function; // NULL: none
    void *argument;
    bool leaving;                            // taken off, not yet left by all; under shed's lock
    _Atomic(uint64_t) count;                 // beats so far
    _Atomic(uint32_t) running;               // threads in it, or about to look for it
};

struct process;

// 0, EINVAL or EEXIST.
MALLOW_INTERNAL int process_beat_add(struct process *process, mw_heartbeat_function function,
                                     void *argument);

// 0 or ENOENT. Either way waits until no other thread is in the function.
MALLOW_INTERNAL int process_beat_remove(struct process *process);

// A beat, on the calling thread. False: there is no function, or the thread is in it. Keeps errno.
MALLOW_INTERNAL bool process_beat_run(struct process *process, bool force);

// The threads that are gone are in no function.
MALLOW_INTERNAL void process_beat_fork_child(struct process *process);

#endif
