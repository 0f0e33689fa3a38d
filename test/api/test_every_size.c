// SPDX-License-Identifier: MIT
// Every size to 64 KiB, one by one: usable, aligned, writable to the end, apart from its neighbours,
// and as the size functions say. Built for both families (see support/family.h).
#include "../support/family.h"
#include "../support/suite.h"

enum { WINDOW = 64, SIZE_LAST = 64 * 1024 };

static void every_size_to_64_kib_is_usable_to_its_end(void **state)
{
    (void)state;
    void *window[WINDOW] = {NULL};
    size_t usable[WINDOW] = {0};
    for (size_t size = 0; size <= SIZE_LAST; size++) {
        const size_t slot = size % WINDOW;
        if (window[slot] != NULL) {
            assert_int_equal(tag_wrong(window[slot], usable[slot], size - WINDOW), usable[slot]);
            fam_free(window[slot]);
        }
        window[slot] = fam_malloc(size);
        assert_non_null(window[slot]);
        assert_int_equal((uintptr_t)window[slot] % 16, 0);
        usable[slot] = fam_usable_size(window[slot]);
        assert_true(usable[slot] >= size);
        // A quarter more than asked for, and the smallest classes, is what rounding may cost.
        assert_true(usable[slot] <= size + size / 4 + 32);
        tag_fill(window[slot], usable[slot], size);
    }
    for (size_t slot = 0; slot < WINDOW; slot++) {
        fam_free(window[slot]);
    }
}

static void good_size_is_what_malloc_gives(void **state)
{
    (void)state;
    if (!FAMILY_HAS(fam_good_size) || !FAMILY_HAS(fam_malloc_size)) {
        skip();
    }
    for (size_t size = 0; size <= 4 * MIB; size += size < SIZE_LAST ? 1 : 997) {
        void *const block = fam_malloc(size);
        assert_non_null(block);
        if (fam_good_size(size) != fam_usable_size(block)) {
            fail_msg("size %zu: good size %zu, usable size %zu", size, fam_good_size(size),
                     fam_usable_size(block));
        }
        assert_int_equal(fam_malloc_size(block), fam_usable_size(block));
        fam_free(block);
    }
    size_t before = 0;
    for (size_t size = 0; size <= SIZE_LAST; size++) { // never falls, and is its own good size
        const size_t good = fam_good_size(size);
        assert_true(good >= size && good >= before);
        assert_int_equal(fam_good_size(good), good);
        before = good;
    }
    assert_int_equal(fam_good_size(SIZE_MAX), SIZE_MAX);
    assert_int_equal(fam_good_size(PTRDIFF_MAX), PTRDIFF_MAX); // which no block has
    assert_int_equal(fam_good_size((size_t)PTRDIFF_MAX + 1), (size_t)PTRDIFF_MAX + 1);
}

static void every_size_is_zeroed_by_calloc_after_use(void **state)
{
    (void)state;
    for (size_t size = 0; size <= SIZE_LAST; size += size < 2048 ? 1 : 61) {
        void *const dirty = fam_malloc(size);
        memset(dirty, 0xff, fam_usable_size(dirty));
        fam_free(dirty);
        void *const clean = fam_calloc(1, size);
        assert_int_equal(nonzero_at(clean, size), size);
        fam_free(clean);
    }
}

static void sized_free_takes_every_size(void **state)
{
    (void)state;
    if (!FAMILY_HAS(fam_free_sized)) {
        skip();
    }
    for (size_t size = 0; size <= 2 * MIB; size += size < 8192 ? 1 : 1009) {
        fam_free_sized(fam_malloc(size), size);
        fam_free_sized(fam_calloc(1, size), size);
        fam_free_sized(fam_realloc(fam_malloc(3 * size + 1), size), size);
    }
    for (size_t alignment = 1; alignment <= 64 * KIB; alignment *= 2) {
        for (size_t size = 0; size < 200000; size = size * 2 + 7) {
            fam_free_aligned_sized(fam_aligned_alloc(alignment, size), alignment, size);
        }
    }
    fam_free_sized(NULL, 10);
    fam_free_sized(NULL, 0);
    fam_free_aligned_sized(NULL, 64, 10);
}

static void a_million_small_blocks_lie_apart(void **state)
{
    (void)state;
    const size_t count = SCALED(1000000u);
    uint64_t **const blocks = fam_malloc(count * sizeof *blocks);
    struct chance chance = {chance_seed()};
    for (size_t i = 0; i < count; i++) {
        const size_t size = 8 + chance_below(&chance, 120);
        blocks[i] = fam_malloc(size);
        assert_non_null(blocks[i]);
        blocks[i][0] = i;
        const size_t usable = fam_usable_size(blocks[i]);
        memcpy((char *)blocks[i] + usable - sizeof i, &i, sizeof i);
    }
    for (size_t i = 0; i < count; i++) {
        size_t tail;
        memcpy(&tail, (char *)blocks[i] + fam_usable_size(blocks[i]) - sizeof tail, sizeof tail);
        assert_int_equal(tail, i);
        fam_free(blocks[i]);
    }
    fam_free(blocks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_to_64_kib_is_usable_to_its_end),
        cmocka_unit_test(good_size_is_what_malloc_gives),
        cmocka_unit_test(every_size_is_zeroed_by_calloc_after_use),
        cmocka_unit_test(sized_free_takes_every_size),
        cmocka_unit_test(a_million_small_blocks_lie_apart),
    };
    return suite_run(tests);
}
