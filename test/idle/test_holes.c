// SPDX-License-Identifier: MIT
// Pages inside slabs that are partly in use go back as well, whoever owns the slabs, and no live block
// loses a byte for it. Built for both families (see support/family.h).
#include "idle.h"

#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#ifdef TEST_FAMILY_MW
static size_t collect(void) { return mw_collect(true); }
#else
static size_t collect(void) { return (size_t)malloc_trim(0); }
#endif

#ifdef TEST_SCALED
enum { FILL = 16 << 20, SLEEPERS = 20, STRESS_STEPS = 20000 };
#else
enum { FILL = 96 << 20, SLEEPERS = 500, STRESS_STEPS = 300000 };
#endif

// One in 20 blocks of 800 bytes survives: 78 % of the pages hold none of them.
static void thinned(struct load *load, uint64_t seed, size_t bytes)
{
    struct chance chance = {seed};
    load_fill(load, bytes / 800, 800);
    load_thin_out(load, 20, &chance);
}

// ---- What comes back ----------------------------------------------------------------------------------

static void most_of_a_sparse_heap_comes_back_while_idle(void **state)
{
    (void)state;
    struct load load;
    const size_t before = process_rss_kib();
    thinned(&load, 1, FILL);
    const bool back = wait_for_rss(before + FILL / KIB * 32 / 100, 2000);
    CHECK(!RSS_IS_OURS || back, "%zu KiB before, %zu now", before, process_rss_kib());
    load_check(&load);
    load_free(&load);
    CHECK(!RSS_IS_OURS || wait_for_rss(before + 4 * KIB, 2000), "%zu KiB before, %zu with all free",
          before, process_rss_kib());
    assert_true(wait_for_threads(1, 4000));
}

// Blocks of 512, 1,024 and 2,048 bytes in random order, of which one in 20 survives: what stays is the
// pages that these lie in, and little besides.
static void what_stays_is_the_pages_of_live_blocks(void **state)
{
    (void)state;
    struct chance chance = {42};
    struct sized {
        unsigned char *block;
        size_t size;
    };
    const size_t before = process_rss_kib();
    const size_t count = FILL / 1024;
    struct sized *const all = mmap(NULL, count * sizeof *all, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < count; i++) {
        const size_t kind = chance_below(&chance, 6);
        all[i].size = kind < 3 ? 512 : kind < 5 ? 1024 : 2048;
        all[i].block = fam_malloc(all[i].size);
        CHECK(all[i].block != NULL, "malloc");
        tag_fill(all[i].block, all[i].size, i);
    }
    size_t pages = count * sizeof *all / 4096;
    uintptr_t last_page = 0;
    for (size_t i = 0; i < count; i++) {
        if (chance_below(&chance, 20) != 0) {
            fam_free(all[i].block);
            all[i].block = NULL;
            continue;
        }
        // Neighbours follow each other, so a page is hardly counted twice.
        const uintptr_t first = (uintptr_t)all[i].block / 4096;
        const uintptr_t end = ((uintptr_t)all[i].block + all[i].size - 1) / 4096 + 1;
        pages += end - first - (first == last_page);
        last_page = end - 1;
    }
    const bool back = wait_for_rss(before + pages * 4 + 3 * KIB, 2500);
    CHECK(!RSS_IS_OURS || back, "%zu KiB before, %zu in pages of live blocks, %zu now", before, pages * 4,
          process_rss_kib());
    for (size_t i = 0; i < count; i++) {
        CHECK(all[i].block == NULL || tag_wrong(all[i].block, all[i].size, i) == all[i].size,
              "block of %zu bytes lost its contents", all[i].size);
        fam_free(all[i].block);
    }
    munmap(all, count * sizeof *all);
}

static void collecting_does_it_at_once_and_says_how_much(void **state)
{
    (void)state;
    struct load load;
    thinned(&load, 2, FILL);
    const size_t full = process_rss_kib();
    const size_t released = collect();
    const size_t rest = process_rss_kib();
    CHECK(!RSS_IS_OURS || rest + FILL / KIB * 68 / 100 < full, "%zu KiB, then %zu", full, rest);
#ifdef TEST_FAMILY_MW
    CHECK(!RSS_IS_OURS || (released / KIB > (full - rest) * 95 / 100 && released / KIB < (full - rest) * 105 / 100),
          "%zu KiB said to be released, %zu were", released / KIB, full - rest);
#else
    assert_int_equal(released, 1);
#endif
    load_check(&load);
    load_free(&load);
    collect();
}

