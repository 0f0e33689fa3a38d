// SPDX-License-Identifier: MIT
// Huge blocks: see huge.h.
#include "arena/huge.h"

#include "arena/huge_pieces.h"
#include "base/bits.h"
#include "base/check.h"

MALLOW_INTERNAL void huge_set_init(struct huge_set *set, struct os *os, struct meta *meta,
                                   struct address_map *map, size_t cache_limit) {
    set->os = os;
    set->meta = meta;
    set->map = map;
    set->raise_bytes = SIZE_MAX;
    huge_cache_init(&set->cache, os, cache_limit);
}

// Whether a block is of whole huge pages, so that none has two blocks in it.
MALLOW_INLINE bool huge_is_broad(const struct huge_set *set, size_t bytes) {
    return unlikely(huge_cache_is_broad(&set->cache)) && huge_broad_rest(bytes) != SIZE_MAX;
}

// Whole pages, and enough of them for the address map to tell blocks apart. 0 on overflow. What is
// under an allowance is not of whole chunks: those have not been charged.
MALLOW_INLINE size_t huge_mapped_bytes(const struct huge_set *set, size_t bytes,
                                       const struct huge *grown) {
    if (bytes > (size_t)PTRDIFF_MAX) {
        return 0;
    }
    const size_t unit = huge_is_broad(set, bytes) && (grown == NULL || grown->allowance == NULL)
                            ? MALLOW_CHUNK_BYTES
                            : set->os->page_bytes;
    return bits_max(bits_align_up(bytes, unit), MALLOW_MAP_BYTES);
}

// ---- Records ------------------------------------------------------------------------------------

static struct huge *huge_record_take_locked(struct huge_set *set) {
    struct huge *const record = set->free_records;
    if (record != NULL) {
        set->free_records = record->next;
        return record;
    }
    return meta_take(set->meta, sizeof *record);
}

static void huge_record_give_locked(struct huge_set *set, struct huge *record) {
    __atomic_store_n(&record->address, 0, __ATOMIC_RELEASE);
    record->next = set->free_records;
    set->free_records = record;
}

// Enters a record in the address map, for which memory has been prepared.
static void huge_enter_at_locked(struct huge *record, _Atomic(uintptr_t) *place) {
    record->place = place;
    if (likely(place != NULL)) {
        atomic_store_explicit(place, (uintptr_t)record, memory_order_release);
    }
}

static void huge_enter_locked(struct huge_set *set, struct huge *record, uintptr_t address) {
    huge_enter_at_locked(record, address_map_place_locked(set->map, address));
}

static void huge_leave_locked(struct huge *record) {
    if (likely(record->place != NULL)) {
        atomic_store_explicit(record->place, 0, memory_order_release);
    }
    record->place = NULL;
}

// Adds to what is live.
static void huge_count_live_locked(struct huge_set *set, uint64_t count, size_t bytes) {
    uint64_t live_bytes = set->live_bytes + bytes;
    compiler_forget(live_bytes); // two sums, not a vector that has to be put together
    set->live_count += count;
    __atomic_store_n(&set->live_bytes, live_bytes, __ATOMIC_RELAXED);
}

static void huge_link_locked(struct huge_set *set, struct huge *record) {
    record->previous = NULL;
    record->next = set->live;
    if (set->live != NULL) {
        set->live->previous = record;
    }
    set->live = record;
    huge_count_live_locked(set, 1, record->mapped_bytes);
}

static void huge_unlink_locked(struct huge_set *set, struct huge *record) {
    if (record->previous != NULL) {
        record->previous->next = record->next;
    } else {
        set->live = record->next;
    }
    if (record->next != NULL) {
        record->next->previous = record->previous;
    }
    huge_count_live_locked(set, UINT64_MAX, 0 - record->mapped_bytes);
}

// ---- Charge -------------------------------------------------------------------------------------

// Charges what a call may add to what is live and cached; huge_settle_charge_locked ends the call.
static bool huge_charge_locked(struct huge_set *set, size_t growth, enum os_charge_level level) {
    if (unlikely(!os_charge_take_freely(&set->os->charge, growth)) &&
        !os_charge_take(set->os, level, growth)) {
        return false;
    }
    set->charged_bytes += growth;
    return true;
}

