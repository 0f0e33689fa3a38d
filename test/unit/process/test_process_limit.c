// SPDX-License-Identifier: MIT
// Limits: what options come to, what is complained of, and pressure from a simulated file.
#include "process/process_limit.h"

#include "../os/tree.h"
#include "process/process.h"

#define MIB ((uint64_t)1 << 20)

static struct process process;
static char text[4096]; // what went to stderr
static unsigned shed_count;
static struct mw_shed_request last;

static int begin(void **state) {
    (void)state;
    tree_begin();
    memset(&process, 0, sizeof process);
    os_init(&process.os);
    process_options_default(&process.options);
    process.os.root = tree_root;
    meta_init(&process.meta, &process.os);
    address_map_init(&process.map, &process.meta);
    arena_set_init(&process.arenas, &process.os, &process.meta, &process.map, 8 << 20);
    huge_set_init(&process.huges, &process.os, &process.meta, &process.map, 8 << 20);
    process.shared.os = &process.os;
    process.shared.meta = &process.meta;
    process.shared.arenas = &process.arenas;
    process.shared.huges = &process.huges;
    shed_count = 0;
    return 0;
}

static int end(void **state) {
    (void)state;
    tree_end();
    return 0;
}

// Sets both limits and the pressure; what is said is left in `text`.
static void apply(const char *hard, const char *soft, const char *pressure) {
    int ends[2];
    assert_int_equal(process_options_set(&process.options, "limit", hard), 0);
    assert_int_equal(process_options_set(&process.options, "soft_limit", soft), 0);
    assert_int_equal(process_options_set(&process.options, "pressure", pressure), 0);
    assert_int_equal(pipe(ends), 0);
    const int before = dup(2);
    dup2(ends[1], 2);
    process_limit_apply(&process, PROCESS_LIMIT_COMPLAINS);
    process_limit_print(&process, 2);
    dup2(before, 2);
    close(before);
    close(ends[1]);
    const ssize_t length = read(ends[0], text, sizeof text - 1);
    text[length > 0 ? length : 0] = '\0';
    close(ends[0]);
}

static uint64_t cap(enum os_charge_level level) {
    return atomic_load(&process.os.charge.caps[level]);
}

CASE(no_options_are_no_limits_and_nothing_is_said) {
    apply("0", "0", "0");
    assert_int_equal(cap(OS_CHARGE_RESERVE), UINT64_MAX);
    assert_int_equal(cap(OS_CHARGE_SOFT), UINT64_MAX);
    assert_string_equal(text, "");
}

CASE(sizes_are_taken_as_they_are) {
    apply("512M", "384M", "0");
    assert_int_equal(cap(OS_CHARGE_RESERVE), 512 * MIB);
    assert_int_equal(cap(OS_CHARGE_HARD), 508 * MIB);
    assert_int_equal(cap(OS_CHARGE_SOFT), 384 * MIB);
    assert_string_equal(text, "mallow: limits in bytes: hard 536870912, soft 402653184; "
                              "shares are of none\n");
    apply("0", "384M", "0");
    assert_int_equal(cap(OS_CHARGE_RESERVE), UINT64_MAX);
    assert_int_equal(cap(OS_CHARGE_SOFT), 384 * MIB);
}

