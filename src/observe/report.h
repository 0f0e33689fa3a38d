// SPDX-License-Identifier: MIT
// Report: a snapshot as text, JSON, or the XML of malloc_info. Nothing here allocates.
#ifndef MALLOW_OBSERVE_REPORT_H
#define MALLOW_OBSERVE_REPORT_H

#include "base/format.h"
#include "observe/snapshot.h"

// Figures, then a row for each size class in use.
MALLOW_INTERNAL void report_text(const struct observe_sources *sources, int fd);

// One JSON object, without a newline, appended to `out`.
MALLOW_INTERNAL void report_json(const struct snapshot *snapshot, struct format *out);

// The document of malloc_info(3).
MALLOW_INTERNAL void report_xml(const struct snapshot *snapshot, struct format *out);

#endif
