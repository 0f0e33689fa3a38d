// SPDX-License-Identifier: MIT
// Adversary, several threads: frees by others, ends of threads, heaps handed on.
//
// Threads take turns at barriers: what is counted is one call's own work, and every run the same.
#include "adversary.h"

#include <pthread.h>
#include <stdlib.h>

struct blocks {
    void **array;
    size_t count;
    size_t size;
};

static struct blocks blocks_make(size_t bytes, size_t size) {
    const size_t count = scaled(bytes / size + 1);
    return (struct blocks){array_make(count), count, size};
}

static void blocks_fill(void *argument) {
    struct blocks *const blocks = argument;
    for (size_t i = 0; i < blocks->count; i++) {
        blocks->array[i] = counted_malloc(blocks->size);
    }
}

static void blocks_free(void *argument) {
    struct blocks *const blocks = argument;
    for (size_t i = 0; i < blocks->count; i++) {
        counted_free(blocks->array[i]);
    }
}

// Frees one in so many, so that each slab has something to be collected.
static void blocks_thin(struct blocks *blocks, size_t stride) {
    size_t kept = 0;
    for (size_t i = 0; i < blocks->count; i++) {
        if (i % stride == 0) {
            counted_free(blocks->array[i]);
        } else {
            blocks->array[kept++] = blocks->array[i];
        }
    }
    blocks->count = kept;
}

// ---- The owner lives, others free ---------------------------------------------------------------

static void free_and_refill(size_t size, unsigned order) {
    struct blocks blocks = blocks_make((size_t)6 << 20, size);
    const size_t count = blocks.count;
    blocks_fill(&blocks);
    if (order != 0) {
        array_shuffle(blocks.array, blocks.count);
    }
    if (order == 2) { // a few blocks of every slab come back, the rest stays
        struct blocks part = {blocks.array, blocks.count / 3, size};
        thread_run(blocks_free, &part);
        blocks_fill(&part);
    }
    thread_run(blocks_free, &blocks);
    // The owner's next calls, of this size and of others.
    counted_free(counted_malloc(size * 2));
    blocks_fill(&blocks);
    blocks_free(&blocks);
    array_drop(blocks.array, count);
}

void adversary_remote(void) {
    static const size_t sizes[] = {16, 64, 200, 1024, 8192, 30000};
    phase("frees by another thread", false);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (unsigned order = 0; order < 3; order++) {
            free_and_refill(sizes[i], order);
        }
    }
}

// ---- The owner ends -----------------------------------------------------------------------------

// Many slabs of a thread that has ended, nearly all with frees of others to be collected.
static void end_with_posts(size_t size, size_t stride) {
    struct blocks blocks = blocks_make((size_t)48 << 20, size);
    const size_t count = blocks.count;
    thread_run(blocks_fill, &blocks);
    blocks_thin(&blocks, stride);
    array_shuffle(blocks.array, blocks.count);
    struct blocks part = {blocks.array, blocks.count / 2, size};
    blocks_free(&part);
    struct blocks rest = {blocks.array + part.count, blocks.count - part.count, size};
    thread_run(blocks_free, &rest);
    array_drop(blocks.array, count);
}

// The owner sleeps while others free into thousands of its slabs, and then ends.
struct sleeper {
    struct blocks blocks;
    pthread_barrier_t filled;
    pthread_barrier_t freed;
};

static void sleeper_body(void *argument) {
    struct sleeper *const sleeper = argument;
    blocks_fill(&sleeper->blocks);
    pthread_barrier_wait(&sleeper->filled);
    pthread_barrier_wait(&sleeper->freed);
}

static void *sleeper_begin(void *argument) {
    sleeper_body(argument);
    CALLCOST_REQUEST(CALLCOST_UNTIL_END, CALLCOST_THREAD_END, 0);
    return NULL;
}

