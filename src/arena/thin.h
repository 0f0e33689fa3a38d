// SPDX-License-Identifier: MIT
// Thin slices: the first few blocks of each size of each heap, side by side, so that a thread or a
// program with little live data does not pay an OS page for every size it uses once.
//
// Owns     slices cut into units of 1 KiB. A heap opens a unit and bumps through it; blocks are
//          never reused one by one: a unit comes back when all that was in it has been freed. A
//          block too large for that has a run of units to itself.
// Threads  opening, closing and runs: under the lock. Taking: the heap that opened the unit.
//          Freeing: any thread, two atomic operations, and the lock where units come back.
// Holds    a granule's mark is 0 unless a block has begun there since the unit was opened; then it
//          is the block's class + 1, and has its top bit set once the block has been freed: so a
//          second free is certain to be found, and so is any address that is not a block's start.
//          live_count of a unit = its live blocks + (1 while open or kept); at 0 it is free. Of a
//          run, only the first unit counts.
#ifndef MALLOW_ARENA_THIN_H
#define MALLOW_ARENA_THIN_H

#include "arena/arena.h"

#define THIN_UNIT_BYTES ((size_t)1024)
#define THIN_UNIT_COUNT (MALLOW_SLICE_BYTES / THIN_UNIT_BYTES)
#define THIN_GRANULE_COUNT (MALLOW_SLICE_BYTES >> MALLOW_GRANULE_SHIFT)
#define THIN_BLOCK_BYTES_MAX ((size_t)512)
#define THIN_UNIT_LINES (THIN_UNIT_BYTES / MALLOW_CACHE_LINE)
#define THIN_KEPT_COUNT 8U
#define THIN_RUN_BYTES_MAX ((size_t)4096) // = MALLOW_THIN_CLASS_COUNT classes

// The marks last: a page of them is touched when a unit is opened whose marks lie on it.
struct thin_slice {
    uint64_t free_units;                            // mask; under lock
    uintptr_t address;
    struct slab *slab;
    struct thin_slice *next;                        // slices with a free unit; or recycled ones
    struct thin_slice *previous;
    uint64_t dirty_units;                           // masks; under lock: used since their page was
                                                    // purged
    uint64_t idle_once;                             // free, and not used since the last look
    uint64_t idle_twice;                            // nor since the one before
    _Atomic(uint8_t) live_count[THIN_UNIT_COUNT];   // a unit's blocks and 1 fit
    union {
        _Atomic(uint8_t) marks[THIN_GRANULE_COUNT];
        _Atomic(uint64_t) mark_words[THIN_GRANULE_COUNT / 8]; // the same, to clear them quicker
    };
};

// An open unit: [bump, end) is still to be handed out. All zero: none.
struct thin_unit {
    struct thin_slice *slice;
    uintptr_t bump;
    uintptr_t end;
};

// Free units that are being purged: not in their slice's free_units, and nobody's.
struct thin_leaving {
    struct thin_slice *slice; // NULL: none
    uint64_t units;
    uintptr_t thread;         // who does that; 0: one that a fork has left behind
};

struct thin_set {
    struct arena_set *arenas;
    struct os_lock lock;
    uint32_t kept_lines;          // bit n: one has n lines left; written under lock, read by any
    uint32_t kept_places;         // in use, mask; under lock
    uint8_t kept_with[THIN_UNIT_LINES];     // places by lines left, masks; under lock
    struct thin_unit kept[THIN_KEPT_COUNT]; // what ended threads had open; under lock
    struct thin_slice *available; // slices with a free unit; under lock
    struct thin_slice *recycled;  // structures without a slice; under lock
    struct thin_leaving leaving;  // under lock
    struct thin_slice *cursor;    // next on `available` to be purged (thin_idle.c); under lock
    size_t slice_count;           // in use; written under lock, read by any
};

MALLOW_INLINE size_t thin_slice_count(const struct thin_set *set) {
    return __atomic_load_n(&set->slice_count, __ATOMIC_RELAXED);
}

MALLOW_INTERNAL void thin_set_init(struct thin_set *set, struct arena_set *arenas);

// Opens a unit; false: no memory. A slice for it is charged at `level`.
MALLOW_INTERNAL bool thin_open_charged(struct thin_set *set, struct thin_unit *unit,
                                       enum os_charge_level level);

MALLOW_INLINE bool thin_open(struct thin_set *set, struct thin_unit *unit) {
    return thin_open_charged(set, unit, OS_CHARGE_SOFT);
}

