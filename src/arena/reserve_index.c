// SPDX-License-Identifier: MIT
// Reserve index: see reserve_index.h.
#include "arena/reserve_index.h"

#include "base/bits.h"
#include "base/check.h"

enum {
    INDEX_FIELDS = 8, // of a word
    INDEX_FIELD_SHIFT = 3,
    INDEX_FIELD_BITS = 6,
    INDEX_VERSION_SHIFT = INDEX_FIELDS * INDEX_FIELD_BITS,
};
#define INDEX_LOWEST_BITS UINT64_C(0x041041041041)  // of each field
#define INDEX_COMPARE_BITS UINT64_C(0x820820820820) // the highest of each

// The compare bit of each field that is at least `run`.
MALLOW_INLINE uint64_t index_fits(uint64_t word, unsigned run) {
    return ((word | INDEX_COMPARE_BITS) - run * INDEX_LOWEST_BITS) & INDEX_COMPARE_BITS;
}

// The larger one of each two fields; what is between the fields is cleared.
MALLOW_INLINE uint64_t index_larger_fields(uint64_t a, uint64_t b) {
    const uint64_t at_least = ((a | INDEX_COMPARE_BITS) - b) & INDEX_COMPARE_BITS;
    const uint64_t choice = at_least - (at_least >> (INDEX_FIELD_BITS - 1));
    return (a & choice) | (b & ~choice & ~INDEX_COMPARE_BITS);
}

// The largest field: of each two halves, a half at last.
static unsigned index_most(uint64_t word) {
    word &= (UINT64_C(1) << INDEX_VERSION_SHIFT) - 1;
    MALLOW_UNROLL_8 // as in the loops below: so that a step is a few instructions
    for (unsigned fields = INDEX_FIELDS / 2; fields != 0; fields /= 2) {
        word = index_larger_fields(word, word >> (fields * INDEX_FIELD_BITS));
    }
    return (unsigned)word & RESERVE_INDEX_RUN_MAX;
}

MALLOW_INTERNAL unsigned reserve_index_run(uint32_t mask) {
    // Where runs of 1, 2, 4, 8 and 16 begin.
    uint32_t begins[5] = {mask};
    MALLOW_UNROLL_8
    for (unsigned i = 1; i < 5; i++) {
        begins[i] = begins[i - 1] & (begins[i - 1] >> (1U << (i - 1)));
    }
    uint32_t found = UINT32_MAX; // where runs of `run` begin
    unsigned run = 0;
    MALLOW_UNROLL_8
    for (unsigned i = 5; i-- > 0;) {
        const uint32_t longer = found & (begins[i] >> run);
        if (longer != 0) {
            found = longer;
            run += 1U << i;
        }
    }
    return run;
}

MALLOW_INTERNAL size_t reserve_index_bytes(size_t chunk_count) {
    size_t words = 0;
    size_t count = chunk_count;
    do {
        count = (count + INDEX_FIELDS - 1) / INDEX_FIELDS;
        words += count;
    } while (count > 1);
    return words * sizeof(uint64_t);
}

MALLOW_INTERNAL void reserve_index_init(struct reserve_index *index, _Atomic(uint64_t) *words,
                                        size_t chunk_count) {
    size_t first = 0;
    size_t count = chunk_count;
    index->words = words;
    index->level_count = 0;
    do {
        count = (count + INDEX_FIELDS - 1) / INDEX_FIELDS;
        check_assert(index->level_count < RESERVE_INDEX_LEVELS);
        index->first[index->level_count] = (uint32_t)first;
        index->count[index->level_count++] = (uint32_t)count;
        first += count;
    } while (count > 1);
}

MALLOW_INTERNAL void reserve_index_clear(struct reserve_index *index) {
    const size_t last = index->first[index->level_count - 1];
    for (size_t i = 0; i <= last; i++) {
        atomic_store_explicit(&index->words[i], 0, memory_order_relaxed);
    }
}

// Puts what `mask`, or the word below, says into its field of `word`; whether that changes what the
// word above is to say. The word is read first: if it is still the same afterwards, nobody has
// found out anything later. `raises`: even what is there already is said again, since somebody may
// be about to put in place what was so before.
static bool index_update(_Atomic(uint64_t) *word, unsigned shift, bool *raises,
                         const _Atomic(uint32_t) *mask, const _Atomic(uint64_t) *below) {
    uint64_t before = atomic_load_explicit(word, memory_order_acquire);
    for (;;) {
        const unsigned had = (unsigned)(before >> shift) & RESERVE_INDEX_RUN_MAX;
        const unsigned has =
            below == NULL
                ? reserve_index_run(atomic_load_explicit(mask, memory_order_acquire))
                : index_most(atomic_load_explicit(below, memory_order_acquire));
        if (had == has && !*raises) {
            return false;
        }
        const uint64_t after = (before & ~((uint64_t)RESERVE_INDEX_RUN_MAX << shift)) +
                               ((uint64_t)has << shift) + (UINT64_C(1) << INDEX_VERSION_SHIFT);
        if (atomic_compare_exchange_weak_explicit(word, &before, after, memory_order_acq_rel,
                                                  memory_order_acquire)) {
            *raises = has > had;
            // Of a word of which this is, or was, the largest field.
            return *raises ? index_fits(before, has) == 0
                           : has < had && index_fits(after, had) == 0;
        }
    }
}

MALLOW_INTERNAL void reserve_index_note(struct reserve_index *index, size_t chunk,
                                        const _Atomic(uint32_t) *mask, bool raises) {
    const _Atomic(uint64_t) *below = NULL;
    size_t place = chunk;
    for (unsigned level = 0; level < index->level_count; level++) {
        _Atomic(uint64_t) *const word =
            &index->words[index->first[level] + (place >> INDEX_FIELD_SHIFT)];
        const unsigned shift = place % INDEX_FIELDS * INDEX_FIELD_BITS;
        if (!index_update(word, shift, &raises, mask, below)) {
            return;
        }
        below = word;
        place >>= INDEX_FIELD_SHIFT;
    }
}

// The lowest place of a level, from `from` of its word `word_index` on, that has such a run; or
// NONE.
MALLOW_INLINE size_t index_find_in(const struct reserve_index *index, unsigned level,
                                   size_t word_index, unsigned from, unsigned slice_count) {
    const uint64_t word = atomic_load_explicit(
        &index->words[index->first[level] + word_index], memory_order_acquire);
    const uint64_t fits = index_fits(word, slice_count) >> (from * INDEX_FIELD_BITS);
    return fits == 0 ? RESERVE_INDEX_NONE
                     : word_index * INDEX_FIELDS + from + bits_lowest(fits) / INDEX_FIELD_BITS;
}

MALLOW_INTERNAL size_t reserve_index_find(const struct reserve_index *index, unsigned slice_count,
                                          size_t from) {
    unsigned level = 0;
    size_t place = from;
    while (level < index->level_count) {
        // Up, until a word has one, and down again. Where the word below has none, somebody has
        // just taken it: what comes behind is looked at.
        const size_t word_index = place >> INDEX_FIELD_SHIFT;
        const size_t found =
            word_index < index->count[level]
                ? index_find_in(index, level, word_index, place % INDEX_FIELDS, slice_count)
                : RESERVE_INDEX_NONE;
        if (found == RESERVE_INDEX_NONE) {
            place = word_index + 1;
            level++;
        } else if (level == 0) {
            return found;
        } else {
            place = found << INDEX_FIELD_SHIFT;
            level--;
        }
    }
    return RESERVE_INDEX_NONE;
}
