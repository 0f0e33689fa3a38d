// SPDX-License-Identifier: MIT
// Slab: blocks of one size in memory given to it; which of them are free is a bitmap in the header.
//
// Owns     the bitmap and counts of one slab. The memory belongs to the arena, the header slot too:
//          an arena has one slot a slice, in a table of its own, so a header is found by
//          arithmetic.
// Threads  only the owning heap writes, except the remote part, which any thread may set bits in.
// Holds    a block is free iff its bit is set, or it is `last` and `hot` is 1; nothing is ever
//          written into a free block, so nothing that is written there can mislead us, and a second
//          free is certain to be found.
//          used_count = capacity_count - (bits set); while current, SLAB_CURRENT more (slab_audit),
//          so that it does not become 0: a current slab stays when it is empty
//          last is 0, or the block that was handed out last; hot: it has been freed since, counts
//          as used, and is the next to be handed out. So a malloc that follows such a free waits
//          for nothing that the free has written: the address has been in `last` all the time, and
//          of `hot` it only needs the prediction. Only a current slab has them.
//          `last` may be of another slab of the same class and heap, which is full and stays so:
//          that slab has lent it (heap_near.h). It counts as used there, and not here.
//          word points to a bitmap word, word_base to the block of that word's bit 0.
//          Bits at and beyond capacity_count are never set.
//          Of a slab of several slices, which has few blocks, bits[1] says which of them are free,
//          or not yet open, and read as zero: none that has been handed out since its pages came
//          from the kernel.
//          capacity_count <= room_count: a slab is opened bit by bit, from its first block on, so
//          that pages which no block needs yet are not touched. What is not yet open is, to malloc
//          and free, as if it were not there.
//
//   header slot (256 bytes)                         slab (1 .. 8 slices)
//   | line 0: free | line 1: malloc | bits |              | block | block | not open | .. tail |
#ifndef MALLOW_SLAB_SLAB_H
#define MALLOW_SLAB_SLAB_H

#include <assert.h>
#include <stdatomic.h>

#include "base/bits.h"
#include "base/check.h"
#include "base/compiler.h"
#include "config.h"

enum slab_kind {
    SLAB_NONE = 0,     // slice is free, or never used
    SLAB_BLOCKS = 1,   // blocks of one class
    SLAB_LARGE = 2,    // one block that fills the span
    SLAB_INTERIOR = 3, // a later slice of a slab, now or before: see slab_head
    SLAB_THIN = 4,     // small blocks of several heaps and sizes, see arena/thin.h
};

// Flag bits in the owner word: the fast path of free compares the whole word, so they send it to
// the slow path at no cost.
#define SLAB_OWNER_FULL ((uintptr_t)1)    // no free block when its heap last looked; on no queue
#define SLAB_OWNER_PENDING ((uintptr_t)2) // other threads have freed blocks: look before freeing
#define SLAB_OWNER_QUEUED ((uintptr_t)4)  // has free blocks, but is not the current slab
#define SLAB_OWNER_FLAGS ((uintptr_t)63)

#define SLAB_CURRENT UINT32_C(0x10000) // more than any slab's blocks

