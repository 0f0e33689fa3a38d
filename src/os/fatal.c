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

// To the first thread's stderr where the thread is ours, which has no descriptors
// (os_bare_part_files). A program's thread makes no call but `write`: a filter may kill it for one.
static MALLOW_COLD void fatal_write(const char *text, size_t length, bool may_be_ours) {
    if (os_write(2, text, length) || !may_be_ours) {
        return;
    }
    const long first = os_process_number();
    const long handle = os_syscall6(FATAL_SYS_PIDFD_OPEN, first, 0, 0, 0, 0, 0);
    const long copy = os_syscall6(FATAL_SYS_PIDFD_GETFD, handle, 2, 0, 0, 0, 0);
    (void)os_write((int)copy, text, length);
}

// True: this thread has said something of the kind before, or is ours, which no signal reaches.
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
    fatal_write(line, format_length(&out), again);
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
