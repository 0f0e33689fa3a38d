// SPDX-License-Identifier: MIT
// Remote frees: blocks that end in another thread than the one they began in. Built for both families
// (see support/family.h).
#include "../support/family.h"
#include "../support/suite.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 4, RING = 512 };

struct parcel {
    unsigned char *block;
    size_t size;
    uint64_t tag;
};

// One writer, one reader.
struct ring {
    struct parcel slots[RING];
    _Alignas(64) atomic_size_t written;
    _Alignas(64) atomic_size_t read;
};

static bool ring_put(struct ring *ring, struct parcel parcel)
{
    const size_t at = atomic_load_explicit(&ring->written, memory_order_relaxed);
    if (at - atomic_load_explicit(&ring->read, memory_order_acquire) == RING) {
        return false;
    }
    ring->slots[at % RING] = parcel;
    atomic_store_explicit(&ring->written, at + 1, memory_order_release);
    return true;
}

static bool ring_take(struct ring *ring, struct parcel *parcel)
{
    const size_t at = atomic_load_explicit(&ring->read, memory_order_relaxed);
    if (at == atomic_load_explicit(&ring->written, memory_order_acquire)) {
        return false;
    }
    *parcel = ring->slots[at % RING];
    atomic_store_explicit(&ring->read, at + 1, memory_order_release);
    return true;
}

static struct ring rings[THREADS][THREADS]; // [from][to]
static atomic_size_t passed_on;
static atomic_size_t given_back;
static size_t storm_count;
static uint64_t storm_seed;

static void drain(size_t self)
{
    struct parcel parcel;
    for (size_t from = 0; from < THREADS; from++) {
        for (int i = 0; i < 8 && ring_take(&rings[from][self], &parcel); i++) {
            const size_t wrong = tag_wrong(parcel.block, parcel.size, parcel.tag);
            CHECK(wrong == parcel.size, "byte %zu of a block of %zu from thread %zu", wrong, parcel.size, from);
            fam_free(parcel.block);
            atomic_fetch_add_explicit(&given_back, 1, memory_order_relaxed);
        }
    }
}

static void *storm_thread(void *argument)
{
    const size_t self = (size_t)(uintptr_t)argument;
    struct chance chance = {storm_seed + self};
    for (size_t i = 0; i < storm_count; i++) {
        struct parcel parcel = {.size = chance_size(&chance), .tag = chance_next(&chance)};
        parcel.block = fam_malloc(parcel.size);
        CHECK(parcel.block != NULL, "malloc(%zu)", parcel.size);
        tag_fill(parcel.block, parcel.size, parcel.tag);
        if (i % 16 == 0) { // a remote realloc now and then
            parcel.block = fam_realloc(parcel.block, parcel.size * 2 + 1);
            CHECK(parcel.block != NULL, "realloc");
        }
        const size_t to = (self + 1 + chance_below(&chance, THREADS - 1)) % THREADS;
        while (!ring_put(&rings[self][to], parcel)) {
            drain(self);
        }
        atomic_fetch_add_explicit(&passed_on, 1, memory_order_relaxed);
        drain(self);
    }
    while (atomic_load(&given_back) < THREADS * storm_count) {
        drain(self);
    }
    return NULL;
}

static void every_block_is_freed_by_another_thread(void **state)
{
    (void)state;
    storm_seed = chance_seed();
    storm_count = SCALED(120000u);
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, storm_thread, (void *)(uintptr_t)i), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(atomic_load(&given_back), THREADS * storm_count);
}

// ---- One thread makes, one frees, over and over: memory must come back to the maker --------------

static void **batch;
static size_t batch_count;
static size_t batch_size;
static pthread_barrier_t batch_barrier;

static void *batch_freer(void *rounds)
{
    for (size_t round = 0; round < (size_t)(uintptr_t)rounds; round++) {
        pthread_barrier_wait(&batch_barrier);
        for (size_t i = 0; i < batch_count; i++) {
            CHECK(*(size_t *)batch[i] == i + round, "block %zu of round %zu", i, round);
            fam_free(batch[i]);
        }
        pthread_barrier_wait(&batch_barrier);
    }
    return NULL;
}

