// SPDX-License-Identifier: MIT
// Meta: memory for our own structures, apart from user data and between guard pages.
//
// Owns     a region of address space, made usable in steps of 256 KiB, with an inaccessible page
//          before and behind; more and smaller ones where address space is limited;
//          before these, what it was lent.
// Threads  any; one lock.
// Holds    nothing handed out is ever taken back by the OS, so a stale pointer to a structure still
//          points to readable memory of ours. Structures are recycled by those who use them.
#ifndef MALLOW_META_META_H
#define MALLOW_META_META_H

#include "base/bits.h"
#include "os/os.h"

// Address space that nobody minds, for all the steps that a program will ever need.
#define META_REGION_BYTES ((size_t)1 << 30)

struct meta {
    struct os *os;
    struct os_lock lock;
    uintptr_t bump;                     // next free byte of the newest one; under lock
    uintptr_t bump_end;                 // of what can be used
    uintptr_t region;                   // what is reserved and not yet usable; 0: no region yet
    uintptr_t region_end;
    bool low;                           // more is to be made usable; written under lock
    bool crowded;                       // as much address space as a region takes is not to be had
    _Atomic(uint64_t) committed_bytes;  // all regions, and what was lent
    _Atomic(uint64_t) used_bytes;       // handed out
};

MALLOW_INTERNAL void meta_init(struct meta *meta, struct os *os);

// Memory to hand out before a region is made: zeroed, aligned to a cache line, never taken away.
MALLOW_INTERNAL void meta_lend(struct meta *meta, void *memory, size_t bytes);

// Makes a region of at least `bytes` that what follows is taken from, and brings it in as
// os_bring_in does. False: the kernel gives none.
MALLOW_INTERNAL bool meta_fix(struct meta *meta, size_t bytes, bool *locked);

// Zeroed memory aligned to a cache line; NULL if the kernel gives none. Never returned. One system
// call in 256 KiB, two for the first.
MALLOW_INTERNAL void *meta_take(struct meta *meta, size_t bytes);

// Whether a call with a system call to spare should use it to make more usable; relaxed. What was
// lent is all that many a program needs.
#define META_LOW_BYTES ((size_t)128 << 10)
#define META_LENT_LOW_BYTES ((size_t)36 << 10) // the first huge blocks' tables fit
MALLOW_INLINE bool meta_is_low(const struct meta *meta) {
    return unlikely(__atomic_load_n(&meta->low, __ATOMIC_RELAXED)) &&
           !os_is_confined(meta->os) && !meta->os->sealed;
}

// Whether so much can be had without a system call. A hint.
MALLOW_INLINE bool meta_has(const struct meta *meta, size_t bytes) {
    return __atomic_load_n(&meta->bump_end, __ATOMIC_RELAXED) -
               __atomic_load_n(&meta->bump, __ATOMIC_RELAXED) >=
           bits_align_up(bytes, MALLOW_CACHE_LINE);
}

// Bytes handed out so far; relaxed.
MALLOW_INLINE uint64_t meta_used_bytes(const struct meta *meta) {
    return atomic_load_explicit(&meta->used_bytes, memory_order_relaxed);
}

// Gives back address space that is reserved and not in use. A system call.
MALLOW_INTERNAL void meta_confine(struct meta *meta);

// Makes more usable ahead, if it is low: at most one system call.
MALLOW_INTERNAL void meta_prepare(struct meta *meta);

#endif
