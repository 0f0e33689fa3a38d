// SPDX-License-Identifier: MIT
// Huge cache: see huge_cache.h.
#include "arena/huge_cache.h"

#include "base/bits.h"

#define HUGE_CACHE_WORTH_FIRST ((size_t)2 << 20)
#define HUGE_CACHE_LIVE_SHARE 4U // beside the limit, one part in so many of what is live

// Smaller pieces are not worth a system call.
#define HUGE_PIECE_BYTES_MIN ((size_t)1 << 20)
// Smaller blocks are of one mapping, so that realloc can go on growing them by mremap.
#define HUGE_CUT_BLOCK_BYTES_MIN ((size_t)4 << 20)

MALLOW_INTERNAL void huge_cache_init(struct huge_cache *cache, struct os *os, size_t limit) {
    cache->os = os;
    cache->limit = limit;
    cache->worth = HUGE_CACHE_WORTH_FIRST;
}

// What may be kept while `live_bytes` are live.
static size_t huge_cache_bound(const struct huge_cache *cache, size_t live_bytes) {
    return cache->limit == 0 ? 0 : cache->limit + live_bytes / HUGE_CACHE_LIVE_SHARE;
}

static bool huge_cache_is_full(const struct huge_cache *cache) {
    return cache->pieces == NULL || cache->count == MALLOW_HUGE_CACHE_COUNT;
}

static void huge_cache_keep(struct huge_cache *cache, uintptr_t address, size_t bytes) {
    cache->pieces[cache->count++] = (struct huge_mapping){address, bytes};
    cache->bytes += bytes;
    if (cache->bytes > MALLOW_WORK_BYTES) {
        os_raise_work(cache->os);
    }
}

static struct huge_mapping huge_cache_remove(struct huge_cache *cache, unsigned index) {
    const struct huge_mapping piece = cache->pieces[index];
    cache->pieces[index] = cache->pieces[--cache->count];
    cache->bytes -= piece.bytes;
    cache->bytes_low = bits_min(cache->bytes_low, cache->bytes);
    return piece;
}

// The smallest piece that is large enough, else the largest. The cache is not empty.
static unsigned huge_cache_best(const struct huge_cache *cache, size_t bytes) {
    unsigned best = 0;
    for (unsigned i = 1; i < cache->count; i++) {
        const size_t have = cache->pieces[best].bytes;
        const size_t other = cache->pieces[i].bytes;
        if (have >= bytes ? other >= bytes && other < have : other > have) {
            best = i;
        }
    }
    return best;
}

// Unmaps; what the kernel does not unmap is purged and kept, or lost.
static void huge_cache_unmap(struct huge_cache *cache, uintptr_t address, size_t bytes) {
    if (os_unmap(cache->os, address, bytes)) {
        cache->regret = true;
        return;
    }
    (void)os_purge(cache->os, address, bytes);
    if (!huge_cache_is_full(cache)) {
        huge_cache_keep(cache, address, bytes);
    }
}

// Moves the pages of a piece's end to the end of the gap [address, address + *bytes), of fresh
// pages, which *bytes is then without. Not moved: there are no such pages, or the kernel refuses.
static enum os_moved huge_cache_fill(struct huge_cache *cache, uintptr_t address, size_t *bytes) {
    if (*bytes < HUGE_PIECE_BYTES_MIN || cache->count == 0) {
        return OS_NOT_MOVED;
    }
    const struct huge_mapping piece = huge_cache_remove(cache, huge_cache_best(cache, *bytes));
    const size_t length = bits_min(piece.bytes, *bytes);
    const size_t rest = piece.bytes - length;
    *bytes -= length;
    const enum os_moved moved =
        os_move(cache->os, piece.address + rest, length, address + *bytes);
    if (rest != 0) {
        huge_cache_keep(cache, piece.address, rest);
    }
    if (moved != OS_MOVED) {
        huge_cache_unmap(cache, piece.address + rest, length);
        *bytes += moved == OS_NOT_MOVED ? length : 0;
    }
    return moved;
}

// Fills the end of a block whose pages are fresh from `fresh` on; false: the block is no longer.
static bool huge_cache_fill_end(struct huge_cache *cache, struct huge_mapping block, size_t fresh,
                                struct huge_cuts *cuts) {
    size_t gap = block.bytes - fresh;
    for (unsigned i = 0; i < HUGE_CUTS_MAX; i++) {
        const size_t end = fresh + gap;
        const enum os_moved moved = huge_cache_fill(cache, block.address + fresh, &gap);
        if (moved == OS_TARGET_LOST) {
            *cuts = (struct huge_cuts){{0}};
            huge_cache_unmap(cache, block.address, fresh + gap);
            if (end < block.bytes) {
                huge_cache_unmap(cache, block.address + end, block.bytes - end);
            }
            return false;
        }
        if (moved == OS_NOT_MOVED) {
            break;
        }
        cuts->offset[i] = fresh + gap;
    }
    return true;
}

// The piece, which is smaller, as a mapping of `bytes` bytes.
static uintptr_t huge_cache_grow(struct huge_cache *cache, struct huge_mapping piece, size_t bytes,
                                 struct huge_cuts *cuts) {
    const uintptr_t address = os_remap(cache->os, piece.address, piece.bytes, bytes, true);
    if (address == 0) {
        huge_cache_unmap(cache, piece.address, piece.bytes);
        return 0;
    }
    if (bytes >= HUGE_CUT_BLOCK_BYTES_MIN &&
        !huge_cache_fill_end(cache, (struct huge_mapping){address, bytes}, piece.bytes, cuts)) {
        return 0;
    }
    return address;
}

