// SPDX-License-Identifier: MIT
// mallow: the stable interface of the allocator.
//
// Unless a declaration says otherwise, every call below
//   - returns NULL with errno = ENOMEM when memory runs out or the size exceeds PTRDIFF_MAX, and
//     EOVERFLOW never: a product that overflows is ENOMEM too, as POSIX has it;
//   - returns a block aligned to 16 bytes (to the alignment asked for in the *_aligned forms);
//   - accepts size 0 and returns a unique block that must be freed;
//   - costs O(1); enters the kernel only when a new span of memory is needed; blocks only on the
//     short internal locks that protect spans, never on another thread's ordinary malloc or free;
//   - may be called from any thread, from fork handlers, and before any constructor has run; not
//     from a signal handler that interrupts another call of this interface;
//   - leaves errno alone on success.
// A pointer passed in must be NULL or a live block of this allocator. Anything else (freed,
// interior, misaligned or foreign) is recognised exactly and stops the program with one line on
// stderr; but a resize to a size or an alignment that no block can have fails before it looks.
#ifndef MALLOW_MALLOW_H
#define MALLOW_MALLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MALLOW_VERSION_MAJOR 0
#define MALLOW_VERSION_MINOR 1
#define MALLOW_VERSION_PATCH 0
#define MALLOW_VERSION_STRING "0.1.0"

// Upper bound, in bytes, of the sizes that the *_small calls take.
#define MALLOW_SMALL_SIZE_MAX 1024

#if defined(__GNUC__)
#define MW_API __attribute__((visibility("default")))
#define MW_MALLOC __attribute__((malloc))
#define MW_SIZE(...) __attribute__((alloc_size(__VA_ARGS__)))
#define MW_ALIGN(n) __attribute__((alloc_align(n)))
#define MW_MUST_USE __attribute__((warn_unused_result))
#else
#define MW_API
#define MW_MALLOC
#define MW_SIZE(...)
#define MW_ALIGN(n)
#define MW_MUST_USE
#endif

// Of a parameter that is looked at as an address alone: gcc takes a pointer to const for one whose
// target is read, and warns where that has nothing in it yet.
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 11
#define MW_ADDRESS(n) __attribute__((access(none, n)))
#else
#define MW_ADDRESS(n)
#endif

