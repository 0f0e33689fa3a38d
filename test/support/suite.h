// SPDX-License-Identifier: MIT
// Test support: cmocka with the headers it wants, and the main function that every suite has.
#ifndef TEST_SUPPORT_SUITE_H
#define TEST_SUPPORT_SUITE_H

#include "check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

// A suite is one program. TEST_FILTER in the environment runs the cases whose name matches (with * ?).
#define suite_run(tests)                                                                           \
    (cmocka_set_test_filter(getenv("TEST_FILTER")), cmocka_run_group_tests(tests, NULL, NULL))

#endif
