// SPDX-License-Identifier: MIT
// API: resizing. In place where the block or the address space behind it allows, by the kernel's
// page tables where the block is huge, by copying only what is small.
#include "api/api.h"

#include <string.h>

#include "heap/heap_fast.h"
#include "heap/heap_identify.h"
#include "heap/heap_near.h"
#include "process/process.h"

static const struct api_layout api_plain = {1, 0};

MALLOW_INLINE bool resize_is_aligned(const void *block, struct api_layout layout) {
    return (((uintptr_t)block + layout.offset) & (layout.alignment - 1)) == 0;
}

// A block that is more than twice as large as needed is worth moving; less is not.
MALLOW_INLINE bool resize_is_worth_keeping(size_t usable_bytes, size_t size) {
    return size <= usable_bytes &&
           (usable_bytes <= 2 * MALLOW_GRANULE_BYTES || size > usable_bytes / 2);
}

// The block where it is, resized; NULL if it has to move.
MALLOW_INLINE void *resize_keep(struct process *process, const struct heap_block *found,
                                void *block, size_t size, struct api_layout layout) {
    if (!resize_is_aligned(block, layout)) {
        return NULL;
    }
    switch (found->kind) {
    case HEAP_BLOCK_SLAB:
    case HEAP_BLOCK_THIN:
        return resize_is_worth_keeping(found->usable_bytes, size) ? block : NULL;
    case HEAP_BLOCK_LARGE: // it fills the better part of a slice, or moves to a slab
        if (size <= MALLOW_SLICE_BYTES / 2) { // unless it has slices in place of a slab's block
            return found->usable_bytes <= MALLOW_SLICE_BYTES / 2 &&
                           resize_is_worth_keeping(found->usable_bytes, size)
                       ? block
                       : NULL;
        }
        return (size <= process->shared.large_bytes_max || size <= found->usable_bytes) &&
                       !heap_is_large_fixed(&process->shared, found->slab, size) &&
                       heap_resize_in_place(&process->shared, found, size)
                   ? block
                   : NULL;
    case HEAP_BLOCK_HUGE: {
        if (size <= process->shared.large_bytes_max &&
            !resize_is_worth_keeping(found->usable_bytes, size)) {
            return NULL;
        }
        if (huge_is_fixed(found->huge, size)) {
            return NULL;
        }
        // An alignment beyond a page's would not survive a move.
        return (void *)heap_huge_resize(&process->shared, found->huge, size,
                                        layout.alignment <= process->os.page_bytes);
    }
    case HEAP_BLOCK_NONE:
    default:
        return NULL;
    }
}

// Frees a block of a slab that has been copied; false: nothing done.
MALLOW_INLINE bool resize_free_in_slab(struct process *process, const struct heap_block *found,
                                       void *block) {
    struct heap *const heap = heap_current();
    if (slab_owner_heap(found->slab) != (uintptr_t)heap) {
        return false;
    }
    if (found->slab->used_count == 1 && heap_is_move_dear() &&
        heap_hand_on(&process->shared, heap, found)) {
        return true;
    }
    switch (heap_fast_free_found(heap, found, (uintptr_t)block)) {
    case HEAP_FAST_DONE:
        return true;
    case HEAP_FAST_EMPTIED:
        if (!slab_is_current(found->slab)) {
            heap_queue_remove(heap, found->slab);
            heap_keep_spare(heap, found->slab);
            heap_note_effort(HEAP_EFFORT_LOOK); // and collects nothing
        }
        return true;
    case HEAP_FAST_SLOW:
    default:
        // Who takes back what a full slab has lent looks for it in the primary arena.
        if (slab_owner(found->slab) != ((uintptr_t)heap | SLAB_OWNER_FULL) ||
            heap_fast_slab(heap, (uintptr_t)block) != found->slab ||
            !heap_near_lend(heap, found->slab, (uintptr_t)block)) {
            return false;
        }
        heap_note_effort(HEAP_EFFORT_LOOK);
        return true;
    }
}

