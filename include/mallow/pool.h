// SPDX-License-Identifier: MIT
// mallow: deterministic pools of declared size classes.
//
// A pool is given its classes and their shares once, lays its blocks out once, and from then on
// allocates and frees in a bounded number of instructions, without a system call, a page fault
// (where prefaulted), a lock or a header. What it can hold is known before it exists:
// mw_pool_plan() gives the exact number of blocks of every class, the bytes of bookkeeping and the
// bound of instructions for a configuration, and mw_pool_create() makes exactly that.
//
// Unless a declaration says otherwise, every call below
//   - returns a status and never stops the program, prints nothing and leaves errno alone;
//   - costs O(1), with no loop whose length depends on what was allocated or freed before;
//   - never enters the kernel and never blocks;
//   - may be called by one thread at a time for one pool (the owner); calls marked ANY THREAD may
//     run beside the owner's and beside each other;
//   - must be given a pool that exists: only those that make, end, bind, attach, grow, describe or
//     debug one look, and answer MW_POOL_NOT_A_POOL. They read the handle: memory of a destroyed
//     pool that has been unmapped, as that of mw_pool_create is, faults.
//
// Two libraries hold these calls. libmallow has all of them. libmallow-pool.a is freestanding: it
// needs no other library, libc neither, takes its memory from the caller, and has all but those
// marked HOSTED.
#ifndef MALLOW_POOL_H
#define MALLOW_POOL_H

#include <mallow/mallow.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- Limits and units ---------------------------------------------------------------------------

#define MW_POOL_CLASSES_MAX 256  // classes of one pool
#define MW_POOL_MEMORIES_MAX 16  // memories of one pool: the first and those attached
#define MW_POOL_WHOLE 1000000    // the shares of all classes, in parts per million, add to this
// A share given in percent, to the nearest part per million: what 1.14 * 10000 comes to is less than 11400.
#define MW_POOL_PERCENT(percent) (MW_POOL_UINT32((percent) * 100000 + 5) / 10)
#ifdef __cplusplus
#define MW_POOL_UINT32(value) static_cast<uint32_t>(value)
#else
#define MW_POOL_UINT32(value) ((uint32_t)(value))
#endif
#define MW_POOL_ALIGNMENT_DEFAULT 16
#define MW_POOL_NO_CLASS SIZE_MAX // no class in particular

// ---- Status -------------------------------------------------------------------------------------

enum mw_pool_status {
    MW_POOL_OK = 0,

    // Of a configuration. plan.problem_class names the class, where one is to blame.
    MW_POOL_NULL_ARGUMENT = 1,      // a pointer that must not be NULL is
    MW_POOL_NO_CLASSES = 2,         // class_count is 0
    MW_POOL_TOO_MANY_CLASSES = 3,   // more than MW_POOL_CLASSES_MAX
    MW_POOL_CLASS_SIZE_ZERO = 4,    // a class of 0 bytes
    MW_POOL_CLASS_SIZE_TOO_BIG = 5, // size or size * count exceeds PTRDIFF_MAX
    MW_POOL_BAD_ALIGNMENT = 6,      // an alignment that is no power of two from 8 to 2^30
    MW_POOL_DUPLICATE_CLASS = 7,    // two classes with blocks of the same size
    MW_POOL_SHARE_ZERO = 8,         // a class with neither share nor count
    MW_POOL_SHARES_MIXED = 9,       // some classes have a share, others a count (or one has both)
    MW_POOL_SHARES_BELOW_WHOLE = 10, // the shares add to less than 100 %
    MW_POOL_SHARES_ABOVE_WHOLE = 11, // the shares add to more than 100 %
    MW_POOL_CLASS_EMPTY = 12,       // a share that is too small for one block
    MW_POOL_TOO_SMALL = 13,         // pool_bytes do not hold the bookkeeping, or the counts
    MW_POOL_TOO_BIG = 14,           // pool_bytes, or what the counts need, exceed PTRDIFF_MAX

