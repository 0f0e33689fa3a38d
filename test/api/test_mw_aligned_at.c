// SPDX-License-Identifier: MIT
// The aligned families of mw_: alignment at an offset, zeroing, and alignment kept across growth.
#include "../support/suite.h"

#include <mallow/mallow.h>

static void assert_aligned_at(const void *block, size_t alignment, size_t offset, size_t size)
{
    if (block == NULL || ((uintptr_t)block + offset) % alignment != 0 || mw_usable_size(block) < size) {
        fail_msg("alignment %zu at %zu, size %zu: %p", alignment, offset, size, block);
    }
}

static void write_ends(unsigned char *block, size_t size)
{
    if (size > 0) {
        block[0] = 1;
        block[size - 1] = 2;
    }
}

static void block_plus_offset_is_what_is_aligned(void **state)
{
    (void)state;
    for (size_t alignment = 1; alignment <= GIB; alignment *= 2) {
        const size_t offsets[] = {0,  1,  7,  8,   16,   24,        100,       alignment / 2, alignment - 1, alignment,
                                  alignment + 8, 3 * alignment + 1, 4096, 5000};
        const size_t sizes[] = {1, 24, 200, 5000, 70000, MIB + 3};
        for (size_t i = 0; i < COUNT_OF(offsets); i++) {
            for (size_t k = 0; k < COUNT_OF(sizes); k++) {
                unsigned char *const block = mw_malloc_aligned_at(sizes[k], alignment, offsets[i]);
                assert_aligned_at(block, alignment, offsets[i], sizes[k]);
                assert_true(mw_is_owned(block));
                write_ends(block, sizes[k]);
                unsigned char *const zeroed = mw_zalloc_aligned_at(sizes[k], alignment, offsets[i]);
                assert_aligned_at(zeroed, alignment, offsets[i], sizes[k]);
                assert_int_equal(nonzero_at(zeroed, sizes[k]), sizes[k]);
                write_ends(zeroed, sizes[k]);
                mw_free(block);
                mw_free(zeroed);
            }
        }
    }
}

static void zeroed_aligned_blocks_are_zero_where_memory_was_dirty(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 40, 64, 1000, 4096, 60000, 2000000};
    for (size_t alignment = 1; alignment <= 4 * MIB; alignment *= 4) {
        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            const size_t size = sizes[i];
            for (int round = 0; round < 4; round++) {
                void *const dirty = mw_malloc_aligned(size, alignment);
                assert_aligned_at(dirty, alignment, 0, size);
                memset(dirty, 0xee, mw_usable_size(dirty));
                mw_free(dirty);
                void *const first = mw_zalloc_aligned(size, alignment);
                void *const second = mw_calloc_aligned(1, size, alignment);
                void *const third = mw_calloc_aligned_at(size, 1, alignment, 24);
                assert_aligned_at(first, alignment, 0, size);
                assert_aligned_at(second, alignment, 0, size);
                assert_aligned_at(third, alignment, 24, size);
                assert_int_equal(nonzero_at(first, size), size);
                assert_int_equal(nonzero_at(second, size), size);
                assert_int_equal(nonzero_at(third, size), size);
                mw_free(first);
                mw_free_aligned_sized(second, alignment, size);
                mw_free(third);
            }
        }
    }
}

static void growth_keeps_the_alignment_and_the_contents(void **state)
{
    (void)state;
    for (size_t alignment = 1; alignment <= 2 * MIB; alignment *= 2) {
        static const size_t offsets[] = {0, 8, 40};
        for (size_t i = 0; i < COUNT_OF(offsets); i++) {
            unsigned char *block = NULL;
            size_t size = 0;
            for (int growth = 0; growth < 100; growth++) {
                const size_t next = size + 1 + size / 10;
                block = i == 0 ? mw_realloc_aligned(block, next, alignment)
                               : mw_realloc_aligned_at(block, next, alignment, offsets[i]);
                assert_aligned_at(block, alignment, offsets[i], next);
                assert_int_equal(tag_wrong(block, size, 3), size);
                tag_fill(block, next, 3);
                size = next;
            }
            block = mw_realloc_aligned_at(block, 5, alignment, offsets[i]); // and shrinks
            assert_aligned_at(block, alignment, offsets[i], 5);
            assert_int_equal(tag_wrong(block, 5, 3), 5);
            mw_free(block);
        }
    }
}

static void zero_preserving_aligned_growth_reads_zero(void **state)
{
    (void)state;
    for (size_t alignment = 1; alignment <= MIB; alignment *= 4) {
        for (size_t form = 0; form < 4; form++) {
            unsigned char *block = NULL;
            const size_t offset = form % 2 == 0 ? 0 : 8;
            size_t size = 0;
            for (size_t next = 1; next < 3000000; next = next * 2 + 13) {
                switch (form) {
                case 0: block = mw_rezalloc_aligned(block, next, alignment); break;
                case 1: block = mw_rezalloc_aligned_at(block, next, alignment, offset); break;
                case 2: block = mw_recalloc_aligned(block, next, 1, alignment); break;
                default: block = mw_recalloc_aligned_at(block, 1, next, alignment, offset); break;
                }
                assert_aligned_at(block, alignment, offset, next);
                assert_int_equal(tag_wrong(block, size < 64 ? size : 64, next), size < 64 ? size : 64);
                assert_int_equal(nonzero_at(block + size, next - size), next - size);
                memset(block, 0x77, next);
                tag_fill(block, next < 64 ? next : 64, next * 2 + 13);
                size = next;
            }
            mw_free(block);
        }
    }
}

