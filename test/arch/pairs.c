// SPDX-License-Identifier: MIT
// The loops whose instructions test_arch.py counts: `pairs KIND COUNT` makes COUNT pairs of allocation
// and free through the PLT. Kinds: malloc (freed at once), batch (500 held), medium (2 KiB, 500 held),
// calloc, aligned, first (realloc of NULL); with a call between the two: usable (malloc_usable_size),
// resize (realloc in place), move (realloc to another class); remote (freed by another thread, which has no heap).
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 500 };
static void *held[BATCH];

static void malloc_pairs(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(malloc(64));
    }
}

static void batches(size_t count, size_t size)
{
    for (size_t done = 0; done < count; done += BATCH) {
        for (size_t i = 0; i < BATCH; i++) {
            held[i] = malloc(size);
        }
        for (size_t i = 0; i < BATCH; i++) {
            free(held[i]);
        }
    }
}

static void batch_pairs(size_t count)
{
    batches(count, 64);
}

static void medium_pairs(size_t count)
{
    batches(count, 2000);
}

static void calloc_pairs(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(calloc(1, 64));
    }
}

static void aligned_pairs(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(aligned_alloc(64, 64));
    }
}

static void usable_pairs(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        void *const block = malloc(1000);
        if (malloc_usable_size(block) < 1000) {
            abort();
        }
        free(block);
    }
}

static void resize_pairs(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(realloc(malloc(1000), 900));
    }
}

static void move_pairs(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(realloc(malloc(64), 200));
    }
}

static void first_pairs(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(realloc(NULL, 64));
    }
}

static void **handed;
static size_t handed_count;

static void *free_handed(void *argument)
{
    for (size_t i = 0; i < handed_count; i++) {
        free(handed[i]);
    }
    return argument;
}

static void remote_pairs(size_t count)
{
    pthread_t thread;
    handed = malloc(count * sizeof *handed);
    for (handed_count = 0; handed != NULL && handed_count < count; handed_count++) {
        handed[handed_count] = malloc(64);
    }
    if (handed == NULL || pthread_create(&thread, NULL, free_handed, NULL) != 0 || pthread_join(thread, NULL) != 0) {
        abort();
    }
    free(handed);
}

int main(int count, char **arguments)
{
    static const struct {
        const char *name;
        void (*run)(size_t);
    } kinds[] = {{"malloc", malloc_pairs}, {"batch", batch_pairs}, {"medium", medium_pairs},
                 {"calloc", calloc_pairs}, {"aligned", aligned_pairs},
                 {"usable", usable_pairs}, {"resize", resize_pairs},
                 {"move", move_pairs}, {"first", first_pairs},
                 {"remote", remote_pairs}};
    for (size_t i = 0; count == 3 && i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kinds[i].name, arguments[1]) == 0) {
            kinds[i].run(strtoull(arguments[2], NULL, 0));
            return 0;
        }
    }
    return 2;
}
