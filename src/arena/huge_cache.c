// SPDX-License-Identifier: MIT
// Huge cache: see huge_cache.h.
#include "arena/huge_cache.h"

#include "arena/huge_room.h"
#include "base/bits.h"

#define HUGE_CACHE_WORTH_FIRST ((size_t)2 << 20)
#define HUGE_CACHE_LIVE_SHARE 2U // beside the limit, one part in so many of what is live
// More than this besides what is live is owed, though no call has looked at how much may be kept.
#define HUGE_CACHE_PLENTY ((size_t)64 << 20)

// But to keep one where there are fewer pieces than this takes none: it lies behind a live block,
// and becomes a part of what that leaves.
#define HUGE_COUNT_OF_SMALL (MALLOW_HUGE_CACHE_COUNT / 2)
// The same where pieces are not moved: to unmap one would leave a hole in the room.
#define HUGE_COUNT_OF_STILL (MALLOW_HUGE_CACHE_COUNT - 4)
// Blocks that grow are of one mapping below this, so that realloc goes on growing them by mremap.
#define HUGE_GROWN_BLOCK_BYTES_MIN ((size_t)4 << 20)
// All of so much and more are of one, but where this part of them and more has pages already.
#define HUGE_WHOLE_BYTES ((size_t)64 << 20)
#define HUGE_WHOLE_SHARE 8U
// For a block of so much and more, enough is gathered when it is twice its size.
#define HUGE_AHEAD_BLOCK_BYTES_MIN ((size_t)8 << 20)
// Moves that a request which finds no piece large enough, nor enough gathered, makes worth while:
// of such a block, and of a smaller one.
#define HUGE_MOVES_WANTED 2U
#define HUGE_MOVES_WANTED_SMALL 1U

MALLOW_INTERNAL void huge_cache_init(struct huge_cache *cache, struct os *os, size_t limit) {
    cache->os = os;
    cache->limit = limit;
    cache->worth = HUGE_CACHE_WORTH_FIRST;
    cache->room.refused = os_is_confined(os);
}

// What may be kept while `live_bytes` are live.
static size_t huge_cache_bound(const struct huge_cache *cache, size_t live_bytes) {
    const size_t limit = __atomic_load_n(&cache->limit, __ATOMIC_RELAXED); // an option
    return limit == 0 ? 0 : limit + live_bytes / HUGE_CACHE_LIVE_SHARE;
}

// Unmaps; what the kernel does not unmap is purged and kept, or lost.
static void huge_cache_unmap(struct huge_cache *cache, struct huge_mapping range) {
    if (os_unmap(cache->os, range.address, range.bytes)) {
        cache->regret = true;
        return;
    }
    (void)os_purge(cache->os, range.address, range.bytes);
    if (!huge_pieces_are_full(cache)) {
        huge_pieces_keep(cache, range);
    }
}

// Where places of a still room are few: unmaps a piece that is of no use, but not `but`. What was
// left of rooms that are used up would be in the way for good. False: there is none.
static MALLOW_NOINLINE bool huge_cache_make_place_still(struct huge_cache *cache, unsigned but) {
    const unsigned useless = huge_pieces_useless(cache, but);
    if (useless == HUGE_INDEX_NONE) {
        return false;
    }
    const size_t bytes = cache->bytes;
    const bool regret = cache->regret;
    huge_cache_unmap(cache, huge_pieces_remove(cache, useless));
    cache->regret = regret || cache->bytes < bytes;
    return !huge_pieces_are_full(cache);
}

MALLOW_INLINE bool huge_cache_make_place(struct huge_cache *cache) {
    return unlikely(cache->room.still) && huge_cache_make_place_still(cache, HUGE_INDEX_NONE);
}

// Gives a range back, its address space too but for a still room's.
static void huge_cache_give_back(struct huge_cache *cache, struct huge_mapping range) {
    if (huge_cache_keeps_space(cache, range) && os_purge(cache->os, range.address, range.bytes)) {
        const struct huge_extent all = {range.address, range.address + range.bytes};
        cache->regret = true;
        huge_pieces_keep_hollow(cache, range, all);
    } else {
        huge_cache_unmap(cache, range);
    }
}

// ---- The room -----------------------------------------------------------------------------------

