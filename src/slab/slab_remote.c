// SPDX-License-Identifier: MIT
// Remote frees: see slab_remote.h.
#include "slab/slab_remote.h"

// The first word from `i` on with a bit; `end`: none has. Most have none, so four in a row are a
// few instructions each.
MALLOW_INLINE unsigned remote_next(const struct slab_remote *remote, unsigned i, unsigned end) {
    const _Atomic(uint64_t) *const bits = remote->bits;
    for (; i + 4 <= end; i += 4) {
        if (atomic_load_explicit(&bits[i], memory_order_seq_cst) != 0) {
            return i;
        }
        if (atomic_load_explicit(&bits[i + 1], memory_order_seq_cst) != 0) {
            return i + 1;
        }
        if (atomic_load_explicit(&bits[i + 2], memory_order_seq_cst) != 0) {
            return i + 2;
        }
        if (atomic_load_explicit(&bits[i + 3], memory_order_seq_cst) != 0) {
            return i + 3;
        }
    }
    while (i < end && atomic_load_explicit(&bits[i], memory_order_seq_cst) == 0) {
        i++;
    }
    return i;
}

MALLOW_INTERNAL int slab_remote_collect_some(struct slab *slab, struct slab_remote *remote,
                                             int *words, bool *left, size_t *index) {
    uint64_t counts = 0; // a byte for each eighth of a word, of all words
    int budget = *words;
    *left = false;
    atomic_fetch_and_explicit(&slab->owner, ~SLAB_OWNER_PENDING, memory_order_seq_cst);
    slab_cool(slab);
    const unsigned end = slab->word_count;
    for (unsigned i = 0; (i = remote_next(remote, i, end)) < end; i++) {
        if (budget <= 0) {
            *left = true;
            break;
        }
        budget--;
        const uint64_t freed =
            atomic_exchange_explicit(&remote->bits[i], 0, memory_order_seq_cst);
        const uint64_t own = slab->bits[i];
        if (unlikely((freed & own) != 0)) {
            *index = (size_t)i * 64 + bits_lowest(freed & own);
            return -1;
        }
        slab->bits[i] = own | freed;
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
