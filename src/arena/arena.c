// SPDX-License-Identifier: MIT
// Arena: taking and giving spans. See arena.h.
#include "arena/arena.h"

#include <limits.h>

#include "arena/arena_broad.h"
#include "arena/arena_node.h"
#include "arena/reserve.h"
#include "base/bits.h"

MALLOW_INTERNAL void arena_set_init(struct arena_set *set, struct os *os, struct meta *meta,
                                    struct address_map *map, size_t reserve_bytes) {
    set->os = os;
    set->meta = meta;
    set->map = map;
    set->raise_slices = SIZE_MAX;
    // Little address space: leave it to the program, and make arenas that can be given back.
    reserve_bytes = bits_min(reserve_bytes, os->address_space_limit / 16);
    arena_set_share(set, os->address_space_limit);
    reserve_bytes = bits_min(reserve_bytes, MALLOW_ARENA_BYTES_MAX);
    if (reserve_bytes < MALLOW_ARENA_BYTES_MIN) {
        reserve_bytes = MALLOW_ARENA_BYTES_MIN;
    }
    // A power of two, so that the fast path can mask.
    reserve_bytes = (size_t)1 << bits_highest(reserve_bytes);
    while (reserve_bytes >= MALLOW_ARENA_BYTES_MIN &&
           arena_reserve(&set->primary, os, reserve_bytes, true) != ARENA_RESERVED) {
        reserve_bytes /= 2;
    }
}

MALLOW_INTERNAL struct arena *arena_of(const struct arena_set *set, uintptr_t address) {
    const struct arena *arena = &set->primary;
    if (!arena_is_in_primary(set, address)) {
        const uintptr_t entry = address_map_get(set->map, address);
        if ((entry & 1) == 0) {
            return NULL;
        }
        arena = (const struct arena *)(entry & ~(uintptr_t)1);
    }
    const size_t committed = __atomic_load_n(&arena->committed_slices, __ATOMIC_ACQUIRE);
    if (address - arena->base >= committed << MALLOW_SLICE_SHIFT) {
        return NULL;
    }
    return (struct arena *)(uintptr_t)arena;
}

// The arena that a slab's header slot belongs to.
static struct arena *arena_of_slab(const struct arena_set *set, const struct slab *slab,
                                   uintptr_t address) {
    if (arena_has_slab(&set->primary, slab)) {
        return (struct arena *)(uintptr_t)&set->primary;
    }
    return arena_of(set, address);
}

MALLOW_INTERNAL struct slab_remote *arena_remote_of(const struct arena_set *set,
                                                    const struct slab *slab) {
    const struct arena *arena = &set->primary;
    if (unlikely(!arena_has_slab(arena, slab))) {
        arena = arena_of(set, slab->start_address);
    }
    return &arena->remotes[slab - arena->slabs];
}

MALLOW_INTERNAL const struct slab_remote *arena_remote_at(const struct arena_set *set,
                                                          const struct slab *slab,
                                                          uintptr_t address) {
    const struct arena *const arena = arena_of_slab(set, slab, address);
    return likely(arena != NULL && arena_has_slab(arena, slab))
               ? &arena->remotes[slab - arena->slabs]
               : NULL;
}

// Notes whether little is left that the next spans could be taken from without a system call.
MALLOW_INLINE void arena_set_low_locked(struct arena_set *set) {
    const struct arena *const arena = &set->primary;
    const uint8_t low = arena->slice_count == 0 || set->os->sealed ? ARENA_NOT_LOW
                        : !arena_is_prepared(arena)                ? arena_lacks_tables(arena)
                        : !arena_has_ahead(arena)                  ? ARENA_LOW_SLICES
                                                                   : ARENA_NOT_LOW;
    if (unlikely(low != set->low)) {
        __atomic_store_n(&set->low, low, __ATOMIC_RELAXED);
    }
}

static void arena_take_at_locked(struct arena_set *set, struct arena *arena,
                                 struct chunk_place place, unsigned slice_count,
                                 unsigned dirty_count) {
    chunk_map_take(&arena->map, place.chunk_index, place.slice_index, slice_count);
    if (dirty_count != 0) {
        arena_less_dirty_locked(set, dirty_count);
    }
    arena->free_slices -= slice_count;
}

