// SPDX-License-Identifier: MIT
// calloc and free of one size at once; the block is dirtied before it goes back, so that zeroing
// cannot be skipped.
//
// Source   own program; the calloc row of the usual pair tables.
// Checks   the block is zero at both ends and in the middle.

#include "common.h"

int main(int argc, char **argv) {
    uint64_t size = 64;
    uint64_t count = 80000000;
    const struct bench_option table[] = {
        {"size", &size, "bytes of each block"},
        {"count", &count, "pairs"},
    };
    BENCH_OPTIONS(argc, argv, table);
    if (size == 0) {
        bench_fail("size must be at least 1");
    }

    const uint64_t start = bench_cpu_ns();
    for (uint64_t i = 0; i < count; i++) {
        unsigned char *const block = bench_calloc(1, size);
        if ((block[0] | block[size / 2] | block[size - 1]) != 0) {
            bench_fail("calloc(%" PRIu64 ") is not zero", size);
        }
        block[0] = block[size / 2] = block[size - 1] = 0xa5;
        bench_escape(block);
        free(block);
    }
    bench_score((double)(bench_cpu_ns() - start) / (double)count, "ns/pair");
    return 0;
}
