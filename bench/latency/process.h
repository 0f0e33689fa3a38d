// SPDX-License-Identifier: MIT
// The modes that want a process of their own: start-up and memory. The program runs itself again,
// under the same allocator, with `child=...` as its first argument.
//
// Holds    a child has called malloc for nothing but what the C library and the loader asked for.

#ifndef MALLOW_BENCH_LATENCY_PROCESS_H
#define MALLOW_BENCH_LATENCY_PROCESS_H

#include "mode.h"

#define PROCESS_FILL_BLOCKS 1000000
#define PROCESS_FILL_BYTES  64

struct startup_result {
    uint64_t ready_ns; // from spawn to main: exec, loader, the allocator's constructors
    uint64_t first_ns; // the first malloc of the program
    uint64_t fill_ns;  // PROCESS_FILL_BLOCKS blocks taken, and their first bytes written
    struct histogram calls; // those mallocs, one by one, ticks
};

struct memory_result {
    uint64_t asked_bytes;
    uint64_t live_bytes; // RSS more than before, all blocks written
    uint64_t kept_bytes; // the same after all were freed, in random order
};

// The child's whole life, if this process is one; returns otherwise.
void process_child_if_asked(int argc, char **argv);

void process_startup(struct startup_result *result);
void process_memory(struct memory_result *result, size_t size, uint64_t bytes);

#endif
