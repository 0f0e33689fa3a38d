// SPDX-License-Identifier: MIT
// Report of a process: the JSON file that `mallow check` and MALLOW_REPORT are made of.
#ifndef MALLOW_PROCESS_PROCESS_REPORT_H
#define MALLOW_PROCESS_PROCESS_REPORT_H

#include "process/process.h"

// Writes the report to the path of the option `report`, %p in it being the process id. A file that
// cannot be written is said on stderr.
MALLOW_INTERNAL void process_report_write(struct process *process);

#endif
