// SPDX-License-Identifier: MIT
// The library is loaded while the program runs, has a thread at work, and is closed: its code stays, so
// the thread ends in peace.
//
//   idle_dlclose LIBMALLOW
#include "idle.h"

#include <dlfcn.h>

int main(int count, char **arguments)
{
    CHECK(count == 2, "which library?");
    void *const library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL, "%s", dlerror());
    void *(*take)(size_t) = NULL;
    void (*give)(void *) = NULL;
    *(void **)&take = dlsym(library, "mw_malloc");
    *(void **)&give = dlsym(library, "mw_free");
    static void *blocks[20000];
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        blocks[i] = take(2000);
        memset(blocks[i], 1, 2000);
    }
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        give(blocks[i]);
    }
    const size_t full = process_rss_kib();
    CHECK(thread_count() == 2, "%zu threads", thread_count());
    CHECK(dlclose(library) == 0, "dlclose");
    CHECK(wait_for_rss(full - 30 * KIB, 3000), "%zu KiB, of %zu", process_rss_kib(), full);
    CHECK(wait_for_threads(1, 4000), "the thread stays");
    return 0;
}
