// SPDX-License-Identifier: MIT
// Own heaps: see heap_own.h.
#include "heap/heap_own.h"

#include "heap/heap_gate.h"
#include "heap/heap_large.h"
#include "os/os_pages.h"

static void own_keep(struct heap_own *own) {
    struct heap_shared *const shared = own->shared;
    os_lock_take(&shared->arenas->lock);
    own->next = shared->ended;
    shared->ended = own;
    os_lock_drop(&shared->arenas->lock);
}

// A structure that was kept, with room for so many chunks, or for none yet; NULL: none.
static struct heap_own *own_find(struct heap_shared *shared, size_t chunk_count) {
    os_lock_take(&shared->arenas->lock);
    struct heap_own **link = &shared->ended;
    while (*link != NULL && (*link)->reserve.chunk_limit != 0 &&
           (*link)->reserve.chunk_limit < chunk_count) {
        link = &(*link)->next;
    }
    struct heap_own *const own = *link;
    if (own != NULL) {
        *link = own->next;
    }
    os_lock_drop(&shared->arenas->lock);
    return own;
}

static struct heap_own *own_find_or_make(struct heap_shared *shared, size_t chunk_count) {
    struct heap_own *own = own_find(shared, chunk_count);
    if (own == NULL) {
        own = meta_take(shared->meta, sizeof *own);
    }
    if (own != NULL) {
        own->shared = shared;
        own->last_status = 0;
        own->refused_count = 0;
        own->value = NULL;
    }
    return own;
}

// Gives the structure its heap, if it has none yet; NULL: no memory, and the structure is kept.
static struct heap_own *own_with_heap(struct heap_own *own) {
    if (own->heap == NULL) {
        own->heap = heap_create_reserved(own->shared, &own->reserve);
    }
    if (own->heap == NULL) {
        own_keep(own);
        return NULL;
    }
    return own;
}

static bool own_make_reserve(struct heap_own *own, size_t chunk_count) {
    struct reserve made;
    if (!reserve_make(&made, own->shared->arenas, chunk_count)) {
        return false;
    }
    own->reserve = made;
    return true;
}

static struct heap_own *own_new(struct heap_shared *shared, size_t chunk_count) {
    if (chunk_count > shared->arenas->primary.slice_count / MALLOW_CHUNK_SLICES) {
        return NULL;
    }
    struct heap_own *const own = own_find_or_make(shared, chunk_count);
    if (own == NULL) {
        return NULL;
    }
    if (own->reserve.chunk_limit == 0 && !own_make_reserve(own, chunk_count)) {
        own_keep(own);
        return NULL;
    }
    return own_with_heap(own);
}

// One whole chunk of the primary arena.
static bool own_add_chunk(struct heap_own *own) {
    struct arena_set *const arenas = own->shared->arenas;
    struct arena_span span =
        arena_take_charged(arenas, MALLOW_CHUNK_SLICES, MALLOW_CHUNK_SLICES, OS_CHARGE_HARD);
    if (span.slab == NULL && !own->shared->os->sealed &&
        heap_relieve(own->shared, MALLOW_CHUNK_BYTES) != 0) {
        span =
            arena_take_charged(arenas, MALLOW_CHUNK_SLICES, MALLOW_CHUNK_SLICES, OS_CHARGE_HARD);
    }
    if (span.slab == NULL) {
        return false;
    }
    if (!arena_has_slab(&arenas->primary, span.slab)) {
        arena_give(arenas, span.slab, MALLOW_CHUNK_SLICES);
        return false;
    }
    const size_t chunk = arena_slice_of(&arenas->primary, span.slab) / MALLOW_CHUNK_SLICES;
    reserve_add(&own->reserve, chunk, UINT32_MAX);
    return true;
}

// The pages of one chunk and of what belongs to it.
static bool own_bring_in(const struct heap_own *own, size_t i, bool *locked) {
    const struct arena_set *const arenas = own->shared->arenas;
    const struct arena *const arena = &arenas->primary;
    const size_t chunk = own->reserve.chunks[i].chunk_index;
    const size_t slot = arena_slot_of(arena, chunk * MALLOW_CHUNK_SLICES);
    return os_bring_in(arena->base + (chunk << MALLOW_CHUNK_SHIFT), MALLOW_CHUNK_BYTES, locked) &&
           os_bring_in((uintptr_t)&arena->slabs[slot],
                       MALLOW_CHUNK_SLICES * sizeof *arena->slabs, locked) &&
           os_bring_in((uintptr_t)&arena->remotes[slot],
                       MALLOW_CHUNK_SLICES * sizeof *arena->remotes, locked) &&
           os_bring_in((uintptr_t)&arenas->reserved[chunk], sizeof *arenas->reserved, locked);
}

