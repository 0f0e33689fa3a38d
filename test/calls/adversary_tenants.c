// SPDX-License-Identifier: MIT
// Adversary, tenants: heaps of the program's own (mallow/heap.h), without limits, whose blocks are
// taken, resized from kind to kind, and given back. mallow alone has these calls.
#include "adversary.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mallow/heap.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

enum { HEAPS = 3, BLOCKS = 60, STEPS = 20000 };

static struct {
    enum mw_heap_status (*create)(const struct mw_heap_config *, struct mw_heap **);
    void *(*malloc)(struct mw_heap *, size_t);
    void *(*realloc)(struct mw_heap *, void *, size_t);
    void (*free)(struct mw_heap *, void *);
} calls;

static struct mw_heap *heaps[HEAPS];
static void *blocks[HEAPS][BLOCKS];

static void tenants_look_up(void) {
    // A function's address comes as an object's.
    *(void **)&calls.create = dlsym(RTLD_DEFAULT, "mw_heap_create");
    *(void **)&calls.malloc = dlsym(RTLD_DEFAULT, "mw_heap_malloc");
    *(void **)&calls.realloc = dlsym(RTLD_DEFAULT, "mw_heap_realloc");
    *(void **)&calls.free = dlsym(RTLD_DEFAULT, "mw_heap_free");
    const struct mw_heap_config config = {.size_bytes = sizeof config};
    for (size_t i = 0; i < HEAPS; i++) {
        if (calls.create == NULL || calls.create(&config, &heaps[i]) != MW_HEAP_OK) {
            fprintf(stderr, "adversary: no heaps\n");
            abort();
        }
    }
}

// Of each kind as often: small, of a slab of several slices, large, huge.
static size_t tenants_size(void) {
    static const size_t most[] = {KIB, 64 * KIB, MIB, 4 * MIB};
    const size_t kind = random_below(4);
    return most[kind] / 4 + random_below(3 * most[kind] / 4) + 1;
}

static void tenants_step(struct mw_heap *heap, void **block) {
    const size_t size = tenants_size();
    if (*block == NULL) {
        CALLCOST_REQUEST(CALLCOST_BEGIN, CALLCOST_MALLOC, size);
        *block = calls.malloc(heap, size);
        CALLCOST_REQUEST(CALLCOST_END, 0, 0);
    } else if (random_below(3) != 0) {
        CALLCOST_REQUEST(CALLCOST_BEGIN, CALLCOST_REALLOC, size);
        *block = calls.realloc(heap, *block, size);
        CALLCOST_REQUEST(CALLCOST_END, 0, 0);
    } else {
        CALLCOST_REQUEST(CALLCOST_BEGIN, CALLCOST_FREE, 0);
        calls.free(heap, *block);
        CALLCOST_REQUEST(CALLCOST_END, 0, 0);
        *block = NULL;
        return;
    }
    if (*block == NULL) {
        fprintf(stderr, "adversary: no memory in a heap (%zu)\n", size);
        abort();
    }
    memset(*block, 1, size < 64 ? size : 64);
}

void adversary_tenants(void) {
    tenants_look_up();
    phase("heaps of the program's own", false);
    for (size_t i = 0; i < scaled(STEPS); i++) {
        const size_t heap = random_below(HEAPS);
        tenants_step(heaps[heap], &blocks[heap][random_below(BLOCKS)]);
    }
}
