// SPDX-License-Identifier: MIT
// Many short-lived threads, two at a time, each with a little heap of its own that it leaves behind
// half full: the other thread, or a later one, frees the rest. Memory must not grow.
//
// Source   the "mleak" workload as the mimalloc benchmark page describes it (threads that end must
//          not leak memory); own program.
// Checks   both ends of every block; RSS after the first and the second half is printed.

#include "common.h"

enum { HELD = 200 };

struct parcel {
    void *blocks[HELD];
    size_t sizes[HELD];
};

struct life {
    struct parcel *inherited;
    struct parcel *left;
    uint64_t seed;
};

static void drop(struct parcel *parcel) {
    for (size_t i = 0; parcel != NULL && i < HELD; i++) {
        bench_check(parcel->blocks[i], parcel->sizes[i]);
        free(parcel->blocks[i]);
    }
    free(parcel);
}

static void *live(void *argument) {
    struct life *const life = argument;
    drop(life->inherited);
    struct parcel *const parcel = bench_malloc(sizeof *parcel);
    for (size_t i = 0; i < HELD; i++) {
        void *const passing = bench_malloc(bench_between(&life->seed, 8, 2000));
        parcel->sizes[i] = bench_between(&life->seed, 8, 400);
        parcel->blocks[i] = bench_malloc(parcel->sizes[i]);
        bench_stamp(parcel->blocks[i], parcel->sizes[i]);
        bench_escape(passing);
        free(passing);
    }
    life->left = parcel;
    return NULL;
}

int main(int argc, char **argv) {
    uint64_t threads = 40000;
    const struct bench_option table[] = {{"threads", &threads, "threads in all"}};
    BENCH_OPTIONS(argc, argv, table);

    struct parcel *last[2] = {NULL, NULL};
    uint64_t middle = 0;
    const uint64_t start = bench_now_ns();
    for (uint64_t i = 0; i < threads; i += 2) {
        struct life lives[2] = {{last[1], NULL, i}, {last[0], NULL, i + 1}};
        bench_parallel(live, lives, sizeof lives[0], 2);
        last[0] = lives[0].left;
        last[1] = lives[1].left;
        if (middle == 0 && i >= threads / 2) {
            middle = bench_rss_bytes();
        }
    }
    const double taken = (double)(bench_now_ns() - start) / 1e3 / (double)threads;
    printf("RSS half-way %.2f MiB, at the end %.2f MiB\n", bench_mb(middle),
           bench_mb(bench_rss_bytes()));
    drop(last[0]);
    drop(last[1]);
    bench_score(taken, "us/thread");
    return 0;
}
