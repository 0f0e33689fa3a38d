// SPDX-License-Identifier: MIT
// API: mallow/heap.h.
#include "mallow/heap.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "api/api_heap.h"
#include "heap/heap_fast.h"
#include "heap/heap_own.h"
#include "os/cgroup.h"
#include "process/process.h"

const char *mw_heap_status_text(enum mw_heap_status status) {
    switch (status) {
    case MW_HEAP_OK: return "no error";
    case MW_HEAP_BAD_CONFIG:
        return "a NULL pointer, another structure, limits of a reserve, prefault or lock of none";
    case MW_HEAP_SEALED: return "with MALLOW_MODE=realtime all memory is set apart already";
    case MW_HEAP_NO_MEMORY: return "memory could not be had";
    case MW_HEAP_NOT_PREFAULTED: return "not so much memory is free, or the kernel gave no pages";
    case MW_HEAP_NOT_LOCKED: return "the kernel did not lock the reserve: see RLIMIT_MEMLOCK";
    case MW_HEAP_EXHAUSTED: return "the reserve, or the limit, has no room for it just now";
    case MW_HEAP_TOO_BIG: return "no block of a heap is that large or that much aligned";
    case MW_HEAP_BAD_ALIGNMENT: return "the alignment is no power of two";
    default: return "unknown status";
    }
}

// What is meant for a heap with a reserve, or for one that grows, not for both.
static bool api_heap_config_is_sound(const struct mw_heap_config *config) {
    if (config == NULL || config->size_bytes != sizeof *config) {
        return false;
    }
    return config->reserve_bytes != 0
               ? config->limit_bytes == 0 && config->soft_bytes == 0 && config->shed == NULL
               : !config->prefault && !config->lock;
}

static void api_heap_limit(struct heap_own *own, uint64_t limit_bytes, uint64_t soft_bytes) {
    const uint64_t soft = soft_bytes != 0 ? soft_bytes : UINT64_MAX;
    os_allowance_set(&own->allowance, limit_bytes != 0 ? limit_bytes : UINT64_MAX, soft);
    __atomic_store_n(&own->soft_bytes, soft, __ATOMIC_RELAXED);
}

static enum mw_heap_status api_heap_create_growing(struct process *process,
                                                   const struct mw_heap_config *config,
                                                   struct mw_heap **heap) {
    struct heap_own *const own = heap_own_create_growing(&process->shared);
    if (own == NULL) {
        return MW_HEAP_NO_MEMORY;
    }
    api_heap_limit(own, config->limit_bytes, config->soft_bytes);
    own->shed = config->shed;
    own->shed_argument = config->shed_argument;
    *heap = (struct mw_heap *)own;
    return MW_HEAP_OK;
}

// Whether there is memory for its pages: the kernel would not refuse, but kill. Those that are in
// already count for nothing (giant pages, freed memory that is kept).
static bool api_heap_fits(const struct process *process, const struct heap_own *own) {
    const uint64_t bytes = (uint64_t)own->reserve.chunk_count << MALLOW_CHUNK_SHIFT;
    if (bytes < OS_SPARED_BYTES) {
        return true;
    }
    const uint64_t free_bytes = os_free_bytes(process->os.root);
    return os_fits(bytes, free_bytes) || os_fits(heap_own_missing_bytes(own), free_bytes);
}

static enum mw_heap_status api_heap_bring_in(const struct process *process,
                                             const struct mw_heap_config *config,
                                             struct heap_own *own) {
    bool locked = config->lock;
    if (!config->prefault && !config->lock) {
        return MW_HEAP_OK;
    }
    if (!api_heap_fits(process, own) || !heap_own_bring_in(own, &locked)) {
        return MW_HEAP_NOT_PREFAULTED;
    }
    return locked == config->lock ? MW_HEAP_OK : MW_HEAP_NOT_LOCKED;
}

// Ends a heap, as free ends: what it held is to be given back though no other call should follow.
static void api_heap_end(struct process *process, struct heap_own *own) {
    heap_own_end(own);
    heap_begin_effort();
    process_poll(process, os_entries(&process->os), true);
}

enum mw_heap_status mw_heap_create(const struct mw_heap_config *config, struct mw_heap **heap) {
    if (heap == NULL) {
        return MW_HEAP_BAD_CONFIG;
    }
    *heap = NULL;
    if (!api_heap_config_is_sound(config)) {
        return MW_HEAP_BAD_CONFIG;
    }
    if (config->reserve_bytes > (size_t)PTRDIFF_MAX) {
        return MW_HEAP_NO_MEMORY;
    }
    struct process *const process = process_ready();
    if (process->os.sealed) {
        return MW_HEAP_SEALED;
    }
    if (config->reserve_bytes == 0) {
        return api_heap_create_growing(process, config, heap);
    }
    struct heap_own *const own = heap_own_create(&process->shared, config->reserve_bytes);
    if (own == NULL) {
        return MW_HEAP_NO_MEMORY;
    }
    const enum mw_heap_status status = api_heap_bring_in(process, config, own);
    if (status != MW_HEAP_OK) {
        api_heap_end(process, own);
        return status;
    }
    *heap = (struct mw_heap *)own;
    return MW_HEAP_OK;
}

