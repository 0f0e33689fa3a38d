// SPDX-License-Identifier: MIT
// Arena, broad: see arena_broad.h.
#include "arena/arena_broad.h"

#include "arena/huge_cache.h"
#include "base/bits.h"
#include "os/cgroup.h"
#include "os/os_huge.h"

// ---- What the newest chunks are -----------------------------------------------------------------

// Large blocks of a few chunks, and what else is in these.
struct broad_seen {
    struct {
        uintptr_t address;
        size_t bytes; // that are usable
    } blocks[ARENA_BROAD_LOOK_CHUNKS * MALLOW_CHUNK_SLICES / 2];
    unsigned block_count;
    size_t slices;       // of all these chunks
    size_t large_slices; // in large blocks
    size_t bytes;        // usable of these
};

static uintptr_t broad_address(const struct arena *arena, size_t slice) {
    return arena->base + (slice << MALLOW_SLICE_SHIFT);
}

// Hints: who has taken a span describes it without the lock.
MALLOW_RACY_READ static void broad_see_chunk_locked(const struct arena *arena, size_t first,
                                                    struct broad_seen *seen) {
    const uint32_t free =
        chunk_map_chunk(&arena->map, (unsigned)(first / MALLOW_CHUNK_SLICES))->free_mask;
    const struct slab *const slabs = &arena->slabs[arena_slot_of(arena, first)];
    unsigned step;
    for (unsigned i = 0; i < MALLOW_CHUNK_SLICES; i += step) {
        step = 1;
        if ((free >> i & 1U) == 0 &&
            __atomic_load_n(&slabs[i].kind, __ATOMIC_RELAXED) == SLAB_LARGE &&
            seen->block_count < sizeof seen->blocks / sizeof seen->blocks[0]) {
            step = slabs[i].slice_count != 0 ? slabs[i].slice_count : 1;
            const size_t bytes =
                bits_min(slabs[i].block_bytes, (size_t)step << MALLOW_SLICE_SHIFT);
            seen->blocks[seen->block_count].address = broad_address(arena, first + i);
            seen->blocks[seen->block_count++].bytes = bytes;
            seen->bytes += bytes;
            seen->large_slices += step;
        }
    }
    seen->slices += MALLOW_CHUNK_SLICES;
}

// Whether the chunk of a slice has small pages though it is of a stretch.
static bool broad_is_probe(size_t slice) {
    return slice / MALLOW_CHUNK_SLICES % ARENA_BROAD_PROBE_SHARE == ARENA_BROAD_PROBE_SHARE - 1;
}

// The newest chunks on small pages. The first of them; 0: there is none.
static size_t broad_see(struct arena_set *set, struct broad_seen *seen) {
    const struct arena *const arena = &set->primary;
    os_lock_take_patiently(&set->lock);
    const size_t skipped = (size_t)ARENA_BROAD_SKIP_CHUNKS * MALLOW_CHUNK_SLICES;
    const size_t committed = bits_align_down(arena->committed_slices, MALLOW_CHUNK_SLICES);
    size_t slice = committed - bits_min(committed, skipped);
    size_t newest = 0;
    while (slice > bits_max(set->broad.floor, arena->giant_slices) &&
           seen->slices < (size_t)ARENA_BROAD_LOOK_CHUNKS * MALLOW_CHUNK_SLICES) {
        slice -= MALLOW_CHUNK_SLICES;
        if (slice < set->broad.first || slice >= set->broad.end || broad_is_probe(slice)) {
            newest = bits_max(newest, slice);
            broad_see_chunk_locked(arena, slice, seen);
        }
    }
    os_lock_drop(&set->lock);
    return newest;
}

static bool broad_is_resident(const struct os *os, uintptr_t address, size_t bytes) {
    const size_t whole = bits_align_up(bytes, os->page_bytes);
    return os_resident(os, address, whole) >= whole - whole / ARENA_BROAD_SHARE;
}

