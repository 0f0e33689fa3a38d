// SPDX-License-Identifier: MIT
// What one thread records while it runs one mode under one subject: the calls' times, in windows.
//
// Owns     nothing; a recorder lies in memory that is present (latency_map), and belongs to one
//          thread until that has ended.
// Holds    a series' total is the sum of its windows; `both` has the values of the other two, or
//          those that a mode adds to it directly (blocks of calls that are timed together).
//          Nothing here allocates, and no page is touched for the first time while it is filled.

#ifndef MALLOW_BENCH_LATENCY_RECORDER_H
#define MALLOW_BENCH_LATENCY_RECORDER_H

#include "histogram.h"
#include "timer.h"

#define RECORDER_WINDOWS 100
#define RECORDER_TENTH   (RECORDER_WINDOWS / 10)

enum series_name { SERIES_MALLOC, SERIES_FREE, SERIES_BOTH, SERIES_COUNT };

struct series {
    struct histogram window; // what the window that runs has so far
    struct histogram total;
    uint64_t sums[RECORDER_WINDOWS]; // ticks
    uint64_t counts[RECORDER_WINDOWS];
};

struct recorder {
    uint64_t overhead; // ticks; struct timer
    uint64_t faults;   // minor page faults of the thread within the windows
    uint64_t switches; // involuntary context switches, likewise
    uint64_t waits;    // voluntary ones: for a lock, of the kernel's or the allocator's
    struct series series[SERIES_COUNT];
};

static inline void recorder_add(struct recorder *recorder, enum series_name name, uint64_t start,
                                uint64_t end) {
    histogram_add(&recorder->series[name].window, timer_between(start, end, recorder->overhead));
}

// Present, zeroed memory for `bytes`; ends the program when there is none. Not from malloc.
void *latency_map(size_t bytes);

// Closes window `at`: adds it to the totals, and begins an empty one.
void recorder_end_window(struct recorder *recorder, size_t at);

// Drops what the window that runs has so far.
void recorder_drop_window(struct recorder *recorder);

// Adds another thread's totals and windows.
void recorder_merge(struct recorder *into, const struct recorder *from);

// The last tenth of the windows ÷ the first tenth, each by the median of its windows' means: above
// 1 it became slower. One pause of the machine moves one window, so it does not move this. 0 when
// empty.
double series_drift(const struct series *series);

// The slowest window's mean ÷ the median of all windows' means. 0 when empty.
double series_worst_window(const struct series *series);

#endif
