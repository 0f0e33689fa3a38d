// SPDX-License-Identifier: MIT
// What comes back: fill 256 MiB with small blocks, free 95 % of them at random, do nothing for a
// while, free the rest, do nothing again. RSS is printed at each point. While the program idles it
// makes no call, so an allocator must act by itself to give anything back.
//
// Source   own program, after the idle-memory measurements of github.com/zackees/mimalloc-pprof
//          (issues 299 and 334) as described there.
// Checks   both ends of every block that survives.

#include "common.h"

static void report(const char *when) {
    printf("%-28s RSS %7.1f MiB\n", when, bench_mb(bench_rss_bytes()));
    fflush(stdout);
}

int main(int argc, char **argv) {
    uint64_t fill = 256 * BENCH_MIB;
    uint64_t idle_ms = 10000;
    uint64_t wait_ms = 3000;
    uint64_t keep = 20;
    const struct bench_option table[] = {
        {"fill", &fill, "bytes allocated at first"},
        {"idle_ms", &idle_ms, "rest after freeing most of it"},
        {"wait_ms", &wait_ms, "rest after freeing all of it"},
        {"keep", &keep, "one block in this many survives"},
    };
    BENCH_OPTIONS(argc, argv, table);

    const size_t places = fill / 128;
    struct place {
        unsigned char *block;
        uint32_t size;
    } *const all = bench_malloc(places * sizeof *all);
    uint64_t seed = 5;
    size_t count = 0;
    for (uint64_t bytes = 0; bytes < fill && count < places; count++) {
        const size_t size = bench_between(&seed, 16, bench_below(&seed, 32) == 0 ? 8192 : 512);
        all[count].size = (uint32_t)size;
        all[count].block = bench_malloc(size);
        memset(all[count].block, 1, size);
        bench_stamp(all[count].block, size);
        bytes += size;
    }
    report("filled");
    uint64_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (bench_below(&seed, keep) == 0) {
            kept += all[i].size;
        } else {
            bench_check(all[i].block, all[i].size);
            free(all[i].block);
            all[i].block = NULL;
        }
    }
    report("most of it freed");
    bench_sleep_ms(idle_ms / 5);
    report("a fifth of the rest later");
    bench_sleep_ms(idle_ms - idle_ms / 5);
    report("after the rest");
    const uint64_t sparse = bench_rss_bytes();
    for (size_t i = 0; i < count; i++) {
        if (all[i].block != NULL) {
            bench_check(all[i].block, all[i].size);
            free(all[i].block);
        }
    }
    free(all);
    report("all freed");
    bench_sleep_ms(wait_ms);
    report("after another rest");
    printf("live after the first freeing: %.1f MiB\n", bench_mb(kept));
    bench_score(bench_mb(sparse), "MiB_idle");
    return 0;
}
