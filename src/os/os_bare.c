// SPDX-License-Identifier: MIT
// OS, bare threads: see os_bare.h.
#include "os/os_bare.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>

#include "base/bits.h"
#include "os/os.h"
#include "os/os_syscall.h"
#include "os/os_thread.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BARE_IS_KNOWN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define BARE_IS_KNOWN 1
#endif
#endif
#ifndef BARE_IS_KNOWN
#define BARE_IS_KNOWN 0
#endif

enum { BARE_AWAIT_NS = 10000000 }; // the kernel wakes one of those who wait

// Older headers lack them; the numbers are the kernel's interface.
enum { BARE_SYS_CLOSE_RANGE = 436, BARE_CLOSE_UNSHARED = 2 };

MALLOW_INTERNAL void os_bare_await(struct os_bare *bare) {
    const struct {
        int64_t seconds;
        int64_t nanoseconds;
    } time = {0, BARE_AWAIT_NS};
    for (;;) {
        const uint32_t number = os_bare_number(bare);
        if (number == 0) {
            return;
        }
        // Not of the private kind: the kernel wakes whoever waits for a thread's end by the other.
        const long error = os_syscall6(SYS_futex, (long)(uintptr_t)&bare->number, FUTEX_WAIT,
                                       (long)number, (long)(uintptr_t)&time, 0, 0);
        if (error == -ETIMEDOUT &&
            os_syscall6(SYS_tgkill, os_process_number(), (long)number, 0, 0, 0, 0) == -ESRCH &&
            os_bare_number(bare) == number) { // else it has just ended
            // It is our parent's: a child by a bare clone that has its parent's number, as the
            // first of another namespace has, does not know that it is one.
            return;
        }
    }
}

#if BARE_IS_KNOWN

#include <pthread.h>

// In a fork's child the sanitizer's run-time still knows the parent's threads, and stops the
// program when a new one is given the memory of one of those.
static _Atomic(bool) bare_is_child;

MALLOW_INTERNAL void os_bare_fork_child(struct os_bare *bare) {
    atomic_store_explicit(&bare->number, 0, memory_order_relaxed);
    atomic_store_explicit(&bare_is_child, true, memory_order_relaxed);
}

static void *bare_main(void *argument) {
    struct os_bare *const bare = argument;
    atomic_store_explicit(&bare->number, (uint32_t)os_syscall6(SYS_gettid, 0, 0, 0, 0, 0, 0),
                          memory_order_relaxed);
    bare->function(bare->argument);
    atomic_store_explicit(&bare->number, 0, memory_order_release);
    return NULL;
}

MALLOW_INTERNAL bool os_bare_start(struct os_bare *bare, void (*function)(void *argument),
                                   void *argument, const void *local) {
    sigset_t all;
    sigset_t before;
    pthread_t thread;
    (void)local;
    if (os_bare_number(bare) != 0 ||
        atomic_load_explicit(&bare_is_child, memory_order_relaxed)) {
        return false;
    }
    bare->function = function;
    bare->argument = argument;
    atomic_store_explicit(&bare->number, UINT32_MAX, memory_order_relaxed);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool started = pthread_create(&thread, NULL, bare_main, bare) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started) {
        (void)pthread_detach(thread);
    } else {
        atomic_store_explicit(&bare->number, 0, memory_order_relaxed);
    }
    return started;
}

#else

MALLOW_INTERNAL void os_bare_fork_child(struct os_bare *bare) {
    atomic_store_explicit(&bare->number, 0, memory_order_relaxed);
}

// libc's, by the name that no program may have: `clone` is what many a function is called that
// copies something, and a program's own comes first.
extern int __clone(int (*function)(void *argument), void *stack, int flags, void *argument, ...);

// What pthread_create asks for: there are sandboxes that let nothing else pass.
#define BARE_FLAGS                                                                                 \
    (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SYSVSEM | CLONE_SIGHAND | CLONE_THREAD |            \
     CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID)

enum {
    BARE_DESCRIPTOR_BYTES = 4096, // libc's struct of a thread is smaller
    BARE_LOCAL_BYTES = 256,       // of the largest variable
    BARE_STACK_BYTES = 20 << 10,
};

static int bare_main(void *argument) {
    const struct os_bare *const bare = argument;
    bare->function(bare->argument);
    return 0;
}

// Lays the place out: on x86-64 the stack, thread-local storage, and from the thread pointer on
// libc's struct; on arm64 that struct, from the pointer on thread-local storage, and the stack. The
// pointer, and where the stack ends; false: it does not fit.
static bool bare_lay_out(struct os_bare *bare, const void *local, uintptr_t *pointer,
                         uintptr_t *end) {
    const uintptr_t memory = (uintptr_t)bare->memory;
    const uintptr_t before = os_this_thread();
#if defined(__x86_64__)
    const uintptr_t lowest = bits_min((uintptr_t)local, (uintptr_t)&errno);
    const uintptr_t bytes = bits_align_up(before - lowest, 64);
    *pointer = memory + OS_BARE_BYTES - BARE_DESCRIPTOR_BYTES;
    *end = *pointer - bytes;
    // By the psABI the pointer leads to itself, and so does libc's word for pthread_self; then
    // there are the words that guard stacks and pointers.
    const uintptr_t *const from = (const uintptr_t *)before;
    uintptr_t *const to = (uintptr_t *)*pointer;
    to[0] = *pointer;
    to[2] = *pointer;
    to[5] = from[5];
    to[6] = from[6];
#else
    const uintptr_t highest = bits_max((uintptr_t)local, (uintptr_t)&errno);
    const uintptr_t bytes = bits_align_up(highest - before + BARE_LOCAL_BYTES, 64);
    *pointer = memory + BARE_DESCRIPTOR_BYTES;
    *end = memory + OS_BARE_BYTES;
#endif
    return bytes <= OS_BARE_BYTES - BARE_DESCRIPTOR_BYTES - BARE_STACK_BYTES;
}

static bool bare_set_signals(const uint64_t *blocked, uint64_t *before) {
    return os_syscall6(SYS_rt_sigprocmask, SIG_SETMASK, (long)(uintptr_t)blocked,
                       (long)(uintptr_t)before, sizeof *blocked, 0, 0) == 0;
}

MALLOW_INTERNAL bool os_bare_start(struct os_bare *bare, void (*function)(void *argument),
                                   void *argument, const void *local) {
    static const uint64_t all = UINT64_MAX;
    uintptr_t pointer;
    uintptr_t end;
    uint64_t blocked;
    if (os_bare_number(bare) != 0 || !bare_lay_out(bare, local, &pointer, &end)) {
        return false;
    }
    bare->function = function;
    bare->argument = argument;
    if (!bare_set_signals(&all, &blocked)) { // the program's handlers would run on its small stack
        return false;
    }
    const int number = __clone(bare_main, (void *)end, BARE_FLAGS, bare, &bare->number,
                               (void *)pointer, &bare->number);
    (void)bare_set_signals(&blocked, NULL);
    return number > 0;
}

#endif

// One call, so that nothing of the program's is held meanwhile, nor closed if the other half fails.
MALLOW_INTERNAL void os_bare_part_files(void) {
    if (!BARE_IS_KNOWN) {
        (void)os_syscall6(BARE_SYS_CLOSE_RANGE, 0, UINT32_MAX, BARE_CLOSE_UNSHARED, 0, 0, 0);
    }
}
