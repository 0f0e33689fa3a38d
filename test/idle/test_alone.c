// SPDX-License-Identifier: MIT
// What a process may only do, or does otherwise, while it has one thread: entering namespaces, and ending
// by pthread_exit in main. The thread of ours does not stand in the way.
//
//   idle_alone unshare|setns|often|files|cancelled|end
#include "idle.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

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

// Joined is not yet gone: the kernel counts a thread for a moment more, a long one where others run.
static void be_alone_often(void)
{
    enum { TIMES = 60, OTHERS = 4 };
    pid_t others[OTHERS];
    for (unsigned i = 0; i < OTHERS; i++) {
        others[i] = fork();
        CHECK(others[i] >= 0, "fork");
        if (others[i] == 0) {
            alarm(20); // should we fail
            for (volatile unsigned turn = 0;; turn++) {
            }
        }
    }
    int error = 0;
    for (unsigned i = 0; i < TIMES && error == 0; i++) {
        have_a_thread();
        error = unshare(CLONE_THREAD) == 0 ? 0 : errno; // asks for no more than one thread
    }
    for (unsigned i = 0; i < OTHERS; i++) {
        CHECK(kill(others[i], SIGKILL) == 0 && waitpid(others[i], NULL, 0) == others[i], "kill");
    }
    CHECK(error == 0, "unshare: errno %d", error);
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

// unshare is no place at which a thread is cancelled: one that waits for the end of ours must not be, or
// nobody would ever see that. Often that end comes before it has to wait, so there are some rounds.
static void *unshare_cancelled(void *reached)
{
    pthread_cancel(pthread_self());
    (void)unshare(CLONE_PARENT);
    *(bool *)reached = true;
    pthread_testcancel();
    return NULL;
}

static void be_cancelled_alone(void)
{
    for (unsigned round = 0; round < 20; round++) {
        pthread_t thread;
        bool reached = false;
        CHECK(pthread_create(&thread, NULL, unshare_cancelled, &reached) == 0, "pthread_create");
        CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
        CHECK(reached, "cancelled in unshare");
        have_a_thread();
    }
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
    } else if (strcmp(what, "often") == 0) {
        be_alone_often();
    } else if (strcmp(what, "files") == 0) {
        close_alone();
    } else if (strcmp(what, "cancelled") == 0) {
        be_cancelled_alone();
    } else {
        CHECK(strcmp(what, "unshare") == 0 || strcmp(what, "setns") == 0, "no such case");
        enter_namespaces(strcmp(what, "setns") == 0);
    }
    return 0;
}
