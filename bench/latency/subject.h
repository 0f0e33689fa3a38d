// SPDX-License-Identifier: MIT
// What a mode's loop calls: the allocator, or next to nothing in its place (the noise floor).
//
// Holds    the loop is the same code for all of them, with the same indirect calls; a floor never
//          fails, is O(1), and keeps its two words in the thread.
//          SUBJECT_KEEP gives back the block that was released last: for loops that release before
//          they allocate, so that the floor's loop works on the very blocks that the allocator's
//          does.
//          SUBJECT_RING gives places of a buffer in turn: for loops that hold many blocks at once.
//          They overlap in the end, so their content is not checked.

#ifndef MALLOW_BENCH_LATENCY_SUBJECT_H
#define MALLOW_BENCH_LATENCY_SUBJECT_H

#include "common.h"

struct subject {
    const char *name;
    void *(*allocate)(size_t size);
    void (*release)(void *block);
    bool keeps_size; // allocate's result has the size of what was released, whatever was asked for
    bool checked;    // blocks are our own, and keep their content
};

enum subject_kind { SUBJECT_MALLOC, SUBJECT_KEEP, SUBJECT_RING };

// Makes the floors' memory present. Before any thread uses a floor.
void subject_prepare(void);

const struct subject *subject_get(enum subject_kind kind);

#endif
