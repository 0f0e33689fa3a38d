// SPDX-License-Identifier: MIT
// Override: the names of the C library, POSIX, BSD and GNU, and glibc's internal aliases.
//
// Holds    every name here does what the call of ours with the same name does; the frequent ones
//          are the fast path itself, not a call to it. What libc makes of a malloc and a realloc
//          (strdup, strndup, reallocarray) is made of the process's: where a program has its own,
//          as browsers have, those come before a preloaded library's, and get the blocks back.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // RTLD_DEFAULT
#endif
#include <dlfcn.h>

#include "api/api.h"
#include "override/override.h"

#pragma weak dlsym

// Of glibc; strdup and strndup are other names of these.
__attribute__((weak)) char *__strdup(const char *text);
__attribute__((weak)) char *__strndup(const char *text, size_t limit);

#define OVERRIDE __attribute__((visibility("default")))

// Declared here and not by libc's headers: some are there under conditions, some not at all.
OVERRIDE MALLOW_FAST void *malloc(size_t size);
OVERRIDE MALLOW_FAST void *calloc(size_t count, size_t size);
OVERRIDE void *realloc(void *block, size_t size);
OVERRIDE MALLOW_FAST void free(void *block);
OVERRIDE void cfree(void *block);
OVERRIDE void free_sized(void *block, size_t size);
OVERRIDE void free_aligned_sized(void *block, size_t alignment, size_t size);
OVERRIDE MALLOW_FAST void *aligned_alloc(size_t alignment, size_t size);
OVERRIDE void *memalign(size_t alignment, size_t size);
OVERRIDE int posix_memalign(void **block_address, size_t alignment, size_t size);
OVERRIDE void *valloc(size_t size);
OVERRIDE void *pvalloc(size_t size);
OVERRIDE void *reallocarray(void *block, size_t count, size_t size);
OVERRIDE int reallocarr(void *block_address, size_t count, size_t size);
OVERRIDE void *reallocf(void *block, size_t size);
OVERRIDE void vfree(void *block);
OVERRIDE size_t malloc_usable_size(void *block);
OVERRIDE size_t malloc_size(const void *block);
OVERRIDE size_t malloc_good_size(size_t size);
OVERRIDE char *strdup(const char *text);
OVERRIDE char *strndup(const char *text, size_t limit);
OVERRIDE void *__libc_malloc(size_t size);
OVERRIDE void *__libc_calloc(size_t count, size_t size);
OVERRIDE void *__libc_realloc(void *block, size_t size);
OVERRIDE void __libc_free(void *block);
OVERRIDE void __libc_cfree(void *block);
OVERRIDE void *__libc_memalign(size_t alignment, size_t size);
OVERRIDE void *__libc_valloc(size_t size);
OVERRIDE void *__libc_pvalloc(size_t size);
OVERRIDE void *__libc_reallocarray(void *block, size_t count, size_t size);
OVERRIDE int __posix_memalign(void **block_address, size_t alignment, size_t size);

void *malloc(size_t size) {
    return api_malloc(size);
}

void free(void *block) {
    api_free(block);
}

void *calloc(size_t count, size_t size) {
    return api_calloc(count, size);
}

// As glibc: realloc(p, 0) frees p and returns NULL; programs depend on it.
void *realloc(void *block, size_t size) {
    if (unlikely(size == 0) && block != NULL) {
        api_reallocate_to_none(block);
        return NULL;
    }
    return mw_realloc(block, size);
}

void cfree(void *block) {
    api_free(block);
}

void vfree(void *block) {
    api_free(block);
}

void free_sized(void *block, size_t size) {
    mw_free_sized(block, size);
}

void free_aligned_sized(void *block, size_t alignment, size_t size) {
    mw_free_aligned_sized(block, alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
    return likely((alignment & (alignment - 1)) == 0) ? api_malloc_aligned(size, alignment)
                                                      : api_fail(EINVAL);
}

// As glibc: an alignment that is no power of two is rounded up to one.
void *memalign(size_t alignment, size_t size) {
    if (unlikely(!bits_is_power_of_two(alignment))) {
        if (alignment > (size_t)PTRDIFF_MAX) {
            return api_fail(EINVAL);
        }
        alignment = alignment == 0 ? 1 : (size_t)1 << bits_log2_ceil(alignment);
    }
    return api_malloc_aligned(size, alignment);
}

int posix_memalign(void **block_address, size_t alignment, size_t size) {
    return mw_posix_memalign(block_address, alignment, size);
}

void *valloc(size_t size) {
    return mw_valloc(size);
}

void *pvalloc(size_t size) {
    return mw_pvalloc(size);
}

typedef void *override_resize(void *block, size_t size);

// The process's realloc, looked up once.
static MALLOW_COLD override_resize *override_realloc(void) {
    override_resize *function =
        atomic_load_explicit(&api_operators()->resize, memory_order_relaxed);
    if (function == NULL) {
        if (dlsym != NULL) {
            *(void **)&function = dlsym(RTLD_DEFAULT, "realloc");
        }
        function = function != NULL ? function : realloc;
        atomic_store_explicit(&api_operators()->resize, function, memory_order_relaxed);
    }
    return function;
}

void *reallocarray(void *block, size_t count, size_t size) {
    size_t total;
    return bits_multiply(count, size, &total) ? override_realloc()(block, total)
                                              : api_fail(ENOMEM);
}

int reallocarr(void *block_address, size_t count, size_t size) {
    return mw_reallocarr(block_address, count, size);
}

void *reallocf(void *block, size_t size) {
    return mw_reallocf(block, size);
}

size_t malloc_usable_size(void *block) {
    return mw_malloc_usable_size(block);
}

size_t malloc_size(const void *block) {
    return mw_malloc_size(block);
}

size_t malloc_good_size(size_t size) {
    return mw_good_size(size);
}

char *strdup(const char *text) {
    return __strdup != NULL ? __strdup(text) : mw_strdup(text);
}

char *strndup(const char *text, size_t limit) {
    return __strndup != NULL ? __strndup(text, limit) : mw_strndup(text, limit);
}

void *__libc_malloc(size_t size) {
    return api_malloc(size);
}

void *__libc_calloc(size_t count, size_t size) {
    return api_calloc(count, size);
}

void *__libc_realloc(void *block, size_t size) {
    return realloc(block, size);
}

void __libc_free(void *block) {
    api_free(block);
}

void __libc_cfree(void *block) {
    api_free(block);
}

void *__libc_memalign(size_t alignment, size_t size) {
    return memalign(alignment, size);
}

void *__libc_valloc(size_t size) {
    return mw_valloc(size);
}

void *__libc_pvalloc(size_t size) {
    return mw_pvalloc(size);
}

void *__libc_reallocarray(void *block, size_t count, size_t size) {
    return reallocarray(block, count, size);
}

int __posix_memalign(void **block_address, size_t alignment, size_t size) {
    return mw_posix_memalign(block_address, alignment, size);
}

void mallow_look_ahead(void) {
    (void)override_realloc();
    api_foreign_look();
}

_Static_assert((int)OVERRIDE_IDENTITY_COUNT == (int)PROCESS_IDENTITY_COUNT, "one each");

_Atomic(void *) *mallow_identity_calls(void) {
    return api_libc()->identity;
}

bool mallow_libc_leads(void) {
    return atomic_load_explicit(&api_operators()->libc_leads, memory_order_acquire);
}

void mallow_note_libc_leads(void) {
    atomic_store_explicit(&api_operators()->libc_leads, true, memory_order_release);
}
