// SPDX-License-Identifier: MIT
// Runs a program of the suite on a simulated system that refuses mappings or memory:
//
//   under_limit --maps COUNT | --commit MIB | --gaps MIB | --giant COUNT | --joined ERRNO [--preload LIBRARY]
//               PROGRAM [ARGUMENT...]
//
// --maps: no more than COUNT mappings (vm.max_map_count); --commit: no more than MIB of writable private
// memory (vm.overcommit_memory=2); --gaps: the same, where what a refused call was to replace is unmapped, as before
// Linux 6.12: for programs of one thread, since here others have much longer to map something there; --giant: COUNT giant pages, where the program asks for one more than
// there are, and gets ordinary ones; --joined: mremap of a range of several mappings fails with ERRNO, and what was at
// its target is gone, as before Linux 6.17 (14, EFAULT). The program's status is ours; 77 (skipped) where tracing is not
// permitted.
#include "inject.h"

#include "../support/check.h"

#include <sys/wait.h>

extern char **environ;

static enum fault_mode mode_of(const char *name)
{
    return strcmp(name, "--commit") == 0 || strcmp(name, "--gaps") == 0 ? FAULT_COMMIT
           : strcmp(name, "--giant") == 0                               ? FAULT_GIANT
           : strcmp(name, "--joined") == 0                              ? FAULT_JOINED
                                                                        : FAULT_CEILING;
}

enum { RUNS = 5 };

int main(int count, char **arguments)
{
    struct fault_plan plan = {FAULT_ANY, FAULT_CEILING, 0, ENOMEM, 1, true, false};
    int at = 1;
    for (; at + 1 < count && strncmp(arguments[at], "--", 2) == 0; at += 2) {
        if (strcmp(arguments[at], "--preload") == 0) {
            setenv("LD_PRELOAD", arguments[at + 1], 1);
            continue;
        }
        plan.mode = mode_of(arguments[at]);
        plan.unmaps = strcmp(arguments[at], "--gaps") == 0 || plan.mode == FAULT_JOINED;
        plan.nth = strtoull(arguments[at + 1], NULL, 0);
        if (plan.mode == FAULT_JOINED) {
            plan.calls = FAULT_MREMAP;
            plan.error = (int)plan.nth;
        }
    }
    CHECK(at < count && plan.nth > 0,
          "usage: under_limit --maps COUNT | --commit MIB | --gaps MIB | --giant COUNT | --joined ERRNO PROGRAM "
          "[ARGUMENT...]");
    if (plan.mode == FAULT_GIANT) {
        char option[32];
        snprintf(option, sizeof option, "%zuG", plan.nth + 1);
        setenv("MALLOW_GIANT_PAGES", option, 1);
    }
    struct fault_result result;
    // What is joined when a block moves depends on what the background thread has given back by then, and so on
    // the time: mostly there is such a block in a run.
    for (unsigned run = 0; run == 0 || (plan.mode == FAULT_JOINED && result.calls_failed == 0 && run < RUNS); run++) {
        if (!fault_run(&plan, arguments + at, environ, &result)) {
            SKIP_PROGRAM("tracing is not permitted here");
        }
    }
    dprintf(2, "%zu calls, %zu refused; at most %zu %s\n", result.calls_seen, result.calls_failed, result.most,
            plan.mode == FAULT_COMMIT ? "MiB writable" : "mappings");
    CHECK(plan.mode != FAULT_JOINED || result.calls_failed > 0, "nothing was moved that consists of several mappings");
    if (plan.mode == FAULT_GIANT) {
        CHECK(result.calls_seen == plan.nth + 1 && result.calls_failed == 1, "not asked for %zu giant pages",
              plan.nth + 1);
    }
    if (WIFSIGNALED(result.status)) {
        dprintf(2, "ended by signal %d\n", WTERMSIG(result.status));
        return 1;
    }
    return WEXITSTATUS(result.status);
}