static void end_asleep(size_t size, size_t stride) {
    struct sleeper sleeper = {.blocks = blocks_make((size_t)80 << 20, size)};
    const size_t count = sleeper.blocks.count;
    pthread_t thread;
    pthread_barrier_init(&sleeper.filled, NULL, 2);
    pthread_barrier_init(&sleeper.freed, NULL, 2);
    if (thread_create(&thread, sleeper_begin, &sleeper) != 0) {
        abort();
    }
    pthread_barrier_wait(&sleeper.filled);
    blocks_thin(&sleeper.blocks, stride); // every slab is posted
    pthread_barrier_wait(&sleeper.freed);
    pthread_join(thread, NULL);
    // A single free, by a thread that never allocated: it may not have to pay for all of them.
    array_shuffle(sleeper.blocks.array, sleeper.blocks.count);
    struct blocks first = {sleeper.blocks.array, 20, size};
    thread_run(blocks_free, &first);
    struct blocks next = {sleeper.blocks.array + 20, 200, size};
    blocks_free(&next);
    // Running threads take slabs over, of this size and of another.
    counted_free(counted_malloc(size));
    counted_free(counted_malloc(size / 2));
    struct blocks rest = {sleeper.blocks.array + 220, sleeper.blocks.count - 220, size};
    blocks_free(&rest);
    array_drop(sleeper.blocks.array, count);
}

void adversary_abandoned(void) {
    phase("thread ends, others free its blocks", false);
    end_with_posts(3000, 7);
    end_with_posts(40000, 3);
    phase("thread asleep, others free, it ends", false);
    end_asleep(4096, 16);
    end_asleep(8192, 8);
    end_asleep(20000, 3);
}

// ---- First calls, and many heaps ----------------------------------------------------------------

static void thread_first(void *argument) {
    (void)argument;
    counted_free(counted_malloc(24));
}

static void thread_mixed(void *argument) {
    struct blocks *const kept = argument;
    for (size_t i = 0; i < kept->count; i++) {
        kept->array[i] = counted_malloc(16 + i * 37 % 3000);
        void *const other = counted_malloc(16 + i * 53 % 9000);
        counted_free(other);
    }
}

void adversary_threads(void) {
    enum { THREADS = 40, KEPT = 400 };
    phase("first call of a thread", false);
    for (unsigned i = 0; i < THREADS; i++) {
        thread_run(thread_first, NULL);
    }
    phase("threads that end with blocks live", false);
    void **const array = array_make((size_t)THREADS * KEPT);
    for (unsigned i = 0; i < THREADS; i++) {
        struct blocks kept = {array + (size_t)i * KEPT, KEPT, 0};
        thread_run(thread_mixed, &kept);
    }
    array_shuffle(array, (size_t)THREADS * KEPT);
    struct blocks all = {array, (size_t)THREADS * KEPT, 0};
    blocks_free(&all);
    array_drop(array, (size_t)THREADS * KEPT);
}

// ---- All at once --------------------------------------------------------------------------------

enum { CROWD = 32, CROWD_BLOCKS = 300 };

struct crowd {
    pthread_barrier_t turn;
    void *blocks[CROWD][CROWD_BLOCKS];
};

struct member {
    struct crowd *crowd;
    unsigned index;
};

static void *crowd_begin(void *argument) {
    const struct member member = *(const struct member *)argument;
    struct crowd *const crowd = member.crowd;
    for (unsigned round = 0; round < 6; round++) {
        for (size_t i = 0; i < CROWD_BLOCKS; i++) {
            crowd->blocks[member.index][i] = counted_malloc(24 + (i * 89 + round * 31) % 5000);
        }
        pthread_barrier_wait(&crowd->turn);
        for (size_t i = 0; i < CROWD_BLOCKS; i++) { // each frees what another has made
            counted_free(crowd->blocks[(member.index + 1 + i % 5) % CROWD][i]);
        }
        pthread_barrier_wait(&crowd->turn);
    }
    CALLCOST_REQUEST(CALLCOST_UNTIL_END, CALLCOST_THREAD_END, 0);
    return NULL;
}

void adversary_contended(void) {
    static struct crowd crowd;
    static struct member members[CROWD];
    pthread_t threads[CROWD];
    phase("a crowd frees each other's blocks", false);
    pthread_barrier_init(&crowd.turn, NULL, CROWD);
    for (unsigned i = 0; i < CROWD; i++) {
        members[i] = (struct member){&crowd, i};
        if (thread_create(&threads[i], crowd_begin, &members[i]) != 0) {
            abort();
        }
    }
    for (unsigned i = 0; i < CROWD; i++) {
        pthread_join(threads[i], NULL);
    }
}

// ---- Threads that were, and a thread's first call of each kind ---------------------------------

enum { GONE = 64, GONE_BLOCKS = 60 };

