// SPDX-License-Identifier: MIT
// Fatal: one line that says what, where and what to do; then abort().
#include "os/fatal.h"

#include "../unit.h"

static void misuse(void *detail) {
    fatal_misuse("invalid free of", UINT64_C(0x7fab00001230), detail);
}

CASE(the_line_names_the_misuse_the_address_and_the_detail) {
    assert_true(unit_dies(misuse, (void *)"it is no block",
                          "mallow: invalid free of 0x7fab00001230: it is no block (run under"));
}

CASE(a_detail_that_is_too_long_is_cut_and_the_program_still_stops) {
    static char detail[2000];
    memset(detail, 'd', sizeof detail - 1);
    assert_true(unit_dies(misuse, detail, "mallow: invalid free of 0x7fab00001230: ddddddd"));
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(the_line_names_the_misuse_the_address_and_the_detail),
        cmocka_unit_test(a_detail_that_is_too_long_is_cut_and_the_program_still_stops),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
