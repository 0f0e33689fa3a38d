// SPDX-License-Identifier: MIT
// The benchmark of the CPE357 class allocator: 100 blocks of 1000 bytes, the first 90 freed, a hole at
// 95 freed and filled again, the last ten freed. Each run is a process of its own, so the allocator is
// cold; the program starts itself many times and takes the median.
//
// Source   the published class benchmark (its text lost the loops of the frees): 169 us for the second
//          of 30 entries, 160 us for the first, about 200 us before and 160 us after on its author's
//          machine.
// Prints   medians over the processes: all 202 calls together; the slowest single call, each timed by
//          itself in further processes; how often the hole was given again; the memory held with
//          all blocks written to, and after the last free and malloc_trim(0).

#include "common.h"

#include <malloc.h>
#include <sys/wait.h>

enum { BLOCKS = 100, SIZE = 1000, FREED_FIRST = 90, HOLE = 95, RUNS_MAX = 1001 };

struct outcome {
    uint64_t total_ns;
    uint64_t slowest_ns; // of single calls; 0 when only the whole was timed
    uint64_t full_bytes; // more anonymous RSS than before the first call: with 100 touched blocks,
    uint64_t kept_bytes; // and after the last free and a trim; 0 but in a run that looks at it
    bool hole_reused;
};

// What a cold process looks at; what it does is always the same.
enum look { LOOK_TOTAL, LOOK_EACH, LOOK_MEMORY, LOOKS };

static const char *const look_names[LOOKS] = {"--cold-total", "--cold-each", "--cold-memory"};

static const char anonymous[] = "\nRssAnon:"; // without the pages of program and libraries
static uint64_t slowest;

static void *take(bool each) {
    const uint64_t start = each ? bench_now_ns() : 0;
    void *const block = malloc(SIZE);
    const uint64_t taken = each ? bench_now_ns() - start : 0;
    slowest = taken > slowest ? taken : slowest;
    return bench_need(block, SIZE);
}

static void give(void *block, bool each) {
    const uint64_t start = each ? bench_now_ns() : 0;
    free(block);
    const uint64_t taken = each ? bench_now_ns() - start : 0;
    slowest = taken > slowest ? taken : slowest;
}

// Exactly the published program; LOOK_EACH wraps a clock around every call, LOOK_MEMORY writes to
// all blocks, so that they are memory.
static struct outcome run_published(enum look look) {
    const bool each = look == LOOK_EACH, memory = look == LOOK_MEMORY;
    void *blocks[BLOCKS];
    bench_status_bytes(anonymous); // the clock and the reading of the file are warm
    const uint64_t before = bench_status_bytes(anonymous);
    uint64_t full = 0;
    const uint64_t start = bench_now_ns();
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = take(each);
    }
    if (memory) {
        for (int i = 0; i < BLOCKS; i++) {
            memset(blocks[i], 1, SIZE);
        }
        full = bench_status_bytes(anonymous);
    }
    for (int i = 0; i < FREED_FIRST; i++) {
        give(blocks[i], each);
    }
    const uintptr_t hole = (uintptr_t)blocks[HOLE];
    give(blocks[HOLE], each);
    blocks[HOLE] = take(each);
    const bool reused = (uintptr_t)blocks[HOLE] == hole;
    for (int i = FREED_FIRST; i < BLOCKS; i++) {
        give(blocks[i], each);
    }
    const uint64_t total = bench_now_ns() - start;
    if (!memory) {
        return (struct outcome){total, slowest, 0, 0, reused};
    }
    malloc_trim(0);
    const uint64_t after = bench_status_bytes(anonymous);
    return (struct outcome){total, slowest, full - before, after > before ? after - before : 0,
                            reused};
}

// A fresh process for each run: this program, with a hidden argument; the outcome comes by a pipe.
static struct outcome run_cold(const char *program, enum look look) {
    int ends[2];
    if (pipe(ends) != 0) {
        bench_fail("pipe: %s", strerror(errno));
    }
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 3);
        execl(program, program, look_names[look], (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    struct outcome outcome;
    const ssize_t got = read(ends[0], &outcome, sizeof outcome);
    close(ends[0]);
    int status = 1;
    waitpid(child, &status, 0);
    if (got != (ssize_t)sizeof outcome || status != 0) {
        bench_fail("the cold process ended with status %d", status);
    }
    return outcome;
}

static int by_size(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv) {
    for (enum look look = 0; argc == 2 && look < LOOKS; look++) {
        if (strcmp(argv[1], look_names[look]) == 0) {
            const struct outcome outcome = run_published(look);
            return write(3, &outcome, sizeof outcome) == (ssize_t)sizeof outcome ? 0 : 1;
        }
    }
    uint64_t runs = 101;
    const struct bench_option table[] = {{"runs", &runs, "cold processes of each of three kinds"}};
    BENCH_OPTIONS(argc, argv, table);
    if (runs == 0 || runs > RUNS_MAX) {
        bench_fail("runs must be 1 to %d", RUNS_MAX);
    }

    static uint64_t totals[RUNS_MAX], calls[RUNS_MAX], full[RUNS_MAX], kept[RUNS_MAX];
    uint64_t reused = 0;
    for (uint64_t i = 0; i < runs; i++) {
        const struct outcome whole = run_cold("/proc/self/exe", LOOK_TOTAL);
        totals[i] = whole.total_ns;
        reused += whole.hole_reused;
        calls[i] = run_cold("/proc/self/exe", LOOK_EACH).slowest_ns;
        const struct outcome memory = run_cold("/proc/self/exe", LOOK_MEMORY);
        full[i] = memory.full_bytes;
        kept[i] = memory.kept_bytes;
    }
    uint64_t *const lists[] = {totals, calls, full, kept};
    for (size_t i = 0; i < BENCH_COUNT(lists); i++) {
        qsort(lists[i], runs, sizeof *lists[i], by_size);
    }
    const double whole_us = (double)totals[runs / 2] / 1e3;
    bench_figure("cold_process", whole_us, "us");
    bench_figure("fastest", (double)totals[0] / 1e3, "us");
    bench_figure("slowest_call", (double)calls[runs / 2] / 1e3, "us");
    bench_figure("hole_reused", 100.0 * (double)reused / (double)runs, "%");
    bench_figure("full", (double)full[runs / 2] / (double)BENCH_KIB, "KiB");
    bench_figure("kept", (double)kept[runs / 2] / (double)BENCH_KIB, "KiB");
    bench_score(whole_us, "us");
    return 0;
}
