// SPDX-License-Identifier: MIT
// Dispatch: what each policy does with what it sees, and that tickets and views stay in step.
#include <mallow/dispatch.h>

#include "pools.h"

#define CORES   4
#define CLASSES 3

static _Alignas(64) unsigned char memory[1 << 16];

static struct mw_dispatch *make(enum mw_dispatch_policy policy) {
    const struct mw_dispatch_config config = {
        .core_count = CORES, .class_count = CLASSES, .policy = policy, .seed = 1};
    memset(memory, 0xa5, sizeof memory);
    struct mw_dispatch *const dispatch = mw_dispatch_create_in(&config, memory, sizeof memory);
    assert_non_null(dispatch);
    return dispatch;
}

// Every core at its own occupancy, in percent, for long enough that no trend is left.
static void observe(struct mw_dispatch *dispatch, const unsigned *percent) {
    for (int round = 0; round < 100; round++) {
        for (size_t core = 0; core < CORES; core++) {
            mw_dispatch_observe(dispatch, core, 0, percent[core] * 10000);
        }
    }
}

static unsigned route(struct mw_dispatch *dispatch) {
    return mw_dispatch_route(dispatch, 0).core_index;
}

// ---- Making --------------------------------------------------------------------------------------

CASE(a_configuration_out_of_the_limits_needs_no_bytes) {
    struct mw_dispatch_config config = {.core_count = 1, .class_count = 1};
    assert_true(mw_dispatch_bytes(&config) > 0);
    config.core_count = 0;
    assert_int_equal(mw_dispatch_bytes(&config), 0);
    config.core_count = MW_DISPATCH_CORES_MAX + 1;
    assert_int_equal(mw_dispatch_bytes(&config), 0);
    config.core_count = 1;
    config.class_count = MW_DISPATCH_CLASSES_MAX + 1;
    assert_int_equal(mw_dispatch_bytes(&config), 0);
    config.class_count = 1;
    config.policy = (enum mw_dispatch_policy)MW_DISPATCH_POLICY_COUNT;
    assert_int_equal(mw_dispatch_bytes(&config), 0);
    assert_int_equal(mw_dispatch_bytes(NULL), 0);
}

CASE(memory_that_is_short_or_misaligned_is_not_taken_nor_written) {
    const struct mw_dispatch_config config = {.core_count = 7, .class_count = 5};
    const size_t bytes = mw_dispatch_bytes(&config);
    assert_true(bytes < sizeof memory);
    memset(memory, 0xa5, sizeof memory);
    assert_null(mw_dispatch_create_in(&config, NULL, bytes));
    assert_null(mw_dispatch_create_in(&config, memory, bytes - 1));
    assert_null(mw_dispatch_create_in(&config, memory + 8, bytes));
    assert_true(unit_is_all(memory, 0xa5, sizeof memory));
    assert_non_null(mw_dispatch_create_in(&config, memory, bytes));
    assert_true(unit_is_all(memory + bytes, 0xa5, sizeof memory - bytes));
}

// ---- Policies ------------------------------------------------------------------------------------

CASE(round_robin_takes_the_cores_in_turn) {
    struct mw_dispatch *const dispatch = make(MW_DISPATCH_ROUND_ROBIN);
    observe(dispatch, (const unsigned[]){0, 100, 50, 99});
    for (unsigned i = 0; i < 3 * CORES; i++) {
        assert_int_equal(route(dispatch), i % CORES);
    }
}

CASE(least_occupied_takes_the_least_and_equal_ones_in_turn) {
    struct mw_dispatch *const dispatch = make(MW_DISPATCH_LEAST_OCCUPIED);
    observe(dispatch, (const unsigned[]){40, 30, 20, 90});
    for (int i = 0; i < 9; i++) {
        assert_int_equal(route(dispatch), 2); // a burst goes where the last look said
    }
    observe(dispatch, (const unsigned[]){40, 20, 20, 20});
    unsigned counts[CORES] = {0};
    for (int i = 0; i < 40; i++) {
        counts[route(dispatch)]++;
    }
    assert_int_equal(counts[0], 0);
    assert_true(counts[1] >= 10 && counts[2] >= 10 && counts[3] >= 10);
}

