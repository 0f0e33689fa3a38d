// SPDX-License-Identifier: MIT
// Fatal: see fatal.h.
#include "os/fatal.h"

#include <signal.h>
#include <stdlib.h>

#include "base/format.h"
#include "os/os.h"
#include "os/os_syscall.h"
#include "os/os_thread.h"

// Older headers lack them (Linux 5.6); the numbers are the kernel's interface.
enum { FATAL_SYS_PIDFD_OPEN = 434, FATAL_SYS_PIDFD_GETFD = 438 };

// To the first thread's stderr where this one has none: ours has no descriptors
// (os_bare_part_files).
static MALLOW_COLD void fatal_write(const char *text, size_t length) {
    const long first = os_process_number();
    if (os_write(2, text, length) || os_syscall6(SYS_gettid, 0, 0, 0, 0, 0, 0) == first) {
        return;
    }
    const long handle = os_syscall6(FATAL_SYS_PIDFD_OPEN, first, 0, 0, 0, 0, 0);
    const long copy = os_syscall6(FATAL_SYS_PIDFD_GETFD, handle, 2, 0, 0, 0, 0);
    (void)os_write((int)copy, text, length);
}

// True: this thread has said something of the kind before.
static MALLOW_COLD bool fatal_say(const char *what, uintptr_t address, const char *detail) {
    char line[400];
    struct format out;
    format_init(&out, line, sizeof line);
    format_text(&out, "mallow: ");
    format_text(&out, what);
    format_text(&out, " ");
    format_hex(&out, address);
    format_text(&out, ": ");
    format_text(&out, detail);
    format_text(&out, " (run under a debugger: the faulty call is on this stack)\n");
    const bool again = os_hush_for_good();
    fatal_write(line, format_length(&out));
    return again;
}

MALLOW_INTERNAL MALLOW_NORETURN MALLOW_COLD void fatal_misuse(const char *what, uintptr_t address,
                                                              const char *detail) {
    (void)fatal_say(what, address, detail);
    abort();
}

MALLOW_INTERNAL MALLOW_NORETURN MALLOW_COLD void fatal_deadlock(uintptr_t lock,
                                                                const char *detail) {
    if (fatal_say("deadlock at the lock", lock, detail)) {
        (void)signal(SIGABRT, SIG_DFL);
    }
    abort();
}
