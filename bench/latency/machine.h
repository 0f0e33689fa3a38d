// SPDX-License-Identifier: MIT
// The processor that is measured on: which one, who else may use it, how we are scheduled.
//
// Owns     nothing; struct machine is filled once, by machine_prepare.
// Holds    a thread is pinned to one processor or to none; without isolated processors every figure
//          has the other users of the machine in it, and the output says so.

#ifndef MALLOW_BENCH_LATENCY_MACHINE_H
#define MALLOW_BENCH_LATENCY_MACHINE_H

#include "common.h"

#include <sched.h>

// Beyond every processor's number.
#define MACHINE_PIN_AUTO UINT64_C(9999)
#define MACHINE_PIN_NONE UINT64_C(9998)

enum machine_fifo { MACHINE_FIFO_OFF, MACHINE_FIFO_ON, MACHINE_FIFO_AUTO };

struct machine {
    char isolated[256]; // the kernel's list of isolated processors, "" for none
    char nohz_full[256];
    char clocksource[64];
    long rt_runtime_us; // per second that SCHED_FIFO may have; -1: all of it, or unknown
    double load;        // processes that wanted to run in the last minute
    int processors[CPU_SETSIZE]; // those to choose from: the isolated ones, else all we may use
    size_t processor_count;
    bool on_isolated;
    int pinned; // the main thread's processor, -1 if it is not pinned
    bool fifo;  // SCHED_FIFO is in force
};

// "0-2,5" as a set; false for text that is not such a list. "" is the empty set.
bool machine_parse_list(const char *text, cpu_set_t *set);

// Looks at the machine, pins the calling thread (`pin`: a processor, MACHINE_PIN_AUTO for an
// isolated one or else the last one allowed, MACHINE_PIN_NONE), and asks for SCHED_FIFO; `auto`
// asks on an isolated processor only. What is not permitted is left as it is: read the result.
void machine_prepare(struct machine *machine, uint64_t pin, enum machine_fifo fifo);

// Pins the calling thread, one of `count`, to its own processor; to none if there are not enough.
void machine_pin_thread(const struct machine *machine, size_t index, size_t count);

// Time that the hypervisor gave to others, of all processors since the machine began, in ms.
uint64_t machine_stolen_ms(void);

#endif
