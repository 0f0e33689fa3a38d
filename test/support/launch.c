// SPDX-License-Identifier: MIT
// Test support: starts a program in a hostile surrounding.
//
//   launch [--as MIB] [--data MIB] [--hide-proc] [--preload FILE] [--as-nobody] [--refuse-prctl]
//          PROGRAM [ARGUMENT...]
//
// --as and --data set RLIMIT_AS and RLIMIT_DATA; --hide-proc mounts an empty tmpfs over /proc and /sys in
// a mount namespace of its own; --as-nobody gives up root; --refuse-prctl: a filter answers EPERM
// to any prctl. Exits 77 (skipped) where the system refuses.
#include "filter.h"

#include <sched.h>
#include <sys/mount.h>

static void limit(int resource, const char *mib)
{
    const rlim_t bytes = (rlim_t)strtoull(mib, NULL, 0) * MIB;
    const struct rlimit both = {bytes, bytes};
    CHECK(setrlimit(resource, &both) == 0, "setrlimit");
}

static void hide_proc(void)
{
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", "/proc", "tmpfs", 0, NULL) != 0 || mount("none", "/sys", "tmpfs", 0, NULL) != 0) {
        SKIP_PROGRAM("no mount namespace: %s", strerror(errno));
    }
    CHECK(access("/proc/self", F_OK) != 0, "/proc is still there");
}

int main(int count, char **arguments)
{
    int at = 1;
    for (; at < count && strncmp(arguments[at], "--", 2) == 0; at++) {
        const char *const option = arguments[at];
        if (strcmp(option, "--hide-proc") == 0) {
            hide_proc();
        } else if (strcmp(option, "--refuse-prctl") == 0) {
            filter_call(SYS_prctl, SECCOMP_RET_ERRNO | EPERM, 0);
        } else if (strcmp(option, "--as-nobody") == 0) {
            if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0) {
                SKIP_PROGRAM("not root");
            }
        } else {
            const char *const value = arguments[++at];
            CHECK(value != NULL, "%s needs a value", option);
            if (strcmp(option, "--as") == 0) {
                limit(RLIMIT_AS, value);
            } else if (strcmp(option, "--data") == 0) {
                limit(RLIMIT_DATA, value);
            } else if (strcmp(option, "--preload") == 0) {
                setenv("LD_PRELOAD", value, 1);
            } else {
                CHECK(false, "unknown option %s", option);
            }
        }
    }
    CHECK(at < count, "no program");
    execv(arguments[at], arguments + at);
    CHECK(false, "execv %s: %s", arguments[at], strerror(errno));
}
