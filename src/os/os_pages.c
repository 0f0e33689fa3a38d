// SPDX-License-Identifier: MIT
// OS pages for Linux: see os_pages.h.
#include "os/os_pages.h"

#include <errno.h>
#include <sys/auxv.h>

#include "os/os_syscall.h"

// Older headers lack it; the number is the kernel's interface.
enum { OS_ADVISE_POPULATE_WRITE = 23 };

MALLOW_INTERNAL size_t os_page_size(void) {
    const unsigned long bytes = getauxval(AT_PAGESZ);
    return bytes != 0 ? bytes : 4096;
}

// Adds 0 to a byte of each page: a write that changes nothing, whatever lies there.
static void os_touch(uintptr_t address, size_t bytes) {
    const size_t page = os_page_size();
    for (size_t offset = 0; offset < bytes; offset += page) {
        __atomic_fetch_add((uint8_t *)(address + offset), 0, __ATOMIC_RELAXED);
    }
}

MALLOW_INTERNAL bool os_prefault(uintptr_t address, size_t bytes) {
    for (;;) {
        const long result = os_syscall6(SYS_madvise, (long)address, (long)bytes,
                                        OS_ADVISE_POPULATE_WRITE, 0, 0, 0);
        if (result == -EINVAL) { // a kernel that does not know it
            os_touch(address, bytes);
            return true;
        }
        if (result != -EINTR && result != -EAGAIN) {
            return result == 0;
        }
    }
}

MALLOW_INTERNAL bool os_lock_pages(uintptr_t address, size_t bytes) {
    return os_syscall6(SYS_mlock, (long)address, (long)bytes, 0, 0, 0, 0) == 0;
}

MALLOW_INTERNAL bool os_unlock_pages(uintptr_t address, size_t bytes) {
    return os_syscall6(SYS_munlock, (long)address, (long)bytes, 0, 0, 0, 0) == 0;
}