    // Of the memory behind a pool.
    MW_POOL_NEEDS_MEMORY = 15,       // freestanding: no memory was given
    MW_POOL_NEEDS_HOST = 16,         // freestanding: prefault and lock are the kernel's
    MW_POOL_MEMORY_MISALIGNED = 17,  // the caller's memory is not aligned to plan.alignment_bytes
    MW_POOL_MEMORY_OVERLAPS = 18,    // attached memory overlaps a memory of this pool
    MW_POOL_TOO_MANY_MEMORIES = 19,  // MW_POOL_MEMORIES_MAX are attached
    MW_POOL_MAP_FAILED = 20,         // the kernel gave no mapping
    MW_POOL_PREFAULT_FAILED = 21,    // not so much memory is free, or the kernel gave no pages
    MW_POOL_LOCK_FAILED = 22,        // the kernel locked no pages (RLIMIT_MEMLOCK)
    MW_POOL_UNMAP_FAILED = 23,       // the kernel kept a mapping; the pool is gone all the same
    MW_POOL_NOT_A_POOL = 24,         // no pool, or one destroyed whose memory is still mapped

    // Of an allocation: why it is NULL.
    MW_POOL_SIZE_ZERO = 32,       // size 0
    MW_POOL_SIZE_TOO_BIG = 33,    // larger than the largest class: no free will ever help
    MW_POOL_EXHAUSTED = 34,       // every block of the class is in use: back-pressure
    MW_POOL_EXHAUSTED_ALL = 35,   // with fallback: and so is every block of the bigger ones
    MW_POOL_BAD_CLASS_INDEX = 36, // no class of that index

    // Of a free, or of a question about a pointer.
    MW_POOL_NULL_POINTER = 48, // NULL; nothing was done
    MW_POOL_FOREIGN = 49,      // not in a block of this pool
    MW_POOL_INTERIOR = 50,     // within a block, aligned as blocks of its class are, not its start
    MW_POOL_MISALIGNED = 51,   // within a block, at an address that no block of its class has
    MW_POOL_DOUBLE_FREE = 52,  // a block's start, but the block is free
    MW_POOL_NOT_OWNER = 53,    // another thread than the owner, in a pool without remote free
    MW_POOL_NOT_SHARED = 54,   // a remote free into a pool that was made without `remote`
    MW_POOL_WRITTEN_AFTER_FREE = 55, // mw_pool_debug_...: a free block is not as it was left

    // Of a configuration as text. The line is given beside it.
    MW_POOL_TEXT_SYNTAX = 64,         // not `key=value`, `[section]`, a comment or empty
    MW_POOL_TEXT_KEY = 65,            // an unknown key
    MW_POOL_TEXT_NUMBER = 66,         // not a number, a size or a share
    MW_POOL_TEXT_SWITCH = 67,         // not on or off
    MW_POOL_TEXT_NO_SIZE = 68,        // no pool_size, and shares
    MW_POOL_UNKNOWN_PRESET = 69,      // no preset of that name
    MW_POOL_TEXT_REPEATED = 70,       // pool_size, a switch, or a part of a class given twice
};

// One English sentence a status, without a full stop; never NULL, never freed. ANY THREAD.
MW_API const char *mw_pool_status_text(enum mw_pool_status status);

// Its name as in the enumeration, "MW_POOL_OK"; "?" for other values. ANY THREAD.
MW_API const char *mw_pool_status_name(enum mw_pool_status status);

// ---- Configuration ------------------------------------------------------------------------------

// A class of blocks. Any order of sizes will do; there is no largest size.
struct mw_pool_class {
    size_t size_bytes;      // at least 1; rounded up to the alignment
    size_t alignment_bytes; // a power of two from 8 to 2^30; 0 means MW_POOL_ALIGNMENT_DEFAULT
    size_t block_count;     // exact number of blocks, or 0 where shares are given
    uint32_t share_ppm;     // share of the pool in parts per million: MW_POOL_PERCENT(60)
};