MALLOW_INLINE void huge_settle_charge_locked(struct huge_set *set) {
    const uint64_t held = set->live_bytes + set->late_bytes + set->cache.bytes + set->leaving_bytes;
    if (set->charged_bytes > held) {
        os_charge_release(set->os, (size_t)(set->charged_bytes - held));
    } else if (set->charged_bytes < held) {
        os_charge_add(set->os, (size_t)(held - set->charged_bytes));
    }
    set->charged_bytes = held;
    atomic_store_explicit(&set->kept_bytes, set->cache.bytes, memory_order_relaxed);
}

// ---- Blocks -------------------------------------------------------------------------------------

// What huge_take_charged was asked for.
struct huge_request {
    size_t mapped_bytes;
    size_t alignment;
    enum huge_use use;
    enum os_charge_level level;
    size_t dirty; // so much of what is taken is to be cleared
};

static const struct huge_mapping huge_no_mapping = {0, 0, HUGE_ONE};

#define HUGE_OWED_BYTES_MAX (2 * HUGE_LATE_BYTES_MAX) // besides as much as is live
// Larger zeroed blocks have fresh pages.
#define HUGE_CLEAR_BYTES_MAX ((size_t)32 << 20)
enum {
    HUGE_CLEAR_LOOKS = 8,      // pages by which a range is judged
    HUGE_CLEAR_ZEROS_MAX = 2,  // of a dense one, so many may read as zero
    HUGE_CLEAR_WORD = 200,     // the word of a page that is looked at besides the first two
};

// The ends of larger ones are worth the calls that cut them off: the kernel may charge them.
#define HUGE_ALIGN_ENDS_MAX ((size_t)64 << 20)

static struct huge_mapping huge_map_of_its_own(struct huge_set *set, size_t bytes) {
    return (struct huge_mapping){os_map(set->os, bytes, 1), bytes, HUGE_ONE};
}

// A mapping of fresh pages. While calls owe what is kept of others, one of these: to unmap it is
// left to a call with its system call to spare, and there may be none (decision 82).
static struct huge_mapping huge_map_new_locked(struct huge_set *set, size_t bytes) {
    huge_cache_owe_plenty(&set->cache, set->live_bytes);
    if (unlikely(set->cache.debt != 0) && !huge_is_limited(set->os)) {
        const struct huge_mapping owed =
            huge_cache_take_owed(&set->cache, bytes, set->live_bytes);
        if (owed.address != 0) {
            return owed;
        }
    }
    return huge_map_of_its_own(set, bytes);
}

// Address space for an alignment beyond a page's: the ends stay mapped and untouched, so that one
// call does. They are charged, since the cache may come to use them; so where memory is limited
// they are cut off, as where address space is.
static struct huge_mapping huge_map_aligned_locked(struct huge_set *set,
                                                   const struct huge_request *request) {
    struct os *const os = set->os;
    const bool limited = huge_is_limited(os) || request->alignment > HUGE_ALIGN_ENDS_MAX ||
                         request->use == HUGE_ALONE;
    struct huge_mapping mapping = huge_no_mapping;
    size_t total = 0;
    if (!limited && !__builtin_add_overflow(request->mapped_bytes,
                                            request->alignment - os->page_bytes, &total) &&
        huge_charge_locked(set, total, request->level)) {
        if (unlikely(meta_is_low(set->meta))) { // as in huge_map_fresh_locked
            const struct huge_mapping fresh = huge_cache_take_fresh(&set->cache, total);
            if (fresh.address != 0) {
                return fresh;
            }
        }
        mapping = huge_map_new_locked(set, total);
    }
    if (mapping.address == 0) { // also where the kernel charges what is never touched
        huge_settle_charge_locked(set);
        total = request->mapped_bytes;
        if (!huge_charge_locked(set, total, request->level)) {
            return huge_no_mapping;
        }
        mapping = (struct huge_mapping){os_map(os, total, request->alignment), total, HUGE_ONE};
    }
    return mapping;
}

// A mapping of fresh pages, of which `charged` bytes are charged already.
static struct huge_mapping huge_map_fresh_locked(struct huge_set *set,
                                                 const struct huge_request *request,
                                                 size_t charged) {
    const size_t mapped_bytes = request->mapped_bytes;
    struct huge_mapping mapping = huge_no_mapping;
    if (mapped_bytes != charged &&
        !huge_charge_locked(set, mapped_bytes - charged, request->level)) {
        return mapping;
    }
    const bool broad = huge_is_broad(set, mapped_bytes) && request->use != HUGE_ZEROED &&
                       huge_cache_has_broad(&set->cache, mapped_bytes) &&
                       ++set->broad_count % HUGE_BROAD_PROBE_SHARE != 0;
    if (unlikely(broad || meta_is_low(set->meta))) {
        // Low: thousands of blocks without a call between that could prepare memory for records.
        mapping = huge_cache_take_fresh(&set->cache, mapped_bytes);
    }
    if (mapping.address != 0) {
        return mapping;
    }
    // Others have found nothing in the cache that is large enough.
    return request->use == HUGE_ZEROED ? huge_map_new_locked(set, mapped_bytes)
                                       : huge_map_of_its_own(set, mapped_bytes);
}

