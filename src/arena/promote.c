// SPDX-License-Identifier: MIT
// Promotion: see promote.h.
#include "arena/promote.h"

#include "arena/reserve.h"
#include "base/bits.h"
#include "os/os_huge.h"

enum {
    PROMOTE_GROUP_CHUNKS = 64,   // looked at with the lock held
    PROMOTE_BLOCKS_MAX = 1024,   // huge blocks looked at, the newest
    PROMOTE_CHUNK_PAGES = 512,
    PROMOTE_GROWTH_SHARE = 8,    // or by one part in so many of what there is
};

// Pages that may be missing from a chunk in each pass; in the first they are counted.
static const uint16_t promote_passes[] = {0, 4, 24, 48, 80, 128};
#define PROMOTE_PASSES (sizeof promote_passes / sizeof promote_passes[0])

// Smaller heaps gain little. Above that so much growth, or a share of what there is, makes a look
// worth it.
#define PROMOTE_FIRST_BYTES ((size_t)64 << 20)
#define PROMOTE_GROWTH_BYTES ((size_t)16 << 20)

static size_t promote_next_raise(size_t bytes) {
    return bits_max(PROMOTE_FIRST_BYTES,
                    bytes + bits_max(PROMOTE_GROWTH_BYTES, bytes / PROMOTE_GROWTH_SHARE));
}

MALLOW_INTERNAL void promote_init(struct promote *promote, struct arena_set *arenas,
                                  struct huge_set *huges, bool able) {
    promote->os = arenas->os;
    promote->arenas = arenas;
    promote->huges = huges;
    promote->able = able;
    promote_want(promote, false);
}

MALLOW_INTERNAL void promote_deny(struct promote *promote) {
    promote->able = false;
    promote->left = false;
    promote_want(promote, false);
}

// By atomics, as options may change at any time.
static void promote_raise_at(struct promote *promote, size_t arena_bytes, size_t huge_bytes) {
    __atomic_store_n(&promote->arenas->raise_slices, arena_bytes >> MALLOW_SLICE_SHIFT,
                     __ATOMIC_RELAXED);
    __atomic_store_n(&promote->huges->raise_bytes, huge_bytes, __ATOMIC_RELAXED);
}

MALLOW_INTERNAL void promote_want(struct promote *promote, bool wanted) {
    if (wanted && promote->able) {
        promote_raise_at(promote, PROMOTE_FIRST_BYTES, PROMOTE_FIRST_BYTES);
    } else {
        promote_raise_at(promote, SIZE_MAX, SIZE_MAX);
    }
}

// ---- Ages ---------------------------------------------------------------------------------------

// One look at a chunk, or block; true if it is ripe or ripening.
static bool promote_age_look(struct arena_age *age, bool is_full) {
    if (age->looks == ARENA_AGE_HUGE || (age->looks == ARENA_AGE_MEASURED && is_full)) {
        return false;
    }
    if (age->rest != 0) {
        age->rest--;
        return false;
    }
    if (!is_full) {
        if (age->looks != 0) {
            arena_age_fail(age);
        }
        return false;
    }
    if (age->looks < PROMOTE_PATIENCE) {
        age->looks++;
    }
    return true;
}

// ---- Chunks -------------------------------------------------------------------------------------

// The table is virtual for the whole arena; what is touched of it is 4 bytes a chunk.
static bool promote_has_ages(struct promote *promote) {
    struct arena_set *const set = promote->arenas;
    if (set->ages == NULL && set->primary.slice_count != 0) {
        const size_t bytes =
            bits_align_up(set->primary.slice_count / MALLOW_CHUNK_SLICES * sizeof *set->ages,
                          promote->os->page_bytes);
        struct arena_age *const ages = (struct arena_age *)os_map(promote->os, bytes, 1);
        os_lock_take_patiently(&set->lock);
        set->ages = ages;
        os_lock_drop(&set->lock);
    }
    return set->ages != NULL;
}

static size_t promote_chunk_count(const struct arena *arena) {
    return __atomic_load_n(&arena->committed_slices, __ATOMIC_RELAXED) / MALLOW_CHUNK_SLICES;
}

static const struct slab *promote_first_slab(const struct arena *arena, size_t chunk) {
    return &arena->slabs[arena_slot_of(arena, chunk * MALLOW_CHUNK_SLICES)];
}

static bool promote_is_thin(const struct arena *arena, size_t chunk) {
    const struct slab *const slab = promote_first_slab(arena, chunk);
    for (unsigned i = 0; i < MALLOW_CHUNK_SLICES; i++) {
        if (__atomic_load_n(&slab[i].kind, __ATOMIC_RELAXED) == SLAB_THIN) {
            return true;
        }
    }
    return false;
}

// What is in a reserve is not to be moved.
static bool promote_is_full(const struct arena_set *set, size_t chunk) {
    const struct arena *const arena = &set->primary;
    return !arena_is_giant(arena, (unsigned)chunk) &&
           chunk_map_chunk(&arena->map, (unsigned)chunk)->free_mask == 0 &&
           reserve_chunk_of(set, promote_first_slab(arena, chunk)) == NULL &&
           !promote_is_thin(arena, chunk);
}