static void memory_freed_remotely_serves_its_owner_again(void **state)
{
    (void)state;
    static const size_t sizes[] = {16, 64, 200, 3000, 40000, 700000, 2000000};
    enum { ROUNDS = 40 };
    for (size_t s = 0; s < COUNT_OF(sizes); s++) {
        batch_size = sizes[s];
        batch_count = SCALED(16 * MIB / batch_size < 60000 ? 16 * MIB / batch_size : 60000);
        batch = fam_malloc(batch_count * sizeof *batch);
        pthread_barrier_init(&batch_barrier, NULL, 2);
        pthread_t freer;
        assert_int_equal(pthread_create(&freer, NULL, batch_freer, (void *)(uintptr_t)ROUNDS), 0);
        size_t after_first = 0;
        for (size_t round = 0; round < ROUNDS; round++) {
            for (size_t i = 0; i < batch_count; i++) {
                batch[i] = fam_malloc(batch_size);
                CHECK(batch[i] != NULL, "malloc");
                *(size_t *)batch[i] = i + round;
                ((char *)batch[i])[batch_size - 1] = 1;
            }
            pthread_barrier_wait(&batch_barrier);
            pthread_barrier_wait(&batch_barrier);
            if (round == 4) {
                after_first = process_status_kib("VmHWM");
            }
        }
        pthread_join(freer, NULL);
        pthread_barrier_destroy(&batch_barrier);
        fam_free(batch);
        const size_t at_end = process_status_kib("VmHWM"); // the kernel's count is not exact
        const size_t grown = at_end > after_first ? at_end - after_first : 0;
        if (FIGURES_COUNT && grown > 20 * KIB) {
            fail_msg("size %zu: the peak grew by %zu KiB over %d rounds", batch_size, grown, ROUNDS);
        }
    }
}

// ---- Many threads free blocks of one slab at the same moment --------------------------------------

enum { SHARED_BLOCKS = 4096 };
static void *shared_blocks[SHARED_BLOCKS];
static pthread_barrier_t shared_barrier;

static void *shared_freer(void *argument)
{
    const size_t self = (size_t)(uintptr_t)argument;
    for (size_t round = 0; round < SCALED(300u); round++) {
        pthread_barrier_wait(&shared_barrier);
        for (size_t i = self; i < SHARED_BLOCKS; i += THREADS) {
            CHECK(tag_wrong(shared_blocks[i], 40, i + round) == 40, "block %zu", i);
            fam_free(shared_blocks[i]);
        }
        pthread_barrier_wait(&shared_barrier);
    }
    return NULL;
}

static void neighbours_are_freed_by_all_threads_at_once(void **state)
{
    (void)state;
    pthread_barrier_init(&shared_barrier, NULL, THREADS + 1);
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, shared_freer, (void *)(uintptr_t)i), 0);
    }
    for (size_t round = 0; round < SCALED(300u); round++) {
        for (size_t i = 0; i < SHARED_BLOCKS; i++) {
            shared_blocks[i] = fam_malloc(40);
            tag_fill(shared_blocks[i], 40, i + round);
        }
        pthread_barrier_wait(&shared_barrier);
        for (size_t i = 0; i < 2000; i++) { // the owner goes on meanwhile
            fam_free(fam_malloc(40));
        }
        pthread_barrier_wait(&shared_barrier);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
}

// ---- A thread that has freed before it allocates -------------------------------------------------

enum { FIRST_BLOCKS = 200 };

static void fill_blocks(void **blocks, uint64_t tag)
{
    for (size_t i = 0; i < FIRST_BLOCKS; i++) {
        blocks[i] = fam_malloc(8 + i * 13);
        CHECK(blocks[i] != NULL, "malloc");
        tag_fill(blocks[i], 8 + i * 13, tag + i);
    }
}

static void free_blocks(void **blocks, uint64_t tag)
{
    for (size_t i = 0; i < FIRST_BLOCKS; i++) {
        const size_t wrong = tag_wrong(blocks[i], 8 + i * 13, tag + i);
        CHECK(wrong == 8 + i * 13, "byte %zu of block %zu", wrong, i);
        fam_free(blocks[i]);
    }
}

static void *free_first(void *others)
{
    void *own[FIRST_BLOCKS];
    free_blocks(others, 1);
    fill_blocks(own, 2);
    fill_blocks(others, 3); // for whoever is next
    free_blocks(own, 2);
    return NULL;
}

static void a_thread_that_frees_first_allocates_as_others_do(void **state)
{
    (void)state;
    static void *given[THREADS][FIRST_BLOCKS];
    for (size_t round = 0; round < SCALED(300u); round++) {
        pthread_t threads[THREADS];
        for (size_t i = 0; i < THREADS; i++) {
            fill_blocks(given[i], 1);
            assert_int_equal(pthread_create(&threads[i], NULL, free_first, given[i]), 0);
        }
        for (size_t i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            free_blocks(given[i], 3);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_that_frees_first_allocates_as_others_do),
        cmocka_unit_test(every_block_is_freed_by_another_thread),
        cmocka_unit_test(memory_freed_remotely_serves_its_owner_again),
        cmocka_unit_test(neighbours_are_freed_by_all_threads_at_once),
    };
    return suite_run(tests);
}
