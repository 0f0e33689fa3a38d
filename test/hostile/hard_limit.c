// SPDX-License-Identifier: MIT
// Eight threads under a hard limit (MALLOW_LIMIT, in the environment) that their needs exceed many times:
// every refusal is NULL with ENOMEM, no block is damaged, the process stays below the limit, a refused
// thread still gets small blocks to unwind with, and once memory is freed it is there again.
//
//   hard_limit LIMIT-MIB
#include "../support/check.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 8, SLOTS = 600, STEPS = SCALED(60000), REST_KIB = 8 * 1024 };

static size_t limit_kib;
static size_t base_kib;
static _Atomic(bool) done;
static _Atomic(size_t) refusals;
static _Atomic(size_t) unwound;
static _Atomic(size_t) kinds_refused;
static _Atomic(size_t) most_kib;

struct slot {
    unsigned char *block;
    size_t size;
};

static size_t size_for(struct chance *chance)
{
    switch (chance_below(chance, 8)) {
    case 0: return 1 + chance_below(chance, 6 * MIB);
    case 1:
    case 2: return 1 + chance_below(chance, MIB);
    case 3:
    case 4: return 1 + chance_below(chance, 100 * KIB);
    default: return 1 + chance_below(chance, 8 * KIB);
    }
}

static void *any_call(struct chance *chance, struct slot *slot, size_t size, uint64_t tag, size_t *kind)
{
    void *block = NULL;
    *kind = chance_below(chance, 6);
    errno = 0;
    switch (*kind) {
    case 0:
        block = calloc(1, size);
        CHECK(block == NULL || nonzero_at(block, size > 4096 ? 4096 : size) >= (size > 4096 ? 4096 : size), "zero");
        break;
    case 1:
        if (posix_memalign(&block, 256, size) != 0) {
            block = NULL;
            errno = ENOMEM; // its own way to say so
        }
        break;
    case 2:
        block = memalign(8192, size);
        break;
    case 3:
        if (slot->block != NULL) {
            block = realloc(slot->block, size);
            if (block == NULL) {
                CHECK(tag_wrong(slot->block, slot->size, tag) == slot->size, "realloc failed and changed the block");
            } else {
                const size_t same = slot->size < size ? slot->size : size;
                CHECK(size < 16 * KIB || slot->size >= 16 * KIB || tag_wrong(block, same, tag) == same, "realloc");
                slot->block = NULL; // moved into `block`
            }
        } else {
            block = malloc(size);
        }
        break;
    default:
        block = malloc(size);
    }
    return block;
}

static void *work(void *seed)
{
    struct chance chance = {(uintptr_t)seed};
    static _Thread_local struct slot slots[SLOTS];
    for (size_t step = 0; step < STEPS; step++) {
        const size_t i = chance_below(&chance, SLOTS);
        const uint64_t tag = (uintptr_t)seed + i;
        struct slot *const slot = &slots[i];
        CHECK(tag_wrong(slot->block, slot->size, tag) == slot->size, "a block changed by itself");
        const size_t size = size_for(&chance);
        size_t kind;
        void *const block = any_call(&chance, slot, size, tag, &kind);
        if (block == NULL) {
            CHECK(errno == ENOMEM, "NULL with errno %d", errno);
            atomic_fetch_add(&refusals, 1);
            atomic_fetch_or(&kinds_refused, (size_t)1 << kind);
            void *const small = malloc(200); // an exception, a line for the log
            atomic_fetch_add(&unwound, small != NULL);
            free(small);
            // A program that handles it: sheds half of what it has, once in a while.
            for (size_t j = 0; j < SLOTS && chance_below(&chance, 20) == 0; j += 2) {
                free(slots[j].block);
                slots[j] = (struct slot){NULL, 0};
            }
            continue;
        }
        if (slot->block != NULL) {
            errno = 77;
            free(slot->block);
            CHECK(errno == 77, "free changed errno");
        }
        *slot = (struct slot){block, size};
        tag_fill(block, size, tag);
    }
    for (size_t i = 0; i < SLOTS; i++) {
        CHECK(tag_wrong(slots[i].block, slots[i].size, (uintptr_t)seed + i) == slots[i].size, "contents");
        free(slots[i].block);
    }
    return NULL;
}

static void *watch(void *unused)
{
    (void)unused;
    while (!atomic_load(&done)) {
        const size_t now = process_status_kib("VmRSS:");
        if (now > atomic_load(&most_kib)) {
            atomic_store(&most_kib, now);
        }
        usleep(2000);
    }
    return NULL;
}

int main(int count, char **arguments)
{
    CHECK(count == 2, "usage: hard_limit LIMIT-MIB");
    limit_kib = strtoull(arguments[1], NULL, 0) * 1024;
    base_kib = process_status_kib("VmRSS:");
    const uint64_t seed = chance_seed();
    pthread_t threads[THREADS];
    pthread_t watcher;
    CHECK(pthread_create(&watcher, NULL, watch, NULL) == 0, "thread");
    for (size_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)(seed + (i << 32))) == 0, "thread");
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    atomic_store(&done, true);
    pthread_join(watcher, NULL);
    dprintf(2, "%zu refusals, %zu unwound; at most %zu KiB resident, %zu before, limit %zu\n", refusals, unwound,
            most_kib, base_kib, limit_kib);
    CHECK(refusals > 100, "the limit was not felt");
    CHECK(kinds_refused == 63, "calls refused: %#zx", kinds_refused);
    CHECK(unwound * 100 >= refusals * 99, "%zu of %zu refused threads had nothing to unwind with", refusals - unwound,
          refusals);
    CHECK(!FIGURES_COUNT || most_kib <= base_kib + limit_kib + REST_KIB, "%zu KiB resident", most_kib);
    // All is free: four fifths of the limit can be had again, by blocks of any one size.
    for (size_t size = 1000; size < 10 * MIB; size *= 13) {
        static void *blocks[200000];
        size_t taken = 0;
        while ((taken + 1) * size <= limit_kib * 1024 / 5 * 4) {
            blocks[taken] = malloc(size);
            CHECK(blocks[taken] != NULL, "block %zu of %zu bytes after all was freed", taken, size);
            taken++;
        }
        while (taken > 0) {
            free(blocks[--taken]);
        }
    }
    return 0;
}
