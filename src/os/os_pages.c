// SPDX-License-Identifier: MIT
// OS pages for Linux: see os_pages.h.
#include "os/os_pages.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/auxv.h>
#include <time.h>

#include "base/bits.h"
#include "os/os_syscall.h"

// Older headers lack it; the number is the kernel's interface.
enum { OS_ADVISE_LOOK_IN = 22, OS_ADVISE_POPULATE_WRITE = 23 }; // MADV_POPULATE_READ, _WRITE

enum { PAGES_TRIES_MAX = 100 }; // where the kernel asks for another

// The linker's names for the first and the last byte of what is linked together.
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

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
    unsigned tries = 0;
    for (;;) {
        const long result = os_syscall6(SYS_madvise, (long)address, (long)bytes,
                                        OS_ADVISE_POPULATE_WRITE, 0, 0, 0);
        if (result == -EINVAL || result == -ENOSYS || result == -EPERM) {
            // A kernel that does not know it, or a filter that refuses it.
            os_touch(address, bytes);
            return true;
        }
        if (result != -EINTR && (result != -EAGAIN || ++tries >= PAGES_TRIES_MAX)) {
            return result == 0;
        }
    }
}

MALLOW_INTERNAL bool os_read_word(uintptr_t address) {
    const struct timespec at_once = {0, 0};
    const long result = os_syscall6(SYS_futex, (long)address, FUTEX_WAIT_PRIVATE, 0,
                                    (long)(uintptr_t)&at_once, 0, 0);
    return result == -EAGAIN || result == -ETIMEDOUT || result == -EINTR;
}

MALLOW_INTERNAL bool os_bring_in(uintptr_t address, size_t bytes, bool *locked) {
    const size_t page = os_page_size();
    const uintptr_t first = bits_align_down(address, page);
    const size_t length = bits_align_up(address + bytes, page) - first;
    *locked = *locked && os_lock_pages(first, length);
    return *locked || os_prefault(first, length);
}

// Page by page, as there may be gaps between its segments. Text cannot be written to, so what is
// not locked is only read.
MALLOW_INTERNAL void os_bring_in_image(bool *locked) {
    const size_t page = os_page_size();
    const uintptr_t last = (uintptr_t)_end;
    for (uintptr_t at = bits_align_down((uintptr_t)__ehdr_start, page); at < last; at += page) {
        if ((!*locked || !os_lock_pages(at, page)) &&
            os_syscall6(SYS_madvise, (long)at, (long)page, OS_ADVISE_LOOK_IN, 0, 0, 0) != 0) {
            (void)os_read_word(at);
        }
    }
}

MALLOW_INTERNAL bool os_lock_pages(uintptr_t address, size_t bytes) {
    return os_syscall6(SYS_mlock, (long)address, (long)bytes, 0, 0, 0, 0) == 0;
}

MALLOW_INTERNAL bool os_unlock_pages(uintptr_t address, size_t bytes) {
    return os_syscall6(SYS_munlock, (long)address, (long)bytes, 0, 0, 0, 0) == 0;
}
