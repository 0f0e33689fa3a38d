// SPDX-License-Identifier: MIT
// Producers allocate, consumers free: no block is ever freed by the thread that made it. Batches of
// blocks travel through one bounded queue.
//
// Source   C. Lever, D. Boreham: "malloc() Performance in a Multithreaded Linux Environment",
//          USENIX Annual Technical Conference 2000, and the description of xmalloc-test in the
//          Rockall and mimalloc suites; written from those.
// Checks   both ends of every block. One thread alone plays both parts in turn.

#include "common.h"

enum { BATCH = 1024, QUEUE_BATCHES = 16 };

struct batch {
    void *blocks[BATCH];
    size_t sizes[BATCH];
};

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t has_room;
    pthread_cond_t has_batch;
    struct batch *batches[QUEUE_BATCHES];
    size_t first, count;
};

struct party {
    struct queue *queue;
    uint64_t batches;
    uint64_t seed;
    uint64_t least, most;
};

static void queue_put(struct queue *queue, struct batch *batch) {
    pthread_mutex_lock(&queue->lock);
    while (queue->count == QUEUE_BATCHES) {
        pthread_cond_wait(&queue->has_room, &queue->lock);
    }
    queue->batches[(queue->first + queue->count++) % QUEUE_BATCHES] = batch;
    pthread_cond_signal(&queue->has_batch);
    pthread_mutex_unlock(&queue->lock);
}

static struct batch *queue_take(struct queue *queue) {
    pthread_mutex_lock(&queue->lock);
    while (queue->count == 0) {
        pthread_cond_wait(&queue->has_batch, &queue->lock);
    }
    struct batch *const batch = queue->batches[queue->first];
    queue->first = (queue->first + 1) % QUEUE_BATCHES;
    queue->count--;
    pthread_cond_signal(&queue->has_room);
    pthread_mutex_unlock(&queue->lock);
    return batch;
}

static struct batch *make_batch(struct party *party) {
    struct batch *const batch = bench_malloc(sizeof *batch);
    for (size_t i = 0; i < BATCH; i++) {
        batch->sizes[i] = bench_between(&party->seed, party->least, party->most);
        batch->blocks[i] = bench_malloc(batch->sizes[i]);
        bench_stamp(batch->blocks[i], batch->sizes[i]);
    }
    return batch;
}

static void drop_batch(struct batch *batch) {
    for (size_t i = 0; i < BATCH; i++) {
        bench_check(batch->blocks[i], batch->sizes[i]);
        free(batch->blocks[i]);
    }
    free(batch);
}

static void *produce(void *argument) {
    struct party *const party = argument;
    for (uint64_t i = 0; i < party->batches; i++) {
        queue_put(party->queue, make_batch(party));
    }
    return NULL;
}

static void *consume(void *argument) {
    struct party *const party = argument;
    for (uint64_t i = 0; i < party->batches; i++) {
        drop_batch(queue_take(party->queue));
    }
    return NULL;
}

int main(int argc, char **argv) {
    uint64_t threads = 2;
    uint64_t total = 30000000;
    uint64_t least = 16;
    uint64_t most = 256;
    const struct bench_option table[] = {
        {"threads", &threads, "threads; half of them allocate, half free"},
        {"blocks", &total, "blocks in all"},
        {"least", &least, "smallest block"},
        {"most", &most, "largest block"},
    };
    BENCH_OPTIONS(argc, argv, table);
    const uint64_t pairs = threads < 2 ? 1 : threads / 2;
    const uint64_t batches = total / BATCH / pairs;
    if (pairs * 2 > BENCH_THREADS_MAX) {
        bench_fail("at most %d threads", BENCH_THREADS_MAX);
    }

    static struct queue queue = {PTHREAD_MUTEX_INITIALIZER,
                                 PTHREAD_COND_INITIALIZER,
                                 PTHREAD_COND_INITIALIZER,
                                 {NULL},
                                 0,
                                 0};
    static struct party parties[BENCH_THREADS_MAX];
    static pthread_t handles[BENCH_THREADS_MAX];
    const uint64_t start = bench_now_ns();
    if (threads < 2) {
        struct party alone = {&queue, batches, 0, least, most};
        for (uint64_t i = 0; i < batches; i++) {
            drop_batch(make_batch(&alone));
        }
    } else {
        for (uint64_t i = 0; i < pairs * 2; i++) {
            parties[i] = (struct party){&queue, batches, i, least, most};
            handles[i] = bench_thread(i % 2 == 0 ? produce : consume, &parties[i]);
        }
        for (uint64_t i = 0; i < pairs * 2; i++) {
            pthread_join(handles[i], NULL);
        }
    }
    const double taken = (double)(bench_now_ns() - start) / 1e9;
    bench_score((double)(batches * pairs * BATCH) / taken / 1e6, "Mblocks/s");
    return 0;
}
