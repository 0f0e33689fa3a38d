// SPDX-License-Identifier: MIT
// Shedding: the table, one round at a time, functions that call back, fork.
#include "process/process_shed.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>

#include "../unit.h"

static struct process_shed shed;
static unsigned calls[20];
static struct mw_shed_request last;

static int begin(void **state) {
    (void)state;
    memset(&shed, 0, sizeof shed);
    memset(calls, 0, sizeof calls);
    return 0;
}

static void count(const struct mw_shed_request *request, void *argument) {
    last = *request;
    (*(unsigned *)argument)++;
    errno = 99;
}

static bool run(void) {
    return process_shed_run(&shed, MALLOW_SHED_REFUSED, 123, 456);
}

CASE(without_functions_there_is_no_round) {
    assert_false(run());
    assert_int_equal(shed.round_count, 0);
}

CASE(each_function_is_called_once_a_round_with_what_is_asked_for) {
    assert_int_equal(process_shed_add(&shed, count, &calls[0]), 0);
    assert_int_equal(process_shed_add(&shed, count, &calls[1]), 0);
    errno = 4711;
    assert_true(run());
    assert_int_equal(errno, 4711);
    assert_int_equal(calls[0], 1);
    assert_int_equal(calls[1], 1);
    assert_int_equal(last.size_bytes, sizeof last);
    assert_int_equal(last.reason, MALLOW_SHED_REFUSED);
    assert_int_equal(last.wanted_bytes, 123);
    assert_int_equal(last.held_bytes, 456);
    assert_int_equal(shed.round_count, 1);
    assert_int_equal(process_shed_remove(&shed, count, &calls[0]), 0);
    assert_true(run());
    assert_int_equal(calls[0], 1);
    assert_int_equal(calls[1], 2);
    assert_int_equal(process_shed_remove(&shed, count, &calls[1]), 0);
    assert_false(run());
}

CASE(the_table_tells_why_it_cannot) {
    assert_int_equal(process_shed_add(&shed, NULL, NULL), EINVAL);
    assert_int_equal(process_shed_remove(&shed, NULL, NULL), ENOENT);
    assert_int_equal(process_shed_remove(&shed, count, &calls[0]), ENOENT);
    for (unsigned i = 0; i < PROCESS_SHED_MAX; i++) {
        assert_int_equal(process_shed_add(&shed, count, &calls[i]), 0);
        assert_int_equal(process_shed_add(&shed, count, &calls[i]), EEXIST);
    }
    assert_int_equal(process_shed_add(&shed, count, &calls[PROCESS_SHED_MAX]), ENOSPC);
    assert_int_equal(process_shed_remove(&shed, count, &calls[7]), 0);
    assert_int_equal(process_shed_remove(&shed, count, &calls[7]), ENOENT);
    assert_int_equal(process_shed_add(&shed, count, &calls[PROCESS_SHED_MAX]), 0);
    assert_true(run());
    assert_int_equal(calls[7], 0);
    assert_int_equal(calls[PROCESS_SHED_MAX], 1);
}

static bool inner_result;

static void calls_back(const struct mw_shed_request *request, void *argument) {
    count(request, argument);
    inner_result = run();
    assert_int_equal(process_shed_remove(&shed, calls_back, argument), 0); // itself
    assert_int_equal(process_shed_remove(&shed, calls_back, argument), ENOENT);
    assert_int_equal(process_shed_add(&shed, count, &calls[5]), 0);
}

CASE(a_function_may_take_itself_off_and_starts_no_round_of_its_own) {
    inner_result = true;
    assert_int_equal(process_shed_add(&shed, calls_back, &calls[0]), 0);
    assert_true(run());
    assert_false(inner_result);
    assert_int_equal(calls[0], 1);
    assert_true(run());
    assert_int_equal(calls[0], 1);
    assert_true(calls[5] >= 1);
}

// ---- Two threads --------------------------------------------------------------------------------

static sem_t entered;
static sem_t may_leave;
static _Atomic(bool) has_left;

