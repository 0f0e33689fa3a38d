// SPDX-License-Identifier: MIT
// Pool plan: the plan is the truth, for configurations by chance; and what is rejected, and why.
#include "pool/pool.h"

#include "pools.h"

#include <sys/mman.h>

static struct pools_case it;

// Every block of a pool, in the order in which it was handed out.
static unsigned char *blocks[1 << 20];

static void check_block(const struct mw_pool *pool, unsigned char *block, size_t index) {
    size_t class_index = 0;
    const struct mw_pool_class_plan *const class = &it.planned[index];
    assert_int_equal((uintptr_t)block % class->alignment_bytes, 0);
    assert_true(block >= (unsigned char *)it.config.memory + it.plan.metadata_bytes);
    assert_true(block + class->block_bytes <= (unsigned char *)it.config.memory + it.plan.pool_bytes);
    assert_int_equal(mw_pool_find(pool, block, &class_index), MW_POOL_OK);
    assert_int_equal(class_index, index);
    assert_int_equal(mw_pool_usable_size(pool, block), class->block_bytes);
}

// Takes every block of every class, and tags it; true counts are those of the plan.
static size_t take_all(struct mw_pool *pool) {
    size_t count = 0;
    for (size_t i = 0; i < it.config.class_count; i++) {
        size_t got = 0;
        unsigned char *block;
        while ((block = mw_pool_alloc_class(pool, i)) != NULL) {
            check_block(pool, block, i);
            memset(block, (int)(count % 251), it.planned[i].block_bytes);
            assert_true(count < sizeof blocks / sizeof blocks[0]);
            blocks[count++] = block;
            got++;
        }
        assert_int_equal(mw_pool_last_status(pool), MW_POOL_EXHAUSTED);
        assert_int_equal(got, it.planned[i].capacity_count);
        assert_int_equal(mw_pool_used_count(pool, i), got);
    }
    return count;
}

static void give_all(struct mw_pool *pool, size_t count, struct unit_chance *chance) {
    for (size_t i = 0; i < count; i++) {
        const size_t bytes = mw_pool_usable_size(pool, blocks[i]);
        assert_true(unit_is_all(blocks[i], (unsigned char)(i % 251), bytes)); // no block overlaps
    }
    for (size_t i = count; i > 0; i--) {
        const size_t other = unit_next(chance) % i;
        unsigned char *const block = blocks[other];
        blocks[other] = blocks[i - 1];
        assert_int_equal(mw_pool_free(pool, block), MW_POOL_OK);
        if (i % 16 == 0) {
            assert_int_equal(mw_pool_free(pool, block), MW_POOL_DOUBLE_FREE);
        }
    }
}

static void check_sums(const struct mw_pool *pool) {
    struct mw_pool_planned truth;
    static struct mw_pool_class_plan classes[MW_POOL_CLASSES_MAX];
    memset(classes, 0, sizeof classes);
    assert_int_equal(mw_pool_describe(pool, &truth, classes), MW_POOL_OK);
    assert_memory_equal(&truth, &it.plan, sizeof truth);
    assert_memory_equal(classes, it.planned, it.config.class_count * sizeof classes[0]);
    size_t payload = 0, metadata = 0;
    for (size_t i = 0; i < it.config.class_count; i++) {
        payload += classes[i].capacity_count * classes[i].block_bytes;
        metadata += classes[i].metadata_bytes;
    }
    assert_int_equal(truth.payload_bytes, payload);
    assert_int_equal(truth.overhead_bytes, truth.pool_bytes - payload);
    assert_true(metadata <= truth.metadata_bytes && truth.metadata_bytes <= truth.overhead_bytes);
}

#ifdef __SANITIZE_THREAD__ // one thread and millions of blocks: slow, and nothing new
enum { CONFIGURATIONS = 100 };
#else
enum { CONFIGURATIONS = 1000 };
#endif

CASE(the_plan_is_the_truth_for_a_thousand_configurations) {
    struct unit_chance chance = unit_chance_begin();
    for (int i = 0; i < CONFIGURATIONS; i++) {
        pools_by_chance(&it, &chance);
        memset(it.planned, 0, sizeof it.planned);
        struct mw_pool *const pool = pools_create(&it);
        check_sums(pool);
        pools_audit(pool);
        const size_t count = take_all(pool);
        give_all(pool, count, &chance);
        pools_audit(pool);
        assert_int_equal(take_all(pool), count);
        pools_check_guards();
    }
}

