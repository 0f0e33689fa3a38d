// SPDX-License-Identifier: MIT
// The process: options that are set by two threads at once.
#include "process/process.h"

#include <errno.h>

#include "../unit.h"

// Another thread's call, that comes as soon as this one's has dropped the lock: 0: none.
static uint64_t others_threshold;

void __real_os_lock_drop(struct os_lock *lock);
void __wrap_os_lock_drop(struct os_lock *lock);
void __wrap_os_lock_drop(struct os_lock *lock) {
    struct process *const process = process_if_ready();
    const uint64_t bytes = others_threshold;
    __real_os_lock_drop(lock);
    if (bytes != 0 && process != NULL && lock == &process->start_lock) {
        others_threshold = 0;
        process_set_trim_threshold(process, bytes);
    }
}

// Sets an option while another thread sets the limit of what is kept.
static int set_beside(const char *name, const char *value, uint64_t bytes) {
    others_threshold = bytes;
    const int error = process_set_option(process_ready(), name, value, false);
    assert_int_equal(others_threshold, 0);
    assert_int_equal(process_option(&process_ready()->options, trim_threshold), bytes);
    return error;
}

static bool keeps(void) {
    return atomic_load(&process_ready()->worker.keeps);
}

CASE(the_last_of_two_limits_of_what_is_kept_counts) {
    assert_int_equal(set_beside("trim_threshold", "64M", UINT64_MAX), 0);
    assert_true(keeps());
    assert_int_equal(set_beside("Trim_Threshold", "18446744073709551615", 1 << 20), 0);
    assert_false(keeps());
}

CASE(other_options_and_bad_values_leave_it_as_it_is) {
    static const char *const sets[][2] = {{"huge_cache", "8M"}, {"trim_threshold", "5Q"},
                                          {"mode", "realtime"}, {"no_such_option", "1"}};
    static const int errors[] = {0, EINVAL, EBUSY, ENOENT};
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(set_beside(sets[i][0], sets[i][1], UINT64_MAX), errors[i]);
        assert_true(keeps());
        assert_int_equal(set_beside(sets[i][0], sets[i][1], 1 << 20), errors[i]);
        assert_false(keeps());
    }
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(the_last_of_two_limits_of_what_is_kept_counts),
        cmocka_unit_test(other_options_and_bad_values_leave_it_as_it_is),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