CASE(classes_are_told_apart) {
    struct mw_dispatch *const dispatch = make(MW_DISPATCH_LEAST_OCCUPIED);
    for (size_t core = 0; core < CORES; core++) {
        for (size_t index = 0; index < CLASSES; index++) {
            mw_dispatch_observe(dispatch, core, index, core == index ? 0 : 500000);
        }
    }
    for (unsigned index = 0; index < CLASSES; index++) {
        assert_int_equal(mw_dispatch_route(dispatch, index).core_index, index);
    }
}

CASE(two_choices_takes_the_fullest_only_when_it_is_drawn_twice) {
    struct mw_dispatch *const dispatch = make(MW_DISPATCH_TWO_CHOICES);
    observe(dispatch, (const unsigned[]){10, 20, 30, 40});
    unsigned counts[CORES] = {0};
    enum { DRAWS = 16000 };
    for (int i = 0; i < DRAWS; i++) {
        counts[route(dispatch)]++;
    }
    const unsigned expected[CORES] = {7, 5, 3, 1}; // of 16
    for (unsigned core = 0; core < CORES; core++) {
        const unsigned share = DRAWS / 16 * expected[core];
        assert_true(counts[core] > share * 9 / 10 && counts[core] < share * 11 / 10);
    }
}

CASE(least_expected_spreads_a_burst_between_two_looks) {
    struct mw_dispatch *const dispatch = make(MW_DISPATCH_LEAST_EXPECTED);
    const struct mw_dispatch_ticket known = mw_dispatch_route(dispatch, 0);
    mw_dispatch_settle(dispatch, &known, 50000, false); // work takes 5 % of a core
    observe(dispatch, (const unsigned[]){50, 40, 50, 50});
    unsigned counts[CORES] = {0};
    for (int i = 0; i < 10; i++) {
        counts[route(dispatch)]++;
    }
    // Two bring core 1 to the others' level, the rest are dealt out.
    assert_int_equal(counts[1], 4);
    assert_int_equal(counts[0] + counts[2] + counts[3], 6);
    assert_int_equal(counts[0], 2);
}

CASE(the_trend_prefers_a_core_that_empties_to_one_that_fills) {
    const unsigned rising = 0, falling = 1;
    for (int policy = MW_DISPATCH_LEAST_OCCUPIED; policy <= MW_DISPATCH_TREND; policy += 3) {
        struct mw_dispatch *const dispatch = make((enum mw_dispatch_policy)policy);
        for (unsigned round = 0; round <= 50; round++) {
            mw_dispatch_observe(dispatch, rising, 0, 200000 + round * 4000);  // to 40 %
            mw_dispatch_observe(dispatch, falling, 0, 620000 - round * 4000); // to 42 %
            mw_dispatch_observe(dispatch, 2, 0, 900000);
            mw_dispatch_observe(dispatch, 3, 0, 900000);
        }
        assert_int_equal(route(dispatch), policy == MW_DISPATCH_TREND ? falling : rising);
    }
}

CASE(the_forecast_of_a_line_is_the_line) {
    struct mw_dispatch *const dispatch = make(MW_DISPATCH_TREND);
    for (unsigned round = 0; round <= 200; round++) {
        mw_dispatch_observe(dispatch, 0, 0, 100000 + round * 2000);
    }
    const unsigned forecast = 100000 + (200 + 8) * 2000; // the horizon's default is 8
    assert_true(mw_dispatch_score(dispatch, 0, 0) > forecast - 2000);
    assert_true(mw_dispatch_score(dispatch, 0, 0) < forecast + 2000);
}

// What is no occupancy counts as full, and a horizon of all rounds there can be as a long one: a rising
// core is worse than a falling one, whose forecast is empty.
CASE(extreme_figures_are_bounded) {
    const struct mw_dispatch_config config = {.core_count = CORES, .class_count = CLASSES,
                                              .policy = MW_DISPATCH_TREND, .horizon = UINT32_MAX};
    struct mw_dispatch *const dispatch = mw_dispatch_create_in(&config, memory, sizeof memory);
    for (unsigned round = 0; round < 20; round++) {
        mw_dispatch_observe(dispatch, 0, 0, round * 50000);
        mw_dispatch_observe(dispatch, 1, 0, 1000000 - round * 50000);
        mw_dispatch_observe(dispatch, 2, 0, UINT32_MAX);
    }
    assert_int_equal(mw_dispatch_score(dispatch, 0, 0), UINT32_MAX);
    assert_int_equal(mw_dispatch_score(dispatch, 1, 0), 0);
    const struct mw_dispatch_ticket ticket = mw_dispatch_route(dispatch, 1);
    mw_dispatch_settle(dispatch, &ticket, UINT32_MAX, false);
    assert_true(mw_dispatch_set_policy(dispatch, MW_DISPATCH_ROUND_ROBIN));
    for (int i = 0; i < 100000; i++) {
        assert_int_equal(mw_dispatch_route(dispatch, 1).class_index, 1);
    }
    assert_true(mw_dispatch_set_policy(dispatch, MW_DISPATCH_LEAST_EXPECTED));
    assert_int_equal(mw_dispatch_score(dispatch, 2, 0), MW_DISPATCH_FULL);
    assert_int_equal(mw_dispatch_score(dispatch, 0, 1), UINT32_MAX);
}

