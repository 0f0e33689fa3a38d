// SPDX-License-Identifier: MIT
// OS: everything the host must provide, and the only layer that asks it.
//
// Owns     nothing: what has to be remembered (call counts) is in the struct os that is passed in.
// Threads  any. Locks sleep in the kernel by futex when contended.
// Holds    no call touches errno; after start only mmap, munmap, madvise, mremap and futex are
//          used, so a sandbox that allows these is enough.
#ifndef MALLOW_OS_H
#define MALLOW_OS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/compiler.h"
#include "config.h"
#include "os/charge.h"

// Facts of the process, read once at start, and counts of calls since.
struct os {
    size_t page_bytes;               // 4, 16 or 64 KiB
    const char *root;                // the system's files are found behind it: "", or for tests
    size_t address_space_limit;      // RLIMIT_AS, SIZE_MAX if none; may change (os_confine)
    bool name_mappings;              // label our mappings by prctl
    bool sealed;                     // memory is neither taken nor given back any more: every call
                                     // below that would do so fails, without a system call
    bool polls_growth;               // growth may be work (huge pages are wanted)
    bool keeps_small;                // no fault in our mappings is to make a huge page
    bool keeps_by_advice;            // the kernel does not take that from mmap: a second call
    _Atomic(bool) has_forked;        // pages may be shared with another process
    bool wants_giant;                // giant pages are to be used: the first arena begins on one
    uintptr_t giant_address;         // where they are: nothing of them is ever given back
    size_t giant_bytes;              // 0: none
    bool knows_node;                 // a thread's NUMA node is to be had without a system call
    _Atomic(uint32_t) node_pretended; // for tests: the NUMA node that every thread is on, and one
    pid_t process_id;                // whose memory this is, 0: it has yet to begin; a child by
                                     // vfork, or a clone that we are not told of, is another
    _Atomic(uintptr_t) break_at_start; // where libc's own heap would begin, or a block of it below
    bool locks_all;                  // the program has its memory locked: all that is mapped has
                                     // its pages at once; relaxed reads
    _Atomic(uint64_t) map_count;     // calls by kind, relaxed
    _Atomic(uint64_t) unmap_count;
    _Atomic(uint64_t) advise_count;
    _Atomic(uint64_t) remap_count;
    _Atomic(uint64_t) entry_count;   // all of them
    struct os_charge charge;         // what is held, and may be
    _Atomic(uint32_t) work;          // enum os_work
};

// The program break: libc's malloc takes memory there, we never do. 0: there is none.
MALLOW_INTERNAL uintptr_t os_break(void);

// Whether an address lies in what it has grown by since the start. Makes no system call with glibc.
MALLOW_INTERNAL bool os_is_in_break(const struct os *os, uintptr_t address);

// What is worth looking after: so much free memory is kept, or memory in use has grown so much.
enum os_work { OS_WORK_KEPT = 1, OS_WORK_GROWN = 2 };

// Says so. Whoever keeps memory calls it; a layer above acts on it, and takes it back.
MALLOW_INLINE void os_raise(struct os *os, enum os_work work) {
    if ((atomic_load_explicit(&os->work, memory_order_relaxed) & work) == 0) {
        atomic_fetch_or_explicit(&os->work, work, memory_order_relaxed);
    }
}

MALLOW_INLINE void os_raise_work(struct os *os) {
    os_raise(os, OS_WORK_KEPT);
}

// How often the kernel has been asked for or given memory. A call that finds it as it was has its
// own system call still to spare; others' calls count too, which only puts work off.
MALLOW_INLINE uint64_t os_entries(struct os *os) {
    return atomic_load_explicit(&os->entry_count, memory_order_relaxed);
}

// Counts a call of a kind, before it is made.
MALLOW_INLINE void os_count(struct os *os, _Atomic(uint64_t) *kind) {
    atomic_fetch_add_explicit(kind, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&os->entry_count, 1, memory_order_relaxed);
}

// Fills in the facts. Any time, also before libc's own start-up has finished.
MALLOW_INTERNAL void os_init(struct os *os);

// Address space without memory behind it (no access, no commit charge), aligned to `alignment` (a
// power of two, at least the page size); 0 if the kernel refuses.
MALLOW_INTERNAL uintptr_t os_reserve(struct os *os, size_t bytes, size_t alignment);

