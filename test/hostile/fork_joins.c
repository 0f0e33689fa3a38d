// SPDX-License-Identifier: MIT
// A handler that a library's constructor has registered waits, before a fork, for a thread that allocates: none of
// our locks may be held by then.
#include "../support/check.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

void fork_joins_begin(void);

enum { FORKS = 5 };

int main(void)
{
    for (unsigned i = 0; i < FORKS; i++) {
        fork_joins_begin();
        const pid_t child = fork();
        CHECK(child >= 0, "fork");
        if (child == 0) {
            free(malloc(100));
            _exit(0);
        }
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child && status == 0, "status %#x", (unsigned)status);
    }
    return 0;
}
