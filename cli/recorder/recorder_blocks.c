// SPDX-License-Identifier: MIT
// Blocks: the table of what lives, address -> id, size, alignment.
//
// Owns     its places, memory of mmap.
// Threads  one at a time: the caller holds the trace's lock.
// Holds    count <= capacity / 2; no empty place between a block and the place its address hashes to,
//          which a removal restores by moving blocks back, so that nothing is ever marked deleted.

#include "recorder.h"

#include <sys/mman.h>

enum { FIRST_CAPACITY = 4096, SHIFT_BITS = 6, SIZE_BITS = 64 - SHIFT_BITS };

static const uint64_t SIZE_MASK = ((uint64_t)1 << SIZE_BITS) - 1;

struct recorder_block recorder_block_make(uintptr_t address, size_t size, unsigned shift) {
    return (struct recorder_block){
        .address = address,
        .size_and_shift = ((uint64_t)size & SIZE_MASK) | ((uint64_t)shift << SIZE_BITS),
    };
}

size_t recorder_block_size(const struct recorder_block *block) {
    return (size_t)(block->size_and_shift & SIZE_MASK);
}

unsigned recorder_block_shift(const struct recorder_block *block) {
    return (unsigned)(block->size_and_shift >> SIZE_BITS);
}

static size_t home(const struct recorder_blocks *blocks, uintptr_t address) {
    const uint64_t mixed = ((uint64_t)address >> 4) * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(mixed >> 20) & (blocks->capacity - 1);
}

static void put(struct recorder_blocks *blocks, struct recorder_block block) {
    size_t i = home(blocks, block.address);
    while (blocks->places[i].address != 0) {
        i = (i + 1) & (blocks->capacity - 1);
    }
    blocks->places[i] = block;
    blocks->count++;
}

static bool grow(struct recorder_blocks *blocks) {
    const size_t capacity = blocks->capacity == 0 ? FIRST_CAPACITY : blocks->capacity * 2;
    const size_t entry = sizeof(struct recorder_block);
    void *const memory = mmap(NULL, capacity * entry, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return false;
    }
    const struct recorder_blocks old = *blocks;
    *blocks = (struct recorder_blocks){.places = memory, .capacity = capacity};
    for (size_t i = 0; i < old.capacity; i++) {
        if (old.places[i].address != 0) {
            put(blocks, old.places[i]);
        }
    }
    if (old.places != NULL) {
        munmap(old.places, old.capacity * entry);
    }
    return true;
}

bool recorder_blocks_insert(struct recorder_blocks *blocks, struct recorder_block block) {
    if ((blocks->count + 1) * 2 > blocks->capacity && !grow(blocks)) {
        return false;
    }
    put(blocks, block);
    return true;
}

const struct recorder_block *recorder_blocks_find(const struct recorder_blocks *blocks,
                                                  uintptr_t address) {
    if (blocks->capacity == 0) {
        return NULL;
    }
    size_t i = home(blocks, address);
    while (blocks->places[i].address != 0) {
        if (blocks->places[i].address == address) {
            return &blocks->places[i];
        }
        i = (i + 1) & (blocks->capacity - 1);
    }
    return NULL;
}

bool recorder_blocks_take(struct recorder_blocks *blocks, uintptr_t address,
                          struct recorder_block *taken) {
    const struct recorder_block *const found = recorder_blocks_find(blocks, address);
    if (found == NULL) {
        return false;
    }
    *taken = *found;
    blocks->count--;
    const size_t mask = blocks->capacity - 1;
    size_t gap = (size_t)(found - blocks->places);
    for (size_t i = (gap + 1) & mask; blocks->places[i].address != 0; i = (i + 1) & mask) {
        // A block may move into the gap if its home does not lie between the gap and itself.
        if (((i - home(blocks, blocks->places[i].address)) & mask) >= ((i - gap) & mask)) {
            blocks->places[gap] = blocks->places[i];
            gap = i;
        }
    }
    blocks->places[gap] = (struct recorder_block){.address = 0};
    return true;
}

void recorder_blocks_forget(struct recorder_blocks *blocks) {
    if (blocks->places != NULL) {
        munmap(blocks->places, blocks->capacity * sizeof(struct recorder_block));
    }
    *blocks = (struct recorder_blocks){.places = NULL};
}
