// SPDX-License-Identifier: MIT
// API: looking at a block that the program passed in. What is no live block stops the program.
#include "api/api.h"

#include "os/fatal.h"
#include "process/process.h"

MALLOW_INTERNAL size_t api_usable_size(const void *block, const char *call) {
    const size_t usable_bytes = heap_own_usable(heap_current(), (uintptr_t)block);
    if (likely(usable_bytes != 0) || block == NULL) {
        return usable_bytes;
    }
    struct process *const process = process_ready();
    const struct heap_block found = heap_identify(&process->shared, (uintptr_t)block);
    if (likely(found.kind != HEAP_BLOCK_NONE)) {
        return found.usable_bytes;
    }
    heap_report_misuse(&process->shared, (uintptr_t)block, call);
    const size_t foreign = process_foreign_size(process, (void *)(uintptr_t)block);
    if (foreign == 0) {
        heap_report_foreign(&process->shared, (uintptr_t)block, call);
    }
    return foreign;
}

MALLOW_INTERNAL void api_check_size(const void *block, size_t size, size_t alignment) {
    const size_t usable_bytes = api_usable_size(block, "sized free");
    if (size > usable_bytes) {
        fatal_misuse("wrong size in a sized free of", (uintptr_t)block,
                     "the block is smaller than the size that was stated");
    }
    if (!bits_is_power_of_two(alignment) || ((uintptr_t)block & (alignment - 1)) != 0) {
        fatal_misuse("wrong alignment in a sized free of", (uintptr_t)block,
                     "the block does not have the alignment that was stated");
    }
}
