// SPDX-License-Identifier: MIT
// Pool layout: see pool_layout.h.
#include "pool/pool_layout.h"

#define POOL_LINE ((size_t)MALLOW_CACHE_LINE)
#define POOL_BYTES_MAX ((size_t)PTRDIFF_MAX)

// ---- Checking a configuration -------------------------------------------------------------------

static enum mw_pool_status pool_check_class(const struct mw_pool_class *from,
                                            struct pool_layout_class *class) {
    const size_t alignment =
        from->alignment_bytes != 0 ? from->alignment_bytes : MW_POOL_ALIGNMENT_DEFAULT;
    if (from->size_bytes == 0) {
        return MW_POOL_CLASS_SIZE_ZERO;
    }
    if (!bits_is_power_of_two(alignment) || alignment < POOL_ALIGNMENT_MIN ||
        alignment > POOL_ALIGNMENT_MAX) {
        return MW_POOL_BAD_ALIGNMENT;
    }
    if (from->size_bytes > POOL_BYTES_MAX - alignment) {
        return MW_POOL_CLASS_SIZE_TOO_BIG;
    }
    if (from->share_ppm == 0 && from->block_count == 0) {
        return MW_POOL_SHARE_ZERO;
    }
    *class = (struct pool_layout_class){.block_bytes = bits_align_up(from->size_bytes, alignment),
                                        .alignment = alignment,
                                        .weight = from->share_ppm,
                                        .count = from->block_count};
    size_t bytes = 0;
    if (!bits_multiply(class->block_bytes, class->count, &bytes) || bytes > POOL_BYTES_MAX) {
        return MW_POOL_CLASS_SIZE_TOO_BIG;
    }
    return MW_POOL_OK;
}

static enum mw_pool_status pool_check_shares(struct pool_layout *layout,
                                             const struct mw_pool_config *config,
                                             size_t *problem) {
    uint64_t sum = 0;
    layout->counted = config->classes[0].block_count != 0;
    for (size_t i = 0; i < config->class_count; i++) {
        const struct mw_pool_class *const class = &config->classes[i];
        if ((class->block_count != 0) != layout->counted ||
            (class->share_ppm != 0) == layout->counted) {
            *problem = i;
            return MW_POOL_SHARES_MIXED;
        }
        sum += class->share_ppm;
    }
    if (!layout->counted && sum != MW_POOL_WHOLE) {
        return sum < MW_POOL_WHOLE ? MW_POOL_SHARES_BELOW_WHOLE : MW_POOL_SHARES_ABOVE_WHOLE;
    }
    return MW_POOL_OK;
}

// With counts, weights are what the classes' blocks take, scaled so that their sum fits 32 bits.
static void pool_weigh(struct pool_layout *layout) {
    size_t sum = 0;
    for (size_t i = 0; i < layout->class_count && layout->counted; i++) {
        sum += layout->classes[i].block_bytes * layout->classes[i].count / MW_POOL_CLASSES_MAX;
    }
    const unsigned shift = sum >> 22 != 0 ? bits_highest(sum) - 21 : 0;
    layout->weight_sum = 0;
    for (size_t i = 0; i < layout->class_count; i++) {
        struct pool_layout_class *const class = &layout->classes[i];
        if (layout->counted) {
            class->weight = (class->block_bytes * class->count >> shift) + 1;
        }
        layout->weight_sum += class->weight;
    }
}

// ---- Orders and tables of sizes -----------------------------------------------------------------

static bool pool_comes_first(const struct pool_layout_class *a, const struct pool_layout_class *b) {
    return a->alignment != b->alignment ? a->alignment > b->alignment
                                        : a->block_bytes > b->block_bytes;
}

// By insertion: at most 256 classes, once.
static void pool_sort(struct pool_layout *layout) {
    const struct pool_layout_class *const classes = layout->classes;
    for (size_t i = 0; i < layout->class_count; i++) {
        size_t at = i;
        for (; at > 0 && classes[layout->by_rank[at - 1]].block_bytes > classes[i].block_bytes;
             at--) {
            layout->by_rank[at] = layout->by_rank[at - 1];
        }
        layout->by_rank[at] = (uint8_t)i;
        for (at = i; at > 0 && pool_comes_first(&classes[i], &classes[layout->by_place[at - 1]]);
             at--) {
            layout->by_place[at] = layout->by_place[at - 1];
        }
        layout->by_place[at] = (uint8_t)i;
    }
}

