// SPDX-License-Identifier: MIT
// Pool create: a pool in memory that is given to it, and more memory for it.
#include "pool/pool_create.h"

// By hand: compilers may make a call of memset of an assignment, and there may be no libc.
static void pool_clear(struct mw_pool *pool) {
    unsigned char *const bytes = (unsigned char *)pool;
    for (size_t i = 0; i < sizeof *pool; i++) {
        bytes[i] = 0;
    }
}

static void pool_init(struct mw_pool *pool, const struct pool_layout *layout,
                      const struct mw_pool_config *config) {
    const uintptr_t start = (uintptr_t)pool;
    pool_clear(pool);
    pool->cell_shift = layout->cell_shift;
    pool->map = (const uint16_t *)(start + layout->map_at);
    pool->areas = (struct pool_area *)(start + layout->area_at);
    pool->classes = (struct pool_class *)(start + layout->class_at);
    pool->far = (uint16_t **)(start + layout->octave_at - layout->far_first * sizeof(uint16_t *));
    pool->far_shift = (const uint8_t *)(start + layout->shift_at - layout->far_first);
    pool->far_crowd = (uint32_t)layout->far_crowd;
    pool->class_count = (uint32_t)layout->class_count;
    pool->fallback = config->fallback;
    pool->remote = config->remote;
    pool->check_owner = config->check_owner;
    pool->prefault = config->prefault;
    pool->lock = config->lock;
    pool->full_bytes = layout->total_bytes;
    pool->remote_bytes = config->remote ? layout->total_bytes : 0;
    pool->full_direct_count = layout->direct_count;
    pool->full_reach_count = pool_layout_largest(layout) >> POOL_GRANULE_SHIFT;
    pool->ranks = (const uint8_t *)(start + layout->rank_at);
    pool->magic = POOL_MAGIC;
    if (config->check_owner) {
        atomic_store_explicit(&pool->owner, pool_this_thread(), memory_order_relaxed);
    } else { // else these stay 0, and every call takes the way that looks
        pool->bytes = layout->total_bytes;
        pool->direct_count = layout->direct_count;
        pool->direct_class_count = layout->class_count;
        pool->reach_count = layout->far_crowd <= 1 ? pool->full_reach_count : 0;
    }
}

static void pool_init_classes(struct mw_pool *pool, const struct pool_layout *layout,
                              const struct mw_pool_config *config) {
    uint8_t *const ranks = (uint8_t *)((uintptr_t)pool + layout->rank_at);
    const size_t last_word = (layout->class_count - 1) / 64;
    for (size_t rank = 0; rank < layout->class_count; rank++) {
        const size_t index = layout->by_rank[rank];
        const struct pool_layout_class *const from = &layout->classes[index];
        const uint64_t room_bit = UINT64_C(1) << (rank % 64);
        *pool_class_at(pool, rank) =
            (struct pool_class){.lane.block_bytes = from->block_bytes,
                                .room = &pool->room[rank / 64],
                                .first = pool_class_at(pool, rank / 64 * 64),
                                .room_bit = config->fallback ? room_bit : 0,
                                .bigger = config->fallback && !config->remote
                                              ? ~(room_bit | (room_bit - 1)) : 0,
                                .alignment = from->alignment,
                                .weight = from->weight,
                                .index = (uint16_t)index,
                                .rank = (uint16_t)rank,
                                .behind = config->fallback && !config->remote &&
                                          rank / 64 < last_word};
        ranks[index] = (uint8_t)rank;
    }
}

// The entry of a table of sizes for the smallest class above `last`; *rank is where to look from.
static uint16_t pool_entry_above(const struct mw_pool *pool, size_t *rank, size_t last) {
    while (pool_class_at(pool, *rank)->lane.block_bytes <= last) {
        ++*rank;
    }
    const uintptr_t class = (uintptr_t)pool_class_at(pool, *rank);
    return (uint16_t)((class - (uintptr_t)pool) >> POOL_PLACE_SHIFT);
}

