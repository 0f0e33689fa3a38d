// SPDX-License-Identifier: MIT
// API: what operator new does when memory runs out.
//
// Holds    no C++ run-time library is linked. The two functions of it that are needed are weak, so
//          they are there exactly when the program has one. The exception passes through this C
//          code, which keeps no state that would need cleaning up.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // RTLD_NEXT
#endif
#include <dlfcn.h>

#include "api/api.h"
#include "os/fatal.h"

#pragma weak dlsym

typedef void (*api_new_handler)(void);

extern api_new_handler api_get_new_handler(void) __asm__("_ZSt15get_new_handlerv")
    __attribute__((weak));
extern void api_throw_bad_alloc(void) __asm__("_ZSt17__throw_bad_allocv") __attribute__((weak));

static void *new_try(size_t size, size_t alignment) {
    return alignment <= MALLOW_GRANULE_BYTES ? api_malloc(size)
                                             : api_malloc_aligned(size, alignment);
}

// Calls new_handlers until memory is found or there is none to call.
static void *new_with_handlers(size_t size, size_t alignment) {
    for (;;) {
        void *const block = new_try(size, alignment);
        if (block != NULL) {
            return block;
        }
        const api_new_handler handler =
            api_get_new_handler != NULL ? api_get_new_handler() : NULL;
        if (handler == NULL) {
            return NULL;
        }
        handler();
    }
}

static MALLOW_COLD void *new_exhausted(size_t size, size_t alignment) {
    // No handler makes room for an alignment that cannot be.
    void *const block =
        bits_is_power_of_two(alignment) ? new_with_handlers(size, alignment) : NULL;
    if (block == NULL) {
        if (api_throw_bad_alloc != NULL) {
            api_throw_bad_alloc();
        }
        fatal_misuse("out of memory in operator new, size", size,
                     "there is no C++ run-time library to throw std::bad_alloc");
    }
    return block;
}

// The nothrow forms must also return NULL when a handler throws, and catching is not C's to do. The
// C++ run-time's own nothrow forms do it: they call operator new, which is ours, and catch.
static MALLOW_COLD void *new_nothrow_exhausted(size_t size, size_t alignment) {
    static const char tag = 0; // std::nothrow_t is empty, and passed by reference
    void *(*plain)(size_t, const void *) = NULL;
    void *(*aligned)(size_t, size_t, const void *) = NULL;
    if (dlsym == NULL || api_get_new_handler == NULL || api_get_new_handler() == NULL) {
        return NULL;
    }
    if (alignment <= MALLOW_GRANULE_BYTES) {
        *(void **)&plain = dlsym(RTLD_NEXT, "_ZnwmRKSt9nothrow_t");
        return plain != NULL ? plain(size, &tag) : NULL;
    }
    *(void **)&aligned = dlsym(RTLD_NEXT, "_ZnwmSt11align_val_tRKSt9nothrow_t");
    return aligned != NULL ? aligned(size, alignment, &tag) : NULL;
}

MALLOW_INTERNAL MALLOW_NOINLINE void *api_new_slow(size_t size, struct heap *heap) {
    void *const block = api_malloc_slow(size, heap);
    return likely(block != NULL) ? block : new_exhausted(size, 1);
}

MALLOW_INTERNAL MALLOW_NOINLINE void *api_new_nothrow_slow(size_t size, struct heap *heap) {
    void *const block = api_malloc_slow(size, heap);
    return likely(block != NULL) ? block : new_nothrow_exhausted(size, 1);
}

void *mw_new(size_t size) {
    return api_new(size);
}

void *mw_new_aligned(size_t size, size_t alignment) {
    void *const block =
        bits_is_power_of_two(alignment) ? api_malloc_aligned(size, alignment) : NULL;
    return likely(block != NULL) ? block : new_exhausted(size, alignment);
}

void *mw_new_nothrow(size_t size) {
    return api_new_nothrow(size);
}

void *mw_new_aligned_nothrow(size_t size, size_t alignment) {
    if (!bits_is_power_of_two(alignment)) {
        return api_fail(EINVAL);
    }
    void *const block = api_malloc_aligned(size, alignment);
    return likely(block != NULL) ? block : new_nothrow_exhausted(size, alignment);
}

void *mw_new_n(size_t count, size_t size) {
    size_t total;
    return mw_new(bits_multiply(count, size, &total) ? total : SIZE_MAX);
}

void *mw_new_realloc(void *block, size_t size) {
    for (;;) {
        void *const moved = mw_realloc(block, size);
        if (likely(moved != NULL)) {
            return moved;
        }
        const api_new_handler handler =
            api_get_new_handler != NULL ? api_get_new_handler() : NULL;
        if (handler == NULL) {
            return new_exhausted(SIZE_MAX, 1);
        }
        handler();
    }
}

void *mw_new_reallocn(void *block, size_t count, size_t size) {
    size_t total;
    return mw_new_realloc(block, bits_multiply(count, size, &total) ? total : SIZE_MAX);
}
