// SPDX-License-Identifier: MIT
// A thread's first calls, of blocks that need no heap: those may be had before there is one. Among memory that
// was written before and memory that is fresh; others free the blocks, when the thread is gone. Built for both
// families (see support/family.h).
#include "../support/family.h"
#include "../support/suite.h"

#include <pthread.h>

enum { CALLS = 6, DIRT = 3, NEWCOMERS = 500, KINDS = 6, HELD_MAX = 1000, HELD_BYTES_MAX = 96 << 20 };

static const size_t sizes[] = {66000, 100000, 131072, 200000, 300000, 1 << 20};
static const size_t alignments[] = {16, 4096, 131072, 262144, 524288, 1048576};

struct newcomer {
    unsigned kind;
    size_t size;
    size_t alignment;
    unsigned char *blocks[CALLS];
};

static unsigned char *take(const struct newcomer *newcomer, size_t index)
{
    unsigned char *block = NULL;
    switch (newcomer->kind) {
    case 0: block = fam_malloc(newcomer->size); break;
    case 1:
        block = fam_calloc(1, newcomer->size);
        CHECK(block == NULL || nonzero_at(block, newcomer->size) == newcomer->size, "calloc %zu, call %zu: not zero",
              newcomer->size, index);
        break;
    case 2: block = fam_realloc(NULL, newcomer->size); break;
    default: // half of them
        block = fam_aligned_alloc(newcomer->alignment, newcomer->size);
        CHECK((uintptr_t)block % newcomer->alignment == 0, "%p is no multiple of %zu", (void *)block,
              newcomer->alignment);
    }
    CHECK(block != NULL && fam_usable_size(block) >= newcomer->size, "%zu bytes, kind %u", newcomer->size,
          newcomer->kind);
    tag_fill(block, newcomer->size, newcomer->kind + index);
    return block;
}

static void *come(void *argument)
{
    struct newcomer *const newcomer = argument;
    for (size_t i = 0; i < CALLS; i++) {
        newcomer->blocks[i] = take(newcomer, i);
    }
    unsigned char *const small = fam_calloc(1, 100); // for which there is a heap now
    CHECK(small != NULL && nonzero_at(small, 100) == 100, "calloc of 100 bytes");
    fam_free(small);
    fam_free(newcomer->blocks[CALLS - 1]);
    return NULL;
}

static void run_newcomer(struct newcomer *newcomer)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, come, newcomer) == 0, "no thread");
    CHECK(pthread_join(thread, NULL) == 0, "not joined");
    for (size_t i = 0; i + 1 < CALLS; i++) {
        CHECK(tag_wrong(newcomer->blocks[i], newcomer->size, newcomer->kind + i) == newcomer->size,
              "a block of a thread that has ended changed");
    }
}

// What is held, so that memory grows; all of it goes when it is much.
static struct {
    void *blocks[HELD_MAX];
    size_t count;
    size_t bytes;
} held;

static void hold(void *block, size_t size)
{
    held.blocks[held.count++] = block;
    held.bytes += size;
    if (held.bytes >= HELD_BYTES_MAX || held.count == HELD_MAX) {
        while (held.count > 0) {
            fam_free(held.blocks[--held.count]);
        }
        held.bytes = 0;
        fam_trim();
    }
}

// Leaves little that is free, and what is of a size that is not zero.
static void make_dirt(size_t size)
{
    void *blocks[DIRT];
    for (size_t i = 0; i < DIRT; i++) {
        blocks[i] = fam_malloc(size);
        CHECK(blocks[i] != NULL, "%zu bytes", size);
        memset(blocks[i], 0xa5, size);
    }
    fam_free(blocks[0]);
    for (size_t i = 1; i < DIRT; i++) {
        hold(blocks[i], size);
    }
}

static void first_calls_of_all_kinds_and_sizes(void **state)
{
    struct chance chance = {7};
    (void)state;
    for (size_t i = 0; i < NEWCOMERS; i++) {
        struct newcomer newcomer = {(unsigned)chance_below(&chance, KINDS), sizes[chance_below(&chance, COUNT_OF(sizes))],
                                    alignments[chance_below(&chance, COUNT_OF(alignments))], {NULL}};
        if (chance_below(&chance, 2) == 0) {
            make_dirt(newcomer.size);
        }
        run_newcomer(&newcomer);
        for (size_t j = 0; j + 1 < CALLS; j++) {
            hold(newcomer.blocks[j], newcomer.size);
        }
    }
}

struct heir {
    unsigned char *block;
    size_t size;
};

static void *come_resizing(void *argument)
{
    struct heir *const heir = argument;
    heir->block = fam_realloc(heir->block, heir->size);
    return NULL;
}

// realloc by threads that have not allocated, of a block that another thread has: also to no bytes, where that
// does not free.
static void a_first_realloc_of_anothers_block(void **state)
{
    static const size_t smaller[] = {0, 1, 16, 100, 1000};
    enum { BEFORE = 5000, HEIRS = 6, SPAN = 200000 };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(smaller); i++) {
        struct heir heirs[HEIRS];
        for (size_t j = 0; j < HEIRS; j++) {
            pthread_t thread;
            heirs[j] = (struct heir){fam_malloc(BEFORE), smaller[i]};
            CHECK(heirs[j].block != NULL, "no block");
            tag_fill(heirs[j].block, smaller[i], j);
            CHECK(pthread_create(&thread, NULL, come_resizing, &heirs[j]) == 0, "no thread");
            CHECK(pthread_join(thread, NULL) == 0, "not joined");
            CHECK(heirs[j].block != NULL || smaller[i] == 0, "realloc to %zu", smaller[i]);
            for (size_t k = 0; k < j && heirs[j].block != NULL; k++) {
                CHECK(heirs[j].block != heirs[k].block, "%p twice, of %zu bytes", (void *)heirs[j].block, smaller[i]);
            }
        }
        unsigned char *const other = fam_malloc(SPAN);
        for (size_t j = 0; j < HEIRS; j++) {
            CHECK(heirs[j].block == NULL || heirs[j].block < other || heirs[j].block >= other + SPAN,
                  "%p lies in another block", (void *)heirs[j].block);
            CHECK(tag_wrong(heirs[j].block, smaller[i], j) == smaller[i], "%zu bytes changed", smaller[i]);
            fam_free(heirs[j].block);
        }
        fam_free(other);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_calls_of_all_kinds_and_sizes),
        cmocka_unit_test(a_first_realloc_of_anothers_block),
    };
    return suite_run(tests);
}
