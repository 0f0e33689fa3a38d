// SPDX-License-Identifier: MIT
// Whole numbers of any size for cfrac: every number is one malloc'd block of its exact length, every
// operation makes a new one, references are counted. Slow on purpose in this respect: that is the
// load the classic program puts on malloc.
//
// Source   the algorithms are Knuth, The Art of Computer Programming, volume 2, section 4.3.1
//          (A, S, M, D), with digits of 32 bits.
// Owns     a number is shared by its references and freed with the last.
// Holds    count == 0 for zero, else digit[count - 1] != 0; numbers never change after they are made.

#ifndef MALLOW_BENCH_BIGNUM_H
#define MALLOW_BENCH_BIGNUM_H

#include "common.h"

struct big {
    uint32_t references;
    uint32_t count;
    uint32_t digit[]; // least significant first
};

static struct big *big_new(uint32_t count) {
    struct big *const number = bench_malloc(sizeof *number + count * sizeof number->digit[0]);
    number->references = 1;
    number->count = count;
    return number;
}

static struct big *big_trim(struct big *number) {
    while (number->count > 0 && number->digit[number->count - 1] == 0) {
        number->count--;
    }
    return number;
}

static struct big *big_keep(struct big *number) {
    number->references++;
    return number;
}

static void big_drop(struct big *number) {
    if (--number->references == 0) {
        free(number);
    }
}

// *place = number, dropping what was there.
static void big_set(struct big **place, struct big *number) {
    big_drop(*place);
    *place = number;
}

static struct big *big_of(uint64_t value) {
    struct big *const number = big_new(2);
    number->digit[0] = (uint32_t)value;
    number->digit[1] = (uint32_t)(value >> 32);
    return big_trim(number);
}

static int big_compare(const struct big *a, const struct big *b) {
    if (a->count != b->count) {
        return a->count > b->count ? 1 : -1;
    }
    for (uint32_t i = a->count; i-- > 0;) {
        if (a->digit[i] != b->digit[i]) {
            return a->digit[i] > b->digit[i] ? 1 : -1;
        }
    }
    return 0;
}

static struct big *big_add(const struct big *a, const struct big *b) {
    if (a->count < b->count) {
        return big_add(b, a);
    }
    struct big *const sum = big_new(a->count + 1);
    uint64_t carry = 0;
    for (uint32_t i = 0; i < a->count; i++) {
        carry += (uint64_t)a->digit[i] + (i < b->count ? b->digit[i] : 0);
        sum->digit[i] = (uint32_t)carry;
        carry >>= 32;
    }
    sum->digit[a->count] = (uint32_t)carry;
    return big_trim(sum);
}

// a - b, which must not be negative.
static struct big *big_subtract(const struct big *a, const struct big *b) {
    struct big *const rest = big_new(a->count);
    int64_t borrow = 0;
    for (uint32_t i = 0; i < a->count; i++) {
        borrow += (int64_t)a->digit[i] - (i < b->count ? b->digit[i] : 0);
        rest->digit[i] = (uint32_t)borrow;
        borrow >>= 32;
    }
    if (borrow != 0) {
        bench_fail("a negative number");
    }
    return big_trim(rest);
}

static struct big *big_multiply(const struct big *a, const struct big *b) {
    struct big *const product = big_new(a->count + b->count);
    memset(product->digit, 0, product->count * sizeof product->digit[0]);
    for (uint32_t i = 0; i < a->count; i++) {
        uint64_t carry = 0;
        for (uint32_t k = 0; k < b->count; k++) {
            carry += (uint64_t)a->digit[i] * b->digit[k] + product->digit[i + k];
            product->digit[i + k] = (uint32_t)carry;
            carry >>= 32;
        }
        product->digit[i + b->count] = (uint32_t)carry;
    }
    return big_trim(product);
}

static uint32_t big_divide_small(const struct big *a, uint32_t divisor, struct big **quotient) {
    *quotient = big_new(a->count);
    uint64_t rest = 0;
    for (uint32_t i = a->count; i-- > 0;) {
        rest = (rest << 32) | a->digit[i];
        (*quotient)->digit[i] = (uint32_t)(rest / divisor);
        rest %= divisor;
    }
    big_trim(*quotient);
    return (uint32_t)rest;
}

static uint32_t big_modulo_small(const struct big *a, uint32_t divisor) {
    uint64_t rest = 0;
    for (uint32_t i = a->count; i-- > 0;) {
        rest = ((rest << 32) | a->digit[i]) % divisor;
    }
    return (uint32_t)rest;
}

static struct big *big_shift(const struct big *a, unsigned bits, uint32_t count) {
    struct big *const shifted = big_new(count);
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t high = i < a->count ? a->digit[i] : 0;
        const uint64_t low = i > 0 && i - 1 < a->count ? a->digit[i - 1] : 0;
        shifted->digit[i] = (uint32_t)(((high << 32 | low) << bits) >> 32);
    }
    return shifted;
}