enum broad_answer { BROAD_UNKNOWN = 0, BROAD_DENSE, BROAD_SPARSE, BROAD_OTHER };

static bool broad_is_sparse(const struct arena_set *set, const struct broad_seen *seen) {
    unsigned sparse = 0;
    for (unsigned i = 0;
         i < seen->block_count && sparse <= seen->block_count / ARENA_BROAD_SHARE; i++) {
        // A block that is freed meanwhile may be gone, and counts as sparse.
        sparse += !broad_is_resident(set->os, seen->blocks[i].address, seen->blocks[i].bytes);
    }
    return sparse > seen->block_count / ARENA_BROAD_SHARE;
}

// Whether they are large blocks that are written, and fill the chunks and their slices: else they
// are something other, or the program has freed much. Unknown: there has been a look at them, or
// they are few.
static enum broad_answer broad_judge(struct arena_set *set) {
    struct broad_seen seen = {.block_count = 0};
    const size_t newest = broad_see(set, &seen);
    if (seen.slices < (size_t)ARENA_BROAD_LOOK_CHUNKS_MIN * MALLOW_CHUNK_SLICES ||
        newest == set->broad.judged) {
        return BROAD_UNKNOWN;
    }
    set->broad.judged = newest;
    if (broad_is_sparse(set, &seen)) {
        return BROAD_SPARSE;
    }
    const size_t large_bytes = seen.large_slices << MALLOW_SLICE_SHIFT;
    const size_t others = seen.slices - bits_min(seen.large_slices, seen.slices);
    return seen.block_count >= ARENA_BROAD_BLOCKS_MIN &&
                   others <= seen.slices / ARENA_BROAD_SHARE &&
                   large_bytes - seen.bytes <= large_bytes / ARENA_BROAD_SHARE
               ? BROAD_DENSE
               : BROAD_OTHER;
}

// ---- A stretch ----------------------------------------------------------------------------------

// Maps as much ahead of growth as is in use, or as there is room for. Nobody is in a fault in a new
// mapping, so that the lock is not held for long. What lies below and is not of the same stretch
// tells nothing later. Where it begins; 0: there is none.
static size_t broad_begin_locked(struct arena_set *set, size_t room) {
    struct arena_broad *const broad = &set->broad;
    struct arena *const arena = &set->primary;
    const size_t first = bits_max(arena->mapped_slices, arena->committed_slices);
    const size_t start = bits_align_up(first, MALLOW_CHUNK_SLICES);
    const size_t most =
        bits_min(bits_min(arena->committed_slices, room), ARENA_BROAD_MOST_SLICES);
    const size_t end = bits_align_down(bits_min(start + most, arena->limit_slices),
                                       MALLOW_CHUNK_SLICES);
    if (set->os->sealed || first < arena->giant_slices || start >= end ||
        !os_commit(set->os, broad_address(arena, first), (end - first) << MALLOW_SLICE_SHIFT)) {
        return 0;
    }
    arena->mapped_slices = end;
    if (start != broad->end) {
        broad->floor = broad->end;
        broad->first = start;
    }
    broad->next = start;
    broad->end = end;
    return start;
}

// Allows huge pages in the next part of a stretch, up to a probe; where the one after that begins,
// or 0: that was all of it, or it is refused.
static size_t broad_allow(struct arena_set *set, size_t start) {
    os_lock_take_patiently(&set->lock);
    size_t end = start;
    const size_t last = bits_min(set->broad.end, set->primary.mapped_slices);
    while (end < last && !broad_is_probe(end)) {
        end += MALLOW_CHUNK_SLICES;
    }
    const bool allowed =
        start == end || os_huge_allow(set->os, broad_address(&set->primary, start),
                                      (end - start) << MALLOW_SLICE_SHIFT, true);
    os_lock_drop(&set->lock);
    return allowed && end < last ? end + MALLOW_CHUNK_SLICES : 0;
}