// A thread that leaves a sparse heap, and sleeps.
struct sleeper {
    pthread_t thread;
    struct load load;
    sem_t *ready;
    sem_t *leave;
    size_t bytes;
    bool all;
};

static void *sleep_on_it(void *argument)
{
    struct sleeper *const sleeper = argument;
    thinned(&sleeper->load, (uint64_t)(uintptr_t)sleeper, sleeper->bytes);
    if (sleeper->all) {
        load_free(&sleeper->load);
    }
    sem_post(sleeper->ready);
    while (sem_wait(sleeper->leave) != 0) {
    }
    if (!sleeper->all) {
        load_check(&sleeper->load);
        load_free(&sleeper->load);
    }
    return NULL;
}

static void sleep_many(void *(*work)(void *), size_t count, size_t bytes, bool all, size_t kib_a_thread, uint64_t limit_ms)
{
    static struct sleeper sleepers[SLEEPERS];
    sem_t ready;
    sem_t leave;
    pthread_attr_t small;
    sem_init(&ready, 0, 0);
    sem_init(&leave, 0, 0);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 * KIB);
    const size_t before = process_rss_kib();
    for (size_t i = 0; i < count; i++) {
        sleepers[i] = (struct sleeper){.ready = &ready, .leave = &leave, .bytes = bytes, .all = all};
        CHECK(pthread_create(&sleepers[i].thread, &small, work, &sleepers[i]) == 0, "thread %zu", i);
    }
    for (size_t i = 0; i < count; i++) {
        while (sem_wait(&ready) != 0) {
        }
    }
    const bool back = wait_for_rss(before + count * kib_a_thread, limit_ms);
    CHECK(!RSS_IS_OURS || back, "%zu KiB before, %zu KiB with %zu threads asleep", before,
          process_rss_kib(), count);
    for (size_t i = 0; i < count; i++) {
        sem_post(&leave);
    }
    for (size_t i = 0; i < count; i++) {
        pthread_join(sleepers[i].thread, NULL);
    }
}

static void a_sleeping_thread_gives_back_its_holes(void **state)
{
    (void)state;
    sleep_many(sleep_on_it, 1, FILL, false, FILL / KIB * 32 / 100, 2000);
}

static void five_hundred_that_touched_a_megabyte_each_give_it_back(void **state)
{
    (void)state;
    sleep_many(sleep_on_it, SLEEPERS, MIB, true, 60, 5000);
}

// Blocks of all sizes that malloc has a fast path for: hardly any slab was ever full, and most that is
// free is what malloc would take next.
static void *touch_many_sizes_and_sleep(void *argument)
{
    struct sleeper *const sleeper = argument;
    struct chance chance = {(uint64_t)(uintptr_t)argument};
    enum { COUNT = 2000 };
    void **const blocks = mmap(NULL, COUNT * sizeof *blocks, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0, bytes = 0; i < COUNT && bytes < sleeper->bytes; i++) {
        const size_t size = 16 + chance_below(&chance, 1000);
        blocks[i] = fam_malloc(size);
        memset(blocks[i], 1, size);
        bytes += size;
    }
    for (size_t i = 0; i < COUNT; i++) {
        fam_free(blocks[i]);
    }
    // Not unmapped: ThreadSanitizer does not see that such addresses come to be used anew.
    madvise(blocks, COUNT * sizeof *blocks, MADV_DONTNEED);
    sem_post(sleeper->ready);
    while (sem_wait(sleeper->leave) != 0) {
    }
    return NULL;
}

static void so_do_five_hundred_that_touched_it_in_many_sizes(void **state)
{
    (void)state;
    sleep_many(touch_many_sizes_and_sleep, SLEEPERS, MIB, true, 60, 5000);
}

static void those_that_keep_a_twentieth_of_it_give_back_the_most(void **state)
{
    (void)state;
    sleep_many(sleep_on_it, SLEEPERS / 5, MIB, false, 420, 5000);
}

static void *leave_it(void *argument)
{
    thinned(argument, 5, FILL);
    return NULL;
}

