// SPDX-License-Identifier: MIT
// OS, locks and waiting: see os.h.
//
// Holds    who waits for a lock of its own would wait for ever: a signal handler that has
//          interrupted a call of ours, or has left it by longjmp. That stops the program.
#include <assert.h>
#include <errno.h>
#include <linux/futex.h>
#include <time.h>

#include "base/compiler.h"
#include "os/fatal.h"
#include "os/os.h"
#include "os/os_syscall.h"

static void os_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("yield");
#endif
}

// The same four times, which are few instructions for the time that they take.
static void os_relax_more(void) {
#if defined(__x86_64__)
    __asm__ volatile("pause\n\tpause\n\tpause");
#else
    __asm__ volatile("yield\n\tyield\n\tyield");
#endif
    os_relax();
}

enum {
    OS_PAUSE_RELAXED = 64,         // rounds of os_pause before it sleeps
    OS_LOCK_HURRY_ROUNDS = 160,    // of os_pause
    OS_LOCK_PATIENCE_ROUNDS = 1000, // asleep
    OS_LOCK_LOOKS = 16, // before who waits sleeps: 1 or 2 us, where a lock is held for less
};

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the futex is the low half of the state");

MALLOW_INTERNAL bool os_lock_is_mine(const struct os_lock *lock) {
    const uint64_t state = atomic_load_explicit(&lock->state, memory_order_relaxed);
    return (state & ~(uint64_t)OS_LOCK_AWAITED) == os_lock_mine();
}

static bool os_lock_is_forking(const struct os_lock *lock) {
    return atomic_load_explicit(&lock->fork_thread, memory_order_relaxed) == os_this_thread();
}

// Whether the lock came free, and was taken, within the time that it is usually held.
static MALLOW_NOINLINE bool os_lock_look(struct os_lock *lock, uint64_t mine) {
    for (unsigned look = 0; look < OS_LOCK_LOOKS; look++) {
        os_relax_more();
        if (atomic_load_explicit(&lock->state, memory_order_relaxed) == 0 &&
            os_lock_try(lock, mine)) {
            return true;
        }
    }
    return false;
}

// A mutex after Drepper, "Futexes are tricky" (2011): AWAITED means that the holder has to wake
// someone, and who has slept leaves it set, since others may sleep still.
static MALLOW_COLD void os_lock_await(struct os_lock *lock, uint64_t mine) {
    if (os_lock_look(lock, mine)) {
        return;
    }
    while (!os_lock_try(lock, mine | OS_LOCK_AWAITED)) {
        uint64_t state = atomic_load_explicit(&lock->state, memory_order_relaxed);
        if (state == 0 || ((state & OS_LOCK_AWAITED) == 0 &&
                           !atomic_compare_exchange_strong_explicit(
                               &lock->state, &state, state | OS_LOCK_AWAITED,
                               memory_order_relaxed, memory_order_relaxed))) {
            continue;
        }
        if (unlikely((state & ~(uint64_t)OS_LOCK_AWAITED) == mine)) {
            fatal_deadlock((uintptr_t)lock,
                           "this thread holds it: a signal handler, or a longjmp out of one, has "
                           "interrupted a call of the allocator, and calls it again");
        }
        (void)os_syscall6(SYS_futex, (long)(uintptr_t)&lock->state, FUTEX_WAIT_PRIVATE,
                          (long)(uint32_t)(state | OS_LOCK_AWAITED), 0, 0, 0);
    }
}

MALLOW_INTERNAL void os_lock_take(struct os_lock *lock) {
    const uint64_t mine = os_lock_mine();
    if (likely(os_lock_try(lock, mine))) {
        return;
    }
    if (unlikely(os_lock_is_forking(lock))) {
        lock->depth++;
        return;
    }
    os_lock_await(lock, mine);
}

MALLOW_INTERNAL MALLOW_NOINLINE void os_lock_take_patiently(struct os_lock *lock) {
    const uint64_t mine = os_lock_mine();
    if (os_lock_try(lock, mine) || os_lock_look(lock, mine)) {
        return;
    }
    for (unsigned round = 0; round < OS_LOCK_PATIENCE_ROUNDS; round++) {
        if (os_lock_is_forking(lock)) {
            break;
        }
        os_pause(OS_PAUSE_RELAXED);
        if (os_lock_try(lock, mine)) {
            return;
        }
    }
    os_lock_take(lock);
}

MALLOW_INTERNAL void os_lock_drop(struct os_lock *lock) {
    if (unlikely(lock->depth != 0) && os_lock_is_forking(lock)) {
        lock->depth--;
        return;
    }
    const uint64_t before = atomic_exchange_explicit(&lock->state, 0, memory_order_release);
    if ((before & OS_LOCK_AWAITED) != 0) {
        (void)os_syscall6(SYS_futex, (long)(uintptr_t)&lock->state, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
    }
}

MALLOW_INTERNAL void os_lock_take_for_fork(struct os_lock *lock, bool hurried) {
    if (os_lock_is_mine(lock)) {
        lock->interrupted++;
    } else if (!hurried) {
        os_lock_take(lock);
    } else {
        for (unsigned round = 0; !os_lock_try(lock, os_lock_mine()); round++) {
            if (round == OS_LOCK_HURRY_ROUNDS) {
                return;
            }
            os_pause(round);
        }
    }
    atomic_store_explicit(&lock->fork_thread, os_this_thread(), memory_order_relaxed);
}

MALLOW_INTERNAL void os_lock_drop_after_fork(struct os_lock *lock) {
    if (!os_lock_is_mine(lock)) {
        return; // it was not waited for
    }
    atomic_store_explicit(&lock->fork_thread, 0, memory_order_relaxed);
    if (lock->interrupted != 0) {
        lock->interrupted--;
    } else {
        os_lock_drop(lock);
    }
}

MALLOW_INTERNAL void os_lock_renew(struct os_lock *lock) {
    const bool stays = os_lock_is_mine(lock) && lock->interrupted != 0;
    lock->interrupted -= stays;
    lock->depth = 0;
    atomic_store_explicit(&lock->fork_thread, 0, memory_order_relaxed);
    atomic_store_explicit(&lock->state, stays ? os_lock_mine() : 0, memory_order_release);
}

MALLOW_INTERNAL bool os_wait(_Atomic(uint32_t) *word, uint32_t expected, uint64_t nanoseconds) {
    const struct {
        int64_t seconds;
        int64_t nanoseconds;
    } time = {(int64_t)(nanoseconds / 1000000000), (int64_t)(nanoseconds % 1000000000)};
    const long result = os_syscall6(SYS_futex, (long)(uintptr_t)word, FUTEX_WAIT_PRIVATE,
                                    (long)expected, (long)(uintptr_t)&time, 0, 0);
    return result == 0 || result == -EAGAIN || result == -ETIMEDOUT || result == -EINTR;
}

MALLOW_INTERNAL void os_wake(_Atomic(uint32_t) *word) {
    (void)os_syscall6(SYS_futex, (long)(uintptr_t)word, FUTEX_WAKE_PRIVATE, INT32_MAX, 0, 0, 0);
}

MALLOW_INTERNAL void os_pause(unsigned round) {
    if (round < OS_PAUSE_RELAXED) {
        os_relax();
        return;
    }
    // A futex wait that times out: the one way to sleep that every sandbox of ours allows.
    _Atomic(uint32_t) never = 0;
    (void)os_wait(&never, 0, 50000);
}
