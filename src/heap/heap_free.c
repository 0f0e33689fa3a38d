// SPDX-License-Identifier: MIT
// Heap, freeing beyond the fast path, and telling what a pointer is. See heap.h.
#include "heap/heap.h"

#include "base/format.h"
#include "heap/heap_fast.h"
#include "heap/heap_identify.h"
#include "heap/heap_near.h"
#include "os/fatal.h"

// The head of the span that `address` lies in; NULL if it lies in no slice of ours in use.
static struct slab *heap_span_of(const struct heap_shared *shared, uintptr_t address) {
    const struct arena *const arena = arena_of(shared->arenas, address);
    if (arena == NULL) {
        return NULL;
    }
    return slab_head(arena_slab_at(arena, address));
}

MALLOW_INTERNAL struct heap_block heap_identify(const struct heap_shared *shared,
                                                uintptr_t address) {
    return heap_identify_here(shared, address);
}

MALLOW_INTERNAL size_t heap_own_usable(const struct heap *heap, uintptr_t address) {
    return heap_fast_own_usable(heap, address);
}

static MALLOW_NORETURN MALLOW_COLD void heap_report_local(const struct slab *slab, size_t index) {
    fatal_misuse("double free of", slab->start_address + index * slab->block_bytes,
                 "this block was freed before, and is still free");
}

// Frees a block of a slab of this heap; false: the slab has just been taken over by another.
// `sure`: it has been seen not to be free by the call under way.
MALLOW_INLINE bool heap_free_held(struct heap *heap, struct slab *slab, size_t index, bool sure) {
    const enum heap_hold hold = heap_hold_slab(heap, slab);
    if (unlikely(hold == HEAP_HOLD_LOST)) {
        return false;
    }
    // Others may have freed this very block. What they have freed is not collected here: the slab
    // would be posted again and again while its blocks are freed from both sides.
    const bool is_free =
        !sure && (slab_is_free(slab, index) ||
                  ((slab_owner(slab) & SLAB_OWNER_PENDING) != 0 &&
                   slab_remote_is_free(slab, arena_remote_of(heap->shared->arenas, slab), index)));
    if (unlikely(is_free)) {
        heap_report_local(slab, index);
    }
    slab_cool(slab); // `last` may be this one
    if (unlikely(bits_set_was_set(&slab->bits[index / 64], index % 64))) {
        heap_report_local(slab, index); // what others have freed has been collected meanwhile
    }
    slab->used_count--;
    heap_slab_refilled(heap, slab, hold == HEAP_HOLD_WAS_FULL);
    return true;
}

// Frees block `index` of a slab of this heap, or of one whose thread has ended, by claiming that
// for a moment: the slab can then be given up at once. False: the owner lives, or somebody is at
// work in its heap.
MALLOW_INLINE bool heap_free_as_owner(struct heap *heap, struct slab *slab, size_t index,
                                      bool sure) {
    struct heap *const owner = (struct heap *)slab_owner_heap(slab);
    if (owner != heap &&
        (owner == NULL || !heap_is_abandoned(owner) || !heap_claim(owner))) {
        return false;
    }
    const bool done = heap_free_held(owner, slab, index, sure);
    if (owner != heap) {
        int work = heap_call_work();
        if (work > 0 && !heap_has_posts(owner)) { // else those are collected
            heap_take_along(heap, owner, slab);
        }
        heap_unclaim(owner, &work);
        heap_note_effort(HEAP_EFFORT_LOOK);
    }
    return done;
}

static MALLOW_NOINLINE void heap_free_in_slab(struct heap_shared *shared, struct heap *heap,
                                              struct slab *slab, size_t index) {
    if (!heap_free_as_owner(heap, slab, index, false)) {
        heap_free_remote(slab, arena_remote_of(shared->arenas, slab), index);
    }
}

MALLOW_INTERNAL MALLOW_NOINLINE bool heap_free_far(struct heap_shared *shared, struct heap *heap,
                                                   uintptr_t address) {
    struct huge *huge;
    struct slab *const slab = heap_span_or_huge(shared, address, &huge);
    if (unlikely(slab == NULL)) {
        const unsigned pieces = huge_piece_count(shared->huges);
        if (huge != NULL && huge_give_record(shared->huges, huge, address, true)) {
            heap_note_effort(HEAP_EFFORT_HUGE);
            if (huge_piece_count(shared->huges) <= pieces) {
                heap_note_effort(HEAP_EFFORT_LOOK); // it has been joined with others
            }
            return true;
        }
        heap_report_misuse(shared, address, "free");
        return false;
    }
    if (slab->kind == SLAB_LARGE) {
        if (unlikely(address != slab->start_address)) {
            heap_report_misuse(shared, address, "free");
        }
        heap_large_free(shared, slab);
        return true;
    }
    if (slab->kind == SLAB_THIN) {
        if (unlikely(!thin_give(shared->thins, slab, address))) {
            heap_report_misuse(shared, address, "free");
        }
        return true;
    }
    const size_t index = slab_index_of(slab, address);
    if (unlikely(index == SIZE_MAX)) {
        heap_report_misuse(shared, address, "free");
        return false;
    }
    heap_free_in_slab(shared, heap, slab, index);
    return true;
}

MALLOW_INTERNAL bool heap_free(struct heap_shared *shared, struct heap *heap, uintptr_t address) {
    struct heap_near_place place;
    heap_begin_effort();
    if (likely(heap_near_find(shared, address, &place))) {
        heap_free_in_slab(shared, heap, place.slab, place.index);
        return true;
    }
    return heap_free_far(shared, heap, address);
}

