// SPDX-License-Identifier: MIT
// Promotion: which chunks and blocks are ripe, which of them become huge, what it may add to what is
// resident, and what a purge does to them. Works without huge pages, too: then nothing is made, and
// once the kernel has said so a few times nothing is tried.
#include "arena/promote.h"

#include <sys/mman.h>
#include <unistd.h>

#include "os/os_huge.h"
#include "world.h"

static struct arena_world world;
static struct huge_set huges;
static struct promote promote;
static struct arena_set *const set = &world.arenas;
static bool able;     // the kernel is
static bool is_short; // of huge pages, just now

enum { CHUNKS = WORLD_RESERVE_BYTES >> MALLOW_CHUNK_SHIFT };

static struct arena_span spans[WORLD_SLICES];
static unsigned span_count;

static int begin(void **state) {
    (void)state;
    memset(&huges, 0, sizeof huges);
    memset(&promote, 0, sizeof promote);
    arena_world_begin(&world);
    huge_set_init(&huges, &world.os, &world.meta, &world.map, 0);
    able = os_huge_setting(&world.os) != OS_HUGE_NEVER;
    is_short = false;
    promote_init(&promote, set, &huges, true);
    span_count = 0;
    return 0;
}

static int end(void **state) {
    (void)state;
    while (huges.live != NULL) {
        (void)huge_give(&huges, huges.live->address, true);
    }
    arena_world_end(&world);
    return 0;
}

// Takes every slice there is, and touches all of their pages but the last `untouched` of each.
static void fill(size_t untouched) {
    for (;;) {
        const struct arena_span span = arena_take(set, 1, 1);
        assert_non_null(span.slab);
        if (!arena_has_slab(&set->primary, span.slab)) {
            arena_give(set, span.slab, 1);
            (void)arena_purge_all(set); // that one goes
            return;
        }
        memset((void *)span.address, (int)(span_count % 250) + 1,
               MALLOW_SLICE_BYTES - untouched * 4096);
        spans[span_count++] = span;
    }
}

static void check_contents(void) {
    for (unsigned i = 0; i < span_count; i++) {
        assert_true(unit_is_all((void *)spans[i].address, (unsigned char)(i % 250 + 1), 4096));
    }
}

static unsigned promote_all(void) {
    const uint64_t before = atomic_load(&promote.made_count);
    while (promote_one(&promote)) {
    }
    return (unsigned)(atomic_load(&promote.made_count) - before);
}

static unsigned huge_count(void) {
    unsigned count = 0;
    for (unsigned i = 0; i < CHUNKS; i++) {
        count += set->ages[i].looks == ARENA_AGE_HUGE;
    }
    return count;
}

static void ripen(void) {
    for (unsigned i = 0; i < PROMOTE_PATIENCE; i++) {
        assert_int_equal(promote_all(), 0);
        (void)promote_look(&promote);
    }
}

static void need_kernel(void) {
    const bool refused = promote.unfit_count != 0 && atomic_load(&promote.made_count) == 0;
    if (!able || !promote.able || refused) {
        print_message("no huge pages here\n");
        skip();
    }
    if (is_short) {
        print_message("the kernel has no huge page to give just now\n");
        skip();
    }
}

// ---- A kernel that has none to give just now ----------------------------------------------------

enum { PATIENCE_TRIES = 100, PATIENCE_MICROSECONDS = 5000 };

