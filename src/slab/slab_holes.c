// SPDX-License-Identifier: MIT
// Holes: see slab_holes.h.
#include "slab/slab_holes.h"

MALLOW_RACY_READ static void view_copy_hot(struct slab_view *view, const struct slab *slab) {
    const bool is_hot = atomic_load_explicit(&slab->hot, memory_order_acquire) != 0;
    const uintptr_t last = atomic_load_explicit(&slab->last, memory_order_acquire);
    const size_t index = (last - view->start_address) / bits_max(view->block_bytes, 1);
    // Not one that another slab has lent.
    view->hot_index = is_hot && index < view->capacity_count ? index : SIZE_MAX;
    if (view->hot_index != SIZE_MAX && slab->class_index >= MALLOW_DIRECT_CLASS_COUNT) {
        view->free_bits[index / 64] |= UINT64_C(1) << (index % 64);
        view->hot_index = SIZE_MAX;
    }
}

MALLOW_RACY_READ static void view_copy_bits(struct slab_view *view, const struct slab *slab,
                                            const struct slab_remote *remote) {
    const bool pending = (slab_owner(slab) & SLAB_OWNER_PENDING) != 0;
    const bool exposed = *(const volatile uint32_t *)&slab->used_count >= SLAB_CURRENT &&
                         slab->class_index < MALLOW_DIRECT_CLASS_COUNT;
    const size_t word_count = (view->capacity_count + 63) / 64;
    view->word_index = exposed ? slab_word_index(slab) : MALLOW_SLAB_WORDS;
    view->word_bits = 0;
    view->word_mine = 0;
    for (size_t i = 0; i < word_count; i++) {
        const uint64_t mine = *(const volatile uint64_t *)&slab->bits[i];
        const uint64_t others =
            pending ? atomic_load_explicit(&remote->bits[i], memory_order_relaxed) : 0;
        if (i == view->word_index) {
            view->word_mine = mine; // read once: a block may be taken from it just now
            view->word_bits = mine | others;
        }
        view->free_bits[i] = i == view->word_index ? 0 : mine | others;
    }
}

MALLOW_RACY_READ MALLOW_INTERNAL bool slab_view_take(struct slab_view *view,
                                                     const struct slab *slab,
                                                     const struct slab_remote *remote,
                                                     uintptr_t span_start) {
    if (__atomic_load_n(&slab->kind, __ATOMIC_ACQUIRE) != SLAB_BLOCKS) {
        return false;
    }
    const volatile struct slab *const header = slab;
    view->span_start = span_start;
    view->span_end = span_start + ((size_t)header->slice_count << MALLOW_SLICE_SHIFT);
    view->start_address = header->start_address;
    view->block_bytes = header->block_bytes;
    view->capacity_count = bits_min(slab_capacity(slab), MALLOW_SLAB_CAPACITY_MAX);
    view_copy_bits(view, slab, remote);
    view_copy_hot(view, slab);
    // Caught while it was given up or made: nothing can be told.
    return view->block_bytes != 0 && view->start_address - span_start < MALLOW_SLICE_BYTES &&
           view->start_address + view->capacity_count * view->block_bytes <= view->span_end &&
           __atomic_load_n(&slab->kind, __ATOMIC_ACQUIRE) == SLAB_BLOCKS;
}

// The first block from `index` on that is free (or not), or the capacity.
static size_t view_find(const struct slab_view *view, size_t index, bool is_free) {
    while (index < view->capacity_count) {
        const uint64_t word = view->free_bits[index / 64];
        const uint64_t wanted = (is_free ? word : ~word) & (~UINT64_C(0) << (index % 64));
        if (wanted != 0) {
            return bits_min(index / 64 * 64 + bits_lowest(wanted), view->capacity_count);
        }
        index = (index / 64 + 1) * 64;
    }
    return view->capacity_count;
}

// The last block in use of [first, end), of which there is one.
static size_t view_last_used(const struct slab_view *view, size_t first, size_t end) {
    size_t index = (end - 1) / 64;
    uint64_t used = ~view->free_bits[index] & (~UINT64_C(0) >> (63 - (end - 1) % 64));
    while (used == 0 && index > first / 64) {
        used = ~view->free_bits[--index];
    }
    return index * 64 + bits_highest(used);
}

// Where to go on after the free blocks [first, end), which are no hole: behind the last block in
// use that touches the first whole page from `first` on. So a slab takes as many steps as it has
// pages, however its blocks alternate.
static size_t view_skip(const struct slab_view *view, size_t page_bytes, size_t first,
                        size_t end) {
    const uintptr_t page =
        bits_align_up(view->start_address + first * view->block_bytes, page_bytes);
    const size_t behind = (page + page_bytes - 1 - view->start_address) / view->block_bytes + 1;
    const size_t beyond = bits_min(behind, view->capacity_count);
    return end < beyond ? view_last_used(view, end, beyond) + 1 : end;
}

// The next hole that begins at block `last` or before it.
static bool view_next(const struct slab_view *view, size_t page_bytes, size_t last, size_t *index,
                      struct slab_hole *hole) {
    const uintptr_t opened_end = view->start_address + view->capacity_count * view->block_bytes;
    while (*index <= last) {
        const size_t first = view_find(view, *index, true);
        const size_t end = view_find(view, first, false);
        uintptr_t low = first != 0 ? view->start_address + first * view->block_bytes
                                   : view->span_start;
        uintptr_t high = end < view->capacity_count ? view->start_address + end * view->block_bytes
                                                    : view->span_end;
        *index = end < view->capacity_count ? end : view->capacity_count + 1;
        low = bits_align_up(low, page_bytes);
        high = bits_align_down(high, page_bytes);
        if (low < high) {
            *hole = (struct slab_hole){low, high - low,
                                       bits_min(high, bits_max(low, opened_end)) - low};
            return true;
        }
        if (end < view->capacity_count) {
            *index = view_skip(view, page_bytes, first, end);
        }
    }
    return false;
}

