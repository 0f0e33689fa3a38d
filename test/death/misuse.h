// SPDX-License-Identifier: MIT
// Death tests: what the misuses share. misuses.def names them; each is a function without arguments
// that misuses `victim.block`.
#ifndef TEST_DEATH_MISUSE_H
#define TEST_DEATH_MISUSE_H

#include "../support/check.h"

#include <malloc.h>
#include <pthread.h>

enum { NEIGHBOURS = 24, STATIC_BYTES = 8192 };

struct victim {
    size_t size;
    unsigned char *block;                  // the one that is misused
    unsigned char *neighbours[NEIGHBOURS]; // live blocks allocated before and after it
    _Alignas(64) unsigned char static_data[STATIC_BYTES];
};

extern struct victim victim;

// Keeps the compiler from reasoning about freed pointers.
static inline void *hidden(const void *pointer)
{
    uintptr_t bits = (uintptr_t)pointer;
    __asm__ volatile("" : "+r"(bits));
    return (void *)bits;
}

static inline void *at_address(uintptr_t address)
{
    return hidden((const void *)address);
}

// Writes through the kernel: a freed block may be unmapped by now, and that must not be our own crash.
static inline void poke(void *target, const void *bytes, size_t length)
{
    int ends[2];
    CHECK(pipe(ends) == 0, "pipe");
    CHECK(write(ends[1], bytes, length) == (ssize_t)length, "write");
    CHECK(read(ends[0], hidden(target), length) == (ssize_t)length || errno == EFAULT, "read");
    close(ends[0]);
    close(ends[1]);
}

#define MISUSE(name, outcome, words) void name(void);
#include "misuses.def"
#undef MISUSE

#endif