// Whether most pages of a range seem to have been written: a few are looked at. What the program
// has never touched reads as zero, and is not resident for being read.
static bool huge_is_dense(const struct huge_set *set, uintptr_t address, size_t bytes) {
    const size_t step = bits_align_down(bytes / HUGE_CLEAR_LOOKS, set->os->page_bytes);
    unsigned zeros = 0;
    for (unsigned i = 0; i < HUGE_CLEAR_LOOKS && zeros <= HUGE_CLEAR_ZEROS_MAX; i++) {
        const uint64_t *const words = (const uint64_t *)(address + i * step);
        zeros += (words[0] | words[1] | words[HUGE_CLEAR_WORD]) == 0;
    }
    return zeros <= HUGE_CLEAR_ZEROS_MAX;
}

// A mapping for a zeroed request, of which the first bytes may have to be cleared. Fresh pages
// are zero already and cost nothing until they are touched; but if all are touched, to clear kept
// ones takes a tenth of the time. So a piece serves that was written whole, and is likely to be so
// again. Not where fresh pages are huge ones.
static MALLOW_NOINLINE struct huge_mapping huge_map_zeroed_locked(struct huge_set *set,
                                                                  struct huge_request *request) {
    struct huge_cache *const cache = &set->cache;
    const size_t mapped_bytes = request->mapped_bytes;
    unsigned piece = HUGE_INDEX_NONE;
    const bool serves = mapped_bytes <= HUGE_CLEAR_BYTES_MAX && !huge_cache_is_broad(cache) &&
                        cache->room.huge_from == 0;
    const size_t growth =
        serves ? huge_cache_growth_whole(cache, mapped_bytes, &piece) : mapped_bytes;
    if (piece == HUGE_INDEX_NONE ||
        !huge_is_dense(set, cache->pieces[piece].address, mapped_bytes - growth)) {
        huge_cache_note_unused(cache, mapped_bytes, serves && piece == HUGE_INDEX_NONE,
                               set->live_bytes);
        return huge_map_fresh_locked(set, request, 0);
    }
    if (!huge_charge_locked(set, growth, request->level)) {
        return huge_no_mapping;
    }
    const struct huge_mapping mapping =
        huge_cache_take_whole(cache, mapped_bytes, piece, set->live_bytes);
    request->dirty = mapping.address != 0 ? mapped_bytes - growth : 0;
    return mapping.address != 0 ? mapping : huge_map_fresh_locked(set, request, growth);
}

// A mapping for a request, from the cache where that helps.
static struct huge_mapping huge_map_locked(struct huge_set *set, struct huge_request *request) {
    const size_t mapped_bytes = request->mapped_bytes;
    if (unlikely(request->alignment > set->os->page_bytes)) {
        if (request->use == HUGE_ZEROED) {
            huge_cache_unlearn(&set->cache, mapped_bytes);
        }
        return huge_map_aligned_locked(set, request);
    }
    if (unlikely(set->refused || request->use == HUGE_HURRIED)) {
        // The call may make no second one: fresh pages, mostly at hand, are had at the least cost.
        set->refused = false;
        if (!huge_cache_has_fresh(&set->cache, mapped_bytes)) {
            return huge_map_fresh_locked(set, request, 0);
        }
        return huge_charge_locked(set, mapped_bytes, request->level)
                   ? huge_cache_take_fresh(&set->cache, mapped_bytes)
                   : huge_no_mapping;
    }
    if (unlikely(request->use == HUGE_ZEROED)) {
        return huge_map_zeroed_locked(set, request);
    }
    struct huge_choice choice;
    const size_t growth = huge_cache_growth(&set->cache, mapped_bytes,
                                            request->use == HUGE_GROWN, &choice);
    if (!huge_charge_locked(set, growth, request->level)) {
        return huge_no_mapping;
    }
    const struct huge_mapping mapping =
        huge_cache_take(&set->cache, mapped_bytes, choice, set->live_bytes);
    return mapping.address != 0 ? mapping : huge_map_fresh_locked(set, request, growth);
}

