// SPDX-License-Identifier: MIT
// 100,000 threads are born and die, a few at a time. Each allocates, gives most of it back and
// leaves some blocks to threads born later, which free them: heaps of dead threads must be reused,
// or memory grows with the number of threads that ever lived.
//
// Source   own program, after the thread-exit complaints in the trackers of several allocators.
// Checks   both ends of every block; RSS is printed at each quarter of the way.

#include "common.h"

enum { SURVIVORS = 2048, BLOCKS = 24, LEFT_BY_EACH = 4, WIDTH_MAX = 64 };

struct survivor {
    void *block;
    size_t size;
};

struct shared {
    pthread_mutex_t lock;
    struct survivor ring[SURVIVORS];
    uint64_t next;
};

struct worker {
    struct shared *shared;
    uint64_t seed;
};

static void leave(struct shared *shared, void *block, size_t size) {
    pthread_mutex_lock(&shared->lock);
    struct survivor *const place = &shared->ring[shared->next++ % SURVIVORS];
    const struct survivor before = *place;
    *place = (struct survivor){block, size};
    pthread_mutex_unlock(&shared->lock);
    if (before.block != NULL) {
        bench_check(before.block, before.size);
        free(before.block);
    }
}

static void *live_and_die(void *argument) {
    struct worker *const worker = argument;
    struct survivor own[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        own[i].size = bench_between(&worker->seed, 8, i % 8 == 0 ? 4096 : 256);
        own[i].block = bench_malloc(own[i].size);
        bench_stamp(own[i].block, own[i].size);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        if (i < LEFT_BY_EACH) {
            leave(worker->shared, own[i].block, own[i].size);
        } else {
            bench_check(own[i].block, own[i].size);
            free(own[i].block);
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    uint64_t total = 100000;
    uint64_t width = 8;
    const struct bench_option table[] = {
        {"threads", &total, "threads in all"},
        {"width", &width, "threads alive at once"},
    };
    BENCH_OPTIONS(argc, argv, table);
    if (width == 0 || width > WIDTH_MAX) {
        bench_fail("width must be 1 to %d", WIDTH_MAX);
    }

    static struct shared shared = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct worker workers[WIDTH_MAX];
    uint64_t born = 0;
    uint64_t quarter = 1;
    const uint64_t start = bench_now_ns();
    while (born < total) {
        for (uint64_t i = 0; i < width; i++) {
            workers[i] = (struct worker){&shared, born + i};
        }
        bench_parallel(live_and_die, workers, sizeof workers[0], width);
        born += width;
        if (born * 4 >= total * quarter) {
            printf("after %" PRIu64 " threads: RSS %.2f MiB\n", born, bench_mb(bench_rss_bytes()));
            quarter++;
        }
    }
    const double taken = (double)(bench_now_ns() - start) / 1e3 / (double)born;
    for (size_t i = 0; i < SURVIVORS; i++) {
        free(shared.ring[i].block);
    }
    bench_score(taken, "us/thread");
    return 0;
}
