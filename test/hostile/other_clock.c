// SPDX-License-Identifier: MIT
// A program, or a library (libfaketime), with a clock of its own in place of libc's: how long the process has
// run is told by one clock, whichever that is.
#include <mallow/observe.h>

#include "../support/check.h"

#include <sys/syscall.h>

enum { AHEAD_SECONDS = 1000000 };

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *now)
{
    const long result = syscall(SYS_clock_gettime, clock, now);
    now->tv_sec += AHEAD_SECONDS;
    return (int)result;
}

int main(void)
{
    struct mw_process_info info;
    mw_process_info_get(&info);
    CHECK(info.elapsed_us < UINT64_C(600000000), "%llu us", (unsigned long long)info.elapsed_us);
    return 0;
}