MALLOW_INTERNAL bool slab_view_next(const struct slab_view *view, size_t page_bytes, size_t *index,
                                    struct slab_hole *hole) {
    return view_next(view, page_bytes, view->capacity_count, index, hole);
}

MALLOW_INTERNAL size_t slab_view_block_at(const struct slab_view *view, uintptr_t address) {
    const uintptr_t offset = address - bits_min(address, view->start_address);
    return bits_min(offset / view->block_bytes, view->capacity_count);
}

// Whether a page of the range is in a hole is told by the blocks from that on which it begins in.
MALLOW_INTERNAL bool slab_view_next_in(const struct slab_view *view, size_t page_bytes,
                                       const struct slab_range *range, size_t *index,
                                       struct slab_hole *hole) {
    const size_t last = slab_view_block_at(view, range->high);
    *index = bits_max(*index, slab_view_block_at(view, range->low));
    while (view_next(view, page_bytes, last, index, hole)) {
        const uintptr_t low = bits_max(hole->address, range->low);
        const uintptr_t high = bits_min(hole->address + hole->bytes, range->high);
        if (low < high) {
            const uintptr_t opened_end = hole->address + hole->opened_bytes;
            *hole = (struct slab_hole){low, high - low,
                                       bits_min(high, bits_max(low, opened_end)) - low};
            return true;
        }
    }
    return false;
}

MALLOW_INTERNAL uint64_t slab_view_blocks_in(const struct slab_view *view,
                                             const struct slab_hole *hole) {
    const uintptr_t start = view->start_address; // of the span, too
    const size_t first = (hole->address - start + view->block_bytes - 1) / view->block_bytes;
    const size_t end = (hole->address + hole->bytes - start) / view->block_bytes;
    return first < end ? (~UINT64_C(0) >> (64 - (end - first))) << first : 0;
}

MALLOW_INTERNAL uint32_t slab_view_print(const struct slab_view *view) {
    uint64_t print = view->start_address ^ (view->capacity_count << 40) ^ view->block_bytes;
    for (size_t i = 0; i * 64 < view->capacity_count; i++) {
        print = (print ^ view->free_bits[i]) * UINT64_C(0x9e3779b97f4a7c15);
        print ^= print >> 29;
    }
    return (uint32_t)(print >> 16) | 1U;
}

MALLOW_INTERNAL uint32_t slab_view_word_print(const struct slab_view *view) {
    if (view->word_index == MALLOW_SLAB_WORDS ||
        (view->word_bits == 0 && view->hot_index == SIZE_MAX)) {
        return 0;
    }
    uint64_t print = view->start_address ^ ((uint64_t)view->word_index << 56) ^ view->block_bytes;
    print = (print ^ view->word_bits) * UINT64_C(0x9e3779b97f4a7c15);
    print ^= print >> 29;
    print = (print ^ (view->hot_index + 1)) * UINT64_C(0x9e3779b97f4a7c15);
    print ^= print >> 29;
    return (uint32_t)(print >> 24) | 1U;
}

MALLOW_INTERNAL void slab_view_expose(struct slab_view *view, enum slab_exposure exposure) {
    uint64_t free_bits = view->word_bits;
    if (exposure == SLAB_EXPOSED_LOWEST) {
        free_bits &= ~(view->word_mine & (0 - view->word_mine));
    }
    view->free_bits[view->word_index] = free_bits;
    if (exposure == SLAB_EXPOSED_NONE && view->hot_index != SIZE_MAX) {
        view->free_bits[view->hot_index / 64] |= UINT64_C(1) << (view->hot_index % 64);
    }
}

// The pages that blocks [first, end) touch.
static struct slab_range view_pages(const struct slab_view *view, size_t first, size_t end,
                                    size_t page_bytes) {
    const uintptr_t low = view->start_address + first * view->block_bytes;
    const uintptr_t high = view->start_address + end * view->block_bytes;
    return (struct slab_range){bits_align_down(low, page_bytes), bits_align_up(high, page_bytes)};
}

static const struct slab_range view_empty = {0, 0};

MALLOW_INTERNAL struct slab_range slab_view_word(const struct slab_view *view, size_t page_bytes) {
    const size_t first = view->word_index * 64;
    const size_t end = bits_min(first + 64, view->capacity_count);
    return view->word_bits == 0 ? view_empty : view_pages(view, first, end, page_bytes);
}

MALLOW_INTERNAL struct slab_range slab_view_lowest(const struct slab_view *view,
                                                   size_t page_bytes) {
    if (view->word_mine == 0) {
        return view_empty;
    }
    const size_t index = view->word_index * 64 + bits_lowest(view->word_mine);
    return view_pages(view, index, index + 1, page_bytes);
}

MALLOW_INTERNAL struct slab_range slab_view_hot(const struct slab_view *view, size_t page_bytes) {
    return view->hot_index == SIZE_MAX
               ? view_empty
               : view_pages(view, view->hot_index, view->hot_index + 1, page_bytes);
}
