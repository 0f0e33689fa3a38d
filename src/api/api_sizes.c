// SPDX-License-Identifier: MIT
// API: sizes of blocks, ownership, and the calls that tell the size they gave.
#include "api/api.h"

#include "process/process.h"
#include "slab/size_class.h"

size_t mw_usable_size(const void *block) {
    return api_usable_size(block, "usable_size");
}

size_t mw_malloc_size(const void *block) {
    return api_usable_size(block, "malloc_size");
}

// Programs that keep accounts call it with every malloc and free: no frame.
size_t mw_malloc_usable_size(const void *block) {
    size_t other;
    const size_t usable_bytes = heap_fast_usable(heap_current(), (uintptr_t)block, &other);
    return likely(usable_bytes != 0) ? usable_bytes
                                     : api_usable_size(block, "malloc_usable_size");
}

size_t mw_good_size(size_t size) {
    if (size <= MALLOW_SLAB_BYTES_MAX) {
        return size_class_bytes(size_class_of(size));
    }
    const struct process *const process = process_ready();
    const size_t most = process->os.sealed ? process->shared.large_bytes_max : (size_t)PTRDIFF_MAX;
    const size_t bytes = bits_align_up(size, process->os.page_bytes); // 0 beyond the last page
    return bytes - 1 < most ? bytes : size;
}

size_t mw_malloc_good_size(size_t size) {
    return mw_good_size(size);
}

bool mw_is_owned(const void *pointer) {
    const struct process *const process = process_ready();
    return heap_identify(&process->shared, (uintptr_t)pointer).kind != HEAP_BLOCK_NONE;
}

// ---- Size feedback ------------------------------------------------------------------------------

static void *sizes_tell(void *block, size_t *block_size) {
    if (block_size != NULL) {
        *block_size = block != NULL ? api_usable_size(block, "umalloc") : 0;
    }
    return block;
}

static void *sizes_allocate(size_t size, size_t alignment, bool zeroed) {
    return api_allocate(size, (struct api_layout){alignment, 0}, zeroed);
}

struct mw_sized_block mw_malloc_at_least(size_t size) {
    struct mw_sized_block result;
    result.block = sizes_tell(api_malloc(size), &result.size_bytes);
    return result;
}

struct mw_sized_block mw_malloc_aligned_at_least(size_t size, size_t alignment) {
    struct mw_sized_block result;
    result.block = sizes_tell(sizes_allocate(size, alignment, false), &result.size_bytes);
    return result;
}

void *mw_umalloc(size_t size, size_t *block_size) {
    return sizes_tell(api_malloc(size), block_size);
}

void *mw_ucalloc(size_t count, size_t size, size_t *block_size) {
    return sizes_tell(api_calloc(count, size), block_size);
}

void *mw_umalloc_small(size_t size, size_t *block_size) {
    return sizes_tell(api_malloc(size), block_size);
}

void *mw_uzalloc_small(size_t size, size_t *block_size) {
    return sizes_tell(api_zalloc(size), block_size);
}

void *mw_umalloc_aligned(size_t size, size_t alignment, size_t *block_size) {
    return sizes_tell(sizes_allocate(size, alignment, false), block_size);
}

void *mw_uzalloc_aligned(size_t size, size_t alignment, size_t *block_size) {
    return sizes_tell(sizes_allocate(size, alignment, true), block_size);
}

void *mw_urealloc(void *block, size_t size, size_t *size_before, size_t *size_after) {
    const size_t before = api_usable_size(block, "urealloc");
    void *const moved = mw_realloc(block, size);
    if (size_before != NULL) {
        *size_before = before;
    }
    return sizes_tell(moved, size_after);
}

void mw_ufree(void *block, size_t *block_size) {
    if (block_size != NULL) {
        *block_size = api_usable_size(block, "ufree");
    }
    api_free(block);
}
