// SPDX-License-Identifier: MIT
// Arena growth: reserving arenas, committing more of them, giving them back. See arena.h.
#include "arena/arena.h"

#include "arena/arena_broad.h"
#include "arena/arena_node.h"
#include "arena/reserve.h"
#include "base/bits.h"
#include "os/os_giant.h"
#include "os/os_pages.h"

enum {
    ARENA_TABLE_ALIGN = 64 << 10,     // the largest page size: parts begin on it
    ARENA_HEADER_BATCH_SLICES = 256,  // headers committed at once: 64 KiB of them
    ARENA_FIRST_STEP_SLICES = 8,      // a small program commits 512 KiB
    ARENA_STEP_SLICES_MAX = MALLOW_CHUNK_SLICES, // what is made free in one call is bounded
    ARENA_SOON_SLICES = 3 * MALLOW_CHUNK_SLICES,  // headers that are not ready so far are urgent
    ARENA_AHEAD_SLICES = 4 * MALLOW_CHUNK_SLICES, // headers are ready so far beyond what is needed
};

#define ARENA_BATCH_BYTES ((size_t)ARENA_HEADER_BATCH_SLICES << MALLOW_SLICE_SHIFT)
#define ARENA_PLACE_BYTES (4 * ARENA_BATCH_BYTES) // the primary arena begins a quarter into so much

static_assert(ARENA_HEADER_BATCH_SLICES * sizeof(struct slab) % ARENA_TABLE_ALIGN == 0,
              "headers are committed in whole pages of any size");

static unsigned arena_chunk_count(size_t slice_count) {
    return (unsigned)(slice_count / MALLOW_CHUNK_SLICES);
}

// Sizes of the parts of one reservation.
struct arena_layout {
    size_t table_bytes;  // the groups of chunks beyond the first
    size_t header_bytes; // and as much again for the remote parts
    size_t total_bytes;  // without the blocks
};

static struct arena_layout arena_layout_of(size_t slice_count) {
    const size_t further = (arena_chunk_count(slice_count) - 1) / CHUNK_GROUP_CHUNKS;
    struct arena_layout layout;
    layout.table_bytes = bits_align_up(further * sizeof(struct chunk_group), ARENA_TABLE_ALIGN);
    layout.header_bytes =
        bits_align_up(slice_count, ARENA_HEADER_BATCH_SLICES) * sizeof(struct slab);
    // A guard before, between and behind the parts.
    layout.total_bytes = layout.table_bytes + 2 * layout.header_bytes + 4 * ARENA_TABLE_ALIGN;
    return layout;
}

// Commits the next batch of remote parts, or the headers that belong to the last one: one call.
static bool arena_commit_header_batch(struct arena *arena, struct os *os,
                                      enum os_charge_level level) {
    const size_t bytes = ARENA_HEADER_BATCH_SLICES * sizeof(struct slab);
    const size_t slot = arena_slot_of(arena, arena->header_slices);
    const bool remotes_first = arena->remote_slices == arena->header_slices;
    const uintptr_t address =
        remotes_first ? (uintptr_t)&arena->remotes[slot] : (uintptr_t)&arena->slabs[slot];
    if (!likely(os_charge_take_freely(&os->charge, bytes)) && !os_charge_take(os, level, bytes)) {
        return false;
    }
    if (!os_commit(os, address, bytes)) {
        os_charge_release(os, bytes);
        return false;
    }
    *(remotes_first ? &arena->remote_slices : &arena->header_slices) += ARENA_HEADER_BATCH_SLICES;
    return true;
}

// Commits headers and remote parts for slices up to `slice_count`.
static bool arena_commit_headers(struct arena *arena, struct os *os, size_t slice_count) {
    while (arena->header_slices < slice_count) {
        if (!arena_commit_header_batch(arena, os, OS_CHARGE_RESERVE)) {
            return false;
        }
    }
    return true;
}

MALLOW_INTERNAL size_t arena_header_charge(const struct arena *arena) {
    return (arena->header_slices + arena->remote_slices) * sizeof(struct slab);
}

