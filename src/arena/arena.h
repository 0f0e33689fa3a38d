// SPDX-License-Identifier: MIT
// Arena: address space from the OS, handed out in spans of slices.
//
// Owns     a primary arena, reserved at start and large enough for nearly every program, whose slab
//          headers the fast path finds by masking; secondary arenas where that one is exhausted or
//          could not be large (ulimit -v), found through the address map.
// Threads  any; one lock for all arenas.
// Holds    slices below committed_slices are readable and writable; slab headers of an arena are
//          readable for every slice it could ever have.
//          dirty_slices = sum of the dirty bits of all chunks
//          the slice of the primary arena whose header is in slot 0 is never handed out
//
//          the headers and remote parts of an arena stay when it goes back, as all structures of
//          ours do: threads that have freed a block look at them once more, and what was posted to
//          a heap (slab_remote.h) may lie on its stack yet. The next arena uses them.
//
//   one reservation:  | tables | guard | slab headers | guard | remote parts | guard | blocks ... |
#ifndef MALLOW_ARENA_ARENA_H
#define MALLOW_ARENA_ARENA_H

#include "arena/chunk_map.h"
#include "meta/address_map.h"
#include "meta/meta.h"
#include "os/os.h"
#include "slab/slab.h"

struct arena {
    // Set once: read with every block that a thread frees for another.
    _Alignas(MALLOW_CACHE_LINE) uintptr_t base; // first slice; chunk-aligned
    size_t limit_slices;         // reserved yet (arena_confine); written under lock
    struct slab *slabs;          // table of header slots
    struct slab_remote *remotes; // table of remote parts, in the same order
    size_t slot_mask;            // primary: slot = address / slice, masked; the table wraps round
    size_t rotation;             // slot of slice 0
    uintptr_t header_address;    // header slots that are there: all, or a part (arena_cut_headers)
    size_t header_bytes;
    size_t slice_count;          // reserved at first
    uintptr_t table_address;     // the tables and their guards: once reserved, they stay
    size_t table_bytes;
    size_t table_slices;         // how many slices they have room for; 0: there are none
    uintptr_t space_address;     // all that was reserved: what lies beside tables and blocks is for
    uintptr_t space_end;         // the base's alignment, and not used (arena_confine)
    // Changes with every span.
    size_t committed_slices;     // readable and writable, from below
    size_t mapped_slices;        // the same, or a chunk more (arena_map_blocks)
    size_t giant_slices;         // on giant pages, from below (arena_giant.h)
    size_t header_slices;        // slices whose headers and remote parts are writable
    size_t remote_slices;        // the same, or a batch more: remote parts come first
    struct chunk_map map;
    size_t free_slices;          // committed and free
    struct arena *next;          // secondary arenas, newest first
    // What somebody notes of its slabs (heap_holes.h), in a mapping of its own that goes with it.
    void *notes;
    size_t notes_bytes;
    uint8_t visit;               // enum arena_visit; of a secondary arena; under lock
};

// Whether somebody looks at slabs of an arena without the lock: then it stays where it is.
enum arena_visit {
    ARENA_ALONE = 0,
    ARENA_VISITED,
    ARENA_VISITED_AND_DUE, // it was wholly free meanwhile, and was to be unmapped
};

// How far a chunk is on its way to a huge page (promote.h).
struct arena_age {
    uint8_t looks;    // that have found it full, on end; ARENA_AGE_MEASURED, ARENA_AGE_HUGE
    uint8_t failures; // how often it did not come to it, or was split; no more than matter
    uint16_t rest;    // looks for which it is left alone
    uint16_t missing; // once measured: pages that were not resident then
};
enum {
    ARENA_AGE_MEASURED = 254,   // it could be one, if it is dense enough
    ARENA_AGE_HUGE = 255,       // it is one
    ARENA_AGE_REST_LOOKS = 16,  // after the first failure
    ARENA_AGE_FAILURES_MAX = 8, // it doubles with each
};

