// SPDX-License-Identifier: MIT
// OS, giant pages: pages of 1 GiB, of those that the system has set aside.
//
// Owns     nothing.
// Threads  at start, one.
// Holds    no call touches errno.
#ifndef MALLOW_OS_GIANT_H
#define MALLOW_OS_GIANT_H

#include "os/os.h"

#define OS_GIANT_SHIFT 30
#define OS_GIANT_BYTES ((size_t)1 << OS_GIANT_SHIFT)
#define OS_GIANT_ANY_NODE UINT32_MAX

enum os_giant_result {
    OS_GIANT_TAKEN,
    OS_GIANT_NONE, // the system has none left, or knows none; the reservation is as it was
    OS_GIANT_LOST, // the same, and the address space may be another's now
};

// Puts a giant page, zeroed and brought in, in the place of a part of a reservation of ours. If
// there is a choice it comes from `node`. Two calls, and one for the node; two if there is none.
MALLOW_INTERNAL enum os_giant_result os_giant_take(struct os *os, uintptr_t address, unsigned node);

#endif
