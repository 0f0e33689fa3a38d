// SPDX-License-Identifier: MIT
// Allocation, first touch, resize and release of blocks of 64 KiB to 1 GiB, after a warm-up of the
// same size: does an allocator that has the pages already give them faster than the kernel would?
//
// Source   the user-mode page allocation experiment of Niall Douglas (arXiv 1105.1811, 1105.1815),
//          as the papers describe it, without its privilege; own program. With kernel=1 the same
//          steps go to mmap, mremap and munmap directly: the figures to compare with.
// Checks   one word of every page survives the resize.

#include "common.h"

#include <sys/mman.h>

enum { PAGE = 4096 };

struct sample {
    uint64_t allocate, touch, resize, touch_again, release; // ns, summed over the rounds
};

static bool from_kernel;

static void *take(size_t size) {
    if (!from_kernel) {
        return bench_malloc(size);
    }
    void *const block =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return bench_need(block == MAP_FAILED ? NULL : block, size);
}

static void *resize(void *block, size_t before, size_t after) {
    if (!from_kernel) {
        return bench_realloc(block, after);
    }
    void *const moved = mremap(block, before, after, MREMAP_MAYMOVE);
    return bench_need(moved == MAP_FAILED ? NULL : moved, after);
}

static void give(void *block, size_t size) {
    if (from_kernel) {
        munmap(block, size);
    } else {
        free(block);
    }
}

static void touch(unsigned char *block, size_t from, size_t to) {
    for (size_t at = from; at < to; at += PAGE) {
        *(volatile size_t *)(block + at) = at;
    }
}

static void verify(const unsigned char *block, size_t size) {
    for (size_t at = 0; at < size; at += PAGE) {
        if (*(const volatile size_t *)(block + at) != at) {
            bench_fail("the word at %zu of %zu bytes is lost", at, size);
        }
    }
}

static uint64_t lap(uint64_t *clock) {
    const uint64_t now = bench_now_ns();
    const uint64_t taken = now - *clock;
    *clock = now;
    return taken;
}

static void run_once(size_t size, struct sample *sum) {
    uint64_t clock = bench_now_ns();
    unsigned char *block = take(size);
    sum->allocate += lap(&clock);
    touch(block, 0, size);
    sum->touch += lap(&clock);
    block = resize(block, size, size * 2);
    sum->resize += lap(&clock);
    touch(block, size, size * 2);
    sum->touch_again += lap(&clock);
    verify(block, size * 2);
    clock = bench_now_ns();
    give(block, size * 2);
    sum->release += lap(&clock);
}

int main(int argc, char **argv) {
    uint64_t least = 64 * BENCH_KIB;
    uint64_t most = BENCH_GIB;
    uint64_t volume = 256 * BENCH_MIB;
    uint64_t kernel = 0;
    const struct bench_option table[] = {
        {"least", &least, "smallest block"},
        {"most", &most, "largest block"},
        {"volume", &volume, "bytes allocated per size (one round at least, 200 at most)"},
        {"kernel", &kernel, "1: mmap, mremap, munmap instead of the allocator"},
    };
    BENCH_OPTIONS(argc, argv, table);
    from_kernel = kernel != 0;

    printf("%12s %14s %16s %14s %16s %14s\n", "bytes", "allocate ns", "touch ns/page", "resize ns",
           "touch ns/page", "release ns");
    for (uint64_t size = least; size <= most; size *= 2) {
        uint64_t rounds = volume / size;
        rounds = rounds < 1 ? 1 : rounds > 200 ? 200 : rounds;
        struct sample warm = {0}, sum = {0};
        run_once(size, &warm);
        for (uint64_t i = 0; i < rounds; i++) {
            run_once(size, &sum);
        }
        const double n = (double)rounds, pages = n * (double)(size / PAGE);
        printf("%12" PRIu64 " %14.0f %16.1f %14.0f %16.1f %14.0f\n", size, (double)sum.allocate / n,
               (double)sum.touch / pages, (double)sum.resize / n, (double)sum.touch_again / pages,
               (double)sum.release / n);
    }
    return 0;
}
