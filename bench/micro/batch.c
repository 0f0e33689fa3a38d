// SPDX-License-Identifier: MIT
// Batches of blocks of one size: all taken, then all given back, in the order they came (FIFO) or
// in the reverse (LIFO). FIFO is what defeats a free list that only remembers the last block.
//
// Source   the FIFO and LIFO cases of glibc's bench-malloc-simple as its comments describe them;
//          own program.
// Checks   both ends of every block are stamped and read back.

#include "common.h"

enum { BATCH_MAX = 65536 };

int main(int argc, char **argv) {
    uint64_t size = 64;
    uint64_t batch = 64;
    uint64_t count = 120000000;
    uint64_t lifo = 0;
    const struct bench_option table[] = {
        {"size", &size, "bytes of each block"},
        {"batch", &batch, "blocks taken before the first is given back"},
        {"count", &count, "pairs in all"},
        {"lifo", &lifo, "1: the last block goes back first"},
    };
    BENCH_OPTIONS(argc, argv, table);
    static void *blocks[BATCH_MAX];
    if (batch == 0 || batch > BATCH_MAX) {
        bench_fail("batch must be 1 to %d", BATCH_MAX);
    }

    const uint64_t rounds = (count + batch - 1) / batch;
    const uint64_t start = bench_cpu_ns();
    for (uint64_t round = 0; round < rounds; round++) {
        for (uint64_t i = 0; i < batch; i++) {
            blocks[i] = bench_malloc(size);
            bench_stamp(blocks[i], size);
        }
        for (uint64_t i = 0; i < batch; i++) {
            void *const block = blocks[lifo != 0 ? batch - 1 - i : i];
            bench_check(block, size);
            free(block);
        }
    }
    bench_score((double)(bench_cpu_ns() - start) / (double)(rounds * batch), "ns/pair");
    return 0;
}
