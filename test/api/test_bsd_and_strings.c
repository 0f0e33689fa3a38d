// SPDX-License-Identifier: MIT
// reallocarray, reallocarr, reallocf, cfree, strdup, strndup and realpath. Built for both families
// (see support/family.h).
#include "../support/family.h"
#include "../support/suite.h"

#include <limits.h>

static void reallocarray_resizes_by_the_product(void **state)
{
    (void)state;
    unsigned char *block = fam_reallocarray(NULL, 10, 10);
    assert_non_null(block);
    tag_fill(block, 100, 1);
    block = fam_reallocarray(block, 1000, 100);
    assert_true(fam_usable_size(block) >= 100000);
    assert_int_equal(tag_wrong(block, 100, 1), 100);
    fam_free(block);
}

static void reallocarr_resizes_through_the_address(void **state)
{
    (void)state;
    if (!FAMILY_HAS(fam_reallocarr)) {
        skip();
    }
    unsigned char *block = NULL;
    errno = 55;
    assert_int_equal(fam_reallocarr(&block, 10, 10), 0);
    assert_non_null(block);
    tag_fill(block, 100, 2);
    assert_int_equal(fam_reallocarr(&block, 100, 5000), 0);
    assert_true(fam_usable_size(block) >= 500000);
    assert_int_equal(tag_wrong(block, 100, 2), 100);

    unsigned char *const before = block;
    assert_int_equal(fam_reallocarr(&block, opaque(SIZE_MAX / 2), 3), EOVERFLOW);
    assert_ptr_equal(block, before);
    assert_int_equal(fam_reallocarr(&block, opaque(PTRDIFF_MAX / 2), 2), ENOMEM);
    assert_ptr_equal(block, before);
    assert_int_equal(tag_wrong(block, 100, 2), 100);

    assert_int_equal(fam_reallocarr(&block, 0, 100), 0); // a product of 0 frees
    assert_null(block);
    assert_int_equal(fam_reallocarr(&block, 7, 9), 0);
    assert_int_equal(fam_reallocarr(&block, 7, 0), 0);
    assert_null(block);
    assert_int_equal(errno, 55);
}

// 200 x 8 MiB that are touched and then failed: if reallocf did not free, 1.6 GB would be resident.
static void reallocf_frees_where_it_fails(void **state)
{
    (void)state;
    if (!FAMILY_HAS(fam_reallocf)) {
        skip();
    }
    static const size_t sizes[] = {100, 20000, 8 * MIB};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        const size_t before = process_rss_kib();
        for (size_t round = 0; round < SCALED(1600 * MIB / sizes[i] < 200000 ? 1600 * MIB / sizes[i] : 200000); round++) {
            void *const block = fam_malloc(sizes[i]);
            assert_non_null(block);
            memset(block, 1, sizes[i]);
            errno = 0;
            assert_null(fam_reallocf(block, opaque(SIZE_MAX - round)));
            assert_int_equal(errno, ENOMEM);
        }
        assert_true(process_rss_kib() < before + 60 * KIB || !FIGURES_COUNT);
    }
    char *const grown = fam_reallocf(fam_malloc(10), 1000);
    assert_non_null(grown);
    fam_free(grown);
}

static void cfree_frees(void **state)
{
    (void)state;
    if (!FAMILY_HAS(fam_cfree)) {
        skip();
    }
    const size_t before = process_rss_kib();
    for (int round = 0; round < 2000; round++) {
        void *const block = fam_malloc(MIB);
        memset(block, 1, MIB);
        fam_cfree(block);
    }
    fam_cfree(NULL);
    assert_true(process_rss_kib() < before + 60 * KIB || !FIGURES_COUNT);
}

static void strdup_copies_any_length(void **state)
{
    (void)state;
    for (size_t length = 0; length < 300000; length = length < 200 ? length + 1 : length * 3 / 2) {
        char *const text = fam_malloc(length + 1);
        memset(text, 'm', length);
        text[length] = '\0';
        errno = 11;
        char *const copy = fam_strdup(text);
        assert_int_equal(errno, 11);
        assert_ptr_not_equal(copy, text);
        assert_string_equal(copy, text);
        assert_true(fam_usable_size(copy) >= length + 1);
        fam_free(copy);
        fam_free(text);
    }
}

static void strndup_stops_at_the_limit_and_at_the_end(void **state)
{
    (void)state;
    char *const unterminated = fam_malloc(64);
    memset(unterminated, 'x', 64);
    for (size_t limit = 0; limit <= 64; limit++) {
        char *const copy = fam_strndup(unterminated, limit); // must not read beyond the limit
        assert_int_equal(strlen(copy), limit);
        fam_free(copy);
    }
    char *const whole = fam_strndup("short", SIZE_MAX);
    assert_string_equal(whole, "short");
    fam_free(whole);
    fam_free(unterminated);
}

static void realpath_allocates_or_fills_and_fails_with_errno(void **state)
{
    (void)state;
    char *const path = fam_realpath("/usr/../usr/./bin/..", NULL);
    assert_string_equal(path, "/usr");
    fam_free(path);
    char given[PATH_MAX];
    errno = 12345;
    assert_ptr_equal(fam_realpath("/usr/bin/..", given), given);
    assert_string_equal(given, "/usr");
#ifdef TEST_FAMILY_MW // libc's own leaves in errno what its steps have set
    assert_int_equal(errno, 12345);
#endif
    errno = 0;
    assert_null(fam_realpath("/nowhere/at/all", NULL));
    assert_int_equal(errno, ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reallocarray_resizes_by_the_product),
        cmocka_unit_test(reallocarr_resizes_through_the_address),
        cmocka_unit_test(reallocf_frees_where_it_fails),
        cmocka_unit_test(cfree_frees),
        cmocka_unit_test(strdup_copies_any_length),
        cmocka_unit_test(strndup_stops_at_the_limit_and_at_the_end),
        cmocka_unit_test(realpath_allocates_or_fills_and_fails_with_errno),
    };
    return suite_run(tests);
}
