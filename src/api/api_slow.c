// SPDX-License-Identifier: MIT
// API, slow twins: what the fast path hands over. See api.h.
#include "api/api.h"

#include "heap/heap_gate.h"
#include "heap/heap_near.h"
#include "process/process.h"

MALLOW_INTERNAL MALLOW_COLD void *api_fail(int error) {
    errno = error;
    return NULL;
}

// What became due while this thread's heap grew.
static MALLOW_COLD void api_attend(struct heap *heap) {
    heap->attention = false;
    heap->attention = process_attend(process_ready());
}

MALLOW_INLINE uintptr_t api_take(struct heap *heap, size_t size, size_t alignment, bool zeroed) {
    return alignment <= MALLOW_GRANULE_BYTES ? heap_allocate(heap, size, zeroed)
                                             : heap_allocate_aligned(heap, size, alignment, zeroed);
}

// Runs an allocation in the calling thread's heap, or in the fallback heap, held for as long as it
// takes: where nothing else will do.
static MALLOW_COLD uintptr_t api_allocate_in_heap(size_t size, struct api_layout layout,
                                                  bool zeroed) {
    struct heap *const heap = process_enter();
    uintptr_t address = 0;
    if (heap != NULL) {
        address = layout.offset != 0
                      ? heap_allocate_at(heap, size, layout.alignment, layout.offset)
                      : api_take(heap, size, layout.alignment, zeroed);
        process_leave(heap);
    }
    if (unlikely(heap_current()->attention)) {
        api_attend(heap_current());
    }
    return address;
}

// No memory: once more if the program can shed some.
static MALLOW_COLD void *api_exhausted(size_t size, struct api_layout layout, bool zeroed) {
    struct process *const process = process_ready();
    uintptr_t address = 0;
    if (process_shed_for(process, size)) {
        address = api_allocate_in_heap(size, layout, zeroed);
    }
    if (address != 0) {
        return (void *)address;
    }
    os_charge_note_refusal(&process->os);
    return api_fail(ENOMEM);
}

MALLOW_INTERNAL MALLOW_COLD void *api_allocate_end(size_t size, struct heap *heap,
                                                   uintptr_t address) {
    static const struct api_layout plain = {1, 0};
    if (heap->attention) {
        api_attend(heap);
    }
    return address != 0 ? (void *)address : api_exhausted(size, plain, false);
}

// A block that is in no slab for a thread without a heap: a mapping; or slices, a few times, while
// the arena may have to grow for it. Either is enough for a call: another makes the heap. 0: none,
// or not so.
static MALLOW_COLD uintptr_t api_allocate_apart(size_t size, size_t alignment, bool zeroed) {
    struct process *const process = process_ready();
    const bool huge = size > process->shared.large_bytes_max;
    if (alignment > MALLOW_CHUNK_BYTES / 2 || heap_thread.ended != 0 ||
        process->shared.reserve != NULL ||
        (!huge && (heap_thread.apart >= API_APART_MAX ||
                   arena_is_low(&process->arenas) == ARENA_NOT_LOW)) ||
        atomic_load_explicit(&process->os.charge.events, memory_order_relaxed) != 0) {
        return 0;
    }
    heap_thread.apart = (uint8_t)(heap_thread.apart + !huge);
    const uint64_t entries = os_entries(&process->os);
    const uintptr_t address = heap_allocate_apart(&process->shared, size, alignment, zeroed);
    if (unlikely(process->os.polls_growth)) { // there may be no other calls
        process_poll_after(process, entries, HEAP_EFFORT_SPAN, false);
    }
    return address;
}

// The first call of a thread, which makes its heap.
static MALLOW_NOINLINE void *api_allocate_first(size_t size, struct api_layout layout,
                                                bool zeroed) {
    if (unlikely(size > MALLOW_SLAB_BYTES_MAX)) {
        const uintptr_t apart = api_allocate_apart(size, layout.alignment, zeroed);
        if (apart != 0) {
            return (void *)apart;
        }
    }
    struct heap *const heap = process_enter_own();
    uintptr_t address;
    if (unlikely(heap == NULL)) {
        address = api_allocate_in_heap(size, layout, zeroed);
        return address != 0 ? (void *)address : api_exhausted(size, layout, zeroed);
    }
    heap_begin_first();
    address = api_take(heap, size, layout.alignment, zeroed);
    heap_end_first();
    if (unlikely(heap->attention)) {
        api_attend(heap);
    }
    return likely(address != 0) ? (void *)address : api_exhausted(size, layout, zeroed);
}

