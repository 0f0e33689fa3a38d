// SPDX-License-Identifier: MIT
// Huge faults: see huge_faults.h.
#include "arena/huge_faults.h"

#include "base/bits.h"

// Pages that may be missing from a dense chunk.
#define HUGE_FAULTS_MISSING_BYTES (MALLOW_CHUNK_BYTES / 16)

// The last whole chunk of a block, by which it is judged: programs write from the front.
static uintptr_t huge_faults_chunk(const struct huge *huge) {
    return bits_align_down(huge->address + huge->usable_bytes, MALLOW_CHUNK_BYTES) -
           MALLOW_CHUNK_BYTES;
}

// Chunks of blocks to judge by; how many.
static unsigned huge_faults_sample(struct huge_set *set, uintptr_t *chunks) {
    unsigned count = 0;
    unsigned walked = 0;
    os_lock_take_patiently(&set->map->lock);
    // Not the newest of all, which the program is about to write.
    const struct huge *huge = set->live_bytes < HUGE_FAULTS_BYTES ? NULL : set->live->next;
    while (huge != NULL && count < HUGE_FAULTS_SAMPLE && walked < HUGE_FAULTS_WALK) {
        if (!huge->broad && huge->usable_bytes >= HUGE_BROAD_BLOCK_BYTES_MIN) {
            chunks[count++] = huge_faults_chunk(huge);
        }
        huge = huge->next;
        walked++;
    }
    os_lock_drop(&set->map->lock);
    return count;
}

MALLOW_INTERNAL void huge_faults_look(struct huge_set *set) {
    uintptr_t chunks[HUGE_FAULTS_SAMPLE];
    const unsigned count = huge_faults_sample(set, chunks);
    unsigned dense = 0;
    for (unsigned i = 0; i < count; i++) {
        // A block that is freed meanwhile may be gone, and counts as sparse.
        dense += os_resident(set->os, chunks[i], MALLOW_CHUNK_BYTES) >=
                 MALLOW_CHUNK_BYTES - HUGE_FAULTS_MISSING_BYTES;
    }
    os_lock_take_patiently(&set->map->lock);
    bool broad = set->cache.broad;
    if (count >= HUGE_FAULTS_SAMPLE_MIN) {
        broad = count - dense <= count / HUGE_FAULTS_SHARE;
    }
    if (!set->os->sealed) {
        huge_cache_set_broad(&set->cache, broad && !huge_is_limited(set->os));
    }
    os_lock_drop(&set->map->lock);
}