static void waits(const struct mw_shed_request *request, void *argument) {
    count(request, argument);
    sem_post(&entered);
    while (sem_wait(&may_leave) != 0) {
    }
    usleep(20000);
    atomic_store(&has_left, true);
}

static void *round_of_another_thread(void *unused) {
    (void)unused;
    assert_true(run());
    return NULL;
}

CASE(one_round_at_a_time_and_taking_off_waits_for_the_function_to_return) {
    pthread_t thread;
    sem_init(&entered, 0, 0);
    sem_init(&may_leave, 0, 0);
    atomic_store(&has_left, false);
    assert_int_equal(process_shed_add(&shed, waits, &calls[0]), 0);
    assert_int_equal(process_shed_add(&shed, count, &calls[1]), 0);
    assert_int_equal(pthread_create(&thread, NULL, round_of_another_thread, NULL), 0);
    while (sem_wait(&entered) != 0) {
    }
    assert_false(run());
    assert_int_equal(process_shed_remove(&shed, count, &calls[1]), 0); // not running: at once
    sem_post(&may_leave);
    assert_int_equal(process_shed_remove(&shed, waits, &calls[0]), 0);
    assert_true(atomic_load(&has_left));
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(calls[0], 1);
    assert_int_equal(calls[1], 0);
}

static void *takes_off(void *unused) {
    (void)unused;
    assert_int_equal(process_shed_remove(&shed, waits, &calls[0]), 0);
    assert_true(atomic_load(&has_left));
    return NULL;
}

static bool is_taken_off(void) {
    os_lock_take(&shed.lock);
    const bool is = shed.entries[0].function != waits;
    os_lock_drop(&shed.lock);
    return is;
}

CASE(who_finds_it_taken_off_waits_for_the_function_as_well) {
    pthread_t thread;
    pthread_t first;
    sem_init(&entered, 0, 0);
    sem_init(&may_leave, 0, 0);
    atomic_store(&has_left, false);
    assert_int_equal(process_shed_add(&shed, waits, &calls[0]), 0);
    assert_int_equal(pthread_create(&thread, NULL, round_of_another_thread, NULL), 0);
    while (sem_wait(&entered) != 0) {
    }
    assert_int_equal(pthread_create(&first, NULL, takes_off, NULL), 0);
    while (!is_taken_off()) {
        usleep(100);
    }
    // Another in its place has nothing to do with it.
    assert_int_equal(process_shed_add(&shed, count, &calls[1]), 0);
    assert_ptr_equal(shed.entries[0].function, count);
    assert_int_equal(process_shed_remove(&shed, count, &calls[1]), 0);
    assert_int_equal(process_shed_remove(&shed, waits, &calls[1]), ENOENT);
    sem_post(&may_leave);
    assert_int_equal(process_shed_remove(&shed, waits, &calls[0]), ENOENT);
    assert_true(atomic_load(&has_left));
    assert_int_equal(pthread_join(first, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

CASE(in_a_forks_child_the_round_of_a_thread_that_is_gone_is_over) {
    assert_int_equal(process_shed_add(&shed, count, &calls[0]), 0);
    shed.runner = 1; // another thread, in its first function
    shed.running = shed.entries[0];
    assert_false(run());
    process_shed_fork_prepare(&shed, false);
    process_shed_fork_child(&shed);
    assert_true(run());
    assert_int_equal(process_shed_remove(&shed, count, &calls[0]), 0);
}

#define SHED_CASE(name) cmocka_unit_test_setup(name, begin)

int main(void) {
    const struct CMUnitTest cases[] = {
        SHED_CASE(without_functions_there_is_no_round),
        SHED_CASE(each_function_is_called_once_a_round_with_what_is_asked_for),
        SHED_CASE(the_table_tells_why_it_cannot),
        SHED_CASE(a_function_may_take_itself_off_and_starts_no_round_of_its_own),
        SHED_CASE(one_round_at_a_time_and_taking_off_waits_for_the_function_to_return),
        SHED_CASE(who_finds_it_taken_off_waits_for_the_function_as_well),
        SHED_CASE(in_a_forks_child_the_round_of_a_thread_that_is_gone_is_over),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
