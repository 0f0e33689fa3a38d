// SPDX-License-Identifier: MIT
// Adversary, one thread and small blocks: sizes, orders, fragmentation, steady states.
#include "adversary.h"

static const size_t some_sizes[] = {8,   16,  24,   48,   64,   112,  256,   480,   512,
                                    768, 1024, 1536, 2048, 4096, 8192, 10000, 20000, 40000, 65536};
enum { SOME_SIZES = sizeof some_sizes / sizeof some_sizes[0] };

// Blocks of a size that fill `bytes`.
static size_t count_for(size_t bytes, size_t size) {
    return scaled(bytes / size + 1);
}

static void fill(void **blocks, size_t count, size_t size) {
    for (size_t i = 0; i < count; i++) {
        blocks[i] = counted_malloc(size);
    }
}

static void empty(void **blocks, size_t count) {
    for (size_t i = 0; i < count; i++) {
        counted_free(blocks[i]);
    }
}

// Each size once, each call once, on a heap that knows none of them.
void adversary_sizes(void) {
    enum { STEPS = 400 };
    void **const blocks = array_make(STEPS);
    phase("every size once", false);
    size_t count = 0;
    for (size_t size = 0; size < (size_t)1200 << 10 && count < STEPS; size += size / 24 + 8) {
        blocks[count++] = counted_malloc(size);
    }
    empty(blocks, count);
    count = 0;
    for (size_t size = 1; size < (size_t)1200 << 10 && count < STEPS; size += size / 24 + 8) {
        blocks[count++] = counted_calloc(1, size);
    }
    array_reverse(blocks, count);
    empty(blocks, count);
    array_drop(blocks, STEPS);
}

// Many blocks of a size, freed in each order, and taken again.
void adversary_orders(void) {
    phase("free orders", false);
    for (size_t s = 0; s < SOME_SIZES; s++) {
        const size_t size = some_sizes[s];
        const size_t count = count_for((size_t)1 << 20, size < 64 ? 64 : size);
        void **const blocks = array_make(count);
        for (unsigned order = 0; order < 3; order++) {
            fill(blocks, count, size);
            if (order == 1) {
                array_reverse(blocks, count);
            } else if (order == 2) {
                array_shuffle(blocks, count);
            }
            empty(blocks, count);
        }
        array_drop(blocks, count);
    }
}

// Leaves one block in so many of each size, then asks for the next size, and so on; then the rest.
static void leave_one_in(size_t stride) {
    void **kept[SOME_SIZES];
    size_t kept_count[SOME_SIZES];
    for (size_t s = 0; s < SOME_SIZES; s++) {
        const size_t count = count_for((size_t)2 << 20, some_sizes[s] < 64 ? 64 : some_sizes[s]);
        void **const blocks = array_make(count);
        fill(blocks, count, some_sizes[s]);
        kept[s] = array_make(count / stride + 1);
        kept_count[s] = 0;
        for (size_t i = 0; i < count; i++) {
            if (i % stride == 0) {
                kept[s][kept_count[s]++] = blocks[i];
            } else {
                counted_free(blocks[i]);
            }
        }
        array_drop(blocks, count);
    }
    for (size_t s = 0; s < SOME_SIZES; s++) {
        const size_t other = some_sizes[SOME_SIZES - 1 - s];
        const size_t count = count_for((size_t)1 << 20, other < 64 ? 64 : other);
        void **const blocks = array_make(count);
        fill(blocks, count, other);
        array_shuffle(blocks, count);
        empty(blocks, count);
        array_drop(blocks, count);
    }
    for (size_t s = 0; s < SOME_SIZES; s++) {
        array_shuffle(kept[s], kept_count[s]);
        empty(kept[s], kept_count[s]);
        array_drop(kept[s], kept_count[s]);
    }
}

void adversary_fragment(void) {
    phase("fragmented: every other block stays", false);
    leave_one_in(2);
    phase("fragmented: one block a slab stays", false);
    leave_one_in(700);
    phase("fragmented: odd strides", false);
    leave_one_in(61);
}

static size_t churn_size(size_t limit) {
    // As in programs, small ones are frequent.
    size_t size = 8 + random_below(120);
    while (random_below(4) == 0 && size < limit) {
        size = size * 3 / 2 + random_below(64);
    }
    return size < limit ? size : limit;
}

static void replace(void **blocks, size_t live, size_t rounds, size_t limit) {
    for (size_t i = 0; i < rounds; i++) {
        const size_t index = random_below(live);
        counted_free(blocks[index]);
        blocks[index] = counted_malloc(churn_size(limit));
    }
}

// A steady state: as many blocks live as ever, one replaced at a time.
static void churn(const char *name, size_t live, size_t rounds, size_t limit) {
    void **const blocks = array_make(live);
    phase("warming up", false);
    for (size_t i = 0; i < live; i++) {
        blocks[i] = counted_malloc(churn_size(limit));
    }
    // Some more than will be live, so that what is live may vary.
    void **const more = array_make(live / 8);
    for (size_t i = 0; i < live / 8; i++) {
        more[i] = counted_malloc(churn_size(limit));
    }
    array_shuffle(more, live / 8);
    empty(more, live / 8);
    array_drop(more, live / 8);
    replace(blocks, live, 2 * live, limit);
    phase(name, true);
    replace(blocks, live, rounds, limit);
    phase("the end of it", false);
    array_shuffle(blocks, live);
    empty(blocks, live);
    array_drop(blocks, live);
}

void adversary_churn(void) {
    churn("churn: small blocks", scaled(60000), scaled(150000), 1024);
    churn("churn: up to 32 KiB", scaled(8000), scaled(60000), 32768);
}

// Everything in turn, of every size, with lives of every length.
void adversary_random(void) {
    enum { LIVE = 3000 };
    void **const blocks = array_make(LIVE);
    phase("random calls", false);
    for (size_t i = 0; i < LIVE; i++) {
        blocks[i] = counted_malloc(churn_size(4096));
    }
    for (size_t round = 0; round < scaled(60000); round++) {
        const size_t index = random_below(LIVE);
        const size_t limit = random_below(50) == 0 ? (size_t)2 << 20 : 16384;
        const size_t size = 8 + random_below(random_below(limit) + 1);
        if (random_below(4) == 0) {
            blocks[index] = counted_realloc(blocks[index], size);
            continue;
        }
        counted_free(blocks[index]);
        switch (random_below(4)) {
        case 0:
            blocks[index] = counted_calloc(1, size);
            break;
        case 1:
            blocks[index] = counted_aligned((size_t)16 << random_below(9), size);
            break;
        default:
            blocks[index] = counted_malloc(size);
        }
    }
    empty(blocks, LIVE);
    array_drop(blocks, LIVE);
}

void adversary_aligned(void) {
    enum { ROUNDS = 3 };
    phase("aligned", false);
    for (size_t alignment = 16; alignment <= (size_t)2 << 20; alignment *= 2) {
        for (size_t size = 8; size <= (size_t)2 << 20; size = size * 5 + 24) {
            void *blocks[ROUNDS];
            for (unsigned i = 0; i < ROUNDS; i++) {
                blocks[i] = counted_aligned(alignment, size);
            }
            for (unsigned i = 0; i < ROUNDS; i++) {
                counted_free(blocks[i]);
            }
        }
    }
}
