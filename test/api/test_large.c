// SPDX-License-Identifier: MIT
// Blocks of 2 GiB and more, and what the kernel should do for large blocks instead of us: zero, grow,
// move. Built for both families (see support/family.h).
#include "../support/family.h"
#include "../support/suite.h"

static void touch_and_check(unsigned char *block, size_t size, unsigned char value)
{
    const size_t places[] = {0, size / 3, size / 2, size - 1, (size_t)1 << 31, ((size_t)1 << 31) - 1, (size_t)1 << 32};
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        if (places[i] < size) {
            block[places[i]] = value;
        }
    }
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        assert_true(places[i] >= size || block[places[i]] == value);
    }
}

static void sizes_of_two_gib_and_more_work(void **state)
{
    (void)state;
    static const size_t sizes[] = {((size_t)1 << 31) - 1, (size_t)1 << 31, ((size_t)1 << 31) + 1, 3 * GIB,
                                   ((size_t)1 << 32) - 1, (size_t)1 << 32, ((size_t)1 << 32) + 1, 5 * GIB};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        unsigned char *const plain = fam_malloc(sizes[i]);
        assert_non_null(plain);
        assert_true(fam_usable_size(plain) >= sizes[i]);
        touch_and_check(plain, sizes[i], 0x42);
        unsigned char *const zeroed = fam_calloc(sizes[i] / 8 + 1, 8);
        assert_non_null(zeroed);
        for (size_t k = 0; k < sizes[i]; k += 97 * MIB + 13) {
            assert_int_equal(zeroed[k], 0);
        }
        touch_and_check(zeroed, sizes[i], 0x17);
        unsigned char *const aligned = fam_aligned_alloc(MIB, sizes[i]);
        assert_non_null(aligned);
        touch_and_check(aligned, sizes[i], 0x33);
        fam_free(plain);
        fam_free(zeroed);
        fam_free(aligned);
    }
}

static void realloc_crosses_two_and_four_gib(void **state)
{
    (void)state;
    static const size_t sizes[] = {100 * MIB, 3 * GIB, 5 * GIB, ((size_t)1 << 32) + 1, (size_t)1 << 31, 10 * MIB, 100};
    unsigned char *block = fam_malloc(1000);
    tag_fill(block, 100, 6);
    const size_t before = process_rss_kib();
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        block = fam_realloc(block, sizes[i]);
        assert_non_null(block);
        assert_int_equal(tag_wrong(block, 100, 6), 100);
        block[sizes[i] - 1] = 1;
        tag_fill(block, 100, 6);
    }
    assert_true(process_rss_kib() < before + 64 * KIB || !FIGURES_COUNT); // nothing was copied by touching
    fam_free(block);
}

static void a_large_block_that_shrinks_stays_while_it_fills_half_a_slice(void **state)
{
    (void)state;
    static const size_t sizes[] = {700 * KIB, 65 * KIB, 64 * KIB, 50000, 32 * KIB + 1, 60000};
    unsigned char *const large = fam_malloc(sizes[0]);
    unsigned char *block = large;
    tag_fill(block, 4 * KIB, 7);
    for (size_t i = 1; i < COUNT_OF(sizes); i++) {
        block = fam_realloc(block, sizes[i]);
        assert_ptr_equal(block, large);
        assert_in_range(fam_usable_size(block), sizes[i], sizes[i] + 64 * KIB);
        assert_int_equal(tag_wrong(block, 4 * KIB, 7), 4 * KIB);
        memset(block + 4 * KIB, (int)i, sizes[i] - 4 * KIB);
    }
    block = fam_realloc(block, 20000); // a slice would be three times too large
    assert_ptr_not_equal(block, large);
    assert_int_equal(tag_wrong(block, 4 * KIB, 7), 4 * KIB);
    fam_free(block);
}

static void calloc_of_a_gib_costs_no_page_touches(void **state)
{
    (void)state;
    if (!FIGURES_COUNT) {
        skip();
    }
    fam_free(fam_calloc(1, GIB));
    const long faults = minor_faults();
    const uint64_t cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < 100; i++) {
        void *const block = fam_calloc(1, GIB);
        assert_non_null(block);
        fam_free(opaque_pointer(block));
    }
    const uint64_t cost_ns = (now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu) / 100;
    print_message("calloc(1 GB) + free: %llu ns CPU\n", (unsigned long long)cost_ns);
    assert_true(minor_faults() - faults < 200);
    assert_true(cost_ns < 100000); // the goal is 20 us; five times that is a wrong path, not noise
}

static void large_calloc_is_zero_after_dirty_use_and_partial_touch(void **state)
{
    (void)state;
    for (size_t size = 256 * KIB; size <= 96 * MIB; size = size * 2 + 4096) {
        unsigned char *const dirty = fam_malloc(size);
        memset(dirty, 0x99, size);
        fam_free(dirty);
        unsigned char *const zeroed = fam_calloc(1, size);
        assert_int_equal(nonzero_at(zeroed, size), size);
        zeroed[size / 2] = 1;
        fam_free(zeroed);
        unsigned char *const again = fam_calloc(size, 1);
        assert_int_equal(nonzero_at(again, size), size);
        fam_free(again);
    }
}

static void freed_large_blocks_leave_the_process(void **state)
{
    (void)state;
    const size_t before = process_rss_kib();
    for (int round = 0; round < 12; round++) {
        void *const block = fam_malloc(300 * MIB);
        memset(block, 1, 300 * MIB / (FIGURES_COUNT ? 1 : 100));
        fam_free(block);
        assert_true(process_rss_kib() < before + 80 * KIB || !FIGURES_COUNT);
    }
}

// A size that memory and swap together do not reach is refused at once, as the kernel's default policy
// has it: who checks for NULL is told so, instead of being killed when the block is filled.
static void what_no_machine_has_is_refused(void **state)
{
    (void)state;
    char policy = '?';
    const int fd = open("/proc/sys/vm/overcommit_memory", O_RDONLY);
    if (fd < 0 || read(fd, &policy, 1) != 1 || policy != '0') {
        skip();
    }
    close(fd);
    const size_t size = (size_t)32 << 40;
    const size_t befores[] = {100, 2 * MIB};
    errno = 0;
    assert_null(fam_malloc(size));
    assert_int_equal(errno, ENOMEM);
    assert_null(fam_calloc(1, size));
    assert_null(fam_aligned_alloc(2 * MIB, size));
    for (size_t i = 0; i < COUNT_OF(befores); i++) {
        unsigned char *const block = fam_malloc(befores[i]);
        tag_fill(block, befores[i], 7);
        errno = 0;
        assert_null(fam_realloc(block, size));
        assert_int_equal(errno, ENOMEM);
        CHECK(tag_wrong(block, befores[i], 7) == befores[i], "contents");
        fam_free(block);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_of_two_gib_and_more_work),
        cmocka_unit_test(realloc_crosses_two_and_four_gib),
        cmocka_unit_test(a_large_block_that_shrinks_stays_while_it_fills_half_a_slice),
        cmocka_unit_test(calloc_of_a_gib_costs_no_page_touches),
        cmocka_unit_test(large_calloc_is_zero_after_dirty_use_and_partial_touch),
        cmocka_unit_test(freed_large_blocks_leave_the_process),
        cmocka_unit_test(what_no_machine_has_is_refused),
    };
    return suite_run(tests);
}
