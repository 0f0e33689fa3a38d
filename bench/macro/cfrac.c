// SPDX-License-Identifier: MIT
// Factors a number by its continued fraction, with numbers that are small malloc'd blocks: hundreds
// of millions of short-lived blocks of a few sizes, hardly any alive at once.
//
// Source   M. Morrison, J. Brillhart: "A Method of Factoring and the Factorization of F7", Mathematics
//          of Computation 29 (1975); the load of the classic "cfrac" benchmark (Zorn, Grunwald);
//          written from the paper.
// Checks   the factors found multiply to the number.
//
//   sqrt(kN) = q0 + 1/(q1 + ...),   A(n)^2 = (-1)^(n+1) Q(n+1) mod N,   Q(n) < 2 sqrt(kN)
//   Q's that factor over a small base give rows over GF(2); a dependency gives x^2 = y^2 mod N.

#include "bignum.h"

enum { BASE_MAX = 512, ROWS_MAX = BASE_MAX + 24, WORDS = (BASE_MAX + ROWS_MAX) / 64 + 2 };

struct relation {
    struct big *a;              // A mod N
    uint8_t exponent[BASE_MAX]; // of base[i] in (-1)^(n+1) Q; base[0] stands for -1
    uint64_t bits[WORDS];       // parities, then which relations were combined
};

struct search {
    struct big *n, *kn;
    uint32_t base[BASE_MAX];
    unsigned base_count;
    struct relation *rows[ROWS_MAX];
    unsigned row_count;
};

static uint32_t power_modulo(uint64_t x, uint64_t exponent, uint64_t modulus) {
    uint64_t result = 1;
    for (x %= modulus; exponent > 0; exponent >>= 1) {
        if ((exponent & 1) != 0) {
            result = result * x % modulus;
        }
        x = x * x % modulus;
    }
    return (uint32_t)result;
}

static bool is_prime(uint32_t n) {
    for (uint32_t d = 2; d * d <= n; d++) {
        if (n % d == 0) {
            return false;
        }
    }
    return n > 1;
}

// Primes p for which kN is a square mod p; no other divides a Q.
static void choose_base(struct search *s, unsigned wanted) {
    s->base[0] = 1; // the sign
    s->base[1] = 2;
    s->base_count = 2;
    for (uint32_t p = 3; s->base_count < wanted; p += 2) {
        if (is_prime(p)) {
            const uint32_t rest = big_modulo_small(s->kn, p);
            if (rest == 0 || power_modulo(rest, (p - 1) / 2, p) == 1) {
                s->base[s->base_count++] = p;
            }
        }
    }
}

// Trial division of Q; a number with a large factor is given up early.
static struct relation *try_relation(const struct search *s, struct big *q, bool negative,
                                     struct big *a) {
    struct relation *const row = bench_calloc(1, sizeof *row);
    struct big *left = big_keep(q);
    row->exponent[0] = negative;
    for (unsigned i = 1; i < s->base_count; i++) {
        struct big *quotient; // a block for every trial, as the classic program has it
        while (big_divide_small(left, s->base[i], &quotient) == 0) {
            big_set(&left, quotient);
            row->exponent[i]++;
        }
        big_drop(quotient);
        if (i == s->base_count / 8 && left->count > q->count - q->count / 4) {
            break;
        }
    }
    const bool smooth = left->count == 1 && left->digit[0] == 1;
    big_drop(left);
    if (!smooth) {
        free(row);
        return NULL;
    }
    row->a = big_keep(a);
    for (unsigned i = 0; i < s->base_count; i++) {
        row->bits[i / 64] |= (uint64_t)(row->exponent[i] & 1) << (i % 64);
    }
    return row;
}

// Expands the fraction until there are more relations than primes.
static void collect(struct search *s) {
    struct big *const root = big_root(s->kn);
    struct big *p = big_of(0), *q = big_of(1), *part = big_keep(root);
    struct big *a_before = big_of(1), *a = big_modulo(root, s->n);
    for (bool negative = true; s->row_count < s->base_count + 10; negative = !negative) {
        struct big *const whole = big_multiply(part, q);
        big_set(&p, big_subtract(whole, p));
        struct big *const square = big_multiply(p, p), *const rest = big_subtract(s->kn, square);
        big_set(&q, big_divide(rest, q, NULL));
        struct relation *const row = try_relation(s, q, negative, a);
        if (row != NULL) {
            row->bits[(BASE_MAX + s->row_count) / 64] |= UINT64_C(1)
                                                         << ((BASE_MAX + s->row_count) % 64);
            s->rows[s->row_count++] = row;
        }
        struct big *const sum = big_add(root, p);
        big_set(&part, big_divide(sum, q, NULL));
        struct big *const term = big_multiply(part, a), *const both = big_add(term, a_before);
        big_set(&a_before, a);
        a = big_modulo(both, s->n);
        big_drop(whole);
        big_drop(square);
        big_drop(rest);
        big_drop(sum);
        big_drop(term);
        big_drop(both);
    }
    big_drop(root);
    big_drop(p);
    big_drop(q);
    big_drop(part);
    big_drop(a_before);
    big_drop(a);
}

