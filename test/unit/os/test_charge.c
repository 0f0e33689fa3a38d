// SPDX-License-Identifier: MIT
// Charge: caps by level, the room that is left, events, and many threads at once.
#include "os/charge.h"

#include <pthread.h>

#include "../unit.h"
#include "os/os.h"

#define MIB ((size_t)1 << 20)

static struct os os;

static int begin(void **state) {
    (void)state;
    memset(&os, 0, sizeof os);
    os_init(&os);
    return 0;
}

static uint64_t held(void) {
    return atomic_load(&os.charge.held_bytes);
}

static uint32_t events(void) {
    return atomic_exchange(&os.charge.events, 0);
}

CASE(without_limits_everything_is_counted_and_nothing_refused) {
    assert_true(os_charge_take(&os, OS_CHARGE_SOFT, SIZE_MAX / 4));
    assert_int_equal(held(), SIZE_MAX / 4);
    os_charge_release(&os, SIZE_MAX / 4);
    assert_true(os_charge_take(&os, OS_CHARGE_SOFT, 0));
    os_charge_add(&os, 7);
    assert_int_equal(held(), 7);
    assert_true(os_charge_can_fit(&os, SIZE_MAX));
    assert_int_equal(os_charge_room(&os, 0), SIZE_MAX / 4);
    os_charge_note_refusal(&os);
    assert_int_equal(os.charge.refused_count, 0);
    assert_int_equal(events(), 0);
}

CASE(each_level_has_its_cap) {
    os_charge_set(&os, 64 * MIB, 32 * MIB);
    assert_int_equal(os_charge_reserve(64 * MIB), 2 * MIB);
    assert_true(os_charge_take(&os, OS_CHARGE_SOFT, 32 * MIB));
    assert_false(os_charge_take(&os, OS_CHARGE_SOFT, 1));
    assert_true(os_charge_take(&os, OS_CHARGE_HARD, 30 * MIB));
    assert_false(os_charge_take(&os, OS_CHARGE_HARD, 1));
    assert_true(os_charge_take(&os, OS_CHARGE_RESERVE, 2 * MIB));
    assert_false(os_charge_take(&os, OS_CHARGE_RESERVE, 1));
    assert_int_equal(held(), 64 * MIB);
    assert_false(os_charge_take(&os, OS_CHARGE_RESERVE, SIZE_MAX));
    assert_false(os_charge_can_fit(&os, 64 * MIB + 1));
    assert_true(os_charge_can_fit(&os, 64 * MIB));
    os_charge_note_refusal(&os);
    assert_int_equal(os.charge.refused_count, 1);
    os_charge_release(&os, 40 * MIB);
    assert_true(os_charge_take(&os, OS_CHARGE_SOFT, 8 * MIB));
}

CASE(the_reserve_is_a_32nd_within_bounds) {
    assert_int_equal(os_charge_reserve(4 * MIB), MIB / 4);
    assert_int_equal(os_charge_reserve(96 * MIB), 3 * MIB);
    assert_int_equal(os_charge_reserve(1024 * MIB), 4 * MIB);
}

CASE(a_soft_limit_above_the_hard_one_has_no_effect) {
    os_charge_set(&os, 64 * MIB, 80 * MIB);
    assert_true(os_charge_take(&os, OS_CHARGE_SOFT, 62 * MIB));
    assert_false(os_charge_take(&os, OS_CHARGE_SOFT, 1));
    assert_false(os_charge_take(&os, OS_CHARGE_HARD, 1));
}

CASE(a_limit_lowered_below_what_is_held_refuses_until_that_has_fallen) {
    assert_true(os_charge_take(&os, OS_CHARGE_SOFT, 100 * MIB));
    os_charge_set(&os, 50 * MIB, UINT64_MAX);
    assert_false(os_charge_take(&os, OS_CHARGE_RESERVE, 1));
    os_charge_release(&os, 60 * MIB);
    assert_true(os_charge_take(&os, OS_CHARGE_HARD, 1));
}

CASE(room_is_what_the_soft_limit_leaves_beside_others) {
    os_charge_set(&os, UINT64_MAX, 32 * MIB);
    os_charge_add(&os, 20 * MIB);
    assert_int_equal(os_charge_room(&os, 0), 12 * MIB);
    assert_int_equal(os_charge_room(&os, 5 * MIB), 17 * MIB);
    assert_int_equal(os_charge_room(&os, 25 * MIB), 32 * MIB);
    os_charge_add(&os, 20 * MIB);
    assert_int_equal(os_charge_room(&os, 0), 0);
    assert_true(os_charge_is_short(&os, 0));
    os_charge_release(&os, 20 * MIB);
    assert_true(os_charge_is_short(&os, 12 * MIB + 1));
    assert_false(os_charge_is_short(&os, 12 * MIB));
}

