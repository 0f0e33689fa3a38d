// SPDX-License-Identifier: MIT
// Latency of single calls: how long one malloc or one free takes, from the median to the worst.
//
// Method   each call lies between two reads of the time-stamp counter (rdtscp and lfence on x86-64,
//          cntvct on arm64), calibrated against CLOCK_MONOTONIC; the smallest time of an empty pair
//          of reads is taken off. Histograms are log-linear with 64 steps an octave (below 1.6 %).
//          The first row is the same loop without any call: what it shows is the machine, not the
//          allocator, and no row can be trusted below it.
// Source   after the tail metrics of the PMAD benchmark (p50 ... p99.9, parts per million above a
//          bound) and Gil Tene's HdrHistogram (the bucket layout), both as described; written anew.
// Threads  the remote rows hand blocks through a ring from one thread to another; each side times
//          its own calls.

#include "latency.h"
#include "common.h"

#include <stdatomic.h>

enum { RING_SLOTS = 4096, LIVE_SLOTS = 20000 };

struct block {
    void *address;
    size_t size;
};

struct ring {
    struct block slots[RING_SLOTS];
    _Alignas(64) _Atomic uint64_t head; // blocks pushed; written by the producer
    _Alignas(64) _Atomic uint64_t tail; // blocks popped; written by the consumer
};

struct pair {
    struct histogram allocate;
    struct histogram release;
};

struct side {
    struct ring *ring;
    struct pair *times;
    uint64_t ops;
    uint64_t overhead;
};

// Sizes as programs ask for them: most below 256 bytes, one in 64 up to 64 KiB.
static size_t mixed_size(uint64_t *seed) {
    const uint64_t r = bench_random(seed);
    if ((r & 63) == 0) {
        return 1 + ((r >> 8) & 0xffff);
    }
    return 8 + ((r >> 8) % ((r & 64) != 0 ? 1024 : 248));
}

static void *timed_malloc(size_t size, uint64_t overhead, struct histogram *times) {
    const uint64_t start = latency_ticks();
    void *const block = malloc(size);
    const uint64_t end = latency_ticks();
    histogram_add(times, end - start, overhead);
    bench_stamp(bench_need(block, size), size);
    return block;
}

static void timed_free(void *block, uint64_t overhead, struct histogram *times) {
    const uint64_t start = latency_ticks();
    free(block);
    const uint64_t end = latency_ticks();
    histogram_add(times, end - start, overhead);
}

static void run_empty(uint64_t ops, uint64_t overhead, struct histogram *times) {
    for (uint64_t i = 0; i < ops; i++) {
        const uint64_t start = latency_ticks();
        __asm__ volatile("" : : : "memory");
        const uint64_t end = latency_ticks();
        histogram_add(times, end - start, overhead);
    }
}

// One block of 64 bytes, taken and given back at once.
static void run_hot(uint64_t ops, uint64_t overhead, struct pair *times) {
    for (uint64_t i = 0; i < ops; i++) {
        timed_free(timed_malloc(64, overhead, &times->allocate), overhead, &times->release);
    }
}

// LIVE_SLOTS blocks of mixed sizes; a random one is replaced in every step.
static void run_mixed(uint64_t ops, uint64_t overhead, struct pair *times) {
    static struct block live[LIVE_SLOTS];
    uint64_t seed = 1;
    for (uint64_t i = 0; i < ops; i++) {
        struct block *const slot = &live[bench_below(&seed, LIVE_SLOTS)];
        if (slot->address != NULL) {
            bench_check(slot->address, slot->size);
            timed_free(slot->address, overhead, &times->release);
        }
        slot->size = mixed_size(&seed);
        slot->address = timed_malloc(slot->size, overhead, &times->allocate);
    }
    for (size_t i = 0; i < LIVE_SLOTS; i++) {
        free(live[i].address);
        live[i].address = NULL;
    }
}

static void *produce(void *argument) {
    const struct side *const side = argument;
    struct ring *const ring = side->ring;
    uint64_t seed = 2;
    for (uint64_t i = 0; i < side->ops; i++) {
        const size_t size = mixed_size(&seed);
        void *const block = timed_malloc(size, side->overhead, &side->times->allocate);
        while (i - atomic_load_explicit(&ring->tail, memory_order_acquire) >= RING_SLOTS) {
            sched_yield();
        }
        ring->slots[i % RING_SLOTS] = (struct block){block, size};
        atomic_store_explicit(&ring->head, i + 1, memory_order_release);
    }
    return NULL;
}

static void *consume(void *argument) {
    const struct side *const side = argument;
    struct ring *const ring = side->ring;
    for (uint64_t i = 0; i < side->ops; i++) {
        while (atomic_load_explicit(&ring->head, memory_order_acquire) == i) {
            sched_yield();
        }
        const struct block block = ring->slots[i % RING_SLOTS];
        atomic_store_explicit(&ring->tail, i + 1, memory_order_release);
        bench_check(block.address, block.size);
        timed_free(block.address, side->overhead, &side->times->release);
    }
    return NULL;
}

static void run_remote(uint64_t ops, uint64_t overhead, struct pair *times) {
    static struct ring ring;
    struct side side = {&ring, times, ops, overhead};
    const pthread_t producer = bench_thread(produce, &side);
    const pthread_t consumer = bench_thread(consume, &side);
    pthread_join(producer, NULL);
    pthread_join(consumer, NULL);
}

int main(int argc, char **argv) {
    uint64_t ops = 4000000;
    const struct bench_option table[] = {{"ops", &ops, "timed steps of each workload"}};
    BENCH_OPTIONS(argc, argv, table);

    const uint64_t overhead = latency_overhead();
    const double ns_per_tick = latency_ns_per_tick();
    static struct histogram noise;
    static struct pair hot, mixed, remote;

    run_empty(ops, overhead, &noise);
    run_hot(ops, overhead, &hot);
    run_mixed(ops, overhead, &mixed);
    run_remote(ops, overhead, &remote);

    printf("latency of one call in ns, %" PRIu64 " steps a row; timer %.1f ns taken off, "
           "1 tick = %.3f ns\n",
           ops, (double)overhead * ns_per_tick, ns_per_tick);
    histogram_head();
    histogram_print("no call (noise)", &noise, ns_per_tick);
    histogram_print("64 B malloc", &hot.allocate, ns_per_tick);
    histogram_print("64 B free", &hot.release, ns_per_tick);
    histogram_print("mixed malloc", &mixed.allocate, ns_per_tick);
    histogram_print("mixed free", &mixed.release, ns_per_tick);
    histogram_print("remote malloc", &remote.allocate, ns_per_tick);
    histogram_print("remote free", &remote.release, ns_per_tick);

    static struct histogram all;
    histogram_merge(&all, &mixed.allocate);
    histogram_merge(&all, &mixed.release);
    bench_score(histogram_quantile(&all, 0.9999, ns_per_tick), "ns_p99.99_mixed");
    return 0;
}
