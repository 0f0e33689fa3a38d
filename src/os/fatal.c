// SPDX-License-Identifier: MIT
// Fatal: see fatal.h.
#include "os/fatal.h"

#include <stdlib.h>

#include "base/format.h"
#include "os/os.h"

MALLOW_INTERNAL MALLOW_NORETURN MALLOW_COLD void fatal_misuse(const char *what, uintptr_t address,
                                                              const char *detail) {
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
    os_write(2, line, format_length(&out));
    abort();
}
