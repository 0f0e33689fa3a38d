// SPDX-License-Identifier: MIT
// mallow/heap.h: a request for which the reserve, or the limit, has room is not refused: where no slab of several
// slices is to be had, for aligned blocks, and where the kernel refuses mappings.
#include <mallow/heap.h>
#include <mallow/options.h>

#include "../support/filter.h"
#include "../support/heaps.h"
#include "../support/suite.h"

#include <sys/mman.h>

enum { SLICE = 64 * 1024 };

static uint64_t held(const struct mw_heap *heap)
{
    struct mw_heap_stats stats = {.size_bytes = sizeof stats};
    CHECK(mw_heap_stats_get(heap, &stats) && stats.held_bytes <= stats.limit_bytes, "more than the limit is held");
    return stats.held_bytes;
}

// Takes blocks of a size until one is refused, gives them back, and returns how many there were.
static size_t count_blocks(struct mw_heap *heap, size_t size, size_t alignment)
{
    static unsigned char *blocks[64];
    size_t count = 0;
    while (count < COUNT_OF(blocks) && (blocks[count] = mw_heap_aligned_alloc(heap, alignment, size)) != NULL) {
        CHECK((uintptr_t)blocks[count] % alignment == 0 && mw_usable_size(blocks[count]) >= size, "%zu bytes", size);
        CHECK(mw_heap_of(blocks[count]) == heap, "whose block");
        memset(blocks[count], (int)count, size);
        (void)held(heap);
        count++;
    }
    CHECK(count == COUNT_OF(blocks) || mw_heap_last_status(heap) == MW_HEAP_EXHAUSTED, "status");
    for (size_t i = 0; i < count; i++) {
        CHECK(blocks[i][0] == i && blocks[i][size - 1] == i, "%zu bytes changed", size);
        if (i % 2 == 0) {
            mw_heap_free(heap, blocks[i]);
        } else {
            mw_free(blocks[i]);
        }
    }
    return count;
}

// Sixteen slices of 32 are free, and no two side by side.
static void single_slices_of_a_reserve_have_blocks_of_every_class(void **state)
{
    (void)state;
    struct mw_heap *const heap = make((struct mw_heap_config){.reserve_bytes = 2 * MIB});
    for (unsigned i = 0; i < 16; i++) {
        CHECK(mw_heap_aligned_alloc(heap, 2 * SLICE, 100) != NULL, "the reserve is used up");
    }
    for (size_t size = 8 * KIB + 1; size <= 64 * KIB; size += 5000) {
        CHECK(count_blocks(heap, size, 16) == 16, "%zu bytes", size);
        CHECK(count_blocks(heap, size, 4096) == 16, "%zu bytes, aligned", size);
    }
    mw_heap_destroy(heap);
}

// A reserve has been charged when it was made.
static void a_reserve_has_its_blocks_above_the_soft_limit_of_the_process(void **state)
{
    void *const block = mw_malloc(8 * MIB);
    CHECK(block != NULL && mw_option_set("soft_limit", "4M") == 0, "limit");
    single_slices_of_a_reserve_have_blocks_of_every_class(state);
    CHECK(mw_option_set("soft_limit", "0") == 0, "no limit");
    mw_free(block);
}

static void what_a_limit_leaves_has_blocks_of_every_class(void **state)
{
    (void)state;
    struct mw_heap *const heap = make((struct mw_heap_config){.limit_bytes = MIB});
    CHECK(mw_heap_malloc(heap, 15 * SLICE) != NULL, "all but a slice");
    for (size_t size = 8 * KIB + 1; size <= 64 * KIB; size += 5000) {
        CHECK(count_blocks(heap, size, 16) == 1, "%zu bytes", size);
    }
    mw_heap_destroy(heap);
}

// Whatever has a mapping of its own elsewhere, of 1 MiB at least.
static void blocks_of_less_count_less_than_a_mebibyte(void **state)
{
    (void)state;
    struct mw_heap *const heap = make((struct mw_heap_config){.limit_bytes = MIB});
    CHECK(count_blocks(heap, 300 * KIB, 16) == 3 && count_blocks(heap, SLICE, 128 * KIB) == 16, "blocks");
    void *block = mw_heap_malloc(heap, 300 * KIB);
    block = mw_heap_realloc(heap, block, 500 * KIB);
    CHECK(block != NULL && held(heap) == 8 * SLICE, "%zu held", (size_t)held(heap));
    mw_heap_destroy(heap);
}

static void what_lies_beside_an_aligned_block_does_not_count(void **state)
{
    (void)state;
    struct mw_heap *const heap = make((struct mw_heap_config){.limit_bytes = 12 * MIB});
    CHECK(count_blocks(heap, 3 * MIB, 8 * MIB) == 4, "of 3 MiB");
    CHECK(count_blocks(heap, 100, 64 * MIB) == 12, "of the least mapping");
    void *block = mw_heap_zalloc_aligned(heap, 2 * MIB, 4 * MIB);
    CHECK(block != NULL && held(heap) == 2 * MIB, "%zu held", (size_t)held(heap));
    block = mw_heap_realloc_aligned(heap, block, 5 * MIB, 4 * MIB);
    CHECK(block != NULL && (uintptr_t)block % (4 * MIB) == 0, "it grows");
    mw_heap_free(heap, block);
    CHECK(held(heap) == 0, "%zu held", (size_t)held(heap));
    mw_heap_destroy(heap);
}

// From here on only what is to replace something is mapped, as where there are too many mappings: an arena grows so.
static void refuse_mappings(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_FIXED, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    filter_install(filter, COUNT_OF(filter), 0);
}

static void a_huge_block_without_a_mapping_counts_once(void **state)
{
    (void)state;
    struct mw_heap *const heap = make((struct mw_heap_config){.limit_bytes = 3 * MIB});
    refuse_mappings();
    CHECK(mw_heap_malloc(heap, 17 * 100 * KIB) != NULL, "status %d", mw_heap_last_status(heap));
    CHECK(held(heap) >= 17 * 100 * KIB, "%zu held", (size_t)held(heap));
    mw_heap_destroy(heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(single_slices_of_a_reserve_have_blocks_of_every_class),
        cmocka_unit_test(a_reserve_has_its_blocks_above_the_soft_limit_of_the_process),
        cmocka_unit_test(what_a_limit_leaves_has_blocks_of_every_class),
        cmocka_unit_test(blocks_of_less_count_less_than_a_mebibyte),
        cmocka_unit_test(what_lies_beside_an_aligned_block_does_not_count),
        cmocka_unit_test(a_huge_block_without_a_mapping_counts_once), // the last: the filter stays
    };
    return suite_run(tests);
}