// Whether the kernel makes a huge page of memory that mallow has nothing to do with.
static bool kernel_can_collapse(void) {
    const size_t huge = MALLOW_CHUNK_BYTES;
    char *const mapping = mmap(NULL, 2 * huge, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(mapping != MAP_FAILED);
    char *const aligned = (char *)bits_align_up((uintptr_t)mapping, huge);
    memset(aligned, 1, huge);
    const bool can = madvise(aligned, huge, 25 /* MADV_COLLAPSE */) == 0;
    assert_int_equal(munmap(mapping, 2 * huge), 0);
    return can;
}

enum os_huge_result __real_os_huge_promote(struct os *os, uintptr_t address);
enum os_huge_result __wrap_os_huge_promote(struct os *os, uintptr_t address);

// What is refused for now is asked for again, as the kernel moves pages together meanwhile; if it
// stays so, it must be so for others, too.
enum os_huge_result __wrap_os_huge_promote(struct os *os, uintptr_t address) {
    enum os_huge_result result = __real_os_huge_promote(os, address);
    for (unsigned i = 0; i < PATIENCE_TRIES; i++) {
        if (result != OS_HUGE_BUSY && result != OS_HUGE_FULL) {
            return result;
        }
        (void)usleep(PATIENCE_MICROSECONDS);
        result = __real_os_huge_promote(os, address);
    }
    assert_false(kernel_can_collapse());
    is_short = true;
    return result;
}

// ---- Cases --------------------------------------------------------------------------------------

CASE(full_chunks_become_huge_after_three_looks_and_keep_their_contents) {
    fill(0);
    ripen();
    const unsigned made = promote_all();
    check_contents();
    need_kernel();
    assert_true(made >= CHUNKS - 1); // the kernel may have been busy with one
    assert_int_equal(huge_count(), made);
    assert_int_equal(promote_look(&promote), 0); // nothing left to wait for
}

CASE(a_chunk_that_was_not_full_at_one_look_begins_anew_and_later) {
    fill(0);
    (void)promote_look(&promote);
    (void)promote_look(&promote);
    arena_give(set, spans[40].slab, 1);
    (void)promote_look(&promote);
    const size_t chunk = (spans[40].address - set->primary.base) >> MALLOW_CHUNK_SHIFT;
    assert_int_equal(set->ages[chunk].looks, 0);
    assert_int_equal(set->ages[chunk].rest, ARENA_AGE_REST_LOOKS);
    assert_int_equal(set->ages[chunk ^ 1].looks, PROMOTE_PATIENCE);
    assert_int_equal(arena_take(set, 1, 1).address, spans[40].address);
    for (unsigned i = 0; i < ARENA_AGE_REST_LOOKS; i++) {
        (void)promote_look(&promote);
        assert_int_equal(set->ages[chunk].looks, 0);
    }
    (void)promote_look(&promote);
    assert_int_equal(set->ages[chunk].looks, 1);
}

CASE(sparse_chunks_do_not_become_huge) {
    fill(8);
    ripen();
    assert_int_equal(promote_all(), 0);
    assert_int_equal(promote_look(&promote), 0); // and nobody waits for them
    assert_true(promote.able);
}

CASE(what_promotion_adds_is_at_most_a_twentieth) {
    fill(1); // 32 of 512 pages are missing: 6.7 %
    ripen();
    const unsigned made = promote_all();
    need_kernel();
    assert_true(made >= 1 && made < CHUNKS);
    assert_true(promote.filled_pages * PROMOTE_GAIN_SHARE <= promote.resident_pages);
    assert_true((promote.filled_pages + 32) * PROMOTE_GAIN_SHARE > promote.resident_pages);
    check_contents();
}

CASE(the_densest_chunks_come_first) {
    fill(0);
    // All but the last chunk have lost some pages.
    for (unsigned i = 0; i < span_count; i++) {
        const size_t chunk = (spans[i].address - set->primary.base) >> MALLOW_CHUNK_SHIFT;
        if (chunk != CHUNKS - 1) {
            assert_true(os_purge(&world.os, spans[i].address + 4096, 4096));
        }
    }
    ripen();
    (void)promote_one(&promote);
    need_kernel();
    assert_int_equal(huge_count(), 1);
    assert_int_equal(set->ages[CHUNKS - 1].looks, ARENA_AGE_HUGE);
}

CASE(a_chunk_with_a_thin_slice_never_becomes_huge) {
    fill(0);
    slab_init_thin(spans[span_count - 1].slab, spans[span_count - 1].address, NULL);
    ripen();
    (void)promote_all();
    assert_true(set->ages[CHUNKS - 1].looks != ARENA_AGE_HUGE);
    assert_int_equal(set->ages[CHUNKS - 1].looks, 0);
    slab_clear(spans[span_count - 1].slab);
}

CASE(a_purge_splits_and_it_takes_longer_the_next_time) {
    fill(0);
    ripen();
    (void)promote_all();
    need_kernel();
    const unsigned before = huge_count();
    const struct arena_span *const span = &spans[span_count - 1];
    assert_int_equal(set->ages[CHUNKS - 1].looks, ARENA_AGE_HUGE);
    arena_give(set, span->slab, 1);
    assert_int_equal(arena_purge_all(set), MALLOW_SLICE_BYTES);
    assert_int_equal(huge_count(), before - 1);
    assert_int_equal(atomic_load(&set->split_count), 1);
    const struct arena_age *const age = &set->ages[CHUNKS - 1];
    assert_int_equal(age->rest, ARENA_AGE_REST_LOOKS);
    assert_int_equal(age->failures, 1);
}

CASE(a_huge_page_that_is_wholly_free_goes_at_once) {
    fill(0);
    ripen();
    (void)promote_all();
    need_kernel();
    for (unsigned i = 0; i < span_count; i++) {
        if ((spans[i].address - set->primary.base) >> MALLOW_CHUNK_SHIFT == CHUNKS - 1) {
            arena_give(set, spans[i].slab, 1);
        }
    }
    const uint64_t calls = atomic_load(&world.os.advise_count);
    assert_int_equal(arena_idle_purge(set, 1, UINT32_MAX), MALLOW_CHUNK_BYTES);
    assert_int_equal(atomic_load(&world.os.advise_count) - calls, 1);
    arena_world_check(&world);
}

CASE(parts_of_a_dense_huge_block_become_huge_and_of_a_sparse_one_none) {
    const size_t bytes = 4 * MALLOW_CHUNK_BYTES;
    const uintptr_t dense = huge_take(&huges, bytes, 1, false);
    const uintptr_t sparse = huge_take(&huges, bytes, 1, false);
    memset((void *)dense, 5, bytes);
    memset((void *)sparse, 5, bytes / 64);
    ripen();
    const unsigned made = promote_all();
    assert_true(unit_is_all((void *)dense, 5, bytes));
    assert_true(made <= 4);
    assert_int_equal(huge_of(&huges, sparse)->age.looks, 0); // done with, for a while
    assert_int_equal(promote_look(&promote), 0);
    need_kernel();
    assert_true(made >= 2); // the mapping need not begin at a multiple of a huge page
    assert_true(os_resident(&world.os, sparse, bytes) <= bytes / 32);
}

CASE(growth_raises_work_where_it_is_wanted) {
    world.os.work = 0;
    promote_want(&promote, true);
    assert_int_equal(huges.raise_bytes, 64 << 20); // a small heap is left alone
    assert_int_equal(set->raise_slices, huges.raise_bytes >> MALLOW_SLICE_SHIFT);
    const uintptr_t block = huge_take(&huges, huges.raise_bytes, 1, false);
    assert_int_equal(world.os.work, OS_WORK_GROWN);
    world.os.work = 0;
    (void)promote_look(&promote);
    assert_true(huge_take(&huges, 2 << 20, 1, false) != 0); // not as much more
    assert_int_equal(world.os.work, 0);
    (void)block;
    set->raise_slices = 2 * MALLOW_CHUNK_SLICES;
    fill(16);
    assert_int_equal(world.os.work, OS_WORK_GROWN);
    world.os.work = 0;
    promote_want(&promote, false);
    assert_true(huge_take(&huges, 64 << 20, 1, false) != 0);
    assert_int_equal(world.os.work, 0);
}

// What is ripe stays known, also if nobody gets round to it before the next look.
CASE(it_is_left_until_all_ripe_ones_are_done) {
    fill(0);
    assert_false(promote.left);
    ripen();
    assert_true(promote.left);
    assert_true(promote_one(&promote)); // looks how dense they are, and makes one
    (void)promote_look(&promote);
    assert_true(!able || promote.left);
    (void)promote_all();
    assert_false(promote.left);
    (void)promote_look(&promote);
    assert_false(promote.left);
}

CASE(denied_it_is_for_good) {
    promote_want(&promote, true);
    fill(0);
    ripen();
    promote_deny(&promote);
    assert_false(promote.left);
    assert_int_equal(promote_all(), 0);
    assert_int_equal(promote_look(&promote), 0);
    promote_want(&promote, true);
    assert_int_equal(set->raise_slices, SIZE_MAX >> MALLOW_SLICE_SHIFT);
}

CASE(without_the_kernel_nothing_is_done) {
    promote.able = false;
    promote_want(&promote, true);
    fill(0);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(promote_look(&promote), 0);
        assert_false(promote_one(&promote));
    }
    assert_null(set->ages);
    assert_int_equal(set->raise_slices, SIZE_MAX >> MALLOW_SLICE_SHIFT);
}

