// SPDX-License-Identifier: MIT
// Where the kernel does not overcommit (by under_limit --gaps), memory is refused, and the program maps files of
// its own wherever there is a gap. The allocator leaves none where its own mappings were, and replaces nothing when
// there is memory again.
#include "../support/check.h"

#include <sys/mman.h>

enum { BLOCKS = 60000, FILES = 200, FILE_BYTES = 64 << 10, ROUNDS = 4 };

static unsigned char *blocks[BLOCKS];
static unsigned char *files[FILES];

static size_t fill(size_t size)
{
    size_t count = 0;
    for (size_t i = 0; i < BLOCKS; i++) {
        if (blocks[i] == NULL) {
            blocks[i] = malloc(size);
            count += blocks[i] != NULL;
        }
        if (blocks[i] == NULL) {
            break;
        }
        blocks[i][0] = blocks[i][size - 1] = 1;
    }
    return count;
}

int main(void)
{
    for (size_t round = 0; round < ROUNDS; round++) {
        const size_t size = round % 2 == 0 ? 3000 : 30000;
        const size_t count = fill(size);
        CHECK(count < BLOCKS, "all %zu blocks of %zu bytes could be had", count, size);
        for (size_t i = 0; i < FILES; i++) { // read-only: not charged
            files[i] = mmap(NULL, (size_t)FILE_BYTES << i % 6, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            CHECK(files[i] != MAP_FAILED, "mmap");
        }
        for (size_t i = 0; i < BLOCKS; i++) {
            free(blocks[i]);
            blocks[i] = NULL;
        }
        CHECK(fill(size) > 0, "nothing can be had again");
        for (size_t i = 0; i < FILES; i++) {
            for (size_t j = 0; j < (size_t)FILE_BYTES << i % 6; j += 4096) {
                CHECK(files[i][j] == 0, "a mapping of the program's own has been replaced");
            }
            munmap(files[i], (size_t)FILE_BYTES << i % 6);
        }
        for (size_t i = 0; i < BLOCKS; i++) {
            free(blocks[i]);
            blocks[i] = NULL;
        }
    }
    return 0;
}
