// SPDX-License-Identifier: MIT
// OS, NUMA: the nodes of a made-up machine, and this one's.
#include "os/os_node.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../unit.h"

static struct os os;

static int begin(void **state) {
    (void)state;
    memset(&os, 0, sizeof os);
    os_init(&os);
    return 0;
}

CASE(the_count_is_the_highest_number_and_one) {
    assert_int_equal(os_node_parse("0\n"), 1);
    assert_int_equal(os_node_parse("0-1"), 2);
    assert_int_equal(os_node_parse("0,2-3,7"), 8);
    assert_int_equal(os_node_parse(""), 1);
    assert_int_equal(os_node_parse("nonsense"), 1);
    assert_int_equal(os_node_parse("0-99999999999999999999999"), OS_NODES_MAX);
}

CASE(the_count_is_read_from_a_system_s_folder) {
    char root[] = "/tmp/mallow-nodes-XXXXXX";
    char path[200];
    static const char *const folders[] = {"/devices", "/devices/system", "/devices/system/node"};
    assert_non_null(mkdtemp(root));
    assert_int_equal(os_node_count(root), 1); // there is no such file
    for (unsigned i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s%s", root, folders[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    snprintf(path, sizeof path, "%s/devices/system/node/online", root);
    const int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, "0-3\n", 4), 4);
    close(fd);
    assert_int_equal(os_node_count(root), 4);
    unlink(path);
    for (unsigned i = 3; i-- > 0;) {
        snprintf(path, sizeof path, "%s%s", root, folders[i]);
        rmdir(path);
    }
    rmdir(root);
}

CASE(a_thread_is_on_one_of_the_machine_s_nodes_or_where_the_test_says) {
    const unsigned count = os_node_count("/sys");
    assert_true(count >= 1);
    assert_true(os_node_here(&os) < count);
    os.node_pretended = 3 + 1;
    assert_int_equal(os_node_here(&os), 3);
    os.node_pretended = 100000;
    assert_int_equal(os_node_here(&os), OS_NODES_MAX - 1);
}

CASE(asking_makes_no_system_call) {
    // getcpu by the vDSO takes some tens of instructions; errno shows whether libc had to give up.
    errno = 4711;
    for (unsigned i = 0; i < 1000; i++) {
        (void)os_node_here(&os);
    }
    assert_int_equal(errno, 4711);
}

CASE(preferring_this_node_is_taken_and_one_that_is_not_there_costs_nothing) {
    const uintptr_t address = os_map(&os, 1 << 20, 1);
    // Refused where the kernel knows no nodes at all, or a sandbox forbids it.
    (void)os_node_prefer(&os, address, 1 << 20, 0);
    assert_false(os_node_prefer(&os, address, 1 << 20, OS_NODES_MAX));
    (void)os_node_prefer(&os, address, 1 << 20, OS_NODES_MAX - 1);
    memset((void *)address, 1, 1 << 20);
    assert_true(unit_is_all((void *)address, 1, 1 << 20));
    assert_true(os_unmap(&os, address, 1 << 20));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_count_is_the_highest_number_and_one, begin),
        cmocka_unit_test_setup(the_count_is_read_from_a_system_s_folder, begin),
        cmocka_unit_test_setup(a_thread_is_on_one_of_the_machine_s_nodes_or_where_the_test_says,
                               begin),
        cmocka_unit_test_setup(asking_makes_no_system_call, begin),
        cmocka_unit_test_setup(
            preferring_this_node_is_taken_and_one_that_is_not_there_costs_nothing, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
