// SPDX-License-Identifier: MIT
// Fatal: stop the program with one line that says what, where and what to do.
//
// Owns     nothing. Never allocates; works in any thread and with any lock held.
// Holds    the end is SIGABRT, though nobody reads stderr any more (SIGPIPE, SIGXFSZ).
#ifndef MALLOW_OS_FATAL_H
#define MALLOW_OS_FATAL_H

#include <stdint.h>

#include "base/compiler.h"
#include "config.h"

// Writes "mallow: <what> of <address>: <detail>; <advice>\n" to stderr and aborts.
MALLOW_INTERNAL MALLOW_NORETURN MALLOW_COLD void fatal_misuse(const char *what, uintptr_t address,
                                                              const char *detail);

// The same of a lock that its own thread waits for. A handler of SIGABRT that allocates comes back
// here, since the lock is still held: that ends the program without another call of it.
MALLOW_INTERNAL MALLOW_NORETURN MALLOW_COLD void fatal_deadlock(uintptr_t lock,
                                                                const char *detail);

#endif
