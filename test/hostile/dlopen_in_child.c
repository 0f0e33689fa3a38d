// SPDX-License-Identifier: MIT
// A program forks while other threads of it open a library that is loaded already, and its children open that,
// too. fork makes the dynamic linker's lock new for the child; others of its locks it does not, and a call
// that takes one of these waits for ever in a child if another thread held it.
//
// Arguments: a library.
#include "../support/check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>

enum { THREADS = 2, CHILDREN = 100, SECONDS_MAX = 20 };

static const char *library;
static atomic_bool ends;

static bool opens(void)
{
    void *const handle = dlopen(library, RTLD_NOW);
    return handle != NULL && dlclose(handle) == 0;
}

static void *thread_main(void *argument)
{
    while (!atomic_load(&ends)) {
        CHECK(opens(), "dlopen: %s", dlerror());
    }
    return argument;
}

int main(int count, char **arguments)
{
    CHECK(count == 2, "one argument: a library");
    library = arguments[1];
    CHECK(dlopen(library, RTLD_NOW) != NULL, "dlopen: %s", dlerror());
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, thread_main, NULL) == 0, "thread %zu", i);
    }
    for (size_t i = 0; i < CHILDREN; i++) {
        const pid_t child = fork();
        CHECK(child >= 0, "fork %zu", i);
        if (child == 0) {
            (void)alarm(SECONDS_MAX);
            _exit(opens() ? 0 : 1);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0, "child %zu ended with %x", i, (unsigned)status);
    }
    atomic_store(&ends, true);
    for (size_t i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0, "the end of thread %zu", i);
    }
    return 0;
}