// Whether a call that has moved a block had enough to do without giving up slices.
MALLOW_INLINE bool resize_leaves_slices(bool entered) {
    return heap_thread.effort > HEAP_EFFORT_SPAN ||
           (heap_thread.effort >= HEAP_EFFORT_HUGE && entered);
}

// Frees a large block that has been copied, or, of a call that had enough to do without, leaves its
// slices to a later one. Who has done little gives slices back that were left so besides; who has
// taken a span gives them back in place of its own, which can be left then.
MALLOW_INLINE void resize_free_large(struct process *process, struct slab *slab, bool entered) {
    const uint16_t effort = heap_thread.effort;
    const bool due = !entered && arena_is_late(&process->arenas);
    bool leaves = resize_leaves_slices(entered);
    if (unlikely(due) && effort == HEAP_EFFORT_SPAN) {
        leaves = arena_may_put_off(&process->arenas) && arena_give_late(&process->arenas);
    }
    heap_large_free_moved(&process->shared, slab, leaves);
    const bool besides = unlikely(due) && effort <= HEAP_EFFORT_LOOK;
    if (besides) {
        arena_give_late(&process->arenas);
    }
    // A span is soon given back; who has given back two collects nothing.
    heap_thread.effort = effort;
    heap_note_effort(besides ? HEAP_EFFORT_RELEASE : HEAP_EFFORT_LOOK);
}

// Frees a block that has been copied. The new one may have taken the call's system call, and so
// much besides that what can wait of this is left to later calls.
MALLOW_INLINE void resize_free(struct process *process, const struct heap_block *found, void *block,
                               uint64_t entries) {
    if (likely(found->kind == HEAP_BLOCK_SLAB)) {
        if (!resize_free_in_slab(process, found, block)) {
            heap_free_moved(&process->shared, heap_current(), found);
        }
        return;
    }
    if (found->kind == HEAP_BLOCK_HUGE) {
        const unsigned effort = heap_thread.effort;
        // One that has made a slab, or grown, or moved pages for the new mapping, or is to collect
        // others' frees besides, leaves all of that to a later call: there are few of these.
        bool dear = effort >= HEAP_EFFORT_SPAN;
        bool may_enter = false;
        // Where the cache has no place, who has its system call to spare uses it.
        if (!dear || huge_is_full(&process->huges)) {
            const bool entered = os_entries(&process->os) != entries;
            may_enter = !entered && (effort == 0 || huge_is_full(&process->huges));
            if (may_enter && effort == 0) {
                heap_note_effort(HEAP_EFFORT_HUGE);
            }
            dear = dear || (effort == HEAP_EFFORT_HUGE
                                ? entered
                                : effort == HEAP_EFFORT_LOOK && heap_is_late(heap_current()));
        }
        if (unlikely(dear) && huge_may_put_off(&process->huges)
                ? huge_put_off(&process->huges, found->huge, (uintptr_t)block)
                : huge_give_record(&process->huges, found->huge, (uintptr_t)block, may_enter)) {
            return;
        }
    } else if (found->kind == HEAP_BLOCK_LARGE) {
        resize_free_large(process, found->slab, os_entries(&process->os) != entries);
        return;
    } else if (thin_give_how(&process->thins, found->slab, (uintptr_t)block,
                             resize_leaves_slices(os_entries(&process->os) != entries))) {
        heap_note_effort(HEAP_EFFORT_LOOK);
        return;
    }
    (void)heap_free_far(&process->shared, heap_current(), (uintptr_t)block); // or reports it
    heap_note_effort(HEAP_EFFORT_LOOK);
}

MALLOW_INTERNAL void api_zero_resized(void *block, size_t usable_before, size_t usable_after,
                                      size_t size) {
    if (size < usable_before) {
        memset((char *)block + size, 0, bits_min(usable_before, usable_after) - size);
    }
    if (usable_after > usable_before) {
        memset((char *)block + usable_before, 0, usable_after - usable_before);
    }
}