// One step of Knuth's D: subtracts q * divisor from the window of `rest` at `at`; returns q.
static uint32_t big_divide_step(struct big *rest, const struct big *divisor, uint32_t at) {
    const uint32_t n = divisor->count;
    uint32_t *const window = rest->digit + at;
    const uint64_t top = (uint64_t)window[n] << 32 | window[n - 1];
    uint64_t q = top / divisor->digit[n - 1];
    uint64_t r = top % divisor->digit[n - 1];
    while (q >> 32 != 0 || q * divisor->digit[n - 2] > (r << 32 | window[n - 2])) {
        q--;
        r += divisor->digit[n - 1];
        if (r >> 32 != 0) {
            break;
        }
    }
    int64_t borrow = 0;
    uint64_t carry = 0;
    for (uint32_t i = 0; i < n; i++) {
        carry += q * divisor->digit[i];
        borrow += (int64_t)window[i] - (int64_t)(uint32_t)carry;
        window[i] = (uint32_t)borrow;
        borrow >>= 32;
        carry >>= 32;
    }
    borrow += (int64_t)window[n] - (int64_t)carry;
    window[n] = (uint32_t)borrow;
    if (borrow < 0) { // q was one too large: add the divisor back
        q--;
        carry = 0;
        for (uint32_t i = 0; i < n; i++) {
            carry += (uint64_t)window[i] + divisor->digit[i];
            window[i] = (uint32_t)carry;
            carry >>= 32;
        }
        window[n] += (uint32_t)carry;
    }
    return (uint32_t)q;
}

// a / b; *rest (when wanted) is a mod b.
static struct big *big_divide(const struct big *a, const struct big *b, struct big **rest) {
    struct big *quotient;
    if (big_compare(a, b) < 0) {
        quotient = big_new(0);
        if (rest != NULL) {
            *rest = big_trim(big_shift(a, 0, a->count));
        }
        return quotient;
    }
    if (b->count == 1) {
        const uint32_t small = big_divide_small(a, b->digit[0], &quotient);
        if (rest != NULL) {
            *rest = big_of(small);
        }
        return quotient;
    }
    const unsigned bits = (unsigned)__builtin_clz(b->digit[b->count - 1]);
    struct big *const divisor = big_shift(b, bits, b->count);
    struct big *const left = big_shift(a, bits, a->count + 1);
    quotient = big_new(a->count - b->count + 1);
    for (uint32_t at = quotient->count; at-- > 0;) {
        quotient->digit[at] = big_divide_step(left, divisor, at);
    }
    if (rest != NULL) {
        left->count = b->count;
        *rest = big_new(b->count);
        for (uint32_t i = 0; i < b->count; i++) {
            const uint64_t high = i + 1 < b->count ? left->digit[i + 1] : 0;
            (*rest)->digit[i] = (uint32_t)((high << 32 | left->digit[i]) >> bits);
        }
        big_trim(*rest);
    }
    big_drop(divisor);
    big_drop(left);
    return big_trim(quotient);
}

static struct big *big_modulo(const struct big *a, const struct big *b) {
    struct big *rest;
    big_drop(big_divide(a, b, &rest));
    return rest;
}

static struct big *big_root(const struct big *a) { // floor of the square root, by Newton's method
    struct big *guess = big_new(a->count / 2 + 2);
    memset(guess->digit, 0, guess->count * sizeof guess->digit[0]);
    guess->digit[guess->count - 1] = 1;
    for (;;) {
        struct big *const ratio = big_divide(a, guess, NULL);
        struct big *const sum = big_add(guess, ratio);
        struct big *next;
        big_divide_small(sum, 2, &next);
        big_drop(ratio);
        big_drop(sum);
        if (big_compare(next, guess) >= 0) {
            big_drop(next);
            return guess;
        }
        big_set(&guess, next);
    }
}

static struct big *big_gcd(struct big *a, struct big *b) {
    struct big *x = big_keep(a), *y = big_keep(b);
    while (y->count > 0) {
        struct big *const rest = big_modulo(x, y);
        big_drop(x);
        x = y;
        y = rest;
    }
    big_drop(y);
    return x;
}

static struct big *big_parse(const char *decimal) {
    struct big *number = big_of(0), *const ten = big_of(10);
    for (; *decimal >= '0' && *decimal <= '9'; decimal++) {
        struct big *const tens = big_multiply(number, ten), *const unit =
                                                                big_of((uint64_t)(*decimal - '0'));
        big_set(&number, big_add(tens, unit));
        big_drop(tens);
        big_drop(unit);
    }
    big_drop(ten);
    return number;
}

static void big_print(const struct big *a) {
    char text[512];
    size_t at = sizeof text - 1;
    text[at] = '\0';
    struct big *left = big_shift(a, 0, a->count);
    do {
        struct big *quotient;
        text[--at] = (char)('0' + big_divide_small(left, 10, &quotient));
        big_set(&left, quotient);
    } while (big_trim(left)->count > 0 && at > 0);
    big_drop(left);
    fputs(text + at, stdout);
}

#endif
