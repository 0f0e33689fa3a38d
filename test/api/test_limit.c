// SPDX-License-Identifier: MIT
// Limits set at run time, their figures, and functions that shed what a program caches.
#include "../support/check.h"

#include <mallow/limit.h>
#include <mallow/observe.h>
#include <mallow/options.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { CACHE_MAX = 4096, ENTRY = 64 * KIB, THREADS = 8 };

// A cache that any thread fills, and that is emptied when memory is short.
static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;
static void *cache[CACHE_MAX];
static size_t cache_count;
static _Atomic(unsigned) rounds[4]; // by reason
static _Atomic(unsigned) inside;

static void cache_add(void *block)
{
    pthread_mutex_lock(&cache_lock);
    if (cache_count < CACHE_MAX) {
        cache[cache_count++] = block;
        block = NULL;
    }
    pthread_mutex_unlock(&cache_lock);
    mw_free(block);
}

static void cache_shed(const struct mw_shed_request *request, void *argument)
{
    CHECK(argument == cache, "the argument");
    CHECK(request->size_bytes >= sizeof *request, "size_bytes");
    CHECK(atomic_fetch_add(&inside, 1) == 0, "two rounds at a time");
    atomic_fetch_add(&rounds[request->reason], 1);
    // It may allocate, and may be refused; no round begins for that.
    void *const own = mw_malloc(100);
    mw_free(own);
    if (pthread_mutex_trylock(&cache_lock) == 0) {
        while (cache_count > 0) {
            mw_free(cache[--cache_count]);
        }
        pthread_mutex_unlock(&cache_lock);
    }
    errno = 1;
    atomic_fetch_sub(&inside, 1);
}

static struct mw_limits limits(void)
{
    struct mw_limits now = {.size_bytes = sizeof now};
    CHECK(mw_limits_get(&now), "mw_limits_get");
    return now;
}

static void set(const char *name, const char *value)
{
    CHECK(mw_option_set(name, value) == 0, "%s=%s", name, value);
}

static void figures(void)
{
    struct mw_limits now = limits();
    CHECK(now.limit_bytes == UINT64_MAX && now.soft_bytes == UINT64_MAX && now.reserve_bytes == 0, "no limits");
    CHECK(now.refused_count == 0 && now.shed_count == 0 && !now.pressed, "nothing has happened");
    const uint64_t before = now.held_bytes;
    void *const block = mw_malloc(10 * MIB);
    now = limits();
    CHECK(now.held_bytes >= before + 10 * MIB && now.held_bytes < before + 11 * MIB, "held");
    mw_free(block);
    struct mw_stats stats = {.size_bytes = sizeof stats};
    CHECK(mw_stats_get(&stats) && stats.held_bytes == limits().held_bytes, "the same in mw_stats");
    set("limit", "256M");
    set("soft_limit", "128M");
    now = limits();
    CHECK(now.limit_bytes == 256 * MIB && now.soft_bytes == 128 * MIB && now.reserve_bytes == 4 * MIB, "limits");
    struct mw_limits little = {.size_bytes = 8};
    CHECK(!mw_limits_get(&little), "too small");
    little.size_bytes = 16;
    little.limit_bytes = 4711;
    CHECK(mw_limits_get(&little) && little.held_bytes != 0 && little.limit_bytes == 4711, "only what fits");
    CHECK(mw_option_set("limit", "3M") == EINVAL && mw_option_set("limit", "120%") == EINVAL, "bad values");
    CHECK(limits().limit_bytes == 256 * MIB, "as it was");
    set("limit", "0");
    set("soft_limit", "0");
}

static struct mw_stats statistics(void)
{
    struct mw_stats now = {.size_bytes = sizeof now};
    CHECK(mw_stats_get(&now), "mw_stats_get");
    return now;
}

// What is held is the sum of its parts, and what is in memory is of that, whatever was only looked at.
static void parts(void)
{
    enum { BLOCKS = 5000 };
    static void *blocks[BLOCKS];
    for (size_t i = 0; i < 2000; i++) {
        blocks[i] = mw_malloc(1000000);
    }
    const struct mw_stats grown = statistics();
    const uint64_t sum = grown.meta_bytes + grown.span_bytes + grown.free_dirty_bytes + grown.huge_cached_bytes;
    CHECK(grown.held_bytes <= sum + 64 * KIB, "%zu KiB of unknown use", (size_t)(grown.held_bytes - sum) / KIB);
    for (size_t i = 0; i < 2000; i++) {
        mw_free(blocks[i]);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = mw_malloc(2000000);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        mw_free(blocks[i]);
    }
    const struct mw_stats now = statistics();
    CHECK(now.resident_bytes <= now.held_bytes, "%zu KiB resident, %zu held", (size_t)now.resident_bytes / KIB,
          (size_t)now.held_bytes / KIB);
}

