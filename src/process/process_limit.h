// SPDX-License-Identifier: MIT
// Limits: from options to the charge's caps, and what is done when memory is short.
//
// Owns     what the options came to, and what pressure was last read.
// Threads  any. Polling is one thread's at a time; others go on.
// Holds    no file is read unless an option asks for a share, or for pressure.
#ifndef MALLOW_PROCESS_PROCESS_LIMIT_H
#define MALLOW_PROCESS_PROCESS_LIMIT_H

#include "os/cgroup.h"
#include "process/process_options.h"

struct process_limit {
    uint64_t hard_option;    // values that were applied last
    uint64_t soft_option;
    uint64_t percent_option;
    uint64_t hard_bytes;     // what they came to; UINT64_MAX: none
    uint64_t soft_bytes;
    uint64_t base_bytes;     // what shares are of
    bool unsure;             // that is the machine's, and the group may have a limit out of sight
    char pressure_path[OS_PATH_BYTES];
    _Atomic(uint64_t) polled_us;  // monotonic clock at the last look; 0: none
    uint64_t stalled_us;          // what it read; UINT64_MAX: nothing
    _Atomic(uint32_t) pressed;
};

struct process;

enum process_limit_voice { PROCESS_LIMIT_SILENT, PROCESS_LIMIT_COMPLAINS };

// Makes the options count. What has no effect is said on stderr, if asked to.
MALLOW_INTERNAL void process_limit_apply(struct process *process, enum process_limit_voice voice);

// One line with what limits came to, for MALLOW_VERBOSE; none if there is no limit.
MALLOW_INTERNAL void process_limit_print(const struct process *process, int fd);

// Does what os_charge's events ask for: looks at pressure, calls the program's functions. No lock
// held, and not inside a heap. True: there is more to do with every slow allocation (a heartbeat).
MALLOW_INTERNAL bool process_attend(struct process *process);

// A request is about to fail. True: the program has shed something, try again.
MALLOW_INTERNAL bool process_shed_for(struct process *process, size_t wanted_bytes);

#endif
