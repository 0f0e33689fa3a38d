// SPDX-License-Identifier: MIT
// Bare threads: what they run on, and what they leave alone.
#include "os/os_bare.h"

#include <errno.h>
#include <signal.h>
#include <sys/single_threaded.h>
#include <unistd.h>

#include "../unit.h"

static struct os_bare bare;
static _Thread_local unsigned mine;
static atomic_uint finished;

struct look {
    pid_t thread;
    uint32_t number;
    bool has_stack;
    bool is_single;
    unsigned mine;
    unsigned signals; // that are not blocked
};

static void look_around(void *argument) {
    struct look *const look = argument;
    const uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    sigset_t blocked;
    look->thread = gettid();
    look->number = os_bare_number(&bare);
    look->has_stack = here - (uintptr_t)bare.memory < sizeof bare.memory;
    look->is_single = __libc_single_threaded != 0;
    look->mine = mine;
    mine = 7;
    errno = 4711;
    (void)sigprocmask(SIG_BLOCK, NULL, &blocked);
    for (int signal = 1; signal < 32; signal++) {
        look->signals += signal != SIGKILL && signal != SIGSTOP && sigismember(&blocked, signal) == 0;
    }
    atomic_store(&finished, 1);
}

CASE(it_has_what_it_needs_and_the_caller_keeps_its_own) {
    struct look look = {0};
    mine = 5;
    errno = 0;
    const char single = __libc_single_threaded;
    assert_true(os_bare_start(&bare, look_around, &look, &mine));
    os_bare_await(&bare);
    assert_int_equal(atomic_load(&finished), 1);
    assert_int_equal(look.thread, look.number);
    assert_true(look.thread != getpid());
    assert_int_equal(look.signals, 0);
    assert_int_equal(mine, 5);
    assert_int_equal(errno, 0);
    assert_int_equal(look.mine, 0);
    if (look.has_stack) { // not in a build for a sanitizer
        assert_true(look.is_single == (single != 0));
        assert_int_equal(__libc_single_threaded, single);
    }
}

CASE(one_place_serves_one_after_another) {
    for (unsigned round = 0; round < 200; round++) {
        struct look look = {0};
        assert_true(os_bare_start(&bare, look_around, &look, &mine));
        os_bare_await(&bare);
        assert_int_equal(os_bare_number(&bare), 0);
        assert_true(look.thread != 0);
    }
}

static void wait_until(void *argument) {
    _Atomic(bool) *const over = argument;
    while (!atomic_load(over)) {
        (void)usleep(1000);
    }
}

CASE(a_place_in_use_is_refused) {
    _Atomic(bool) over = false;
    struct look look = {0};
    assert_true(os_bare_start(&bare, wait_until, &over, &mine));
    assert_false(os_bare_start(&bare, look_around, &look, &mine));
    atomic_store(&over, true);
    os_bare_await(&bare);
    assert_int_equal(look.thread, 0);
}

// A thread that has yet to run for the first time is one that a signal may be for.
static atomic_uint foreign;

static void take(int signal) {
    atomic_fetch_add(&foreign, signal != 0 && gettid() != getpid());
}

CASE(no_signal_is_handled_on_it) {
    const struct sigaction action = {.sa_handler = take};
    sigset_t one;
    struct look look = {0};
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    (void)sigemptyset(&one);
    (void)sigaddset(&one, SIGUSR1);
    for (unsigned round = 0; round < 500; round++) {
        assert_true(os_bare_start(&bare, look_around, &look, &mine));
        (void)sigprocmask(SIG_BLOCK, &one, NULL);
        assert_int_equal(kill(getpid(), SIGUSR1), 0);
        os_bare_await(&bare);
        (void)sigprocmask(SIG_UNBLOCK, &one, NULL);
    }
    assert_int_equal(atomic_load(&foreign), 0);
    (void)signal(SIGUSR1, SIG_DFL);
}

// Memory that is found corrupted by it stops the program as by any other thread.
static void stop_all(void *argument) {
    (void)argument;
    abort();
}

CASE(it_can_stop_the_program) {
    const pid_t child = fork();
    if (child == 0) {
        (void)os_bare_start(&bare, stop_all, NULL, &mine);
        for (;;) {
            pause();
        }
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_has_what_it_needs_and_the_caller_keeps_its_own),
        cmocka_unit_test(one_place_serves_one_after_another),
        cmocka_unit_test(a_place_in_use_is_refused),
        cmocka_unit_test(no_signal_is_handled_on_it),
        cmocka_unit_test(it_can_stop_the_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