MALLOW_INTERNAL size_t arena_group_charge(const struct arena *arena) {
    return arena->map.chunk_count > CHUNK_GROUP_CHUNKS
               ? arena_layout_of(arena->slice_count).table_bytes
               : 0;
}

// Gives back what was reserved beside [start, end).
static void arena_trim_space(struct arena *arena, struct os *os, uintptr_t start, uintptr_t end) {
    if (start > arena->space_address) {
        (void)os_unmap(os, arena->space_address, start - arena->space_address);
    }
    if (end < arena->space_end) {
        (void)os_unmap(os, end, arena->space_end - end);
    }
    arena->space_address = start;
    arena->space_end = end;
}

// Address space for `bytes` of blocks, `base_offset` beyond a multiple of `base_align`, with
// `head_bytes` before it.
static uintptr_t arena_reserve_space(struct arena *arena, struct os *os, size_t head_bytes,
                                     size_t bytes, size_t base_align, size_t base_offset) {
    const size_t total = head_bytes + bytes + base_align;
    const uintptr_t address = os_reserve(os, total, os->page_bytes);
    if (address == 0) {
        return 0;
    }
    const uintptr_t base =
        bits_align_up(address + head_bytes - base_offset, base_align) + base_offset;
    arena->space_address = address;
    arena->space_end = address + total;
    // Of the primary arena, at start, that is two calls for a few megabytes that cost nothing.
    if (os_is_confined(os) || base_align <= MALLOW_CHUNK_BYTES) {
        arena_trim_space(arena, os, base - head_bytes, base + bytes);
    }
    return base;
}

// An arena of blocks from `base` on, of which none is committed.
static void arena_begin(struct arena *arena, uintptr_t base, size_t slice_count) {
    arena->map = (struct chunk_map){
        .more = (struct chunk_group *)(arena->table_address + ARENA_TABLE_ALIGN),
        .chunk_count = (unsigned)bits_min(arena_chunk_count(slice_count), CHUNK_GROUP_CHUNKS),
    };
    arena->base = base;
    arena->slice_count = slice_count;
    arena->limit_slices = slice_count;
    arena->committed_slices = 0;
    arena->mapped_slices = 0;
    arena->free_slices = 0;
}

MALLOW_INTERNAL enum arena_reserved arena_reserve(struct arena *arena, struct os *os, size_t bytes,
                                                  bool masked) {
    const size_t slice_count = bytes >> MALLOW_SLICE_SHIFT;
    const struct arena_layout layout = arena_layout_of(slice_count);
    // Whole batches of headers lie side by side, also where the table wraps round; and where that
    // may be confined, the first few in a part of it that is hardly larger (arena_header_part).
    const bool offset = masked && !os->wants_giant && bytes > ARENA_PLACE_BYTES;
    const size_t base_align = !masked           ? MALLOW_CHUNK_BYTES
                              : os->wants_giant ? OS_GIANT_BYTES
                              : offset          ? ARENA_PLACE_BYTES
                                                : bits_min(bytes, ARENA_BATCH_BYTES);
    const uintptr_t base = arena_reserve_space(arena, os, layout.total_bytes, bytes, base_align,
                                               offset ? ARENA_BATCH_BYTES : 0);
    if (base == 0) {
        return ARENA_NO_SPACE;
    }
    const uintptr_t address = base - layout.total_bytes;
    const uintptr_t tables = address + ARENA_TABLE_ALIGN;
    const uintptr_t headers = tables + layout.table_bytes + ARENA_TABLE_ALIGN;
    const uintptr_t remotes = headers + layout.header_bytes + ARENA_TABLE_ALIGN;
    arena->slabs = (struct slab *)headers;
    arena->header_address = headers;
    arena->header_bytes = slice_count * sizeof(struct slab);
    arena->remotes = (struct slab_remote *)remotes;
    arena->header_slices = 0;
    arena->remote_slices = 0;
    arena->slot_mask = masked ? slice_count - 1 : SIZE_MAX;
    arena->rotation = masked ? (base >> MALLOW_SLICE_SHIFT) & (slice_count - 1) : 0;
    // Every header can be read from the start, as zero, without memory: so any address may be asked
    // about. They become writable in batches.
    const bool readable = os_commit_readable(os, headers, layout.header_bytes);
    if (masked) { // the primary arena's is large, and at start a call more is nothing
        os_leave_undumped(os, arena->space_address, arena->space_end - arena->space_address);
    }
    if (!readable || !arena_commit_headers(arena, os, 1)) {
        (void)os_unmap(os, arena->space_address, arena->space_end - arena->space_address);
        os_charge_release(os, arena_header_charge(arena));
        arena->header_slices = 0;
        arena->remote_slices = 0;
        return ARENA_NO_TABLES;
    }
    arena->table_address = address;
    arena->table_bytes = layout.total_bytes;
    arena->table_slices = slice_count;
    arena_begin(arena, base, slice_count);
    return ARENA_RESERVED;
}