// Adds a chunk to what is known of all.
static void promote_sum(struct promote *promote, const struct arena_age *age) {
    if (age->looks >= ARENA_AGE_MEASURED) {
        promote->resident_pages += PROMOTE_CHUNK_PAGES - age->missing;
        promote->filled_pages += age->looks == ARENA_AGE_HUGE ? age->missing : 0;
    }
}

static size_t promote_look_chunks(struct promote *promote) {
    struct arena_set *const set = promote->arenas;
    const struct arena *const arena = &set->primary;
    size_t pending = 0;
    size_t chunk = 0;
    promote->resident_pages = 0;
    promote->filled_pages = 0;
    for (bool more = promote_has_ages(promote); more;) {
        os_lock_take_patiently(&set->lock);
        const size_t end = bits_min(chunk + PROMOTE_GROUP_CHUNKS, promote_chunk_count(arena));
        for (; chunk < end; chunk++) {
            pending += promote_age_look(&set->ages[chunk], promote_is_full(set, chunk));
            promote_sum(promote, &set->ages[chunk]);
        }
        more = chunk < promote_chunk_count(arena);
        os_lock_drop(&set->lock);
    }
    return pending;
}

static size_t promote_missing(const struct promote *promote, uintptr_t address) {
    const size_t resident = os_resident(promote->os, address, MALLOW_CHUNK_BYTES);
    return (MALLOW_CHUNK_BYTES - resident) / promote->os->page_bytes;
}

// Whether a chunk may become huge now: it is dense enough for this pass, and what all of them have
// gained is in proportion.
static bool promote_may(const struct promote *promote, const struct arena_age *age) {
    return age->looks == ARENA_AGE_MEASURED && age->missing <= promote_passes[promote->pass] &&
           promote->filled_pages + age->missing <=
               promote->resident_pages / PROMOTE_GAIN_SHARE;
}

// The next chunk that is ripe, or was measured and may become huge; false if there is none left.
static bool promote_find_chunk(struct promote *promote, size_t *found) {
    struct arena_set *const set = promote->arenas;
    const struct arena *const arena = &set->primary;
    bool is_found = false;
    while (set->ages != NULL && promote->pass < PROMOTE_PASSES && !is_found) {
        os_lock_take_patiently(&set->lock);
        const size_t count = promote_chunk_count(arena);
        const size_t end = bits_min(promote->next_chunk + PROMOTE_GROUP_CHUNKS, count);
        while (promote->next_chunk < end && !is_found) {
            *found = promote->next_chunk++;
            const struct arena_age *const age = &set->ages[*found];
            is_found = (promote->pass == 0 ? age->looks == PROMOTE_PATIENCE
                                           : promote_may(promote, age)) &&
                       promote_is_full(promote->arenas, *found);
        }
        if (promote->next_chunk >= count && !is_found) {
            promote->pass++;
            promote->next_chunk = 0;
        }
        os_lock_drop(&set->lock);
    }
    return is_found;
}

// Finds out how much of a ripe chunk is resident.
static void promote_measure_chunk(struct promote *promote, size_t chunk) {
    struct arena_set *const set = promote->arenas;
    const size_t missing =
        promote_missing(promote, set->primary.base + (chunk << MALLOW_CHUNK_SHIFT));
    os_lock_take_patiently(&set->lock);
    struct arena_age *const age = &set->ages[chunk];
    age->missing = (uint16_t)missing;
    age->looks = ARENA_AGE_MEASURED;
    promote_sum(promote, age);
    os_lock_drop(&set->lock);
}

// Gives the clean free slices of a chunk back that has become huge while they were given up.
static void promote_clean_locked(struct arena_set *set, size_t chunk_index) {
    const struct arena *const arena = &set->primary;
    const struct chunk *const chunk = chunk_map_chunk(&arena->map, (unsigned)chunk_index);
    const uint32_t clean = chunk->free_mask & ~chunk->dirty_mask;
    const uintptr_t address = arena->base + (chunk_index << MALLOW_CHUNK_SHIFT);
    for (unsigned i = 0; i < MALLOW_CHUNK_SLICES; i++) {
        if ((clean >> i & 1U) != 0) {
            (void)os_purge(set->os, address + ((uintptr_t)i << MALLOW_SLICE_SHIFT),
                           MALLOW_SLICE_BYTES);
        }
    }
}

// Whether that means that there will be none. One part may be unfit by what the program has done to
// a page of it, and the others are not.
static bool promote_is_final(struct promote *promote, enum os_huge_result result) {
    if (result == OS_HUGE_UNFIT &&
        atomic_load_explicit(&promote->made_count, memory_order_relaxed) == 0) {
        promote->unfit_count++;
    }
    return result == OS_HUGE_REFUSED || promote->unfit_count == PROMOTE_UNFIT_MAX;
}

