// SPDX-License-Identifier: MIT
// The mw_ families that no other interface has: in place, zero-preserving, small, counted, size
// feedback, ownership, version.
#include "../support/suite.h"

#include <mallow/mallow.h>

static const size_t some_sizes[] = {0,    1,    8,     16,    17,     31,     48,     100,     500,     1000,    1024,    1025,
                                    4000, 8192, 20000, 65536, 100000, 300000, 999999, 1048576, 1048577, 3000000, 30000000};

static void expand_works_in_place_or_not_at_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(some_sizes); i++) {
        const size_t size = some_sizes[i];
        void *const before = mw_malloc(size);
        unsigned char *const block = mw_malloc(size);
        void *const after = mw_malloc(size);
        const size_t usable = mw_usable_size(block);
        tag_fill(before, size, 1);
        tag_fill(block, usable, 2);
        tag_fill(after, size, 3);
        assert_ptr_equal(mw_expand(block, size), block);
        assert_ptr_equal(mw_expand(block, usable), block);
        assert_ptr_equal(mw_try_realloc(block, usable), block);
        const size_t tries[] = {usable + 1, usable + 4096, usable * 2, usable * 100, SIZE_MAX / 2, SIZE_MAX};
        for (size_t k = 0; k < COUNT_OF(tries); k++) {
            errno = 4321;
            void *const grown = k % 2 == 0 ? mw_expand(block, tries[k]) : mw_try_realloc(block, tries[k]);
            assert_int_equal(errno, 4321);
            if (grown != NULL) {
                assert_ptr_equal(grown, block);
                assert_true(mw_usable_size(block) >= tries[k]);
                block[tries[k] - 1] = 1;
            } else {
                assert_true(mw_usable_size(block) >= usable);
            }
        }
        assert_int_equal(tag_wrong(block, usable, 2), usable);
        assert_int_equal(tag_wrong(before, size, 1), size);
        assert_int_equal(tag_wrong(after, size, 3), size);
        mw_free(before);
        mw_free(block);
        mw_free(after);
    }
    assert_null(mw_expand(NULL, 10));
    assert_null(mw_try_realloc(NULL, SIZE_MAX));
}

static void try_realloc_aligned_refuses_an_unaligned_block(void **state)
{
    (void)state;
    unsigned char *const block = mw_malloc_aligned(100, 256);
    assert_ptr_equal(mw_try_realloc_aligned(block, 100, 256), block);
    assert_ptr_equal(mw_try_realloc_aligned(block, 100, 16), block);
    unsigned char *const odd = mw_malloc_aligned_at(100, 256, 16); // 16 below a multiple of 256
    assert_null(mw_try_realloc_aligned(odd, 100, 256));
    assert_ptr_equal(mw_try_realloc_aligned(odd, 100, 16), odd);
    mw_free(block);
    mw_free(odd);
}

// Grow, shrink, grow: whatever lies beyond the old size reads as zero, the slack included.
static void rezalloc_and_recalloc_keep_tails_zero(void **state)
{
    (void)state;
    struct chance chance = {chance_seed()};
    for (int round = 0; round < 400; round++) {
        for (int k = 0; k < 20; k++) { // dirty memory to be given out
            void *const dirty = mw_malloc(1 + chance_size(&chance));
            memset(dirty, 0xdd, mw_usable_size(dirty));
            mw_free(dirty);
        }
        size_t size = chance_size(&chance);
        unsigned char *block = round % 2 == 0 ? mw_zalloc(size) : mw_calloc(1, size);
        assert_int_equal(nonzero_at(block, mw_usable_size(block)), mw_usable_size(block));
        memset(block, 0x5a, size);
        for (int step = 0; step < 12; step++) {
            const size_t next = step % 3 == 0 ? size + 1 + chance_below(&chance, 40) : chance_size(&chance);
            block = step % 2 == 0 ? mw_rezalloc(block, next) : mw_recalloc(block, next, 1);
            assert_non_null(block);
            const size_t kept = size < next ? size : next;
            for (size_t k = 0; k < kept; k += 1 + k / 64) {
                assert_int_equal(block[k], 0x5a);
            }
            if (next > size) {
                assert_int_equal(nonzero_at(block + size, next - size), next - size);
            }
            memset(block, 0x5a, next);
            size = next;
        }
        mw_free(block);
    }
}

