// SPDX-License-Identifier: MIT
// A program below a limit of address space asks for mappings from 128 KiB on, as servers do: most of what the
// limit leaves can be had all the same in blocks of little more than that.
//
//   threshold_limited MIB
#include "../support/check.h"

#include <malloc.h>

enum { BLOCK = 140000 };

int main(int count, char **arguments)
{
    const size_t wanted = (count > 1 ? strtoull(arguments[1], NULL, 0) : 1) * MIB;
    CHECK(mallopt(M_MMAP_THRESHOLD, 128 * 1024) == 1, "mallopt");
    size_t got = 0;
    for (unsigned char *block; (block = malloc(BLOCK)) != NULL; got += BLOCK) {
        block[0] = block[BLOCK - 1] = 1;
    }
    dprintf(2, "%zu MiB\n", got / MIB);
    CHECK(got >= wanted, "%zu MiB of %zu", got / MIB, wanted / MIB);
    return 0;
}
