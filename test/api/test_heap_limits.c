// SPDX-License-Identifier: MIT
// mallow/heap.h, heaps that grow: hard and soft limits of their own, what counts against them, the
// function that sheds, in many threads; and that the end of a heap gives all of it back.
#include <mallow/heap.h>
#include <mallow/observe.h>
#include <mallow/options.h>

#include "../support/heaps.h"
#include "../support/suite.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { CACHE_MAX = 4096, THREADS = 6, SLOTS = 400, STEPS = 60000 };

static struct mw_heap_stats stats_of(const struct mw_heap *heap)
{
    struct mw_heap_stats stats = {.size_bytes = sizeof stats};
    CHECK(mw_heap_stats_get(heap, &stats), "mw_heap_stats_get");
    return stats;
}

static uint64_t process_held(void)
{
    struct mw_limits now = {.size_bytes = sizeof now};
    CHECK(mw_limits_get(&now), "mw_limits_get");
    return now.held_bytes;
}

static void without_limits_it_has_blocks_of_any_size(void **state)
{
    (void)state;
    struct mw_heap *const heap = make((struct mw_heap_config){0});
    struct mw_heap_stats stats = stats_of(heap);
    CHECK(stats.held_bytes == 0 && stats.limit_bytes == UINT64_MAX && stats.soft_bytes == UINT64_MAX &&
              stats.reserve_bytes == 0, "a new one");
    for (size_t size = 1; size < 20 * MIB; size = size * 3 + 1) {
        unsigned char *block = mw_heap_calloc(heap, 1, size);
        CHECK(block != NULL && block[0] == 0 && block[size - 1] == 0, "size %zu", size);
        CHECK(mw_usable_size(block) >= size, "usable");
        memset(block, 5, size);
        stats = stats_of(heap);
        CHECK(stats.held_bytes >= size, "%zu counts %zu", size, (size_t)stats.held_bytes);
        block = mw_heap_realloc(heap, block, size * 2);
        CHECK(block != NULL && block[0] == 5 && block[size - 1] == 5, "realloc of %zu", size);
        if (size % 2 == 0) {
            mw_heap_free(heap, block);
        } else {
            mw_free(block);
        }
    }
    void *const aligned = mw_heap_aligned_alloc(heap, 8 * MIB, 3 * MIB);
    CHECK(aligned != NULL && (uintptr_t)aligned % (8 * MIB) == 0, "aligned");
    CHECK(mw_heap_malloc(heap, SIZE_MAX) == NULL && errno == ENOMEM && mw_heap_last_status(heap) == MW_HEAP_TOO_BIG,
          "no such size");
    mw_heap_destroy(heap);
}

static void the_hard_limit_is_a_clean_null_and_exact(void **state)
{
    (void)state;
    static void *blocks[1 << 17];
    const size_t limit = 8 * MIB;
    struct mw_heap *const heap = make((struct mw_heap_config){.limit_bytes = limit});
    uint64_t refused = 0;
    for (size_t size = 100; size < 5 * MIB; size = size * 4 + 11) {
        size_t count = 0;
        errno = 0;
        while ((blocks[count] = mw_heap_malloc(heap, size)) != NULL) {
            memset(blocks[count++], 1, size);
            CHECK(stats_of(heap).held_bytes <= limit, "size %zu", size);
        }
        CHECK(errno == ENOMEM && mw_heap_last_status(heap) == MW_HEAP_EXHAUSTED, "size %zu: errno %d", size, errno);
        CHECK(count * size > limit / 2 && count * size <= limit, "%zu blocks of %zu", count, size);
        refused++;
        void *const outside = mw_malloc(size);
        CHECK(outside != NULL, "malloc has nothing to do with it");
        CHECK(mw_heap_realloc(heap, blocks[0], limit) == NULL && ((unsigned char *)blocks[0])[size - 1] == 1,
              "realloc keeps its block");
        refused++;
        mw_free(outside);
        mw_heap_free(heap, blocks[count / 2]);
        blocks[count / 2] = mw_heap_malloc(heap, size);
        CHECK(blocks[count / 2] != NULL, "what is freed makes room");
        for (size_t i = 0; i < count; i++) { // by this thread's own heap, too, as any other's
            if (i % 2 == 0) {
                mw_heap_free(heap, blocks[i]);
            } else {
                mw_free(blocks[i]);
            }
        }
    }
    CHECK(stats_of(heap).refused_count == refused, "%zu refusals, %zu counted", (size_t)refused,
          (size_t)stats_of(heap).refused_count);
    CHECK(mw_heap_set_limits(heap, 0, 0) == MW_HEAP_OK && stats_of(heap).limit_bytes == UINT64_MAX, "lifted");
    void *const large = mw_heap_malloc(heap, 2 * limit);
    CHECK(large != NULL, "no limit any more");
    CHECK(mw_heap_set_limits(heap, limit, 0) == MW_HEAP_OK, "set again");
    CHECK(mw_heap_malloc(heap, 200000) == NULL, "what is held stays, and counts");
    // In place by the rest of the program as well, the limit holds: the block moves to the thread's heap.
    mw_heap_free(heap, large);
    void *block = mw_heap_malloc(heap, 3 * MIB);
    block = mw_realloc(block, 12 * MIB);
    CHECK(block != NULL && stats_of(heap).held_bytes <= limit, "mw_realloc");
    mw_free(block);
    mw_heap_destroy(heap);
}

