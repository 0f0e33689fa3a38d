// SPDX-License-Identifier: MIT
// OS, bare threads: a thread of ours that libc does not know of.
//
// Owns     struct os_bare: the place of one thread, its stack and what its thread pointer leads to.
// Threads  any starts one, one at a time in a place; the caller sees to that.
// Holds    it is begun by three system calls, in some hundred instructions, whatever locks the
//          caller or libc holds, and takes none of libc's itself.
//          No signal is handled on it: it begins with all of them blocked, as its caller blocks
//          them meanwhile. It may take long to run for the first time, and signals would find it.
//          libc does not count it: what has one thread stays a program of one thread to libc
//          (__libc_single_threaded), and one whose last thread ends, ends.
//          What runs on it may call libc only for what needs no more of a thread than errno: no
//          allocation, no stream, no lock.
//          It keeps the rights that it has begun with, since setuid and its kin reach the threads
//          that libc knows: see os_thread_rights.
//          A sanitizer has to know each thread: built with one, it is a thread of libc's after all.
#ifndef MALLOW_OS_BARE_H
#define MALLOW_OS_BARE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "config.h"

enum { OS_BARE_BYTES = 64 << 10 }; // of which two or three pages are touched

struct os_bare {
    // The thread's, by the kernel, from before it runs until it uses its place no longer; else 0.
    _Atomic(uint32_t) number;
    void (*function)(void *argument);
    void *argument;
    _Alignas(64) unsigned char memory[OS_BARE_BYTES];
};

// Whose place it is; 0: nobody's.
MALLOW_INLINE uint32_t os_bare_number(const struct os_bare *bare) {
    return atomic_load_explicit(&bare->number, memory_order_acquire);
}

// Starts a thread that calls the function and ends. `local`: a variable of the caller's
// thread-local storage, of less than 256 bytes, that the thread uses; its own is what it was at the
// last one's end in this place, and zero at first. False: the place is in use, the kernel refuses,
// or the program's thread-local storage is too large for it (some 40 KiB).
MALLOW_INTERNAL bool os_bare_start(struct os_bare *bare, void (*function)(void *argument),
                                   void *argument, const void *local);

// By that thread: from here on it has no descriptor of the program's, and what it opens gets no
// number of theirs. Else a dup2 to that one fails, or closes it, and the thread the program's then.
// Before Linux 5.9, and where a filter refuses, they are shared as ever. Not with a sanitizer: its
// run-time writes to them.
MALLOW_INTERNAL void os_bare_part_files(void);

// Waits until the place is nobody's.
MALLOW_INTERNAL void os_bare_await(struct os_bare *bare);

// In the child of a fork, where the thread is not.
MALLOW_INTERNAL void os_bare_fork_child(struct os_bare *bare);

#endif