MALLOW_INTERNAL void huge_cache_close_room(struct huge_cache *cache) {
    if (cache->left.bytes != 0) {
        huge_room_drop_left(cache);
    }
    if (cache->room.end != 0 && !huge_pieces_are_full(cache)) {
        huge_room_leave(cache);
    }
    cache->room.refused = true;
}

MALLOW_INTERNAL void huge_cache_set_broad(struct huge_cache *cache, bool broad) {
    struct huge_room *const room = &cache->room;
    __atomic_store_n(&cache->broad, broad && !room->refused, __ATOMIC_RELAXED);
    if (cache->broad && room->end - room->tail < HUGE_ROOM_LOW_BYTES &&
        (huge_cache_gathered(cache) == 0 || !huge_pieces_are_full(cache))) {
        huge_room_leave(cache);
        (void)huge_room_make(cache, HUGE_ROOM_BYTES);
    }
    if (huge_room_differs(cache)) {
        huge_room_adapt(cache);
    }
}

// ---- Taking -------------------------------------------------------------------------------------

// A request, for which `kept` bytes were of use.
MALLOW_INLINE void huge_cache_learn(struct huge_cache *cache, size_t bytes, size_t kept,
                                    size_t live_bytes) {
    if (likely(!cache->regret) || kept >= bytes) {
        return;
    }
    const size_t bound = huge_cache_bound(cache, live_bytes);
    if (bytes <= 2 * bound) { // of one a little larger than all that may be kept, most is
        cache->regret = false;
        cache->worth = bits_min(bound, bits_max(2 * cache->worth, bytes));
    }
}

// As huge_cache_cut, where pieces are not moved: the rest stays, unless all places may be needed.
static MALLOW_NOINLINE struct huge_mapping huge_cache_cut_still(struct huge_cache *cache,
                                                                unsigned index, size_t bytes,
                                                                size_t live_bytes) {
    struct huge_mapping piece = cache->pieces[index];
    const struct huge_mapping rest = huge_rest(piece, bytes);
    huge_cache_learn(cache, bytes, bytes - huge_pieces_hollow_first(cache, index, bytes),
                     live_bytes);
    if (rest.bytes == 0 ||
        (cache->count >= HUGE_COUNT_OF_STILL && !huge_cache_make_place_still(cache, index))) {
        (void)huge_pieces_remove(cache, index);
        if (rest.bytes != 0) {
            huge_cache_give_back(cache, rest);
        }
    } else {
        huge_index_begin_at(cache->index, piece, rest.address, index);
        huge_pieces_count_cut(cache, index, piece.address, rest.address);
        cache->pieces[index] = rest;
    }
    piece.bytes = bytes;
    return piece;
}

// The piece, which is larger, cut; the rest stays.
static struct huge_mapping huge_cache_cut(struct huge_cache *cache, unsigned index, size_t bytes) {
    struct huge_mapping piece = cache->pieces[index];
    const struct huge_mapping rest = huge_rest(piece, bytes);
    piece.bytes = bytes;
    if (rest.bytes >= HUGE_PIECE_BYTES_MIN ||
        (rest.bytes != 0 && cache->count < HUGE_COUNT_OF_SMALL)) {
        huge_index_begin_at(cache->index, cache->pieces[index], rest.address, index);
        cache->pieces[index] = rest;
        huge_pieces_count_less(cache, bytes);
        return piece;
    }
    (void)huge_pieces_remove(cache, index);
    if (rest.bytes != 0) {
        huge_cache_unmap(cache, rest);
    }
    return piece;
}

// Whether a range of so many parts may be asked to become one of `bytes` bytes. Where the kernel
// may refuse, only with fresh pages at hand that cost no second call; or if there will be no room
// for such, once in a process.
MALLOW_INLINE bool huge_cache_may_grow(const struct huge_cache *cache, enum huge_parts parts,
                                       size_t bytes) {
    const bool torn = cache->room.torn;
    if (likely(parts == HUGE_ONE && !torn)) {
        return true;
    }
    return huge_cache_has_fresh(cache, bytes) ||
           (cache->room.refused && (parts == HUGE_ONE || !torn));
}

MALLOW_INTERNAL bool huge_cache_may_ask(const struct huge_cache *cache, size_t bytes) {
    return likely(!cache->room.torn) || bytes >= HUGE_WHOLE_BYTES ||
           huge_cache_has_fresh(cache, bytes);
}

