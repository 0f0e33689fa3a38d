// SPDX-License-Identifier: MIT
// API: what the bodies of the public calls, and the names of others, are made of.
//
// Owns     nothing.
// Threads  any. Calls here check arguments, set errno and delegate.
#ifndef MALLOW_API_API_H
#define MALLOW_API_API_H

#include <errno.h>

#include "heap/heap_fast.h"
#include "mallow/mallow.h"
#include "process/process_operators.h"

// ---- Slow twins (api_slow.c) --------------------------------------------------------------------

// The arguments stand as those of the public calls do, so that handing over costs no moves.
MALLOW_INTERNAL void *api_malloc_slow(size_t size, struct heap *heap);
MALLOW_INTERNAL void *api_zalloc_slow(size_t size, struct heap *heap);
MALLOW_INTERNAL void *api_malloc_aligned_slow(size_t size, size_t alignment);
MALLOW_INTERNAL void *api_zalloc_aligned_slow(size_t size, size_t alignment);
MALLOW_INTERNAL int api_posix_memalign_slow(size_t size, size_t alignment, void **block_address);
// `slab`: heap_fast_slab of the two.
MALLOW_INTERNAL void api_free_slow(void *block, struct heap *heap, struct slab *slab);
MALLOW_INTERNAL void api_reallocate_to_none_slow(void *block, struct heap *heap, struct slab *slab);
MALLOW_INTERNAL void api_free_emptied(struct slab *slab);
MALLOW_INTERNAL void *api_fail(int error); // sets errno, returns NULL

// ---- Building blocks ----------------------------------------------------------------------------

// Blocks of slices of their own that a thread has at most before it has a heap.
enum { API_APART_MAX = 4 };

// How a block is to lie. Offset 0 and alignment 16 or less are the plain case.
struct api_layout {
    size_t alignment; // power of two
    size_t offset;    // (block + offset) is what is aligned
};

MALLOW_INTERNAL void *api_allocate(size_t size, struct api_layout layout, bool zeroed);

// realloc in all its forms: NULL allocates; `zeroed` keeps the zero-preserving promise.
// `usable_bytes`: what heap_own_usable says of the block, or 0 where it was not asked.
MALLOW_INTERNAL void *api_reallocate(void *block, size_t size, struct api_layout layout,
                                     bool zeroed, size_t usable_bytes);

// A block that finds no memory to move to: it stays where it is if it is large enough, so that a
// size within its usable one never fails; else NULL.
MALLOW_INTERNAL void *api_resize_stay(const struct heap_block *found, void *block, size_t size,
                                      struct api_layout layout, bool zeroed);

// The zero-preserving promise for a block that stayed: what lies beyond `size`, and what came new,
// reads as zero.
MALLOW_INTERNAL void api_zero_resized(void *block, size_t usable_before, size_t usable_after,
                                      size_t size);

// `usable_after` for that, of a block that had so much mapped if it is a huge one, else 0. Beyond
// what was mapped the kernel gives zero, unless kept pages came in; between, old contents may
// linger.
MALLOW_INLINE size_t api_stale_bytes(const struct heap_block *found, size_t mapped_before,
                                     size_t usable_after) {
    return mapped_before != 0 && !found->huge->extended ? bits_min(usable_after, mapped_before)
                                                        : usable_after;
}

// In place or NULL, errno kept.
MALLOW_INTERNAL void *api_expand(void *block, size_t size);

// Usable size; misuse stops the program. `call` names the call in the message.
MALLOW_INTERNAL size_t api_usable_size(const void *block, const char *call) MW_ADDRESS(1);

// Stops the program unless `size` may be the size of this block.
MALLOW_INTERNAL void api_check_size(const void *block, size_t size, size_t alignment);

MALLOW_INTERNAL size_t api_page_bytes(void);

// operator new: the slow path of malloc; if that fails, new_handler, then bad_alloc.
MALLOW_INTERNAL void *api_new_slow(size_t size, struct heap *heap);
MALLOW_INTERNAL void *api_new_nothrow_slow(size_t size, struct heap *heap);
MALLOW_INTERNAL bool api_has_throw(void); // a C++ run-time was there when the program started
MALLOW_INTERNAL struct process_operators *api_operators(void);
MALLOW_INTERNAL struct process_libc *api_libc(void);
MALLOW_INTERNAL void api_foreign_look(void); // see process_foreign_look

// glibc's control surface, for the override layer (api_control.c).
struct api_totals {
    size_t arena_bytes;      // committed for slabs and large blocks
    size_t live_bytes;       // in them
    size_t free_bytes;       // in them
    size_t free_count;
    size_t huge_bytes;       // in mappings of their own
    size_t huge_count;
    size_t releasable_bytes; // what malloc_trim would give back
};
MALLOW_INTERNAL void api_control_totals(struct api_totals *totals);
MALLOW_INTERNAL void api_control_stats(int fd);
// The document of malloc_info, in a block of its own; NULL: no memory.
MALLOW_INTERNAL char *api_control_xml(size_t *length);
MALLOW_INTERNAL int api_control_set_trim_threshold(long bytes);
MALLOW_INTERNAL bool api_control_set_mmap_threshold(long bytes);

// The program is about to bar itself from system calls, such as creating a thread: see worker.h.
// True: api_sandbox_ends is to follow, which says whether it has.
MALLOW_INTERNAL bool api_sandbox_begins(void);
MALLOW_INTERNAL void api_sandbox_ends(bool barred);

