// SPDX-License-Identifier: MIT
// Override: all twenty operators new and delete, by their mangled names (size_t is `m` on 64-bit
// Linux).
//
// By the standard a program may replace some of them and rely on the others to call those: new[]
// calls new, delete(p, size) calls delete(p), the nothrow forms the throwing ones. Ours come before
// the C++ run-time's, which do that, so they have to. That there is nobody to call is the rule, and
// costs nothing then: those forms use a heap of their own name (heap_operator_current), which stays
// empty, so that they get to their slow paths, until it is known.
//
// Holds    the sizes and alignments that delete is told are not relied on: the header knows better.
//          What has been found out about the program does not change: who comes later, by dlopen,
//          is behind us in the order of look-up.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // RTLD_DEFAULT, RTLD_NEXT
#endif
#include <dlfcn.h>

#include "api/api.h"

#pragma weak dlsym

#define OVERRIDE __attribute__((visibility("default")))

// ---- Those that others call ---------------------------------------------------------------------

OVERRIDE MALLOW_FAST void *_Znwm(size_t size);
OVERRIDE void *_Znwm(size_t size) {
    return api_new(size);
}

OVERRIDE void *_ZnwmSt11align_val_t(size_t size, size_t alignment);
OVERRIDE void *_ZnwmSt11align_val_t(size_t size, size_t alignment) {
    return mw_new_aligned(size, alignment);
}

// Told not to fold it, or the compiler makes it a jump to another function that is the same.
static MALLOW_FAST MALLOW_NO_FOLD void override_delete(void *block) {
    api_free(block);
}

// The same function by another name, and not a jump to it.
OVERRIDE void _ZdlPv(void *block) __attribute__((alias("override_delete")));

OVERRIDE void _ZdlPvSt11align_val_t(void *block, size_t alignment);
OVERRIDE void _ZdlPvSt11align_val_t(void *block, size_t alignment) {
    (void)alignment;
    override_delete(block);
}

// These four both call and are called.
OVERRIDE void *_Znam(size_t size);
OVERRIDE void *_ZnamSt11align_val_t(size_t size, size_t alignment);
OVERRIDE void _ZdaPv(void *block);
OVERRIDE void _ZdaPvSt11align_val_t(void *block, size_t alignment);

OVERRIDE void *_ZnwmRKSt9nothrow_t(size_t size, const void *tag);
OVERRIDE void *_ZnamRKSt9nothrow_t(size_t size, const void *tag);
OVERRIDE void *_ZnwmSt11align_val_tRKSt9nothrow_t(size_t size, size_t alignment, const void *tag);
OVERRIDE void *_ZnamSt11align_val_tRKSt9nothrow_t(size_t size, size_t alignment, const void *tag);

// ---- Whom to call -------------------------------------------------------------------------------

enum { OVERRIDE_SCALAR, OVERRIDE_ARRAY };

// Of the whole program, or else `own`. *replaced: it is not ours.
static void *override_find(const char *name, void *own, bool *replaced) {
    void *const found = dlsym(RTLD_DEFAULT, name);
    *replaced |= found != NULL && found != own;
    return found != NULL ? found : own;
}

