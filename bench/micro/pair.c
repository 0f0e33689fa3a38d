// SPDX-License-Identifier: MIT
// malloc and free of one size at once: the shortest path an allocator has.
//
// Source   the plainest of all micro benchmarks, on every allocator's own page; own program.
// Checks   the first byte of every block is written and read back.

#include "common.h"

int main(int argc, char **argv) {
    uint64_t size = 64;
    uint64_t count = 150000000;
    const struct bench_option table[] = {
        {"size", &size, "bytes of each block"},
        {"count", &count, "pairs"},
    };
    BENCH_OPTIONS(argc, argv, table);

    const uint64_t start = bench_cpu_ns();
    for (uint64_t i = 0; i < count; i++) {
        unsigned char *const block = bench_malloc(size);
        block[0] = (unsigned char)i;
        bench_escape(block);
        if (block[0] != (unsigned char)i) {
            bench_fail("a block lost its contents");
        }
        free(block);
    }
    bench_score((double)(bench_cpu_ns() - start) / (double)count, "ns/pair");
    return 0;
}