// Either every class has a share, and the shares add to exactly MW_POOL_WHOLE, or every class has
// a count. Begin with a zeroed structure: every field that is 0 or false is a sensible default.
struct mw_pool_config {
    const struct mw_pool_class *classes;
    size_t class_count;
    size_t pool_bytes; // all memory, bookkeeping included; with counts 0 means: what they need
    void *memory;      // the caller's, pool_bytes long; NULL: one mapping (HOSTED)
    bool fallback;     // a request whose class is exhausted is served by the next bigger with room
    bool prefault;     // touch every page at the start (HOSTED)
    bool lock;         // lock every page in memory, which prefaults it as well (HOSTED)
    bool remote;       // other threads may free: one bit a block more
    bool check_owner;  // alloc and free compare the calling thread with the owner, by the thread
                       // pointer: without libc, one must have been set up (%fs:0, tpidr_el0)
};

// ---- Plan ---------------------------------------------------------------------------------------

// What a configuration comes to, and what a pool made of it will be, exactly.
struct mw_pool_planned {
    size_t pool_bytes;      // memory used, all in all; with shares, what was given
    size_t payload_bytes;   // of these, in blocks: the sum of capacity_count * block_bytes
    size_t overhead_bytes;  // the rest: bookkeeping, alignment and remainder
    size_t metadata_bytes;  // of these, bookkeeping; the rest is alignment and remainder
    size_t overhead_ppm;    // overhead_bytes per million payload_bytes, rounded up; SIZE_MAX: more
    size_t alignment_bytes; // what the caller's memory must be aligned to
    size_t problem_class;   // index of the class that the status is about, or MW_POOL_NO_CLASS
    // Upper bounds of the instructions of one call in libmallow as released (x86-64, gcc); no call
    // enters the kernel. 60 in a pool with `remote`, or with any two of: classes beyond the direct
    // table (16 KiB, and a 256th of the pool), `fallback`, the same among more than 64 classes,
    // `check_owner`. Retries because another thread's remote free came between are not counted.
    // Counted by test/pool.
    uint32_t alloc_instructions;       // mw_pool_alloc
    uint32_t alloc_class_instructions; // mw_pool_alloc_class
    uint32_t free_instructions;        // mw_pool_free
    uint32_t remote_instructions;      // mw_pool_free_remote; 0 without `remote`
};

// The same of one class, in the order of the configuration.
struct mw_pool_class_plan {
    size_t block_bytes;     // usable bytes of each block: size_bytes rounded up to the alignment
    size_t alignment_bytes; // of each block
    size_t capacity_count;  // blocks
    size_t metadata_bytes;  // of the bookkeeping, what only this class needs
};

// Fills *plan and, unless NULL, classes[0 .. config->class_count - 1]. Needs no memory and makes
// nothing; config->memory is only looked at for its alignment. On failure only plan->problem_class
// means anything. Costs O(classes^2) at most. ANY THREAD.
MW_API enum mw_pool_status mw_pool_plan(const struct mw_pool_config *config, struct mw_pool_planned *plan,
                                        struct mw_pool_class_plan *classes);

// ---- A pool -------------------------------------------------------------------------------------

struct mw_pool; // lies in the pool's own memory

// Makes a pool in config->memory. *pool is NULL on failure, nothing is kept, and *problem_class
// (unless NULL) says which class is to blame. The calling thread is the owner. Writes the
// bookkeeping only (the plan's metadata_bytes). Fails with the status of mw_pool_plan, and with
// MW_POOL_NEEDS_MEMORY, MW_POOL_NEEDS_HOST.
MW_API enum mw_pool_status mw_pool_create_in(const struct mw_pool_config *config, struct mw_pool **pool,
                                             size_t *problem_class);

// The same; maps memory where config->memory is NULL, and prefaults and locks where asked to. One
// mmap, and a madvise or an mlock where asked for, are all that this pool ever asks of the kernel
// until mw_pool_destroy; but before it brings in 16 MiB or more, files of /proc and of the cgroup are
// read: what they say is not free is refused (MW_POOL_PREFAULT_FAILED), where the kernel would kill
// for it. HOSTED.
MW_API enum mw_pool_status mw_pool_create(const struct mw_pool_config *config, struct mw_pool **pool,
                                          size_t *problem_class);

