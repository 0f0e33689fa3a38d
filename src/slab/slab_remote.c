// SPDX-License-Identifier: MIT
// Remote frees: see slab_remote.h.
#include "slab/slab_remote.h"

MALLOW_INTERNAL int slab_remote_collect_some(struct slab *slab, struct slab_remote *remote,
                                             int *words, bool *left, size_t *index) {
    uint64_t counts = 0; // a byte for each eighth of a word, of all words
    int budget = *words;
    *left = false;
    atomic_fetch_and_explicit(&slab->owner, ~SLAB_OWNER_PENDING, memory_order_seq_cst);
    slab_cool(slab);
    _Atomic(uint64_t) *const end = &remote->bits[slab->word_count];
    uint64_t *own = slab->bits;
    for (_Atomic(uint64_t) *word = remote->bits; word != end; word++, own++) {
        if (atomic_load_explicit(word, memory_order_seq_cst) == 0) {
            continue;
        }
        if (budget <= 0) {
            *left = true;
            break;
        }
        budget--;
        const uint64_t freed = atomic_exchange_explicit(word, 0, memory_order_seq_cst);
        const uint64_t twice = freed & *own;
        if (unlikely(twice != 0)) {
            *index = (size_t)(own - slab->bits) * 64 + bits_lowest(twice);
            return -1;
        }
        *own |= freed;
        counts += bits_count_bytes(freed);
    }
    *words = budget;
    const unsigned count = bits_sum_bytes(counts);
    slab->used_count -= count;
    return (int)count;
}

MALLOW_INTERNAL void slab_remote_take_all(struct slab *slab, struct slab_remote *remote) {
    check_assert(!slab_is_current(slab) && slab->used_count == slab->capacity_count);
    atomic_fetch_and_explicit(&slab->owner, ~SLAB_OWNER_PENDING, memory_order_seq_cst);
    for (unsigned i = 0; i < slab->word_count; i++) {
        slab->bits[i] = atomic_exchange_explicit(&remote->bits[i], 0, memory_order_seq_cst);
    }
    slab->used_count = 0;
}

MALLOW_INTERNAL void slab_remote_forget(struct slab *slab, struct slab_remote *remote) {
    const uintptr_t before =
        atomic_fetch_and_explicit(&slab->owner, ~SLAB_OWNER_PENDING, memory_order_seq_cst);
    for (unsigned i = 0; (before & SLAB_OWNER_PENDING) != 0 && i < slab->word_count; i++) {
        atomic_store_explicit(&remote->bits[i], 0, memory_order_seq_cst);
    }
}

MALLOW_RACY_READ MALLOW_INTERNAL bool slab_remote_is_free(const struct slab *slab,
                                                          const struct slab_remote *remote,
                                                          size_t index) {
    // Before its bit is looked at: that is set before a hot block ceases to be one.
    const bool is_hot = slab_is_hot(slab, index);
    uint64_t word = *(const volatile uint64_t *)&slab->bits[index / 64];
    if ((slab_owner(slab) & SLAB_OWNER_PENDING) != 0) {
        word |= atomic_load_explicit(&remote->bits[index / 64], memory_order_relaxed);
    }
    return is_hot || ((word >> (index % 64)) & 1U) != 0;
}
