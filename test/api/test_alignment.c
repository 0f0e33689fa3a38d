// SPDX-License-Identifier: MIT
// The aligned calls of C11, POSIX, SunOS and BSD: every alignment from 1 byte to 1 GiB by sizes around
// it, and the argument rules of each call. Built for both families (see support/family.h).
#include "../support/family.h"
#include "../support/suite.h"

static void check_block(unsigned char *block, size_t alignment, size_t size)
{
    if (block == NULL || (uintptr_t)block % alignment != 0 || fam_usable_size(block) < size) {
        fail_msg("alignment %zu, size %zu: %p, usable %zu", alignment, size, (void *)block,
                 block == NULL ? 0 : fam_usable_size(block));
    }
    const size_t ends = size < 64 ? size : 64;
    tag_fill(block, ends, alignment + size);
    tag_fill(block + size - ends, ends, alignment + size);
    assert_int_equal(tag_wrong(block + size - ends, ends, alignment + size), ends);
}

static void every_alignment_meets_every_size(void **state)
{
    (void)state;
    for (size_t alignment = 1; alignment <= GIB; alignment *= 2) {
        const size_t sizes[] = {0,    1,     7,     8,        9,         16,            17,           24,
                                40,   100,   255,   512,      1000,      alignment - 1, alignment,    alignment + 1,
                                4095, 40000, 65536, 3 * KIB,  MIB + 1,   5 * MIB,       alignment / 2};
        void *blocks[COUNT_OF(sizes)][3];
        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            const size_t size = sizes[i];
            blocks[i][0] = fam_aligned_alloc(alignment, size);
            blocks[i][1] = fam_memalign(alignment, size);
            blocks[i][2] = NULL;
            if (alignment >= sizeof(void *)) {
                assert_int_equal(fam_posix_memalign(&blocks[i][2], alignment, size), 0);
            } else {
                blocks[i][2] = fam_malloc(size);
            }
            for (size_t k = 0; k < 3; k++) {
                check_block(blocks[i][k], alignment, size);
            }
        }
        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            if (FAMILY_HAS(fam_free_aligned_sized)) {
                fam_free_aligned_sized(blocks[i][0], alignment, sizes[i]);
            } else {
                fam_free(blocks[i][0]);
            }
            fam_free(blocks[i][1]);
            fam_free(blocks[i][2]);
        }
    }
}

static void aligned_blocks_never_overlap(void **state)
{
    (void)state;
    struct chance chance = {chance_seed()};
    enum { LIVE = 300 };
    struct {
        unsigned char *block;
        size_t size;
        uint64_t tag;
    } live[LIVE] = {{NULL, 0, 0}};
    for (uint64_t step = 1; step < SCALED(60000u); step++) {
        const size_t slot = chance_below(&chance, LIVE);
        if (live[slot].block != NULL) {
            assert_int_equal(tag_wrong(live[slot].block, live[slot].size, live[slot].tag), live[slot].size);
            fam_free(live[slot].block);
        }
        const size_t alignment = (size_t)1 << chance_below(&chance, 16);
        live[slot].size = chance_below(&chance, 100) == 0 ? chance_size(&chance) : chance_below(&chance, 2000);
        live[slot].tag = step;
        live[slot].block = fam_aligned_alloc(alignment, live[slot].size);
        assert_non_null(live[slot].block);
        assert_int_equal((uintptr_t)live[slot].block % alignment, 0);
        tag_fill(live[slot].block, live[slot].size, step);
    }
    for (size_t slot = 0; slot < LIVE; slot++) {
        fam_free(live[slot].block);
    }
}

static void posix_memalign_refuses_bad_alignments(void **state)
{
    (void)state;
    static const size_t bad[] = {0, 1, 2, 3, 4, 5, 7, 9, 12, 24, 48, 100, 4095, 4097, SIZE_MAX, SIZE_MAX / 2};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        void *block = &block;
        errno = 0;
        assert_int_equal(fam_posix_memalign(&block, opaque(bad[i]), 64), EINVAL);
        assert_ptr_equal(block, &block);
        assert_int_equal(errno, 0); // the result is the error; errno is not its place
    }
    void *block = NULL;
    assert_int_equal(fam_posix_memalign(&block, sizeof(void *), 0), 0);
    fam_free(block);
}

