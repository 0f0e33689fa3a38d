// SPDX-License-Identifier: MIT
// A free of a pointer into memory that another thread is just unmapping, as the first of two frees of a huge
// block may: what the kernel has said to be mapped is gone when it is read. Where libc's malloc has handed out
// nothing, nothing is read, and the program stops with a line. Here a filter says that all is mapped.
#include "../support/filter.h"

#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/wait.h>

int main(void)
{
    enum { BYTES = 16384 };
    unsigned char *const place = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(place != MAP_FAILED && munmap(place, BYTES) == 0, "no memory");
    filter_call(SYS_madvise, SECCOMP_RET_ERRNO, 0); // 0: it has been done
    const pid_t child = fork();
    if (child == 0) {
        free(place + BYTES / 2);
        _exit(0);
    }
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child, "no child");
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "it ended with %x", (unsigned)status);
    return 0;
}