struct slab {
    // Line 0: what every thread that frees into the slab reads. Changes only with the slab's state.
    uintptr_t start_address;  // of block 0; 0 unless head of a span in use
    _Atomic(size_t) reach_bytes; // capacity * block size, within the first slice; read by any
    _Atomic(uintptr_t) owner; // heap address + flags; PENDING is set by any thread
    uint32_t reciprocal;      // ceil(2^32 / block_bytes)
    uint32_t block_bytes;     // usable size of a block
    uint16_t capacity_count;  // blocks opened so far; read by any
    uint16_t room_count;      // blocks that the span has room for
    union {
        struct {
            uint8_t kind;        // enum slab_kind
            uint8_t class_index;
            uint8_t slice_count; // of the span; 0 unless head
            uint8_t slice_back;  // SLAB_INTERIOR: slices back to the head
        };
        uint32_t marks;          // the four, of a slice that is not the head
    };
    struct slab *next;        // queue of slabs with room, of one class of one heap
    struct slab *previous;
    uint8_t word_count;       // words of the bitmap in use
    uint8_t word_index;       // of `word`, for those who only want to know if a block is in it
    uint8_t reused;           // 1: since it became full, blocks of it have been lent (see below)
    uint8_t padding[5];
    // Line 1: what malloc changes with every block.
    _Atomic(uintptr_t) last;  // the block handed out last; 0 if none; read by any
    uint64_t *word;           // where malloc takes the next block from; SLAB_THIN: its struct;
                              // SLAB_LARGE: what its slices are charged to besides (heap.h)
    uintptr_t word_base;      // address of the word's bit 0
    uint32_t take_bytes;      // block_bytes again
    uint32_t used_count;      // blocks not free here; SLAB_CURRENT more while malloc takes from it
    _Atomic(uint8_t) hot;     // 1: `last` is free, and to be handed out next; else 0; read by any
    uint8_t reserved[7];
    uint64_t bits[MALLOW_SLAB_WORDS]; // 1 = free
};

static_assert(sizeof(struct slab) == (size_t)1 << MALLOW_SLAB_HEADER_SHIFT, "one header slot");
static_assert(offsetof(struct slab, last) == MALLOW_CACHE_LINE, "line 0 is line 0");

// What other threads write: which blocks they have freed. Apart from the header, in a table of its
// own, so that its pages are only touched where there are such frees.
struct slab_remote {
    _Atomic(uint64_t) bits[MALLOW_SLAB_WORDS]; // 1 = freed by another thread, not yet collected
    uint64_t padding[5];
    _Atomic(struct slab_remote *) next_posted; // stack of slabs with remote frees, of one heap
    struct slab *slab;                         // whose
    _Atomic(uint32_t) posted;                  // 1 while on a stack, or about to be
    uint32_t reserved[11];
};

static_assert(sizeof(struct slab_remote) == sizeof(struct slab), "one distance between the tables");

MALLOW_INLINE void slab_mark_one(struct slab *slab, unsigned i) {
    __atomic_store_n(&slab[i].marks, SLAB_INTERIOR | i << 24, __ATOMIC_RELEASE);
}

// Marks the later slices of the span that `slab` is the head of, if blocks begin in them: straight
// down from the last, for a slab.
MALLOW_INLINE void slab_mark_interior(struct slab *slab, unsigned slice_count) {
    for (; unlikely(slice_count > 8); slice_count--) { // spans of another kind
        slab_mark_one(slab, slice_count - 1);
    }
    switch (slice_count) {
    case 8: slab_mark_one(slab, 7); __attribute__((fallthrough));
    case 7: slab_mark_one(slab, 6); __attribute__((fallthrough));
    case 6: slab_mark_one(slab, 5); __attribute__((fallthrough));
    case 5: slab_mark_one(slab, 4); __attribute__((fallthrough));
    case 4: slab_mark_one(slab, 3); __attribute__((fallthrough));
    case 3: slab_mark_one(slab, 2); __attribute__((fallthrough));
    case 2: slab_mark_one(slab, 1); __attribute__((fallthrough));
    default: break;
    }
}

// Makes the slices at `address`, size_class_slices of them, a slab of a class, without a block as
// yet: on no queue, not current.
MALLOW_INTERNAL void slab_init(struct slab *slab, uintptr_t address, unsigned class_index,
                               unsigned slice_count, uintptr_t owner);

// Opens more blocks: half as many again, at least one, and up to the end of a page of
// `page_bytes`; malloc takes from them next. False: all are open.
MALLOW_INTERNAL bool slab_open(struct slab *slab, size_t page_bytes);

// One block for the whole span; its usable size is `usable_bytes`.
MALLOW_INTERNAL void slab_init_large(struct slab *slab, uintptr_t address, unsigned slice_count,
                                     size_t usable_bytes);