// It has not come to a huge page, or is none any more: not again soon.
MALLOW_INLINE void arena_age_fail(struct arena_age *age) {
    age->looks = 0;
    age->rest = (uint16_t)(ARENA_AGE_REST_LOOKS << age->failures);
    if (age->failures < ARENA_AGE_FAILURES_MAX) {
        age->failures++;
    }
}

// Free slices that somebody purges without the lock: nobody else's meanwhile (arena_leave.c).
struct arena_leaving {
    struct arena *arena; // NULL: none
    uintptr_t thread;    // who purges them; 0: a thread that a fork has left behind
    unsigned chunk_index;
    unsigned first;      // of the chunk's slices
    unsigned count;
};

// Address space of the primary arena in which a fault makes a huge page (arena_broad.h), in slices.
struct arena_broad {
    // Under lock.
    size_t floor; // what lies below tells nothing
    size_t first; // of the stretch
    size_t next;  // of which it is over up to here
    size_t end;   // of it: none from here on
    // The background thread's alone.
    size_t judged; // the newest chunk that has been looked at
    size_t looked; // committed at the last look
    size_t ticked; // and at the last tick
    size_t rest;   // until so much is committed there is no look
    unsigned failures; // stretches of a program that turned sparse; no more than matter
};

struct arena_set {
    struct os *os;
    struct meta *meta;
    struct address_map *map;        // entries: secondary arenas (bit 0 set) and huge blocks
    struct arena primary;
    struct os_lock lock;
    struct arena *secondary;        // under lock
    struct arena *recycled;         // arenas given back, all but the blocks; under lock
    size_t secondary_bytes;         // size of a new one
    size_t dirty_slices;            // written under lock (arena_set_dirty_locked), read by any
    size_t trim_slices;             // beyond this many dirty slices, some are to be purged
    bool trim_lifted;               // somebody gives back what is not needed: no such limit
    size_t dirty_low;               // fewest dirty slices since the last look; under lock
    size_t dirty_low_before;        // the same of the look before
    struct arena_leaving leaving;   // under lock
    struct {
        struct arena *arena; // NULL: nowhere; may be gone
        unsigned chunk_index;
    } refused; // by the kernel, to whoever purges by single calls; under lock
    size_t debt_bytes;              // to be purged besides; written under lock, read by any
    struct slab *visited;           // of a span with pages that somebody purges without the lock:
                                    // given up meanwhile it is late; under lock
    struct slab *late;              // of a span that is yet to be given, first of a list; NULL:
                                    // none; written under lock, read by any
    unsigned late_slices;           // of all of these; written under lock, read by any
    uint8_t low;                    // enum arena_low: arena_prepare has work; read by any
    struct arena_age *ages;         // of the primary arena's chunks; NULL: none; under lock
    uint8_t *nodes;                 // whose node's its chunks are; NULL: one node; under lock
    struct reserve_chunk **reserved; // by chunk of the primary arena (reserve.h); NULL: none is
    size_t raise_slices;            // committed so many, somebody is to look for dense chunks;
    size_t raise_step;              // less for each chunk that begins with a large block
    _Atomic(uint64_t) split_count;  // huge pages of chunks that a purge has split
    _Atomic(uint64_t) purged_bytes; // so far
    struct arena_broad broad;
};

// A span taken: its header slot (cleared), its address, and whether it reads as zero.
struct arena_span {
    struct slab *slab; // NULL: out of memory
    uintptr_t address;
    bool zeroed;
    bool refused; // there is none because the charge's level does not permit it
    bool grown;   // more memory was committed for it
};

// Reserves the primary arena: `reserve_bytes`, or as much of it as the kernel grants. Without any,
// the set works by secondary arenas.
MALLOW_INTERNAL void arena_set_init(struct arena_set *set, struct os *os, struct meta *meta,
                                    struct address_map *map, size_t reserve_bytes);