// Leaves a mapping out of dumps, for as long as it is one: a debugger (gcore) writes every byte of
// what is in them, touched or not, and stops the program meanwhile. What is committed later is a
// mapping of its own. One call.
MALLOW_INTERNAL void os_leave_undumped(struct os *os, uintptr_t address, size_t bytes);

// Makes a page-aligned part of a reservation readable and writable, reading as zero. One call.
// False: it is reserved as before, and may be readable (a second call).
MALLOW_INTERNAL bool os_commit(struct os *os, uintptr_t address, size_t bytes);

// Makes a page-aligned part of a reservation readable only, reading as zero, without commit charge.
MALLOW_INTERNAL bool os_commit_readable(struct os *os, uintptr_t address, size_t bytes);

// Takes memory away from a committed part again: what os_reserve gave is what is left.
MALLOW_INTERNAL bool os_decommit(struct os *os, uintptr_t address, size_t bytes);

// A readable and writable zeroed mapping, aligned as asked; 0 if the kernel refuses. One call where
// `alignment` is at most the page size.
MALLOW_INTERNAL uintptr_t os_map(struct os *os, size_t bytes, size_t alignment);

// Returns address space. May fail when the process has no mapping to spare: then the range is still
// there, and the caller keeps it.
MALLOW_INTERNAL bool os_unmap(struct os *os, uintptr_t address, size_t bytes);

// Gives the pages back; the range reads as zero afterwards. False: nothing happened.
MALLOW_INTERNAL bool os_purge(struct os *os, uintptr_t address, size_t bytes);

// Whether address space is limited, so that none is to be kept ready.
MALLOW_INLINE bool os_is_confined(const struct os *os) {
    return __atomic_load_n(&os->address_space_limit, __ATOMIC_RELAXED) != SIZE_MAX;
}

// Notes that it is limited to `limit` bytes from now on; false if it was already, to no more.
MALLOW_INTERNAL bool os_confine(struct os *os, size_t limit);
// The other way round: that it is limited no further; false if it was not.
MALLOW_INTERNAL bool os_unconfine(struct os *os, size_t limit);

// From now on mappings are labelled as ours in /proc/self/maps. False: the kernel does not do that,
// and is not asked again. One call.
MALLOW_INTERNAL bool os_name_start(struct os *os);

// The limit of the process's address space or data, whichever is less, in bytes; SIZE_MAX if
// neither is limited. One call.
MALLOW_INTERNAL size_t os_limit(const struct os *os);

// Resizes a mapping, moving it if it must and `may_move`; the pages move, not the bytes. 0 on
// failure, and where it would grow to a GiB or more, and many times over: a new mapping is wanted.
MALLOW_INTERNAL uintptr_t os_remap(struct os *os, uintptr_t address, size_t bytes, size_t new_bytes,
                                   bool may_move);

// Moves pages to `target`, in place of the caller's own mapping there.
enum os_moved {
    OS_MOVED,
    OS_NOT_MOVED,   // nothing has moved; `target` is the caller's, its contents are lost
    OS_TARGET_LOST, // nothing has moved; `target` may be another's now, and is not to be touched
    OS_BOTH_LOST,   // a part has moved: neither range is to be touched (Linux 6.17 and later, a
                    // range of several mappings)
};
MALLOW_INTERNAL enum os_moved os_move(struct os *os, uintptr_t address, size_t bytes,
                                      uintptr_t target);

// True iff the page that holds `address` is mapped and may be read. One call to three; for error
// paths.
MALLOW_INTERNAL bool os_is_mapped(const struct os *os, uintptr_t address);

// How much of a mapped, page-aligned range has pages in memory. For statistics alone: by mincore,
// one call for 16 MiB or so. What is not mapped counts nothing.
MALLOW_INTERNAL size_t os_resident(const struct os *os, uintptr_t address, size_t bytes);

// Writes all of `text` to a file descriptor; false if it does not take it all.
MALLOW_INTERNAL bool os_write(int fd, const char *text, size_t length);

// For what the program has not asked for at this moment. A reader that has gone, or a limit of file
// size, is no reason to end it: between the two calls SIGPIPE and SIGXFSZ of this thread's writes
// are held back, and dropped at the end. Four system calls, one more where there was one.
struct os_hush {
    uint64_t before;  // signals that were blocked
    uint64_t pending; // and those that waited
};
MALLOW_INTERNAL void os_hush(struct os_hush *hush);
MALLOW_INTERNAL void os_unhush(const struct os_hush *hush);

