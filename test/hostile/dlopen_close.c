// SPDX-License-Identifier: MIT
// The library opened by dlopen into a program that runs on another malloc, used by threads, closed, and
// opened again: it must fit into what static thread-local storage is left, and a thread that used it must
// be able to end after it was closed. However often that is done, the process does not grow.
//
// Argument: the library.
#include <mallow/observe.h>

#include "../support/check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>

struct functions {
    void *(*allocate)(size_t);
    void *(*resize)(void *, size_t);
    void (*release)(void *);
    size_t (*usable)(const void *);
    bool (*is_owned)(const void *);
    size_t (*collect)(bool);
    bool (*stats_get)(struct mw_stats *);
};

enum { ROUNDS = 40 };

static struct functions functions;
static sem_t used;
static sem_t may_end;

static void *load_symbol(void *library, const char *name)
{
    void *const symbol = dlsym(library, name);
    CHECK(symbol != NULL, "no %s: %s", name, dlerror());
    return symbol;
}

static void use_it(uint64_t seed)
{
    struct chance chance = {seed};
    void *kept[50] = {NULL};
    for (int step = 0; step < 3000; step++) {
        const size_t slot = chance_below(&chance, COUNT_OF(kept));
        const size_t size = chance_size(&chance) + 8;
        functions.release(kept[slot]);
        kept[slot] = functions.allocate(size);
        CHECK(kept[slot] != NULL && functions.usable(kept[slot]) >= size, "mw_malloc");
        CHECK(functions.is_owned(kept[slot]), "is_owned of an own block");
        memset(kept[slot], 1, size);
        void *const foreign = malloc(size); // the program's own malloc is another one
        CHECK(!functions.is_owned(foreign), "is_owned of the program's block");
        free(foreign);
    }
    kept[0] = functions.resize(kept[0], 100000);
    CHECK(kept[0] != NULL, "mw_realloc");
    for (size_t slot = 0; slot < COUNT_OF(kept); slot++) {
        functions.release(kept[slot]);
    }
}

static size_t mapping_count(void)
{
    static char text[1 << 20];
    size_t count = 0;
    CHECK(read_whole("/proc/self/maps", text, sizeof text), "/proc/self/maps");
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++) {
        count++;
    }
    return count;
}

// It stays loaded, so that it can be asked after a close. What it only keeps does not count.
static size_t held_kib(void)
{
    struct mw_stats stats = {.size_bytes = sizeof stats};
    (void)functions.collect(true);
    CHECK(functions.stats_get(&stats), "mw_stats_get");
    CHECK(stats.live_bytes == 0, "%zu bytes are live", (size_t)stats.live_bytes);
    return (size_t)stats.resident_bytes / 1024;
}

static void *using_thread(void *argument)
{
    use_it((uint64_t)(uintptr_t)argument);
    sem_post(&used);
    while (sem_wait(&may_end) != 0) {
    }
    return NULL;
}

int main(int count, char **arguments)
{
    CHECK(count == 2, "one argument: the library");
    sem_init(&used, 0, 0);
    sem_init(&may_end, 0, 0);
    size_t settled_kib = 0, settled_mappings = 0;
    for (uintptr_t round = 1; round <= ROUNDS; round++) {
        void *const library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
        CHECK(library != NULL, "dlopen: %s", dlerror());
        functions.allocate = (void *(*)(size_t))load_symbol(library, "mw_malloc");
        functions.resize = (void *(*)(void *, size_t))load_symbol(library, "mw_realloc");
        functions.release = (void (*)(void *))load_symbol(library, "mw_free");
        functions.usable = (size_t(*)(const void *))load_symbol(library, "mw_usable_size");
        functions.collect = (size_t(*)(bool))load_symbol(library, "mw_collect");
        functions.stats_get = (bool (*)(struct mw_stats *))load_symbol(library, "mw_stats_get");
        functions.is_owned = (bool (*)(const void *))load_symbol(library, "mw_is_owned");
        pthread_t threads[2];
        for (uintptr_t i = 0; i < COUNT_OF(threads); i++) {
            CHECK(pthread_create(&threads[i], NULL, using_thread, (void *)(round * 10 + i)) == 0, "pthread_create");
        }
        use_it(round);
        for (size_t i = 0; i < COUNT_OF(threads); i++) {
            sem_wait(&used);
        }
        CHECK(dlclose(library) == 0, "dlclose: %s", dlerror());
        for (size_t i = 0; i < COUNT_OF(threads); i++) { // they end after the close
            sem_post(&may_end);
        }
        for (size_t i = 0; i < COUNT_OF(threads); i++) {
            pthread_join(threads[i], NULL);
        }
        if (round == ROUNDS / 4) {
            settled_kib = held_kib();
            settled_mappings = mapping_count();
        }
    }
    const size_t kib = held_kib();
    const size_t mappings = mapping_count();
    dprintf(2, "from %zu to %zu KiB, from %zu to %zu mappings\n", settled_kib, kib, settled_mappings, mappings);
    CHECK(mappings <= settled_mappings + 16 || !FIGURES_COUNT, "mappings are left");
    // Heaps of threads that have ended come to have more pages, up to 280 KiB seen; a slice a round would be 1,900.
    CHECK(kib <= settled_kib + 512 || !FIGURES_COUNT, "memory is left");
    return 0;
}
