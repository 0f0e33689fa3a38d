// SPDX-License-Identifier: MIT
// Huge blocks: each in a mapping of its own, registered in the address map.
//
// Owns     the mappings, a record for each, and a cache of the memory of freed ones.
// Threads  any; the address map's lock covers records, cache and counters.
// Holds    a mapping covers at least a megabyte from the block's start on, so at most one block
//          begins in any aligned megabyte, which is what the address map can tell apart.
#ifndef MALLOW_ARENA_HUGE_H
#define MALLOW_ARENA_HUGE_H

#include "arena/arena.h"
#include "arena/huge_cache.h"
#include "base/compiler.h"
#include "meta/address_map.h"
#include "meta/meta.h"
#include "os/os.h"

struct huge {
    uintptr_t address;      // start of the block; 0 while the record is free
    uintptr_t map_address;  // start of the mapping: the same, unless aligned at an offset
    size_t mapped_bytes;    // from map_address on
    size_t usable_bytes;    // from address on
    enum huge_parts parts;  // of the mapping
    bool broad;             // where faults make huge pages
    bool extended;          // in place, by pages that were kept: beyond what it was, it is not zero
    _Atomic(uintptr_t) *place; // of its entry in the address map; NULL while the record is free
    struct huge *next;      // free records; or live ones, for naming interior pointers
    struct huge *previous;
    struct os_charge *allowance; // what mapped_bytes are charged to besides; NULL: nothing
    size_t next_part;       // its next part that may become a huge page (promote.h)
    struct arena_age age;   // of the block, for that
};

struct huge_set {
    struct os *os;
    struct meta *meta;
    struct address_map *map;
    struct huge *live;         // list of live records
    struct huge *free_records;
    struct huge *late;         // of freed blocks whose mappings are yet to be given; relaxed reads
    size_t late_bytes;         // of these mappings; relaxed reads
    struct huge_cache cache;
    struct huge_mapping leaving; // what is being unmapped without the lock; of 0 bytes: nothing
    size_t leaving_bytes;        // of that, held until it is done
    uintptr_t leaving_thread;    // who does that
    uint64_t live_count;
    uint64_t live_bytes;       // mapped bytes of live blocks; relaxed reads
    uint64_t charged_bytes;    // live, late, cached and leaving, as charged; more during a call
    unsigned broad_count;      // fresh blocks that could have huge pages by faults
    bool refused;              // a block could just not be grown by the kernel, and moves
    bool alone;                // no thread gives back what is owed; relaxed reads
    size_t raise_bytes;        // live so many, somebody is to look for dense ones
    _Atomic(size_t) kept_bytes; // what the cache holds; written under lock, read by any
};

MALLOW_INTERNAL void huge_set_init(struct huge_set *set, struct os *os, struct meta *meta,
                                   struct address_map *map, size_t cache_limit);

// What a block is for.
enum huge_use {
    HUGE_ANY,
    HUGE_ZEROED, // it must read as zero
    HUGE_GROWN,  // instead of a smaller one, and is likely to grow on
    HUGE_HURRIED, // the same of a call with more to do: of fresh pages
    HUGE_ALONE,  // aligned by more than a page, with no more mapped than the block, even so
};

// A block of at least `bytes` bytes; 0 if there is no memory.
// The growth is charged at `level`; refused, there is no memory.
// At most one system call, where neither address space nor memory is limited and the alignment is
// at most 64 MiB, and the program has locked nothing of what is kept; otherwise three if it is more
// than a page.
MALLOW_INTERNAL uintptr_t huge_take_charged(struct huge_set *set, size_t bytes, size_t alignment,
                                            enum huge_use use, enum os_charge_level level);

MALLOW_INLINE uintptr_t huge_take(struct huge_set *set, size_t bytes, size_t alignment,
                                  bool zeroed) {
    return huge_take_charged(set, bytes, alignment, zeroed ? HUGE_ZEROED : HUGE_ANY,
                             OS_CHARGE_HARD);
}

// A zeroed block whose (address + offset) is a multiple of `alignment`.
MALLOW_INTERNAL uintptr_t huge_take_at_charged(struct huge_set *set, size_t bytes,
                                               size_t alignment, size_t offset,
                                               enum os_charge_level level);

