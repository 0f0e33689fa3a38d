// SPDX-License-Identifier: MIT
// Pool: operations by chance against a model; every answer to every pointer; fallback, attached
// memory, and what the owner check says.
#include "pool/pool.h"

#include "pools.h"

static struct pools_case it;

static void plain(size_t class_count, const size_t *sizes, size_t count_each) {
    memset(&it, 0, sizeof it);
    it.config = (struct mw_pool_config){.classes = it.classes, .class_count = class_count};
    for (size_t i = 0; i < class_count; i++) {
        it.classes[i] = (struct mw_pool_class){.size_bytes = sizes[i], .block_count = count_each};
    }
}

// ---- A model ------------------------------------------------------------------------------------

enum { LIVE_MAX = 1 << 16 };

static struct {
    unsigned char *block;
    size_t class_index;
    unsigned char tag;
} live[LIVE_MAX];
static size_t live_count;
static size_t used[MW_POOL_CLASSES_MAX];
static size_t peak[MW_POOL_CLASSES_MAX];
static unsigned char *freed[64]; // some of those freed, live again or not

static size_t model_class(size_t size) {
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < it.config.class_count; i++) {
        const size_t bytes = it.planned[i].block_bytes;
        const bool full = it.config.fallback && used[i] == it.planned[i].capacity_count;
        if (bytes >= size && !full && (best == SIZE_MAX || bytes < it.planned[best].block_bytes)) {
            best = i;
        }
    }
    return best;
}

// Some classes are also used by their lanes: what the two ways do must be the same.
static bool by_lanes;

static void *alloc_by_lane(struct mw_pool *pool, size_t size, enum mw_pool_status *status) {
    const size_t class_index = model_class(size);
    struct mw_pool_lane *const lane =
        class_index != SIZE_MAX ? mw_pool_lane_of(pool, class_index) : NULL;
    if (size == 0 || lane == NULL || it.config.fallback) {
        return mw_pool_alloc_status(pool, size, status);
    }
    void *const block = mw_pool_take(pool, lane);
    *status = block != NULL ? MW_POOL_OK : mw_pool_last_status(pool);
    return block;
}

static enum mw_pool_status free_by_lane(struct mw_pool *pool, void *block, size_t class_index) {
    struct mw_pool_lane *const lane = by_lanes ? mw_pool_lane_of(pool, class_index) : NULL;
    return lane != NULL ? mw_pool_give(pool, lane, block) : mw_pool_free(pool, block);
}

static void check_null(enum mw_pool_status status, size_t size, size_t class_index) {
    size_t largest = 0;
    for (size_t i = 0; i < it.config.class_count; i++) {
        largest = bits_max(largest, it.planned[i].block_bytes);
    }
    if (size == 0 || size > largest) {
        assert_int_equal(status, size == 0 ? MW_POOL_SIZE_ZERO : MW_POOL_SIZE_TOO_BIG);
    } else if (it.config.fallback) {
        assert_int_equal(status, MW_POOL_EXHAUSTED_ALL);
        assert_int_equal(class_index, SIZE_MAX);
    } else {
        assert_int_equal(status, MW_POOL_EXHAUSTED);
        assert_int_equal(used[class_index], it.planned[class_index].capacity_count);
    }
}

static void model_alloc(struct mw_pool *pool, size_t size) {
    enum mw_pool_status status = MW_POOL_NULL_ARGUMENT;
    unsigned char *const block = by_lanes ? alloc_by_lane(pool, size, &status)
                                          : mw_pool_alloc_status(pool, size, &status);
    const size_t expected = size == 0 ? SIZE_MAX : model_class(size);
    if (block == NULL) {
        check_null(status, size, expected);
        return;
    }
    assert_int_equal(status, MW_POOL_OK);
    size_t class_index = 0;
    assert_int_equal(mw_pool_find(pool, block, &class_index), MW_POOL_OK);
    assert_int_equal(class_index, expected);
    assert_true(used[class_index] < it.planned[class_index].capacity_count);
    used[class_index]++;
    peak[class_index] = bits_max(peak[class_index], used[class_index]);
    const unsigned char tag = (unsigned char)(live_count * 31 + size);
    memset(block, tag, it.planned[class_index].block_bytes);
    assert_true(live_count < LIVE_MAX);
    live[live_count].block = block;
    live[live_count].class_index = class_index;
    live[live_count++].tag = tag;
}