static MALLOW_COLD void *resize_foreign(struct process *process, void *block, size_t size) {
    const size_t have = process_foreign_size(process, block);
    if (have == 0) {
        heap_report_foreign(&process->shared, (uintptr_t)block, "realloc");
    }
    void *const moved = api_malloc(size);
    if (moved != NULL) {
        memcpy(moved, block, bits_min(have, size));
        (void)process_foreign_free(process, block);
    }
    return moved;
}

// Ends a call that may have left memory free, as free ends; or by which a block has grown where it
// is, or with its pages: no heap has, and notes what that has made due.
MALLOW_INLINE void resize_end(struct process *process, uint64_t entries) {
    heap_settle(&process->shared, entries);
    process_poll(process, entries, true);
    if (unlikely(os_charge_is_due(&process->os.charge))) {
        (void)process_attend(process);
    }
}

// The same of one that has moved the block: a step in place of the background thread is left to
// another call, and so is the rest unless the call was a cheap one: others' frees, or else what is
// owed, if no span or mapping has been given up.
MALLOW_INLINE void resize_end_moved(struct process *process, enum heap_block_kind kind,
                                    uint64_t entries) {
    if (heap_thread.effort <= HEAP_EFFORT_LOOK) {
        struct heap *const heap = heap_current();
        if (unlikely(heap_is_late(heap))) {
            heap_collect_late(heap, heap_thread.effort == 0    ? MALLOW_CALL_WORK
                                    : kind >= HEAP_BLOCK_LARGE ? MALLOW_CALL_WORK - 1
                                                               : 1); // it needed a word, say
        } else if (kind < HEAP_BLOCK_LARGE && heap_thread.effort == 0) {
            heap_settle(&process->shared, entries);
        }
    }
    process_poll(process, entries, false);
}

// Whether a thread without a heap has slices of their own for a block that belongs in a slab: once,
// and a few times more while the arena has to grow for it, which is enough for a call.
static bool resize_may_be_apart(const struct process *process) {
    return heap_thread.ended == 0 &&
           (heap_thread.apart == 0 || (heap_thread.apart < API_APART_MAX &&
                                       !arena_has_free(&process->arenas)));
}

// The same as a thread's first call. A block that is in no slab needs no heap: the next call makes
// it. Others have slices of their own, which are had sooner than a slab that has to be made.
static MALLOW_NOINLINE void *resize_malloc_first(size_t size) {
    struct process *const process = process_ready();
    const bool slab = size <= MALLOW_SLAB_BYTES_MAX;
    if ((!slab || resize_may_be_apart(process)) && process->shared.reserve == NULL &&
        atomic_load_explicit(&process->os.charge.events, memory_order_relaxed) == 0) {
        const uintptr_t address = heap_allocate_apart(&process->shared, size, 1, false);
        heap_thread.apart = (uint8_t)(heap_thread.apart + slab);
        if (likely(address != 0)) {
            return (void *)address;
        }
    }
    struct heap *const heap = process_enter_own();
    if (heap == NULL) {
        return api_malloc(size);
    }
    heap_begin_first();
    heap_begin_effort();
    const uintptr_t address = size <= heap->shared->large_bytes_max
                                  ? heap_large_allocate(heap, size, MALLOW_SLICE_BYTES, false)
                                  : heap_allocate(heap, size, false);
    heap_end_first();
    heap_note_effort(HEAP_EFFORT_SPAN);
    return likely(address != 0 && !heap->attention) ? (void *)address
                                                    : api_allocate_end(size, heap, address);
}

// malloc, but for what the caller does in any case.
MALLOW_INLINE void *resize_malloc(size_t size) {
    struct heap *const heap = heap_current();
    uintptr_t address = 0;
    if (unlikely(heap_is_empty(heap))) {
        return resize_malloc_first(size);
    }
    if (size <= MALLOW_SMALL_BYTES_MAX) {
        if (heap_fast_allocate(heap, size, &address)) {
            return (void *)address;
        }
    } else if (size <= MALLOW_SINGLE_SLICE_BLOCK_MAX) {
        address = heap_take_medium(heap, size);
        if (likely(address != 0)) {
            return (void *)address;
        }
    }
    address = heap_allocate(heap, size, false);
    return likely(address != 0 && !heap->attention) ? (void *)address
                                                    : api_allocate_end(size, heap, address);
}

