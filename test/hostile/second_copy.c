// SPDX-License-Identifier: MIT
// Two copies of the library in one process: one preloaded, one opened from a copied file with its own
// symbols first (RTLD_DEEPBIND). Each serves its own blocks and does not take the other's for its own.
//
// Argument: the library (it is copied to a temporary file).
#include "../support/check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/stat.h>

static void *(*other_malloc)(size_t);
static void (*other_free)(void *);
static bool (*other_is_owned)(const void *);
static bool (*own_is_owned)(const void *);

static void copy_file(const char *from, int to)
{
    char buffer[65536];
    const int in = open(from, O_RDONLY);
    CHECK(in >= 0, "open %s", from);
    ssize_t got;
    while ((got = read(in, buffer, sizeof buffer)) > 0) {
        CHECK(write(to, buffer, (size_t)got) == got, "write");
    }
    close(in);
}

static void *symbol_of(void *library, const char *name)
{
    void *const symbol = dlsym(library, name);
    CHECK(symbol != NULL, "no %s", name);
    return symbol;
}

static void *both_at_work(void *argument)
{
    struct chance chance = {(uint64_t)(uintptr_t)argument};
    unsigned char *own[40] = {NULL};
    unsigned char *other[40] = {NULL};
    for (int step = 0; step < 20000; step++) {
        const size_t slot = chance_below(&chance, COUNT_OF(own));
        const size_t size = chance_size(&chance) % (40 * KIB) + 16;
        free(own[slot]);
        other_free(other[slot]);
        own[slot] = malloc(size);
        other[slot] = other_malloc(size);
        CHECK(own[slot] != NULL && other[slot] != NULL, "allocation");
        memset(own[slot], 0x11, size);
        memset(other[slot], 0x22, size);
        CHECK(own_is_owned(own[slot]) && !own_is_owned(other[slot]), "the first copy confuses the two");
        CHECK(other_is_owned(other[slot]) && !other_is_owned(own[slot]), "the second copy confuses the two");
        CHECK(own[slot][size - 1] == 0x11 && own[slot][0] == 0x11, "contents");
    }
    for (size_t slot = 0; slot < COUNT_OF(own); slot++) {
        free(own[slot]);
        other_free(other[slot]);
    }
    return NULL;
}

int main(int count, char **arguments)
{
    CHECK(count == 2, "one argument: the library");
    own_is_owned = (bool (*)(const void *))dlsym(RTLD_DEFAULT, "mw_is_owned");
    CHECK(own_is_owned != NULL, "the first copy is not preloaded");
    char path[] = "/tmp/libmallow-copy-XXXXXX";
    const int file = mkstemp(path);
    CHECK(file >= 0, "mkstemp");
    copy_file(arguments[1], file);
    fchmod(file, 0755);
    close(file);
    void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    unlink(path);
    CHECK(library != NULL, "dlopen: %s", dlerror());
    other_malloc = (void *(*)(size_t))symbol_of(library, "mw_malloc");
    other_free = (void (*)(void *))symbol_of(library, "mw_free");
    other_is_owned = (bool (*)(const void *))symbol_of(library, "mw_is_owned");
    CHECK(other_is_owned != own_is_owned, "both names mean one copy");
    pthread_t threads[3];
    for (uintptr_t i = 0; i < COUNT_OF(threads); i++) {
        CHECK(pthread_create(&threads[i], NULL, both_at_work, (void *)(i + 1)) == 0, "pthread_create");
    }
    both_at_work((void *)(uintptr_t)9);
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        pthread_join(threads[i], NULL);
    }
    dlclose(library);
    return 0;
}