// Leaves a heap with blocks of many classes, some of them freed by others.
static void gone_body(void *argument) {
    struct blocks *const kept = argument;
    for (size_t i = 0; i < kept->count; i++) {
        kept->array[i] = counted_malloc(24 + i * i * 13 % 60000);
    }
}

static void newcomer_body(void *argument) {
    const size_t kind = *(const size_t *)argument;
    static const size_t sizes[] = {1,     700,   3000,          9000,          30000,
                                   60000, 70000, (size_t)1 << 20, (size_t)3 << 20, (size_t)40 << 20};
    enum { SIZES = sizeof sizes / sizeof sizes[0] };
    const size_t size = sizes[kind % SIZES];
    void *block;
    switch (kind / SIZES % 4) {
    case 0:
        block = counted_malloc(size);
        break;
    case 1:
        block = counted_calloc(1, size);
        break;
    case 2:
        block = counted_realloc(NULL, size);
        break;
    default:
        block = counted_aligned((size_t)64 << (kind % 11), size);
    }
    block = counted_realloc(block, size / 3 + 8);
    counted_free(block);
    for (size_t i = 0; i < SIZES; i++) {
        counted_free(counted_malloc(sizes[(kind + i) % SIZES]));
    }
}

void adversary_newcomers(void) {
    enum { NEWCOMERS = 80 };
    void **const array = array_make((size_t)GONE * GONE_BLOCKS);
    phase("first calls of threads after many have ended", false);
    for (size_t i = 0; i < GONE; i++) {
        struct blocks kept = {array + i * GONE_BLOCKS, GONE_BLOCKS, 0};
        thread_run(gone_body, &kept);
    }
    array_shuffle(array, (size_t)GONE * GONE_BLOCKS);
    for (size_t i = 0; i < NEWCOMERS; i++) {
        thread_run(newcomer_body, &i);
        struct blocks part = {array + i * 40, 40, 0};
        if (i % 2 == 0) {
            blocks_free(&part);
        } else {
            thread_run(blocks_free, &part);
        }
    }
    struct blocks rest = {array + (size_t)NEWCOMERS * 40,
                          (size_t)GONE * GONE_BLOCKS - (size_t)NEWCOMERS * 40, 0};
    blocks_free(&rest);
    array_drop(array, (size_t)GONE * GONE_BLOCKS);
}

// ---- After a thread's last destructor of ours ---------------------------------------------------

enum { LEAVERS = 150, LEAVER_BLOCKS = 2000, LEAVER_CALLS = 150, LEAVER_ROUNDS = 4 };
static pthread_key_t leaver_key;
static void **leaver_blocks;

static void leaver_call(void) {
    void **const place = &leaver_blocks[random_below(LEAVER_BLOCKS)];
    const size_t size = ((size_t)16 << random_below(12)) + random_below(2000);
    if (*place != NULL) {
        counted_free(*place);
        *place = NULL;
        return;
    }
    switch (random_below(3)) {
    case 0:
        *place = counted_malloc(size);
        break;
    case 1:
        *place = counted_calloc(1, size);
        break;
    default:
        *place = counted_aligned(16, size);
    }
}

static void leaver_end(void *argument) {
    const uintptr_t round = (uintptr_t)argument;
    for (size_t i = 0; i < LEAVER_CALLS; i++) {
        leaver_call();
    }
    if (round < LEAVER_ROUNDS) {
        pthread_setspecific(leaver_key, (void *)(round + 1));
    }
}

static void *leaver_begin(void *argument) {
    leaver_call();
    pthread_setspecific(leaver_key, (void *)(uintptr_t)1);
    return argument;
}

// Threads whose destructors go on when the allocator's own has been called for the last time, while
// others free what they have left.
void adversary_leavers(void) {
    phase("destructors that allocate", false);
    leaver_blocks = array_make(LEAVER_BLOCKS);
    pthread_key_create(&leaver_key, leaver_end);
    for (size_t i = 0; i < scaled(LEAVERS); i++) {
        pthread_t thread;
        if (thread_create(&thread, leaver_begin, NULL) != 0 || pthread_join(thread, NULL) != 0) {
            abort();
        }
        for (size_t j = 0; j < LEAVER_CALLS; j++) {
            leaver_call();
        }
    }
    for (size_t i = 0; i < LEAVER_BLOCKS; i++) {
        counted_free(leaver_blocks[i]);
    }
    pthread_key_delete(leaver_key);
    array_drop(leaver_blocks, LEAVER_BLOCKS);
}