enum mw_heap_status mw_heap_set_limits(struct mw_heap *heap, uint64_t limit_bytes,
                                       uint64_t soft_bytes) {
    if (heap == NULL || !heap_own_grows(api_own(heap))) {
        return MW_HEAP_BAD_CONFIG;
    }
    struct os_lock *const lock = &process_ready()->start_lock;
    os_lock_take(lock); // as for the process's limits: both are of one call
    api_heap_limit(api_own(heap), limit_bytes, soft_bytes);
    os_lock_drop(lock);
    return MW_HEAP_OK;
}

void mw_heap_destroy(struct mw_heap *heap) {
    if (heap != NULL) {
        api_heap_end(process_ready(), api_own(heap));
    }
}

MALLOW_INTERNAL MALLOW_COLD void *api_heap_refuse(struct heap_own *own, enum mw_heap_status status,
                                                  int error) {
    own->last_status = (uint32_t)status;
    __atomic_store_n(&own->refused_count, own->refused_count + 1, __ATOMIC_RELAXED);
    return api_fail(error);
}

static uintptr_t api_heap_try(const struct heap_own *own, size_t size, size_t alignment,
                              bool zeroed) {
    return alignment <= MALLOW_GRANULE_BYTES
               ? heap_allocate(own->heap, size, zeroed)
               : heap_allocate_aligned(own->heap, size, alignment, zeroed);
}

static uint64_t api_heap_read(const _Atomic(uint64_t) *value) {
    return atomic_load_explicit(value, memory_order_relaxed);
}

// ---- Heaps that grow ----------------------------------------------------------------------------

// Calls the program's function. False: there is none, or it is running.
static bool api_heap_shed(struct heap_own *own, enum mw_shed_reason reason, uint64_t wanted_bytes) {
    if (own->shed == NULL || own->shedding) {
        return false;
    }
    const struct mw_shed_request request = {sizeof request, (uint32_t)reason, wanted_bytes,
                                            api_heap_read(&own->allowance.held_bytes)};
    const int error = errno;
    const struct heap_call call = heap_leave_call();
    own->shedding = true;
    own->shed(&request, own->shed_argument);
    own->shedding = false;
    heap_resume_call(call);
    __atomic_store_n(&own->shed_count, own->shed_count + 1, __ATOMIC_RELAXED);
    errno = error;
    return true;
}

// What a call has made due: of this heap, of the process, and what calls leave to later ones.
static void api_heap_attend(struct heap_own *own, uint64_t entries) {
    struct os_charge *const allowance = &own->allowance;
    struct process *const process = process_ready();
    if (atomic_exchange_explicit(&allowance->events, 0, memory_order_relaxed) != 0) {
        const uint64_t held = api_heap_read(&allowance->held_bytes);
        const uint64_t soft = api_heap_read(&allowance->soft_bytes);
        if (held > soft) { // or enough has been freed meanwhile
            (void)api_heap_shed(own, MALLOW_SHED_SOFT_LIMIT, held - soft);
        }
    }
    if (own->heap->attention) {
        own->heap->attention = false;
        (void)process_attend(process); // a heartbeat comes with growth alone
    }
    if (likely(heap_thread.first_effort == 0)) { // else a block moves, which does that but once
        heap_settle(own->shared, entries);
        process_poll(process, entries, true);
    }
}

MALLOW_INTERNAL void api_heap_attend_resized(struct heap_own *own, uint64_t entries) {
    own->heap->attention |= os_charge_is_due(&own->shared->os->charge);
    api_heap_attend(own, entries);
}

// A request has failed: by the heap's limit, or else the process's, or the kernel.
static MALLOW_COLD void *api_heap_exhausted(struct heap_own *own, size_t size, size_t alignment,
                                            bool zeroed, bool by_heap) {
    struct process *const process = process_ready();
    const _Atomic(uint64_t) *const refusals = &own->allowance.refused_count;
    const uint64_t before = api_heap_read(refusals);
    // No room can be made for more than the limit.
    const bool shed = by_heap ? size <= api_heap_read(&own->allowance.caps[OS_CHARGE_HARD]) &&
                                    api_heap_shed(own, MALLOW_SHED_REFUSED, size)
                              : process_shed_for(process, size);
    if (shed) {
        const uintptr_t address = api_heap_try(own, size, alignment, zeroed);
        if (address != 0) {
            return (void *)address;
        }
        by_heap = api_heap_read(refusals) != before;
    }
    if (by_heap) {
        return api_heap_refuse(own, MW_HEAP_EXHAUSTED, ENOMEM);
    }
    os_charge_note_refusal(&process->os);
    return api_heap_refuse(own, MW_HEAP_NO_MEMORY, ENOMEM);
}

