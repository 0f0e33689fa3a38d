// SPDX-License-Identifier: MIT
// A program that uses a thread-specific key before it has made it, or one that is not its own: mostly 0, as
// static data is. libc refuses the first key to whoever has not made it, with mallow as without; and a value
// that is written over another one's does no more than that thread's memory.
#include "../support/check.h"

#include <limits.h>
#include <pthread.h>

enum { THREADS = 256, KIB_EACH = 2 };

static pthread_key_t unmade; // 0
static char value;

static void expect_refused(void)
{
    CHECK(pthread_getspecific(unmade) == NULL, "a value of %p", pthread_getspecific(unmade));
    CHECK(pthread_setspecific(unmade, &value) == EINVAL, "the key is somebody's");
}

static void allocate(void)
{
    for (size_t i = 0; i < 100; i++) {
        free(malloc(i * 50));
    }
}

static void *early_main(void *argument)
{
    allocate();
    expect_refused();
    return argument;
}

static void *overwriting_main(void *argument)
{
    allocate();
    for (pthread_key_t key = 0; key < PTHREAD_KEYS_MAX; key++) {
        (void)pthread_setspecific(key, argument);
    }
    allocate();
    return NULL;
}

static void run(void *(*start)(void *), void *argument)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, start, argument) == 0, "a thread");
    CHECK(pthread_join(thread, NULL) == 0, "its end");
}

int main(void)
{
    expect_refused();
    allocate();
    expect_refused();
    run(early_main, NULL);

    void *const block = malloc(100);
    void *const values[] = {&value, block, (void *)(uintptr_t)16, (void *)UINTPTR_MAX};
    for (size_t i = 0; i < COUNT_OF(values); i++) {
        run(overwriting_main, values[i]);
    }
    const size_t before = process_rss_kib();
    for (size_t i = 0; i < THREADS; i++) {
        run(overwriting_main, values[i % COUNT_OF(values)]);
    }
    const size_t after = process_rss_kib();
    CHECK(after < before + THREADS * KIB_EACH, "%zu KiB, and %zu after %d threads", before, after, THREADS);
    free(block);
    return 0;
}
