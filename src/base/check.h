// SPDX-License-Identifier: MIT
// Checks: internal assertions, compiled to nothing unless MALLOW_ASSERT is 1.
#ifndef MALLOW_BASE_CHECK_H
#define MALLOW_BASE_CHECK_H

#include "config.h"

// An ordinary `if` on a constant: the expression is always compiled, never run in the release. A
// broken invariant traps on the spot, with the state intact for a debugger.
#define check_assert(condition)                                                                    \
    do {                                                                                           \
        if (MALLOW_ASSERT && !(condition)) {                                                       \
            __builtin_trap();                                                                      \
        }                                                                                          \
    } while (0)

#endif