static void aligned_alloc_refuses_what_is_no_power_of_two(void **state)
{
    (void)state;
    static const size_t bad[] = {3, 5, 6, 12, 24, 100, 4095, 4097, SIZE_MAX};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        errno = 0;
        void *const block = fam_aligned_alloc(opaque(bad[i]), 64);
        if (block != NULL || errno != EINVAL) {
            fail_msg("aligned_alloc(%zu, 64) = %p, errno %d", bad[i], block, errno);
        }
    }
}

// glibc rounds memalign's alignment up, the manual page says EINVAL: both are in order, a block that is
// less aligned than asked for is not.
static void memalign_rounds_up_or_refuses(void **state)
{
    (void)state;
    static const size_t odd[] = {0, 3, 5, 24, 100, 4095, 4097};
    for (size_t i = 0; i < COUNT_OF(odd); i++) {
        errno = 0;
        void *const block = fam_memalign(opaque(odd[i]), 64);
        if (block == NULL) {
            assert_int_equal(errno, EINVAL);
        } else {
            size_t needed = 1;
            while (needed < odd[i]) {
                needed *= 2;
            }
            assert_int_equal((uintptr_t)block % needed, 0);
        }
        fam_free(block);
    }
    static const size_t too_large[] = {SIZE_MAX, SIZE_MAX / 2 + 2, (size_t)1 << 63};
    for (size_t i = 0; i < COUNT_OF(too_large); i++) {
        errno = 0;
        assert_null(fam_memalign(opaque(too_large[i]), 64));
        assert_true(errno == EINVAL || errno == ENOMEM);
    }
}

static void huge_alignments_fail_cleanly_or_hold(void **state)
{
    (void)state;
    for (int shift = 31; shift < 63; shift++) {
        const size_t alignment = opaque((size_t)1 << shift);
        errno = 0;
        unsigned char *const block = fam_aligned_alloc(alignment, 100);
        if (block == NULL) {
            assert_int_equal(errno, ENOMEM);
            continue;
        }
        check_block(block, alignment, 100);
        fam_free(block);
    }
}

static void valloc_and_pvalloc_work_in_whole_pages(void **state)
{
    (void)state;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t size = 0; size < 5 * page; size += 333) {
        unsigned char *const whole = fam_pvalloc(size);
        unsigned char *const plain = fam_valloc(size);
        check_block(whole, page, (size + page - 1) / page * page);
        check_block(plain, page, size);
        fam_free(whole);
        fam_free(plain);
    }
    static const size_t wrapping[] = {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX - 4094, SIZE_MAX - 4095, SIZE_MAX - 65535};
    for (size_t i = 0; i < COUNT_OF(wrapping); i++) {
        errno = 0;
        assert_null(fam_pvalloc(opaque(wrapping[i])));
        assert_int_equal(errno, ENOMEM);
    }
}

static void aligned_blocks_pass_through_realloc(void **state)
{
    (void)state;
    for (size_t alignment = 32; alignment <= 4 * MIB; alignment *= 2) {
        static const size_t sizes[] = {10, 100, 3000, 50000, 2000000};
        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            unsigned char *block = fam_aligned_alloc(alignment, sizes[i]);
            tag_fill(block, sizes[i], alignment);
            block = fam_realloc(block, sizes[i] * 3);
            assert_non_null(block);
            assert_int_equal((uintptr_t)block % 16, 0);
            assert_int_equal(tag_wrong(block, sizes[i], alignment), sizes[i]);
            tag_fill(block, sizes[i] * 3, 9);
            block = fam_realloc(block, 10);
            assert_int_equal(tag_wrong(block, 10, 9), 10);
            fam_free(block);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_alignment_meets_every_size),
        cmocka_unit_test(aligned_blocks_never_overlap),
        cmocka_unit_test(posix_memalign_refuses_bad_alignments),
        cmocka_unit_test(aligned_alloc_refuses_what_is_no_power_of_two),
        cmocka_unit_test(memalign_rounds_up_or_refuses),
        cmocka_unit_test(huge_alignments_fail_cleanly_or_hold),
        cmocka_unit_test(valloc_and_pvalloc_work_in_whole_pages),
        cmocka_unit_test(aligned_blocks_pass_through_realloc),
    };
    return suite_run(tests);
}
