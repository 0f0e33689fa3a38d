// SPDX-License-Identifier: MIT
// Meta: see meta.h.
#include "meta/meta.h"

#include "base/bits.h"
#include "os/os_pages.h"

enum { META_STEP_BYTES = 256 << 10 };

// Notes whether `left` bytes are little.
MALLOW_INLINE void meta_note_left(struct meta *meta, uintptr_t end, size_t left) {
    const size_t low = end == meta->region ? META_LOW_BYTES : META_LENT_LOW_BYTES;
    __atomic_store_n(&meta->low, left < low, __ATOMIC_RELAXED);
}

MALLOW_INLINE void meta_set_low(struct meta *meta) {
    meta_note_left(meta, meta->bump_end, meta->bump_end - meta->bump);
}

MALLOW_INTERNAL void meta_init(struct meta *meta, struct os *os) {
    meta->os = os;
    meta_set_low(meta);
}

MALLOW_INTERNAL void meta_lend(struct meta *meta, void *memory, size_t bytes) {
    meta->bump = (uintptr_t)memory;
    meta->bump_end = meta->bump + bytes;
    meta_set_low(meta);
    os_charge_add(meta->os, bytes);
    atomic_fetch_add_explicit(&meta->committed_bytes, bytes, memory_order_relaxed);
}

// Makes more of a region usable, and charges that: one system call.
static bool meta_commit_locked(struct meta *meta, uintptr_t address, size_t bytes,
                               enum os_charge_level level) {
    if (!os_charge_take(meta->os, level, bytes)) {
        return false;
    }
    if (!os_commit(meta->os, address, bytes)) {
        os_charge_release(meta->os, bytes);
        return false;
    }
    atomic_fetch_add_explicit(&meta->committed_bytes, bytes, memory_order_relaxed);
    return true;
}

// A region with an inaccessible page on either side. The guard pages, and what is not yet usable,
// are part of one reservation, so that nothing else can come to lie right beside our structures.
static bool meta_reserve_locked(struct meta *meta, size_t bytes) {
    const size_t page_bytes = meta->os->page_bytes;
    size_t total =
        os_is_confined(meta->os) || meta->crowded ? bytes : bits_max(bytes, META_REGION_BYTES);
    uintptr_t reserved = os_reserve(meta->os, total + 2 * page_bytes, page_bytes);
    if (reserved == 0 && total > bytes) {
        meta->crowded = true;
        total = bytes;
        reserved = os_reserve(meta->os, total + 2 * page_bytes, page_bytes);
    }
    if (reserved == 0) {
        return false;
    }
    __atomic_store_n(&meta->region, reserved + page_bytes, __ATOMIC_RELAXED);
    meta->region_end = meta->region + total;
    return true;
}

MALLOW_INTERNAL void meta_confine(struct meta *meta) {
    os_lock_take(&meta->lock);
    const size_t rest = meta->region_end - meta->region;
    // The first page of the rest is the guard from now on.
    if (rest != 0 && os_unmap(meta->os, meta->region + meta->os->page_bytes, rest)) {
        meta->region_end = meta->region;
    }
    os_lock_drop(&meta->lock);
}

// Makes `bytes` more usable: of the region in use, or the first of a new one.
static bool meta_grow_locked(struct meta *meta, size_t bytes, enum os_charge_level level) {
    const size_t step = bits_align_up(bits_max(bytes, META_STEP_BYTES), meta->os->page_bytes);
    if (meta->region_end - meta->region < step && !meta_reserve_locked(meta, step)) {
        return false;
    }
    if (!meta_commit_locked(meta, meta->region, step, level)) {
        return false;
    }
    if (meta->bump_end != meta->region) { // what is left of another place is lost
        __atomic_store_n(&meta->bump, meta->region, __ATOMIC_RELAXED);
    }
    const uintptr_t end = meta->region + step;
    __atomic_store_n(&meta->region, end, __ATOMIC_RELAXED);
    __atomic_store_n(&meta->bump_end, end, __ATOMIC_RELAXED);
    meta_set_low(meta);
    return true;
}

MALLOW_INTERNAL bool meta_fix(struct meta *meta, size_t bytes, bool *locked) {
    os_lock_take(&meta->lock);
    const bool fixed = meta_grow_locked(meta, bytes, OS_CHARGE_RESERVE) &&
                       os_bring_in(meta->bump, meta->bump_end - meta->bump, locked);
    os_lock_drop(&meta->lock);
    return fixed;
}

MALLOW_INTERNAL void meta_prepare(struct meta *meta) {
    os_lock_take(&meta->lock);
    if (!meta_is_low(meta)) {
        // Another thread was first.
    } else if (meta->region == 0) {
        (void)meta_reserve_locked(meta, META_STEP_BYTES);
    } else if (meta->region_end - meta->region >= META_STEP_BYTES) {
        (void)meta_grow_locked(meta, META_STEP_BYTES, OS_CHARGE_SOFT);
    }
    os_lock_drop(&meta->lock);
}

// When nothing can grow any more there is nothing to lock.
static void *meta_take_sealed(struct meta *meta, size_t bytes) {
    uintptr_t bump = __atomic_load_n(&meta->bump, __ATOMIC_RELAXED);
    do {
        if (meta->bump_end - bump < bytes) {
            return NULL;
        }
    } while (!__atomic_compare_exchange_n(&meta->bump, &bump, bump + bytes, true, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    atomic_fetch_add_explicit(&meta->used_bytes, bytes, memory_order_relaxed);
    return (void *)bump;
}

MALLOW_INTERNAL void *meta_take(struct meta *meta, size_t bytes) {
    bytes = bits_align_up(bytes, MALLOW_CACHE_LINE);
    void *result = NULL;
    if (unlikely(meta->os->sealed)) {
        return meta_take_sealed(meta, bytes);
    }
    os_lock_take_here(&meta->lock);
    if (likely(meta->bump_end - meta->bump >= bytes) ||
        meta_grow_locked(meta, bytes, OS_CHARGE_RESERVE)) {
        const uintptr_t bump = meta->bump;
        const uintptr_t end = meta->bump_end;
        result = (void *)bump;
        __atomic_store_n(&meta->bump, bump + bytes, __ATOMIC_RELAXED);
        meta_note_left(meta, end, end - bump - bytes);
        atomic_fetch_add_explicit(&meta->used_bytes, bytes, memory_order_relaxed);
    }
    os_lock_drop_here(&meta->lock);
    return result;
}