static enum mw_pool_status pool_check_order(const struct pool_layout *layout, size_t *problem) {
    for (size_t rank = 1; rank < layout->class_count; rank++) {
        const size_t below = layout->by_rank[rank - 1], here = layout->by_rank[rank];
        if (layout->classes[below].block_bytes == layout->classes[here].block_bytes) {
            *problem = bits_max(below, here);
            return MW_POOL_DUPLICATE_CLASS;
        }
    }
    return MW_POOL_OK;
}

static size_t pool_size_of_rank(const struct pool_layout *layout, size_t rank) {
    return layout->classes[layout->by_rank[rank]].block_bytes;
}

MALLOW_INTERNAL size_t pool_layout_largest(const struct pool_layout *layout) {
    return pool_size_of_rank(layout, layout->class_count - 1);
}

// The most classes of an octave that end in one cell of 2^shift sizes.
static size_t pool_crowd(const struct pool_layout *layout, size_t octave, size_t shift) {
    size_t most = 0, here = 0, before = SIZE_MAX;
    for (size_t rank = 0; rank < layout->class_count; rank++) {
        const size_t last = pool_size_of_rank(layout, rank) - 1;
        const size_t cell = last >> shift;
        if (last >> octave == 1) {
            here = cell == before ? here + 1 : 1;
            before = cell;
            most = bits_max(most, here);
        }
    }
    return most;
}

MALLOW_INTERNAL size_t pool_layout_octave_cells(const struct pool_layout *layout, size_t octave) {
    const size_t first = (size_t)1 << octave;
    const size_t last = bits_min(pool_layout_largest(layout), 2 * first) - 1;
    return ((last - first) >> layout->far_shift[octave]) + 1;
}

// As few cells as leave at most `crowd` classes that end in one.
static void pool_plan_octaves(struct pool_layout *layout, size_t crowd) {
    layout->far_count = 0;
    layout->far_crowd = 0;
    for (size_t i = 0; i < layout->far_octaves; i++) {
        const size_t octave = layout->far_first + i;
        size_t shift = octave, most = pool_crowd(layout, octave, shift);
        while (most > crowd && shift > POOL_GRANULE_SHIFT) {
            most = pool_crowd(layout, octave, --shift);
        }
        layout->far_shift[octave] = (uint8_t)shift;
        layout->far_count += pool_layout_octave_cells(layout, octave);
        layout->far_crowd = bits_max(layout->far_crowd, most);
    }
}

// A cell for each granule of sizes finds the class at once; as many as a pool of this size has to
// spare, at most what 16 KiB need, and one. Sizes beyond are told by octaves, each with cells as
// wide as its classes allow: so that of the classes of a cell one may be too small, or a few where
// that takes more cells than there are to spare.
static void pool_plan_tables(struct pool_layout *layout, size_t bytes) {
    const size_t spare = bits_max(bytes / 2048, 128);
    const size_t largest = pool_layout_largest(layout);
    layout->direct_count = 1;
    for (size_t rank = 0; rank < layout->class_count; rank++) {
        const size_t top = pool_size_of_rank(layout, rank) >> POOL_GRANULE_SHIFT;
        if (top <= bits_min(spare, POOL_DIRECT_MAX)) {
            layout->direct_count = top;
        }
    }
    const size_t beyond = layout->direct_count << POOL_GRANULE_SHIFT;
    layout->far_first = bits_highest(beyond);
    layout->far_octaves = largest > beyond ? bits_highest(largest - 1) + 1 - layout->far_first : 0;
    size_t crowd = 1;
    do {
        pool_plan_octaves(layout, crowd);
        crowd *= 2;
    } while (layout->far_count > bits_min(spare, 65536));
}

MALLOW_INTERNAL enum mw_pool_status pool_layout_begin(struct pool_layout *layout,
                                                      const struct mw_pool_config *config,
                                                      size_t *problem) {
    *problem = MW_POOL_NO_CLASS;
    if (config->class_count == 0) {
        return MW_POOL_NO_CLASSES;
    }
    if (config->classes == NULL) {
        return MW_POOL_NULL_ARGUMENT;
    }
    if (config->class_count > MW_POOL_CLASSES_MAX) {
        return MW_POOL_TOO_MANY_CLASSES;
    }
    layout->class_count = config->class_count;
    layout->remote = config->remote;
    layout->first = true;
    layout->alignment = POOL_LINE;
    for (size_t i = 0; i < config->class_count; i++) {
        const enum mw_pool_status status =
            pool_check_class(&config->classes[i], &layout->classes[i]);
        if (status != MW_POOL_OK) {
            *problem = i;
            return status;
        }
        layout->alignment = bits_max(layout->alignment, layout->classes[i].alignment);
    }
    enum mw_pool_status status = pool_check_shares(layout, config, problem);
    if (status == MW_POOL_OK) {
        pool_sort(layout);
        status = pool_check_order(layout, problem);
    }
    if (status == MW_POOL_OK) {
        pool_weigh(layout);
    }
    return status;
}

