// SPDX-License-Identifier: MIT
// Pools and threads: blocks that end in another thread than their pool's owner; nothing is lost, nothing
// is given out twice, a double free between threads is told, and occupancy can be read meanwhile.
#include <mallow/pool.h>

#include "../support/suite.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#ifdef TEST_SCALED
enum { THREADS = 4, ROUNDS = 20000, RING = 256 };
#else
enum { THREADS = 4, ROUNDS = 300000, RING = 256 };
#endif

static const struct mw_pool_class classes[] = {{.size_bytes = 16, .block_count = 700},
                                               {.size_bytes = 64, .block_count = 5000},
                                               {.size_bytes = 1000, .block_count = 65}};
static struct mw_pool_set *set;

// One writer, one reader.
struct ring {
    void *slots[RING];
    _Alignas(64) atomic_size_t written;
    _Alignas(64) atomic_size_t read;
};
static struct ring rings[THREADS][THREADS]; // [from][to]
static atomic_uint finished;
static atomic_size_t refusals;

static bool ring_put(struct ring *ring, void *block)
{
    const size_t at = atomic_load_explicit(&ring->written, memory_order_relaxed);
    if (at - atomic_load_explicit(&ring->read, memory_order_acquire) == RING) {
        return false;
    }
    ring->slots[at % RING] = block;
    atomic_store_explicit(&ring->written, at + 1, memory_order_release);
    return true;
}

static void *ring_take(struct ring *ring)
{
    const size_t at = atomic_load_explicit(&ring->read, memory_order_relaxed);
    if (at == atomic_load_explicit(&ring->written, memory_order_acquire)) {
        return NULL;
    }
    void *const block = ring->slots[at % RING];
    atomic_store_explicit(&ring->read, at + 1, memory_order_release);
    return block;
}

static uint64_t next(uint64_t *chance)
{
    *chance ^= *chance << 13;
    *chance ^= *chance >> 7;
    *chance ^= *chance << 17;
    return *chance;
}

// Frees what other threads have sent; each block must still hold its own address.
static size_t receive(size_t self)
{
    size_t count = 0;
    for (size_t from = 0; from < THREADS; from++) {
        void *block;
        while ((block = ring_take(&rings[from][self])) != NULL) {
            CHECK(*(void **)block == block, "block %p of thread %zu was given out twice", block, from);
            *(void **)block = NULL;
            const enum mw_pool_status status = mw_pool_set_free(set, self, block);
            CHECK(status == MW_POOL_OK, "%s", mw_pool_status_text(status));
            count++;
        }
    }
    return count;
}

static void *worker(void *argument)
{
    const size_t self = (size_t)argument;
    struct mw_pool *const pool = mw_pool_set_get(set, self);
    uint64_t chance = 0x9e3779b97f4a7c15u * (self + 1);
    CHECK(mw_pool_bind(pool) == MW_POOL_OK, "bind");
    for (size_t round = 0; round < ROUNDS; round++) {
        void **const block = mw_pool_alloc(pool, 8 + next(&chance) % 900);
        if (block == NULL) {
            atomic_fetch_add_explicit(&refusals, 1, memory_order_relaxed);
            receive(self);
            continue;
        }
        *block = block;
        const size_t to = next(&chance) % THREADS;
        if (to == self || !ring_put(&rings[self][to], block)) {
            CHECK(mw_pool_free(pool, block) == MW_POOL_OK, "own free");
        }
        if (round % 16 == 0) {
            receive(self);
        }
    }
    atomic_fetch_add(&finished, 1);
    while (atomic_load(&finished) < THREADS || receive(self) != 0) {
        receive(self);
    }
    return NULL;
}

// Reads what anyone may read, all the while.
static void *observer(void *unused)
{
    (void)unused;
    while (atomic_load(&finished) < THREADS) {
        for (size_t i = 0; i < THREADS; i++) {
            const struct mw_pool *const pool = mw_pool_set_get(set, i);
            struct mw_pool_class_stats stats[3];
            CHECK(mw_pool_occupancy_ppm(pool) <= MW_POOL_WHOLE, "occupancy");
            CHECK(mw_pool_stats(pool, stats, 3) == 3, "stats");
            CHECK(mw_pool_used_count(pool, 1) <= 5000 + RING * THREADS, "used");
        }
    }
    return NULL;
}