static size_t share_of(size_t bytes, size_t class) {
    return bytes / MW_POOL_WHOLE * it.classes[class].share_ppm;
}

CASE(every_class_has_its_share_and_rounding_is_not_lost) {
    struct unit_chance chance = unit_chance_begin();
    for (int i = 0; i < 300; i++) {
        do {
            pools_by_chance(&it, &chance);
        } while (it.classes[0].block_count != 0);
        size_t smallest = SIZE_MAX;
        for (size_t class = 0; class < it.config.class_count; class++) {
            const struct mw_pool_class_plan *const plan = &it.planned[class];
            const size_t got = plan->capacity_count * plan->block_bytes + plan->metadata_bytes;
            const size_t due =
                share_of(it.plan.pool_bytes - it.plan.metadata_bytes - it.plan.alignment_bytes, class);
            const size_t cells = it.plan.pool_bytes / 50; // what tiny classes may cost
            assert_true(got + plan->block_bytes + 64 + cells >= due);
            smallest = plan->block_bytes < smallest ? plan->block_bytes : smallest;
        }
        const size_t lost = it.plan.overhead_bytes - it.plan.metadata_bytes;
        if (it.config.class_count < 3) { // else the map may have moved an area
            assert_true(lost < smallest + 64 + it.plan.alignment_bytes);
        }
    }
}

CASE(overhead_is_below_one_percent_at_every_class_size) {
    for (size_t size = 16; size <= 1 << 20; size = size < 4096 ? size + 16 : size * 2) {
        it.classes[0] = (struct mw_pool_class){.size_bytes = size, .share_ppm = MW_POOL_WHOLE};
        const size_t bytes = 1 << 20 > size * 128 ? 1 << 20 : size * 128;
        it.config = (struct mw_pool_config){.classes = it.classes, .class_count = 1, .pool_bytes = bytes};
        assert_int_equal(mw_pool_plan(&it.config, &it.plan, it.planned), MW_POOL_OK);
        assert_true(it.plan.overhead_ppm <= 10000);
        it.config.remote = true;
        assert_int_equal(mw_pool_plan(&it.config, &it.plan, it.planned), MW_POOL_OK);
        assert_true(it.plan.overhead_ppm <= (size < 32 ? 18500 : 10000));
    }
}

CASE(the_counts_of_a_mebibyte_are_better_than_with_headers) {
    // 32, 64, 128, 256, 512, 1024 with 10, 25, 25, 20, 12, 8 %: 16 bytes of header a block leave
    // 2184, 3276, 1820, 770, 238, 80 blocks.
    static const size_t with_header[] = {2184, 3276, 1820, 770, 238, 80};
    static const uint32_t shares[] = {10, 25, 25, 20, 12, 8};
    for (size_t i = 0; i < 6; i++) {
        it.classes[i] = (struct mw_pool_class){.size_bytes = (size_t)32 << i,
                                               .share_ppm = MW_POOL_PERCENT(shares[i])};
    }
    it.config = (struct mw_pool_config){.classes = it.classes, .class_count = 6, .pool_bytes = 1 << 20};
    assert_int_equal(mw_pool_plan(&it.config, &it.plan, it.planned), MW_POOL_OK);
    for (size_t i = 0; i < 6; i++) {
        assert_true(it.planned[i].capacity_count >= with_header[i]);
    }
    assert_true(it.plan.overhead_ppm < 10000);
}

CASE(a_percentage_is_the_nearest_part_per_million) {
    for (uint32_t ppm = 0; ppm <= MW_POOL_WHOLE; ppm++) {
        assert_int_equal(MW_POOL_PERCENT(ppm / 10000.0), ppm);
    }
    static_assert(MW_POOL_PERCENT(60) == 600000, "a constant, of whole numbers without floating point");
    it.classes[0] = (struct mw_pool_class){.size_bytes = 64, .share_ppm = MW_POOL_PERCENT(1.14)};
    it.classes[1] = (struct mw_pool_class){.size_bytes = 256, .share_ppm = MW_POOL_PERCENT(98.86)};
    it.config = (struct mw_pool_config){.classes = it.classes, .class_count = 2, .pool_bytes = 1 << 20};
    assert_int_equal(mw_pool_plan(&it.config, &it.plan, it.planned), MW_POOL_OK);
}