MALLOW_INLINE void arena_span_set(const struct arena *arena, unsigned chunk_index,
                                  unsigned slice_index, unsigned dirty_count,
                                  struct arena_span *span) {
    const size_t slice = (size_t)chunk_index * MALLOW_CHUNK_SLICES + slice_index;
    span->slab = &arena->slabs[arena_slot_of(arena, slice)];
    span->address = arena->base + (slice << MALLOW_SLICE_SHIFT);
    span->zeroed = dirty_count == 0 && !arena_is_giant(arena, chunk_index);
}

// Charges free slices whose pages are not there, unless they are on giant pages.
MALLOW_INLINE bool arena_charge_clean_locked(struct arena_set *set, const struct arena *arena,
                                             unsigned chunk_index, unsigned clean_count,
                                             enum os_charge_level level) {
    const size_t bytes = (size_t)clean_count << MALLOW_SLICE_SHIFT;
    return clean_count == 0 || unlikely(arena_is_giant(arena, chunk_index)) ||
           likely(os_charge_take_freely(&set->os->charge, bytes)) ||
           os_charge_take(set->os, level, bytes);
}

// Free slices that have their pages still are charged already; the others are now. *dirty_count:
// how many do.
static bool arena_charge_locked(struct arena_set *set, const struct arena *arena,
                                struct chunk_place place, unsigned slice_count,
                                enum os_charge_level level, unsigned *dirty_count) {
    *dirty_count =
        chunk_map_dirty(&arena->map, place.chunk_index, place.slice_index, slice_count);
    return arena_charge_clean_locked(set, arena, place.chunk_index, slice_count - *dirty_count,
                                     level);
}

MALLOW_INTERNAL void arena_prepare(struct arena_set *set) {
    os_lock_take(&set->lock);
    const bool tried = set->low && !set->os->sealed;
    const bool done = tried && arena_prepare_locked(set, &set->primary);
    arena_set_low_locked(set);
    if (tried && !done) { // not again before the next span is taken
        __atomic_store_n(&set->low, ARENA_NOT_LOW, __ATOMIC_RELAXED);
    }
    os_lock_drop(&set->lock);
}

static const struct arena_span arena_no_span = {.slab = NULL};

// Of free slices that have been taken: charges them. False: refused, and they are free again.
MALLOW_INLINE bool arena_end_take_locked(struct arena_set *set, struct arena *arena,
                                         unsigned slice_count, const struct chunk_taken *taken,
                                         enum os_charge_level level, struct arena_span *span) {
    if (unlikely(!arena_charge_clean_locked(set, arena, taken->chunk_index,
                                            slice_count - taken->dirty_count, level))) {
        chunk_map_untake(&arena->map, slice_count, taken);
        *span = arena_no_span;
        span->refused = true;
        return false;
    }
    if (taken->dirty_count != 0) {
        arena_less_dirty_locked(set, taken->dirty_count);
    }
    arena->free_slices -= slice_count;
    arena_span_set(arena, taken->chunk_index, taken->slice_index, taken->dirty_count, span);
    span->refused = false;
    span->grown = false;
    return true;
}

// Takes free slices of the primary arena; false: there are none that fit, and nothing is said in
// *span. True also where the charge is refused, which no other arena can help.
MALLOW_INLINE bool arena_take_free_locked(struct arena_set *set, unsigned slice_count,
                                          unsigned align_slices, enum os_charge_level level,
                                          struct arena_span *span) {
    struct arena *const arena = &set->primary;
    struct chunk_taken taken;
    if (unlikely(!chunk_map_find_and_take(&arena->map, slice_count, align_slices, &taken))) {
        return false;
    }
    if (likely(arena_end_take_locked(set, arena, slice_count, &taken, level, span)) &&
        unlikely(taken.emptied) && set->low == ARENA_NOT_LOW && arena_lacks_ahead(arena) &&
        !set->os->sealed) {
        __atomic_store_n(&set->low, ARENA_LOW_SLICES, __ATOMIC_RELAXED);
    }
    return true;
}

