// SPDX-License-Identifier: MIT
// Process: whom those operators new and delete call that by default call others (override_new.c),
// and reallocarray (override_libc.c); and whether libc's entries lead to ours (preload_dlopen.c).
//
// Threads  any; those that look at the same time find the same.
#ifndef MALLOW_PROCESS_PROCESS_OPERATORS_H
#define MALLOW_PROCESS_PROCESS_OPERATORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum process_operators_state {
    PROCESS_OPERATORS_UNKNOWN,
    PROCESS_OPERATORS_OURS,
    PROCESS_OPERATORS_REPLACED // one at least, by the program's own
};

// The program's operators, or ours: [0] of one object, [1] of arrays.
struct process_operators {
    _Atomic(uint32_t) state; // enum process_operators_state; the others are set before
    void *(*_Atomic create[2])(size_t size);
    void *(*_Atomic create_aligned[2])(size_t size, size_t alignment);
    void (*_Atomic destroy[2])(void *block);
    void (*_Atomic destroy_aligned[2])(void *block, size_t alignment);
    void *(*_Atomic resize)(void *block, size_t size); // the program's realloc; NULL: not looked up
    _Atomic(bool) libc_leads;
};

#endif
