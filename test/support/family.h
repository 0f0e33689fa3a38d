// SPDX-License-Identifier: MIT
// Test support: one test source, two families of names.
//
// With TEST_FAMILY_MW the fam_ names are the mw_ functions and the program is linked with libmallow;
// without it they are the C library's names and the program is linked with nothing: ctest preloads
// libmallow.so, and run by hand without preloading the same test judges glibc (that is how the tests
// themselves are checked). Names that glibc lacks are weak: NULL where nobody defines them.
#ifndef TEST_SUPPORT_FAMILY_H
#define TEST_SUPPORT_FAMILY_H

#include "check.h"

#ifdef TEST_FAMILY_MW

#include <mallow/mallow.h>

#define FAMILY_HAS(name) true
#define fam_malloc mw_malloc
#define fam_calloc mw_calloc
#define fam_realloc mw_realloc
#define fam_free mw_free
#define fam_free_sized mw_free_sized
#define fam_free_aligned_sized mw_free_aligned_sized
#define fam_cfree mw_cfree
#define fam_reallocarray mw_reallocarray
#define fam_reallocarr mw_reallocarr
#define fam_reallocf mw_reallocf
#define fam_posix_memalign mw_posix_memalign
#define fam_aligned_alloc mw_aligned_alloc
#define fam_memalign mw_memalign
#define fam_valloc mw_valloc
#define fam_pvalloc mw_pvalloc
#define fam_usable_size(block) mw_usable_size(block)
#define fam_malloc_size mw_malloc_size
#define fam_good_size mw_malloc_good_size
#define fam_strdup mw_strdup
#define fam_strndup mw_strndup
#define fam_realpath mw_realpath
#define fam_trim() ((void)mw_collect(true))

#else

#include <malloc.h>

extern void free_sized(void *block, size_t size) __attribute__((weak));
extern void free_aligned_sized(void *block, size_t alignment, size_t size) __attribute__((weak));
extern void cfree(void *block) __attribute__((weak));
extern int reallocarr(void *block_address, size_t count, size_t size) __attribute__((weak));
extern void *reallocf(void *block, size_t size) __attribute__((weak));
extern size_t malloc_size(const void *block) __attribute__((weak));
extern size_t malloc_good_size(size_t size) __attribute__((weak));

#define FAMILY_HAS(name) ((name) != NULL)
#define fam_malloc malloc
#define fam_calloc calloc
#define fam_realloc realloc
#define fam_free free
#define fam_free_sized free_sized
#define fam_free_aligned_sized free_aligned_sized
#define fam_cfree cfree
#define fam_reallocarray reallocarray
#define fam_reallocarr reallocarr
#define fam_reallocf reallocf
#define fam_posix_memalign posix_memalign
#define fam_aligned_alloc aligned_alloc
#define fam_memalign memalign
#define fam_valloc valloc
#define fam_pvalloc pvalloc
#define fam_usable_size(block) malloc_usable_size((void *)(block))
#define fam_malloc_size malloc_size
#define fam_good_size malloc_good_size
#define fam_strdup strdup
#define fam_strndup strndup
#define fam_realpath realpath
#define fam_trim() ((void)malloc_trim(0))

#endif

// Hides a value from the optimiser, so that impossible sizes reach the allocator without a warning.
static inline size_t opaque(size_t value)
{
    __asm__ volatile("" : "+r"(value));
    return value;
}

static inline void *opaque_pointer(void *pointer)
{
    __asm__ volatile("" : "+r"(pointer));
    return pointer;
}

#endif
