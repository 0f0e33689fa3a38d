// SPDX-License-Identifier: MIT
// One block grows by half its size to 749 MB, every byte written: the peak resident size of the whole
// process must stay at 770 MB, which copying cannot reach (it holds old and new block at once).
#include "../support/family.h"

int main(void)
{
    enum { PEAK_LIMIT_MB = 770 };
    size_t size = 1000;
    unsigned char *block = fam_malloc(size);
    CHECK(block != NULL, "malloc");
    memset(block, 1, size);
    while (size < 749000000) {
        const size_t next = size * 3 / 2 < 749000000 ? size * 3 / 2 : 749000000;
        block = fam_realloc(block, next);
        CHECK(block != NULL, "realloc to %zu", next);
        CHECK(block[0] == 1 && block[size / 2] == 1 && block[size - 1] == 1, "contents at %zu", size);
        memset(block + size, 1, next - size);
        size = next;
    }
    for (size_t i = 0; i < size; i += 4093) {
        CHECK(block[i] == 1, "byte %zu", i);
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    const long peak_mb = usage.ru_maxrss * 1024 / 1000000;
    printf("peak resident size: %ld MB\n", peak_mb);
    fam_free(block);
    CHECK(peak_mb <= PEAK_LIMIT_MB || !FIGURES_COUNT, "peak %ld MB", peak_mb);
    return 0;
}
