// SPDX-License-Identifier: MIT
// Two-level minimisation of Boolean functions: covers of cubes are cofactored, complemented, expanded
// and made irredundant by recursion, where every cube and every cover is a block of its own.
//
// Source   R. Brayton, G. Hachtel, C. McMullen, A. Sangiovanni-Vincentelli: "Logic Minimization
//          Algorithms for VLSI Synthesis" (1984): EXPAND, IRREDUNDANT, complement and tautology by
//          the unate recursive paradigm; the load of the classic "espresso" benchmark; own program.
// Checks   the minimised cover has the value of the original at random points.

#include "cubes.h"

// Drops literals of a cube while it stays clear of the off-set. The blocking matrix has a row for each
// cube of the off-set: the variables that keep the two apart. A literal that is alone in a row stays.
static void expand_cube(unsigned char *cube, const struct cover *off, unsigned first) {
    uint64_t *const rows = bench_malloc((off->count + 1) * sizeof *rows);
    for (unsigned k = 0; k < off->count; k++) {
        rows[k] = cubes_conflicts(cube, off->cubes[k], off->variables);
    }
    for (unsigned n = 0; n < off->variables; n++) {
        const unsigned v = (first + n) % off->variables;
        const uint64_t bit = UINT64_C(1) << v;
        bool blocked = cube[v] == ABSENT;
        for (unsigned k = 0; k < off->count && !blocked; k++) {
            blocked = rows[k] == bit;
        }
        for (unsigned k = 0; k < off->count && !blocked; k++) {
            rows[k] &= ~bit;
        }
        cube[v] = blocked ? cube[v] : ABSENT;
    }
    free(rows);
}

// Expands every cube; then those that lie inside others go.
static void expand(struct cover *on, const struct cover *off, uint64_t *seed) {
    for (unsigned i = 0; i < on->count; i++) {
        expand_cube(on->cubes[i], off, (unsigned)bench_below(seed, on->variables));
    }
    for (unsigned i = 0; i < on->count; i++) {
        for (unsigned k = on->count; k-- > 0;) {
            if (k != i && cube_contains(on->cubes[i], on->cubes[k], on->variables)) {
                cover_remove(on, k);
                i -= on->count == i;
            }
        }
    }
}

static void make_irredundant(struct cover *on) {
    for (unsigned i = on->count; i-- > 0;) {
        struct cover *const rest = cofactor(on, on->cubes[i], i);
        if (tautology(rest)) {
            cover_remove(on, i);
        }
        cover_drop(rest);
    }
}

static bool value_at(const struct cover *cover, const unsigned char *point) {
    for (unsigned i = 0; i < cover->count; i++) {
        if (cube_contains(cover->cubes[i], point, cover->variables)) {
            return true;
        }
    }
    return false;
}

static unsigned minimise(unsigned variables, unsigned cubes, uint64_t seed) {
    struct cover *const given = cover_new((variables + 7) / 8 * 8);
    unsigned char literals[LITERALS_MAX];
    memset(literals, ABSENT, sizeof literals);
    for (unsigned i = 0; i < cubes; i++) {
        for (unsigned v = 0; v < variables; v++) {
            const uint64_t r = bench_below(&seed, 10);
            literals[v] = r < 2 ? NEGATIVE : r < 4 ? POSITIVE : ABSENT;
        }
        cover_add(given, literals);
    }
    struct cover *const off = complement(given);
    struct cover *const on = complement(off);
    expand(on, off, &seed);
    make_irredundant(on);
    for (unsigned i = 0; i < 2000; i++) {
        for (unsigned v = 0; v < given->variables; v++) {
            literals[v] = (unsigned char)(NEGATIVE + bench_below(&seed, 2));
        }
        if (value_at(given, literals) != value_at(on, literals)) {
            bench_fail("the minimised function differs from the given one");
        }
    }
    const unsigned result = on->count;
    cover_drop(given);
    cover_drop(off);
    cover_drop(on);
    return result;
}

int main(int argc, char **argv) {
    uint64_t functions = 100;
    uint64_t variables = 12;
    uint64_t cubes = 80;
    const struct bench_option table[] = {
        {"functions", &functions, "functions minimised"},
        {"variables", &variables, "variables of the first; later ones have up to six more"},
        {"cubes", &cubes, "cubes of each function"},
    };
    BENCH_OPTIONS(argc, argv, table);
    if (variables == 0 || variables + 6 > LITERALS_MAX) {
        bench_fail("variables must be 1 to %d", LITERALS_MAX - 6);
    }
    uint64_t total = 0;
    const uint64_t start = bench_now_ns();
    for (uint64_t i = 0; i < functions; i++) {
        total += minimise((unsigned)(variables + i % 7), (unsigned)cubes, i);
    }
    printf("%" PRIu64 " functions of %" PRIu64 " cubes each: %" PRIu64 " cubes left\n", functions,
           cubes, total);
    bench_score((double)(bench_now_ns() - start) / 1e9, "s");
    return 0;
}
