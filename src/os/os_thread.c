// SPDX-License-Identifier: MIT
// OS, threads: see os_thread.h.
#include "os/os_thread.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <time.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/format.h"
#include "os/os.h"
#include "os/os_file.h"

enum {
    THREAD_STATUS_BYTES = 4096,
    THREAD_CALL_BYTES = 160, // its number, what it was given, and where
    THREAD_CALL_ARGUMENTS = 6,
    THREAD_STACK_BYTES = 1 << 20, // in which a signal's frame is looked for
    THREAD_MARK_STEP = 16,
    THREAD_CLOCK_SHIFT = 3, // a thread's clock is ~number << 3, and what kind of clock it is
    THREAD_END_ROUNDS = 10000, // mostly of 100 us
    THREAD_PROCESSOR_WORDS = 128, // 8,192 processors: the most that Linux may have
    SIGNAL_COUNT = 64,
    SIGNAL_SET_BYTES = SIGNAL_COUNT / 8,
};

// Older headers lack it; the number is the kernel's interface.
enum { THREAD_SYS_EPOLL_PWAIT2 = 441 };

// As the kernel takes and gives it.
struct thread_action {
    void *handler;
    unsigned long flags;
    void *restorer;
    uint64_t mask;
};

MALLOW_INTERNAL uint32_t os_thread_number(void) {
    clockid_t clock = 0;
    if (pthread_getcpuclockid(pthread_self(), &clock) != 0) {
        return 0;
    }
    return ~(uint32_t)(clock >> THREAD_CLOCK_SHIFT);
}

MALLOW_INTERNAL bool os_thread_is_gone(pid_t process, uint32_t thread) {
    return os_syscall6(SYS_tgkill, process, (long)thread, 0, 0, 0, 0) == -ESRCH;
}

MALLOW_INTERNAL void os_thread_await_end(uint32_t thread) {
    for (unsigned round = 0; round < THREAD_END_ROUNDS; round++) {
        if (os_syscall6(SYS_tgkill, os_process_number(), (long)thread, 0, 0, 0, 0) != 0) {
            return;
        }
        os_pause(round);
    }
}

// The text behind `name` at the beginning of a line; NULL if there is none.
static const char *thread_field(const char *text, const char *name) {
    while (*text != '\0') {
        const char *at = name;
        while (*at != '\0' && *text == *at) {
            text++;
            at++;
        }
        if (*at == '\0') {
            return text;
        }
        while (*text != '\0' && *text++ != '\n') {
        }
    }
    return NULL;
}

// Whether a status file is of the thread that we call so. In a namespace of processes that does not
// have the /proc that it sees, the file of that number may be of another thread: it has the numbers
// in all namespaces, last the thread's own (Linux 4.1).
static bool thread_is_meant(const char *status, uint32_t thread) {
    const char *at = thread_field(status, "NSpid:");
    uint64_t number = thread;
    while (at != NULL && (*at == '\t' || *at == ' ')) {
        at++;
        (void)os_take_number(&at, &number);
    }
    return number == thread;
}

// The number at `at`, NULL for none; behind it, or NULL.
static const char *thread_hex(const char *at, uint64_t *value) {
    unsigned digits = 0;
    *value = 0;
    for (; at != NULL; at++, digits++) {
        const unsigned digit = *at >= 'a' && *at <= 'f' ? (unsigned)(*at - 'a') + 10
                                                        : (unsigned)(*at - '0');
        if (digit >= 16) {
            break;
        }
        *value = *value << 4 | digit;
    }
    return digits != 0 ? at : NULL;
}

static bool thread_hex_field(const char *text, const char *name, uint64_t *value) {
    return thread_hex(thread_field(text, name), value) != NULL;
}

// Behind `count` words and the space after each, or at the end.
static const char *thread_skip(const char *text, unsigned count) {
    while (count-- != 0) {
        while (*text != '\0' && *text++ != ' ') {
        }
    }
    return text;
}

// Calls that let in other signals while they wait, and which of what they are given says so, from 0
// on. Only those are shown as blocked then: not that of a handler in which such a call is made.
static const struct {
    uint16_t number;
    uint16_t mask_index;
} thread_masking_calls[] = {
    {SYS_rt_sigsuspend, 0}, {SYS_rt_sigtimedwait, 0}, {SYS_ppoll, 3}, {SYS_pselect6, 5},
    {SYS_epoll_pwait, 4},   {THREAD_SYS_EPOLL_PWAIT2, 4},
};

