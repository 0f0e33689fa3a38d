// SPDX-License-Identifier: MIT
// A histogram of fixed size for any 64-bit value: log-linear, 64 steps an octave.
//
// Source   the bucket layout of Gil Tene's HdrHistogram, as described; written anew.
// Owns     nothing; a histogram belongs to one thread while it is filled. Zeroes are an empty one.
// Holds    total == sum of counts; sum and worst are exact; a quantile is never below the value
//          that sorting would find, and at most 1/64 above it; values below 64 are exact.
//          histogram_add neither allocates, nor branches on the value, nor touches more than the
//          bucket and the three figures.

#ifndef MALLOW_BENCH_LATENCY_HISTOGRAM_H
#define MALLOW_BENCH_LATENCY_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

#define HISTOGRAM_STEP_BITS 6
#define HISTOGRAM_STEPS     (1u << HISTOGRAM_STEP_BITS)
#define HISTOGRAM_BUCKETS   ((64 - HISTOGRAM_STEP_BITS + 1) * HISTOGRAM_STEPS)

struct histogram {
    uint64_t total;
    uint64_t sum;
    uint64_t worst;
    uint64_t counts[HISTOGRAM_BUCKETS];
};

static inline size_t histogram_bucket(uint64_t value) {
    // The octave's number is 0 for values below HISTOGRAM_STEPS, which are their own buckets.
    const unsigned top = 63u - (unsigned)__builtin_clzll(value | HISTOGRAM_STEPS);
    const unsigned shift = top - HISTOGRAM_STEP_BITS;
    return (size_t)shift * HISTOGRAM_STEPS + (size_t)(value >> shift);
}

// The least value of a bucket.
static inline uint64_t histogram_low(size_t bucket) {
    if (bucket < 2 * HISTOGRAM_STEPS) {
        return bucket;
    }
    const unsigned shift = (unsigned)(bucket / HISTOGRAM_STEPS) - 1;
    return (uint64_t)(HISTOGRAM_STEPS + bucket % HISTOGRAM_STEPS) << shift;
}

// The largest value of a bucket.
static inline uint64_t histogram_high(size_t bucket) {
    return bucket + 1 < HISTOGRAM_BUCKETS ? histogram_low(bucket + 1) - 1 : UINT64_MAX;
}

static inline void histogram_add(struct histogram *h, uint64_t value) {
    h->counts[histogram_bucket(value)]++;
    h->total++;
    h->sum += value;
    h->worst = value > h->worst ? value : h->worst;
}

// These two touch the buckets up to the largest value alone: between the windows of a run the
// caches are to stay the measured program's.
void histogram_merge(struct histogram *into, const struct histogram *from);
void histogram_clear(struct histogram *h);

// The value of rank ceil(share * total) in sorted order (rank 1 for a share of 0); 0 when empty.
uint64_t histogram_quantile(const struct histogram *h, double share);

// How many in a million are at least `bound`; those in the bound's own bucket count with it.
double histogram_ppm(const struct histogram *h, double bound);

// What the machine alone would do to `own` at this share. A pause hits the timed part of a loop in
// proportion to the time that is spent in it (`overhead` a value included), and that of the floor's
// loop is shorter: so the floor's tail is looked at as much further out. 0 when either is empty.
uint64_t histogram_machine(const struct histogram *floor, const struct histogram *own, double share,
                           uint64_t overhead);

// The mean; 0 when empty.
double histogram_mean(const struct histogram *h);

#endif
