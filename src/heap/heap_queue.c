// SPDX-License-Identifier: MIT
// Heap queues: which slab is current, queued, full or given up. See heap.h.
#include "heap/heap.h"

#include "heap/heap_gate.h"
#include "heap/heap_rest.h"
#include "os/fatal.h"
#include "slab/size_class.h"

enum {
    QUEUE_COUNT_BATCH = 8,
    QUEUE_WORK_SLABS = MALLOW_WORK_BYTES >> MALLOW_SLICE_SHIFT,
};

MALLOW_INLINE void queue_set_pair(struct slab **place, struct slab *slab) {
    __atomic_store_n(&place[0], slab, __ATOMIC_RELEASE);
    __atomic_store_n(&place[1], slab, __ATOMIC_RELEASE);
}

// The most places that a class has; more than 8 only with fewer than four classes a doubling.
enum { QUEUE_PLACES_MAX = 32 >> MALLOW_CLASS_STEP_BITS };

// So many places of a class, a power of two: straight down from the last.
MALLOW_INLINE void queue_set_places(struct slab **first, size_t count, struct slab *slab) {
    for (; QUEUE_PLACES_MAX > 8 && count > 8; count -= 2) {
        queue_set_pair(&first[count - 2], slab);
    }
    switch (count) {
    case 8:
        queue_set_pair(&first[6], slab);
        queue_set_pair(&first[4], slab);
        __attribute__((fallthrough));
    case 4:
        queue_set_pair(&first[2], slab);
        __attribute__((fallthrough));
    case 2:
        queue_set_pair(first, slab);
        break;
    default:
        __atomic_store_n(first, slab, __ATOMIC_RELEASE);
    }
}

// Leads malloc's fast path to `slab`, or the empty slab, for every size of the class.
static void queue_set_direct(struct heap *heap, unsigned class_index, struct slab *slab) {
    const size_t last = size_class_bytes(class_index) >> MALLOW_GRANULE_SHIFT;
    const size_t count = class_index > 0 ? size_class_granules(class_index) : 2; // size 0 as well
    check_assert(bits_is_power_of_two(count) && count <= QUEUE_PLACES_MAX);
    queue_set_places(&heap->direct[last + 1 - count], count, slab);
}

// Leads malloc for guests of a host, whose last place is the one before `end`, to the empty slab.
MALLOW_INLINE void queue_clear_guests(struct slab **end, unsigned host, uint32_t guests,
                                      unsigned granules) {
    struct slab *const none = heap_empty.direct[0];
    struct slab **const first = end - (size_t)2 * granules; // of the class below the host
    const uint32_t below = guests << (32 - host);           // in the highest bit
    MALLOW_UNROLL_8 // so that a class is a few instructions
    for (unsigned i = 0; i + 1 < MALLOW_CLASS_STEPS; i++) {
        if ((below << i) >> 31 != 0) {
            queue_set_places(first - (size_t)i * granules, granules, none);
        }
    }
}

// The class's slab leaves its place, or the class has one of its own.
static MALLOW_NOINLINE void queue_dismiss(struct heap *heap, unsigned class_index) {
    const uint32_t leaving = heap->guests & size_class_guests(class_index);
    heap->guests &= ~(leaving | UINT32_C(1) << class_index);
    heap->seats &= ~(leaving | UINT32_C(1) << class_index);
    if (leaving == 0) {
        return;
    }
    // From the host's last place down, which has as many places as each guest.
    const unsigned granules = size_class_granules(class_index);
    struct slab **const end =
        &heap->direct[(size_class_bytes(class_index) >> MALLOW_GRANULE_SHIFT) + 1];
    switch (granules) { // a short loop each
    case 1:
        queue_clear_guests(end, class_index, leaving, 1);
        break;
    case 2:
        queue_clear_guests(end, class_index, leaving, 2);
        break;
    case 4:
        queue_clear_guests(end, class_index, leaving, 4);
        break;
    default:
        queue_clear_guests(end, class_index, leaving, granules);
    }
}

