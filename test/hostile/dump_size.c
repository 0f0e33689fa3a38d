// SPDX-License-Identifier: MIT
// What a debugger's dump (gcore) of the process would hold of mappings without a file: all that smaps does not
// mark "dd", touched or not. The address space that is only reserved is not in it, at the start and in use;
// what has been written is.
#include "../support/check.h"

static char text[1024 * 1024];

struct sizes {
    size_t dumped_kib;
    size_t lost_kib; // written, and not in the dump
};

static const char *line_after(const char *line)
{
    const char *const end = strchr(line, '\n');
    return end == NULL ? "" : end + 1;
}

static struct sizes sizes_read(void)
{
    if (!read_whole("/proc/self/smaps", text, sizeof text)) {
        SKIP_PROGRAM("no /proc/self/smaps");
    }
    struct sizes sizes = {0};
    size_t size = 0;
    size_t written = 0;
    bool has_file = false;
    for (const char *line = text; *line != '\0'; line = line_after(line)) {
        const size_t line_length = strcspn(line, "\n");
        if (strncmp(line, "Size:", 5) == 0) {
            size = strtoull(line + 5, NULL, 10);
        } else if (strncmp(line, "Anonymous:", 10) == 0) {
            written = strtoull(line + 10, NULL, 10);
        } else if (strncmp(line, "VmFlags:", 8) == 0) {
            const char *const flag = strstr(line, " dd");
            const bool left_out = flag != NULL && flag < line + line_length;
            sizes.dumped_kib += left_out || has_file ? 0 : size;
            sizes.lost_kib += left_out && !has_file ? written : 0;
        } else if (strspn(line, "0123456789abcdef") > 4) { // a mapping's first line
            has_file = memchr(line, '/', line_length) != NULL;
        }
    }
    return sizes;
}

int main(void)
{
    enum { BLOCKS = 4000, BYTES = 10000 };
    const struct sizes start = sizes_read();
    char *blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(BYTES);
        CHECK(blocks[i] != NULL, "malloc");
        memset(blocks[i], 1, BYTES);
    }
    const struct sizes used = sizes_read();
    for (size_t i = 0; i < BLOCKS; i++) {
        free(blocks[i]);
    }
    dprintf(2, "a dump: %zu MiB at start, %zu MiB in use\n", start.dumped_kib / KIB, used.dumped_kib / KIB);
    CHECK(start.dumped_kib / KIB <= 64, "%zu MiB at start", start.dumped_kib / KIB);
    CHECK(used.dumped_kib / KIB <= 64 + 128, "%zu MiB in use", used.dumped_kib / KIB);
    CHECK(used.dumped_kib / KIB >= (size_t)BLOCKS * BYTES / MIB, "%zu MiB in use", used.dumped_kib / KIB);
    CHECK(start.lost_kib == 0 && used.lost_kib == 0, "%zu KiB written and left out", used.lost_kib);
    return 0;
}