// os_write between the two.
MALLOW_INTERNAL bool os_tell(int fd, const char *text, size_t length);

// For who is about to abort, and is not to end by one of these two instead: they stay held back.
// One system call. True: this thread has been here before, and a handler of SIGABRT has come back.
MALLOW_INTERNAL bool os_hush_for_good(void);

// ---- Locks: not recursive, fair enough; all-zero is unlocked ---------------------------

struct os_lock {
    _Atomic(uint64_t) state;        // 0: free; else its holder and flags, see below
    uint32_t depth;                 // times that the thread below has passed through
    uint32_t interrupted;           // forks by signal handlers that have interrupted its holder
    _Atomic(uintptr_t) fork_thread; // the thread that holds it across a fork; 0 otherwise
};

// Whether the calling thread holds the lock: a signal handler can only find that if it has
// interrupted the holder.
MALLOW_INTERNAL bool os_lock_is_mine(const struct os_lock *lock);

// Takes the lock for as long as a fork lasts. Other handlers of the fork run on the same thread and
// may allocate: for that thread the lock is open. A lock that the calling thread holds already
// stays its own, after the fork as well. `hurried`: the thread holds a lock that the holder of this
// one may be waiting for, so this is waited for a moment only (some 10 ms), and then left alone.
MALLOW_INTERNAL void os_lock_take_for_fork(struct os_lock *lock, bool hurried);
MALLOW_INTERNAL void os_lock_drop_after_fork(struct os_lock *lock);

MALLOW_INTERNAL void os_lock_take(struct os_lock *lock);
MALLOW_INTERNAL void os_lock_drop(struct os_lock *lock);

// As os_lock_take, for work that can wait: does not ask to be woken, for 50 ms and more, but looks
// every 50 us. So no call of the program's enters the kernel to wake the background thread.
MALLOW_INTERNAL void os_lock_take_patiently(struct os_lock *lock);

MALLOW_INLINE uintptr_t os_this_thread(void) {
    return (uintptr_t)__builtin_thread_pointer();
}

// The state of a lock that is taken: its holder's thread pointer, whose low bits are not used, and
// these. The holder and the futex are one word, so that there is no moment at which a signal
// handler could not tell whether it has interrupted the holder.
enum { OS_LOCK_TAKEN = 1, OS_LOCK_AWAITED = 2, OS_LOCK_FLAGS = 3 };

MALLOW_INLINE uint64_t os_lock_mine(void) {
    return ((uint64_t)os_this_thread() & ~(uint64_t)OS_LOCK_FLAGS) | OS_LOCK_TAKEN;
}

MALLOW_INLINE bool os_lock_try(struct os_lock *lock, uint64_t mine) {
    uint64_t expected = 0;
    return atomic_compare_exchange_strong_explicit(&lock->state, &expected, mine,
                                                   memory_order_acquire, memory_order_relaxed);
}

// The same two for the few places where they are most often needed.
MALLOW_INLINE void os_lock_take_here(struct os_lock *lock) {
    if (unlikely(!os_lock_try(lock, os_lock_mine()))) {
        os_lock_take(lock);
    }
}

MALLOW_INLINE void os_lock_drop_here(struct os_lock *lock) {
    uint64_t mine = os_lock_mine();
    if (unlikely(lock->depth != 0) ||
        unlikely(!atomic_compare_exchange_strong_explicit(&lock->state, &mine, 0,
                                                          memory_order_release,
                                                          memory_order_relaxed))) {
        os_lock_drop(lock); // or somebody awaits it
    }
}

// In the child of a fork, where whoever held or awaited it is gone, unless the fork has interrupted
// its holder.
MALLOW_INTERNAL void os_lock_renew(struct os_lock *lock);

// Gives way to another thread that is inside a short critical section.
MALLOW_INTERNAL void os_pause(unsigned round);

// Sleeps until *word is no longer `expected`, somebody wakes it, or the time has passed. False: the
// kernel, or a filter, does not let us; no time has passed.
MALLOW_INTERNAL bool os_wait(_Atomic(uint32_t) *word, uint32_t expected, uint64_t nanoseconds);
MALLOW_INTERNAL void os_wake(_Atomic(uint32_t) *word);

#endif