static void model_free(struct mw_pool *pool, size_t at) {
    unsigned char *const block = live[at].block;
    assert_true(unit_is_all(block, live[at].tag, it.planned[live[at].class_index].block_bytes));
    const size_t class_index = live[at].class_index;
    const size_t other = (class_index + 1) % it.config.class_count; // any lane will do for a free
    assert_int_equal(free_by_lane(pool, block, at % 3 == 0 ? other : class_index), MW_POOL_OK);
    assert_int_equal(free_by_lane(pool, block, class_index), MW_POOL_DOUBLE_FREE);
    assert_int_equal(free_by_lane(pool, block, other), MW_POOL_DOUBLE_FREE);
    assert_int_equal(mw_pool_find(pool, block, NULL), MW_POOL_DOUBLE_FREE);
    used[live[at].class_index]--;
    freed[((uintptr_t)block >> 4) % 64] = block;
    live[at] = live[--live_count];
}

static bool model_is_live(const unsigned char *block) {
    for (size_t i = 0; i < live_count; i++) {
        if (live[i].block == block) {
            return true;
        }
    }
    return false;
}

static void model_stats(const struct mw_pool *pool) {
    static struct mw_pool_class_stats stats[MW_POOL_CLASSES_MAX];
    assert_int_equal(mw_pool_stats(pool, stats, MW_POOL_CLASSES_MAX), it.config.class_count);
    uint64_t bytes = 0;
    for (size_t i = 0; i < it.config.class_count; i++) {
        assert_int_equal(stats[i].block_bytes, it.planned[i].block_bytes);
        assert_int_equal(stats[i].capacity_count, it.planned[i].capacity_count);
        assert_int_equal(stats[i].used_count, used[i]);
        assert_int_equal(stats[i].peak_count, peak[i]);
        bytes += (uint64_t)used[i] * it.planned[i].block_bytes;
    }
    assert_int_equal(mw_pool_occupancy_ppm(pool), bytes * MW_POOL_WHOLE / it.plan.payload_bytes);
}

static void model_run(struct mw_pool *pool, struct unit_chance *chance, unsigned operations) {
    live_count = 0;
    memset(used, 0, sizeof used);
    memset(peak, 0, sizeof peak);
    memset(freed, 0, sizeof freed);
    for (unsigned i = 0; i < operations; i++) {
        const unsigned phase = i / 200 % 4; // growing, shrinking, pairs, anything
        const unsigned dice = unit_below(chance, 10);
        if (live_count > 0 && (phase == 1 || phase == 2 ? dice < 6 : dice < 3)) {
            model_free(pool, phase == 2 ? live_count - 1 : unit_next(chance) % live_count);
        } else if (live_count < LIVE_MAX) {
            const size_t class = unit_next(chance) % it.config.class_count;
            model_alloc(pool, it.planned[class].block_bytes - unit_below(chance, 9));
        }
        unsigned char *const old = freed[unit_below(chance, 64)];
        if (old != NULL && i % 8 == 0 && !model_is_live(old)) {
            assert_int_equal(mw_pool_free(pool, old), MW_POOL_DOUBLE_FREE);
        }
        if (i % 400 == 0) {
            pools_audit(pool);
            model_stats(pool);
        }
    }
    while (live_count > 0) {
        model_free(pool, unit_next(chance) % live_count);
    }
    pools_audit(pool);
    model_stats(pool);
}

CASE(operations_by_chance_agree_with_a_model) {
    struct unit_chance chance = unit_chance_begin();
    for (int i = 0; i < 150; i++) {
        do {
            pools_by_chance(&it, &chance);
        } while (it.plan.payload_bytes > 2 << 20);
        by_lanes = i % 2 != 0;
        model_run(pools_create(&it), &chance, 3000);
        by_lanes = false;
        pools_check_guards();
    }
}

CASE(small_pools_run_dry_and_recover_again_and_again) {
    struct unit_chance chance = unit_chance_begin();
    static const size_t sizes[] = {48, 16, 1000, 160, 40000};
    for (int i = 0; i < 60; i++) {
        plain(5, sizes, 1 + unit_below(&chance, 130));
        it.config.fallback = i % 2 != 0;
        it.config.remote = i % 3 == 0;
        by_lanes = i % 5 == 0;
        model_run(pools_create(&it), &chance, 4000);
        by_lanes = false;
    }
}

CASE(any_value_whatever_may_be_given_to_any_lane) {
    struct unit_chance chance = unit_chance_begin();
    for (int i = 0; i < 40; i++) {
        pools_by_chance(&it, &chance);
        struct mw_pool *const pool = pools_create(&it);
        if (it.config.check_owner) {
            assert_null(mw_pool_lane_of(pool, 0));
            continue;
        }
        assert_null(mw_pool_lane_of(pool, it.config.class_count));
        for (int value = 0; value < 5000; value++) {
            uintptr_t address = unit_next(&chance) >> unit_below(&chance, 64);
            address = value % 2 != 0 ? (uintptr_t)it.config.memory + address % (2 * it.plan.pool_bytes)
                                     : ~address;
            struct mw_pool_lane *const lane =
                mw_pool_lane_of(pool, unit_next(&chance) % it.config.class_count);
            const enum mw_pool_status expected = mw_pool_find(pool, (void *)address, NULL);
            assert_int_equal(mw_pool_give(pool, lane, (void *)address), expected);
        }
        pools_audit(pool);
    }
}