// ---- Rejected -----------------------------------------------------------------------------------

static void begin(size_t class_count) {
    memset(&it, 0, sizeof it);
    for (size_t i = 0; i < class_count; i++) {
        it.classes[i] = (struct mw_pool_class){
            .size_bytes = 64 * (i + 1), .share_ppm = MW_POOL_PERCENT(i == 0 ? 50 : 50 / (class_count - 1))};
    }
    it.config = (struct mw_pool_config){.classes = it.classes, .class_count = class_count, .pool_bytes = 1 << 20};
}

static void check_rejected(enum mw_pool_status status, size_t problem) {
    assert_int_equal(mw_pool_plan(&it.config, &it.plan, it.planned), status);
    assert_int_equal(it.plan.problem_class, problem);
    struct mw_pool *pool = (struct mw_pool *)1;
    size_t blamed = 12345;
    void *const memory = pools_memory(1 << 20, 4096);
    it.config.memory = it.config.memory == NULL ? memory : it.config.memory;
    assert_int_equal(mw_pool_create_in(&it.config, &pool, &blamed), status);
    assert_null(pool);
    assert_int_equal(blamed, problem);
    assert_true(unit_is_all(memory, 0xa5, 1 << 20)); // nothing was written
}

CASE(what_is_wrong_with_a_configuration_has_a_status_and_a_class) {
    begin(0);
    check_rejected(MW_POOL_NO_CLASSES, MW_POOL_NO_CLASS);
    begin(2);
    it.config.classes = NULL;
    check_rejected(MW_POOL_NULL_ARGUMENT, MW_POOL_NO_CLASS);
    begin(2);
    it.config.class_count = MW_POOL_CLASSES_MAX + 1;
    check_rejected(MW_POOL_TOO_MANY_CLASSES, MW_POOL_NO_CLASS);
    begin(2);
    it.classes[1].size_bytes = 0;
    check_rejected(MW_POOL_CLASS_SIZE_ZERO, 1);
    begin(2);
    it.classes[1].size_bytes = SIZE_MAX - 5;
    check_rejected(MW_POOL_CLASS_SIZE_TOO_BIG, 1);
    static const size_t bad[] = {1, 4, 24, (size_t)1 << 31, SIZE_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        begin(3);
        it.classes[2].alignment_bytes = bad[i];
        check_rejected(MW_POOL_BAD_ALIGNMENT, 2);
    }
    begin(3);
    it.classes[2].size_bytes = 60; // rounds to 64, as class 0
    check_rejected(MW_POOL_DUPLICATE_CLASS, 2);
    begin(2);
    it.classes[0].share_ppm = 0;
    check_rejected(MW_POOL_SHARE_ZERO, 0);
    begin(2);
    it.classes[1].share_ppm = 0;
    it.classes[1].block_count = 5;
    check_rejected(MW_POOL_SHARES_MIXED, 1);
    begin(2);
    it.classes[0].block_count = 5;
    check_rejected(MW_POOL_SHARES_MIXED, 0);
}

CASE(shares_must_add_to_exactly_the_whole) {
    begin(2);
    it.classes[1].share_ppm--;
    check_rejected(MW_POOL_SHARES_BELOW_WHOLE, MW_POOL_NO_CLASS);
    begin(2);
    it.classes[1].share_ppm = MW_POOL_PERCENT(49);
    check_rejected(MW_POOL_SHARES_BELOW_WHOLE, MW_POOL_NO_CLASS);
    begin(2);
    it.classes[1].share_ppm++;
    check_rejected(MW_POOL_SHARES_ABOVE_WHOLE, MW_POOL_NO_CLASS);
    begin(2);
    it.classes[0].share_ppm = it.classes[1].share_ppm = UINT32_MAX; // whose sum overflows 32 bits
    check_rejected(MW_POOL_SHARES_ABOVE_WHOLE, MW_POOL_NO_CLASS);
}

