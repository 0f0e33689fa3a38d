// SPDX-License-Identifier: MIT
// A program that has all its memory locked, present and future, pays for its blocks and not for address
// space that is only kept ready: what is mapped then has its pages at once.
#include "../support/check.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BLOCKS = 20, ROUNDS = 3 };

// Blocks of 3 to 5 MB that come and go, made up of the pages of earlier ones: 80 MB at most.
static void come_and_go(void)
{
    unsigned char *blocks[BLOCKS];
    for (size_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < BLOCKS; i++) {
            blocks[i] = malloc(3000000 + i * 100000);
            CHECK(blocks[i] != NULL, "malloc");
            blocks[i][0] = 1;
        }
        for (size_t i = 0; i < BLOCKS; i++) {
            free(blocks[i]);
        }
    }
}

// 60 MB in blocks of 500 KB that are written whole: growth has huge pages by faults, and address space ahead
// of it is mapped for that.
static void grow_in_large_blocks(void)
{
    for (size_t i = 0; i < 120; i++) {
        void *const block = malloc(500000);
        CHECK(block != NULL, "malloc");
        memset(block, 1, 500000);
        if (i % 20 == 0) {
            usleep(10000); // and the thread's turn to look
        }
    }
}

int main(int count, char **arguments)
{
    const bool before = count > 1 && strcmp(arguments[1], "late") == 0;
    if (before) {
        come_and_go();
    }
    const bool growing = count > 1 && strcmp(arguments[1], "growing") == 0;
    if (growing) {
        grow_in_large_blocks();
    }
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
        SKIP_PROGRAM("mlockall: %s", strerror(errno));
    }
    if (growing) {
        const size_t kib = process_rss_kib();
        CHECK(kib < 80 * KIB, "%zu KiB are resident of 60,000", kib);
        return 0;
    }
    come_and_go();
    void *const aligned = aligned_alloc(64 * MIB, 2 * MIB);
    CHECK(aligned != NULL, "aligned_alloc");
    const size_t kib = process_rss_kib();
    free(aligned);
    CHECK(kib < 100 * KIB, "%zu KiB are resident", kib);
    printf("%zu KiB are resident\n", kib);
    return 0;
}
