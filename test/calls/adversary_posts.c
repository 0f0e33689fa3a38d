// SPDX-License-Identifier: MIT
// Adversary, frees of others that wait while the heap has to grow, or a block to move; and rows of
// calls each of which grows the heap.
#include "adversary.h"

#include <pthread.h>
#include <stdlib.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

struct part {
    void **blocks;
    size_t count;
    size_t size; // 0: of all sizes up to 60 KiB
};

static size_t part_size(const struct part *part, size_t i) {
    return part->size != 0 ? part->size : 8 + i * 7919 % (60 * KIB);
}

static void part_fill(void *argument) {
    const struct part *const part = argument;
    for (size_t i = 0; i < part->count; i++) {
        part->blocks[i] = counted_malloc(part_size(part, i));
    }
}

static void part_free(void *argument) {
    const struct part *const part = argument;
    for (size_t i = 0; i < part->count; i++) {
        counted_free(part->blocks[i]);
    }
}

// ---- The heap grows while slabs are posted ------------------------------------------------------

// Another thread frees all; then as much is needed again, and more, before the last of it has been
// collected.
static void posts_and_growth(size_t bytes, size_t size) {
    const size_t count = bytes / (size != 0 ? size : 30 * KIB);
    void **const blocks = array_make(3 * count);
    struct part first = {blocks, count, size};
    struct part more = {blocks + count, 2 * count, size};
    for (unsigned order = 0; order < 3; order++) {
        part_fill(&first);
        if (order == 1) {
            array_reverse(blocks, count);
        } else if (order == 2) {
            array_shuffle(blocks, count);
        }
        thread_run(part_free, &first);
        part_fill(&more);
        part_free(&more);
    }
    array_drop(blocks, 3 * count);
}

static void posts_body(void *argument) {
    (void)argument;
    posts_and_growth(24 * MIB, 65000);
    posts_and_growth(24 * MIB, 24000);
    posts_and_growth(24 * MIB, 0);
    posts_and_growth(4 * MIB, 16);
}

// A new thread, whose heap has nothing at hand.
void adversary_posts(void) {
    phase("the heap grows while others' frees wait", false);
    thread_run(posts_body, NULL);
}

// ---- Blocks of a sleeping thread move while slabs are posted ------------------------------------

struct sleeper {
    struct part part;
    pthread_barrier_t filled;
    pthread_barrier_t end;
};

static void *sleeper_begin(void *argument) {
    struct sleeper *const sleeper = argument;
    part_fill(&sleeper->part);
    pthread_barrier_wait(&sleeper->filled);
    pthread_barrier_wait(&sleeper->end);
    return NULL;
}

// Every move frees into a sleeper's slab, the last one of each of its slabs for good, and finds
// posted slabs of the class that it moves into.
static void trade(size_t from, size_t to) {
    enum { COUNT = 200 };
    void **const blocks = array_make(3 * COUNT);
    struct sleeper sleeper = {.part = {blocks, COUNT, from}};
    struct part own = {blocks + COUNT, 2 * COUNT, to};
    pthread_t thread;
    pthread_barrier_init(&sleeper.filled, NULL, 2);
    pthread_barrier_init(&sleeper.end, NULL, 2);
    if (thread_create(&thread, sleeper_begin, &sleeper) != 0) {
        abort();
    }
    pthread_barrier_wait(&sleeper.filled);
    part_fill(&own);
    thread_run(part_free, &own);
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = counted_realloc(blocks[i], to);
    }
    pthread_barrier_wait(&sleeper.end);
    pthread_join(thread, NULL);
    part_free(&sleeper.part);
    array_drop(blocks, 3 * COUNT);
}

void adversary_trades(void) {
    static const size_t sizes[] = {700, 3000, 9000, 20000, 33000, 60000};
    enum { SIZES = sizeof sizes / sizeof sizes[0] };
    phase("blocks of a sleeper move while others' frees wait", false);
    for (size_t from = 0; from < SIZES; from++) {
        for (size_t to = 0; to < SIZES; to++) {
            if (from != to) {
                trade(sizes[from], sizes[to]);
            }
        }
    }
}

// ---- Every call grows the heap ------------------------------------------------------------------

// Rows of huge blocks: each takes a mapping of its own, or leaves one when no more can be kept.
static void rows_of_huge(void) {
    enum { ROW = 400 };
    void **const blocks = array_make(ROW);
    phase("every huge block is aligned", false);
    for (size_t alignment = 128 * KIB; alignment <= 32 * MIB; alignment *= 4) {
        for (size_t i = 0; i < ROW; i++) {
            blocks[i] = counted_aligned(alignment, 2 * MIB);
        }
        for (size_t i = 0; i < ROW; i++) {
            counted_free(blocks[i]);
        }
    }
    phase("huge blocks become large ones", false);
    for (size_t size = 40 * KIB; size <= 1 * MIB; size *= 5) {
        for (size_t i = 0; i < ROW; i++) {
            blocks[i] = counted_malloc(3 * MIB);
        }
        for (size_t i = 0; i < ROW; i++) {
            blocks[i] = counted_realloc(blocks[i], size);
        }
        for (size_t i = 0; i < ROW; i++) {
            counted_free(blocks[i]);
        }
    }
    array_drop(blocks, ROW);
}

// Aligned spans, of which each leaves a rest of its chunk that the next does not fit into.
void adversary_rows(void) {
    enum { ROW = 120 };
    void **const blocks = array_make(ROW);
    phase("every call grows the heap", false);
    for (size_t alignment = 64 * KIB; alignment <= 1 * MIB; alignment *= 2) {
        for (size_t i = 0; i < ROW; i++) {
            blocks[i] = counted_aligned(alignment, 730731);
        }
        for (size_t i = 0; i < ROW; i++) {
            counted_free(blocks[i]);
        }
    }
    array_drop(blocks, ROW);
    rows_of_huge();
}
