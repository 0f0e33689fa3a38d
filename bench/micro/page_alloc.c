// SPDX-License-Identifier: MIT
// Allocation, first touch, resize and release of blocks of 64 KiB to 1 GiB, after a warm-up of the
// same size: does an allocator that has the pages already give them faster than the kernel would?
//
// Source   the user-mode page allocation experiment of Niall Douglas (arXiv 1105.1811, 1105.1815),
//          as the papers describe it, without its privilege; own program. With kernel=1 the same
//          steps go to mmap, mremap and munmap directly: the figures to compare with.
// Prints   a row a size: the median over its rounds, less the clock's own cost; touching per page.
//          The headings are single words, because `mallow-bench pages` reads the table.
// Checks   one word of every page survives growing and shrinking.

#include "common.h"

#include <sys/mman.h>

enum { PAGE = 4096, ROUNDS_MAX = 200 };

enum phase { ALLOCATE, TOUCH, GROW, TOUCH_GROWN, SHRINK, RELEASE, PHASES };

struct sample {
    uint64_t ns[PHASES][ROUNDS_MAX];
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

static uint64_t clock_cost; // ns, of one lap that measures nothing

static uint64_t lap(uint64_t *clock) {
    const uint64_t now = bench_now_ns();
    const uint64_t taken = now - *clock;
    *clock = now;
    return taken > clock_cost ? taken - clock_cost : 0;
}

static void calibrate(void) {
    clock_cost = 0;
    uint64_t least = UINT64_MAX;
    uint64_t clock = bench_now_ns();
    for (int i = 0; i < 100000; i++) {
        const uint64_t taken = lap(&clock);
        least = taken < least ? taken : least;
    }
    clock_cost = least;
}

// A block of `size` bytes comes, grows to twice that, shrinks back and goes.
static void run_once(size_t size, struct sample *sample, size_t round) {
    uint64_t clock = bench_now_ns();
    unsigned char *block = take(size);
    sample->ns[ALLOCATE][round] = lap(&clock);
    touch(block, 0, size);
    sample->ns[TOUCH][round] = lap(&clock);
    block = resize(block, size, size * 2);
    sample->ns[GROW][round] = lap(&clock);
    touch(block, size, size * 2);
    sample->ns[TOUCH_GROWN][round] = lap(&clock);
    verify(block, size * 2);
    clock = bench_now_ns();
    block = resize(block, size * 2, size);
    sample->ns[SHRINK][round] = lap(&clock);
    verify(block, size);
    clock = bench_now_ns();
    give(block, size);
    sample->ns[RELEASE][round] = lap(&clock);
}

static int by_value(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static double median(uint64_t *values, size_t count) {
    qsort(values, count, sizeof *values, by_value);
    return ((double)values[(count - 1) / 2] + (double)values[count / 2]) / 2;
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
    if (least < PAGE || (least & (least - 1)) != 0 || most < least) {
        bench_fail("least must be a power of two from %d on, and most at least that", PAGE);
    }
    from_kernel = kernel != 0;
    calibrate();

    static struct sample sample;
    printf("%12s %12s %12s %12s %12s %12s %12s\n", "bytes", "allocate", "touch/page", "grow",
           "touch2/page", "shrink", "free");
    for (uint64_t size = least; size <= most; size *= 2) {
        uint64_t rounds = volume / size;
        rounds = rounds < 1 ? 1 : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
        run_once(size, &sample, 0); // the warm-up, overwritten by the first round
        for (uint64_t i = 0; i < rounds; i++) {
            run_once(size, &sample, i);
        }
        printf("%12" PRIu64, size);
        for (int phase = 0; phase < PHASES; phase++) {
            const double ns = median(sample.ns[phase], rounds);
            const bool per_page = phase == TOUCH || phase == TOUCH_GROWN;
            printf(" %12.1f", per_page ? ns / (double)(size / PAGE) : ns);
        }
        printf("\n");
    }
    return 0;
}