// Takes a span of 1 .. 32 slices whose address is a multiple of `align_slices` slices. May enter
// the kernel to commit more memory. Slices without pages are charged at `level`.
MALLOW_INTERNAL void arena_take_into(struct arena_set *set, unsigned slice_count,
                                     unsigned align_slices, enum os_charge_level level,
                                     struct arena_span *span);

MALLOW_INLINE struct arena_span arena_take_charged(struct arena_set *set, unsigned slice_count,
                                                   unsigned align_slices,
                                                   enum os_charge_level level) {
    struct arena_span span;
    arena_take_into(set, slice_count, align_slices, level, &span);
    return span;
}

// The same at level HARD: for spans that can be done without.
MALLOW_INLINE struct arena_span arena_take(struct arena_set *set, unsigned slice_count,
                                           unsigned align_slices) {
    return arena_take_charged(set, slice_count, align_slices, OS_CHARGE_HARD);
}

// Gives back `slice_count` slices from `slab` on, whose header slots are clear already. Does not
// enter the kernel: see arena_settle.
MALLOW_INTERNAL void arena_give(struct arena_set *set, struct slab *slab, unsigned slice_count);

// Whether the primary arena has any free slice. A hint.
MALLOW_RACY_READ static __attribute__((unused)) bool arena_has_free(const struct arena_set *set) {
    return set->primary.free_slices != 0;
}

// Whether it has so many that a slab hardly makes it grow. A hint.
MALLOW_RACY_READ static __attribute__((unused)) bool arena_has_plenty(const struct arena_set *set) {
    return set->primary.free_slices >= MALLOW_CHUNK_SLICES / 2;
}

// Leaves that to a later call, unless so many slices would be late then: moves in a row that open a
// slab each are as many as there are classes. Such a call gives one span of them, or all. False:
// there is none, or it is visited.
enum { ARENA_LATE_SLICES = 2 * MALLOW_CHUNK_SLICES };
MALLOW_INTERNAL void arena_put_off(struct arena_set *set, struct slab *slab, unsigned slice_count);
MALLOW_INTERNAL bool arena_give_late(struct arena_set *set);
MALLOW_INTERNAL void arena_give_late_all(struct arena_set *set);
MALLOW_INLINE bool arena_is_late(const struct arena_set *set) {
    return __atomic_load_n(&set->late, __ATOMIC_RELAXED) != NULL;
}
// Whether a span of any size may be left so.
MALLOW_INLINE bool arena_may_put_off(const struct arena_set *set) {
    return __atomic_load_n(&set->late_slices, __ATOMIC_RELAXED) <=
           ARENA_LATE_SLICES - (MALLOW_LARGE_BYTES_MAX >> MALLOW_SLICE_SHIFT);
}

// Takes the slices right behind a span, if they are free and in the same chunk.
MALLOW_INTERNAL bool arena_extend(struct arena_set *set, struct slab *slab, unsigned slice_count,
                                  unsigned more_slices);

// Whether they are certainly not, of a span in the primary arena. A hint, without the lock.
MALLOW_RACY_READ static __attribute__((unused)) bool arena_is_blocked(const struct arena_set *set,
                                                                      uintptr_t address,
                                                                      unsigned slice_count,
                                                                      unsigned more_slices) {
    const struct arena *const arena = &set->primary;
    const size_t slice = (address - arena->base) >> MALLOW_SLICE_SHIFT;
    const unsigned next = (unsigned)(slice % MALLOW_CHUNK_SLICES) + slice_count;
    if (set->reserved != NULL || slice >= arena->committed_slices) {
        return false; // in a reserve, or a secondary arena
    }
    return next + more_slices > MALLOW_CHUNK_SLICES ||
           (~chunk_map_chunk(&arena->map, (unsigned)(slice / MALLOW_CHUNK_SLICES))->free_mask &
            chunk_mask_span(next, more_slices)) != 0;
}

// Free memory whose pages are kept; relaxed.
MALLOW_INLINE size_t arena_kept(const struct arena_set *set) {
    return __atomic_load_n(&set->dirty_slices, __ATOMIC_RELAXED) << MALLOW_SLICE_SHIFT;
}