static void recalloc_zeroes_what_a_block_of_many_pages_grows_into(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        unsigned char *const dirty = mw_malloc(7 * MIB); // pages to grow into, in place
        memset(dirty, 0xdd, 7 * MIB);
        mw_free(dirty);
        size_t size = 5 * MIB / 4;
        unsigned char *block = round % 2 == 0 ? mw_malloc(size) : mw_calloc(1, size);
        memset(block, 0x5a, size);
        while (size < 6 * MIB) {
            const size_t next = size + 100000;
            block = mw_recalloc(block, next, 1);
            assert_int_equal(nonzero_at(block + size, next - size), next - size);
            memset(block + size, 0x5a, next - size);
            size = next;
        }
        mw_free(block);
    }
}

static void rezalloc_of_null_allocates_zeroed(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(some_sizes); i++) {
        void *const dirty = mw_malloc(some_sizes[i]);
        memset(dirty, 0xcc, mw_usable_size(dirty));
        mw_free(dirty);
        void *const first = mw_rezalloc(NULL, some_sizes[i]);
        void *const second = mw_recalloc(NULL, some_sizes[i], 1);
        assert_int_equal(nonzero_at(first, some_sizes[i]), some_sizes[i]);
        assert_int_equal(nonzero_at(second, some_sizes[i]), some_sizes[i]);
        mw_free(first);
        mw_free(second);
    }
    errno = 0;
    assert_null(mw_recalloc(NULL, SIZE_MAX / 2, 3));
    assert_int_equal(errno, ENOMEM);
}

static void small_calls_serve_every_small_size(void **state)
{
    (void)state;
    for (size_t size = 0; size <= MALLOW_SMALL_SIZE_MAX; size++) {
        unsigned char *const plain = mw_malloc_small(size);
        assert_true(mw_usable_size(plain) >= size);
        memset(plain, 0xbb, mw_usable_size(plain));
        mw_free_small(plain);
        unsigned char *const zeroed = mw_zalloc_small(size);
        assert_int_equal(nonzero_at(zeroed, size), size);
        mw_free_small(zeroed);
        size_t feedback = 0;
        void *const sized = mw_umalloc_small(size, &feedback);
        assert_int_equal(feedback, mw_usable_size(sized));
        memset(sized, 0xbb, feedback);
        mw_free(sized);
        void *const sized_zero = mw_uzalloc_small(size, &feedback);
        assert_int_equal(feedback, mw_usable_size(sized_zero));
        assert_int_equal(nonzero_at(sized_zero, size), size);
        mw_free(sized_zero);
    }
}

static void counted_calls_check_the_product(void **state)
{
    (void)state;
    unsigned char *block = mw_mallocn(100, 10);
    assert_true(mw_usable_size(block) >= 1000);
    tag_fill(block, 1000, 8);
    block = mw_reallocn(block, 1000, 10);
    assert_int_equal(tag_wrong(block, 1000, 8), 1000);
    errno = 0;
    assert_null(mw_mallocn(SIZE_MAX / 2, 4));
    assert_int_equal(errno, ENOMEM);
    errno = 0;
    assert_null(mw_reallocn(block, SIZE_MAX / 16 + 2, 16));
    assert_int_equal(errno, ENOMEM);
    errno = 0;
    assert_null(mw_new_nothrow(SIZE_MAX));
    assert_int_equal(errno, ENOMEM);
    mw_free(block);
}

static void feedback_tells_the_usable_size(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(some_sizes); i++) {
        const size_t size = some_sizes[i];
        size_t given = 1;
        void *block = mw_umalloc(size, &given);
        assert_int_equal(given, mw_usable_size(block));
        size_t before = 1;
        size_t after = 1;
        block = mw_urealloc(block, size * 2 + 1, &before, &after);
        assert_int_equal(before, given);
        assert_int_equal(after, mw_usable_size(block));
        size_t freed = 1;
        mw_ufree(block, &freed);
        assert_int_equal(freed, after);
        void *const zeroed = mw_ucalloc(size, 1, &given);
        assert_int_equal(given, mw_usable_size(zeroed));
        assert_int_equal(nonzero_at(zeroed, size), size);
        mw_free(zeroed);
        const struct mw_sized_block least = mw_malloc_at_least(size);
        assert_int_equal(least.size_bytes, mw_usable_size(least.block));
        assert_true(least.size_bytes >= size);
        memset(least.block, 1, least.size_bytes);
        mw_free_sized(least.block, least.size_bytes);
        for (size_t alignment = 1; alignment <= 64 * KIB; alignment *= 8) {
            block = mw_umalloc_aligned(size, alignment, &given);
            assert_int_equal(given, mw_usable_size(block));
            mw_free(block);
            block = mw_uzalloc_aligned(size, alignment, &given);
            assert_int_equal(given, mw_usable_size(block));
            assert_int_equal(nonzero_at(block, size), size);
            mw_free(block);
            const struct mw_sized_block aligned = mw_malloc_aligned_at_least(size, alignment);
            assert_int_equal((uintptr_t)aligned.block % alignment, 0);
            assert_int_equal(aligned.size_bytes, mw_usable_size(aligned.block));
            mw_free(aligned.block);
        }
    }
}

