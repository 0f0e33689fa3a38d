// SPDX-License-Identifier: MIT
// Override: all twenty operators new and delete, by their mangled names (size_t is `m` on 64-bit
// Linux).
//
// Holds    the sizes and alignments that delete is told are not relied on: the header knows better.
#include "api/api.h"

#define OVERRIDE __attribute__((visibility("default")))

#define OVERRIDE_NEW(name)                                                                         \
    OVERRIDE void *name(size_t size);                                                              \
    OVERRIDE void *name(size_t size) {                                                             \
        void *const block = api_malloc(size);                                                      \
        return likely(block != NULL) ? block : api_new_slow(size, 1);                              \
    }

#define OVERRIDE_NEW_NOTHROW(name)                                                                 \
    OVERRIDE void *name(size_t size, const void *tag);                                             \
    OVERRIDE void *name(size_t size, const void *tag) {                                            \
        (void)tag;                                                                                 \
        void *const block = api_malloc(size);                                                      \
        return likely(block != NULL) ? block : api_new_nothrow_slow(size, 1);                      \
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

#define OVERRIDE_DELETE(name)                                                                      \
    OVERRIDE void name(void *block);                                                               \
    OVERRIDE void name(void *block) {                                                              \
        api_free(block);                                                                           \
    }

#define OVERRIDE_DELETE_WITH(name, ...)                                                            \
    OVERRIDE void name(void *block, __VA_ARGS__);                                                  \
    OVERRIDE void name(void *block, __VA_ARGS__) {                                                 \
        (void)unused;                                                                              \
        api_free(block);                                                                           \
    }

OVERRIDE_NEW(_Znwm)
OVERRIDE_NEW(_Znam)
OVERRIDE_NEW_NOTHROW(_ZnwmRKSt9nothrow_t)
OVERRIDE_NEW_NOTHROW(_ZnamRKSt9nothrow_t)
OVERRIDE_NEW_ALIGNED(_ZnwmSt11align_val_t)
OVERRIDE_NEW_ALIGNED(_ZnamSt11align_val_t)
OVERRIDE_NEW_ALIGNED_NOTHROW(_ZnwmSt11align_val_tRKSt9nothrow_t)
OVERRIDE_NEW_ALIGNED_NOTHROW(_ZnamSt11align_val_tRKSt9nothrow_t)
OVERRIDE_DELETE(_ZdlPv)
OVERRIDE_DELETE(_ZdaPv)
OVERRIDE_DELETE_WITH(_ZdlPvm, size_t unused)
OVERRIDE_DELETE_WITH(_ZdaPvm, size_t unused)
OVERRIDE_DELETE_WITH(_ZdlPvRKSt9nothrow_t, const void *unused)
OVERRIDE_DELETE_WITH(_ZdaPvRKSt9nothrow_t, const void *unused)
OVERRIDE_DELETE_WITH(_ZdlPvSt11align_val_t, size_t unused)
OVERRIDE_DELETE_WITH(_ZdaPvSt11align_val_t, size_t unused)
OVERRIDE_DELETE_WITH(_ZdlPvmSt11align_val_t, size_t unused,
                     size_t alignment __attribute__((unused)))
OVERRIDE_DELETE_WITH(_ZdaPvmSt11align_val_t, size_t unused,
                     size_t alignment __attribute__((unused)))
OVERRIDE_DELETE_WITH(_ZdlPvSt11align_val_tRKSt9nothrow_t, size_t unused,
                     const void *tag __attribute__((unused)))
OVERRIDE_DELETE_WITH(_ZdaPvSt11align_val_tRKSt9nothrow_t, size_t unused,
                     const void *tag __attribute__((unused)))
