// SPDX-License-Identifier: MIT
// Override: prctl, passed on as it is. A program that is about to sandbox itself says so by it (the
// kernel asks for PR_SET_NO_NEW_PRIVS before a filter), and may be killed from then on if a thread
// is created. So that is when ours ends, for good.
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "api/api.h"

__attribute__((visibility("default"))) int prctl(int option, ...) {
    va_list list;
    unsigned long values[4];
    va_start(list, option);
    for (unsigned i = 0; i < 4; i++) {
        values[i] = va_arg(list, unsigned long);
    }
    va_end(list);
    if (option == PR_SET_NO_NEW_PRIVS || option == PR_SET_SECCOMP) {
        api_sandbox_begins();
    }
    return (int)syscall(SYS_prctl, option, values[0], values[1], values[2], values[3]);
}