// Where too little is free, growth is not looked at for a while.
static void broad_begin(struct arena_set *set, size_t committed) {
    const uint64_t free_bytes = os_free_bytes(set->os->root);
    const size_t room = (size_t)(free_bytes / ARENA_BROAD_FREE_SHARE >> MALLOW_SLICE_SHIFT);
    if (room < ARENA_BROAD_LEAST_SLICES) {
        set->broad.rest = committed + ARENA_BROAD_REST_SLICES;
        return;
    }
    os_lock_take_patiently(&set->lock);
    size_t start = broad_begin_locked(set, room);
    os_lock_drop(&set->lock);
    while (start != 0) {
        start = broad_allow(set, start);
    }
}

static uint32_t broad_clean_locked(const struct arena_set *set, unsigned chunk_index) {
    const struct chunk *const chunk = chunk_map_chunk(&set->primary.map, chunk_index);
    return chunk->free_mask & ~chunk->dirty_mask;
}

// Those of these slices of a chunk that are free are dirty.
static void broad_dirty_locked(struct arena_set *set, unsigned chunk_index, uint32_t slices) {
    struct arena *const arena = &set->primary;
    uint32_t clean = broad_clean_locked(set, chunk_index) & slices;
    while (clean != 0) {
        const unsigned first = bits_lowest(clean);
        const unsigned count = bits_lowest(~((uint64_t)clean >> first));
        chunk_map_take(&arena->map, chunk_index, first, count);
        chunk_map_give_elsewhere(&arena->map, chunk_index, first, count, true);
        os_charge_add(set->os, (size_t)count << MALLOW_SLICE_SHIFT);
        arena_set_dirty_locked(set, set->dirty_slices + count);
        clean &= ~chunk_mask_span(first, count);
    }
}

// What of a stretch growth has reached: whole chunks.
static size_t broad_reached_locked(const struct arena_set *set) {
    return bits_min(set->broad.end,
                    bits_align_down(set->primary.committed_slices, MALLOW_CHUNK_SLICES));
}

// Which of these slices of a chunk, that are free and should have no pages, have some.
static uint32_t broad_filled(const struct arena_set *set, size_t first, uint32_t clean) {
    uint32_t filled = 0;
    for (uint32_t left = clean; left != 0; left &= left - 1) {
        const unsigned i = bits_lowest(left);
        const uintptr_t address = broad_address(&set->primary, first + i);
        if (os_resident(set->os, address, MALLOW_SLICE_BYTES) != 0) {
            filled |= UINT32_C(1) << i;
        }
    }
    return filled;
}

// A chunk that growth has passed, and in which no fault makes a huge page any more.
static void broad_note_chunk(struct arena_set *set, size_t first) {
    const unsigned chunk_index = (unsigned)(first / MALLOW_CHUNK_SLICES);
    os_lock_take_patiently(&set->lock);
    const uint32_t clean = broad_clean_locked(set, chunk_index);
    os_lock_drop(&set->lock);
    const uint32_t filled = broad_filled(set, first, clean);
    const bool huge = os_resident(set->os, broad_address(&set->primary, first),
                                  MALLOW_CHUNK_BYTES) == MALLOW_CHUNK_BYTES;
    os_lock_take_patiently(&set->lock);
    if (first + MALLOW_CHUNK_SLICES <= set->primary.committed_slices) {
        broad_dirty_locked(set, chunk_index, filled);
        if (huge && set->ages != NULL) {
            set->ages[chunk_index] = (struct arena_age){.looks = ARENA_AGE_HUGE};
        }
    }
    os_lock_drop(&set->lock);
}

// Of the stretch, what growth has passed is over. Without the lock: the kernel waits for the
// program's faults, and what has been in use is not given up for good.
static void broad_leave_behind(struct arena_set *set) {
    os_lock_take_patiently(&set->lock);
    const size_t start = set->broad.next;
    const size_t end = broad_reached_locked(set);
    os_lock_drop(&set->lock);
    if (start < end) {
        (void)os_huge_allow(set->os, broad_address(&set->primary, start),
                            (end - start) << MALLOW_SLICE_SHIFT, false);
        for (size_t slice = start; slice < end; slice += MALLOW_CHUNK_SLICES) {
            broad_note_chunk(set, slice);
        }
        os_lock_take_patiently(&set->lock);
        set->broad.next = end;
        os_lock_drop(&set->lock);
    }
}

