// SPDX-License-Identifier: MIT
// Reading at random: blocks of one size, linked into one ring in random order, walked by following the
// links, so that every step waits for memory and for the translation of its address. What huge pages
// are worth shows here. Between filling and walking the program rests, as one does that waits for
// requests.
//
// Source   own program; random reads of dense memory are the standard way to see the cost of a TLB miss
//          (D. Levinthal, U. Drepper: "What Every Programmer Should Know About Memory", 2007).
// Checks   the walk comes back to where it began after as many steps as there are blocks.

#include "common.h"

struct block {
    struct block *next;
};

// Sattolo's shuffle: one cycle through all.
static void link_at_random(struct block **all, uint64_t count, uint64_t seed) {
    for (uint64_t i = count - 1; i > 0; i--) {
        const uint64_t j = bench_below(&seed, i);
        struct block *const other = all[j];
        all[j] = all[i];
        all[i] = other;
    }
    for (uint64_t i = 0; i < count; i++) {
        all[i]->next = all[i + 1 < count ? i + 1 : 0];
    }
}

int main(int argc, char **argv) {
    uint64_t mib = 256;
    uint64_t size = 64;
    uint64_t rest_ms = 5000;
    uint64_t walks = 5;
    const struct bench_option table[] = {
        {"mib", &mib, "MiB of blocks"},
        {"size", &size, "bytes a block"},
        {"rest", &rest_ms, "ms of rest before the walks"},
        {"walks", &walks, "walks through all of them; the quickest counts"},
    };
    BENCH_OPTIONS(argc, argv, table);
    const uint64_t count = mib * BENCH_MIB / (size != 0 ? size : 1);
    if (count < 2 || size < sizeof(struct block) || walks == 0) {
        bench_fail("blocks must be at least 2 of 8 bytes, and walks 1");
    }
    struct block **const all = bench_calloc(count, sizeof *all);
    for (uint64_t i = 0; i < count; i++) {
        all[i] = bench_malloc(size);
        all[i]->next = NULL;
    }
    link_at_random(all, count, 5);
    struct block *const first = all[0];
    bench_sleep_ms(rest_ms);
    uint64_t best = UINT64_MAX;
    for (uint64_t walk = 0; walk < walks; walk++) {
        const uint64_t start = bench_cpu_ns();
        const struct block *at = first;
        for (uint64_t i = 0; i < count; i++) {
            at = at->next;
        }
        const uint64_t took = bench_cpu_ns() - start;
        best = took < best ? took : best;
        if (at != first) {
            bench_fail("the ring is broken");
        }
    }
    bench_score((double)best / (double)count, "ns/block");
    for (uint64_t i = 0; i < count; i++) {
        free(all[i]);
    }
    free(all);
    return 0;
}
