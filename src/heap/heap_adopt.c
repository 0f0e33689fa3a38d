// SPDX-License-Identifier: MIT
// Heap birth and end: heaps of threads that ended are taken over whole by new threads, and slab by
// slab by running ones. See heap.h.
//
// Threads  the queue of abandoned heaps is changed under the arena's lock, and read without. Who
//          ended first comes first, but for one heap with few slabs. For while a thread owns slabs
//          and waits for a processor, nobody else has the use of what is freed in them; in an
//          abandoned heap all have, and the longer it is that, the more of it is free.
// Holds    a heap on that queue is ABANDONED or, for a moment, CLAIMED; in a child of fork, maybe
//          for ever. Heaps are never unmapped, so a stale pointer read from the queue still points
//          to a heap.
#include "heap/heap.h"

#include "heap/heap_gate.h"
#include "heap/heap_rest.h"
#include "slab/size_class.h"

static struct heap *abandoned_next(const struct heap *heap) {
    return __atomic_load_n(&heap->next_abandoned, __ATOMIC_ACQUIRE);
}

// Has `next` follow `heap`, or come first; lock held.
static void abandoned_link(struct heap_shared *shared, struct heap *heap, struct heap *next) {
    if (heap != NULL) {
        __atomic_store_n(&heap->next_abandoned, next, __ATOMIC_RELEASE);
    } else {
        atomic_store_explicit(&shared->abandoned, next, memory_order_release);
    }
}

static uint32_t abandoned_slabs(const struct heap *heap) {
    return atomic_load_explicit(&heap->slab_count, memory_order_relaxed);
}

// Takes the heap behind `before`, or the first one, off the queue; lock held.
static void abandoned_unlink(struct heap_shared *shared, struct heap *before, struct heap *heap) {
    abandoned_link(shared, before, abandoned_next(heap));
    if (shared->abandoned_last == heap) {
        shared->abandoned_last = before;
    }
}

// Puts of the first few heaps the one with the fewest slabs first; lock held.
static void abandoned_sort(struct heap_shared *shared) {
    struct heap *const first = atomic_load_explicit(&shared->abandoned, memory_order_relaxed);
    struct heap *best = first;
    struct heap *before_best = NULL;
    struct heap *before = first;
    for (unsigned count = 1; before != NULL && count < MALLOW_BIRTH_BUDGET; count++) {
        struct heap *const heap = abandoned_next(before);
        if (heap == NULL) {
            break;
        }
        if (abandoned_slabs(heap) < abandoned_slabs(best)) {
            best = heap;
            before_best = before;
        }
        before = heap;
    }
    if (best != first) {
        abandoned_unlink(shared, before_best, best);
        abandoned_link(shared, best, first);
        abandoned_link(shared, NULL, best);
    }
}

static bool abandoned_arrived(const struct heap_shared *shared) {
    return atomic_load_explicit(&shared->arrived, memory_order_relaxed) != NULL;
}

// To the end of the queue; lock held.
static void abandoned_append(struct heap_shared *shared, struct heap *heap) {
    abandoned_link(shared, heap, NULL);
    abandoned_link(shared, shared->abandoned_last, heap);
    shared->abandoned_last = heap;
}

// What has arrived goes there; lock held.
static void abandoned_settle(struct heap_shared *shared) {
    struct heap *heap = atomic_exchange_explicit(&shared->arrived, NULL, memory_order_acquire);
    while (heap != NULL) {
        struct heap *const next = abandoned_next(heap);
        abandoned_append(shared, heap);
        heap = next;
    }
}

// Who ends has time to look for what the next to begin takes over. Whoever does not get the lock
// leaves the heap to those who next do.
static void abandoned_push(struct heap_shared *shared, struct heap *heap) {
    struct heap *head = atomic_load_explicit(&shared->arrived, memory_order_relaxed);
    do {
        abandoned_link(shared, heap, head);
    } while (!atomic_compare_exchange_weak_explicit(&shared->arrived, &head, heap,
                                                    memory_order_release, memory_order_relaxed));
    if (heap_lock_arenas(shared, shared->reserve == NULL)) { // there nobody waits for another
        abandoned_settle(shared);
        abandoned_sort(shared);
        os_lock_drop(&shared->arenas->lock);
    }
}

