// SPDX-License-Identifier: MIT
// CHECK for tests in C++: a condition that does not hold is named, and ends the program with 1.
#ifndef MALLOW_TEST_API_CHECK_H
#define MALLOW_TEST_API_CHECK_H

#include <cstdio>
#include <cstdlib>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #condition);          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#endif
