// SPDX-License-Identifier: MIT
// The gate: step by step, and with a thread that goes in and out beside a visitor.
#include "heap/heap_gate.h"

#include <pthread.h>

#include "../unit.h"
#include "os/os_thread.h"

static struct os os;
static struct heap_shared shared = {.os = &os};
static struct heap heap; // only the gate's fields are used besides; its state is OWNED

static void begin(void) {
    memset(&heap, 0, sizeof heap);
    heap.shared = &shared;
}

CASE(nobody_enters_who_has_not_asked) {
    begin();
    assert_false(heap_gate_visit(&heap, true));
    heap_gate_ask(&heap);
    assert_false(heap_gate_visit(&heap, false)); // nor before the grace is over
    assert_true(heap_gate_visit(&heap, true));
    heap_gate_end(&heap);
    assert_true(heap_gate_visit(&heap, true)); // once more, without asking
    heap_gate_end(&heap);
    heap_gate_dismiss(&heap);
    assert_false(heap_gate_visit(&heap, true));
}

CASE(nobody_enters_while_the_thread_is_at_work) {
    begin();
    heap_gate_enter(&heap); // before it was asked
    heap_gate_ask(&heap);
    assert_false(heap_gate_visit(&heap, true));
    heap_gate_leave(&heap);
    assert_true(heap_gate_visit(&heap, true));
    heap_gate_end(&heap);
}

CASE(a_thread_that_finds_itself_asked_grants_and_needs_no_grace) {
    begin();
    heap_gate_ask(&heap);
    heap_gate_enter(&heap);
    assert_false(heap_gate_visit(&heap, true));
    heap_gate_leave(&heap);
    assert_true(heap_gate_visit(&heap, false));
    heap_gate_end(&heap);
    heap_gate_enter(&heap);
    assert_false(heap_gate_visit(&heap, false));
    heap_gate_leave(&heap);
}

CASE(a_thread_in_a_hurry_enters_unless_it_has_to_answer_or_to_wait) {
    begin();
    assert_true(heap_gate_try_enter(&heap));
    assert_int_equal(atomic_load(&heap.busy), 1);
    heap_gate_leave(&heap);
    heap_gate_ask(&heap);
    assert_false(heap_gate_try_enter(&heap)); // asked
    assert_int_equal(atomic_load(&heap.busy), 0);
    assert_int_equal(atomic_load(&heap.visit), GATE_ASKED);
    heap_gate_enter(&heap);
    heap_gate_leave(&heap);
    assert_true(heap_gate_try_enter(&heap)); // granted
    assert_false(heap_gate_visit(&heap, false));
    heap_gate_leave(&heap);
    assert_true(heap_gate_visit(&heap, false));
    assert_false(heap_gate_try_enter(&heap)); // a visitor is inside
    assert_int_equal(atomic_load(&heap.busy), 0);
    heap_gate_end(&heap);
}

CASE(a_heap_without_a_thread_has_no_gate) {
    begin();
    atomic_store(&heap.state, HEAP_ABANDONED);
    heap_gate_ask(&heap);
    assert_false(heap_gate_visit(&heap, true));
    atomic_store(&heap.state, HEAP_OWNED);
    assert_true(heap_gate_visit(&heap, true));
    heap_gate_end(&heap);
}

// ---- With threads -------------------------------------------------------------------------------

// Written inside alone, by both sides: ThreadSanitizer sees if they are ever in at once.
static uint64_t inside_count;
static uint64_t inside_twin;
static atomic_bool stop;

static void work_inside(void) {
    if (inside_count != inside_twin) {
        abort();
    }
    inside_count++;
    for (volatile unsigned i = 0; i < 20; i++) {
    }
    inside_twin++;
}

static void *go_in_and_out(void *pause) {
    uint64_t rounds = 0;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        if (rounds % 2 == 0 || !heap_gate_try_enter(&heap)) {
            heap_gate_enter(&heap);
        }
        work_inside();
        heap_gate_leave(&heap);
        for (volatile unsigned i = 0; i < 60; i++) { // outside for most of the time
        }
        rounds++;
        if (*(const bool *)pause && rounds % 64 == 0) {
            usleep((useconds_t)(500 + rounds % 7000));
        }
    }
    return (void *)(uintptr_t)rounds;
}

