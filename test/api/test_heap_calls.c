// SPDX-License-Identifier: MIT
// mallow/heap.h has the calls of mallow/mallow.h: each of them, on heaps of both kinds, over sizes,
// alignments and ways to fail.
#include <mallow/heap.h>

#include "../support/suite.h"

enum { ZEROED = 1, ALIGNED = 2, COUNTED = 4, RESIZES = 8, RESERVE = 64 << 20 };

typedef void *call_function(struct mw_heap *heap, void *block, size_t count, size_t size, size_t alignment);

#define CALL(name, ...)                                                                                                \
    static void *call_##name(struct mw_heap *heap, void *block, size_t count, size_t size, size_t alignment)           \
    {                                                                                                                  \
        (void)block, (void)count, (void)alignment;                                                                     \
        return mw_heap_##name(heap, __VA_ARGS__);                                                                      \
    }

CALL(malloc, count * size)
CALL(zalloc, count * size)
CALL(calloc, count, size)
CALL(mallocn, count, size)
CALL(aligned_alloc, alignment, count * size)
CALL(malloc_aligned, count * size, alignment)
CALL(zalloc_aligned, count * size, alignment)
CALL(calloc_aligned, count, size, alignment)
CALL(realloc, block, count * size)
CALL(reallocn, block, count, size)
CALL(reallocf, block, count * size)
CALL(realloc_aligned, block, count * size, alignment)
CALL(rezalloc, block, count * size)
CALL(recalloc, block, count, size)
CALL(rezalloc_aligned, block, count * size, alignment)
CALL(recalloc_aligned, block, count, size, alignment)

static const struct call {
    const char *name;
    call_function *function;
    unsigned kind;
} calls[] = {
    {"malloc", call_malloc, 0},
    {"zalloc", call_zalloc, ZEROED},
    {"calloc", call_calloc, ZEROED | COUNTED},
    {"mallocn", call_mallocn, COUNTED},
    {"aligned_alloc", call_aligned_alloc, ALIGNED},
    {"malloc_aligned", call_malloc_aligned, ALIGNED},
    {"zalloc_aligned", call_zalloc_aligned, ZEROED | ALIGNED},
    {"calloc_aligned", call_calloc_aligned, ZEROED | ALIGNED | COUNTED},
    {"realloc", call_realloc, RESIZES},
    {"reallocn", call_reallocn, RESIZES | COUNTED},
    {"reallocf", call_reallocf, RESIZES},
    {"realloc_aligned", call_realloc_aligned, RESIZES | ALIGNED},
    {"rezalloc", call_rezalloc, RESIZES | ZEROED},
    {"recalloc", call_recalloc, RESIZES | ZEROED | COUNTED},
    {"rezalloc_aligned", call_rezalloc_aligned, RESIZES | ZEROED | ALIGNED},
    {"recalloc_aligned", call_recalloc_aligned, RESIZES | ZEROED | ALIGNED | COUNTED},
};

// Up to what a heap with a reserve serves, and beyond that for one that grows.
static const size_t sizes[] = {0,    1,     15,    16,    17,    40,     100,    512,    1000,   1024,    1025,
                               3000, 8192,  20000, 65536, 65537, 100000, 200000, 400000, 900000, 1 << 20, 1300000,
                               5000000};
static const size_t alignments[] = {1, 2, 16, 32, 64, 256, 1024, 4096, 16384, 65536, 262144};

static size_t opaque_size(size_t size) // from the optimiser, which warns of such
{
    __asm__ volatile("" : "+r"(size));
    return size;
}

static struct mw_heap *make(bool reserved, uint64_t limit_bytes)
{
    const struct mw_heap_config config = {
        .size_bytes = sizeof config, .reserve_bytes = reserved ? RESERVE : 0, .limit_bytes = limit_bytes};
    struct mw_heap *heap = NULL;
    const enum mw_heap_status status = mw_heap_create(&config, &heap);
    CHECK(status == MW_HEAP_OK, "%s", mw_heap_status_text(status));
    return heap;
}