// The piece, which is smaller, as a mapping of `bytes` bytes, or fresh pages; address 0: a mapping
// has to be made.
static struct huge_mapping huge_cache_grow(struct huge_cache *cache, unsigned index, size_t bytes,
                                           bool grows) {
    const struct huge_mapping piece = cache->pieces[index];
    // For a block that grows it has been seen that the kernel may be asked.
    const bool asks = grows || huge_cache_may_grow(cache, piece.parts, bytes);
    const uintptr_t address =
        asks ? os_remap(cache->os, piece.address, piece.bytes, bytes, true) : 0;
    if (address != 0) {
        (void)huge_pieces_remove(cache, index);
        return (struct huge_mapping){address, bytes, HUGE_ONE};
    }
    if (asks) {
        cache->room.torn = true;
        cache->pieces[index].parts = HUGE_SEVERAL;
    }
    // The piece stays, and what of these it was to be has not been charged: not where that counts.
    return unlikely(huge_is_limited(cache->os)) ? (struct huge_mapping){0, 0, HUGE_ONE}
                                                : huge_cache_take_fresh(cache, bytes);
}

// A request has found no piece that is large enough. Moves save faults of the next ones if there is
// not enough at hand; of large blocks' pages they save more than they cost also where there is.
static void huge_cache_miss(struct huge_cache *cache, size_t bytes) {
    const bool ahead = bytes >= HUGE_AHEAD_BLOCK_BYTES_MIN;
    if (huge_cache_gathered(cache) < (ahead ? 2 * bytes : bytes)) {
        const unsigned more = ahead ? HUGE_MOVES_WANTED : HUGE_MOVES_WANTED_SMALL;
        cache->room.wanted =
            (unsigned)bits_min(cache->room.wanted + more, MALLOW_HUGE_CACHE_COUNT);
    }
}

// Out of the room, after a piece has been moved there if more is needed than is gathered.
// `piece`: the best one for all of `bytes`, which is too small, or none. Address 0: a part of the
// room has been lost, and there is not enough left.
static struct huge_mapping huge_cache_take_gathered(struct huge_cache *cache, size_t bytes,
                                                    unsigned piece) {
    const struct huge_room *const room = &cache->room;
    const size_t gathered = huge_cache_gathered(cache);
    if (gathered == 0) {
        huge_room_align(cache, bytes); // all of it has to fit
    }
    if (unlikely(room->still)) {
        return room->end - room->front >= bytes ? huge_room_cut(cache, bytes)
                                                : huge_cache_take_fresh(cache, bytes);
    }
    if (gathered < bytes && piece != HUGE_INDEX_NONE && !room->refused) {
        const unsigned best = cache->pieces[piece].bytes <= bytes - gathered
                                  ? piece
                                  : huge_index_enough(cache->index, cache->pieces,
                                                      bytes - gathered);
        if (cache->pieces[best].bytes <= room->end - room->tail) {
            if (gathered != 0) {
                huge_room_align(cache, cache->pieces[best].bytes);
            }
            if (!huge_room_move(cache, best) && room->end - room->front < bytes) {
                return (struct huge_mapping){0, 0, HUGE_ONE};
            }
        }
    }
    return huge_room_cut(cache, bytes);
}

// Whether a request that no piece is large enough for is served out of the room. What is put
// together saves the faults of the pages that were there, and is copied where it grows: a large
// block is not, for the sake of a few. Where pieces are not moved, all that is to become pieces
// side by side is of the room. `best`: bytes of the best piece.
static bool huge_cache_uses_room(const struct huge_cache *cache, size_t bytes, size_t best) {
    if (unlikely(cache->room.still) && bytes < HUGE_WHOLE_BYTES) {
        return true;
    }
    return cache->bytes > 0 && cache->room.end - cache->room.front >= bytes &&
           (bytes < HUGE_WHOLE_BYTES ||
            huge_cache_gathered(cache) + best >= bytes / HUGE_WHOLE_SHARE);
}

