// SPDX-License-Identifier: MIT
// OS, huge pages, for Linux: see os_huge.h.
#include "os/os_huge.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/bits.h"
#include "os/os_file.h"
#include "os/os_syscall.h"

// Older headers lack it; the number is the kernel's interface (6.1).
enum { OS_ADVISE_COLLAPSE = 25 };

// Kernels: with MADV_COLLAPSE; that take MAP_STACK for MADV_NOHUGEPAGE.
enum { OS_KERNEL_COLLAPSES = 6 << 8 | 1, OS_KERNEL_TAKES_SMALL = 6 << 8 | 7 };

// ---- The kernel's version -----------------------------------------------------------------------

// A note of the kernel's: its name "Linux", type 0, and the number LINUX_VERSION_CODE.
static uint32_t kernel_version_in(const unsigned char *notes, size_t bytes) {
    static const char name[] = "Linux";
    while (bytes >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) head;
        __builtin_memcpy(&head, notes, sizeof head);
        const size_t text = sizeof head;
        const size_t value = text + bits_align_up(head.n_namesz, 4);
        const size_t end = value + bits_align_up(head.n_descsz, 4);
        if (end > bytes) {
            break;
        }
        uint32_t code = 0;
        if (head.n_type == 0 && head.n_namesz == sizeof name && head.n_descsz == sizeof code &&
            __builtin_memcmp(notes + text, name, sizeof name) == 0) {
            __builtin_memcpy(&code, notes + value, sizeof code);
            return code >> 8;
        }
        notes += end;
        bytes -= end;
    }
    return 0;
}

MALLOW_INTERNAL uint32_t os_kernel_version(void) {
    const uintptr_t base = getauxval(AT_SYSINFO_EHDR);
    uint32_t version = 0;
    if (base == 0) {
        return 0;
    }
    const ElfW(Ehdr) *const head = (const ElfW(Ehdr) *)base;
    const ElfW(Phdr) *const parts = (const ElfW(Phdr) *)(base + head->e_phoff);
    for (unsigned i = 0; i < head->e_phnum && version == 0; i++) {
        if (parts[i].p_type == PT_NOTE) {
            version = kernel_version_in((const unsigned char *)(base + parts[i].p_offset),
                                      parts[i].p_filesz);
        }
    }
    return version;
}

// ---- What the system allows ---------------------------------------------------------------------

MALLOW_INTERNAL bool os_huge_start(struct os *os, uint32_t kernel_version) {
    if (os->page_bytes != 4096 ||
        (kernel_version != 0 && kernel_version < OS_KERNEL_COLLAPSES)) {
        return false;
    }
    os->keeps_small = true;
    if (kernel_version != 0 && kernel_version < OS_KERNEL_TAKES_SMALL) {
        os->keeps_small = os_huge_setting(os) == OS_HUGE_ALWAYS;
        os->keeps_by_advice = os->keeps_small;
    }
    return true;
}

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

static bool os_huge_inherits(const char *text) {
    while (*text != '\0' && *text != '[') {
        text++;
    }
    return text[0] == '[' && text[1] == 'i';
}

// Since Linux 6.8 each size has a setting of its own, which mostly says that it inherits the common
// one.
MALLOW_INTERNAL enum os_huge_setting os_huge_setting(const struct os *os) {
    static const char common[] = "/sys/kernel/mm/transparent_hugepage/enabled";
    static const char own[] = "/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled";
    char line[OS_LINE_BYTES];
    if (os->page_bytes != 4096) { // a huge page is 32 or 512 MiB with larger pages
        return OS_HUGE_NEVER;
    }
    const bool found = (os_read_first_line(own, line) && !os_huge_inherits(line)) ||
                       os_read_first_line(common, line);
    return found ? os_huge_parse(line, __builtin_strlen(line)) : OS_HUGE_NEVER;
}

MALLOW_INTERNAL bool os_overcommits(void) {
    static const char path[] = "/proc/sys/vm/overcommit_memory";
    char line[OS_LINE_BYTES];
    return os_read_first_line(path, line) && line[0] != '2';
}