// Registers a block that begins at `address` in `mapping`.
static void huge_register_locked(struct huge_set *set, struct huge *record, uintptr_t address,
                                 struct huge_mapping mapping, size_t bytes) {
    record->map_address = mapping.address;
    record->mapped_bytes = mapping.bytes;
    record->parts = mapping.parts;
    record->broad = set->cache.room.huge_from != 0 &&
                    mapping.address >= set->cache.room.huge_from &&
                    mapping.address < set->cache.room.end;
    record->usable_bytes = bits_align_up(bits_max(bytes, 1), set->os->page_bytes);
    record->allowance = NULL;
    record->next_part = 0;
    record->age = (struct arena_age){0, 0, 0, 0};
    __atomic_store_n(&record->address, address, __ATOMIC_RELEASE);
    huge_link_locked(set, record);
    if (set->live_bytes >= __atomic_load_n(&set->raise_bytes, __ATOMIC_RELAXED)) {
        os_raise(set->os, OS_WORK_GROWN);
    }
    huge_enter_locked(set, record, address);
}

MALLOW_INTERNAL uintptr_t huge_take_charged(struct huge_set *set, size_t bytes, size_t alignment,
                                            enum huge_use use, enum os_charge_level level) {
    const size_t mapped_bytes = huge_mapped_bytes(set, bytes, NULL);
    if (mapped_bytes == 0) {
        return 0;
    }
    struct huge_request request = {mapped_bytes, alignment, use, level, 0};
    uintptr_t address = 0;
    os_lock_take_here(&set->map->lock);
    struct huge *const record =
        address_map_prepare_locked(set->map) ? huge_record_take_locked(set) : NULL;
    if (record != NULL) {
        const struct huge_mapping mapping = huge_map_locked(set, &request);
        if (mapping.address == 0) {
            huge_record_give_locked(set, record);
        } else {
            address = bits_align_up(mapping.address, alignment);
            huge_register_locked(set, record, address, mapping, bytes);
        }
        huge_settle_charge_locked(set);
    }
    os_lock_drop_here(&set->map->lock);
    if (unlikely(request.dirty != 0) && address != 0) {
        const size_t usable_bytes = bits_align_up(bytes, set->os->page_bytes);
        __builtin_memset((void *)address, 0, bits_min(request.dirty, usable_bytes));
    }
    return address;
}

MALLOW_INTERNAL uintptr_t huge_take_at_charged(struct huge_set *set, size_t bytes,
                                               size_t alignment, size_t offset,
                                               enum os_charge_level level) {
    const size_t block_bytes = huge_mapped_bytes(set, bytes, NULL);
    struct huge_mapping mapping = {0, 0, HUGE_ONE};
    uintptr_t address = 0;
    if (block_bytes == 0 || __builtin_add_overflow(block_bytes, alignment, &mapping.bytes)) {
        return 0;
    }
    mapping.bytes = bits_align_up(mapping.bytes, set->os->page_bytes);
    os_lock_take(&set->map->lock);
    struct huge *const record =
        address_map_prepare_locked(set->map) ? huge_record_take_locked(set) : NULL;
    if (record != NULL) {
        if (huge_charge_locked(set, mapping.bytes, level)) {
            mapping = huge_map_new_locked(set, mapping.bytes);
        }
        if (mapping.address == 0) {
            huge_record_give_locked(set, record);
        } else {
            address = bits_align_up(mapping.address + offset % alignment, alignment) -
                      offset % alignment;
            huge_register_locked(set, record, address, mapping, bytes);
            record->usable_bytes = bits_max(bytes, 1);
        }
        huge_settle_charge_locked(set);
    }
    os_lock_drop(&set->map->lock);
    return address;
}

MALLOW_INTERNAL struct huge *huge_of(const struct huge_set *set, uintptr_t address) {
    return huge_of_entry(address_map_get(set->map, address), address);
}

static MALLOW_COLD bool huge_is_among(const struct huge *list, uintptr_t address) {
    while (list != NULL && address - list->map_address >= list->mapped_bytes) {
        list = list->next;
    }
    return list != NULL;
}

MALLOW_INTERNAL MALLOW_COLD bool huge_contains(struct huge_set *set, uintptr_t address) {
    os_lock_take(&set->map->lock);
    const bool found = huge_is_among(set->live, address);
    os_lock_drop(&set->map->lock);
    return found;
}