MALLOW_INTERNAL size_t huge_cache_growth(const struct huge_cache *cache, size_t bytes, bool grows,
                                         struct huge_choice *choice) {
    const struct huge_room *const room = &cache->room;
    const unsigned piece = cache->count > 0 ? huge_pieces_best(cache, bytes) : HUGE_INDEX_NONE;
    const size_t best = piece != HUGE_INDEX_NONE ? cache->pieces[piece].bytes : 0;
    *choice = (struct huge_choice){piece, false, !grows};
    if (best >= bytes) {
        return huge_pieces_hollow_first(cache, piece, bytes);
    }
    // One that grows is to be of one mapping; and so is one that can have as many pages like that.
    const bool whole = bytes < HUGE_GROWN_BLOCK_BYTES_MIN &&
                       (grows || (best != 0 && huge_cache_gathered(cache) == 0 && !room->still &&
                                  cache->pieces[piece].parts != HUGE_SEVERAL));
    choice->gathers = !whole && huge_cache_uses_room(cache, bytes, best);
    size_t kept = 0;
    if (grows && !choice->gathers && best != 0 &&
        !huge_cache_may_grow(cache, cache->pieces[piece].parts, bytes)) {
        choice->piece = HUGE_INDEX_NONE; // nor is a room made for it, where it would not stay
    } else if (!choice->gathers) {
        kept = best != 0 ? best - huge_pieces_hollow(cache, piece) : 0;
    } else if (room->end - room->front >= bytes) { // else it is of the next room
        kept = huge_cache_gathered(cache);
    }
    // What is put together grows by that whether or not a piece moves.
    return bytes - bits_min(bytes, kept);
}

MALLOW_INTERNAL struct huge_mapping huge_cache_take(struct huge_cache *cache, size_t bytes,
                                                    struct huge_choice choice, size_t live_bytes) {
    const unsigned piece = choice.piece;
    if (piece != HUGE_INDEX_NONE) {
        if (cache->pieces[piece].bytes >= bytes) {
            if (unlikely(cache->room.still)) {
                return huge_cache_cut_still(cache, piece, bytes, live_bytes);
            }
            return huge_cache_cut(cache, piece, bytes);
        }
        huge_cache_miss(cache, bytes);
    }
    // What cannot be put together is of no use, however much it is.
    const size_t kept = cache->room.still ? huge_cache_gathered(cache) : cache->bytes;
    huge_cache_learn(cache, bytes, choice.gathers ? kept : 0, live_bytes);
    if (choice.gathers) {
        return huge_cache_take_gathered(cache, bytes, choice.moves ? piece : HUGE_INDEX_NONE);
    }
    if (piece != HUGE_INDEX_NONE && cache->pieces[piece].parts != HUGE_SEVERAL) {
        return huge_cache_grow(cache, piece, bytes, !choice.moves);
    }
    return (struct huge_mapping){0, 0, HUGE_ONE};
}

MALLOW_INTERNAL size_t huge_cache_growth_whole(const struct huge_cache *cache, size_t bytes,
                                               unsigned *piece) {
    const unsigned best = cache->count > 0 ? huge_pieces_best(cache, bytes) : HUGE_INDEX_NONE;
    const bool serves =
        best != HUGE_INDEX_NONE && huge_pieces_hollow(cache, best) == 0 &&
        (cache->pieces[best].bytes >= bytes || cache->pieces[best].parts != HUGE_SEVERAL);
    *piece = serves ? best : HUGE_INDEX_NONE;
    return bytes - (serves ? bits_min(bytes, cache->pieces[best].bytes) : 0);
}

MALLOW_INTERNAL struct huge_mapping huge_cache_take_whole(struct huge_cache *cache, size_t bytes,
                                                          unsigned piece, size_t live_bytes) {
    const size_t kept = cache->pieces[piece].bytes;
    huge_cache_learn(cache, bytes, kept, live_bytes);
    if (kept < bytes) {
        return huge_cache_grow(cache, piece, bytes, false);
    }
    return unlikely(cache->room.still) ? huge_cache_cut_still(cache, piece, bytes, live_bytes)
                                       : huge_cache_cut(cache, piece, bytes);
}

MALLOW_INTERNAL struct huge_mapping huge_cache_take_behind(struct huge_cache *cache,
                                                           struct huge_mapping block,
                                                           size_t total_bytes, size_t live_bytes) {
    const size_t bytes = total_bytes - block.bytes;
    const unsigned number =
        cache->count > 0
            ? huge_index_starting(cache->index, cache->pieces, block.address + block.bytes)
            : HUGE_INDEX_NONE;
    if (number == HUGE_INDEX_NONE || cache->pieces[number].bytes < bytes ||
        cache->pieces[number].parts == HUGE_SEVERAL) { // or the block could not grow again
        huge_cache_learn(cache, total_bytes, 0, live_bytes);
        return (struct huge_mapping){0, 0, HUGE_ONE};
    }
    struct huge_mapping piece = cache->pieces[number];
    if (piece.bytes == bytes) {
        return huge_pieces_remove(cache, number);
    }
    // However small the rest is: the block is likely to grow on.
    const struct huge_mapping rest = huge_rest(piece, bytes);
    huge_index_begin_at(cache->index, piece, rest.address, number);
    huge_pieces_count_cut(cache, number, piece.address, rest.address);
    cache->pieces[number] = rest;
    piece.bytes = bytes;
    return piece;
}