// The same of any arena, where that is done seldom.
static MALLOW_NOINLINE bool arena_take_elsewhere_locked(struct arena_set *set, struct arena *arena,
                                                        unsigned slice_count,
                                                        unsigned align_slices,
                                                        enum os_charge_level level,
                                                        struct arena_span *span) {
    struct chunk_taken taken;
    if (!chunk_map_take_elsewhere(&arena->map, slice_count, align_slices, &taken)) {
        return false;
    }
    (void)arena_end_take_locked(set, arena, slice_count, &taken, level, span);
    return true;
}

// What arena_take_into was asked for.
struct arena_request {
    unsigned slice_count;
    unsigned align_slices;
    enum os_charge_level level;
};

// Commits more of `arena` for a span, which is charged first.
MALLOW_INLINE bool arena_take_grown_locked(struct arena_set *set, struct arena *arena,
                                           const struct arena_request *request,
                                           struct arena_span *span, bool seldom) {
    size_t bytes = (size_t)request->slice_count << MALLOW_SLICE_SHIFT;
    size_t slice = 0;
    if (arena->slice_count == 0) {
        return false;
    }
    if (unlikely(arena->committed_slices + 2 * MALLOW_CHUNK_SLICES <= arena->giant_slices)) {
        bytes = 0; // wherever it comes to lie it is on a giant page, which is charged already
    }
    if (!likely(os_charge_take_freely(&set->os->charge, bytes)) &&
        !os_charge_take(set->os, request->level, bytes)) {
        span->refused = true;
        return true;
    }
    if (!(seldom ? arena_commit_ahead_locked(set, arena, request->slice_count,
                                             request->align_slices, &slice)
                 : arena_commit_locked(set, arena, request->slice_count, request->align_slices,
                                       &slice))) {
        os_charge_release(set->os, bytes);
        return false;
    }
    if (unlikely(slice < arena->giant_slices)) {
        os_charge_release(set->os, bytes);
    }
    arena_set_low_locked(set);
    span->slab = &arena->slabs[arena_slot_of(arena, slice)];
    span->address = arena->base + (slice << MALLOW_SLICE_SHIFT);
    span->zeroed = true;
    span->grown = true;
    arena_node_learn_locked(set);
    if (unlikely(set->nodes != NULL) && arena == &set->primary) {
        arena_node_taken_locked(set, (unsigned)(slice / MALLOW_CHUNK_SLICES), arena_node_mark(set));
    }
    return true;
}

// The same, where that is done seldom.
static MALLOW_NOINLINE bool arena_take_grown_elsewhere_locked(struct arena_set *set,
                                                              struct arena *arena,
                                                              const struct arena_request *request,
                                                              struct arena_span *span) {
    return arena_take_grown_locked(set, arena, request, span, true);
}

// The same in the primary arena of a machine with several nodes: a span of the caller's node, else
// a new one. False: there is neither.
static MALLOW_NOINLINE bool arena_take_near_locked(struct arena_set *set,
                                                   const struct arena_request *request,
                                                   struct arena_span *span) {
    struct arena *const arena = &set->primary;
    const uint8_t mark = arena_node_mark(set);
    const struct chunk_place place =
        arena_node_find_locked(set, request->slice_count, request->align_slices, mark);
    if (!place.found) {
        (void)arena_take_grown_elsewhere_locked(set, arena, request, span);
        span->refused = false; // what other nodes have left is charged already
        return span->slab != NULL;
    }
    unsigned dirty_count;
    if (arena_charge_locked(set, arena, place, request->slice_count, request->level,
                            &dirty_count)) {
        arena_take_at_locked(set, arena, place, request->slice_count, dirty_count);
        arena_span_set(arena, place.chunk_index, place.slice_index, dirty_count, span);
        arena_node_taken_locked(set, place.chunk_index, mark);
    }
    return span->slab != NULL;
}