static void what_an_ended_thread_left_is_purged_too(void **state)
{
    (void)state;
    struct load load;
    pthread_t thread;
    const size_t before = process_rss_kib();
    pthread_create(&thread, NULL, leave_it, &load);
    pthread_join(thread, NULL);
    const bool back = wait_for_rss(before + FILL / KIB * 32 / 100, 2000);
    CHECK(!RSS_IS_OURS || back, "%zu KiB before, %zu now", before, process_rss_kib());
    load_check(&load);
    load_free(&load);
}

static void what_other_threads_freed_of_a_sleeper_is_purged_too(void **state)
{
    (void)state;
    struct sleeper sleeper;
    sem_t ready;
    sem_t leave;
    sem_init(&ready, 0, 0);
    sem_init(&leave, 0, 0);
    const size_t before = process_rss_kib();
    sleeper = (struct sleeper){.ready = &ready, .leave = &leave, .bytes = FILL};
    pthread_create(&sleeper.thread, NULL, sleep_on_it, &sleeper);
    while (sem_wait(&ready) != 0) {
    }
    struct load mine = sleeper.load; // all of its blocks but those of a last few pages
    for (size_t i = 0; i + 4000 < mine.count; i++) {
        fam_free(mine.blocks[i]);
        mine.blocks[i] = NULL;
    }
    const bool back = wait_for_rss(before + 6 * KIB, 2000);
    CHECK(!RSS_IS_OURS || back, "%zu KiB before, %zu now", before, process_rss_kib());
    sem_post(&leave);
    pthread_join(sleeper.thread, NULL);
}

// ---- Nothing is lost ---------------------------------------------------------------------------------

static atomic_bool stop;
static _Atomic(void *) exchange_places[64];

// Blocks of small and medium classes come and go in phases, of one's own and of others'.
static void *churn(void *argument)
{
    enum { SLOTS = 3000 };
    struct chance chance = {(uint64_t)(uintptr_t)argument};
    struct slot {
        unsigned char *block;
        size_t size;
    } *const slots = mmap(NULL, SLOTS * sizeof *slots, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t step = 0; step < STRESS_STEPS; step++) {
        const bool filling = step / 4000 % 2 == 0;
        const size_t at = chance_below(&chance, SLOTS);
        struct slot *const slot = &slots[at];
        CHECK(tag_wrong(slot->block, slot->size, at) == slot->size, "block of %zu bytes lost its contents",
              slot->size);
        if (step % 16 == 0) {
            fam_free(atomic_exchange(&exchange_places[step / 16 % 64], slot->block));
        } else {
            fam_free(slot->block);
        }
        slot->block = NULL;
        slot->size = 0;
        if (filling || chance_below(&chance, 8) == 0) {
            slot->size = chance_below(&chance, chance_below(&chance, 16) == 0 ? 40000 : 1000);
            slot->block = step % 3 == 0 ? fam_calloc(1, slot->size) : fam_malloc(slot->size);
            CHECK(slot->block != NULL, "malloc");
            CHECK(step % 3 != 0 || nonzero_at(slot->block, slot->size) == slot->size, "calloc");
            tag_fill(slot->block, slot->size, at);
        }
        if (step % 8000 == 7999) {
            rest_ms(chance_below(&chance, 30)); // asleep with what it has
        }
    }
    for (size_t at = 0; at < SLOTS; at++) {
        CHECK(tag_wrong(slots[at].block, slots[at].size, at) == slots[at].size, "contents at the end");
        fam_free(slots[at].block);
    }
    munmap(slots, SLOTS * sizeof *slots);
    return NULL;
}

static void *collect_on_and_on(void *count)
{
    while (!atomic_load(&stop)) {
        collect();
        ++*(size_t *)count;
    }
    return NULL;
}

static void live_blocks_keep_their_contents_beside_purging(void **state)
{
    (void)state;
    enum { CHURNERS = 4 };
    pthread_t threads[CHURNERS];
    pthread_t collectors[2];
    size_t collected[2] = {0, 0};
    atomic_store(&stop, false);
    for (size_t i = 0; i < 2; i++) {
        pthread_create(&collectors[i], NULL, collect_on_and_on, &collected[i]);
    }
    for (int round = 0; round < 3; round++) {
        for (uintptr_t i = 0; i < CHURNERS; i++) {
            pthread_create(&threads[i], NULL, churn, (void *)(i + 10 * (uintptr_t)round + 1));
        }
        for (size_t i = 0; i < CHURNERS; i++) {
            pthread_join(threads[i], NULL);
        }
    }
    atomic_store(&stop, true);
    for (size_t i = 0; i < 2; i++) {
        pthread_join(collectors[i], NULL);
    }
    for (size_t i = 0; i < 64; i++) {
        fam_free(atomic_exchange(&exchange_places[i], NULL));
    }
    dprintf(2, "collected %zu times beside it\n", collected[0] + collected[1]);
    assert_true(collected[0] + collected[1] > 10);
}