static void check_all_back(void)
{
    for (size_t i = 0; i < THREADS; i++) {
        struct mw_pool *const pool = mw_pool_set_get(set, i);
        CHECK(mw_pool_occupancy_ppm(pool) == 0, "pool %zu has %u ppm in use", i, mw_pool_occupancy_ppm(pool));
        mw_pool_collect(pool, SIZE_MAX);
        for (size_t class = 0; class < 3; class++) {
            size_t count = 0;
            while (mw_pool_alloc_class(pool, class) != NULL) {
                count++;
            }
            CHECK(count == classes[class].block_count, "%zu blocks of class %zu left", count, class);
        }
    }
}

static void run_threads(const struct mw_pool_config *config)
{
    pthread_t threads[THREADS + 1];
    memset(rings, 0, sizeof rings);
    atomic_store(&finished, 0);
    CHECK(mw_pool_set_create(config, THREADS, &set) == MW_POOL_OK, "set");
    for (size_t i = 0; i <= THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, i < THREADS ? worker : observer, (void *)i) == 0, "thread");
    }
    for (size_t i = 0; i <= THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (size_t i = 0; i < THREADS; i++) {
        CHECK(mw_pool_bind(mw_pool_set_get(set, i)) == MW_POOL_OK, "bind");
    }
    check_all_back();
    CHECK(mw_pool_set_destroy(set) == MW_POOL_OK, "destroy");
}

static void blocks_cross_threads_and_none_is_lost(void **unused)
{
    (void)unused;
    run_threads(&(struct mw_pool_config){.classes = classes, .class_count = 3});
}

static void with_fallback_and_owners_checked_too(void **unused)
{
    (void)unused;
    run_threads(&(struct mw_pool_config){.classes = classes, .class_count = 3, .fallback = true, .check_owner = true});
}

// ---- Double frees between threads ---------------------------------------------------------------

static struct mw_pool *shared_pool;
static void *contested[5000];
static atomic_uint freed_once, freed_twice, gate;

static void *rival(void *unused)
{
    (void)unused;
    atomic_fetch_add(&gate, 1);
    while (atomic_load(&gate) < THREADS) {
    }
    for (size_t i = 0; i < 5000; i++) {
        const enum mw_pool_status status = mw_pool_free_remote(shared_pool, contested[i]);
        atomic_fetch_add(status == MW_POOL_OK ? &freed_once : &freed_twice, 1);
        CHECK(status == MW_POOL_OK || status == MW_POOL_DOUBLE_FREE, "%s", mw_pool_status_text(status));
    }
    return NULL;
}

static void of_several_remote_frees_exactly_one_succeeds(void **unused)
{
    (void)unused;
    const struct mw_pool_config config = {.classes = classes, .class_count = 3, .remote = true};
    CHECK(mw_pool_create(&config, &shared_pool, NULL) == MW_POOL_OK, "pool");
    for (size_t round = 0; round < 20; round++) {
        atomic_store(&gate, 0);
        atomic_store(&freed_once, 0);
        atomic_store(&freed_twice, 0);
        for (size_t i = 0; i < 5000; i++) {
            contested[i] = mw_pool_alloc_class(shared_pool, 1);
            CHECK(contested[i] != NULL, "block %zu of round %zu", i, round);
        }
        pthread_t threads[THREADS];
        for (size_t i = 0; i < THREADS; i++) {
            pthread_create(&threads[i], NULL, rival, NULL);
        }
        for (size_t i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
        }
        CHECK(atomic_load(&freed_once) == 5000, "%u frees succeeded", atomic_load(&freed_once));
        CHECK(atomic_load(&freed_twice) == 5000 * (THREADS - 1), "%u were refused", atomic_load(&freed_twice));
        CHECK(mw_pool_used_count(shared_pool, 1) == 0, "occupancy");
    }
    CHECK(mw_pool_destroy(shared_pool) == MW_POOL_OK, "destroy");
}

