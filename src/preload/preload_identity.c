// SPDX-License-Identifier: MIT
// Preload: calls that change what all threads of a process may do. Compiled for the shared library
// alone: a program without a dynamic linker has none to pass them on to.
//
// The kernel knows users and groups of a thread, not of a process: libc has each thread that it
// knows change its own. Ours is not one of them (os_bare.h), so it ends first; a next one has the
// new rights. In a program that has the library linked in, it ends when it next looks.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // RTLD_NEXT, setresuid
#endif
#include <dlfcn.h>
#include <grp.h>
#include <unistd.h>

#include "override/override.h"

#define IDENTITY_CALL(name, parameters, arguments)                                                 \
    __attribute__((visibility("default"))) int name parameters {                                   \
        int(*next) parameters = NULL;                                                              \
        *(void **)&next = dlsym(RTLD_NEXT, #name);                                                 \
        mallow_parting_begins();                                                                   \
        const int result = next arguments;                                                         \
        mallow_parting_ends();                                                                     \
        return result;                                                                             \
    }

IDENTITY_CALL(setuid, (uid_t user), (user))
IDENTITY_CALL(setgid, (gid_t group), (group))
IDENTITY_CALL(seteuid, (uid_t user), (user))
IDENTITY_CALL(setegid, (gid_t group), (group))
IDENTITY_CALL(setreuid, (uid_t real, uid_t effective), (real, effective))
IDENTITY_CALL(setregid, (gid_t real, gid_t effective), (real, effective))
IDENTITY_CALL(setresuid, (uid_t real, uid_t effective, uid_t saved), (real, effective, saved))
IDENTITY_CALL(setresgid, (gid_t real, gid_t effective, gid_t saved), (real, effective, saved))
IDENTITY_CALL(setgroups, (size_t count, const gid_t *groups), (count, groups))
IDENTITY_CALL(initgroups, (const char *user, gid_t group), (user, group))
