// SPDX-License-Identifier: MIT
// Hole purge: see heap_holes.h.
#include "heap/heap_holes.h"

#include "heap/heap_gate.h"
#include "slab/slab_holes.h"

enum {
    LOOK_AGE_OLD = 100,        // as old as a look needs to be
    LOOK_AGE_DONE,             // nothing left to purge in it as it is
    LOOK_GRACE_COARSE_MS = 10, // MALLOW_GATE_GRACE_MS by a clock with steps of 4 ms
    LOOK_SLACK_SLICES = 1024,
};

static_assert(LOOK_GRACE_COARSE_MS >= MALLOW_GATE_GRACE_MS + 8, "two steps of the clock");

// What a slab was like, and for how many looks.
struct heap_look {
    uint32_t print; // slab_view_print; 0: no slab
    uint16_t age;   // looks since it was first seen like that; LOOK_AGE_DONE
    uint16_t next;  // block from which on its holes are still to be purged
};

// ---- The table ----------------------------------------------------------------------------------

static size_t holes_slice_count(const struct heap_holes *holes) {
    const struct arena *const arena = &holes->shared->arenas->primary;
    return __atomic_load_n(&arena->committed_slices, __ATOMIC_ACQUIRE);
}

MALLOW_INTERNAL void heap_holes_forget(struct heap_holes *holes) {
    os_lock_take(&holes->lock);
    if (holes->looks != NULL &&
        os_unmap(holes->shared->os, (uintptr_t)holes->looks,
                 bits_align_up(holes->look_count * sizeof *holes->looks,
                               holes->shared->os->page_bytes))) {
        holes->looks = NULL;
        holes->look_count = 0;
    }
    os_lock_drop(&holes->lock);
}

// Room for all slices that there are. Failing that, those beyond are not looked at.
static void holes_grow_locked(struct heap_holes *holes) {
    struct os *const os = holes->shared->os;
    const size_t wanted = holes_slice_count(holes);
    if (wanted <= holes->look_count) {
        return;
    }
    const size_t bytes =
        bits_align_up((wanted + wanted / 4 + LOOK_SLACK_SLICES) * sizeof *holes->looks,
                      os->page_bytes);
    const size_t had =
        bits_align_up(holes->look_count * sizeof *holes->looks, os->page_bytes);
    struct heap_look *const looks = (struct heap_look *)(
        holes->looks == NULL ? os_map(os, bytes, 1)
                             : os_remap(os, (uintptr_t)holes->looks, had, bytes, true));
    if (looks != NULL) {
        holes->looks = looks;
        holes->look_count = bytes / sizeof *looks;
    }
}

// ---- One slab -----------------------------------------------------------------------------------

struct holes_place {
    struct slab *slab;
    struct slab_remote *remote;
    uintptr_t address; // of its first slice
    struct heap_look *look;
};

// What is left of a look's means, and what has come of it.
struct holes_work {
    unsigned calls;
    size_t released_bytes;
};

// Purges the holes of a slab of `heap`, which is held, as is the arena's lock: the span cannot be
// given up and used anew meanwhile. False: it is not what was looked at, or not all is done.
static bool holes_purge_held(struct heap_holes *holes, const struct holes_place *place,
                             const struct heap *heap, struct holes_work *work) {
    struct os *const os = holes->shared->os;
    struct slab_view view;
    struct slab_hole hole;
    if (slab_owner_heap(place->slab) != (uintptr_t)heap ||
        !slab_view_take(&view, place->slab, place->remote, place->address) ||
        slab_view_print(&view) != place->look->print) {
        return false;
    }
    for (size_t index = place->look->next;
         slab_view_next(&view, os->page_bytes, &index, &hole);) {
        if (work->calls == 0) {
            return false;
        }
        work->calls--;
        if (os_purge(os, hole.address, hole.bytes)) {
            arena_split_locked(holes->shared->arenas, hole.address);
            work->released_bytes += hole.opened_bytes;
        }
        place->look->next = (uint16_t)index;
    }
    return true;
}

static bool holes_purge(struct heap_holes *holes, const struct heap_holes_way *way,
                        const struct holes_place *place, struct holes_work *work) {
    struct os_lock *const lock = &holes->shared->arenas->lock;
    struct heap *const heap = (struct heap *)slab_owner_heap(place->slab);
    bool done = false;
    if (heap == NULL) {
        return false;
    }
    if (heap == way->mine) {
        os_lock_take(lock);
        done = holes_purge_held(holes, place, heap, work);
        os_lock_drop(lock);
    } else if (heap_is_abandoned(heap) && heap_claim(heap)) {
        os_lock_take(lock);
        done = holes_purge_held(holes, place, heap, work);
        os_lock_drop(lock);
        int work_left = MALLOW_CALL_WORK;
        heap_unclaim(heap, &work_left);
    } else {
        const bool asked_before = heap->visit_round != 0 &&
                                  way->now_ms - heap->asked_ms >= LOOK_GRACE_COARSE_MS;
        os_lock_take(lock);
        if (heap_gate_visit(heap, asked_before)) {
            done = holes_purge_held(holes, place, heap, work);
            heap_gate_end(heap);
        }
        os_lock_drop(lock);
    }
    return done;
}

// Asks to be let into a heap in the rounds to come.
static void holes_ask(struct heap_holes *holes, const struct heap_holes_way *way,
                      const struct slab *slab) {
    struct heap *const heap = (struct heap *)slab_owner_heap(slab);
    if (heap == NULL || heap == way->mine || heap_is_abandoned(heap)) {
        return;
    }
    if (heap->visit_round == 0) {
        heap_gate_ask(heap);
        heap->asked_ms = way->now_ms;
    }
    heap->visit_round = holes->round;
}

