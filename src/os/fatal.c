// SPDX-License-Identifier: MIT
// Fatal: see fatal.h.
#include "os/fatal.h"

#include <signal.h>
#include <stdlib.h>

#include "base/format.h"
#include "os/os.h"

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
    os_write(2, line, format_length(&out));
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
