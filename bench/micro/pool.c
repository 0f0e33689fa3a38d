// SPDX-License-Identifier: MIT
// Pools against plain array-backed free lists and malloc: each operation alone, by size and by the
// order of the frees. Back ends: `pool`; `list`, a stack of pointers to blocks of one size; `lists`, such
// stacks by class behind the interface that pools and malloc have (a size in, a pointer out, and back
// without its size), which is the least that does the same work, unchecked; `malloc`; `lane`, the
// pool's inlined calls with the class known, and `stack`, the stack of `list` inlined as well.
//
// Source   P30 of PMAD's table (free order) and its per-size rows; own program.
// Method   `live` blocks are taken, written to, and freed in an order (pairs: each at once; lifo,
//          fifo, random). Time is read every `batch` operations, with the cost of reading subtracted,
//          so that a figure is of that many, shared out: P50 and P99.9 are over these. Back ends
//          take turns, round by round, so that the machine's own weather meets all of them.
// Checks   every block is not NULL; every pool free has status OK; with touch=1 blocks are written to
//          and read, and must keep their stamp (then the figures have the caller's cache misses in
//          them: random order costs more for every back end).
//
// Linked with libmallow-pool.a alone: malloc is whose it is in the process.

#include "common.h"

#include <mallow/pool_lane.h>
#include <sys/mman.h>

enum { ORDERS = 4, BACKENDS = 6, LIVE_MAX = 1 << 16 };
enum order { PAIRS, LIFO, FIFO, RANDOM };
static uint64_t batch = 32; // operations between two readings of the clock
static const char *const order_names[ORDERS] = {"pairs", "lifo", "fifo", "random"};

// ---- Back ends ----------------------------------------------------------------------------------

static struct mw_pool *pool;

// The plainest free list there is: a stack of pointers.
static void **stack;
static size_t stack_count;

__attribute__((noinline)) static void *list_alloc(size_t size) {
    (void)size;
    return stack_count == 0 ? NULL : stack[--stack_count];
}

__attribute__((noinline)) static enum mw_pool_status list_free(void *block) {
    stack[stack_count++] = block;
    return MW_POOL_OK;
}

// The same by class: a table from sizes to classes, one from slices of the memory to classes.
enum { CLASSES = 16, SLICE_SHIFT = 12 };
static struct {
    void **stack;
    size_t count;
} lists[CLASSES];
static uint8_t class_of_size[4096 / 16];
static uint8_t *class_of_slice;
static uintptr_t lists_start;
static size_t lists_bytes;

__attribute__((noinline)) static void *lists_alloc(size_t size) {
    if (size - 1 >= 4096) {
        return NULL;
    }
    const size_t class = class_of_size[(size - 1) / 16];
    return lists[class].count == 0 ? NULL : lists[class].stack[--lists[class].count];
}

__attribute__((noinline)) static enum mw_pool_status lists_free(void *block) {
    const size_t offset = (uintptr_t)block - lists_start;
    if (offset >= lists_bytes) {
        return MW_POOL_FOREIGN;
    }
    const size_t class = class_of_slice[offset >> SLICE_SHIFT];
    lists[class].stack[lists[class].count++] = block;
    return MW_POOL_OK;
}

__attribute__((noinline)) static void *pool_alloc(size_t size) {
    return mw_pool_alloc(pool, size);
}

__attribute__((noinline)) static enum mw_pool_status pool_free(void *block) {
    return mw_pool_free(pool, block);
}

// One call more than the others have: free says nothing, and all are asked the same.
__attribute__((noinline)) static enum mw_pool_status malloc_free(void *block) {
    free(block);
    return MW_POOL_OK;
}

static const struct {
    const char *name;
    void *(*alloc)(size_t);
    enum mw_pool_status (*free)(void *);
} backends[BACKENDS] = {
    {"pool", pool_alloc, pool_free},
    {"list", list_alloc, list_free},
    {"lists", lists_alloc, lists_free},
    {"malloc", malloc, malloc_free},
    {"lane", NULL, NULL},
    {"stack", NULL, NULL},
};
enum { LANE = 4, STACK = 5 };

static struct mw_pool_lane *lane;
static void **inline_stack;
static size_t inline_count;

static void *map(size_t bytes) {
    void *const memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) {
        bench_fail("no memory");
    }
    return memory;
}