MALLOW_INTERNAL void pool_layout_again(struct pool_layout *layout, const struct mw_pool *pool) {
    layout->class_count = pool->class_count;
    layout->remote = pool->remote;
    layout->first = false;
    layout->counted = false;
    layout->alignment = POOL_LINE;
    layout->weight_sum = 0;
    for (size_t rank = 0; rank < pool->class_count; rank++) {
        const struct pool_class *const class = pool_class_at(pool, rank);
        layout->classes[class->index] =
            (struct pool_layout_class){.block_bytes = class->lane.block_bytes,
                                       .alignment = class->alignment,
                                       .weight = class->weight};
        layout->alignment = bits_max(layout->alignment, class->alignment);
        layout->weight_sum += class->weight;
    }
    pool_sort(layout);
}

// ---- Placing ------------------------------------------------------------------------------------

MALLOW_INTERNAL size_t pool_layout_class_bytes(bool remote, size_t count) {
    const size_t words = pool_word_count(count) * sizeof(uint64_t);
    const size_t groups = pool_group_count(count);
    return remote
               ? 2 * words + groups * (sizeof(struct pool_group) + sizeof(struct pool_remote))
               : words + groups * sizeof(struct pool_group);
}

static size_t pool_advance(size_t *at, size_t bytes) {
    const size_t here = *at;
    *at += bytes;
    return here;
}

// Everything but the blocks.
static void pool_place_metadata(struct pool_layout *layout) {
    const size_t class_count = layout->class_count;
    size_t words = 0, groups = 0, at = 0;
    for (size_t i = 0; i < class_count; i++) {
        words += pool_word_count(layout->classes[i].count);
        groups += pool_group_count(layout->classes[i].count);
    }
    if (layout->first) {
        at = sizeof(struct mw_pool) + layout->direct_count * sizeof(uint16_t);
        at = bits_align_up(at, POOL_LINE);
        layout->class_at = pool_advance(&at, class_count * sizeof(struct pool_class));
        layout->octave_at = pool_advance(&at, layout->far_octaves * sizeof(uint16_t *));
        layout->far_at = pool_advance(&at, layout->far_count * sizeof(uint16_t));
        layout->shift_at = pool_advance(&at, layout->far_octaves);
        layout->rank_at = pool_advance(&at, class_count);
        at = bits_align_up(at, POOL_LINE);
    }
    layout->memory_at = pool_advance(&at, sizeof(struct pool_memory));
    layout->area_at = pool_advance(&at, (class_count + 1) * sizeof(struct pool_area));
    layout->group_at = pool_advance(&at, groups * sizeof(struct pool_group));
    layout->word_at = pool_advance(&at, words * sizeof(uint64_t));
    const size_t remote = groups * sizeof(struct pool_remote) + words * sizeof(uint64_t);
    layout->remote_at = pool_advance(&at, layout->remote ? remote : 0);
    layout->map_at = pool_advance(&at, layout->cell_count * sizeof(uint16_t));
    layout->metadata_bytes = at;
}

// False if the end exceeds what a memory can have.
static bool pool_place(struct pool_layout *layout) {
    pool_place_metadata(layout);
    const size_t cell = (size_t)1 << layout->cell_shift;
    size_t at = layout->metadata_bytes;
    size_t before = 0;
    for (size_t place = 0; place < layout->class_count; place++) {
        struct pool_layout_class *const class = &layout->classes[layout->by_place[place]];
        at = bits_align_up(at, class->alignment);
        const bool same_cell = at >> layout->cell_shift == before >> layout->cell_shift;
        if (place >= 2 && same_cell && before % cell != 0) {
            at = bits_align_up(bits_align_up(at + 1, cell), class->alignment);
        }
        class->start = at;
        before = at;
        size_t bytes = 0;
        if (!bits_multiply(class->count, class->block_bytes, &bytes) ||
            bytes > POOL_BYTES_MAX - at || at + bytes > POOL_BYTES_MAX - POOL_ALIGNMENT_MAX) {
            return false;
        }
        at += bytes;
    }
    layout->total_bytes = at;
    return true;
}

