// SPDX-License-Identifier: MIT
// API: what operator new does when memory runs out.
//
// Holds    no C++ run-time library is linked. The two functions of it that are needed are weak, so
//          they are there when the program starts with one; one that comes with a library that is
//          loaded later is looked for where that library looks. The exception passes through this C
//          code, which keeps no state that would need cleaning up.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // RTLD_NEXT
#endif
#include <dlfcn.h>

#include "api/api.h"
#include "os/fatal.h"
#include "process/process.h"

#pragma weak dlsym

typedef void (*api_new_handler)(void);

extern api_new_handler api_get_new_handler(void) __asm__("_ZSt15get_new_handlerv")
    __attribute__((weak));
extern void api_throw_bad_alloc(void) __asm__("_ZSt17__throw_bad_allocv") __attribute__((weak));

MALLOW_INTERNAL bool api_has_throw(void) {
    return api_throw_bad_alloc != NULL;
}

// What the object sees whose code `caller` is in. It stays loaded, as it is running. The functions
// of libdl by name: a static program that is linked with dlopen is warned of it.
static MALLOW_COLD void *new_look(const char *name, const void *caller) {
    int (*address)(const void *, Dl_info *) = NULL;
    void *(*open)(const char *, int) = NULL;
    int (*close)(void *) = NULL;
    Dl_info object;
    if (dlsym == NULL) {
        return NULL;
    }
    *(void **)&address = dlsym(RTLD_DEFAULT, "dladdr");
    *(void **)&open = dlsym(RTLD_DEFAULT, "dlopen");
    *(void **)&close = dlsym(RTLD_DEFAULT, "dlclose");
    if (address == NULL || open == NULL || close == NULL || address(caller, &object) == 0) {
        return NULL;
    }
    void *const handle = open(object.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == NULL) {
        return NULL;
    }
    void *const found = dlsym(handle, name);
    (void)close(handle);
    return found;
}

MALLOW_INTERNAL struct process_operators *api_operators(void) {
    return &process_ready()->operators;
}

static api_new_handler new_handler(const void *caller) {
    api_new_handler (*get)(void) = api_get_new_handler;
    if (get == NULL) {
        *(void **)&get = new_look("_ZSt15get_new_handlerv", caller);
    }
    return get != NULL ? get() : NULL;
}

static void *new_try(size_t size, size_t alignment) {
    return alignment <= MALLOW_GRANULE_BYTES ? api_malloc(size)
                                             : api_malloc_aligned(size, alignment);
}

// Calls new_handlers until memory is found or there is none to call.
static void *new_with_handlers(size_t size, size_t alignment, const void *caller) {
    for (;;) {
        void *const block = new_try(size, alignment);
        if (block != NULL) {
            return block;
        }
        const api_new_handler handler = new_handler(caller);
        if (handler == NULL) {
            return NULL;
        }
        handler();
    }
}

static MALLOW_COLD void *new_exhausted(size_t size, size_t alignment, const void *caller) {
    // No handler makes room for an alignment that cannot be.
    void *const block =
        bits_is_power_of_two(alignment) ? new_with_handlers(size, alignment, caller) : NULL;
    if (block == NULL) {
        void (*throw_bad_alloc)(void) = api_throw_bad_alloc;
        if (throw_bad_alloc == NULL) {
            *(void **)&throw_bad_alloc = new_look("_ZSt17__throw_bad_allocv", caller);
        }
        if (throw_bad_alloc != NULL) {
            throw_bad_alloc();
        }
        fatal_misuse("out of memory in operator new, size", size,
                     "there is no C++ run-time library to throw std::bad_alloc");
    }
    return block;
}

// The nothrow forms must also return NULL when a handler throws, and catching is not C's to do. The
// C++ run-time's own nothrow forms do it: they call operator new, which is ours, and catch.
static MALLOW_COLD void *new_nothrow_exhausted(size_t size, size_t alignment,
                                               const void *caller) {
    static const char tag = 0; // std::nothrow_t is empty, and passed by reference
    void *(*plain)(size_t, const void *) = NULL;
    void *(*aligned)(size_t, size_t, const void *) = NULL;
    if (new_handler(caller) == NULL) {
        return NULL;
    }
    const bool is_plain = alignment <= MALLOW_GRANULE_BYTES;
    const char *const name =
        is_plain ? "_ZnwmRKSt9nothrow_t" : "_ZnwmSt11align_val_tRKSt9nothrow_t";
    void *next = NULL;
    if (dlsym != NULL && api_get_new_handler != NULL) {
        next = dlsym(RTLD_NEXT, name);
    } else {
        next = new_look(name, caller);
    }
    *(void **)&plain = next;
    *(void **)&aligned = next;
    if (next == NULL) {
        return NULL;
    }
    return is_plain ? plain(size, &tag) : aligned(size, alignment, &tag);
}

MALLOW_INTERNAL MALLOW_NOINLINE void *api_new_slow(size_t size, struct heap *heap) {
    void *const block = api_malloc_slow(size, heap);
    return likely(block != NULL) ? block
                                 : new_exhausted(size, 1, __builtin_return_address(0));
}

MALLOW_INTERNAL MALLOW_NOINLINE void *api_new_nothrow_slow(size_t size, struct heap *heap) {
    void *const block = api_malloc_slow(size, heap);
    return likely(block != NULL) ? block
                                 : new_nothrow_exhausted(size, 1, __builtin_return_address(0));
}

void *mw_new(size_t size) {
    return api_new(size);
}

void *mw_new_aligned(size_t size, size_t alignment) {
    void *const block =
        bits_is_power_of_two(alignment) ? api_malloc_aligned(size, alignment) : NULL;
    return likely(block != NULL)
               ? block
               : new_exhausted(size, alignment, __builtin_return_address(0));
}

void *mw_new_nothrow(size_t size) {
    return api_new_nothrow(size);
}

void *mw_new_aligned_nothrow(size_t size, size_t alignment) {
    if (!bits_is_power_of_two(alignment)) {
        return api_fail(EINVAL);
    }
    void *const block = api_malloc_aligned(size, alignment);
    return likely(block != NULL)
               ? block
               : new_nothrow_exhausted(size, alignment, __builtin_return_address(0));
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
        const api_new_handler handler = new_handler(__builtin_return_address(0));
        if (handler == NULL) {
            return new_exhausted(SIZE_MAX, 1, __builtin_return_address(0));
        }
        handler();
    }
}

void *mw_new_reallocn(void *block, size_t count, size_t size) {
    size_t total;
    return mw_new_realloc(block, bits_multiply(count, size, &total) ? total : SIZE_MAX);
}
