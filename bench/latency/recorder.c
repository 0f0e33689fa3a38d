// SPDX-License-Identifier: MIT
// Windows of a series, and what they say about change over time.

#include "recorder.h"

#include <sys/mman.h>

void *latency_map(size_t bytes) {
    void *const memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) {
        bench_fail("mmap of %zu bytes: %s", bytes, strerror(errno));
    }
    // Where MAP_POPULATE is refused in silence (a limit, an emulator), this makes it present.
    memset(memory, 0, bytes);
    return memory;
}

void recorder_end_window(struct recorder *recorder, size_t at) {
    struct series *const both = &recorder->series[SERIES_BOTH];
    histogram_merge(&both->window, &recorder->series[SERIES_MALLOC].window);
    histogram_merge(&both->window, &recorder->series[SERIES_FREE].window);
    for (size_t i = 0; i < SERIES_COUNT; i++) {
        struct series *const series = &recorder->series[i];
        histogram_merge(&series->total, &series->window);
        series->sums[at] += series->window.sum;
        series->counts[at] += series->window.total;
    }
    recorder_drop_window(recorder);
}

void recorder_drop_window(struct recorder *recorder) {
    for (size_t i = 0; i < SERIES_COUNT; i++) {
        histogram_clear(&recorder->series[i].window);
    }
}

void recorder_merge(struct recorder *into, const struct recorder *from) {
    into->overhead = from->overhead;
    into->faults += from->faults;
    into->switches += from->switches;
    into->waits += from->waits;
    for (size_t i = 0; i < SERIES_COUNT; i++) {
        struct series *const series = &into->series[i];
        histogram_merge(&series->total, &from->series[i].total);
        for (size_t at = 0; at < RECORDER_WINDOWS; at++) {
            series->sums[at] += from->series[i].sums[at];
            series->counts[at] += from->series[i].counts[at];
        }
    }
}

// Means of the windows [from, to) that are not empty, sorted into `means`; how many.
static size_t sorted_means(const struct series *series, size_t from, size_t to, double *means) {
    size_t count = 0;
    for (size_t at = from; at < to; at++) {
        if (series->counts[at] == 0) {
            continue;
        }
        const double mean = (double)series->sums[at] / (double)series->counts[at];
        size_t place = count++;
        for (; place > 0 && means[place - 1] > mean; place--) {
            means[place] = means[place - 1];
        }
        means[place] = mean;
    }
    return count;
}

static double median(const double *sorted, size_t count) {
    if (count == 0) {
        return 0;
    }
    return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

static double ratio(double value, double base) {
    return base > 0 ? value / base : 0;
}

double series_drift(const struct series *series) {
    double first[RECORDER_TENTH], last[RECORDER_TENTH];
    const size_t firsts = sorted_means(series, 0, RECORDER_TENTH, first);
    const size_t lasts =
        sorted_means(series, RECORDER_WINDOWS - RECORDER_TENTH, RECORDER_WINDOWS, last);
    return ratio(median(last, lasts), median(first, firsts));
}

double series_worst_window(const struct series *series) {
    double means[RECORDER_WINDOWS];
    const size_t count = sorted_means(series, 0, RECORDER_WINDOWS, means);
    return count == 0 ? 0 : ratio(means[count - 1], median(means, count));
}
