// SPDX-License-Identifier: MIT
// Huge faults: see huge_faults.h.
#include "arena/huge_faults.h"

#include "base/bits.h"
#include "os/cgroup.h"

// Pages that may be missing from a dense chunk.
#define HUGE_FAULTS_MISSING_BYTES (MALLOW_CHUNK_BYTES / 16)

// The last whole chunk of a block, by which it is judged: programs write from the front.
static uintptr_t huge_faults_chunk(const struct huge *huge) {
    return bits_align_down(huge->address + huge->usable_bytes, MALLOW_CHUNK_BYTES) -
           MALLOW_CHUNK_BYTES;
}

// What was seen of the newest blocks.
struct huge_faults_seen {
    uintptr_t chunks[HUGE_FAULTS_SAMPLE]; // to judge by
    unsigned count;                       // of these
    size_t bytes;                         // of all blocks seen
    size_t lost_bytes; // what whole chunks add to them, and all of those that have none
    size_t rest_bytes; // the former alone
    size_t live_bytes; // of all blocks there are
};

static struct huge_faults_seen huge_faults_see(struct huge_set *set) {
    struct huge_faults_seen seen = {.count = 0};
    unsigned walked = 0;
    os_lock_take_patiently(&set->map->lock);
    seen.live_bytes = (size_t)set->live_bytes;
    // Not the newest of all, which the program is about to write.
    const struct huge *huge = set->live_bytes < HUGE_FAULTS_BYTES ? NULL : set->live->next;
    while (huge != NULL && walked < HUGE_FAULTS_WALK) {
        if (seen.count < HUGE_FAULTS_SAMPLE && !huge->broad &&
            huge->usable_bytes >= HUGE_BROAD_BLOCK_BYTES_MIN) {
            seen.chunks[seen.count++] = huge_faults_chunk(huge);
        }
        seen.bytes += huge->usable_bytes;
        const size_t rest = huge_broad_rest(huge->usable_bytes);
        seen.lost_bytes += bits_min(rest, huge->usable_bytes);
        seen.rest_bytes += rest != SIZE_MAX ? rest : 0;
        huge = huge->next;
        walked++;
    }
    os_lock_drop(&set->map->lock);
    return seen;
}

// Whether the blocks are such that pieces of whole chunks fit together. Those that are not of such
// cut these, and leave gaps between them.
static bool huge_faults_fit(const struct huge_faults_seen *seen, bool already) {
    const unsigned share = already ? HUGE_FAULTS_LOST_SHARE_TO_STAY : HUGE_FAULTS_LOST_SHARE;
    return seen->lost_bytes <= seen->bytes / share;
}

// Whether what whole chunks add is little of what is free: the kernel kills who has too much.
static bool huge_faults_fit_beside(const struct huge_faults_seen *seen, const struct os *os) {
    return seen->rest_bytes == 0 ||
           seen->rest_bytes <= os_free_bytes(os->root) / HUGE_FAULTS_FREE_SHARE /
                                   (seen->live_bytes / seen->bytes + 1);
}

MALLOW_INTERNAL void huge_faults_look(struct huge_set *set) {
    const struct huge_faults_seen seen = huge_faults_see(set);
    unsigned dense = 0;
    for (unsigned i = 0; i < seen.count; i++) {
        // A block that is freed meanwhile may be gone, and counts as sparse.
        dense += os_resident(set->os, seen.chunks[i], MALLOW_CHUNK_BYTES) >=
                 MALLOW_CHUNK_BYTES - HUGE_FAULTS_MISSING_BYTES;
    }
    const bool before = __atomic_load_n(&set->cache.broad, __ATOMIC_RELAXED);
    const bool broad = (seen.count >= HUGE_FAULTS_SAMPLE_MIN
                            ? seen.count - dense <= seen.count / HUGE_FAULTS_SHARE
                            : before) &&
                       huge_faults_fit(&seen, before) && huge_faults_fit_beside(&seen, set->os);
    os_lock_take_patiently(&set->map->lock);
    if (!set->os->sealed) {
        huge_cache_set_broad(&set->cache, broad && !huge_is_limited(set->os));
    }
    os_lock_drop(&set->map->lock);
}
