// SPDX-License-Identifier: MIT
// Heap, freeing beyond the fast path, and telling what a pointer is. See heap.h.
#include "heap/heap.h"

#include "base/format.h"
#include "heap/heap_fast.h"
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

// The same, with one look-up for both: if there is none, the huge block that begins there, or NULL.
static struct slab *heap_span_or_huge(const struct heap_shared *shared, uintptr_t address,
                                      struct huge **huge) {
    if (!arena_is_in_primary(shared->arenas, address)) {
        const uintptr_t entry = address_map_get(shared->huges->map, address);
        *huge = huge_of_entry(entry, address);
        if ((entry & 1) == 0) {
            return NULL;
        }
    }
    *huge = NULL;
    return heap_span_of(shared, address);
}

MALLOW_INTERNAL struct heap_block heap_identify(const struct heap_shared *shared,
                                                uintptr_t address) {
    struct heap_block block = {HEAP_BLOCK_NONE, NULL, NULL, 0, 0};
    struct slab *const slab = heap_span_or_huge(shared, address, &block.huge);
    if (slab == NULL) {
        if (block.huge != NULL) {
            block.kind = HEAP_BLOCK_HUGE;
            block.usable_bytes = block.huge->usable_bytes;
        }
        return block;
    }
    block.slab = slab;
    block.usable_bytes = slab->block_bytes;
    if (slab->kind == SLAB_LARGE) {
        if (address == slab->start_address) {
            block.kind = HEAP_BLOCK_LARGE;
        }
    } else if (slab->kind == SLAB_THIN) {
        block.usable_bytes = thin_size(slab, address);
        if (block.usable_bytes != 0) {
            block.kind = HEAP_BLOCK_THIN;
        }
    } else {
        block.index = slab_index_of(slab, address);
        if (block.index != SIZE_MAX &&
            !slab_remote_is_free(slab, arena_remote_of(shared->arenas, slab), block.index) &&
            !(slab_has_reused(slab) && heap_is_lent(slab, block.index))) {
            block.kind = HEAP_BLOCK_SLAB;
        }
    }
    return block;
}

MALLOW_INTERNAL size_t heap_own_usable(const struct heap *heap, uintptr_t address) {
    const struct slab *const slab = heap_fast_slab(heap, address);
    const uint64_t offset = address - slab->start_address;
    const uintptr_t flags = SLAB_OWNER_QUEUED | SLAB_OWNER_FULL;
    struct heap_fast_block block;
    if (offset >= compiler_relaxed_word(&slab->reach_bytes) ||
        (compiler_relaxed_word(&slab->owner) & ~flags) != (uintptr_t)heap ||
        !heap_fast_find(slab, offset, &block)) {
        return 0;
    }
    // Free without a bit: the block that malloc hands out next, which may be one of a full slab.
    const struct slab *const current = heap_current_slab(heap, slab->class_index);
    if (current != NULL && compiler_relaxed_byte(&current->hot) != 0 &&
        compiler_relaxed_word(&current->last) == address) {
        return 0;
    }
    return slab->block_bytes;
}

// Frees a block of a slab of this heap; false: the slab has just been taken over by another.
static bool heap_free_local(struct heap *heap, struct slab *slab, size_t index) {
    const enum heap_hold hold = heap_hold_slab(heap, slab);
    if (unlikely(hold == HEAP_HOLD_LOST)) {
        return false;
    }
    // Others may have freed this very block. What they have freed is not collected here: the slab
    // would be posted again and again while its blocks are freed from both sides.
    const bool is_free =
        slab_is_free(slab, index) ||
        ((slab_owner(slab) & SLAB_OWNER_PENDING) != 0 &&
         slab_remote_is_free(slab, arena_remote_of(heap->shared->arenas, slab), index));
    if (unlikely(is_free)) {
        fatal_misuse("double free of", slab->start_address + index * slab->block_bytes,
                     "this block was freed before, and is still free");
    }
    slab_cool(slab); // `last` may be this one
    slab->bits[index / 64] |= UINT64_C(1) << (index % 64);
    slab->used_count--;
    heap_slab_refilled(heap, slab, hold == HEAP_HOLD_WAS_FULL);
    return true;
}

// Frees a block of a slab whose thread has ended by claiming that thread's heap for a moment: the
// slab can then be given up at once. False: its owner lives, or somebody is at work in the heap.
static bool heap_free_abandoned(struct heap *owner, struct slab *slab, size_t index) {
    if (!heap_is_abandoned(owner) || !heap_claim(owner)) {
        return false;
    }
    const bool done = heap_free_local(owner, slab, index);
    int work = heap_call_work();
    heap_unclaim(owner, &work);
    return done;
}

// Frees block `index` of a slab in use, whoever owns it.
static MALLOW_NOINLINE void heap_free_in_slab(struct heap_shared *shared, struct heap *heap,
                                              struct slab *slab, size_t index) {
    struct heap *const owner = (struct heap *)slab_owner_heap(slab);
    if ((owner == heap && heap_free_local(heap, slab, index)) ||
        (owner != NULL && owner != heap && heap_free_abandoned(owner, slab, index))) {
        return;
    }
    heap_free_remote(shared, slab, arena_remote_of(shared->arenas, slab), index);
}

static bool heap_free_far(struct heap_shared *shared, struct heap *heap, uintptr_t address) {
    struct huge *huge;
    struct slab *const slab = heap_span_or_huge(shared, address, &huge);
    if (unlikely(slab == NULL)) {
        if (huge != NULL && huge_give_record(shared->huges, huge, address, true)) {
            heap_note_effort(HEAP_EFFORT_HUGE);
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
    if (slab_owner_heap(slab) != (uintptr_t)heap || slab->used_count != 1) {
        return false;
    }
    heap_free_remote(shared, slab, arena_remote_of(shared->arenas, slab), block->index);
    return true;
}

MALLOW_INTERNAL void heap_free_moved(struct heap_shared *shared, struct heap *heap,
                                     const struct heap_block *block, uintptr_t address) {
    if (block->kind == HEAP_BLOCK_SLAB) {
        heap_free_in_slab(shared, heap, block->slab, block->index);
    } else if (block->kind == HEAP_BLOCK_LARGE) {
        heap_large_free(shared, block->slab);
    } else {
        (void)heap_free_far(shared, heap, address);
    }
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
    format_text(&out, " bytes into a block of ");
    format_unsigned(&out, slab->block_bytes);
    format_text(&out, " bytes");
    heap_report(call, "invalid ", address, detail);
}

MALLOW_INTERNAL MALLOW_NORETURN MALLOW_COLD void heap_report_foreign(uintptr_t address,
                                                                     const char *call) {
    heap_report(call, "invalid ", address,
                "a foreign pointer: no block of this allocator, nor of libc's, begins there");
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
    if (arena_of(shared->arenas, address) != NULL) {
        heap_report(call, "invalid ", address,
                    "no block is in use there: it was freed before (a double free) or never handed "
                    "out");
    }
    if (huge_contains(shared->huges, address)) {
        heap_report(call, "invalid ", address,
                    address % MALLOW_GRANULE_BYTES != 0
                        ? "misaligned pointer into a block with a mapping of its own"
                        : "interior pointer into a block with a mapping of its own");
    }
}
