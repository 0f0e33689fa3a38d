// SPDX-License-Identifier: MIT
// Bits: powers of two, alignment, scanning, checked arithmetic. No state.
#ifndef MALLOW_BASE_BITS_H
#define MALLOW_BASE_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

MALLOW_INLINE bool bits_is_power_of_two(size_t value) {
    return value != 0 && (value & (value - 1)) == 0;
}

// `alignment` is a power of two; the caller has excluded overflow.
MALLOW_INLINE size_t bits_align_up(size_t value, size_t alignment) {
    return (value + alignment - 1) & ~(alignment - 1);
}

MALLOW_INLINE size_t bits_align_down(size_t value, size_t alignment) {
    return value & ~(alignment - 1);
}

// Index of the lowest / highest set bit; `value` is not 0.
MALLOW_INLINE unsigned bits_lowest(uint64_t value) {
    return (unsigned)__builtin_ctzll(value);
}

MALLOW_INLINE unsigned bits_highest(uint64_t value) {
    return 63U - (unsigned)__builtin_clzll(value);
}

// How many bits are set in each byte. Such counts may be added, up to 31 of them.
MALLOW_INLINE uint64_t bits_count_bytes(uint64_t value) {
    value = value - ((value >> 1) & UINT64_C(0x5555555555555555));
    value = (value & UINT64_C(0x3333333333333333)) + ((value >> 2) & UINT64_C(0x3333333333333333));
    return (value + (value >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
}

// The sum of eight bytes.
MALLOW_INLINE unsigned bits_sum_bytes(uint64_t counts) {
    const uint64_t even = UINT64_C(0x00ff00ff00ff00ff);
    counts = (counts & even) + ((counts >> 8) & even);
    return (unsigned)((counts * UINT64_C(0x0001000100010001)) >> 48);
}

MALLOW_INLINE unsigned bits_count(uint64_t value) {
    // The builtin is a libgcc call on the x86-64 baseline; this folding is as short.
    return (unsigned)((bits_count_bytes(value) * UINT64_C(0x0101010101010101)) >> 56);
}

// The same of half a word.
MALLOW_INLINE unsigned bits_count_half(uint32_t value) {
    value = value - ((value >> 1) & UINT32_C(0x55555555));
    value = (value & UINT32_C(0x33333333)) + ((value >> 2) & UINT32_C(0x33333333));
    value = (value + (value >> 4)) & UINT32_C(0x0f0f0f0f);
    return (value * UINT32_C(0x01010101)) >> 24;
}

enum { BITS_FEW = 14 };

// The same of a value of BITS_FEW bits, in half as many steps: each bit is in one of four copies at
// a place that is a multiple of four, and these are added.
MALLOW_INLINE unsigned bits_count_few(uint32_t value) {
    const uint64_t ones = UINT64_C(0x1111111111111111);
    return (unsigned)((((value * UINT64_C(0x200040008001)) & ones) * ones) >> 60);
}

// Index of the smallest power of two that is not below `value`; `value` is not 0.
MALLOW_INLINE unsigned bits_log2_ceil(uint64_t value) {
    return value <= 1 ? 0 : bits_highest(value - 1) + 1;
}

// The steps of the fast path that have an instruction of their own where the compiler's rendering
// of portable code takes two or three: find the lowest set bit of a value that is not 0; set a bit
// and learn whether it was set. Only the low six bits of `index` count.
#if defined(__x86_64__)
MALLOW_INLINE uint64_t bits_find_lowest(uint64_t value) {
    uint64_t index;
    // tzcnt where there is one, bsf elsewhere: the flags differ, the index of a set bit does not.
    __asm__("rep bsfq %1, %0" : "=r"(index) : "r"(value) : "cc");
    return index;
}

MALLOW_INLINE bool bits_set_was_set(uint64_t *value, uint64_t index) {
    bool was_set;
    __asm__("btsq %2, %0" : "+r"(*value), "=@ccc"(was_set) : "r"(index));
    return was_set;
}

// Subtracts 1 in memory, and tells whether that makes it negative.
MALLOW_INLINE bool bits_count_down(ptrdiff_t *value) {
    bool negative;
    __asm__("subq $1, %0" : "+m"(*value), "=@ccs"(negative));
    return negative;
}

// --*room, or where that is 0, ++*most instead. No branch.
MALLOW_INLINE void bits_count_down_or_up(ptrdiff_t *room, size_t *most) {
    __asm__("subq $1, %0\n\tadcq $0, %0\n\tadcq $0, %1" : "+m"(*room), "+m"(*most) : : "cc");
}

// The high and the low half of a product of two words; for 128-bit integers the compiler takes two
// registers and two moves more.
MALLOW_INLINE uintptr_t bits_multiply_high(uintptr_t a, uintptr_t b, uintptr_t *low) {
    uintptr_t high;
    __asm__("mulq %3" : "=a"(*low), "=d"(high) : "0"(a), "rm"(b) : "cc");
    return high;
}
#else
MALLOW_INLINE uint64_t bits_find_lowest(uint64_t value) {
    return bits_lowest(value);
}

MALLOW_INLINE bool bits_set_was_set(uint64_t *value, uint64_t index) {
    const uint64_t mask = UINT64_C(1) << (index % 64);
    const bool was_set = (*value & mask) != 0;
    *value |= mask;
    return was_set;
}

MALLOW_INLINE bool bits_count_down(ptrdiff_t *value) {
    return --*value < 0;
}

MALLOW_INLINE void bits_count_down_or_up(ptrdiff_t *room, size_t *most) {
    const size_t none = *room == 0;
    *room += (ptrdiff_t)none - 1;
    *most += none;
}

#if UINTPTR_MAX > UINT32_MAX
typedef unsigned __int128 bits_two_words;
#else
typedef uint64_t bits_two_words;
#endif

MALLOW_INLINE uintptr_t bits_multiply_high(uintptr_t a, uintptr_t b, uintptr_t *low) {
    const bits_two_words product = (bits_two_words)a * b;
    *low = (uintptr_t)product;
    return (uintptr_t)(product >> (sizeof(uintptr_t) * 8));
}
#endif

// *product = a * b, or false if that overflows.
MALLOW_INLINE bool bits_multiply(size_t a, size_t b, size_t *product) {
    return !__builtin_mul_overflow(a, b, product);
}

MALLOW_INLINE size_t bits_min(size_t a, size_t b) {
    return a < b ? a : b;
}

MALLOW_INLINE size_t bits_max(size_t a, size_t b) {
    return a > b ? a : b;
}

#endif