MALLOW_INTERNAL struct huge_mapping huge_cache_take_fresh(struct huge_cache *cache, size_t bytes) {
    struct huge_room *const room = &cache->room;
    const uintptr_t front = room->front;
    const size_t gathered = huge_cache_gathered(cache);
    if (room->refused || (gathered != 0 && huge_pieces_are_full(cache)) ||
        (room->end - room->tail < bytes &&
         !huge_room_replace(cache, bytes + HUGE_ROOM_BYTES))) {
        return (struct huge_mapping){0, 0, HUGE_ONE};
    }
    if (gathered != 0) { // becomes a piece; the call has enough to do
        room->front = room->tail;
        cache->bytes -= gathered;
        huge_pieces_keep_loose(cache, (struct huge_mapping){front, gathered, HUGE_SEVERAL});
    }
    huge_room_align(cache, bytes);
    const struct huge_mapping part = {room->tail, bytes, huge_room_parts(room, room->tail)};
    room->tail += bytes;
    room->front = room->tail;
    return part;
}

static void huge_cache_set_debt(struct huge_cache *cache, size_t debt) {
    __atomic_store_n(&cache->debt, debt, __ATOMIC_RELAXED);
}

MALLOW_INTERNAL void huge_cache_owe_plenty(struct huge_cache *cache, size_t live_bytes) {
    const size_t plenty = HUGE_CACHE_PLENTY + live_bytes;
    if (unlikely(cache->bytes > plenty) && cache->bytes - plenty > cache->debt) {
        huge_cache_set_debt(cache, cache->bytes - plenty);
    }
}

MALLOW_INTERNAL struct huge_mapping huge_cache_take_owed(struct huge_cache *cache, size_t bytes,
                                                         size_t live_bytes) {
    const struct huge_mapping none = {0, 0, HUGE_ONE};
    const bool still = cache->room.still;
    const unsigned number = cache->count > 0 ? huge_pieces_best(cache, bytes) : HUGE_INDEX_NONE;
    if (number == HUGE_INDEX_NONE || cache->pieces[number].bytes < bytes) {
        return none;
    }
    const size_t rest = cache->pieces[number].bytes - bytes;
    if (rest != 0 && cache->count >= HUGE_COUNT_OF_SMALL &&
        (still || rest < HUGE_PIECE_BYTES_MIN)) {
        return none; // to cut it might take another system call
    }
    if (!os_purge(cache->os, cache->pieces[number].address, bytes)) {
        huge_cache_set_debt(cache, 0); // what cannot be given back is not owed
        return none;
    }
    const size_t before = cache->bytes;
    const struct huge_mapping piece = still ? huge_cache_cut_still(cache, number, bytes, live_bytes)
                                            : huge_cache_cut(cache, number, bytes);
    huge_cache_set_debt(cache, cache->debt - bits_min(cache->debt, before - cache->bytes));
    return piece;
}

MALLOW_INTERNAL void huge_cache_unlearn(struct huge_cache *cache, size_t bytes) {
    const size_t spare = cache->worth - bits_min(cache->worth, HUGE_CACHE_WORTH_FIRST);
    cache->worth -= bits_min(spare, bytes);
}

MALLOW_INTERNAL void huge_cache_note_unused(struct huge_cache *cache, size_t bytes, bool missed,
                                            size_t live_bytes) {
    if (missed) {
        huge_cache_learn(cache, bytes, 0, live_bytes);
    } else {
        huge_cache_unlearn(cache, bytes);
    }
}

// ---- Giving -------------------------------------------------------------------------------------