// ---- Others' frees, told from the owner's side --------------------------------------------------

// Blocks freed by either way come back, one by one or by the word, with and without fallback; and
// occupancy is exact all the while.
CASE(what_others_free_is_live_again_and_counted) {
    struct unit_chance chance = unit_chance_begin();
    static const size_t sizes[] = {16, 64, 160};
    for (int i = 0; i < 40; i++) {
        plain(3, sizes, 1 + unit_below(&chance, 9000));
        it.config.remote = true;
        it.config.fallback = i % 2 != 0;
        struct mw_pool *const pool = pools_create(&it);
        memset(used, 0, sizeof used);
        size_t count = 0;
        static void *blocks[3 * 9000];
        static size_t classes[3 * 9000];
        for (unsigned operation = 0; operation < 60000; operation++) {
            const bool growing = operation / 20000 != 1 ? unit_below(&chance, 8) < 6 : unit_below(&chance, 8) < 2;
            if (growing) {
                const size_t wanted = unit_below(&chance, 3);
                void *const block = mw_pool_alloc(pool, sizes[wanted]);
                const bool full = used[wanted] == it.planned[wanted].capacity_count;
                if (block == NULL || !full) {
                    assert_true((block == NULL) == (model_class(sizes[wanted]) == SIZE_MAX || (full && i % 2 == 0)));
                }
                if (block != NULL) {
                    blocks[count] = block;
                    assert_int_equal(mw_pool_find(pool, block, &classes[count]), MW_POOL_OK);
                    assert_int_equal(classes[count], model_class(sizes[wanted]));
                    used[classes[count++]]++;
                }
            } else if (count > 0) {
                const size_t at = unit_next(&chance) % count;
                const bool remote = unit_below(&chance, 3) != 0;
                assert_int_equal(remote ? mw_pool_free_remote(pool, blocks[at]) : mw_pool_free(pool, blocks[at]), MW_POOL_OK);
                assert_int_equal(mw_pool_free(pool, blocks[at]), MW_POOL_DOUBLE_FREE);
                assert_int_equal(mw_pool_free_remote(pool, blocks[at]), MW_POOL_DOUBLE_FREE);
                used[classes[at]]--;
                blocks[at] = blocks[--count];
                classes[at] = classes[count];
            }
            if (operation % 997 == 0) {
                (void)mw_pool_collect(pool, unit_below(&chance, 4));
            }
            if (operation % 3000 == 0) {
                pools_audit(pool);
            }
            for (size_t class = 0; class < 3; class++) {
                assert_int_equal(mw_pool_used_count(pool, class), used[class]);
            }
        }
        pools_audit(pool);
    }
}

// ---- Pointers -----------------------------------------------------------------------------------

// What any address of the memory is, told from the blocks that are live.
static void check_every_address(struct mw_pool *pool, unsigned char **blocks, size_t block_bytes,
                                size_t alignment, size_t count) {
    unsigned char *const start = it.config.memory;
    for (unsigned char *at = start - 64; at < start + it.plan.pool_bytes + 64; at++) {
        enum mw_pool_status expected = MW_POOL_FOREIGN;
        for (size_t i = 0; i < count; i++) {
            if (at > blocks[i] && at < blocks[i] + block_bytes) {
                expected = (uintptr_t)at % alignment == 0 ? MW_POOL_INTERIOR : MW_POOL_MISALIGNED;
            } else if (at == blocks[i]) {
                expected = MW_POOL_OK;
            }
        }
        assert_int_equal(mw_pool_find(pool, at, NULL), expected);
        if (expected != MW_POOL_OK) {
            assert_int_equal(mw_pool_free(pool, at), expected);
            assert_int_equal(mw_pool_usable_size(pool, at), 0);
        }
    }
}

CASE(every_address_is_told_from_a_block) {
    static const size_t sizes[] = {16, 24, 48, 64, 4096, 1008};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        plain(1, &sizes[i], 7);
        it.classes[0].alignment_bytes = sizes[i] == 24 ? 8 : 16;
        struct mw_pool *const pool = pools_create(&it);
        unsigned char *blocks[7];
        for (size_t at = 0; at < 7; at++) {
            blocks[at] = mw_pool_alloc(pool, sizes[i]);
            assert_non_null(blocks[at]);
        }
        check_every_address(pool, blocks, sizes[i], it.planned[0].alignment_bytes, 7);
        for (size_t at = 0; at < 7; at++) {
            assert_int_equal(mw_pool_free(pool, blocks[at]), MW_POOL_OK);
            assert_int_equal(mw_pool_free(pool, blocks[at]), MW_POOL_DOUBLE_FREE);
        }
    }
}

