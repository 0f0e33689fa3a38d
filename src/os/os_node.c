// SPDX-License-Identifier: MIT
// OS, NUMA, for Linux: see os_node.h.
#include "os/os_node.h"

#include <sched.h>

#include "base/bits.h"
#include "base/format.h"
#include "os/os_file.h"
#include "os/os_syscall.h"

// <linux/mempolicy.h>, which not every system has; the number is the kernel's interface.
enum { OS_POLICY_PREFERRED = 1 };

// libc finds the node by the vDSO, on x86-64; elsewhere it would enter the kernel.
static unsigned node_of_processor(const struct os *os) {
    unsigned processor = 0;
    unsigned node = 0;
    return os->knows_node && getcpu(&processor, &node) == 0 ? node : 0;
}

MALLOW_INTERNAL unsigned os_node_here(const struct os *os) {
    const uint32_t pretended = atomic_load_explicit(&os->node_pretended, memory_order_relaxed);
    const unsigned node = unlikely(pretended != 0) ? pretended - 1 : node_of_processor(os);
    return (unsigned)bits_min(node, OS_NODES_MAX - 1);
}

MALLOW_INTERNAL unsigned os_node_parse(const char *text) {
    uint64_t highest = 0;
    while (*text != '\0') {
        uint64_t number = 0;
        if (os_take_number(&text, &number)) {
            highest = number > highest ? number : highest;
        } else {
            text++;
        }
    }
    return (unsigned)bits_min(highest, OS_NODES_MAX - 1) + 1;
}

MALLOW_INTERNAL unsigned os_node_count(const char *root) {
    char path[OS_PATH_BYTES];
    char line[OS_LINE_BYTES];
    struct format out;
    format_init(&out, path, sizeof path);
    format_text(&out, root);
    format_text(&out, "/devices/system/node/online");
    return out.wanted < sizeof path && os_read_first_line(path, line) ? os_node_parse(line) : 1;
}

MALLOW_INTERNAL bool os_node_prefer(struct os *os, uintptr_t address, size_t bytes, unsigned node) {
    unsigned long nodes[(OS_NODES_MAX + 63) / 64 + 1] = {0}; // the kernel takes one bit less
    if (node >= OS_NODES_MAX) {
        return false;
    }
    nodes[node / 64] = 1UL << (node % 64);
    os_count(os, &os->advise_count);
    return os_syscall6(SYS_mbind, (long)address, (long)bytes, OS_POLICY_PREFERRED,
                       (long)(uintptr_t)nodes, (long)(8 * sizeof nodes), 0) == 0;
}