static _Atomic(void *) target;
static atomic_bool at_it, over;
static atomic_size_t tries;

// Frees a block that is free already, again and again.
static void *offender(void *unused)
{
    (void)unused;
    while (!atomic_load(&over)) {
        atomic_store(&at_it, true);
        void *const block = atomic_load(&target);
        if (block != NULL && mw_pool_free_remote(shared_pool, block) == MW_POOL_OK) {
            atomic_fetch_add(&freed_twice, 1);
        }
        atomic_store_explicit(&tries, tries + (block != NULL), memory_order_relaxed);
        atomic_store_explicit(&at_it, false, memory_order_release);
    }
    return NULL;
}

static void a_block_is_free_while_its_owner_takes_it_back_too(void **unused)
{
    (void)unused;
    static const struct mw_pool_class word = {.size_bytes = 16, .block_count = 64};
    const struct mw_pool_config config = {.classes = &word, .class_count = 1, .remote = true};
    CHECK(mw_pool_create(&config, &shared_pool, NULL) == MW_POOL_OK, "pool");
    atomic_store(&freed_twice, 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, offender, NULL) == 0, "thread");
    for (size_t round = 0; round < ROUNDS / 100; round++) {
        void *blocks[64];
        for (size_t i = 0; i < 64; i++) {
            blocks[i] = mw_pool_alloc_class(shared_pool, 0);
            CHECK(blocks[i] != NULL, "block %zu of round %zu", i, round);
        }
        for (size_t i = 0; i < 64; i++) {
            CHECK(mw_pool_free_remote(shared_pool, blocks[i]) == MW_POOL_OK, "remote");
        }
        const size_t tried = atomic_load(&tries);
        atomic_store(&target, blocks[63]);
        while (atomic_load(&tries) == tried) {
            sched_yield();
        }
        if (round % 2 == 0) { // one of them back to the program, the others to the pool
            CHECK(mw_pool_alloc_class(shared_pool, 0) == blocks[0], "the lowest one");
        } else {
            CHECK(mw_pool_collect(shared_pool, 1) == 64, "collect");
        }
        atomic_store(&target, NULL);
        while (atomic_load(&at_it)) {
            sched_yield();
        }
        CHECK(atomic_load(&freed_twice) == 0, "freed again in round %zu", round);
        CHECK(mw_pool_free(shared_pool, blocks[0]) == (round % 2 == 0 ? MW_POOL_OK : MW_POOL_DOUBLE_FREE), "back");
    }
    atomic_store(&over, true);
    pthread_join(thread, NULL);
    CHECK(mw_pool_destroy(shared_pool) == MW_POOL_OK, "destroy");
}

static void what_one_side_has_freed_the_other_cannot(void **unused)
{
    (void)unused;
    const struct mw_pool_config config = {.classes = classes, .class_count = 3, .remote = true};
    CHECK(mw_pool_create(&config, &shared_pool, NULL) == MW_POOL_OK, "pool");
    char *const first = mw_pool_alloc(shared_pool, 64), *const last = mw_pool_alloc(shared_pool, 64);
    CHECK(mw_pool_free_remote(shared_pool, first) == MW_POOL_OK, "remote");
    CHECK(mw_pool_free(shared_pool, first) == MW_POOL_DOUBLE_FREE, "own after remote");
    CHECK(mw_pool_free_remote(shared_pool, last) == MW_POOL_OK, "remote, of the block handed out last");
    CHECK(mw_pool_free(shared_pool, last) == MW_POOL_DOUBLE_FREE, "own after remote, of that");
    CHECK(mw_pool_find(shared_pool, last, NULL) == MW_POOL_DOUBLE_FREE, "find");
    CHECK(mw_pool_collect(shared_pool, 1) == 2, "collect");
    CHECK(mw_pool_free(shared_pool, last) == MW_POOL_DOUBLE_FREE, "after it came back");
    char *const hot = mw_pool_alloc(shared_pool, 64);
    CHECK(mw_pool_free(shared_pool, hot) == MW_POOL_OK, "own");
    CHECK(mw_pool_free_remote(shared_pool, hot) == MW_POOL_DOUBLE_FREE, "remote after own");
    CHECK(mw_pool_free_remote(shared_pool, NULL) == MW_POOL_NULL_POINTER, "null");
    CHECK(mw_pool_free_remote(shared_pool, hot + 16) == MW_POOL_INTERIOR, "interior");
    CHECK(mw_pool_free_remote(shared_pool, hot + 1) == MW_POOL_MISALIGNED, "misaligned");
    CHECK(mw_pool_free_remote(shared_pool, &shared_pool) == MW_POOL_FOREIGN, "foreign");
    CHECK(mw_pool_destroy(shared_pool) == MW_POOL_OK, "destroy");
}