// Leads the fast path to `slab`, or to the empty slab, for the class, and for no guest of it.
static void queue_lead(struct heap *heap, unsigned class_index, struct slab *slab) {
    queue_set_direct(heap, class_index, slab);
    if (unlikely((heap->seats >> class_index & 1) != 0)) {
        queue_dismiss(heap, class_index);
    }
}

MALLOW_INTERNAL struct slab *heap_seat(const struct heap *heap, unsigned *class_index) {
    const unsigned host = size_class_host(*class_index);
    if (host == *class_index || heap->queue[*class_index] != NULL) {
        return NULL;
    }
    struct slab *const slab = heap_current_slab(heap, host);
    if (slab != NULL && heap_is_host_out(slab)) {
        return NULL;
    }
    *class_index = host;
    return slab;
}

MALLOW_INTERNAL MALLOW_NOINLINE void heap_seat_guest(struct heap *heap, unsigned class_index,
                                                     struct slab *slab) {
    heap->guests |= UINT32_C(1) << class_index;
    heap->seats |= UINT32_C(1) << class_index | UINT32_C(1) << size_class_host(class_index);
    queue_set_direct(heap, class_index, slab);
}

MALLOW_INLINE void queue_set_small_place(struct heap *heap, unsigned class_index,
                                         struct slab *slab) {
    queue_lead(heap, class_index, slab);
    struct heap_resting *const resting = __atomic_load_n(&heap->resting, __ATOMIC_RELAXED);
    if (unlikely(resting != NULL)) {
        __atomic_store_n(&resting->slabs[class_index], NULL, __ATOMIC_RELEASE);
    }
}

// Puts `slab`, or the empty slab, in the current one's place.
MALLOW_INLINE void queue_set_place(struct heap *heap, unsigned class_index, struct slab *slab) {
    if (class_index < MALLOW_DIRECT_CLASS_COUNT) {
        queue_set_small_place(heap, class_index, slab);
    } else {
        heap_medium_of(heap)->current[class_index - MALLOW_DIRECT_CLASS_COUNT] =
            slab != heap_empty.direct[0] ? slab : NULL;
    }
}

MALLOW_INTERNAL void heap_hide_current(struct heap *heap, unsigned class_index) {
    queue_lead(heap, class_index, heap_empty.direct[0]);
}

MALLOW_INTERNAL void heap_show_current(struct heap *heap, unsigned class_index, struct slab *slab) {
    queue_set_place(heap, class_index, slab);
}

static struct slab **queue_of(struct heap *heap, unsigned class_index) {
    return class_index < MALLOW_DIRECT_CLASS_COUNT
               ? &heap->queue[class_index]
               : &heap_medium_of(heap)->queue[class_index - MALLOW_DIRECT_CLASS_COUNT];
}

MALLOW_INTERNAL bool heap_prepare_class(struct heap *heap, unsigned class_index) {
    if (class_index < MALLOW_DIRECT_CLASS_COUNT || heap_medium_of(heap) != NULL) {
        return true;
    }
    struct heap_medium *const medium = heap_take_table(heap->shared, sizeof *medium);
    atomic_store_explicit(&heap->medium, medium, memory_order_release);
    if (heap_thread.first_effort != 0) {
        heap_note_effort(HEAP_EFFORT_LOOK); // a block that moves: enough to look for no other slab
    }
    return medium != NULL;
}

MALLOW_INTERNAL MALLOW_COLD struct slab *heap_resting_slab(const struct heap *heap,
                                                          unsigned class_index) {
    const struct heap_resting *const resting = __atomic_load_n(&heap->resting, __ATOMIC_ACQUIRE);
    return __atomic_load_n(&resting->slabs[class_index], __ATOMIC_RELAXED);
}