// A slice of small blocks of several heaps, described by `thin`.
MALLOW_INTERNAL void slab_init_thin(struct slab *slab, uintptr_t address, void *thin);

// Makes the slot of the span's head a free one again. Its other slots keep their marks, which lead
// to nothing now (slab_head). The remote part stays as it is.
MALLOW_INTERNAL void slab_clear(struct slab *slab);

// Whether a slot is of the head of a span; a hint, unless that is the caller's.
MALLOW_INLINE bool slab_is_head(const struct slab *slab) {
    const uint8_t kind = __atomic_load_n(&slab->kind, __ATOMIC_ACQUIRE);
    return kind != SLAB_NONE && kind != SLAB_INTERIOR;
}

// The head of the span that the slice of a slot lies in, as a slot; NULL if it lies in none, or in
// a later slice of one in which no block begins.
MALLOW_INLINE struct slab *slab_head(struct slab *slab) {
    uint8_t kind = __atomic_load_n(&slab->kind, __ATOMIC_ACQUIRE);
    if (kind == SLAB_INTERIOR) {
        const unsigned back = slab->slice_back;
        slab -= back;
        kind = __atomic_load_n(&slab->kind, __ATOMIC_ACQUIRE);
        if (kind == SLAB_INTERIOR || back >= slab->slice_count) {
            return NULL; // of a span that is no more
        }
    }
    return kind != SLAB_NONE ? slab : NULL;
}

// Index of `word`; read by any.
MALLOW_INLINE unsigned slab_word_index(const struct slab *slab) {
    return __atomic_load_n(&slab->word_index, __ATOMIC_RELAXED);
}

// Moves `word` to a bitmap word with a free block; false if there is none. For a slab that is not
// out.
MALLOW_INTERNAL bool slab_seek_word(struct slab *slab);

// The same; but for a slab that could be opened further, true only if the word has many, or an
// eighth of what is open is free: to hand out a few and be asked again costs more than a page.
MALLOW_INTERNAL bool slab_seek_room(struct slab *slab);

// Blocks that are not free here, counted.
MALLOW_INTERNAL unsigned slab_count_used(const struct slab *slab);

// The better part of slab_cool.
MALLOW_INTERNAL void slab_cool_hot(struct slab *slab);

// Whether every block is free here; none may be hot.
MALLOW_INTERNAL bool slab_is_unused(const struct slab *slab);

// Whether the accounting equations hold.
MALLOW_INTERNAL bool slab_audit(const struct slab *slab);

MALLOW_INLINE unsigned slab_capacity(const struct slab *slab) {
    return __atomic_load_n(&slab->capacity_count, __ATOMIC_RELAXED);
}

// Whether blocks remain to be opened.
MALLOW_INLINE bool slab_can_open(const struct slab *slab) {
    return slab->capacity_count < slab->room_count;
}

// Whether no open block of a slab is free, counted: a hot one counts as used.
MALLOW_INLINE bool slab_is_out(const struct slab *slab) {
    return slab->used_count % SLAB_CURRENT == slab->capacity_count;
}

// Whether an eighth of what is open is free, or all is open: the cheaper half of slab_find_room.
MALLOW_INLINE bool slab_is_roomy(const struct slab *slab) {
    return !slab_can_open(slab) ||
           (slab->capacity_count - slab->used_count % SLAB_CURRENT) * 8 >= slab->capacity_count;
}

// From block 0 to the end of the first slice.
MALLOW_INLINE size_t slab_first_bytes(const struct slab *slab) {
    return MALLOW_SLICE_BYTES - slab->start_address % MALLOW_SLICE_BYTES;
}

MALLOW_INLINE void slab_set_word(struct slab *slab, unsigned word_index) {
    // Relaxed: who ends a heap reads it in all slabs (heap_large_allowance).
    __atomic_store_n(&slab->word, &slab->bits[word_index], __ATOMIC_RELAXED);
    __atomic_store_n(&slab->word_index, (uint8_t)word_index, __ATOMIC_RELAXED);
    slab->word_base = slab->start_address + word_index * 64 * slab->block_bytes;
}