// Where a block of a kind moves to. `entered`: the kernel has refused to let it grow.
MALLOW_INLINE void *resize_allocate(enum heap_block_kind kind, bool entered, size_t size,
                                    struct api_layout layout, bool zeroed) {
    const enum heap_effort effort =
        unlikely(entered) ? HEAP_EFFORT_MOVE_REFUSED : heap_move_effort(kind);
    heap_begin_move(effort);
    void *const moved = layout.alignment == 1 && !zeroed ? resize_malloc(size)
                                                         : api_allocate(size, layout, zeroed);
    heap_end_move(effort);
    return moved;
}

MALLOW_INTERNAL MALLOW_COLD void *api_resize_stay(const struct heap_block *found, void *block,
                                                  size_t size, struct api_layout layout,
                                                  bool zeroed) {
    if (size > found->usable_bytes || !resize_is_aligned(block, layout)) {
        return NULL;
    }
    if (zeroed) {
        api_zero_resized(block, found->usable_bytes, found->usable_bytes, size);
    }
    return block;
}

// Both below, of which the first knows what most calls ask for.
MALLOW_INLINE void *resize_any(void *block, size_t size, struct api_layout layout, bool zeroed,
                               size_t usable_bytes) {
    if (block == NULL) {
        return api_allocate(size, layout, zeroed);
    }
    if (unlikely(size > (size_t)PTRDIFF_MAX)) {
        return api_fail(ENOMEM);
    }
    if (usable_bytes == HEAP_NOT_NEAR) {
        usable_bytes = 0;
    } else if (usable_bytes == 0) {
        usable_bytes = heap_fast_own_usable(heap_current(), (uintptr_t)block);
    }
    if (usable_bytes != 0 && resize_is_worth_keeping(usable_bytes, size) &&
        resize_is_aligned(block, layout)) {
        if (zeroed) {
            api_zero_resized(block, usable_bytes, usable_bytes, size);
        }
        return block;
    }
    struct process *const process = process_ready();
    const uint64_t entries = os_entries(&process->os);
    heap_begin_effort();
    const struct heap_block found =
        usable_bytes != 0 ? heap_fast_block_of(heap_current(), (uintptr_t)block, usable_bytes)
                          : heap_identify_here(&process->shared, (uintptr_t)block);
    if (unlikely(found.kind == HEAP_BLOCK_NONE)) {
        heap_report_misuse(&process->shared, (uintptr_t)block, "realloc");
        return resize_foreign(process, block, size);
    }
    const size_t mapped_before =
        zeroed && found.kind == HEAP_BLOCK_HUGE ? found.huge->mapped_bytes : 0;
    void *const kept = resize_keep(process, &found, block, size, layout);
    if (kept != NULL) {
        if (zeroed) {
            const size_t after = api_usable_size(kept, "realloc");
            api_zero_resized(kept, found.usable_bytes,
                             api_stale_bytes(&found, mapped_before, after), size);
        }
        if (found.kind >= HEAP_BLOCK_LARGE) {
            resize_end(process, entries);
        }
        return kept;
    }
    const bool entered = os_entries(&process->os) != entries;
    void *const moved = resize_allocate(found.kind, entered, size, layout, zeroed);
    if (unlikely(moved == NULL)) {
        return api_resize_stay(&found, block, size, layout, zeroed);
    }
    memcpy(moved, block, bits_min(found.usable_bytes, size));
    resize_free(process, &found, block, entries);
    resize_end_moved(process, found.kind, entries);
    return moved;
}

static MALLOW_NOINLINE void *resize_plain(void *block, size_t size, size_t usable_bytes) {
    return resize_any(block, size, api_plain, false, usable_bytes);
}

MALLOW_INTERNAL MALLOW_NOINLINE void *api_reallocate(void *block, size_t size,
                                                     struct api_layout layout, bool zeroed,
                                                     size_t usable_bytes) {
    return resize_any(block, size, layout, zeroed, usable_bytes);
}