static void group_has(const char *bytes) {
    tree_write("/proc/self/cgroup", "4:memory:/a\n");
    tree_write("/proc/self/mountinfo",
               "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    tree_write("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", bytes);
}

CASE(shares_are_of_the_cgroups_limit_or_else_of_the_machines_memory) {
    tree_write("/proc/meminfo", "MemTotal: 2097152 kB\n");
    apply("50%", "25%", "0");
    assert_int_equal(cap(OS_CHARGE_RESERVE), 1024 * MIB);
    assert_int_equal(cap(OS_CHARGE_SOFT), 512 * MIB);
    group_has("104857600\n");
    apply("80%", "60%", "0");
    assert_int_equal(cap(OS_CHARGE_RESERVE), 80 * MIB);
    assert_int_equal(cap(OS_CHARGE_SOFT), 60 * MIB);
    assert_non_null(strstr(text, "shares are of 104857600\n"));
    group_has("109951162777600\n"); // more than the machine has
    apply("81%", "0", "0");
    assert_int_equal(cap(OS_CHARGE_RESERVE), 2048 * MIB / 100 * 81 + 2048 * MIB % 100 * 81 / 100);
    group_has("1048576\n"); // hardly anything: the least limit there is
    apply("80%", "0", "0");
    assert_int_equal(cap(OS_CHARGE_RESERVE), 4 * MIB);
}

// The program has changed its root, say: what was worked out at start holds.
CASE(shares_outlive_the_files_that_they_were_read_from) {
    tree_write("/proc/meminfo", "MemTotal: 2097152 kB\n");
    group_has("104857600\n");
    apply("80%", "60%", "0");
    group_has("max\n");
    apply("80%", "60%", "5"); // sets no limit
    assert_int_equal(cap(OS_CHARGE_RESERVE), 80 * MIB);
    assert_int_equal(cap(OS_CHARGE_SOFT), 60 * MIB);
    tree_end();
    assert_int_equal(mkdir(tree_root, 0755), 0);
    apply("80%", "60%", "0");
    assert_int_equal(cap(OS_CHARGE_RESERVE), 80 * MIB);
    apply("80%", "50%", "0");
    assert_int_equal(cap(OS_CHARGE_RESERVE), 80 * MIB);
    assert_int_equal(cap(OS_CHARGE_SOFT), 50 * MIB);
    assert_non_null(strstr(text, "shares are of 104857600\n"));
}

CASE(what_has_no_effect_is_named_with_its_value) {
    apply("80%", "70%", "5");
    assert_int_equal(cap(OS_CHARGE_RESERVE), UINT64_MAX);
    assert_non_null(strstr(text, "mallow: MALLOW_LIMIT=80%: no cgroup's limit, nor"));
    assert_non_null(strstr(text, "mallow: MALLOW_SOFT_LIMIT=70%: no cgroup's limit, nor"));
    assert_non_null(strstr(text, "mallow: MALLOW_PRESSURE=5%: neither"));
    apply("64M", "128M", "0");
    assert_non_null(strstr(text, "mallow: MALLOW_SOFT_LIMIT=128M: not below MALLOW_LIMIT"));
    assert_int_equal(cap(OS_CHARGE_SOFT), 62 * MIB);
}

CASE(shares_of_the_machine_where_a_group_is_out_of_sight_are_said_to_be) {
    tree_write("/proc/meminfo", "MemTotal: 2097152 kB\n");
    group_has("104857600\n");
    tree_write("/proc/self/cgroup", "4:memory:/../other\n");
    tree_write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "104857600\n");
    apply("80%", "60%", "0"); // what the mount shows has a limit
    assert_null(strstr(text, "outside"));
    tree_write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "max\n");
    apply("70%", "50%", "0");
    assert_non_null(strstr(text, "mallow: MALLOW_LIMIT=70%: the process's cgroup is outside"));
    assert_non_null(strstr(text, "mallow: MALLOW_SOFT_LIMIT=50%: the process's cgroup is outside"));
    apply("1G", "0", "0");
    assert_null(strstr(text, "outside"));
}

CASE(no_file_is_read_unless_an_option_asks_for_it) {
    group_has("104857600\n");
    tree_write("/proc/pressure/memory", "some avg10=0.00 total=0\n");
    apply("64M", "32M", "0");
    assert_int_equal(process.limit.base_bytes, UINT64_MAX);
    assert_string_equal(process.limit.pressure_path, "");
}

// ---- Pressure -----------------------------------------------------------------------------------

static void shed(const struct mw_shed_request *request, void *argument) {
    (void)argument;
    shed_count++;
    last = *request;
}

static void stalled(uint64_t microseconds) {
    char line[200];
    snprintf(line, sizeof line, "some avg10=0.00 avg60=0.00 avg300=0.00 total=%llu\n",
             (unsigned long long)microseconds);
    tree_write("/proc/pressure/memory", line);
}

// As much growth as makes a look due, after `wait_ms`.
static void look(unsigned wait_ms) {
    usleep(wait_ms * 1000);
    assert_true(os_charge_take(&process.os, OS_CHARGE_HARD, MIB));
    os_charge_release(&process.os, MIB);
    process_attend(&process);
}