// Dirty slices of `bytes` bytes are to be purged, by later calls; what is owed already is a part of
// that. How much more it is.
MALLOW_INTERNAL size_t arena_owe(struct arena_set *set, size_t bytes);

// What is owed, and is so no longer: the caller purges as much by arena_idle_purge.
MALLOW_INTERNAL size_t arena_take_debt(struct arena_set *set);

// Whether there is something to purge, now or owed; relaxed.
MALLOW_INLINE bool arena_owes(const struct arena_set *set) {
    return (__atomic_load_n(&set->dirty_slices, __ATOMIC_RELAXED) >
                __atomic_load_n(&set->trim_slices, __ATOMIC_RELAXED) &&
            !__atomic_load_n(&set->trim_lifted, __ATOMIC_RELAXED)) ||
           __atomic_load_n(&set->debt_bytes, __ATOMIC_RELAXED) != 0;
}

// Whether a call with a system call to spare should use it for arena_prepare, because slices are
// few, or tables are; relaxed.
enum arena_low {
    ARENA_NOT_LOW = 0,
    ARENA_LOW_SLICES,
    ARENA_LOW_TABLES,
    ARENA_SHORT_TABLES, // the next growths but one or two need them
};
MALLOW_INLINE enum arena_low arena_is_low(const struct arena_set *set) {
    return (enum arena_low)__atomic_load_n(&set->low, __ATOMIC_RELAXED);
}

// Makes tables or slices ready that will be needed next. At most one system call.
MALLOW_INTERNAL void arena_prepare(struct arena_set *set);

// Purges one run of dirty slices, the highest, if something is owed. At most one system call.
MALLOW_INTERNAL void arena_settle(struct arena_set *set);

// Purges dirty slices, from above, until at least `bytes` are released, none is left, or the kernel
// has refused some, in a system call a run; bytes released. For when memory is short.
MALLOW_INTERNAL size_t arena_purge_some(struct arena_set *set, size_t bytes);

// Purges every dirty slice, and gives back secondary arenas that are wholly free; bytes released.
MALLOW_INTERNAL size_t arena_purge_all(struct arena_set *set);

// ---- arena_idle.c: free memory that nobody has needed for a while ----

// Looks: how many bytes of dirty slices have not been needed since the look before the last. To be
// called at regular intervals.
MALLOW_INTERNAL size_t arena_idle_look(struct arena_set *set);

// Purges dirty slices, those highest up first, until at least `bytes` are released, none is left or
// `calls` system calls are made; bytes released. MALLOW_PURGE_SLICES at a time, for which the lock
// is not held. What the kernel refuses to purge is passed by, for UINT32_MAX calls in this round
// alone. A secondary arena in which nothing is left goes, by calls that do not count. One thread at
// a time.
MALLOW_INTERNAL size_t arena_idle_purge(struct arena_set *set, size_t bytes, unsigned calls);

// Rounds of os_pause, some 50 ms: then whoever purges has gone.
enum { ARENA_AWAIT_ROUNDS = 1024 };

// ---- arena_leave.c: on its way back to the OS, without the lock ----

// Takes a run of dirty slices, for the caller to purge; none leaves yet.
MALLOW_INTERNAL void arena_leave_locked(struct arena_set *set, const struct arena_leaving *span);

// Makes it free again: clean, or as it was.
MALLOW_INTERNAL void arena_return_locked(struct arena_set *set, bool clean);

// Keeps the span of `slab` from coming to another use until the next call, with NULL: the caller
// purges pages of its free blocks without the lock, and does not know when it is given up.
MALLOW_INTERNAL void arena_visit_span(struct arena_set *set, struct slab *slab);

// Waits for what somebody else is just purging like that, but not for ever: a child that has been
// made without our knowledge waits for a thread that it has not. Makes free again what nobody
// purges any more. Bytes released meanwhile. Lock held, but for while it waits.
MALLOW_INTERNAL size_t arena_await_leaving_locked(struct arena_set *set);