MALLOW_INTERNAL size_t heap_own_missing_bytes(const struct heap_own *own) {
    const struct arena *const arena = &own->shared->arenas->primary;
    size_t bytes = 0;
    for (size_t i = 0; i < own->reserve.chunk_count; i++) {
        const size_t chunk = own->reserve.chunks[i].chunk_index;
        bytes += MALLOW_CHUNK_BYTES - os_resident(own->shared->os,
                                                  arena->base + (chunk << MALLOW_CHUNK_SHIFT),
                                                  MALLOW_CHUNK_BYTES);
    }
    return bytes;
}

MALLOW_INTERNAL bool heap_own_bring_in(struct heap_own *own, bool *lock) {
    own->locked = *lock; // some may be, if not all
    bool in = os_bring_in((uintptr_t)own->heap, sizeof *own->heap + sizeof *own->heap->medium,
                          lock) &&
              os_bring_in((uintptr_t)own, sizeof *own, lock) &&
              os_bring_in((uintptr_t)own->reserve.chunks,
                          reserve_table_bytes(own->reserve.chunk_limit), lock);
    for (size_t i = 0; in && i < own->reserve.chunk_count; i++) {
        in = own_bring_in(own, i, lock);
    }
    os_bring_in_image(lock);
    return in;
}

MALLOW_INTERNAL struct heap_own *heap_own_create(struct heap_shared *shared, size_t bytes) {
    const size_t chunk_count = bits_max(1, bits_align_up(bytes, MALLOW_CHUNK_BYTES) >>
                                               MALLOW_CHUNK_SHIFT);
    struct heap_own *const own = own_new(shared, chunk_count);
    if (own == NULL) {
        return NULL;
    }
    own->locked = false;
    while (own->reserve.chunk_count < chunk_count) {
        if (!own_add_chunk(own)) {
            heap_own_end(own);
            return NULL;
        }
    }
    return own;
}

MALLOW_INTERNAL struct heap_own *heap_own_create_growing(struct heap_shared *shared) {
    struct heap_own *const own = own_find_or_make(shared, 0);
    if (own == NULL || own_with_heap(own) == NULL) {
        return NULL;
    }
    own->shed = NULL;
    own->shed_count = 0;
    os_allowance_set(&own->allowance, UINT64_MAX, UINT64_MAX);
    own->reserve.allowance = &own->allowance;
    return own;
}

// What a reserve is a part of; NULL: it is the process's, or there is none. Structures and their
// tables of chunks are never given up: all may be looked at.
static struct heap_own *own_of_reserve(const struct heap_shared *shared,
                                       const struct reserve *reserve) {
    return reserve == NULL || reserve == shared->reserve
               ? NULL
               : (void *)((char *)reserve - offsetof(struct heap_own, reserve));
}

// NULL for the heap of a thread, whose spans are the arenas' or those of the process's reserve; and
// for none, as of a slab that another thread is giving up.
static struct heap_own *own_of_heap(const struct heap *heap) {
    return heap == NULL ? NULL : own_of_reserve(heap->shared, heap->reserve);
}

static struct heap_own *own_of_allowance(struct os_charge *allowance) {
    return allowance == NULL ? NULL
                             : (void *)((char *)allowance - offsetof(struct heap_own, allowance));
}

static struct heap_own *own_of_large(const struct heap_shared *shared, const struct slab *slab) {
    // Another thread may give the block up meanwhile: then the word may be anything of a slab's.
    const uintptr_t word = (uintptr_t)__atomic_load_n(&slab->word, __ATOMIC_RELAXED);
    if ((word & HEAP_LARGE_MARK) != 0) {
        return own_of_allowance((void *)(word & ~HEAP_LARGE_MARK));
    }
    const struct reserve_chunk *const chunk = reserve_chunk_of(shared->arenas, slab);
    return own_of_reserve(shared, chunk != NULL ? chunk->reserve : NULL);
}

MALLOW_INTERNAL struct heap_own *heap_own_of(const struct heap_shared *shared, uintptr_t address) {
    const struct heap_block found = heap_identify(shared, address);
    switch (found.kind) {
    case HEAP_BLOCK_SLAB: return own_of_heap((const struct heap *)slab_owner_heap(found.slab));
    case HEAP_BLOCK_LARGE: return own_of_large(shared, found.slab);
    case HEAP_BLOCK_HUGE: return own_of_allowance(found.huge->allowance);
    case HEAP_BLOCK_THIN:
    case HEAP_BLOCK_NONE:
    default: return NULL;
    }
}

static bool own_has(const struct heap_own *own, const struct slab *slab) {
    switch (__atomic_load_n(&slab->kind, __ATOMIC_ACQUIRE)) {
    case SLAB_BLOCKS: return slab_owner_heap(slab) == (uintptr_t)own->heap;
    case SLAB_LARGE: return heap_large_allowance(slab) == &own->allowance;
    default: return false;
    }
}

