// SPDX-License-Identifier: MIT
// API: the calls of mallow/heap.h that are made of others: zeroed, counted, aligned, resized, and
// strings.
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_heap.h"
#include "process/process.h"

static void *calls_overflow(struct mw_heap *heap) {
    return api_heap_refuse(api_own(heap), MW_HEAP_TOO_BIG, ENOMEM);
}

// ---- Zeroed, counted, aligned -------------------------------------------------------------------

void *mw_heap_zalloc(struct mw_heap *heap, size_t size) {
    struct heap_own *const own = api_own(heap);
    if (size <= MALLOW_SMALL_BYTES_MAX) {
        struct slab *const slab = heap_fast_current(own->heap, size);
        uintptr_t address;
        if (slab_take(slab, &address)) {
            api_zero_small((void *)address, slab->block_bytes); // rezalloc builds on all of it
            return (void *)address;
        }
    }
    return api_heap_allocate(own, size, 1, true);
}

void *mw_heap_calloc(struct mw_heap *heap, size_t count, size_t size) {
    size_t bytes;
    return bits_multiply(count, size, &bytes) ? mw_heap_zalloc(heap, bytes) : calls_overflow(heap);
}

void *mw_heap_mallocn(struct mw_heap *heap, size_t count, size_t size) {
    size_t bytes;
    return bits_multiply(count, size, &bytes) ? mw_heap_malloc(heap, bytes) : calls_overflow(heap);
}

static void *calls_aligned(struct mw_heap *heap, size_t size, size_t alignment, bool zeroed) {
    if (!bits_is_power_of_two(alignment)) {
        return api_heap_refuse(api_own(heap), MW_HEAP_BAD_ALIGNMENT, EINVAL);
    }
    return api_heap_allocate(api_own(heap), size, alignment, zeroed);
}

void *mw_heap_aligned_alloc(struct mw_heap *heap, size_t alignment, size_t size) {
    return calls_aligned(heap, size, alignment, false);
}

void *mw_heap_malloc_aligned(struct mw_heap *heap, size_t size, size_t alignment) {
    return calls_aligned(heap, size, alignment, false);
}

void *mw_heap_zalloc_aligned(struct mw_heap *heap, size_t size, size_t alignment) {
    return calls_aligned(heap, size, alignment, true);
}

void *mw_heap_calloc_aligned(struct mw_heap *heap, size_t count, size_t size, size_t alignment) {
    size_t bytes;
    return bits_multiply(count, size, &bytes)
               ? calls_aligned(heap, bytes, alignment, true)
               : calls_overflow(heap);
}

// ---- Resized ------------------------------------------------------------------------------------

// What a block is to become.
struct calls_wish {
    size_t size;
    size_t alignment;
    bool zeroed; // the zero-preserving promise is to be kept
};

// The block where it is, or where the kernel has moved its pages; NULL: it has to be copied.
static void *calls_keep(struct heap_own *own, const struct heap_block *found, void *block,
                        struct calls_wish wish) {
    if (((uintptr_t)block & (wish.alignment - 1)) != 0) {
        return NULL;
    }
    if (found->kind == HEAP_BLOCK_HUGE) { // an alignment beyond a page's would not survive a move
        return (void *)heap_huge_resize(own->shared, found->huge, wish.size,
                                        wish.alignment <= own->shared->os->page_bytes);
    }
    return heap_resize_in_place(own->shared, found, wish.size) ? block : NULL;
}

static void *calls_allocate(struct mw_heap *heap, struct calls_wish wish) {
    return wish.alignment == 1 && !wish.zeroed
               ? mw_heap_malloc(heap, wish.size)
               : api_heap_allocate(api_own(heap), wish.size, wish.alignment, wish.zeroed);
}

// Frees a block that has been copied. Where the heap grows, a call that has taken its system call,
// slices or a mapping leaves to later ones what can wait of that: a mapping, and what is owed.
static void calls_free_moved(struct mw_heap *heap, const struct heap_block *found, void *block,
                             uint64_t entries) {
    const struct heap_own *const own = api_own(heap);
    struct huge_set *const huges = own->shared->huges;
    if (!heap_own_grows(own) ||
        (heap_thread.effort <= HEAP_EFFORT_LOOK && os_entries(own->shared->os) == entries)) {
        mw_heap_free(heap, block);
        return;
    }
    if (found->kind == HEAP_BLOCK_HUGE && huge_may_put_off(huges) &&
        huge_put_off(huges, found->huge, (uintptr_t)block)) {
        return;
    }
    if (found->kind == HEAP_BLOCK_LARGE) { // as identified, so it is not looked up once more
        heap_large_free(own->shared, found->slab);
        return;
    }
    if (found->kind == HEAP_BLOCK_HUGE &&
        huge_give_record(huges, found->huge, (uintptr_t)block, false)) {
        return;
    }
    const enum heap_effort effort = heap_move_effort(found->kind);
    heap_begin_move(effort);
    mw_heap_free(heap, block);
    heap_end_move(effort);
}

