// SPDX-License-Identifier: MIT
// Preload: calls that change what all threads of a process may do. Compiled for the shared library
// alone: a program without a dynamic linker has none to pass them on to.
//
// The kernel knows users and groups of a thread, not of a process: libc has each thread that it
// knows change its own. Ours is not one of them (os_bare.h), so it ends first; a next one has the
// new rights. In a program that has the library linked in, it ends when it next looks.
//
// Holds    whom a call is passed on to is looked up once, see preload_dlopen.c: libc's, or one that
//          is preloaded as well, behind us.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // RTLD_NEXT, setresuid
#endif
#include <dlfcn.h>
#include <grp.h>
#include <stdatomic.h>
#include <unistd.h>

#include "override/override.h"
#include "preload/preload.h"

#define IDENTITY_CALLS(CALL)                                                                       \
    CALL(setuid, (uid_t user), (user))                                                             \
    CALL(setgid, (gid_t group), (group))                                                           \
    CALL(seteuid, (uid_t user), (user))                                                            \
    CALL(setegid, (gid_t group), (group))                                                          \
    CALL(setreuid, (uid_t real, uid_t effective), (real, effective))                               \
    CALL(setregid, (gid_t real, gid_t effective), (real, effective))                               \
    CALL(setresuid, (uid_t real, uid_t effective, uid_t saved), (real, effective, saved))          \
    CALL(setresgid, (gid_t real, gid_t effective, gid_t saved), (real, effective, saved))          \
    CALL(setgroups, (size_t count, const gid_t *groups), (count, groups))                          \
    CALL(initgroups, (const char *user, gid_t group), (user, group))

#define IDENTITY_INDEX(name, parameters, arguments) IDENTITY_##name,
#define IDENTITY_NAME(name, parameters, arguments) #name,

enum identity_index { IDENTITY_CALLS(IDENTITY_INDEX) IDENTITY_COUNT };
_Static_assert((int)IDENTITY_COUNT == (int)OVERRIDE_IDENTITY_COUNT, "one each");

static const char identity_names[IDENTITY_COUNT][12] = {IDENTITY_CALLS(IDENTITY_NAME)};

static void *identity_find(enum identity_index index) {
    _Atomic(void *) *const kept = &mallow_identity_calls()[index];
    void *found = atomic_load_explicit(kept, memory_order_relaxed);
    if (found == NULL) {
        found = dlsym(RTLD_NEXT, identity_names[index]);
        atomic_store_explicit(kept, found, memory_order_relaxed);
    }
    return found;
}

void preload_identity_look(void) {
    for (enum identity_index index = 0; index < IDENTITY_COUNT; index++) {
        (void)identity_find(index);
    }
}

#define IDENTITY_CALL(name, parameters, arguments)                                                 \
    __attribute__((visibility("default"))) int name parameters {                                   \
        int(*next) parameters = NULL;                                                              \
        *(void **)&next = identity_find(IDENTITY_##name);                                          \
        mallow_parting_begins();                                                                   \
        const int result = next arguments;                                                         \
        mallow_parting_ends();                                                                     \
        return result;                                                                             \
    }

IDENTITY_CALLS(IDENTITY_CALL)