// Ends the use of a unit; what is live in it stays.
MALLOW_INTERNAL void thin_close(struct thin_set *set, struct thin_unit *unit);

// The same for a thread that ends: if a block of the unit is live, which keeps the rest of it from
// other use, it is kept for a thread that begins; but no more than THIN_KEPT_COUNT.
MALLOW_INTERNAL void thin_leave(struct thin_set *set, struct thin_unit *unit);

// Opens the one of those kept that has the least left of at least `bytes`; false: there is none.
MALLOW_INTERNAL bool thin_resume(struct thin_set *set, struct thin_unit *unit, size_t bytes);

// A block of a class of at most THIN_BLOCK_BYTES_MAX from an open unit; 0 if it does not fit.
MALLOW_INTERNAL uintptr_t thin_take(struct thin_unit *unit, unsigned class_index);

// A block of a class beyond that, of at most THIN_RUN_BYTES_MAX; 0 if there is no run of units for
// it at hand, or no memory. A slice for it is charged at `level`.
MALLOW_INTERNAL uintptr_t thin_take_run_charged(struct thin_set *set, unsigned class_index,
                                                enum os_charge_level level);

MALLOW_INLINE uintptr_t thin_take_run(struct thin_set *set, unsigned class_index) {
    return thin_take_run_charged(set, class_index, OS_CHARGE_SOFT);
}

// The same, looked for in some more slices, and out of a new one if need be; 0: no memory.
MALLOW_INTERNAL uintptr_t thin_take_run_far(struct thin_set *set, unsigned class_index,
                                            unsigned looks);

// Whether there is a slice with a unit at hand; whether thin_take_run would find a run, if it may
// `add` a slice where there is none with a unit. Hints.
MALLOW_INTERNAL bool thin_has_slice(const struct thin_set *set);
MALLOW_INTERNAL bool thin_has_run(const struct thin_set *set, unsigned class_index, bool add);

// Size of the live block that begins at `address` in a thin slice; 0 if none does.
MALLOW_INTERNAL size_t thin_size(const struct slab *slab, uintptr_t address);

// Whether a block began at `address` that has been freed since.
MALLOW_INTERNAL bool thin_was_freed(const struct slab *slab, uintptr_t address);

// Frees the block that begins at `address`; false if no live block does.
// `late`: if its slice is given up, a later call does so (arena_put_off).
MALLOW_INTERNAL bool thin_give_how(struct thin_set *set, struct slab *slab, uintptr_t address,
                                   bool late);
MALLOW_INLINE bool thin_give(struct thin_set *set, struct slab *slab, uintptr_t address) {
    return thin_give_how(set, slab, address, false);
}

// Takes free units off, so that nobody opens them.
MALLOW_INTERNAL void thin_keep_units_locked(struct thin_set *set, struct thin_slice *slice,
                                            uint64_t units);
// Makes units free that are in no use, and gives their slice back if all its units are free, unless
// it is the only one with any. `late`: as in thin_give_how.
MALLOW_INTERNAL void thin_free_units_locked(struct thin_set *set, struct thin_slice *slice,
                                            uint64_t units, bool late);

// Closes all that are kept.
MALLOW_INTERNAL void thin_keep_none(struct thin_set *set);

// ---- thin_idle.c: free units that nobody has needed for a while ----

struct thin_idle {
    size_t bytes;       // of whole pages to be purged
    size_t later_bytes; // of others that may be by the next look
};

// Looks: which free pages have not been needed since the look before the last; or all that are
// free. Keeps no unit any longer. To be called at regular intervals.
MALLOW_INTERNAL struct thin_idle thin_idle_look(struct thin_set *set, bool all);

// Purges pages that were found idle, in up to `calls` system calls, without the lock; bytes
// released. Who else does so is waited for, some 50 ms at most: it does the same.
MALLOW_INTERNAL size_t thin_idle_purge(struct thin_set *set, unsigned calls);

// In the child of a fork: what another thread was purging is free again with the next purge.
MALLOW_INTERNAL void thin_fork_child(struct thin_set *set);

// Adds the live blocks of a thin slice to counts[their class], of MALLOW_THIN_CLASS_COUNT. Returns
// the free pieces between them: freed blocks in units in use, runs of free units.
struct thin_free {
    size_t count;
    size_t bytes;
};
MALLOW_INTERNAL struct thin_free thin_count(const struct slab *slab, uint32_t *counts);

#endif
