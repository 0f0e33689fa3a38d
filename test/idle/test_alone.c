// SPDX-License-Identifier: MIT
// What a process may only do, or does otherwise, while it has one thread: entering namespaces, and ending
// by pthread_exit in main. The thread of ours does not stand in the way.
//
//   idle_alone unshare|setns|files|end
#include "idle.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>

static void have_a_thread(void)
{
    struct load load;
    for (int tries = 0; thread_count() != 2; tries++) {
        CHECK(tries < 50, "%zu threads", thread_count());
        load_fill(&load, 64 * MIB / 400, 400);
        load_free(&load);
        rest_ms(20);
    }
}

// A process with one thread more is refused with EINVAL; without the privilege there are other answers.
static void enter_namespaces(bool by_setns)
{
    if (by_setns) {
        const int own = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
        CHECK(own >= 0, "open: errno %d", errno);
        CHECK(setns(own, CLONE_NEWNS) == 0 || errno != EINVAL, "setns");
        errno = 0;
        CHECK(setns(-1, CLONE_NEWNS) == -1 && errno == EBADF, "setns of nothing: errno %d", errno);
        close(own);
    } else {
        CHECK(unshare(CLONE_NEWUSER) == 0 || errno != EINVAL, "unshare");
        errno = 0;
        CHECK(unshare(CLONE_PARENT) == -1 && errno == EINVAL, "unshare of nothing: errno %d", errno);
    }
    have_a_thread(); // not for good
}

// Whoever waits for the end of a pipe waits for all tables of descriptors that hold it.
static void close_alone(void)
{
    int ends[2];
    char byte;
    CHECK(pipe(ends) == 0 && fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0, "pipe");
    CHECK(unshare(CLONE_FILES) == 0, "unshare: errno %d", errno);
    close(ends[1]);
    CHECK(read(ends[0], &byte, 1) == 0, "somebody else has the pipe's end");
}

static void at_exit(void)
{
    if (gettid() != getpid()) {
        _exit(3); // in a thread that the program does not know
    }
}

int main(int count, char **arguments)
{
    const char *const what = count > 1 ? arguments[1] : "";
    have_a_thread();
    if (strcmp(what, "end") == 0) {
        CHECK(atexit(at_exit) == 0, "atexit");
        pthread_exit(NULL);
    } else if (strcmp(what, "files") == 0) {
        close_alone();
    } else {
        CHECK(strcmp(what, "unshare") == 0 || strcmp(what, "setns") == 0, "unshare, setns, files or end");
        enter_namespaces(strcmp(what, "setns") == 0);
    }
    return 0;
}
