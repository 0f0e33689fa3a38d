// SPDX-License-Identifier: MIT
// The clock of the latency program: the processor's own counter where there is one, and what it is
// worth: its rate, the cost of reading it, and its step.
//
// Owns     nothing; struct timer is filled once, before anything is measured.
// Holds    least <= overhead, least <= typical: what a pair of reads with nothing between them shows.
//          Where the counter goes up in steps (26 ticks on some machines), any one quantile of these is
//          a step more in one process and a step less in the next; their mean is not.

#ifndef MALLOW_BENCH_LATENCY_TIMER_H
#define MALLOW_BENCH_LATENCY_TIMER_H

#include "common.h"

#define TIMER_EMPTY_READS 400000

struct timer {
    uint64_t least;    // ticks: the least that an empty pair of reads took
    uint64_t overhead; // ticks: the mean of those that nothing disturbed; taken off every value
    uint64_t typical;  // ticks: their median
    uint64_t step;     // ticks: the least difference between two values; no figure is finer
    double ns_per_tick;
};

// A read that neither earlier nor later instructions can cross.
#if defined(__x86_64__)
#define TIMER_SOURCE "rdtscp"
static inline uint64_t timer_ticks(void) {
    uint32_t low, high, processor;
    __asm__ volatile("rdtscp\n\tlfence" : "=a"(low), "=d"(high), "=c"(processor) : : "memory");
    return ((uint64_t)high << 32) | low;
}
#elif defined(__aarch64__)
#define TIMER_SOURCE "cntvct_el0"
static inline uint64_t timer_ticks(void) {
    uint64_t ticks;
    __asm__ volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(ticks) : : "memory");
    return ticks;
}
#else
#define TIMER_SOURCE "clock_gettime"
static inline uint64_t timer_ticks(void) {
    return bench_now_ns();
}
#endif

// Takes some 60 ms.
void timer_calibrate(struct timer *timer);

// What lies between two reads, without the cost of reading.
static inline uint64_t timer_between(uint64_t start, uint64_t end, uint64_t overhead) {
    const uint64_t taken = end - start;
    return taken > overhead ? taken - overhead : 0;
}

#endif
