// SPDX-License-Identifier: MIT
// Cgroup: limits and pressure of versions 1 and 2, in containers and out, from simulated files.
#include "os/cgroup.h"

#include "tree.h"

#define MIB ((uint64_t)1 << 20)

static struct os_cgroup group;

static int begin(void **state) {
    (void)state;
    tree_begin();
    return 0;
}

static int end(void **state) {
    (void)state;
    tree_end();
    return 0;
}

static void system_is(const char *groups, const char *mounts) {
    tree_write("/proc/self/cgroup", groups);
    tree_write("/proc/self/mountinfo", mounts);
}

static uint64_t limit(void) {
    os_cgroup_read(tree_root, &group);
    return group.limit_bytes;
}

// The pressure file, without the root.
static const char *pressure(void) {
    os_cgroup_read(tree_root, &group);
    return group.pressure_path[0] == '\0' ? "" : group.pressure_path + strlen(tree_root);
}

#define V2_MOUNT "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
#define V1_MOUNT "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
#define NOISE                                                                                      \
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"                                      \
    "34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n"                   \
    "90 22 0:50 / /over rw - overlay overlay rw,lowerdir=/a:/b,upperdir=/memory,workdir=/w\n"

CASE(nothing_readable_is_no_limit) {
    assert_int_equal(limit(), UINT64_MAX);
    assert_string_equal(pressure(), "");
    assert_int_equal(os_machine_memory(tree_root), 0);
    system_is("", "");
    assert_int_equal(limit(), UINT64_MAX);
    system_is("0::/a\n", NOISE);
    assert_int_equal(limit(), UINT64_MAX);
}

CASE(version_2_takes_the_least_of_max_and_high_of_the_group_and_those_above) {
    system_is("0::/a/b\n", NOISE V2_MOUNT);
    assert_int_equal(limit(), UINT64_MAX);
    tree_write("/sys/fs/cgroup/a/b/memory.max", "max\n");
    tree_write("/sys/fs/cgroup/a/b/memory.high", "max\n");
    assert_int_equal(limit(), UINT64_MAX);
    tree_write("/sys/fs/cgroup/a/memory.max", "1073741824\n");
    assert_int_equal(limit(), 1024 * MIB);
    tree_write("/sys/fs/cgroup/a/b/memory.max", "536870912\n");
    assert_int_equal(limit(), 512 * MIB);
    tree_write("/sys/fs/cgroup/a/b/memory.high", "268435456\n");
    assert_int_equal(limit(), 256 * MIB);
    tree_write("/sys/fs/cgroup/a/memory.high", "134217728\n");
    assert_int_equal(limit(), 128 * MIB);
    tree_write("/sys/fs/cgroup/memory.max", "67108864\n");
    assert_int_equal(limit(), 64 * MIB);
    tree_write("/sys/fs/memory.max", "1048576\n"); // above the mount: not a cgroup
    tree_write("/sys/fs/cgroup/a/bb/memory.max", "1048576\n"); // a neighbour
    assert_int_equal(limit(), 64 * MIB);
}

