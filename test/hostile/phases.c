// SPDX-License-Identifier: MIT
// A program whose needs change: many blocks of 100,000 bytes, of which every eighth stays, then blocks
// of 1.2 MiB, which no hole between those that stay can take; and so on in turn. What is live at once
// is at most the figure given; what an allocator keeps of the other size comes on top.
//
//   phases LIVE-MIB ROUNDS        prints the most that was live, and the process's peak, in KiB
#include "../support/check.h"

enum { BLOCKS_MAX = 20000, SMALL = 100000, STAYS = 8 };

static unsigned char *blocks[BLOCKS_MAX];
static size_t sizes[BLOCKS_MAX];
static size_t count;
static size_t live;
static size_t most_live;

static void take(size_t size)
{
    unsigned char *const block = malloc(size);
    CHECK(block != NULL, "malloc(%zu)", size);
    memset(block, (int)count & 0x7f, size);
    blocks[count] = block;
    sizes[count++] = size;
    live += size;
    most_live = live > most_live ? live : most_live;
}

// Frees all, or all but every eighth, of the blocks.
static void give(size_t stays)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t size = sizes[i];
        CHECK(blocks[i][0] == blocks[i][size - 1], "contents");
        if (stays != 0 && i % stays == 0) {
            blocks[kept] = blocks[i];
            sizes[kept++] = size;
        } else {
            free(blocks[i]);
            live -= size;
        }
    }
    count = kept;
}

int main(int argument_count, char **arguments)
{
    CHECK(argument_count == 3, "usage: phases LIVE-MIB ROUNDS");
    const size_t limit = strtoull(arguments[1], NULL, 0) * MIB;
    const size_t rounds = strtoull(arguments[2], NULL, 0);
    for (size_t round = 0; round < rounds; round++) {
        while (live + SMALL <= limit) {
            take(SMALL);
        }
        give(STAYS);
        while (live + 6 * MIB / 5 <= limit) {
            take(6 * MIB / 5);
        }
        give(0);
    }
    printf("%zu %zu\n", most_live / KIB, process_status_kib("VmHWM:"));
    return 0;
}
