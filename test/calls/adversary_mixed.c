// SPDX-License-Identifier: MIT
// Adversary, one thing on top of another: every size class at once, with frees of others waiting;
// millions of blocks of ended and sleeping threads; memory given back in between; resizing across
// the kinds of blocks.
#include "adversary.h"

#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

enum { SIZES = 40 };

// Sizes of as many classes, from 16 bytes to 64 KiB.
static size_t size_number(size_t i) {
    size_t size = 16;
    for (size_t step = 0; step < i; step++) {
        size += size / 4 + 8;
    }
    return size <= 64 * KIB ? size : 64 * KIB - i * 16;
}

struct many {
    void **blocks;
    size_t count;
};

static void many_free(void *argument) {
    const struct many *const many = argument;
    for (size_t i = 0; i < many->count; i++) {
        counted_free(many->blocks[i]);
    }
}

// ---- Every class at once ------------------------------------------------------------------------

// Fills slabs of all classes in turn, so that they become full, and are made, close together.
static size_t fill_in_turn(void **blocks, size_t bytes) {
    size_t count = 0;
    for (size_t filled = 0; filled < bytes;) {
        for (size_t s = 0; s < SIZES; s++) {
            const size_t size = size_number(s);
            for (size_t part = 0; part <= 16 * KIB; part += size) {
                blocks[count++] = counted_malloc(size);
                filled += size;
            }
        }
    }
    return count;
}

void adversary_bursts(void) {
    enum { MOST = 300000 };
    const size_t bytes = 40 * MIB;
    void **const blocks = array_make(MOST);
    phase("every class in turn", false);
    for (unsigned round = 0; round < 4; round++) {
        const size_t count = fill_in_turn(blocks, bytes);
        array_shuffle(blocks, count);
        struct many half = {blocks, count / 2};
        if (round % 2 == 0) { // others free half of it, in every slab
            thread_run(many_free, &half);
        } else {
            many_free(&half);
        }
        size_t more = 0;
        for (size_t s = SIZES; s > 0; s--) { // and each class needs something now
            for (unsigned i = 0; i < 40; i++) {
                blocks[count + more++] = counted_malloc(size_number(s - 1));
            }
        }
        struct many rest = {blocks + count / 2, count - count / 2};
        many_free(&(struct many){blocks + count, more});
        many_free(&rest);
    }
    array_drop(blocks, MOST);
}

// ---- Ends of threads, with millions of blocks ---------------------------------------------------

struct leaver {
    struct many many;
    size_t size;
    pthread_barrier_t filled;
    pthread_barrier_t end;
};

static void *leaver_begin(void *argument) {
    struct leaver *const leaver = argument;
    for (size_t i = 0; i < leaver->many.count; i++) {
        leaver->many.blocks[i] = counted_malloc(leaver->size + i % 3 * 16);
    }
    pthread_barrier_wait(&leaver->filled);
    pthread_barrier_wait(&leaver->end);
    CALLCOST_REQUEST(CALLCOST_UNTIL_END, CALLCOST_THREAD_END, 0);
    return NULL;
}

void adversary_exits(void) {
    enum { COUNT = 1000000 };
    phase("millions of blocks of a thread that ends", false);
    struct leaver leaver = {.many = {array_make(COUNT), COUNT}, .size = 16};
    void **const blocks = leaver.many.blocks;
    pthread_t thread;
    pthread_barrier_init(&leaver.filled, NULL, 2);
    pthread_barrier_init(&leaver.end, NULL, 2);
    if (thread_create(&thread, leaver_begin, &leaver) != 0) {
        abort();
    }
    pthread_barrier_wait(&leaver.filled);
    array_shuffle(blocks, COUNT);
    many_free(&(struct many){blocks, COUNT / 2}); // asleep
    pthread_barrier_wait(&leaver.end);
    pthread_join(thread, NULL);
    // Others take over what is left while it is being freed.
    for (size_t i = COUNT / 2; i < COUNT; i++) {
        counted_free(blocks[i]);
        if (i % 50 == 0) {
            blocks[i / 50] = counted_malloc(16 + i % 1000);
        }
    }
    for (size_t i = COUNT / 2 / 50; i < COUNT / 50; i++) {
        counted_free(blocks[i]);
    }
    array_drop(blocks, COUNT);
}

// ---- Given back in between ----------------------------------------------------------------------

void adversary_trims(void) {
    enum { COUNT = 20000 };
    void **const blocks = array_make(COUNT);
    phase("trimmed in between", false);
    for (unsigned round = 0; round < 6; round++) {
        for (size_t i = 0; i < COUNT; i++) {
            const size_t size = size_number((i * 7 + round) % (SIZES - 4)) / (i % 9 == 0 ? 1 : 8) + 8;
            blocks[i] = counted_malloc(size);
        }
        array_shuffle(blocks, COUNT);
        for (size_t i = 0; i < COUNT; i += 2) {
            counted_free(blocks[i]);
        }
        malloc_trim(0);
        for (size_t i = 0; i < COUNT; i += 2) { // into slabs whose pages are gone
            blocks[i] = counted_calloc(1, size_number(i % SIZES) / 4 + 8);
        }
        for (size_t i = 0; i < COUNT; i++) {
            counted_free(blocks[i]);
        }
        malloc_trim(0);
    }
    array_drop(blocks, COUNT);
}

