// SPDX-License-Identifier: MIT
// Worker, who is calling: a thread is not created on behalf of code that may hold a lock which
// pthread_create takes. See worker.h.
//
// Holds    a caller is unfit if it lies in libc, in the loader, in the library that pthread_create
//          comes from (which may be one that wraps it), or in this library: then the program's call
//          has not come here by jumps, and whoever made it is not known.
//          No caller is fit where they cannot be told apart: in a program that libc is part of, and
//          in a build that calls where it should jump.
#include "process/worker.h"

#include <link.h>
#include <sys/auxv.h>

struct worker_search {
    struct worker *worker;
    uintptr_t points[WORKER_RANGE_COUNT]; // an address in each
};

// Takes down where an object lies if one of the points is in it. Not the program itself: what is
// linked into it lies side by side with the program's own code.
static int worker_note_object(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    struct worker_search *const search = data;
    if (info->dlpi_name == NULL || info->dlpi_name[0] == '\0') {
        return 0;
    }
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *const header = &info->dlpi_phdr[i];
        if (header->p_type != PT_LOAD || (header->p_flags & PF_X) == 0) {
            continue;
        }
        const struct worker_range range = {info->dlpi_addr + header->p_vaddr, header->p_memsz};
        for (unsigned j = 0; j < WORKER_RANGE_COUNT; j++) {
            if (search->points[j] - range.start < range.bytes) {
                search->worker->ranges[j] = range;
            }
        }
    }
    return 0;
}

// The loader's first code: its entry point, from the header at the base that the kernel tells.
static uintptr_t worker_loader_entry(void) {
    const uintptr_t base = getauxval(AT_BASE);
    return base != 0 ? base + ((const ElfW(Ehdr) *)base)->e_entry : 0;
}

// At start, so all is named to lie with what start-up runs (cmake/rare.ld).

// Where the call of worker_note_jump comes from, if that gets here by a jump, as the slow paths do.
// What is passed is unknown to the compiler, so that it makes no version for each call.
static MALLOW_NOINLINE uintptr_t worker_note_return(uintptr_t value) {
    compiler_forget(value);
    return (uintptr_t)__builtin_return_address(0);
}

static MALLOW_NOINLINE uintptr_t worker_note_jump(uintptr_t value) {
    compiler_forget(value);
    return worker_note_return(value);
}

// Two calls come from two places. If they look like one, a place in worker_note_jump is seen.
static MALLOW_NOINLINE bool worker_note_sight(uintptr_t value) {
    compiler_forget(value);
    const uintptr_t first = worker_note_jump(value);
    compiler_forget(value);
    const uintptr_t second = worker_note_jump(value);
    return first != second;
}

MALLOW_INTERNAL void worker_note_callers(struct worker *worker) {
    struct worker_search search = {worker,
                                   {(uintptr_t)&getauxval, worker_loader_entry(),
                                    (uintptr_t)&pthread_create, (uintptr_t)&worker_note_callers}};
    (void)dl_iterate_phdr(worker_note_object, &search);
    worker->blind = worker->ranges[WORKER_RANGE_LIBC].bytes == 0 || !worker_note_sight(1);
}

MALLOW_INTERNAL bool worker_caller_is_fit(const struct worker *worker, uintptr_t caller) {
    bool found = worker->blind;
    for (unsigned i = 0; i < WORKER_RANGE_COUNT; i++) {
        found |= caller - worker->ranges[i].start < worker->ranges[i].bytes;
    }
    return !found;
}
