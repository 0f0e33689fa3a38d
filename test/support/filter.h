// SPDX-License-Identifier: MIT
// Test support: seccomp filters, for the process and what it makes from then on.
#ifndef TEST_SUPPORT_FILTER_H
#define TEST_SUPPORT_FILTER_H

#include "check.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

// `flags`: SECCOMP_FILTER_FLAG_TSYNC for all threads there are, or 0. Skips the program where the system
// allows no filter.
static inline void filter_install(struct sock_filter *filter, size_t count, unsigned flags)
{
    const struct sock_fprog program = {(unsigned short)count, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) != 0) {
        SKIP_PROGRAM("no seccomp filter: %s", strerror(errno));
    }
}

// One system call is not made, but `action` (SECCOMP_RET_...) done in its place.
static inline void filter_call(long number, unsigned action, unsigned flags)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, action),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    filter_install(filter, COUNT_OF(filter), flags);
}

#endif
