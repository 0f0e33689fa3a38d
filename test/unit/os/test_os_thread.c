// SPDX-License-Identifier: MIT
// Threads as the kernel shows them: which of them are asleep in the middle of nothing.
#include "os/os_thread.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#include "../unit.h"

// ---- A thread that does as it is told -----------------------------------------------------------

static sem_t go_on;
static atomic_uint number;
static atomic_bool spin;

static void rest(unsigned milliseconds) {
    const struct timespec time = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};
    nanosleep(&time, NULL);
}

static void wait_here(void) {
    while (sem_wait(&go_on) != 0) {
    }
}

static void handler_that_waits(int signal_number) {
    (void)signal_number;
    wait_here();
}

static void handler_that_waits_with_all_let_in(int signal_number) {
    (void)signal_number;
    sigset_t none;
    const struct timespec time = {0, 50000000};
    sigemptyset(&none);
    while (atomic_load(&spin)) {
        (void)ppoll(NULL, 0, &time, &none);
    }
}

static void handler_that_does_nothing(int signal_number) {
    (void)signal_number;
}

static void *sleeper(void *argument) {
    (void)argument;
    atomic_store(&number, os_thread_number());
    wait_here();
    return NULL;
}

static void *spinner(void *argument) {
    (void)argument;
    atomic_store(&number, os_thread_number());
    while (atomic_load(&spin)) {
    }
    return NULL;
}

static void *blocker(void *argument) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, *(const int *)argument);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    return sleeper(NULL);
}

static pthread_t start(void *(*work)(void *), void *argument) {
    pthread_t thread;
    atomic_store(&number, 0);
    sem_init(&go_on, 0, 0);
    assert_int_equal(pthread_create(&thread, NULL, work, argument), 0);
    while (atomic_load(&number) == 0) {
        rest(1);
    }
    return thread;
}

static void finish(pthread_t thread) {
    atomic_store(&spin, false);
    sem_post(&go_on);
    sem_post(&go_on);
    pthread_join(thread, NULL);
}

static void handle(int signal_number, void (*handler)(int), int flags) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = flags;
    assert_int_equal(sigaction(signal_number, &action, NULL), 0);
}

// A thread needs a moment to fall asleep.
static bool falls_asleep(void) {
    for (unsigned i = 0; i < 400; i++) {
        if (os_thread_is_asleep(atomic_load(&number))) {
            return true;
        }
        rest(5);
    }
    return false;
}

static bool stays_awake(void) {
    for (unsigned i = 0; i < 40; i++) {
        if (os_thread_is_asleep(atomic_load(&number))) {
            return false;
        }
        rest(5);
    }
    return true;
}

// ---- Cases --------------------------------------------------------------------------------------

