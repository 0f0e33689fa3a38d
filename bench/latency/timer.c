// SPDX-License-Identifier: MIT
// Calibration of the latency program's clock.

#include "timer.h"

struct instant {
    uint64_t ticks;
    uint64_t ns;
};

// Both clocks at one moment: of several tries the one that was least disturbed.
static struct instant both_clocks(void) {
    struct instant best = {0, 0};
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 100; i++) {
        const uint64_t before = timer_ticks();
        const uint64_t ns = bench_now_ns();
        const uint64_t after = timer_ticks();
        if (after - before < least) {
            least = after - before;
            best = (struct instant){before + (after - before) / 2, ns};
        }
    }
    return best;
}

static uint64_t common_divisor(uint64_t a, uint64_t b) {
    while (b != 0) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

// Of the pairs that took at most twice the median: the others were interrupted.
static uint64_t undisturbed_mean(const uint32_t *seen, uint64_t typical) {
    uint64_t sum = 0, count = 0;
    for (uint64_t ticks = 0; ticks <= 2 * typical; ticks++) {
        sum += ticks * seen[ticks];
        count += seen[ticks];
    }
    return (sum + count / 2) / count;
}

// Empty pairs: their quantiles, and what all of them are multiples of.
static void empty_pairs(struct timer *timer) {
    enum { LIMIT = 4096 };
    static uint32_t seen[2 * LIMIT]; // the upper half stays 0
    memset(seen, 0, sizeof seen);
    for (int i = 0; i < TIMER_EMPTY_READS; i++) {
        const uint64_t start = timer_ticks();
        const uint64_t taken = timer_ticks() - start;
        seen[taken < LIMIT ? taken : LIMIT - 1]++;
    }
    uint32_t count = 0;
    for (uint64_t ticks = 0; ticks < LIMIT - 1; ticks++) {
        if (seen[ticks] == 0) {
            continue;
        }
        timer->step = common_divisor(ticks, timer->step);
        timer->least = count == 0 ? ticks : timer->least;
        timer->typical = count < TIMER_EMPTY_READS / 2 ? ticks : timer->typical;
        count += seen[ticks];
    }
    if (count < TIMER_EMPTY_READS / 2) {
        bench_fail("the timer " TIMER_SOURCE " is of no use: half of its empty reads take %d ticks",
                   LIMIT);
    }
    timer->overhead = undisturbed_mean(seen, timer->typical);
    timer->step = timer->step == 0 ? 1 : timer->step;
}

void timer_calibrate(struct timer *timer) {
    *timer = (struct timer){0};
    const struct instant start = both_clocks();
    empty_pairs(timer);
    while (bench_now_ns() - start.ns < 50000000) {
    }
    const struct instant end = both_clocks();
    timer->ns_per_tick = (double)(end.ns - start.ns) / (double)(end.ticks - start.ticks);
}
