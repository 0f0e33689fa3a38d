// SPDX-License-Identifier: MIT
// Override: calls that are passed on as they are, but tell what the program is up to.
//
// prctl: a program that is about to sandbox itself says so by it (the kernel asks for
// PR_SET_NO_NEW_PRIVS before a filter), and may be killed from then on if a thread is created. So
// that is when ours ends, for good.
// mlockall: what is mapped, or is to be, gets its pages at once. So address space is not kept
// ready as if it cost nothing.
// unshare, setns: some are refused to a process of several threads, and others leave our thread
// with what the program has parted from (a pipe's end, say). So ours ends first; it may come again.
#include <sched.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "api/api.h"

__attribute__((visibility("default"))) int prctl(int option, ...) {
    va_list list;
    unsigned long values[4];
    va_start(list, option);
    for (unsigned i = 0; i < 4; i++) {
        values[i] = va_arg(list, unsigned long);
    }
    va_end(list);
    if (option == PR_SET_NO_NEW_PRIVS || option == PR_SET_SECCOMP) {
        api_sandbox_begins();
    }
    return (int)syscall(SYS_prctl, option, values[0], values[1], values[2], values[3]);
}

__attribute__((visibility("default"))) int mlockall(int flags) {
    if ((flags & MCL_ONFAULT) == 0) {
        api_locking_begins();
    }
    return (int)syscall(SYS_mlockall, flags);
}

__attribute__((visibility("default"))) int unshare(int flags) {
    api_parting_begins();
    return (int)syscall(SYS_unshare, flags);
}

__attribute__((visibility("default"))) int setns(int fd, int kind) {
    api_parting_begins();
    return (int)syscall(SYS_setns, fd, kind);
}