#ifdef __cplusplus
extern "C" {
#endif

// ---- Basic --------------------------------------------------------------------------------------

// Returns an uninitialised block of at least `size` bytes.
MW_API MW_MUST_USE MW_MALLOC MW_SIZE(1) void *mw_malloc(size_t size);

// Returns a zeroed block of count * size bytes. Large blocks are zeroed by the kernel, on first
// touch.
MW_API MW_MUST_USE MW_MALLOC MW_SIZE(1, 2) void *mw_calloc(size_t count, size_t size);

// Returns a zeroed block of `size` bytes.
MW_API MW_MUST_USE MW_MALLOC MW_SIZE(1) void *mw_zalloc(size_t size);

// Resizes `block` to `size` bytes, in place where that is possible; the contents up to the smaller
// of both sizes are kept. NULL allocates. On failure returns NULL and `block` stays as it was; a size
// within the block's usable one never fails (errno may be ENOMEM all the same). Size 0 returns a
// minimal block (it does not free).
MW_API MW_MUST_USE MW_SIZE(2) void *mw_realloc(void *block, size_t size);

// Frees `block`; NULL does nothing. Keeps errno. If another thread owns it, mostly one atomic
// operation (of blocks above 64 KiB, and where a slab is handed on, some ten).
MW_API void mw_free(void *block);

// As mw_free; states the size that was asked for, which is checked: a size larger than the block
// stops the program. (A smaller one may be true: realloc may leave a block where it is.)
MW_API void mw_free_sized(void *block, size_t size);

// As mw_free_sized for a block of the aligned calls; the alignment is checked as well.
MW_API void mw_free_aligned_sized(void *block, size_t alignment, size_t size);

// Frees `block` if it is a block of this allocator, and does nothing if it is not (mimalloc's
// cfree).
MW_API void mw_cfree(void *block);

// Resizes in place or returns NULL (errno kept), never moves; the block is as it was after NULL.
MW_API MW_MUST_USE void *mw_expand(void *block, size_t size);

// The same under N1527's name: in place or NULL.
MW_API MW_MUST_USE void *mw_try_realloc(void *block, size_t size);

// As mw_try_realloc; NULL as well where `block` is not aligned to `alignment`.
MW_API MW_MUST_USE void *mw_try_realloc_aligned(void *block, size_t size, size_t alignment);

// Copies of a string (of at most `limit` bytes of it), and of the resolved path.
// mw_realpath: `resolved` as in realpath(3); fails as realpath does.
MW_API MW_MUST_USE MW_MALLOC char *mw_strdup(const char *text);
MW_API MW_MUST_USE MW_MALLOC char *mw_strndup(const char *text, size_t limit);
MW_API MW_MUST_USE char *mw_realpath(const char *path, char *resolved);

// ---- Small: size <= MALLOW_SMALL_SIZE_MAX is a precondition -------------------------------------

MW_API MW_MUST_USE MW_MALLOC MW_SIZE(1) void *mw_malloc_small(size_t size);
MW_API MW_MUST_USE MW_MALLOC MW_SIZE(1) void *mw_zalloc_small(size_t size);
MW_API void mw_free_small(void *block);

// ---- Counted: count * size is checked for overflow (ENOMEM) -------------------------------------

MW_API MW_MUST_USE MW_MALLOC MW_SIZE(1, 2) void *mw_mallocn(size_t count, size_t size);
MW_API MW_MUST_USE MW_SIZE(2, 3) void *mw_reallocn(void *block, size_t count, size_t size);
MW_API MW_MUST_USE MW_SIZE(2, 3) void *mw_reallocarray(void *block, size_t count, size_t size);

// NetBSD's: *(void **)block_address is resized; 0 or an errno value (EOVERFLOW for the product,
// ENOMEM), errno kept. A product of 0 frees the block and stores NULL.
MW_API int mw_reallocarr(void *block_address, size_t count, size_t size);

// As mw_realloc, but frees `block` on failure.
MW_API MW_MUST_USE MW_SIZE(2) void *mw_reallocf(void *block, size_t size);

// ---- Zero-preserving ----------------------------------------------------------------------------
// For blocks that were allocated zeroed (zalloc, calloc, rezalloc, recalloc) and only ever resized
// by these: bytes beyond the old size, slack included, read as zero.

MW_API MW_MUST_USE MW_SIZE(2) void *mw_rezalloc(void *block, size_t size);
MW_API MW_MUST_USE MW_SIZE(2, 3) void *mw_recalloc(void *block, size_t count, size_t size);

// ---- Aligned ------------------------------------------------------------------------------------
// `alignment` is a power of two (else NULL and EINVAL), up to 1 GiB and more; size need not be a
// multiple of it. In the *_at forms (block + offset) is what is aligned. A block of these calls may
// be passed to every other call; plain mw_realloc keeps only 16, and of a block of the *_at forms not
// even that where it stays in place.

MW_API MW_MUST_USE MW_MALLOC MW_SIZE(1) MW_ALIGN(2) void *mw_malloc_aligned(size_t size, size_t alignment);
MW_API MW_MUST_USE MW_MALLOC MW_SIZE(1) void *mw_malloc_aligned_at(size_t size, size_t alignment, size_t offset);
MW_API MW_MUST_USE MW_MALLOC MW_SIZE(1) MW_ALIGN(2) void *mw_zalloc_aligned(size_t size, size_t alignment);
MW_API MW_MUST_USE MW_MALLOC MW_SIZE(1) void *mw_zalloc_aligned_at(size_t size, size_t alignment, size_t offset);
MW_API MW_MUST_USE MW_MALLOC MW_SIZE(1, 2) MW_ALIGN(3) void *mw_calloc_aligned(size_t count, size_t size, size_t alignment);
MW_API MW_MUST_USE MW_MALLOC MW_SIZE(1, 2) void *mw_calloc_aligned_at(size_t count, size_t size, size_t alignment, size_t offset);
MW_API MW_MUST_USE MW_SIZE(2) MW_ALIGN(3) void *mw_realloc_aligned(void *block, size_t size, size_t alignment);
MW_API MW_MUST_USE MW_SIZE(2) void *mw_realloc_aligned_at(void *block, size_t size, size_t alignment, size_t offset);
MW_API MW_MUST_USE MW_SIZE(2) MW_ALIGN(3) void *mw_rezalloc_aligned(void *block, size_t size, size_t alignment);
MW_API MW_MUST_USE MW_SIZE(2) void *mw_rezalloc_aligned_at(void *block, size_t size, size_t alignment, size_t offset);
MW_API MW_MUST_USE MW_SIZE(2, 3) MW_ALIGN(4) void *mw_recalloc_aligned(void *block, size_t count, size_t size, size_t alignment);
MW_API MW_MUST_USE MW_SIZE(2, 3) void *mw_recalloc_aligned_at(void *block, size_t count, size_t size,
                                                               size_t alignment, size_t offset);

// The POSIX, C11, BSD and SunOS forms under our prefix; argument rules and errno as each standard
// has it (posix_memalign: returns EINVAL unless alignment is a power of two and a multiple of
// sizeof(void *); aligned_alloc: any power of two; pvalloc: rounds the size up to whole OS pages).
MW_API int mw_posix_memalign(void **block_address, size_t alignment, size_t size);
MW_API MW_MUST_USE MW_MALLOC MW_SIZE(2) MW_ALIGN(1) void *mw_aligned_alloc(size_t alignment, size_t size);
MW_API MW_MUST_USE MW_MALLOC MW_SIZE(2) MW_ALIGN(1) void *mw_memalign(size_t alignment, size_t size);
MW_API MW_MUST_USE MW_MALLOC MW_SIZE(1) void *mw_valloc(size_t size);
MW_API MW_MUST_USE MW_MALLOC MW_SIZE(1) void *mw_pvalloc(size_t size);

// ---- Sizes --------------------------------------------------------------------------------------

// Bytes that may be used in a live block; 0 for NULL. Not less than what was asked for.
MW_API size_t mw_usable_size(const void *block) MW_ADDRESS(1);
MW_API size_t mw_malloc_size(const void *block) MW_ADDRESS(1);
MW_API size_t mw_malloc_usable_size(const void *block) MW_ADDRESS(1);

// The usable size that mw_malloc(size) would give, or of sizes up to 1,024 bytes and of 8 to 64 KiB,
// where many threads have allocated, the least that it would; `size` itself beyond PTRDIFF_MAX, and
// in realtime mode beyond 1 MiB, where that allocation must fail.
MW_API size_t mw_good_size(size_t size);
MW_API size_t mw_malloc_good_size(size_t size);

// True iff `pointer` is the start of a live block of this copy of the allocator. Any 64-bit value
// may be asked about; never faults.
MW_API bool mw_is_owned(const void *pointer) MW_ADDRESS(1);

// ---- Size feedback: as the plain calls, and *block_size receives the usable size (0 on failure) -

struct mw_sized_block {
    void *block;       // NULL on failure
    size_t size_bytes; // usable bytes, at least what was asked for
};

MW_API MW_MUST_USE struct mw_sized_block mw_malloc_at_least(size_t size);
MW_API MW_MUST_USE struct mw_sized_block mw_malloc_aligned_at_least(size_t size, size_t alignment);
MW_API MW_MUST_USE MW_MALLOC void *mw_umalloc(size_t size, size_t *block_size);
MW_API MW_MUST_USE MW_MALLOC void *mw_ucalloc(size_t count, size_t size, size_t *block_size);
MW_API MW_MUST_USE MW_MALLOC void *mw_umalloc_small(size_t size, size_t *block_size);
MW_API MW_MUST_USE MW_MALLOC void *mw_uzalloc_small(size_t size, size_t *block_size);
MW_API MW_MUST_USE MW_MALLOC void *mw_umalloc_aligned(size_t size, size_t alignment, size_t *block_size);
MW_API MW_MUST_USE MW_MALLOC void *mw_uzalloc_aligned(size_t size, size_t alignment, size_t *block_size);
MW_API MW_MUST_USE void *mw_urealloc(void *block, size_t size, size_t *size_before, size_t *size_after);
MW_API void mw_ufree(void *block, size_t *block_size);

// ---- C++: the behaviour of operator new, callable from C ----------------------------------------
// On failure the installed new_handler is called until memory is found; without one, bad_alloc is
// thrown where a C++ runtime is loaded, else the program stops. The nothrow forms return NULL. Where a
// new_handler was called, errno is as it and the attempts before have left it.

MW_API MW_MUST_USE MW_MALLOC MW_SIZE(1) void *mw_new(size_t size);
MW_API MW_MUST_USE MW_MALLOC MW_SIZE(1) MW_ALIGN(2) void *mw_new_aligned(size_t size, size_t alignment);
MW_API MW_MUST_USE MW_MALLOC MW_SIZE(1) void *mw_new_nothrow(size_t size);
MW_API MW_MUST_USE MW_MALLOC MW_SIZE(1) MW_ALIGN(2) void *mw_new_aligned_nothrow(size_t size, size_t alignment);
MW_API MW_MUST_USE MW_MALLOC MW_SIZE(1, 2) void *mw_new_n(size_t count, size_t size);
MW_API MW_MUST_USE MW_SIZE(2) void *mw_new_realloc(void *block, size_t size);
MW_API MW_MUST_USE MW_SIZE(2, 3) void *mw_new_reallocn(void *block, size_t count, size_t size);

// ---- Typed --------------------------------------------------------------------------------------

#ifdef __cplusplus
#define MW_TYPED(type, block) static_cast<type *>(block)
#else
#define MW_TYPED(type, block) ((type *)(block))
#endif
#define mw_malloc_tp(type) MW_TYPED(type, mw_malloc(sizeof(type)))
#define mw_zalloc_tp(type) MW_TYPED(type, mw_zalloc(sizeof(type)))
#define mw_calloc_tp(type, count) MW_TYPED(type, mw_calloc((count), sizeof(type)))
#define mw_mallocn_tp(type, count) MW_TYPED(type, mw_mallocn((count), sizeof(type)))
#define mw_reallocn_tp(block, type, count) MW_TYPED(type, mw_reallocn((block), (count), sizeof(type)))
#define mw_recalloc_tp(block, type, count) MW_TYPED(type, mw_recalloc((block), (count), sizeof(type)))

// ---- Process ------------------------------------------------------------------------------------

// Gives free memory back to the operating system now; returns the bytes released. `force` also
// gives back what this thread keeps for quick reuse. Enters the kernel; takes the internal locks in
// turn. Where there are other threads, and something to gain, it sleeps up to twice, 15 ms each.
MW_API size_t mw_collect(bool force);

// The version as major * 10000 + minor * 100 + patch, and as text with the build's commit.
MW_API int mw_version(void);
MW_API const char *mw_version_text(void);

#ifdef __cplusplus
}
#endif

#endif
