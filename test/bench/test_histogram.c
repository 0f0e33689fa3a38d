// SPDX-License-Identifier: MIT
// The latency harness's histogram against sorting: random values of many shapes, TEST_SEED to
// repeat.
#include "../support/suite.h"

#include "histogram.h"
#include "common.h"

enum { ROUNDS = 300, VALUES_MAX = 5000 };

static uint64_t values[VALUES_MAX];

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

// Small, of any magnitude, all equal, or mostly small with a few that are far out.
static uint64_t draw(uint64_t *seed, uint64_t shape)
{
    const uint64_t r = bench_random(seed);
    switch (shape) {
    case 0:
        return r % 200;
    case 1:
        return r >> (bench_random(seed) % 64);
    case 2:
        return 777;
    default:
        return bench_below(seed, 100) == 0 ? 1000000 + r % 900000000 : 20 + r % 30;
    }
}

static size_t fill(struct histogram *h, uint64_t *seed)
{
    const size_t count = 1 + bench_below(seed, VALUES_MAX);
    const uint64_t shape = bench_below(seed, 4);
    memset(h, 0, sizeof *h);
    for (size_t i = 0; i < count; i++) {
        values[i] = draw(seed, shape);
        histogram_add(h, values[i]);
    }
    return count;
}

static void a_quantile_is_what_sorting_finds_or_at_most_a_64th_above(void **state)
{
    (void)state;
    static const uint64_t per_million[] = {0, 1, 250000, 500000, 900000, 990000, 999000, 999900, 999990, 1000000};
    static struct histogram h;
    uint64_t seed = chance_seed();
    for (int round = 0; round < ROUNDS; round++) {
        const size_t count = fill(&h, &seed);
        qsort(values, count, sizeof values[0], by_value);
        for (size_t i = 0; i < BENCH_COUNT(per_million); i++) {
            uint64_t rank = (per_million[i] * count + 999999) / 1000000;
            rank = rank == 0 ? 1 : rank;
            const uint64_t wanted = values[rank - 1];
            const uint64_t got = histogram_quantile(&h, (double)per_million[i] / 1e6);
            CHECK(got >= wanted && got - wanted <= wanted / 64, "share %zu of %zu: %zu for %zu", i, count,
                  (size_t)got, (size_t)wanted);
            CHECK(wanted >= 128 || got == wanted, "small values are exact");
        }
        CHECK(h.worst == values[count - 1] && h.total == count, "largest and count");
    }
}

static void a_share_above_a_bound_is_what_counting_finds_or_that_of_a_bound_a_64th_below(void **state)
{
    (void)state;
    static struct histogram h;
    uint64_t seed = chance_seed();
    for (int round = 0; round < ROUNDS; round++) {
        const size_t count = fill(&h, &seed);
        const uint64_t bound = 1 + values[bench_below(&seed, count)];
        if (bound == 0 || bound > UINT64_C(1) << 52) {
            continue; // no double has it exactly
        }
        size_t above = 0, nearly = 0;
        for (size_t i = 0; i < count; i++) {
            above += values[i] >= bound;
            nearly += values[i] >= bound - bound / 64;
        }
        const double ppm = histogram_ppm(&h, (double)bound);
        CHECK(ppm >= 1e6 * (double)above / (double)count - 1e-3, "none is lost");
        CHECK(ppm <= 1e6 * (double)nearly / (double)count + 1e-3, "none is invented");
    }
}

static void every_bucket_begins_where_the_last_one_ends(void **state)
{
    (void)state;
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        const uint64_t low = histogram_low(i), high = histogram_high(i);
        CHECK(histogram_bucket(low) == i && histogram_bucket(high) == i, "bucket %zu", i);
        CHECK(high - low <= low / 64, "bucket %zu is too wide", i);
        CHECK(i == 0 || histogram_high(i - 1) + 1 == low, "bucket %zu", i);
    }
    CHECK(histogram_bucket(UINT64_MAX) == HISTOGRAM_BUCKETS - 1, "the last bucket");
}

static void merging_is_adding_everything_to_one_and_clearing_leaves_nothing(void **state)
{
    (void)state;
    static struct histogram parts[2], sum, all, empty;
    uint64_t seed = chance_seed();
    for (int round = 0; round < ROUNDS; round++) {
        memset(&sum, 0, sizeof sum);
        memset(&all, 0, sizeof all);
        for (size_t part = 0; part < 2; part++) {
            const size_t count = fill(&parts[part], &seed);
            for (size_t i = 0; i < count; i++) {
                histogram_add(&all, values[i]);
            }
            histogram_merge(&sum, &parts[part]);
        }
        CHECK(memcmp(&sum, &all, sizeof all) == 0, "round %d", round);
        histogram_clear(&sum);
        CHECK(memcmp(&sum, &empty, sizeof empty) == 0, "round %d", round);
    }
}

// A floor of 900 values of 10 and one each of 1,001 to 1,100; an allocator's loop that is timed
// twice as long sees twice as many of these, so that its 95th percentile is to be held against the
// floor's 97.5th.
static void the_machines_part_grows_with_the_time_that_is_exposed(void **state)
{
    (void)state;
    static struct histogram floor, own;
    memset(&floor, 0, sizeof floor);
    memset(&own, 0, sizeof own);
    for (uint64_t i = 0; i < 1000; i++) {
        histogram_add(&floor, i < 900 ? 10 : 1001 + i - 900);
    }
    CHECK(histogram_machine(&floor, &floor, 0.95, 20) == histogram_quantile(&floor, 0.95), "its own quantile");
    const uint64_t overhead = 50, exposed = floor.sum / 1000 + overhead;
    for (int i = 0; i < 10; i++) {
        histogram_add(&own, 2 * exposed - overhead);
    }
    const uint64_t machine = histogram_machine(&floor, &own, 0.95, overhead);
    CHECK(machine == histogram_quantile(&floor, 0.975) || machine == histogram_quantile(&floor, 0.976), "%zu",
          (size_t)machine);
    CHECK(machine > histogram_quantile(&floor, 0.95), "further out");
    // A loop that is timed for much less sees next to nothing of it.
    memset(&own, 0, sizeof own);
    histogram_add(&own, 0);
    CHECK(histogram_machine(&floor, &own, 0.95, 1) == 10, "nearer");
}

static void an_empty_histogram_says_zero(void **state)
{
    (void)state;
    static const struct histogram h;
    CHECK(histogram_quantile(&h, 0.5) == 0 && histogram_mean(&h) == 0 && histogram_ppm(&h, 1) == 0, "empty");
    CHECK(histogram_machine(&h, &h, 0.5, 10) == 0, "empty");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_quantile_is_what_sorting_finds_or_at_most_a_64th_above),
        cmocka_unit_test(a_share_above_a_bound_is_what_counting_finds_or_that_of_a_bound_a_64th_below),
        cmocka_unit_test(every_bucket_begins_where_the_last_one_ends),
        cmocka_unit_test(merging_is_adding_everything_to_one_and_clearing_leaves_nothing),
        cmocka_unit_test(the_machines_part_grows_with_the_time_that_is_exposed),
        cmocka_unit_test(an_empty_histogram_says_zero),
    };
    return suite_run(tests);
}
