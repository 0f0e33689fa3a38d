// SPDX-License-Identifier: MIT
// The modes of one thread: hot path, single calls, churn, mixed, free order, message pipeline.
//
// Source   the modes are those of the PMAD benchmark as its pages describe them (K-block
//          amortisation with K = 32, 262,144 live blocks, seven classes, LIFO/FIFO/random, messages
//          of 264 B in bursts of 1,000); written anew.
// Checks   every pointer of every timed call is looked at; blocks carry a stamp at both ends, which
//          is compared before they are released.

#include "mode.h"

#define PIPELINE_BYTES 264
#define PIPELINE_BURST 1000
#define MIXED_CLASSES  7 // 16 B to 1 KiB

enum order { ORDER_LIFO, ORDER_FIFO, ORDER_RANDOM, ORDER_COUNT };

static void nothing(struct load *load) {
    (void)load;
}

// ---- hot path: one block, taken and given back at once ------------------------------------------

// K pairs between two reads of the clock: finer than the clock's step.
static void hot_window(struct load *load, const struct subject *subject,
                       struct recorder *recorder) {
    void *(*const allocate)(size_t) = subject->allocate;
    void (*const release)(void *) = subject->release;
    const size_t size = load->mode->size;
    for (uint64_t i = 0; i < load->window_steps; i++) {
        bool failed = false;
        const uint64_t start = timer_ticks();
        for (int k = 0; k < MODE_BLOCK_CALLS; k++) {
            void *const block = allocate(size);
            bench_escape(block);
            failed |= block == NULL;
            release(block);
        }
        const uint64_t end = timer_ticks();
        recorder_add(recorder, SERIES_BOTH, start, end);
        if (failed) {
            bench_fail("an allocation of %zu bytes failed", size);
        }
    }
}

static void call_window(struct load *load, const struct subject *subject,
                        struct recorder *recorder) {
    const size_t size = load->mode->size;
    for (uint64_t i = 0; i < load->window_steps; i++) {
        void *const block = mode_allocate(subject, size, recorder);
        bench_stamp(block, size);
        bench_escape(block);
        bench_check(block, size);
        mode_release(subject, block, recorder);
    }
}

// ---- churn and mixed: a random one of many live blocks is replaced ------------------------------

static size_t churn_size(struct load *load) {
    if (load->mode->size != 0) {
        return load->mode->size;
    }
    return (size_t)16 << bench_below(&load->seed, MIXED_CLASSES);
}

static void churn_begin(struct load *load) {
    for (size_t i = 0; i < load->mode->slot_count; i++) {
        struct block *const slot = &load->slots[i];
        slot->size = churn_size(load);
        slot->address = bench_malloc(slot->size);
        bench_stamp(slot->address, slot->size);
    }
}

static void churn_window(struct load *load, const struct subject *subject,
                         struct recorder *recorder) {
    for (uint64_t i = 0; i < load->window_steps; i++) {
        struct block *const slot =
            &load->slots[bench_below(&load->seed, load->mode->slot_count)];
        mode_replace(slot, churn_size(load), subject, recorder);
    }
}

static void churn_end(struct load *load) {
    for (size_t i = 0; i < load->mode->slot_count; i++) {
        free(load->slots[i].address);
    }
}

// ---- free order: many blocks are taken, given back in an order, and taken again -----------------

static void order_take(struct load *load, const struct subject *subject,
                       struct recorder *recorder) {
    void *(*const allocate)(size_t) = subject->allocate;
    const size_t size = load->mode->size;
    for (size_t i = 0; i < load->mode->slot_count; i += MODE_BLOCK_CALLS) {
        struct block *const slots = &load->slots[i];
        const uint64_t start = timer_ticks();
        for (size_t k = 0; k < MODE_BLOCK_CALLS; k++) {
            slots[k].address = allocate(size);
        }
        const uint64_t end = timer_ticks();
        recorder_add(recorder, SERIES_MALLOC, start, end);
        for (size_t k = 0; k < MODE_BLOCK_CALLS; k++) {
            bench_stamp(bench_need(slots[k].address, size), size);
        }
    }
}

static void order_arrange(struct load *load, const struct subject *subject) {
    struct block *const slots = load->slots;
    const size_t count = load->mode->slot_count;
    for (size_t i = 0; subject->checked && i < count; i++) {
        bench_check(slots[i].address, load->mode->size);
    }
    for (size_t i = count - 1; load->mode->variant != ORDER_FIFO && i > 0; i--) {
        // LIFO: the mirrored place; random: any place not yet passed (Fisher and Yates).
        size_t other = count - 1 - i;
        if (load->mode->variant == ORDER_RANDOM) {
            other = bench_below(&load->seed, i + 1);
        } else if (other >= i) {
            break;
        }
        const struct block swapped = slots[i];
        slots[i] = slots[other];
        slots[other] = swapped;
    }
}

