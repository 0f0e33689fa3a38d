// SPDX-License-Identifier: MIT
// Huge faults: whether fresh huge blocks get huge pages as the program touches them.
//
// Owns     nothing: the answer is in the room of the huge cache.
// Threads  the background thread's alone.
// Holds    huge pages come by faults only where blocks are large, many and dense: HUGE_FAULTS_BYTES
//          live in huge blocks, and the last whole chunk of each of the newest on small pages is
//          resident. So what it adds to memory is the end of a block's last huge page, a
//          quarter of the block at most, a sixth of all, and a sixteenth of what the machine or the
//          process's group has free. Blocks that are not of whole chunks count as lost for the
//          second of these: they would cut the pieces of others, and leave gaps.
//          What blocks on huge pages hold tells nothing, since a byte in each page is enough. So
//          one fresh block in HUGE_BROAD_PROBE_SHARE has small pages: a program that turns sparse
//          pays for two of them to be made, and for what it takes until the next look.
//
// A huge page by a fault costs a fifth of what its small ones cost one by one. But the program
// waits for all of it at once, some 0.1 ms, and longer where the kernel has to make room for it.
#ifndef MALLOW_ARENA_HUGE_FAULTS_H
#define MALLOW_ARENA_HUGE_FAULTS_H

#include "arena/huge.h"

enum {
    HUGE_FAULTS_SAMPLE = 8,     // blocks looked at, the newest
    HUGE_FAULTS_SAMPLE_MIN = 2, // fewer tell nothing
    HUGE_FAULTS_WALK = 64,      // blocks looked through, of which these are the first
    HUGE_FAULTS_SHARE = 8,      // one in so many may be sparse, or not be written yet
    // What whole chunks add to what is looked through, and what of it has none, may be one part in
    // so many of it; or where faults make huge pages already.
    HUGE_FAULTS_LOST_SHARE = 6,
    HUGE_FAULTS_LOST_SHARE_TO_STAY = 5,
    HUGE_FAULTS_FREE_SHARE = 16, // of what is free that may be, of all blocks
};
#define HUGE_FAULTS_BYTES ((size_t)64 << 20)

// Looks, and allows or forbids them: to be called at regular intervals. A system call a block
// looked at, and up to four if the answer changes.
MALLOW_INTERNAL void huge_faults_look(struct huge_set *set);

#endif
