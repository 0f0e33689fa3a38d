// SPDX-License-Identifier: MIT
// The contract of the basic calls: zero sizes, impossible sizes, errno, contents, zeroing.
// Built for both families (see support/family.h).
#include "../support/family.h"
#include "../support/suite.h"

// Sizes no process can have. PTRDIFF_MAX itself is no overflow, but no address space holds it either.
static const size_t impossible_sizes[] = {
    SIZE_MAX,
    SIZE_MAX - 1,
    SIZE_MAX - 15,
    SIZE_MAX - 16,
    SIZE_MAX - 63,
    SIZE_MAX - 4095,
    SIZE_MAX - 4096,
    SIZE_MAX - 65535,
    SIZE_MAX - 65536,
    SIZE_MAX - 2 * 1024 * 1024,
    SIZE_MAX / 2 + 4096,
    (size_t)PTRDIFF_MAX + 1,
    (size_t)PTRDIFF_MAX,
    (size_t)PTRDIFF_MAX - 15,
    (size_t)PTRDIFF_MAX - 4095,
    (size_t)PTRDIFF_MAX - 65536,
    (size_t)1 << 62,
    (size_t)1 << 56,
    (size_t)1 << 48,
};

#define ASSERT_NO_MEMORY(expression)                                                               \
    do {                                                                                           \
        errno = 0;                                                                                 \
        void *const result = (expression);                                                         \
        if (result != NULL || errno != ENOMEM) {                                                   \
            fail_msg("%s with size %#zx: returned %p, errno %d", #expression, size, result, errno); \
        }                                                                                          \
    } while (0)

static void impossible_sizes_give_null_and_enomem(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(impossible_sizes); i++) {
        const size_t size = opaque(impossible_sizes[i]);
        ASSERT_NO_MEMORY(fam_malloc(size));
        ASSERT_NO_MEMORY(fam_calloc(1, size));
        ASSERT_NO_MEMORY(fam_calloc(size, 1));
        ASSERT_NO_MEMORY(fam_realloc(NULL, size));
        ASSERT_NO_MEMORY(fam_reallocarray(NULL, 1, size));
        ASSERT_NO_MEMORY(fam_reallocarray(NULL, size, 1));
        ASSERT_NO_MEMORY(fam_valloc(size));
        ASSERT_NO_MEMORY(fam_pvalloc(size));
        if (FAMILY_HAS(fam_reallocf)) {
            ASSERT_NO_MEMORY(fam_reallocf(NULL, size));
        }
        for (size_t alignment = 8; alignment <= GIB; alignment *= 4) {
            ASSERT_NO_MEMORY(fam_aligned_alloc(alignment, size));
            ASSERT_NO_MEMORY(fam_memalign(alignment, size));
            void *block = &block;
            assert_int_equal(fam_posix_memalign(&block, alignment, size), ENOMEM);
            assert_ptr_equal(block, &block); // left as it was
        }
    }
}

static void products_that_overflow_give_null_and_enomem(void **state)
{
    (void)state;
    static const size_t products[][2] = {
        {2, SIZE_MAX / 2 + 1},
        {SIZE_MAX / 2 + 1, 2},
        {SIZE_MAX, SIZE_MAX},
        {SIZE_MAX, 2},
        {(size_t)1 << 32, (size_t)1 << 32},
        {((size_t)1 << 32) + 1, ((size_t)1 << 32) + 1},
        {SIZE_MAX / 8 + 2, 8},   // wraps to 8
        {SIZE_MAX / 16 + 2, 16}, // wraps to 16
        {3, SIZE_MAX / 3 + 1},
        {(size_t)1 << 33, (size_t)1 << 31},
        {16, SIZE_MAX / 16 - 1}, // no overflow, but impossible
        {4, (size_t)PTRDIFF_MAX / 4 + 1},
    };
    for (size_t i = 0; i < COUNT_OF(products); i++) {
        const size_t count = opaque(products[i][0]);
        const size_t size = opaque(products[i][1]);
        ASSERT_NO_MEMORY(fam_calloc(count, size));
        ASSERT_NO_MEMORY(fam_reallocarray(NULL, count, size));
        unsigned char *const block = fam_malloc(48);
        tag_fill(block, 48, i);
        ASSERT_NO_MEMORY(fam_reallocarray(block, count, size));
        assert_int_equal(tag_wrong(block, 48, i), 48);
        fam_free(block);
    }
}

static void failed_realloc_leaves_the_block_as_it_was(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 16, 100, 1024, 5000, 40000, 300000, 3000000};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        void *const block = fam_malloc(sizes[i]);
        assert_non_null(block);
        tag_fill(block, sizes[i], i);
        for (size_t k = 0; k < COUNT_OF(impossible_sizes); k++) {
            const size_t size = opaque(impossible_sizes[k]);
            ASSERT_NO_MEMORY(fam_realloc(block, size));
        }
        assert_true(fam_usable_size(block) >= sizes[i]);
        assert_int_equal(tag_wrong(block, sizes[i], i), sizes[i]);
        fam_free(block);
    }
}

static void size_zero_gives_unique_blocks(void **state)
{
    (void)state;
    enum { ROUNDS = 40 };
    void *blocks[ROUNDS * 4];
    size_t count = 0;
    for (int i = 0; i < ROUNDS; i++) {
        blocks[count++] = fam_malloc(0);
        blocks[count++] = fam_calloc(0, 16);
        blocks[count++] = fam_calloc(16, 0);
        blocks[count++] = fam_realloc(NULL, 0);
    }
    for (size_t i = 0; i < count; i++) {
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % 16, 0);
        for (size_t k = 0; k < i; k++) {
            assert_ptr_not_equal(blocks[i], blocks[k]);
        }
    }
    for (size_t i = 0; i < count; i++) {
        fam_free(blocks[i]);
    }
    void *aligned[] = {fam_aligned_alloc(64, 0), fam_memalign(4096, 0), fam_valloc(0), fam_pvalloc(0)};
    static const size_t alignments[] = {64, 4096, 4096, 4096};
    for (size_t i = 0; i < COUNT_OF(aligned); i++) {
        assert_non_null(aligned[i]);
        assert_int_equal((uintptr_t)aligned[i] % alignments[i], 0);
        fam_free(aligned[i]);
    }
}

