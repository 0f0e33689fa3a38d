// SPDX-License-Identifier: MIT
// What an allocator costs a process that hardly uses it: runs /bin/true many times and divides the
// CPU time of the children. LD_PRELOAD is inherited, so the children carry the allocator as well.
//
// Source   own program; the exec row of the usual start-up tables.
// Checks   every child ends with status 0.

#include "common.h"

#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

static uint64_t children_cpu_us(void) {
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

int main(int argc, char **argv) {
    uint64_t count = 1500;
    const struct bench_option table[] = {{"count", &count, "processes"}};
    BENCH_OPTIONS(argc, argv, table);

    char program[] = "/bin/true";
    char *const arguments[] = {program, NULL};
    const uint64_t before = children_cpu_us();
    for (uint64_t i = 0; i < count; i++) {
        pid_t child;
        int status = 0;
        const int error = posix_spawn(&child, program, NULL, NULL, arguments, environ);
        if (error != 0) {
            bench_fail("posix_spawn %s: %s", program, strerror(error));
        }
        if (waitpid(child, &status, 0) != child || status != 0) {
            bench_fail("%s ended with status %d", program, status);
        }
    }
    bench_score((double)(children_cpu_us() - before) / (double)count, "us_cpu/exec");
    return 0;
}
