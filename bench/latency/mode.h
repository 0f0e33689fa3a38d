// SPDX-License-Identifier: MIT
// What a mode is, and how the threads of one are run: windows of floor and allocator in turn.
//
// Owns     nothing; a load belongs to one thread.
// Holds    both subjects do the same number of steps in every window, one after the other, so that
//          both see the same machine; which is first changes with each window. One window before
//          the first is not recorded.

#ifndef MALLOW_BENCH_LATENCY_MODE_H
#define MALLOW_BENCH_LATENCY_MODE_H

#include "machine.h"
#include "recorder.h"
#include "subject.h"

#include <stdatomic.h>
#include <sys/mman.h>

#define MODE_BLOCK_CALLS 32 // K: calls or pairs that are timed together in an amortised mode
#define MODE_THREADS_MAX 64
#define MODE_NAME_BYTES  32

struct settings {
    uint64_t hot, single, churn, mixed, order, pipeline, remote, threads, thread_steps;
    uint64_t live;   // blocks alive in churn and mixed
    uint64_t memory; // bytes asked for at each size of the memory mode
    uint64_t starts; // processes of the start-up mode
};

struct block {
    void *address;
    size_t size;
};

struct load;

struct mode {
    char name[MODE_NAME_BYTES]; // "churn-64"
    size_t size;                // of the blocks, where there is one
    unsigned unit;              // calls, or pairs of calls, in one recorded value
    unsigned variant;           // free order, and the like
    unsigned thread_count;
    uint64_t steps; // of one thread, in all windows together
    enum subject_kind floor;
    size_t slot_count; // of one thread
    void (*begin)(struct load *load);
    void (*window)(struct load *load, const struct subject *subject, struct recorder *recorder);
    void (*end)(struct load *load);
};

struct load {
    const struct mode *mode;
    uint64_t window_steps;
    uint64_t seed;
    struct block *slots;
    void *shared;   // the threads' common state, of the mode's own kind
    unsigned index; // of the thread
};

struct mode_result {
    struct recorder *floor;
    struct recorder *allocator;
};

// Fills `modes` (room for `room`) with every mode that runs in windows; returns how many there are.
size_t mode_list(const struct settings *settings, struct mode *modes, size_t room);
size_t mode_list_single(const struct settings *settings, struct mode *modes, size_t room);
size_t mode_list_threads(const struct settings *settings, struct mode *modes, size_t room);

// The sizes of the hot path, and of the memory mode.
#define MODE_SIZE_COUNT 9
extern const size_t mode_sizes[MODE_SIZE_COUNT];

// The common state of a threaded mode: made before its threads start, and unmade after their end.
void *mode_shared_new(const struct mode *mode);
void mode_shared_delete(const struct mode *mode, void *shared);

// Runs one mode to its end. The recorders of the result lie in memory that is used again by the
// next call.
struct mode_result mode_run(const struct mode *mode, const struct machine *machine,
                            const struct timer *timer);

// ---- timed calls, for the windows ---------------------------------------------------------------

static inline void *mode_allocate(const struct subject *subject, size_t size,
                                  struct recorder *recorder) {
    void *(*const allocate)(size_t) = subject->allocate;
    const uint64_t start = timer_ticks();
    void *const block = allocate(size);
    const uint64_t end = timer_ticks();
    recorder_add(recorder, SERIES_MALLOC, start, end);
    return bench_need(block, size);
}

static inline void mode_release(const struct subject *subject, void *block,
                                struct recorder *recorder) {
    void (*const release)(void *) = subject->release;
    const uint64_t start = timer_ticks();
    release(block);
    const uint64_t end = timer_ticks();
    recorder_add(recorder, SERIES_FREE, start, end);
}

// Checks the slot's block, releases it, and puts a new one of `size` there.
static inline void mode_replace(struct block *slot, size_t size, const struct subject *subject,
                                struct recorder *recorder) {
    bench_check(slot->address, slot->size);
    mode_release(subject, slot->address, recorder);
    slot->address = mode_allocate(subject, size, recorder);
    slot->size = subject->keeps_size ? slot->size : size;
    bench_stamp(slot->address, slot->size);
}

#endif
