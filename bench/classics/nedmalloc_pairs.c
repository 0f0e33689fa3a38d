// SPDX-License-Identifier: MIT
// nedmalloc's figure: pairs of malloc and free per second, one thread and several, with random sizes
// below 8 KiB over a table of records of which a random one is freed or filled in each step.
//
// Source   the nedmalloc pages of Niall Douglas, which state 7.3 to 8.2 million pairs a second with one
//          thread on an Athlon 64 of 2.2 GHz, 4 to 10 times FreeBSD 6's malloc, 125 times Windows XP's;
//          own program in the form of that statement.
// Checks   both ends of every block.

#include "common.h"

enum { SIZE_LIMIT = 8192 };

struct job {
    uint64_t steps;
    uint64_t records;
    uint64_t seed;
};

static void *work(void *argument) {
    struct job *const job = argument;
    struct record {
        void *block;
        size_t size;
    } *const records = bench_calloc(job->records, sizeof *records);
    for (uint64_t step = 0; step < job->steps; step++) {
        struct record *const record = &records[bench_below(&job->seed, job->records)];
        if (record->block != NULL) {
            bench_check(record->block, record->size);
            free(record->block);
            record->block = NULL;
        } else {
            // two thirds below 256 bytes, the rest up to the limit
            const uint64_t r = bench_random(&job->seed);
            record->size = 1 + ((r >> 8) % (r % 3 == 0 ? SIZE_LIMIT - 1 : 255));
            record->block = bench_malloc(record->size);
            bench_stamp(record->block, record->size);
        }
    }
    for (uint64_t i = 0; i < job->records; i++) {
        free(records[i].block);
    }
    free(records);
    return NULL;
}

static double pairs_per_second(uint64_t threads, uint64_t pairs, uint64_t records) {
    static struct job jobs[BENCH_THREADS_MAX];
    for (uint64_t i = 0; i < threads; i++) {
        jobs[i] = (struct job){pairs * 2 / threads, records / threads, i};
    }
    const uint64_t start = bench_now_ns();
    bench_parallel(work, jobs, sizeof jobs[0], threads);
    return (double)pairs / ((double)(bench_now_ns() - start) / 1e9);
}

int main(int argc, char **argv) {
    uint64_t pairs = 10000000;
    uint64_t records = 2000;
    const struct bench_option table[] = {
        {"pairs", &pairs, "pairs of malloc and free of each row"},
        {"records", &records, "records, over all threads"},
    };
    BENCH_OPTIONS(argc, argv, table);
    if (records < 8) {
        bench_fail("records must be at least 8");
    }

    const double one = pairs_per_second(1, pairs, records);
    const double two = pairs_per_second(2, pairs, records);
    const double five = pairs_per_second(5, pairs, records);
    bench_figure("threads_1", one / 1e6, "Mpairs/s");
    bench_figure("threads_2", two / 1e6, "Mpairs/s");
    bench_figure("threads_5", five / 1e6, "Mpairs/s");
    bench_score(one / 1e6, "Mpairs/s");
    return 0;
}