// Work waits, and there is no background thread: growth may be work, too, and nobody frees, it may
// be, for long. A large block is a span and little else, and there may be no other calls.
static MALLOW_COLD uintptr_t api_allocate_polling(size_t size, struct heap *heap, bool zeroed) {
    struct process *const process = process_ready();
    const uint64_t entries = os_entries(&process->os);
    const uintptr_t address = heap_allocate(heap, size, zeroed);
    process_poll_after(process, entries,
                       size > MALLOW_SLAB_BYTES_MAX ? HEAP_EFFORT_SPAN : MALLOW_CALL_EFFORT, false);
    return address;
}

static MALLOW_NOINLINE void *api_allocate_slow(size_t size, struct heap *heap, bool zeroed) {
    static const struct api_layout plain = {1, 0};
    if (unlikely(size > (size_t)PTRDIFF_MAX)) {
        return api_fail(ENOMEM);
    }
    if (unlikely(heap_is_empty(heap))) {
        return api_allocate_first(size, plain, zeroed);
    }
    const bool polls =
        unlikely(heap->shared->os->polls_growth) &&
        atomic_load_explicit(&heap->shared->os->work, memory_order_relaxed) != 0 &&
        worker_is_absent(&process_ready()->worker);
    const uintptr_t address = unlikely(polls) ? api_allocate_polling(size, heap, zeroed)
                                              : heap_allocate(heap, size, zeroed);
    if (unlikely(heap->attention)) {
        api_attend(heap);
    }
    return likely(address != 0) ? (void *)address : api_exhausted(size, plain, zeroed);
}

// No frame: each call from here is the last.
MALLOW_INTERNAL MALLOW_NOINLINE void *api_malloc_slow(size_t size, struct heap *heap) {
    uintptr_t address = 0;
    if (size <= MALLOW_SMALL_BYTES_MAX) {
        if (likely(heap_near_take(heap, heap_fast_current(heap, size), &address))) {
            return (void *)address;
        }
    } else if (size <= MALLOW_SINGLE_SLICE_BLOCK_MAX) {
        address = heap_take_medium(heap, size);
        if (likely(address != 0)) {
            return (void *)address;
        }
    }
    return api_allocate_slow(size, heap, false);
}

MALLOW_INTERNAL MALLOW_NOINLINE void *api_zalloc_slow(size_t size, struct heap *heap) {
    return api_allocate_slow(size, heap, true);
}

static void *api_allocate_aligned_slow(size_t size, size_t alignment, bool zeroed) {
    const struct api_layout layout = {alignment, 0};
    if (unlikely(!bits_is_power_of_two(alignment))) {
        return api_fail(EINVAL);
    }
    if (unlikely(size > (size_t)PTRDIFF_MAX || alignment > (size_t)PTRDIFF_MAX)) {
        return api_fail(ENOMEM);
    }
    struct heap *const heap = heap_current();
    if (unlikely(heap_is_empty(heap))) {
        return api_allocate_first(size, layout, zeroed);
    }
    const uintptr_t address = api_take(heap, size, alignment, zeroed);
    if (unlikely(heap->attention)) {
        api_attend(heap);
    }
    return likely(address != 0) ? (void *)address : api_exhausted(size, layout, zeroed);
}

MALLOW_INTERNAL MALLOW_NOINLINE void *api_malloc_aligned_slow(size_t size, size_t alignment) {
    return api_allocate_aligned_slow(size, alignment, false);
}

MALLOW_INTERNAL MALLOW_NOINLINE void *api_zalloc_aligned_slow(size_t size, size_t alignment) {
    return api_allocate_aligned_slow(size, alignment, true);
}

