// SPDX-License-Identifier: MIT
// Thin slices: see thin.h.
#include "arena/thin.h"

#include "base/bits.h"
#include "slab/size_class.h"

enum {
    THIN_UNIT_GRANULES = THIN_UNIT_BYTES >> MALLOW_GRANULE_SHIFT,
    THIN_UNIT_WORDS = THIN_UNIT_GRANULES / 8, // of marks
    THIN_FREED = 0x80,
};

static const uint64_t thin_all_units = UINT64_MAX;
static const uint32_t thin_all_places = (1U << THIN_KEPT_COUNT) - 1;

static_assert(MALLOW_THIN_CLASS_COUNT < THIN_FREED, "a mark holds a class");
static_assert(THIN_KEPT_COUNT <= 8 && THIN_UNIT_LINES <= 32, "masks of places and of lines");
static_assert(THIN_UNIT_COUNT == 64, "free_units is 64 bits");
static_assert(THIN_UNIT_WORDS == 8, "thin_take_units_locked clears so many");

static struct thin_slice *thin_of(const struct slab *slab) {
    return (struct thin_slice *)slab->word;
}

// The mark of the granule that begins at `address`; NULL if none does.
static _Atomic(uint8_t) *thin_mark_in(struct thin_slice *slice, uintptr_t address) {
    const size_t offset = address - slice->address;
    if (offset % MALLOW_GRANULE_BYTES != 0 || offset >= MALLOW_SLICE_BYTES) {
        return NULL;
    }
    return &slice->marks[offset >> MALLOW_GRANULE_SHIFT];
}

static _Atomic(uint8_t) *thin_mark(const struct slab *slab, uintptr_t address) {
    return thin_mark_in(thin_of(slab), address);
}

static void thin_list_add_locked(struct thin_set *set, struct thin_slice *slice) {
    slice->previous = NULL;
    slice->next = set->available;
    if (set->available != NULL) {
        set->available->previous = slice;
    }
    set->available = slice;
}

static void thin_list_remove_locked(struct thin_set *set, struct thin_slice *slice) {
    if (set->cursor == slice) {
        set->cursor = slice->next;
    }
    if (slice->previous != NULL) {
        slice->previous->next = slice->next;
    } else {
        set->available = slice->next;
    }
    if (slice->next != NULL) {
        slice->next->previous = slice->previous;
    }
}

MALLOW_INTERNAL void thin_set_init(struct thin_set *set, struct arena_set *arenas) {
    set->arenas = arenas;
}

// A slice from the arena, with all units free, put on the list.
static struct thin_slice *thin_add_locked(struct thin_set *set, enum os_charge_level level) {
    struct thin_slice *slice = set->recycled;
    if (slice == NULL) {
        slice = meta_take(set->arenas->meta, sizeof *slice);
        if (slice == NULL) {
            return NULL;
        }
        slice->next = NULL;
    }
    const struct arena_span span = arena_take_charged(set->arenas, 1, 1, level);
    if (span.slab == NULL) {
        set->recycled = slice; // with those that follow it, if it came from there
        return NULL;
    }
    set->recycled = slice->next;
    slice->address = span.address;
    slice->slab = span.slab;
    slice->free_units = thin_all_units;
    slice->dirty_units = span.zeroed ? 0 : thin_all_units;
    slice->idle_once = 0;
    slice->idle_twice = 0;
    slab_init_thin(span.slab, span.address, slice);
    __atomic_store_n(&set->slice_count, set->slice_count + 1, __ATOMIC_RELAXED);
    thin_list_add_locked(set, slice);
    return slice;
}

// Units that a block has to itself, or shares with others of its unit.
static unsigned thin_units_of(size_t block_bytes) {
    return (unsigned)((block_bytes + THIN_UNIT_BYTES - 1) / THIN_UNIT_BYTES);
}

static size_t thin_mark_bytes(uint8_t mark) {
    return size_class_bytes(mark - 1U);
}

MALLOW_INTERNAL void thin_keep_units_locked(struct thin_set *set, struct thin_slice *slice,
                                            uint64_t units) {
    slice->free_units &= ~units;
    if (slice->free_units == 0) {
        thin_list_remove_locked(set, slice);
    }
}

