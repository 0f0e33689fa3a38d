// SPDX-License-Identifier: MIT
// A limit (of address space, of data, or MALLOW_LIMIT) is used up, and what used it is freed. Threads that have
// waited meanwhile make their first call, for which there is memory again; so is for a heap with a reserve, and
// for the pairs of a program that goes on.
#include "../support/check.h"

#include <mallow/heap.h>
#include <mallow/mallow.h>
#include <pthread.h>
#include <sys/resource.h>

enum { THREADS = 100, LARGE = 200000, PAIRS = 4000, REFUSALS = 20 };

static pthread_barrier_t begin, end;
static _Atomic(size_t) refused;

static void *first_call(void *argument)
{
    pthread_barrier_wait(&begin);
    void *const block = malloc(100);
    refused += block == NULL;
    pthread_barrier_wait(&end);
    free(block);
    return argument;
}

// Blocks of each size until they are refused again and again, in a list; all of them, or those of LARGE, freed.
static void use_up(bool keep_small)
{
    static const size_t sizes[] = {LARGE, 50000, 5000, 1000, 200, 48, 16};
    void **lists[COUNT_OF(sizes)] = {NULL};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        for (unsigned refusals = 0; refusals < REFUSALS;) {
            void **const block = malloc(sizes[i]);
            if (block == NULL) {
                refusals++;
                continue;
            }
            *block = lists[i];
            lists[i] = block;
        }
    }
    for (size_t i = 0; i < (keep_small ? 1 : COUNT_OF(sizes)); i++) {
        while (lists[i] != NULL) {
            void **const next = *lists[i];
            free(lists[i]);
            lists[i] = next;
        }
    }
}

static void threads_begin(bool keep_small)
{
    pthread_t threads[THREADS];
    pthread_attr_t small;
    CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 128 << 10) == 0, "attributes");
    CHECK(pthread_barrier_init(&begin, NULL, THREADS + 1) == 0 && pthread_barrier_init(&end, NULL, THREADS + 1) == 0,
          "barriers");
    for (size_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], &small, first_call, NULL) == 0, "pthread_create");
    }
    use_up(keep_small);
    pthread_barrier_wait(&begin);
    pthread_barrier_wait(&end);
    for (size_t i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0, "pthread_join");
    }
    CHECK(refused == 0, "%zu of %d first calls were refused", (size_t)refused, THREADS);
}

// Most of the limit is free in pieces between live blocks, and held: a reserve takes what of it is kept.
static void reserve_is_made(void)
{
    enum { BLOCKS = 1000, SIZE = 100000 };
    static unsigned char *blocks[BLOCKS];
    size_t count = 0;
    while (count < BLOCKS && (blocks[count] = malloc(SIZE)) != NULL) {
        memset(blocks[count++], 1, SIZE);
    }
    for (size_t i = 0; i < count; i++) {
        if (i % 20 != 0) {
            free(blocks[i]);
        }
    }
    const struct mw_heap_config config = {.size_bytes = sizeof config, .reserve_bytes = 90 * MIB};
    struct mw_heap *heap;
    const enum mw_heap_status status = mw_heap_create(&config, &heap);
    CHECK(status == MW_HEAP_OK, "a reserve of 90 MiB: %s", mw_heap_status_text(status));
}

// Without the background thread, frees give back what is free beyond a threshold: not what the next malloc takes.
static void pairs_keep_their_pages(void)
{
    enum { BLOCKS = 600, PAGES = 150000 / 4096 };
    static unsigned char *blocks[BLOCKS];
    struct rusage before, after;
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(LARGE);
        CHECK(blocks[i] != NULL, "malloc");
        memset(blocks[i], 1, LARGE);
    }
    for (size_t i = BLOCKS; i-- > 0;) {
        if (i % 8 != 0) {
            free(blocks[i]);
        }
    }
    CHECK(getrusage(RUSAGE_SELF, &before) == 0, "getrusage");
    for (size_t i = 0; i < PAIRS; i++) {
        unsigned char *const block = malloc(PAGES * 4096);
        CHECK(block != NULL, "malloc");
        memset(block, 1, PAGES * 4096);
        free(block);
    }
    CHECK(getrusage(RUSAGE_SELF, &after) == 0, "getrusage");
    const long faults = after.ru_minflt - before.ru_minflt;
    CHECK(faults < PAIRS * PAGES / 10, "%ld page faults in %d pairs of %d pages", faults, PAIRS, PAGES);
}

int main(int count, char **arguments)
{
    const char *const what = count > 1 ? arguments[1] : "";
    if (strcmp(what, "all_freed") == 0 || strcmp(what, "small_kept") == 0) {
        threads_begin(strcmp(what, "small_kept") == 0);
    } else if (strcmp(what, "reserve") == 0) {
        reserve_is_made();
    } else if (strcmp(what, "pairs") == 0) {
        pairs_keep_their_pages();
    } else {
        CHECK(false, "freed_again all_freed|small_kept|reserve|pairs");
    }
    return 0;
}
