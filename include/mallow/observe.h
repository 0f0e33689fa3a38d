// SPDX-License-Identifier: MIT
// mallow: what the allocator holds, as numbers, text and JSON.
//
// Figures are gathered when they are asked for, from counters that each heap keeps for itself, so
// they cost nothing until then; taken while other threads allocate they are each exact to within
// the calls in flight. All calls may be made from any thread; none allocates.
#ifndef MALLOW_OBSERVE_H
#define MALLOW_OBSERVE_H

#include <mallow/mallow.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MALLOW_STATS_VERSION 1

// One snapshot. Byte counts unless the name says `count`. Fields are only ever appended;
// `size_bytes` tells the callee how many of them the caller knows.
struct mw_stats {
    size_t size_bytes;          // in: sizeof(struct mw_stats) of the caller
    uint32_t version;           // out: MALLOW_STATS_VERSION of the library
    uint32_t heap_count;        // heaps in existence (one a thread, and those of threads that ended)
    uint64_t live_bytes;        // usable bytes of all live blocks
    uint64_t live_count;        // live blocks
    uint64_t small_live_bytes;  // of these, in slabs
    uint64_t large_live_bytes;  // of these, in spans of their own
    uint64_t huge_live_bytes;   // of these, in mappings of their own
    uint64_t huge_live_count;
    uint64_t slab_count;        // slabs in use
    uint64_t span_bytes;        // address space of slabs and large blocks in use
    uint64_t free_dirty_bytes;  // free spans whose pages are still with us (upper bound of their RSS)
    uint64_t huge_cached_bytes; // memory of freed huge blocks kept for reuse
    uint64_t committed_bytes;   // readable and writable memory for blocks
    uint64_t reserved_bytes;    // address space reserved
    uint64_t meta_bytes;        // committed for our own structures
    uint64_t meta_used_bytes;   // of these, handed out
    uint64_t purged_bytes;      // given back to the OS so far
    uint64_t heap_adopted_count; // heaps of ended threads taken over by new ones so far
    uint64_t os_map_count;      // successful and failed calls into the kernel so far, by kind
    uint64_t os_unmap_count;
    uint64_t os_advise_count;
    uint64_t os_remap_count;
    uint64_t held_bytes;        // what counts against limits (mallow/limit.h)
    uint64_t refused_count;     // requests that returned NULL while a limit was set
    uint64_t resident_bytes;    // what RSS counts of all this, asked of the kernel (mincore)
};

// Fills *stats; false (and *stats untouched) if stats->size_bytes is smaller than the first two
// fields.
MW_API bool mw_stats_get(struct mw_stats *stats);

// Writes the snapshot and one row a size class as text to file descriptor `fd`.
MW_API void mw_stats_print(int fd);

// Writes the snapshot as one JSON object into `buffer` (always terminated if capacity > 0); returns
// the length that the whole text has, as snprintf does. What is allocated in between may make the
// next text longer, a buffer for it as well: leave room, or ask again.
MW_API size_t mw_stats_json(char *buffer, size_t capacity);

// One size class, for `class_index` from 0 until it returns false.
struct mw_class_stats {
    size_t block_bytes;
    uint64_t slab_count;
    uint64_t live_count;
    uint64_t capacity_count;
};
MW_API bool mw_class_stats_get(unsigned class_index, struct mw_class_stats *stats);

// Time, memory and faults of the process, from getrusage and /proc/self/statm (0 where unreadable).
struct mw_process_info {
    uint64_t elapsed_us, user_us, system_us;
    uint64_t rss_bytes, peak_rss_bytes;
    uint64_t minor_fault_count, major_fault_count;
};
MW_API void mw_process_info_get(struct mw_process_info *info);

#ifdef __cplusplus
}
#endif

#endif
