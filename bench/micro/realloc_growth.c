// SPDX-License-Identifier: MIT
// One block grows by half its size, from 4 KiB to 749 MiB in 30 steps, as a vector does that is
// filled; every new byte is written. An allocator that copies needs both blocks at once, so the
// peak tells how it grows.
//
// Source   own program; the growth row of the usual vector benchmarks.
// Checks   a mark in every 64 KiB survives all moves.

#include "common.h"

enum { STRIDE = 65536 };

static void fill(unsigned char *block, size_t from, size_t to) {
    memset(block + from, 0x5a, to - from);
    for (size_t at = (from + STRIDE - 1) / STRIDE * STRIDE; at + 8 <= to; at += STRIDE) {
        memcpy(block + at, &at, sizeof at);
    }
}

static void verify(const unsigned char *block, size_t size) {
    for (size_t at = 0; at + 8 <= size; at += STRIDE) {
        size_t mark;
        memcpy(&mark, block + at, sizeof mark);
        if (mark != at) {
            bench_fail("the mark at %zu of %zu bytes is lost", at, size);
        }
    }
}

int main(int argc, char **argv) {
    uint64_t steps = 30;
    uint64_t rounds = 2;
    const struct bench_option table[] = {
        {"steps", &steps, "steps of x1.5 from 4 KiB"},
        {"rounds", &rounds, "times the block grows anew"},
    };
    BENCH_OPTIONS(argc, argv, table);

    const uint64_t start = bench_cpu_ns();
    size_t size = 0;
    for (uint64_t round = 0; round < rounds; round++) {
        size = 4096;
        unsigned char *block = bench_malloc(size);
        fill(block, 0, size);
        for (uint64_t step = 0; step < steps; step++) {
            const size_t grown = size + size / 2;
            block = bench_realloc(block, grown);
            fill(block, size, grown);
            size = grown;
        }
        verify(block, size);
        free(block);
    }
    const double taken = (double)(bench_cpu_ns() - start) / 1e6 / (double)rounds;
    printf("block %.1f MiB, peak RSS %.1f MiB, CPU %.1f ms a round\n", bench_mb(size),
           bench_mb(bench_peak_rss_bytes()), taken);
    bench_score(bench_mb(bench_peak_rss_bytes()), "MiB_peak");
    return 0;
}
