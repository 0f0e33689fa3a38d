// SPDX-License-Identifier: MIT
// Pool watch: what tools that watch a program's memory are told of a pool in debugging.
//
//   AddressSanitizer   where the program has its run-time: free blocks are poisoned
//   memcheck           in a build with MALLOW_VALGRIND: the pool is a mempool, its blocks what was
//                      allocated from that, each with the stack that it came and went by
//
// Owns     nothing; both keep what they are told.
// Threads  any, for blocks of the caller's.
// Holds    a block that is hidden is touched by nobody, the pool itself included, until it is shown
//          for a look, or given out.
#ifndef MALLOW_POOL_POOL_WATCH_H
#define MALLOW_POOL_POOL_WATCH_H

#include <stddef.h>

#include "base/compiler.h"

#ifndef MALLOW_VALGRIND
#define MALLOW_VALGRIND 0
#endif

// The sanitizer's interface, as its documentation has it.
extern void __asan_poison_memory_region(const volatile void *start, size_t bytes)
    __attribute__((weak));
extern void __asan_unpoison_memory_region(const volatile void *start, size_t bytes)
    __attribute__((weak));

#if MALLOW_VALGRIND

#include <valgrind/memcheck.h>

MALLOW_INLINE void pool_watch_mempool(const void *pool) {
    if (VALGRIND_MEMPOOL_EXISTS(pool)) {
        VALGRIND_DESTROY_MEMPOOL(pool);
    }
    VALGRIND_CREATE_MEMPOOL(pool, 0, 0);
}

MALLOW_INLINE void pool_watch_mempool_end(const void *pool) {
    VALGRIND_DESTROY_MEMPOOL(pool);
}

MALLOW_INLINE void pool_watch_mempool_alloc(const void *pool, const void *block, size_t bytes) {
    VALGRIND_MEMPOOL_ALLOC(pool, block, bytes);
}

MALLOW_INLINE void pool_watch_mempool_free(const void *pool, const void *block) {
    VALGRIND_MEMPOOL_FREE(pool, block);
}

MALLOW_INLINE void pool_watch_defined(const void *block, size_t bytes) {
    (void)VALGRIND_MAKE_MEM_DEFINED(block, bytes);
}

MALLOW_INLINE void pool_watch_no_access(const void *block, size_t bytes) {
    (void)VALGRIND_MAKE_MEM_NOACCESS(block, bytes);
}

#else

MALLOW_INLINE void pool_watch_mempool(const void *pool) {
    (void)pool;
}

MALLOW_INLINE void pool_watch_mempool_end(const void *pool) {
    (void)pool;
}

MALLOW_INLINE void pool_watch_mempool_alloc(const void *pool, const void *block, size_t bytes) {
    (void)pool;
    (void)block;
    (void)bytes;
}

MALLOW_INLINE void pool_watch_mempool_free(const void *pool, const void *block) {
    (void)pool;
    (void)block;
}

MALLOW_INLINE void pool_watch_defined(const void *block, size_t bytes) {
    (void)block;
    (void)bytes;
}

MALLOW_INLINE void pool_watch_no_access(const void *block, size_t bytes) {
    (void)block;
    (void)bytes;
}

#endif

// For a look at a free block, or at the end of the watch.
MALLOW_INLINE void pool_watch_show(const void *block, size_t bytes) {
    if (__asan_unpoison_memory_region != NULL) {
        __asan_unpoison_memory_region(block, bytes);
    }
    pool_watch_defined(block, bytes);
}

MALLOW_INLINE void pool_watch_hide(const void *block, size_t bytes) {
    if (__asan_poison_memory_region != NULL) {
        __asan_poison_memory_region(block, bytes);
    }
    pool_watch_no_access(block, bytes);
}

#endif
