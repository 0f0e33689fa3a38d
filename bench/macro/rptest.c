// SPDX-License-Identifier: MIT
// Every thread allocates runs of blocks whose size falls linearly in likelihood, frees a scattered
// part itself and hands the rest to the next thread for freeing, round after round.
//
// Source   the description of rpmalloc's benchmark (Mattias Jansson, rpmalloc-benchmark: random sizes
//          with linear falloff, cross-thread deallocation); own program from that description.
// Checks   both ends of every block.
// Holds    the operations are shared out over the threads; at most INBOX_RUNS runs wait for a thread:
//          its predecessor empties its own inbox and yields until there is room.

#include "common.h"

#include <sched.h>
#include <stdatomic.h>

enum { RUN = 256, INBOX_RUNS = 2 };

struct run { // travels from thread to thread
    struct run *next;
    uint32_t count;
    void *blocks[RUN];
    uint32_t sizes[RUN];
};

struct inbox {
    _Alignas(64) _Atomic(struct run *) runs; // taken whole, by one exchange
    atomic_int waiting;
    atomic_bool closed; // its owner has ended: the sender frees what it would have sent
};

struct tester {
    uint64_t runs;
    uint64_t seed;
    uint64_t least, most;
    uint64_t keep; // own live blocks
    struct inbox *inbox;
    struct inbox *outbox;
};

// Likelihood falls linearly from `least` to `most`: the smaller of two uniform numbers.
static size_t falling_size(struct tester *self) {
    const uint64_t span = self->most - self->least + 1;
    const uint64_t a = bench_below(&self->seed, span);
    const uint64_t b = bench_below(&self->seed, span);
    return self->least + (a < b ? a : b);
}

static void release(void *block, size_t size) {
    bench_check(block, size);
    free(block);
}

static void drop(struct run *run) {
    for (uint32_t i = 0; i < run->count; i++) {
        release(run->blocks[i], run->sizes[i]);
    }
    free(run);
}

static void empty(struct inbox *inbox) {
    struct run *run = atomic_exchange_explicit(&inbox->runs, NULL, memory_order_acquire);
    int taken = 0;
    while (run != NULL) {
        struct run *const next = run->next;
        drop(run);
        run = next;
        taken++;
    }
    atomic_fetch_sub(&inbox->waiting, taken);
}

static void send(struct tester *self, struct run *run) {
    struct inbox *const outbox = self->outbox;
    while (atomic_load(&outbox->waiting) >= INBOX_RUNS && !atomic_load(&outbox->closed)) {
        empty(self->inbox);
        sched_yield();
    }
    if (atomic_load(&outbox->closed)) {
        drop(run);
        return;
    }
    atomic_fetch_add(&outbox->waiting, 1);
    run->next = atomic_load_explicit(&outbox->runs, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&outbox->runs, &run->next, run,
                                                  memory_order_release, memory_order_relaxed)) {
    }
}

static void *work(void *argument) {
    struct tester *const self = argument;
    void **const blocks = bench_calloc(self->keep, sizeof *blocks);
    size_t *const sizes = bench_calloc(self->keep, sizeof *sizes);
    for (uint64_t r = 0; r < self->runs; r++) {
        struct run *const run = bench_malloc(sizeof *run);
        run->count = 0;
        for (size_t i = 0; i < RUN * 2; i++) {
            const size_t place = bench_below(&self->seed, self->keep);
            if (blocks[place] != NULL && run->count < RUN && i % 2 == 0) {
                run->blocks[run->count] = blocks[place];
                run->sizes[run->count++] = (uint32_t)sizes[place];
            } else if (blocks[place] != NULL) {
                release(blocks[place], sizes[place]);
            }
            sizes[place] = falling_size(self);
            blocks[place] = bench_malloc(sizes[place]);
            bench_stamp(blocks[place], sizes[place]);
        }
        send(self, run);
        empty(self->inbox);
    }
    atomic_store(&self->inbox->closed, true);
    for (size_t i = 0; i < self->keep; i++) {
        if (blocks[i] != NULL) {
            release(blocks[i], sizes[i]);
        }
    }
    free(sizes);
    free(blocks);
    return NULL;
}

int main(int argc, char **argv) {
    uint64_t threads = 2;
    uint64_t runs = 20000;
    uint64_t least = 16;
    uint64_t most = 8000;
    uint64_t keep = 4000;
    const struct bench_option table[] = {
        {"threads", &threads, "threads"},
        {"runs", &runs, "runs of 512 operations in all"},
        {"least", &least, "smallest block"},
        {"most", &most, "largest block"},
        {"keep", &keep, "places for live blocks, over all threads"},
    };
    BENCH_OPTIONS(argc, argv, table);
    if (threads == 0 || threads > BENCH_THREADS_MAX || keep < threads) {
        bench_fail("threads must be 1 to %d, keep at least as many", BENCH_THREADS_MAX);
    }

    static struct tester items[BENCH_THREADS_MAX];
    static struct inbox boxes[BENCH_THREADS_MAX];
    for (uint64_t i = 0; i < threads; i++) {
        items[i] = (struct tester){
            runs / threads, i, least, most, keep / threads, &boxes[i], &boxes[(i + 1) % threads]};
    }
    const uint64_t start = bench_now_ns();
    bench_parallel(work, items, sizeof items[0], threads);
    for (uint64_t i = 0; i < threads; i++) {
        empty(&boxes[i]);
    }
    const double taken = (double)(bench_now_ns() - start) / 1e9;
    bench_score((double)(runs * RUN * 2) / taken / 1e6, "Mops/s");
    return 0;
}
