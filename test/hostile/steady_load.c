// SPDX-License-Identifier: MIT
// An ordinary verified load of several threads with a fork, to be run in hostile surroundings (no /proc,
// little address space, a static executable). Where mw_is_owned is there, blocks must be mallow's.
#include "../support/check.h"

#include <pthread.h>
#include <sys/wait.h>

extern bool mw_is_owned(const void *pointer) __attribute__((weak));

enum { THREADS = 3, STEPS = 30000, SLOTS = 64 };

static void *load(void *argument)
{
    struct chance chance = {(uint64_t)(uintptr_t)argument};
    struct {
        unsigned char *block;
        size_t size;
    } slots[SLOTS];
    memset(slots, 0, sizeof slots);
    for (size_t step = 0; step < STEPS; step++) {
        const size_t slot = chance_below(&chance, SLOTS);
        CHECK(tag_wrong(slots[slot].block, slots[slot].size, slot) == slots[slot].size, "contents");
        free(slots[slot].block);
        slots[slot].size = chance_size(&chance) % (100 * KIB);
        slots[slot].block = malloc(slots[slot].size);
        CHECK(slots[slot].block != NULL, "malloc(%zu)", slots[slot].size);
        CHECK(mw_is_owned == NULL || mw_is_owned(slots[slot].block), "a block is not mallow's");
        tag_fill(slots[slot].block, slots[slot].size, slot);
    }
    for (size_t slot = 0; slot < SLOTS; slot++) {
        free(slots[slot].block);
    }
    return NULL;
}

int main(int count, char **arguments)
{
    const bool must_be_ours = count > 1 && strcmp(arguments[1], "--ours") == 0;
    CHECK(!must_be_ours || mw_is_owned != NULL, "mallow is not in this process");
    alarm(60);
    pthread_attr_t small_stack;
    pthread_attr_init(&small_stack);
    pthread_attr_setstacksize(&small_stack, 256 * KIB);
    for (int round = 0; round < 3; round++) {
        pthread_t threads[THREADS];
        for (uintptr_t i = 0; i < THREADS; i++) {
            CHECK(pthread_create(&threads[i], &small_stack, load, (void *)(i + 1)) == 0, "pthread_create");
        }
        const pid_t child = fork();
        CHECK(child >= 0, "fork");
        if (child == 0) {
            load((void *)(uintptr_t)77);
            _exit(0);
        }
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0,
              "child status %#x", (unsigned)status);
        for (size_t i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
        }
    }
    load((void *)(uintptr_t)5);
    return 0;
}