MALLOW_INTERNAL void heap_set_current(struct heap *heap, unsigned class_index, struct slab *slab) {
    check_assert(!slab_is_current(slab) && slab_owner_heap(slab) == (uintptr_t)heap);
    slab->used_count += SLAB_CURRENT;
    slab_change_owner(slab, (uintptr_t)heap);
    queue_set_place(heap, class_index, slab);
}

// A ring: the first slab's `previous` is the last one.
MALLOW_INTERNAL void heap_queue_push(struct heap *heap, struct slab *slab) {
    struct slab **const head = queue_of(heap, slab->class_index);
    struct slab *const first = *head;
    if (first == NULL) {
        slab->next = slab;
        slab->previous = slab;
        *head = slab;
        return;
    }
    slab->next = first;
    slab->previous = first->previous;
    first->previous->next = slab;
    first->previous = slab;
}

MALLOW_INTERNAL void heap_queue_remove(struct heap *heap, struct slab *slab) {
    struct slab **const head = queue_of(heap, slab->class_index);
    if (slab->next == slab) {
        *head = NULL;
    } else {
        slab->previous->next = slab->next;
        slab->next->previous = slab->previous;
        if (*head == slab) {
            *head = slab->next;
        }
    }
    slab->next = NULL;
    slab->previous = NULL;
}

MALLOW_INTERNAL void heap_check_twice(const struct slab *slab, const struct slab_remote *remote,
                                      unsigned word_index) {
    const uint64_t twice = slab->bits[word_index] &
                           atomic_load_explicit(&remote->bits[word_index], memory_order_relaxed);
    if (unlikely(twice != 0)) {
        const size_t index = word_index * 64 + bits_lowest(twice);
        fatal_misuse("double free of", slab->start_address + index * slab->block_bytes,
                     "another thread freed this block as well");
    }
}

MALLOW_INTERNAL MALLOW_NOINLINE void heap_check_pending_slab(const struct heap *heap,
                                                             const struct slab *slab) {
    const struct slab_remote *const remote = arena_remote_of(heap->shared->arenas, slab);
    for (unsigned i = 0; i < slab->word_count; i++) {
        heap_check_twice(slab, remote, i);
    }
}

MALLOW_INTERNAL void heap_release_slab(struct heap *heap, struct slab *slab) {
    check_assert(slab->used_count == 0 && slab_audit(slab));
    heap_check_slab(heap, slab);
    const unsigned slice_count = slab->slice_count;
    heap_note_effort(HEAP_EFFORT_RELEASE);
    atomic_fetch_sub_explicit(&heap->slab_count, 1, memory_order_relaxed);
    slab_clear(slab);
    arena_give(heap->shared->arenas, slab, slice_count);
    if (unlikely(heap_allowance(heap) != NULL)) {
        heap_allowance_release(heap, slice_count);
    }
}

// Slabs that were full and are no longer: many of them, in a heap that is not small, may come to
// have pages that nobody needs.
static MALLOW_NOINLINE void queue_note_refilled(struct heap_shared *shared) {
    const uint32_t count =
        atomic_fetch_add_explicit(&shared->refilled_count, QUEUE_COUNT_BATCH, memory_order_relaxed);
    const size_t committed =
        __atomic_load_n(&shared->arenas->primary.committed_slices, __ATOMIC_RELAXED);
    if (count % QUEUE_WORK_SLABS == 0 && committed > 2 * MALLOW_WORK_BYTES >> MALLOW_SLICE_SHIFT) {
        os_raise_work(shared->os);
    }
}

MALLOW_INTERNAL struct slab *heap_detach_spare(struct heap *heap, unsigned class_index) {
    struct slab *const slab = heap_current_slab(heap, class_index);
    if (slab == NULL || (slab_owner(slab) & ~SLAB_OWNER_PENDING) != (uintptr_t)heap ||
        slab->used_count % SLAB_CURRENT > 1 || slab_has_lent(slab)) {
        // One that has been retired, and may be another's now, is in its place until the next one
        // is; a hot block counts as used; a class that lends is at work.
        return NULL;
    }
    slab_cool(slab);
    if (!slab_is_unused(slab)) {
        return NULL;
    }
    queue_set_place(heap, class_index, heap_empty.direct[0]);
    slab->used_count -= SLAB_CURRENT;
    return slab;
}

