// SPDX-License-Identifier: MIT
// Pool status: its names and its texts.
#include <mallow/pool.h>

#include "config.h"

// Characters with room for their 0, not pointers: those would be relocated at the start of every
// program.
struct pool_status_row {
    enum mw_pool_status status;
    char name[32];
    char text[72];
};

static const struct pool_status_row pool_status_rows[] = {
    {MW_POOL_OK, "MW_POOL_OK",
     "no error"},
    {MW_POOL_NULL_ARGUMENT, "MW_POOL_NULL_ARGUMENT",
     "a pointer that must not be NULL is NULL"},
    {MW_POOL_NO_CLASSES, "MW_POOL_NO_CLASSES",
     "the configuration has no class"},
    {MW_POOL_TOO_MANY_CLASSES, "MW_POOL_TOO_MANY_CLASSES",
     "more than 256 classes"},
    {MW_POOL_CLASS_SIZE_ZERO, "MW_POOL_CLASS_SIZE_ZERO",
     "a class of 0 bytes"},
    {MW_POOL_CLASS_SIZE_TOO_BIG, "MW_POOL_CLASS_SIZE_TOO_BIG",
     "a class, or its blocks together, exceed the address space"},
    {MW_POOL_BAD_ALIGNMENT, "MW_POOL_BAD_ALIGNMENT",
     "an alignment is no power of two from 8 to 2^30"},
    {MW_POOL_DUPLICATE_CLASS, "MW_POOL_DUPLICATE_CLASS",
     "two classes have blocks of the same size"},
    {MW_POOL_SHARE_ZERO, "MW_POOL_SHARE_ZERO",
     "a class has neither a share nor a count"},
    {MW_POOL_SHARES_MIXED, "MW_POOL_SHARES_MIXED",
     "shares and counts are mixed"},
    {MW_POOL_SHARES_BELOW_WHOLE, "MW_POOL_SHARES_BELOW_WHOLE",
     "the shares add to less than 100 %"},
    {MW_POOL_SHARES_ABOVE_WHOLE, "MW_POOL_SHARES_ABOVE_WHOLE",
     "the shares add to more than 100 %"},
    {MW_POOL_CLASS_EMPTY, "MW_POOL_CLASS_EMPTY",
     "the share of a class is too small for one block"},
    {MW_POOL_TOO_SMALL, "MW_POOL_TOO_SMALL",
     "the memory is too small for its bookkeeping or for the counts"},
    {MW_POOL_TOO_BIG, "MW_POOL_TOO_BIG",
     "the pool exceeds the address space"},
    {MW_POOL_NEEDS_MEMORY, "MW_POOL_NEEDS_MEMORY",
     "no memory was given, and there is no host to ask"},
    {MW_POOL_NEEDS_HOST, "MW_POOL_NEEDS_HOST",
     "prefault and lock need mw_pool_create"},
    {MW_POOL_MEMORY_MISALIGNED, "MW_POOL_MEMORY_MISALIGNED",
     "the memory is not aligned as the plan says"},
    {MW_POOL_MEMORY_OVERLAPS, "MW_POOL_MEMORY_OVERLAPS",
     "the memory overlaps a memory of this pool"},
    {MW_POOL_TOO_MANY_MEMORIES, "MW_POOL_TOO_MANY_MEMORIES",
     "16 memories are attached already"},
    {MW_POOL_MAP_FAILED, "MW_POOL_MAP_FAILED",
     "the kernel gave no memory"},
    {MW_POOL_PREFAULT_FAILED, "MW_POOL_PREFAULT_FAILED",
     "not so much memory is free, or the kernel gave no pages"},
    {MW_POOL_LOCK_FAILED, "MW_POOL_LOCK_FAILED",
     "the kernel did not lock the memory: see RLIMIT_MEMLOCK"},
    {MW_POOL_UNMAP_FAILED, "MW_POOL_UNMAP_FAILED",
     "the kernel did not take a mapping back"},
    {MW_POOL_NOT_A_POOL, "MW_POOL_NOT_A_POOL",
     "the handle is no pool"},
    {MW_POOL_SIZE_ZERO, "MW_POOL_SIZE_ZERO",
     "0 bytes were asked for"},
    {MW_POOL_SIZE_TOO_BIG, "MW_POOL_SIZE_TOO_BIG",
     "the size exceeds the largest class"},
    {MW_POOL_EXHAUSTED, "MW_POOL_EXHAUSTED",
     "every block of the class is in use"},
    {MW_POOL_EXHAUSTED_ALL, "MW_POOL_EXHAUSTED_ALL",
     "every block of the class and of the bigger ones is in use"},
    {MW_POOL_BAD_CLASS_INDEX, "MW_POOL_BAD_CLASS_INDEX",
     "there is no class of that index"},
    {MW_POOL_NULL_POINTER, "MW_POOL_NULL_POINTER",
     "the pointer is NULL"},
    {MW_POOL_FOREIGN, "MW_POOL_FOREIGN",
     "the pointer is in no block of this pool"},
    {MW_POOL_INTERIOR, "MW_POOL_INTERIOR",
     "the pointer is within a block, not at its start"},
    {MW_POOL_MISALIGNED, "MW_POOL_MISALIGNED",
     "the pointer is within a block, and not aligned as its class is"},
    {MW_POOL_DOUBLE_FREE, "MW_POOL_DOUBLE_FREE",
     "the block is free already"},
    {MW_POOL_NOT_OWNER, "MW_POOL_NOT_OWNER",
     "the calling thread is not the owner of the pool"},
    {MW_POOL_NOT_SHARED, "MW_POOL_NOT_SHARED",
     "the pool was made without remote free"},
    {MW_POOL_WRITTEN_AFTER_FREE, "MW_POOL_WRITTEN_AFTER_FREE",
     "a block was written to after it had been freed"},
    {MW_POOL_TEXT_SYNTAX, "MW_POOL_TEXT_SYNTAX",
     "the line is no key=value, [section] or comment"},
    {MW_POOL_TEXT_KEY, "MW_POOL_TEXT_KEY",
     "the key is unknown"},
    {MW_POOL_TEXT_NUMBER, "MW_POOL_TEXT_NUMBER",
     "the value is no number of the kind that the key takes"},
    {MW_POOL_TEXT_SWITCH, "MW_POOL_TEXT_SWITCH",
     "the value is not on or off"},
    {MW_POOL_TEXT_NO_SIZE, "MW_POOL_TEXT_NO_SIZE",
     "there are shares, and no pool_size"},
    {MW_POOL_UNKNOWN_PRESET, "MW_POOL_UNKNOWN_PRESET",
     "there is no preset of that name"},
    {MW_POOL_TEXT_REPEATED, "MW_POOL_TEXT_REPEATED",
     "the value is given twice"},
};

static const struct pool_status_row *pool_status_find(enum mw_pool_status status) {
    for (size_t i = 0; i < sizeof pool_status_rows / sizeof pool_status_rows[0]; i++) {
        if (pool_status_rows[i].status == status) {
            return &pool_status_rows[i];
        }
    }
    return NULL;
}

const char *mw_pool_status_text(enum mw_pool_status status) {
    const struct pool_status_row *const row = pool_status_find(status);
    return row != NULL ? row->text : "unknown status";
}

const char *mw_pool_status_name(enum mw_pool_status status) {
    const struct pool_status_row *const row = pool_status_find(status);
    return row != NULL ? row->name : "?";
}
