// SPDX-License-Identifier: MIT
// Slab: see slab.h.
#include "slab/slab.h"

#include "slab/size_class.h"

enum {
    SLAB_COLOR_BYTES = 1024,
    SLAB_SHORT_COLOR_BYTES = 256, // where it is not address space alone that it costs
    SLAB_PAGE_BYTES = 4096, // the smallest
    SLAB_WORD_WORTH = 16, // free blocks in a word that are worth taking it
};

// Whether a slice has room for more blocks than the bitmap has bits, so that its end is not used.
static bool slab_is_short(size_t block_bytes) {
    return MALLOW_SLAB_CAPACITY_MAX * block_bytes < MALLOW_SLICE_BYTES - SLAB_COLOR_BYTES;
}

// Slices lie at multiples of 64 KiB, so equal offsets in them fall into the same sets of a cache.
// The first block of a slab lies a few lines into it, by another number of lines in each slice,
// where the blocks are small: a multiple of the block's own alignment, which is kept.
static size_t slab_color(uintptr_t address, size_t block_bytes) {
    const size_t natural = block_bytes & (0 - block_bytes);
    const size_t step = bits_max(natural, MALLOW_CACHE_LINE);
    if (step > SLAB_COLOR_BYTES / 2) {
        return 0;
    }
    const size_t most = slab_is_short(block_bytes) ? SLAB_SHORT_COLOR_BYTES : SLAB_COLOR_BYTES;
    return ((address >> MALLOW_SLICE_SHIFT) * step) & (most - 1);
}

// Relaxed: any address, of another arena or of none of ours, is looked up in the slot that it would
// have (heap_near_find, heap_fast_usable), whatever becomes of that slot just then.
static void slab_set_start(struct slab *slab, uintptr_t address) {
    __atomic_store_n(&slab->start_address, address, __ATOMIC_RELAXED);
}

static void slab_set_reciprocal(struct slab *slab, uint32_t reciprocal) {
    __atomic_store_n(&slab->reciprocal, reciprocal, __ATOMIC_RELAXED);
}

// How many blocks a slab has. A short one has as many as fill its last page, rather than a part of
// one more. `room`: bytes from block 0 to the slice's end.
static size_t slab_room(size_t room, size_t color, size_t block_bytes) {
    if (!slab_is_short(block_bytes)) {
        return bits_min(room / block_bytes, MALLOW_SLAB_CAPACITY_MAX);
    }
    const size_t end = color + MALLOW_SLAB_CAPACITY_MAX * block_bytes;
    return (bits_align_down(end, SLAB_PAGE_BYTES) - color) / block_bytes;
}

MALLOW_INTERNAL void slab_init(struct slab *slab, uintptr_t address, unsigned class_index,
                               unsigned slice_count, uintptr_t owner) {
    const size_t block_bytes = size_class_bytes(class_index);
    check_assert(slice_count == size_class_slices(class_index));
    const size_t color = slice_count == 1 ? slab_color(address, block_bytes) : 0;
    const size_t room = ((size_t)slice_count << MALLOW_SLICE_SHIFT) - color;
    slab_set_start(slab, address + color);
    atomic_store_explicit(&slab->reach_bytes, 0, memory_order_relaxed);
    slab->block_bytes = (uint32_t)block_bytes;
    slab->take_bytes = (uint32_t)block_bytes;
    slab_set_reciprocal(slab,
                        (uint32_t)(((UINT64_C(1) << 32) + block_bytes - 1) / block_bytes));
    slab_set_hot(slab, false);
    slab_set_last(slab, 0);
    slab->used_count = 0;
    slab->next = NULL;
    slab->previous = NULL;
    __atomic_store_n(&slab->capacity_count, 0, __ATOMIC_RELAXED);
    slab->room_count = (uint16_t)slab_room(room, color, block_bytes);
    __atomic_store_n(&slab->class_index, (uint8_t)class_index, __ATOMIC_RELAXED); // holes_note
    slab->slice_count = (uint8_t)slice_count;
    slab->slice_back = 0;
    slab->word_count = 0;
    slab->reused = 0;
    if (slice_count > 1) {
        slab_mark_interior(slab, slice_count);
    }
    slab_set_owner(slab, owner);
    __atomic_store_n(&slab->kind, SLAB_BLOCKS, __ATOMIC_RELEASE);
}

MALLOW_INTERNAL bool slab_open(struct slab *slab, size_t page_bytes) {
    if (!slab_can_open(slab)) {
        return false;
    }
    const size_t before = slab->capacity_count;
    const uintptr_t wanted =
        slab->start_address + (before + bits_max(before / 2, 1)) * slab->block_bytes;
    const uintptr_t end = bits_align_up(wanted, page_bytes);
    const size_t capacity =
        bits_min((end - slab->start_address) / slab->block_bytes, slab->room_count);
    uint64_t *word = &slab->bits[before / 64];
    const size_t last_word = (capacity - 1) / 64;
    const uint64_t *const end_word = &slab->bits[last_word];
    // A new word holds anything.
    uint64_t opened = ~UINT64_C(0) << (before % 64);
    uint64_t known = (opened & 1U) != 0 ? 0 : *word;
    if (word < end_word) {
        *word = known | opened;
        opened = ~UINT64_C(0);
        known = 0;
        compiler_forget(opened); // a few stores, not a call of memset
        for (word++; word < end_word; word++) {
            *word = opened;
        }
    }
    *word = known | (opened & (~UINT64_C(0) >> (-capacity % 64)));
    slab->word_count = (uint8_t)(last_word + 1);
    __atomic_store_n(&slab->capacity_count, (uint16_t)capacity, __ATOMIC_RELAXED);
    atomic_store_explicit(&slab->reach_bytes,
                          bits_min(capacity * slab->block_bytes, slab_first_bytes(slab)),
                          memory_order_relaxed);
    slab_set_word(slab, (unsigned)before / 64);
    return true;
}

