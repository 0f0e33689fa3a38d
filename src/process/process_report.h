// SPDX-License-Identifier: MIT
// Report of a process: the JSON file that `mallow check` and MALLOW_REPORT are made of.
#ifndef MALLOW_PROCESS_PROCESS_REPORT_H
#define MALLOW_PROCESS_PROCESS_REPORT_H

#include "process/process.h"

// Writes the report to the path of the option `report`, %p in it being the process id. A file that
// cannot be written is said on stderr.
MALLOW_INTERNAL void process_report_write(struct process *process);

// Whether the program's calls, ours by name as well, lead to another copy of the library: it tells
// what there is to tell, and in the same file. At the end of the process.
MALLOW_INTERNAL bool process_report_is_anothers(void);

// Where statistics, and complaints, go at the end: the file that was stderr at the start, if the
// program has not put another in its place; -1: nowhere.
MALLOW_INTERNAL int process_report_fd(const struct process *process);

#endif