// slab_open of a slab without a block as yet. Of blocks of a page and more it opens one.
MALLOW_INLINE void slab_open_first(struct slab *slab, size_t page_bytes) {
    const size_t block_bytes = slab->block_bytes;
    size_t capacity = 1;
    uint64_t *last = slab->bits;
    if (block_bytes < page_bytes) {
        const uintptr_t start = slab->start_address;
        const uintptr_t end = bits_align_up(start + block_bytes, page_bytes);
        capacity = bits_min((end - start) / block_bytes, slab->room_count);
        for (size_t left = capacity; unlikely(left > 64); left -= 64) {
            *last++ = ~UINT64_C(0);
            compiler_forget(last); // no vectors for what is a few words
        }
    }
    *last = ~UINT64_C(0) >> (-capacity % 64);
    slab->word_count = (uint8_t)(last + 1 - slab->bits);
    __atomic_store_n(&slab->capacity_count, (uint16_t)capacity, __ATOMIC_RELAXED);
    check_assert(capacity * block_bytes <= slab_first_bytes(slab)); // to the end of one page
    atomic_store_explicit(&slab->reach_bytes, capacity * block_bytes, memory_order_relaxed);
    slab_set_word(slab, 0);
}

// The first word with a free block from `word` on, or `end`.
MALLOW_INLINE const uint64_t *slab_skip_words(const uint64_t *word, const uint64_t *end) {
    while (word < end && *word == 0) {
        word++;
    }
    return word;
}

// slab_find_word where a block is known to be free, or hot. From the current word on and around:
// the blocks that were handed out together stay together. `seek`: slab_skip_words, or a like one.
MALLOW_INLINE bool slab_next_word_by(struct slab *slab,
                                     const uint64_t *(*seek)(const uint64_t *, const uint64_t *)) {
    const uint64_t *const end = &slab->bits[slab->word_count];
    const uint64_t *word = seek(slab->word, end);
    if (word == end) {
        word = seek(slab->bits, slab->word);
        if (word == slab->word) {
            return false;
        }
    }
    slab_set_word(slab, (unsigned)(word - slab->bits));
    return true;
}

MALLOW_INLINE bool slab_next_word(struct slab *slab) {
    return slab_next_word_by(slab, slab_skip_words);
}

// A slab that is out is not looked through.
MALLOW_INLINE bool slab_find_word(struct slab *slab) {
    return !slab_is_out(slab) && slab_seek_word(slab);
}

MALLOW_INLINE bool slab_find_room(struct slab *slab) {
    return !slab_is_out(slab) && slab_seek_room(slab);
}

// Index of the block that `address` is the start of, for an address in the slab's span; SIZE_MAX
// for an address that is no block's start. For the first slice this is the fast path's arithmetic:
// Lemire, Kaser, Kurz, "Faster remainder by direct computation" (2019).
MALLOW_INLINE size_t slab_index_of(const struct slab *slab, uintptr_t address) {
    const size_t offset = address - slab->start_address;
    const size_t index = offset / slab->block_bytes;
    if (index * slab->block_bytes != offset || index >= slab_capacity(slab)) {
        return SIZE_MAX;
    }
    return index;
}

// Release: who reads that there is a hot block reads `last` as it was then, or as it is later.
MALLOW_INLINE void slab_set_hot(struct slab *slab, bool hot) {
    atomic_store_explicit(&slab->hot, hot, memory_order_release);
}

MALLOW_INLINE void slab_set_last(struct slab *slab, uintptr_t address) {
    atomic_store_explicit(&slab->last, address, memory_order_relaxed);
}

MALLOW_INLINE bool slab_is_hot(const struct slab *slab, size_t index) {
    return atomic_load_explicit(&slab->hot, memory_order_acquire) != 0 &&
           atomic_load_explicit(&slab->last, memory_order_acquire) ==
               slab->start_address + index * slab->block_bytes;
}

