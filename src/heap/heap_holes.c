// SPDX-License-Identifier: MIT
// Hole purge: see heap_holes.h.
#include "heap/heap_holes.h"

#include "heap/heap_gate.h"
#include "heap/heap_rest.h"
#include "os/os_thread.h"
#include "slab/slab_holes.h"

enum {
    LOOK_AGE_OLD = 100,        // as old as a look needs to be
    LOOK_AGE_DONE,             // nothing left to purge in it as it is
    LOOK_GRACE_COARSE_MS = 10, // MALLOW_GATE_GRACE_MS by a clock with steps of 4 ms
    LOOK_SLACK_SLICES = 1024,
    LOOK_TRIES = 4,           // looks for whether a thread is asleep
    LOOK_MANY_HEAPS = 8,      // with fewer, it is not worth asking
};

static_assert(LOOK_GRACE_COARSE_MS >= MALLOW_GATE_GRACE_MS + 8, "two steps of the clock");

// What has been done about the word that malloc takes from.
enum look_word {
    LOOK_WORD_ACTIVE = 0, // nothing
    LOOK_WORD_RESTING,    // its slab was put to rest at rest_ms (heap_rest.h)
    LOOK_WORD_LOWEST,     // and purged but for its lowest free block and the hot one
    LOOK_WORD_DONE,
};

// What a slab was like, and for how many looks.
struct heap_look {
    uint64_t rest_ms;    // when the slab was put to rest
    uint32_t print;      // slab_view_print; 0: no slab
    uint16_t age;        // looks since it was first seen like that; LOOK_AGE_DONE
    uint16_t next;       // block from which on its holes are still to be purged
    uint32_t word_print; // slab_view_word_print
    uint16_t word_next;  // as `next`, in part word_part of what its state comes to
    uint8_t word_part;
    uint8_t word_age;
    uint8_t word_state;  // enum look_word
    uint8_t word_tries;
};

// ---- Notes --------------------------------------------------------------------------------------

static size_t holes_look_count(const struct arena *arena) {
    return arena->notes_bytes / sizeof(struct heap_look);
}

MALLOW_INTERNAL void heap_holes_forget(struct heap_holes *holes) {
    struct arena_set *const arenas = holes->shared->arenas;
    os_lock_take_patiently(&holes->lock);
    os_lock_take_patiently(&arenas->lock);
    (void)arena_forget_notes(arenas, &arenas->primary);
    for (struct arena *arena = arenas->secondary; arena != NULL; arena = arena->next) {
        (void)arena_forget_notes(arenas, arena);
    }
    os_lock_drop(&arenas->lock);
    os_lock_drop(&holes->lock);
}

// What was noted may be half changed, and the visitor is gone, from wherever it was inside.
MALLOW_INTERNAL void heap_holes_fork_child(struct heap_holes *holes) {
    struct arena_set *const arenas = holes->shared->arenas;
    arenas->visited = NULL;
    arenas->primary.notes = NULL;
    arenas->primary.notes_bytes = 0;
    for (struct arena *arena = arenas->secondary; arena != NULL; arena = arena->next) {
        arena->notes = NULL;
        arena->notes_bytes = 0;
        arena->visit = ARENA_ALONE;
    }
    struct heap *heap = atomic_load_explicit(&holes->shared->heaps, memory_order_acquire);
    for (; heap != NULL; heap = heap->next_heap) {
        heap->visit_round = 0;
        heap_gate_dismiss(heap);
    }
}

MALLOW_INTERNAL void heap_holes_set_clock(struct heap_holes *holes, uint64_t now_ms) {
    holes->lead_ms = bits_max(holes->latest_ms, now_ms) - now_ms;
}