MALLOW_INTERNAL bool arena_reserve_again(struct arena *arena, struct os *os, size_t bytes) {
    const uintptr_t base = arena_reserve_space(arena, os, 0, bytes, MALLOW_CHUNK_BYTES, 0);
    if (base != 0) {
        arena_begin(arena, base, bytes >> MALLOW_SLICE_SHIFT);
    }
    return base != 0;
}

// Commits the chunk map's groups beyond the first, if slices up to `slice_count` need them.
static bool arena_commit_groups(struct arena *arena, struct os *os, size_t slice_count,
                                enum os_charge_level level) {
    if (arena_chunk_count(slice_count + MALLOW_CHUNK_SLICES - 1) <= arena->map.chunk_count) {
        return true;
    }
    const size_t bytes = arena_layout_of(arena->slice_count).table_bytes;
    if (!os_charge_take(os, level, bytes)) {
        return false;
    }
    if (!os_commit(os, (uintptr_t)arena->map.more, bytes)) {
        os_charge_release(os, bytes);
        return false;
    }
    arena->map.chunk_count = arena_chunk_count(arena->slice_count);
    return true;
}

// The slice whose header is in slot 0 of the primary arena stays unused: the address 0 leads to
// that header, and to no other, so that free(NULL) and a slab without a `last` block cannot meet
// (heap_fast.h).
static bool arena_is_barred(const struct arena *arena, size_t slice) {
    return arena->slot_mask != SIZE_MAX && arena_slot_of(arena, slice) == 0;
}

// Where the request fits behind what is committed: within the current chunk or else in the next,
// and not on the slice that is never handed out. (Behind the arena's end slot 0 comes again; of an
// arena of one chunk with every chunk.)
static size_t arena_commit_start(const struct arena *arena, unsigned slice_count,
                                 unsigned align_slices) {
    size_t start = bits_align_up(arena->committed_slices, align_slices);
    for (;;) {
        if (start % MALLOW_CHUNK_SLICES + slice_count > MALLOW_CHUNK_SLICES) {
            start = bits_align_up(start, MALLOW_CHUNK_SLICES);
        }
        if (start >= arena->limit_slices || !arena_is_barred(arena, start)) {
            return start;
        }
        start += align_slices;
    }
}

// How far to commit: in steps that grow with the arena, to `end` at least. Long spans come in whole
// chunks, so that not every one of them needs a call: those between prepare the headers.
static size_t arena_commit_target(const struct arena *arena, size_t end, unsigned slice_count) {
    const size_t committed = arena->committed_slices;
    size_t step = bits_max(ARENA_FIRST_STEP_SLICES, committed / 8);
    if (step >= MALLOW_CHUNK_SLICES) {
        step = bits_align_down(bits_min(step, ARENA_STEP_SLICES_MAX), MALLOW_CHUNK_SLICES);
    }
    // So do all once there are some: then each step makes slices of one chunk free, not of two.
    const size_t unit =
        slice_count > ARENA_FIRST_STEP_SLICES || committed >= ARENA_WHOLE_STEP_SLICES
            ? MALLOW_CHUNK_SLICES
            : ARENA_FIRST_STEP_SLICES;
    const size_t target = bits_align_up(bits_max(end, committed + step), unit);
    return bits_min(target, arena->limit_slices);
}

