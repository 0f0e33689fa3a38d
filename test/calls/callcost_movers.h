// SPDX-License-Identifier: MIT
// Tells callcost where libc's memcpy and its like are, wherever the processor's kind has led them:
// they lie side by side.
#ifndef CALLCOST_MOVERS_H
#define CALLCOST_MOVERS_H

#include <stdint.h>
#include <string.h>

#include "callcost.h"

static inline void callcost_tell_movers(void) {
    enum { AROUND = 4096 };
    void *(*volatile copy)(void *, const void *, size_t) = memcpy;
    void *(*volatile move)(void *, const void *, size_t) = memmove;
    void *(*volatile set)(void *, int, size_t) = memset;
    const uintptr_t places[] = {(uintptr_t)copy, (uintptr_t)move, (uintptr_t)set};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const uintptr_t first = places[i] - AROUND / 2;
        CALLCOST_REQUEST(CALLCOST_MOVER, first, places[i] + AROUND);
        VALGRIND_DISCARD_TRANSLATIONS(first, AROUND / 2 + AROUND);
    }
}

#endif