static void *calls_move(struct mw_heap *heap, const struct heap_block *found, void *block,
                        struct calls_wish wish, uint64_t entries) {
    struct heap_own *const own = api_own(heap);
    const uint32_t last_status = own->last_status;
    const uint64_t refused_count = own->refused_count;
    const enum heap_effort effort = heap_move_effort(found->kind);
    heap_begin_effort();
    heap_begin_move(effort);
    void *const moved = calls_allocate(heap, wish);
    heap_end_move(effort);
    const bool late = heap_thread.effort <= HEAP_EFFORT_LOOK && heap_is_late(own->heap);
    if (moved != NULL) {
        memcpy(moved, block, bits_min(found->usable_bytes, wish.size));
        calls_free_moved(heap, found, block, entries);
    }
    if (unlikely(late)) {
        heap_collect_late(own->heap, MALLOW_CALL_WORK - 1);
    }
    if (unlikely(moved == NULL)) {
        const struct api_layout layout = {wish.alignment, 0};
        void *const stays = api_resize_stay(found, block, wish.size, layout, wish.zeroed);
        if (stays != NULL) { // and nothing has been refused
            own->last_status = last_status;
            __atomic_store_n(&own->refused_count, refused_count, __ATOMIC_RELAXED);
        }
        return stays;
    }
    return moved;
}

static void *calls_resize(struct mw_heap *heap, void *block, struct calls_wish wish) {
    struct heap_own *const own = api_own(heap);
    if (!bits_is_power_of_two(wish.alignment)) {
        return api_heap_refuse(own, MW_HEAP_BAD_ALIGNMENT, EINVAL);
    }
    if (block == NULL) {
        return calls_allocate(heap, wish);
    }
    const struct heap_block found = heap_identify(own->shared, (uintptr_t)block);
    if (unlikely(found.kind == HEAP_BLOCK_NONE)) {
        heap_report_misuse(own->shared, (uintptr_t)block, "realloc");
        heap_report_foreign(own->shared, (uintptr_t)block, "realloc");
    }
    if (unlikely(wish.size > (size_t)PTRDIFF_MAX)) {
        return calls_overflow(heap);
    }
    const size_t mapped_before = found.kind == HEAP_BLOCK_HUGE ? found.huge->mapped_bytes : 0;
    const uint64_t entries = os_entries(own->shared->os);
    heap_begin_effort();
    void *const kept = calls_keep(own, &found, block, wish);
    if (kept == NULL) {
        return calls_move(heap, &found, block, wish, entries);
    }
    if (wish.zeroed) {
        const size_t after = api_usable_size(kept, "realloc");
        api_zero_resized(kept, found.usable_bytes, api_stale_bytes(&found, mapped_before, after),
                         wish.size);
    }
    if (found.kind >= HEAP_BLOCK_LARGE && heap_own_grows(own)) {
        api_heap_attend_resized(own, entries);
    }
    return kept;
}

void *mw_heap_realloc(struct mw_heap *heap, void *block, size_t size) {
    const struct calls_wish wish = {size, 1, false};
    return calls_resize(heap, block, wish);
}

void *mw_heap_reallocn(struct mw_heap *heap, void *block, size_t count, size_t size) {
    size_t bytes;
    return bits_multiply(count, size, &bytes) ? mw_heap_realloc(heap, block, bytes)
                                              : calls_overflow(heap);
}

void *mw_heap_reallocf(struct mw_heap *heap, void *block, size_t size) {
    void *const moved = mw_heap_realloc(heap, block, size);
    if (moved == NULL) {
        mw_heap_free(heap, block);
    }
    return moved;
}

void *mw_heap_realloc_aligned(struct mw_heap *heap, void *block, size_t size, size_t alignment) {
    const struct calls_wish wish = {size, alignment, false};
    return calls_resize(heap, block, wish);
}

void *mw_heap_rezalloc(struct mw_heap *heap, void *block, size_t size) {
    const struct calls_wish wish = {size, 1, true};
    return calls_resize(heap, block, wish);
}

void *mw_heap_rezalloc_aligned(struct mw_heap *heap, void *block, size_t size, size_t alignment) {
    const struct calls_wish wish = {size, alignment, true};
    return calls_resize(heap, block, wish);
}

void *mw_heap_recalloc(struct mw_heap *heap, void *block, size_t count, size_t size) {
    struct calls_wish wish = {0, 1, true};
    return bits_multiply(count, size, &wish.size)
               ? calls_resize(heap, block, wish)
               : calls_overflow(heap);
}

void *mw_heap_recalloc_aligned(struct mw_heap *heap, void *block, size_t count, size_t size,
                               size_t alignment) {
    struct calls_wish wish = {0, alignment, true};
    return bits_multiply(count, size, &wish.size)
               ? calls_resize(heap, block, wish)
               : calls_overflow(heap);
}

// ---- Strings ------------------------------------------------------------------------------------

char *mw_heap_strndup(struct mw_heap *heap, const char *text, size_t limit) {
    if (text == NULL) {
        return NULL;
    }
    const size_t length = strnlen(text, limit);
    char *const copy = mw_heap_malloc(heap, length + 1);
    if (copy != NULL) {
        memcpy(copy, text, length);
        copy[length] = '\0';
    }
    return copy;
}

char *mw_heap_strdup(struct mw_heap *heap, const char *text) {
    return text != NULL ? mw_heap_strndup(heap, text, strlen(text)) : NULL;
}

char *mw_heap_realpath(struct mw_heap *heap, const char *path, char *resolved) {
    char buffer[PATH_MAX];
    const int before = errno; // libc's leaves what its steps have set
    char *const found = realpath(path, resolved != NULL ? resolved : buffer);
    if (found == NULL) {
        return NULL;
    }
    errno = before;
    return resolved != NULL ? found : mw_heap_strdup(heap, found);
}