// Threads that work in bursts of small blocks, and sleep in between for about as long as it takes until
// their pages go: so they wake up at every point of that.
static void *burst(void *argument)
{
    enum { SLOTS = 600, BURSTS = 5 };
    struct chance chance = {(uint64_t)(uintptr_t)argument};
    struct slot {
        unsigned char *block;
        size_t size;
    } *const slots = mmap(NULL, SLOTS * sizeof *slots, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t round = 0; round < BURSTS; round++) {
        for (size_t step = 0; step < 3000; step++) {
            const size_t at = chance_below(&chance, SLOTS);
            struct slot *const slot = &slots[at];
            CHECK(tag_wrong(slot->block, slot->size, at) == slot->size, "block of %zu bytes lost its contents",
                  slot->size);
            fam_free(slot->block);
            slot->block = NULL;
            slot->size = 0;
            if (step < 1500 || chance_below(&chance, 5) == 0) {
                slot->size = chance_below(&chance, 1024);
                slot->block = step % 3 == 0 ? fam_calloc(1, slot->size) : fam_malloc(slot->size);
                CHECK(slot->block != NULL, "malloc");
                CHECK(step % 3 != 0 || nonzero_at(slot->block, slot->size) == slot->size, "calloc");
                tag_fill(slot->block, slot->size, at);
            }
        }
        rest_ms(1100 + chance_below(&chance, 1000));
    }
    for (size_t at = 0; at < SLOTS; at++) {
        CHECK(tag_wrong(slots[at].block, slots[at].size, at) == slots[at].size, "contents at the end");
        fam_free(slots[at].block);
    }
    munmap(slots, SLOTS * sizeof *slots);
    return NULL;
}

static void threads_that_wake_up_find_what_they_left(void **state)
{
    (void)state;
    enum { THREADS = 24 };
    pthread_t threads[THREADS];
    struct load load; // so that there is something to do
    thinned(&load, 11, FILL);
    for (uintptr_t i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, burst, (void *)(i + 1));
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    load_check(&load);
    load_free(&load);
}

static void forks_beside_purging_have_whole_children(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip();
#endif
    pthread_t collector;
    size_t collected = 0;
    struct load load;
    thinned(&load, 9, FILL / 8);
    atomic_store(&stop, false);
    pthread_create(&collector, NULL, collect_on_and_on, &collected);
    for (int i = 0; i < 60; i++) {
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            alarm(60);
            load_check(&load);
            struct load own;
            thinned(&own, (uint64_t)i, FILL / 32);
            collect();
            load_check(&own);
            load_check(&load);
            _exit(0);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    atomic_store(&stop, true);
    pthread_join(collector, NULL);
    load_check(&load);
    load_free(&load);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(most_of_a_sparse_heap_comes_back_while_idle),
        cmocka_unit_test(what_stays_is_the_pages_of_live_blocks),
        cmocka_unit_test(collecting_does_it_at_once_and_says_how_much),
        cmocka_unit_test(a_sleeping_thread_gives_back_its_holes),
        cmocka_unit_test(five_hundred_that_touched_a_megabyte_each_give_it_back),
        cmocka_unit_test(so_do_five_hundred_that_touched_it_in_many_sizes),
        cmocka_unit_test(those_that_keep_a_twentieth_of_it_give_back_the_most),
        cmocka_unit_test(what_an_ended_thread_left_is_purged_too),
        cmocka_unit_test(what_other_threads_freed_of_a_sleeper_is_purged_too),
        cmocka_unit_test(live_blocks_keep_their_contents_beside_purging),
        cmocka_unit_test(threads_that_wake_up_find_what_they_left),
        cmocka_unit_test(forks_beside_purging_have_whole_children),
    };
    return suite_run(tests);
}