// Takes `count` free units from `index` on; they have no marks, and a live count of 1.
static void thin_take_units_locked(struct thin_set *set, struct thin_slice *slice, unsigned index,
                                   unsigned count) {
    const uint64_t units = ((UINT64_C(1) << count) - 1) << index;
    slice->dirty_units |= units;
    slice->idle_once &= ~units;
    slice->idle_twice &= ~units;
    thin_keep_units_locked(set, slice, units);
    // A unit's words without a loop: a run of several is taken by calls that have done much.
    _Atomic(uint64_t) *words = &slice->mark_words[index * THIN_UNIT_WORDS];
    for (const _Atomic(uint64_t) *const end = words + count * THIN_UNIT_WORDS; words != end;
         words += THIN_UNIT_WORDS) {
        atomic_store_explicit(&words[0], 0, memory_order_relaxed);
        atomic_store_explicit(&words[1], 0, memory_order_relaxed);
        atomic_store_explicit(&words[2], 0, memory_order_relaxed);
        atomic_store_explicit(&words[3], 0, memory_order_relaxed);
        atomic_store_explicit(&words[4], 0, memory_order_relaxed);
        atomic_store_explicit(&words[5], 0, memory_order_relaxed);
        atomic_store_explicit(&words[6], 0, memory_order_relaxed);
        atomic_store_explicit(&words[7], 0, memory_order_relaxed);
    }
    atomic_store_explicit(&slice->live_count[index], 1, memory_order_relaxed);
}

static void thin_set_mark(struct thin_slice *slice, size_t granule, unsigned class_index) {
    atomic_store_explicit(&slice->marks[granule], (uint8_t)(class_index + 1),
                          memory_order_release);
}

MALLOW_INTERNAL bool thin_open_charged(struct thin_set *set, struct thin_unit *unit,
                                       enum os_charge_level level) {
    os_lock_take(&set->lock);
    struct thin_slice *slice = set->available;
    if (slice == NULL) {
        slice = thin_add_locked(set, level);
    }
    if (slice != NULL) {
        const unsigned index = bits_lowest(slice->free_units);
        thin_take_units_locked(set, slice, index, 1);
        unit->slice = slice;
        unit->bump = slice->address + index * THIN_UNIT_BYTES;
        unit->end = unit->bump + THIN_UNIT_BYTES;
    }
    os_lock_drop(&set->lock);
    return slice != NULL;
}

// The lowest `count` free units side by side; the slice's unit count if there are none.
static unsigned thin_find_run(uint64_t free_units, unsigned count) {
    uint64_t starts = free_units;
    for (unsigned have = 1; have < count;) { // units in a row from each bit on
        const unsigned more = have < count - have ? have : count - have;
        starts &= starts >> more;
        have += more;
    }
    return starts != 0 ? bits_lowest(starts) : THIN_UNIT_COUNT;
}

MALLOW_RACY_READ MALLOW_INTERNAL bool thin_has_slice(const struct thin_set *set) {
    return set->available != NULL;
}

MALLOW_RACY_READ MALLOW_INTERNAL bool thin_has_run(const struct thin_set *set,
                                                   unsigned class_index, bool add) {
    const struct thin_slice *const slice = set->available;
    const unsigned count = thin_units_of(size_class_bytes(class_index));
    return slice != NULL ? thin_find_run(slice->free_units, count) < THIN_UNIT_COUNT : add;
}

// Of `count` units, which are free, from `index` on.
static uintptr_t thin_take_run_locked(struct thin_set *set, struct thin_slice *slice,
                                      unsigned index, unsigned count, unsigned class_index) {
    thin_take_units_locked(set, slice, index, count);
    thin_set_mark(slice, (size_t)index * THIN_UNIT_GRANULES, class_index);
    return slice->address + index * THIN_UNIT_BYTES;
}

MALLOW_INTERNAL uintptr_t thin_take_run_charged(struct thin_set *set, unsigned class_index,
                                                enum os_charge_level level) {
    const unsigned count = thin_units_of(size_class_bytes(class_index));
    uintptr_t address = 0;
    os_lock_take_here(&set->lock);
    struct thin_slice *const slice =
        set->available != NULL ? set->available : thin_add_locked(set, level);
    const unsigned index =
        slice != NULL ? thin_find_run(slice->free_units, count) : THIN_UNIT_COUNT;
    if (index < THIN_UNIT_COUNT) {
        address = thin_take_run_locked(set, slice, index, count, class_index);
    }
    os_lock_drop_here(&set->lock);
    return address;
}