MALLOW_INTERNAL MALLOW_COLD enum huge_past huge_past_of(struct huge_set *set, uintptr_t address) {
    const struct huge_cache *const cache = &set->cache;
    os_lock_take(&set->map->lock);
    bool kept = huge_is_among(set->late, address) ||
                address - cache->room.front < cache->room.tail - cache->room.front;
    for (unsigned i = 0; cache->count > 0 && i < MALLOW_HUGE_CACHE_COUNT; i++) {
        kept = kept || address - cache->pieces[i].address < cache->pieces[i].bytes;
    }
    const bool gone = !kept && huge_is_among(set->free_records, address) &&
                      !huge_is_among(set->live, address);
    os_lock_drop(&set->map->lock);
    return kept ? HUGE_KEPT : gone ? HUGE_GONE : HUGE_UNKNOWN;
}

static void huge_set_late_locked(struct huge_set *set, struct huge *late, size_t bytes) {
    __atomic_store_n(&set->late, late, __ATOMIC_RELAXED);
    __atomic_store_n(&set->late_bytes, bytes, __ATOMIC_RELAXED);
}

// Leaves the mapping of a freed block to a later call: its record is where that is noted. What was
// live is held a little longer, so that no more is than before.
static MALLOW_NOINLINE void huge_put_off_locked(struct huge_set *set, struct huge *huge) {
    __atomic_store_n(&huge->address, 0, __ATOMIC_RELEASE);
    huge->next = set->late;
    huge_set_late_locked(set, huge, set->late_bytes + huge->mapped_bytes);
}

static void huge_put_off_live_locked(struct huge_set *set, struct huge *huge) {
    if (unlikely(huge->allowance != NULL)) {
        os_allowance_release(huge->allowance, huge->mapped_bytes);
    }
    huge_unlink_locked(set, huge);
    huge_leave_locked(huge);
    huge_put_off_locked(set, huge);
}

MALLOW_INTERNAL MALLOW_NOINLINE bool huge_put_off(struct huge_set *set, struct huge *huge,
                                                  uintptr_t address) {
    os_lock_take_here(&set->map->lock);
    const bool is_live = huge->address == address;
    if (likely(is_live)) {
        huge_put_off_live_locked(set, huge);
    }
    os_lock_drop_here(&set->map->lock);
    return is_live;
}

static void huge_give_late_locked(struct huge_set *set, bool may_enter) {
    struct huge *const huge = set->late;
    const struct huge_mapping mapping = {huge->map_address, huge->mapped_bytes, huge->parts};
    huge_set_late_locked(set, huge->next, set->late_bytes - mapping.bytes);
    huge_record_give_locked(set, huge);
    huge_cache_give(&set->cache, mapping, set->live_bytes, may_enter || huge_is_full(set));
    huge_settle_charge_locked(set);
}

static void huge_give_all_late(struct huge_set *set, bool may_enter) {
    while (__atomic_load_n(&set->late, __ATOMIC_RELAXED) != NULL) {
        os_lock_take_patiently(&set->map->lock);
        if (set->late != NULL) {
            huge_give_late_locked(set, may_enter);
        }
        os_lock_drop(&set->map->lock);
    }
}

MALLOW_INTERNAL void huge_give_late(struct huge_set *set) {
    huge_give_all_late(set, false);
}

MALLOW_INTERNAL bool huge_give(struct huge_set *set, uintptr_t address, bool may_enter) {
    struct huge *const huge = huge_of(set, address);
    return huge != NULL && huge_give_record(set, huge, address, may_enter);
}

// Whether too much is owed to wait for a call with its system call to spare: there may be none.
MALLOW_INLINE bool huge_must_give_locked(const struct huge_set *set) {
    return unlikely(set->cache.debt >= HUGE_OWED_BYTES_MAX + set->live_bytes) &&
           __atomic_load_n(&set->alone, __ATOMIC_RELAXED);
}

MALLOW_INTERNAL bool huge_give_record(struct huge_set *set, struct huge *huge, uintptr_t address,
                                      bool may_enter) {
    os_lock_take_here(&set->map->lock);
    const bool is_live = huge->address == address; // or another thread has just freed it
    if (likely(is_live)) {
        const struct huge_mapping mapping = {huge->map_address, huge->mapped_bytes, huge->parts};
        if (unlikely(huge->allowance != NULL)) {
            os_allowance_release(huge->allowance, huge->mapped_bytes);
        }
        huge_unlink_locked(set, huge);
        huge_leave_locked(huge);
        if (set->cache.pieces == NULL) { // without memory for them, nothing is kept
            huge_cache_lend(&set->cache,
                            meta_take(set->meta, sizeof(struct huge_cache_memory)));
        }
        if (!may_enter && huge_must_give_locked(set)) {
            may_enter = true;
        }
        if (unlikely(huge_is_full(set)) && !may_enter) {
            huge_put_off_locked(set, huge);
        } else {
            huge_record_give_locked(set, huge);
            const bool entered = may_enter && !huge_is_full(set) && // so it has little else to do
                                 address_map_stock_locked(set->map, true);
            huge_cache_give(&set->cache, mapping, set->live_bytes, may_enter && !entered);
        }
        huge_settle_charge_locked(set);
    }
    os_lock_drop_here(&set->map->lock);
    return is_live;
}

