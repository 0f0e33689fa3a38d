// SPDX-License-Identifier: MIT
// Arena, giant pages: pages of 1 GiB that the system has set aside (hugetlbfs), under the beginning
// of the primary arena.
//
// Owns     nothing: the slices below arena.giant_slices are those, and os.giant_bytes their pages.
// Threads  at start, one.
// Holds    they are the process's, charged and never given back until it ends: slices of them are
//          not dirty when they are free, no purge is tried, and no huge page is made of them. What
//          a freed one holds is not known to be zero.
//          RSS does not count them; nor do the figures that are compared with RSS.
#ifndef MALLOW_ARENA_GIANT_H
#define MALLOW_ARENA_GIANT_H

#include "arena/arena.h"

// Takes `count` giant pages before anything is committed, in turn from each of `node_count` NUMA
// nodes; how many there were. Four calls a page. The arena must have been aligned for it
// (os.wants_giant).
MALLOW_INTERNAL size_t arena_giant_take(struct arena_set *set, size_t count, unsigned node_count);

// The pages below `bytes` are there: the arena uses them.
MALLOW_INTERNAL void arena_giant_use(struct arena_set *set, size_t bytes);

#endif
