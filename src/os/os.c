// SPDX-License-Identifier: MIT
// OS for Linux: see os.h.
#include "os/os.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/compiler.h"
#include "os/os_pages.h"
#include "os/os_syscall.h"

// Older headers lack these; the numbers are the kernel's interface.
enum { OS_MAP_FIXED_NOREPLACE = 0x100000, OS_ADVISE_POPULATE_READ = 22 };
enum { OS_SET_VMA = 0x53564d41, OS_SET_VMA_ANON_NAME = 0 };

// From here on the kernel is to look whether the machine could ever have so much memory.
#define OS_ACCOUNTED_BYTES ((size_t)1 << 30)
// It does not look when a mapping grows, so none grows to that by more than this factor.
enum { OS_LEAP = 16 };

static bool os_failed(long result) {
    return (unsigned long)result >= (unsigned long)-4095L;
}

static size_t os_limit_of(int resource) {
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    const long result =
        os_syscall6(SYS_prlimit64, 0, resource, 0, (long)(uintptr_t)&limit, 0, 0);
    return os_failed(result) || limit.rlim_cur == RLIM_INFINITY ? SIZE_MAX : limit.rlim_cur;
}

MALLOW_INTERNAL void os_init(struct os *os) {
    os_charge_init(os);
    os->root = "";
    const unsigned long page_bytes = getauxval(AT_PAGESZ);
    os->page_bytes = page_bytes != 0 ? page_bytes : 4096;
#if defined(__x86_64__)
    os->knows_node = getauxval(AT_SYSINFO_EHDR) != 0; // an emulator has no vDSO
#endif
    os->address_space_limit = os_limit_of(RLIMIT_AS);
}