MALLOW_INTERNAL uintptr_t thin_take_run_far(struct thin_set *set, unsigned class_index,
                                            unsigned looks) {
    const unsigned count = thin_units_of(size_class_bytes(class_index));
    unsigned index = THIN_UNIT_COUNT;
    uintptr_t address = 0;
    os_lock_take(&set->lock);
    struct thin_slice *slice = set->available;
    for (unsigned look = 0; slice != NULL && look < looks; look++) {
        index = thin_find_run(slice->free_units, count);
        if (index < THIN_UNIT_COUNT) {
            break;
        }
        slice = slice->next;
    }
    if (index >= THIN_UNIT_COUNT) {
        slice = thin_add_locked(set, OS_CHARGE_SOFT);
        index = 0;
    }
    if (slice != NULL) {
        address = thin_take_run_locked(set, slice, index, count, class_index);
    }
    os_lock_drop(&set->lock);
    return address;
}

MALLOW_INTERNAL void thin_free_units_locked(struct thin_set *set, struct thin_slice *slice,
                                            uint64_t units, bool late) {
    if (slice->free_units == 0) {
        thin_list_add_locked(set, slice);
    }
    slice->free_units |= units;
    if (slice->free_units == thin_all_units && (slice->next != NULL || slice->previous != NULL)) {
        thin_list_remove_locked(set, slice);
        slab_clear(slice->slab);
        if (late) {
            arena_put_off(set->arenas, slice->slab, 1);
        } else {
            arena_give(set->arenas, slice->slab, 1);
        }
        __atomic_store_n(&set->slice_count, set->slice_count - 1, __ATOMIC_RELAXED);
        slice->next = set->recycled;
        set->recycled = slice;
    }
}

// One less in a unit, or in the first of `count`; the last one frees them, and the last unit its
// slice. `late`: a later call gives that back (arena_put_off).
static void thin_drop(struct thin_set *set, struct thin_slice *slice, unsigned index,
                      unsigned count, bool late) {
    if (atomic_fetch_sub_explicit(&slice->live_count[index], 1, memory_order_acq_rel) != 1) {
        return;
    }
    os_lock_take_here(&set->lock);
    thin_free_units_locked(set, slice, ((UINT64_C(1) << count) - 1) << index, late);
    os_lock_drop_here(&set->lock);
}

MALLOW_INTERNAL void thin_close(struct thin_set *set, struct thin_unit *unit) {
    struct thin_slice *const slice = unit->slice;
    if (slice != NULL) {
        const size_t last = unit->end - 1 - slice->address;
        *unit = (struct thin_unit){NULL, 0, 0};
        thin_drop(set, slice, (unsigned)(last / THIN_UNIT_BYTES), 1, false);
    }
}

MALLOW_INTERNAL void thin_leave(struct thin_set *set, struct thin_unit *unit) {
    struct thin_slice *const slice = unit->slice;
    unit->bump = bits_align_up(unit->bump, MALLOW_CACHE_LINE); // the next thread's lines
    if (slice != NULL && unit->bump != unit->end) {
        const size_t index = (unit->bump - slice->address) / THIN_UNIT_BYTES;
        os_lock_take(&set->lock);
        if (set->kept_places != thin_all_places &&
            atomic_load_explicit(&slice->live_count[index], memory_order_relaxed) > 1) {
            const unsigned place = bits_lowest(~set->kept_places);
            const size_t lines = (unit->end - unit->bump) / MALLOW_CACHE_LINE;
            set->kept[place] = *unit;
            set->kept_places |= 1U << place;
            set->kept_with[lines] |= (uint8_t)(1U << place);
            __atomic_store_n(&set->kept_lines, set->kept_lines | 1U << lines, __ATOMIC_RELAXED);
            *unit = (struct thin_unit){NULL, 0, 0};
        }
        os_lock_drop(&set->lock);
    }
    thin_close(set, unit);
}

// Numbers of lines with which `bytes` fit into a unit that is kept, mask.
static uint32_t thin_kept_lines(const struct thin_set *set, size_t bytes) {
    const size_t least = (bytes + MALLOW_CACHE_LINE - 1) / MALLOW_CACHE_LINE;
    return __atomic_load_n(&set->kept_lines, __ATOMIC_RELAXED) & (uint32_t)-1 << least;
}