static MALLOW_NOINLINE void arena_take_secondary_locked(struct arena_set *set,
                                                        const struct arena_request *request,
                                                        struct arena_span *span) {
    for (struct arena *arena = set->secondary; arena != NULL; arena = arena->next) {
        if (arena_take_elsewhere_locked(set, arena, request->slice_count, request->align_slices,
                                        request->level, span) ||
            (arena->committed_slices + request->slice_count <= arena->limit_slices &&
             arena_take_grown_elsewhere_locked(set, arena, request, span))) {
            return;
        }
    }
    struct arena *const added = arena_add_locked(set);
    if (added != NULL) {
        (void)arena_take_grown_elsewhere_locked(set, added, request, span);
    }
}

// A span where no free slices of the primary arena will do, or where its nodes are told apart.
static MALLOW_NOINLINE void arena_take_otherwise_locked(struct arena_set *set,
                                                        const struct arena_request *request,
                                                        struct arena_span *span) {
    *span = arena_no_span;
    if (unlikely(set->nodes != NULL)) {
        if (arena_take_near_locked(set, request, span) || // of the caller's own node
            arena_take_elsewhere_locked(set, &set->primary, request->slice_count,
                                        request->align_slices, request->level, span)) {
            return;
        }
    }
    if (!arena_take_grown_locked(set, &set->primary, request, span, false)) {
        arena_take_secondary_locked(set, request, span);
    }
}

MALLOW_INTERNAL void arena_take_into(struct arena_set *set, unsigned slice_count,
                                     unsigned align_slices, enum os_charge_level level,
                                     struct arena_span *span) {
    os_lock_take_here(&set->lock);
    if (unlikely(set->nodes != NULL) ||
        unlikely(!arena_take_free_locked(set, slice_count, align_slices, level, span))) {
        const struct arena_request request = {slice_count, align_slices, level};
        arena_take_otherwise_locked(set, &request, span);
    }
    os_lock_drop_here(&set->lock);
}

// The span is free, so nobody else touches its pages; with the lock held nobody takes it meanwhile.
MALLOW_INTERNAL size_t arena_purge_span_locked(struct arena_set *set, struct arena *arena,
                                               unsigned chunk_index, unsigned slice_index,
                                               unsigned slice_count) {
    const size_t slice = (size_t)chunk_index * MALLOW_CHUNK_SLICES + slice_index;
    const size_t bytes = (size_t)slice_count << MALLOW_SLICE_SHIFT;
    const uintptr_t address = arena->base + (slice << MALLOW_SLICE_SHIFT);
    if (!os_purge(set->os, address, bytes)) {
        return 0;
    }
    arena_split_locked(set, address);
    chunk_map_clean(&arena->map, chunk_index, slice_index, slice_count);
    if (arena == &set->primary) {
        arena_node_cleaned_locked(set, chunk_index);
    }
    arena_less_dirty_locked(set, slice_count);
    os_charge_release(set->os, bytes);
    atomic_fetch_add_explicit(&set->purged_bytes, bytes, memory_order_relaxed);
    return bytes;
}

// The arena of a header slot, whatever it says.
static struct arena *arena_of_slot_locked(struct arena_set *set, const struct slab *slab) {
    struct arena *arena = &set->primary;
    if (likely(arena_has_slab(arena, slab))) {
        return arena;
    }
    for (struct arena *other = set->secondary; !arena_has_slab(arena, slab) && other != NULL;
         other = other->next) {
        arena = other;
    }
    return arena;
}

static void arena_set_debt_locked(struct arena_set *set, size_t bytes) {
    __atomic_store_n(&set->debt_bytes, bytes, __ATOMIC_RELAXED);
}

// Free pages may fill half of the room below the soft limit: what is more is owed.
static MALLOW_NOINLINE void arena_owe_beyond_slow_locked(struct arena_set *set) {
    const size_t dirty_bytes = set->dirty_slices << MALLOW_SLICE_SHIFT;
    const size_t allowed = os_charge_room(set->os, dirty_bytes) / 2;
    if (unlikely(dirty_bytes > allowed) && dirty_bytes - allowed > set->debt_bytes) {
        arena_set_debt_locked(set, dirty_bytes - allowed);
    }
}
MALLOW_INLINE void arena_owe_beyond_room_locked(struct arena_set *set) {
    if (unlikely(os_charge_is_capped(&set->os->charge))) {
        arena_owe_beyond_slow_locked(set);
    }
}