// Core 0 is seen at 30 % and rising fast: work that goes there is refused. Core 1 is level at 50 %.
CASE(the_learned_policy_avoids_what_was_refused_before) {
    struct mw_dispatch *const dispatch = make(MW_DISPATCH_LEARNED);
    mw_dispatch_set_explore(dispatch, 300000);
    unsigned late = 0;
    for (int episode = 0; episode < 600; episode++) {
        for (unsigned round = 0; round <= 30; round++) {
            mw_dispatch_observe(dispatch, 0, 0, round * 10000); // 0 to 30 %
            mw_dispatch_observe(dispatch, 1, 0, 500000);
            mw_dispatch_observe(dispatch, 2, 0, 950000);
            mw_dispatch_observe(dispatch, 3, 0, 950000);
        }
        if (episode == 500) {
            mw_dispatch_set_explore(dispatch, 0);
        }
        const struct mw_dispatch_ticket ticket = mw_dispatch_route(dispatch, 0);
        assert_true(episode != 0 || ticket.core_index == 0); // unlearned: by what is seen
        late += episode >= 500 && ticket.core_index == 1;
        if (ticket.core_index == 0) {
            mw_dispatch_observe(dispatch, 0, 0, 1000000);
        }
        mw_dispatch_settle(dispatch, &ticket, 10000, ticket.core_index == 0);
    }
    assert_int_equal(late, 100);
}

// ---- Tickets -------------------------------------------------------------------------------------

CASE(pending_work_is_what_has_not_come_back) {
    struct unit_chance chance = unit_chance_begin();
    for (int policy = 0; policy < MW_DISPATCH_POLICY_COUNT; policy++) {
        struct mw_dispatch *const dispatch = make((enum mw_dispatch_policy)policy);
        struct mw_dispatch_ticket out[64];
        unsigned count = 0;
        unsigned pending[CORES] = {0};
        for (int i = 0; i < 5000; i++) {
            mw_dispatch_observe(dispatch, unit_below(&chance, CORES),
                                unit_below(&chance, CLASSES), unit_below(&chance, 1000001));
            if (count < 64 && unit_below(&chance, 2) == 0) {
                out[count] = mw_dispatch_route(dispatch, unit_below(&chance, CLASSES));
                assert_true(out[count].core_index < CORES && out[count].class_index < CLASSES);
                pending[out[count++].core_index]++;
            } else if (count > 0) {
                const unsigned at = unit_below(&chance, count);
                pending[out[at].core_index]--;
                mw_dispatch_settle(dispatch, &out[at], unit_below(&chance, 100000),
                                   unit_below(&chance, 4) == 0);
                out[at] = out[--count];
            }
            for (size_t core = 0; core < CORES; core++) {
                assert_int_equal(mw_dispatch_pending_count(dispatch, core), pending[core]);
            }
        }
    }
}

CASE(the_same_seed_and_calls_make_the_same_decisions) {
    for (int policy = 0; policy < MW_DISPATCH_POLICY_COUNT; policy++) {
        unsigned first[500];
        for (int run = 0; run < 2; run++) {
            struct unit_chance chance = {42};
            struct mw_dispatch *const dispatch = make((enum mw_dispatch_policy)policy);
            mw_dispatch_set_explore(dispatch, 100000);
            for (int i = 0; i < 500; i++) {
                mw_dispatch_observe(dispatch, unit_below(&chance, CORES), 0,
                                    unit_below(&chance, 1000001));
                const struct mw_dispatch_ticket ticket = mw_dispatch_route(dispatch, 0);
                mw_dispatch_settle(dispatch, &ticket, 20000, unit_below(&chance, 9) == 0);
                if (run == 0) {
                    first[i] = ticket.core_index;
                }
                assert_int_equal(ticket.core_index, first[i]);
            }
        }
    }
}