MALLOW_INTERNAL bool heap_hand_on(struct heap_shared *shared, const struct heap *heap,
                                  const struct heap_block *block) {
    struct slab *const slab = block->slab;
    const uintptr_t owner = slab_owner(slab);
    if ((owner & ~SLAB_OWNER_FLAGS) != (uintptr_t)heap || slab->used_count != 1 ||
        (heap->spare == NULL && (owner & ~SLAB_OWNER_QUEUED) == (uintptr_t)heap)) {
        return false;
    }
    heap_free_live(slab, arena_remote_of(shared->arenas, slab), block->index);
    return true;
}

MALLOW_INTERNAL MALLOW_NOINLINE void heap_free_moved_now(struct heap_shared *shared,
                                                         struct heap *heap,
                                                         const struct heap_block *block) {
    if (!heap_free_as_owner(heap, block->slab, block->index, true)) {
        heap_free_live(block->slab, arena_remote_of(shared->arenas, block->slab), block->index);
    }
    heap_note_effort(HEAP_EFFORT_LOOK);
}

// ---- Reports ------------------------------------------------------------------------------------

static MALLOW_NORETURN MALLOW_COLD void heap_report(const char *call, const char *what,
                                                    uintptr_t address, const char *detail) {
    struct format out;
    char text[80];
    format_init(&out, text, sizeof text);
    format_text(&out, what);
    format_text(&out, call);
    format_text(&out, " of");
    fatal_misuse(text, address, detail);
}

// "double" is what a second free is; other calls are told a block that is free.
static MALLOW_COLD const char *heap_second(const char *call) {
    return format_same(call, "free") || format_same(call, "sized free") ? "double " : "invalid ";
}

static MALLOW_COLD void heap_report_in_thin(const char *call, const struct slab *slab,
                                            uintptr_t address) {
    if (thin_was_freed(slab, address)) {
        heap_report(call, heap_second(call), address,
                    "this block was freed before, and is still free");
    }
    heap_report(call, "invalid ", address,
                address % MALLOW_GRANULE_BYTES != 0
                    ? "misaligned pointer into memory of small blocks"
                    : "interior pointer into memory of small blocks: no block begins there");
}

static MALLOW_COLD void heap_report_in_slab(const char *call, const struct slab *slab,
                                            uintptr_t address) {
    struct format out;
    char detail[160];
    format_init(&out, detail, sizeof detail);
    const size_t offset = address - slab->start_address;
    const size_t into = slab->kind == SLAB_LARGE ? offset : offset % slab->block_bytes;
    if (offset >= slab_capacity(slab) * slab->block_bytes) {
        heap_report(call, "invalid ", address, "it lies behind the last block of a slab of ours");
    }
    if (into == 0) {
        format_text(&out, "this ");
        format_unsigned(&out, slab->block_bytes);
        format_text(&out, "-byte block was freed before, and is still free");
        heap_report(call, heap_second(call), address, detail);
    }
    format_text(&out, into % MALLOW_GRANULE_BYTES != 0 ? "misaligned" : "interior");
    format_text(&out, " pointer, ");
    format_unsigned(&out, into);
    format_text(&out, into == 1 ? " byte" : " bytes");
    format_text(&out, " into a block of ");
    format_unsigned(&out, slab->block_bytes);
    format_text(&out, " bytes");
    heap_report(call, "invalid ", address, detail);
}

static MALLOW_NORETURN MALLOW_COLD void heap_report_unused(uintptr_t address, const char *call) {
    heap_report(call, "invalid ", address,
                "no block is in use there: it was freed before (a double free) or never handed "
                "out");
}

MALLOW_INTERNAL MALLOW_COLD void heap_report_foreign(const struct heap_shared *shared,
                                                     uintptr_t address, const char *call) {
    if (huge_past_of(shared->huges, address) != HUGE_UNKNOWN) {
        heap_report_unused(address, call);
    }
    heap_report(call, "invalid ", address,
                "a foreign pointer: no block of this allocator, nor of libc's, begins there; or a "
                "large block that was freed before");
}

// The large block that an address lies in, behind its first slice; NULL: none.
static MALLOW_COLD struct slab *heap_large_around(const struct heap_shared *shared,
                                                  uintptr_t address) {
    const struct arena *const arena = arena_of(shared->arenas, address);
    const size_t slice = arena != NULL ? (address - arena->base) >> MALLOW_SLICE_SHIFT : 0;
    for (size_t back = 1; back <= slice % MALLOW_CHUNK_SLICES; back++) {
        struct slab *const slab = &arena->slabs[arena_slot_of(arena, slice - back)];
        if (slab->kind != SLAB_NONE && slab->kind != SLAB_INTERIOR) {
            return slab->kind == SLAB_LARGE && back < slab->slice_count ? slab : NULL;
        }
    }
    return NULL;
}

MALLOW_INTERNAL void heap_report_misuse(const struct heap_shared *shared, uintptr_t address,
                                        const char *call) {
    if (os_is_in_break(shared->os, address)) {
        return; // libc's, where nothing of ours lies: no need to go through all huge blocks
    }
    const struct slab *slab = heap_span_of(shared, address);
    if (slab == NULL) {
        slab = heap_large_around(shared, address);
    }
    if (slab != NULL && slab->kind == SLAB_THIN) {
        heap_report_in_thin(call, slab, address);
    }
    if (slab != NULL) {
        heap_report_in_slab(call, slab, address);
    }
    if (arena_of(shared->arenas, address) != NULL ||
        huge_past_of(shared->huges, address) == HUGE_KEPT) {
        heap_report_unused(address, call);
    }
    if (huge_contains(shared->huges, address)) {
        heap_report(call, "invalid ", address,
                    address % MALLOW_GRANULE_BYTES != 0
                        ? "misaligned pointer into a block with a mapping of its own"
                        : "interior pointer into a block with a mapping of its own");
    }
}