static void feedback_is_zero_on_failure(void **state)
{
    (void)state;
    const size_t huge = SIZE_MAX - 100;
    size_t given = 1;
    assert_null(mw_umalloc(huge, &given));
    assert_int_equal(given, 0);
    given = 1;
    assert_null(mw_ucalloc(huge, 3, &given));
    assert_int_equal(given, 0);
    given = 1;
    assert_null(mw_umalloc_aligned(huge, 64, &given));
    assert_int_equal(given, 0);
    given = 1;
    assert_null(mw_uzalloc_aligned(huge, 64, &given));
    assert_int_equal(given, 0);
    void *const block = mw_malloc(40);
    size_t before = 1;
    given = 1;
    assert_null(mw_urealloc(block, huge, &before, &given));
    assert_int_equal(given, 0);
    mw_free(block);
    const struct mw_sized_block none = mw_malloc_at_least(huge);
    assert_null(none.block);
    assert_int_equal(none.size_bytes, 0);
    given = 1;
    mw_ufree(NULL, &given);
    assert_int_equal(given, 0);
}

// Of a block of malloc's in which nothing has been written yet, too: gcc would warn if it took them to read it.
static void blocks_of_malloc_are_asked_about(void **state)
{
    (void)state;
    void *const block = malloc(100);
    if (mw_is_owned(block)) { // a sanitizer's is not
        assert_true(mw_usable_size(block) >= 100);
    }
    free(block);
}

static void ownership_is_exact(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(some_sizes); i++) {
        unsigned char *const block = mw_malloc(some_sizes[i]);
        assert_true(mw_is_owned(block));
        assert_false(mw_is_owned(block + 1));
        assert_false(mw_is_owned(block + 8));
        if (mw_usable_size(block) > 16) {
            assert_false(mw_is_owned(block + 16));
            assert_false(mw_is_owned(block + mw_usable_size(block) / 2 / 16 * 16));
        }
        mw_free(block);
        assert_false(mw_is_owned(block)); // no longer live
    }
    int local = 0;
    assert_false(mw_is_owned(NULL));
    assert_false(mw_is_owned(&local));
    assert_false(mw_is_owned("constant"));
    assert_false(mw_is_owned((void *)(uintptr_t)some_sizes));
    mw_cfree(&local); // not ours: nothing happens
    mw_cfree(NULL);
}

static void version_agrees_with_the_header(void **state)
{
    (void)state;
    const int expected = MALLOW_VERSION_MAJOR * 10000 + MALLOW_VERSION_MINOR * 100 + MALLOW_VERSION_PATCH;
    assert_int_equal(mw_version(), expected);
    assert_non_null(strstr(mw_version_text(), MALLOW_VERSION_STRING));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expand_works_in_place_or_not_at_all),
        cmocka_unit_test(try_realloc_aligned_refuses_an_unaligned_block),
        cmocka_unit_test(rezalloc_and_recalloc_keep_tails_zero),
        cmocka_unit_test(recalloc_zeroes_what_a_block_of_many_pages_grows_into),
        cmocka_unit_test(rezalloc_of_null_allocates_zeroed),
        cmocka_unit_test(small_calls_serve_every_small_size),
        cmocka_unit_test(counted_calls_check_the_product),
        cmocka_unit_test(feedback_tells_the_usable_size),
        cmocka_unit_test(feedback_is_zero_on_failure),
        cmocka_unit_test(blocks_of_malloc_are_asked_about),
        cmocka_unit_test(ownership_is_exact),
        cmocka_unit_test(version_agrees_with_the_header),
    };
    return suite_run(tests);
}
