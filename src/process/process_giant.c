// SPDX-License-Identifier: MIT
// Giant pages: as many as the option asks for, at start, or a line that says how many there were.
#include "arena/arena_giant.h"
#include "base/format.h"
#include "os/os_file.h"
#include "os/os_giant.h"
#include "os/os_node.h"
#include "process/process.h"

static void giant_complain(size_t got, size_t wanted, uint64_t bytes) {
    char line[300];
    struct format out;
    format_init(&out, line, sizeof line);
    format_text(&out, "mallow: giant pages: ");
    format_unsigned(&out, got);
    format_text(&out, " of ");
    format_unsigned(&out, wanted);
    format_text(&out, " pages of 1 GiB were free or fit (see /sys/kernel/mm/hugepages/"
                      "hugepages-1048576kB/free_hugepages); small pages are used beyond them:"
                      " MALLOW_GIANT_PAGES=");
    format_size(&out, bytes);
    format_text(&out, "\n");
    os_tell(2, line, format_length(&out));
}

MALLOW_INTERNAL void process_start_giant(struct process *process) {
    const uint64_t bytes = process_option(&process->options, giant_pages);
    const size_t wanted = (size_t)(bytes >> OS_GIANT_SHIFT) + (bytes % OS_GIANT_BYTES != 0);
    char root[OS_PATH_BYTES];
    struct format out;
    format_init(&out, root, sizeof root);
    format_text(&out, process->os.root);
    format_text(&out, "/sys");
    const unsigned node_count = out.wanted < sizeof root ? os_node_count(root) : 1;
    const size_t got = arena_giant_take(&process->arenas, wanted, node_count);
    if (got < wanted) {
        giant_complain(got, wanted, bytes);
    }
}
