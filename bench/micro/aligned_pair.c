// SPDX-License-Identifier: MIT
// aligned_alloc and free of one size and alignment at once.
//
// Source   own program; the aligned row of the usual pair tables.
// Checks   the alignment of every block.

#include "common.h"

int main(int argc, char **argv) {
    uint64_t size = 64;
    uint64_t alignment = 64;
    uint64_t count = 60000000;
    const struct bench_option table[] = {
        {"size", &size, "bytes of each block, a multiple of the alignment"},
        {"align", &alignment, "alignment, a power of two"},
        {"count", &count, "pairs"},
    };
    BENCH_OPTIONS(argc, argv, table);

    const uint64_t start = bench_cpu_ns();
    for (uint64_t i = 0; i < count; i++) {
        unsigned char *const block = bench_need(aligned_alloc(alignment, size), size);
        if (((uintptr_t)block & (alignment - 1)) != 0) {
            bench_fail("%p is not aligned to %" PRIu64, (void *)block, alignment);
        }
        block[0] = (unsigned char)i;
        bench_escape(block);
        free(block);
    }
    bench_score((double)(bench_cpu_ns() - start) / (double)count, "ns/pair");
    return 0;
}