CASE(any_value_whatever_may_be_freed) {
    struct unit_chance chance = unit_chance_begin();
    for (int i = 0; i < 40; i++) {
        pools_by_chance(&it, &chance);
        struct mw_pool *const pool = pools_create(&it);
        assert_int_equal(mw_pool_free(pool, NULL), MW_POOL_NULL_POINTER);
        assert_int_equal(mw_pool_find(pool, NULL, NULL), MW_POOL_NULL_POINTER);
        assert_false(mw_pool_owns(pool, NULL));
        for (int value = 0; value < 5000; value++) {
            uintptr_t address = unit_next(&chance) >> unit_below(&chance, 64);
            address = value % 2 != 0 ? (uintptr_t)it.config.memory + address % (2 * it.plan.pool_bytes)
                                     : value % 4 == 0 ? ~address : address;
            const enum mw_pool_status status = mw_pool_free(pool, (void *)address);
            assert_true(status == MW_POOL_FOREIGN || status == MW_POOL_INTERIOR ||
                        status == MW_POOL_MISALIGNED || status == MW_POOL_DOUBLE_FREE ||
                        (address == 0 && status == MW_POOL_NULL_POINTER));
            assert_int_equal(mw_pool_find(pool, (void *)address, NULL), status);
        }
        pools_audit(pool);
    }
}

CASE(a_block_of_another_pool_is_foreign) {
    static const size_t size = 64;
    plain(1, &size, 100);
    assert_int_equal(mw_pool_plan(&it.config, &it.plan, NULL), MW_POOL_OK);
    char *const memory = pools_memory(2 * it.plan.pool_bytes + 64, 64);
    struct mw_pool *pools[2];
    for (size_t i = 0; i < 2; i++) {
        it.config.memory = memory + i * bits_align_up(it.plan.pool_bytes, 64);
        assert_int_equal(mw_pool_create_in(&it.config, &pools[i], NULL), MW_POOL_OK);
    }
    void *const block = mw_pool_alloc(pools[0], 64);
    assert_int_equal(mw_pool_free(pools[1], block), MW_POOL_FOREIGN);
    assert_true(mw_pool_owns(pools[0], block));
    assert_false(mw_pool_owns(pools[1], block));
    assert_int_equal(mw_pool_free(pools[0], block), MW_POOL_OK);
}

// ---- Sizes --------------------------------------------------------------------------------------

CASE(every_size_gets_the_smallest_class_that_holds_it) {
    struct unit_chance chance = unit_chance_begin();
    for (int i = 0; i < 60; i++) {
        pools_by_chance(&it, &chance);
        it.config.fallback = false;
        struct mw_pool *const pool = pools_create(&it);
        memset(used, 0, sizeof used);
        for (size_t size = 1; size < 110000; size += 1 + unit_below(&chance, size < 4096 ? 2 : 600)) {
            const size_t expected = model_class(size);
            void *const block = mw_pool_alloc(pool, size);
            if (expected == SIZE_MAX) {
                assert_null(block);
                assert_int_equal(mw_pool_last_status(pool), MW_POOL_SIZE_TOO_BIG);
                continue;
            }
            size_t class_index = SIZE_MAX;
            assert_int_equal(mw_pool_find(pool, block, &class_index), MW_POOL_OK);
            assert_int_equal(class_index, expected);
            assert_int_equal(mw_pool_free(pool, block), MW_POOL_OK);
        }
    }
}

// Both edges of every class.
static void check_edges(struct mw_pool *pool) {
    size_t below = 0;
    for (size_t i = 0; i < it.config.class_count; i++) { // in the order of their sizes
        const size_t bytes = it.planned[i].block_bytes;
        for (size_t size = below + 1; size <= bytes; size += bytes - below - 1 + (size == bytes)) {
            void *const block = mw_pool_alloc(pool, size);
            size_t class_index = SIZE_MAX;
            assert_int_equal(mw_pool_find(pool, block, &class_index), MW_POOL_OK);
            assert_int_equal(class_index, i);
            assert_int_equal(mw_pool_free(pool, block), MW_POOL_OK);
        }
        below = bytes;
    }
    assert_null(mw_pool_alloc(pool, below + 1));
    assert_int_equal(mw_pool_last_status(pool), MW_POOL_SIZE_TOO_BIG);
    assert_null(mw_pool_alloc(pool, 0));
    assert_int_equal(mw_pool_last_status(pool), MW_POOL_SIZE_ZERO);
}