// Whether a slab lies in a huge page that is worth more than its holes are: splitting it gives only
// as much back. A quarter of the slab is.
static bool holes_are_too_few(struct heap_holes *holes, const struct holes_place *place,
                              const struct slab_view *view) {
    struct arena_set *const set = holes->shared->arenas;
    struct slab_hole hole;
    size_t bytes = 0;
    os_lock_take(&set->lock);
    const bool is_huge = arena_is_huge_locked(set, place->address);
    os_lock_drop(&set->lock);
    for (size_t index = 0;
         is_huge && slab_view_next(view, holes->shared->os->page_bytes, &index, &hole);) {
        bytes += hole.opened_bytes;
    }
    return is_huge && bytes < (view->span_end - view->span_start) / 4;
}

// Looks at one slab; true if a later look may have something to purge.
static bool holes_look_at(struct heap_holes *holes, const struct heap_holes_way *way,
                          const struct holes_place *place, struct holes_work *work) {
    struct heap_look *const look = place->look;
    struct slab_view view;
    struct slab_hole hole;
    if (!slab_view_take(&view, place->slab, place->remote, place->address)) {
        *look = (struct heap_look){0, 0, 0};
        return false;
    }
    const uint32_t print = slab_view_print(&view);
    if (print != look->print) {
        *look = (struct heap_look){print, 0, 0};
    } else if (look->age < LOOK_AGE_OLD) {
        look->age++;
    }
    size_t index = look->next;
    if (look->age == LOOK_AGE_DONE) {
        return false;
    }
    if (!slab_view_next(&view, holes->shared->os->page_bytes, &index, &hole)) {
        look->age = look->age != 0 ? LOOK_AGE_DONE : 0;
        return look->age == 0 && way->patience != 0;
    }
    if (way->patience != 0 && holes_are_too_few(holes, place, &view)) {
        return false;
    }
    // Not before it may come to that: a thread that is asked pays a fence each time it comes by.
    if (look->age + 1U >= way->patience) {
        holes_ask(holes, way, place->slab);
    }
    if (look->age >= way->patience && holes_purge(holes, way, place, work)) {
        look->age = LOOK_AGE_DONE;
        return false;
    }
    return true;
}

// ---- Rounds -------------------------------------------------------------------------------------

MALLOW_INTERNAL void heap_holes_begin(struct heap_holes *holes) {
    os_lock_take(&holes->lock);
    holes->round = holes->round != UINT32_MAX ? holes->round + 1 : 1;
    holes_grow_locked(holes);
    os_lock_drop(&holes->lock);
}

MALLOW_INTERNAL struct heap_holes_result heap_holes_look(struct heap_holes *holes,
                                                         const struct heap_holes_way *way,
                                                         size_t *slice, size_t count) {
    struct arena_set *const arenas = holes->shared->arenas;
    const struct arena *const arena = &arenas->primary;
    struct holes_work work = {way->calls, 0};
    size_t pending_count = 0;
    os_lock_take(&holes->lock);
    const size_t end =
        bits_min(*slice + count, bits_min(holes_slice_count(holes), holes->look_count));
    for (; *slice < end && work.calls != 0; (*slice)++) {
        const size_t slot = arena_slot_of(arena, *slice);
        const struct holes_place place = {&arena->slabs[slot], &arena->remotes[slot],
                                          arena->base + (*slice << MALLOW_SLICE_SHIFT),
                                          &holes->looks[*slice]};
        const bool pending = holes_look_at(holes, way, &place, &work);
        if (pending && work.calls == 0) {
            break; // it goes on here
        }
        pending_count += pending;
    }
    atomic_fetch_add_explicit(&arenas->purged_bytes, work.released_bytes, memory_order_relaxed);
    os_lock_drop(&holes->lock);
    return (struct heap_holes_result){work.released_bytes, pending_count};
}

MALLOW_INTERNAL void heap_holes_end(struct heap_holes *holes) {
    os_lock_take(&holes->lock);
    struct heap *heap = atomic_load_explicit(&holes->shared->heaps, memory_order_acquire);
    for (; heap != NULL; heap = heap->next_heap) {
        if (heap->visit_round != 0 && heap->visit_round != holes->round) {
            heap->visit_round = 0;
            heap_gate_dismiss(heap);
        }
    }
    os_lock_drop(&holes->lock);
}

static struct heap_holes_result holes_whole_round(struct heap_holes *holes,
                                                  const struct heap_holes_way *way) {
    struct heap_holes_result result = {0, 0};
    size_t slice = 0;
    heap_holes_begin(holes);
    for (size_t before = SIZE_MAX; slice != before;) {
        before = slice;
        const struct heap_holes_result part =
            heap_holes_look(holes, way, &slice, MALLOW_CHUNK_SLICES);
        result.released_bytes += part.released_bytes;
        result.pending_count += part.pending_count;
    }
    heap_holes_end(holes);
    return result;
}

MALLOW_INTERNAL size_t heap_holes_collect(struct heap_holes *holes, const struct heap *mine,
                                          uint64_t (*now_ms)(void)) {
    struct heap_holes_way way = {now_ms(), mine, 0, UINT32_MAX};
    struct heap_holes_result result = holes_whole_round(holes, &way);
    if (result.pending_count != 0) {
        _Atomic(uint32_t) never = 0;
        os_wait(&never, 0, (LOOK_GRACE_COARSE_MS + 5) * UINT64_C(1000000));
        way.now_ms = now_ms();
        result.released_bytes += holes_whole_round(holes, &way).released_bytes;
    }
    return result.released_bytes;
}