static void dirty(struct mw_heap *heap, size_t size)
{
    void *const block = mw_heap_malloc(heap, size);
    if (block != NULL) {
        memset(block, 0xdd, mw_usable_size(block));
        mw_heap_free(heap, block);
    }
}

static void check_block(struct mw_heap *heap, const struct call *call, const unsigned char *block, size_t size,
                        size_t alignment)
{
    CHECK(block != NULL, "%s(%zu, %zu): %s", call->name, size, alignment,
          mw_heap_status_text(mw_heap_last_status(heap)));
    CHECK(mw_heap_of(block) == heap, "%s(%zu): not of the heap", call->name, size);
    CHECK(mw_usable_size(block) >= size, "%s(%zu): usable", call->name, size);
    CHECK((call->kind & ALIGNED) == 0 || (uintptr_t)block % alignment == 0, "%s(%zu, %zu): at %p", call->name, size,
          alignment, (const void *)block);
    CHECK((uintptr_t)block % (size >= 16 ? 16 : 8) == 0, "%s(%zu): at %p", call->name, size, (const void *)block);
}

static void try_call(struct mw_heap *heap, const struct call *call, size_t size, size_t alignment)
{
    const size_t count = size % 4 == 0 && size != 0 ? 4 : 1;
    dirty(heap, size);
    errno = 4321;
    unsigned char *block = call->function(heap, NULL, count, size / count, alignment);
    check_block(heap, call, block, size, alignment);
    CHECK(errno == 4321, "%s(%zu): errno %d", call->name, size, errno);
    if ((call->kind & ZEROED) != 0) {
        const size_t usable = mw_usable_size(block);
        CHECK(nonzero_at(block, usable) == usable, "%s(%zu): not zero", call->name, size);
    }
    size_t before = size;
    for (size_t k = 0; k < 6 && (call->kind & RESIZES) != 0; k++) {
        static const size_t steps[] = {3, 40, 2, 9, 1, 12}; // eighths
        const size_t after = size * steps[k] / 8 + k;
        memset(block, 0x5a, before);
        dirty(heap, after);
        block = call->function(heap, block, 1, after, alignment);
        check_block(heap, call, block, after, alignment);
        const size_t kept = before < after ? before : after;
        for (size_t i = 0; i < kept; i += 1 + i / 64) {
            CHECK(block[i] == 0x5a, "%s from %zu to %zu: byte %zu", call->name, before, after, i);
        }
        if ((call->kind & ZEROED) != 0 && after > before) {
            const size_t first = before + nonzero_at(block + before, after - before);
            CHECK(first == after, "%s from %zu to %zu: byte %zu", call->name, before, after, first);
        }
        before = after;
    }
    mw_heap_free(heap, block);
}

static void every_call_gives_what_its_namesake_gives(bool reserved)
{
    struct mw_heap *const heap = make(reserved, 0);
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        for (size_t k = 0; k < COUNT_OF(sizes); k++) {
            for (size_t a = 0; a < ((calls[i].kind & ALIGNED) != 0 ? COUNT_OF(alignments) : 1); a++) {
                if (!FIGURES_COUNT && (sizes[k] > 200000 || a % 3 != 0)) {
                    continue; // slow builds
                }
                if (reserved && sizes[k] * 5 + alignments[a] > 1000000) {
                    continue; // grown fivefold it would be larger than any block of it
                }
                try_call(heap, &calls[i], sizes[k], alignments[a]);
            }
        }
    }
    struct mw_heap_stats stats = {.size_bytes = sizeof stats};
    CHECK(mw_heap_stats_get(heap, &stats) && stats.refused_count == 0, "%zu refused", (size_t)stats.refused_count);
    mw_heap_destroy(heap);
}

static void every_call_on_a_heap_that_grows(void **state)
{
    (void)state;
    every_call_gives_what_its_namesake_gives(false);
}

static void every_call_on_a_heap_with_a_reserve(void **state)
{
    (void)state;
    every_call_gives_what_its_namesake_gives(true);
}