static void prepare(size_t size, size_t live) {
    const struct mw_pool_class class = {.size_bytes = size, .block_count = live};
    struct mw_pool_config config = {.classes = &class, .class_count = 1};
    struct mw_pool_planned plan;
    if (mw_pool_plan(&config, &plan, NULL) != MW_POOL_OK) {
        bench_fail("no plan");
    }
    config.memory = map(plan.pool_bytes);
    if (mw_pool_create_in(&config, &pool, NULL) != MW_POOL_OK) {
        bench_fail("no pool");
    }
    lane = mw_pool_lane_of(pool, 0);
    inline_stack = map(live * sizeof(void *));
    char *const others = map(size * live);
    for (inline_count = 0; inline_count < live; inline_count++) {
        inline_stack[inline_count] = others + (live - 1 - inline_count) * size;
    }
    char *const blocks = map(size * live);
    stack = map(live * sizeof(void *));
    stack_count = 0;
    for (size_t i = live; i-- > 0;) {
        (void)list_free(blocks + i * size);
    }
    const uint8_t kind = (uint8_t)(size / 16 % CLASSES);
    lists_bytes = (size * live + 4095) & ~(size_t)4095;
    lists_start = (uintptr_t)map(lists_bytes);
    class_of_slice = map(lists_bytes >> SLICE_SHIFT);
    memset(class_of_slice, kind, lists_bytes >> SLICE_SHIFT);
    memset(class_of_size, kind, sizeof class_of_size);
    lists[kind].stack = map(live * sizeof(void *));
    lists[kind].count = 0;
    for (size_t i = live; i-- > 0;) {
        (void)lists_free((void *)(lists_start + i * size));
    }
}

// ---- Time ---------------------------------------------------------------------------------------

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static uint64_t clock_cost(void) {
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 100000; i++) {
        const uint64_t first = now(), cost = now() - first;
        least = cost < least ? cost : least;
    }
    return least;
}

// Tenths of nanoseconds an operation, of batches.
struct samples {
    uint32_t *values;
    size_t count, limit;
};

static uint64_t reading;

static void sample(struct samples *samples, uint64_t start, size_t operations) {
    const uint64_t took = now() - start;
    if (samples->count < samples->limit && operations != 0) {
        const uint64_t tenths = (took > reading ? took - reading : 0) * 10 / operations;
        samples->values[samples->count++] = tenths > UINT32_MAX ? UINT32_MAX : (uint32_t)tenths;
    }
}

