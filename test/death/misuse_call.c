// SPDX-License-Identifier: MIT
// Death tests: realloc, usable size and sized free of blocks that are freed or other than stated.
#include "misuse.h"

extern void free_sized(void *block, size_t size) __attribute__((weak));
extern void free_aligned_sized(void *block, size_t alignment, size_t size) __attribute__((weak));
extern void *mw_expand(void *block, size_t size) __attribute__((weak));

static void *expand(void *block, size_t size)
{
    if (mw_expand == NULL) {
        _exit(EXIT_SKIP); // without the library, by hand
    }
    return mw_expand(block, size);
}

void realloc_of_freed(void)
{
    free(victim.block);
    victim.block = realloc(hidden(victim.block), victim.size * 2);
}

void realloc_to_less_of_freed(void)
{
    free(victim.block);
    victim.block = realloc(hidden(victim.block), victim.size / 2);
}

void realloc_to_none_of_freed(void)
{
    free(victim.block);
    victim.block = realloc(hidden(victim.block), 0);
}

void usable_size_of_freed(void)
{
    free(victim.block);
    if (malloc_usable_size(hidden(victim.block)) == 0) {
        _exit(0); // "not a victim.block" is an answer as well
    }
}

void realloc_of_interior(void)
{
    victim.block = realloc(hidden(victim.block + 16), victim.size * 2);
}

void realloc_of_static_data(void)
{
    victim.block = realloc(hidden(victim.static_data + 64), victim.size * 2);
}

void free_sized_of_freed(void)
{
    free(victim.block);
    free_sized(hidden(victim.block), victim.size);
}

void free_sized_with_a_smaller_size(void)
{
    if (victim.size < 200) {
        _exit(EXIT_SKIP); // a tenth may round up to the same class
    }
    free_sized(victim.block, victim.size / 10);
}

void free_sized_with_a_larger_size(void)
{
    free_sized(victim.block, victim.size * 2 + 64);
}

void free_aligned_sized_with_more_alignment(void)
{
    size_t alignment = 16; // the first power of two that the victim.block does not have
    while ((uintptr_t)victim.block % alignment == 0) {
        alignment *= 2;
    }
    free_aligned_sized(victim.block, alignment, victim.size);
}

void free_aligned_sized_with_an_alignment_that_is_none(void)
{
    free_aligned_sized(victim.block, 12, victim.size); // no block's address has a bit of 11
}

void usable_size_of_static_data(void)
{
    (void)malloc_usable_size(hidden(victim.static_data + 64));
}

void usable_size_of_interior(void)
{
    (void)malloc_usable_size(hidden(victim.block + 16));
}

void usable_size_of_no_address(void)
{
    (void)malloc_usable_size(at_address(0xfffffffffffff000));
}

void expand_of_freed(void)
{
    free(victim.block);
    (void)expand(hidden(victim.block), victim.size);
}

void expand_of_interior(void)
{
    (void)expand(hidden(victim.block + 16), 16);
}

void expand_of_static_data(void)
{
    (void)expand(hidden(victim.static_data + 64), 16);
}

void expand_of_no_address(void)
{
    (void)expand(at_address(0x8000000000001000), 16);
}

void realloc_of_no_address(void)
{
    victim.block = realloc(at_address(0x8000000000001000), victim.size);
}