static void *fill_cache(void *count)
{
    for (size_t i = 0; i < (size_t)(uintptr_t)count; i++) {
        unsigned char *const block = mw_malloc(ENTRY);
        CHECK(block != NULL, "entry %zu although there is something to shed", i);
        CHECK(errno != 1, "a round changed errno");
        block[0] = block[ENTRY - 1] = 1;
        cache_add(block);
    }
    return NULL;
}

static void a_cache_is_shed_before_the_hard_limit_refuses(void)
{
    set("limit", "64M");
    CHECK(mw_shed_register(cache_shed, cache) == 0, "register");
    CHECK(mw_shed_register(cache_shed, cache) == EEXIST, "twice");
    CHECK(mw_shed_register(NULL, cache) == EINVAL, "nothing");
    fill_cache((void *)(uintptr_t)3000);
    CHECK(rounds[MALLOW_SHED_REFUSED] >= 2, "%u rounds", rounds[MALLOW_SHED_REFUSED]);
    CHECK(limits().held_bytes <= 64 * MIB, "held");
    CHECK(limits().shed_count >= rounds[MALLOW_SHED_REFUSED], "counted");
    // What cannot be made room for does not cost the cache.
    const unsigned before = rounds[MALLOW_SHED_REFUSED];
    CHECK(mw_malloc(GIB) == NULL && errno == ENOMEM, "more than the limit");
    CHECK(rounds[MALLOW_SHED_REFUSED] == before, "shed for nothing");
    CHECK(limits().refused_count >= 1, "refusals are counted");
    // What is more than all that is held, and yet has room once the cache is gone, does.
    while (cache_count > 0) {
        mw_free(cache[--cache_count]);
    }
    (void)mw_collect(true);
    fill_cache((void *)(uintptr_t)(24 * MIB / ENTRY));
    CHECK(limits().held_bytes < 44 * MIB, "%zu held", (size_t)limits().held_bytes);
    void *const most = mw_malloc(48 * MIB);
    CHECK(most != NULL && rounds[MALLOW_SHED_REFUSED] == before + 1, "%u rounds", rounds[MALLOW_SHED_REFUSED] - before);
    mw_free(most);
    set("limit", "0");
}

static void the_soft_limit_sheds_and_refuses_nothing(void)
{
    set("soft_limit", "32M");
    fill_cache((void *)(uintptr_t)3000);
    CHECK(rounds[MALLOW_SHED_SOFT_LIMIT] >= 2, "%u rounds", rounds[MALLOW_SHED_SOFT_LIMIT]);
    CHECK(limits().held_bytes < 48 * MIB, "%llu held", (unsigned long long)limits().held_bytes);
    // A program that needs more gets it.
    void *const block = mw_malloc(60 * MIB);
    CHECK(block != NULL, "above the soft limit");
    mw_free(block);
    set("soft_limit", "0");
}

// A block that grows where it is, or with its pages, makes no other call that could ask.
static void growing_a_block_above_the_soft_limit_sheds_in_the_same_call(void)
{
    enum { FEW = 20 };
    static void *large[FEW];
    set("soft_limit", "32M");
    unsigned before = rounds[MALLOW_SHED_SOFT_LIMIT];
    void *block = mw_malloc(2 * MIB);
    block = mw_realloc(block, 64 * MIB);
    CHECK(block != NULL && rounds[MALLOW_SHED_SOFT_LIMIT] == before + 1, "a huge one, by realloc");
    block = mw_rezalloc(block, 128 * MIB);
    CHECK(block != NULL && rounds[MALLOW_SHED_SOFT_LIMIT] == before + 2, "by rezalloc");
    before = rounds[MALLOW_SHED_SOFT_LIMIT];
    for (size_t i = 0; i < FEW; i++) {
        large[i] = mw_malloc(70000);
    }
    for (size_t i = 0; i < FEW; i++) {
        large[i] = mw_realloc(large[i], 1000000);
    }
    CHECK(rounds[MALLOW_SHED_SOFT_LIMIT] > before, "large ones");
    mw_free(block);
    for (size_t i = 0; i < FEW; i++) {
        mw_free(large[i]);
    }
    before = rounds[MALLOW_SHED_SOFT_LIMIT];
    block = mw_malloc(2 * MIB);
    CHECK(rounds[MALLOW_SHED_SOFT_LIMIT] == before, "below it nothing is asked");
    mw_free(block);
    set("soft_limit", "0");
}

