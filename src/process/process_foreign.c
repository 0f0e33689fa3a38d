// SPDX-License-Identifier: MIT
// Foreign pointers: blocks of libc's own malloc, which a library bound with RTLD_DEEPBIND still
// uses, are handed to libc.
//
// Holds    nothing is read before its page is known to be mapped. A pointer is libc's iff it lies
//          in the program break's range (we never move the break), or has the shape of a block of
//          one of its mapped heaps or of a mapping of its own; and libc's malloc has been in use at
//          all. Mostly it has not: then a shape is forged.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // dlsym, dladdr
#endif
#include <dlfcn.h>
#include <malloc.h>
#include <unistd.h>

#include "process/process.h"

// A static executable has no dynamic linker to ask, and no second allocator either. Where dlsym is
// linked in all the same, it finds nothing.
#pragma weak dlsym

// The layout before a block of glibc's malloc, as its source documents: the size of the chunk, with
// flags in the low bits.
enum {
    LIBC_IN_USE_BEFORE = 1,
    LIBC_MAPPED = 2,
    LIBC_OTHER_ARENA = 4,
    LIBC_FLAGS = 7,
    LIBC_CHUNK_MIN = 32,
};
#define LIBC_HEAP_BYTES ((uintptr_t)64 << 20)

static bool foreign_is_readable(const struct process *process, uintptr_t address, size_t bytes) {
    return os_is_mapped(&process->os, address) &&
           os_is_mapped(&process->os, address + bytes - 1);
}

typedef struct mallinfo2 foreign_mallinfo2(void);
typedef void foreign_free(void *block);

static foreign_mallinfo2 *foreign_find_mallinfo2(struct process *process) {
    foreign_mallinfo2 *found = atomic_load_explicit(&process->libc.mallinfo2, memory_order_relaxed);
    if (found == NULL) {
        *(void **)&found = dlsym(RTLD_NEXT, "mallinfo2");
        atomic_store_explicit(&process->libc.mallinfo2, found, memory_order_relaxed);
    }
    return found;
}

// By the name that stays libc's (preload_dlopen.c).
static foreign_free *foreign_find_free(struct process *process) {
    foreign_free *found = atomic_load_explicit(&process->libc.free, memory_order_relaxed);
    if (found == NULL) {
        *(void **)&found = dlsym(RTLD_NEXT, "__libc_free");
        atomic_store_explicit(&process->libc.free, found, memory_order_relaxed);
    }
    return found;
}

MALLOW_INTERNAL void process_foreign_look(struct process *process) {
    if (dlsym != NULL) {
        (void)foreign_find_mallinfo2(process);
        (void)foreign_find_free(process);
    }
}

// What libc's malloc says of itself; false before glibc 2.33.
static bool foreign_ask_libc(struct process *process, struct mallinfo2 *figures) {
    foreign_mallinfo2 *const libc_mallinfo2 = foreign_find_mallinfo2(process);
    if (libc_mallinfo2 == NULL) {
        return false;
    }
    *figures = libc_mallinfo2();
    return true;
}

// Where libc's malloc was in use before us, its heap begins before that range: at a constructor
// of the C++ run-time's, say, with the override left out, or where a program opens us late. It
// begins no lower than by all that libc's arenas hold; below it lies the program's own data.
static MALLOW_COLD bool foreign_in_early_heap(struct process *process, uintptr_t address,
                                              uintptr_t break_now) {
    struct mallinfo2 figures;
    Dl_info object;
    if (dlsym == NULL || !foreign_ask_libc(process, &figures) ||
        break_now - address > figures.arena || dladdr((const void *)address, &object) != 0) {
        return false;
    }
    atomic_store_explicit(&process->os.break_at_start, address, memory_order_relaxed);
    return true;
}

static bool foreign_in_break(struct process *process, uintptr_t address) {
    const uintptr_t now = os_break();
    return os_is_in_break(&process->os, address) ||
           (address < now && foreign_in_early_heap(process, address, now));
}

static bool foreign_has_shape(struct process *process, uintptr_t address) {
    if (address % MALLOW_GRANULE_BYTES != 0 || address < 4096 || address >> 47 != 0) {
        return false;
    }
    if (!foreign_is_readable(process, address - 16, 16)) {
        return false;
    }
    const uintptr_t before = ((const uintptr_t *)address)[-2];
    const uintptr_t field = ((const uintptr_t *)address)[-1];
    const uintptr_t bytes = field & ~(uintptr_t)LIBC_FLAGS;
    if (bytes < LIBC_CHUNK_MIN || bytes % MALLOW_GRANULE_BYTES != 0) {
        return false;
    }
    if (foreign_in_break(process, address)) {
        return (field & (LIBC_MAPPED | LIBC_OTHER_ARENA)) == 0;
    }
    const uintptr_t chunk = address - 16;
    if ((field & LIBC_FLAGS) == LIBC_MAPPED) {
        const size_t page = process->os.page_bytes;
        // What lies before it is there for its alignment.
        const uintptr_t alignment = address & (0 - address);
        return (chunk - before) % page == 0 && (before + bytes) % page == 0 &&
               before <= alignment + LIBC_CHUNK_MIN;
    }
    if ((field & LIBC_OTHER_ARENA) != 0) {
        // A heap begins at a multiple of its maximum with a pointer to its arena and its size.
        const uintptr_t heap = address & ~(LIBC_HEAP_BYTES - 1);
        if (!foreign_is_readable(process, heap, 32)) {
            return false;
        }
        const uintptr_t arena = ((const uintptr_t *)heap)[0];
        const uintptr_t size = ((const uintptr_t *)heap)[2];
        return arena % 8 == 0 && size <= LIBC_HEAP_BYTES && chunk + bytes <= heap + size &&
               arena >> 47 == 0 && foreign_is_readable(process, arena, 8);
    }
    return false;
}

// Whether libc's malloc has ever handed out a block. Not asked again once it has: libc walks its
// free blocks to answer.
static bool foreign_libc_is_used(struct process *process) {
    if (atomic_load_explicit(&process->libc_is_used, memory_order_relaxed)) {
        return true;
    }
    struct mallinfo2 figures;
    if (foreign_ask_libc(process, &figures) && figures.arena == 0 && figures.hblks == 0) {
        return false;
    }
    atomic_store_explicit(&process->libc_is_used, true, memory_order_relaxed);
    return true;
}

// The shape last: where it is not asked about, nothing is read that another thread may just unmap,
// be it by the first free of a huge block of which this is the second.
static bool foreign_is_libc(struct process *process, uintptr_t address) {
    return dlsym != NULL && foreign_libc_is_used(process) &&
           foreign_find_free(process) != NULL && foreign_has_shape(process, address);
}

MALLOW_INTERNAL bool process_foreign_free(struct process *process, void *block) {
    if (!foreign_is_libc(process, (uintptr_t)block)) {
        return false;
    }
    foreign_find_free(process)(block);
    return true;
}

// Of a block that is not mapped by itself, the next one's first word is its own.
MALLOW_INTERNAL size_t process_foreign_size(struct process *process, void *block) {
    if (!foreign_is_libc(process, (uintptr_t)block)) {
        return 0;
    }
    const size_t field = ((const size_t *)block)[-1];
    const size_t own = (field & LIBC_MAPPED) != 0 ? 16 : 8;
    return (field & ~(size_t)LIBC_FLAGS) - own;
}