// A pool of these big sizes, without and with the owner's check: so many classes share a cell.
static void check_big(size_t count, const size_t *sizes, size_t alignment_bytes, unsigned crowd,
                      unsigned instructions) {
    for (size_t checked = 0; checked < 2; checked++) {
        plain(count, sizes, 1);
        for (size_t i = 0; i < count && alignment_bytes != 0; i++) {
            it.classes[i].alignment_bytes = alignment_bytes;
        }
        it.config.check_owner = checked != 0;
        struct mw_pool *const pool = pools_create(&it);
        assert_int_equal(pool->far_crowd, crowd);
        assert_int_equal(it.plan.alloc_instructions, instructions);
        check_edges(pool);
    }
}

// Classes beyond the direct table, close to each other and far apart: one look, whatever they are.
CASE(big_sizes_lead_to_their_class_at_once) {
    size_t sizes[150];
    for (size_t i = 0; i < 150; i++) {
        sizes[i] = i < 100 ? 20000 + 16 * i : i < 120 ? 30000 + 500 * i : ((size_t)1 << 17) + 1040 * i;
    }
    check_big(150, sizes, 0, 1, 60);
}

// More of them to a cell than there is memory for cells: each costs three instructions, which the
// plan says.
CASE(big_sizes_without_memory_for_their_cells_are_walked) {
    size_t sizes[6];
    for (size_t i = 0; i < 6; i++) {
        sizes[i] = i < 5 ? ((size_t)1 << 18) + 8 * (i + 1) : ((size_t)1 << 19) - 64;
    }
    check_big(6, sizes, 8, 6, 78);
}

CASE(the_smallest_classes_can_come_last) {
    static const size_t sizes[] = {272, 16, 512, 1024, 2048};
    plain(5, sizes, 10);
    struct mw_pool *const pool = pools_create(&it);
    size_t class_index = 0;
    assert_int_equal(mw_pool_find(pool, mw_pool_alloc(pool, 16), &class_index), MW_POOL_OK);
    assert_int_equal(class_index, 1);
}

CASE(fallback_takes_the_next_bigger_class_with_room) {
    static const size_t sizes[] = {64, 32, 128};
    plain(3, sizes, 2);
    it.config.fallback = true;
    struct mw_pool *const pool = pools_create(&it);
    static const size_t expected[] = {1, 1, 0, 0, 2, 2};
    void *blocks[6];
    for (size_t i = 0; i < 6; i++) {
        size_t class_index = 0;
        blocks[i] = mw_pool_alloc(pool, 20);
        assert_int_equal(mw_pool_find(pool, blocks[i], &class_index), MW_POOL_OK);
        assert_int_equal(class_index, expected[i]);
    }
    assert_null(mw_pool_alloc(pool, 20));
    assert_int_equal(mw_pool_last_status(pool), MW_POOL_EXHAUSTED_ALL);
    struct mw_pool_class_stats stats[3];
    mw_pool_stats(pool, stats, 3);
    assert_int_equal(stats[1].fallback_count, 4);
    assert_int_equal(stats[1].refused_count, 1);
    assert_int_equal(mw_pool_free(pool, blocks[5]), MW_POOL_OK);
    assert_ptr_equal(mw_pool_alloc(pool, 20), blocks[5]);
    assert_null(mw_pool_alloc_class(pool, 1)); // never falls back
    assert_int_equal(mw_pool_last_status(pool), MW_POOL_EXHAUSTED);
    assert_null(mw_pool_alloc_class(pool, 3));
    assert_int_equal(mw_pool_last_status(pool), MW_POOL_BAD_CLASS_INDEX);
}

// Over all words of classes with room, from each of them, in a pool with and without big classes.
CASE(fallback_finds_the_next_of_many_classes) {
    struct unit_chance chance = unit_chance_begin();
    static void *blocks[MW_POOL_CLASSES_MAX];
    for (size_t step = 16; step <= 96; step += 80) {
        size_t sizes[MW_POOL_CLASSES_MAX];
        for (size_t i = 0; i < MW_POOL_CLASSES_MAX; i++) {
            sizes[i] = 16 + i * step;
        }
        plain(MW_POOL_CLASSES_MAX, sizes, 1);
        it.config.fallback = true;
        struct mw_pool *const pool = pools_create(&it);
        for (size_t i = 0; i < MW_POOL_CLASSES_MAX; i++) { // one after the other, from the smallest
            size_t class_index = SIZE_MAX;
            blocks[i] = mw_pool_alloc(pool, 1);
            assert_int_equal(mw_pool_find(pool, blocks[i], &class_index), MW_POOL_OK);
            assert_int_equal(class_index, i);
        }
        for (unsigned i = 0; i < 2000; i++) {
            const size_t given = unit_below(&chance, MW_POOL_CLASSES_MAX);
            const size_t wanted = unit_below(&chance, MW_POOL_CLASSES_MAX);
            assert_int_equal(mw_pool_free(pool, blocks[given]), MW_POOL_OK);
            assert_ptr_equal(mw_pool_alloc(pool, sizes[wanted]), wanted <= given ? blocks[given] : NULL);
            if (wanted > given) {
                assert_int_equal(mw_pool_last_status(pool), MW_POOL_EXHAUSTED_ALL);
                assert_ptr_equal(mw_pool_alloc(pool, sizes[given]), blocks[given]);
            }
        }
        pools_audit(pool);
    }
}

