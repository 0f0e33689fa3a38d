// SPDX-License-Identifier: MIT
// Brackets each call of the allocator that a program makes, so that callcost counts programs which
// were written without it. Preloaded in front of the allocator, whichever that is.
//
// Owns     the addresses of the next allocator's calls, and a little memory for what is asked for
//          while they are looked up.
// Threads  any; a call that the allocator makes within one of its own is a part of that.
// Holds    what comes before this library's constructor is not counted: the loader's calls, and
//          those of libraries that are set up earlier.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "callcost.h"
#include "callcost_movers.h"

static struct {
    void *(*malloc)(size_t);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void *(*aligned_alloc)(size_t, size_t);
    int (*posix_memalign)(void **, size_t, size_t);
    void (*free)(void *);
} next;

static bool is_started;
static __thread bool is_inside __attribute__((tls_model("initial-exec")));

// ---- The next allocator -------------------------------------------------------------------------

static _Alignas(16) unsigned char early[16384];
static size_t early_used;

static bool is_early(const void *block) {
    return (uintptr_t)block - (uintptr_t)early < sizeof early;
}

static void *early_take(size_t size) {
    const size_t at = early_used;
    if (size > sizeof early - at) {
        errno = ENOMEM;
        return NULL;
    }
    early_used = at + ((size + 15) & ~(size_t)15);
    return early + at;
}

// False: dlsym itself asks for memory.
static bool is_ready(void) {
    static bool is_looking;
    if (next.free != NULL) {
        return true;
    }
    if (is_looking) {
        return false;
    }
    is_looking = true;
    // A function's address comes as an object's.
    *(void **)&next.malloc = dlsym(RTLD_NEXT, "malloc");
    *(void **)&next.calloc = dlsym(RTLD_NEXT, "calloc");
    *(void **)&next.realloc = dlsym(RTLD_NEXT, "realloc");
    *(void **)&next.aligned_alloc = dlsym(RTLD_NEXT, "aligned_alloc");
    *(void **)&next.posix_memalign = dlsym(RTLD_NEXT, "posix_memalign");
    *(void **)&next.free = dlsym(RTLD_NEXT, "free");
    return true;
}

// ---- Brackets -----------------------------------------------------------------------------------

static bool begin(enum callcost_operation operation, size_t size) {
    if (!is_started || is_inside) {
        return false;
    }
    is_inside = true;
    CALLCOST_REQUEST(CALLCOST_BEGIN, operation, size);
    return true;
}

static void end(bool has_begun) {
    if (has_begun) {
        CALLCOST_REQUEST(CALLCOST_END, 0, 0);
        is_inside = false;
    }
}

void *malloc(size_t size) {
    if (!is_ready()) {
        return early_take(size);
    }
    const bool has_begun = begin(CALLCOST_MALLOC, size);
    void *const block = next.malloc(size);
    end(has_begun);
    return block;
}

void *calloc(size_t count, size_t size) {
    if (!is_ready()) {
        return early_take(count * size);
    }
    const bool has_begun = begin(CALLCOST_CALLOC, count * size);
    void *const block = next.calloc(count, size);
    end(has_begun);
    return block;
}

void *realloc(void *block, size_t size) {
    if (!is_ready() || is_early(block)) {
        return block == NULL ? early_take(size) : NULL;
    }
    const bool has_begun = begin(CALLCOST_REALLOC, size);
    void *const moved = next.realloc(block, size);
    end(has_begun);
    return moved;
}

void *aligned_alloc(size_t alignment, size_t size) {
    if (!is_ready()) {
        return NULL;
    }
    const bool has_begun = begin(CALLCOST_ALIGNED_ALLOC, size);
    void *const block = next.aligned_alloc(alignment, size);
    end(has_begun);
    return block;
}

int posix_memalign(void **block, size_t alignment, size_t size) {
    if (!is_ready()) {
        return ENOMEM;
    }
    const bool has_begun = begin(CALLCOST_ALIGNED_ALLOC, size);
    const int error = next.posix_memalign(block, alignment, size);
    end(has_begun);
    return error;
}

void free(void *block) {
    if (!is_ready() || is_early(block)) {
        return;
    }
    const bool has_begun = begin(CALLCOST_FREE, 0);
    next.free(block);
    end(has_begun);
}

// C++: the program's operators lead here by name, whatever the allocator's own do besides.
void *_Znwm(size_t size);
void *_Znam(size_t size);
void _ZdlPv(void *block);
void _ZdaPv(void *block);
void _ZdlPvm(void *block, size_t size);
void _ZdaPvm(void *block, size_t size);
void *_Znwm(size_t size) {
    return malloc(size);
}
void *_Znam(size_t size) {
    return malloc(size);
}
void _ZdlPv(void *block) {
    free(block);
}
void _ZdaPv(void *block) {
    free(block);
}
void _ZdlPvm(void *block, size_t size) {
    (void)size;
    free(block);
}
void _ZdaPvm(void *block, size_t size) {
    (void)size;
    free(block);
}

__attribute__((constructor)) static void start(void) {
    callcost_tell_movers();
    CALLCOST_REQUEST(CALLCOST_PHASE, "first call of the process", 0);
    is_started = true;
    free(malloc(24));
    CALLCOST_REQUEST(CALLCOST_BEGIN, CALLCOST_NOTHING, 0);
    CALLCOST_REQUEST(CALLCOST_END, 0, 0);
    CALLCOST_REQUEST(CALLCOST_PHASE, "the program", 0);
}