// After a span has been given back to the map.
MALLOW_INLINE void arena_end_give_locked(struct arena_set *set, struct arena *arena,
                                         unsigned slice_count, bool dirty) {
    arena->free_slices += slice_count;
    arena_set_dirty_locked(set, set->dirty_slices + (dirty ? slice_count : 0));
    arena_owe_beyond_room_locked(set);
    if (set->dirty_slices > MALLOW_WORK_BYTES >> MALLOW_SLICE_SHIFT) {
        os_raise_work(set->os);
    }
}

static void arena_set_late_locked(struct arena_set *set, struct slab *late,
                                  unsigned late_slices) {
    __atomic_store_n(&set->late, late, __ATOMIC_RELAXED);
    __atomic_store_n(&set->late_slices, late_slices, __ATOMIC_RELAXED);
}

// Slots in which nothing begins: a span's length is kept where a slab has its room, and which one
// is next where a slab has its queue.
static MALLOW_NOINLINE void arena_put_off_locked(struct arena_set *set, struct slab *slab,
                                                 unsigned slice_count) {
    slab->room_count = (uint16_t)slice_count;
    slab->next = set->late;
    arena_set_late_locked(set, slab, set->late_slices + slice_count);
}

MALLOW_INTERNAL void arena_give(struct arena_set *set, struct slab *slab, unsigned slice_count) {
    struct reserve_chunk *const reserved = reserve_chunk_of(set, slab);
    if (unlikely(reserved != NULL)) {
        const size_t first = arena_slice_of(&set->primary, slab) % MALLOW_CHUNK_SLICES;
        reserve_give(reserved, chunk_mask_span((unsigned)first, slice_count));
        return;
    }
    os_lock_take_here(&set->lock);
    if (unlikely(slab == set->visited)) {
        arena_put_off_locked(set, slab, slice_count);
        os_lock_drop_here(&set->lock);
        return;
    }
    struct arena *const arena = arena_of_slot_locked(set, slab);
    const size_t slice = arena_slice_of(arena, slab);
    const unsigned chunk_index = (unsigned)(slice / MALLOW_CHUNK_SLICES);
    const bool dirty = !arena_is_giant(arena, chunk_index);
    chunk_map_give(&arena->map, chunk_index, (unsigned)(slice % MALLOW_CHUNK_SLICES), slice_count,
                   dirty);
    arena_end_give_locked(set, arena, slice_count, dirty);
    os_lock_drop_here(&set->lock);
}

MALLOW_INTERNAL MALLOW_NOINLINE void arena_put_off(struct arena_set *set, struct slab *slab,
                                                   unsigned slice_count) {
    if (unlikely(reserve_chunk_of(set, slab) != NULL) ||
        __atomic_load_n(&set->late_slices, __ATOMIC_RELAXED) + slice_count > ARENA_LATE_SLICES) {
        arena_give(set, slab, slice_count);
        return;
    }
    os_lock_take_here(&set->lock);
    arena_put_off_locked(set, slab, slice_count);
    os_lock_drop_here(&set->lock);
}

MALLOW_INTERNAL MALLOW_NOINLINE bool arena_give_late(struct arena_set *set) {
    os_lock_take_here(&set->lock);
    struct slab *const slab = set->late;
    const bool gives = slab != NULL && slab != set->visited;
    if (gives) {
        struct arena *const arena = arena_of_slot_locked(set, slab);
        const size_t slice = arena_slice_of(arena, slab);
        const unsigned chunk_index = (unsigned)(slice / MALLOW_CHUNK_SLICES);
        const bool dirty = !arena_is_giant(arena, chunk_index);
        arena_set_late_locked(set, slab->next, set->late_slices - slab->room_count);
        chunk_map_give_elsewhere(&arena->map, chunk_index,
                                 (unsigned)(slice % MALLOW_CHUNK_SLICES), slab->room_count, dirty);
        arena_end_give_locked(set, arena, slab->room_count, dirty);
    }
    os_lock_drop_here(&set->lock);
    return gives;
}