CASE(version_1_takes_the_least_limit_of_the_memory_controller) {
    system_is("9:name=systemd:/x\n5:cpu,cpuacct:/y\n4:memory:/a/b\n0::/z\n", NOISE V1_MOUNT);
    tree_write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    tree_write("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(limit(), UINT64_MAX);
    tree_write("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "104857600\n");
    tree_write("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "209715200\n");
    tree_write("/sys/fs/cgroup/memory/y/memory.limit_in_bytes", "1048576\n");
    assert_int_equal(limit(), 100 * MIB);
    system_is("4:hugetlb,memory:/a/b\n", NOISE V1_MOUNT);
    assert_int_equal(limit(), 100 * MIB);
    system_is("4:memory2,xmemory:/a/b\n", NOISE V1_MOUNT);
    assert_int_equal(limit(), UINT64_MAX);
}

CASE(in_a_container_the_mount_shows_the_group_itself) {
    // Version 1, namespace of the host: path and mount root are the host's.
    system_is("4:memory:/docker/c0ffee\n",
              "35 31 0:32 /docker/c0ffee /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
    tree_write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "104857600\n");
    tree_write("/sys/fs/cgroup/memory/docker/c0ffee/memory.limit_in_bytes", "1048576\n");
    assert_int_equal(limit(), 100 * MIB);
    // A group below the container's.
    system_is("4:memory:/docker/c0ffee/job\n",
              "35 31 0:32 /docker/c0ffee /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
    tree_write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "52428800\n");
    assert_int_equal(limit(), 50 * MIB);
    // Version 2 with a namespace: the root of both is the container's.
    system_is("0::/\n", V2_MOUNT);
    tree_write("/sys/fs/cgroup/memory.max", "31457280\n");
    assert_int_equal(limit(), 30 * MIB);
    // A group outside of the namespace that is seen: nothing known but the mount itself.
    assert_false(group.outside);
    system_is("0::/../other\n", V2_MOUNT);
    assert_int_equal(limit(), 30 * MIB);
    assert_true(group.outside);
    // The same where a namespace was made, and the mount is that of the one before.
    system_is("0::/\n", "35 31 0:32 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    (void)limit();
    assert_true(group.outside);
}

CASE(both_versions_at_once_count_both) {
    system_is("4:memory:/m\n0::/u\n", V1_MOUNT "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 "
                                                "cgroup2 rw\n");
    tree_write("/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "104857600\n");
    assert_int_equal(limit(), 100 * MIB);
    tree_write("/sys/fs/cgroup/unified/u/memory.max", "52428800\n");
    assert_int_equal(limit(), 50 * MIB);
}

// What may be taken before the kernel would kill for it.
static uint64_t free_bytes(void) {
    os_cgroup_read(tree_root, &group);
    return group.free_bytes;
}

CASE(free_is_what_is_neither_used_nor_files_of_the_tightest_group) {
    system_is("0::/a/b\n", V2_MOUNT);
    assert_int_equal(free_bytes(), UINT64_MAX);
    tree_write("/sys/fs/cgroup/a/b/memory.current", "99999999\n"); // without a limit
    assert_int_equal(free_bytes(), UINT64_MAX);
    tree_write("/sys/fs/cgroup/a/memory.max", "104857600\n");
    assert_int_equal(free_bytes(), 100 * MIB); // unreadable: nothing is used
    tree_write("/sys/fs/cgroup/a/memory.current", "83886080\n");
    assert_int_equal(free_bytes(), 20 * MIB);
    tree_write("/sys/fs/cgroup/a/memory.stat", "anon 1\nfile 9\nfile_mapped 2\ninactive_file 31457280\n"
                                               "active_file 10485760\nworkingset_refault_file 7\n");
    assert_int_equal(free_bytes(), 60 * MIB);
    tree_write("/sys/fs/cgroup/a/b/memory.high", "90000000\n");
    assert_int_equal(free_bytes(), 0); // more used than that
    tree_write("/sys/fs/cgroup/a/b/memory.stat", "inactive_file 999999999999\n"); // more than used
    assert_int_equal(free_bytes(), 60 * MIB);
}

CASE(free_in_version_1_counts_the_groups_below_too) {
    system_is("4:memory:/a\n", V1_MOUNT);
    tree_write("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "104857600\n");
    tree_write("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "83886080\n");
    tree_write("/sys/fs/cgroup/memory/a/memory.stat", "inactive_file 1\nactive_file 1\n"
                                                      "total_inactive_file 31457280\n"
                                                      "total_active_file 10485760\n");
    assert_int_equal(free_bytes(), 60 * MIB);
}

CASE(a_mount_point_with_blanks_is_understood) {
    system_is("0::/a\n", "29 23 0:26 / /my\\040cgroups\\134x rw - cgroup2 cgroup2 rw\n");
    tree_write("/my cgroups\\x/a/memory.max", "10485760\n");
    assert_int_equal(limit(), 10 * MIB);
}

CASE(lines_of_any_form_do_no_harm) {
    struct unit_chance chance = unit_chance_begin();
    static const char *const pieces[] = {"0::", "/", ":", " ", " - ", "cgroup2", "cgroup", "memory",
                                         "\\04", "\\377", "\n", "..", "rw,memory", "4:memory:/a"};
    for (unsigned round = 0; round < 300; round++) {
        char texts[2][1200] = {"", ""};
        for (unsigned which = 0; which < 2; which++) {
            for (unsigned i = 0; i < 80; i++) {
                strcat(texts[which], pieces[unit_below(&chance, sizeof pieces / sizeof pieces[0])]);
            }
        }
        system_is(texts[0], texts[1]);
        (void)limit();
    }
    static char path[3000];
    memset(path, 'a', sizeof path - 1);
    char groups[3100];
    snprintf(groups, sizeof groups, "0::/%s\n", path);
    system_is(groups, V2_MOUNT);
    assert_int_equal(limit(), UINT64_MAX);
}

#define PSI_TEXT                                                                                   \
    "some avg10=1.50 avg60=0.40 avg300=0.10 total=123456\nfull avg10=0.00 avg60=0.00 avg300=0.00 " \
    "total=99\n"

CASE(pressure_is_the_groups_or_else_the_machines) {
    char path[700];
    uint64_t stalled_us = 0;
    system_is("0::/a\n", V2_MOUNT);
    assert_string_equal(pressure(), "");
    tree_write("/proc/pressure/memory", PSI_TEXT);
    assert_string_equal(pressure(), "/proc/pressure/memory");
    tree_write("/sys/fs/cgroup/a/memory.pressure", PSI_TEXT);
    assert_string_equal(pressure(), "/sys/fs/cgroup/a/memory.pressure");
    assert_true(os_pressure_read(group.pressure_path, &stalled_us));
    assert_int_equal(stalled_us, 123456);
    static const char *const bad[] = {"", "full avg10=0.00 total=1\n", "some avg10=0.00\n",
                                      "some total=\n", "some total=x\n"};
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tree_write("/proc/pressure/bad", bad[i]);
        snprintf(path, sizeof path, "%s/proc/pressure/bad", tree_root);
        assert_false(os_pressure_read(path, &stalled_us));
    }
}

CASE(the_machines_memory_is_read_in_bytes) {
    tree_write("/proc/meminfo", "MemTotal:       24684712 kB\nMemFree:  1 kB\n");
    assert_int_equal(os_machine_memory(tree_root), UINT64_C(24684712) << 10);
    tree_write("/proc/meminfo", "MemFree: 1 kB\n");
    assert_int_equal(os_machine_memory(tree_root), 0);
    tree_write("/proc/meminfo", "MemTotal: many\n");
    assert_int_equal(os_machine_memory(tree_root), 0);
}

CASE(what_the_machine_has_to_spare_is_read_in_bytes) {
    assert_int_equal(os_machine_free(tree_root), UINT64_MAX);
    tree_write("/proc/meminfo", "MemTotal: 9 kB\nMemFree: 8 kB\nMemAvailable:   24684712 kB\nBuffers: 1 kB\n");
    assert_int_equal(os_machine_free(tree_root), UINT64_C(24684712) << 10);
    tree_write("/proc/meminfo", "MemTotal: 9 kB\nMemFree: 8 kB\n");
    assert_int_equal(os_machine_free(tree_root), UINT64_MAX);
}

#define GROUP_CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    const struct CMUnitTest cases[] = {
        GROUP_CASE(nothing_readable_is_no_limit),
        GROUP_CASE(version_2_takes_the_least_of_max_and_high_of_the_group_and_those_above),
        GROUP_CASE(version_1_takes_the_least_limit_of_the_memory_controller),
        GROUP_CASE(in_a_container_the_mount_shows_the_group_itself),
        GROUP_CASE(both_versions_at_once_count_both),
        GROUP_CASE(free_is_what_is_neither_used_nor_files_of_the_tightest_group),
        GROUP_CASE(free_in_version_1_counts_the_groups_below_too),
        GROUP_CASE(a_mount_point_with_blanks_is_understood),
        GROUP_CASE(lines_of_any_form_do_no_harm),
        GROUP_CASE(pressure_is_the_groups_or_else_the_machines),
        GROUP_CASE(the_machines_memory_is_read_in_bytes),
        GROUP_CASE(what_the_machine_has_to_spare_is_read_in_bytes),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
