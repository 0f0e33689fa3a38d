// SPDX-License-Identifier: MIT
// Override: all twenty operators new and delete, by their mangled names (size_t is `m` on 64-bit
// Linux).
//
// Holds    the sizes and alignments that delete is told are not relied on: the header knows better.
#include "api/api.h"

#define OVERRIDE __attribute__((visibility("default")))

#define OVERRIDE_NEW(name)                                                                         \
    OVERRIDE MALLOW_FAST void *name(size_t size);                                                  \
    OVERRIDE void *name(size_t size) {                                                             \
        return api_new(size);                                                                      \
    }

// The same function by another name, and not a jump to it.
#define OVERRIDE_NEW_ARRAY(name, scalar, ...)                                                      \
    OVERRIDE void *name(__VA_ARGS__) __attribute__((alias(scalar)));

#define OVERRIDE_NEW_NOTHROW(name)                                                                 \
    OVERRIDE void *name(size_t size, const void *tag);                                             \
    OVERRIDE void *name(size_t size, const void *tag) {                                            \
        (void)tag;                                                                                 \
        return api_new_nothrow(size);                                                              \
    }

#define OVERRIDE_NEW_ALIGNED(name)                                                                 \
    OVERRIDE void *name(size_t size, size_t alignment);                                            \
    OVERRIDE void *name(size_t size, size_t alignment) {                                           \
        return mw_new_aligned(size, alignment);                                                    \
    }

#define OVERRIDE_NEW_ALIGNED_NOTHROW(name)                                                         \
    OVERRIDE void *name(size_t size, size_t alignment, const void *tag);                           \
    OVERRIDE void *name(size_t size, size_t alignment, const void *tag) {                          \
        (void)tag;                                                                                 \
        return mw_new_aligned_nothrow(size, alignment);                                            \
    }

// One body for all: sizes, alignments and tags are further arguments, which it does not look at.
// Told not to fold it, or the compiler makes it a jump to another function that is the same.
static MALLOW_FAST MALLOW_NO_FOLD void override_delete(void *block) {
    api_free(block);
}

#define OVERRIDE_DELETE(name)                                                                      \
    OVERRIDE void name(void *block) __attribute__((alias("override_delete")));

OVERRIDE_NEW(_Znwm)
OVERRIDE_NEW_ARRAY(_Znam, "_Znwm", size_t size)
OVERRIDE_NEW_NOTHROW(_ZnwmRKSt9nothrow_t)
OVERRIDE_NEW_ARRAY(_ZnamRKSt9nothrow_t, "_ZnwmRKSt9nothrow_t", size_t size, const void *tag)
OVERRIDE_NEW_ALIGNED(_ZnwmSt11align_val_t)
OVERRIDE_NEW_ALIGNED(_ZnamSt11align_val_t)
OVERRIDE_NEW_ALIGNED_NOTHROW(_ZnwmSt11align_val_tRKSt9nothrow_t)
OVERRIDE_NEW_ALIGNED_NOTHROW(_ZnamSt11align_val_tRKSt9nothrow_t)
OVERRIDE_DELETE(_ZdlPv)
OVERRIDE_DELETE(_ZdaPv)
OVERRIDE_DELETE(_ZdlPvm)
OVERRIDE_DELETE(_ZdaPvm)
OVERRIDE_DELETE(_ZdlPvRKSt9nothrow_t)
OVERRIDE_DELETE(_ZdaPvRKSt9nothrow_t)
OVERRIDE_DELETE(_ZdlPvSt11align_val_t)
OVERRIDE_DELETE(_ZdaPvSt11align_val_t)
OVERRIDE_DELETE(_ZdlPvmSt11align_val_t)
OVERRIDE_DELETE(_ZdaPvmSt11align_val_t)
OVERRIDE_DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t)
OVERRIDE_DELETE(_ZdaPvSt11align_val_tRKSt9nothrow_t)
