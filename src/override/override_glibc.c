// SPDX-License-Identifier: MIT
// Override: glibc's control surface, answered with this allocator's figures, never glibc's empty
// heap's.
//
// Holds    a mallopt parameter is honoured (1) or refused (0), never ignored in silence. One that
//          bounds what is not there at all is honoured.
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>

#include "api/api.h"
#include "base/format.h"

#define OVERRIDE __attribute__((visibility("default")))

// mallinfo is declared deprecated; those who still call it get true figures, cut to int at its
// limit.
OVERRIDE struct mallinfo mallinfo(void);

static int glibc_clamp(size_t value) {
    return value > INT32_MAX ? INT32_MAX : (int)value;
}

OVERRIDE struct mallinfo2 mallinfo2(void) {
    struct api_totals totals;
    api_control_totals(&totals);
    return (struct mallinfo2){
        .arena = totals.arena_bytes,
        .ordblks = totals.free_count,
        .hblks = totals.huge_count,
        .hblkhd = totals.huge_bytes,
        .uordblks = totals.live_bytes,
        .fordblks = totals.free_bytes,
        .keepcost = totals.releasable_bytes,
    };
}

OVERRIDE struct mallinfo mallinfo(void) {
    const struct mallinfo2 full = mallinfo2();
    return (struct mallinfo){
        .arena = glibc_clamp(full.arena),
        .ordblks = glibc_clamp(full.ordblks),
        .hblks = glibc_clamp(full.hblks),
        .hblkhd = glibc_clamp(full.hblkhd),
        .uordblks = glibc_clamp(full.uordblks),
        .fordblks = glibc_clamp(full.fordblks),
        .keepcost = glibc_clamp(full.keepcost),
    };
}

OVERRIDE int malloc_trim(size_t pad) {
    (void)pad; // what is kept for speed is all that there is to keep
    return mw_collect(true) > 0;
}

OVERRIDE void malloc_stats(void) {
    api_control_stats(2);
}

// A thread that is cancelled while it writes would leave the text behind.
OVERRIDE int malloc_info(int options, FILE *stream) {
    size_t length = 0;
    int cancel_state = PTHREAD_CANCEL_ENABLE;
    if (options != 0) {
        errno = EINVAL;
        return -1;
    }
    char *const text = api_control_xml(&length);
    if (text == NULL) {
        return -1;
    }
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    const bool written = fwrite(text, 1, length, stream) == length;
    api_free(text);
    (void)pthread_setcancelstate(cancel_state, NULL);
    return written ? 0 : -1;
}

enum { GLIBC_FAST_BYTES_MAX = 80 * sizeof(size_t) / 4 }; // what M_MXFAST may be at most

OVERRIDE int mallopt(int parameter, int value) {
    switch (parameter) {
    case M_TRIM_THRESHOLD:
        return api_control_set_trim_threshold(value);
    case M_MMAP_THRESHOLD:
        return api_control_set_mmap_threshold(value);
    case M_ARENA_MAX:
    case M_ARENA_TEST:
    case M_TOP_PAD:
    case M_NLBLKS:
    case M_GRAIN:
        return value >= 0; // no such arenas, break or holding blocks: any bound of theirs holds
    case M_MXFAST:
        return value >= 0 && value <= GLIBC_FAST_BYTES_MAX; // blocks are never kept unmerged
    case M_CHECK_ACTION:
        return 1; // a misuse stops the program, as with glibc, which no longer asks either
    case M_PERTURB:
        return value == 0;
    case M_MMAP_MAX:
    default:
        return 0; // refused
    }
}
