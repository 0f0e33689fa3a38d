// SPDX-License-Identifier: MIT
// A signal handler changes the user and the group, as POSIX lets it, and other things that the background
// thread is to be away for, whatever it has interrupted: malloc and free with their locks, and the start of
// that thread. Each returns. And a limit that is asked about by NULL is left as it is, as by the kernel.
#include "../support/check.h"

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>

enum { RUNS = 1500, BLOCKS = 8000, HANG_SECONDS = 60 };

static volatile sig_atomic_t runs;

static void part(int number)
{
    const int error = errno;
    (void)number;
    CHECK(setuid(getuid()) == 0 && setgid(getgid()) == 0 && seteuid(getuid()) == 0, "a user or group");
    (void)unshare(CLONE_FS);
    runs++;
    errno = error;
}

static void load(void)
{
    static void *blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(1500);
        CHECK(blocks[i] != NULL, "malloc");
        memset(blocks[i], 1, 1500);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        free(blocks[i]);
    }
    for (size_t size = 100 * KIB; size < 2 * MIB; size += 5 * KIB) {
        free(malloc(size));
    }
}

int main(void)
{
    const struct rlimit *volatile none = NULL;
    CHECK(setrlimit(RLIMIT_AS, none) == 0, "a limit by NULL");
    const struct sigaction action = {.sa_handler = part, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0, "sigaction");
    alarm(HANG_SECONDS); // a hang
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    const struct itimerspec often = {{0, 300000}, {0, 300000}};
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0, "timer_create");
    CHECK(timer_settime(timer, 0, &often, NULL) == 0, "timer_settime");
    while (runs < RUNS) {
        load();
    }
    timer_delete(timer);
    return 0;
}