// In the child of a fork: notes that whoever purged is not there, unless it is the caller, whose
// purge goes on once the handler that has forked returns. The next who awaits it makes the slices
// free: here the set may be in the middle of a change.
MALLOW_INTERNAL void arena_leave_fork_child(struct arena_set *set);

// ----

// Where somebody who looks at all slabs is: an arena, and a slice of it.
struct arena_place {
    struct arena *arena; // NULL: at the end
    size_t slice;
    size_t beyond;       // the position behind all of the arena
};

// What *position leads to, which counts the slices of all arenas, the primary one first; it moves
// over those that are not committed. A secondary arena stays where it is until arena_idle_leave.
// One visitor at a time.
MALLOW_INTERNAL struct arena_place arena_idle_visit(struct arena_set *set, size_t *position);
MALLOW_INTERNAL void arena_idle_leave(struct arena_set *set, struct arena *arena);

// Unmaps an arena's notes; false: the kernel refuses. Lock held, or the visitor.
MALLOW_INTERNAL bool arena_forget_notes(struct arena_set *set, struct arena *arena);

// Takes back what is committed and free at the end of each arena, for when the kernel refuses more:
// limits and commit charge count it, touched or not. Bytes released.
MALLOW_INTERNAL size_t arena_decommit_all(struct arena_set *set);

struct reserve;

// Moves a chunk of the primary arena, or what is free of it, into a reserve with room for it.
// Slices without pages are charged. Lock held.
MALLOW_INTERNAL void arena_set_apart_locked(struct arena_set *set, struct reserve *reserve,
                                            unsigned chunk_index);

// Commits `bytes` of the primary arena, brings in all that they and their headers need, locks it as
// os_bring_in does, and sets it apart in `reserve`; bytes that blocks have now. For the start,
// before `os` is sealed.
MALLOW_INTERNAL size_t arena_set_fix(struct arena_set *set, size_t bytes, struct reserve *reserve,
                                     bool *locked);

// Whether an address lies in what is reserved of the primary arena.
MALLOW_INLINE bool arena_is_in_primary(const struct arena_set *set, uintptr_t address) {
    const struct arena *const arena = &set->primary;
    const size_t limit = __atomic_load_n(&arena->limit_slices, __ATOMIC_RELAXED);
    return address - arena->base < limit << MALLOW_SLICE_SHIFT;
}

// The arena whose blocks `address` lies among, of committed slices only; NULL if none. Any value.
MALLOW_INTERNAL struct arena *arena_of(const struct arena_set *set, uintptr_t address);

MALLOW_INLINE size_t arena_slot_of(const struct arena *arena, size_t slice) {
    return (slice + arena->rotation) & arena->slot_mask;
}

MALLOW_INLINE size_t arena_slice_of(const struct arena *arena, const struct slab *slab) {
    return ((size_t)(slab - arena->slabs) - arena->rotation) & arena->slot_mask;
}

// Whether a chunk is on giant pages (arena_giant.h).
MALLOW_INLINE bool arena_is_giant(const struct arena *arena, unsigned chunk_index) {
    return (size_t)chunk_index * MALLOW_CHUNK_SLICES < arena->giant_slices;
}

// The header slot of the slice that `address` lies in. Slots of one chunk are side by side.
MALLOW_INLINE struct slab *arena_slab_at(const struct arena *arena, uintptr_t address) {
    return &arena->slabs[arena_slot_of(arena, (address - arena->base) >> MALLOW_SLICE_SHIFT)];
}

MALLOW_INLINE bool arena_has_slab(const struct arena *arena, const struct slab *slab) {
    return (uintptr_t)slab - arena->header_address < arena->header_bytes;
}

// The remote part of a slab in use.
MALLOW_INTERNAL struct slab_remote *arena_remote_of(const struct arena_set *set,
                                                    const struct slab *slab);

