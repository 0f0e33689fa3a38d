// SPDX-License-Identifier: MIT
// A signal handler ends the program by exit, as many a program has it for SIGTERM, and has interrupted malloc
// with its lock held. It ends like that with figures at the end, too; then a line says why there are none.
#include "../support/filter.h"

#include <signal.h>
#include <sys/wait.h>

enum { CODE = 42, HANG_SECONDS = 60 };

static void end(int number)
{
    (void)number;
    exit(CODE);
}

// Every mmap from now on is interrupted by a signal, those of malloc's with its lock held.
static void interrupt_malloc(void)
{
    signal(SIGSYS, end);
    alarm(HANG_SECONDS);
    filter_call(SYS_mmap, SECCOMP_RET_TRAP, 0);
    for (size_t i = 0; i < 100000; i++) {
        void *volatile block = malloc(60000);
        (void)block;
    }
    _exit(3);
}

static void expect_end(char *program, const char *variable, const char *value)
{
    char text[1000] = "";
    int ends[2];
    CHECK(pipe(ends) == 0, "pipe");
    const pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        setenv(variable, value, 1);
        dup2(ends[1], 2);
        execl(program, program, "interrupt", (char *)NULL);
        _exit(4);
    }
    close(ends[1]);
    size_t length = 0;
    ssize_t got;
    while (length < sizeof text - 1 && (got = read(ends[0], text + length, sizeof text - 1 - length)) > 0) {
        length += (size_t)got;
    }
    close(ends[0]);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child, "waitpid");
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIP) {
        SKIP_PROGRAM("no seccomp filter");
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == CODE, "%s: status %#x: %s", variable, (unsigned)status, text);
    CHECK(strncmp(text, "mallow: no figures", 18) == 0 && strchr(text, '\n') == text + length - 1,
          "%s: %s", variable, text);
}

int main(int count, char **arguments)
{
    if (count == 2) {
        interrupt_malloc();
    }
    expect_end(arguments[0], "MALLOW_STATS", "1");
    expect_end(arguments[0], "MALLOW_REPORT", "/dev/null");
    return 0;
}