// Whether a thread is in such a call: "271 0x7f00 0x1 0x0 0x7f10 0x8 ...".
static bool thread_has_other_mask(const char *call) {
    const unsigned count = sizeof thread_masking_calls / sizeof thread_masking_calls[0];
    uint64_t number = 0;
    unsigned i = 0;
    (void)os_take_number(&call, &number);
    while (i < count && thread_masking_calls[i].number != number) {
        i++;
    }
    if (i == count) {
        return false;
    }
    call = thread_skip(call, thread_masking_calls[i].mask_index + 1U);
    return !(call[0] == '0' && call[1] == 'x' && call[2] == '0');
}

MALLOW_INTERNAL bool os_thread_sleeps(const char *status, const char *call, uint64_t *caught) {
    const char *const state = thread_field(status, "State:\t");
    uint64_t blocked = 0;
    // A call's number, not "running", nor -1 for a thread that waits for a page, say.
    return state != NULL && *state == 'S' && *call >= '0' && *call <= '9' &&
           !thread_has_other_mask(call) &&
           thread_hex_field(status, "SigBlk:\t", &blocked) &&
           thread_hex_field(status, "SigCgt:\t", caught) && (blocked & *caught) == 0;
}

// Whether no handler of these signals can be interrupted by its own one: while it runs, that is
// blocked.
static bool thread_handlers_block(uint64_t caught) {
    for (unsigned number = 1; number <= SIGNAL_COUNT; number++) {
        struct thread_action action = {NULL, 0, NULL, 0};
        if ((caught >> (number - 1) & 1U) == 0) {
            continue;
        }
        if (os_syscall6(SYS_rt_sigaction, (long)number, 0, (long)(uintptr_t)&action,
                        SIGNAL_SET_BYTES, 0, 0) != 0 ||
            (action.flags & SA_NODEFER) != 0) {
            return false;
        }
    }
    return true;
}

// Opens /proc/self/task/<thread>/<file> for reading; -errno if that fails.
static long thread_open(uint32_t thread, const char *file) {
    char path[64];
    struct format out;
    format_init(&out, path, sizeof path);
    format_text(&out, "/proc/self/task/");
    format_unsigned(&out, thread);
    format_text(&out, file);
    return os_syscall6(SYS_openat, AT_FDCWD, (long)(uintptr_t)path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
}

// The beginning of such a file; false: it cannot be read.
static bool thread_read(uint32_t thread, const char *file, char *text, size_t bytes) {
    const long fd = thread_open(thread, file);
    if (fd < 0) {
        return false;
    }
    const long length = os_syscall6(SYS_read, fd, (long)(uintptr_t)text, (long)bytes - 1, 0, 0, 0);
    (void)os_syscall6(SYS_close, fd, 0, 0, 0, 0, 0);
    text[length > 0 ? length : 0] = '\0';
    return length > 0;
}

MALLOW_INTERNAL uint64_t os_thread_rights(uint32_t thread) {
    static const char *const names[] = {"Uid:", "Gid:", "Groups:", "CapPrm:", "CapEff:"};
    char status[THREAD_STATUS_BYTES];
    uint64_t rights = 0xcbf29ce484222325; // by FNV-1a
    if (!thread_read(thread, "/status", status, sizeof status) ||
        !thread_is_meant(status, thread)) {
        return 0;
    }
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *at = thread_field(status, names[i]);
        for (; at != NULL && *at != '\0' && *at != '\n'; at++) {
            rights = (rights ^ (unsigned char)*at) * 0x100000001b3;
        }
    }
    return rights;
}

MALLOW_INTERNAL void os_thread_widen(void) {
    uint64_t first[THREAD_PROCESSOR_WORDS] = {0};
    uint64_t own[THREAD_PROCESSOR_WORDS] = {0};
    uint64_t more = 0;
    if (os_syscall6(SYS_sched_getaffinity, os_process_number(), sizeof first,
                    (long)(uintptr_t)first, 0, 0, 0) <= 0 ||
        os_syscall6(SYS_sched_getaffinity, 0, sizeof own, (long)(uintptr_t)own, 0, 0, 0) <= 0) {
        return;
    }
    for (unsigned i = 0; i < THREAD_PROCESSOR_WORDS; i++) {
        more |= first[i] & ~own[i];
        own[i] |= first[i];
    }
    if (more != 0) {
        (void)os_syscall6(SYS_sched_setaffinity, 0, sizeof own, (long)(uintptr_t)own, 0, 0, 0);
    }
}

MALLOW_INTERNAL bool os_thread_is_only(void) {
    char status[THREAD_STATUS_BYTES];
    // Of the first thread: a child by a bare clone does not know its own number.
    if (!thread_read((uint32_t)os_process_number(), "/status", status, sizeof status)) {
        return false;
    }
    const char *const count = thread_field(status, "Threads:\t");
    return count != NULL && count[0] == '1' && count[1] == '\n';
}

// 0: the same memory; 1 to 3: another, by an order of the kernel's; less: it does not say.
static long thread_compare_memory(pid_t parent) {
    return os_syscall6(SYS_kcmp, os_process_number(), parent, KCMP_VM, 0, 0, 0);
}