// What growth has not reached is address space again: limits on data count it, and mlockall would
// bring it in. Nobody is in a fault there.
static void broad_end_locked(struct arena_set *set) {
    struct arena *const arena = &set->primary;
    const size_t end = bits_min(set->broad.end, arena->mapped_slices);
    const size_t start = bits_max(set->broad.next,
                                  bits_align_up(arena->committed_slices, MALLOW_CHUNK_SLICES));
    if (start < end && !set->os->sealed &&
        os_decommit(set->os, broad_address(arena, start), (end - start) << MALLOW_SLICE_SHIFT)) {
        arena->mapped_slices = start;
    }
    set->broad.end = bits_min(set->broad.end, start);
}

MALLOW_INTERNAL void arena_broad_end(struct arena_set *set) {
    os_lock_take_patiently(&set->lock);
    broad_end_locked(set);
    os_lock_drop(&set->lock);
}

static size_t broad_committed(const struct arena_set *set) {
    return __atomic_load_n(&set->primary.committed_slices, __ATOMIC_RELAXED);
}

// Whether growth has reached the end of the stretch.
static bool broad_is_used_up(struct arena_set *set) {
    os_lock_take_patiently(&set->lock);
    const bool used_up = broad_reached_locked(set) == set->broad.end;
    os_lock_drop(&set->lock);
    return used_up;
}

// The program has turned sparse in the stretch.
static void broad_fail(struct arena_set *set, size_t committed) {
    struct arena_broad *const broad = &set->broad;
    arena_broad_end(set);
    broad->rest = committed + ((size_t)ARENA_BROAD_REST_SLICES << broad->failures);
    broad->failures += broad->failures < ARENA_BROAD_FAILURES_MAX;
}

MALLOW_INTERNAL bool arena_broad_look(struct arena_set *set) {
    const size_t committed = broad_committed(set);
    const bool grown = committed != set->broad.looked;
    set->broad.looked = committed;
    if (!grown || committed < set->broad.rest) {
        return false;
    }
    if (committed < ARENA_BROAD_FIRST_SLICES) {
        return true;
    }
    const enum broad_answer answer = broad_judge(set);
    const bool used_up = broad_is_used_up(set);
    if (answer == BROAD_SPARSE && !used_up) {
        broad_fail(set, committed);
    } else if (answer == BROAD_DENSE && used_up && os_limit(set->os) == SIZE_MAX) {
        broad_leave_behind(set);
        broad_begin(set, committed);
    }
    return answer == BROAD_DENSE || answer == BROAD_UNKNOWN;
}

MALLOW_INTERNAL void arena_broad_tick(struct arena_set *set) {
    const size_t committed = broad_committed(set);
    broad_leave_behind(set);
    if (!broad_is_used_up(set) && (committed == set->broad.ticked || huge_is_limited(set->os) ||
                                   os_limit(set->os) != SIZE_MAX)) {
        arena_broad_end(set);
    }
    set->broad.ticked = committed;
}

MALLOW_INTERNAL void arena_broad_stop(struct arena_set *set) {
    arena_broad_end(set);
    broad_leave_behind(set);
}

MALLOW_INTERNAL void arena_broad_settle_locked(struct arena_set *set) {
    const size_t end = broad_reached_locked(set);
    for (size_t slice = set->broad.next; slice < end; slice += MALLOW_CHUNK_SLICES) {
        const unsigned chunk_index = (unsigned)(slice / MALLOW_CHUNK_SLICES);
        const uint32_t clean = broad_clean_locked(set, chunk_index);
        broad_dirty_locked(set, chunk_index, broad_filled(set, slice, clean));
    }
}