MALLOW_INTERNAL bool os_huge_allow(struct os *os, uintptr_t address, size_t bytes, bool allowed) {
    if (os->sealed) {
        return false;
    }
    os_count(os, &os->advise_count);
    return os_syscall6(SYS_madvise, (long)address, (long)bytes,
                       allowed ? MADV_HUGEPAGE : MADV_NOHUGEPAGE, 0, 0, 0) == 0;
}

MALLOW_INTERNAL uint64_t os_fault_count(void) {
    struct rusage usage = {.ru_minflt = 0};
    (void)os_syscall6(SYS_getrusage, RUSAGE_SELF, (long)(uintptr_t)&usage, 0, 0, 0, 0);
    return (uint64_t)usage.ru_minflt + (uint64_t)usage.ru_majflt;
}

// Bits of an entry of /proc/PID/pagemap: in memory; mapped by nobody else (Linux 4.2).
#define OS_PAGEMAP_PRESENT (UINT64_C(1) << 63)
#define OS_PAGEMAP_EXCLUSIVE (UINT64_C(1) << 56)

MALLOW_INTERNAL bool os_huge_is_own(uintptr_t address) {
    static const char path[] = "/proc/self/pagemap";
    uint64_t pages[MALLOW_CHUNK_BYTES / 4096];
    const long file = os_syscall6(SYS_openat, AT_FDCWD, (long)(uintptr_t)path,
                                  O_RDONLY | O_CLOEXEC, 0, 0, 0);
    if (file < 0) {
        return false;
    }
    const long length =
        os_syscall6(SYS_pread64, file, (long)(uintptr_t)pages, (long)sizeof pages,
                    (long)(address / 4096 * sizeof pages[0]), 0, 0);
    (void)os_syscall6(SYS_close, file, 0, 0, 0, 0, 0);
    bool own = length == (long)sizeof pages;
    for (size_t i = 0; own && i < sizeof pages / sizeof pages[0]; i++) {
        own = (pages[i] & OS_PAGEMAP_PRESENT) == 0 || (pages[i] & OS_PAGEMAP_EXCLUSIVE) != 0;
    }
    return own;
}

// ---- Promotion ----------------------------------------------------------------------------------

static long huge_advise(struct os *os, uintptr_t address, int advice) {
    atomic_fetch_add_explicit(&os->advise_count, 1, memory_order_relaxed);
    return os_syscall6(SYS_madvise, (long)address, (long)MALLOW_CHUNK_BYTES, advice, 0, 0, 0);
}

// What is kept off huge pages, for the time of the call.
static long huge_collapse_kept_small(struct os *os, uintptr_t address) {
    if (huge_advise(os, address, MADV_HUGEPAGE) != 0) {
        return -EAGAIN; // perhaps no mapping to spare
    }
    const long result = huge_advise(os, address, OS_ADVISE_COLLAPSE);
    // What is huge stays so; but a part that is purged later comes back as small pages. And the
    // mapping is one again.
    (void)huge_advise(os, address, MADV_NOHUGEPAGE);
    return result;
}

MALLOW_INTERNAL enum os_huge_result os_huge_promote(struct os *os, uintptr_t address) {
    // Where the program has asked for huge pages itself (MADV_HUGEPAGE), what it has said stays;
    // what is kept off them the kernel refuses at once.
    long result = huge_advise(os, address, OS_ADVISE_COLLAPSE);
    if (result == -EINVAL && os->keeps_small) {
        result = huge_collapse_kept_small(os, address);
    }
    if (result == 0) {
        return OS_HUGE_MADE;
    }
    if (result == -ENOMEM || result == -EBUSY) { // EBUSY: the cgroup's limit
        return OS_HUGE_FULL;
    }
    if (result == -EINVAL) {
        return OS_HUGE_UNFIT;
    }
    return result == -ENOSYS || result == -EPERM ? OS_HUGE_REFUSED : OS_HUGE_BUSY;
}