CASE(pressure_above_the_percentage_presses_until_it_is_half_as_high) {
    stalled(1000);
    apply("0", "0", "10");
    assert_non_null(strstr(text, "pressure from "));
    assert_int_equal(process_shed_add(&process.shed, shed, NULL), 0);
    look(0); // the first look has nothing to compare with
    stalled(1000 + 1000000);
    look(0); // too soon
    assert_int_equal(shed_count, 0);
    look(150);
    assert_int_equal(shed_count, 1);
    assert_int_equal(last.reason, MALLOW_SHED_PRESSURE);
    assert_int_equal(process.limit.pressed, 1);
    assert_false(os_charge_take(&process.os, OS_CHARGE_SOFT, 1));
    look(150); // no more than before: over
    assert_int_equal(process.limit.pressed, 0);
    assert_int_equal(shed_count, 1);
    assert_true(os_charge_take(&process.os, OS_CHARGE_SOFT, 1));
    // A little: less than was asked for.
    stalled(1000 + 1000000 + 1000);
    look(150);
    assert_int_equal(process.limit.pressed, 0);
}

// The program's group is gone after a move, say, or all its descriptors are in use for a while.
CASE(pressure_is_over_where_it_cannot_be_read_any_more) {
    char path[200];
    snprintf(path, sizeof path, "%s/proc/pressure/memory", tree_root);
    stalled(1000);
    apply("0", "0", "10");
    look(0);
    stalled(1000000);
    look(150);
    assert_int_equal(process.limit.pressed, 1);
    assert_int_equal(remove(path), 0);
    look(150);
    assert_int_equal(process.limit.pressed, 0);
    assert_true(os_charge_take(&process.os, OS_CHARGE_SOFT, 1));
    stalled(9000000); // in all the time since it was read last, not since it was looked for
    look(150);
    assert_int_equal(process.limit.pressed, 0);
    stalled(9500000);
    look(150);
    assert_int_equal(process.limit.pressed, 1);
}

CASE(pressure_gives_back_what_is_kept) {
    stalled(0);
    apply("0", "0", "10");
    assert_true(huge_give(&process.huges, huge_take(&process.huges, 2 * MIB, 1, false), true));
    assert_true(process.huges.cache.bytes > 0);
    look(0);
    stalled(2000000);
    look(150);
    assert_int_equal(process.huges.cache.bytes, 0);
}

CASE(the_soft_limits_round_says_by_how_much_it_is_exceeded) {
    apply("0", "16M", "0");
    assert_int_equal(process_shed_add(&process.shed, shed, NULL), 0);
    os_charge_add(&process.os, 16 * MIB);
    const uint64_t before = process.os.charge.held_bytes;
    assert_true(os_charge_take(&process.os, OS_CHARGE_HARD, 5 * MIB));
    process_attend(&process);
    assert_int_equal(shed_count, 1);
    assert_int_equal(last.reason, MALLOW_SHED_SOFT_LIMIT);
    assert_int_equal(last.wanted_bytes, before + 5 * MIB - 16 * MIB);
    assert_int_equal(last.held_bytes, before + 5 * MIB);
    process_attend(&process); // nothing is due any more
    assert_int_equal(shed_count, 1);
}

CASE(a_request_larger_than_all_that_is_held_does_not_cost_the_program_its_caches) {
    assert_int_equal(process_shed_add(&process.shed, shed, NULL), 0);
    const size_t held = process.os.charge.held_bytes;
    assert_false(process_shed_for(&process, held + 1));
    assert_int_equal(shed_count, 0);
    assert_true(process_shed_for(&process, held));
    assert_int_equal(shed_count, 1);
    assert_int_equal(last.reason, MALLOW_SHED_REFUSED);
}

#define LIMIT_CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    const struct CMUnitTest cases[] = {
        LIMIT_CASE(no_options_are_no_limits_and_nothing_is_said),
        LIMIT_CASE(sizes_are_taken_as_they_are),
        LIMIT_CASE(shares_are_of_the_cgroups_limit_or_else_of_the_machines_memory),
        LIMIT_CASE(shares_outlive_the_files_that_they_were_read_from),
        LIMIT_CASE(what_has_no_effect_is_named_with_its_value),
        LIMIT_CASE(shares_of_the_machine_where_a_group_is_out_of_sight_are_said_to_be),
        LIMIT_CASE(no_file_is_read_unless_an_option_asks_for_it),
        LIMIT_CASE(pressure_above_the_percentage_presses_until_it_is_half_as_high),
        LIMIT_CASE(pressure_is_over_where_it_cannot_be_read_any_more),
        LIMIT_CASE(pressure_gives_back_what_is_kept),
        LIMIT_CASE(the_soft_limits_round_says_by_how_much_it_is_exceeded),
        LIMIT_CASE(a_request_larger_than_all_that_is_held_does_not_cost_the_program_its_caches),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