static enum os_huge_result promote_pages(struct promote *promote, uintptr_t address) {
    // A huge page is a copy: what a child by fork shares with us would be there twice then.
    if (atomic_load_explicit(&promote->os->has_forked, memory_order_relaxed) &&
        !os_huge_is_own(address)) {
        return OS_HUGE_BUSY;
    }
    const enum os_huge_result result = os_huge_promote(promote->os, address);
    if (result == OS_HUGE_MADE) {
        atomic_fetch_add_explicit(&promote->made_count, 1, memory_order_relaxed);
    } else if (promote_is_final(promote, result)) {
        promote_deny(promote);
    }
    return result;
}

static enum os_huge_result promote_chunk(struct promote *promote, size_t chunk) {
    struct arena_set *const set = promote->arenas;
    const enum os_huge_result result =
        promote_pages(promote, set->primary.base + (chunk << MALLOW_CHUNK_SHIFT));
    os_lock_take_patiently(&set->lock);
    struct arena_age *const age = &set->ages[chunk];
    if (result != OS_HUGE_MADE) {
        arena_age_fail(age);
    } else if (chunk < promote_chunk_count(&set->primary)) {
        age->looks = ARENA_AGE_HUGE;
        promote->filled_pages += age->missing;
        if ((chunk_map_chunk(&set->primary.map, (unsigned)chunk)->free_mask) != 0) {
            promote_clean_locked(set, chunk);
        }
    }
    os_lock_drop(&set->lock);
    return result;
}

// ---- Huge blocks --------------------------------------------------------------------------------

static uintptr_t promote_first_part(const struct huge *huge) {
    return bits_align_up(huge->address, MALLOW_CHUNK_BYTES);
}

static size_t promote_part_count(const struct huge *huge) {
    if (huge->broad) { // has them already, as far as it is touched
        return 0;
    }
    const uintptr_t start = promote_first_part(huge);
    const uintptr_t end =
        bits_align_down(huge->map_address + huge->mapped_bytes, MALLOW_CHUNK_BYTES);
    return end > start ? (end - start) >> MALLOW_CHUNK_SHIFT : 0;
}

static size_t promote_look_blocks(struct promote *promote) {
    struct huge_set *const set = promote->huges;
    size_t pending = 0;
    unsigned count = 0;
    os_lock_take_patiently(&set->map->lock);
    for (struct huge *huge = set->live; huge != NULL && count < PROMOTE_BLOCKS_MAX;
         huge = huge->next) {
        pending += promote_age_look(&huge->age, promote_part_count(huge) != 0);
        count++;
    }
    os_lock_drop(&set->map->lock);
    return pending;
}

// The next part of a ripe block; 0 if there is none.
static uintptr_t promote_find_part(struct promote *promote) {
    struct huge_set *const set = promote->huges;
    uintptr_t part = 0;
    unsigned count = 0;
    os_lock_take_patiently(&set->map->lock);
    for (struct huge *huge = set->live;
         huge != NULL && part == 0 && count < PROMOTE_BLOCKS_MAX; huge = huge->next) {
        count++;
        if (huge->age.looks != PROMOTE_PATIENCE) {
            continue;
        }
        if (huge->next_part < promote_part_count(huge)) {
            part = promote_first_part(huge) + (huge->next_part++ << MALLOW_CHUNK_SHIFT);
        } else {
            // All is done. What was not dense may be so later: it is looked at again, ever less
            // often.
            huge->next_part = 0;
            arena_age_fail(&huge->age);
        }
    }
    os_lock_drop(&set->map->lock);
    return part;
}

// ---- Both ---------------------------------------------------------------------------------------

MALLOW_INTERNAL size_t promote_look(struct promote *promote) {
    if (!promote->able) {
        return 0;
    }
    const size_t pending = promote_look_chunks(promote) + promote_look_blocks(promote);
    const size_t slices =
        __atomic_load_n(&promote->arenas->primary.committed_slices, __ATOMIC_RELAXED);
    os_lock_take_patiently(&promote->huges->map->lock);
    const size_t huge_bytes = promote->huges->live_bytes;
    os_lock_drop(&promote->huges->map->lock);
    promote_raise_at(promote, promote_next_raise(slices << MALLOW_SLICE_SHIFT),
                     promote_next_raise(huge_bytes));
    promote->next_chunk = 0;
    promote->pass = 0;
    promote->left = promote->left || pending != 0; // what was measured may still be to come
    return pending;
}

static bool promote_next(struct promote *promote) {
    size_t chunk = 0;
    unsigned measured = 0;
    while (promote_find_chunk(promote, &chunk)) {
        if (promote->pass != 0) {
            return promote_chunk(promote, chunk) != OS_HUGE_FULL;
        }
        promote_measure_chunk(promote, chunk);
        if (++measured == PROMOTE_MEASURE_MAX) {
            return true;
        }
    }
    for (uintptr_t part = promote_find_part(promote); part != 0;
         part = promote_find_part(promote)) {
        if (promote_missing(promote, part) <= PROMOTE_MISSING_PAGES) {
            return promote_pages(promote, part) != OS_HUGE_FULL;
        }
        if (++measured == PROMOTE_MEASURE_MAX) {
            return true;
        }
    }
    return false;
}

MALLOW_INTERNAL bool promote_one(struct promote *promote) {
    promote->left = promote->able && promote_next(promote);
    return promote->left;
}