MALLOW_INTERNAL void *api_expand(void *block, size_t size) {
    if (block == NULL || size > (size_t)PTRDIFF_MAX) {
        return NULL;
    }
    struct process *const process = process_ready();
    const struct heap_block found = heap_identify(&process->shared, (uintptr_t)block);
    if (unlikely(found.kind == HEAP_BLOCK_NONE)) {
        heap_report_misuse(&process->shared, (uintptr_t)block, "expand");
        if (process_foreign_size(process, block) == 0) {
            heap_report_foreign(&process->shared, (uintptr_t)block, "expand");
        }
        return NULL; // libc's
    }
    const uint64_t entries = os_entries(&process->os);
    heap_begin_effort();
    if (!heap_resize_in_place(&process->shared, &found, size)) {
        return NULL;
    }
    if (found.kind >= HEAP_BLOCK_LARGE) {
        resize_end(process, entries);
    }
    return block;
}

// A small block of the thread's own moves to another small one.
static MALLOW_NOINLINE void *resize_small(void *block, size_t size, size_t usable_bytes) {
    uintptr_t address;
    if (unlikely(!heap_fast_allocate(heap_current(), size, &address))) {
        return resize_plain(block, size, usable_bytes);
    }
    memcpy((void *)address, block, bits_min(usable_bytes, size));
    api_free(block);
    return (void *)address;
}

// No frame: what most calls want, a first block and one that stays where it is, is done here.
void *mw_realloc(void *block, size_t size) {
    if (block == NULL) {
        return api_malloc(size);
    }
    size_t other;
    const size_t usable_bytes = heap_fast_usable(heap_current(), (uintptr_t)block, &other);
    if (likely(usable_bytes != 0)) {
        if (resize_is_worth_keeping(usable_bytes, size)) {
            return block;
        }
        if (likely(size <= MALLOW_SMALL_BYTES_MAX)) {
            return resize_small(block, size, usable_bytes);
        }
        return resize_plain(block, size, usable_bytes);
    }
    return resize_plain(block, size, other);
}

void *mw_reallocn(void *block, size_t count, size_t size) {
    size_t total;
    return bits_multiply(count, size, &total) ? mw_realloc(block, total)
                                              : api_fail(ENOMEM);
}

void *mw_reallocarray(void *block, size_t count, size_t size) {
    return mw_reallocn(block, count, size);
}

MALLOW_INTERNAL MALLOW_COLD void api_reallocate_to_none_slow(void *block, struct heap *heap,
                                                             struct slab *slab) {
    (void)api_usable_size(block, "realloc");
    api_free_slow(block, heap, slab);
}

int mw_reallocarr(void *block_address, size_t count, size_t size) {
    void *block;
    size_t total;
    memcpy(&block, block_address, sizeof block);
    const int error = errno;
    if (!bits_multiply(count, size, &total)) {
        return EOVERFLOW;
    }
    void *moved = NULL;
    if (total == 0) {
        api_reallocate_to_none(block);
    } else {
        moved = mw_realloc(block, total);
        errno = error;
        if (moved == NULL) {
            return ENOMEM;
        }
    }
    memcpy(block_address, &moved, sizeof moved);
    return 0;
}

void *mw_reallocf(void *block, size_t size) {
    void *const moved = mw_realloc(block, size);
    if (moved == NULL) {
        api_free(block);
    }
    return moved;
}

void *mw_rezalloc(void *block, size_t size) {
    return api_reallocate(block, size, api_plain, true, 0);
}

void *mw_recalloc(void *block, size_t count, size_t size) {
    size_t total;
    return bits_multiply(count, size, &total) ? api_reallocate(block, total, api_plain, true, 0)
                                              : api_fail(ENOMEM);
}

void *mw_expand(void *block, size_t size) {
    return api_expand(block, size);
}

void *mw_try_realloc(void *block, size_t size) {
    return api_expand(block, size);
}

void *mw_try_realloc_aligned(void *block, size_t size, size_t alignment) {
    if (!bits_is_power_of_two(alignment) || ((uintptr_t)block & (alignment - 1)) != 0) {
        return NULL;
    }
    return api_expand(block, size);
}