// The piece, which is larger, cut; the rest stays.
static uintptr_t huge_cache_cut(struct huge_cache *cache, struct huge_mapping piece, size_t bytes) {
    const size_t rest = piece.bytes - bytes;
    if (rest >= HUGE_PIECE_BYTES_MIN) {
        huge_cache_keep(cache, piece.address + bytes, rest);
    } else if (rest != 0) {
        huge_cache_unmap(cache, piece.address + bytes, rest);
    }
    return piece.address;
}

MALLOW_INTERNAL uintptr_t huge_cache_take(struct huge_cache *cache, size_t bytes,
                                          size_t live_bytes, struct huge_cuts *cuts) {
    const size_t bound = huge_cache_bound(cache, live_bytes);
    if (cache->bytes < bytes && cache->regret && bytes <= bound) {
        cache->regret = false;
        cache->worth = bits_min(bound, bits_max(2 * cache->worth, bytes));
    }
    if (cache->count == 0) {
        return 0;
    }
    const struct huge_mapping piece = huge_cache_remove(cache, huge_cache_best(cache, bytes));
    return piece.bytes >= bytes ? huge_cache_cut(cache, piece, bytes)
                                : huge_cache_grow(cache, piece, bytes, cuts);
}

MALLOW_INTERNAL size_t huge_cache_growth(const struct huge_cache *cache, size_t bytes) {
    if (cache->count == 0) {
        return bytes;
    }
    return bytes - bits_min(bytes, cache->pieces[huge_cache_best(cache, bytes)].bytes);
}

MALLOW_INTERNAL void huge_cache_unlearn(struct huge_cache *cache, size_t bytes) {
    const size_t spare = cache->worth - bits_min(cache->worth, HUGE_CACHE_WORTH_FIRST);
    cache->worth -= bits_min(spare, bytes);
}

// Keeps [0, bytes) of a mapping, in pieces that each are of one mapping of the kernel's; returns
// where the part begins that there was no place for.
static size_t huge_cache_keep_pieces(struct huge_cache *cache, uintptr_t address, size_t bytes,
                                     const struct huge_cuts *cuts) {
    size_t begin = 0;
    for (unsigned i = HUGE_CUTS_MAX + 1; i-- > 0 && begin < bytes;) {
        const size_t cut = i > 0 ? cuts->offset[i - 1] : bytes;
        const size_t end = bits_min(cut, bytes);
        if (end <= begin) {
            continue;
        }
        if (huge_cache_is_full(cache)) {
            break;
        }
        huge_cache_keep(cache, address + begin, end - begin);
        begin = end;
    }
    return begin;
}

MALLOW_INTERNAL void huge_cache_give(struct huge_cache *cache, struct huge_mapping mapping,
                                     size_t live_bytes, const struct huge_cuts *cuts) {
    // Nor more than half of the room that is left below the soft limit.
    const size_t room = os_charge_room(cache->os, mapping.bytes + cache->bytes) / 2;
    const size_t limit =
        bits_min(bits_min(huge_cache_bound(cache, live_bytes), cache->worth), room);
    size_t keep = bits_min(mapping.bytes, limit - bits_min(cache->bytes, limit));
    if (keep < mapping.bytes) {
        keep = bits_align_down(keep, cache->os->page_bytes);
        keep = keep >= HUGE_PIECE_BYTES_MIN ? keep : 0;
    }
    keep = huge_cache_keep_pieces(cache, mapping.address, keep, cuts);
    if (keep < mapping.bytes) {
        huge_cache_unmap(cache, mapping.address + keep, mapping.bytes - keep);
    }
    // Less is live than before, so less may be kept.
    if (cache->bytes > limit && cache->count > 0) {
        const struct huge_mapping piece = huge_cache_remove(cache, huge_cache_best(cache, 0));
        huge_cache_unmap(cache, piece.address, piece.bytes);
    }
}

MALLOW_INTERNAL size_t huge_cache_idle(struct huge_cache *cache) {
    const size_t idle = bits_min(cache->bytes_low_before, cache->bytes_low);
    cache->bytes_low_before = cache->bytes_low;
    cache->bytes_low = cache->bytes;
    return idle;
}

MALLOW_INTERNAL size_t huge_cache_purge_some(struct huge_cache *cache, size_t bytes) {
    if (cache->count == 0) {
        return 0;
    }
    struct huge_mapping *const piece = &cache->pieces[cache->count - 1];
    size_t part = bits_min(bits_align_up(bytes, cache->os->page_bytes), piece->bytes);
    if (piece->bytes - part < HUGE_PIECE_BYTES_MIN) {
        part = piece->bytes;
    }
    if (!os_unmap(cache->os, piece->address + piece->bytes - part, part)) {
        return 0;
    }
    piece->bytes -= part;
    cache->bytes -= part;
    if (piece->bytes == 0) {
        cache->count--;
    }
    cache->bytes_low = bits_min(cache->bytes_low, cache->bytes);
    huge_cache_unlearn(cache, part);
    return part;
}

MALLOW_INTERNAL size_t huge_cache_purge(struct huge_cache *cache) {
    size_t released = 0;
    cache->worth = HUGE_CACHE_WORTH_FIRST;
    for (unsigned i = cache->count; i > 0; i--) {
        const struct huge_mapping piece = cache->pieces[i - 1];
        if (os_unmap(cache->os, piece.address, piece.bytes)) {
            (void)huge_cache_remove(cache, i - 1);
            released += piece.bytes;
        } else if (os_purge(cache->os, piece.address, piece.bytes)) {
            released += piece.bytes;
        }
    }
    return released;
}
