// SPDX-License-Identifier: MIT
// A C program that loads a C++ library for itself alone, as interpreters load their extensions: where
// memory runs out, operator new calls that library's new_handler and throws its std::bad_alloc.
//
// Argument: the plugin.
#include "../support/check.h"

#include <dlfcn.h>

int main(int count, char **arguments)
{
    CHECK(count == 2, "one argument: the plugin");
    CHECK(dlsym(RTLD_DEFAULT, "_ZSt15get_new_handlerv") == NULL, "there is a C++ run-time already");
    void *const plugin = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(plugin != NULL, "dlopen: %s", dlerror());
    const char *(*const failure)(void) = (const char *(*)(void))dlsym(plugin, "plugin_failure");
    CHECK(failure != NULL, "plugin_failure");
    for (int round = 0; round < 3; round++) {
        const char *const what = failure();
        CHECK(what == NULL, "round %d: %s", round, what);
    }
    CHECK(dlclose(plugin) == 0, "dlclose");
    return 0;
}
