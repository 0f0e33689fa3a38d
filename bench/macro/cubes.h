// SPDX-License-Identifier: MIT
// Covers of cubes, as espresso.c uses them: cofactor, tautology and complement by recursion on the
// variable that splits best. See espresso.c for the source.
//
// Owns     every cube and every array of cubes is a block of its own; a cover owns its cubes.
// Holds    a literal is 1 (complemented), 2 (plain) or 3 (absent), one byte each, and a cube is filled
//          up with absent ones to whole words.

#ifndef MALLOW_BENCH_CUBES_H
#define MALLOW_BENCH_CUBES_H

#include "common.h"

enum { NEGATIVE = 1, POSITIVE = 2, ABSENT = 3, LITERALS_MAX = 64 };

struct cover {
    unsigned variables; // a multiple of 8: the last ones may be absent in every cube
    unsigned count, room;
    unsigned char **cubes;
};

static struct cover *cover_new(unsigned variables) {
    struct cover *const cover = bench_calloc(1, sizeof *cover);
    cover->variables = variables;
    return cover;
}

static void cover_drop(struct cover *cover) {
    for (unsigned i = 0; i < cover->count; i++) {
        free(cover->cubes[i]);
    }
    free(cover->cubes);
    free(cover);
}

static unsigned char *cover_add(struct cover *cover, const unsigned char *literals) {
    if (cover->count == cover->room) {
        cover->room = cover->room == 0 ? 2 : cover->room * 2;
        cover->cubes = bench_realloc(cover->cubes, cover->room * sizeof *cover->cubes);
    }
    unsigned char *const cube = bench_malloc(cover->variables);
    memcpy(cube, literals, cover->variables);
    cover->cubes[cover->count++] = cube;
    return cube;
}

static void cover_remove(struct cover *cover, unsigned at) {
    free(cover->cubes[at]);
    cover->cubes[at] = cover->cubes[--cover->count];
}

static uint64_t word_at(const unsigned char *cube, unsigned at) {
    uint64_t word;
    __builtin_memcpy(&word, cube + at, sizeof word); // a load, not a call
    return word;
}

// They share a point: no literal is both 1 and 2, that is, no byte of the intersection is zero.
static bool cubes_meet(const unsigned char *a, const unsigned char *b, unsigned n) {
    const uint64_t ones = UINT64_C(0x0101010101010101);
    uint64_t all = ones;
    for (unsigned i = 0; i < n; i += 8) {
        const uint64_t both = word_at(a, i) & word_at(b, i);
        all &= both | both >> 1;
    }
    return (all & ones) == ones;
}

// The variables on which the two exclude each other, one bit each.
static uint64_t cubes_conflicts(const unsigned char *a, const unsigned char *b, unsigned n) {
    const uint64_t ones = UINT64_C(0x0101010101010101);
    uint64_t conflicts = 0;
    for (unsigned i = 0; i < n; i += 8) {
        const uint64_t both = word_at(a, i) & word_at(b, i);
        const uint64_t zero = ~(both | both >> 1) & ones;
        conflicts |= (zero * UINT64_C(0x0102040810204080) >> 56) << i; // gathers the eight low bits
    }
    return conflicts;
}

static bool cube_contains(const unsigned char *outer, const unsigned char *inner, unsigned n) {
    uint64_t outside = 0;
    for (unsigned i = 0; i < n; i += 8) {
        outside |= word_at(inner, i) & ~word_at(outer, i);
    }
    return outside == 0;
}

// The cover seen from inside `by`: cubes that miss it go, literals it fixes become absent.
static struct cover *cofactor(const struct cover *cover, const unsigned char *by, unsigned skip) {
    struct cover *const seen = cover_new(cover->variables);
    for (unsigned i = 0; i < cover->count; i++) {
        if (i != skip && cubes_meet(cover->cubes[i], by, cover->variables)) {
            unsigned char *const cube = cover_add(seen, cover->cubes[i]);
            for (unsigned v = 0; v < cover->variables; v++) {
                cube[v] |= (unsigned char)(ABSENT & ~by[v]);
            }
        }
    }
    return seen;
}