// As one does that knows no MADV_COLLAPSE, and this one where it is not allowed.
CASE(a_kernel_that_refuses_is_asked_a_few_times) {
    promote_want(&promote, true);
    fill(0);
    assert_int_equal(madvise((void *)set->primary.base, CHUNKS * MALLOW_CHUNK_BYTES,
                             MADV_NOHUGEPAGE), 0);
    const uint64_t calls = atomic_load(&world.os.advise_count);
    for (unsigned i = 0; i < 100 && promote.able; i++) {
        assert_int_equal(promote_all(), 0);
        (void)promote_look(&promote);
    }
    assert_int_equal(atomic_load(&world.os.advise_count) - calls, PROMOTE_UNFIT_MAX);
    assert_false(promote.able);
    assert_int_equal(promote_look(&promote), 0);
    assert_int_equal(set->raise_slices, SIZE_MAX >> MALLOW_SLICE_SHIFT);
    check_contents();
}

// A page that the program has locked, or made read-only, is a mapping of its own.
CASE(a_chunk_that_the_program_has_changed_leaves_the_others_theirs) {
    promote_want(&promote, true);
    fill(0);
    assert_int_equal(mprotect((void *)(set->primary.base + 5 * 4096), 4096, PROT_READ), 0);
    ripen();
    const unsigned made = promote_all();
    check_contents();
    assert_true(promote.able);
    need_kernel();
    assert_true(made >= CHUNKS - 2); // the kernel may have been busy with one
    assert_true(set->ages[0].looks != ARENA_AGE_HUGE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define CASE_ENTRY(name) cmocka_unit_test_setup_teardown(name, begin, end)
        CASE_ENTRY(full_chunks_become_huge_after_three_looks_and_keep_their_contents),
        CASE_ENTRY(a_chunk_that_was_not_full_at_one_look_begins_anew_and_later),
        CASE_ENTRY(sparse_chunks_do_not_become_huge),
        CASE_ENTRY(what_promotion_adds_is_at_most_a_twentieth),
        CASE_ENTRY(the_densest_chunks_come_first),
        CASE_ENTRY(a_chunk_with_a_thin_slice_never_becomes_huge),
        CASE_ENTRY(a_purge_splits_and_it_takes_longer_the_next_time),
        CASE_ENTRY(a_huge_page_that_is_wholly_free_goes_at_once),
        CASE_ENTRY(parts_of_a_dense_huge_block_become_huge_and_of_a_sparse_one_none),
        CASE_ENTRY(growth_raises_work_where_it_is_wanted),
        CASE_ENTRY(it_is_left_until_all_ripe_ones_are_done),
        CASE_ENTRY(denied_it_is_for_good),
        CASE_ENTRY(without_the_kernel_nothing_is_done),
        CASE_ENTRY(a_kernel_that_refuses_is_asked_a_few_times),
        CASE_ENTRY(a_chunk_that_the_program_has_changed_leaves_the_others_theirs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
