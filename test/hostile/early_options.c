// SPDX-License-Identifier: MIT
// The first request of the process comes in .preinit_array, before libc has set `environ`: the options of
// the environment hold all the same.
#include "../support/check.h"

#include <dlfcn.h>

static void preinit(int count, char **arguments, char **environment)
{
    (void)count;
    (void)arguments;
    (void)environment;
    free(malloc(100));
}

__attribute__((section(".preinit_array"), used)) static void (*preinit_entry)(int, char **, char **) = preinit;

int main(void)
{
    const char *(*option_get)(const char *, char *, size_t) = NULL;
    char value[64] = "";
    *(void **)&option_get = dlsym(RTLD_DEFAULT, "mw_option_get");
    CHECK(option_get != NULL, "mw_option_get");
    CHECK(option_get("arena_reserve", value, sizeof value) != NULL, "the option's value");
    CHECK(strcmp(value, "1G") == 0, "MALLOW_ARENA_RESERVE=1G, and the option is %s", value);
    puts("the option holds");
    return 0;
}