static void check_refusal(const struct mw_heap *heap, const struct call *call, const void *block, int error,
                          enum mw_heap_status status)
{
    CHECK(block == NULL && errno == error && mw_heap_last_status(heap) == status, "%s: %p, errno %d, %s", call->name,
          block, errno, mw_heap_status_text(mw_heap_last_status(heap)));
}

static void every_way_to_fail_is_told_and_leaves_the_block(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 2; round++) {
        struct mw_heap *const heap = make(round == 1, round == 0 ? 32 * MIB : 0);
        for (size_t i = 0; i < COUNT_OF(calls); i++) {
            const struct call *const call = &calls[i];
            const bool resizes = (call->kind & RESIZES) != 0;
            const bool frees = call->function == call_reallocf;
            unsigned char *block = resizes ? mw_heap_zalloc(heap, 300) : NULL;
            if (block != NULL) {
                memset(block, 7, 300);
            }
            if ((call->kind & COUNTED) != 0) {
                check_refusal(heap, call, call->function(heap, block, SIZE_MAX / 2, opaque_size(3), 16), ENOMEM,
                              MW_HEAP_TOO_BIG);
            }
            if ((call->kind & ALIGNED) != 0) {
                for (size_t bad = 0; bad < 100; bad += 33) {
                    check_refusal(heap, call, call->function(heap, block, 1, 10, bad), EINVAL, MW_HEAP_BAD_ALIGNMENT);
                }
            }
            check_refusal(heap, call, call->function(heap, block, 1, opaque_size((size_t)PTRDIFF_MAX + 1), 16), ENOMEM,
                          MW_HEAP_TOO_BIG);
            block = frees ? mw_heap_zalloc(heap, 300) : block;
            check_refusal(heap, call, call->function(heap, block, 1, 40 * MIB, 16), ENOMEM,
                          round == 0 ? MW_HEAP_EXHAUSTED : MW_HEAP_TOO_BIG);
            if (resizes && !frees) {
                CHECK(block[0] == 7 && block[299] == 7, "%s has touched the block", call->name);
                mw_heap_free(heap, block);
            } else if (frees) {
                CHECK(mw_heap_of(block) == NULL, "reallocf frees what it cannot resize");
            }
        }
        mw_heap_destroy(heap);
    }
}

static void strings_are_copied_into_the_heap(void **state)
{
    (void)state;
    for (unsigned reserved = 0; reserved < 2; reserved++) {
        struct mw_heap *const heap = make(reserved != 0, 0);
        char *const whole = mw_heap_strdup(heap, "a text of some length");
        char *const part = mw_heap_strndup(heap, "a text of some length", 6);
        char *const all = mw_heap_strndup(heap, "short", SIZE_MAX);
        errno = 4321;
        char *const path = mw_heap_realpath(heap, "/usr/../", NULL);
        CHECK(errno == 4321, "errno %d", errno);
        assert_string_equal(whole, "a text of some length");
        assert_string_equal(part, "a text");
        assert_string_equal(all, "short");
        assert_string_equal(path, "/");
        CHECK(mw_heap_of(whole) == heap && mw_heap_of(part) == heap && mw_heap_of(path) == heap, "not of the heap");
        char room[4097];
        CHECK(mw_heap_realpath(heap, "/", room) == room, "resolved in place");
        CHECK(mw_heap_realpath(heap, "/no/such/file", NULL) == NULL && errno == ENOENT, "errno %d", errno);
        CHECK(mw_heap_strdup(heap, NULL) == NULL && mw_heap_strndup(heap, NULL, 3) == NULL, "copies of nothing");
        mw_heap_destroy(heap);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_on_a_heap_that_grows),
        cmocka_unit_test(every_call_on_a_heap_with_a_reserve),
        cmocka_unit_test(every_way_to_fail_is_told_and_leaves_the_block),
        cmocka_unit_test(strings_are_copied_into_the_heap),
    };
    return suite_run(tests);
}
