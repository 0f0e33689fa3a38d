// SPDX-License-Identifier: MIT
// A program with a malloc of its own, as browsers have: the dynamic linker takes it before a preloaded one, for
// libc too. What libc makes with malloc and realloc must then be that malloc's, since the program's free and
// realloc get it.
#include "../support/check.h"

static _Alignas(16) char area[4 * MIB];
static size_t used;

static bool is_own(const void *block)
{
    return (uintptr_t)block - (uintptr_t)area < sizeof area;
}

// The size lies before the block.
__attribute__((visibility("default"))) void *malloc(size_t size)
{
    const size_t bytes = (size + 31) / 16 * 16;
    if (bytes < size || bytes > sizeof area - used) {
        errno = ENOMEM;
        return NULL;
    }
    char *const block = area + used + 16;
    memcpy(block - sizeof size, &size, sizeof size);
    used += bytes;
    return block;
}

__attribute__((visibility("default"))) void free(void *block)
{
    CHECK(block == NULL || is_own(block), "free of %p, which is not ours", block);
}

__attribute__((visibility("default"))) void *calloc(size_t count, size_t size)
{
    return count != 0 && size > SIZE_MAX / count ? NULL : malloc(count * size); // never used before: zero
}

__attribute__((visibility("default"))) void *realloc(void *block, size_t size)
{
    void *const moved = malloc(size);
    if (block != NULL && moved != NULL) {
        CHECK(is_own(block), "realloc of %p, which is not ours", block);
        size_t before;
        memcpy(&before, (char *)block - sizeof before, sizeof before);
        memcpy(moved, block, before < size ? before : size);
    }
    return moved;
}

int main(void)
{
    char *const copy = strdup("some text");
    CHECK(is_own(copy) && strcmp(copy, "some text") == 0, "strdup: %p", (void *)copy);
    free(copy);
    char *const part = strndup("some text", 4);
    CHECK(is_own(part) && strcmp(part, "some") == 0, "strndup: %p", (void *)part);
    char *const grown = reallocarray(part, 100, 3);
    CHECK(is_own(grown) && strcmp(grown, "some") == 0, "reallocarray: %p", (void *)grown);
    free(grown);
    char *const path = realpath("/", NULL);
    CHECK(is_own(path), "realpath: %p", (void *)path);
    free(path);
    char *line = NULL;
    size_t length = 0;
    FILE *const file = tmpfile();
    if (file != NULL) {
        (void)fputs("a line\n", file);
        rewind(file);
        CHECK(getline(&line, &length, file) == 7 && is_own(line), "getline: %p", (void *)line);
        free(line);
        (void)fclose(file);
    }
    return 0;
}