CASE(memory_that_does_not_do_has_a_status) {
    begin(2);
    it.config.pool_bytes = 500;
    check_rejected(MW_POOL_TOO_SMALL, MW_POOL_NO_CLASS);
    begin(2);
    it.config.pool_bytes = (size_t)PTRDIFF_MAX + 1;
    check_rejected(MW_POOL_TOO_BIG, MW_POOL_NO_CLASS);
    begin(2);
    it.classes[1].size_bytes = 600000;
    check_rejected(MW_POOL_CLASS_EMPTY, 1);
    begin(1);
    it.classes[0] = (struct mw_pool_class){.size_bytes = 64, .block_count = 100};
    it.config.pool_bytes = 6000;
    check_rejected(MW_POOL_TOO_SMALL, MW_POOL_NO_CLASS);
    begin(1);
    it.classes[0] = (struct mw_pool_class){.size_bytes = 1 << 20, .block_count = SIZE_MAX / 2};
    check_rejected(MW_POOL_CLASS_SIZE_TOO_BIG, 0);
    begin(2);
    it.config.memory = (char *)pools_memory(1 << 20, 64) + 8;
    check_rejected(MW_POOL_MEMORY_MISALIGNED, MW_POOL_NO_CLASS);
    begin(2);
    struct mw_pool *pool = NULL;
    assert_int_equal(mw_pool_create_in(&it.config, &pool, NULL), MW_POOL_NEEDS_MEMORY);
    it.config.prefault = true;
    assert_int_equal(mw_pool_create_in(&it.config, &pool, NULL), MW_POOL_NEEDS_HOST);
    it.config.prefault = false;
    it.config.lock = true;
    assert_int_equal(mw_pool_create_in(&it.config, &pool, NULL), MW_POOL_NEEDS_HOST);
    size_t blamed = 7;
    pool = (struct mw_pool *)1;
    assert_int_equal(mw_pool_create_in(&it.config, &pool, &blamed), MW_POOL_NEEDS_HOST);
    assert_null(pool);
    assert_int_equal(blamed, MW_POOL_NO_CLASS);
    blamed = 7;
    pool = (struct mw_pool *)1;
    assert_int_equal(mw_pool_create_in(NULL, &pool, &blamed), MW_POOL_NULL_ARGUMENT);
    assert_null(pool);
    assert_int_equal(blamed, MW_POOL_NO_CLASS);
    struct mw_pool_set *set = (struct mw_pool_set *)1;
    assert_int_equal(mw_pool_set_create_in(NULL, 1, &set), MW_POOL_NULL_ARGUMENT);
    assert_null(set);
    assert_int_equal(mw_pool_plan(NULL, &it.plan, NULL), MW_POOL_NULL_ARGUMENT);
}

CASE(exact_counts_are_exact_and_say_what_they_need) {
    begin(2);
    it.classes[0] = (struct mw_pool_class){.size_bytes = 24, .block_count = 4097};
    it.classes[1] = (struct mw_pool_class){.size_bytes = 401408, .alignment_bytes = 4096, .block_count = 3};
    it.config.pool_bytes = 0;
    struct mw_pool *pool = pools_create(&it);
    assert_int_equal(it.planned[0].capacity_count, 4097);
    assert_int_equal(it.planned[0].block_bytes, 32);
    assert_int_equal(it.planned[1].capacity_count, 3);
    (void)take_all(pool);
    it.config.pool_bytes = it.plan.pool_bytes;
    pool = pools_create(&it);
    (void)take_all(pool);
    it.config.pool_bytes--;
    assert_int_equal(mw_pool_plan(&it.config, &it.plan, NULL), MW_POOL_TOO_SMALL);
}

CASE(overhead_far_above_the_payload_is_exact_too) {
    begin(1);
    it.classes[0] = (struct mw_pool_class){.size_bytes = 112, .block_count = 1};
    for (unsigned shift = 12; shift < 63; shift++) {
        it.config.pool_bytes = (size_t)1 << shift;
        assert_int_equal(mw_pool_plan(&it.config, &it.plan, NULL), MW_POOL_OK);
        assert_int_equal(it.plan.overhead_bytes, it.config.pool_bytes - 112);
        const unsigned __int128 exact = ((unsigned __int128)it.plan.overhead_bytes * MW_POOL_WHOLE + 111) / 112;
        assert_int_equal(it.plan.overhead_ppm, exact < SIZE_MAX ? (size_t)exact : SIZE_MAX);
    }
}

