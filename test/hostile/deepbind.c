// SPDX-License-Identifier: MIT
// A plugin opened with RTLD_DEEPBIND hands out blocks of the C library's own malloc, and the program
// frees and resizes them: they must reach the allocator that owns them.
//
// Argument: the plugin.
#include "../support/check.h"

#include <dlfcn.h>
#include <malloc.h>

int main(int count, char **arguments)
{
    CHECK(count == 2, "one argument: the plugin");
    void *const plugin = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    CHECK(plugin != NULL, "dlopen: %s", dlerror());
    int (*const works_alone)(void) = (int (*)(void))dlsym(plugin, "plugin_works_alone");
    char *(*const text_of)(void) = (char *(*)(void))dlsym(plugin, "plugin_text");
    bool (*const is_owned)(const void *) = (bool (*)(const void *))dlsym(RTLD_DEFAULT, "mw_is_owned");
    CHECK(works_alone() == 0, "the plugin alone");
    for (int round = 0; round < 1000; round++) {
        char *text = text_of();
        CHECK(strcmp(text, "from the plugin") == 0, "text");
        if (round == 0) {
            dprintf(2, "the plugin's blocks are %s\n",
                    is_owned == NULL || is_owned(text) ? "of the same allocator" : "of another allocator");
        }
        if (round % 2 == 0) {
            CHECK(malloc_usable_size(text) >= 100, "usable size of a foreign block");
            text = realloc(text, 5000);
            CHECK(text != NULL && strcmp(text, "from the plugin") == 0, "realloc of a foreign block");
        }
        free(text);
    }
    dlclose(plugin);
    return 0;
}