MALLOW_INTERNAL bool os_confine(struct os *os, size_t limit) {
    size_t before = __atomic_load_n(&os->address_space_limit, __ATOMIC_RELAXED);
    while (limit < before &&
           !__atomic_compare_exchange_n(&os->address_space_limit, &before, limit, true,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return limit < before;
}

MALLOW_INTERNAL bool os_unconfine(struct os *os, size_t limit) {
    const size_t before = __atomic_load_n(&os->address_space_limit, __ATOMIC_RELAXED);
    if (limit <= before) {
        return false;
    }
    __atomic_store_n(&os->address_space_limit, limit, __ATOMIC_RELAXED);
    return true;
}

MALLOW_INTERNAL size_t os_limit(const struct os *os) {
    return bits_min(__atomic_load_n(&os->address_space_limit, __ATOMIC_RELAXED),
                    os_limit_of(RLIMIT_DATA));
}

static long os_name(uintptr_t address, size_t bytes) {
    static const char name[] = "mallow";
    return os_syscall6(SYS_prctl, OS_SET_VMA, OS_SET_VMA_ANON_NAME, (long)address, (long)bytes,
                       (long)(uintptr_t)name, 0);
}

// No bytes: the kernel only says whether it would.
MALLOW_INTERNAL bool os_name_start(struct os *os) {
    os->name_mappings = os_name(0, 0) == 0;
    return os->name_mappings;
}

// What few systems are told of a new mapping besides.
static MALLOW_COLD void os_describe(struct os *os, uintptr_t address, size_t bytes,
                                    int protection) {
    if (os->name_mappings && protection == (PROT_READ | PROT_WRITE)) {
        (void)os_name(address, bytes);
    }
    if (os->keeps_by_advice && protection != PROT_NONE) {
        os_count(os, &os->advise_count);
        (void)os_syscall6(SYS_madvise, (long)address, (long)bytes, MADV_NOHUGEPAGE, 0, 0, 0);
    }
}

static uintptr_t os_map_raw(struct os *os, uintptr_t address, size_t bytes, int protection,
                            int flags) {
    if (unlikely(os->sealed)) {
        return 0;
    }
    os_count(os, &os->map_count);
    const bool accounted =
        bytes >= OS_ACCOUNTED_BYTES && protection == (PROT_READ | PROT_WRITE);
    // Since 6.7 Linux takes MAP_STACK, which means nothing else, for MADV_NOHUGEPAGE.
    const long result =
        os_syscall6(SYS_mmap, (long)address, (long)bytes, protection,
                    MAP_PRIVATE | MAP_ANONYMOUS | (accounted ? 0 : MAP_NORESERVE) | flags |
                        (os->keeps_small ? MAP_STACK : 0),
                    -1, 0);
    if (os_failed(result)) {
        return 0;
    }
    if (unlikely(os->name_mappings) || unlikely(os->keeps_by_advice)) {
        os_describe(os, (uintptr_t)result, bytes, protection);
    }
    return (uintptr_t)result;
}

// Maps more than asked for and cuts the ends off. An end that cannot be cut off stays mapped,
// unused: it costs address space and no memory.
static uintptr_t os_map_aligned(struct os *os, size_t bytes, size_t alignment, int protection) {
    if (alignment <= os->page_bytes) {
        return os_map_raw(os, 0, bytes, protection, 0);
    }
    const size_t total = bytes + alignment - os->page_bytes;
    if (total < bytes) {
        return 0;
    }
    const uintptr_t address = os_map_raw(os, 0, total, protection, 0);
    if (address == 0) {
        return 0;
    }
    const uintptr_t start = bits_align_up(address, alignment);
    if (start > address) {
        (void)os_unmap(os, address, start - address);
    }
    if (address + total > start + bytes) {
        (void)os_unmap(os, start + bytes, address + total - (start + bytes));
    }
    return start;
}

MALLOW_INTERNAL uintptr_t os_reserve(struct os *os, size_t bytes, size_t alignment) {
    return os_map_aligned(os, bytes, alignment, PROT_NONE);
}

MALLOW_INTERNAL void os_leave_undumped(struct os *os, uintptr_t address, size_t bytes) {
    os_count(os, &os->advise_count);
    (void)os_syscall6(SYS_madvise, (long)address, (long)bytes, MADV_DONTDUMP, 0, 0, 0);
}

// The kernel has failed, and may have unmapped what was there before it did. What is mapped there
// now may then be what another thread has just got: a hole is filled, but nothing replaced. False:
// there was none, or it is another's.
static MALLOW_COLD bool os_fill_hole(struct os *os, uintptr_t address, size_t bytes,
                                     int protection) {
    const uintptr_t filled = os_map_raw(os, address, bytes, protection, OS_MAP_FIXED_NOREPLACE);
    if (filled != 0 && filled != address) { // a kernel that does not know the flag
        (void)os_unmap(os, filled, bytes);
    }
    return filled == address;
}

// Before Linux 6.12 the kernel charges what is writable, if it does, after it has unmapped what was
// reserved there. That may have been readable (os_commit_readable), and looked at by any thread.
MALLOW_INTERNAL bool os_commit(struct os *os, uintptr_t address, size_t bytes) {
    if (likely(os_map_raw(os, address, bytes, PROT_READ | PROT_WRITE, MAP_FIXED) == address)) {
        return true;
    }
    (void)os_fill_hole(os, address, bytes, PROT_READ);
    return false;
}

MALLOW_INTERNAL bool os_commit_readable(struct os *os, uintptr_t address, size_t bytes) {
    return os_map_raw(os, address, bytes, PROT_READ, MAP_FIXED) == address;
}

MALLOW_INTERNAL bool os_decommit(struct os *os, uintptr_t address, size_t bytes) {
    return os_map_raw(os, address, bytes, PROT_NONE, MAP_FIXED) == address;
}

MALLOW_INTERNAL uintptr_t os_map(struct os *os, size_t bytes, size_t alignment) {
    uintptr_t address = os_map_aligned(os, bytes, alignment, PROT_READ | PROT_WRITE);
    if (address == 0 && alignment > os->page_bytes) {
        // Where all that is writable is charged (overcommit_memory=2), the ends were too much.
        address = os_reserve(os, bytes, alignment);
        if (address != 0 && !os_commit(os, address, bytes)) {
            (void)os_unmap(os, address, bytes);
            address = 0;
        }
    }
    return address;
}

MALLOW_INTERNAL bool os_unmap(struct os *os, uintptr_t address, size_t bytes) {
    if (unlikely(os->sealed)) {
        return false;
    }
    os_count(os, &os->unmap_count);
    return !os_failed(os_syscall6(SYS_munmap, (long)address, (long)bytes, 0, 0, 0, 0));
}

MALLOW_INTERNAL bool os_purge(struct os *os, uintptr_t address, size_t bytes) {
    // Of a part of a giant page the kernel says that it has, and does nothing.
    if (unlikely(os->sealed) || unlikely(address - os->giant_address < os->giant_bytes)) {
        return false;
    }
    os_count(os, &os->advise_count);
    // Not MADV_FREE: the figures that monitoring shows should fall when memory is given back.
    const long result =
        os_syscall6(SYS_madvise, (long)address, (long)bytes, MADV_DONTNEED, 0, 0, 0);
    return !os_failed(result);
}

MALLOW_INTERNAL uintptr_t os_remap(struct os *os, uintptr_t address, size_t bytes, size_t new_bytes,
                                   bool may_move) {
    const bool leaps = new_bytes >= OS_ACCOUNTED_BYTES && new_bytes / OS_LEAP > bytes;
    if (unlikely(os->sealed || leaps)) {
        return 0;
    }
    os_count(os, &os->remap_count);
    const long result = os_syscall6(SYS_mremap, (long)address, (long)bytes, (long)new_bytes,
                                    may_move ? MREMAP_MAYMOVE : 0, 0, 0);
    return os_failed(result) ? 0 : (uintptr_t)result;
}

// Whether a part of a range is not mapped: the kernel says so of advice that changes nothing.
static MALLOW_COLD bool os_has_gap(struct os *os, uintptr_t address, size_t bytes) {
    os_count(os, &os->advise_count);
    return os_syscall6(SYS_madvise, (long)address, (long)bytes, MADV_NORMAL, 0, 0, 0) == -ENOMEM;
}

// The kernel moves one mapping after the other, and leaves what it has moved where it is when it
// refuses one: where the program has registered part of the range with a userfaultfd, say.
MALLOW_INTERNAL enum os_moved os_move(struct os *os, uintptr_t address, size_t bytes,
                                      uintptr_t target) {
    if (unlikely(os->sealed)) {
        return OS_NOT_MOVED;
    }
    os_count(os, &os->remap_count);
    const long result = os_syscall6(SYS_mremap, (long)address, (long)bytes, (long)bytes,
                                    MREMAP_MAYMOVE | MREMAP_FIXED, (long)target, 0);
    if (!os_failed(result)) {
        return OS_MOVED;
    }
    if (os_fill_hole(os, target, bytes, PROT_READ | PROT_WRITE)) {
        return OS_NOT_MOVED;
    }
    return os_has_gap(os, address, bytes) ? OS_BOTH_LOST : OS_TARGET_LOST;
}

MALLOW_INTERNAL bool os_is_mapped(const struct os *os, uintptr_t address) {
    const uintptr_t page = bits_align_down(address, os->page_bytes);
    const long result = os_syscall6(SYS_madvise, (long)page, (long)os->page_bytes,
                                    OS_ADVISE_POPULATE_READ, 0, 0, 0);
    if (likely(!os_failed(result))) {
        return true;
    }
    // Of nothing it is said whether the advice is known.
    const long known =
        os_syscall6(SYS_madvise, (long)page, 0, OS_ADVISE_POPULATE_READ, 0, 0, 0);
    return os_failed(known) && os_read_word(page);
}

MALLOW_INTERNAL size_t os_resident(const struct os *os, uintptr_t address, size_t bytes) {
    unsigned char pages[4096];
    size_t count = 0;
    while (bytes > 0) {
        // A byte for each 4 KiB: under an emulator the kernel's pages may be smaller than ours.
        const size_t part = bits_min(bytes, sizeof pages * 4096);
        const size_t page_count = (part + os->page_bytes - 1) / os->page_bytes;
        if (!os_failed(os_syscall6(SYS_mincore, (long)address, (long)part, (long)(uintptr_t)pages,
                                   0, 0, 0))) {
            for (size_t i = 0; i < page_count; i++) {
                count += pages[i] & 1U;
            }
        }
        address += part;
        bytes -= part;
    }
    return count * os->page_bytes;
}

MALLOW_INTERNAL bool os_write(int fd, const char *text, size_t length) {
    while (length > 0) {
        const long written =
            os_syscall6(SYS_write, fd, (long)(uintptr_t)text, (long)length, 0, 0, 0);
        if (written == -EINTR) {
            continue;
        }
        if (written <= 0) {
            return false;
        }
        text += written;
        length -= (size_t)written;
    }
    return true;
}

#define OS_SIGNAL(number) ((uint64_t)1 << ((number)-1)) // as the kernel counts them
#define OS_HUSHED         (OS_SIGNAL(SIGPIPE) | OS_SIGNAL(SIGXFSZ))
// The first of those that libc has for itself, which its calls never block: it cancels a thread.
#define OS_ENDING OS_SIGNAL(32)

static bool os_hold_back(uint64_t set, uint64_t *before) {
    return os_syscall6(SYS_rt_sigprocmask, SIG_BLOCK, (long)(uintptr_t)&set,
                       (long)(uintptr_t)before, sizeof set, 0, 0) == 0;
}

MALLOW_INTERNAL void os_hush(struct os_hush *hush) {
    hush->before = OS_HUSHED;
    hush->pending = OS_HUSHED; // where the kernel will not say, nothing is changed
    if (os_hold_back(OS_HUSHED, &hush->before)) {
        (void)os_syscall6(SYS_rt_sigpending, (long)(uintptr_t)&hush->pending,
                          sizeof hush->pending, 0, 0, 0, 0);
    }
}

MALLOW_INTERNAL void os_unhush(const struct os_hush *hush) {
    const uint64_t ours = OS_HUSHED & ~hush->pending;
    const struct timespec at_once = {0, 0};
    long taken = ours != 0;
    while (taken > 0 || taken == -EINTR) {
        taken = os_syscall6(SYS_rt_sigtimedwait, (long)(uintptr_t)&ours, 0,
                            (long)(uintptr_t)&at_once, sizeof ours, 0, 0);
    }
    const uint64_t again = OS_HUSHED & ~hush->before;
    (void)os_syscall6(SYS_rt_sigprocmask, SIG_UNBLOCK, (long)(uintptr_t)&again, 0, sizeof again, 0,
                      0);
}

MALLOW_INTERNAL bool os_tell(int fd, const char *text, size_t length) {
    struct os_hush hush;
    os_hush(&hush);
    const bool whole = os_write(fd, text, length);
    os_unhush(&hush);
    return whole;
}

MALLOW_INTERNAL bool os_hush_for_good(void) {
    uint64_t before = 0;
    (void)os_hold_back(OS_HUSHED | OS_ENDING, &before);
    return (before & OS_ENDING) != 0;
}

MALLOW_INTERNAL MALLOW_COLD uintptr_t os_break(void) {
    void *const now = sbrk(0);
    return now == (void *)-1 ? 0 : (uintptr_t)now;
}

MALLOW_INTERNAL MALLOW_COLD bool os_is_in_break(const struct os *os, uintptr_t address) {
    return address >= atomic_load_explicit(&os->break_at_start, memory_order_relaxed) &&
           address < os_break();
}