// Ends a pool, whatever is in use: one munmap for each memory that was mapped for it. Memory of the
// caller's is left to the caller (a lock taken on it is given up). A pool of mw_pool_create_in may be
// given up without it, and a pool of a set ends with the set. HOSTED.
MW_API enum mw_pool_status mw_pool_destroy(struct mw_pool *pool);

// Adds memory of the caller's, cut by the shares of the configuration (a pool made with counts: in
// the proportion that the counts gave). Every class gains at least one block. The bookkeeping of the
// memory lies in it. It stays with the pool until the pool's end. Fails as mw_pool_create_in does,
// with MW_POOL_MEMORY_OVERLAPS and MW_POOL_TOO_MANY_MEMORIES. Costs as much as a creation.
MW_API enum mw_pool_status mw_pool_attach(struct mw_pool *pool, void *memory, size_t memory_bytes);

// The same with a mapping of its own, prefaulted and locked as the pool is. HOSTED.
MW_API enum mw_pool_status mw_pool_grow(struct mw_pool *pool, size_t memory_bytes);

// Makes the calling thread the owner: where one thread makes the pools and others use them. The
// owner before must not be inside a call.
MW_API enum mw_pool_status mw_pool_bind(struct mw_pool *pool);

// ---- Blocks -------------------------------------------------------------------------------------

// A block of the smallest class that holds `size` bytes, uninitialised and aligned as the class
// says; NULL with a reason in mw_pool_last_status.
MW_API MW_MUST_USE void *mw_pool_alloc(struct mw_pool *pool, size_t size);

// The same; *status (not NULL) receives MW_POOL_OK or the reason.
MW_API MW_MUST_USE void *mw_pool_alloc_status(struct mw_pool *pool, size_t size, enum mw_pool_status *status);

// A block of the class that has this index in the configuration; never falls back.
MW_API MW_MUST_USE void *mw_pool_alloc_class(struct mw_pool *pool, size_t class_index);

// Why the last allocation of this pool that returned NULL did so; MW_POOL_OK if none has. (A
// successful one does not reset it.)
MW_API enum mw_pool_status mw_pool_last_status(const struct mw_pool *pool);

// Frees a block. Any value may be given: what is no live block of this pool is told from one exactly,
// changes nothing, and gets a status of its own. In a pool with `check_owner`, a call by another
// thread is a remote free if the pool has `remote`, else MW_POOL_NOT_OWNER.
MW_API enum mw_pool_status mw_pool_free(struct mw_pool *pool, void *block);

// Frees a block of another thread's pool (made with `remote`): lock-free, at most 4 atomic operations
// unless others interfere; the owner takes it back, 64 blocks at a time, when it next runs out. The
// same checks, and as exact: of two threads that free one block at once, one gets MW_POOL_DOUBLE_FREE,
// or, if one of the two is the owner, the second free is dropped when it is taken back, unless the block
// has been handed out again by then. ANY THREAD.
MW_API enum mw_pool_status mw_pool_free_remote(struct mw_pool *pool, void *block);

// Takes back up to `word_limit` times 64 blocks that other threads have freed, ahead of need; returns
// the number of blocks.
MW_API size_t mw_pool_collect(struct mw_pool *pool, size_t word_limit);

// The usable bytes of the class that the live block `block` belongs to; 0 for anything else.
MW_API size_t mw_pool_usable_size(const struct mw_pool *pool, const void *block) MW_ADDRESS(2);

// What a pointer is to the pool. Which class, and whether it is a live block's start (MW_POOL_OK), or
// else the status that mw_pool_free would give. `class_index` may be NULL; it receives
// MW_POOL_NO_CLASS where the pointer is in no block.
MW_API enum mw_pool_status mw_pool_find(const struct mw_pool *pool, const void *pointer, size_t *class_index)
    MW_ADDRESS(2);