static bool abandoned_own(struct heap *heap) {
    uint32_t expected = HEAP_ABANDONED;
    return atomic_compare_exchange_strong_explicit(&heap->state, &expected, HEAP_OWNED,
                                                   memory_order_seq_cst, memory_order_relaxed);
}

// Of the first few of the queue the first in which nobody is at work, taken off it; NULL: there is
// none. The others go to the end: in a child of fork, whoever is at work in one may be gone. Lock
// held.
static struct heap *abandoned_take(struct heap_shared *shared) {
    for (unsigned count = 0; count < MALLOW_BIRTH_BUDGET; count++) {
        struct heap *const heap = atomic_load_explicit(&shared->abandoned, memory_order_relaxed);
        if (heap == NULL) {
            break;
        }
        abandoned_unlink(shared, NULL, heap);
        if (likely(abandoned_own(heap))) {
            return heap;
        }
        abandoned_append(shared, heap);
    }
    return NULL;
}

// A heap off the queue for a new thread. NULL: there is none to be had, or not without waiting.
static MALLOW_NOINLINE struct heap *abandoned_pop(struct heap_shared *shared, bool waits) {
    if (!heap_lock_arenas(shared, waits)) {
        return NULL;
    }
    if (unlikely(abandoned_arrived(shared))) {
        abandoned_settle(shared);
    }
    struct heap *const heap = abandoned_take(shared);
    os_lock_drop_here(&shared->arenas->lock);
    return heap;
}

MALLOW_INTERNAL void heap_shared_init(struct heap_shared *shared) {
    const struct arena *const primary = &shared->arenas->primary;
    if (primary->slice_count != 0) {
        shared->header_mask = (primary->slice_count - 1) << MALLOW_SLAB_HEADER_SHIFT;
        shared->header_base = (uintptr_t)primary->slabs;
        shared->remote_distance = (uintptr_t)primary->remotes - (uintptr_t)primary->slabs;
    } else {
        shared->header_mask = 0;
        shared->header_base = heap_empty.header_base;
    }
    atomic_store_explicit(&shared->way_bound, HEAP_WAY_SLACK_BYTES, memory_order_relaxed);
}

static void heap_set_table(struct heap *heap, const struct heap_shared *shared) {
    heap->header_mask = shared->header_mask;
    heap->header_base = shared->header_base;
}

MALLOW_INTERNAL void heap_confine(struct heap_shared *shared) {
    struct arena_set *const arenas = shared->arenas;
    os_lock_take(&arenas->lock);
    const struct arena_part part = arena_header_part(&arenas->primary);
    if (part.count != 0) {
        shared->header_mask = (part.count - 1) << MALLOW_SLAB_HEADER_SHIFT;
        shared->header_base = (uintptr_t)&arenas->primary.slabs[part.first];
        for (struct heap *heap = atomic_load_explicit(&shared->heaps, memory_order_acquire);
             heap != NULL; heap = heap->next_heap) {
            heap_set_table(heap, shared);
        }
        struct heap *const bare = atomic_load_explicit(&shared->bare, memory_order_acquire);
        if (bare != NULL) {
            heap_set_table(bare, shared);
        }
        arena_cut_headers(arenas, part);
    }
    os_lock_drop(&arenas->lock);
}

// Blocks of a kibibyte's unit are behind a lock: a heap with a reserve has had all of them.
static void heap_count_thin(struct heap *heap) {
    const uint8_t count = heap->reserve != NULL ? MALLOW_THIN_BLOCKS_MAX : 0;
    for (unsigned class_index = 0; class_index < MALLOW_THIN_CLASS_COUNT; class_index++) {
        heap->thin_counts[class_index] = count;
    }
}

static void heap_empty_places(struct heap *heap) {
    __builtin_memcpy(heap->direct, heap_empty.direct, sizeof heap->direct);
}