static uint32_t arena_mask(size_t slice, size_t end) {
    return (uint32_t)(((UINT64_C(1) << (end - slice)) - 1) << (slice % MALLOW_CHUNK_SLICES));
}

// Makes slices [slice, end) of one chunk free, but for those that are taken.
static void arena_open_slices(struct arena *arena, size_t slice, size_t end, uint32_t taken) {
    if (arena_is_barred(arena, slice)) { // slots of a chunk are in order: it is the first of it
        slice++;
    }
    if (slice < end) {
        chunk_map_open(&arena->map, (unsigned)(slice / MALLOW_CHUNK_SLICES),
                       arena_mask(slice, end) & ~taken);
        arena->free_slices += end - slice;
    }
}

// Makes slices up to `target` readable and writable; giant pages are so already. A chunk more than
// that once there are some: so every other growth by a chunk makes no system call, and its caller
// has one to prepare the headers, also where every call grows.
MALLOW_INLINE bool arena_map_blocks(struct arena *arena, struct os *os, size_t target) {
    const size_t first = bits_max(arena->mapped_slices, arena->giant_slices);
    if (first >= target) {
        return !os->sealed || target <= arena->giant_slices;
    }
    const bool whole = arena_goes_by_chunks(arena);
    const size_t more = whole ? MALLOW_CHUNK_SLICES : 0;
    const uintptr_t address = arena->base + (first << MALLOW_SLICE_SHIFT);
    size_t end = bits_max(bits_min(target + more, arena->limit_slices), target);
    if (!os_commit(os, address, (end - first) << MALLOW_SLICE_SHIFT)) {
        end = target; // what is needed may fit below a limit of the kernel's
        if (more == 0 || !os_commit(os, address, (end - first) << MALLOW_SLICE_SHIFT)) {
            return false;
        }
    }
    arena->mapped_slices = end;
    return true;
}

// Whether the last chunk that is committed begins with a large block. A hint: who has taken it
// describes it without the lock.
MALLOW_RACY_READ static bool arena_ends_large(const struct arena *arena) {
    const size_t last = arena->committed_slices - MALLOW_CHUNK_SLICES;
    return likely(arena_goes_by_chunks(arena)) &&
           arena->slabs[arena_slot_of(arena, last)].kind == SLAB_LARGE;
}