// As huge_cache_drop, where pieces are not moved: one that has pages, or what is gathered.
static MALLOW_NOINLINE void huge_cache_drop_still(struct huge_cache *cache, size_t bytes) {
    const unsigned number = huge_pieces_to_give(cache, bytes);
    if (number == HUGE_INDEX_NONE) {
        const size_t length = bits_min(bits_align_up(bytes, cache->os->page_bytes),
                                       huge_cache_gathered(cache));
        if (huge_room_purge(cache, bytes) != 0) {
            cache->regret = true;
        } else if (length != 0) { // the program has locked some of it
            huge_cache_unmap(cache, huge_room_cut(cache, length));
        }
        return;
    }
    const struct huge_mapping piece = cache->pieces[number];
    if (huge_cache_keeps_space(cache, piece) && os_purge(cache->os, piece.address, piece.bytes)) {
        cache->regret = true;
        huge_pieces_hollow_out(cache, number);
    } else {
        huge_cache_give_back(cache, huge_pieces_remove(cache, number));
    }
}

// Gives a piece back, of at least `bytes` and not much more if there is one, or part of what is
// gathered.
static void huge_cache_drop(struct huge_cache *cache, size_t bytes) {
    if (unlikely(cache->room.still)) {
        huge_cache_drop_still(cache, bytes);
        return;
    }
    if (cache->count > 0) {
        const unsigned enough = huge_index_enough(cache->index, cache->pieces, bytes);
        huge_cache_unmap(cache, huge_pieces_remove(cache, enough));
        return;
    }
    const size_t length = bits_min(bits_align_up(bytes, cache->os->page_bytes),
                                   huge_cache_gathered(cache));
    if (length != 0) {
        huge_cache_unmap(cache, huge_room_cut(cache, length));
    }
}

static void huge_cache_owe_beyond(struct huge_cache *cache, size_t limit) {
    const size_t beyond = cache->bytes - bits_min(cache->bytes, limit);
    if (beyond > cache->debt) {
        huge_cache_set_debt(cache, beyond);
    }
}

// How much may be kept, with what is not yet in the cache if that has just been freed; what is owed
// is not kept.
static size_t huge_cache_limit(const struct huge_cache *cache, size_t live_bytes,
                               size_t freed_bytes) {
    size_t limit = bits_min(huge_cache_bound(cache, live_bytes), cache->worth);
    if (unlikely(os_charge_is_capped(&cache->os->charge))) {
        // Nor more than half of the room that is left below the soft limit.
        limit = bits_min(limit, os_charge_room(cache->os, freed_bytes + cache->bytes) / 2);
    }
    return limit - bits_min(limit, cache->debt);
}

// Keeps a mapping of a still room, of which only `keep` bytes may be; what goes for the rest is of
// least use where it lies. A piece outside of the room does not become larger; what is gathered is
// the last to be taken; else it is the end of the mapping.
static void huge_cache_keep_still(struct huge_cache *cache, struct huge_mapping mapping,
                                  size_t keep) {
    const struct huge_extent end = {mapping.address + keep, mapping.address + mapping.bytes};
    const uint64_t apart = cache->counting & cache->apart;
    if (apart != 0) {
        huge_cache_give_back(cache, huge_pieces_remove(cache, bits_lowest(apart)));
    } else if (huge_cache_gathered(cache) >= mapping.bytes - keep) {
        cache->regret = huge_room_purge(cache, mapping.bytes - keep) != 0 || cache->regret;
    } else if (os_purge(cache->os, end.start, mapping.bytes - keep)) {
        cache->regret = true;
        huge_pieces_keep_hollow(cache, mapping, end);
        return;
    }
    huge_pieces_keep(cache, mapping);
}

// The rest of huge_cache_give: the call may enter the kernel, or there is no place.
static MALLOW_NOINLINE void huge_cache_give_now(struct huge_cache *cache,
                                                struct huge_mapping mapping, size_t live_bytes) {
    const bool full = huge_pieces_are_full(cache);
    if (unlikely(full) && !huge_cache_make_place(cache)) {
        huge_cache_unmap(cache, mapping); // what is owed then, a call with a place notes
        return;
    }
    const size_t limit = huge_cache_limit(cache, live_bytes, mapping.bytes);
    if (unlikely(full)) { // the call has had its system call
        huge_pieces_keep(cache, mapping);
        huge_cache_owe_beyond(cache, limit);
        return;
    }
    size_t keep = bits_min(mapping.bytes, limit - bits_min(cache->bytes, limit));
    if (keep < mapping.bytes) {
        keep = bits_align_down(keep, cache->os->page_bytes);
        keep = keep >= HUGE_PIECE_BYTES_MIN ? keep : 0;
    }
    if (keep < mapping.bytes && huge_cache_keeps_space(cache, mapping)) {
        huge_cache_keep_still(cache, mapping, keep);
        huge_cache_owe_beyond(cache, limit);
        return;
    }
    if (keep > 0) {
        huge_pieces_keep(cache, (struct huge_mapping){mapping.address, keep, mapping.parts});
    }
    if (keep < mapping.bytes) {
        huge_cache_unmap(cache, huge_rest(mapping, keep));
        huge_cache_owe_beyond(cache, limit); // less is live than before, so less may be kept
    } else if (cache->bytes > limit) {
        huge_cache_drop(cache, 0);
    } else {
        huge_room_gather(cache);
    }
}