MALLOW_INLINE uintptr_t huge_take_at(struct huge_set *set, size_t bytes, size_t alignment,
                                     size_t offset) {
    return huge_take_at_charged(set, bytes, alignment, offset, OS_CHARGE_HARD);
}

// The live block that begins at `address`, which the address map has `entry` for.
MALLOW_INLINE struct huge *huge_of_entry(uintptr_t entry, uintptr_t address) {
    if (entry == 0 || (entry & 1) != 0) {
        return NULL;
    }
    struct huge *const huge = (struct huge *)entry;
    return __atomic_load_n(&huge->address, __ATOMIC_ACQUIRE) == address ? huge : NULL;
}

// The live block that begins at `address`; NULL if none does. Any value, no lock.
MALLOW_INTERNAL struct huge *huge_of(const struct huge_set *set, uintptr_t address);

// True iff `address` lies within a live huge block. Walks them all: for the error path.
MALLOW_INTERNAL bool huge_contains(struct huge_set *set, uintptr_t address);

// The same of freed blocks. HUGE_KEPT: in memory that is kept, in which no block is. HUGE_GONE: in
// what the record of one still names, though others may have mapped that by now.
enum huge_past { HUGE_UNKNOWN, HUGE_GONE, HUGE_KEPT };
MALLOW_INTERNAL enum huge_past huge_past_of(struct huge_set *set, uintptr_t address);

// Frees the block at `address`; false if no live block begins there. At most one system call, none
// unless `may_enter`: then a mapping that the cache has no place for is late, and is owed.
MALLOW_INTERNAL bool huge_give(struct huge_set *set, uintptr_t address, bool may_enter);

// The same of a block that has been found by huge_of. Records are never given up. Where there is no
// thread, and far more is owed than is live, it enters the kernel in any case.
MALLOW_INTERNAL bool huge_give_record(struct huge_set *set, struct huge *huge, uintptr_t address,
                                      bool may_enter);

// The same without a system call: its mapping is late in any case. For as long as few are.
#define HUGE_LATE_BYTES_MAX ((size_t)32 << 20)
MALLOW_INLINE bool huge_may_put_off(const struct huge_set *set) {
    return __atomic_load_n(&set->late_bytes, __ATOMIC_RELAXED) < HUGE_LATE_BYTES_MAX;
}
MALLOW_INTERNAL bool huge_put_off(struct huge_set *set, struct huge *huge, uintptr_t address);

// Whether the kernel would refuse to make a live block so large.
MALLOW_INLINE bool huge_is_fixed(const struct huge *huge, size_t bytes) {
    return huge->parts == HUGE_SEVERAL &&
           bytes > huge->mapped_bytes - (huge->address - huge->map_address);
}

// Puts a live block under an allowance, which has been charged `charged_bytes` for it: whole pages
// that hold it, wherever it begins. What its mapping has beyond that is given up.
MALLOW_INTERNAL void huge_set_allowance(struct huge_set *set, uintptr_t address,
                                        struct os_charge *allowance, size_t charged_bytes);

// Frees every block under an allowance, with a system call each at most; one look at each live
// block, under the lock.
MALLOW_INTERNAL void huge_give_allowance(struct huge_set *set, const struct os_charge *allowance);

// Resizes a live block: by pages of the cache that lie behind it, or by the kernel, in one call;
// its address, or 0 (and all is as it was). A block made up of pieces of the cache can be cut, not
// grown. `extended` says by which.
MALLOW_INTERNAL uintptr_t huge_resize_charged(struct huge_set *set, struct huge *huge,
                                              size_t bytes, bool may_move,
                                              enum os_charge_level level);

MALLOW_INLINE uintptr_t huge_resize(struct huge_set *set, struct huge *huge, size_t bytes,
                                    bool may_move) {
    return huge_resize_charged(set, huge, bytes, may_move, OS_CHARGE_HARD);
}

