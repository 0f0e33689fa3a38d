// SPDX-License-Identifier: MIT
// The commit charge at start, which is what overcommit mode 2 counts: the sizes of all mappings that
// smaps marks "ac" (accountable). At most 2 MiB for the whole process, its stack and libraries included;
// and still modest after the first blocks.
#include "../support/check.h"

static char text[512 * 1024];

static size_t charge_kib(void)
{
    if (!read_whole("/proc/self/smaps", text, sizeof text)) {
        SKIP_PROGRAM("no /proc/self/smaps");
    }
    size_t charged = 0;
    size_t size = 0;
    for (char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n'), line += line != NULL) {
        if (strncmp(line, "Size:", 5) == 0) {
            size = strtoull(line + 5, NULL, 10);
        } else if (strncmp(line, "VmFlags:", 8) == 0) {
            const char *const end = strchr(line, '\n');
            const char *const flag = strstr(line, " ac");
            if (flag != NULL && flag < end) {
                charged += size;
            }
        }
    }
    return charged;
}

int main(void)
{
    const size_t start = charge_kib();
    void *const first = malloc(100);
    CHECK(first != NULL, "malloc");
    const size_t used = charge_kib();
    for (size_t size = 16; size < 64 * KIB; size *= 2) {
        CHECK(malloc(size) != NULL, "malloc");
    }
    const size_t worked = charge_kib();
    dprintf(2, "commit charge: %zu KiB at start, %zu KiB after one block, %zu KiB after some\n", start, used, worked);
    CHECK(start <= 2048, "%zu KiB at start", start);
    CHECK(used <= 2048 + 512, "%zu KiB after one block", used);
    CHECK(worked <= 2048 + 4096, "%zu KiB after a dozen blocks", worked);
    return 0;
}
