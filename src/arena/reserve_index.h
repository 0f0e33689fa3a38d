// SPDX-License-Identifier: MIT
// Reserve index: the longest run of free slices of each chunk of a reserve, eight chunks a word,
// and the longest of each word in the words of the level above: so a chunk with room is found in a
// few steps, however many there are.
//
// Owns     the words, not what they are made from: the chunks' masks.
// Threads  any, without a lock. Who changes a mask says so afterwards; every change of a word
//          counts its version up, so that nobody puts in place what he has found out before
//          somebody else did. Who is stopped in between has told nobody yet what he has given, or
//          leaves a chunk that looks as if it had room: who finds that it has not, says so.
// Holds    when all have told: a chunk's field is its longest run, at most 31; that of a word of
//          the level below is the largest of its fields
//
//     word:   version | field 7 | ... | field 0      a field: five bits, and one to compare with
#ifndef MALLOW_ARENA_RESERVE_INDEX_H
#define MALLOW_ARENA_RESERVE_INDEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "config.h"

enum {
    RESERVE_INDEX_LEVELS = 6, // 8 to the power of that: more chunks than an arena can have
    RESERVE_INDEX_RUN_MAX = 31,
};
#define RESERVE_INDEX_NONE SIZE_MAX

struct reserve_index {
    _Atomic(uint64_t) *words;
    unsigned level_count;
    uint32_t first[RESERVE_INDEX_LEVELS]; // of each level's words
    uint32_t count[RESERVE_INDEX_LEVELS]; // the last has one
};

// Bytes for the words of so many chunks.
MALLOW_INTERNAL size_t reserve_index_bytes(size_t chunk_count);

// No chunk has room. `words`: so many bytes, zero.
MALLOW_INTERNAL void reserve_index_init(struct reserve_index *index, _Atomic(uint64_t) *words,
                                        size_t chunk_count);

// The same again, when nobody else is at it.
MALLOW_INTERNAL void reserve_index_clear(struct reserve_index *index);

// The longest run of bits that are set; 31 for one of 32.
MALLOW_INTERNAL unsigned reserve_index_run(uint32_t mask);

// Takes note of a chunk's mask as it is now. `raises`: bits of it have been set.
MALLOW_INTERNAL void reserve_index_note(struct reserve_index *index, size_t chunk,
                                        const _Atomic(uint32_t) *mask, bool raises);

// The lowest chunk from `from` on that has a run of so many slices, as far as has been told; NONE:
// there is none.
MALLOW_INTERNAL size_t reserve_index_find(const struct reserve_index *index, unsigned slice_count,
                                          size_t from);

#endif
