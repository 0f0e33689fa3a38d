// SPDX-License-Identifier: MIT
// What comes back: fill 256 MiB with small blocks, free 95 % of them at random, do nothing for a
// while, free the rest, do nothing again. RSS is printed at each point. While the program idles it
// makes no call, so an allocator must act by itself to give anything back. What it could give back
// at most is printed as well: all but the pages that the survivors lie in.
//
// Source   own program, after the idle-memory measurements of github.com/zackees/mimalloc-pprof
//          (issues 299 and 334) as described there. With mix=1 the sizes are those of its issue 334:
//          512, 1,024 and 2,048 bytes, three, two and one parts of the blocks, in random order.
// Checks   both ends of every block that survives.

#include "common.h"

#include <sys/mman.h>

// Sizes of many kinds, a third of the bytes in blocks of up to 8 KiB; or of three.
static size_t pick_size(uint64_t *seed, bool three) {
    if (!three) {
        return bench_between(seed, 16, bench_below(seed, 32) == 0 ? 8192 : 512);
    }
    const uint64_t part = bench_below(seed, 6);
    return part < 3 ? 512 : part < 5 ? 1024 : 2048;
}

static int compare_pages(const void *a, const void *b) {
    const uintptr_t left = *(const uintptr_t *)a;
    const uintptr_t right = *(const uintptr_t *)b;
    return (left > right) - (left < right);
}

struct place {
    unsigned char *block;
    uint32_t size;
};

// Bytes of the pages that blocks lie in.
static size_t live_page_bytes(const struct place *all, size_t count) {
    const size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    size_t capacity = 0;
    for (size_t i = 0; i < count; i++) {
        capacity += all[i].block != NULL ? all[i].size / page_bytes + 2 : 0;
    }
    const size_t bytes = capacity * sizeof(uintptr_t) + page_bytes;
    uintptr_t *const pages =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) {
        bench_fail("mmap");
    }
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        if (all[i].block == NULL) {
            continue;
        }
        const uintptr_t last = ((uintptr_t)all[i].block + all[i].size - 1) / page_bytes;
        for (uintptr_t page = (uintptr_t)all[i].block / page_bytes; page <= last; page++) {
            pages[found++] = page;
        }
    }
    qsort(pages, found, sizeof *pages, compare_pages); // may allocate, and frees it
    size_t distinct = 0;
    for (size_t i = 0; i < found; i++) {
        distinct += i == 0 || pages[i] != pages[i - 1];
    }
    munmap(pages, bytes);
    return distinct * page_bytes;
}

static void report(const char *when) {
    printf("%-28s RSS %7.1f MiB\n", when, bench_mb(bench_rss_bytes()));
    fflush(stdout);
}

int main(int argc, char **argv) {
    uint64_t fill = 256 * BENCH_MIB;
    uint64_t idle_ms = 10000;
    uint64_t wait_ms = 3000;
    uint64_t keep = 20;
    uint64_t mix = 0;
    const struct bench_option table[] = {
        {"fill", &fill, "bytes allocated at first"},
        {"idle_ms", &idle_ms, "rest after freeing most of it"},
        {"wait_ms", &wait_ms, "rest after freeing all of it"},
        {"keep", &keep, "one block in this many survives"},
        {"mix", &mix, "0: 16 to 512 bytes, one in 32 up to 8 KiB; 1: 512, 1024 and 2048"},
    };
    BENCH_OPTIONS(argc, argv, table);

    const size_t places = fill / 128;
    struct place *const all = bench_malloc(places * sizeof *all);
    uint64_t seed = 5;
    size_t count = 0;
    for (uint64_t bytes = 0; bytes < fill && count < places; count++) {
        const size_t size = pick_size(&seed, mix != 0);
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
    const size_t least = live_page_bytes(all, count) + count * sizeof *all;
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
    printf("least possible: pages of live blocks, and the list of them %.1f MiB\n", bench_mb(least));
    printf("live after the first freeing: %.1f MiB\n", bench_mb(kept));
    bench_score(bench_mb(sparse), "MiB_idle");
    return 0;
}