// ---- From kind to kind --------------------------------------------------------------------------

void adversary_resizes(void) {
    enum { LIVE = 200 };
    static const size_t kinds[] = {40,       900,      3000,     9000,    30000,   64 * KIB,
                                   70 * KIB, 700 * KIB, 1 * MIB, 2 * MIB, 3 * MIB, 9 * MIB};
    enum { KINDS = sizeof kinds / sizeof kinds[0] };
    void **const blocks = array_make(LIVE);
    phase("realloc from kind to kind", false);
    for (size_t i = 0; i < LIVE; i++) {
        blocks[i] = counted_malloc(64);
    }
    for (size_t round = 0; round < scaled(12000); round++) {
        const size_t i = random_below(LIVE);
        const size_t size = kinds[random_below(round % 20 == 0 ? KINDS : KINDS - 4)];
        blocks[i] = counted_realloc(blocks[i], size + random_below(size / 4));
        if (round % 5 == 0) {
            const size_t alignment = (size_t)16 << random_below(12);
            counted_free(counted_aligned(alignment, alignment * 3 + 1 + random_below(5000)));
        }
    }
    phase("blocks of another thread, resized", false);
    many_free(&(struct many){blocks, LIVE});
    for (unsigned round = 0; round < 6; round++) {
        struct leaver leaver = {.many = {blocks, LIVE}, .size = kinds[round * 2]};
        pthread_t thread;
        pthread_barrier_init(&leaver.filled, NULL, 2);
        pthread_barrier_init(&leaver.end, NULL, 2);
        if (thread_create(&thread, leaver_begin, &leaver) != 0) {
            abort();
        }
        pthread_barrier_wait(&leaver.filled);
        for (size_t i = 0; i < LIVE / 2; i++) { // it sleeps
            blocks[i] = counted_realloc(blocks[i], leaver.size * 3 + i);
        }
        pthread_barrier_wait(&leaver.end);
        pthread_join(thread, NULL);
        for (size_t i = LIVE / 2; i < LIVE; i++) { // it has ended
            blocks[i] = counted_realloc(blocks[i], leaver.size * 3 + i);
        }
        many_free(&(struct many){blocks, LIVE});
    }
    array_drop(blocks, LIVE);
}

// Nothing but moves: every block of one kind becomes one of another, in a row, so that no other
// call can do what they leave; then from many kinds into one, and each class with its slab full.
static void move_all(void **blocks, size_t count, size_t from, size_t to) {
    for (size_t i = 0; i < count; i++) {
        blocks[i] = counted_malloc(from + i % 7 * (from / 16));
    }
    array_shuffle(blocks, count);
    for (size_t i = 0; i < count; i++) {
        blocks[i] = counted_realloc(blocks[i], to + i % 5 * (to / 16));
    }
    array_shuffle(blocks, count);
    many_free(&(struct many){blocks, count});
}

void adversary_moves(void) {
    enum { COUNT = 70, CLASSES = SIZES };
    static const size_t kinds[] = {24,       600,       5000,           11000,   30000,   52000,
                                   70 * KIB, 700 * KIB, 1100 * KIB,     3 * MIB, 12 * MIB};
    enum { KINDS = sizeof kinds / sizeof kinds[0] };
    void **const blocks = array_make(COUNT + CLASSES * 1100);
    phase("moves in a row", false);
    for (size_t from = 0; from < KINDS; from++) {
        for (size_t to = 0; to < KINDS; to++) {
            if (from != to) {
                move_all(blocks, COUNT, kinds[from], kinds[to]);
            }
        }
    }
    phase("moves into each class in turn", false);
    for (size_t from = KINDS - 5; from < KINDS; from++) {
        for (unsigned round = 0; round < 40; round++) {
            size_t count = 0;
            for (size_t s = 0; s < SIZES; s++) {
                blocks[count++] = counted_malloc(kinds[from] + s * 4 * KIB);
            }
            for (size_t s = 0; s < SIZES; s++) {
                blocks[s] = counted_realloc(blocks[s], size_number(SIZES - 1 - s));
            }
            for (size_t s = 0; s < SIZES; s++) { // some stay, so that a class's slab is full in some round
                for (size_t i = 0; i < 1 + random_below(9); i++) {
                    blocks[count++] = counted_malloc(size_number(s));
                }
            }
            array_shuffle(blocks, count);
            many_free(&(struct many){blocks, count - SIZES});
            many_free(&(struct many){blocks + count - SIZES, round % 4 == 0 ? SIZES : SIZES / 2});
        }
    }
    array_drop(blocks, COUNT + CLASSES * 1100);
}