static bool has_full_cube(const struct cover *cover) {
    for (unsigned i = 0; i < cover->count; i++) {
        if (memchr(cover->cubes[i], NEGATIVE, cover->variables) == NULL &&
            memchr(cover->cubes[i], POSITIVE, cover->variables) == NULL) {
            return true;
        }
    }
    return false;
}

// The variable that splits best: most often fixed, both ways if possible. *unate: none is binate.
static unsigned choose_split(const struct cover *cover, bool *unate) {
    uint16_t negative[LITERALS_MAX] = {0}, positive[LITERALS_MAX] = {0};
    for (unsigned i = 0; i < cover->count; i++) {
        for (unsigned v = 0; v < cover->variables; v++) {
            negative[v] += cover->cubes[i][v] == NEGATIVE;
            positive[v] += cover->cubes[i][v] == POSITIVE;
        }
    }
    unsigned best = 0, best_score = 0;
    *unate = true;
    for (unsigned v = 0; v < cover->variables; v++) {
        const bool binate = negative[v] > 0 && positive[v] > 0;
        const unsigned score = negative[v] + positive[v] + (binate ? 1u << 20 : 0);
        *unate = *unate && !binate;
        if (score > best_score) {
            best_score = score;
            best = v;
        }
    }
    return best;
}

static void half_space(unsigned char *literals, unsigned n, unsigned variable, unsigned char side) {
    memset(literals, ABSENT, n);
    literals[variable] = side;
}

static bool tautology(const struct cover *cover) {
    bool unate;
    if (has_full_cube(cover)) {
        return true;
    }
    const unsigned variable = choose_split(cover, &unate);
    if (cover->count == 0 || unate) {
        return false; // a unate cover is a tautology only with a full cube in it
    }
    bool always = true;
    for (unsigned char side = NEGATIVE; side <= POSITIVE && always; side++) {
        unsigned char half[LITERALS_MAX];
        half_space(half, cover->variables, variable, side);
        struct cover *const part = cofactor(cover, half, UINT32_MAX);
        always = tautology(part);
        cover_drop(part);
    }
    return always;
}

// Adds the cubes of both halves to `into`; those equal in both lose the variable (one cube, not two).
static void merge_halves(struct cover *into, struct cover *halves[2], unsigned variable) {
    for (unsigned i = 0; i < halves[0]->count; i++) {
        unsigned char *const cube = cover_add(into, halves[0]->cubes[i]);
        cube[variable] = NEGATIVE;
        for (unsigned k = 0; k < halves[1]->count; k++) {
            if (memcmp(halves[0]->cubes[i], halves[1]->cubes[k], into->variables) == 0) {
                cube[variable] = ABSENT;
                cover_remove(halves[1], k);
                break;
            }
        }
    }
    for (unsigned k = 0; k < halves[1]->count; k++) {
        cover_add(into, halves[1]->cubes[k])[variable] = POSITIVE;
    }
}

static struct cover *complement(const struct cover *cover) {
    struct cover *const result = cover_new(cover->variables);
    unsigned char literals[LITERALS_MAX];
    bool unate;
    if (cover->count == 0) {
        memset(literals, ABSENT, cover->variables);
        cover_add(result, literals);
        return result;
    }
    if (has_full_cube(cover)) {
        return result;
    }
    if (cover->count == 1) { // De Morgan: one cube for each literal
        for (unsigned v = 0; v < cover->variables; v++) {
            if (cover->cubes[0][v] != ABSENT) {
                half_space(literals, cover->variables, v, ABSENT & ~cover->cubes[0][v]);
                cover_add(result, literals);
            }
        }
        return result;
    }
    const unsigned variable = choose_split(cover, &unate);
    struct cover *halves[2];
    for (unsigned side = 0; side < 2; side++) {
        half_space(literals, cover->variables, variable, side == 0 ? NEGATIVE : POSITIVE);
        struct cover *const part = cofactor(cover, literals, UINT32_MAX);
        halves[side] = complement(part);
        cover_drop(part);
    }
    merge_halves(result, halves, variable);
    cover_drop(halves[0]);
    cover_drop(halves[1]);
    return result;
}

#endif