MALLOW_INTERNAL void huge_set_allowance(struct huge_set *set, uintptr_t address,
                                        struct os_charge *allowance, size_t charged_bytes) {
    os_lock_take(&set->map->lock);
    struct huge *const huge = huge_of(set, address);
    if (huge->mapped_bytes > charged_bytes) { // it is of whole chunks: what is not charged goes
        const struct huge_mapping all = {huge->map_address, huge->mapped_bytes, huge->parts};
        const struct huge_mapping rest = huge_rest(all, charged_bytes);
        huge->mapped_bytes = charged_bytes;
        huge_count_live_locked(set, 0, 0 - rest.bytes);
        huge_cache_give(&set->cache, rest, set->live_bytes, false);
        huge_settle_charge_locked(set);
    }
    huge->allowance = allowance;
    os_allowance_release(allowance, charged_bytes - huge->mapped_bytes);
    os_lock_drop(&set->map->lock);
}

MALLOW_INTERNAL void huge_give_allowance(struct huge_set *set, const struct os_charge *allowance) {
    struct huge *next;
    os_lock_take(&set->map->lock);
    for (struct huge *huge = set->live; huge != NULL; huge = next) {
        next = huge->next;
        if (huge->allowance == allowance) {
            huge_put_off_live_locked(set, huge);
        }
    }
    os_lock_drop(&set->map->lock);
    huge_give_all_late(set, true);
}

// Remaps a block with what lies before it in its mapping; where the block begins then, or 0.
static uintptr_t huge_remap_locked(struct huge_set *set, struct huge *huge, size_t total_bytes,
                                   bool may_move) {
    const bool grows = total_bytes > huge->mapped_bytes;
    const bool refuses = huge->parts == HUGE_SEVERAL; // the kernel would
    if (grows && (refuses || (huge->parts == HUGE_JOINED && may_move &&
                              !huge_cache_may_ask(&set->cache, total_bytes)))) {
        // Or it might, and a second call would follow. The block instead is to be of one mapping,
        // so that it can go on growing.
        set->refused = set->refused || may_move;
        return 0;
    }
    const uintptr_t before = huge->address;
    _Atomic(uintptr_t) *const place = huge->place;
    // The entry goes before the mapping does: the moment that its address space is free, another
    // mapping of ours may come to lie there. The lock makes it one step for our own threads.
    huge_leave_locked(huge);
    const uintptr_t moved =
        os_remap(set->os, huge->map_address, huge->mapped_bytes, total_bytes, may_move);
    const uintptr_t now = moved != 0 ? moved + (before - huge->map_address) : before;
    if (likely(moved != 0)) {
        huge->parts = grows ? HUGE_ONE : huge->parts;
    } else if (huge->parts == HUGE_JOINED && may_move) {
        huge->parts = HUGE_SEVERAL;
        set->cache.room.torn = true;
        set->refused = true;
    }
    if (now == before) { // where the block stays, so does its place, which need not be looked for
        huge_enter_at_locked(huge, place);
        return moved != 0 ? now : 0;
    }
    huge->map_address = moved;
    __atomic_store_n(&huge->address, now, __ATOMIC_RELEASE);
    huge_enter_locked(set, huge, now);
    return now;
}

// Grows a block by what is kept of the pages behind it: their faults and a call are saved, and the
// kernel, which would find the place taken, need not move the block.
static uintptr_t huge_extend_locked(struct huge_set *set, struct huge *huge, size_t total_bytes) {
    const struct huge_mapping block = {huge->map_address, huge->mapped_bytes, huge->parts};
    const struct huge_mapping behind =
        huge_cache_take_behind(&set->cache, block, total_bytes, set->live_bytes);
    if (behind.address == 0) {
        return 0;
    }
    huge->parts = huge_parts_of(huge->parts, behind.parts);
    huge->extended = true;
    return huge->address;
}

