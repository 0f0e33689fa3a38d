// SPDX-License-Identifier: MIT
// The allocator and the two floors.

#include "subject.h"

#define RING_BYTES (UINT64_C(4) << 20)
#define RING_ROOM  (UINT64_C(1) << 17) // no block is larger

static unsigned char ring[RING_BYTES + RING_ROOM];
static _Thread_local void *kept = ring;
static _Thread_local size_t ring_next;

// Not inlined: a call must stay a call.
__attribute__((noinline)) static void *keep_allocate(size_t size) {
    (void)size;
    return kept;
}

__attribute__((noinline)) static void keep_release(void *block) {
    kept = block;
}

__attribute__((noinline)) static void *ring_allocate(size_t size) {
    void *const block = ring + ring_next;
    ring_next = (ring_next + ((size + 63) & ~UINT64_C(63))) & (RING_BYTES - 1);
    return block;
}

__attribute__((noinline)) static void ring_release(void *block) {
    (void)block;
}

static const struct subject subjects[] = {
    [SUBJECT_MALLOC] = {"malloc", malloc, free, false, true},
    [SUBJECT_KEEP] = {"floor", keep_allocate, keep_release, true, true},
    [SUBJECT_RING] = {"floor", ring_allocate, ring_release, false, false},
};

void subject_prepare(void) {
    for (size_t at = 0; at < sizeof ring; at += 4096) {
        ((volatile unsigned char *)ring)[at] = 1;
    }
}

const struct subject *subject_get(enum subject_kind kind) {
    return &subjects[kind];
}
