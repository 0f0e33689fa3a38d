// SPDX-License-Identifier: MIT
// The modes of several threads: `remote`, where one allocates and another frees, and `threads`,
// where all do both and free what others took.
//
// Holds    a block is in one slot, in one place of the ring or of the exchange, or in one thread's
//          hands. Both modes' blocks carry stamps, as in the modes of one thread.

#include "mode.h"

enum { RING_SLOTS = 4096, CLASSES = 7, EXCHANGE_PLACES = 256, THREAD_SLOTS = 7 * 2048 };

struct ring {
    struct block slots[RING_SLOTS];
    _Alignas(64) _Atomic uint64_t head; // blocks pushed; written by the producer
    _Alignas(64) _Atomic uint64_t tail; // blocks popped; written by the consumer
};

struct exchange {
    _Atomic(void *) places[CLASSES][EXCHANGE_PLACES];
};

// Sizes as programs ask for them: most below 256 bytes, one in 64 up to 64 KiB.
static size_t message_size(uint64_t *seed) {
    const uint64_t r = bench_random(seed);
    if ((r & 63) == 0) {
        return 1 + ((r >> 8) & 0xffff);
    }
    return 8 + ((r >> 8) % ((r & 64) != 0 ? 1024 : 248));
}

// ---- remote: thread 0 allocates, thread 1 frees -------------------------------------------------

static void produce(struct load *load, const struct subject *subject, struct recorder *recorder) {
    struct ring *const ring = load->shared;
    const uint64_t first = atomic_load_explicit(&ring->head, memory_order_relaxed);
    for (uint64_t i = first; i < first + load->window_steps; i++) {
        const size_t size = message_size(&load->seed);
        void *const block = mode_allocate(subject, size, recorder);
        bench_stamp(block, size);
        while (i - atomic_load_explicit(&ring->tail, memory_order_acquire) >= RING_SLOTS) {
            sched_yield();
        }
        ring->slots[i % RING_SLOTS] = (struct block){block, size};
        atomic_store_explicit(&ring->head, i + 1, memory_order_release);
    }
}

static void consume(struct load *load, const struct subject *subject, struct recorder *recorder) {
    struct ring *const ring = load->shared;
    const uint64_t first = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    for (uint64_t i = first; i < first + load->window_steps; i++) {
        while (atomic_load_explicit(&ring->head, memory_order_acquire) == i) {
            sched_yield();
        }
        const struct block block = ring->slots[i % RING_SLOTS];
        atomic_store_explicit(&ring->tail, i + 1, memory_order_release);
        if (subject->checked) {
            bench_check(block.address, block.size);
        }
        mode_release(subject, block.address, recorder);
    }
}

static void remote_window(struct load *load, const struct subject *subject,
                          struct recorder *recorder) {
    (load->index == 0 ? produce : consume)(load, subject, recorder);
}

static void remote_nothing(struct load *load) {
    (void)load;
}

// ---- threads: each churns through its own slots, and swaps a block with the others at times ------

static size_t class_size(size_t class_index) {
    return (size_t)16 << class_index;
}

static void threads_begin(struct load *load) {
    for (size_t i = 0; i < load->mode->slot_count; i++) {
        struct block *const slot = &load->slots[i];
        slot->size = class_size(i % CLASSES);
        slot->address = bench_malloc(slot->size);
        bench_stamp(slot->address, slot->size);
    }
}

// One step in four puts its block into a common place and goes on with the one that lay there,
// which most likely another thread allocated.
static void threads_window(struct load *load, const struct subject *subject,
                           struct recorder *recorder) {
    struct exchange *const exchange = load->shared;
    for (uint64_t i = 0; i < load->window_steps; i++) {
        const uint64_t r = bench_random(&load->seed);
        const size_t at = ((r >> 32) * load->mode->slot_count) >> 32;
        struct block *const slot = &load->slots[at];
        if ((r & 3) == 0) {
            _Atomic(void *) *const place =
                &exchange->places[at % CLASSES][(r >> 2) % EXCHANGE_PLACES];
            slot->address = atomic_exchange(place, slot->address);
        }
        mode_replace(slot, slot->size, subject, recorder);
    }
}

static void threads_end(struct load *load) {
    for (size_t i = 0; i < load->mode->slot_count; i++) {
        free(load->slots[i].address);
    }
}

// ---- the common state, and the list -------------------------------------------------------------

void *mode_shared_new(const struct mode *mode) {
    if (mode->window == remote_window) {
        return latency_map(sizeof(struct ring));
    }
    struct exchange *const exchange = latency_map(sizeof(struct exchange));
    for (size_t class_index = 0; class_index < CLASSES; class_index++) {
        for (size_t i = 0; i < EXCHANGE_PLACES; i++) {
            void *const block = bench_malloc(class_size(class_index));
            bench_stamp(block, class_size(class_index));
            exchange->places[class_index][i] = block;
        }
    }
    return exchange;
}

void mode_shared_delete(const struct mode *mode, void *shared) {
    if (mode->window == remote_window) {
        munmap(shared, sizeof(struct ring));
        return;
    }
    struct exchange *const exchange = shared;
    for (size_t class_index = 0; class_index < CLASSES; class_index++) {
        for (size_t i = 0; i < EXCHANGE_PLACES; i++) {
            free(exchange->places[class_index][i]);
        }
    }
    munmap(shared, sizeof(struct exchange));
}

size_t mode_list_threads(const struct settings *settings, struct mode *modes, size_t room) {
    if (room < 2 || settings->threads < 2 || settings->threads > MODE_THREADS_MAX) {
        bench_fail("threads=%" PRIu64 ": wanted 2 to %d", settings->threads, MODE_THREADS_MAX);
    }
    modes[0] = (struct mode){.name = "remote", .unit = 1, .thread_count = 2,
                             .steps = settings->remote, .floor = SUBJECT_RING, .slot_count = 1,
                             .begin = remote_nothing, .window = remote_window,
                             .end = remote_nothing};
    modes[1] = (struct mode){.name = "threads", .unit = 1,
                             .thread_count = (unsigned)settings->threads,
                             .steps = settings->thread_steps, .floor = SUBJECT_KEEP,
                             .slot_count = THREAD_SLOTS, .begin = threads_begin,
                             .window = threads_window, .end = threads_end};
    return 2;
}