static uintptr_t huge_change_locked(struct huge_set *set, struct huge *huge, size_t total_bytes,
                                    bool may_move) {
    const uintptr_t address = total_bytes > huge->mapped_bytes
                                  ? huge_extend_locked(set, huge, total_bytes)
                                  : 0;
    return address != 0 ? address : huge_remap_locked(set, huge, total_bytes, may_move);
}

MALLOW_INTERNAL uintptr_t huge_resize_charged(struct huge_set *set, struct huge *huge,
                                              size_t bytes, bool may_move,
                                              enum os_charge_level level) {
    const size_t mapped_bytes = huge_mapped_bytes(set, bytes, huge);
    const size_t lead = huge->address - huge->map_address;
    huge->extended = false; // by the calls before
    if (mapped_bytes == 0) {
        return 0;
    }
    if (lead % set->os->page_bytes != 0) {
        return bytes <= huge->usable_bytes ? huge->address : 0;
    }
    os_lock_take_here(&set->map->lock);
    uintptr_t address = huge->address;
    // What fits does not grow: whole chunks are for what is to be touched yet.
    const bool fits = bits_align_up(bytes, set->os->page_bytes) <= huge->mapped_bytes - lead;
    const size_t total_bytes =
        fits ? bits_min(lead + mapped_bytes, huge->mapped_bytes) : lead + mapped_bytes;
    if (total_bytes != huge->mapped_bytes) {
        const size_t growth = total_bytes - bits_min(total_bytes, huge->mapped_bytes);
        const bool may = huge->allowance == NULL ||
                         os_allowance_take(huge->allowance, OS_CHARGE_HARD, growth);
        address = may && address_map_prepare_locked(set->map) &&
                          huge_charge_locked(set, growth, level)
                      ? huge_change_locked(set, huge, total_bytes, may_move)
                      : 0;
        if (unlikely(huge->allowance != NULL) && may) {
            const size_t held = address != 0 ? total_bytes : huge->mapped_bytes;
            os_allowance_release(huge->allowance, huge->mapped_bytes + growth - held);
        }
    }
    if (address != 0) {
        huge_count_live_locked(set, 0, total_bytes - huge->mapped_bytes);
        huge->mapped_bytes = total_bytes;
        huge->usable_bytes = bits_align_up(bits_max(bytes, 1), set->os->page_bytes);
        huge->next_part = 0;
        huge->age = (struct arena_age){0, 0, 0, 0};
    }
    // Where the kernel has refused, a new block follows, and settles what has been charged here.
    if (address != 0 || !may_move || !set->refused || os_charge_is_capped(&set->os->charge)) {
        (void)address_map_stock_locked(set->map, false);
        huge_settle_charge_locked(set);
    }
    os_lock_drop_here(&set->map->lock);
    return address;
}

MALLOW_INTERNAL size_t huge_owe(struct huge_set *set, size_t bytes) {
    os_lock_take(&set->map->lock);
    const size_t debt = set->cache.debt;
    const size_t owed = bits_min(bytes, set->cache.bytes);
    const size_t more = owed - bits_min(owed, debt);
    __atomic_store_n(&set->cache.debt, debt + more, __ATOMIC_RELAXED);
    os_lock_drop(&set->map->lock);
    return more;
}

MALLOW_INTERNAL size_t huge_take_debt(struct huge_set *set) {
    if (!huge_owes(set)) {
        return 0;
    }
    os_lock_take_patiently(&set->map->lock);
    const size_t debt = set->cache.debt;
    __atomic_store_n(&set->cache.debt, 0, __ATOMIC_RELAXED);
    os_lock_drop(&set->map->lock);
    return debt;
}

MALLOW_INTERNAL bool huge_lock_begins(struct huge_set *set) {
    os_lock_take(&set->map->lock);
    const bool begins = !set->os->locks_all;
    __atomic_store_n(&set->os->locks_all, true, __ATOMIC_RELAXED); // read without the lock too
    huge_cache_close_room(&set->cache);
    os_lock_drop(&set->map->lock);
    return begins;
}

MALLOW_INTERNAL void huge_lock_ends(struct huge_set *set) {
    __atomic_store_n(&set->os->locks_all, false, __ATOMIC_RELAXED);
    huge_unconfine(set);
}

MALLOW_INTERNAL void huge_confine(struct huge_set *set) {
    os_lock_take(&set->map->lock);
    huge_cache_close_room(&set->cache);
    os_lock_drop(&set->map->lock);
}

MALLOW_INTERNAL void huge_unconfine(struct huge_set *set) {
    os_lock_take(&set->map->lock);
    set->cache.room.refused = huge_is_limited(set->os);
    os_lock_drop(&set->map->lock);
}

