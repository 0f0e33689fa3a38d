// SPDX-License-Identifier: MIT
// What an allocator must do before its times are worth anything.

#ifndef MALLOW_BENCH_LATENCY_GATE_H
#define MALLOW_BENCH_LATENCY_GATE_H

#include <stdbool.h>

// Runs every check, printing a line for each that fails (all of them if `verbose`), and a last line
// "gate: N of M checks passed". True if all did that timed calls depend on. Takes less than a second.
bool gate_pass(bool verbose);

#endif
