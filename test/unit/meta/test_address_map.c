// SPDX-License-Identifier: MIT
// Address map: any 64-bit value, against a list of what was set.
#include "meta/address_map.h"

#include "../unit.h"

static struct os os;
static struct meta meta;
static struct address_map map;

static int begin(void **state) {
    (void)state;
    memset(&os, 0, sizeof os);
    memset(&meta, 0, sizeof meta);
    memset(&map, 0, sizeof map);
    os_init(&os);
    os.address_space_limit = SIZE_MAX; // also where the tests run under one
    meta_init(&meta, &os);
    address_map_init(&map, &meta);
    return 0;
}

static bool set(uintptr_t address, uintptr_t value) {
    os_lock_take(&map.lock);
    const bool done =
        address_map_prepare_locked(&map) && address_map_set_locked(&map, address, value);
    os_lock_drop(&map.lock);
    return done;
}

CASE(an_empty_map_knows_nothing_of_any_value) {
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned bit = 0; bit < 64; bit++) {
            assert_int_equal(address_map_get(&map, UINT64_C(1) << bit), 0);
            assert_int_equal(address_map_get(&map, ~UINT64_C(0) >> bit), 0);
            assert_int_equal(address_map_get(&map, ~UINT64_C(0) << bit), 0);
        }
        assert_int_equal(address_map_get(&map, 0), 0);
        assert_true(address_map_prepare_locked(&map)); // with a root and without
    }
}

CASE(a_value_covers_its_megabyte_and_nothing_else) {
    static const uintptr_t places[] = {0, UINT64_C(0x7f1234500000), UINT64_C(0xfffffff00000),
                                       MALLOW_MAP_BYTES, UINT64_C(0x3fffff00000)};
    for (unsigned i = 0; i < sizeof places / sizeof places[0]; i++) {
        (void)begin(NULL);
        const uintptr_t place = places[i];
        assert_true(set(place + 12345, 77));
        assert_int_equal(address_map_get(&map, place), 77);
        assert_int_equal(address_map_get(&map, place + MALLOW_MAP_BYTES - 1), 77);
        assert_int_equal(address_map_get(&map, place + MALLOW_MAP_BYTES), 0);
        assert_int_equal(address_map_get(&map, place - 1), 0);
        for (unsigned bit = MALLOW_MAP_SHIFT; bit < 64; bit++) { // any other, one bit away
            assert_int_equal(address_map_get(&map, place ^ (UINT64_C(1) << bit)), 0);
        }
        assert_true(set(place, 0));
        assert_int_equal(address_map_get(&map, place + 5), 0);
    }
}

CASE(addresses_beyond_48_bits_are_refused) {
    assert_false(set(UINT64_C(1) << MALLOW_ADDRESS_BITS, 1));
    assert_false(set(UINTPTR_MAX, 1));
    assert_int_equal(address_map_get(&map, UINTPTR_MAX), 0);
    assert_true(set((UINT64_C(1) << MALLOW_ADDRESS_BITS) - 1, 1));
}

CASE(after_a_preparation_no_change_fails_and_a_known_megabyte_needs_none) {
    struct unit_chance chance = unit_chance_begin();
    assert_false(address_map_set_locked(&map, 0x1000, 1)); // nothing is prepared
    for (unsigned i = 0; i < 200; i++) {
        const uintptr_t address = unit_next(&chance) >> 16;
        assert_true(address_map_prepare_locked(&map));
        const uint64_t used = meta.used_bytes;
        assert_true(address_map_set_locked(&map, address, i + 1));
        assert_int_equal(meta.used_bytes, used); // takes nothing itself
        map.spare[0] = map.spare[1] = NULL;
        assert_true(address_map_set_locked(&map, address, i + 2));
        assert_int_equal(address_map_get(&map, address), i + 2);
    }
}

CASE(a_node_ahead_takes_no_memory_that_is_not_there_but_has_some_made_in_one_call) {
    assert_true(set(0x1000, 1)); // a root, and both nodes used
    assert_true(address_map_prepare_locked(&map));
    meta.bump = meta.bump_end - 64; // next to nothing is left
    meta.low = true;
    const uint64_t entries = os_entries(&os);
    assert_false(address_map_stock_locked(&map, false));
    assert_null(map.spare[2]);
    assert_int_equal(os_entries(&os), entries);
    assert_true(address_map_stock_locked(&map, true));
    assert_null(map.spare[2]);
    assert_int_equal(os_entries(&os), entries + 1);
    assert_false(address_map_stock_locked(&map, true)); // there is
    assert_non_null(map.spare[2]);
    assert_int_equal(os_entries(&os), entries + 1);
    map.spare[2] = NULL;
    meta.bump = meta.bump_end - 64;
    os.sealed = true; // none can be made
    assert_false(address_map_stock_locked(&map, true));
    assert_int_equal(os_entries(&os), entries + 1);
}

CASE(what_was_set_last_is_what_is_found) {
    enum { MEGABYTES = 64, BASES = 8 };
    uintptr_t values[BASES][MEGABYTES] = {{0}};
    uintptr_t bases[BASES];
    struct unit_chance chance = unit_chance_begin();
    for (unsigned i = 0; i < BASES; i++) { // far apart, and across the ends of nodes
        bases[i] = ((uintptr_t)i << 44) + ((uintptr_t)1 << 38) - 32 * MALLOW_MAP_BYTES;
    }
    for (unsigned round = 0; round < 20000; round++) {
        const unsigned base = unit_below(&chance, BASES);
        const unsigned megabyte = unit_below(&chance, MEGABYTES);
        const uintptr_t address =
            bases[base] + megabyte * MALLOW_MAP_BYTES + unit_below(&chance, MALLOW_MAP_BYTES);
        assert_int_equal(address_map_get(&map, address), values[base][megabyte]);
        values[base][megabyte] = unit_below(&chance, 3) == 0 ? 0 : round + 1;
        assert_true(set(address, values[base][megabyte]));
    }
}

#define MAP_CASE(name) cmocka_unit_test_setup(name, begin)

int main(void) {
    const struct CMUnitTest cases[] = {
        MAP_CASE(an_empty_map_knows_nothing_of_any_value),
        MAP_CASE(a_value_covers_its_megabyte_and_nothing_else),
        MAP_CASE(addresses_beyond_48_bits_are_refused),
        MAP_CASE(after_a_preparation_no_change_fails_and_a_known_megabyte_needs_none),
        MAP_CASE(a_node_ahead_takes_no_memory_that_is_not_there_but_has_some_made_in_one_call),
        MAP_CASE(what_was_set_last_is_what_is_found),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
