// SPDX-License-Identifier: MIT
// mallow/heap.h: a block that is made smaller stays when the kernel will not cut its mapping (where there are too
// many mappings, say) and the heap's limit has no room for another one.
#include <mallow/heap.h>

#include "../support/filter.h"

enum { BLOCK_BYTES = 3 << 20, LIMIT_BYTES = 4 << 20, ALIGNMENT = 64 };

static void *by_realloc(struct mw_heap *heap, void *block, size_t size)
{
    return mw_heap_realloc(heap, block, size);
}

static void *by_reallocf(struct mw_heap *heap, void *block, size_t size)
{
    return mw_heap_reallocf(heap, block, size);
}

static void *by_rezalloc(struct mw_heap *heap, void *block, size_t size)
{
    return mw_heap_rezalloc(heap, block, size);
}

static void *by_realloc_aligned(struct mw_heap *heap, void *block, size_t size)
{
    return mw_heap_realloc_aligned(heap, block, size, ALIGNMENT);
}

static const struct {
    const char *name;
    void *(*resize)(struct mw_heap *heap, void *block, size_t size);
    bool zeroed;
} calls[] = {
    {"realloc", by_realloc, false},
    {"reallocf", by_reallocf, false},
    {"rezalloc", by_rezalloc, true},
    {"realloc_aligned", by_realloc_aligned, false},
};

int main(void)
{
    struct mw_heap *heaps[COUNT_OF(calls)];
    unsigned char *blocks[COUNT_OF(calls)];
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        const struct mw_heap_config config = {.size_bytes = sizeof config, .limit_bytes = LIMIT_BYTES};
        CHECK(mw_heap_create(&config, &heaps[i]) == MW_HEAP_OK, "create");
        blocks[i] = mw_heap_zalloc(heaps[i], BLOCK_BYTES);
        CHECK(blocks[i] != NULL, "zalloc");
        memset(blocks[i], (int)i + 1, BLOCK_BYTES);
    }
    filter_call(SYS_mremap, SECCOMP_RET_ERRNO | ENOMEM, SECCOMP_FILTER_FLAG_TSYNC);
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        for (size_t size = BLOCK_BYTES - 9999; size > 2 * MIB; size -= 250000) {
            unsigned char *const block = calls[i].resize(heaps[i], blocks[i], size);
            CHECK(block != NULL, "%s to %zu: %s", calls[i].name, size,
                  mw_heap_status_text(mw_heap_last_status(heaps[i])));
            for (size_t j = 0; j < size; j++) {
                CHECK(block[j] == i + 1, "%s to %zu: byte %zu", calls[i].name, size, j);
            }
            for (size_t j = size; calls[i].zeroed && j < mw_usable_size(block); j++) {
                CHECK(block[j] == 0, "%s to %zu: byte %zu behind it", calls[i].name, size, j);
            }
            blocks[i] = block;
        }
        CHECK(mw_heap_last_status(heaps[i]) == MW_HEAP_OK, "%s has returned NULL", calls[i].name);
        CHECK(mw_heap_realloc(heaps[i], blocks[i], LIMIT_BYTES + 1) == NULL && errno == ENOMEM, "beyond the limit");
        mw_heap_destroy(heaps[i]);
    }
    return 0;
}
