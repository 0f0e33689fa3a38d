// SPDX-License-Identifier: MIT
// Explorer: runs a few threads in every order in which they may meet, and looks at what is left.
//
// The threads are coroutines of one thread of the system's. Each of their accesses to memory that
// another one uses as well is a *point*: there the next may go on instead. What is run is the
// code itself, compiled with points.h, not a description of it.
//
// Owns     the threads' stacks, the tree of choices, copies of what a scenario begins with.
// Threads  one.
// Holds    all schedules with at most `preemptions` switches away from a thread that could go on
//          are run, each once, from the same memory. A thread that waits (explore_pause) is left
//          alone until another has written something that it uses: to leave it then is no switch.
//          A store that is neither sequentially consistent nor part of an atomic operation may be kept
//          back, with all such stores of its thread after it, until that thread next does either,
//          waits, ends or reads what it has stored: so a store that has to be seen before a later
//          load is found if it need not be. Otherwise memory is sequentially consistent: what arm64
//          may reorder besides is not explored.
#ifndef MALLOW_TEST_EXPLORE_H
#define MALLOW_TEST_EXPLORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EXPLORE_THREADS_MAX = 4, EXPLORE_RANGES_MAX = 16, EXPLORE_OWN_BYTES_MAX = 256 };

struct explore_range {
    void *address;
    size_t bytes;
};

struct explore_scenario {
    const char *name;
    unsigned thread_count;
    void (*thread[EXPLORE_THREADS_MAX])(void);
    void (*check)(void); // after all have ended, or one has reported; without points
    unsigned preemptions;
    unsigned delays; // stores of one schedule that the processor keeps back
    bool reports; // every schedule must end in a report of misuse, or in check's finding one
};

struct explore_result {
    uint64_t schedule_count;
    uint64_t report_count; // schedules that ended in a report
    unsigned point_count;  // the most points of one schedule
};

// Memory that every schedule begins with as it is now.
void explore_keep(void *address, size_t bytes);

// Memory of which each thread has its own, which begins as it is now: thread-local storage. Once.
void explore_own(void *address, size_t bytes);

// Forgets both.
void explore_forget(void);

// Runs all. Prints the schedule that fails, and ends the program.
struct explore_result explore_run(const struct explore_scenario *scenario);

// ---- For points.h and scenarios -----------------------------------------------------------------

// A load from `address`, or an atomic operation or a store that nothing passes, is about to be made,
// from the place named.
void explore_point(const volatile void *address, bool writes, const char *file, int line);

// A moment at which another thread may go on, whatever the memory: between plain accesses.
void explore_moment(const char *file, int line);

// Makes a store of another kind: now or later.
void explore_store(volatile void *address, const void *value, size_t bytes, const char *file,
                   int line);

// Milliseconds pass: no processor keeps a store back for so long.
void explore_time_passes(void);

// Nothing can be done until another thread has done something.
void explore_pause(void);

// Something that must hold does not.
void explore_fail(const char *what, const char *file, int line) __attribute__((noreturn));

// The code under test says something, and then stops the program: this schedule has ended.
void explore_message(const char *text, size_t length);
void explore_report(void) __attribute__((noreturn));

// Whether the schedule has ended in a report.
bool explore_has_reported(void);

// The running thread's number; EXPLORE_THREADS_MAX outside of them.
unsigned explore_thread(void);

#define EXPLORE_EXPECT(condition)                                                                  \
    ((condition) ? (void)0 : explore_fail(#condition, __FILE__, __LINE__))

#endif
