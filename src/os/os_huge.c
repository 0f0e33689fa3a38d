// SPDX-License-Identifier: MIT
// OS, huge pages, for Linux: see os_huge.h.
#include "os/os_huge.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "os/os_syscall.h"

// Older headers lack it; the number is the kernel's interface (6.1).
enum { OS_ADVISE_COLLAPSE = 25 };

MALLOW_INTERNAL enum os_huge_setting os_huge_parse(const char *text, size_t length) {
    for (size_t i = 0; i + 1 < length; i++) { // the setting in force is the one in brackets
        if (text[i] == '[') {
            return text[i + 1] == 'a'   ? OS_HUGE_ALWAYS
                   : text[i + 1] == 'm' ? OS_HUGE_ASKED
                                        : OS_HUGE_NEVER;
        }
    }
    return OS_HUGE_NEVER;
}

MALLOW_INTERNAL enum os_huge_setting os_huge_setting(const struct os *os) {
    static const char path[] = "/sys/kernel/mm/transparent_hugepage/enabled";
    char text[64];
    if (os->page_bytes != 4096) { // a huge page is 32 or 512 MiB with larger pages
        return OS_HUGE_NEVER;
    }
    const long file = os_syscall6(SYS_openat, AT_FDCWD, (long)(uintptr_t)path,
                                  O_RDONLY | O_CLOEXEC, 0, 0, 0);
    if (file < 0) {
        return OS_HUGE_NEVER;
    }
    const long length =
        os_syscall6(SYS_read, file, (long)(uintptr_t)text, (long)sizeof text, 0, 0, 0);
    (void)os_syscall6(SYS_close, file, 0, 0, 0, 0, 0);
    return length > 0 ? os_huge_parse(text, (size_t)length) : OS_HUGE_NEVER;
}

MALLOW_INTERNAL bool os_huge_is_affordable(const struct os *os) {
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    const long result =
        os_syscall6(SYS_prlimit64, 0, RLIMIT_DATA, 0, (long)(uintptr_t)&limit, 0, 0);
    return os->address_space_limit == SIZE_MAX &&
           (result != 0 || limit.rlim_cur == RLIM_INFINITY);
}

static long huge_advise(struct os *os, uintptr_t address, int advice) {
    atomic_fetch_add_explicit(&os->advise_count, 1, memory_order_relaxed);
    return os_syscall6(SYS_madvise, (long)address, (long)MALLOW_CHUNK_BYTES, advice, 0, 0, 0);
}

MALLOW_INTERNAL enum os_huge_result os_huge_promote(struct os *os, uintptr_t address) {
    if (os->keeps_small && huge_advise(os, address, MADV_HUGEPAGE) != 0) {
        return OS_HUGE_BUSY; // perhaps no mapping to spare
    }
    const long result = huge_advise(os, address, OS_ADVISE_COLLAPSE);
    if (os->keeps_small) {
        // What is huge stays so; but a part that is purged later comes back as small pages. And the
        // mapping is one again.
        (void)huge_advise(os, address, MADV_NOHUGEPAGE);
    }
    if (result == 0) {
        return OS_HUGE_MADE;
    }
    if (result == -ENOMEM || result == -EBUSY) { // EBUSY: the cgroup's limit
        return OS_HUGE_FULL;
    }
    return result == -EINVAL || result == -ENOSYS || result == -EPERM ? OS_HUGE_REFUSED
                                                                      : OS_HUGE_BUSY;
}