static void exhausted_means_exhausted_of_what_others_have_freed_too(void **unused)
{
    (void)unused;
    const struct mw_pool_config config = {.classes = classes, .class_count = 3, .remote = true, .fallback = true};
    CHECK(mw_pool_create(&config, &shared_pool, NULL) == MW_POOL_OK, "pool");
    static void *blocks[700 + 5000 + 65];
    const size_t capacity = sizeof blocks / sizeof *blocks;
    size_t count = 0;
    for (void *block; (block = mw_pool_alloc(shared_pool, 16)) != NULL; count++) {
        CHECK(count < capacity, "more than %zu blocks", capacity);
        blocks[count] = block;
    }
    CHECK(count == capacity, "%zu", count);
    for (size_t i = 0; i < count; i += 7) {
        CHECK(mw_pool_free_remote(shared_pool, blocks[i]) == MW_POOL_OK, "remote");
    }
    size_t again = 0;
    while (mw_pool_alloc(shared_pool, 16) != NULL) {
        again++;
    }
    CHECK(again == (count + 6) / 7, "%zu of %zu", again, (count + 6) / 7);
    CHECK(mw_pool_last_status(shared_pool) == MW_POOL_EXHAUSTED_ALL, "status");
    CHECK(mw_pool_destroy(shared_pool) == MW_POOL_OK, "destroy");
}

static void a_set_knows_whose_a_block_is(void **unused)
{
    (void)unused;
    const struct mw_pool_config config = {.classes = classes, .class_count = 3};
    CHECK(mw_pool_set_create(&config, 7, &set) == MW_POOL_OK, "set");
    for (size_t i = 0; i < 7; i++) {
        void *const block = mw_pool_alloc(mw_pool_set_get(set, i), 1000);
        CHECK(mw_pool_set_find(set, block) == i, "owner");
        CHECK(mw_pool_set_free(set, 3, block) == MW_POOL_OK, "free");
        CHECK(mw_pool_set_free(set, 3, block) == MW_POOL_DOUBLE_FREE, "again");
    }
    CHECK(mw_pool_set_get(set, 7) == NULL, "beyond");
    CHECK(mw_pool_set_find(set, set) == SIZE_MAX, "the head is in none");
    CHECK(mw_pool_set_find(set, &config) == SIZE_MAX, "foreign");
    CHECK(mw_pool_set_free(set, 0, &set) == MW_POOL_FOREIGN, "foreign");
    CHECK(mw_pool_set_free(set, 0, NULL) == MW_POOL_NULL_POINTER, "null");
    CHECK(mw_pool_set_destroy(set) == MW_POOL_OK, "destroy");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_cross_threads_and_none_is_lost),
        cmocka_unit_test(with_fallback_and_owners_checked_too),
        cmocka_unit_test(of_several_remote_frees_exactly_one_succeeds),
        cmocka_unit_test(a_block_is_free_while_its_owner_takes_it_back_too),
        cmocka_unit_test(what_one_side_has_freed_the_other_cannot),
        cmocka_unit_test(exhausted_means_exhausted_of_what_others_have_freed_too),
        cmocka_unit_test(a_set_knows_whose_a_block_is),
    };
    return suite_run(tests);
}