CASE(under_pressure_the_soft_level_refuses_and_no_room_is_left) {
    os_charge_press(&os, true);
    assert_false(os_charge_take(&os, OS_CHARGE_SOFT, 1));
    assert_true(os_charge_take(&os, OS_CHARGE_HARD, 1));
    assert_int_equal(os_charge_room(&os, 0), 0);
    os_charge_press(&os, false);
    assert_true(os_charge_take(&os, OS_CHARGE_SOFT, 1));
    os_charge_set(&os, 64 * MIB, 32 * MIB);
    os_charge_press(&os, true);
    os_charge_press(&os, false);
    assert_true(os_charge_take(&os, OS_CHARGE_SOFT, 16 * MIB));
    assert_false(os_charge_take(&os, OS_CHARGE_SOFT, 16 * MIB));
}

CASE(shedding_is_due_above_the_soft_limit_and_again_after_a_part_of_it) {
    os_charge_set(&os, UINT64_MAX, 64 * MIB);
    assert_true(os_charge_take(&os, OS_CHARGE_SOFT, 64 * MIB));
    assert_int_equal(events(), 0);
    assert_true(os_charge_take(&os, OS_CHARGE_HARD, 1));
    assert_int_equal(events(), OS_CHARGE_SHED_DUE);
    assert_true(os_charge_take(&os, OS_CHARGE_HARD, 1 * MIB)); // a 32nd would be 2 MiB
    assert_int_equal(events(), 0);
    assert_true(os_charge_take(&os, OS_CHARGE_HARD, 1 * MIB));
    assert_int_equal(events(), OS_CHARGE_SHED_DUE);
    // Below the limit and above again: at once.
    os_charge_release(&os, 10 * MIB);
    assert_true(os_charge_take(&os, OS_CHARGE_SOFT, 1 * MIB));
    assert_true(os_charge_take(&os, OS_CHARGE_HARD, 10 * MIB));
    assert_int_equal(events(), OS_CHARGE_SHED_DUE);
}

CASE(a_look_at_pressure_is_due_by_growth_if_asked_for) {
    assert_true(os_charge_take(&os, OS_CHARGE_SOFT, 10 * MIB));
    assert_int_equal(events(), 0);
    atomic_store(&os.charge.poll_bytes, MIB);
    assert_true(os_charge_take(&os, OS_CHARGE_SOFT, MIB - 1));
    assert_int_equal(events(), 0);
    assert_true(os_charge_take(&os, OS_CHARGE_SOFT, 1));
    assert_int_equal(events(), OS_CHARGE_POLL_DUE);
}

// ---- Many threads -------------------------------------------------------------------------------

enum { THREADS = 8, ROUNDS = 20000 };

static _Atomic(uint64_t) highest;

static void *taker(void *seed) {
    struct unit_chance chance = {(uintptr_t)seed};
    size_t mine = 0;
    size_t refused = 0;
    for (unsigned i = 0; i < ROUNDS; i++) {
        const size_t bytes = 1 + unit_below(&chance, MIB);
        const enum os_charge_level level = (enum os_charge_level)unit_below(&chance, 3);
        if (os_charge_take(&os, level, bytes)) {
            mine += bytes;
        } else {
            refused++;
        }
        const uint64_t now = held();
        uint64_t before = atomic_load(&highest);
        while (now > before && !atomic_compare_exchange_weak(&highest, &before, now)) {
        }
        if (mine > 0 && unit_below(&chance, 2) == 0) {
            const size_t part = 1 + (size_t)unit_next(&chance) % mine;
            os_charge_release(&os, part);
            mine -= part;
        }
    }
    os_charge_release(&os, mine);
    return (void *)refused;
}

CASE(eight_threads_never_exceed_the_limit_and_come_out_even) {
    struct unit_chance chance = unit_chance_begin();
    pthread_t threads[THREADS];
    size_t refused = 0;
    os_charge_set(&os, 4 * MIB, 3 * MIB);
    for (unsigned i = 0; i < THREADS; i++) {
        void *const seed = (void *)(uintptr_t)unit_next(&chance);
        assert_int_equal(pthread_create(&threads[i], NULL, taker, seed), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        void *result;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        refused += (uintptr_t)result;
    }
    assert_int_equal(held(), 0);
    assert_true(refused > 0);
    assert_true(atomic_load(&highest) <= 4 * MIB);
    assert_true(atomic_load(&highest) > 3 * MIB);
}

#define CHARGE_CASE(name) cmocka_unit_test_setup(name, begin)

int main(void) {
    const struct CMUnitTest cases[] = {
        CHARGE_CASE(without_limits_everything_is_counted_and_nothing_refused),
        CHARGE_CASE(each_level_has_its_cap),
        CHARGE_CASE(the_reserve_is_a_32nd_within_bounds),
        CHARGE_CASE(a_soft_limit_above_the_hard_one_has_no_effect),
        CHARGE_CASE(a_limit_lowered_below_what_is_held_refuses_until_that_has_fallen),
        CHARGE_CASE(room_is_what_the_soft_limit_leaves_beside_others),
        CHARGE_CASE(under_pressure_the_soft_level_refuses_and_no_room_is_left),
        CHARGE_CASE(shedding_is_due_above_the_soft_limit_and_again_after_a_part_of_it),
        CHARGE_CASE(a_look_at_pressure_is_due_by_growth_if_asked_for),
        CHARGE_CASE(eight_threads_never_exceed_the_limit_and_come_out_even),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