// Room for the arena's first `wanted` slices and some more. Failing that, those beyond are not
// looked at.
static void holes_grow_locked(const struct heap_holes *holes, struct arena *arena, size_t wanted) {
    struct os *const os = holes->shared->os;
    if (wanted <= holes_look_count(arena)) {
        return;
    }
    const size_t bytes = bits_align_up(
        (wanted + wanted / 4 + LOOK_SLACK_SLICES) * sizeof(struct heap_look), os->page_bytes);
    void *const notes = (void *)(arena->notes == NULL
                                     ? os_map(os, bytes, 1)
                                     : os_remap(os, (uintptr_t)arena->notes, arena->notes_bytes,
                                                bytes, true));
    if (notes != NULL) {
        arena->notes = notes;
        arena->notes_bytes = bytes;
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
    bool in_the_way;
};

// Purges a hole of a slab whose heap is held; false: no call is left for it. The owner may be
// giving the slab up: its span comes to no other use meanwhile (arena_visit_span).
static bool holes_purge_one(struct heap_holes *holes, struct slab *slab,
                            const struct slab_view *view, const struct slab_hole *hole,
                            struct holes_work *work) {
    if (work->calls == 0) {
        return false;
    }
    work->calls--;
    if (os_purge(holes->shared->os, hole->address, hole->bytes)) {
        arena_split(holes->shared->arenas, hole->address);
        work->released_bytes += hole->opened_bytes;
        if (slab_view_is_long(view)) {
            slab_set_zeroed(slab, slab_zeroed(slab) | slab_view_blocks_in(view, hole));
        }
    }
    return true;
}

// What is to be done with a slab of `heap`, which is held, and whose span is visited: it cannot be
// given up and used anew meanwhile. False: it is not what was looked at, or not all is done.
typedef bool holes_act(struct heap_holes *holes, const struct heap_holes_way *way,
                       const struct holes_place *place, struct heap *heap,
                       struct holes_work *work);

static bool holes_view_held(const struct holes_place *place, struct heap *heap,
                            struct slab_view *view) {
    return slab_owner_heap(place->slab) == (uintptr_t)heap &&
           slab_view_take(view, place->slab, place->remote, place->address);
}

// The holes beside the exposed word.
static bool holes_purge_held(struct heap_holes *holes, const struct heap_holes_way *way,
                             const struct holes_place *place, struct heap *heap,
                             struct holes_work *work) {
    (void)way;
    struct slab_view view;
    struct slab_hole hole;
    if (!holes_view_held(place, heap, &view) || slab_view_print(&view) != place->look->print) {
        return false;
    }
    for (size_t index = place->look->next;
         slab_view_next(&view, holes->shared->os->page_bytes, &index, &hole);) {
        if (!holes_purge_one(holes, place->slab, &view, &hole, work)) {
            return false;
        }
        place->look->next = (uint16_t)index;
    }
    return true;
}

// Purges what the exposed word and the hot block concern, as far as `exposure` lets, but for what
// has gone before. False: not all is done.
static bool holes_purge_word(struct heap_holes *holes, const struct holes_place *place,
                             struct slab_view *view, enum slab_exposure exposure,
                             struct holes_work *work) {
    const size_t page_bytes = holes->shared->os->page_bytes;
    struct heap_look *const look = place->look;
    struct slab_range parts[2] = {look->word_state == LOOK_WORD_LOWEST
                                      ? slab_view_lowest(view, page_bytes)
                                      : slab_view_word(view, page_bytes),
                                  slab_view_hot(view, page_bytes)};
    if (parts[1].low >= parts[0].low && parts[1].high <= parts[0].high) {
        parts[1] = (struct slab_range){0, 0};
    }
    slab_view_expose(view, exposure);
    for (; look->word_part < 2; look->word_part++, look->word_next = 0) {
        struct slab_hole hole;
        for (size_t index = look->word_next;
             slab_view_next_in(view, page_bytes, &parts[look->word_part], &index, &hole);) {
            if (!holes_purge_one(holes, place->slab, view, &hole, work)) {
                return false;
            }
            look->word_next = (uint16_t)index;
        }
    }
    look->word_part = 0;
    return true;
}

// Whether no malloc that began before the slab was put to rest can be under way any more.
static bool holes_are_quiescent(const struct heap *heap, const struct heap_look *look) {
    return heap->asleep_ms >= look->rest_ms + LOOK_GRACE_COARSE_MS;
}

// The exposed word and the hot block: puts the slab to rest, and purges at a later look. A malloc
// that had looked for its slab before may still be under way then, if its thread has not run since:
// so the blocks that it may take count as in use. Those are the same all the time, as only the
// thread itself could change them. Once the thread has been seen asleep after that, there is no
// such malloc.
static bool holes_word_held(struct heap_holes *holes, const struct heap_holes_way *way,
                            const struct holes_place *place, struct heap *heap,
                            struct holes_work *work) {
    struct heap_look *const look = place->look;
    struct slab_view view;
    if (!holes_view_held(place, heap, &view) || slab_view_word_print(&view) != look->word_print) {
        return false;
    }
    if (look->word_state == LOOK_WORD_ACTIVE) {
        if (heap_current_slab(heap, place->slab->class_index) != place->slab ||
            !heap_rest_class(heap, place->slab->class_index)) {
            return false;
        }
        look->rest_ms = way->now_ms;
        look->word_state = LOOK_WORD_RESTING;
        look->word_next = 0;
        look->word_part = 0;
        look->word_tries = 0;
        if (heap != way->mine) {
            return false;
        }
    }
    if (!heap_is_resting(heap, place->slab->class_index)) {
        look->word_state = LOOK_WORD_ACTIVE; // the thread has come by
        look->word_age = 0;
        return false;
    }
    if (heap != way->mine && way->now_ms - look->rest_ms < LOOK_GRACE_COARSE_MS) {
        return false;
    }
    const bool quiescent = holes_are_quiescent(heap, look);
    if (look->word_state == LOOK_WORD_RESTING || quiescent) {
        if (!holes_purge_word(holes, place, &view,
                              quiescent ? SLAB_EXPOSED_NONE : SLAB_EXPOSED_LOWEST, work)) {
            return false;
        }
        look->word_state = quiescent ? LOOK_WORD_DONE : LOOK_WORD_LOWEST;
    }
    return true;
}

static bool holes_do_held(struct heap_holes *holes, const struct heap_holes_way *way,
                          const struct holes_place *place, holes_act *act,
                          struct holes_work *work) {
    struct heap *const heap = (struct heap *)slab_owner_heap(place->slab);
    bool done = false;
    if (heap == NULL) {
        return false;
    }
    if (heap == way->mine) {
        return act(holes, way, place, heap, work);
    }
    if (heap_is_abandoned(heap) && heap_claim(heap)) {
        done = act(holes, way, place, heap, work);
        int work_left = MALLOW_CALL_WORK;
        heap_unclaim(heap, &work_left);
        return done;
    }
    const bool asked_before =
        heap->visit_round != 0 && way->now_ms - heap->asked_ms >= LOOK_GRACE_COARSE_MS;
    atomic_store_explicit(&heap->visitor, way->visitor, memory_order_relaxed);
    if (heap_gate_visit(heap, asked_before)) {
        done = act(holes, way, place, heap, work);
        heap_gate_end(heap);
        work->in_the_way |= heap_gate_was_in_the_way(heap);
    }
    return done;
}

static bool holes_do(struct heap_holes *holes, const struct heap_holes_way *way,
                     const struct holes_place *place, holes_act *act, struct holes_work *work) {
    struct arena_set *const arenas = holes->shared->arenas;
    arena_visit_span(arenas, place->slab);
    const bool done = holes_do_held(holes, way, place, act, work);
    arena_visit_span(arenas, NULL);
    arena_give_late_all(arenas); // it may be among them
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
    os_lock_take_patiently(&set->lock);
    const bool is_huge = arena_is_huge_locked(set, place->address);
    os_lock_drop(&set->lock);
    for (size_t index = 0;
         is_huge && slab_view_next(view, holes->shared->os->page_bytes, &index, &hole);) {
        bytes += hole.opened_bytes;
    }
    return is_huge && bytes < (view->span_end - view->span_start) / 4;
}

// Notes what the slab is like. False: it is none.
static bool holes_note(const struct holes_place *place, struct slab_view *view) {
    struct heap_look *const look = place->look;
    if (!slab_view_take(view, place->slab, place->remote, place->address)) {
        *look = (struct heap_look){.print = 0};
        return false;
    }
    const uint32_t print = slab_view_print(view);
    if (print != look->print) {
        look->print = print;
        look->age = 0;
        look->next = 0;
    } else if (look->age < LOOK_AGE_OLD) {
        look->age++;
    }
    // A thread that has come by may have left all as it was, but has touched it.
    const struct heap *const heap = (struct heap *)slab_owner_heap(place->slab);
    // The slab may have become another's since: then it is as good as awake.
    const uint8_t class_index = __atomic_load_n(&place->slab->class_index, __ATOMIC_RELAXED);
    const bool awake = look->word_state != LOOK_WORD_ACTIVE && heap != NULL &&
                       !heap_is_resting(heap, class_index);
    const uint32_t word_print = slab_view_word_print(view);
    if (word_print != look->word_print || awake) {
        look->word_print = word_print;
        look->word_age = 0;
        look->word_state = LOOK_WORD_ACTIVE;
    } else if (look->word_age < LOOK_AGE_OLD) {
        look->word_age++;
    }
    return true;
}

// Looks at what lies beside the exposed word; true if a later look may have something to purge.
static bool holes_look_beside(struct heap_holes *holes, const struct heap_holes_way *way,
                              const struct holes_place *place, const struct slab_view *view,
                              struct holes_work *work) {
    struct heap_look *const look = place->look;
    struct slab_hole hole;
    size_t index = look->next;
    if (look->age == LOOK_AGE_DONE) {
        return false;
    }
    if (!slab_view_next(view, holes->shared->os->page_bytes, &index, &hole)) {
        look->age = look->age != 0 ? LOOK_AGE_DONE : 0;
        return look->age == 0 && way->patience != 0;
    }
    look->next = (uint16_t)slab_view_block_at(view, hole.address); // nothing comes before it
    if (way->patience != 0 && holes_are_too_few(holes, place, view)) {
        return false;
    }
    // Not before it may come to that: a thread that is asked pays a fence each time it comes by.
    if (look->age + 1U >= way->patience) {
        holes_ask(holes, way, place->slab);
    }
    if (look->age >= way->patience && holes_do(holes, way, place, holes_purge_held, work)) {
        look->age = LOOK_AGE_DONE;
        return false;
    }
    return true;
}

// Finds out whether the thread of the slab's heap is asleep, unless that is known or was asked in
// this round: where many threads may sleep, and the last pages of each add up.
static void holes_ask_kernel(struct heap_holes *holes, const struct heap_holes_way *way,
                             const struct holes_place *place) {
    struct heap *const heap = (struct heap *)slab_owner_heap(place->slab);
    if (heap == NULL || heap->asleep_round == holes->round ||
        way->now_ms - place->look->rest_ms < LOOK_GRACE_COARSE_MS) {
        return;
    }
    heap->asleep_round = holes->round;
    // The number first: its thread pointer was there before it.
    const uint32_t thread = atomic_load_explicit(&heap->thread, memory_order_acquire);
    if (way->is_asleep(thread, atomic_load_explicit(&heap->thread_top, memory_order_relaxed))) {
        heap->asleep_ms = way->now_ms;
    }
}

static bool holes_has_in(const struct slab_view *view, size_t page_bytes,
                         const struct slab_range *range) {
    struct slab_hole hole;
    size_t index = 0;
    return slab_view_next_in(view, page_bytes, range, &index, &hole);
}

static bool holes_may_ask_kernel(const struct heap_holes *holes, const struct heap_holes_way *way) {
    return way->is_asleep != NULL &&
           atomic_load_explicit(&holes->shared->heap_count, memory_order_relaxed) >=
               LOOK_MANY_HEAPS;
}

static bool holes_word_is_done(const struct heap_look *look, bool may_ask) {
    return look->word_state == LOOK_WORD_DONE || (look->word_state == LOOK_WORD_LOWEST && !may_ask);
}

// The same of the exposed word, whose slab is to be put to rest, or rests.
static bool holes_look_at_word(struct heap_holes *holes, const struct heap_holes_way *way,
                               const struct holes_place *place, struct slab_view *view,
                               struct holes_work *work) {
    struct heap_look *const look = place->look;
    const size_t page_bytes = holes->shared->os->page_bytes;
    const bool may_ask = holes_may_ask_kernel(holes, way);
    if (look->word_print == 0 || holes_word_is_done(look, may_ask)) {
        return false;
    }
    if (work->calls == 0) {
        return true;
    }
    const struct slab_range word = slab_view_word(view, page_bytes);
    const struct slab_range hot = slab_view_hot(view, page_bytes);
    slab_view_expose(view, SLAB_EXPOSED_NONE);
    if ((!holes_has_in(view, page_bytes, &word) && !holes_has_in(view, page_bytes, &hot)) ||
        (way->patience != 0 && holes_are_too_few(holes, place, view))) {
        return false;
    }
    if (look->word_age + 1U >= way->patience) {
        holes_ask(holes, way, place->slab);
    }
    if (look->word_age < way->patience) {
        return look->word_age != 0; // one that is in use need not be waited for
    }
    if (may_ask && look->word_state != LOOK_WORD_ACTIVE) {
        holes_ask_kernel(holes, way, place);
    }
    if (holes_do(holes, way, place, holes_word_held, work) &&
        look->word_state == LOOK_WORD_LOWEST && ++look->word_tries >= LOOK_TRIES) {
        look->word_state = LOOK_WORD_DONE; // it is not worth more
    }
    return !holes_word_is_done(look, may_ask);
}

// Looks at one slab; true if a later look may have something to purge.
static bool holes_look_at(struct heap_holes *holes, const struct heap_holes_way *way,
                          const struct holes_place *place, struct holes_work *work) {
    struct slab_view view;
    if (!holes_note(place, &view)) {
        return false;
    }
    const bool beside = holes_look_beside(holes, way, place, &view, work);
    return holes_look_at_word(holes, way, place, &view, work) || beside;
}

// ---- Rounds -------------------------------------------------------------------------------------

MALLOW_INTERNAL void heap_holes_begin(struct heap_holes *holes) {
    struct arena *const primary = &holes->shared->arenas->primary;
    os_lock_take_patiently(&holes->lock);
    holes->round = holes->round != UINT32_MAX ? holes->round + 1 : 1;
    holes_grow_locked(holes, primary,
                      __atomic_load_n(&primary->committed_slices, __ATOMIC_ACQUIRE));
    os_lock_drop(&holes->lock);
}

// Looks at slices from place->slice on, which moves on; how many slabs are left for later looks.
static size_t holes_look_in(struct heap_holes *holes, const struct heap_holes_way *way,
                            struct arena_place *at, size_t end, struct holes_work *work) {
    const struct arena *const arena = at->arena;
    unsigned slabs = way->slabs;
    size_t pending_count = 0;
    for (; at->slice < end && work->calls != 0; at->slice++) {
        const size_t slot = arena_slot_of(arena, at->slice);
        const struct holes_place place = {&arena->slabs[slot], &arena->remotes[slot],
                                          arena->base + (at->slice << MALLOW_SLICE_SHIFT),
                                          (struct heap_look *)arena->notes + at->slice};
        if (reserve_chunk_of(holes->shared->arenas, place.slab) != NULL) {
            continue; // its pages are to stay
        }
        const bool pending = holes_look_at(holes, way, &place, work);
        if (pending && work->calls == 0) {
            break; // it goes on here
        }
        pending_count += pending;
        if (work->in_the_way || (slabs != 0 && place.look->print != 0 && --slabs == 0)) {
            end = at->slice; // and this one
        }
    }
    return pending_count;
}

// Of two who look in turn, one may have read the clock long before its look. What is noted is never
// of an earlier time than what was noted before: so "asleep since it rests" is what it says.
static struct heap_holes_way holes_now_locked(struct heap_holes *holes,
                                              const struct heap_holes_way *way) {
    struct heap_holes_way now = *way;
    now.now_ms = bits_max(way->now_ms + holes->lead_ms, holes->latest_ms);
    holes->latest_ms = now.now_ms;
    return now;
}

MALLOW_INTERNAL struct heap_holes_result heap_holes_look(struct heap_holes *holes,
                                                         const struct heap_holes_way *way,
                                                         size_t *position, size_t count) {
    struct arena_set *const arenas = holes->shared->arenas;
    struct holes_work work = {way->calls, 0, false};
    size_t pending_count = 0;
    os_lock_take_patiently(&holes->lock);
    const struct heap_holes_way now = holes_now_locked(holes, way);
    struct arena_place at = arena_idle_visit(arenas, position);
    if (at.arena != NULL) {
        const size_t before = at.slice;
        if (at.arena->notes == NULL && at.arena != &arenas->primary) {
            holes_grow_locked(holes, at.arena, at.arena->slice_count);
            work.calls--;
        }
        const size_t committed =
            __atomic_load_n(&at.arena->committed_slices, __ATOMIC_ACQUIRE);
        const size_t last = bits_min(committed, holes_look_count(at.arena));
        pending_count += holes_look_in(holes, &now, &at, bits_min(before + count, last), &work);
        *position += at.slice - before;
        if (at.slice >= last && last < committed) {
            *position = at.beyond; // there are no notes of the rest
        }
        arena_idle_leave(arenas, at.arena);
    }
    atomic_fetch_add_explicit(&arenas->purged_bytes, work.released_bytes, memory_order_relaxed);
    os_lock_drop(&holes->lock);
    return (struct heap_holes_result){work.released_bytes, pending_count, work.calls == 0,
                                      work.in_the_way};
}

MALLOW_INTERNAL void heap_holes_end(struct heap_holes *holes) {
    os_lock_take_patiently(&holes->lock);
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
    struct heap_holes_result result = {0, 0, false, false};
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
                                          uint64_t (*now_ms)(void),
                                          bool (*is_asleep)(uint32_t thread, uintptr_t top)) {
    struct heap_holes_way way = {.now_ms = now_ms(),
                                 .mine = mine,
                                 .visitor = os_thread_number(),
                                 .calls = UINT32_MAX,
                                 .is_asleep = is_asleep};
    struct heap_holes_result result = holes_whole_round(holes, &way);
    size_t released_bytes = result.released_bytes;
    // Once to purge and to put to rest, and once to purge what rests.
    for (unsigned round = 0; result.pending_count != 0 && round < 2; round++) {
        _Atomic(uint32_t) never = 0;
        (void)os_wait(&never, 0, (LOOK_GRACE_COARSE_MS + 5) * UINT64_C(1000000));
        way.now_ms = now_ms();
        result = holes_whole_round(holes, &way);
        released_bytes += result.released_bytes;
    }
    return released_bytes;
}
