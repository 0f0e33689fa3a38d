// SPDX-License-Identifier: MIT
// Idle tests: see idle.h.
#include "idle.h"

#include <sys/mman.h>

void load_fill(struct load *load, size_t count, size_t size)
{
    load->count = count;
    load->size = size;
    load->blocks = mmap(NULL, count * sizeof *load->blocks, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(load->blocks != MAP_FAILED, "mmap");
    for (size_t i = 0; i < count; i++) {
        load->blocks[i] = fam_malloc(size);
        CHECK(load->blocks[i] != NULL, "malloc(%zu)", size);
        memset(load->blocks[i], (int)(i % 251) + 1, size);
    }
}

void load_check(const struct load *load)
{
    for (size_t i = 0; i < load->count; i++) {
        const unsigned char *const block = load->blocks[i];
        for (size_t at = 0; block != NULL && at < load->size; at += at + 64 < load->size ? 61 : 1) {
            CHECK(block[at] == i % 251 + 1, "block %zu of %zu bytes: byte %zu is %d", i, load->size, at,
                  block[at]);
        }
    }
}

void load_free(struct load *load)
{
    for (size_t i = 0; i < load->count; i++) {
        fam_free(load->blocks[i]);
    }
    munmap(load->blocks, load->count * sizeof *load->blocks);
    load->count = 0;
}

void load_thin_out(struct load *load, size_t keep, struct chance *chance)
{
    for (size_t i = 0; i < load->count; i++) {
        if (chance_below(chance, keep) != 0) {
            fam_free(load->blocks[i]);
            load->blocks[i] = NULL;
        }
    }
}