CASE(blocks_too_big_to_multiply_are_divided) {
    static const size_t size = ((size_t)5 << 32) + 48; // address space alone: only numbers are used
    plain(1, &size, 1);
    struct pool_area area = {.start = 4096, .full_count = (size_t)1 << 28};
    struct pool_class class = {.lane.block_bytes = size, .alignment = 16};
    area.owner = &class;
    for (size_t index = 0; index < area.full_count; index += area.full_count / 1000) {
        assert_int_equal(pool_index_in(&area, area.start + index * size), index);
        assert_int_equal(pool_index_in(&area, area.start + index * size + 16), SIZE_MAX);
        assert_int_equal(pool_index_in(&area, area.start + index * size - 16), SIZE_MAX);
    }
    assert_int_equal(pool_index_in(&area, area.start + area.full_count * size), SIZE_MAX);
}

// ---- Attached memory ----------------------------------------------------------------------------

CASE(more_memory_leaves_the_peak_as_it_was) {
    static const size_t size = 64;
    for (size_t again = 1; again <= 64; again += 21) {
        plain(1, &size, 64);
        it.config.remote = true;
        struct mw_pool *const pool = pools_create(&it);
        void *blocks[64];
        for (size_t i = 0; i < 64; i++) {
            blocks[i] = mw_pool_alloc(pool, size);
        }
        for (size_t i = 0; i < 64; i++) {
            assert_int_equal(mw_pool_free_remote(pool, blocks[i]), MW_POOL_OK);
        }
        for (size_t i = 0; i < again; i++) { // of those that others have freed
            assert_non_null(mw_pool_alloc(pool, size));
        }
        static _Alignas(64) char more[1 << 14];
        assert_int_equal(mw_pool_attach(pool, more, sizeof more), MW_POOL_OK);
        pools_audit(pool);
        const size_t capacity = mw_pool_capacity_count(pool, 0);
        for (size_t i = again; i <= capacity; i++) {
            struct mw_pool_class_stats stats;
            assert_int_equal(mw_pool_stats(pool, &stats, 1), 1);
            assert_int_equal(stats.used_count, i);
            assert_int_equal(stats.peak_count, bits_max(i, 64));
            assert_true((mw_pool_alloc(pool, size) != NULL) == (i < capacity));
        }
    }
}

CASE(attached_memory_is_cut_by_the_same_shares) {
    memset(&it, 0, sizeof it);
    it.classes[0] = (struct mw_pool_class){.size_bytes = 64, .share_ppm = MW_POOL_PERCENT(75)};
    it.classes[1] = (struct mw_pool_class){.size_bytes = 256, .share_ppm = MW_POOL_PERCENT(25)};
    it.config = (struct mw_pool_config){.classes = it.classes, .class_count = 2, .pool_bytes = 1 << 16};
    char *const memory = pools_memory(MW_POOL_MEMORIES_MAX << 16, 4096);
    it.config.memory = memory + (7 << 16); // so that memories come before and after it
    struct mw_pool *pool = NULL;
    assert_int_equal(mw_pool_create_in(&it.config, &pool, NULL), MW_POOL_OK);
    const size_t before = mw_pool_capacity_count(pool, 0);
    assert_int_equal(mw_pool_attach(pool, memory + (7 << 16) - 64, 1 << 16), MW_POOL_MEMORY_OVERLAPS);
    assert_int_equal(mw_pool_attach(pool, memory + (8 << 16) - 64, 1 << 16), MW_POOL_MEMORY_OVERLAPS);
    assert_int_equal(mw_pool_attach(pool, NULL, 1 << 16), MW_POOL_NEEDS_MEMORY);
    assert_int_equal(mw_pool_attach(pool, memory + 8, 1 << 16), MW_POOL_MEMORY_MISALIGNED);
    assert_int_equal(mw_pool_attach(pool, memory, 100), MW_POOL_TOO_SMALL);
    for (size_t i = 0; i < MW_POOL_MEMORIES_MAX; i++) {
        const size_t place = (i * 5) % MW_POOL_MEMORIES_MAX; // all, in no order
        if (place != 7) {
            assert_int_equal(mw_pool_attach(pool, memory + (place << 16), 1 << 16), MW_POOL_OK);
            pools_audit(pool);
        }
    }
    assert_int_equal(mw_pool_attach(pool, memory, 1 << 16), MW_POOL_TOO_MANY_MEMORIES);
    assert_true(mw_pool_capacity_count(pool, 0) >= before * MW_POOL_MEMORIES_MAX);
    struct unit_chance chance = unit_chance_begin();
    assert_int_equal(mw_pool_describe(pool, &it.plan, it.planned), MW_POOL_OK);
    assert_int_equal(it.plan.pool_bytes, MW_POOL_MEMORIES_MAX << 16);
    model_run(pool, &chance, 60000);
    assert_int_equal(mw_pool_free(pool, (void *)UINTPTR_MAX), MW_POOL_FOREIGN);
    pools_check_guards();
}

