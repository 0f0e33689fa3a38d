// SPDX-License-Identifier: MIT
// mw_is_owned and mw_cfree answer for any 64-bit value: a million random ones, all corners of the
// address space, every kind of memory of the process, and each address inside and around live blocks.
// No fault, and no block is ever recognised where none starts.
#include "../support/check.h"

#include <mallow/mallow.h>
#include <sys/mman.h>

static const char constant[64] = "constant";
static char zeroed[4096];

static void expect_foreign(uintptr_t address)
{
    void *pointer = (void *)address;
    __asm__ volatile("" : "+r"(pointer));
    CHECK(!mw_is_owned(pointer), "%#zx was taken for a block", (size_t)address);
    mw_cfree(pointer); // does nothing
}

static void random_values(void)
{
    struct chance chance = {chance_seed()};
    void *const near = mw_malloc(1000);
    for (size_t i = 0; i < 1000000; i++) {
        const uint64_t word = chance_next(&chance);
        uintptr_t address = word >> chance_below(&chance, 64); // all magnitudes
        if (i % 4 == 0) {                                      // and the neighbourhood of the heap
            address = (uintptr_t)near + (word >> (20 + chance_below(&chance, 40))) - ((uintptr_t)1 << 30);
        }
        if (address != (uintptr_t)near) {
            CHECK(!mw_is_owned((void *)address), "%#zx was taken for a block", (size_t)address);
        }
    }
    mw_free(near);
}

static void corners(void)
{
    for (uintptr_t small = 1; small < 65536; small += 7) {
        expect_foreign(small);
    }
    for (int bit = 16; bit < 64; bit++) {
        for (uintptr_t offset = 0; offset < 64; offset += 8) {
            expect_foreign(((uintptr_t)1 << bit) + offset);
            expect_foreign(((uintptr_t)1 << bit) - 8 - offset);
            expect_foreign(~(((uintptr_t)1 << bit) + offset));
        }
    }
    expect_foreign(UINTPTR_MAX);
    expect_foreign(0xffff800000000000);
    expect_foreign(0x00007fffffffffff);
    expect_foreign(0x0000800000000000);
}

static void kinds_of_memory(void)
{
    char local[256];
    char *const page = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED, "mmap");
    for (uintptr_t offset = 0; offset < 256; offset += 8) {
        expect_foreign((uintptr_t)local + offset);
        expect_foreign((uintptr_t)page + offset * 64);
        expect_foreign((uintptr_t)zeroed + offset);
        expect_foreign((uintptr_t)&expect_foreign + offset);
    }
    expect_foreign((uintptr_t)constant);
    munmap(page, 65536);
    expect_foreign((uintptr_t)page);
    expect_foreign((uintptr_t)&errno);
    expect_foreign((uintptr_t)&mw_malloc);
}

// All mappings of the process, the allocator's own metadata and reserve included: no fault anywhere, and
// no block at an address that is no multiple of 16.
static void every_mapping(void)
{
    FILE *const maps = fopen("/proc/self/maps", "r");
    if (maps == NULL) {
        return;
    }
    char line[512];
    while (fgets(line, sizeof line, maps) != NULL) {
        size_t start = 0;
        size_t end = 0;
        CHECK(sscanf(line, "%zx-%zx", &start, &end) == 2, "maps");
        const size_t step = ((end - start) / 200000 + 16) & ~(size_t)15;
        for (size_t address = start; address < end; address += step) {
            (void)mw_is_owned((void *)address); // must not fault
            CHECK(!mw_is_owned((void *)(address + 8)), "%#zx was taken for a block", address + 8);
        }
    }
    fclose(maps);
}

static void inside_blocks(void)
{
    static const size_t sizes[] = {1, 16, 48, 100, 1024, 5000, 40000, 300000, 2000000, 50000000};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        char *const block = mw_malloc(sizes[i]);
        CHECK(mw_is_owned(block), "own block");
        const size_t usable = mw_usable_size(block);
        for (size_t offset = 1; offset < usable; offset += 1 + usable / 3000) {
            CHECK(!mw_is_owned(block + offset), "offset %zu of %zu was taken for a block", offset, usable);
        }
        mw_free(block);
        CHECK(!mw_is_owned(block), "a freed block of %zu was taken for a live one", sizes[i]);
    }
}

int main(void)
{
    void *held[16];
    for (size_t i = 0; i < COUNT_OF(held); i++) {
        held[i] = mw_malloc((size_t)10 << i);
    }
    corners();
    random_values();
    kinds_of_memory();
    inside_blocks();
    every_mapping();
    for (size_t i = 0; i < COUNT_OF(held); i++) {
        mw_free(held[i]);
    }
    return 0;
}