static struct heap *heap_create(struct heap_shared *shared, enum heap_state state,
                                struct reserve *reserve) {
    const size_t medium_bytes = reserve != NULL ? sizeof(struct heap_medium) : 0;
    const size_t bytes = bits_align_up(sizeof(struct heap), MALLOW_CACHE_LINE);
    struct heap *const heap = heap_take_table(shared, bytes + medium_bytes);
    if (heap == NULL) {
        return NULL;
    }
    heap->reserve = reserve;
    if (reserve != NULL) { // so that no later call needs memory of this kind
        heap->medium = (struct heap_medium *)((uintptr_t)heap + bytes);
    }
    heap_count_thin(heap);
    heap_set_table(heap, shared);
    heap_empty_places(heap);
    heap->shared = shared;
    atomic_store_explicit(&heap->state, state, memory_order_relaxed);
    struct heap *first = atomic_load_explicit(&shared->heaps, memory_order_relaxed);
    do {
        heap->next_heap = first;
    } while (!atomic_compare_exchange_weak_explicit(&shared->heaps, &first, heap,
                                                    memory_order_release, memory_order_relaxed));
    atomic_fetch_add_explicit(&shared->heap_count, 1, memory_order_relaxed);
    return heap;
}

MALLOW_INTERNAL void heap_begin_bare(struct heap_shared *shared, struct heap *heap) {
    heap_set_table(heap, shared);
    heap_empty_places(heap);
    atomic_store_explicit(&shared->bare, heap, memory_order_release);
}

MALLOW_INTERNAL struct heap *heap_create_fallback(struct heap_shared *shared) {
    return heap_create(shared, HEAP_ABANDONED, shared->reserve);
}

MALLOW_INTERNAL struct heap *heap_create_reserved(struct heap_shared *shared,
                                                  struct reserve *reserve) {
    return heap_create(shared, HEAP_OWNED, reserve);
}

MALLOW_INTERNAL void heap_forget(struct heap *heap) {
    while (heap_drain(heap, MALLOW_DRAIN_BUDGET, true) > 0) { // so that no post leads here any more
    }
    heap_empty_places(heap);
    for (size_t i = 0; i < MALLOW_DIRECT_CLASS_COUNT; i++) {
        heap->queue[i] = NULL;
    }
    *heap->medium = (struct heap_medium){{NULL}, {NULL}};
    for (size_t i = 0; heap->resting != NULL && i < MALLOW_DIRECT_CLASS_COUNT; i++) {
        __atomic_store_n(&heap->resting->slabs[i], NULL, __ATOMIC_RELAXED); // visitors read them
    }
    heap->spare = NULL;
    heap->guests = 0;
    heap->seats = 0;
    heap->refused = HEAP_NOT_REFUSED;
    heap->attention = false;
    heap_count_thin(heap);
    atomic_store_explicit(&heap->slab_count, 0, memory_order_relaxed);
    heap->early_count = 0;
}

MALLOW_INTERNAL struct heap *heap_adopt_or_create(struct heap_shared *shared) {
    const bool any = heap_has_ended(shared) || abandoned_arrived(shared);
    const bool waits = shared->reserve == NULL; // else nobody does for another thread, if it can
    struct heap *heap = any ? abandoned_pop(shared, waits) : NULL;
    if (heap == NULL) {
        struct heap *const made = heap_create(shared, HEAP_OWNED, shared->reserve);
        if (likely(made != NULL) || !any || waits) {
            return made;
        }
        heap = abandoned_pop(shared, true);
    }
    if (heap != NULL) {
        atomic_fetch_add_explicit(&shared->adopted_count, 1, memory_order_relaxed);
    }
    return heap;
}

MALLOW_INTERNAL void heap_abandon(struct heap *heap) {
    heap_gate_enter(heap);
    atomic_store_explicit(&heap->thread, 0, memory_order_relaxed);
    for (unsigned class_index = 0; class_index < MALLOW_CLASS_COUNT; class_index++) {
        const struct slab *const current = heap_current_slab(heap, class_index);
        if (current != NULL) {
            heap_return_lent(heap, current);
            heap_retire_current(heap, class_index);
        }
    }
    heap_drop_spare(heap);
    thin_leave(heap->shared->thins, &heap->thin);
    heap_count_thin(heap); // the next thread begins thin again
    atomic_store_explicit(&heap->state, HEAP_CLAIMED, memory_order_relaxed);
    heap_gate_leave(heap); // before anybody else can be at it
    (void)heap_drain(heap, MALLOW_UNCLAIM_BUDGET, true);
    int work = MALLOW_CALL_WORK;
    heap_unclaim(heap, &work);
    abandoned_push(heap->shared, heap);
}