MALLOW_INTERNAL void heap_keep_spare(struct heap *heap, struct slab *slab) {
    if (heap->spare == NULL) {
        heap->spare = slab;
    } else {
        heap_release_slab(heap, slab);
    }
}

MALLOW_INTERNAL void heap_drop_spare(struct heap *heap) {
    if (heap->spare != NULL) {
        heap_release_slab(heap, heap->spare);
        heap->spare = NULL;
    }
}

MALLOW_INTERNAL void heap_release_spare(struct heap *heap) {
    const bool inside = atomic_load_explicit(&heap->busy, memory_order_relaxed) != 0;
    if (!inside) {
        heap_gate_enter(heap); // no visitor may put to rest what is given up here
    }
    heap_drop_spare(heap);
    for (unsigned class_index = 0; class_index < MALLOW_CLASS_COUNT; class_index++) {
        struct slab *const slab = heap_detach_spare(heap, class_index);
        if (slab != NULL) {
            heap_release_slab(heap, slab);
        }
    }
    if (!inside) {
        heap_gate_leave(heap);
    }
}

MALLOW_INTERNAL void heap_slab_refilled(struct heap *heap, struct slab *slab, bool was_full) {
    if (slab_is_current(slab)) {
        return; // it stays for the next malloc, even when it is empty
    }
    if (slab->used_count == 0) {
        if (!was_full) {
            heap_queue_remove(heap, slab);
        }
        heap_release_slab(heap, slab);
    } else if (was_full) {
        heap_queue_push(heap, slab);
        if (unlikely(++heap->refilled_count % QUEUE_COUNT_BATCH == 0)) {
            queue_note_refilled(heap->shared);
        }
    }
}

MALLOW_INTERNAL void heap_settle_lent(struct heap *heap, struct slab *slab) {
    if (!slab_has_reused(slab)) {
        return; // none of its blocks has been lent
    }
    __atomic_store_n(&slab->reused, 0, __ATOMIC_RELAXED);
    struct slab *const current = heap_current_slab(heap, slab->class_index);
    if (current == NULL || current == slab || compiler_relaxed_byte(&current->hot) == 0) {
        return;
    }
    const size_t index = slab_index_of(slab, compiler_relaxed_word(&current->last));
    if (index != SIZE_MAX) {
        slab_set_hot(current, false);
        slab_set_last(current, 0);
        slab->bits[index / 64] |= UINT64_C(1) << (index % 64);
        slab->used_count--;
    }
}

MALLOW_INTERNAL void heap_retire_current(struct heap *heap, unsigned class_index) {
    struct slab *const slab = heap_current_slab(heap, class_index);
    if (slab != NULL) {
        heap_leave_place(heap, class_index);
        heap_retire(heap, slab);
    }
}

MALLOW_INTERNAL void heap_leave_place(struct heap *heap, unsigned class_index) {
    queue_set_place(heap, class_index, heap_empty.direct[0]);
}

MALLOW_INTERNAL void heap_retire(struct heap *heap, struct slab *slab) {
    check_assert(!slab_has_lent(slab));
    slab_cool(slab);
    slab->used_count -= SLAB_CURRENT;
    if (!slab_can_open(slab) && slab_is_out(slab)) {
        slab_change_owner(slab, (uintptr_t)heap | SLAB_OWNER_FULL);
        return;
    }
    if (slab->used_count == 0) {
        heap_release_slab(heap, slab);
    } else {
        slab_change_owner(slab, (uintptr_t)heap | SLAB_OWNER_QUEUED);
        heap_queue_push(heap, slab);
    }
}
