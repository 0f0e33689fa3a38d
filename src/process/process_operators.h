// SPDX-License-Identifier: MIT
// Process: whom those operators new and delete call that by default call others (override_new.c),
// and reallocarray (override_libc.c); and whether libc's entries lead to ours (preload_dlopen.c).
// And what else is looked up by name: libc's functions that a call of ours passes on, or asks.
//
// Holds    what has been found stays right, and is not looked up again: it was loaded with the
//          program, and who comes later is behind it in the order of look-up.
//          dlsym waits for a thread that loads a library, and that may wait for the caller: so all
//          is looked up before the first dlopen at the latest, where that is ours
//          (preload_dlopen.c).
// Threads  any; those that look at the same time find the same.
#ifndef MALLOW_PROCESS_PROCESS_OPERATORS_H
#define MALLOW_PROCESS_PROCESS_OPERATORS_H

#include <malloc.h>
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
    // The C++ run-time's nothrow forms, if one of the others is replaced; NULL: it has none.
    void *(*_Atomic create_nothrow[2])(size_t size, const void *tag);
    void *(*_Atomic create_aligned_nothrow[2])(size_t size, size_t alignment, const void *tag);
    void *(*_Atomic resize)(void *block, size_t size); // the program's realloc; NULL: not looked up
    _Atomic(bool) libc_leads;
};

enum { PROCESS_IDENTITY_COUNT = 10 };

// Functions of libc's, or of who comes before it in the order. NULL: not looked up yet, or none.
struct process_libc {
    void (*_Atomic free)(void *block);                // by the name that stays libc's
    struct mallinfo2 (*_Atomic mallinfo2)(void);      // from glibc 2.33 on
    _Atomic(void *) identity[PROCESS_IDENTITY_COUNT]; // in the order of preload_identity.c
};

#endif
