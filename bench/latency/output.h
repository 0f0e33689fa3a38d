// SPDX-License-Identifier: MIT
// The latency program's output: JSON, a line for each result, for mallow-bench; or a table to read.

#ifndef MALLOW_BENCH_LATENCY_OUTPUT_H
#define MALLOW_BENCH_LATENCY_OUTPUT_H

#include "mode.h"
#include "process.h"

struct output {
    bool json;
    bool headed; // the table's headings are printed
    struct timer timer;
};

void output_begin(struct output *output, const struct machine *machine);
void output_mode(struct output *output, const struct mode *mode, const struct mode_result *result);
void output_startup(struct output *output, const struct startup_result *result);
void output_memory(struct output *output, size_t size, const struct memory_result *result);
void output_end(struct output *output, uint64_t stolen_ms);

#endif
