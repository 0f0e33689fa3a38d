// SPDX-License-Identifier: MIT
// The latency harness's windows: drift against a naive computation, merging, and that recording
// neither allocates nor faults. TEST_SEED repeats the random cases.
#include "../support/suite.h"

#include "recorder.h"

#include <malloc.h>
#include <sys/mman.h>

enum { ROUNDS = 200 };

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double naive_median(double *numbers, size_t count)
{
    qsort(numbers, count, sizeof *numbers, by_value);
    return count % 2 == 1 ? numbers[count / 2] : (numbers[count / 2 - 1] + numbers[count / 2]) / 2;
}

static struct recorder *new_recorder(void)
{
    return latency_map(sizeof(struct recorder));
}

static void delete_recorder(struct recorder *recorder)
{
    munmap(recorder, sizeof *recorder);
}

// One call of `ticks` in each window.
static void fill_windows(struct recorder *recorder, const uint64_t *ticks)
{
    for (size_t at = 0; at < RECORDER_WINDOWS; at++) {
        recorder_add(recorder, SERIES_BOTH, 1000, 1000 + ticks[at]);
        recorder_end_window(recorder, at);
    }
}

static bool near(double a, double b)
{
    const double difference = a > b ? a - b : b - a;
    return difference <= 1e-9 * (a > b ? a : b);
}

static void drift_and_the_worst_window_are_what_a_naive_computation_finds(void **state)
{
    (void)state;
    uint64_t seed = chance_seed();
    for (int round = 0; round < ROUNDS; round++) {
        struct recorder *const recorder = new_recorder();
        uint64_t ticks[RECORDER_WINDOWS];
        double first[10], last[10], all[RECORDER_WINDOWS], worst = 0;
        for (size_t at = 0; at < RECORDER_WINDOWS; at++) {
            ticks[at] = 1 + bench_below(&seed, 100000);
            all[at] = (double)ticks[at];
            worst = all[at] > worst ? all[at] : worst;
            if (at < 10) {
                first[at] = all[at];
            } else if (at >= 90) {
                last[at - 90] = all[at];
            }
        }
        fill_windows(recorder, ticks);
        const struct series *const series = &recorder->series[SERIES_BOTH];
        CHECK(near(series_drift(series), naive_median(last, 10) / naive_median(first, 10)), "drift");
        CHECK(near(series_worst_window(series), worst / naive_median(all, RECORDER_WINDOWS)), "worst");
        delete_recorder(recorder);
    }
}

static void one_pause_moves_the_worst_window_and_not_the_drift(void **state)
{
    (void)state;
    struct recorder *const recorder = new_recorder();
    uint64_t ticks[RECORDER_WINDOWS];
    for (size_t at = 0; at < RECORDER_WINDOWS; at++) {
        ticks[at] = 50;
    }
    ticks[95] = 5000000;
    fill_windows(recorder, ticks);
    CHECK(near(series_drift(&recorder->series[SERIES_BOTH]), 1), "drift");
    CHECK(near(series_worst_window(&recorder->series[SERIES_BOTH]), 100000), "worst window");
    delete_recorder(recorder);
}

static void becoming_twice_as_slow_is_a_drift_of_two(void **state)
{
    (void)state;
    struct recorder *const recorder = new_recorder();
    uint64_t ticks[RECORDER_WINDOWS];
    for (size_t at = 0; at < RECORDER_WINDOWS; at++) {
        ticks[at] = at < 50 ? 30 : 60;
    }
    fill_windows(recorder, ticks);
    CHECK(near(series_drift(&recorder->series[SERIES_BOTH]), 2), "drift");
    delete_recorder(recorder);
}

static void both_is_malloc_and_free_and_the_total_is_the_sum_of_the_windows(void **state)
{
    (void)state;
    struct recorder *const recorder = new_recorder();
    static struct histogram expected[SERIES_COUNT];
    uint64_t seed = chance_seed();
    recorder->overhead = 20;
    for (size_t at = 0; at < RECORDER_WINDOWS; at++) {
        for (size_t i = bench_below(&seed, 50); i > 0; i--) {
            const enum series_name name = bench_below(&seed, 2) == 0 ? SERIES_MALLOC : SERIES_FREE;
            const uint64_t taken = bench_below(&seed, 500);
            recorder_add(recorder, name, 7, 7 + taken);
            histogram_add(&expected[name], taken > 20 ? taken - 20 : 0);
            histogram_add(&expected[SERIES_BOTH], taken > 20 ? taken - 20 : 0);
        }
        recorder_end_window(recorder, at);
    }
    for (size_t name = 0; name < SERIES_COUNT; name++) {
        const struct series *const series = &recorder->series[name];
        uint64_t sum = 0, count = 0;
        for (size_t at = 0; at < RECORDER_WINDOWS; at++) {
            sum += series->sums[at];
            count += series->counts[at];
        }
        CHECK(memcmp(&series->total, &expected[name], sizeof expected[name]) == 0, "series %zu", name);
        CHECK(sum == series->total.sum && count == series->total.total, "windows of series %zu", name);
    }
    delete_recorder(recorder);
}

