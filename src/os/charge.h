// SPDX-License-Identifier: MIT
// Charge: what the allocator holds of the machine's memory, and how much it may.
//
// Owns     nothing: struct os_charge is part of struct os. Others are *allowances*: what one heap
//          holds and may, of slices in use and live huge blocks alone (heap_own.h).
// Threads  any, without a lock: one compare-and-swap a growth.
// Holds    held_bytes = slices in use + free slices whose pages are kept
//                     + mappings of huge blocks, live and kept + our own tables
//          Memory is charged before it can be touched and released after it was given back, so the
//          blocks' and tables' resident bytes <= held_bytes <= caps[OS_CHARGE_RESERVE].
//          caps[SOFT] <= caps[HARD] <= caps[SPARE] <= caps[RESERVE]
//
// A growth is first tried at level SOFT. Refused there, the caller gives back what is only kept for
// speed, and tries HARD. Refused there as well, the program gets NULL; a thread that has been told
// so may afterwards use the reserve, for small things: to unwind, to log, to save.
#ifndef MALLOW_OS_CHARGE_H
#define MALLOW_OS_CHARGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "config.h"

enum os_charge_level {
    OS_CHARGE_SOFT,
    OS_CHARGE_HARD,    // the limit less the reserve
    OS_CHARGE_SPARE,   // the limit less half of it: spans for a thread that has been refused
    OS_CHARGE_RESERVE, // the limit: our tables, and such a thread's smallest blocks
    OS_CHARGE_LEVELS,
};

// What there is to do for the process, in `events`. BEAT: with every slow allocation, as long as it
// is set.
enum { OS_CHARGE_SHED_DUE = 1, OS_CHARGE_POLL_DUE = 2, OS_CHARGE_BEAT = 4 };

struct os_charge {
    _Atomic(uint64_t) held_bytes;
    _Atomic(uint64_t) caps[OS_CHARGE_LEVELS]; // UINT64_MAX: none
    _Atomic(uint64_t) soft_bytes;             // caps[SOFT], unless that is 0 under pressure
    _Atomic(uint64_t) refused_count;          // requests that the limit made fail
    _Atomic(uint64_t) shed_mark;              // above the soft limit: where to ask for more next
    _Atomic(uint64_t) grown_bytes;            // since the last poll of pressure
    _Atomic(uint64_t) poll_bytes;             // growth after which to poll; 0: never
    _Atomic(uint32_t) events;                 // what is due, until somebody attends to it
    _Atomic(uint32_t) limited;                // there is a limit of any kind
};

struct os;

// Whether there is a soft limit, or pressure.
MALLOW_INLINE bool os_charge_is_capped(const struct os_charge *charge) {
    return atomic_load_explicit(&charge->caps[OS_CHARGE_SOFT], memory_order_relaxed) !=
           UINT64_MAX;
}

// Whether something is due that is not due all the time.
MALLOW_INLINE bool os_charge_is_due(const struct os_charge *charge) {
    return (atomic_load_explicit(&charge->events, memory_order_relaxed) &
            ~(uint32_t)OS_CHARGE_BEAT) != 0;
}

// No limits, nothing held.
MALLOW_INTERNAL void os_charge_init(struct os *os);

// Sets the limits; UINT64_MAX: none. A soft limit above the hard one less its reserve has no
// effect.
MALLOW_INTERNAL void os_charge_set(struct os *os, uint64_t hard_bytes, uint64_t soft_bytes);

// What of a hard limit is kept for threads that have been refused: a 32nd, 256 KiB to 4 MiB.
MALLOW_INTERNAL uint64_t os_charge_reserve(uint64_t hard_bytes);

// While memory is short every growth is refused at level SOFT, so that giving back comes first.
MALLOW_INTERNAL void os_charge_press(struct os *os, bool pressed);

// Charges `bytes`; false, and nothing is charged, if the level's cap would be exceeded.
MALLOW_INTERNAL bool os_charge_take(struct os *os, enum os_charge_level level, size_t bytes);

// The same in line where nothing limits and nobody watches; false: nothing done, os_charge_take.
MALLOW_INLINE bool os_charge_take_freely(struct os_charge *charge, size_t bytes) {
    if (unlikely(os_charge_is_capped(charge)) ||
        unlikely(atomic_load_explicit(&charge->poll_bytes, memory_order_relaxed) != 0)) {
        return false;
    }
    atomic_fetch_add_explicit(&charge->held_bytes, bytes, memory_order_relaxed);
    return true;
}

// Charges what is there already.
MALLOW_INTERNAL void os_charge_add(struct os *os, size_t bytes);

MALLOW_INTERNAL void os_charge_release(struct os *os, size_t bytes);

// How much could be held below the soft limit beside what is held now, not counting `own` bytes of
// it; at most SIZE_MAX / 4.
MALLOW_INTERNAL size_t os_charge_room(const struct os *os, size_t own);

// True: growing by `bytes` would exceed the soft limit.
MALLOW_INTERNAL bool os_charge_is_short(const struct os *os, size_t bytes);

// False: `bytes` are more than the limit, so that giving back cannot help.
MALLOW_INTERNAL bool os_charge_can_fit(const struct os *os, size_t bytes);

// A request has failed. Counts it if a limit is set.
MALLOW_INTERNAL void os_charge_note_refusal(struct os *os);

// The same of an allowance, beside the process's charge. It has no reserve: its levels are SOFT and
// HARD, and refused_count is of growths at the latter.
MALLOW_INTERNAL void os_allowance_set(struct os_charge *allowance, uint64_t hard_bytes,
                                      uint64_t soft_bytes);
MALLOW_INTERNAL bool os_allowance_take(struct os_charge *allowance, enum os_charge_level level,
                                       size_t bytes);
MALLOW_INTERNAL void os_allowance_release(struct os_charge *allowance, size_t bytes);

#endif
