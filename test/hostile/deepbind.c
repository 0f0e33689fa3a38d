// SPDX-License-Identifier: MIT
// A plugin opened with RTLD_DEEPBIND and the program free and resize each other's blocks, and blocks of
// the C library's own malloc: every block must reach the allocator that owns it.
//
// Arguments: the plugin; a library that only the plugin's RUNPATH leads to.
#include "../support/check.h"

#include <dlfcn.h>
#include <gnu/lib-names.h>
#include <malloc.h>
#include <unistd.h>

// Of the C library's own allocator, as a library that was opened before us would hand them out.
static void use_libcs_blocks(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *(*const libcs_malloc)(size_t) =
        (void *(*)(size_t))dlsym(dlopen(LIBC_SO, RTLD_LAZY | RTLD_NOLOAD), "__libc_malloc");
    bool (*const is_owned)(const void *) = (bool (*)(const void *))dlsym(RTLD_DEFAULT, "mw_is_owned");
    CHECK(libcs_malloc != NULL, "libc's own malloc");
    for (size_t size = 1; size < 1000000; size = size * 3 / 2 + 1) {
        unsigned char *block = libcs_malloc(size);
        CHECK(is_owned == NULL || !is_owned(block), "libc's block of %zu bytes is not ours", size);
        CHECK(malloc_usable_size(block) >= size && malloc_usable_size(block) < size + page + 32,
              "usable size of %zu bytes: %zu", size, malloc_usable_size(block));
        memset(block, 0x5a, malloc_usable_size(block));
        if (size % 2 == 0) {
            block = realloc(block, size * 2);
            CHECK(block != NULL && block[0] == 0x5a && block[size - 1] == 0x5a, "realloc of libc's");
        }
        free(block);
    }
}

int main(int count, char **arguments)
{
    CHECK(count == 3, "two arguments: the plugin, and a library");
    use_libcs_blocks();
    CHECK(dlopen(arguments[2], RTLD_NOW) == NULL, "only the plugin finds %s", arguments[2]);
    (void)dlerror();
    for (int round = 0; round < 4; round++) {
        void *const plugin = dlopen(arguments[1], (round % 2 == 0 ? RTLD_NOW : RTLD_LAZY) |
                                                      (round < 2 ? RTLD_LOCAL : RTLD_GLOBAL) |
                                                      RTLD_DEEPBIND);
        CHECK(plugin != NULL, "dlopen: %s", dlerror());
        CHECK(dlerror() == NULL, "no error is left behind");
        int (*const works_alone)(void) = (int (*)(void))dlsym(plugin, "plugin_works_alone");
        char *(*const text_of)(void) = (char *(*)(void))dlsym(plugin, "plugin_text");
        char *(*const grow)(char *, size_t) = (char *(*)(char *, size_t))dlsym(plugin, "plugin_grow");
        void (*const free_there)(void *) = (void (*)(void *))dlsym(plugin, "plugin_free");
        void (**const by_pointer)(void *) = (void (**)(void *))dlsym(plugin, "plugin_free_by_pointer");
        void *(*const open_there)(const char *) = (void *(*)(const char *))dlsym(plugin, "plugin_open");
        CHECK(works_alone() == 0, "the plugin alone");
        for (int i = 0; i < 1000; i++) {
            char *text = text_of();
            CHECK(strcmp(text, "from the plugin") == 0, "text");
            CHECK(malloc_usable_size(text) >= 100, "usable size of the plugin's block");
            text = realloc(text, 5000);
            CHECK(text != NULL && strcmp(text, "from the plugin") == 0, "realloc of the plugin's block");
            free(text);
            text = malloc((size_t)1 << (i % 22));
            text[0] = 'x';
            text = grow(text, 10000);
            CHECK(text != NULL && text[0] == 'x', "realloc of the program's block by the plugin");
            (i % 2 == 0 ? free_there : *by_pointer)(text);
        }
        void *const found = open_there(arguments[2]);
        CHECK(found != NULL, "by the plugin's RUNPATH: %s", dlerror());
        dlclose(found);
        dlclose(plugin);
    }
    use_libcs_blocks();
    return 0;
}
