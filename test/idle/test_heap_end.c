// SPDX-License-Identifier: MIT
// What a heap of the program's own held goes back when it is ended, and what large blocks have no need
// for when they are made smaller where they are, though no call of the allocator's follows that.
#include "idle.h"

#include <mallow/heap.h>

enum { HELD = 48 << 20, BLOCK = 60000, LARGE = 1000000, LESS = 70000, LEFT = 128 << 10 };
enum { SLACK_KIB = 3000, RETURN_MS = 2000, END_MS = 4000 };

static struct mw_heap *make(size_t reserve_bytes)
{
    const struct mw_heap_config config = {
        .size_bytes = sizeof config, .reserve_bytes = reserve_bytes, .prefault = reserve_bytes != 0};
    struct mw_heap *heap;
    const enum mw_heap_status status = mw_heap_create(&config, &heap);
    CHECK(status == MW_HEAP_OK, "%s", mw_heap_status_text(status));
    return heap;
}

static void expect_return(const char *kind, size_t before_kib)
{
    CHECK(wait_for_rss(before_kib + SLACK_KIB, RETURN_MS), "%s: %zu KiB before, %zu after %d ms", kind,
          before_kib, process_rss_kib(), RETURN_MS);
    CHECK(wait_for_threads(1, END_MS), "the thread ends");
}

static void ends(const char *kind, struct mw_heap *heap, size_t before_kib)
{
    CHECK(process_rss_kib() > before_kib + HELD / KIB / 2, "%s: all in memory", kind);
    mw_heap_destroy(heap);
    expect_return(kind, before_kib);
}

static void *shrink_in_heap(struct mw_heap *heap, void *block)
{
    return mw_heap_realloc(heap, block, LESS);
}

static void *shrink_in_place(struct mw_heap *heap, void *block)
{
    (void)heap;
    return mw_expand(block, LESS);
}

static void shrinks(const char *kind, void *(*shrink)(struct mw_heap *heap, void *block))
{
    static void *blocks[HELD / LARGE];
    struct mw_heap *const heap = make(0);
    const size_t before = process_rss_kib();
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        blocks[i] = mw_heap_malloc(heap, LARGE);
        CHECK(blocks[i] != NULL, "block %zu", i);
        memset(blocks[i], 1, LARGE);
    }
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        CHECK(shrink(heap, blocks[i]) == blocks[i], "%s: in place", kind);
    }
    expect_return(kind, before + COUNT_OF(blocks) * (LEFT / KIB));
    mw_heap_destroy(heap);
}

int main(void)
{
    mw_free(mw_malloc(100));
    (void)process_rss_kib();
    size_t before = process_rss_kib();
    ends("a reserve", make(HELD), before);
    before = process_rss_kib();
    struct mw_heap *const grown = make(0);
    for (size_t i = 0; i < HELD / BLOCK; i++) {
        void *const block = mw_heap_malloc(grown, BLOCK);
        CHECK(block != NULL, "block %zu", i);
        memset(block, 1, BLOCK);
    }
    ends("one that grows", grown, before);
    shrinks("mw_heap_realloc", shrink_in_heap);
    shrinks("mw_expand", shrink_in_place);
    return 0;
}