CASE(counted_pools_grow_in_proportion) {
    static const size_t sizes[] = {32, 1024};
    plain(2, sizes, 64);
    struct mw_pool *const pool = pools_create(&it);
    static _Alignas(64) char more[1 << 18];
    assert_int_equal(mw_pool_attach(pool, more, sizeof more), MW_POOL_OK);
    const size_t small = mw_pool_capacity_count(pool, 0), big = mw_pool_capacity_count(pool, 1);
    assert_true(small > 64 + 200 && big > 64 + 200 && small < 2 * big && big < 2 * small);
}

// ---- Owners -------------------------------------------------------------------------------------

CASE(another_thread_than_the_owner_is_refused) {
    static const size_t size = 64;
    plain(1, &size, 100);
    it.config.check_owner = true;
    struct mw_pool *const pool = pools_create(&it);
    void *const block = mw_pool_alloc(pool, 64);
    assert_non_null(block);
    atomic_store(&pool->owner, 12345); // as if another thread had bound it
    enum mw_pool_status status = MW_POOL_OK;
    assert_null(mw_pool_alloc(pool, 64));
    assert_null(mw_pool_alloc_class(pool, 0));
    assert_null(mw_pool_alloc_status(pool, 64, &status));
    assert_int_equal(status, MW_POOL_NOT_OWNER);
    assert_int_equal(mw_pool_free(pool, block), MW_POOL_NOT_OWNER);
    assert_int_equal(mw_pool_free_remote(pool, block), MW_POOL_NOT_SHARED);
    assert_int_equal(mw_pool_bind(pool), MW_POOL_OK);
    assert_int_equal(mw_pool_free(pool, block), MW_POOL_OK);
    pools_audit(pool);
}

CASE(every_status_has_a_name_and_a_text_of_its_own) {
    size_t count = 0;
    for (int status = 0; status < 256; status++) {
        const char *const name = mw_pool_status_name((enum mw_pool_status)status);
        const char *const text = mw_pool_status_text((enum mw_pool_status)status);
        assert_true(name != NULL && text != NULL);
        if (strcmp(name, "?") == 0) {
            continue;
        }
        count++;
        for (int other = 0; other < status; other++) {
            assert_string_not_equal(name, mw_pool_status_name((enum mw_pool_status)other));
            assert_string_not_equal(text, mw_pool_status_text((enum mw_pool_status)other));
        }
    }
    assert_int_equal(count, 45);
}

// Not seen by AddressSanitizer, to which the block is hidden.
__attribute__((no_sanitize("address"))) static void scribble(unsigned char *at) {
    (*at)++;
}