MALLOW_INTERNAL MALLOW_NOINLINE void arena_give_late_all(struct arena_set *set) {
    while (arena_is_late(set) && arena_give_late(set)) {
    }
}

MALLOW_INTERNAL size_t arena_owe(struct arena_set *set, size_t bytes) {
    os_lock_take(&set->lock);
    const size_t more = bytes - bits_min(bytes, set->debt_bytes);
    arena_set_debt_locked(set, set->debt_bytes + more);
    os_lock_drop(&set->lock);
    return more;
}

MALLOW_INTERNAL size_t arena_take_debt(struct arena_set *set) {
    if (__atomic_load_n(&set->debt_bytes, __ATOMIC_RELAXED) == 0) {
        return 0;
    }
    os_lock_take_patiently(&set->lock);
    const size_t debt = set->debt_bytes;
    arena_set_debt_locked(set, 0);
    os_lock_drop(&set->lock);
    return debt;
}

MALLOW_INTERNAL bool arena_extend(struct arena_set *set, struct slab *slab, unsigned slice_count,
                                  unsigned more_slices) {
    struct arena *const arena = arena_of_slab(set, slab, slab->start_address);
    const size_t slice = arena_slice_of(arena, slab);
    const unsigned chunk_index = (unsigned)(slice / MALLOW_CHUNK_SLICES);
    const unsigned next = (unsigned)(slice % MALLOW_CHUNK_SLICES) + slice_count;
    if (next + more_slices > MALLOW_CHUNK_SLICES || slab_is_head(&slab[slice_count])) {
        return false; // without the lock where another span begins
    }
    const uint32_t wanted = chunk_mask_span(next, more_slices);
    struct reserve_chunk *const reserved = reserve_chunk_of(set, slab);
    if (unlikely(reserved != NULL)) {
        return reserve_extend(reserved, wanted);
    }
    os_lock_take(&set->lock);
    const struct chunk_place place = {.chunk_index = chunk_index, .slice_index = next};
    unsigned dirty_count;
    const bool fits =
        (chunk_map_chunk(&arena->map, chunk_index)->free_mask & wanted) == wanted &&
        arena_charge_locked(set, arena, place, more_slices, OS_CHARGE_SOFT, &dirty_count);
    if (fits) {
        arena_take_at_locked(set, arena, place, more_slices, dirty_count);
    }
    os_lock_drop(&set->lock);
    return fits;
}

// Purges the run of dirty slices of a chunk that ends with slice `last`; *first is where it begins.
MALLOW_INLINE size_t arena_purge_run_locked(struct arena_set *set, struct arena *arena,
                                            unsigned chunk_index, unsigned last, unsigned *first) {
    const uint32_t clean_below = ~chunk_map_chunk(&arena->map, chunk_index)->dirty_mask &
                                 (uint32_t)((UINT64_C(1) << last) - 1);
    *first = clean_below != 0 ? bits_highest(clean_below) + 1 : 0;
    return arena_purge_span_locked(set, arena, chunk_index, *first, last - *first + 1);
}

// What the kernel refuses one run it refuses most: pages are locked, or a filter forbids it.
#define ARENA_PURGE_REFUSALS_MOST 8U

// Purges dirty slices, from above, until `bytes` are released, or the kernel has refused so often:
// a run a system call.
static size_t arena_purge_locked(struct arena_set *set, struct arena *arena, size_t bytes,
                                 unsigned refusals) {
    size_t released = 0;
    unsigned end = UINT_MAX;
    unsigned chunk_index;
    while (!set->os->sealed && released < bytes && refusals != 0 &&
           chunk_map_last(&arena->map, CHUNK_MAP_DIRTY_ROW, end, &chunk_index)) {
        uint32_t dirty = chunk_map_chunk(&arena->map, chunk_index)->dirty_mask;
        while (dirty != 0 && released < bytes && refusals != 0) {
            unsigned first;
            const size_t purged =
                arena_purge_run_locked(set, arena, chunk_index, bits_highest(dirty), &first);
            refusals -= purged == 0;
            released += purged;
            dirty &= (uint32_t)((UINT64_C(1) << first) - 1);
        }
        end = chunk_index;
    }
    return released;
}