static void realloc_to_zero_never_loses_the_heap(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 100, 5000, 300000, 3000000};
    for (size_t i = 0; i < COUNT_OF(sizes) * 200; i++) {
        void *const block = fam_malloc(sizes[i % COUNT_OF(sizes)]);
        void *const other = fam_malloc(sizes[i % COUNT_OF(sizes)]);
        tag_fill(other, sizes[i % COUNT_OF(sizes)], i);
        void *const result = fam_realloc(block, opaque(0));
#ifdef TEST_FAMILY_MW
        assert_non_null(result); // a minimal block
        assert_true(fam_usable_size(result) < 128);
#endif
        if (result != NULL) {
            fam_free(result);
        }
        assert_int_equal(tag_wrong(other, sizes[i % COUNT_OF(sizes)], i), sizes[i % COUNT_OF(sizes)]);
        fam_free(other);
    }
}

static void success_and_free_leave_errno_alone(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 64, 1000, 5000, 40000, 300000, 3000000, 40000000};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        for (int round = 0; round < 50; round++) {
            errno = 1234;
            void *blocks[] = {
                fam_malloc(sizes[i]),
                fam_calloc(1, sizes[i]),
                fam_realloc(fam_malloc(10), sizes[i]),
                fam_aligned_alloc(256, sizes[i]),
                fam_memalign(8192, sizes[i]),
            };
            assert_int_equal(errno, 1234);
            for (size_t k = 0; k < COUNT_OF(blocks); k++) {
                assert_true(blocks[k] != NULL || sizes[i] == 0);
                fam_free(blocks[k]);
                assert_int_equal(errno, 1234);
            }
        }
    }
    errno = 77;
    fam_free(NULL);
    assert_int_equal(errno, 77);
}

static void calloc_is_zero_where_memory_was_dirty(void **state)
{
    (void)state;
    static const size_t sizes[] = {1,    8,     16,    24,     64,      100,     512,     1024,    4096,
                                   9999, 16384, 65536, 100000, 1000000, 1048576, 1048577, 4000000, 20000000};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        for (int round = 0; round < 8; round++) {
            void *dirty[6];
            for (size_t k = 0; k < COUNT_OF(dirty); k++) {
                dirty[k] = fam_malloc(sizes[i]);
                assert_non_null(dirty[k]);
                memset(dirty[k], 0xa5, fam_usable_size(dirty[k]));
            }
            for (size_t k = 0; k < COUNT_OF(dirty); k++) {
                fam_free(dirty[k]);
            }
            void *const first = fam_calloc(1, sizes[i]);
            void *const second = fam_calloc(sizes[i], 1);
            assert_int_equal(nonzero_at(first, sizes[i]), sizes[i]);
            assert_int_equal(nonzero_at(second, sizes[i]), sizes[i]);
            fam_free(first);
            fam_free(second);
        }
    }
}

static void realloc_keeps_contents_through_every_step(void **state)
{
    (void)state;
    unsigned char *block = NULL;
    size_t size = 0;
    for (size_t next = 1; next < 70000; next += 1 + next / 50) { // growth by small steps
        block = fam_realloc(block, next);
        assert_non_null(block);
        assert_int_equal(tag_wrong(block, size, 5), size);
        tag_fill(block, next, 5);
        size = next;
    }
    for (; size > 1; size -= 1 + size / 40) { // and back
        block = fam_realloc(block, size);
        assert_non_null(block);
        assert_true(fam_usable_size(block) >= size);
        tag_fill(block, size, 5);
    }
    fam_free(block);
    struct chance chance = {chance_seed()};
    for (int round = 0; round < 30; round++) {
        block = NULL;
        size = 0;
        for (int step = 0; step < 60; step++) {
            const size_t next = 1 + chance_size(&chance) * (step % 7 == 0 ? 8 : 1);
            unsigned char *const moved = fam_realloc(block, next);
            assert_non_null(moved);
            if (size <= next) {
                assert_int_equal(tag_wrong(moved, size, (uint64_t)step), size);
            }
            for (size_t k = 0; k < next && k < size && tag_step(size, k) == 1; k++) {
                assert_int_equal(moved[k], tag_byte((uint64_t)step, k));
            }
            tag_fill(moved, next, (uint64_t)step + 1);
            block = moved;
            size = next;
        }
        fam_free(block);
    }
}

static void usable_size_of_null_is_zero(void **state)
{
    (void)state;
    assert_int_equal(fam_usable_size(NULL), 0);
    if (FAMILY_HAS(fam_malloc_size)) {
        assert_int_equal(fam_malloc_size(NULL), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(impossible_sizes_give_null_and_enomem),
        cmocka_unit_test(products_that_overflow_give_null_and_enomem),
        cmocka_unit_test(failed_realloc_leaves_the_block_as_it_was),
        cmocka_unit_test(size_zero_gives_unique_blocks),
        cmocka_unit_test(realloc_to_zero_never_loses_the_heap),
        cmocka_unit_test(success_and_free_leave_errno_alone),
        cmocka_unit_test(calloc_is_zero_where_memory_was_dirty),
        cmocka_unit_test(realloc_keeps_contents_through_every_step),
        cmocka_unit_test(usable_size_of_null_is_zero),
    };
    return suite_run(tests);
}