// ---- Shedding -----------------------------------------------------------------------------------

struct cache {
    struct mw_heap *heap;
    void *entries[CACHE_MAX];
    size_t count;
    unsigned rounds[4]; // by reason
    bool inside;
    bool sheds;
};

static void cache_shed(const struct mw_shed_request *request, void *argument)
{
    struct cache *const cache = argument;
    CHECK(request->size_bytes >= sizeof *request, "size_bytes");
    CHECK(!cache->inside, "a round within a round");
    cache->inside = true;
    cache->rounds[request->reason]++;
    CHECK(request->held_bytes == stats_of(cache->heap).held_bytes, "the heap's figure");
    CHECK(request->wanted_bytes != 0, "what is wanted");
    void *const own = mw_heap_malloc(cache->heap, 70000); // may be NULL, and begins no round
    mw_heap_free(cache->heap, own);
    while (cache->sheds && cache->count > 0) {
        mw_heap_free(cache->heap, cache->entries[--cache->count]);
    }
    errno = 1;
    cache->inside = false;
}

static void add(struct cache *cache, size_t size)
{
    errno = 0;
    void *const block = mw_heap_malloc(cache->heap, size);
    CHECK(block != NULL && errno == 0, "%zu bytes after %zu entries: errno %d", size, cache->count, errno);
    memset(block, 1, size);
    cache->entries[cache->count++] = block;
}

static void above_the_soft_limit_the_program_sheds_and_nothing_fails(void **state)
{
    (void)state;
    static struct cache cache;
    cache = (struct cache){.sheds = true};
    cache.heap = make((struct mw_heap_config){.soft_bytes = 16 * MIB, .shed = cache_shed, .shed_argument = &cache});
    for (unsigned i = 0; i < 3000; i++) {
        add(&cache, 64 * KIB);
        CHECK(stats_of(cache.heap).held_bytes <= 16 * MIB + 256 * KIB, "held");
    }
    CHECK(cache.rounds[MALLOW_SHED_SOFT_LIMIT] >= 3000 / 256 - 1 && cache.rounds[MALLOW_SHED_REFUSED] == 0,
          "%u rounds", cache.rounds[MALLOW_SHED_SOFT_LIMIT]);
    CHECK(stats_of(cache.heap).shed_count == cache.rounds[MALLOW_SHED_SOFT_LIMIT] &&
              stats_of(cache.heap).refused_count == 0, "figures");
    // If it does not, it is asked again with each further megabyte, not with each block.
    cache.sheds = false;
    const unsigned before = cache.rounds[MALLOW_SHED_SOFT_LIMIT];
    for (unsigned i = 0; i < 512; i++) {
        add(&cache, 64 * KIB);
    }
    const unsigned asked = cache.rounds[MALLOW_SHED_SOFT_LIMIT] - before;
    CHECK(asked >= 8 && asked <= 40, "asked %u times", asked);
    mw_heap_destroy(cache.heap);
}