static int ascending(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static double percentile(struct samples *samples, double part) {
    if (samples->count == 0) {
        return 0;
    }
    size_t at = (size_t)(part * (double)samples->count);
    at = at < samples->count ? at : samples->count - 1;
    return samples->values[at] / 10.0;
}

// ---- Rounds -------------------------------------------------------------------------------------

static void *blocks[LIVE_MAX];
static uint32_t orders[LIVE_MAX];

static uint64_t touch;

// `backend` is constant where these are inlined, and so are the calls of the last two.
__attribute__((always_inline)) static inline void *alloc_of(int backend, size_t size) {
    switch (backend) {
    case LANE: return mw_pool_take(pool, lane);
    case STACK: return inline_count == 0 ? NULL : inline_stack[--inline_count];
    default: return backends[backend].alloc(size);
    }
}

__attribute__((always_inline)) static inline enum mw_pool_status free_of(int backend, void *block) {
    switch (backend) {
    case LANE: return mw_pool_give(pool, lane, block);
    case STACK: inline_stack[inline_count++] = block; return MW_POOL_OK;
    default: return backends[backend].free(block);
    }
}

__attribute__((always_inline)) static inline void *take(int backend, size_t size, size_t stamp) {
    size_t *const block = alloc_of(backend, size);
    if (block == NULL) {
        bench_fail("%s has no block", backends[backend].name);
    }
    if (touch) {
        *block = stamp;
    }
    return block;
}

__attribute__((always_inline)) static inline void give(int backend, void *block, size_t stamp) {
    if (touch && *(size_t *)block != stamp) {
        bench_fail("%s: a block lost its contents", backends[backend].name);
    }
    if (free_of(backend, block) != MW_POOL_OK) {
        bench_fail("%s refuses a free", backends[backend].name);
    }
}

__attribute__((always_inline)) static inline void round_of_pairs(int backend, size_t size, size_t live, struct samples *allocs) {
    for (size_t i = 0; i < live; i += batch) {
        const uint64_t start = now();
        for (size_t j = 0; j < batch; j++) {
            void *const block = take(backend, size, j);
            bench_escape(block);
            give(backend, block, j);
        }
        sample(allocs, start, batch);
    }
}

__attribute__((always_inline)) static inline void round_of(int backend, size_t size, size_t live,
                                                           struct samples *allocs, struct samples *frees) {
    for (size_t i = 0; i < live; i += batch) {
        const uint64_t start = now();
        for (size_t j = i; j < i + batch; j++) {
            blocks[j] = take(backend, size, j);
        }
        sample(allocs, start, batch);
    }
    for (size_t i = 0; i < live; i += batch) {
        const uint64_t start = now();
        for (size_t j = i; j < i + batch; j++) {
            give(backend, blocks[orders[j]], orders[j]);
        }
        sample(frees, start, batch);
    }
}

static void set_order(enum order order, size_t live) {
    uint64_t chance = 88172645463325252u;
    for (size_t i = 0; i < live; i++) {
        orders[i] = (uint32_t)(order == LIFO ? live - 1 - i : i);
    }
    for (size_t i = live; order == RANDOM && i > 1; i--) {
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        const size_t other = chance % i;
        const uint32_t kept = orders[i - 1];
        orders[i - 1] = orders[other];
        orders[other] = kept;
    }
}

static double mean(const struct samples *samples) {
    double sum = 0;
    for (size_t i = 0; i < samples->count; i++) {
        sum += samples->values[i] / 10.0;
    }
    return samples->count == 0 ? 0 : sum / (double)samples->count;
}

static void report(size_t size, enum order order, int backend, struct samples *allocs, struct samples *frees) {
    qsort(allocs->values, allocs->count, sizeof *allocs->values, ascending);
    qsort(frees->values, frees->count, sizeof *frees->values, ascending);
    const double both = mean(allocs) + mean(frees);
    printf("%6zu  %-7s %-7s  %8.1f %8.1f  %8.1f %8.1f  %8.1f\n", size, order_names[order], backends[backend].name,
           percentile(allocs, 0.5), percentile(allocs, 0.999), percentile(frees, 0.5), percentile(frees, 0.999),
           both == 0 ? 0 : 1000 / both);
}

__attribute__((always_inline)) static inline void round_by(int backend, enum order order, size_t size, size_t live,
                                                           struct samples *allocs, struct samples *frees) {
    if (order == PAIRS) {
        round_of_pairs(backend, size, live, allocs);
    } else {
        round_of(backend, size, live, allocs, frees);
    }
}

static void run(size_t size, enum order order, size_t live, size_t rounds) {
    struct samples allocs[BACKENDS], frees[BACKENDS];
    const size_t limit = live / batch * rounds;
    for (int backend = 0; backend < BACKENDS; backend++) {
        allocs[backend] = (struct samples){map(limit * sizeof(uint32_t)), 0, limit};
        frees[backend] = (struct samples){map(limit * sizeof(uint32_t)), 0, limit};
    }
    set_order(order, live);
    for (size_t round = 0; round < rounds + 2; round++) {
        for (int backend = 0; backend < BACKENDS; backend++) {
            if (round == 2) { // the first two warm up
                allocs[backend].count = frees[backend].count = 0;
            }
            switch (backend) {
            case LANE: round_by(LANE, order, size, live, &allocs[LANE], &frees[LANE]); break;
            case STACK: round_by(STACK, order, size, live, &allocs[STACK], &frees[STACK]); break;
            default: round_by(backend, order, size, live, &allocs[backend], &frees[backend]); break;
            }
        }
    }
    for (int backend = 0; backend < BACKENDS; backend++) {
        report(size, order, backend, &allocs[backend], &frees[backend]);
        munmap(allocs[backend].values, limit * sizeof(uint32_t));
        munmap(frees[backend].values, limit * sizeof(uint32_t));
    }
}

int main(int argc, char **argv) {
    uint64_t live = 4096, rounds = 200, size = 0;
    const struct bench_option table[] = {
        {"live", &live, "blocks at once, a multiple of `batch` up to 65536"},
        {"rounds", &rounds, "of each order, size and back end"},
        {"size", &size, "of a block; 0: 16 to 4096"},
        {"batch", &batch, "operations between two readings of the clock; 1: each alone"},
        {"touch", &touch, "1: write to blocks and read them"},
    };
    BENCH_OPTIONS(argc, argv, table);
    if (live == 0 || live > LIVE_MAX || batch == 0 || live % batch != 0) {
        bench_fail("live is a multiple of `batch` up to %d", LIVE_MAX);
    }
    reading = clock_cost();
    printf("reading the clock: %" PRIu64 " ns, subtracted; ns an operation, %" PRIu64 " at a time; "
           "in pairs, `alloc` is both\n", reading, batch);
    printf("%6s  %-7s %-7s  %8s %8s  %8s %8s  %8s\n", "bytes", "order", "of", "alloc50", "99.9",
           "free50", "99.9", "Mpairs/s");
    for (size_t bytes = size != 0 ? size : 16; bytes <= (size != 0 ? size : 4096); bytes *= 4) {
        prepare(bytes, live);
        for (int order = 0; order < ORDERS; order++) {
            run(bytes, (enum order)order, live, rounds);
        }
    }
    return 0;
}
