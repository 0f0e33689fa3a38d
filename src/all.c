// SPDX-License-Identifier: MIT
// The library as one unit, in layer order (src/LAYERS): the release build, the amalgamation and the
// map.
//
// Holds    internals are static here, so a file that calls one further down does not compile.
#define _GNU_SOURCE // for the two files that look symbols up
#define MALLOW_UNITY 1

#include "base/format.c"

#include "os/os.c"
#include "os/os_lock.c"
#include "os/charge.c"
#include "os/os_file.c"
#include "os/cgroup.c"
#include "os/os_pages.c"
#include "os/os_huge.c"
#include "os/os_node.c"
#include "os/os_giant.c"
#include "os/os_thread.c"
#include "os/os_bare.c"
#include "os/fatal.c"

#include "pool/pool_status.c"
#include "pool/pool_preset.c"
#include "pool/pool_text.c"
#include "pool/pool_layout.c"
#include "pool/pool_plan.c"
#include "pool/pool_format.c"
#include "pool/pool_create.c"
#include "pool/pool_remote.c"
#include "pool/pool.c"
#include "pool/pool_stats.c"
#include "pool/pool_debug.c"
#include "pool/pool_set.c"
#include "pool/pool_host.c"
#include "pool/dispatch.c"

#include "meta/meta.c"
#include "meta/address_map.c"

#include "slab/size_class.c"
#include "slab/slab.c"
#include "slab/slab_remote.c"
#include "slab/slab_holes.c"

#include "arena/chunk_map.c"
#include "arena/reserve_index.c"
#include "arena/reserve.c"
#include "arena/arena_leave.c"
#include "arena/arena.c"
#include "arena/arena_grow.c"
#include "arena/arena_secondary.c"
#include "arena/arena_idle.c"
#include "arena/arena_broad.c"
#include "arena/arena_node.c"
#include "arena/arena_giant.c"
#include "arena/huge.c"
#include "arena/huge_faults.c"
#include "arena/huge_index.c"
#include "arena/huge_pieces.c"
#include "arena/huge_room.c"
#include "arena/huge_cache.c"
#include "arena/thin.c"
#include "arena/thin_idle.c"
#include "arena/promote.c"

#include "heap/heap.c"
#include "heap/heap_gate.c"
#include "heap/heap_queue.c"
#include "heap/heap_rest.c"
#include "heap/heap_remote.c"
#include "heap/heap_settle.c"
#include "heap/heap_slow.c"
#include "heap/heap_relief.c"
#include "heap/heap_beside.c"
#include "heap/heap_adopt.c"
#include "heap/heap_free.c"
#include "heap/heap_large.c"
#include "heap/heap_huge.c"
#include "heap/heap_holes.c"
#include "heap/heap_own.c"

#include "observe/snapshot.c"
#include "observe/report.c"

#include "process/process_options.c"
#include "process/process_foreign.c"
#include "process/process_beat.c"
#include "process/process_shed.c"
#include "process/process_limit.c"
#include "process/process_report.c"
#include "process/process_giant.c"
#include "process/process_realtime.c"
#include "process/worker.c"
#include "process/worker_tick.c"
#include "process/worker_promote.c"
#include "process/process.c"
#include "process/process_fork.c"
#include "process/process_begin.c"

#include "api/api_slow.c"
#include "api/api_block.c"
#include "api/api_malloc.c"
#include "api/api_resize.c"
#include "api/api_aligned.c"
#include "api/api_sizes.c"
#include "api/api_new.c"
#include "api/api_control.c"
#include "api/api_observe.c"
#include "api/api_limit.c"
#include "api/api_heap.c"
#include "api/api_heap_calls.c"

// Left out where another library has to own the names: the sanitizers' run-time does.
#ifndef MALLOW_OVERRIDE
#define MALLOW_OVERRIDE 1
#endif
#if MALLOW_OVERRIDE
#include "override/override_libc.c"
#include "override/override_glibc.c"
#include "override/override_new.c"
#include "override/override_sandbox.c"
#endif