#define OVERRIDE_FIND(slot, name)                                                                  \
    do {                                                                                           \
        __typeof__(&(name)) function;                                                              \
        *(void **)&function = override_find(#name, (void *)(uintptr_t)&(name), &replaced);         \
        atomic_store_explicit(&api_operators()->slot, function, memory_order_relaxed);             \
    } while (0)

#define OVERRIDE_FIND_NEXT(slot, name)                                                             \
    do {                                                                                           \
        __typeof__(&(name)) function;                                                              \
        *(void **)&function = dlsym(RTLD_NEXT, #name);                                             \
        atomic_store_explicit(&api_operators()->slot, function, memory_order_relaxed);             \
    } while (0)

// Where our other names are not the program's, our operators are not either: whoever has them got
// them by name, from us.
static MALLOW_COLD uint32_t override_look(void) {
    bool replaced = false;
    if (dlsym != NULL && dlsym(RTLD_DEFAULT, "mw_new") == (void *)(uintptr_t)&mw_new) {
        OVERRIDE_FIND(create[OVERRIDE_SCALAR], _Znwm);
        OVERRIDE_FIND(create[OVERRIDE_ARRAY], _Znam);
        OVERRIDE_FIND(create_aligned[OVERRIDE_SCALAR], _ZnwmSt11align_val_t);
        OVERRIDE_FIND(create_aligned[OVERRIDE_ARRAY], _ZnamSt11align_val_t);
        OVERRIDE_FIND(destroy[OVERRIDE_SCALAR], _ZdlPv);
        OVERRIDE_FIND(destroy[OVERRIDE_ARRAY], _ZdaPv);
        OVERRIDE_FIND(destroy_aligned[OVERRIDE_SCALAR], _ZdlPvSt11align_val_t);
        OVERRIDE_FIND(destroy_aligned[OVERRIDE_ARRAY], _ZdaPvSt11align_val_t);
    }
    if (replaced) {
        OVERRIDE_FIND_NEXT(create_nothrow[OVERRIDE_SCALAR], _ZnwmRKSt9nothrow_t);
        OVERRIDE_FIND_NEXT(create_nothrow[OVERRIDE_ARRAY], _ZnamRKSt9nothrow_t);
        OVERRIDE_FIND_NEXT(create_aligned_nothrow[OVERRIDE_SCALAR],
                           _ZnwmSt11align_val_tRKSt9nothrow_t);
        OVERRIDE_FIND_NEXT(create_aligned_nothrow[OVERRIDE_ARRAY],
                           _ZnamSt11align_val_tRKSt9nothrow_t);
    }
    const uint32_t state = replaced ? PROCESS_OPERATORS_REPLACED : PROCESS_OPERATORS_OURS;
    atomic_store_explicit(&api_operators()->state, state, memory_order_release);
    return state;
}

// As early as a constructor can be: later, a look could wait for a thread that loads a library. A
// program that starts without a C++ run-time has none of its own, and need not touch what looks.
__attribute__((constructor(101))) static void override_begin(void) {
    if (api_has_throw()) {
        (void)override_look();
    } else {
        atomic_store_explicit(&api_operators()->state, PROCESS_OPERATORS_OURS,
                              memory_order_release);
    }
}

// Whether there is nobody to call; then this thread goes the fast way from now on.
static MALLOW_NOINLINE bool override_settle(void) {
    uint32_t state = atomic_load_explicit(&api_operators()->state, memory_order_acquire);
    if (unlikely(state == PROCESS_OPERATORS_UNKNOWN)) {
        state = override_look();
    }
    if (unlikely(state == PROCESS_OPERATORS_REPLACED)) {
        return false;
    }
    heap_settle_operators();
    return true;
}

MALLOW_INLINE bool override_is_ours(void) {
    return likely(heap_operators_settled()) || override_settle();
}

#define OVERRIDE_CALL(slot, ...)                                                                   \
    atomic_load_explicit(&api_operators()->slot, memory_order_relaxed)(__VA_ARGS__)

// ---- Those that call others ---------------------------------------------------------------------

static MALLOW_NOINLINE void *override_new_array_slow(size_t size) {
    if (likely(heap_operators_settled())) {
        return api_new_slow(size, heap_current());
    }
    return override_settle() ? _Znwm(size) : OVERRIDE_CALL(create[OVERRIDE_SCALAR], size);
}

OVERRIDE MALLOW_FAST void *_Znam(size_t size) {
    uintptr_t address;
    if (likely(size <= MALLOW_SMALL_BYTES_MAX &&
               heap_fast_allocate(heap_operator_current(), size, &address))) {
        return (void *)address;
    }
    return override_new_array_slow(size);
}

OVERRIDE void *_ZnamSt11align_val_t(size_t size, size_t alignment) {
    return override_is_ours() ? mw_new_aligned(size, alignment)
                              : OVERRIDE_CALL(create_aligned[OVERRIDE_SCALAR], size, alignment);
}

// The nothrow forms catch what the others throw, and that is not C's to do: the C++ run-time's do.
// Without one, there is nothing to catch.
#define OVERRIDE_NEW_NOTHROW(name, kind)                                                           \
    OVERRIDE void *name(size_t size, const void *tag) {                                            \
        if (override_is_ours()) {                                                                  \
            return api_new_nothrow(size);                                                          \
        }                                                                                          \
        void *(*const next)(size_t, const void *) =                                                \
            atomic_load_explicit(&api_operators()->create_nothrow[kind], memory_order_relaxed);    \
        return next != NULL ? next(size, tag) : OVERRIDE_CALL(create[kind], size);                 \
    }

#define OVERRIDE_NEW_ALIGNED_NOTHROW(name, kind)                                                   \
    OVERRIDE void *name(size_t size, size_t alignment, const void *tag) {                          \
        if (override_is_ours()) {                                                                  \
            return mw_new_aligned_nothrow(size, alignment);                                        \
        }                                                                                          \
        void *(*const next)(size_t, size_t, const void *) = atomic_load_explicit(                  \
            &api_operators()->create_aligned_nothrow[kind], memory_order_relaxed);                 \
        return next != NULL ? next(size, alignment, tag)                                           \
                            : OVERRIDE_CALL(create_aligned[kind], size, alignment);                \
    }

OVERRIDE_NEW_NOTHROW(_ZnwmRKSt9nothrow_t, OVERRIDE_SCALAR)
OVERRIDE_NEW_NOTHROW(_ZnamRKSt9nothrow_t, OVERRIDE_ARRAY)
OVERRIDE_NEW_ALIGNED_NOTHROW(_ZnwmSt11align_val_tRKSt9nothrow_t, OVERRIDE_SCALAR)
OVERRIDE_NEW_ALIGNED_NOTHROW(_ZnamSt11align_val_tRKSt9nothrow_t, OVERRIDE_ARRAY)

// A body that calls `kind`'s operator delete. Sizes and tags are further arguments, which it does
// not look at.
#define OVERRIDE_DELETE_BODY(name, kind)                                                           \
    static MALLOW_NOINLINE void name##_slow(void *block) {                                         \
        if (likely(heap_operators_settled())) {                                                    \
            struct heap *const heap = heap_current();                                              \
            api_free_slow(block, heap, heap_fast_slab(heap, (uintptr_t)block));                    \
        } else if (override_settle()) {                                                            \
            override_delete(block);                                                                \
        } else {                                                                                   \
            OVERRIDE_CALL(destroy[kind], block);                                                   \
        }                                                                                          \
    }                                                                                              \
    static MALLOW_FAST MALLOW_NO_FOLD void name(void *block) {                                     \
        struct slab *slab;                                                                         \
        const enum heap_fast_result result =                                                       \
            heap_fast_free(heap_operator_current(), (uintptr_t)block, &slab);                      \
        if (unlikely(result == HEAP_FAST_SLOW)) {                                                  \
            name##_slow(block);                                                                    \
        } else if (unlikely(result == HEAP_FAST_EMPTIED)) {                                        \
            api_free_emptied(slab);                                                                \
        }                                                                                          \
    }

OVERRIDE_DELETE_BODY(override_delete_by_scalar, OVERRIDE_SCALAR)
OVERRIDE_DELETE_BODY(override_delete_by_array, OVERRIDE_ARRAY)

#define OVERRIDE_DELETE(name, body) OVERRIDE void name(void *block) __attribute__((alias(#body)));

OVERRIDE_DELETE(_ZdlPvm, override_delete_by_scalar)
OVERRIDE_DELETE(_ZdlPvRKSt9nothrow_t, override_delete_by_scalar)
OVERRIDE_DELETE(_ZdaPv, override_delete_by_scalar)
OVERRIDE_DELETE(_ZdaPvm, override_delete_by_array)
OVERRIDE_DELETE(_ZdaPvRKSt9nothrow_t, override_delete_by_array)

static void override_delete_aligned(void *block, size_t alignment, unsigned kind) {
    if (override_is_ours()) {
        override_delete(block);
    } else {
        OVERRIDE_CALL(destroy_aligned[kind], block, alignment);
    }
}

#define OVERRIDE_DELETE_ALIGNED(name, kind)                                                        \
    OVERRIDE void name(void *block, size_t alignment);                                             \
    OVERRIDE void name(void *block, size_t alignment) {                                            \
        override_delete_aligned(block, alignment, kind);                                           \
    }

#define OVERRIDE_DELETE_SIZED_ALIGNED(name, kind)                                                  \
    OVERRIDE void name(void *block, size_t size, size_t alignment);                                \
    OVERRIDE void name(void *block, size_t size, size_t alignment) {                               \
        (void)size;                                                                                \
        override_delete_aligned(block, alignment, kind);                                           \
    }

OVERRIDE_DELETE_ALIGNED(_ZdlPvSt11align_val_tRKSt9nothrow_t, OVERRIDE_SCALAR)
OVERRIDE_DELETE_ALIGNED(_ZdaPvSt11align_val_t, OVERRIDE_SCALAR)
OVERRIDE_DELETE_ALIGNED(_ZdaPvSt11align_val_tRKSt9nothrow_t, OVERRIDE_ARRAY)
OVERRIDE_DELETE_SIZED_ALIGNED(_ZdlPvmSt11align_val_t, OVERRIDE_SCALAR)
OVERRIDE_DELETE_SIZED_ALIGNED(_ZdaPvmSt11align_val_t, OVERRIDE_ARRAY)