// Around a call by which the program parts from what the threads of a process have in common, or
// changes what they may do: meanwhile there is no thread of ours.
MALLOW_INTERNAL void api_parting_begins(void);
MALLOW_INTERNAL void api_parting_ends(void);

// The program is about to limit its address space to `limit` bytes.
MALLOW_INTERNAL void api_confinement_begins(size_t limit);
// It has limited it to no less, SIZE_MAX: not at all; or, 0, some other memory.
MALLOW_INTERNAL void api_confinement_ends(size_t limit);

// The program is about to have all its memory locked; and has had it so, or has been refused.
struct api_locking {
    bool parted; // our thread is not to come meanwhile
    bool closed; // what is kept ready has been given back
};
MALLOW_INTERNAL struct api_locking api_locking_begins(void);
MALLOW_INTERNAL void api_locking_ends(struct api_locking locking, bool locked);

// ---- The fast path ------------------------------------------------------------------------------

// Ends an allocation that has failed, or after which something is due.
MALLOW_INTERNAL void *api_allocate_end(size_t size, struct heap *heap, uintptr_t address);

MALLOW_INLINE void *api_malloc(size_t size) {
    struct heap *const heap = heap_current();
    uintptr_t address;
    if (likely(size <= MALLOW_SMALL_BYTES_MAX && heap_fast_allocate(heap, size, &address))) {
        return (void *)address;
    }
    return api_malloc_slow(size, heap);
}

// Not api_malloc and a test: the slow path as the last call needs no frame, and no test here.
MALLOW_INLINE void *api_new(size_t size) {
    struct heap *const heap = heap_current();
    uintptr_t address;
    if (likely(size <= MALLOW_SMALL_BYTES_MAX && heap_fast_allocate(heap, size, &address))) {
        return (void *)address;
    }
    return api_new_slow(size, heap);
}

MALLOW_INLINE void *api_new_nothrow(size_t size) {
    struct heap *const heap = heap_current();
    uintptr_t address;
    if (likely(size <= MALLOW_SMALL_BYTES_MAX && heap_fast_allocate(heap, size, &address))) {
        return (void *)address;
    }
    return api_new_nothrow_slow(size, heap);
}

// `slow`: what frees a block that the fast path does not.
MALLOW_INLINE void api_free_else(void *block, void (*slow)(void *block, struct heap *heap,
                                                           struct slab *slab)) {
    struct heap *const heap = heap_current();
    struct slab *slab;
    const enum heap_fast_result result = heap_fast_free(heap, (uintptr_t)block, &slab);
    if (unlikely(result == HEAP_FAST_SLOW)) {
        slow(block, heap, slab);
    } else if (unlikely(result == HEAP_FAST_EMPTIED)) {
        api_free_emptied(slab);
    }
}

MALLOW_INLINE void api_free(void *block) {
    api_free_else(block, api_free_slow);
}

// realloc to a size of 0. Where free has to look further, the block is looked up first, so that
// what is no block is said of the call that was made.
MALLOW_INLINE void api_reallocate_to_none(void *block) {
    api_free_else(block, api_reallocate_to_none_slow);
}

// Zeroes a block of `size` bytes, a multiple of a granule: by stores that overlap, up to two lines.
MALLOW_INLINE void api_zero_small(void *block, size_t size) {
    typedef long long granule __attribute__((vector_size(16), aligned(16), may_alias));
    const granule zero = {0, 0};
    char *const at = block;
    if (likely(size <= 64)) {
        *(granule *)at = zero;
        *(granule *)(at + size - 16) = zero;
        if (size > 32) {
            *(granule *)(at + 16) = zero;
            *(granule *)(at + size - 32) = zero;
        }
    } else {
        __builtin_memset(block, 0, size);
    }
}

MALLOW_INLINE void *api_zalloc(size_t size) {
    struct heap *const heap = heap_current();
    if (likely(size <= MALLOW_SMALL_BYTES_MAX)) {
        struct slab *const slab = heap_fast_current(heap, size);
        uintptr_t address;
        if (likely(slab_take(slab, &address))) {
            // The whole block, not only what was asked for: rezalloc builds on it.
            api_zero_small((void *)address, slab->block_bytes);
            return (void *)address;
        }
    }
    return api_zalloc_slow(size, heap);
}

MALLOW_INLINE void *api_calloc(size_t count, size_t size) {
    size_t total;
    if (unlikely(!bits_multiply(count, size, &total))) {
        return api_fail(ENOMEM);
    }
    return api_zalloc(total);
}

// `alignment` is a power of two or 0. A size that is a multiple of it has a class that is one as
// well (size_class.h). One comparison sends size 0, alignment 0, sums that overflow and all that is
// large to the slow path: in each of these the rounded size is 0 or large.
MALLOW_INLINE bool api_take_aligned(size_t size, size_t alignment, uintptr_t *address) {
    const size_t rounded = (size + alignment - 1) & (0 - alignment);
    return rounded - 1 < MALLOW_SMALL_BYTES_MAX &&
           heap_fast_allocate(heap_current(), rounded, address);
}

MALLOW_INLINE void *api_malloc_aligned(size_t size, size_t alignment) {
    uintptr_t address = 0; // for compilers that do not see that it is set (-Og)
    return likely(api_take_aligned(size, alignment, &address))
               ? (void *)address
               : api_malloc_aligned_slow(size, alignment);
}

#endif