static void order_give(struct load *load, const struct subject *subject,
                       struct recorder *recorder) {
    void (*const release)(void *) = subject->release;
    for (size_t i = 0; i < load->mode->slot_count; i += MODE_BLOCK_CALLS) {
        const struct block *const slots = &load->slots[i];
        const uint64_t start = timer_ticks();
        for (size_t k = 0; k < MODE_BLOCK_CALLS; k++) {
            release(slots[k].address);
        }
        const uint64_t end = timer_ticks();
        recorder_add(recorder, SERIES_FREE, start, end);
    }
}

static void order_window(struct load *load, const struct subject *subject,
                         struct recorder *recorder) {
    order_take(load, subject, recorder);
    order_arrange(load, subject);
    order_give(load, subject, recorder);
}

// ---- message pipeline: bursts of messages, filled, read, and given back in their order ----------

static void pipeline_burst(struct load *load, const struct subject *subject,
                           struct recorder *recorder, uint64_t burst) {
    struct block *const messages = load->slots;
    for (size_t i = 0; i < PIPELINE_BURST; i++) {
        messages[i].address = mode_allocate(subject, PIPELINE_BYTES, recorder);
        memset(messages[i].address, (int)((burst + i) & 0xff), PIPELINE_BYTES);
    }
    for (size_t i = 0; i < PIPELINE_BURST; i++) {
        const unsigned char *const bytes = messages[i].address;
        uint64_t sum = 0;
        for (size_t at = 0; at < PIPELINE_BYTES; at++) {
            sum += bytes[at];
        }
        if (subject->checked && sum != PIPELINE_BYTES * ((burst + i) & 0xff)) {
            bench_fail("message %zu of a burst was overwritten", i);
        }
        bench_escape(bytes);
        mode_release(subject, messages[i].address, recorder);
    }
}

static void pipeline_window(struct load *load, const struct subject *subject,
                            struct recorder *recorder) {
    for (uint64_t i = 0; i < load->window_steps; i += PIPELINE_BURST) {
        pipeline_burst(load, subject, recorder, i);
    }
}

// ---- the list -----------------------------------------------------------------------------------

static void add(struct mode **at, const struct mode *pattern, const char *stem, size_t size) {
    struct mode *const mode = (*at)++;
    *mode = *pattern;
    mode->size = size;
    mode->thread_count = 1;
    mode->unit = mode->unit == 0 ? 1 : mode->unit;
    mode->slot_count = mode->slot_count == 0 ? 1 : mode->slot_count;
    mode->begin = mode->begin == NULL ? nothing : mode->begin;
    mode->end = mode->end == NULL ? nothing : mode->end;
    if (mode->name[0] == '\0') {
        snprintf(mode->name, sizeof mode->name, "%s-%zu", stem, size);
    }
}

size_t mode_list_single(const struct settings *settings, struct mode *modes, size_t room) {
    static const size_t churn_sizes[] = {16, 64, 256, 1024, 4096};
    static const char *const orders[ORDER_COUNT] = {"order-lifo", "order-fifo", "order-random"};
    const uint64_t blocks = (settings->order + MODE_BLOCK_CALLS - 1) & ~(MODE_BLOCK_CALLS - 1ull);
    struct mode *at = modes;
    if (room < 2 * MODE_SIZE_COUNT + BENCH_COUNT(churn_sizes) + 2 + ORDER_COUNT) {
        bench_fail("no room for the list of modes");
    }
    for (size_t i = 0; i < MODE_SIZE_COUNT; i++) {
        const struct mode hot = {
            .steps = settings->hot, .unit = MODE_BLOCK_CALLS, .floor = SUBJECT_KEEP,
            .window = hot_window};
        add(&at, &hot, "hot", mode_sizes[i]);
    }
    for (size_t i = 0; i < MODE_SIZE_COUNT; i++) {
        // Four times as many at 64 B, where the far percentiles are compared.
        const struct mode call = {
            .steps = settings->single * (mode_sizes[i] == 64 ? 4 : 1), .floor = SUBJECT_KEEP,
            .window = call_window};
        add(&at, &call, "call", mode_sizes[i]);
    }
    struct mode churn = {.steps = settings->churn, .floor = SUBJECT_KEEP,
                         .slot_count = settings->live, .begin = churn_begin,
                         .window = churn_window, .end = churn_end};
    for (size_t i = 0; i < BENCH_COUNT(churn_sizes); i++) {
        add(&at, &churn, "churn", churn_sizes[i]);
    }
    churn.steps = settings->mixed;
    strcpy(churn.name, "mixed");
    add(&at, &churn, "", 0);
    for (unsigned i = 0; i < ORDER_COUNT; i++) {
        struct mode order = {.steps = blocks * RECORDER_WINDOWS, .unit = MODE_BLOCK_CALLS,
                             .variant = i, .floor = SUBJECT_RING, .slot_count = blocks,
                             .window = order_window};
        strcpy(order.name, orders[i]);
        add(&at, &order, "", 64);
    }
    const struct mode pipeline = {.name = "pipeline", .steps = settings->pipeline,
                                  .floor = SUBJECT_RING, .slot_count = PIPELINE_BURST,
                                  .window = pipeline_window};
    add(&at, &pipeline, "", PIPELINE_BYTES);
    return (size_t)(at - modes);
}