static void growing_a_block_above_the_soft_limit_sheds_in_the_same_call(void **state)
{
    (void)state;
    static struct cache cache;
    cache = (struct cache){.sheds = true};
    cache.heap = make((struct mw_heap_config){.soft_bytes = 16 * MIB, .shed = cache_shed, .shed_argument = &cache});
    void *block = mw_heap_malloc(cache.heap, 2 * MIB);
    block = mw_heap_realloc(cache.heap, block, 32 * MIB);
    CHECK(block != NULL && cache.rounds[MALLOW_SHED_SOFT_LIMIT] == 1, "a huge one, by realloc");
    block = mw_heap_rezalloc(cache.heap, block, 64 * MIB);
    CHECK(block != NULL && cache.rounds[MALLOW_SHED_SOFT_LIMIT] == 2, "by rezalloc");
    mw_heap_free(cache.heap, block);
    block = mw_heap_malloc(cache.heap, 2 * MIB);
    CHECK(block != NULL && cache.rounds[MALLOW_SHED_SOFT_LIMIT] == 2, "below it nothing is asked");
    mw_heap_destroy(cache.heap);
}

static void a_refusal_is_tried_again_after_shedding(void **state)
{
    (void)state;
    static struct cache cache;
    cache = (struct cache){.sheds = true};
    cache.heap = make((struct mw_heap_config){.limit_bytes = 8 * MIB, .shed = cache_shed, .shed_argument = &cache});
    for (unsigned i = 0; i < 1000; i++) {
        add(&cache, i % 3 == 0 ? 1100 * KIB : 48 * KIB);
        CHECK(stats_of(cache.heap).held_bytes <= 8 * MIB, "held");
    }
    CHECK(cache.rounds[MALLOW_SHED_REFUSED] > 10 && cache.rounds[MALLOW_SHED_SOFT_LIMIT] == 0, "rounds");
    CHECK(stats_of(cache.heap).refused_count <= cache.rounds[MALLOW_SHED_REFUSED], "those within rounds alone");
    unsigned before = cache.rounds[MALLOW_SHED_REFUSED];
    while (stats_of(cache.heap).held_bytes > 3 * MIB) {
        mw_heap_free(cache.heap, cache.entries[--cache.count]);
    }
    void *const most = mw_heap_malloc(cache.heap, 7 * MIB); // more than is held, and below the limit
    CHECK(most != NULL && cache.rounds[MALLOW_SHED_REFUSED] == before + 1, "room was made");
    mw_heap_free(cache.heap, most);
    before = cache.rounds[MALLOW_SHED_REFUSED];
    CHECK(mw_heap_malloc(cache.heap, 9 * MIB) == NULL && cache.rounds[MALLOW_SHED_REFUSED] == before,
          "what cannot be made room for is not asked for");
    mw_heap_destroy(cache.heap);
}

static void the_process_limit_holds_besides(void **state)
{
    (void)state;
    struct mw_heap *const heap = make((struct mw_heap_config){.limit_bytes = GIB});
    CHECK(mw_option_set("limit", "64M") == 0, "limit");
    size_t count = 0;
    while (mw_heap_malloc(heap, 100000) != NULL) {
        count++;
    }
    CHECK(errno == ENOMEM && mw_heap_last_status(heap) == MW_HEAP_NO_MEMORY, "status %d",
          mw_heap_last_status(heap));
    CHECK(count * 100000 > 32 * MIB && count * 100000 < 64 * MIB, "%zu blocks", count);
    CHECK(mw_option_set("limit", "0") == 0, "no limit");
    CHECK(mw_heap_malloc(heap, 100000) != NULL, "again");
    mw_heap_destroy(heap);
}

static void a_destroyed_heap_leaves_nothing(void **state)
{
    (void)state;
    (void)mw_collect(true);
    const uint64_t before = process_held();
    for (unsigned round = 0; round < 20; round++) {
        struct mw_heap *const heap = make((struct mw_heap_config){0});
        struct chance chance = {round};
        size_t bytes = 0;
        while (bytes < 20 * MIB) {
            const size_t size = chance_size(&chance);
            void *const block = mw_heap_malloc(heap, size);
            CHECK(block != NULL, "a block of %zu", size);
            memset(block, 1, size < 4096 ? size : 4096);
            bytes += size;
            if (chance_below(&chance, 3) == 0) {
                mw_heap_free(heap, block);
            }
        }
        CHECK(stats_of(heap).held_bytes >= 8 * MIB, "held");
        mw_heap_destroy(heap);
    }
    (void)mw_collect(true);
    const uint64_t after = process_held();
    CHECK(after <= before + MIB, "%zu held before, %zu after", (size_t)before, (size_t)after);
}

#ifdef TEST_SCALED // sanitizers and emulators have mappings and memory of their own
enum { MILLION = 10000, FIGURES_ARE_OURS = 0 };
#else
enum { MILLION = 1000000, FIGURES_ARE_OURS = 1 };
#endif

