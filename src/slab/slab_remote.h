// SPDX-License-Identifier: MIT
// Remote frees: the protocol by which threads that do not own a slab free its blocks.
//
// Owns     the bits of struct slab_remote, `posted`, and the PENDING flag of the slab's owner word.
// Threads  set and claim_post: any. collect: the slab's owner.
// Holds    a bit is set from the moment of the free until the owner collects it; until then the
//          owner counts the block as used, so a slab with uncollected bits is never given up.
//          After a set, the slab is pending, and posted or about to be, before the owner next
//          collects. While a slab is pending, its owner's free takes the slow path and looks at the
//          remote bit: so it finds out if the block has been freed by another thread.
//
//   other thread                              owner, handling a post
//   1  bit = 1   (the one atomic operation)   b  posted = 0
//   2  if not pending: pending = 1            c  pending = 0
//   3      if posted was 0: posted = 1        d  take all bits
//   4          push it onto the heap's stack
//
// 1 before 2, and c before d, sequentially consistent: if 2 finds it pending, c comes later, so d
// sees the bit. Likewise 3 and b.
#ifndef MALLOW_SLAB_SLAB_REMOTE_H
#define MALLOW_SLAB_SLAB_REMOTE_H

#include "slab/slab.h"

// Marks block `index` as freed; false if another thread had already done so: a double free.
MALLOW_INLINE bool slab_remote_set(struct slab_remote *remote, size_t index) {
    return !compiler_set_bit(remote->bits, index);
}

// After a set: whether the owner will learn of it without the caller's doing.
MALLOW_INLINE bool slab_remote_is_posted(const struct slab *slab) {
    return (atomic_load_explicit(&slab->owner, memory_order_seq_cst) & SLAB_OWNER_PENDING) != 0;
}

// After a set: true iff the caller has to push the slab onto its owner's stack now.
MALLOW_INLINE bool slab_remote_claim_post(struct slab *slab, struct slab_remote *remote) {
    if (slab_remote_is_posted(slab)) {
        return false;
    }
    atomic_fetch_or_explicit(&slab->owner, SLAB_OWNER_PENDING, memory_order_seq_cst);
    __atomic_store_n(&remote->slab, slab, __ATOMIC_RELAXED); // always the same
    return atomic_exchange_explicit(&remote->posted, 1, memory_order_seq_cst) == 0;
}

MALLOW_INLINE bool slab_remote_any(const struct slab_remote *remote, unsigned word_count) {
    uint64_t any = 0;
    MALLOW_UNROLL_8
    for (unsigned i = 0; i < word_count; i++) {
        any |= atomic_load_explicit(&remote->bits[i], memory_order_relaxed);
    }
    return any != 0;
}

// A few bits of some words in one: of each word the bits of `mask`, and of the next word those to
// the right of them. So what is looked at lies all over the slab, in no order that a program is
// likely to free in.
MALLOW_INLINE uint64_t slab_remote_sample(const struct slab_remote *remote, unsigned first,
                                          unsigned end, unsigned step, uint64_t mask) {
    uint64_t sample = 0;
    MALLOW_UNROLL_8
    for (unsigned i = first; i < end; i += step, mask >>= 1) {
        sample |= atomic_load_explicit(&remote->bits[i], memory_order_relaxed) & mask;
    }
    return sample;
}

// Whether other threads have freed `enough` blocks of a slab of so many words: a few words are
// counted; of more, a quarter of the bits, and of many an eighth, of every other word of the
// first sixteen.
MALLOW_INLINE bool slab_remote_has(const struct slab_remote *remote, unsigned word_count,
                                   unsigned enough) {
    const uint64_t quarter = UINT64_C(0x8888888888888888);
    const uint64_t eighth = UINT64_C(0x8080808080808080);
    uint64_t counts = 0; // a byte for each eighth of a word
    if (word_count == 1) {
        return bits_count(atomic_load_explicit(&remote->bits[0], memory_order_relaxed)) >= enough;
    }
    if (word_count <= 3) {
        for (unsigned i = 0; i < word_count; i++) {
            counts +=
                bits_count_bytes(atomic_load_explicit(&remote->bits[i], memory_order_relaxed));
        }
        return bits_sum_bytes(counts) >= enough;
    }
    if (word_count <= 8) {
        counts = bits_count_bytes(slab_remote_sample(remote, 0, 4, 1, quarter)) +
                 bits_count_bytes(slab_remote_sample(remote, 4, 8, 1, quarter));
        return bits_sum_bytes(counts) * 4 >= enough;
    }
    counts = bits_count_bytes(slab_remote_sample(remote, 0, 16, 2, eighth));
    return bits_sum_bytes(counts) * 16 >= enough;
}

// Whether the block is free, asked by a thread that does not own the slab. Exact for a block that
// the asker may use: nobody else then changes its bit.
MALLOW_INTERNAL bool slab_remote_is_free(const struct slab *slab, const struct slab_remote *remote,
                                         size_t index);

// Moves the remote bits of up to *words words into the slab's own; how many bits, or -1 if a block
// was free already: a double free, whose index is then in *index. *words becomes what is left of
// it; `*left`: words with bits remain, and the slab is no longer said to be posted: see to that.
MALLOW_INTERNAL int slab_remote_collect_some(struct slab *slab, struct slab_remote *remote,
                                             int *words, bool *left, size_t *index);

// The same of all words.
MALLOW_INLINE int slab_remote_collect(struct slab *slab, struct slab_remote *remote,
                                      size_t *index) {
    int words = (int)MALLOW_SLAB_WORDS;
    bool left;
    return slab_remote_collect_some(slab, remote, &words, &left, index);
}

// The same for a slab all of whose blocks have been freed like this; nobody is at work in it.
MALLOW_INTERNAL void slab_remote_take_all(struct slab *slab, struct slab_remote *remote);

// Forgets what others have freed of a slab that is given up whatever is live in it: not all of it
// need have come to its owner, as its post may be one of an earlier life of the slab, on another
// heap's stack. That post stays there.
MALLOW_INTERNAL void slab_remote_forget(struct slab *slab, struct slab_remote *remote);

#endif
