// SPDX-License-Identifier: MIT
// OS, NUMA: the node that a thread runs on, and preferring one for a range of pages.
//
// Owns     nothing.
// Threads  any.
// Holds    no call touches errno. Where a thread's node cannot be learned without entering the
//          kernel (no vDSO, or not x86-64) it is 0, as on a machine that has one node.
#ifndef MALLOW_OS_NODE_H
#define MALLOW_OS_NODE_H

#include "os/os.h"

// Nodes are told apart up to this many; those beyond count as the last.
enum { OS_NODES_MAX = 254 };

// The node of the processor that the calling thread runs on just now. No system call; some 20 ns.
MALLOW_INTERNAL unsigned os_node_here(const struct os *os);

// Whether that may be other than 0.
MALLOW_INLINE bool os_node_is_told(const struct os *os) {
    return os->knows_node ||
           atomic_load_explicit(&os->node_pretended, memory_order_relaxed) != 0;
}

// How many nodes the machine has, as the file "devices/system/node/online" below `root` ("/sys")
// tells: the highest number there, and one. 1 if it cannot be read. Three calls.
MALLOW_INTERNAL unsigned os_node_count(const char *root);

// The same of the text of that file: "0-1,4" are 5.
MALLOW_INTERNAL unsigned os_node_parse(const char *text);

// Pages of a range that are brought in from now on come from `node`, as long as it has some. One
// call; false: the kernel refuses, which costs nothing but speed.
MALLOW_INTERNAL bool os_node_prefer(struct os *os, uintptr_t address, size_t bytes, unsigned node);

#endif