// Purges the highest run, as spans are taken from below: that of the span given last is often the
// one that is taken next, and each pair of a malloc and a free would make a system call. 0: nothing
// done.
static size_t arena_purge_step_locked(struct arena_set *set) {
    struct arena *arena = set->secondary;
    unsigned chunk_index;
    while (arena != NULL &&
           !chunk_map_last(&arena->map, CHUNK_MAP_DIRTY_ROW, UINT_MAX, &chunk_index)) {
        arena = arena->next;
    }
    if (arena == NULL) {
        arena = &set->primary;
        if (!chunk_map_last(&arena->map, CHUNK_MAP_DIRTY_ROW, UINT_MAX, &chunk_index)) {
            return 0;
        }
    }
    unsigned first;
    const unsigned last = bits_highest(chunk_map_chunk(&arena->map, chunk_index)->dirty_mask);
    return arena_purge_run_locked(set, arena, chunk_index, last, &first);
}

MALLOW_INTERNAL MALLOW_NOINLINE void arena_settle(struct arena_set *set) {
    os_lock_take(&set->lock);
    if (arena_owes(set) && !set->os->sealed) {
        const size_t released = arena_purge_step_locked(set);
        // What cannot be purged is not owed.
        const size_t rest =
            released == 0 ? 0 : set->debt_bytes - bits_min(set->debt_bytes, released);
        arena_set_debt_locked(set, rest);
    }
    os_lock_drop(&set->lock);
}

MALLOW_INTERNAL size_t arena_purge_some(struct arena_set *set, size_t bytes) {
    os_lock_take(&set->lock);
    size_t released = arena_purge_locked(set, &set->primary, bytes, ARENA_PURGE_REFUSALS_MOST);
    for (struct arena *arena = set->secondary; arena != NULL && released < bytes;
         arena = arena->next) {
        released += arena_purge_locked(set, arena, bytes - released, ARENA_PURGE_REFUSALS_MOST);
    }
    if (released < bytes) {
        released += arena_await_leaving_locked(set);
    }
    os_lock_drop(&set->lock);
    return released;
}

MALLOW_INTERNAL size_t arena_purge_all(struct arena_set *set) {
    arena_give_late_all(set);
    os_lock_take(&set->lock);
    arena_broad_settle_locked(set);
    size_t released = arena_await_leaving_locked(set);
    released += arena_purge_locked(set, &set->primary, SIZE_MAX, UINT_MAX);
    struct arena *next;
    for (struct arena *arena = set->secondary; arena != NULL; arena = next) {
        next = arena->next;
        released += arena_purge_locked(set, arena, SIZE_MAX, UINT_MAX);
        if (arena->free_slices == arena->committed_slices) {
            (void)arena_remove_locked(set, arena);
        }
    }
    os_lock_drop(&set->lock);
    return released;
}

MALLOW_INTERNAL size_t arena_decommit_all(struct arena_set *set) {
    os_lock_take(&set->lock);
    size_t released = set->primary.slice_count != 0 ? arena_decommit_locked(set, &set->primary) : 0;
    for (struct arena *arena = set->secondary; arena != NULL; arena = arena->next) {
        released += arena_decommit_locked(set, arena);
    }
    os_lock_drop(&set->lock);
    return released;
}

MALLOW_INTERNAL void arena_fork_prepare(struct arena_set *set, bool hurried) {
    os_lock_take_for_fork(&set->lock, hurried);
    os_lock_take_for_fork(&set->map->lock, hurried);
    os_lock_take_for_fork(&set->meta->lock, hurried);
}

MALLOW_INTERNAL void arena_fork_parent(struct arena_set *set) {
    os_lock_drop_after_fork(&set->meta->lock);
    os_lock_drop_after_fork(&set->map->lock);
    os_lock_drop_after_fork(&set->lock);
}

MALLOW_INTERNAL void arena_fork_child(struct arena_set *set) {
    os_lock_renew(&set->meta->lock);
    os_lock_renew(&set->map->lock);
    os_lock_renew(&set->lock);
    arena_leave_fork_child(set);
}
