// SPDX-License-Identifier: MIT
// What is read out of a histogram.

#include "histogram.h"

#include <string.h>

void histogram_merge(struct histogram *into, const struct histogram *from) {
    const size_t used = histogram_bucket(from->worst) + 1;
    for (size_t i = 0; i < used; i++) {
        into->counts[i] += from->counts[i];
    }
    into->total += from->total;
    into->sum += from->sum;
    into->worst = from->worst > into->worst ? from->worst : into->worst;
}

void histogram_clear(struct histogram *h) {
    memset(h->counts, 0, (histogram_bucket(h->worst) + 1) * sizeof h->counts[0]);
    h->total = h->sum = h->worst = 0;
}

uint64_t histogram_quantile(const struct histogram *h, double share) {
    const double exact = share * (double)h->total;
    uint64_t rank = (uint64_t)exact;
    // 0.99 * 100 is 99.00000000000001 in some orders of rounding: that is rank 99.
    rank += exact - (double)rank > 1e-6 ? 1 : 0;
    rank = rank == 0 ? 1 : rank;
    uint64_t seen = 0;
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += h->counts[i];
        if (seen >= rank) {
            const uint64_t high = histogram_high(i);
            return high < h->worst ? high : h->worst;
        }
    }
    return h->worst;
}

double histogram_ppm(const struct histogram *h, double bound) {
    uint64_t above = 0;
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        above += (double)histogram_high(i) >= bound ? h->counts[i] : 0;
    }
    return h->total == 0 ? 0 : 1e6 * (double)above / (double)h->total;
}

static double exposed(const struct histogram *h, uint64_t overhead) {
    return (double)h->sum / (double)h->total + (double)overhead;
}

uint64_t histogram_machine(const struct histogram *floor, const struct histogram *own, double share,
                           uint64_t overhead) {
    if (floor->total == 0 || own->total == 0) {
        return 0;
    }
    const double longer = exposed(own, overhead);
    const double ratio = longer > 0 ? exposed(floor, overhead) / longer : 1;
    const double beyond = (1 - share) * ratio;
    return histogram_quantile(floor, beyond < 1 ? 1 - beyond : 0);
}

double histogram_mean(const struct histogram *h) {
    return h->total == 0 ? 0 : (double)h->sum / (double)h->total;
}
