// SPDX-License-Identifier: MIT
// Meta: see meta.h.
#include "meta/meta.h"

#include "base/bits.h"
#include "os/os_pages.h"

enum { META_REGION_BYTES = 64 << 10 };

MALLOW_INTERNAL void meta_init(struct meta *meta, struct os *os) {
    meta->os = os;
}

MALLOW_INTERNAL void meta_lend(struct meta *meta, void *memory, size_t bytes) {
    meta->bump = (uintptr_t)memory;
    meta->bump_end = meta->bump + bytes;
    os_charge_add(meta->os, bytes);
    atomic_fetch_add_explicit(&meta->committed_bytes, bytes, memory_order_relaxed);
}

// A region with an inaccessible page on either side. The guard pages are part of one reservation,
// so that nothing else can come to lie right beside our structures.
static bool meta_grow_locked(struct meta *meta, size_t bytes) {
    const size_t page_bytes = meta->os->page_bytes;
    const size_t region_bytes = bits_align_up(bits_max(bytes, META_REGION_BYTES), page_bytes);
    if (!os_charge_take(meta->os, OS_CHARGE_RESERVE, region_bytes)) {
        return false;
    }
    const uintptr_t reserved = os_reserve(meta->os, region_bytes + 2 * page_bytes, page_bytes);
    if (reserved == 0 || !os_commit(meta->os, reserved + page_bytes, region_bytes)) {
        if (reserved != 0) {
            (void)os_unmap(meta->os, reserved, region_bytes + 2 * page_bytes);
        }
        os_charge_release(meta->os, region_bytes);
        return false;
    }
    meta->bump = reserved + page_bytes;
    meta->bump_end = meta->bump + region_bytes;
    atomic_fetch_add_explicit(&meta->committed_bytes, region_bytes, memory_order_relaxed);
    return true;
}

MALLOW_INTERNAL bool meta_fix(struct meta *meta, size_t bytes, bool *locked) {
    os_lock_take(&meta->lock);
    const bool fixed = meta_grow_locked(meta, bytes) &&
                       os_bring_in(meta->bump, meta->bump_end - meta->bump, locked);
    os_lock_drop(&meta->lock);
    return fixed;
}

MALLOW_INTERNAL void *meta_take(struct meta *meta, size_t bytes) {
    bytes = bits_align_up(bytes, MALLOW_CACHE_LINE);
    void *result = NULL;
    os_lock_take(&meta->lock);
    if (meta->bump_end - meta->bump >= bytes || meta_grow_locked(meta, bytes)) {
        result = (void *)meta->bump;
        meta->bump += bytes;
        atomic_fetch_add_explicit(&meta->used_bytes, bytes, memory_order_relaxed);
    }
    os_lock_drop(&meta->lock);
    return result;
}