// A slab that is queued in a claimed heap becomes this heap's own.
static void heap_take_slab_of(struct heap *heap, struct heap *from, struct slab *slab) {
    heap_queue_remove(from, slab);
    atomic_fetch_sub_explicit(&from->slab_count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&heap->slab_count, 1, memory_order_relaxed);
    slab_change_owner(slab, (uintptr_t)heap | SLAB_OWNER_QUEUED);
}

// The class's next slab with room in a claimed heap, made this heap's own.
static struct slab *heap_take_over(struct heap *heap, struct heap *from, unsigned class_index) {
    struct slab *const slab = heap_queue_first(from, class_index);
    if (slab != NULL) {
        heap_take_slab_of(heap, from, slab);
    }
    return slab;
}

MALLOW_INTERNAL void heap_take_along(struct heap *heap, struct heap *from, struct slab *slab) {
    if ((slab_owner(slab) & ~SLAB_OWNER_PENDING) != ((uintptr_t)from | SLAB_OWNER_QUEUED) ||
        heap_is_empty(heap) || heap->reserve != from->reserve) {
        return; // it has been given up, or cannot be had
    }
    const unsigned class_index = slab->class_index;
    if ((class_index < MALLOW_DIRECT_CLASS_COUNT || heap_medium_of(heap) != NULL) &&
        heap_queue_first(heap, class_index) == NULL) {
        heap_take_slab_of(heap, from, slab);
        heap_queue_push(heap, slab);
    }
}

// Whether there is something to be had in an abandoned heap: of the class, or what others have
// freed, of which there need be no class. Read without a claim, so it is a hint.
MALLOW_RACY_READ static bool adopt_looks_useful(const struct heap *heap, unsigned class_index) {
    return heap_has_posts(heap) ||
           (class_index < MALLOW_CLASS_COUNT && heap_queue_first(heap, class_index) != NULL);
}

// The first of a few heaps on the queue that looks as if it could help, claimed; NULL: none does.
// They stay there: who has claimed one may work in it, and one that a new thread has taken
// meanwhile cannot be claimed. Its link may be of another time by then, and still leads to heaps,
// or nowhere.
MALLOW_INLINE struct heap *adopt_claim(struct heap *heap, unsigned class_index,
                                       unsigned budget) {
    struct heap *from = atomic_load_explicit(&heap->shared->abandoned, memory_order_acquire);
    heap_note_effort(HEAP_EFFORT_LOOK);
    for (unsigned count = 0; from != NULL && count < budget; count++) {
        if (adopt_looks_useful(from, class_index) && heap_claim(from)) {
            return from;
        }
        from = abandoned_next(from);
    }
    return NULL;
}

// One heap a call is worked in. A posted slab of another class is left to heap_drain_ended: a call
// that collects it has no time to open a slab as well.
MALLOW_INTERNAL MALLOW_NOINLINE struct slab *heap_adopt_slab(struct heap *heap,
                                                             unsigned class_index, int *work) {
    // A slab of several slices costs most to open, if none is found; guests cost something besides.
    const bool dear = class_index >= MALLOW_DIRECT_CLASS_COUNT || heap_is_crowded(heap->shared);
    const unsigned budget = dear ? 1 : MALLOW_ADOPT_BUDGET;
    struct heap *const from = adopt_claim(heap, class_index, budget);
    if (from == NULL) {
        return NULL;
    }
    // Collecting may give the slab up, and then one has to be opened besides.
    if (!dear && heap_thread.effort <= HEAP_EFFORT_LOOK &&
        heap_queue_first(from, class_index) == NULL && heap_next_post_is_of(from, class_index)) {
        (void)heap_drain_one(from, work, true);
    }
    struct slab *const slab = heap_take_over(heap, from, class_index);
    *work = 0; // one is retired for it, or has to be opened: what is posted there is left to others
    heap_unclaim(from, work);
    return slab;
}

MALLOW_INTERNAL MALLOW_NOINLINE void heap_drain_ended(struct heap *heap, int *work) {
    struct heap *const from = adopt_claim(heap, MALLOW_CLASS_COUNT, MALLOW_ADOPT_BUDGET);
    if (from != NULL) {
        heap_unclaim(from, work); // collects
    }
}