// Visits for a while; how many visits there were. A visitor that comes again and again asks anew now
// and then.
static uint64_t visit_for(unsigned rounds, bool with_grace) {
    uint64_t visits = 0;
    for (unsigned round = 0; round < rounds; round++) {
        heap_gate_ask(&heap);
        usleep(with_grace ? 1000 * (MALLOW_GATE_GRACE_MS + 3) : 20);
        for (unsigned i = 0; i < 50; i++) {
            if (heap_gate_visit(&heap, with_grace)) {
                work_inside();
                heap_gate_end(&heap);
                visits++;
            }
        }
        heap_gate_dismiss(&heap);
    }
    return visits;
}

static void run_with(bool pause, unsigned rounds, bool with_grace) {
    pthread_t thread;
    void *entered = NULL;
    begin();
    inside_count = inside_twin = 0;
    atomic_store(&stop, false);
    assert_int_equal(pthread_create(&thread, NULL, go_in_and_out, &pause), 0);
    const uint64_t visits = visit_for(rounds, with_grace);
    atomic_store(&stop, true);
    assert_int_equal(pthread_join(thread, &entered), 0);
    fprintf(stderr, "%llu visits, %llu entries\n", (unsigned long long)visits,
            (unsigned long long)(uintptr_t)entered);
    assert_true(visits > 0);
    assert_int_equal(inside_count, visits + (uintptr_t)entered);
    assert_int_equal(inside_twin, inside_count);
}

static void *tell_number(void *argument) {
    *(uint32_t *)argument = os_thread_number();
    return argument;
}

static void *leave_later(void *argument) {
    const struct timespec moment = {0, 200000000};
    (void)nanosleep(&moment, NULL);
    heap_gate_end(&heap);
    return argument;
}

static void a_visitor_is_inside(uint32_t visitor) {
    begin();
    heap_gate_ask(&heap);
    assert_true(heap_gate_visit(&heap, true));
    atomic_store(&heap.visitor, visitor);
}

// As in a child that was made by a bare clone while a thread of its parent was inside.
CASE(nobody_waits_for_a_visitor_who_is_no_thread_of_this_process) {
    pthread_t thread;
    uint32_t number = 0;
    assert_int_equal(pthread_create(&thread, NULL, tell_number, &number), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    os_thread_await_end(number);
    a_visitor_is_inside(number);
    assert_false(heap_gate_try_enter(&heap));
    heap_gate_enter(&heap);
    assert_int_equal(atomic_load(&heap.visit), GATE_OPEN);
    heap_gate_leave(&heap);
}

CASE(but_for_one_who_is_there_however_long_it_takes) {
    pthread_t thread;
    a_visitor_is_inside(os_thread_number());
    assert_int_equal(pthread_create(&thread, NULL, leave_later, NULL), 0);
    heap_gate_enter(&heap);
    assert_int_not_equal(atomic_load(&heap.visit), GATE_OPEN); // the visitor has left it as it was
    heap_gate_leave(&heap);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

CASE(a_busy_thread_and_a_visitor_are_never_in_at_once) {
    run_with(false, 4000, false);
}

CASE(nor_are_a_thread_that_sleeps_now_and_then_and_a_patient_visitor) {
    run_with(true, 150, true);
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(nobody_enters_who_has_not_asked),
        cmocka_unit_test(nobody_enters_while_the_thread_is_at_work),
        cmocka_unit_test(a_thread_that_finds_itself_asked_grants_and_needs_no_grace),
        cmocka_unit_test(a_thread_in_a_hurry_enters_unless_it_has_to_answer_or_to_wait),
        cmocka_unit_test(a_heap_without_a_thread_has_no_gate),
        cmocka_unit_test(nobody_waits_for_a_visitor_who_is_no_thread_of_this_process),
        cmocka_unit_test(but_for_one_who_is_there_however_long_it_takes),
        cmocka_unit_test(a_busy_thread_and_a_visitor_are_never_in_at_once),
        cmocka_unit_test(nor_are_a_thread_that_sleeps_now_and_then_and_a_patient_visitor),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