// Every byte of a free block, and no other, is watched; also of blocks that others have freed.
CASE(writes_after_free_are_found) {
    struct unit_chance chance = unit_chance_begin();
    for (unsigned round = 0; round < 40; round++) {
        pools_by_chance(&it, &chance);
        struct mw_pool *const pool = pools_create(&it);
        void *blocks[64], *found = NULL;
        size_t sizes[64], count = 0;
        enum mw_pool_status status;
        assert_int_equal(mw_pool_debug_begin(pool), MW_POOL_OK);
        while (count < 64) {
            const size_t class_index = unit_below(&chance, (unsigned)it.config.class_count);
            sizes[count] = it.planned[class_index].block_bytes;
            blocks[count] = mw_pool_debug_alloc(pool, sizes[count], &status);
            if (blocks[count] == NULL) {
                break;
            }
            assert_int_equal(status, MW_POOL_OK);
            memset(blocks[count], (int)unit_below(&chance, 256), sizes[count]); // it is ours
            count++;
        }
        assert_int_equal(mw_pool_debug_check(pool, &found), MW_POOL_OK);
        assert_null(found);
        assert_true(count > 0);
        const size_t chosen = unit_below(&chance, (unsigned)count);
        for (size_t i = 0; i < count; i++) {
            status = it.config.remote && i % 2 == 0 ? mw_pool_debug_free_remote(pool, blocks[i])
                                                    : mw_pool_debug_free(pool, blocks[i]);
            assert_int_equal(status, MW_POOL_OK);
            assert_int_equal(mw_pool_debug_free(pool, blocks[i]), MW_POOL_DOUBLE_FREE);
        }
        assert_int_equal(mw_pool_debug_check(pool, &found), MW_POOL_OK);
        scribble((unsigned char *)blocks[chosen] + unit_below(&chance, (unsigned)sizes[chosen]));
        assert_int_equal(mw_pool_debug_check(pool, &found), MW_POOL_WRITTEN_AFTER_FREE);
        assert_ptr_equal(found, blocks[chosen]);
        unsigned written = 0;
        void *block;
        while ((block = mw_pool_debug_alloc(pool, sizes[chosen], &status)) != NULL) {
            assert_int_equal(status == MW_POOL_WRITTEN_AFTER_FREE, block == blocks[chosen]);
            written += status == MW_POOL_WRITTEN_AFTER_FREE;
        }
        assert_int_equal(written, 1);
        assert_int_equal(mw_pool_debug_check(pool, &found), MW_POOL_OK);
        assert_int_equal(mw_pool_debug_end(pool), MW_POOL_OK);
        assert_int_equal(mw_pool_debug_end(pool), MW_POOL_OK);
        pools_check_guards();
    }
    assert_int_equal(mw_pool_debug_begin(NULL), MW_POOL_NOT_A_POOL);
    assert_int_equal(mw_pool_debug_end(NULL), MW_POOL_NOT_A_POOL);
    assert_int_equal(mw_pool_debug_check(NULL, NULL), MW_POOL_NOT_A_POOL);
}

CASE(what_is_no_pool_is_said_to_be_none) {
    _Alignas(64) static char memory[4096];
    struct mw_pool *const pool = (struct mw_pool *)memory;
    assert_int_equal(mw_pool_attach(pool, memory, 4096), MW_POOL_NOT_A_POOL);
    assert_int_equal(mw_pool_bind(NULL), MW_POOL_NOT_A_POOL);
    assert_int_equal(mw_pool_describe(pool, &it.plan, NULL), MW_POOL_NOT_A_POOL);
    enum mw_pool_status status = MW_POOL_OK;
    void *block = NULL;
    assert_null(mw_pool_debug_alloc(pool, 16, &status));
    assert_int_equal(status, MW_POOL_NOT_A_POOL);
    assert_int_equal(mw_pool_debug_begin(pool), MW_POOL_NOT_A_POOL);
    assert_int_equal(mw_pool_debug_free(pool, memory), MW_POOL_NOT_A_POOL);
    assert_int_equal(mw_pool_debug_free(NULL, memory), MW_POOL_NOT_A_POOL);
    assert_int_equal(mw_pool_debug_free_remote(pool, memory), MW_POOL_NOT_A_POOL);
    assert_int_equal(mw_pool_debug_check(pool, &block), MW_POOL_NOT_A_POOL);
    assert_int_equal(mw_pool_debug_end(pool), MW_POOL_NOT_A_POOL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_by_chance_agree_with_a_model),
        cmocka_unit_test(small_pools_run_dry_and_recover_again_and_again),
        cmocka_unit_test(any_value_whatever_may_be_given_to_any_lane),
        cmocka_unit_test(what_others_free_is_live_again_and_counted),
        cmocka_unit_test(every_address_is_told_from_a_block),
        cmocka_unit_test(any_value_whatever_may_be_freed),
        cmocka_unit_test(a_block_of_another_pool_is_foreign),
        cmocka_unit_test(every_size_gets_the_smallest_class_that_holds_it),
        cmocka_unit_test(big_sizes_lead_to_their_class_at_once),
        cmocka_unit_test(big_sizes_without_memory_for_their_cells_are_walked),
        cmocka_unit_test(the_smallest_classes_can_come_last),
        cmocka_unit_test(fallback_finds_the_next_of_many_classes),
        cmocka_unit_test(fallback_takes_the_next_bigger_class_with_room),
        cmocka_unit_test(blocks_too_big_to_multiply_are_divided),
        cmocka_unit_test(more_memory_leaves_the_peak_as_it_was),
        cmocka_unit_test(attached_memory_is_cut_by_the_same_shares),
        cmocka_unit_test(counted_pools_grow_in_proportion),
        cmocka_unit_test(another_thread_than_the_owner_is_refused),
        cmocka_unit_test(every_status_has_a_name_and_a_text_of_its_own),
        cmocka_unit_test(writes_after_free_are_found),
        cmocka_unit_test(what_is_no_pool_is_said_to_be_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