// True iff the address lies in this pool's bookkeeping or among its blocks, not in what its memory
// has left over behind the last one. ANY THREAD, but not
// beside mw_pool_attach (nor is mw_pool_free_remote).
MW_API bool mw_pool_owns(const struct mw_pool *pool, const void *pointer) MW_ADDRESS(2);

// ---- Occupancy and statistics -------------------------------------------------------------------

// Live blocks of one class (those that other threads have freed are not live), and its capacity; 0
// for an index out of range. One or two loads. ANY THREAD: exact to within the calls in flight.
MW_API size_t mw_pool_used_count(const struct mw_pool *pool, size_t class_index);
MW_API size_t mw_pool_capacity_count(const struct mw_pool *pool, size_t class_index);

// Occupancy of the whole pool: used bytes per million bytes of capacity. O(classes). ANY THREAD.
MW_API uint32_t mw_pool_occupancy_ppm(const struct mw_pool *pool);

struct mw_pool_class_stats {
    size_t block_bytes;
    size_t capacity_count; // blocks, in all memories
    size_t used_count;     // live now
    size_t peak_count;     // the most that ever were live at once, as the owner saw it
    uint64_t refused_count;  // requests for this class that got NULL
    uint64_t fallback_count; // requests for this class that a bigger one served
    uint64_t remote_count;   // blocks that other threads have freed so far
};

// Fills up to `limit` entries, in the order of the configuration; returns the number of classes.
// O(classes). ANY THREAD, exact to within the calls in flight.
MW_API size_t mw_pool_stats(const struct mw_pool *pool, struct mw_pool_class_stats *stats, size_t limit);

// The plan of a pool that exists: what mw_pool_plan said of its configuration, and with attached
// memories their sums. `classes` as there. O(classes).
MW_API enum mw_pool_status mw_pool_describe(const struct mw_pool *pool, struct mw_pool_planned *plan,
                                            struct mw_pool_class_plan *classes);

// ---- Writes after free: for test runs ------------------------------------------------------------
// The same calls at the cost of touching the whole block: a free block is filled with 0xDF, and looked
// at when it is handed out again, then filled with 0xD0. Whether a pointer is to a free block,
// mw_pool_find says at any time (MW_POOL_DOUBLE_FREE).
// In a program with AddressSanitizer, its run-time reports a touch of a free block where it happens;
// so does valgrind's memcheck, and blocks that nothing leads to any more, and bytes that were never
// written, if the library was built with MALLOW_VALGRIND.

// From now on blocks of this pool are taken and freed by the calls below alone. Fills what is free:
// O(bytes). Again after mw_pool_attach or mw_pool_grow.
MW_API enum mw_pool_status mw_pool_debug_begin(struct mw_pool *pool);

// Ends that: blocks go by the ordinary calls again, and the caller's memory, if the pool is given up,
// may be used for something else. Done by mw_pool_destroy and mw_pool_set_destroy. O(blocks).
MW_API enum mw_pool_status mw_pool_debug_end(struct mw_pool *pool);

// As mw_pool_alloc_status; MW_POOL_WRITTEN_AFTER_FREE, with a block all the same, if somebody has
// written to it while it was free. O(block).
MW_API MW_MUST_USE void *mw_pool_debug_alloc(struct mw_pool *pool, size_t size, enum mw_pool_status *status);

// As mw_pool_free, and mw_pool_free_remote (ANY THREAD). O(block).
MW_API enum mw_pool_status mw_pool_debug_free(struct mw_pool *pool, void *block);
MW_API enum mw_pool_status mw_pool_debug_free_remote(struct mw_pool *pool, void *block);

// Looks at all free blocks; MW_POOL_WRITTEN_AFTER_FREE with the first that was written to, else *block
// is NULL. O(bytes).
MW_API enum mw_pool_status mw_pool_debug_check(const struct mw_pool *pool, void **block);