// The same of one that was found at `address`, and may be given up by now; NULL: its arena is, too.
MALLOW_INTERNAL const struct slab_remote *arena_remote_at(const struct arena_set *set,
                                                          const struct slab *slab,
                                                          uintptr_t address);

MALLOW_INTERNAL void arena_fork_prepare(struct arena_set *set, bool hurried);
MALLOW_INTERNAL void arena_fork_parent(struct arena_set *set);
MALLOW_INTERNAL void arena_fork_child(struct arena_set *set);

// ---- Between arena.c and its companions ---------------------------------------------------------

// Purges a free span and says so in the map; bytes released. Lock held.
MALLOW_INTERNAL size_t arena_purge_span_locked(struct arena_set *set, struct arena *arena,
                                               unsigned chunk_index, unsigned slice_index,
                                               unsigned slice_count);

// Counts the dirty slices anew: all that changes their number comes by here. Lock held.
MALLOW_INLINE void arena_set_dirty_locked(struct arena_set *set, size_t dirty_slices) {
    __atomic_store_n(&set->dirty_slices, dirty_slices, __ATOMIC_RELAXED);
    set->dirty_low = bits_min(set->dirty_low, dirty_slices);
}

// Takes dirty slices off the count. Lock held.
MALLOW_INLINE void arena_less_dirty_locked(struct arena_set *set, size_t slice_count) {
    arena_set_dirty_locked(set, set->dirty_slices - slice_count);
}

MALLOW_INLINE bool arena_is_huge_locked(const struct arena_set *set, uintptr_t address) {
    const size_t chunk = (address - set->primary.base) >> MALLOW_CHUNK_SHIFT;
    return set->ages != NULL && chunk < set->primary.slice_count / MALLOW_CHUNK_SLICES &&
           set->ages[chunk].looks == ARENA_AGE_HUGE;
}

// Pages at `address` have been purged: a huge page of a chunk is one no longer. Lock held.
MALLOW_INLINE void arena_split_locked(struct arena_set *set, uintptr_t address) {
    if (unlikely(arena_is_huge_locked(set, address))) {
        arena_age_fail(&set->ages[(address - set->primary.base) >> MALLOW_CHUNK_SHIFT]);
        atomic_fetch_add_explicit(&set->split_count, 1, memory_order_relaxed);
    }
}

// The same without the lock.
MALLOW_INTERNAL void arena_split(struct arena_set *set, uintptr_t address);

// Commits more of `arena` so that a span of `slice_count` slices aligned to `align_slices` fits
// behind what is committed, and takes it: at `*slice_out`. One system call, unless no other call
// has prepared the headers. Lock held.
MALLOW_INTERNAL bool arena_commit_locked(struct arena_set *set, struct arena *arena,
                                         unsigned slice_count, unsigned align_slices,
                                         size_t *slice_out);

// The same for whoever does so seldom: the first has one caller, and becomes a part of it.
MALLOW_INTERNAL bool arena_commit_ahead_locked(struct arena_set *set, struct arena *arena,
                                               unsigned slice_count, unsigned align_slices,
                                               size_t *slice_out);

// Whether the tables are ready for what comes next, so that growth is one system call; and whether
// there are some free slices in a row, so that the next span is none. Lock held.
MALLOW_INTERNAL bool arena_is_prepared(const struct arena *arena);

// How much an arena that is not lacks: enum arena_low.
MALLOW_INTERNAL uint8_t arena_lacks_tables(const struct arena *arena);

enum {
    ARENA_WHOLE_STEP_SLICES = 3 * MALLOW_CHUNK_SLICES, // 6 MiB: from here on by whole chunks
    ARENA_FIRST_AHEAD_SLICES = 8, // in a row: what most spans need at most
    ARENA_LATER_AHEAD_SLICES = MALLOW_CHUNK_SLICES, // for several spans without a call between
};
MALLOW_INLINE bool arena_goes_by_chunks(const struct arena *arena) {
    return arena->committed_slices >= ARENA_WHOLE_STEP_SLICES;
}
// The rows of the map of which an arena should have some ahead.
MALLOW_INLINE uint64_t arena_rows_ahead(const struct arena *arena) {
    return chunk_map_rows_from(likely(arena_goes_by_chunks(arena)) ? ARENA_LATER_AHEAD_SLICES
                                                                   : ARENA_FIRST_AHEAD_SLICES);
}
MALLOW_INTERNAL bool arena_has_ahead(const struct arena *arena);