static void multiply_into(struct big **x, const struct big *factor, const struct big *n) {
    struct big *const product = big_multiply(*x, factor);
    big_set(x, big_modulo(product, n));
    big_drop(product);
}

// x^2 = y^2 mod N from the relations named in `bits`; a factor of N, or NULL when trivial.
static struct big *try_dependency(const struct search *s, const uint64_t *bits) {
    uint32_t exponents[BASE_MAX] = {0};
    struct big *x = big_of(1), *y = big_of(1);
    for (unsigned r = 0; r < s->row_count; r++) {
        if ((bits[(BASE_MAX + r) / 64] >> ((BASE_MAX + r) % 64) & 1) != 0) {
            multiply_into(&x, s->rows[r]->a, s->n);
            for (unsigned i = 0; i < s->base_count; i++) {
                exponents[i] += s->rows[r]->exponent[i];
            }
        }
    }
    for (unsigned i = 1; i < s->base_count; i++) {
        struct big *const prime = big_of(s->base[i]);
        for (uint32_t e = 0; e < exponents[i] / 2; e++) {
            multiply_into(&y, prime, s->n);
        }
        big_drop(prime);
    }
    struct big *const sum = big_add(x, y), *const factor = big_gcd(sum, s->n);
    const bool trivial =
        big_compare(factor, s->n) == 0 || (factor->count == 1 && factor->digit[0] == 1);
    big_drop(sum);
    big_drop(x);
    big_drop(y);
    if (trivial) {
        big_drop(factor);
        return NULL;
    }
    return factor;
}

// Gaussian elimination over GF(2); every row that becomes zero is a dependency.
static struct big *eliminate(const struct search *s) {
    bool used[ROWS_MAX] = {false};
    for (unsigned column = 0; column < s->base_count; column++) {
        unsigned pivot = 0;
        while (pivot < s->row_count &&
               (used[pivot] || (s->rows[pivot]->bits[column / 64] >> (column % 64) & 1) == 0)) {
            pivot++;
        }
        if (pivot == s->row_count) {
            continue;
        }
        used[pivot] = true;
        for (unsigned r = 0; r < s->row_count; r++) {
            if (r != pivot && (s->rows[r]->bits[column / 64] >> (column % 64) & 1) != 0) {
                for (unsigned w = 0; w < WORDS; w++) {
                    s->rows[r]->bits[w] ^= s->rows[pivot]->bits[w];
                }
            }
        }
    }
    struct big *factor = NULL;
    for (unsigned r = 0; r < s->row_count && factor == NULL; r++) {
        factor = used[r] ? NULL : try_dependency(s, s->rows[r]->bits);
    }
    return factor;
}

static void close_search(struct search *s) {
    for (unsigned i = 0; i < s->row_count; i++) {
        big_drop(s->rows[i]->a);
        free(s->rows[i]);
    }
    big_drop(s->n);
    big_drop(s->kn);
    free(s);
}

int main(int argc, char **argv) {
    const char *decimal = argc > 1 ? argv[1] : "1669457970805074187587456650867381";
    uint64_t base = argc > 2 ? bench_number(argv[2]) : 150;
    if (base < 8 || base > BASE_MAX) {
        bench_fail("usage: cfrac [number [size of the base, 8 to %d]]", BASE_MAX);
    }
    struct search *const s = bench_calloc(1, sizeof *s);
    s->n = big_parse(decimal);
    s->kn = big_keep(s->n);
    const uint64_t start = bench_now_ns();
    choose_base(s, (unsigned)base);
    collect(s);
    struct big *const factor = eliminate(s);
    if (factor == NULL) {
        bench_fail("no factor found with a base of %" PRIu64 " primes", base);
    }
    struct big *rest, *const other = big_divide(s->n, factor, &rest);
    if (rest->count != 0) {
        bench_fail("a wrong factor");
    }
    big_print(factor);
    fputs(" * ", stdout);
    big_print(other);
    putchar('\n');
    big_drop(factor);
    big_drop(other);
    big_drop(rest);
    close_search(s);
    bench_score((double)(bench_now_ns() - start) / 1e9, "s");
    return 0;
}