// Of one block, or of none that a slab could have. The kind last, and once: others may be asking.
static void slab_init_whole(struct slab *slab, uintptr_t address, unsigned slice_count,
                            size_t usable_bytes, void *word, enum slab_kind kind) {
    slab_set_start(slab, address);
    atomic_store_explicit(&slab->reach_bytes, 0, memory_order_relaxed); // free: the slow path
    slab->block_bytes = (uint32_t)usable_bytes;
    slab_set_reciprocal(slab, 0);
    slab_set_hot(slab, false);
    slab_set_last(slab, 0);
    slab->used_count = 1;
    slab->next = NULL;
    slab->previous = NULL;
    __atomic_store_n(&slab->capacity_count, 1, __ATOMIC_RELAXED);
    slab->room_count = 1;
    __atomic_store_n(&slab->class_index, MALLOW_CLASS_COUNT, __ATOMIC_RELAXED);
    slab->slice_count = (uint8_t)slice_count;
    slab->slice_back = 0;
    slab->word_count = 0;
    __atomic_store_n(&slab->word, word, __ATOMIC_RELAXED);
    slab_set_owner(slab, 0);
    __atomic_store_n(&slab->kind, (uint8_t)kind, __ATOMIC_RELEASE);
}

MALLOW_INTERNAL void slab_init_large(struct slab *slab, uintptr_t address, unsigned slice_count,
                                     size_t usable_bytes) {
    slab_init_whole(slab, address, slice_count, usable_bytes, NULL, SLAB_LARGE);
}

MALLOW_INTERNAL void slab_init_thin(struct slab *slab, uintptr_t address, void *thin) {
    slab_init_whole(slab, address, 1, MALLOW_SLICE_BYTES, thin, SLAB_THIN);
}

MALLOW_INTERNAL void slab_clear(struct slab *slab) {
    slab_set_start(slab, 0);
    atomic_store_explicit(&slab->reach_bytes, 0, memory_order_relaxed);
    slab->slice_count = 0;
    slab_set_owner(slab, 0);
    __atomic_store_n(&slab->kind, SLAB_NONE, __ATOMIC_RELEASE);
}

// slab_skip_words where most words are likely to have none: four in a row are a few instructions
// each.
static MALLOW_NOINLINE const uint64_t *slab_skip_many(const uint64_t *word, const uint64_t *end) {
    for (; end - word >= 4; word += 4) {
        if (word[0] != 0) {
            return word;
        }
        if (word[1] != 0) {
            return word + 1;
        }
        if (word[2] != 0) {
            return word + 2;
        }
        if (word[3] != 0) {
            return word + 3;
        }
    }
    return slab_skip_words(word, end);
}

MALLOW_INTERNAL bool slab_seek_word(struct slab *slab) {
    return slab_next_word_by(slab, slab_skip_many);
}

MALLOW_INTERNAL bool slab_seek_room(struct slab *slab) {
    return slab_seek_word(slab) &&
           (bits_count(*slab->word) >= SLAB_WORD_WORTH || slab_is_roomy(slab));
}

MALLOW_RACY_READ MALLOW_INTERNAL unsigned slab_count_used(const struct slab *slab) {
    unsigned free_count = 0;
    for (unsigned i = 0; i < slab->word_count; i++) {
        free_count += bits_count(*(const volatile uint64_t *)&slab->bits[i]);
    }
    return slab->capacity_count - free_count - (slab->hot != 0 && slab_has_own_last(slab));
}

MALLOW_INTERNAL void slab_cool_hot(struct slab *slab) {
    const size_t index =
        (compiler_relaxed_word(&slab->last) - slab->start_address) / slab->block_bytes;
    slab->bits[index / 64] |= UINT64_C(1) << (index % 64);
    slab_set_hot(slab, false);
    slab->used_count--;
}

MALLOW_INTERNAL bool slab_is_unused(const struct slab *slab) {
    return slab->used_count % SLAB_CURRENT == 0;
}

MALLOW_INTERNAL bool slab_audit(const struct slab *slab) {
    if (slab->kind != SLAB_BLOCKS) {
        return true;
    }
    const size_t word_index = (size_t)(slab->word - slab->bits);
    const bool current = slab_is_current(slab);
    const bool own_hot = slab->hot != 0 && slab_has_own_last(slab);
    const unsigned extra = current ? SLAB_CURRENT + own_hot : 0;
    return slab->used_count == slab_count_used(slab) + extra && (current || slab->hot == 0) &&
           word_index < slab->word_count && slab_word_index(slab) == word_index &&
           slab->capacity_count <= slab->room_count &&
           slab->word_base == slab->start_address + word_index * 64 * slab->block_bytes &&
           (slab->capacity_count % 64 == 0 ||
            slab->bits[slab->capacity_count / 64] >> (slab->capacity_count % 64) == 0);
}
