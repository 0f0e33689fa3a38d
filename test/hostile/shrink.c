// SPDX-License-Identifier: MIT
// There is no memory left, and blocks are made smaller: each stays where it is or moves, and never is that
// refused. Below a limit of the program's own, or of mallow's (in the environment).
#include "../support/check.h"

#include <malloc.h>

struct change {
    size_t before;
    size_t after;
};

int main(void)
{
    static const struct change changes[] = {
        {3 * MIB, 100000},   {20 * MIB, 50000}, {900000, 20000}, {200000, 10000}, {60000, 5000},
        {3 * MIB, MIB - 99}, {20 * MIB, 200},   {4000, 100},     {400, 17},       {140000, 1},
    };
    unsigned char *blocks[COUNT_OF(changes)];
    for (size_t i = 0; i < COUNT_OF(changes); i++) {
        blocks[i] = malloc(changes[i].before);
        CHECK(blocks[i] != NULL, "malloc(%zu)", changes[i].before);
        memset(blocks[i], (int)i + 1, changes[i].before);
    }
    for (size_t size = 8 * MIB; size >= 16; size /= 2) {
        while (malloc(size) != NULL) {
        }
    }
    for (size_t i = 0; i < COUNT_OF(changes); i++) {
        unsigned char *const block = realloc(blocks[i], changes[i].after);
        CHECK(block != NULL, "from %zu to %zu", changes[i].before, changes[i].after);
        for (size_t j = 0; j < changes[i].after; j++) {
            CHECK(block[j] == i + 1, "byte %zu of %zu", j, changes[i].after);
        }
        CHECK(malloc_usable_size(block) >= changes[i].after, "usable size");
        memset(block, 0, malloc_usable_size(block));
        free(block);
    }
    return 0;
}
