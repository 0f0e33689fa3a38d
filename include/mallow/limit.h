// SPDX-License-Identifier: MIT
// mallow: memory limits, and callbacks for programs that can shed what they cache.
//
// Limits are options (mallow/options.h): "limit", "soft_limit" and "pressure". What counts against
// them is what this allocator holds: memory of live blocks, in units of slabs and mappings; free
// memory that it keeps; and its own tables. Not the program's code, stacks, or mappings of its own.
//
// All calls may be made from any thread, and none allocates.
#ifndef MALLOW_LIMIT_H
#define MALLOW_LIMIT_H

#include <mallow/mallow.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- Figures ------------------------------------------------------------------------------------

struct mw_limits {
    size_t size_bytes;       // in: sizeof(struct mw_limits) of the caller
    uint64_t held_bytes;     // what counts, now
    uint64_t limit_bytes;    // the hard limit; UINT64_MAX: none
    uint64_t reserve_bytes;  // part of it for threads that have been refused; 0: no limit
    uint64_t soft_bytes;     // the soft limit; UINT64_MAX: none
    uint64_t refused_count;  // requests that returned NULL while a limit was set
    uint64_t shed_count;     // rounds of the callbacks below
    bool pressed;            // by the last look, tasks wait for memory more than option "pressure"
};

// Fills *limits up to its size_bytes; false (nothing written) if that is less than two fields.
// Reads a few counters: no lock, no system call.
MW_API bool mw_limits_get(struct mw_limits *limits);

// ---- Callbacks ----------------------------------------------------------------------------------

enum mw_shed_reason {
    MALLOW_SHED_SOFT_LIMIT = 1, // more than the soft limit is held; the request has succeeded
    MALLOW_SHED_PRESSURE = 2,   // tasks of the cgroup, or of the machine, wait for memory
    MALLOW_SHED_REFUSED = 3,    // a request is about to fail: it is tried once more afterwards
};

struct mw_shed_request {
    size_t size_bytes;     // sizeof(struct mw_shed_request) of the library
    uint32_t reason;       // enum mw_shed_reason
    uint64_t wanted_bytes; // REFUSED: of the request; SOFT_LIMIT: held above it; else 0
    uint64_t held_bytes;   // what counts, now
};

typedef void (*mw_shed_function)(const struct mw_shed_request *request, void *argument);

// Registers a function that frees what the program can do without. It runs inside an allocating
// call, on the thread that makes it, with no lock of the allocator held: it may free and allocate,
// set options, register and unregister. One round runs at a time in the process; a thread that
// falls short meanwhile goes on without one, as does what the function itself allocates (it sees
// NULL). It must return (no longjmp, no exception), and must not wait for a lock that the thread may
// hold while it allocates: try the lock, and return if it is taken. Above the soft limit a round
// comes at once and again each time that a 32nd of it, and 1 MiB, more is held; under pressure at
// most ten times a second.
// Compilers take it that malloc, calloc, realloc and new change no variable of the program. What the
// function changes (the head of a list, a count) must therefore be volatile, or read anew under the
// lock that the function tries, or the code that reads it around an allocation calls mw_malloc and
// its kin, of which compilers know nothing. -fno-builtin is not enough.
// 0, EINVAL (no function), EEXIST (this pair is registered) or ENOSPC (16 are). errno is kept.
MW_API int mw_shed_register(mw_shed_function function, void *argument);

// Takes it off; when the call returns the function is not running and will not be called again,
// unless it is the function itself that calls. 0, or ENOENT: it is not registered, or not any more,
// which holds as well. May wait for a round on another thread.
MW_API int mw_shed_unregister(mw_shed_function function, void *argument);

// ---- Heartbeat ----------------------------------------------------------------------------------

// For programs that put frees off, such as reference counting in bounded steps: a function that is
// called again and again as they allocate. `beat` counts the calls of the process from 1. `force`: a
// request is about to fail and will be tried once more, or mw_collect(true) was called: free all that
// waits; else a bounded part of it.
typedef void (*mw_heartbeat_function)(bool force, uint64_t beat, void *argument);

// Registers the one function. It is called by every allocation that finds no block at hand: so on each
// thread at the latest when its live blocks of one size class have grown by 1,216 or by 128 KiB since
// the last call, and with every block above 64 KiB. In a program of one thread the same calls in the
// same order have it called at the same ones, as long as nothing is given back for lying idle; after
// mallopt(M_TRIM_THRESHOLD, -1) that is always so, otherwise what has been given back in between may
// bring a call forward or put it off. A thread that exists already and is not the calling one hears of
// it when its heap next grows. It runs as a function of mw_shed_register does (so what it changes is
// not to be read around a plain malloc), but on several threads at once if they allocate; what it
// allocates itself does not call it. Heaps of mallow/heap.h call it
// as they grow, those with a reserve never. Without one, no call costs more.
// 0, EINVAL (no function) or EEXIST (there is one, or one is being taken off). errno is kept.
MW_API int mw_heartbeat_register(mw_heartbeat_function function, void *argument);

// Takes it off; when the call returns no other thread is in it, and it will not be called again. 0, or
// ENOENT: there is none, or none any more, which holds as well. May wait for other threads, and must not
// be called by two that are in the function.
MW_API int mw_heartbeat_unregister(void);

#ifdef __cplusplus
}
#endif

#endif
