// SPDX-License-Identifier: MIT
// Blocks of 5 to 25 MiB, about twenty alive, replaced at random; a word of every page is written.
// An allocator that gives every freed block back to the kernel pays a page fault for every page.
//
// Source   the "malloc-large" workload as mimalloc's benchmark page describes it; own program.
// Checks   the first and the last page of every block.

#include "common.h"

enum { PAGE = 4096, LIVE_MAX = 1024 };

int main(int argc, char **argv) {
    uint64_t live = 20;
    uint64_t count = 800;
    uint64_t least = 5 * BENCH_MIB;
    uint64_t most = 25 * BENCH_MIB;
    const struct bench_option table[] = {
        {"live", &live, "blocks alive"},
        {"count", &count, "blocks in all"},
        {"least", &least, "smallest block"},
        {"most", &most, "largest block"},
    };
    BENCH_OPTIONS(argc, argv, table);
    if (live == 0 || live > LIVE_MAX || least < PAGE) {
        bench_fail("live must be 1 to %d, blocks at least a page", LIVE_MAX);
    }

    static unsigned char *blocks[LIVE_MAX];
    static size_t sizes[LIVE_MAX];
    uint64_t seed = 42;
    const uint64_t start = bench_now_ns();
    for (uint64_t i = 0; i < count; i++) {
        const size_t at = bench_below(&seed, live);
        if (blocks[at] != NULL) {
            bench_check(blocks[at], sizes[at]);
            free(blocks[at]);
        }
        sizes[at] = bench_between(&seed, least, most);
        blocks[at] = bench_malloc(sizes[at]);
        for (size_t page = 0; page < sizes[at]; page += PAGE) {
            blocks[at][page] = (unsigned char)i;
        }
        bench_stamp(blocks[at], sizes[at]);
    }
    for (size_t i = 0; i < live; i++) {
        free(blocks[i]);
    }
    bench_score((double)(bench_now_ns() - start) / 1e3 / (double)count, "us/block");
    return 0;
}
