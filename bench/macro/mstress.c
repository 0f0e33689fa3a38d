// SPDX-License-Identifier: MIT
// Stress with change of ownership: threads build up blocks of skewed sizes, keep some, free some,
// and swap others through a shared table, so that a block may be freed by any thread, in any later
// round, when the thread that made it is long gone.
//
// Source   the "mstress" workload of the mimalloc report (Leijen, Zorn, de Moura, MSR-TR-2019-18)
//          and the description beside mimalloc's test-stress; written anew from those.
// Checks   every word of every block carries a cookie made of its index and size.
// Holds    a fixed amount of work, shared out over the threads; rounds end with a join, and half of
//          the rounds end with an emptied table.

#include "common.h"

#include <stdatomic.h>

enum { TRANSFERS = 1000, RETAINED_MAX = 65536 };

static const uintptr_t cookie_key = 0x5bd1e995u;

struct round {
    uint64_t seed;
    uint64_t blocks; // to allocate in this round
};

static _Atomic(void *) transfers[TRANSFERS];

// A block is an array of words: the count first, cookies after it.
static void *make_block(uint64_t *seed) {
    uintptr_t words = bench_between(seed, 1, 16);
    const uint64_t luck = bench_below(seed, 1000);
    if (luck == 0) {
        words *= 4000;
    } else if (luck < 10) {
        words *= 100;
    } else if (luck < 100) {
        words *= 8;
    }
    uintptr_t *const block =
        luck % 4 == 0 ? bench_calloc(words, sizeof *block) : bench_malloc(words * sizeof *block);
    block[0] = words;
    for (uintptr_t i = 1; i < words; i++) {
        block[i] = (words - i) ^ cookie_key;
    }
    return block;
}

static void drop_block(void *address) {
    if (address == NULL) {
        return;
    }
    const uintptr_t *const block = address;
    for (uintptr_t i = 1; i < block[0]; i++) {
        if (block[i] != ((block[0] - i) ^ cookie_key)) {
            bench_fail("a block of %zu words was overwritten at word %zu", (size_t)block[0],
                       (size_t)i);
        }
    }
    free(address);
}

static void *work(void *argument) {
    struct round *const round = argument;
    void **const retained = bench_calloc(RETAINED_MAX, sizeof *retained);
    size_t retained_count = 0;
    uint64_t made = 0;
    while (made < round->blocks) {
        const uint64_t what = bench_below(&round->seed, 100);
        if (what < 50) { // make one; keep one in four
            void *const block = make_block(&round->seed);
            made++;
            if (what < 13 && retained_count < RETAINED_MAX) {
                retained[retained_count++] = block;
            } else {
                void *const before = atomic_exchange_explicit(
                    &transfers[bench_below(&round->seed, TRANSFERS)], block, memory_order_acq_rel);
                drop_block(before);
            }
        } else if (what < 75 && retained_count > 0) { // free a kept one
            const size_t victim = bench_below(&round->seed, retained_count);
            drop_block(retained[victim]);
            retained[victim] = retained[--retained_count];
        } else if (retained_count > 0) { // swap a kept one with the table
            const size_t mine = bench_below(&round->seed, retained_count);
            retained[mine] =
                atomic_exchange_explicit(&transfers[bench_below(&round->seed, TRANSFERS)],
                                         retained[mine], memory_order_acq_rel);
            if (retained[mine] == NULL) {
                retained[mine] = retained[--retained_count];
            }
        }
    }
    while (retained_count > 0) {
        drop_block(retained[--retained_count]);
    }
    free(retained);
    return NULL;
}

int main(int argc, char **argv) {
    uint64_t threads = 2;
    uint64_t rounds = 50;
    uint64_t total = 10000000;
    const struct bench_option table[] = {
        {"threads", &threads, "threads of each round"},
        {"rounds", &rounds, "rounds; each starts its threads anew"},
        {"blocks", &total, "blocks in all"},
    };
    BENCH_OPTIONS(argc, argv, table);
    if (threads == 0 || threads > BENCH_THREADS_MAX || rounds == 0) {
        bench_fail("threads and rounds must be at least 1");
    }

    static struct round items[BENCH_THREADS_MAX];
    const uint64_t start = bench_now_ns();
    for (uint64_t r = 0; r < rounds; r++) {
        for (uint64_t i = 0; i < threads; i++) {
            items[i] = (struct round){r * BENCH_THREADS_MAX + i, total / rounds / threads};
        }
        bench_parallel(work, items, sizeof items[0], threads);
        for (size_t i = 0; r % 2 == 1 && i < TRANSFERS; i++) {
            drop_block(atomic_exchange(&transfers[i], NULL));
        }
    }
    for (size_t i = 0; i < TRANSFERS; i++) {
        drop_block(atomic_exchange(&transfers[i], NULL));
    }
    bench_score((double)total / ((double)(bench_now_ns() - start) / 1e9) / 1e6, "Mblocks/s");
    return 0;
}