// Blocks of fewer bytes have no huge pages by faults, nor those to which the rest of the last one
// would add more than one part in so many.
#define HUGE_BROAD_BLOCK_BYTES_MIN ((size_t)4 << 20)
#define HUGE_BROAD_REST_SHARE 4U
// What whole chunks add to a block; SIZE_MAX: it has none.
MALLOW_INLINE size_t huge_broad_rest(size_t bytes) {
    const size_t rest = (0 - bytes) % MALLOW_CHUNK_BYTES;
    return bytes >= HUGE_BROAD_BLOCK_BYTES_MIN && rest <= bytes / HUGE_BROAD_REST_SHARE
               ? rest
               : SIZE_MAX;
}
// One fresh block in so many has small pages all the same: by what becomes of these it is seen
// whether the program still writes them whole.
#define HUGE_BROAD_PROBE_SHARE 8U

// As arena_idle_look and arena_idle_purge, of the cache. While another thread purges, this one does
// nothing.
MALLOW_INTERNAL size_t huge_idle_look(struct huge_set *set);
MALLOW_INTERNAL size_t huge_idle_purge(struct huge_set *set, size_t bytes, unsigned calls);

// In the child of a fork: what a thread that is not there was unmapping is not kept again. Nobody
// can tell whether it was unmapped yet, nor whose mapping lies there if it was.
MALLOW_INTERNAL void huge_fork_child(struct huge_set *set);

// Memory of freed blocks that is kept; relaxed.
MALLOW_INLINE size_t huge_kept(const struct huge_set *set) {
    return atomic_load_explicit(&set->kept_bytes, memory_order_relaxed);
}

// `bytes` of what is cached are owed to the OS, what is owed already being a part of that: later
// calls that have no other system call to make give it back, a piece each. How much more it is.
MALLOW_INTERNAL size_t huge_owe(struct huge_set *set, size_t bytes);

// As arena_take_debt, of the cache.
MALLOW_INTERNAL size_t huge_take_debt(struct huge_set *set);

// Whether there is something to settle; relaxed.
MALLOW_INLINE bool huge_owes(const struct huge_set *set) {
    return (__atomic_load_n(&set->cache.debt, __ATOMIC_RELAXED) |
            __atomic_load_n(&set->cache.left.bytes, __ATOMIC_RELAXED) |
            (uintptr_t)__atomic_load_n(&set->late, __ATOMIC_RELAXED)) != 0;
}

// How much is to be given back by then; relaxed.
MALLOW_INLINE size_t huge_owed(const struct huge_set *set) {
    return __atomic_load_n(&set->cache.debt, __ATOMIC_RELAXED) +
           __atomic_load_n(&set->late_bytes, __ATOMIC_RELAXED);
}
// How many pieces are kept; relaxed.
MALLOW_INLINE unsigned huge_piece_count(const struct huge_set *set) {
    return __atomic_load_n(&set->cache.count, __ATOMIC_RELAXED);
}
// Whether there is no place for another; relaxed.
MALLOW_INLINE bool huge_is_full(const struct huge_set *set) {
    return huge_piece_count(set) == MALLOW_HUGE_CACHE_COUNT;
}

// Whether pieces of the cache may touch each other; relaxed.
MALLOW_INLINE bool huge_is_loose(const struct huge_set *set) {
    return __atomic_load_n(&set->cache.loose, __ATOMIC_RELAXED) != 0;
}

// Joins one of them with its neighbours. No system call.
MALLOW_INTERNAL void huge_join(struct huge_set *set);

// Gives one piece of that back: one system call.
MALLOW_INTERNAL void huge_settle(struct huge_set *set);

// Gives all mappings that are late to the cache, or back: one system call each.
MALLOW_INTERNAL void huge_give_late(struct huge_set *set);

// The program has its memory locked from now on: nothing is mapped that no block needs. False: it
// had before.
MALLOW_INTERNAL bool huge_lock_begins(struct huge_set *set);
// It has been refused that.
MALLOW_INTERNAL void huge_lock_ends(struct huge_set *set);

// Address space is limited from now on: none is kept ready. A few system calls.
MALLOW_INTERNAL void huge_confine(struct huge_set *set);
// No longer, or not as much.
MALLOW_INTERNAL void huge_unconfine(struct huge_set *set);

// Unmaps the cache, in a call a piece, and waits a little for what somebody else is just unmapping;
// bytes released.
MALLOW_INTERNAL size_t huge_purge_all(struct huge_set *set);

#endif