// Cells of the map: one for a single class; else so many that a small area's own cell costs little,
// and that the map does. What areas leave that are moved to cells of their own is a quarter of the
// memory at most.
static void pool_choose_cells(struct pool_layout *layout, size_t bytes) {
    if (layout->class_count == 1) {
        layout->cell_shift = sizeof(size_t) * 8 - 1;
        layout->cell_count = 1;
        return;
    }
    const size_t cells = bits_max(bits_min(bytes / 4096, 256 * layout->class_count),
                                  8 * layout->class_count);
    layout->cell_shift = bits_max(6, bits_log2_ceil(bytes / cells + 1));
    layout->cell_count = bytes == 0 ? 1 : ((bytes - 1) >> layout->cell_shift) + 1;
}

// ---- Shares -------------------------------------------------------------------------------------

// The most blocks that `bytes` hold with their words and groups.
static size_t pool_fit(const struct pool_layout *layout, size_t bytes, size_t block_bytes) {
    size_t low = 0, high = bytes / block_bytes;
    while (low < high) {
        const size_t count = high - (high - low) / 2;
        if (pool_layout_class_bytes(layout->remote, count) <= bytes - count * block_bytes) {
            low = count;
        } else {
            high = count - 1;
        }
    }
    return low;
}

static enum mw_pool_status pool_share_out(struct pool_layout *layout, size_t bytes,
                                          size_t *problem) {
    for (size_t i = 0; i < layout->class_count; i++) {
        struct pool_layout_class *const class = &layout->classes[i];
        const uint64_t whole = bytes / layout->weight_sum * class->weight;
        const uint64_t rest =
            (uint64_t)(bytes % layout->weight_sum) * class->weight / layout->weight_sum;
        class->count = pool_fit(layout, (size_t)(whole + rest), class->block_bytes);
        if (class->count == 0) {
            *problem = i;
            return MW_POOL_CLASS_EMPTY;
        }
    }
    return MW_POOL_OK;
}

// What rounding left goes to the classes, the biggest first, as far as it goes.
static void pool_share_rest(struct pool_layout *layout, size_t bytes) {
    for (size_t rank = layout->class_count; rank-- > 0;) {
        struct pool_layout_class *const class = &layout->classes[layout->by_rank[rank]];
        const size_t count = class->count;
        size_t low = 0, high = (bytes - layout->total_bytes) / class->block_bytes;
        while (low < high) {
            const size_t more = high - (high - low) / 2;
            class->count = count + more;
            if (pool_place(layout) && layout->total_bytes <= bytes) {
                low = more;
            } else {
                high = more - 1;
            }
        }
        class->count = count + low;
        (void)pool_place(layout);
    }
}

static enum mw_pool_status pool_layout_divide(struct pool_layout *layout, size_t bytes,
                                              size_t *problem) {
    if (!pool_place(layout) || layout->total_bytes > bytes) { // with no block at all
        return MW_POOL_TOO_SMALL;
    }
    size_t budget = bytes - layout->total_bytes;
    for (;;) {
        const enum mw_pool_status status = pool_share_out(layout, budget, problem);
        if (status != MW_POOL_OK) {
            return status;
        }
        if (!pool_place(layout)) {
            return MW_POOL_TOO_BIG;
        }
        if (layout->total_bytes <= bytes) {
            pool_share_rest(layout, bytes);
            return MW_POOL_OK;
        }
        const size_t excess = layout->total_bytes - bytes; // padding that blocks brought about
        budget -= bits_min(excess, budget);
    }
}

MALLOW_INTERNAL enum mw_pool_status pool_layout_end(struct pool_layout *layout, size_t bytes,
                                                    size_t *problem) {
    if (bytes > POOL_BYTES_MAX) {
        return MW_POOL_TOO_BIG;
    }
    if (!layout->counted) {
        for (size_t i = 0; i < layout->class_count; i++) {
            layout->classes[i].count = 0;
        }
        pool_choose_cells(layout, bytes);
        if (layout->first) {
            pool_plan_tables(layout, bytes);
        }
        return pool_layout_divide(layout, bytes, problem);
    }
    size_t payload = 0;
    for (size_t i = 0; i < layout->class_count; i++) {
        payload += layout->classes[i].block_bytes * layout->classes[i].count;
        if (payload > POOL_BYTES_MAX) {
            return MW_POOL_TOO_BIG;
        }
    }
    pool_choose_cells(layout, payload);
    pool_plan_tables(layout, payload);
    for (;;) { // the map covers itself, too
        if (!pool_place(layout)) {
            return MW_POOL_TOO_BIG;
        }
        const size_t cells = ((layout->total_bytes - 1) >> layout->cell_shift) + 1;
        if (cells <= layout->cell_count) {
            break;
        }
        layout->cell_count = cells;
    }
    return bytes != 0 && layout->total_bytes > bytes ? MW_POOL_TOO_SMALL : MW_POOL_OK;
}
