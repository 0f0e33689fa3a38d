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
// setrlimit, prlimit: where the program limits its own address space, what is reserved and not in
// use would count. Where it lifts a limit, more may be reserved again, and our thread may come.
#include <sched.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "api/api.h"
#include "override/override.h"

__attribute__((visibility("default"))) int prctl(int option, ...) {
    va_list list;
    unsigned long values[4];
    va_start(list, option);
    for (unsigned i = 0; i < 4; i++) {
        values[i] = va_arg(list, unsigned long);
    }
    va_end(list);
    const bool sandbox = option == PR_SET_NO_NEW_PRIVS || option == PR_SET_SECCOMP;
    const bool begins = sandbox && api_sandbox_begins();
    const int result =
        (int)syscall(SYS_prctl, option, values[0], values[1], values[2], values[3]);
    if (begins) {
        api_sandbox_ends(result == 0);
    }
    return result;
}

__attribute__((visibility("default"))) int mlockall(int flags) {
    if ((flags & MCL_ONFAULT) != 0) {
        return (int)syscall(SYS_mlockall, flags);
    }
    const struct api_locking locking = api_locking_begins();
    const int result = (int)syscall(SYS_mlockall, flags);
    api_locking_ends(locking, result == 0);
    return result;
}

void mallow_parting_begins(void) {
    api_parting_begins();
}

void mallow_parting_ends(void) {
    api_parting_ends();
}

__attribute__((visibility("default"))) int unshare(int flags) {
    api_parting_begins();
    const int result = (int)syscall(SYS_unshare, flags);
    api_parting_ends();
    return result;
}

__attribute__((visibility("default"))) int setns(int fd, int kind) {
    api_parting_begins();
    const int result = (int)syscall(SYS_setns, fd, kind);
    api_parting_ends();
    return result;
}

// Whether the kernel, by the limits that it goes by, is going to refuse this one. `now`: those.
static bool sandbox_is_refused(const struct rlimit *limit, const struct rlimit *now) {
    return limit->rlim_cur > limit->rlim_max || limit->rlim_max > now->rlim_max;
}

// Not in line: libc declares that setrlimit is never given NULL, so that gcc would leave out to
// look; the kernel takes NULL for "as it is".
static MALLOW_NOINLINE int sandbox_limit(pid_t process, unsigned resource,
                                         const struct rlimit *limit, struct rlimit *before) {
    const bool is_space = resource == RLIMIT_AS;
    if ((!is_space && resource != RLIMIT_DATA) || limit == NULL ||
        (process != 0 && process != getpid())) {
        return (int)syscall(SYS_prlimit64, process, resource, limit, before);
    }
    const rlim_t wanted = limit->rlim_cur; // `before` may be the same
    const bool confines = is_space && wanted != RLIM_INFINITY;
    struct rlimit now = {0, 0};
    // What is given up first does not all come back. Who raises the hard limit may be refused, and
    // has it given up late.
    const bool begins = confines &&
                        syscall(SYS_prlimit64, 0, resource, NULL, &now) == 0 &&
                        !sandbox_is_refused(limit, &now);
    if (begins) {
        api_confinement_begins(wanted);
    }
    const int result = (int)syscall(SYS_prlimit64, process, resource, limit, before);
    if (result == 0 && confines && !begins) {
        api_confinement_begins(wanted);
    }
    if (result == 0 || begins) {
        api_confinement_ends(!is_space ? 0 : result == 0 ? wanted : now.rlim_cur);
    }
    return result;
}

__attribute__((visibility("default"))) int setrlimit(__rlimit_resource_t resource,
                                                     const struct rlimit *limit) {
    return sandbox_limit(0, resource, limit, NULL);
}

__attribute__((visibility("default"))) int prlimit(pid_t process,
                                                   enum __rlimit_resource resource,
                                                   const struct rlimit *limit,
                                                   struct rlimit *before) {
    return sandbox_limit(process, resource, limit, before);
}

// The same where a program asks for files of 64 bits: both have 64 bits here.
static_assert(sizeof(struct rlimit) == sizeof(struct rlimit64), "one struct");
static_assert(RLIM_INFINITY == SIZE_MAX, "no limit is the largest");

__attribute__((visibility("default"))) int setrlimit64(__rlimit_resource_t resource,
                                                       const struct rlimit64 *limit) {
    return sandbox_limit(0, resource, (const struct rlimit *)limit, NULL);
}

__attribute__((visibility("default"))) int prlimit64(pid_t process,
                                                     enum __rlimit_resource resource,
                                                     const struct rlimit64 *limit,
                                                     struct rlimit64 *before) {
    return sandbox_limit(process, resource, (const struct rlimit *)limit, (struct rlimit *)before);
}