static void pool_init_tables(struct mw_pool *pool, const struct pool_layout *layout) {
    const uintptr_t start = (uintptr_t)pool;
    uint16_t *const direct = pool_direct(pool);
    size_t rank = 0;
    for (size_t granule = 0; granule < layout->direct_count; granule++) {
        direct[granule] = pool_entry_above(pool, &rank, granule << POOL_GRANULE_SHIFT);
    }
    uint16_t **const octaves = (uint16_t **)(start + layout->octave_at);
    uint8_t *const shifts = (uint8_t *)(start + layout->shift_at);
    uint16_t *cells = (uint16_t *)(start + layout->far_at);
    rank = 0;
    for (size_t i = 0; i < layout->far_octaves; i++) {
        const size_t octave = layout->far_first + i;
        const size_t count = pool_layout_octave_cells(layout, octave);
        const size_t first = (size_t)1 << octave;
        shifts[i] = layout->far_shift[octave];
        octaves[i] = (uint16_t *)((uintptr_t)cells - (first >> shifts[i]) * sizeof *cells);
        for (size_t cell = 0; cell < count; cell++) {
            *cells++ = pool_entry_above(pool, &rank, first + (cell << shifts[i]));
        }
    }
}

// Puts a memory in its place among the others.
static void pool_memory_add(struct mw_pool *pool, struct pool_memory *memory) {
    size_t at = pool->memory_count++;
    for (; at > 0 && pool->starts[at - 1] > memory->start; at--) {
        pool->starts[at] = pool->starts[at - 1];
        pool->memories[at] = pool->memories[at - 1];
    }
    pool->starts[at] = memory->start;
    pool->memories[at] = memory;
    for (at = pool->memory_count; at < MW_POOL_MEMORIES_MAX; at++) {
        pool->starts[at] = UINTPTR_MAX;
        pool->memories[at] = memory; // any: an address that high is in none
    }
}

MALLOW_INTERNAL void pool_create_none(struct mw_pool **pool, size_t *problem) {
    if (pool != NULL) {
        *pool = NULL;
    }
    if (problem != NULL) {
        *problem = MW_POOL_NO_CLASS;
    }
}

MALLOW_INTERNAL enum mw_pool_status pool_create_checked(const struct mw_pool_config *config,
                                                        struct mw_pool **result,
                                                        size_t *problem) {
    size_t unused;
    problem = problem != NULL ? problem : &unused;
    pool_create_none(result, problem);
    if (config == NULL || result == NULL) {
        return MW_POOL_NULL_ARGUMENT;
    }
    struct pool_layout layout;
    enum mw_pool_status status = pool_layout_begin(&layout, config, problem);
    if (status == MW_POOL_OK) {
        status = pool_layout_end(&layout, config->pool_bytes, problem);
    }
    if (status != MW_POOL_OK) {
        return status;
    }
    const uintptr_t start = (uintptr_t)config->memory;
    if (start == 0) {
        return MW_POOL_NEEDS_MEMORY;
    }
    if (start % layout.alignment != 0) {
        return MW_POOL_MEMORY_MISALIGNED;
    }
    struct mw_pool *const pool = (struct mw_pool *)start;
    pool_init(pool, &layout, config);
    pool_init_classes(pool, &layout, config);
    pool_init_tables(pool, &layout);
    const size_t given = config->pool_bytes != 0 ? config->pool_bytes : layout.total_bytes;
    pool_memory_add(pool, pool_format(pool, &layout, start, given));
    *result = pool;
    return MW_POOL_OK;
}

enum mw_pool_status mw_pool_create_in(const struct mw_pool_config *config, struct mw_pool **pool,
                                      size_t *problem_class) {
    pool_create_none(pool, problem_class);
    return config != NULL && (config->prefault || config->lock)
               ? MW_POOL_NEEDS_HOST
               : pool_create_checked(config, pool, problem_class);
}