CASE(what_is_out_of_range_is_passed_over) {
    struct mw_dispatch *const dispatch = make(MW_DISPATCH_LEAST_EXPECTED);
    mw_dispatch_observe(dispatch, CORES, 0, 5);
    mw_dispatch_observe(dispatch, 0, CLASSES, 5);
    assert_int_equal(mw_dispatch_score(dispatch, CORES, 0), 0);
    assert_int_equal(mw_dispatch_score(dispatch, 0, CLASSES), 0);
    assert_int_equal(mw_dispatch_pending_count(dispatch, CORES), 0);
    const struct mw_dispatch_ticket bad[] = {
        {.core_index = CORES}, {.class_index = CLASSES}, {.context = UINT32_MAX}};
    for (size_t i = 0; i < 3; i++) {
        mw_dispatch_settle(dispatch, &bad[i], 5, true);
    }
    const struct mw_dispatch_ticket nothing_out = {0};
    mw_dispatch_settle(dispatch, &nothing_out, 5, false);
    assert_int_equal(mw_dispatch_pending_count(dispatch, 0), 0);
    assert_int_equal(mw_dispatch_route(dispatch, SIZE_MAX).class_index, 0);
    assert_false(mw_dispatch_set_policy(dispatch, (enum mw_dispatch_policy)MW_DISPATCH_POLICY_COUNT));
    assert_true(mw_dispatch_set_policy(dispatch, MW_DISPATCH_ROUND_ROBIN));
}

// ---- Pools ---------------------------------------------------------------------------------------

CASE(a_round_reads_the_pools) {
    const struct mw_pool_class classes[] = {{.size_bytes = 64, .block_count = 100},
                                            {.size_bytes = 256, .block_count = 50}};
    struct mw_pool_config config = {.classes = classes, .class_count = 2, .remote = true};
    size_t bytes = 0;
    size_t alignment = 0;
    assert_int_equal(mw_pool_set_plan(&config, CORES, &bytes, &alignment), MW_POOL_OK);
    config.memory = pools_memory(bytes, alignment);
    struct mw_pool_set *set = NULL;
    assert_int_equal(mw_pool_set_create_in(&config, CORES, &set), MW_POOL_OK);
    for (size_t core = 0; core < CORES; core++) {
        for (size_t i = 0; i < 10 * (core + 1); i++) {
            assert_non_null(mw_pool_alloc_class(mw_pool_set_get(set, core), 0));
        }
        assert_non_null(mw_pool_alloc_class(mw_pool_set_get(set, core), 1));
    }
    struct mw_dispatch *const dispatch = make(MW_DISPATCH_LEAST_OCCUPIED);
    mw_dispatch_observe_set(dispatch, set);
    for (size_t core = 0; core < CORES; core++) {
        assert_int_equal(mw_dispatch_score(dispatch, core, 0), 100000 * (core + 1));
        assert_int_equal(mw_dispatch_score(dispatch, core, 1), 20000);
        assert_int_equal(mw_dispatch_score(dispatch, core, 2), 0); // the pools have no such class
    }
    pools_check_guards();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_configuration_out_of_the_limits_needs_no_bytes),
        cmocka_unit_test(memory_that_is_short_or_misaligned_is_not_taken_nor_written),
        cmocka_unit_test(round_robin_takes_the_cores_in_turn),
        cmocka_unit_test(least_occupied_takes_the_least_and_equal_ones_in_turn),
        cmocka_unit_test(classes_are_told_apart),
        cmocka_unit_test(two_choices_takes_the_fullest_only_when_it_is_drawn_twice),
        cmocka_unit_test(least_expected_spreads_a_burst_between_two_looks),
        cmocka_unit_test(the_trend_prefers_a_core_that_empties_to_one_that_fills),
        cmocka_unit_test(the_forecast_of_a_line_is_the_line),
        cmocka_unit_test(extreme_figures_are_bounded),
        cmocka_unit_test(the_learned_policy_avoids_what_was_refused_before),
        cmocka_unit_test(pending_work_is_what_has_not_come_back),
        cmocka_unit_test(the_same_seed_and_calls_make_the_same_decisions),
        cmocka_unit_test(what_is_out_of_range_is_passed_over),
        cmocka_unit_test(a_round_reads_the_pools),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
