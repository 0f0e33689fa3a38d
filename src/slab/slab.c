// SPDX-License-Identifier: MIT
// Slab: see slab.h.
#include "slab/slab.h"

#include "slab/size_class.h"

enum { SLAB_COLOR_BYTES = 1024 };

static void slab_mark_interior(struct slab *slab, unsigned slice_count) {
    for (unsigned i = 1; i < slice_count; i++) {
        slab[i].start_address = 0;
        slab[i].reach_bytes = 0;
        slab[i].slice_count = 0;
        slab[i].slice_back = (uint8_t)i;
        slab_set_owner(&slab[i], 0);
        __atomic_store_n(&slab[i].kind, SLAB_INTERIOR, __ATOMIC_RELEASE);
    }
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
    return ((address >> MALLOW_SLICE_SHIFT) * step) & (SLAB_COLOR_BYTES - 1);
}

MALLOW_INTERNAL void slab_init(struct slab *slab, uintptr_t address, unsigned class_index,
                               uintptr_t owner) {
    const size_t block_bytes = size_class_bytes(class_index);
    const unsigned slice_count = size_class_slices(class_index);
    const size_t color = slice_count == 1 ? slab_color(address, block_bytes) : 0;
    const size_t room = ((size_t)slice_count << MALLOW_SLICE_SHIFT) - color;
    const unsigned capacity = (unsigned)bits_min(room / block_bytes, MALLOW_SLAB_CAPACITY_MAX);
    address += color;
    slab->start_address = address;
    slab->reach_bytes = bits_min(capacity * block_bytes, MALLOW_SLICE_BYTES - color);
    slab->block_bytes = (uint32_t)block_bytes;
    slab->reciprocal = (uint32_t)(((UINT64_C(1) << 32) + block_bytes - 1) / block_bytes);
    slab_set_hot(slab, false);
    slab_set_last(slab, 0);
    slab->used_count = 0;
    slab->next = NULL;
    slab->previous = NULL;
    slab->capacity_count = (uint16_t)capacity;
    slab->class_index = (uint8_t)class_index;
    slab->slice_count = (uint8_t)slice_count;
    slab->slice_back = 0;
    slab->word_count = (uint8_t)((capacity + 63) / 64);
    slab->is_current = 0;
    for (unsigned i = 0; i < slab->word_count; i++) {
        slab->bits[i] = ~UINT64_C(0);
    }
    if (capacity % 64 != 0) {
        slab->bits[capacity / 64] = (UINT64_C(1) << (capacity % 64)) - 1;
    }
    // Where malloc begins differs as well, for the larger caches: see slab_find_word.
    const unsigned first = (unsigned)(address >> MALLOW_SLICE_SHIFT) % slab->word_count;
    slab->word = &slab->bits[first];
    slab->word_base = address + first * 64 * block_bytes;
    slab_mark_interior(slab, slice_count);
    slab_set_owner(slab, owner);
    __atomic_store_n(&slab->kind, SLAB_BLOCKS, __ATOMIC_RELEASE);
}

MALLOW_INTERNAL void slab_init_large(struct slab *slab, uintptr_t address, unsigned slice_count,
                                     size_t usable_bytes) {
    slab->start_address = address;
    slab->reach_bytes = 0; // free goes to the slow path
    slab->block_bytes = (uint32_t)usable_bytes;
    slab->reciprocal = 0;
    slab_set_hot(slab, false);
    slab_set_last(slab, 0);
    slab->used_count = 1;
    slab->next = NULL;
    slab->previous = NULL;
    slab->capacity_count = 1;
    slab->class_index = MALLOW_CLASS_COUNT;
    slab->slice_count = (uint8_t)slice_count;
    slab->slice_back = 0;
    slab->word_count = 0;
    slab->is_current = 0;
    slab_mark_interior(slab, slice_count);
    slab_set_owner(slab, 0);
    __atomic_store_n(&slab->kind, SLAB_LARGE, __ATOMIC_RELEASE);
}

MALLOW_INTERNAL void slab_init_thin(struct slab *slab, uintptr_t address, void *thin) {
    slab_init_large(slab, address, 1, MALLOW_SLICE_BYTES);
    slab->word = thin;
    __atomic_store_n(&slab->kind, SLAB_THIN, __ATOMIC_RELEASE);
}

MALLOW_INTERNAL void slab_clear(struct slab *slab) {
    const unsigned slice_count = slab->slice_count;
    for (unsigned i = 0; i < slice_count; i++) {
        slab[i].start_address = 0;
        slab[i].reach_bytes = 0;
        slab[i].slice_count = 0;
        slab[i].slice_back = 0;
        slab_set_owner(&slab[i], 0);
        __atomic_store_n(&slab[i].kind, SLAB_NONE, __ATOMIC_RELEASE);
    }
}

MALLOW_INTERNAL bool slab_find_word(struct slab *slab) {
    // From the current word on and around: the blocks that were handed out together stay together.
    unsigned index = (unsigned)(slab->word - slab->bits);
    for (unsigned tries = 0; tries < slab->word_count; tries++) {
        if (slab->bits[index] != 0) {
            slab->word = &slab->bits[index];
            slab->word_base = slab->start_address + index * 64 * slab->block_bytes;
            return true;
        }
        index = index + 1 < slab->word_count ? index + 1 : 0;
    }
    return false;
}

MALLOW_RACY_READ MALLOW_INTERNAL unsigned slab_count_used(const struct slab *slab) {
    unsigned free_count = 0;
    for (unsigned i = 0; i < slab->word_count; i++) {
        free_count += bits_count(*(const volatile uint64_t *)&slab->bits[i]);
    }
    return slab->capacity_count - free_count - (slab->hot != 0);
}

MALLOW_INTERNAL void slab_cool(struct slab *slab) {
    const uintptr_t last = compiler_relaxed_word(&slab->last);
    if (compiler_relaxed_byte(&slab->hot) != 0) {
        const size_t index = (last - slab->start_address) / slab->block_bytes;
        slab->bits[index / 64] |= UINT64_C(1) << (index % 64);
        slab_set_hot(slab, false);
    }
    slab_set_last(slab, 0);
}

MALLOW_INTERNAL bool slab_is_unused(const struct slab *slab) {
    const unsigned rest = slab->capacity_count % 64;
    const unsigned whole = slab->capacity_count / 64;
    for (unsigned i = 0; i < whole; i++) {
        if (slab->bits[i] != ~UINT64_C(0)) {
            return false;
        }
    }
    return rest == 0 || slab->bits[whole] == (UINT64_C(1) << rest) - 1;
}

MALLOW_INTERNAL bool slab_audit(const struct slab *slab) {
    if (slab->kind != SLAB_BLOCKS) {
        return true;
    }
    const size_t word_index = (size_t)(slab->word - slab->bits);
    return (slab->is_current || (slab->hot == 0 && slab->used_count == slab_count_used(slab))) &&
           word_index < slab->word_count &&
           slab->word_base == slab->start_address + word_index * 64 * slab->block_bytes &&
           (slab->capacity_count % 64 == 0 ||
            slab->bits[slab->capacity_count / 64] >> (slab->capacity_count % 64) == 0);
}
