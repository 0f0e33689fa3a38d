// SPDX-License-Identifier: MIT
// What makes the most mappings: hundreds of huge blocks, freed so that none of the holes are neighbours, then
// again with other sizes. Run alone it counts: never more mappings than the heap has pieces of 2 MiB, and some.
// Run by under_limit, with the ceiling as second argument: where the kernel refuses to cut a hole out, it is
// purged, refusals are clean, and when memory is freed every allocation succeeds again.
//
//   many_mappings [BLOCKS [CEILING]]
#include "../support/check.h"

#include <malloc.h>

enum { BLOCKS_MAX = 3000, ROUNDS = 6, OTHERS = 200 };

static size_t block_count = BLOCKS_MAX;

static unsigned char *blocks[BLOCKS_MAX];
static size_t live;
static size_t most_live;
static size_t refused;

static size_t mapping_count(void)
{
    static char text[1 << 16];
    size_t count = 0;
    ssize_t got;
    const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0, "/proc/self/maps");
    while ((got = read(fd, text, sizeof text)) > 0) {
        for (ssize_t i = 0; i < got; i++) {
            count += text[i] == '\n';
        }
    }
    close(fd);
    return count;
}

static void take(size_t i, size_t size)
{
    blocks[i] = malloc(size);
    if (blocks[i] == NULL) {
        CHECK(errno == ENOMEM, "errno %d", errno);
        refused++;
        return;
    }
    blocks[i][0] = blocks[i][size - 1] = (unsigned char)i;
    live += malloc_usable_size(blocks[i]);
    most_live = live > most_live ? live : most_live;
}

static void give(size_t i)
{
    if (blocks[i] != NULL) {
        CHECK(blocks[i][0] == (unsigned char)i, "contents");
        live -= malloc_usable_size(blocks[i]);
        errno = 5;
        free(blocks[i]);
        CHECK(errno == 5, "free changed errno");
        blocks[i] = NULL;
    }
}

int main(int count, char **arguments)
{
    const size_t ceiling = count > 2 ? strtoull(arguments[2], NULL, 0) : 0;
    block_count = count > 1 ? strtoull(arguments[1], NULL, 0) : BLOCKS_MAX;
    CHECK(block_count <= BLOCKS_MAX, "at most %d blocks", BLOCKS_MAX);
    struct chance chance = {chance_seed()};
    size_t most_mappings = 0;
    for (size_t round = 0; round < ROUNDS; round++) {
        const size_t size = MIB + 1 + chance_below(&chance, MIB / 2);
        for (size_t i = 0; i < block_count; i++) {
            if (blocks[i] == NULL) {
                take(i, round == 0 ? size : MIB + 1 + chance_below(&chance, MIB));
            }
        }
        for (size_t i = round % 2; i < block_count; i += 2) {
            give(i);
        }
        const size_t now = mapping_count();
        most_mappings = now > most_mappings ? now : most_mappings;
    }
    dprintf(2, "%zu of %zu allocations refused; at most %zu mappings, %zu MiB live, %zu MiB resident\n", refused,
            block_count + (ROUNDS - 1) * block_count / 2, most_mappings, most_live / MIB, process_rss_kib() / 1024);
    if (ceiling != 0) {
        CHECK(most_mappings + 10 >= ceiling, "the ceiling was not reached");
    } else {
        CHECK(refused == 0, "refused without a ceiling");
        CHECK(most_mappings <= most_live / (2 * MIB) + OTHERS, "mappings");
    }
    for (size_t i = 0; i < block_count; i++) {
        give(i);
    }
    malloc_trim(0);
    CHECK(process_rss_kib() < 16 * 1024, "%zu KiB resident after all was freed", process_rss_kib());
    CHECK(refused * 2 <= block_count * (1 + ROUNDS) / 2, "%zu refused", refused);
    const size_t before = refused;
    for (size_t i = 0; i < 100; i++) {
        take(i, 2 * MIB);
    }
    CHECK(refused == before, "%zu refused after all was freed", refused - before);
    return 0;
}
