// SPDX-License-Identifier: MIT
// The latency harness's look at the processors.
#include "../support/suite.h"

#include "machine.h"

static void the_kernels_lists_of_processors_are_read(void **state)
{
    (void)state;
    cpu_set_t set;
    CHECK(machine_parse_list("", &set) && CPU_COUNT(&set) == 0, "the empty list");
    CHECK(machine_parse_list("3", &set) && CPU_COUNT(&set) == 1 && CPU_ISSET(3, &set), "one");
    CHECK(machine_parse_list("0-2,5,7-8", &set) && CPU_COUNT(&set) == 6, "ranges");
    CHECK(CPU_ISSET(2, &set) && !CPU_ISSET(3, &set) && CPU_ISSET(8, &set), "ranges");
    static const char *const wrong[] = {"x", "1-", "3-1", "1;2", "-1", "99999", "1,,2"};
    for (size_t i = 0; i < BENCH_COUNT(wrong); i++) {
        CHECK(!machine_parse_list(wrong[i], &set), "'%s'", wrong[i]);
    }
}

static void the_thread_runs_where_the_description_says(void **state)
{
    (void)state;
    struct machine machine;
    machine_prepare(&machine, MACHINE_PIN_AUTO, MACHINE_FIFO_OFF);
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    CHECK(machine.pinned >= 0 && machine.processor_count >= 1 && !machine.fifo, "described");
    CHECK(CPU_COUNT(&set) == 1 && CPU_ISSET((size_t)machine.pinned, &set), "pinned");
    machine_pin_thread(&machine, 0, machine.processor_count + 1);
    sched_getaffinity(0, sizeof set, &set);
    CHECK((size_t)CPU_COUNT(&set) == machine.processor_count, "too many threads to pin: any of them");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_kernels_lists_of_processors_are_read),
        cmocka_unit_test(the_thread_runs_where_the_description_says),
    };
    return suite_run(tests);
}
