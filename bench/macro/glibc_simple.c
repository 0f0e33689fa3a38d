// SPDX-License-Identifier: MIT
// Blocks of one size, N at a time, all allocated, then freed in the same order; for several N; first
// in a process with one thread, then with a second thread in existence, then from a second thread.
//
// Source   glibc's benchtests "malloc-simple" as its comments describe it: the three cases and the
//          numbers of blocks; own program.
// Checks   both ends of every block.

#include "common.h"

enum { BLOCKS_MAX = 1600 };

static const unsigned block_counts[] = {25, 100, 400, 1600};

struct job {
    uint64_t size;
    uint64_t pairs; // for each number of blocks
    double ns[BENCH_COUNT(block_counts)];
};

static double run(uint64_t size, uint64_t pairs, unsigned block_count) {
    void *blocks[BLOCKS_MAX];
    const uint64_t rounds = pairs / block_count;
    const uint64_t start = bench_now_ns();
    for (uint64_t round = 0; round < rounds; round++) {
        for (unsigned i = 0; i < block_count; i++) {
            blocks[i] = bench_malloc(size);
            bench_stamp(blocks[i], size);
        }
        for (unsigned i = 0; i < block_count; i++) {
            bench_check(blocks[i], size);
            free(blocks[i]);
        }
    }
    return (double)(bench_now_ns() - start) / (double)(rounds * block_count);
}

static void *run_all(void *argument) {
    struct job *const job = argument;
    for (size_t i = 0; i < BENCH_COUNT(block_counts); i++) {
        job->ns[i] = run(job->size, job->pairs, block_counts[i]);
    }
    return NULL;
}

static void *wait_for_release(void *argument) {
    pthread_mutex_lock(argument);
    pthread_mutex_unlock(argument);
    return NULL;
}

static double print(const char *name, const struct job *job) {
    double sum = 0;
    printf("%-28s", name);
    for (size_t i = 0; i < BENCH_COUNT(block_counts); i++) {
        printf("  %4u: %6.2f", block_counts[i], job->ns[i]);
        sum += job->ns[i];
    }
    printf("  ns/pair\n");
    return sum / (double)BENCH_COUNT(block_counts);
}

int main(int argc, char **argv) {
    uint64_t size = 128;
    uint64_t pairs = 10000000;
    const struct bench_option table[] = {
        {"size", &size, "bytes of each block"},
        {"pairs", &pairs, "pairs of each of the twelve cells"},
    };
    BENCH_OPTIONS(argc, argv, table);

    struct job alone = {.size = size, .pairs = pairs}, beside = alone, second = alone;
    run_all(&alone);

    pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&held);
    const pthread_t idle = bench_thread(wait_for_release, &held);
    run_all(&beside);
    pthread_mutex_unlock(&held);
    pthread_join(idle, NULL);

    const pthread_t worker = bench_thread(run_all, &second);
    pthread_join(worker, NULL);

    const double sum = print("main thread, alone", &alone) +
                       print("main thread, second exists", &beside) +
                       print("second thread", &second);
    bench_score(sum / 3, "ns/pair");
    return 0;
}