enum { SMALL_THREADS = 200 };
static pthread_barrier_t all_hold;
static pthread_barrier_t may_end;

static void *hold_a_little(void *unused)
{
    void *blocks[14];
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        blocks[i] = mw_malloc((size_t)16 << i % 7);
        CHECK(blocks[i] != NULL, "malloc");
    }
    pthread_barrier_wait(&all_hold);
    pthread_barrier_wait(&may_end);
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        mw_free(blocks[i]);
    }
    return unused;
}

// What threads with a few small blocks hold.
static uint64_t held_by_small_threads(void)
{
    pthread_t threads[SMALL_THREADS];
    pthread_barrier_init(&all_hold, NULL, SMALL_THREADS + 1);
    pthread_barrier_init(&may_end, NULL, SMALL_THREADS + 1);
    (void)mw_collect(true);
    const uint64_t before = limits().held_bytes;
    for (unsigned i = 0; i < SMALL_THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, hold_a_little, NULL) == 0, "pthread_create");
    }
    pthread_barrier_wait(&all_hold);
    const uint64_t held = limits().held_bytes;
    pthread_barrier_wait(&may_end);
    for (unsigned i = 0; i < SMALL_THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0, "pthread_join");
    }
    return held > before ? held - before : 0;
}

static void threads_are_as_small_above_the_soft_limit(void)
{
    void *const block = mw_malloc(10 * MIB);
    set("soft_limit", "4M");
    const uint64_t above = held_by_small_threads();
    CHECK(above < SMALL_THREADS * 64 * KIB, "%zu KiB", (size_t)above / KIB);
    set("soft_limit", "0");
    mw_free(block);
}

static void *allocate_in_threads(void *unused)
{
    (void)unused;
    for (size_t i = 0; i < SCALED(4000); i++) {
        unsigned char *const block = mw_malloc(ENTRY);
        if (block == NULL) {
            CHECK(errno == ENOMEM, "errno %d", errno);
            continue;
        }
        block[0] = 1;
        cache_add(block);
    }
    return NULL;
}

static void eight_threads_shed_one_round_at_a_time(void)
{
    pthread_t threads[THREADS];
    set("limit", "48M");
    set("soft_limit", "32M");
    for (size_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, allocate_in_threads, NULL) == 0, "thread");
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK(limits().held_bytes <= 48 * MIB, "held");
    set("limit", "0");
    set("soft_limit", "0");
}

static void in_a_forks_child_shedding_goes_on(void)
{
    const pid_t child = fork();
    if (child == 0) {
        const unsigned before = rounds[MALLOW_SHED_REFUSED];
        set("limit", "64M");
        fill_cache((void *)(uintptr_t)2000);
        _exit(rounds[MALLOW_SHED_REFUSED] > before ? 0 : 3);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "the child: %#x", (unsigned)status);
}

static void what_was_taken_off_is_not_called(void)
{
    CHECK(mw_shed_unregister(cache_shed, cache) == 0, "unregister");
    CHECK(mw_shed_unregister(cache_shed, cache) == ENOENT, "twice");
    const unsigned before = rounds[MALLOW_SHED_REFUSED];
    set("limit", "16M");
    size_t refused = 0;
    for (size_t i = 0; i < 1000; i++) {
        void *const block = mw_malloc(ENTRY);
        refused += block == NULL;
        cache_add(block);
    }
    CHECK(refused > 0 && rounds[MALLOW_SHED_REFUSED] == before, "%zu refused", refused);
    set("limit", "0");
}

int main(void)
{
    figures();
    a_cache_is_shed_before_the_hard_limit_refuses();
    the_soft_limit_sheds_and_refuses_nothing();
    growing_a_block_above_the_soft_limit_sheds_in_the_same_call();
    threads_are_as_small_above_the_soft_limit();
    eight_threads_shed_one_round_at_a_time();
    in_a_forks_child_shedding_goes_on();
    what_was_taken_off_is_not_called();
    parts();
    dprintf(2, "rounds: %u soft, %u refused\n", rounds[MALLOW_SHED_SOFT_LIMIT], rounds[MALLOW_SHED_REFUSED]);
    return 0;
}
