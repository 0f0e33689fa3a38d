// SPDX-License-Identifier: MIT
// API: mallow/heap.h.
#include "mallow/heap.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "api/api.h"
#include "heap/heap_fast.h"
#include "heap/heap_own.h"
#include "process/process.h"

// What the public pointer points to.
struct mw_heap {
    struct heap_own own;
};

static struct heap_own *api_own(struct mw_heap *heap) {
    return &heap->own;
}

const char *mw_heap_status_text(enum mw_heap_status status) {
    switch (status) {
    case MW_HEAP_OK: return "no error";
    case MW_HEAP_BAD_CONFIG: return "a NULL pointer, another structure, or no reserve";
    case MW_HEAP_SEALED: return "with MALLOW_MODE=realtime all memory is set apart already";
    case MW_HEAP_NO_MEMORY: return "the reserve could not be had";
    case MW_HEAP_NOT_PREFAULTED: return "the kernel gave no pages for the reserve";
    case MW_HEAP_NOT_LOCKED: return "the kernel did not lock the reserve: see RLIMIT_MEMLOCK";
    case MW_HEAP_EXHAUSTED: return "the reserve has no room for it just now";
    case MW_HEAP_TOO_BIG: return "no block of a heap is that large or that much aligned";
    case MW_HEAP_BAD_ALIGNMENT: return "the alignment is no power of two";
    default: return "unknown status";
    }
}

enum mw_heap_status mw_heap_create(const struct mw_heap_config *config, struct mw_heap **heap) {
    if (heap == NULL) {
        return MW_HEAP_BAD_CONFIG;
    }
    *heap = NULL;
    if (config == NULL || config->size_bytes != sizeof *config || config->reserve_bytes == 0) {
        return MW_HEAP_BAD_CONFIG;
    }
    if (config->reserve_bytes > (size_t)PTRDIFF_MAX) {
        return MW_HEAP_NO_MEMORY;
    }
    struct process *const process = process_ready();
    if (process->os.sealed) {
        return MW_HEAP_SEALED;
    }
    struct heap_own *own = NULL;
    switch (heap_own_create(&process->shared, config->reserve_bytes, config->prefault,
                            config->lock, &own)) {
    case HEAP_OWN_MADE: break;
    case HEAP_OWN_NOT_IN: return MW_HEAP_NOT_PREFAULTED;
    case HEAP_OWN_NOT_LOCKED: return MW_HEAP_NOT_LOCKED;
    case HEAP_OWN_NO_MEMORY:
    default: return MW_HEAP_NO_MEMORY;
    }
    *heap = (struct mw_heap *)own;
    return MW_HEAP_OK;
}

void mw_heap_destroy(struct mw_heap *heap) {
    if (heap != NULL) {
        heap_own_end(api_own(heap));
    }
}

static MALLOW_COLD void *api_heap_refuse(struct heap_own *own, enum mw_heap_status status,
                                         int error) {
    own->last_status = (uint32_t)status;
    __atomic_store_n(&own->refused_count, own->refused_count + 1, __ATOMIC_RELAXED);
    return api_fail(error);
}

static MALLOW_NOINLINE void *api_heap_allocate(struct heap_own *own, size_t size, size_t alignment,
                                               bool zeroed) {
    if (unlikely(size > own->shared->large_bytes_max || alignment > MALLOW_CHUNK_BYTES / 2)) {
        return api_heap_refuse(own, MW_HEAP_TOO_BIG, ENOMEM);
    }
    const uintptr_t address = alignment <= MALLOW_GRANULE_BYTES
                                  ? heap_allocate(own->heap, size, zeroed)
                                  : heap_allocate_aligned(own->heap, size, alignment, zeroed);
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

void *mw_heap_calloc(struct mw_heap *heap, size_t count, size_t size) {
    size_t bytes;
    if (!bits_multiply(count, size, &bytes)) {
        return api_heap_refuse(api_own(heap), MW_HEAP_TOO_BIG, ENOMEM);
    }
    void *const block = mw_heap_malloc(heap, bytes);
    return block != NULL ? memset(block, 0, bytes) : NULL;
}

void *mw_heap_aligned_alloc(struct mw_heap *heap, size_t alignment, size_t size) {
    if (!bits_is_power_of_two(alignment)) {
        return api_heap_refuse(api_own(heap), MW_HEAP_BAD_ALIGNMENT, EINVAL);
    }
    return api_heap_allocate(api_own(heap), size, alignment, false);
}

void mw_heap_free(struct mw_heap *heap, void *block) {
    struct heap *const own = api_own(heap)->heap;
    const uintptr_t address = (uintptr_t)block;
    struct slab *slab;
    switch (heap_fast_free(own, address, &slab)) {
    case HEAP_FAST_DONE:
        return;
    case HEAP_FAST_EMPTIED:
        heap_slab_refilled(own, slab, false);
        return;
    case HEAP_FAST_SLOW:
    default:
        break;
    }
    if (block != NULL && heap_free_near(own->shared, own, address) == HEAP_NEAR_NOT &&
        !heap_free(own->shared, own, address)) {
        heap_report_foreign(address, "free");
    }
}

void *mw_heap_realloc(struct mw_heap *heap, void *block, size_t size) {
    struct heap_own *const own = api_own(heap);
    if (block == NULL) {
        return mw_heap_malloc(heap, size);
    }
    const struct heap_block found = heap_identify(own->shared, (uintptr_t)block);
    if (unlikely(found.kind == HEAP_BLOCK_NONE)) {
        heap_report_misuse(own->shared, (uintptr_t)block, "realloc");
        heap_report_foreign((uintptr_t)block, "realloc");
    }
    if (heap_resize_in_place(own->shared, &found, size)) {
        return block;
    }
    void *const moved = mw_heap_malloc(heap, size);
    if (moved != NULL) {
        memcpy(moved, block, bits_min(found.usable_bytes, size));
        mw_heap_free(heap, block);
    }
    return moved;
}

enum mw_heap_status mw_heap_last_status(const struct mw_heap *heap) {
    return (enum mw_heap_status)heap->own.last_status;
}

bool mw_heap_stats_get(const struct mw_heap *heap, struct mw_heap_stats *stats) {
    const struct heap_own *const own = &heap->own;
    if (stats->size_bytes < offsetof(struct mw_heap_stats, free_bytes)) {
        return false;
    }
    const struct mw_heap_stats full = {
        .size_bytes = stats->size_bytes,
        .reserve_bytes = (uint64_t)own->reserve.chunk_count << MALLOW_CHUNK_SHIFT,
        .free_bytes = (uint64_t)reserve_free_slices(&own->reserve) << MALLOW_SLICE_SHIFT,
        .refused_count = __atomic_load_n(&own->refused_count, __ATOMIC_RELAXED),
    };
    memcpy(stats, &full, bits_min(stats->size_bytes, sizeof full));
    return true;
}