// Notes that slices up to `target` are committed. Growth by large blocks has somebody come and look
// sooner, as there are huge pages for what is still to be touched (arena_broad.h).
MALLOW_INLINE void arena_end_commit(struct arena_set *set, struct arena *arena, size_t target) {
    size_t raise_slices = __atomic_load_n(&set->raise_slices, __ATOMIC_RELAXED);
    if (arena_ends_large(arena)) {
        raise_slices -= bits_min(raise_slices, set->raise_step);
        __atomic_store_n(&set->raise_slices, raise_slices, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&arena->committed_slices, target, __ATOMIC_RELEASE);
    if (unlikely(target >= raise_slices)) {
        os_raise(set->os, OS_WORK_GROWN);
    }
}

// Commits slices up to `target`, which are free then, but for `slice_count` from `start` on. Of a
// growth across the end of a chunk only the rest of that one is made free: what the next one has
// beyond the span is mapped, and a later growth has it in a straight line.
static bool arena_commit_to_locked(struct arena_set *set, struct arena *arena, size_t target,
                                   size_t start, unsigned slice_count) {
    const size_t committed = arena->committed_slices;
    if (target <= committed ||
        !arena_commit_groups(arena, set->os, target, OS_CHARGE_RESERVE) ||
        !arena_commit_headers(arena, set->os, target) ||
        !arena_map_blocks(arena, set->os, target)) {
        return false;
    }
    size_t slice = committed;
    size_t chunk_end = (committed | (MALLOW_CHUNK_SLICES - 1)) + 1;
    size_t end = bits_max(start + slice_count, bits_min(target, chunk_end));
    while (start >= chunk_end) {
        arena_open_slices(arena, slice, chunk_end, 0);
        slice = chunk_end;
        chunk_end += MALLOW_CHUNK_SLICES;
        end = start + slice_count;
    }
    if (slice == start && end == start + slice_count) { // of which the span is all
        chunk_map_reach(&arena->map, (unsigned)(slice / MALLOW_CHUNK_SLICES));
    } else {
        arena_open_slices(arena, slice, end, arena_mask(start, start + slice_count));
        arena->free_slices -= slice_count;
    }
    arena_end_commit(set, arena, end);
    return true;
}

// Commits more of the chunk that is committed in part, or the next one, if a request fits there and
// its tables are ready: what nearly all growth is, in a straight line. The slice, or SIZE_MAX:
// nothing done.
MALLOW_INLINE size_t arena_commit_near_locked(struct arena_set *set, struct arena *arena,
                                              unsigned slice_count, unsigned align_slices) {
    const size_t committed = arena->committed_slices;
    const size_t start = bits_align_up(committed, align_slices);
    const size_t chunk_end = (committed | (MALLOW_CHUNK_SLICES - 1)) + 1;
    size_t target = chunk_end;
    if (committed < ARENA_WHOLE_STEP_SLICES && slice_count <= ARENA_FIRST_STEP_SLICES) {
        target = bits_min(target, arena_commit_target(arena, start + slice_count, slice_count));
    }
    if (start + slice_count > target || chunk_end > arena->limit_slices ||
        chunk_end > arena->header_slices ||
        chunk_end > (size_t)arena->map.chunk_count * MALLOW_CHUNK_SLICES ||
        committed < arena->giant_slices || arena_is_barred(arena, committed) ||
        !arena_map_blocks(arena, set->os, target)) {
        return SIZE_MAX;
    }
    const uint32_t taken = chunk_mask_span((unsigned)(start % MALLOW_CHUNK_SLICES), slice_count);
    chunk_map_open(&arena->map, (unsigned)(committed / MALLOW_CHUNK_SLICES),
                   arena_mask(committed, target) & ~taken);
    arena->free_slices += target - committed - slice_count;
    arena_end_commit(set, arena, target);
    return start;
}

// Any other growth.
static MALLOW_NOINLINE bool arena_commit_far_locked(struct arena_set *set, struct arena *arena,
                                                    unsigned slice_count, unsigned align_slices,
                                                    size_t *slice_out) {
    const size_t start = arena_commit_start(arena, slice_count, align_slices);
    const size_t target = arena_commit_target(arena, start + slice_count, slice_count);
    *slice_out = start;
    return start + slice_count <= target &&
           arena_commit_to_locked(set, arena, target, start, slice_count);
}

MALLOW_INTERNAL MALLOW_NO_FOLD bool arena_commit_locked(struct arena_set *set,
                                                        struct arena *arena, unsigned slice_count,
                                                        unsigned align_slices, size_t *slice_out) {
    *slice_out = arena_commit_near_locked(set, arena, slice_count, align_slices);
    return likely(*slice_out != SIZE_MAX) ||
           arena_commit_far_locked(set, arena, slice_count, align_slices, slice_out);
}

MALLOW_INTERNAL MALLOW_NO_FOLD bool arena_commit_ahead_locked(struct arena_set *set,
                                                              struct arena *arena,
                                                              unsigned slice_count,
                                                              unsigned align_slices,
                                                              size_t *slice_out) {
    const uint64_t entries = os_entries(set->os);
    *slice_out = arena_commit_near_locked(set, arena, slice_count, align_slices);
    return likely(*slice_out != SIZE_MAX) ||
           // What the kernel has refused is tried once more for a request alone.
           ((slice_count != 0 || os_entries(set->os) == entries) &&
            arena_commit_far_locked(set, arena, slice_count, align_slices, slice_out));
}

// Headers of whole batches, which lie side by side; the header of slot 0, which free(NULL) reads;
// and groups of the chunk map.
static bool arena_bring_in_tables(const struct arena *arena, bool *locked) {
    const size_t chunks =
        bits_max(arena_chunk_count(arena->committed_slices + MALLOW_CHUNK_SLICES - 1), 1);
    const size_t groups = (chunks - 1) / CHUNK_GROUP_CHUNKS;
    bool in = groups == 0 || os_bring_in((uintptr_t)arena->map.more,
                                         groups * sizeof(struct chunk_group), locked);
    for (size_t slice = 0; slice < arena->header_slices; slice += ARENA_HEADER_BATCH_SLICES) {
        const size_t slot = arena_slot_of(arena, slice);
        const size_t bytes = ARENA_HEADER_BATCH_SLICES * sizeof(struct slab);
        in = os_bring_in((uintptr_t)&arena->slabs[slot], bytes, locked) &&
             os_bring_in((uintptr_t)&arena->remotes[slot], bytes, locked) && in;
    }
    (void)*(const volatile char *)arena->slabs;
    return in;
}

// What lies beyond is only readable: where a look-up has read, that is the kernel's page of zeros,
// which is in core, and nobody's.
MALLOW_INTERNAL uint64_t arena_tables_resident(const struct arena *arena, const struct os *os) {
    const size_t batch_bytes = ARENA_HEADER_BATCH_SLICES * sizeof(struct slab);
    uint64_t bytes = os_resident(os, (uintptr_t)arena->map.more, arena_group_charge(arena));
    for (size_t slice = 0; slice < arena->remote_slices; slice += ARENA_HEADER_BATCH_SLICES) {
        const size_t slot = arena_slot_of(arena, slice);
        bytes += os_resident(os, (uintptr_t)&arena->remotes[slot], batch_bytes);
        if (slice < arena->header_slices) {
            bytes += os_resident(os, (uintptr_t)&arena->slabs[slot], batch_bytes);
        }
    }
    return bytes;
}

MALLOW_INTERNAL void arena_set_apart_locked(struct arena_set *set, struct reserve *reserve,
                                            unsigned chunk_index) {
    struct arena *const arena = &set->primary;
    const uint32_t free = chunk_map_chunk(&arena->map, chunk_index)->free_mask;
    for (uint32_t left = free; left != 0;) {
        const unsigned first = bits_lowest(left);
        const unsigned count = bits_lowest(~((uint64_t)left >> first));
        const unsigned dirty = chunk_map_dirty(&arena->map, chunk_index, first, count);
        chunk_map_take(&arena->map, chunk_index, first, count);
        arena_less_dirty_locked(set, dirty);
        arena->free_slices -= count;
        if (!arena_is_giant(arena, chunk_index)) { // giant pages are charged already
            os_charge_add(set->os, (size_t)(count - dirty) << MALLOW_SLICE_SHIFT);
        }
        left &= ~chunk_mask_span(first, count);
    }
    reserve_add(reserve, chunk_index, free);
}

MALLOW_INTERNAL size_t arena_set_fix(struct arena_set *set, size_t bytes, struct reserve *reserve,
                                     bool *locked) {
    struct arena *const arena = &set->primary;
    const size_t most = arena->slice_count << MALLOW_SLICE_SHIFT;
    const size_t target =
        bits_align_up(bits_min(bytes, most), MALLOW_SLICE_BYTES) >> MALLOW_SLICE_SHIFT;
    const size_t limit = bits_max(target, arena->committed_slices) / MALLOW_CHUNK_SLICES + 1;
    if (!reserve_make(reserve, set, limit)) {
        return 0;
    }
    os_lock_take(&set->lock);
    bool in = target <= arena->committed_slices ||
              arena_commit_to_locked(set, arena, target, target, 0);
    const size_t committed = arena->committed_slices << MALLOW_SLICE_SHIFT;
    in = in && os_bring_in(arena->base, committed, locked) && arena_bring_in_tables(arena, locked);
    for (size_t chunk = 0; chunk < limit && chunk << MALLOW_CHUNK_SHIFT < committed; chunk++) {
        arena_set_apart_locked(set, reserve, (unsigned)chunk);
    }
    in = in && os_bring_in((uintptr_t)set->reserved, limit * sizeof *set->reserved, locked);
    os_lock_drop(&set->lock);
    return in ? committed : 0;
}

// Twice as far ahead as the headers, which are prepared first.
static bool arena_has_groups(const struct arena *arena) {
    return arena_chunk_count(bits_min(arena->committed_slices + 2 * ARENA_AHEAD_SLICES,
                                      arena->slice_count)) <= arena->map.chunk_count;
}

static bool arena_has_headers(const struct arena *arena) {
    return arena->header_slices >=
           bits_min(arena->committed_slices + ARENA_AHEAD_SLICES, arena->limit_slices);
}

MALLOW_INTERNAL bool arena_is_prepared(const struct arena *arena) {
    return arena_has_headers(arena) && arena_has_groups(arena);
}

MALLOW_INTERNAL uint8_t arena_lacks_tables(const struct arena *arena) {
    const size_t soon = arena->committed_slices + ARENA_SOON_SLICES;
    return arena->header_slices < bits_min(soon, arena->limit_slices) ? ARENA_SHORT_TABLES
                                                                      : ARENA_LOW_TABLES;
}

MALLOW_INTERNAL bool arena_has_ahead(const struct arena *arena) {
    return chunk_map_has(&arena->map, arena_rows_ahead(arena)) ||
           arena->committed_slices == arena->limit_slices;
}

MALLOW_INTERNAL bool arena_prepare_locked(struct arena_set *set, struct arena *arena) {
    size_t slice;
    return !arena_has_headers(arena)
               ? arena_commit_header_batch(arena, set->os, OS_CHARGE_SOFT)
           : !arena_has_groups(arena)
               ? arena_commit_groups(arena, set->os, arena->slice_count, OS_CHARGE_SOFT)
               : arena_commit_ahead_locked(set, arena, 0, 1, &slice);
}

MALLOW_INTERNAL size_t arena_decommit_locked(struct arena_set *set, struct arena *arena) {
    if (set->os->sealed) {
        return 0;
    }
    // Down to the last slice that is in use, or on a giant page.
    size_t end = arena->committed_slices;
    while (end > arena->giant_slices) {
        const size_t slice = end - 1;
        const struct chunk *const chunk =
            chunk_map_chunk(&arena->map, (unsigned)(slice / MALLOW_CHUNK_SLICES));
        if (((chunk->free_mask >> (slice % MALLOW_CHUNK_SLICES)) & 1U) == 0) {
            break;
        }
        end--;
    }
    const size_t count = arena->committed_slices - bits_min(end, arena->committed_slices);
    const size_t mapped = bits_max(arena->mapped_slices, arena->committed_slices);
    if (count == 0 || !os_decommit(set->os, arena->base + (end << MALLOW_SLICE_SHIFT),
                                   (mapped - end) << MALLOW_SLICE_SHIFT)) {
        return 0;
    }
    arena->mapped_slices = end;
    size_t dirty_count = 0;
    for (size_t slice = end; slice < arena->committed_slices; slice++) {
        arena_split_locked(set, arena->base + (slice << MALLOW_SLICE_SHIFT));
        const unsigned chunk_index = (unsigned)(slice / MALLOW_CHUNK_SLICES);
        const unsigned slice_index = (unsigned)(slice % MALLOW_CHUNK_SLICES);
        dirty_count += chunk_map_dirty(&arena->map, chunk_index, slice_index, 1);
        chunk_map_take(&arena->map, chunk_index, slice_index, 1);
    }
    arena_less_dirty_locked(set, dirty_count);
    if (arena == &set->primary) {
        arena_node_decommitted_locked(set, end);
        arena_broad_cut_locked(set, end);
    }
    os_charge_release(set->os, dirty_count << MALLOW_SLICE_SHIFT);
    arena->free_slices -= count;
    __atomic_store_n(&arena->committed_slices, end, __ATOMIC_RELEASE);
    return count << MALLOW_SLICE_SHIFT;
}

MALLOW_INTERNAL void arena_set_share(struct arena_set *set, size_t limit) {
    set->secondary_bytes = bits_max(
        bits_align_down(bits_min(MALLOW_SECONDARY_ARENA_BYTES, limit / 16), MALLOW_CHUNK_BYTES),
        2 * MALLOW_ARENA_BYTES_MIN);
}

// Of a table, what lies in [from, to), but for a batch at either end: nothing else is to lie beside
// what is in use.
static void arena_unmap_slots(struct os *os, uintptr_t from, uintptr_t to) {
    const size_t bytes = ARENA_HEADER_BATCH_SLICES * sizeof(struct slab);
    if (to > from && to - from > 2 * bytes) {
        (void)os_unmap(os, from + bytes, to - from - 2 * bytes);
    }
}

static void arena_unmap_remotes(const struct arena *arena, struct os *os, size_t first,
                                size_t end) {
    arena_unmap_slots(os, (uintptr_t)&arena->remotes[first], (uintptr_t)&arena->remotes[end]);
}

MALLOW_INTERNAL void arena_confine(struct arena_set *set, size_t limit) {
    struct arena *const arena = &set->primary;
    os_lock_take(&set->lock);
    arena_set_share(set, limit);
    if (arena->slice_count != 0) {
        arena_trim_space(arena, set->os, arena->table_address,
                         arena->base + (arena->slice_count << MALLOW_SLICE_SHIFT));
    }
    const size_t used = bits_align_up(bits_max(arena->committed_slices, arena->giant_slices),
                                      MALLOW_CHUNK_SLICES);
    const size_t share = bits_align_down(limit / 16, MALLOW_CHUNK_BYTES) >> MALLOW_SLICE_SHIFT;
    const size_t end = bits_max(used, share);
    const size_t before = arena->limit_slices;
    if (arena->slice_count != 0 && end < before) {
        // First: what comes to lie there is not the primary arena's.
        __atomic_store_n(&arena->limit_slices, end, __ATOMIC_SEQ_CST);
        arena->mapped_slices = bits_min(arena->mapped_slices, end);
        (void)os_unmap(set->os, arena->base + (end << MALLOW_SLICE_SHIFT),
                       (before - end) << MALLOW_SLICE_SHIFT);
        // Parts are needed up to `end`, the table wraps round, and once is enough.
        const size_t needed = bits_align_up(bits_max(end, arena->remote_slices),
                                            ARENA_HEADER_BATCH_SLICES);
        if (before == arena->slice_count && needed < arena->slice_count) {
            const size_t first = arena_slot_of(arena, needed);
            const size_t last = arena->rotation;
            if (first < last) {
                arena_unmap_remotes(arena, set->os, first, last);
            } else {
                arena_unmap_remotes(arena, set->os, first, arena->slice_count);
                arena_unmap_remotes(arena, set->os, 0, last);
            }
        }
    }
    os_lock_drop(&set->lock);
}

MALLOW_INTERNAL void arena_unconfine(struct arena_set *set, size_t limit) {
    os_lock_take(&set->lock);
    arena_set_share(set, limit);
    os_lock_drop(&set->lock);
}

MALLOW_INTERNAL struct arena_part arena_header_part(const struct arena *arena) {
    const size_t in_use =
        bits_align_up(bits_max(arena->limit_slices,
                               bits_max(arena->header_slices, arena->remote_slices)),
                      ARENA_HEADER_BATCH_SLICES);
    const size_t whole = arena->header_bytes / sizeof(struct slab);
    for (size_t count = 2 * ARENA_HEADER_BATCH_SLICES; count < whole; count *= 2) {
        const size_t before = arena->rotation & (count - 1);
        // The first slot is what the address 0 leads to (arena_is_barred).
        if (before != 0 && before + in_use <= count) {
            return (struct arena_part){arena->rotation - before, count};
        }
    }
    return (struct arena_part){0, 0};
}

MALLOW_INTERNAL void arena_cut_headers(struct arena_set *set, struct arena_part part) {
    struct arena *const arena = &set->primary;
    const uintptr_t from = arena->header_address;
    const uintptr_t to = from + arena->header_bytes;
    arena->header_address = (uintptr_t)&arena->slabs[part.first];
    arena->header_bytes = part.count * sizeof(struct slab);
    arena_unmap_slots(set->os, from, arena->header_address);
    arena_unmap_slots(set->os, arena->header_address + arena->header_bytes, to);
}
