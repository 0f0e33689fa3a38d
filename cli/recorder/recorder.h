// SPDX-License-Identifier: MIT
// Recorder: what its three files share. docs/design/trace.md has the format that is written.
//
//   recorder_names.c   malloc, free ... for the program; glibc's do the work
//   recorder_blocks.c  which blocks live: address -> id, size, alignment
//   recorder_trace.c   the file: header, records, windows, and a new file after fork; the program's
//                      notes
//
// Nothing here calls malloc: memory comes from mmap, and the file is written through a mapping.
#ifndef MALLOW_RECORDER_H
#define MALLOW_RECORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RECORDER_HIDDEN __attribute__((visibility("hidden")))

// ---- Blocks --------------------------------------------------------------------------------------

// One live block. `address` 0 is an empty place.
struct recorder_block {
    uintptr_t address;
    uint64_t id;             // 0, 1, 2 ... in the order of the trace
    uint64_t size_and_shift; // bytes asked for, and in the top 6 bits log2 of the alignment, 0 if none
};

struct recorder_blocks {
    struct recorder_block *places; // open addressing, linear probing; capacity is a power of two
    size_t capacity;
    size_t count;
};

RECORDER_HIDDEN struct recorder_block recorder_block_make(uintptr_t address, size_t size,
                                                          unsigned shift);
RECORDER_HIDDEN size_t recorder_block_size(const struct recorder_block *block);
RECORDER_HIDDEN unsigned recorder_block_shift(const struct recorder_block *block);

// False, and nothing changed, if the table must grow and there is no memory.
RECORDER_HIDDEN bool recorder_blocks_insert(struct recorder_blocks *blocks,
                                            struct recorder_block block);

// Removes the block at `address` into *taken; false if there is none.
RECORDER_HIDDEN bool recorder_blocks_take(struct recorder_blocks *blocks, uintptr_t address,
                                          struct recorder_block *taken);

// The block at `address`, or NULL.
RECORDER_HIDDEN const struct recorder_block *
recorder_blocks_find(const struct recorder_blocks *blocks, uintptr_t address);

// Removes all.
RECORDER_HIDDEN void recorder_blocks_forget(struct recorder_blocks *blocks);

// ---- Trace ---------------------------------------------------------------------------------------

// After the allocator has given out `address` (0: it failed) for `size` bytes; shift is log2 of an
// alignment asked for, 0 if none was.
RECORDER_HIDDEN void recorder_allocated(uintptr_t address, size_t size, unsigned shift,
                                        bool zeroed);

// Before the allocator takes `address` back.
RECORDER_HIDDEN void recorder_freed(uintptr_t address);

// Around a realloc: the block is taken from the table before, so that another thread may be given
// its address, and comes back, with its id, after. False if the block is unknown.
RECORDER_HIDDEN bool recorder_resize_begin(uintptr_t address, struct recorder_block *block);
// The new address is 0 if the allocator failed: the block is as it was.
RECORDER_HIDDEN void recorder_resize_end(const struct recorder_block *block, uintptr_t address,
                                         size_t size);

// Bytes asked for of a live block; false if it is unknown.
RECORDER_HIDDEN bool recorder_known_size(uintptr_t address, size_t *size);

#endif