MALLOW_INTERNAL bool os_thread_is_apart_from(pid_t parent) {
    return thread_compare_memory(parent) > 0;
}

MALLOW_INTERNAL bool os_thread_is_within(pid_t parent) {
    return thread_compare_memory(parent) == 0;
}

// ---- Frames of signal handlers ------------------------------------------------------------------

// In the frame of each handler that runs the kernel keeps the registers of what it has interrupted,
// with a mark at a multiple of 16 bytes, whose numbers are its interface:
//   x86-64  FP_XSTATE_MAGIC1, in the bytes of the FXSAVE area that XSAVE leaves alone;
//   arm64   the head of struct fpsimd_context: FPSIMD_MAGIC and its size.
#if defined(__x86_64__)
static const uint64_t thread_mark = 0x46505853;
static const uint64_t thread_mark_mask = UINT32_MAX;

// Where the processor has no XSAVE, or the kernel does not use it, there is no mark.
static bool thread_frames_are_marked(void) {
    unsigned eax = 0;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;
    __cpuid(1, eax, ebx, ecx, edx);
    return (ecx & bit_OSXSAVE) != 0;
}
#else
static const uint64_t thread_mark = UINT64_C(0x210) << 32 | 0x46508001;
static const uint64_t thread_mark_mask = UINT64_MAX;

static bool thread_frames_are_marked(void) {
    return true;
}
#endif

MALLOW_INTERNAL uintptr_t os_thread_stack_of(const char *call) {
    uint64_t stack = 0;
    call = thread_skip(call, 1 + THREAD_CALL_ARGUMENTS);
    if (call[0] != '0' || call[1] != 'x') {
        return 0;
    }
    call = thread_hex(call + 2, &stack);
    return call != NULL && *call == ' ' ? stack : 0; // a cut-off one is smaller than it was
}

MALLOW_INTERNAL bool os_thread_has_mark(const char *memory, size_t bytes) {
    for (size_t at = 0; at + sizeof thread_mark <= bytes; at += THREAD_MARK_STEP) {
        uint64_t word;
        __builtin_memcpy(&word, memory + at, sizeof word);
        if ((word & thread_mark_mask) == thread_mark) {
            return true;
        }
    }
    return false;
}

// Whether a handler may run in a thread that sleeps with this stack pointer, by its frame: that
// lies between it and `top`, above all frames of the thread's own stack. On an alternate one, too,
// if that is below `top`; with one above, or far below, or with holes between, it cannot be told.
//
// The thread may wake while this reads. That does no harm: if it goes on with a malloc that the
// handler has interrupted, the mark stays as it is, 200 bytes and more below the stack pointer,
// beyond what malloc's fast path uses; a handler that interrupts it once more finds it at the same
// depth, and its frame has the mark in the same place. Once something else lies there, that malloc
// has ended, and nothing of it can be lost.
static bool thread_may_handle(uint32_t thread, uintptr_t stack, uintptr_t top, char *piece,
                              size_t piece_bytes) {
    uintptr_t at = stack & ~(uintptr_t)(THREAD_MARK_STEP - 1);
    if (stack == 0 || stack >= top || top - stack > THREAD_STACK_BYTES ||
        !thread_frames_are_marked()) {
        return true;
    }
    // By a file, not by process_vm_readv, for which a sandbox may kill that lets these calls be.
    // The thread's own: the process's is empty once its first thread has ended.
    const long fd = thread_open(thread, "/mem");
    bool found = fd < 0;
    while (!found && at < top) {
        const size_t bytes = top - at < piece_bytes ? top - at : piece_bytes;
        const long length = os_syscall6(SYS_pread64, fd, (long)(uintptr_t)piece, (long)bytes,
                                        (long)at, 0, 0);
        found = length != (long)bytes || os_thread_has_mark(piece, bytes);
        at += bytes;
    }
    if (fd >= 0) {
        (void)os_syscall6(SYS_close, fd, 0, 0, 0, 0, 0);
    }
    return found;
}

MALLOW_INTERNAL bool os_thread_is_asleep(uint32_t thread, uintptr_t top) {
    char status[THREAD_STATUS_BYTES];
    char call[THREAD_CALL_BYTES];
    uint64_t caught = 0;
    // In this order: a thread that leaves a handler in between is found running by the second.
    return thread != 0 && thread_read(thread, "/status", status, sizeof status) &&
           thread_is_meant(status, thread) &&
           thread_read(thread, "/syscall", call, sizeof call) &&
           os_thread_sleeps(status, call, &caught) && thread_handlers_block(caught) &&
           !thread_may_handle(thread, os_thread_stack_of(call), top, status, sizeof status);
}
