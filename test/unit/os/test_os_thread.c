// SPDX-License-Identifier: MIT
// Threads as the kernel shows them: which of them are asleep in the middle of nothing.
#include "os/os_thread.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#include "../unit.h"

// ---- A thread that does as it is told -----------------------------------------------------------

static sem_t go_on;
static atomic_uint number;
static atomic_uintptr_t top;
static atomic_bool spin;

static void rest(unsigned milliseconds) {
    const struct timespec time = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};
    nanosleep(&time, NULL);
}

static uintptr_t own_top(void) {
    return (uintptr_t)__builtin_thread_pointer();
}

static void tell_who(void) {
    atomic_store(&top, own_top());
    atomic_store(&number, os_thread_number());
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

static void handler_that_waits_with_its_signal_unblocked(int signal_number) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal_number);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    wait_here();
}

static void handler_that_takes_itself_away(int signal_number) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = SIG_DFL;
    sigaction(signal_number, &action, NULL);
    wait_here();
}

static void handler_that_does_nothing(int signal_number) {
    (void)signal_number;
}

static void *sleeper(void *argument) {
    (void)argument;
    tell_who();
    wait_here();
    return NULL;
}

static void *spinner(void *argument) {
    (void)argument;
    tell_who();
    while (atomic_load(&spin)) {
    }
    return NULL;
}

enum { SIGNAL_STACK_BYTES = 64 << 10, DEEP_BYTES = 100 << 10, DEEPER_BYTES = 1100 << 10 };

static void *sleep_with_signal_stack(void *stack) {
    const stack_t other = {.ss_sp = stack, .ss_size = SIGNAL_STACK_BYTES};
    stack_t before;
    assert_int_equal(sigaltstack(&other, &before), 0);
    (void)sleeper(NULL);
    assert_int_equal(sigaltstack(&before, NULL), 0);
    return NULL;
}

static void *sleeper_with_signal_stack_of_its_own(void *argument) {
    alignas(16) unsigned char stack[SIGNAL_STACK_BYTES];
    (void)argument;
    memset(stack, 1, sizeof stack); // where a frame of another thread's may have been left
    return sleep_with_signal_stack(stack);
}

// With nothing in it that looks like a frame.
static void *deep_sleeper(void *argument) {
    const size_t bytes = *(const size_t *)argument;
    unsigned char *const frame = __builtin_alloca(bytes);
    memset(frame, 1, bytes);
    __asm__ volatile("" : : "r"(frame) : "memory"); // it is written
    return sleeper(NULL);
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
    pthread_attr_t large;
    pthread_attr_init(&large);
    pthread_attr_setstacksize(&large, 4 << 20);
    atomic_store(&number, 0);
    sem_init(&go_on, 0, 0);
    assert_int_equal(pthread_create(&thread, &large, work, argument), 0);
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
        if (os_thread_is_asleep(atomic_load(&number), atomic_load(&top))) {
            return true;
        }
        rest(5);
    }
    return false;
}

