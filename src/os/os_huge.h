// SPDX-License-Identifier: MIT
// OS, huge pages: what the system allows, and making small pages one huge page.
//
// Owns     nothing.
// Threads  any.
// Holds    a huge page is only made by os_huge_promote, or by a fault where os_huge_allow has
//          allowed that: every mapping of ours is kept off huge pages as it is made
//          (os.keeps_small), and otherwise that is only lifted for the time of a promotion. It
//          costs no call of its own from Linux 6.7 on.
#ifndef MALLOW_OS_HUGE_H
#define MALLOW_OS_HUGE_H

#include "os/os.h"

enum os_huge_setting {
    OS_HUGE_NEVER,  // also: not known, or huge pages are not of the size of a chunk
    OS_HUGE_ASKED,  // "madvise": where a program asks for it
    OS_HUGE_ALWAYS, // "always": a fault makes a huge page wherever one fits
};

// The kernel's version, major << 8 | minor, as its vDSO says: no call. 0: it does not.
MALLOW_INTERNAL uint32_t os_kernel_version(void);

// Finds out, for a process that wants them, whether huge pages can be made, and how faults are kept
// from making them: sets the fields of `os` for that. At start; no call, or four where the kernel
// is older than 6.7. False: the kernel's own policy is left alone.
MALLOW_INTERNAL bool os_huge_start(struct os *os, uint32_t kernel_version);

// The system's setting for transparent huge pages of 2 MiB. Six calls, or four before Linux 6.8.
MALLOW_INTERNAL enum os_huge_setting os_huge_setting(const struct os *os);

// The same of the text of its file.
MALLOW_INTERNAL enum os_huge_setting os_huge_parse(const char *text, size_t length);

enum os_huge_result {
    OS_HUGE_MADE,
    OS_HUGE_BUSY,    // not now: the pages are in other use
    OS_HUGE_FULL,    // not now: there is no memory in one piece
    OS_HUGE_UNFIT,   // never of any, or not of this: the program has changed a part of it (mlock,
                     // mprotect, madvise), so that it is no longer in one mapping
    OS_HUGE_REFUSED, // the kernel cannot, or must not for this process: never again
};

// Whether more may be mapped than there is memory for: not with vm.overcommit_memory=2. Three
// calls.
MALLOW_INTERNAL bool os_overcommits(void);

// Allows faults in a part of a mapping of ours to make huge pages, or forbids it again; false: the
// kernel refuses. One call.
MALLOW_INTERNAL bool os_huge_allow(struct os *os, uintptr_t address, size_t bytes, bool allowed);

// Page faults of the process so far, with and without reading. One call.
MALLOW_INTERNAL uint64_t os_fault_count(void);

// Whether all pages of the chunk at `address` that are in memory are this process's alone, as
// /proc/self/pagemap tells; false also if that cannot be read. Three calls.
MALLOW_INTERNAL bool os_huge_is_own(uintptr_t address);

// Makes the pages of the chunk at `address`, a readable and writable part of a mapping of ours, one
// huge page; what is not resident of it becomes so. Copies 2 MiB, and has all processors empty
// their lists of pages before: 0.7 ms where there is a processor to spare, 10 or 20 on a loaded
// machine. A fault of another thread in this mapping waits for most of that, and so does a call
// that changes mappings. What the program has asked for by MADV_HUGEPAGE stays so. One call, or
// four.
MALLOW_INTERNAL enum os_huge_result os_huge_promote(struct os *os, uintptr_t address);

#endif