static void merged_threads_are_as_one_that_recorded_all(void **state)
{
    (void)state;
    struct recorder *const threads[] = {new_recorder(), new_recorder()}, *const one = new_recorder();
    uint64_t seed = chance_seed();
    for (size_t at = 0; at < RECORDER_WINDOWS; at++) {
        for (size_t i = 0; i < 40; i++) {
            const uint64_t taken = bench_below(&seed, 100000);
            recorder_add(threads[i % 2], SERIES_FREE, 0, taken);
            recorder_add(one, SERIES_FREE, 0, taken);
        }
        recorder_end_window(threads[0], at);
        recorder_end_window(threads[1], at);
        recorder_end_window(one, at);
    }
    threads[0]->faults = threads[1]->faults = 2;
    one->faults = 4;
    recorder_merge(threads[0], threads[1]);
    CHECK(memcmp(threads[0], one, sizeof *one) == 0, "the same in every byte");
    delete_recorder(threads[0]);
    delete_recorder(threads[1]);
    delete_recorder(one);
}

static void a_dropped_window_leaves_nothing(void **state)
{
    (void)state;
    struct recorder *const recorder = new_recorder(), *const untouched = new_recorder();
    recorder_add(recorder, SERIES_MALLOC, 0, 123456);
    recorder_add(recorder, SERIES_BOTH, 0, UINT64_MAX);
    recorder_drop_window(recorder);
    CHECK(memcmp(recorder, untouched, sizeof *recorder) == 0, "the same in every byte");
    delete_recorder(recorder);
    delete_recorder(untouched);
}

static void recording_neither_allocates_nor_faults(void **state)
{
    (void)state;
    struct recorder *const recorder = new_recorder();
    struct rusage before, after;
    uint64_t seed = chance_seed();
    const size_t allocated = mallinfo2().uordblks;
    getrusage(RUSAGE_SELF, &before);
    for (size_t at = 0; at < RECORDER_WINDOWS; at++) {
        for (size_t i = 0; i < 1000; i++) {
            recorder_add(recorder, i % 2 == 0 ? SERIES_MALLOC : SERIES_FREE, 0,
                         bench_random(&seed) >> (i % 64));
        }
        recorder_end_window(recorder, at);
    }
    getrusage(RUSAGE_SELF, &after);
    CHECK(mallinfo2().uordblks == allocated, "nothing was allocated");
#ifndef TEST_SCALED
    CHECK(after.ru_minflt == before.ru_minflt, "%ld page faults", after.ru_minflt - before.ru_minflt);
#endif
    delete_recorder(recorder);
}

static void the_timer_agrees_with_the_kernels_clock(void **state)
{
    (void)state;
    struct timer timer;
    timer_calibrate(&timer);
    CHECK(timer.least <= timer.overhead && timer.overhead <= 2 * timer.typical + 1, "the clock's cost");
    CHECK(timer.step >= 1 && timer.ns_per_tick > 0, "the clock's step and rate");
    // A pause between the two clocks' reads spoils one try, not all.
    bool agree = false;
    for (int i = 0; i < 20 && !agree; i++) {
        const uint64_t start_ns = bench_now_ns(), start = timer_ticks();
        bench_sleep_ms(20);
        const uint64_t end = timer_ticks(), end_ns = bench_now_ns();
        const double by_ticks = (double)(end - start) * timer.ns_per_tick;
        const double by_clock = (double)(end_ns - start_ns);
        agree = by_ticks <= by_clock * 1.01 && by_ticks >= by_clock * 0.98;
    }
    CHECK(agree, "the two clocks differ by more than 2 %%");
    CHECK(timer_between(100, 130, 50) == 0 && timer_between(100, 180, 50) == 30, "the overhead is taken off");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drift_and_the_worst_window_are_what_a_naive_computation_finds),
        cmocka_unit_test(one_pause_moves_the_worst_window_and_not_the_drift),
        cmocka_unit_test(becoming_twice_as_slow_is_a_drift_of_two),
        cmocka_unit_test(both_is_malloc_and_free_and_the_total_is_the_sum_of_the_windows),
        cmocka_unit_test(merged_threads_are_as_one_that_recorded_all),
        cmocka_unit_test(a_dropped_window_leaves_nothing),
        cmocka_unit_test(recording_neither_allocates_nor_faults),
        cmocka_unit_test(the_timer_agrees_with_the_kernels_clock),
    };
    return suite_run(tests);
}
