// SPDX-License-Identifier: MIT
// The time-stamp counter and the histogram of the latency program.
//
// Owns     nothing; a histogram belongs to one thread while it is filled.
// Holds    total == sum of counts; the width of a bucket is at most 1/64 of its lower bound.

#ifndef MALLOW_BENCH_LATENCY_H
#define MALLOW_BENCH_LATENCY_H

#include "common.h"

#include <sched.h>

#define HISTOGRAM_STEP_BITS 6
#define HISTOGRAM_STEPS     (1u << HISTOGRAM_STEP_BITS)
#define HISTOGRAM_BUCKETS   ((64 - HISTOGRAM_STEP_BITS) * HISTOGRAM_STEPS + HISTOGRAM_STEPS)

struct histogram {
    uint64_t counts[HISTOGRAM_BUCKETS];
    uint64_t total;
    uint64_t worst; // ticks
};

// A read that neither earlier nor later instructions can cross.
static inline uint64_t latency_ticks(void) {
#if defined(__x86_64__)
    uint32_t low, high, processor;
    __asm__ volatile("rdtscp\n\tlfence" : "=a"(low), "=d"(high), "=c"(processor) : : "memory");
    return ((uint64_t)high << 32) | low;
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(ticks) : : "memory");
    return ticks;
#else
    return bench_now_ns();
#endif
}

static inline uint64_t latency_overhead(void) {
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 400000; i++) {
        const uint64_t start = latency_ticks();
        const uint64_t taken = latency_ticks() - start;
        least = taken < least ? taken : least;
    }
    return least;
}

static inline double latency_ns_per_tick(void) {
    const uint64_t start_ns = bench_now_ns();
    const uint64_t start = latency_ticks();
    uint64_t now_ns = start_ns;
    while (now_ns - start_ns < 50000000) {
        now_ns = bench_now_ns();
    }
    return (double)(now_ns - start_ns) / (double)(latency_ticks() - start);
}

static inline size_t histogram_bucket(uint64_t ticks) {
    if (ticks < HISTOGRAM_STEPS) {
        return ticks;
    }
    const unsigned octave = 63u - (unsigned)__builtin_clzll(ticks) - HISTOGRAM_STEP_BITS;
    return (octave + 1) * HISTOGRAM_STEPS + ((ticks >> octave) - HISTOGRAM_STEPS);
}

static inline uint64_t histogram_bound(size_t bucket) {
    if (bucket < HISTOGRAM_STEPS) {
        return bucket;
    }
    const unsigned octave = (unsigned)(bucket / HISTOGRAM_STEPS) - 1;
    return (HISTOGRAM_STEPS + bucket % HISTOGRAM_STEPS) << octave;
}

static inline void histogram_add(struct histogram *h, uint64_t ticks, uint64_t overhead) {
    ticks = ticks > overhead ? ticks - overhead : 0;
    h->counts[histogram_bucket(ticks)]++;
    h->total++;
    h->worst = ticks > h->worst ? ticks : h->worst;
}

static inline void histogram_merge(struct histogram *into, const struct histogram *from) {
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        into->counts[i] += from->counts[i];
    }
    into->total += from->total;
    into->worst = from->worst > into->worst ? from->worst : into->worst;
}

// The smallest bucket bound that `share` of all values does not exceed, in ns.
static inline double histogram_quantile(const struct histogram *h, double share,
                                        double ns_per_tick) {
    const uint64_t wanted = (uint64_t)(share * (double)h->total);
    uint64_t seen = 0;
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += h->counts[i];
        if (seen > wanted) {
            return (double)histogram_bound(i) * ns_per_tick;
        }
    }
    return (double)h->worst * ns_per_tick;
}

// How many in a million took at least `bound_ns`.
static inline double histogram_ppm(const struct histogram *h, double bound_ns, double ns_per_tick) {
    uint64_t above = 0;
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        above += (double)histogram_bound(i) * ns_per_tick >= bound_ns ? h->counts[i] : 0;
    }
    return h->total == 0 ? 0 : 1e6 * (double)above / (double)h->total;
}

static inline void histogram_head(void) {
    printf("%-16s %8s %8s %8s %8s %9s %10s %10s %12s %12s\n", "call", "p50", "p90", "p99", "p99.9",
           "p99.99", "p99.999", "max", "ppm >= 1us", "ppm >= 10us");
}

static inline void histogram_print(const char *name, const struct histogram *h,
                                   double ns_per_tick) {
    printf("%-16s %8.0f %8.0f %8.0f %8.0f %9.0f %10.0f %10.0f %12.1f %12.2f\n", name,
           histogram_quantile(h, 0.5, ns_per_tick), histogram_quantile(h, 0.9, ns_per_tick),
           histogram_quantile(h, 0.99, ns_per_tick), histogram_quantile(h, 0.999, ns_per_tick),
           histogram_quantile(h, 0.9999, ns_per_tick), histogram_quantile(h, 0.99999, ns_per_tick),
           (double)h->worst * ns_per_tick, histogram_ppm(h, 1000, ns_per_tick),
           histogram_ppm(h, 10000, ns_per_tick));
}

#endif
