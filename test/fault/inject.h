// SPDX-License-Identifier: MIT
// Fault injection by ptrace: runs a program and lets chosen memory system calls fail.
//
// The program itself says when faults may happen: it makes the system calls FAULT_WINDOW_OPENS and
// FAULT_WINDOW_CLOSES, numbers that no kernel knows, so they do nothing without the injector.
#ifndef TEST_FAULT_INJECT_H
#define TEST_FAULT_INJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FAULT_WINDOW_OPENS = 0x7a110, FAULT_WINDOW_CLOSES = 0x7a111 };

enum fault_calls {
    FAULT_MMAP = 1,
    FAULT_MUNMAP = 2,
    FAULT_MADVISE = 4,
    FAULT_MREMAP = 8,
    FAULT_MPROTECT = 16,
    FAULT_ANY = 31,
};

enum fault_mode {
    FAULT_ONCE,    // the nth call fails
    FAULT_FOREVER, // the nth and all later ones
    FAULT_RANDOM,  // each with a chance of 1 in nth, by seed
    FAULT_CEILING, // what would exceed nth mappings, as vm.max_map_count has it
    FAULT_COMMIT,  // what would exceed nth MiB of writable private mappings, as overcommit_memory=2 has it
    FAULT_GIANT,   // mappings of giant pages beyond the nth; before that they get ordinary pages
    FAULT_JOINED,  // mremap of a range of several mappings, as before Linux 6.17
};

struct fault_plan {
    unsigned calls; // of enum fault_calls
    enum fault_mode mode;
    size_t nth; // from 1
    int error;  // the errno value that the call gets
    uint64_t seed;
    bool from_start; // the window is open from the first instruction
    bool unmaps;     // what the call was to replace is gone by then: COMMIT, as before Linux 6.12; JOINED, as
                     // ever
};

struct fault_result {
    int status;            // as of waitpid
    size_t calls_seen;     // calls of the chosen kinds inside the window; GIANT: such mappings alone
    size_t calls_failed;   // of these, by us
    size_t most;           // CEILING: mappings seen at once; COMMIT: MiB
    bool main_reached;     // the program opened the window itself
};

// Runs `arguments` under the plan, with `environment`. False if the system does not permit tracing.
bool fault_run(const struct fault_plan *plan, char *const arguments[], char *const environment[],
               struct fault_result *result);

#endif
