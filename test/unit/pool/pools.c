// SPDX-License-Identifier: MIT
// See pools.h.
#include "pools.h"

enum { GUARD = 4096, MEMORY_MAX = 24 << 20 };

static unsigned char *memory_all;
static unsigned char *memory_start;
static size_t memory_bytes;

void *pools_memory(size_t bytes, size_t alignment) {
    if (memory_all == NULL) {
        memory_all = malloc(MEMORY_MAX);
    }
    assert_true(bytes + alignment + 2 * GUARD + alignment <= MEMORY_MAX);
    const uintptr_t start =
        bits_align_up((uintptr_t)memory_all + GUARD, 2 * alignment) + alignment; // and no more aligned
    memory_start = (unsigned char *)start;
    memory_bytes = bytes;
    memset(memory_start - GUARD, 0xa5, bytes + 2 * GUARD);
    return memory_start;
}

void pools_check_guards(void) {
    assert_true(unit_is_all(memory_start - GUARD, 0xa5, GUARD));
    assert_true(unit_is_all(memory_start + memory_bytes, 0xa5, GUARD));
}

static size_t chance_size(struct unit_chance *chance) {
    switch (unit_below(chance, 8)) {
    case 0: return 1 + unit_below(chance, 16);
    case 1: return 16 * (1 + unit_below(chance, 64));
    case 2: return (size_t)1 << unit_below(chance, 14);
    case 3: return 10000 + unit_below(chance, 90000);
    default: return 1 + unit_below(chance, 2000);
    }
}

static void chance_classes(struct pools_case *it, struct unit_chance *chance) {
    const size_t wanted = unit_below(chance, 10) == 0 ? 1 + unit_below(chance, MW_POOL_CLASSES_MAX)
                                                      : 1 + unit_below(chance, 12);
    const bool counted = unit_below(chance, 3) == 0;
    uint32_t left = MW_POOL_WHOLE;
    it->config.class_count = wanted;
    for (size_t i = 0; i < wanted; i++) {
        struct mw_pool_class *const class = &it->classes[i];
        *class = (struct mw_pool_class){.size_bytes = chance_size(chance)};
        if (unit_below(chance, 3) == 0) {
            class->alignment_bytes = (size_t)8 << unit_below(chance, 11);
        }
        const uint32_t share =
            i + 1 == wanted ? left : 1 + unit_below(chance, (unsigned)(left / (wanted - i)) * 3 / 2);
        class->share_ppm = counted ? 0 : share;
        class->block_count = counted ? 1 + unit_below(chance, 1 << unit_below(chance, 14)) : 0;
        left = share < left ? left - share : 0;
    }
    it->config.pool_bytes = counted ? 0 : 4096 + unit_below(chance, 4 << 20);
}

void pools_by_chance(struct pools_case *it, struct unit_chance *chance) {
    do {
        it->config = (struct mw_pool_config){.classes = it->classes,
                                             .fallback = unit_below(chance, 4) == 0,
                                             .remote = unit_below(chance, 4) == 0,
                                             .check_owner = unit_below(chance, 8) == 0};
        chance_classes(it, chance);
    } while (mw_pool_plan(&it->config, &it->plan, it->planned) != MW_POOL_OK ||
             it->plan.pool_bytes > MEMORY_MAX / 2);
}

struct mw_pool *pools_create(struct pools_case *it) {
    assert_int_equal(mw_pool_plan(&it->config, &it->plan, it->planned), MW_POOL_OK);
    it->config.memory = pools_memory(it->plan.pool_bytes, it->plan.alignment_bytes);
    struct mw_pool *pool = NULL;
    assert_int_equal(mw_pool_create_in(&it->config, &pool, NULL), MW_POOL_OK);
    assert_ptr_equal(pool, it->config.memory);
    return pool;
}

// ---- The audit ----------------------------------------------------------------------------------

// Free blocks by their owner's bits, or those of others; each group on the list iff its summary
// says so.
static size_t audit_area(const struct pool_area *area) {
    size_t free_count = 0;
    for (size_t first = 0; first < area->full_count; first += 4096) {
        const struct pool_group *const group = &area->groups[first / 4096];
        assert_int_equal(group->base, area->start + first * area->owner->lane.block_bytes);
        for (size_t word = 0; word < 64; word++) {
            const size_t at = first / 64 + word;
            const bool exists = at * 64 < area->full_count;
            const uint64_t bits = exists ? group->words[word] : 0;
            const uint64_t remote = exists && area->remote_words != NULL ? area->remote_words[at] : 0;
            assert_int_equal(group->summary >> word & 1, bits != 0);
            assert_int_equal(bits & remote, 0);
            free_count += bits_count(bits | remote);
            if (exists && area->full_count - at * 64 < 64) {
                assert_int_equal((bits | remote) >> (area->full_count - at * 64), 0);
            }
        }
        bool listed = false;
        for (const struct pool_group *at = area->owner->group; at != NULL; at = at->next) {
            assert_true(at->summary != 0);
            listed = listed || at == group;
        }
        assert_int_equal(listed, group->summary != 0);
    }
    return free_count;
}

// The lane's word is one of its class's, and its base that word's first block.
static void audit_lane(const struct mw_pool *pool, const struct pool_class *class) {
    const struct mw_pool_lane *const lane = &class->lane;
    bool found = false;
    for (size_t i = 0; i < pool->memory_count; i++) {
        const struct pool_area *const areas =
            (const struct pool_area *)(uintptr_t)(pool->memories[i] + 1);
        for (size_t place = 0; place < pool->class_count; place++) {
            const struct pool_area *const area = &areas[place];
            const size_t word = (size_t)(lane->word - area->words);
            if (area->owner == class && lane->word >= area->words &&
                word < (area->full_count + 63) / 64) {
                assert_int_equal(lane->base, area->start + word * 64 * lane->block_bytes);
                found = true;
            }
        }
    }
    assert_true(found);
}

void pools_audit(const struct mw_pool *pool) {
    size_t free_count[MW_POOL_CLASSES_MAX] = {0}, capacity[MW_POOL_CLASSES_MAX] = {0};
    for (size_t i = 0; i < pool->memory_count; i++) {
        const struct pool_area *const areas =
            (const struct pool_area *)(uintptr_t)(pool->memories[i] + 1);
        for (size_t place = 0; place < pool->class_count; place++) {
            free_count[areas[place].owner->rank] += audit_area(&areas[place]);
            capacity[areas[place].owner->rank] += areas[place].full_count;
        }
    }
    for (size_t rank = 0; rank < pool->class_count; rank++) {
        const struct pool_class *const class = pool_class_at(pool, rank);
        assert_int_equal(class->rank, rank);
        assert_int_equal(class->capacity, capacity[rank]);
        assert_int_equal(mw_pool_used_count(pool, class->index) + free_count[rank], capacity[rank]);
        assert_true(class->lane.headroom >= 0);
        assert_true(!pool->fallback || (pool->room[rank / 64] >> (rank % 64) & 1) ==
                                           (class->group != NULL));
        audit_lane(pool, class);
    }
}
