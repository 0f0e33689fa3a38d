// SPDX-License-Identifier: MIT
// free, realloc and malloc_usable_size are looked up by the handle of a library, as foreign function
// interfaces do (Python's ctypes, Java's default lookup, Ruby's Fiddle, DllImport): the C library's own,
// and one that has none and so leads to the C library's. They get blocks that the C library's
// calls have made by the program's malloc, and those of other names that were looked up like that.
//
// Arguments: a library without a malloc and free of its own.
#include "../support/check.h"

#include <dlfcn.h>
#include <gnu/lib-names.h>

static void use_handle(void *handle)
{
    CHECK(handle != NULL, "dlopen: %s", dlerror());
    void *(*const malloc_there)(size_t) = (void *(*)(size_t))dlsym(handle, "malloc");
    void *(*const realloc_there)(void *, size_t) = (void *(*)(void *, size_t))dlsym(handle, "realloc");
    size_t (*const size_there)(void *) = (size_t(*)(void *))dlsym(handle, "malloc_usable_size");
    char *(*const strdup_there)(const char *) = (char *(*)(const char *))dlsym(handle, "strdup");
    void *(*const aligned_there)(size_t, size_t) = (void *(*)(size_t, size_t))dlsym(handle, "aligned_alloc");
    void (*const free_there)(void *) = (void (*)(void *))dlsym(handle, "free");
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t size = 1; size < 3000000; size = size * 3 / 2 + 1) {
        char *block = malloc_there(size);
        CHECK(size_there(block) >= size, "usable size of %zu bytes: %zu", size, size_there(block));
        memset(block, 0x5a, size_there(block));
        block = realloc_there(block, 2 * size);
        CHECK(block != NULL && block[0] == 0x5a && block[size - 1] == 0x5a, "realloc of %zu bytes", size);
        size % 2 == 0 ? free_there(block) : free(block);
        block = malloc(size);
        memset(block, 0x5a, size);
        CHECK(size_there(block) >= size && size_there(block) <= size + size / 4 + page,
              "usable size of the program's %zu bytes: %zu", size, size_there(block));
        block = realloc_there(block, 2 * size);
        CHECK(block != NULL && block[0] == 0x5a && block[size - 1] == 0x5a, "realloc of %zu bytes", size);
        free_there(block);
        for (size_t alignment = 32; alignment <= 4 * MIB; alignment *= 16) {
            block = aligned_there(alignment, size);
            CHECK(block != NULL && (uintptr_t)block % alignment == 0, "aligned by %zu", alignment);
            free_there(block);
        }
        char *const text = strdup_there("made by the C library");
        CHECK(strcmp(text, "made by the C library") == 0, "strdup");
        free_there(realloc_there(text, size));
    }
}

int main(int count, char **arguments)
{
    CHECK(count == 2, "one argument: a library");
    void *const library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    use_handle(library);
    use_handle(dlopen(LIBC_SO, RTLD_LAZY | RTLD_NOLOAD));
    use_handle(dlopen(NULL, RTLD_LAZY));
    dlclose(library);
    return 0;
}