CASE(attached_blocks_that_are_divided_have_their_bound) {
    begin(1); // address space, of which the bookkeeping alone is touched
    const size_t bytes = (size_t)64 << 30;
    char *const space = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED) {
        skip();
    }
    it.classes[0] = (struct mw_pool_class){.size_bytes = ((size_t)1 << 29) + 49072, .block_count = 1};
    it.config.pool_bytes = 0;
    it.config.remote = true;
    it.config.memory = space;
    struct mw_pool *pool = NULL;
    assert_int_equal(mw_pool_create_in(&it.config, &pool, NULL), MW_POOL_OK);
    struct mw_pool_planned small, large;
    assert_int_equal(mw_pool_describe(pool, &small, NULL), MW_POOL_OK);
    assert_int_equal(mw_pool_attach(pool, space + ((size_t)1 << 30), bytes - ((size_t)1 << 30)), MW_POOL_OK);
    assert_int_equal(mw_pool_describe(pool, &large, NULL), MW_POOL_OK);
    it.classes[0].block_count = mw_pool_capacity_count(pool, 0); // the same in one memory
    it.config.memory = NULL;
    assert_int_equal(mw_pool_plan(&it.config, &it.plan, NULL), MW_POOL_OK);
    assert_true(it.plan.remote_instructions > small.remote_instructions);
    assert_true(large.remote_instructions > it.plan.remote_instructions);
    assert_int_equal(munmap(space, bytes), 0);
}

CASE(small_pools_of_many_classes_hold_a_block_of_each) {
    static const struct {
        size_t class_count, pool_bytes;
    } rows[] = {{14, 16 << 10}, {20, 32 << 10}, {20, 64 << 10}, {40, 128 << 10}, {160, 512 << 10}, {256, 1 << 20}};
    for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++) {
        begin(rows[row].class_count);
        it.config.pool_bytes = rows[row].pool_bytes;
        uint32_t left = MW_POOL_WHOLE;
        for (size_t i = 0; i < it.config.class_count; i++) {
            const uint32_t share = left / (uint32_t)(it.config.class_count - i);
            it.classes[i] = (struct mw_pool_class){.size_bytes = 8 * (i + 1), .alignment_bytes = 8, .share_ppm = share};
            left -= share;
        }
        struct mw_pool *const pool = pools_create(&it);
        (void)take_all(pool);
        check_sums(pool);
    }
}

CASE(blocks_of_any_size_can_be_planned) {
    begin(3);
    it.classes[0].size_bytes = (size_t)3 << 40;
    it.classes[1].size_bytes = (size_t)7 << 40;
    it.classes[2].size_bytes = 16;
    it.config.pool_bytes = (size_t)1 << 50;
    assert_int_equal(mw_pool_plan(&it.config, &it.plan, it.planned), MW_POOL_OK);
    assert_true(it.planned[0].capacity_count >= 150);
    assert_true(it.planned[1].capacity_count >= 35);
    assert_true(it.plan.overhead_ppm < 10000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plan_is_the_truth_for_a_thousand_configurations),
        cmocka_unit_test(every_class_has_its_share_and_rounding_is_not_lost),
        cmocka_unit_test(overhead_is_below_one_percent_at_every_class_size),
        cmocka_unit_test(the_counts_of_a_mebibyte_are_better_than_with_headers),
        cmocka_unit_test(a_percentage_is_the_nearest_part_per_million),
        cmocka_unit_test(what_is_wrong_with_a_configuration_has_a_status_and_a_class),
        cmocka_unit_test(shares_must_add_to_exactly_the_whole),
        cmocka_unit_test(memory_that_does_not_do_has_a_status),
        cmocka_unit_test(exact_counts_are_exact_and_say_what_they_need),
        cmocka_unit_test(overhead_far_above_the_payload_is_exact_too),
        cmocka_unit_test(attached_blocks_that_are_divided_have_their_bound),
        cmocka_unit_test(small_pools_of_many_classes_hold_a_block_of_each),
        cmocka_unit_test(blocks_of_any_size_can_be_planned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