// Puts a span in front of `list`, if it is the heap's. A slab is nobody's from then on, so that no
// thread which is late with a free of an earlier block gives it up as well (heap_release_full).
static struct slab *own_list_span_locked(const struct heap_own *own, struct slab *slab,
                                         struct slab *list) {
    if (!own_has(own, slab)) {
        return list;
    }
    if (slab->kind == SLAB_BLOCKS) {
        atomic_fetch_and_explicit(&slab->owner, SLAB_OWNER_PENDING, memory_order_seq_cst);
    }
    slab->next = list;
    return slab;
}

// All of an arena. The primary one is large and stays where it is: its lock is taken for the heap's
// spans alone, and others wait for one of these at most.
static struct slab *own_list_spans(const struct heap_own *own, const struct arena *arena,
                                   struct slab *list, struct os_lock *lock) {
    const size_t count = __atomic_load_n(&arena->committed_slices, __ATOMIC_ACQUIRE);
    for (size_t slice = 0; slice < count; slice++) {
        struct slab *const slab = &arena->slabs[arena_slot_of(arena, slice)];
        if (lock == NULL) {
            list = own_list_span_locked(own, slab, list);
        } else if (own_has(own, slab)) {
            os_lock_take(lock);
            list = own_list_span_locked(own, slab, list);
            os_lock_drop(lock);
        }
    }
    return list;
}

// Gives back all that a heap which grows holds. Nobody else is at any of it; a visitor of the heap
// stays outside.
static void own_give_all(struct heap_own *own) {
    struct arena_set *const arenas = own->shared->arenas;
    struct slab *list = own_list_spans(own, &arenas->primary, NULL, &arenas->lock);
    os_lock_take(&arenas->lock); // so that secondary ones stay where they are
    for (const struct arena *arena = arenas->secondary; arena != NULL; arena = arena->next) {
        list = own_list_spans(own, arena, list, NULL);
    }
    os_lock_drop(&arenas->lock);
    while (list != NULL) {
        struct slab *const slab = list;
        const unsigned slice_count = slab->slice_count;
        list = slab->next;
        if (slab->kind == SLAB_BLOCKS) {
            slab_remote_forget(slab, arena_remote_of(arenas, slab));
        }
        slab_clear(slab);
        arena_give(arenas, slab, slice_count);
        heap_allowance_release(own->heap, slice_count);
    }
    huge_give_allowance(own->shared->huges, &own->allowance);
}

// Waits for a thread that was giving a slab of the heap up already. False: it has been stopped, or
// is not in this child of a fork.
static bool own_await_late(const struct heap_own *own) {
    const _Atomic(uint64_t) *const held = &own->allowance.held_bytes;
    for (unsigned round = 0; atomic_load(held) != 0 && round < ARENA_AWAIT_ROUNDS; round++) {
        os_pause(round);
    }
    return atomic_load(held) == 0;
}

static void own_end_growing(struct heap_own *own) {
    heap_gate_enter(own->heap);
    heap_forget(own->heap);
    own_give_all(own);
    const bool ended = own_await_late(own);
    if (ended) {
        atomic_store_explicit(&own->heap->slab_count, 0, memory_order_relaxed);
        own->reserve.allowance = NULL;
    }
    heap_gate_leave(own->heap);
    if (ended) { // else nobody has the structure again: what is late writes to it
        own_keep(own);
    }
}

// Every span of the chunk becomes free memory, whatever blocks there are.
static void own_clear_chunk(const struct heap_own *own, size_t chunk) {
    const struct arena *const arena = &own->shared->arenas->primary;
    struct slab *const slabs = &arena->slabs[arena_slot_of(arena, chunk * MALLOW_CHUNK_SLICES)];
    for (unsigned i = 0; i < MALLOW_CHUNK_SLICES;) {
        const unsigned slice_count = slabs[i].slice_count;
        if (slabs[i].kind == SLAB_BLOCKS) {
            slab_remote_forget(&slabs[i], arena_remote_of(own->shared->arenas, &slabs[i]));
        }
        if (slabs[i].kind != SLAB_NONE) {
            slab_clear(&slabs[i]);
        }
        i += slice_count != 0 ? slice_count : 1;
    }
}

MALLOW_INTERNAL void heap_own_end(struct heap_own *own) {
    struct arena_set *const arenas = own->shared->arenas;
    const struct arena *const arena = &arenas->primary;
    if (heap_own_grows(own)) {
        own_end_growing(own);
        return;
    }
    heap_forget(own->heap);
    for (size_t i = 0; i < own->reserve.chunk_count; i++) {
        const size_t chunk = own->reserve.chunks[i].chunk_index;
        own_clear_chunk(own, chunk);
        __atomic_store_n(&arenas->reserved[chunk], NULL, __ATOMIC_RELEASE);
        if (own->locked) {
            (void)os_unlock_pages(arena->base + (chunk << MALLOW_CHUNK_SHIFT), MALLOW_CHUNK_BYTES);
        }
        arena_give(arenas, &arena->slabs[arena_slot_of(arena, chunk * MALLOW_CHUNK_SLICES)],
                   MALLOW_CHUNK_SLICES);
    }
    reserve_empty(&own->reserve);
    own_keep(own);
}
