// SPDX-License-Identifier: MIT
// Pool format: writes the bookkeeping of one memory, all blocks free. See pool_layout.h.
//
// Holds    the condition that pool_index_by needs: an area that does not meet it has no reciprocal.
#include "pool/pool_layout.h"

// Where the next group, word ... goes.
struct pool_writer {
    struct pool_group *group;
    uint64_t *word;
    uintptr_t remote; // remote parts of an area's groups, then its remote words
};

static void *pool_at(uintptr_t start, size_t offset) {
    return (void *)(start + offset);
}

static void pool_format_group(struct pool_writer *to, const struct pool_area *area, size_t index) {
    struct pool_group *const group = to->group++;
    const size_t first = index << POOL_GROUP_SHIFT;
    const size_t blocks = bits_min(area->full_count - first, (size_t)1 << POOL_GROUP_SHIFT);
    const size_t words = pool_word_count(blocks);
    group->words = to->word;
    group->base = area->start + first * area->owner->lane.block_bytes;
    group->summary = words == 64 ? ~UINT64_C(0) : (UINT64_C(1) << words) - 1;
    for (size_t i = 0; i < words; i++) {
        const size_t left = blocks - i * 64;
        to->word[i] = left >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << left) - 1;
    }
    to->word += words;
    if (area->remote_words == NULL) {
        return;
    }
    struct pool_remote *const remote = pool_remote_of(area, first);
    remote->group = group;
    remote->next = NULL;
    remote->words = area->remote_words + (first >> POOL_WORD_SHIFT);
    atomic_init(&remote->summary, 0);
    for (size_t i = 0; i < words; i++) {
        atomic_init(&remote->words[i], 0);
    }
}

// The groups of a new memory go before those that the class has, in order of address.
static void pool_format_area(struct pool_area *area, struct pool_writer *to) {
    struct pool_class *const class = area->owner;
    const size_t groups = pool_group_count(area->full_count);
    area->words = to->word;
    area->groups = to->group;
    if (to->remote != 0) {
        to->remote += groups * sizeof(struct pool_remote);
        area->remote_words = (_Atomic(uint64_t) *)to->remote;
        to->remote += pool_word_count(area->full_count) * sizeof(uint64_t);
    }
    for (size_t i = 0; i < groups; i++) {
        pool_format_group(to, area, i);
        area->groups[i].next = i + 1 < groups ? &area->groups[i + 1] : class->group;
    }
    class->group = area->groups;
    *class->room |= class->room_bit;
    class->capacity += area->full_count;
}

// Of the first memory.
static void pool_format_lane(const struct pool_area *area) {
    struct mw_pool_lane *const lane = &area->owner->lane;
    lane->word = area->words;
    lane->base = area->start;
    lane->start = area->start;
    lane->reciprocal = area->reciprocal;
    lane->block_count = area->count;
    lane->words = area->words;
    area->owner->groups = area->groups;
}

static void pool_format_map(const struct pool_layout *layout, uint16_t *map) {
    size_t place = 0;
    for (size_t cell = 0; cell < layout->cell_count; cell++) {
        while (place + 1 < layout->class_count &&
               layout->classes[layout->by_place[place + 1]].start <= cell << layout->cell_shift) {
            place++;
        }
        map[cell] = (uint16_t)(place * sizeof(struct pool_area));
    }
}

MALLOW_INTERNAL struct pool_memory *pool_format(struct mw_pool *pool,
                                                const struct pool_layout *layout, uintptr_t start,
                                                size_t bytes) {
    struct pool_memory *const memory = pool_at(start, layout->memory_at);
    uint16_t *const map = pool_at(start, layout->map_at);
    struct pool_area *const areas = (struct pool_area *)(memory + 1);
    *memory = (struct pool_memory){.start = start,
                                   .bytes = layout->total_bytes,
                                   .given_bytes = bytes,
                                   .map = map,
                                   .cell_shift = layout->cell_shift,
                                   .metadata_bytes = layout->metadata_bytes};
    struct pool_writer to = {.group = pool_at(start, layout->group_at),
                             .word = pool_at(start, layout->word_at),
                             .remote = layout->remote ? start + layout->remote_at : 0};
    for (size_t place = 0; place < layout->class_count; place++) {
        const size_t index = layout->by_place[place];
        const struct pool_layout_class *const from = &layout->classes[index];
        struct pool_class *const class = pool_class_at(pool, pool->ranks[index]);
        const bool multiplied = pool_is_multiplied(from->block_bytes, from->count);
        areas[place] =
            (struct pool_area){.start = start + from->start,
                               .reciprocal = multiplied ? pool_reciprocal(from->block_bytes) : 0,
                               .count = layout->remote ? 0 : from->count,
                               .owner = class,
                               .full_count = from->count};
        pool_format_area(&areas[place], &to);
        if (layout->first) {
            pool_format_lane(&areas[place]);
        }
    }
    areas[layout->class_count] = (struct pool_area){.start = UINTPTR_MAX};
    pool_format_map(layout, map);
    return memory;
}
