// SPDX-License-Identifier: MIT
// A thread of the smallest stack that libc grants ends the program: the figures at the end, and the report, are
// written on that stack. So are those that it asks for.
#include "../support/check.h"

#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CODE = 42 };

static void *end(void *argument)
{
    (void)argument;
    malloc_stats();
    CHECK(malloc_info(0, stderr) == 0, "malloc_info");
    (void)malloc_trim(0);
    exit(CODE);
}

static void end_in_thread(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    CHECK(pthread_attr_setstacksize(&attributes, (size_t)PTHREAD_STACK_MIN) == 0, "pthread_attr_setstacksize");
    CHECK(pthread_create(&thread, &attributes, end, NULL) == 0, "pthread_create");
    pthread_join(thread, NULL);
    _exit(3);
}

static void expect_end(char *program, const char *variable, const char *value)
{
    const pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        setenv(variable, value, 1);
        CHECK(freopen("/dev/null", "w", stderr) != NULL, "freopen");
        execl(program, program, "end", (char *)NULL);
        _exit(4);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child, "waitpid");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == CODE, "%s: status %#x", variable, (unsigned)status);
}

int main(int count, char **arguments)
{
    if (count == 2) {
        end_in_thread();
    }
    expect_end(arguments[0], "MALLOW_STATS", "1");
    expect_end(arguments[0], "MALLOW_REPORT", "/dev/null");
    return 0;
}
