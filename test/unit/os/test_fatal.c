// SPDX-License-Identifier: MIT
// Fatal: one line that says what, where and what to do; then abort().
#include "os/fatal.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>

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

static void *misuse_here(void *detail) {
    misuse(detail);
    return NULL;
}

// A thread that has no stderr to write to, where a filter kills who asks for another's.
static void misuse_in_a_thread_that_is_held_to_a_list(void) {
    enum { PIDFD_OPEN = 434 };
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PIDFD_OPEN, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog list = {sizeof rules / sizeof rules[0], rules};
    pthread_t thread;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &list) != 0) {
        _exit(77); // an emulator has no filters
    }
    (void)close(2);
    (void)pthread_create(&thread, NULL, misuse_here, (void *)(uintptr_t) "it is no block");
    (void)pthread_join(thread, NULL);
    _exit(1);
}

CASE(a_thread_of_the_programs_makes_no_call_but_write) {
    const pid_t child = fork();
    if (child == 0) {
        misuse_in_a_thread_that_is_held_to_a_list();
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        skip();
    }
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(the_line_names_the_misuse_the_address_and_the_detail),
        cmocka_unit_test(a_detail_that_is_too_long_is_cut_and_the_program_still_stops),
        cmocka_unit_test(a_thread_of_the_programs_makes_no_call_but_write),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