static bool pool_overlaps(const struct mw_pool *pool, uintptr_t start, size_t bytes) {
    bool overlaps = bytes > UINTPTR_MAX - start;
    for (size_t i = 0; i < pool->memory_count; i++) {
        const struct pool_memory *const memory = pool->memories[i];
        overlaps = overlaps || (start < memory->start + memory->given_bytes &&
                                memory->start < start + bytes);
    }
    return overlaps;
}

MALLOW_INTERNAL enum mw_pool_status pool_attach_layout(const struct mw_pool *pool, size_t bytes,
                                                       struct pool_layout *layout) {
    if (!pool_is_valid(pool)) {
        return MW_POOL_NOT_A_POOL;
    }
    if (pool->memory_count == MW_POOL_MEMORIES_MAX) {
        return MW_POOL_TOO_MANY_MEMORIES;
    }
    size_t problem;
    pool_layout_again(layout, pool);
    return pool_layout_end(layout, bytes, &problem);
}

// How many blocks of a class are free by their owner's bits.
static size_t pool_free_count(const struct mw_pool *pool, const struct pool_class *class) {
    size_t count = 0;
    for (size_t i = 0; i < pool->memory_count; i++) {
        const struct pool_area *area = (const struct pool_area *)(pool->memories[i] + 1);
        while (area->owner != class) {
            area++;
        }
        for (size_t word = 0; word < pool_word_count(area->full_count); word++) {
            count += bits_count(pool_word_get(&area->words[word]));
        }
    }
    return count;
}

// What others have freed of an exhausted class is taken back without being counted, as its peak is
// the capacity for good (pool_take_freed). With more memory it is not: the counts are made good.
static void pool_settle_peaks(struct mw_pool *pool) {
    for (size_t rank = 0; rank < pool->class_count; rank++) {
        struct pool_class *const class = pool_class_at(pool, rank);
        struct mw_pool_lane *const lane = &class->lane;
        if (pool->remote && lane->peak_count >= class->capacity) {
            const size_t live_count = class->capacity - pool_free_count(pool, class);
            class->seen += lane->peak_count - (size_t)lane->headroom - live_count;
            lane->peak_count = class->capacity;
            lane->headroom = (ptrdiff_t)(class->capacity - live_count);
        }
    }
}

MALLOW_INTERNAL struct pool_memory *pool_attach_formatted(struct mw_pool *pool,
                                                          const struct pool_layout *layout,
                                                          uintptr_t start, size_t bytes) {
    pool_settle_peaks(pool);
    struct pool_memory *const memory = pool_format(pool, layout, start, bytes);
    pool_memory_add(pool, memory);
    return memory;
}

enum mw_pool_status mw_pool_attach(struct mw_pool *pool, void *memory, size_t memory_bytes) {
    if (memory == NULL) {
        return MW_POOL_NEEDS_MEMORY;
    }
    struct pool_layout layout;
    const enum mw_pool_status status = pool_attach_layout(pool, memory_bytes, &layout);
    if (status != MW_POOL_OK) {
        return status;
    }
    const uintptr_t start = (uintptr_t)memory;
    if (start % layout.alignment != 0) {
        return MW_POOL_MEMORY_MISALIGNED;
    }
    if (pool_overlaps(pool, start, memory_bytes)) {
        return MW_POOL_MEMORY_OVERLAPS;
    }
    (void)pool_attach_formatted(pool, &layout, start, memory_bytes);
    return MW_POOL_OK;
}

enum mw_pool_status mw_pool_bind(struct mw_pool *pool) {
    if (!pool_is_valid(pool)) {
        return MW_POOL_NOT_A_POOL;
    }
    if (pool->check_owner) {
        atomic_store_explicit(&pool->owner, pool_this_thread(), memory_order_relaxed);
    }
    return MW_POOL_OK;
}
