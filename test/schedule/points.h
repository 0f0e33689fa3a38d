// SPDX-License-Identifier: MIT
// Points: to be included before the sources of src/. Every atomic access becomes a point of the
// explorer, and so does what the fast paths read plainly of memory that others write; whoever waits
// tells the explorer; what stops the program ends the schedule. Nothing in src/ knows of this.
#ifndef MALLOW_TEST_POINTS_H
#define MALLOW_TEST_POINTS_H

#define _GNU_SOURCE
#define MALLOW_UNITY 1
#define MALLOW_ASSERT 1

#include <stdatomic.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/compiler.h"
#include "os/os_syscall.h"

#include "explore.h"

#define POINT_READ(place) explore_point((place), false, __FILE__, __LINE__)
#define POINT_WRITE(place) explore_point((place), true, __FILE__, __LINE__)

// Fields of the kind that the owner may read plainly are stored at once; those that are declared
// atomic may be kept back.
// The compiler's own; their names are not expanded once more in what they expand to.
#define __atomic_load_n(place, order) (POINT_READ(place), __atomic_load_n((place), __ATOMIC_SEQ_CST))
#define __atomic_store_n(place, value, order)                                                      \
    (POINT_WRITE(place), __atomic_store_n((place), (value), __ATOMIC_SEQ_CST))
#define __atomic_exchange_n(place, value, order)                                                   \
    (POINT_WRITE(place), __atomic_exchange_n((place), (value), __ATOMIC_SEQ_CST))
#define __atomic_compare_exchange_n(place, expected, value, weak, order, failure)                  \
    (POINT_WRITE(place), __atomic_compare_exchange_n((place), (expected), (value), 0,              \
                                                     __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
#define __atomic_fetch_or(place, value, order)                                                     \
    (POINT_WRITE(place), __atomic_fetch_or((place), (value), __ATOMIC_SEQ_CST))
#define __atomic_fetch_and(place, value, order)                                                    \
    (POINT_WRITE(place), __atomic_fetch_and((place), (value), __ATOMIC_SEQ_CST))
// Sums whose order does not matter: counts. No point.
#define POINT_SUM(operation, place, value) (operation((place), (value), __ATOMIC_SEQ_CST))

#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_exchange_explicit
#undef atomic_compare_exchange_strong_explicit
#undef atomic_compare_exchange_weak_explicit
#undef atomic_fetch_or_explicit
#undef atomic_fetch_and_explicit
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub_explicit
#define atomic_load_explicit(place, order) __atomic_load_n(place, order)
#define atomic_store_explicit(place, value, order)                                                 \
    __extension__({                                                                                \
        __auto_type point_place_ = (place);                                                        \
        __typeof__((void)0, *point_place_) point_value_ = (value);                                 \
        if ((order) == memory_order_seq_cst) {                                                     \
            __atomic_store_n(point_place_, point_value_, __ATOMIC_SEQ_CST);                        \
        } else {                                                                                   \
            explore_store(point_place_, &point_value_, sizeof point_value_, __FILE__, __LINE__);   \
        }                                                                                          \
    })
#define atomic_exchange_explicit(place, value, order) __atomic_exchange_n(place, value, order)
#define atomic_compare_exchange_strong_explicit(place, expected, value, order, failure)            \
    __atomic_compare_exchange_n(place, expected, value, 0, order, failure)
#define atomic_compare_exchange_weak_explicit(place, expected, value, order, failure)              \
    __atomic_compare_exchange_n(place, expected, value, 1, order, failure)
#define atomic_fetch_or_explicit(place, value, order) __atomic_fetch_or(place, value, order)
#define atomic_fetch_and_explicit(place, value, order) __atomic_fetch_and(place, value, order)
#define atomic_fetch_add_explicit(place, value, order) POINT_SUM(__atomic_fetch_add, place, value)
#define atomic_fetch_sub_explicit(place, value, order) POINT_SUM(__atomic_fetch_sub, place, value)

#undef compiler_relaxed_word
#undef compiler_relaxed_byte
#undef compiler_relaxed_plain
#undef compiler_set_bit
#define compiler_relaxed_word(place) (POINT_READ(place), *(const uintptr_t *)(const void *)(place))
#define compiler_relaxed_byte(place) (POINT_READ(place), *(const uint8_t *)(const void *)(place))
#define compiler_relaxed_plain(place) (POINT_READ(place), *(place))
#define compiler_set_bit(array, index)                                                             \
    ((__atomic_fetch_or(&(array)[(index) / 64], UINT64_C(1) << ((index) % 64), __ATOMIC_SEQ_CST) >> \
      ((index) % 64) & 1U) != 0)

// In programs that ask for it: before and after a malloc changes the bitmap, which is plain memory to
// its owner, somebody may come who looks at bitmaps without a lock.
#ifdef POINT_BITMAPS
#include "base/bits.h"
#undef compiler_relaxed_byte
#define compiler_relaxed_byte(place)                                                               \
    (POINT_READ(place), explore_moment(__FILE__, __LINE__), *(const uint8_t *)(const void *)(place))
#define bits_find_lowest(value) (explore_moment(__FILE__, __LINE__), (bits_find_lowest)(value))
#endif

// A thread of the explorer's is one for locks as well.
#define __builtin_thread_pointer() ((void *)((uintptr_t)(explore_thread() + 1) << 12))
#define __builtin_ia32_pause() explore_pause()
#define __builtin_trap() explore_fail("assertion", __FILE__, __LINE__)
#define abort() explore_report()

// Who sleeps in the kernel is woken by a write to what it waits for, and at once if only for some
// time; other calls are the kernel's.
static long explore_syscall(long number, long a, long b, long c, long d, long e, long f) {
    if (number != SYS_futex) {
        return os_syscall6(number, a, b, c, d, e, f);
    }
    enum { WAIT_AND_PRIVATE = 128 };
    if (b == WAIT_AND_PRIVATE && d == 0) {
        explore_pause();
    }
    return 0;
}
#define os_syscall6(number, a, b, c, d, e, f) explore_syscall(number, a, b, c, d, e, f)

#endif
