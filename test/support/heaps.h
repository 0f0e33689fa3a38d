// SPDX-License-Identifier: MIT
// Test support: heaps of the program's own (mallow/heap.h).
#ifndef TEST_SUPPORT_HEAPS_H
#define TEST_SUPPORT_HEAPS_H

#include "check.h"

#include <mallow/heap.h>

static struct mw_heap *make(struct mw_heap_config config)
{
    struct mw_heap *heap = NULL;
    config.size_bytes = sizeof config;
    const enum mw_heap_status status = mw_heap_create(&config, &heap);
    CHECK(status == MW_HEAP_OK && heap != NULL, "%s", mw_heap_status_text(status));
    return heap;
}

#endif
