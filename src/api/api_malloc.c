// SPDX-License-Identifier: MIT
// API: the basic, zeroing, counted, small and string calls of mallow/mallow.h.
#include "api/api.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

void *mw_malloc(size_t size) {
    return api_malloc(size);
}

void *mw_calloc(size_t count, size_t size) {
    return api_calloc(count, size);
}

void *mw_zalloc(size_t size) {
    return api_zalloc(size);
}

void mw_free(void *block) {
    api_free(block);
}

void mw_free_sized(void *block, size_t size) {
    if (block != NULL) {
        api_check_size(block, size, 1);
        api_free(block);
    }
}

void mw_free_aligned_sized(void *block, size_t alignment, size_t size) {
    if (block != NULL) {
        api_check_size(block, size, alignment);
        api_free(block);
    }
}

void mw_cfree(void *block) {
    if (mw_is_owned(block)) {
        api_free(block);
    }
}

// Small: what the precondition saves is the comparison with the table's end.
void *mw_malloc_small(size_t size) {
    struct heap *const heap = heap_current();
    uintptr_t address;
    return likely(heap_fast_allocate(heap, size, &address)) ? (void *)address
                                                            : api_malloc_slow(size, heap);
}

void *mw_zalloc_small(size_t size) {
    return api_zalloc(size);
}

void mw_free_small(void *block) {
    api_free(block);
}

void *mw_mallocn(size_t count, size_t size) {
    size_t total;
    return bits_multiply(count, size, &total) ? api_malloc(total) : api_fail(ENOMEM);
}

char *mw_strndup(const char *text, size_t limit) {
    if (text == NULL) {
        return NULL;
    }
    const size_t length = strnlen(text, limit);
    char *const copy = api_malloc(length + 1);
    if (copy != NULL) {
        memcpy(copy, text, length);
        copy[length] = '\0';
    }
    return copy;
}

char *mw_strdup(const char *text) {
    if (text == NULL) {
        return NULL;
    }
    const size_t bytes = strlen(text) + 1;
    char *const copy = api_malloc(bytes);
    return copy != NULL ? memcpy(copy, text, bytes) : NULL;
}

char *mw_realpath(const char *path, char *resolved) {
    char buffer[PATH_MAX];
    const int before = errno; // libc's leaves what its steps have set
    char *const found = realpath(path, resolved != NULL ? resolved : buffer);
    if (found == NULL) {
        return NULL;
    }
    errno = before;
    return resolved != NULL ? found : mw_strdup(found);
}
