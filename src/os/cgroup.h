// SPDX-License-Identifier: MIT
// Cgroup: how much memory the process's control group may use, and how short of it it is.
//
// Owns     nothing.
// Threads  any.
// Holds    nothing is allocated, errno is kept; a file that is missing or not understood counts as
//          one that sets no limit.
//
// Version 2: the least of memory.max and memory.high of the group and of those above it. Version 1:
// the least memory.limit_in_bytes. Free is what such a limit leaves beside the group's use, but for
// pages of files, which the kernel drops when it needs them. The groups are named by
// /proc/self/cgroup, their folders found by /proc/self/mountinfo; in a container the mount may show
// a part of the tree only.
#ifndef MALLOW_OS_CGROUP_H
#define MALLOW_OS_CGROUP_H

#include "base/compiler.h"
#include "os/os_file.h"

struct os_cgroup {
    uint64_t limit_bytes;              // UINT64_MAX: none
    uint64_t free_bytes;               // of the group that has least; UINT64_MAX: no limit
    bool outside; // a group is not below what the mount shows: there may be limits that nobody sees
    char pressure_path[OS_PATH_BYTES]; // the group's, else the machine's; "" if neither is readable
};

// `root` is put before every path: "" but for tests and containers that mount /proc elsewhere.
MALLOW_INTERNAL void os_cgroup_read(const char *root, struct os_cgroup *group);

// All memory of the machine, from /proc/meminfo; 0 if unreadable.
MALLOW_INTERNAL uint64_t os_machine_memory(const char *root);

// What of it can be had without swapping (MemAvailable); UINT64_MAX if unreadable.
MALLOW_INTERNAL uint64_t os_machine_free(const char *root);

// What can be brought in before the kernel would have to kill for it: the machine's or the group's,
// whichever is less; UINT64_MAX: no limit is known.
MALLOW_INTERNAL uint64_t os_free_bytes(const char *root);

// So much is brought in without a look: it would cost more than it tells.
#define OS_SPARED_BYTES ((uint64_t)16 << 20)

// Whether that leaves room for so much more. A sixteenth is for tables and for everyone else.
MALLOW_INLINE bool os_fits(uint64_t bytes, uint64_t free_bytes) {
    return bytes <= free_bytes - free_bytes / 16;
}

// Microseconds, since start of the machine or group, in which some task waited for memory, from a
// pressure file (PSI); false if unreadable.
MALLOW_INTERNAL bool os_pressure_read(const char *path, uint64_t *stalled_us);

#endif