// The opposite, in few instructions up to 8 GiB.
MALLOW_INLINE bool arena_lacks_ahead(const struct arena *arena) {
    return (arena->map.summary[0].present & arena_rows_ahead(arena)) == 0 &&
           (likely(arena->map.word_count == 1) ? arena->committed_slices != arena->limit_slices
                                               : !arena_has_ahead(arena));
}

// Makes some of them ready, as far as the soft limit permits. At most one system call; false: the
// kernel or the limit refuses. Lock held.
MALLOW_INTERNAL bool arena_prepare_locked(struct arena_set *set, struct arena *arena);

// Decommits the free end of an arena; bytes released. Lock held.
MALLOW_INTERNAL size_t arena_decommit_locked(struct arena_set *set, struct arena *arena);

// The process may have `limit` bytes of address space from now on: gives back what is reserved of
// the primary arena and not in use, beyond the share that it would have with such a limit at start.
// Headers stay, 1/256 of what was reserved: any address may be asked about. A few system calls.
MALLOW_INTERNAL void arena_confine(struct arena_set *set, size_t limit);
// It may have so many again: later arenas are as large as with such a limit at start. The primary
// one stays as it is, since others may lie behind it by now.
MALLOW_INTERNAL void arena_unconfine(struct arena_set *set, size_t limit);
// As arena_confine, of the secondary ones: all that lies behind what is committed.
MALLOW_INTERNAL void arena_shorten_secondary(struct arena_set *set);

// Header slots [first, first + count) of the primary arena, a power of two at a multiple of it:
// those of all its slices, behind a first one that none of them has.
struct arena_part {
    size_t first;
    size_t count;
};

// The smallest part that will do; count 0: only the whole. Lock held.
MALLOW_INTERNAL struct arena_part arena_header_part(const struct arena *arena);

// Gives the other slots back: whoever looks for headers looks there alone from now on. Two system
// calls. Lock held.
MALLOW_INTERNAL void arena_cut_headers(struct arena_set *set, struct arena_part part);

// A new secondary arena. Lock held.
MALLOW_INTERNAL struct arena *arena_add_locked(struct arena_set *set);

// How large a new secondary arena is where the process may have `limit` bytes of address space.
MALLOW_INTERNAL void arena_set_share(struct arena_set *set, size_t limit);

// Unmaps the blocks of a secondary arena that is wholly free. Lock held.
MALLOW_INTERNAL bool arena_remove_locked(struct arena_set *set, struct arena *arena);

enum arena_reserved {
    ARENA_RESERVED,
    ARENA_NO_SPACE,  // no such range of addresses: there may be a shorter one
    ARENA_NO_TABLES, // what a shorter one would need as well is refused
};

// Reserves `bytes` (a multiple of a chunk) for blocks, and the tables. `masked`: `bytes` is a power
// of two, and headers are found by masking the address.
MALLOW_INTERNAL enum arena_reserved arena_reserve(struct arena *arena, struct os *os, size_t bytes,
                                                  bool masked);
// The same for an arena that was given back, whose tables are large enough.
MALLOW_INTERNAL bool arena_reserve_again(struct arena *arena, struct os *os, size_t bytes);

// What its headers and remote parts are charged, and its chunk map's groups beyond the first.
MALLOW_INTERNAL size_t arena_header_charge(const struct arena *arena);
MALLOW_INTERNAL size_t arena_group_charge(const struct arena *arena);
// What of all that is in memory. The lock is held.
MALLOW_INTERNAL uint64_t arena_tables_resident(const struct arena *arena, const struct os *os);

#endif
