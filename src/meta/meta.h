// SPDX-License-Identifier: MIT
// Meta: memory for our own structures, apart from user data and between guard pages.
//
// Owns     regions of 64 KiB and more, each mapped alone with an inaccessible page before and
//          behind; before these, what it was lent.
// Threads  any; one lock.
// Holds    nothing handed out is ever taken back by the OS, so a stale pointer to a structure still
//          points to readable memory of ours. Structures are recycled by those who use them.
#ifndef MALLOW_META_META_H
#define MALLOW_META_META_H

#include "os/os.h"

struct meta {
    struct os *os;
    struct os_lock lock;
    uintptr_t bump;                     // next free byte of the newest one; under lock
    uintptr_t bump_end;
    _Atomic(uint64_t) committed_bytes;  // all regions, and what was lent
    _Atomic(uint64_t) used_bytes;       // handed out
};

MALLOW_INTERNAL void meta_init(struct meta *meta, struct os *os);

// Memory to hand out before a region is made: zeroed, aligned to a cache line, never taken away.
MALLOW_INTERNAL void meta_lend(struct meta *meta, void *memory, size_t bytes);

// Makes a region of at least `bytes` that what follows is taken from, and brings it in as
// os_bring_in does. False: the kernel gives none.
MALLOW_INTERNAL bool meta_fix(struct meta *meta, size_t bytes, bool *locked);

// Zeroed memory aligned to a cache line; NULL if the kernel gives none. Never returned.
MALLOW_INTERNAL void *meta_take(struct meta *meta, size_t bytes);

#endif