static MALLOW_NOINLINE void *api_heap_grow(struct heap_own *own, size_t size, size_t alignment,
                                           bool zeroed) {
    const _Atomic(uint64_t) *const refusals = &own->allowance.refused_count;
    const uint64_t entries = os_entries(own->shared->os);
    const uint64_t before = api_heap_read(refusals);
    if (unlikely(size > (size_t)PTRDIFF_MAX || alignment > (size_t)PTRDIFF_MAX)) {
        return api_heap_refuse(own, MW_HEAP_TOO_BIG, ENOMEM);
    }
    void *block = (void *)api_heap_try(own, size, alignment, zeroed);
    if (unlikely(block == NULL)) {
        block = api_heap_exhausted(own, size, alignment, zeroed, api_heap_read(refusals) != before);
    }
    api_heap_attend(own, entries);
    return block;
}

// ---- Blocks -------------------------------------------------------------------------------------

MALLOW_INTERNAL MALLOW_NOINLINE void *api_heap_allocate(struct heap_own *own, size_t size,
                                                        size_t alignment, bool zeroed) {
    if (heap_own_grows(own)) {
        return api_heap_grow(own, size, alignment, zeroed);
    }
    if (unlikely(!heap_fits_slices(size, alignment))) {
        return api_heap_refuse(own, MW_HEAP_TOO_BIG, ENOMEM);
    }
    const uintptr_t address = api_heap_try(own, size, alignment, zeroed);
    return likely(address != 0) ? (void *)address
                                : api_heap_refuse(own, MW_HEAP_EXHAUSTED, ENOMEM);
}

void *mw_heap_malloc(struct mw_heap *heap, size_t size) {
    struct heap_own *const own = api_own(heap);
    uintptr_t address;
    if (size <= MALLOW_SMALL_BYTES_MAX && heap_fast_allocate(own->heap, size, &address)) {
        return (void *)address;
    }
    return api_heap_allocate(own, size, 1, false);
}

static MALLOW_NOINLINE void api_heap_free_slow(struct heap *own, uintptr_t address) {
    if (!heap_free(own->shared, own, address)) {
        heap_report_foreign(own->shared, address, "free");
    }
}

void mw_heap_free(struct mw_heap *heap, void *block) {
    struct heap *const own = api_own(heap)->heap;
    const uintptr_t address = (uintptr_t)block;
    struct slab *slab;
    const enum heap_fast_result result = heap_fast_free(own, address, &slab);
    if (likely(result == HEAP_FAST_DONE) || block == NULL) {
        return;
    }
    const uint64_t entries = os_entries(own->shared->os);
    if (result == HEAP_FAST_EMPTIED) {
        heap_begin_effort();
        heap_slab_refilled(own, slab, false);
    } else {
        api_heap_free_slow(own, address);
    }
    if (heap_own_grows(api_own(heap))) {
        api_heap_attend(api_own(heap), entries);
    }
}

enum mw_heap_status mw_heap_last_status(const struct mw_heap *heap) {
    return (enum mw_heap_status)heap->own.last_status;
}

// ---- Which heap ---------------------------------------------------------------------------------

struct mw_heap *mw_heap_of(const void *pointer) {
    return (struct mw_heap *)heap_own_of(&process_ready()->shared, (uintptr_t)pointer);
}

bool mw_heap_contains(const struct mw_heap *heap, const void *pointer) {
    return heap != NULL && mw_heap_of(pointer) == heap;
}

void mw_heap_set_value(struct mw_heap *heap, void *value) {
    __atomic_store_n(&api_own(heap)->value, value, __ATOMIC_RELEASE);
}

void *mw_heap_value(const struct mw_heap *heap) {
    return heap != NULL ? __atomic_load_n(&heap->own.value, __ATOMIC_ACQUIRE) : NULL;
}

// ---- Figures ------------------------------------------------------------------------------------

bool mw_heap_stats_get(const struct mw_heap *heap, struct mw_heap_stats *stats) {
    const struct heap_own *const own = &heap->own;
    const struct os_charge *const allowance = own->reserve.allowance;
    if (stats->size_bytes < offsetof(struct mw_heap_stats, free_bytes)) {
        return false;
    }
    struct mw_heap_stats full = {
        .size_bytes = stats->size_bytes,
        .reserve_bytes = (uint64_t)own->reserve.chunk_count << MALLOW_CHUNK_SHIFT,
        .free_bytes = (uint64_t)reserve_free_slices(&own->reserve) << MALLOW_SLICE_SHIFT,
        .refused_count = __atomic_load_n(&own->refused_count, __ATOMIC_RELAXED),
    };
    full.held_bytes = full.reserve_bytes - full.free_bytes;
    full.limit_bytes = full.reserve_bytes;
    full.soft_bytes = UINT64_MAX;
    if (allowance != NULL) {
        full.held_bytes = api_heap_read(&allowance->held_bytes);
        full.limit_bytes = api_heap_read(&allowance->caps[OS_CHARGE_HARD]);
        full.soft_bytes = __atomic_load_n(&own->soft_bytes, __ATOMIC_RELAXED);
        full.shed_count = __atomic_load_n(&own->shed_count, __ATOMIC_RELAXED);
    }
    memcpy(stats, &full, bits_min(stats->size_bytes, sizeof full));
    return true;
}
