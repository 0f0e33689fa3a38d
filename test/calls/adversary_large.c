// SPDX-License-Identifier: MIT
// Adversary, blocks of pages and more: spans, mappings, growth to new peaks, giving back.
#include "adversary.h"

#include <string.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static void touch(void *block, size_t bytes) {
    for (size_t offset = 4096; offset < bytes; offset += 65536) {
        ((volatile char *)block)[offset] = 1;
    }
}

// Blocks of 64 KiB to a megabyte, in every order, with holes.
void adversary_large(void) {
    enum { COUNT = 400 };
    void **const blocks = array_make(COUNT);
    phase("large blocks", false);
    for (unsigned round = 0; round < 4; round++) {
        for (size_t i = 0; i < COUNT; i++) {
            const size_t size = 65 * KIB + random_below(950 * KIB);
            blocks[i] = round % 2 == 0 ? counted_malloc(size) : counted_calloc(1, size);
        }
        array_shuffle(blocks, COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            counted_free(blocks[i]);
            if (i % 3 == 0) {
                counted_free(counted_malloc(65 * KIB + random_below(950 * KIB)));
            }
        }
    }
    array_drop(blocks, COUNT);
}

// The arena grows to new peaks while mappings are cached, and the reverse.
void adversary_growth(void) {
    enum { PIECES = 64, BLOCKS = 6000 };
    void **const pieces = array_make(PIECES);
    void **const blocks = array_make(BLOCKS);
    phase("slabs grow after mappings were freed", false);
    for (unsigned round = 0; round < 3; round++) {
        for (size_t i = 0; i < PIECES; i++) {
            pieces[i] = counted_malloc(1100 * KIB + (i * 37 % 16) * 64 * KIB);
            touch(pieces[i], 1100 * KIB);
        }
        for (size_t i = 0; i < PIECES; i += 2) { // so that they are kept, in pieces
            counted_free(pieces[i]);
        }
        for (size_t i = 1; i < PIECES; i += 2) {
            counted_free(pieces[i]);
        }
        const size_t count = BLOCKS / 3 * (round + 1);
        for (size_t i = 0; i < count; i++) {
            blocks[i] = counted_malloc(12000 + i % 7 * 1000);
            touch(blocks[i], 12000);
        }
        for (size_t i = 0; i < count; i += 2) {
            counted_free(blocks[i]);
        }
        for (size_t i = 1; i < count; i += 2) {
            counted_free(blocks[i]);
        }
    }
    phase("mappings grow after slabs were freed", false);
    size_t kept = 0;
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = counted_malloc(30000);
        touch(blocks[i], 30000);
    }
    for (size_t i = 0; i < BLOCKS; i++) { // holes of one slice: as many steps to purge them all
        if (i % 8 < 4) {
            counted_free(blocks[i]);
        } else {
            blocks[kept++] = blocks[i];
        }
    }
    for (size_t size = 8 * MIB; size <= 512 * MIB; size *= 2) {
        counted_free(counted_malloc(size));
    }
    for (size_t i = 0; i < kept; i++) {
        counted_free(blocks[i]);
    }
    array_drop(pieces, PIECES);
    array_drop(blocks, BLOCKS);
}

// More is freed than is kept.
void adversary_trim(void) {
    enum { BLOCKS = 4000 };
    void **const blocks = array_make(BLOCKS);
    phase("more is freed than is kept", false);
    for (unsigned round = 0; round < 2; round++) {
        for (size_t i = 0; i < BLOCKS; i++) {
            const size_t size = round == 0 ? 50000 : 2000 + i % 50 * 1500;
            blocks[i] = counted_malloc(size);
            touch(blocks[i], size);
        }
        array_shuffle(blocks, BLOCKS);
        for (size_t i = 0; i < BLOCKS; i++) {
            counted_free(blocks[i]);
        }
    }
    array_drop(blocks, BLOCKS);
}

// Growth in small steps and large ones, and back.
void adversary_realloc(void) {
    phase("realloc grows and shrinks", false);
    for (unsigned shift = 1; shift <= 4; shift++) {
        void *block = counted_malloc(16);
        size_t size = 16;
        for (; size < 48 * MIB; size += (size >> shift) + 24) {
            block = counted_realloc(block, size);
        }
        for (; size > 64; size -= (size >> shift) + 24) {
            block = counted_realloc(block, size);
        }
        counted_free(block);
    }
    phase("two blocks grow by turns", false);
    void *first = counted_malloc(16);
    void *second = counted_malloc(16);
    for (size_t size = 16; size < 24 * MIB; size += size / 8 + 100) {
        first = counted_realloc(first, size);
        second = counted_realloc(second, size / 2 + 8);
    }
    counted_free(first);
    counted_free(second);
}

// Mappings of changing sizes: what is kept has to be cut, grown and put together.
void adversary_huge(void) {
    enum { LIVE = 24 };
    void *blocks[LIVE];
    phase("huge blocks in turn", false);
    for (size_t i = 0; i < LIVE; i++) {
        blocks[i] = counted_malloc(5 * MIB + random_below(20 * MIB));
        touch(blocks[i], 5 * MIB);
    }
    for (size_t round = 0; round < scaled(600); round++) {
        const size_t index = random_below(LIVE);
        const size_t size = 2 * MIB + random_below(24 * MIB);
        counted_free(blocks[index]);
        switch (random_below(8)) {
        case 0:
            blocks[index] = counted_calloc(1, size);
            break;
        case 1:
            blocks[index] = counted_aligned((size_t)1 << (16 + random_below(6)), size);
            break;
        default:
            blocks[index] = counted_malloc(size);
        }
        touch(blocks[index], 2 * MIB);
    }
    for (size_t i = 0; i < LIVE; i++) {
        counted_free(blocks[i]);
    }
}