// ---- A set of pools, one a core or thread -------------------------------------------------------
// Equal pools side by side in one memory: each has its owner, any thread finds the owner of a block
// by arithmetic and frees it there.

struct mw_pool_set; // lies in the set's own memory

// Bytes and alignment of the memory for `pool_count` pools of `config` (whose pool_bytes and counts
// are those of each one pool). Fails as mw_pool_plan does; no pool at all is MW_POOL_TOO_SMALL.
MW_API enum mw_pool_status mw_pool_set_plan(const struct mw_pool_config *config, size_t pool_count,
                                            size_t *memory_bytes, size_t *alignment_bytes);

// Makes the set in config->memory, which must be as long as mw_pool_set_plan says. `remote` is taken
// to be set. The calling thread owns all pools until others call mw_pool_bind.
MW_API enum mw_pool_status mw_pool_set_create_in(const struct mw_pool_config *config, size_t pool_count,
                                                 struct mw_pool_set **set);

// The same with one mapping for all; prefaults and locks where asked to. HOSTED.
MW_API enum mw_pool_status mw_pool_set_create(const struct mw_pool_config *config, size_t pool_count,
                                              struct mw_pool_set **set);

// Ends all pools of the set: one munmap, and one for each mapping that a pool of it has grown by.
// HOSTED.
MW_API enum mw_pool_status mw_pool_set_destroy(struct mw_pool_set *set);

// The pools, and the index of the one that an address lies in: SIZE_MAX if in none. What a pool was
// attached or has grown by is in none: its blocks are freed by mw_pool_free and mw_pool_free_remote.
// ANY THREAD.
MW_API size_t mw_pool_set_count(const struct mw_pool_set *set);
MW_API struct mw_pool *mw_pool_set_get(const struct mw_pool_set *set, size_t pool_index);
MW_API size_t mw_pool_set_find(const struct mw_pool_set *set, const void *pointer) MW_ADDRESS(2);

// Frees a block of any pool of the set: as mw_pool_free if it is the pool `own_index`, which the
// calling thread owns, else as mw_pool_free_remote. Threads that own none pass SIZE_MAX. ANY THREAD.
MW_API enum mw_pool_status mw_pool_set_free(struct mw_pool_set *set, size_t own_index, void *block);

// ---- Presets and text ---------------------------------------------------------------------------

struct mw_pool_preset {
    const char *name; // "balanced"
    const char *text; // what it is for
    const struct mw_pool_class *classes;
    size_t class_count;
};

// The presets, for `preset_index` from 0 until it is NULL: max-throughput, min-overhead, balanced,
// low-latency, game, hft, embedded. ANY THREAD.
MW_API const struct mw_pool_preset *mw_pool_preset_at(size_t preset_index);

// By name, or NULL. ANY THREAD.
MW_API const struct mw_pool_preset *mw_pool_preset_find(const char *name);

// Where a text went wrong: its line, from 1.
struct mw_pool_text_error {
    size_t line;
};

// Reads a configuration:
//
//     # a comment
//     pool_size=64M            bytes; K, M, G are binary
//     class=64,60              size, share in percent (up to 4 decimals)
//     class=256,30%,align=64   the same; alignment
//     class=1024,100000ppm     size, share in parts per million
//     class=4K,count=100       size, exact number (then for every class)
//     preset=balanced          instead of classes
//     fallback=on              fallback, prefault, lock, remote, check_owner: on or off
//
// Lines within other [sections] than [pool] and [allocator] are passed over, and so is a byte order
// mark in front. pool_size, each switch, and each part of a class stand once. The classes go to
// classes[0 .. limit - 1], which must outlive *config. What is read is not yet checked: that is
// mw_pool_plan's. `error` may be NULL. ANY THREAD. O(length).
MW_API enum mw_pool_status mw_pool_config_parse(const char *text, size_t length, struct mw_pool_config *config,
                                                struct mw_pool_class *classes, size_t limit,
                                                struct mw_pool_text_error *error);

#ifdef __cplusplus
}
#endif

#endif