CASE(a_threads_number_is_the_kernels) {
    assert_int_equal(os_thread_number(), (uint32_t)syscall(SYS_gettid));
    const pthread_t thread = start(sleeper, NULL);
    assert_int_not_equal(atomic_load(&number), os_thread_number());
    finish(thread);
    const pid_t child = fork();
    if (child == 0) {
        _exit(os_thread_number() == (uint32_t)syscall(SYS_gettid) ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

CASE(a_thread_is_the_only_one_until_another_is_created) {
#ifdef __SANITIZE_THREAD__
    skip(); // it has one of its own
#endif
    assert_true(os_thread_is_only());
    const pthread_t thread = start(sleeper, NULL);
    assert_false(os_thread_is_only());
    finish(thread);
    os_thread_await_end(atomic_load(&number));
    assert_true(os_thread_is_only());
}

CASE(a_thread_that_waits_is_asleep_and_one_that_has_ended_is_not) {
    const pthread_t thread = start(sleeper, NULL);
    assert_true(falls_asleep());
    finish(thread);
    assert_false(os_thread_is_asleep(atomic_load(&number)));
    assert_false(os_thread_is_asleep(0));
    assert_false(os_thread_is_asleep(os_thread_number())); // who asks is awake
}

CASE(a_thread_that_runs_is_not) {
    atomic_store(&spin, true);
    const pthread_t thread = start(spinner, NULL);
    assert_true(stays_awake());
    finish(thread);
}

CASE(a_thread_that_waits_in_a_signal_handler_is_not) {
    handle(SIGUSR1, handler_that_waits, 0);
    const pthread_t thread = start(sleeper, NULL);
    assert_true(falls_asleep()); // a handler that does not run is no obstacle
    pthread_kill(thread, SIGUSR1);
    rest(20);
    assert_true(stays_awake());
    finish(thread);
    handle(SIGUSR1, SIG_DFL, 0);
}

CASE(a_thread_that_waits_in_a_signal_handler_with_its_signal_let_in_is_not) {
    handle(SIGUSR1, handler_that_waits_with_all_let_in, 0);
    const pthread_t thread = start(sleeper, NULL);
    assert_true(falls_asleep());
    atomic_store(&spin, true);
    pthread_kill(thread, SIGUSR1);
    rest(20);
    assert_true(stays_awake());
    atomic_store(&spin, false);
    assert_true(falls_asleep()); // back again
    finish(thread);
    handle(SIGUSR1, SIG_DFL, 0);
}

CASE(where_a_handler_may_run_unseen_no_thread_is) {
    handle(SIGUSR2, handler_that_does_nothing, SA_NODEFER);
    pthread_t thread = start(sleeper, NULL);
    assert_true(stays_awake());
    finish(thread);
    handle(SIGUSR2, handler_that_does_nothing, 0);
    int signal_number = SIGUSR2;
    thread = start(blocker, &signal_number);
    assert_true(stays_awake()); // blocked all the time, or because its handler runs
    finish(thread);
    signal_number = SIGUSR1; // which has no handler
    thread = start(blocker, &signal_number);
    assert_true(falls_asleep());
    finish(thread);
    handle(SIGUSR2, SIG_DFL, 0);
}

// ---- In another namespace than /proc is of ------------------------------------------------------

enum { NO_NAMESPACE = 77 };

// Runs in a child that is the first of its namespace of processes; how it ended.
static int run_in_namespace(int (*work)(void)) {
    if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0 &&
        unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS) != 0) {
        return NO_NAMESPACE;
    }
    const pid_t child = fork();
    if (child == 0) {
        _exit(work());
    }
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

// Threads' numbers are 1, 2 and 3 here, and to /proc 2, 3 and 4: what it calls 3 is the sleeper.
static int ask_about_another(void) {
    const pthread_t first = start(sleeper, NULL);
    const uint32_t sleeping = atomic_load(&number);
    rest(20);
    atomic_store(&spin, true);
    atomic_store(&number, 0);
    pthread_t second;
    assert_int_equal(pthread_create(&second, NULL, spinner, NULL), 0);
    while (atomic_load(&number) == 0) {
        rest(1);
    }
    const bool fits = sleeping == 2 && atomic_load(&number) == 3;
    const bool awake = stays_awake() && os_thread_rights(3) == 0;
    finish(second);
    pthread_join(first, NULL);
    return !fits ? NO_NAMESPACE : awake ? 0 : 1;
}

static int see_it_from_within(void) {
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("proc", "/proc", "proc", 0, NULL) != 0) {
        return NO_NAMESPACE;
    }
    return run_in_namespace(ask_about_another);
}

CASE(a_thread_is_not_taken_for_the_one_of_its_number_in_another_namespace) {
    const pid_t child = fork();
    if (child == 0) {
        _exit(run_in_namespace(see_it_from_within));
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_NAMESPACE) {
        skip();
    }
    assert_int_equal(status, 0);
}

// ---- Texts --------------------------------------------------------------------------------------

#define STATUS(state, blocked, caught)                                                             \
    "Name:\tState:\tS\nState:\t" state "\nPid:\t7\nSigBlk:\t" blocked "\nSigIgn:\t00000000\nSigCgt:\t" \
    caught "\nSeccomp:\t0\n"

#define CALL_TEXT(number, rest) #number " " rest
#define CALL(number, rest) CALL_TEXT(number, rest)

CASE(texts_are_taken_by_the_word) {
    uint64_t caught = 0;
    const char *const asleep = STATUS("S (sleeping)", "0000000000000001", "8000000180000442");
    assert_true(os_thread_sleeps(asleep, "202 0x5", &caught));
    assert_int_equal(caught, UINT64_C(0x8000000180000442));
    assert_false(os_thread_sleeps(asleep, "running", &caught));
    assert_false(os_thread_sleeps(asleep, "-1 0x7ffd 0x55", &caught)); // waits for a page, say
    assert_false(os_thread_sleeps(asleep, "", &caught));
    const char *const poll = CALL(SYS_ppoll, "0x1 0x2 0x3 0x0 0x8 0x0 0x7ffd 0x55");
    assert_true(os_thread_sleeps(asleep, poll, &caught));
    const char *const masked = CALL(SYS_ppoll, "0x1 0x2 0x0 0x7ffd0 0x8 0x0 0x7ffd 0x55");
    assert_false(os_thread_sleeps(asleep, masked, &caught));
    assert_false(os_thread_sleeps(asleep, CALL(SYS_ppoll, "0x1 0x2"), &caught)); // cut off
    assert_false(os_thread_sleeps(asleep, CALL(SYS_rt_sigsuspend, "0x7f 0x8"), &caught));
    assert_false(os_thread_sleeps(STATUS("R (running)", "0", "0"), "202 0x5", &caught));
    assert_false(os_thread_sleeps(STATUS("D (disk sleep)", "0", "0"), "202 0x5", &caught));
    assert_false(os_thread_sleeps(STATUS("T (stopped)", "0", "0"), "202 0x5", &caught));
    assert_false(os_thread_sleeps(STATUS("S (sleeping)", "40", "40"), "202 0x5", &caught));
    assert_false(os_thread_sleeps(STATUS("S (sleeping)", "x", "40"), "202 0x5", &caught));
    assert_false(os_thread_sleeps("State:\tS (sleeping)\nSigBlk:\t0", "202 0x5", &caught)); // cut off
    assert_false(os_thread_sleeps("", "202 0x5", &caught));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_threads_number_is_the_kernels),
        cmocka_unit_test(a_thread_is_the_only_one_until_another_is_created),
        cmocka_unit_test(a_thread_that_waits_is_asleep_and_one_that_has_ended_is_not),
        cmocka_unit_test(a_thread_that_runs_is_not),
        cmocka_unit_test(a_thread_that_waits_in_a_signal_handler_is_not),
        cmocka_unit_test(a_thread_that_waits_in_a_signal_handler_with_its_signal_let_in_is_not),
        cmocka_unit_test(where_a_handler_may_run_unseen_no_thread_is),
        cmocka_unit_test(a_thread_is_not_taken_for_the_one_of_its_number_in_another_namespace),
        cmocka_unit_test(texts_are_taken_by_the_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
