// SPDX-License-Identifier: MIT
// Compile-time constants of the allocator, always defined, with the relations between them.
//
// Owns     nothing. A constant is here iff more than one file depends on it.
// Holds    the static_asserts below.
#ifndef MALLOW_CONFIG_H
#define MALLOW_CONFIG_H

#if __STDC_HOSTED__
#include <assert.h>
#elif !defined(static_assert)
#define static_assert _Static_assert // the freestanding library has no libc's header
#endif
#include <stddef.h>
#include <stdint.h>

// Internal assertions: the debug presets set 1; the release pays nothing.
#ifndef MALLOW_ASSERT
#define MALLOW_ASSERT 0
#endif

// The commit that the library was built from, as the build found it.
#ifndef MALLOW_COMMIT
#define MALLOW_COMMIT "unknown commit"
#endif

// One translation unit (src/all.c): internal functions become static there, so that an upward call
// is an undeclared function. Built file by file they are hidden symbols.
#ifndef MALLOW_UNITY
#define MALLOW_UNITY 0
#endif
#if MALLOW_UNITY
#define MALLOW_INTERNAL static __attribute__((unused))
#define MALLOW_SHARED_DATA static __attribute__((unused))
#define MALLOW_EXTERN_DATA static __attribute__((unused))
#else
#define MALLOW_INTERNAL __attribute__((visibility("hidden")))
#define MALLOW_SHARED_DATA __attribute__((visibility("hidden")))
#define MALLOW_EXTERN_DATA extern __attribute__((visibility("hidden")))
#endif

// Address space: a chunk is one transparent huge page, cut into slices.
#define MALLOW_SLICE_SHIFT 16
#define MALLOW_SLICE_BYTES ((size_t)1 << MALLOW_SLICE_SHIFT)
#define MALLOW_CHUNK_SHIFT 21
#define MALLOW_CHUNK_BYTES ((size_t)1 << MALLOW_CHUNK_SHIFT)
#define MALLOW_CHUNK_SLICES 32U

// An arena indexes its chunks with three levels of 64-bit words: at most 8 * 64 * 64 chunks.
#define MALLOW_ARENA_SUMMARY_WORDS 8U
#define MALLOW_ARENA_GROUPS_MAX (MALLOW_ARENA_SUMMARY_WORDS * 64U)
#define MALLOW_ARENA_CHUNKS_MAX (MALLOW_ARENA_GROUPS_MAX * 64U)
#define MALLOW_ARENA_BYTES_MAX ((size_t)MALLOW_ARENA_CHUNKS_MAX << MALLOW_CHUNK_SHIFT)
#define MALLOW_ARENA_BYTES_MIN MALLOW_CHUNK_BYTES
#define MALLOW_SECONDARY_ARENA_BYTES ((size_t)256 << 20)

// Blocks. Up to SMALL a block's slab is found by a table indexed with its size in granules; up to
// SLAB it lives in a slab; up to LARGE in a span of its own; beyond that in a mapping of its own.
#define MALLOW_GRANULE_SHIFT 4
#define MALLOW_GRANULE_BYTES ((size_t)1 << MALLOW_GRANULE_SHIFT)
#define MALLOW_SMALL_BYTES_MAX ((size_t)1024)
#define MALLOW_DIRECT_COUNT ((MALLOW_SMALL_BYTES_MAX >> MALLOW_GRANULE_SHIFT) + 1)
#define MALLOW_SLAB_BYTES_MAX ((size_t)64 << 10)
#define MALLOW_SINGLE_SLICE_BLOCK_MAX ((size_t)8 << 10)
#define MALLOW_LARGE_BYTES_MAX ((size_t)1 << 20)

// Size classes: 1 << STEP_BITS a doubling, 16 bytes apart before that. Decision 7 compares 0 to 3.
#ifndef MALLOW_CLASS_STEP_BITS
#define MALLOW_CLASS_STEP_BITS 3U
#endif
#define MALLOW_CLASS_STEPS (1U << MALLOW_CLASS_STEP_BITS)
#define MALLOW_CLASS_COUNT (MALLOW_CLASS_STEPS * (13U - MALLOW_CLASS_STEP_BITS)) // to 64 KiB
#define MALLOW_DIRECT_CLASS_COUNT (MALLOW_CLASS_STEPS * (7U - MALLOW_CLASS_STEP_BITS)) // to 1 KiB
#define MALLOW_THIN_CLASS_COUNT (MALLOW_CLASS_STEPS * (9U - MALLOW_CLASS_STEP_BITS)) // to 4 KiB

// Slab headers: one slot a slice, apart from the blocks.
#define MALLOW_SLAB_HEADER_SHIFT 8
#define MALLOW_SLAB_WORDS 19U
#define MALLOW_SLAB_CAPACITY_MAX (MALLOW_SLAB_WORDS * 64U)

// The smallest huge mapping: at most one begins in any aligned range of this size, which is the
// granularity of the address map.
#define MALLOW_MAP_SHIFT 20
#define MALLOW_MAP_BYTES ((size_t)1 << MALLOW_MAP_SHIFT)

// Budgets that bound the work of one call.
#define MALLOW_THIN_BLOCKS_MAX 16U    // blocks of a class that come from shared units, a heap
#define MALLOW_THIN_BYTES_MAX 8192U   // and that at most so many bytes of it
#define MALLOW_CALL_WORK 4            // words of bitmaps a slow call collects of others' frees
#define MALLOW_CALL_EFFORT 4U         // after so much a call does nothing that can wait (heap.h)
#define MALLOW_DRAIN_BUDGET 4U        // posted slabs collected at once by an explicit request
#define MALLOW_WAIT_SHARE 8U          // a full slab is collected when so large a part is free
#define MALLOW_UNCLAIM_BUDGET 256U    // posted slabs collected by a thread that ends
#define MALLOW_ADOPT_BUDGET 4U        // ended threads' heaps looked at for one slab
#define MALLOW_BIRTH_BUDGET 8U        // the same for the next that a new thread gets
#define MALLOW_CROWD_HEAPS 8U         // from so many on, classes of a heap share slabs (heap_seat)
#define MALLOW_LEND_SLABS 128U        // heaps of fewer slabs, which a cache may hold, lend none
#define MALLOW_HUGE_CACHE_COUNT 64U   // pieces of freed huge blocks kept
#define MALLOW_PURGE_SLICES 16U       // given back to the OS at once while the program is idle
#define MALLOW_UNMAP_BYTES ((size_t)1 << 20) // the same of freed huge blocks

// Free memory of one kind, kept, that is worth looking after while the program is idle.
#define MALLOW_WORK_BYTES ((size_t)8 << 20)

#define MALLOW_CACHE_LINE 64

static_assert(MALLOW_CHUNK_BYTES / MALLOW_SLICE_BYTES == MALLOW_CHUNK_SLICES,
              "a chunk is 32 slices");
static_assert(MALLOW_LARGE_BYTES_MAX <= MALLOW_CHUNK_BYTES, "a large block lies within one chunk");
static_assert(MALLOW_MAP_BYTES <= MALLOW_CHUNK_BYTES, "an arena covers whole map entries");
static_assert(MALLOW_SLAB_WORDS * 64U <= UINT16_MAX, "capacities fit 16 bits");

#endif
