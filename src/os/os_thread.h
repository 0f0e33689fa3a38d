// SPDX-License-Identifier: MIT
// OS, threads: what the kernel tells about another thread of this process.
//
// Owns     nothing.
// Threads  any.
// Holds    no call touches errno or allocates.
#ifndef MALLOW_OS_THREAD_H
#define MALLOW_OS_THREAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "config.h"
#include "os/os_syscall.h"

// This process. Not by libc's function, in place of which a program may have one of its own.
MALLOW_INLINE pid_t os_process_number(void) {
    return (pid_t)os_syscall6(SYS_getpid, 0, 0, 0, 0, 0, 0);
}

// The kernel's number of the calling thread; 0: not known. No system call.
MALLOW_INTERNAL uint32_t os_thread_number(void);

// Waits until the kernel no longer counts a thread of this process that has ended, or is about to:
// some 10 us after it can be joined, longer where the processor is another's. Gives up after a
// second, and where a filter refuses the question.
MALLOW_INTERNAL void os_thread_await_end(uint32_t thread);

// Whether no thread of a process has that number; false also where a filter refuses the question.
MALLOW_INTERNAL bool os_thread_is_gone(pid_t process, uint32_t thread);

// What a thread of this process may do, put into one number: its users, groups and capabilities. 0:
// /proc cannot be read, or is another namespace's. Opens a file; some 20 us.
MALLOW_INTERNAL uint64_t os_thread_rights(uint32_t thread);

// Lets the calling thread run wherever the process's first thread may, too, as far as the kernel
// lets it: up to three system calls.
MALLOW_INTERNAL void os_thread_widen(void);

// Whether the calling thread is the only one of the process; false also where /proc cannot be read.
// Opens a file; some 20 us.
MALLOW_INTERNAL bool os_thread_is_only(void);

// Whether this process, a child of the other one, has memory of its own, not by vfork its parent's;
// false also where the kernel does not say.
MALLOW_INTERNAL bool os_thread_is_apart_from(pid_t parent);
// The other way round: that it has the other one's; false also where the kernel does not say.
MALLOW_INTERNAL bool os_thread_is_within(pid_t parent);

// Whether a thread of this process is asleep in a system call that it has made itself, not in a
// signal handler that has interrupted it somewhere: then it is in the middle of nothing else. False
// also where that cannot be told: /proc cannot be read, or is another namespace's, the thread
// blocks a signal that has a handler, or waits with other signals let in (sigsuspend, ppoll), a
// handler can be interrupted by its own signal, or what looks like a handler's frame lies on its
// stack. `top`: its thread pointer, which libc has above all of that; the thread sleeps less than 1
// MiB below. Opens three files; some 20 us, and 0.2 ms where it sleeps that deep.
MALLOW_INTERNAL bool os_thread_is_asleep(uint32_t thread, uintptr_t top);

// The same of the text of the thread's `status` and the first line of its `syscall`, but for what
// handlers there are: `*caught`, a bit a signal, 1 in the lowest.
MALLOW_INTERNAL bool os_thread_sleeps(const char *status, const char *call, uint64_t *caught);

// The stack pointer that the first line of `syscall` tells; 0: none.
MALLOW_INTERNAL uintptr_t os_thread_stack_of(const char *call);

// Whether there is the kernel's mark of a signal handler's frame in a copy of part of a stack, from
// a multiple of 16 bytes on.
MALLOW_INTERNAL bool os_thread_has_mark(const char *memory, size_t bytes);

#endif