#define ASSERT_FAILS(expression, code)                                                             \
    do {                                                                                           \
        errno = 0;                                                                                 \
        void *const result = (expression);                                                         \
        if (result != NULL || errno != (code)) {                                                   \
            fail_msg("%s: returned %p, errno %d", #expression, result, errno);                     \
        }                                                                                          \
    } while (0)

static void bad_alignments_give_null_and_einval(void **state)
{
    (void)state;
    static const size_t bad[] = {0, 3, 5, 6, 7, 12, 24, 100, 4095, 4097, SIZE_MAX, SIZE_MAX / 2};
    void *const block = mw_zalloc(100);
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        ASSERT_FAILS(mw_malloc_aligned(64, bad[i]), EINVAL);
        ASSERT_FAILS(mw_malloc_aligned_at(64, bad[i], 8), EINVAL);
        ASSERT_FAILS(mw_zalloc_aligned(64, bad[i]), EINVAL);
        ASSERT_FAILS(mw_zalloc_aligned_at(64, bad[i], 8), EINVAL);
        ASSERT_FAILS(mw_calloc_aligned(1, 64, bad[i]), EINVAL);
        ASSERT_FAILS(mw_calloc_aligned_at(1, 64, bad[i], 8), EINVAL);
        ASSERT_FAILS(mw_realloc_aligned(block, 64, bad[i]), EINVAL);
        ASSERT_FAILS(mw_realloc_aligned_at(block, 64, bad[i], 8), EINVAL);
        ASSERT_FAILS(mw_rezalloc_aligned(block, 64, bad[i]), EINVAL);
        ASSERT_FAILS(mw_rezalloc_aligned_at(block, 64, bad[i], 8), EINVAL);
        ASSERT_FAILS(mw_recalloc_aligned(block, 1, 64, bad[i]), EINVAL);
        ASSERT_FAILS(mw_recalloc_aligned_at(block, 1, 64, bad[i], 8), EINVAL);
        ASSERT_FAILS(mw_umalloc_aligned(64, bad[i], &(size_t){0}), EINVAL);
        ASSERT_FAILS(mw_malloc_aligned_at_least(64, bad[i]).block, EINVAL);
        ASSERT_FAILS(mw_new_aligned_nothrow(64, bad[i]), EINVAL);
    }
    assert_int_equal(nonzero_at(block, 100), 100);
    mw_free(block);
}

static void impossible_sizes_give_null_and_enomem(void **state)
{
    (void)state;
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 7, SIZE_MAX - 65536, (size_t)PTRDIFF_MAX + 1, (size_t)PTRDIFF_MAX,
                                   (size_t)1 << 62};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        for (size_t alignment = 1; alignment <= GIB; alignment *= 8) {
            const size_t size = sizes[i];
            void *const block = mw_malloc(10);
            ASSERT_FAILS(mw_malloc_aligned(size, alignment), ENOMEM);
            ASSERT_FAILS(mw_zalloc_aligned(size, alignment), ENOMEM);
            ASSERT_FAILS(mw_malloc_aligned_at(size, alignment, 100), ENOMEM);
            ASSERT_FAILS(mw_zalloc_aligned_at(size, alignment, size), ENOMEM);
            ASSERT_FAILS(mw_calloc_aligned(2, size / 2 + 1, alignment), ENOMEM);
            ASSERT_FAILS(mw_calloc_aligned_at(size, 16, alignment, 8), ENOMEM);
            ASSERT_FAILS(mw_realloc_aligned(block, size, alignment), ENOMEM);
            ASSERT_FAILS(mw_realloc_aligned_at(block, size, alignment, 8), ENOMEM);
            ASSERT_FAILS(mw_rezalloc_aligned(block, size, alignment), ENOMEM);
            ASSERT_FAILS(mw_recalloc_aligned(block, size, 3, alignment), ENOMEM);
            ASSERT_FAILS(mw_recalloc_aligned_at(block, 3, size, alignment, 8), ENOMEM);
            ASSERT_FAILS(mw_new_aligned_nothrow(size, alignment), ENOMEM);
            mw_free(block);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(block_plus_offset_is_what_is_aligned),
        cmocka_unit_test(zeroed_aligned_blocks_are_zero_where_memory_was_dirty),
        cmocka_unit_test(growth_keeps_the_alignment_and_the_contents),
        cmocka_unit_test(zero_preserving_aligned_growth_reads_zero),
        cmocka_unit_test(bad_alignments_give_null_and_einval),
        cmocka_unit_test(impossible_sizes_give_null_and_enomem),
    };
    return suite_run(tests);
}