static size_t map_count(void)
{
    char bytes[4096];
    size_t count = 0;
    ssize_t length;
    const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    while ((length = read(fd, bytes, sizeof bytes)) > 0) {
        for (ssize_t i = 0; i < length; i++) {
            count += bytes[i] == '\n';
        }
    }
    close(fd);
    return count;
}

// One in 1,000 has a mapping of its own, and one slices. What stays is tables, of which 512 bytes are
// for each 64 KiB of slices that there ever were; they may be the first of a region of their own.
static void a_million_blocks_up_to_64_mib_go_at_once(void **state)
{
    (void)state;
    (void)mw_collect(true);
    const size_t kib = process_rss_kib();
    const size_t maps = map_count();
    struct mw_heap *const heap = make((struct mw_heap_config){0});
    struct chance chance = {1};
    for (size_t i = 0; i < MILLION; i++) {
        const size_t most = i % 1000 == 0 ? 64 * MIB : i % 1000 == 1 ? MIB : 200;
        char *const block = mw_heap_malloc(heap, 1 + chance_below(&chance, most));
        CHECK(block != NULL, "block %zu", i);
        block[0] = 1;
    }
    CHECK(stats_of(heap).held_bytes >= MILLION / 1000 * (8 * MIB), "held");
    mw_heap_destroy(heap);
    (void)mw_collect(true);
    CHECK(!FIGURES_ARE_OURS || map_count() <= maps + 8, "%zu mappings before, %zu after", maps, map_count());
    CHECK(!FIGURES_ARE_OURS || process_rss_kib() <= kib + (8 << 10), "%zu KiB before, %zu after", kib, process_rss_kib());
}

// ---- Threads ------------------------------------------------------------------------------------

static _Atomic(void *) rings[THREADS][SLOTS]; // to be freed by that thread
static _Atomic(uint64_t) refusals;

static void *use(void *argument)
{
    const size_t me = (uintptr_t)argument;
    const uint64_t limit = 3 * MIB;
    struct mw_heap *const heap = make((struct mw_heap_config){.limit_bytes = limit, .soft_bytes = limit / 2});
    struct chance chance = {me + 1};
    static void *slots[THREADS][SLOTS];
    for (unsigned step = 0; step < STEPS; step++) {
        void **const slot = &slots[me][chance_below(&chance, SLOTS)];
        mw_free(atomic_exchange(&rings[me][chance_below(&chance, SLOTS)], NULL));
        if (*slot == NULL) {
            const size_t size = chance_below(&chance, 50) == 0 ? chance_below(&chance, 2 * MIB)
                                                               : 1 + chance_below(&chance, 20000);
            *slot = chance_below(&chance, 3) == 0 ? mw_heap_calloc(heap, 1, size) : mw_heap_malloc(heap, size);
            if (*slot == NULL) {
                CHECK(errno == ENOMEM && mw_heap_last_status(heap) == MW_HEAP_EXHAUSTED, "refused");
                atomic_fetch_add(&refusals, 1);
            }
        } else {
            void *const block = *slot;
            *slot = NULL;
            if (chance_below(&chance, 2) == 0) {
                mw_heap_free(heap, block);
            } else {
                const size_t other = chance_below(&chance, THREADS);
                mw_free(atomic_exchange(&rings[other][chance_below(&chance, SLOTS)], block));
            }
        }
        CHECK(stats_of(heap).held_bytes <= limit, "held");
    }
    for (size_t i = 0; i < SLOTS; i++) {
        mw_heap_free(heap, slots[me][i]);
    }
    return heap;
}

static void many_threads_each_with_a_heap_free_each_others_blocks(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    void *heaps[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, use, (void *)i) == 0, "a thread");
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], &heaps[i]);
    }
    for (size_t i = 0; i < THREADS * SLOTS; i++) {
        mw_free(rings[i / SLOTS][i % SLOTS]);
    }
    CHECK(refusals > 0, "never refused");
    for (size_t i = 0; i < THREADS; i++) {
        struct mw_heap *const heap = heaps[i]; // used by this thread from now on
        // Nothing is live; what is held is what a heap keeps, and mostly all of it can be had again: but for
        // slabs whose frees are known to another heap, which has not looked yet.
        CHECK(mw_heap_set_limits(heap, stats_of(heap).held_bytes + MIB, 1) == MW_HEAP_OK, "limits");
        CHECK(mw_heap_malloc(heap, MIB) != NULL, "room");
        CHECK(stats_of(heap).held_bytes <= 2 * MIB, "%zu held", (size_t)stats_of(heap).held_bytes);
        mw_heap_destroy(heap);
    }
}

