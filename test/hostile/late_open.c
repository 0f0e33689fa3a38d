// SPDX-License-Identifier: MIT
// The library opened late, in a program that has long used libc's malloc: blocks of before and after are
// told from what is nobody's, freed and resized. So it is where a constructor of the C++ run-time's has
// allocated before ours, with the override left out. Argument: the library.
#include "../support/check.h"

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/personality.h>
#include <sys/wait.h>

enum { BLOCKS = 400 };

static char *before[BLOCKS];
static char *after[BLOCKS];
static size_t forged[64] = {1}; // at a fixed place, close below the program break
static void (*late_free)(void *);
static void *(*late_realloc)(void *, size_t);
static size_t (*late_usable_size)(const void *);

// libc's other arenas, so that what it holds is more than lies between the heap's begin and the break.
static void *allocate_aside(void *argument)
{
    return malloc_usable_size(malloc(100 * KIB)) != 0 ? argument : NULL;
}

static void fill(char **blocks)
{
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(i * 7 + 1);
        CHECK(blocks[i] != NULL, "malloc");
        memset(blocks[i], (int)i, i * 7 + 1);
    }
}

// From above or from below: either way most lie beyond what has been seen to be libc's.
static void give_back(char **blocks, bool falling)
{
    for (size_t k = 0; k < BLOCKS; k++) {
        const size_t i = falling ? BLOCKS - 1 - k : k;
        CHECK(late_usable_size(blocks[i]) == malloc_usable_size(blocks[i]), "size of %zu", i);
        if (i % 3 == 0) {
            blocks[i] = late_realloc(blocks[i], 5000);
            CHECK(blocks[i] != NULL && blocks[i][0] == (char)i && blocks[i][i * 7] == (char)i, "moved %zu", i);
        }
        late_free(blocks[i]);
    }
}

static void refuse_what_is_nobodys(void)
{
    forged[11] = 64 | 1; // as libc writes it before a block of 56 bytes
    const pid_t child = fork();
    if (child == 0) {
        CHECK(dup2(open("/dev/null", O_WRONLY), 2) == 2, "stderr");
        late_free(&forged[12]);
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child, "waitpid");
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "static data was taken for a block: %d", status);
}

int main(int count, char **arguments)
{
    CHECK(count == 2, "one argument: the library");
    const int persona = personality(0xffffffff);
    if (persona >= 0 && (persona & ADDR_NO_RANDOMIZE) == 0 &&
        personality((unsigned long)persona | ADDR_NO_RANDOMIZE) >= 0) {
        execv(arguments[0], arguments); // else the break is anywhere: the same but for what is forged
    }
    pthread_t thread;
    for (int i = 0; i < 4; i++) {
        CHECK(pthread_create(&thread, NULL, allocate_aside, NULL) == 0 && pthread_join(thread, NULL) == 0, "thread");
    }
    fill(before);
    void *const library = dlopen(arguments[1], RTLD_NOW);
    CHECK(library != NULL, "%s", dlerror());
    *(void **)&late_free = dlsym(library, "mw_free");
    *(void **)&late_realloc = dlsym(library, "mw_realloc");
    *(void **)&late_usable_size = dlsym(library, "mw_usable_size");
    CHECK(late_free != NULL && late_realloc != NULL && late_usable_size != NULL, "dlsym");
    fill(after);
    refuse_what_is_nobodys();
    give_back(after, false);
    give_back(before, true);
    refuse_what_is_nobodys();
    return 0;
}