// Taken out of its place; none: all zero.
static MALLOW_NOINLINE struct thin_unit thin_unkeep(struct thin_set *set, size_t bytes) {
    struct thin_unit unit = {NULL, 0, 0};
    os_lock_take(&set->lock);
    const uint32_t fit = thin_kept_lines(set, bytes);
    if (fit != 0) {
        const unsigned lines = bits_lowest(fit);
        const unsigned place = bits_lowest(set->kept_with[lines]);
        unit = set->kept[place];
        set->kept_places &= ~(1U << place);
        set->kept_with[lines] &= (uint8_t)~(1U << place);
        if (set->kept_with[lines] == 0) {
            __atomic_store_n(&set->kept_lines, set->kept_lines & ~(1U << lines), __ATOMIC_RELAXED);
        }
    }
    os_lock_drop(&set->lock);
    return unit;
}

MALLOW_INTERNAL bool thin_resume(struct thin_set *set, struct thin_unit *unit, size_t bytes) {
    if (thin_kept_lines(set, bytes) == 0) {
        return false; // or one is just being kept
    }
    *unit = thin_unkeep(set, bytes);
    return unit->slice != NULL;
}

MALLOW_INTERNAL void thin_keep_none(struct thin_set *set) {
    for (unsigned i = 0; i < THIN_KEPT_COUNT; i++) {
        struct thin_unit unit = thin_unkeep(set, 0);
        thin_close(set, &unit);
    }
}

MALLOW_INTERNAL uintptr_t thin_take(struct thin_unit *unit, unsigned class_index) {
    const size_t bytes = size_class_bytes(class_index);
    const uintptr_t address = unit->bump;
    if (unit->end - address < bytes) {
        return 0;
    }
    struct thin_slice *const slice = unit->slice;
    const size_t granule = (address - slice->address) >> MALLOW_GRANULE_SHIFT;
    unit->bump = address + bytes;
    atomic_fetch_add_explicit(&slice->live_count[granule / THIN_UNIT_GRANULES], 1,
                              memory_order_relaxed);
    thin_set_mark(slice, granule, class_index);
    return address;
}

// Of any address: another thread may just be giving the slice up.
MALLOW_INTERNAL size_t thin_size(const struct slab *slab, uintptr_t address) {
    struct thin_slice *const slice = (void *)__atomic_load_n(&slab->word, __ATOMIC_RELAXED);
    const _Atomic(uint8_t) *const mark = slice != NULL ? thin_mark_in(slice, address) : NULL;
    const uint8_t value = mark != NULL ? atomic_load_explicit(mark, memory_order_acquire) : 0;
    return value != 0 && (value & THIN_FREED) == 0 ? thin_mark_bytes(value) : 0;
}

MALLOW_INTERNAL bool thin_was_freed(const struct slab *slab, uintptr_t address) {
    const _Atomic(uint8_t) *const mark = thin_mark(slab, address);
    return mark != NULL && (atomic_load_explicit(mark, memory_order_acquire) & THIN_FREED) != 0;
}

MALLOW_INTERNAL bool thin_give_how(struct thin_set *set, struct slab *slab, uintptr_t address,
                                   bool late) {
    _Atomic(uint8_t) *const mark = thin_mark(slab, address);
    uint8_t value = mark != NULL ? atomic_load_explicit(mark, memory_order_acquire) : 0;
    if (value == 0 || (value & THIN_FREED) != 0 ||
        !atomic_compare_exchange_strong_explicit(mark, &value, (uint8_t)(value | THIN_FREED),
                                                 memory_order_acq_rel, memory_order_relaxed)) {
        return false;
    }
    struct thin_slice *const slice = thin_of(slab);
    thin_drop(set, slice, (unsigned)((address - slice->address) / THIN_UNIT_BYTES),
              thin_units_of(thin_mark_bytes(value)), late);
    return true;
}

MALLOW_RACY_READ MALLOW_INTERNAL struct thin_free thin_count(const struct slab *slab,
                                                             uint32_t *counts) {
    const struct thin_slice *const slice = thin_of(slab);
    const uint64_t units = slice->free_units;
    struct thin_free free = {bits_count(units & ~(units << 1)), // runs
                             bits_count(units) * THIN_UNIT_BYTES};
    for (size_t i = 0; i < THIN_GRANULE_COUNT; i++) {
        const uint8_t value = atomic_load_explicit(&slice->marks[i], memory_order_relaxed);
        if (value == 0 || (units >> (i / THIN_UNIT_GRANULES) & 1) != 0) {
            continue; // marks in a free unit are of blocks that were there before
        }
        if ((value & THIN_FREED) != 0) {
            free.count++;
            free.bytes += thin_mark_bytes((uint8_t)(value & ~THIN_FREED));
        } else {
            counts[value - 1]++;
        }
    }
    return free;
}