static bool stays_awake(void) {
    for (unsigned i = 0; i < 40; i++) {
        if (os_thread_is_asleep(atomic_load(&number), atomic_load(&top))) {
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
    assert_false(os_thread_is_asleep(atomic_load(&number), atomic_load(&top)));
    assert_false(os_thread_is_asleep(0, atomic_load(&top)));
    assert_false(os_thread_is_asleep(os_thread_number(), own_top())); // who asks is awake
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

// Its signal is neither blocked nor has it a handler then, or not both.
static void check_unseen_handler(void *(*work)(void *), void *argument, void (*handler)(int),
                                 int flags) {
    handle(SIGUSR1, handler, flags);
    const pthread_t thread = start(work, argument);
    assert_true(falls_asleep());
    pthread_kill(thread, SIGUSR1);
    rest(20);
    const bool awake = stays_awake();
    finish(thread);
    handle(SIGUSR1, SIG_DFL, 0);
    assert_true(awake);
}

CASE(a_thread_that_waits_in_a_handler_for_one_signal_only_is_not) {
    check_unseen_handler(sleeper, NULL, handler_that_waits, (int)SA_RESETHAND);
    check_unseen_handler(sleeper, NULL, handler_that_takes_itself_away, SA_SIGINFO);
}

CASE(a_thread_that_waits_in_a_handler_that_unblocks_its_signal_is_not) {
    check_unseen_handler(sleeper, NULL, handler_that_waits_with_its_signal_unblocked, 0);
}

CASE(nor_on_a_stack_for_signals_wherever_that_is) {
    static alignas(16) unsigned char elsewhere[SIGNAL_STACK_BYTES];
    const int flags = (int)SA_RESETHAND | SA_ONSTACK;
    check_unseen_handler(sleep_with_signal_stack, elsewhere, handler_that_waits, flags);
    check_unseen_handler(sleeper_with_signal_stack_of_its_own, NULL, handler_that_waits, flags);
}

CASE(a_thread_that_sleeps_deep_is_asleep_but_not_beyond_where_is_looked) {
    size_t bytes = DEEP_BYTES;
    pthread_t thread = start(deep_sleeper, &bytes);
    assert_true(falls_asleep());
    assert_false(os_thread_is_asleep(atomic_load(&number), 0));
    assert_false(os_thread_is_asleep(atomic_load(&number), (uintptr_t)&bytes));
    finish(thread);
    bytes = DEEPER_BYTES;
    thread = start(deep_sleeper, &bytes);
    const bool awake = stays_awake();
    finish(thread);
    assert_true(awake);
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

CASE(a_stack_pointer_is_the_word_behind_a_calls_arguments) {
    assert_int_equal(os_thread_stack_of("202 0x5 0x0 0x1 0x2 0x3 0x4 0x7ffd8ac0 0x55aa\n"), 0x7ffd8ac0);
    assert_int_equal(os_thread_stack_of("202 0x5 0x0 0x1 0x2 0x3 0x4 0x7ffd8a"), 0); // cut off
    assert_int_equal(os_thread_stack_of("202 0x5 0x0 0x1 0x2 0x3 0x4 "), 0);
    assert_int_equal(os_thread_stack_of("202 0x5"), 0);
    assert_int_equal(os_thread_stack_of("-1 0x7ffd8ac0 0x55aa\n"), 0);
    assert_int_equal(os_thread_stack_of("running\n"), 0);
    assert_int_equal(os_thread_stack_of(""), 0);
}

CASE(a_frame_is_told_by_its_mark) {
    alignas(16) char memory[256] = {0};
#if defined(__x86_64__)
    const uint32_t mark[2] = {0x46505853, 836}; // and a size, which depends on the processor
#else
    const uint32_t mark[2] = {0x46508001, 528};
#endif
    assert_false(os_thread_has_mark(memory, sizeof memory));
    for (size_t at = 0; at < sizeof memory; at += 16) {
        memset(memory, 0, sizeof memory);
        memcpy(memory + at, mark, sizeof mark);
        assert_true(os_thread_has_mark(memory, sizeof memory));
        assert_true(os_thread_has_mark(memory, at + sizeof mark));
        assert_false(os_thread_has_mark(memory, at));
    }
    memset(memory, 0, sizeof memory);
    memcpy(memory + 8, mark, sizeof mark);
    assert_false(os_thread_has_mark(memory, sizeof memory));
    assert_false(os_thread_has_mark(memory, 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_threads_number_is_the_kernels),
        cmocka_unit_test(a_thread_is_the_only_one_until_another_is_created),
        cmocka_unit_test(a_thread_that_waits_is_asleep_and_one_that_has_ended_is_not),
        cmocka_unit_test(a_thread_that_runs_is_not),
        cmocka_unit_test(a_thread_that_waits_in_a_signal_handler_is_not),
        cmocka_unit_test(a_thread_that_waits_in_a_signal_handler_with_its_signal_let_in_is_not),
        cmocka_unit_test(a_thread_that_waits_in_a_handler_for_one_signal_only_is_not),
        cmocka_unit_test(a_thread_that_waits_in_a_handler_that_unblocks_its_signal_is_not),
        cmocka_unit_test(nor_on_a_stack_for_signals_wherever_that_is),
        cmocka_unit_test(a_thread_that_sleeps_deep_is_asleep_but_not_beyond_where_is_looked),
        cmocka_unit_test(where_a_handler_may_run_unseen_no_thread_is),
        cmocka_unit_test(a_thread_is_not_taken_for_the_one_of_its_number_in_another_namespace),
        cmocka_unit_test(texts_are_taken_by_the_word),
        cmocka_unit_test(a_stack_pointer_is_the_word_behind_a_calls_arguments),
        cmocka_unit_test(a_frame_is_told_by_its_mark),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
