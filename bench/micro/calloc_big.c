// SPDX-License-Identifier: MIT
// calloc of a very large block and its free, over and over: pages fresh from the kernel are zero
// already, and an allocator that knows it does no work in proportion to the size.
//
// Source   own program; known from the issue trackers of several allocators.
// Checks   three places of every block are zero; they are dirtied afterwards.

#include "common.h"

int main(int argc, char **argv) {
    uint64_t size = BENCH_GIB;
    uint64_t count = 5000;
    uint64_t budget_ms = 1500;
    const struct bench_option table[] = {
        {"size", &size, "bytes of each block"},
        {"count", &count, "pairs at most"},
        {"budget_ms", &budget_ms, "stop after this much CPU time"},
    };
    BENCH_OPTIONS(argc, argv, table);

    const uint64_t start = bench_cpu_ns();
    uint64_t done = 0;
    for (; done < count && bench_cpu_ns() - start < budget_ms * 1000000; done++) {
        unsigned char *const block = bench_calloc(1, size);
        if ((block[0] | block[size / 2] | block[size - 1]) != 0) {
            bench_fail("calloc(%" PRIu64 ") is not zero", size);
        }
        block[0] = block[size / 2] = block[size - 1] = 0xa5;
        bench_escape(block);
        free(block);
    }
    bench_score((double)(bench_cpu_ns() - start) / 1e6 / (double)done, "ms/pair");
    return 0;
}
