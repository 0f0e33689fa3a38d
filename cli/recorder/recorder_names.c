// SPDX-License-Identifier: MIT
// Names: malloc, free and their kin for the recorded program. glibc's allocator does the work, by its
// __libc_ names, so nothing has to be looked up, and nothing is called before it is ready.
//
// Threads  any.
// Holds    malloc_usable_size is exactly what was asked for, so that a recorded program uses, and the
//          trace states, no byte more. errno is the allocator's.

#include "recorder.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *block);

PUBLIC void *malloc(size_t size) {
    void *const block = __libc_malloc(size);
    recorder_allocated((uintptr_t)block, size, 0, false);
    return block;
}

PUBLIC void free(void *block) {
    if (block != NULL) {
        recorder_freed((uintptr_t)block);
        __libc_free(block);
    }
}

PUBLIC void *calloc(size_t count, size_t size) {
    void *const block = __libc_calloc(count, size);
    size_t bytes = 0;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        bytes = SIZE_MAX;
    }
    recorder_allocated((uintptr_t)block, bytes, 0, true);
    return block;
}

PUBLIC void *realloc(void *old, size_t size) {
    if (old == NULL) {
        return malloc(size);
    }
    if (size == 0) { // as glibc has it
        free(old);
        return NULL;
    }
    struct recorder_block block;
    const bool known = recorder_resize_begin((uintptr_t)old, &block);
    void *const moved = __libc_realloc(old, size);
    if (known) {
        recorder_resize_end(&block, (uintptr_t)moved, size);
    } else if (moved != NULL) {
        recorder_allocated((uintptr_t)moved, size, 0, false);
    }
    return moved;
}

PUBLIC void *reallocarray(void *old, size_t count, size_t size) {
    size_t bytes = 0;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        bytes = SIZE_MAX; // refused
    }
    return realloc(old, bytes);
}

// As glibc, an alignment that is no power of two is raised to the next.
PUBLIC void *memalign(size_t alignment, size_t size) {
    enum { SHIFT_MAX = 62, LEAST = 4 };
    unsigned shift = LEAST;
    while (shift < SHIFT_MAX && ((size_t)1 << shift) < alignment) {
        shift++;
    }
    void *const block = __libc_memalign(alignment, size);
    recorder_allocated((uintptr_t)block, size, shift == LEAST ? 0 : shift, false);
    return block;
}

PUBLIC void *aligned_alloc(size_t alignment, size_t size) {
    if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
        errno = EINVAL;
        return NULL;
    }
    return memalign(alignment, size);
}

PUBLIC int posix_memalign(void **result, size_t alignment, size_t size) {
    if (alignment % sizeof(void *) != 0 || alignment == 0 || (alignment & (alignment - 1)) != 0) {
        return EINVAL;
    }
    const int error = errno;
    void *const block = memalign(alignment, size);
    errno = error;
    if (block == NULL) {
        return ENOMEM;
    }
    *result = block;
    return 0;
}

PUBLIC void *valloc(size_t size) {
    return memalign((size_t)sysconf(_SC_PAGESIZE), size);
}

PUBLIC void *pvalloc(size_t size) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes = 0;
    if (__builtin_add_overflow(size, page - 1, &bytes)) {
        bytes = SIZE_MAX; // refused
    }
    return memalign(page, bytes & ~(page - 1));
}

PUBLIC size_t malloc_usable_size(void *block) {
    size_t size = 0;
    if (block != NULL && !recorder_known_size((uintptr_t)block, &size)) {
        // Not recorded: glibc keeps a chunk's size, with three flags, in the word before the block.
        enum { FLAGS = 7, OWN = 16 };
        const size_t chunk = ((const size_t *)block)[-1];
        return (chunk & ~(size_t)FLAGS) - ((chunk & 2) != 0 ? OWN : sizeof(size_t));
    }
    return size;
}

PUBLIC void cfree(void *block) {
    free(block);
}

PUBLIC void free_sized(void *block, size_t size) {
    (void)size;
    free(block);
}

PUBLIC void free_aligned_sized(void *block, size_t alignment, size_t size) {
    (void)alignment;
    (void)size;
    free(block);
}