// A thread's first call, or one that has been `tried` and for which there is no memory: errno,
// which that sets, stays as it was.
static MALLOW_COLD int api_posix_memalign_rest(size_t size, size_t alignment,
                                               void **block_address, bool tried) {
    const struct api_layout layout = {alignment, 0};
    const int error = errno;
    void *const block = tried ? api_exhausted(size, layout, false)
                              : api_allocate_first(size, layout, false);
    if (block == NULL) {
        errno = error;
        return ENOMEM;
    }
    *block_address = block;
    return 0;
}

MALLOW_INTERNAL MALLOW_NOINLINE int api_posix_memalign_slow(size_t size, size_t alignment,
                                                            void **block_address) {
    struct heap *const heap = heap_current();
    if (unlikely(size > (size_t)PTRDIFF_MAX || alignment > (size_t)PTRDIFF_MAX)) {
        return ENOMEM;
    }
    if (unlikely(heap_is_empty(heap))) {
        return api_posix_memalign_rest(size, alignment, block_address, false);
    }
    const uintptr_t address = api_take(heap, size, alignment, false);
    if (unlikely(heap->attention)) {
        api_attend(heap);
    }
    if (unlikely(address == 0)) {
        return api_posix_memalign_rest(size, alignment, block_address, true);
    }
    *block_address = (void *)address;
    return 0;
}

MALLOW_INTERNAL size_t api_page_bytes(void) {
    return process_ready()->os.page_bytes;
}

static void *api_allocate_at(size_t size, struct api_layout layout) {
    if (size > (size_t)PTRDIFF_MAX || layout.alignment > (size_t)PTRDIFF_MAX) {
        return api_fail(ENOMEM);
    }
    const uintptr_t address = api_allocate_in_heap(size, layout, true);
    return address != 0 ? (void *)address : api_exhausted(size, layout, true);
}

MALLOW_INTERNAL void *api_allocate(size_t size, struct api_layout layout, bool zeroed) {
    if (!bits_is_power_of_two(layout.alignment)) {
        return api_fail(EINVAL);
    }
    if ((layout.offset & (layout.alignment - 1)) != 0) {
        return api_allocate_at(size, layout); // zeroed already
    }
    if (layout.alignment <= MALLOW_GRANULE_BYTES) {
        return zeroed ? api_zalloc(size) : api_malloc(size);
    }
    return zeroed ? api_zalloc_aligned_slow(size, layout.alignment)
                  : api_malloc_aligned(size, layout.alignment);
}

MALLOW_INTERNAL MALLOW_NOINLINE void api_free_emptied(struct slab *slab) {
    struct heap *const heap = heap_current();
    struct heap_shared *const shared = heap->shared;
    const uint64_t entries = os_entries(shared->os);
    heap_begin_effort();
    heap_slab_refilled(heap, slab, false);
    heap_settle(shared, entries);
    process_poll(process_ready(), entries, true);
}

static void api_free_any(struct process *process, void *block) {
    struct heap *heap = heap_current();
    if (unlikely(heap == &heap_empty)) {
        heap = process_enter_bare(process);
    }
    if (likely(heap_free(&process->shared, heap, (uintptr_t)block))) {
        return;
    }
    const int error = errno;
    if (!process_foreign_free(process, block)) {
        heap_report_foreign(&process->shared, (uintptr_t)block, "free");
    }
    errno = error;
}

// More than a bit is to be changed. `capacity`: see heap_near_free.
static MALLOW_NOINLINE void api_free_more(void *block, enum heap_near near, size_t capacity) {
    if (block == NULL) {
        return;
    }
    struct process *const process = process_ready();
    const uint64_t entries = os_entries(&process->os);
    if (near == HEAP_NEAR_MARKED) {
        heap_free_marked(&process->shared, (uintptr_t)block, capacity);
    } else {
        api_free_any(process, block);
    }
    heap_settle(&process->shared, entries);
    process_poll(process, entries, true);
}

// No frame: each call from here is the last.
MALLOW_INTERNAL MALLOW_NOINLINE void api_free_slow(void *block, struct heap *heap,
                                                   struct slab *slab) {
    size_t capacity = 0;
    const enum heap_near near =
        heap_near_free(process_shared(), heap, slab, (uintptr_t)block, &capacity);
    if (likely(near == HEAP_NEAR_QUIET)) {
        return; // nothing has become due by this call
    }
    api_free_more(block, near, capacity);
}
