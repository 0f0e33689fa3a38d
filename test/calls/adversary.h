// SPDX-License-Identifier: MIT
// Adversary: programs that ask of an allocator what costs it most in a single call. Run under
// callcost, which counts every call; by itself it runs the same, uncounted.
//
// Holds    every allocation asked for is granted, or the program stops; but for alignments that
//          some allocators refuse. Blocks that are live hold
//          what was last written to their first bytes, which free checks: so a fast figure cannot
//          come from a wrong answer.
#ifndef ADVERSARY_H
#define ADVERSARY_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "callcost.h"

// Begins a phase. What is called "steady" is to need no system call at all.
void phase(const char *name, bool steady);

// Counted calls.
void *counted_malloc(size_t size);
void *counted_calloc(size_t count, size_t size);
void *counted_aligned(size_t alignment, size_t size);
void *counted_posix(size_t alignment, size_t size); // counts as aligned_alloc
void *counted_realloc(void *block, size_t size);
void counted_free(void *block);

// A random number below `bound`; the same in every run.
size_t random_below(size_t bound);

// Arrays of the program's own, which are no calls of the allocator under test.
void **array_make(size_t count);
void array_drop(void **array, size_t count);
void array_shuffle(void **array, size_t count);
void array_reverse(void **array, size_t count);

// pthread_create for the programs' own threads.
int thread_create(pthread_t *thread, void *(*body)(void *), void *argument);

// Runs `body` in a thread, whose end is counted as a call of its own, and waits for it.
void thread_run(void (*body)(void *), void *argument);

// `count` blocks of the sample, or more where the program was asked for a larger one.
size_t scaled(size_t count);

// The programs.
void adversary_sizes(void);
void adversary_orders(void);
void adversary_fragment(void);
void adversary_churn(void);
void adversary_random(void);
void adversary_aligned(void);
void adversary_remote(void);
void adversary_abandoned(void);
void adversary_threads(void);
void adversary_contended(void);
void adversary_large(void);
void adversary_growth(void);
void adversary_trim(void);
void adversary_realloc(void);
void adversary_huge(void);
void adversary_huge_growth(void);
void adversary_huge_many(void);
void adversary_bursts(void);
void adversary_exits(void);
void adversary_trims(void);
void adversary_resizes(void);
void adversary_moves(void);
void adversary_newcomers(void);
void adversary_leavers(void);
void adversary_sweep(void);
void adversary_posts(void);
void adversary_trades(void);
void adversary_rows(void);
void adversary_reserve(void);
void adversary_actors(void);
void adversary_mortals(void);
void adversary_giants(void);
void adversary_tenants(void);
void adversary_regrown(void);

#endif
