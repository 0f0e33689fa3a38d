// SPDX-License-Identifier: MIT
// mallow: heaps of the program's own, of two kinds: with a stated reserve, for the part of a
// program that must not wait; and heaps that grow, for a part that may hold only so much, or is to be
// freed at once.
//
// A heap with a reserve takes it all when it is made, in chunks of 2 MiB, brought in and locked if
// asked to. From then on every call below marked REAL TIME
//   - makes no system call, and meets no page fault in blocks or bookkeeping (where prefaulted);
//   - takes no lock: another thread may be stopped anywhere, in a call of this heap too, and does not
//     hold this one up. What other threads free comes back by compare and swap;
//   - fails with NULL and errno = ENOMEM when the reserve is used up, and says why in
//     mw_heap_last_status. The reserve is also the heap's limit: it never grows.
// The rest of the program goes on with malloc as ever. (MALLOW_MODE=realtime does the same for all of
// malloc, see the guide.)
//
// A heap that grows takes memory as malloc does, gives it back as free does, and has blocks of any
// size. Its limits are like the process's (mallow/limit.h), which hold besides. What it holds:
// the slabs (mostly 64 KiB) that its blocks lie in, in full; blocks above 64 KiB in units of 64 KiB,
// above 1 MiB in pages, and 1 MiB at least if aligned to more than that. Before its soft limit is
// exceeded, it gives back slabs that are wholly free and collects what other threads have freed;
// then its function is called. Beyond its hard limit it
// does so as well, and tries once more; then the request is NULL with errno = ENOMEM. What it holds is
// never more than that, whoever frees and resizes its blocks.
//
// A heap is for one thread at a time. Its blocks are blocks like any other: every thread may free one
// with mw_free or free, ask for its usable size, read and write it.
#ifndef MALLOW_HEAP_H
#define MALLOW_HEAP_H

#include <mallow/limit.h>
#include <mallow/mallow.h>