// Whether `last` is a block of this slab, not of another one that has lent it.
MALLOW_INLINE bool slab_has_own_last(const struct slab *slab) {
    const uintptr_t last = compiler_relaxed_word(&slab->last);
    return last - slab->start_address < (size_t)slab->capacity_count * slab->block_bytes;
}

// Whether blocks of a full slab have been lent; read by any.
MALLOW_INLINE bool slab_has_reused(const struct slab *slab) {
    return compiler_relaxed_plain(&slab->reused) != 0;
}

// Whether a block that another slab has lent is the next to be handed out.
MALLOW_INLINE bool slab_has_lent(const struct slab *slab) {
    return compiler_relaxed_byte(&slab->hot) != 0 && !slab_has_own_last(slab);
}

// Makes the hot block an ordinary free one, if it is one of this slab.
MALLOW_INLINE void slab_cool(struct slab *slab) {
    if (unlikely(compiler_relaxed_byte(&slab->hot) != 0)) {
        if (!slab_has_own_last(slab)) {
            return;
        }
        slab_cool_hot(slab);
    }
    slab_set_last(slab, 0);
}

MALLOW_INLINE bool slab_is_free(const struct slab *slab, size_t index) {
    return ((slab->bits[index / 64] >> (index % 64)) & 1U) != 0 || slab_is_hot(slab, index);
}

// bits[1] of a slab of several slices. Whoever adds to it has purged the blocks' pages before: so
// what is read after a bit is what has become of them.
MALLOW_INLINE uint64_t slab_zeroed(const struct slab *slab) {
    return __atomic_load_n(&slab->bits[1], __ATOMIC_ACQUIRE);
}

MALLOW_INLINE void slab_set_zeroed(struct slab *slab, uint64_t zeroed) {
    __atomic_store_n(&slab->bits[1], zeroed, __ATOMIC_RELEASE);
}

// Takes the hot block, or the lowest free one of the current word; false if there is neither.
MALLOW_INLINE bool slab_take(struct slab *slab, uintptr_t *address) {
    if (compiler_relaxed_byte(&slab->hot) != 0) {
        slab_set_hot(slab, false);
        *address = compiler_relaxed_word(&slab->last);
        return true;
    }
    uint64_t *const word = slab->word;
    const uint64_t free_blocks = *word;
    if (unlikely(free_blocks == 0)) {
        return false;
    }
    *word = free_blocks & (free_blocks - 1);
    slab->used_count++;
    // Offsets in a slab fit 32 bits: the product then needs no load of its own.
    const uint32_t offset = (uint32_t)bits_find_lowest(free_blocks) * slab->take_bytes;
    const uintptr_t found = slab->word_base + offset;
    slab_set_last(slab, found);
    *address = found;
    return true;
}

// Whether malloc takes from it.
MALLOW_INLINE bool slab_is_current(const struct slab *slab) {
    return slab->used_count >= SLAB_CURRENT;
}

MALLOW_INLINE uintptr_t slab_owner(const struct slab *slab) {
    return atomic_load_explicit(&slab->owner, memory_order_relaxed);
}

MALLOW_INLINE uintptr_t slab_owner_heap(const struct slab *slab) {
    return slab_owner(slab) & ~SLAB_OWNER_FLAGS;
}

MALLOW_INLINE void slab_set_owner(struct slab *slab, uintptr_t owner) {
    atomic_store_explicit(&slab->owner, owner, memory_order_relaxed);
}

// Changes the owner or the full flag of a slab in use; a pending flag stays.
MALLOW_INLINE void slab_change_owner(struct slab *slab, uintptr_t owner) {
    uintptr_t before = atomic_load_explicit(&slab->owner, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(
        &slab->owner, &before, owner | (before & SLAB_OWNER_PENDING), memory_order_seq_cst,
        memory_order_relaxed)) { // at most once: nobody else takes the flag away
    }
}

#endif
