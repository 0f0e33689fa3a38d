// SPDX-License-Identifier: MIT
// The worker that sh6bench and sh8bench share; see there for source and meaning.
//
// Owns     one wave array per worker, one mailbox per worker.
// Threads  a mailbox is filled by one neighbour and emptied by its owner, under its lock.
// Holds    the waves are shared out over the threads.

#ifndef MALLOW_BENCH_SH_WAVES_H
#define MALLOW_BENCH_SH_WAVES_H

#include "common.h"

enum { WAVE_BLOCKS = 1000, SIZE_STEPS = 64, MAILBOX = 4096 };

struct wave_block {
    unsigned char *address;
    size_t size;
};

struct mailbox {
    pthread_mutex_t lock;
    struct wave_block blocks[MAILBOX];
    size_t count;
};

struct waver {
    uint64_t waves;
    struct mailbox *own; // NULL: nothing is handed over
    struct mailbox *neighbour;
    uint64_t seed;
};

static struct wave_block wave_take(size_t size) {
    struct wave_block block = {(unsigned char *)bench_malloc(size), size};
    bench_stamp(block.address, size);
    return block;
}

static void wave_free(struct wave_block *block) {
    if (block->address != NULL) {
        bench_check(block->address, block->size);
        free(block->address);
        block->address = NULL;
    }
}

static void wave_empty_mailbox(struct mailbox *box) {
    struct wave_block taken[MAILBOX];
    pthread_mutex_lock(&box->lock);
    const size_t count = box->count;
    memcpy(taken, box->blocks, count * sizeof taken[0]);
    box->count = 0;
    pthread_mutex_unlock(&box->lock);
    for (size_t i = 0; i < count; i++) {
        wave_free(&taken[i]);
    }
}

static void wave_hand_over(struct mailbox *box, struct wave_block *blocks, size_t count) {
    pthread_mutex_lock(&box->lock);
    for (size_t i = 0; i < count && box->count < MAILBOX; i++) {
        box->blocks[box->count++] = blocks[i];
        blocks[i].address = NULL;
    }
    pthread_mutex_unlock(&box->lock);
}

// One wave: for every size step a run of blocks, fewer the larger they are; then the first quarter
// is freed from its front, the third quarter from its back, and the rest, at the end, from the back.
static void wave_run(struct waver *self, struct wave_block *blocks) {
    for (size_t step = 1; step <= SIZE_STEPS; step++) {
        const size_t count = WAVE_BLOCKS / (1 + step / 8);
        for (size_t i = 0; i < count; i++) {
            const size_t spread = 1 + bench_below(&self->seed, 8);
            blocks[i] = wave_take(step * 8 - 8 + spread);
        }
        if (self->own != NULL && step % 4 == 0) {
            wave_hand_over(self->neighbour, blocks + count / 4, count / 4);
        }
        for (size_t i = 0; i < count / 4; i++) {
            wave_free(&blocks[i]);
        }
        for (size_t i = count / 4 * 3; i-- > count / 2;) {
            wave_free(&blocks[i]);
        }
        for (size_t i = count; i-- > 0;) {
            wave_free(&blocks[i]);
        }
        if (self->own != NULL) {
            wave_empty_mailbox(self->own);
        }
    }
}

static void *wave_work(void *argument) {
    struct waver *const self = (struct waver *)argument;
    struct wave_block *const blocks =
        (struct wave_block *)bench_calloc(WAVE_BLOCKS, sizeof *blocks);
    struct wave_block *const core = (struct wave_block *)bench_calloc(WAVE_BLOCKS, sizeof *core);
    for (uint64_t wave = 0; wave < self->waves; wave++) {
        for (size_t i = 0; i < WAVE_BLOCKS / 10; i++) { // a tenth of the core is renewed
            struct wave_block *const old = &core[bench_below(&self->seed, WAVE_BLOCKS)];
            wave_free(old);
            *old = wave_take(1 + bench_below(&self->seed, 500));
        }
        wave_run(self, blocks);
    }
    for (size_t i = 0; i < WAVE_BLOCKS; i++) {
        wave_free(&core[i]);
    }
    free(core);
    free(blocks);
    return NULL;
}

static int waves_main(int argc, char **argv, bool hand_over) {
    uint64_t threads = hand_over ? 2 : 1;
    uint64_t waves = 2000;
    const struct bench_option table[] = {
        {"threads", &threads, "threads"},
        {"waves", &waves, "waves in all"},
    };
    BENCH_OPTIONS(argc, argv, table);
    if (threads == 0 || threads > BENCH_THREADS_MAX) {
        bench_fail("threads must be 1 to %d", BENCH_THREADS_MAX);
    }

    struct waver *const items = (struct waver *)bench_calloc(threads, sizeof *items);
    struct mailbox *const boxes = (struct mailbox *)bench_calloc(threads, sizeof *boxes);
    for (uint64_t i = 0; i < threads; i++) {
        pthread_mutex_init(&boxes[i].lock, NULL);
        items[i].waves = waves / threads;
        items[i].own = hand_over ? &boxes[i] : NULL;
        items[i].neighbour = &boxes[(i + 1) % threads];
        items[i].seed = i;
    }
    const uint64_t start = bench_now_ns();
    bench_parallel(wave_work, items, sizeof items[0], threads);
    for (uint64_t i = 0; i < threads; i++) {
        wave_empty_mailbox(&boxes[i]);
    }
    bench_score((double)(bench_now_ns() - start) / 1e9, "s");
    free(boxes);
    free(items);
    return 0;
}

#endif