// Of two hollow parts that become one piece, one may count from then on.
static MALLOW_NOINLINE void huge_join_still_locked(struct huge_set *set) {
    huge_cache_join_still(&set->cache, set->live_bytes);
    huge_settle_charge_locked(set);
}

MALLOW_INTERNAL void huge_join(struct huge_set *set) {
    os_lock_take(&set->map->lock);
    if (huge_is_loose(set)) {
        if (unlikely(set->cache.room.still)) {
            huge_join_still_locked(set);
        } else {
            huge_cache_join(&set->cache, set->live_bytes);
        }
        (void)address_map_stock_locked(set->map, true);
    }
    os_lock_drop(&set->map->lock);
}

MALLOW_INTERNAL void huge_settle(struct huge_set *set) {
    os_lock_take(&set->map->lock);
    if (set->os->sealed) {
        // Nothing can be given back.
    } else if (set->late != NULL) {
        huge_give_late_locked(set, false);
    } else if (huge_owes(set)) {
        huge_cache_settle(&set->cache);
        huge_settle_charge_locked(set);
    }
    os_lock_drop(&set->map->lock);
}

// As arena_await_leaving_locked.
static size_t huge_await_leaving_locked(struct huge_set *set) {
    const size_t bytes = set->leaving.bytes;
    for (unsigned round = 0; set->leaving.bytes != 0 && round < ARENA_AWAIT_ROUNDS; round++) {
        os_lock_drop(&set->map->lock);
        os_pause(round);
        os_lock_take(&set->map->lock);
    }
    return set->leaving.bytes == 0 ? bytes : 0;
}

MALLOW_INTERNAL size_t huge_purge_all(struct huge_set *set) {
    huge_give_late(set);
    os_lock_take(&set->map->lock);
    size_t released = huge_await_leaving_locked(set);
    released += huge_cache_purge(&set->cache);
    huge_settle_charge_locked(set);
    os_lock_drop(&set->map->lock);
    return released;
}

MALLOW_INTERNAL size_t huge_idle_look(struct huge_set *set) {
    os_lock_take_patiently(&set->map->lock);
    const size_t idle = huge_cache_idle(&set->cache);
    os_lock_drop(&set->map->lock);
    return idle;
}

// Takes a part of what is cached off it, and gives that back without the lock, as arena_idle_purge.
// What is gathered cannot be taken off, and seldom comes to that.
static size_t huge_idle_step_locked(struct huge_set *set, size_t bytes) {
    struct huge_cache *const cache = &set->cache;
    const size_t before = cache->bytes;
    const struct huge_mapping end =
        cache->count == 0 || set->os->sealed ? huge_no_mapping : huge_cache_cut_end(cache, bytes);
    if (end.bytes == 0) {
        return huge_cache_purge_gathered(cache, bytes);
    }
    const size_t counted = set->leaving_bytes = before - cache->bytes;
    const bool purges = huge_cache_keeps_space(cache, end);
    huge_cache_unlearn(cache, counted);
    set->leaving = end;
    set->leaving_thread = os_this_thread();
    os_lock_drop(&set->map->lock);
    const bool purged = purges && os_purge(set->os, end.address, end.bytes);
    // What the program has locked is not purged.
    const bool unmapped = !purged && os_unmap(set->os, end.address, end.bytes);
    os_lock_take_patiently(&set->map->lock);
    set->leaving = huge_no_mapping;
    set->leaving_bytes = 0;
    if (!unmapped) {
        huge_cache_put_back(cache, end, purged);
    }
    return purged || unmapped ? counted : 0;
}

MALLOW_INTERNAL size_t huge_idle_purge(struct huge_set *set, size_t bytes, unsigned calls) {
    size_t released = 0;
    size_t part = 1;
    os_lock_take_patiently(&set->map->lock);
    // One thread at a time.
    for (; released < bytes && part != 0 && set->leaving.bytes == 0 && calls != 0; calls--) {
        part = huge_idle_step_locked(set, bits_min(bytes - released, MALLOW_UNMAP_BYTES));
        huge_settle_charge_locked(set);
        released += part;
    }
    os_lock_drop(&set->map->lock);
    return released;
}

MALLOW_INTERNAL void huge_fork_child(struct huge_set *set) {
    if (set->leaving_thread != os_this_thread()) { // else the unmapping goes on, after the handler
        set->leaving = huge_no_mapping;
        set->leaving_bytes = 0;
    }
}
