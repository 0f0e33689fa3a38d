// SPDX-License-Identifier: MIT
// API: what operator new does when memory runs out.
//
// Holds    no C++ run-time library is linked. The functions of it that are needed are weak, so
//          they are there when the program starts with one; one that comes with a library that is
//          loaded later is looked for where that library looks. The exception passes through this C
//          code, which keeps no state that would need cleaning up; the nothrow forms catch it.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // RTLD_NEXT
#endif
#include <dlfcn.h>
#include <unwind.h>

#include "api/api.h"
#include "os/fatal.h"
#include "process/process.h"

#pragma weak dlsym

typedef void (*api_new_handler)(void);

extern api_new_handler api_get_new_handler(void) __asm__("_ZSt15get_new_handlerv")
    __attribute__((weak));
extern void api_throw_bad_alloc(void) __asm__("_ZSt17__throw_bad_allocv") __attribute__((weak));
extern const void *api_exception_type(void) __asm__("__cxa_current_exception_type")
    __attribute__((weak));
extern void *api_begin_catch(void *exception) __asm__("__cxa_begin_catch") __attribute__((weak));
extern void api_end_catch(void) __asm__("__cxa_end_catch") __attribute__((weak));
#pragma weak _Unwind_SetGR

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

MALLOW_INTERNAL struct process_libc *api_libc(void) {
    return &process_ready()->libc;
}

MALLOW_INTERNAL void api_foreign_look(void) {
    process_foreign_look(process_ready());
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

// Another try, which may use the reserve of a limit, as it is the thread's second: for who handles
// an exception, not for who would meet its first only when the reserve is used up.
static void *new_try_handling(size_t size, size_t alignment) {
    return api_exception_type != NULL && api_exception_type() != NULL ? new_try(size, alignment)
                                                                      : NULL;
}

// Calls new_handlers until memory is found or there is none to call.
static void *new_with_handlers(size_t size, size_t alignment, const void *caller) {
    void *block = new_try_handling(size, alignment);
    for (api_new_handler handler; block == NULL && (handler = new_handler(caller)) != NULL;) {
        handler();
        block = new_try(size, alignment);
    }
    return block;
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

// ---- The nothrow forms: they return NULL as well when a handler throws --------------------------

// Tells the unwinder what to ask about a function that has no language's tables. Where the compiler
// writes no such directives, nothing is caught and so no handler called.
#if defined(__GCC_HAVE_DWARF2_CFI_ASM) && defined(__x86_64__)
enum { NEW_CATCHES = 1 };
#define NEW_PERSONALITY(function) __asm__ volatile(".cfi_personality 0x1b, %c0" : : "i"(function))
#elif defined(__GCC_HAVE_DWARF2_CFI_ASM) && defined(__aarch64__)
enum { NEW_CATCHES = 1 };
#define NEW_PERSONALITY(function) __asm__ volatile(".cfi_personality 0x1b, %0" : : "S"(function))
#else
enum { NEW_CATCHES = 0 };
#define NEW_PERSONALITY(function) ((void)(function))
#endif

// An exception that comes to new_run_caught has come through its call of new_run: that is made to
// return it. A thread that is cancelled or ends goes on.
static _Unwind_Reason_Code new_personality(int version, _Unwind_Action actions,
                                           _Unwind_Exception_Class class,
                                           struct _Unwind_Exception *exception,
                                           struct _Unwind_Context *context) {
    (void)version;
    (void)class;
    if ((actions & _UA_SEARCH_PHASE) != 0) {
        return _URC_HANDLER_FOUND;
    }
    if ((actions & _UA_HANDLER_FRAME) == 0) {
        return _URC_CONTINUE_UNWIND;
    }
    _Unwind_SetGR(context, __builtin_eh_return_data_regno(0), (uintptr_t)exception);
    return _URC_INSTALL_CONTEXT;
}

static MALLOW_NOINLINE void *new_run(api_new_handler handler) {
    void *exception = NULL;
    handler();
    compiler_forget(exception);
    return exception;
}

// Runs a handler; what it throws, or NULL.
static MALLOW_NOINLINE void *new_run_caught(api_new_handler handler) {
    NEW_PERSONALITY(new_personality);
    void *exception = new_run(handler);
    compiler_forget(exception); // no jump: this function's frame is looked for
    return exception;
}

static void *new_with_caught_handlers(size_t size, size_t alignment) {
    void *block = NULL;
    for (api_new_handler handler; block == NULL && (handler = api_get_new_handler()) != NULL;) {
        void *const exception = new_run_caught(handler);
        if (exception != NULL) {
            (void)api_begin_catch(exception);
            api_end_catch();
            return NULL;
        }
        block = new_try(size, alignment);
    }
    return block;
}

// A run-time that came later: its own nothrow forms call operator new, which is ours, and catch.
static void *new_nothrow_of_late(size_t size, size_t alignment, const void *caller) {
    static const char tag = 0; // std::nothrow_t is empty, and passed by reference
    void *(*plain)(size_t, const void *) = NULL;
    void *(*aligned)(size_t, size_t, const void *) = NULL;
    if (new_handler(caller) == NULL) {
        return NULL;
    }
    if (alignment <= MALLOW_GRANULE_BYTES) {
        *(void **)&plain = new_look("_ZnwmRKSt9nothrow_t", caller);
        return plain != NULL ? plain(size, &tag) : NULL;
    }
    *(void **)&aligned = new_look("_ZnwmSt11align_val_tRKSt9nothrow_t", caller);
    return aligned != NULL ? aligned(size, alignment, &tag) : NULL;
}

static MALLOW_COLD void *new_nothrow_exhausted(size_t size, size_t alignment,
                                               const void *caller) {
    if (api_get_new_handler == NULL) {
        return new_nothrow_of_late(size, alignment, caller);
    }
    const bool catches = NEW_CATCHES != 0 && _Unwind_SetGR != NULL && api_begin_catch != NULL &&
                         api_end_catch != NULL;
    return catches ? new_with_caught_handlers(size, alignment) : NULL;
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