MALLOW_INTERNAL void huge_cache_give(struct huge_cache *cache, struct huge_mapping mapping,
                                     size_t live_bytes, bool may_enter) {
    if (may_enter || huge_pieces_are_full(cache)) {
        huge_cache_give_now(cache, mapping, live_bytes);
        return;
    }
    huge_pieces_keep_loose(cache, mapping);
    if (unlikely(os_charge_is_capped(&cache->os->charge))) {
        huge_cache_owe_beyond(cache, huge_cache_limit(cache, live_bytes, 0));
    }
}

MALLOW_INTERNAL void huge_cache_join(struct huge_cache *cache, size_t live_bytes) {
    const struct huge_mapping piece = huge_pieces_take(cache, bits_lowest(cache->loose));
    cache->bytes -= piece.bytes; // for a moment
    huge_pieces_keep(cache, piece);
    huge_cache_owe_beyond(cache, huge_cache_limit(cache, live_bytes, 0));
}

MALLOW_INTERNAL void huge_cache_join_still(struct huge_cache *cache, size_t live_bytes) {
    const unsigned number = bits_lowest(cache->loose);
    const struct huge_extent hollow = cache->hollow[number];
    huge_pieces_keep_hollow(cache, huge_pieces_remove(cache, number), hollow);
    huge_cache_owe_beyond(cache, huge_cache_limit(cache, live_bytes, 0));
}

MALLOW_INTERNAL size_t huge_cache_idle(struct huge_cache *cache) {
    const size_t idle = bits_min(cache->bytes_low_before, cache->bytes_low);
    cache->bytes_low_before = cache->bytes_low;
    cache->bytes_low = cache->bytes;
    return idle;
}

MALLOW_INTERNAL size_t huge_cache_purge_gathered(struct huge_cache *cache, size_t bytes) {
    const size_t part = huge_room_purge(cache, bytes);
    huge_cache_unlearn(cache, part);
    return part;
}

MALLOW_INTERNAL void huge_cache_settle(struct huge_cache *cache) {
    if (cache->left.bytes != 0) {
        huge_room_drop_left(cache);
        return;
    }
    const size_t before = cache->bytes;
    huge_cache_drop(cache, cache->debt);
    const size_t released = before - bits_min(before, cache->bytes);
    // What cannot be given back is not owed.
    huge_cache_set_debt(cache, released == 0 ? 0 : cache->debt - bits_min(cache->debt, released));
}

static size_t huge_cache_purge_pieces(struct huge_cache *cache) {
    size_t released = 0;
    for (unsigned i = 0; i < MALLOW_HUGE_CACHE_COUNT && cache->count > 0; i++) {
        const struct huge_mapping piece = cache->pieces[i];
        if (piece.bytes == 0) {
            continue;
        }
        const size_t kept = piece.bytes - huge_pieces_hollow(cache, i);
        if (os_unmap(cache->os, piece.address, piece.bytes)) {
            (void)huge_pieces_remove(cache, i);
            released += kept;
        } else if (os_purge(cache->os, piece.address, piece.bytes)) {
            released += kept;
        }
    }
    return released;
}

MALLOW_INTERNAL size_t huge_cache_purge(struct huge_cache *cache) {
    cache->worth = HUGE_CACHE_WORTH_FIRST;
    huge_cache_set_debt(cache, 0);
    size_t released = huge_cache_purge_pieces(cache);
    if (cache->left.bytes != 0) {
        huge_room_drop_left(cache);
    }
    if (cache->room.end != 0 && !huge_pieces_are_full(cache)) {
        huge_room_leave(cache);
        released += huge_cache_purge_pieces(cache);
    }
    return released;
}