// Sixty-four small pieces are kept; then one block asks for all of them.
void adversary_huge_growth(void) {
    enum { PIECES = 64 };
    void *pieces[PIECES];
    phase("one block out of many pieces", false);
    for (unsigned round = 0; round < 4; round++) {
        void *const large = counted_malloc(200 * MIB); // so that much may be kept
        for (size_t i = 0; i < PIECES; i++) {
            pieces[i] = counted_malloc(MIB + 64 * KIB + i * 4 * KIB);
        }
        for (size_t i = 0; i < PIECES; i++) {
            counted_free(pieces[i * 29 % PIECES]);
        }
        void *const whole = counted_malloc(60 * MIB);
        counted_free(whole);
        counted_free(large);
        void *block = counted_malloc(2 * MIB);
        for (size_t size = 3 * MIB; size < 80 * MIB; size += 5 * MIB) {
            block = counted_realloc(block, size);
        }
        counted_free(counted_realloc(block, 70000));
    }
}

// More mappings than ever, without a single free: our own tables have to grow with them.
void adversary_huge_many(void) {
    enum { COUNT = 3000 };
    void **const blocks = array_make(COUNT);
    phase("thousands of mappings", false);
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = counted_malloc(1100 * KIB + i % 3 * 512 * KIB);
    }
    array_shuffle(blocks, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        counted_free(blocks[i]);
    }
    array_drop(blocks, COUNT);
}

// Sizes from a page to 64 MiB by every call in turn, shrunk and grown again in steps, with
// alignments up to 64 MiB.
void adversary_sweep(void) {
    enum { LIVE = 24 };
    void **const blocks = array_make(LIVE);
    phase("all calls, to 64 MiB", false);
    for (size_t round = 0; round < scaled(240); round++) {
        const size_t size = ((size_t)1 << (12 + random_below(15))) + random_below(MIB);
        const size_t i = round % LIVE;
        if (blocks[i] != NULL && round % 5 != 0) {
            counted_free(blocks[i]);
        }
        if (round % 5 == 0) {
            blocks[i] = counted_realloc(blocks[i], size);
        } else if (round % 3 == 0) {
            blocks[i] = counted_aligned((size_t)1 << (4 + random_below(23)), size);
        } else {
            blocks[i] = round % 2 == 0 ? counted_calloc(1, size) : counted_malloc(size);
        }
        if (round % 4 == 0) { // shrinks to a fraction, and comes back
            blocks[i] = counted_realloc(blocks[i], size / 2 + 8);
            blocks[i] = counted_realloc(blocks[i], size / 64 + 8);
            blocks[i] = counted_realloc(blocks[i], size / 3 + 8);
        }
    }
    // From huge to small and back, without another call between.
    for (size_t i = 0; i < LIVE; i++) {
        for (unsigned turn = 0; turn < 6; turn++) {
            blocks[i] = counted_realloc(blocks[i], 3 * MIB + random_below(2 * MIB));
            blocks[i] = counted_realloc(blocks[i], 8 + random_below(60 * KIB));
        }
    }
    for (size_t i = 0; i < LIVE; i++) {
        counted_free(blocks[i]);
    }
    array_drop(blocks, LIVE);
}

// With MALLOW_MODE=realtime and a reserve of 256 MiB: nearly all of it in use, and blocks of it given
// back and taken again in any order.
void adversary_reserve(void) {
    enum { COUNT = 1900, ROUNDS = 4000, SIZE = 100 << 10 };
    void **const blocks = array_make(COUNT);
    phase("a reserve that is nearly used up", true);
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = counted_malloc(SIZE);
    }
    for (size_t round = 0; round < scaled(ROUNDS); round++) {
        const size_t i = random_below(COUNT);
        counted_free(blocks[i]);
        blocks[i] = counted_malloc(SIZE);
    }
    array_shuffle(blocks, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        counted_free(blocks[i]);
    }
    array_drop(blocks, COUNT);
}

// A few blocks in a young process, resized from any size to any: how many, and of what sizes, is
// drawn. They are the program's only ones, so that nearly every call moves, and some grow besides.
void adversary_regrown(void) {
    enum { BLOCKS = 80, STEPS = 6000 };
    static const size_t most[] = {64, KIB, 8 * KIB, 64 * KIB, MIB, 6 * MIB};
    void *blocks[BLOCKS] = {NULL};
    phase("few blocks, resized from any size to any", false);
    const size_t count = 2 + random_below(BLOCKS - 2);
    const size_t kinds = 1 + random_below(3);
    for (size_t i = 0; i < scaled(STEPS); i++) {
        void **const block = &blocks[random_below(count)];
        const size_t size = 1 + random_below(most[6 - 2 * kinds + random_below(2 * kinds)]);
        *block = counted_realloc(*block, size);
        touch(*block, size);
        if (random_below(9) == 0) {
            counted_free(*block);
            *block = NULL;
        }
    }
    for (size_t i = 0; i < count; i++) {
        counted_free(blocks[i]);
    }
}