#ifdef __cplusplus
extern "C" {
#endif

enum mw_heap_status {
    MW_HEAP_OK = 0,
    MW_HEAP_BAD_CONFIG = 1,    // a NULL pointer, a size_bytes of another structure, limits or a
                               // function together with a reserve, prefault or lock without one
    MW_HEAP_SEALED = 2,        // MALLOW_MODE=realtime: all memory is set apart already
    MW_HEAP_NO_MEMORY = 3,     // the reserve could not be had; growth: the kernel, or the process's
                               // limit, refuses
    MW_HEAP_NOT_PREFAULTED = 4, // not so much memory is free, or the kernel gave no pages for it
    MW_HEAP_NOT_LOCKED = 5,    // brought in, but not locked: see RLIMIT_MEMLOCK
    MW_HEAP_EXHAUSTED = 6,     // no room just now in the reserve, or below the limit: what is freed
                               // makes some
    MW_HEAP_TOO_BIG = 7,       // larger than any block of a heap with a reserve: 1 MiB, or aligned to
                               // more than that; or than any block at all
    MW_HEAP_BAD_ALIGNMENT = 8, // no power of two
};

// One English sentence a status, without a full stop; never NULL.
MW_API const char *mw_heap_status_text(enum mw_heap_status status);

// Begin with a zeroed structure.
struct mw_heap_config {
    size_t size_bytes;    // sizeof(struct mw_heap_config) of the caller
    size_t reserve_bytes; // rounded up to 2 MiB; see mw_heap_malloc for what it holds; 0: it grows
    bool prefault;        // touch every page now
    bool lock;            // lock every page in memory, which prefaults it as well
    // Of a heap that grows:
    uint64_t limit_bytes; // the hard limit; 0: none
    uint64_t soft_bytes;  // the soft limit; 0: none; above the hard one it has no effect
    // Called with MALLOW_SHED_SOFT_LIMIT and MALLOW_SHED_REFUSED, as mw_shed_register says, on the
    // thread that allocates, in its call; the figures are the heap's. It may use the heap. NULL:
    // none. What it allocates does not call it again.
    mw_shed_function shed;
    void *shed_argument;
};

struct mw_heap;

// Makes a heap; *heap is NULL on failure, and nothing is kept (but a few pages of tables that were
// locked by then, and serve other heaps, stay so). A handful of system calls and a few
// short locks, for one that grows mostly none; with a reserve, a look at what is left of each heap
// that has ended with a smaller one; before 16 MiB or more are brought in, files of /proc
// and of the cgroup are read, to see whether so much is free. Any thread.
MW_API enum mw_heap_status mw_heap_create(const struct mw_heap_config *config, struct mw_heap **heap);

// Ends a heap and gives its reserve back, whatever of it is in use: no block of it may be touched, or
// freed, any more, by any thread. NULL is passed over. O(reserve / 2 MiB); of a heap that grows,
// O(memory of all heaps / 64 KiB), and for each of its blocks above 1 MiB a system call and a search
// through all such blocks that are live. As free, it may start the background thread.
MW_API void mw_heap_destroy(struct mw_heap *heap);

// Sets the limits of a heap that grows, from now on; 0: none. What is held already stays. Cost: a
// few stores under the short lock of mw_option_set. Any thread: of two calls at once, both limits
// are the later one's. MW_HEAP_BAD_CONFIG: NULL, or a heap with a reserve.
MW_API enum mw_heap_status mw_heap_set_limits(struct mw_heap *heap, uint64_t limit_bytes,
                                              uint64_t soft_bytes);

// A block of `size` bytes, as mw_malloc. Of the reserve each size class in use takes a slab, mostly
// of 64 KiB, and blocks above 64 KiB take whole 64 KiB; so do those above 8 KiB where no slab of
// their class, of up to 512 KiB, is to be had any more. REAL TIME.
MW_API MW_MUST_USE MW_SIZE(2) void *mw_heap_malloc(struct mw_heap *heap, size_t size);

// The same, zeroed: the block is written to in the call. REAL TIME.
MW_API MW_MUST_USE MW_SIZE(2, 3) void *mw_heap_calloc(struct mw_heap *heap, size_t count, size_t size);

// The same, aligned to a power of two (else EINVAL). REAL TIME.
MW_API MW_MUST_USE void *mw_heap_aligned_alloc(struct mw_heap *heap, size_t alignment, size_t size);

// Resizes a block of this heap, in place or by a copy; NULL leaves the block as it was. A size
// within its usable one never fails (errno may be ENOMEM all the same). REAL TIME.
MW_API MW_MUST_USE void *mw_heap_realloc(struct mw_heap *heap, void *block, size_t size);

// Frees a block of this heap, or of any, with no atomic operation in the usual case (mw_free by the
// heap's thread does as well, at the price of another thread's free). REAL TIME.
MW_API void mw_heap_free(struct mw_heap *heap, void *block);

// The other calls of mallow/mallow.h for blocks of a heap, each as its namesake there without `heap`:
// what fails is NULL with errno and a status, a product that overflows MW_HEAP_TOO_BIG. REAL TIME, but
// for mw_heap_realpath, which asks the kernel for the path (and has no status for one that it cannot
// resolve, only errno). Sizes are asked for with mw_usable_size.
MW_API MW_MUST_USE MW_SIZE(2) void *mw_heap_zalloc(struct mw_heap *heap, size_t size);
MW_API MW_MUST_USE MW_SIZE(2, 3) void *mw_heap_mallocn(struct mw_heap *heap, size_t count, size_t size);
MW_API MW_MUST_USE MW_SIZE(3, 4) void *mw_heap_reallocn(struct mw_heap *heap, void *block, size_t count,
                                                        size_t size);
MW_API MW_MUST_USE MW_SIZE(3) void *mw_heap_reallocf(struct mw_heap *heap, void *block, size_t size);
MW_API MW_MUST_USE MW_SIZE(2) MW_ALIGN(3) void *mw_heap_malloc_aligned(struct mw_heap *heap, size_t size,
                                                                       size_t alignment);
MW_API MW_MUST_USE MW_SIZE(2) MW_ALIGN(3) void *mw_heap_zalloc_aligned(struct mw_heap *heap, size_t size,
                                                                       size_t alignment);
MW_API MW_MUST_USE MW_SIZE(2, 3) MW_ALIGN(4) void *mw_heap_calloc_aligned(struct mw_heap *heap, size_t count,
                                                                          size_t size, size_t alignment);
MW_API MW_MUST_USE MW_SIZE(3) MW_ALIGN(4) void *mw_heap_realloc_aligned(struct mw_heap *heap, void *block,
                                                                        size_t size, size_t alignment);
// For blocks that were allocated zeroed, and resized by these four alone.
MW_API MW_MUST_USE MW_SIZE(3) void *mw_heap_rezalloc(struct mw_heap *heap, void *block, size_t size);
MW_API MW_MUST_USE MW_SIZE(3, 4) void *mw_heap_recalloc(struct mw_heap *heap, void *block, size_t count,
                                                        size_t size);
MW_API MW_MUST_USE MW_SIZE(3) MW_ALIGN(4) void *mw_heap_rezalloc_aligned(struct mw_heap *heap, void *block,
                                                                         size_t size, size_t alignment);
MW_API MW_MUST_USE MW_SIZE(3, 4) MW_ALIGN(5) void *mw_heap_recalloc_aligned(struct mw_heap *heap, void *block,
                                                                            size_t count, size_t size,
                                                                            size_t alignment);
MW_API MW_MUST_USE char *mw_heap_strdup(struct mw_heap *heap, const char *text);
MW_API MW_MUST_USE char *mw_heap_strndup(struct mw_heap *heap, const char *text, size_t limit);
MW_API MW_MUST_USE char *mw_heap_realpath(struct mw_heap *heap, const char *path, char *resolved);

// Why the last of these calls that returned NULL did so; MW_HEAP_OK: none has.
MW_API enum mw_heap_status mw_heap_last_status(const struct mw_heap *heap);

// The heap that `pointer` is the start of a live block of; NULL if it is a thread's block, or none at
// all: any value may be asked about, as with mw_is_owned. Whoever has resized it by another call than
// mw_heap_realloc may have moved it to the thread's own memory. O(1), no lock. Any thread; not while the
// heap it may lie in is being ended.
MW_API struct mw_heap *mw_heap_of(const void *pointer) MW_ADDRESS(1);

// True iff that is this heap; false for NULL. The same cost.
MW_API bool mw_heap_contains(const struct mw_heap *heap, const void *pointer) MW_ADDRESS(2);

// One value of the program's for each heap, NULL at first: with mw_heap_of, from a block to what its
// heap stands for. mw_heap_value(NULL) is NULL. Any thread. REAL TIME.
MW_API void mw_heap_set_value(struct mw_heap *heap, void *value);
MW_API void *mw_heap_value(const struct mw_heap *heap);

struct mw_heap_stats {
    size_t size_bytes;      // in: sizeof(struct mw_heap_stats) of the caller
    uint64_t reserve_bytes; // what the heap was given
    uint64_t free_bytes;    // of that, in no slab or large block
    uint64_t refused_count; // requests that got NULL
    uint64_t held_bytes;    // what counts against the limits, now; of a reserve, what is not free
    uint64_t limit_bytes;   // the hard limit, or the reserve; UINT64_MAX: none
    uint64_t soft_bytes;    // the soft limit; UINT64_MAX: none
    uint64_t shed_count;    // calls of the heap's function
};

// Fills *stats up to its size_bytes; false (nothing written) if that is less than two fields.
// O(reserve / 2 MiB), no lock. Any thread.
MW_API bool mw_heap_stats_get(const struct mw_heap *heap, struct mw_heap_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
