// SPDX-License-Identifier: MIT
// API: the aligned calls, ours and the standards'.
#include "api/api.h"

static void *aligned_reallocate(void *block, size_t size, struct api_layout layout, bool zeroed) {
    if (!bits_is_power_of_two(layout.alignment)) {
        return api_fail(EINVAL);
    }
    return api_reallocate(block, size, layout, zeroed, 0);
}

void *mw_malloc_aligned(size_t size, size_t alignment) {
    return api_allocate(size, (struct api_layout){alignment, 0}, false);
}

void *mw_malloc_aligned_at(size_t size, size_t alignment, size_t offset) {
    return api_allocate(size, (struct api_layout){alignment, offset}, false);
}

void *mw_zalloc_aligned(size_t size, size_t alignment) {
    return api_allocate(size, (struct api_layout){alignment, 0}, true);
}

void *mw_zalloc_aligned_at(size_t size, size_t alignment, size_t offset) {
    return api_allocate(size, (struct api_layout){alignment, offset}, true);
}

void *mw_calloc_aligned(size_t count, size_t size, size_t alignment) {
    return mw_calloc_aligned_at(count, size, alignment, 0);
}

void *mw_calloc_aligned_at(size_t count, size_t size, size_t alignment, size_t offset) {
    size_t total;
    return bits_multiply(count, size, &total)
               ? api_allocate(total, (struct api_layout){alignment, offset}, true)
               : api_fail(ENOMEM);
}

void *mw_realloc_aligned(void *block, size_t size, size_t alignment) {
    return aligned_reallocate(block, size, (struct api_layout){alignment, 0}, false);
}

void *mw_realloc_aligned_at(void *block, size_t size, size_t alignment, size_t offset) {
    return aligned_reallocate(block, size, (struct api_layout){alignment, offset}, false);
}

void *mw_rezalloc_aligned(void *block, size_t size, size_t alignment) {
    return aligned_reallocate(block, size, (struct api_layout){alignment, 0}, true);
}

void *mw_rezalloc_aligned_at(void *block, size_t size, size_t alignment, size_t offset) {
    return aligned_reallocate(block, size, (struct api_layout){alignment, offset}, true);
}

void *mw_recalloc_aligned(void *block, size_t count, size_t size, size_t alignment) {
    return mw_recalloc_aligned_at(block, count, size, alignment, 0);
}

void *mw_recalloc_aligned_at(void *block, size_t count, size_t size, size_t alignment,
                             size_t offset) {
    size_t total;
    return bits_multiply(count, size, &total)
               ? aligned_reallocate(block, total, (struct api_layout){alignment, offset}, true)
               : api_fail(ENOMEM);
}

// ---- The standards' forms -----------------------------------------------------------------------

int mw_posix_memalign(void **block_address, size_t alignment, size_t size) {
    uintptr_t address = 0;
    if (unlikely(alignment < sizeof(void *) || !bits_is_power_of_two(alignment))) {
        return EINVAL;
    }
    if (likely(api_take_aligned(size, alignment, &address))) {
        *block_address = (void *)address;
        return 0;
    }
    return api_posix_memalign_slow(size, alignment, block_address);
}

void *mw_aligned_alloc(size_t alignment, size_t size) {
    return likely((alignment & (alignment - 1)) == 0) ? api_malloc_aligned(size, alignment)
                                                      : api_fail(EINVAL);
}

void *mw_memalign(size_t alignment, size_t size) {
    return mw_aligned_alloc(alignment, size);
}

void *mw_valloc(size_t size) {
    return api_malloc_aligned_slow(size, api_page_bytes());
}

void *mw_pvalloc(size_t size) {
    const size_t page_bytes = api_page_bytes();
    if (size > (size_t)PTRDIFF_MAX - page_bytes) {
        return api_fail(ENOMEM);
    }
    return api_malloc_aligned_slow(bits_align_up(bits_max(size, 1), page_bytes), page_bytes);
}