static void a_child_goes_on_with_its_heaps(void **state)
{
    (void)state;
    struct mw_heap *const heap = make((struct mw_heap_config){.limit_bytes = 4 * MIB});
    void *const block = mw_heap_malloc(heap, MIB);
    const pid_t child = fork();
    if (child == 0) {
        mw_heap_free(heap, block);
        CHECK(mw_heap_malloc(heap, 3 * MIB) != NULL, "room");
        CHECK(mw_heap_malloc(heap, 3 * MIB) == NULL, "limit");
        mw_heap_destroy(heap);
        _exit(0);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "the child: %d", status);
    CHECK(mw_heap_malloc(heap, 3 * MIB + 1) == NULL, "this side has its block");
    mw_heap_destroy(heap);
}

enum { ENDS = 100, CHURNING_THREADS = 2, WIDE = 400, SMALL = 600 };

static _Atomic(bool) heaps_ended;

// The process's slabs and large blocks change hands while the end of a heap looks through all.
static void *churn_meanwhile(void *argument)
{
    unsigned char *blocks[16] = {NULL};
    for (size_t step = 0; !heaps_ended; step++) {
        unsigned char **const place = &blocks[step * 7 % 16];
        const size_t size = (step % 3 == 0 ? 20000 : 100000) + step % 11 * 5000;
        CHECK(*place == NULL || **place == (unsigned char)(uintptr_t)place, "block %p", argument);
        mw_free(*place);
        *place = mw_malloc(size);
        CHECK(*place != NULL, "size %zu", size);
        **place = (unsigned char)(uintptr_t)place;
        if (step % 16 == 0) { // slabs of small blocks that come and go, each time of another size
            void *small[SMALL];
            for (size_t i = 0; i < SMALL; i++) {
                small[i] = mw_malloc(100 + step / 16 % 9 * 100);
                CHECK(small[i] != NULL, "a small one");
            }
            for (size_t i = 0; i < SMALL; i++) {
                mw_free(small[i]);
            }
        }
    }
    for (size_t i = 0; i < 16; i++) {
        mw_free(blocks[i]);
    }
    return NULL;
}

static void *collect_meanwhile(void *argument)
{
    (void)argument;
    while (!heaps_ended) {
        (void)mw_collect(true);
    }
    return NULL;
}

static void heaps_end_while_others_allocate_and_collect(void **state)
{
    (void)state;
    static void *wide[WIDE]; // so that the look takes its time
    pthread_t threads[CHURNING_THREADS + 1];
    for (unsigned i = 0; i < WIDE; i++) {
        wide[i] = mw_malloc(100000);
    }
    heaps_ended = false;
    for (unsigned i = 0; i <= CHURNING_THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, i == 0 ? collect_meanwhile : churn_meanwhile,
                             NULL) == 0, "thread");
    }
    for (unsigned end = 0; end < ENDS; end++) {
        struct mw_heap *const heap = make((struct mw_heap_config){0});
        for (size_t size = 16; size <= 300000; size *= 2) {
            void *const block = mw_heap_malloc(heap, size);
            CHECK(block != NULL, "size %zu", size);
            memset(block, 1, size);
        }
        mw_heap_destroy(heap);
    }
    heaps_ended = true;
    for (unsigned i = 0; i <= CHURNING_THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0, "join");
    }
    for (unsigned i = 0; i < WIDE; i++) {
        mw_free(wide[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_limits_it_has_blocks_of_any_size),
        cmocka_unit_test(the_hard_limit_is_a_clean_null_and_exact),
        cmocka_unit_test(above_the_soft_limit_the_program_sheds_and_nothing_fails),
        cmocka_unit_test(growing_a_block_above_the_soft_limit_sheds_in_the_same_call),
        cmocka_unit_test(a_refusal_is_tried_again_after_shedding),
        cmocka_unit_test(the_process_limit_holds_besides),
        cmocka_unit_test(a_destroyed_heap_leaves_nothing),
        cmocka_unit_test(a_million_blocks_up_to_64_mib_go_at_once),
        cmocka_unit_test(many_threads_each_with_a_heap_free_each_others_blocks),
        cmocka_unit_test(heaps_end_while_others_allocate_and_collect),
        cmocka_unit_test(a_child_goes_on_with_its_heaps),
    };
    return suite_run(tests);
}
