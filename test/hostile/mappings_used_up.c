// SPDX-License-Identifier: MIT
// The process has used up its mappings (vm.max_map_count): the allocator must fail cleanly or go on with
// what it has, keep errno in free although munmap may fail now, and recover when mappings are released.
#include "../support/check.h"

#include <sys/mman.h>

enum { MAPPINGS_MAX = 200000, BLOCKS = 400 };

static void *mappings[MAPPINGS_MAX];
static struct {
    unsigned char *block;
    size_t size;
} blocks[BLOCKS];

static size_t use_up_mappings(void)
{
    size_t count = 0;
    for (; count < MAPPINGS_MAX; count++) {
        // Neighbours of different protection cannot be merged into one mapping.
        const int protection = count % 2 == 0 ? PROT_READ : PROT_NONE;
        mappings[count] = mmap(NULL, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mappings[count] == MAP_FAILED) {
            break;
        }
    }
    return count;
}

static size_t work(struct chance *chance, size_t steps)
{
    size_t refused = 0;
    for (size_t step = 0; step < steps; step++) {
        const size_t slot = chance_below(chance, BLOCKS);
        CHECK(tag_wrong(blocks[slot].block, blocks[slot].size, slot) == blocks[slot].size, "contents");
        errno = 8765;
        free(blocks[slot].block);
        CHECK(errno == 8765, "free changed errno to %d", errno);
        blocks[slot].size = step % 20 == 0 ? chance_below(chance, 8 * MIB) : chance_size(chance);
        errno = 0;
        blocks[slot].block = malloc(blocks[slot].size);
        if (blocks[slot].block == NULL) {
            CHECK(errno == ENOMEM, "NULL with errno %d", errno);
            blocks[slot].size = 0;
            refused++;
        }
        tag_fill(blocks[slot].block, blocks[slot].size, slot);
    }
    return refused;
}

int main(void)
{
    struct chance chance = {3};
    CHECK(work(&chance, 5000) == 0, "a failure before anything was used up");
    const size_t count = use_up_mappings();
    if (count == MAPPINGS_MAX) {
        SKIP_PROGRAM("this system permits more than %d mappings", MAPPINGS_MAX);
    }
    const size_t refused = work(&chance, 20000);
    for (size_t i = 0; i < count; i++) {
        CHECK(munmap(mappings[i], 4096) == 0, "munmap");
    }
    dprintf(2, "%zu mappings; %zu of 20000 allocations were refused\n", count, refused);
    CHECK(work(&chance, 5000) == 0, "a failure after mappings were released");
    for (size_t slot = 0; slot < BLOCKS; slot++) {
        CHECK(tag_wrong(blocks[slot].block, blocks[slot].size, slot) == blocks[slot].size, "contents");
        free(blocks[slot].block);
    }
    return 0;
}
