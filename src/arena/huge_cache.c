// SPDX-License-Identifier: MIT
// Huge cache: see huge_cache.h.
#include "arena/huge_cache.h"

#include "base/bits.h"
#include "os/os_huge.h"

#define HUGE_CACHE_WORTH_FIRST ((size_t)2 << 20)
#define HUGE_CACHE_LIVE_SHARE 4U // beside the limit, one part in so many of what is live

// Smaller pieces are not worth a system call.
#define HUGE_PIECE_BYTES_MIN ((size_t)1 << 20)
// But to keep one where there are fewer pieces than this takes none: it lies behind a live block,
// and becomes a part of what that leaves.
#define HUGE_COUNT_OF_SMALL (MALLOW_HUGE_CACHE_COUNT / 2)
// Blocks that grow are of one mapping below this, so that realloc goes on growing them by mremap.
#define HUGE_GROWN_BLOCK_BYTES_MIN ((size_t)4 << 20)
// All of so much and more are of one, but where this part of them and more has pages already.
#define HUGE_WHOLE_BYTES ((size_t)64 << 20)
#define HUGE_WHOLE_SHARE 8U
// Moves that a request which finds no piece large enough, nor enough gathered, makes worth while.
#define HUGE_MOVES_WANTED 2U
// For a block of so much and more, enough is twice its size.
#define HUGE_AHEAD_BLOCK_BYTES_MIN ((size_t)8 << 20)
// Address space of a room; a piece that would fill most of it stays where it is.
#define HUGE_ROOM_BYTES ((size_t)1 << 30)
// With less left of it, one in which faults make huge pages is followed by the next.
#define HUGE_ROOM_LOW_BYTES (HUGE_ROOM_BYTES / 4)

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

static bool huge_cache_is_full(const struct huge_cache *cache) {
    return cache->pieces == NULL || cache->count == MALLOW_HUGE_CACHE_COUNT;
}

static size_t huge_cache_gathered(const struct huge_cache *cache) {
    return cache->room.tail - cache->room.front;
}

static void huge_cache_set_loose(struct huge_cache *cache, uint64_t loose) {
    __atomic_store_n(&cache->loose, loose, __ATOMIC_RELAXED);
}

static void huge_cache_set_count(struct huge_cache *cache, unsigned count) {
    __atomic_store_n(&cache->count, count, __ATOMIC_RELAXED);
}

// The number that it gets.
static unsigned huge_cache_add_piece(struct huge_cache *cache, struct huge_mapping piece) {
    const unsigned number = bits_lowest(~cache->index->used);
    cache->pieces[number] = piece;
    huge_cache_set_count(cache, cache->count + 1);
    return number;
}

// Takes a piece off the list, whatever its bytes count as.
static struct huge_mapping huge_cache_take_piece(struct huge_cache *cache, unsigned number) {
    const struct huge_mapping piece = cache->pieces[number];
    huge_index_remove(cache->index, piece, number);
    cache->pieces[number] = (struct huge_mapping){0, 0, HUGE_ONE};
    huge_cache_set_count(cache, cache->count - 1);
    if (unlikely(cache->loose != 0)) {
        huge_cache_set_loose(cache, cache->loose & ~(UINT64_C(1) << number));
    }
    return piece;
}

static unsigned huge_cache_last(const struct huge_cache *cache) {
    return bits_highest(cache->index->used);
}

// Gives a piece another extent.
static void huge_cache_set_piece(struct huge_cache *cache, unsigned number,
                                 struct huge_mapping piece) {
    huge_index_remove(cache->index, cache->pieces[number], number);
    cache->pieces[number] = piece;
    huge_index_add(cache->index, piece, number);
}

// Whether a piece is to be one with what is gathered.
MALLOW_INLINE bool huge_cache_precedes(const struct huge_cache *cache, struct huge_mapping piece) {
    return piece.address + piece.bytes == cache->room.front;
}

// Makes a piece one with a range that begins where it ends.
static void huge_cache_append(struct huge_cache *cache, unsigned number,
                              struct huge_mapping range) {
    struct huge_mapping *const piece = &cache->pieces[number];
    huge_index_end_at(cache->index, *piece, range.address + range.bytes, number);
    piece->bytes += range.bytes;
    piece->parts = huge_parts_of(piece->parts, range.parts);
    if (unlikely(huge_cache_precedes(cache, *piece))) {
        cache->room.front = huge_cache_take_piece(cache, number).address;
    }
}

// The same of one that ends where it begins.
static void huge_cache_prepend(struct huge_cache *cache, unsigned number,
                               struct huge_mapping range) {
    struct huge_mapping *const piece = &cache->pieces[number];
    huge_index_begin_at(cache->index, *piece, range.address, number);
    piece->address = range.address;
    piece->bytes += range.bytes;
    piece->parts = huge_parts_of(piece->parts, range.parts);
}

static void huge_cache_more(struct huge_cache *cache, size_t bytes) {
    cache->bytes += bytes;
    if (cache->bytes > MALLOW_WORK_BYTES) {
        os_raise_work(cache->os);
    }
}

// Keeps a range as it is. There is a place.
MALLOW_INLINE void huge_cache_keep_loose(struct huge_cache *cache, struct huge_mapping piece) {
    huge_cache_more(cache, piece.bytes);
    const unsigned number = huge_cache_add_piece(cache, piece);
    huge_index_add_loose(cache->index, piece, number);
    huge_cache_set_loose(cache, cache->loose | UINT64_C(1) << number);
}

// The same, joined with those that it touches.
static void huge_cache_keep(struct huge_cache *cache, struct huge_mapping piece) {
    huge_cache_more(cache, piece.bytes);
    // Mappings of the kernel's that touch are one, unless pages have been moved to them.
    const unsigned before = huge_index_ending(cache->index, cache->pieces, piece.address);
    const unsigned behind =
        huge_index_starting(cache->index, cache->pieces, piece.address + piece.bytes);
    if (before != HUGE_INDEX_NONE) {
        if (behind != HUGE_INDEX_NONE) {
            const struct huge_mapping other = huge_cache_take_piece(cache, behind);
            piece.bytes += other.bytes;
            piece.parts = huge_parts_of(piece.parts, other.parts);
        }
        huge_cache_append(cache, before, piece);
    } else if (behind != HUGE_INDEX_NONE) {
        huge_cache_prepend(cache, behind, piece);
    } else if (huge_cache_precedes(cache, piece)) {
        cache->room.front = piece.address; // a block of the room came back before the next one went
    } else {
        huge_index_add(cache->index, piece, huge_cache_add_piece(cache, piece));
    }
}

// Takes `bytes` bytes off the count.
static void huge_cache_less(struct huge_cache *cache, size_t bytes) {
    cache->bytes -= bytes;
    cache->bytes_low = bits_min(cache->bytes_low, cache->bytes);
}

static struct huge_mapping huge_cache_remove(struct huge_cache *cache, unsigned number) {
    const struct huge_mapping piece = huge_cache_take_piece(cache, number);
    huge_cache_less(cache, piece.bytes);
    return piece;
}

// A piece that is large enough and not much larger than needed, else a largest. There is a piece.
static unsigned huge_cache_best(const struct huge_cache *cache, size_t bytes) {
    return huge_index_best(cache->index, cache->pieces, bytes);
}

// Unmaps; what the kernel does not unmap is purged and kept, or lost.
static void huge_cache_unmap(struct huge_cache *cache, struct huge_mapping piece) {
    if (os_unmap(cache->os, piece.address, piece.bytes)) {
        cache->regret = true;
        return;
    }
    (void)os_purge(cache->os, piece.address, piece.bytes);
    if (!huge_cache_is_full(cache)) {
        huge_cache_keep(cache, piece);
    }
}

// The part of a mapping from `offset` on.
static struct huge_mapping huge_rest(struct huge_mapping mapping, size_t offset) {
    return (struct huge_mapping){mapping.address + offset, mapping.bytes - offset, mapping.parts};
}

// ---- The room -----------------------------------------------------------------------------------

// Where the tail is to be for what comes next to begin on a chunk, if as much fits then and what is
// passed over has a place.
static uintptr_t huge_room_next(const struct huge_cache *cache, size_t bytes) {
    const struct huge_room *const room = &cache->room;
    const uintptr_t next = bits_align_up(room->tail, MALLOW_CHUNK_BYTES);
    const bool has_place = huge_cache_gathered(cache) != 0 || !huge_cache_is_full(cache);
    return huge_cache_is_broad(cache) && has_place && next <= room->end &&
                   room->end - next >= bytes
               ? next
               : room->tail;
}

// Puts it there. What is passed over may have pages: the rest of a huge one that the block before
// has touched. Behind gathered pages it counts as gathered, otherwise it becomes a piece.
MALLOW_INLINE void huge_room_align(struct huge_cache *cache, size_t bytes) {
    struct huge_room *const room = &cache->room;
    if (likely(!cache->broad)) {
        return;
    }
    const uintptr_t start = room->tail;
    const uintptr_t next = huge_room_next(cache, bytes);
    if (next == start) {
        return;
    }
    room->tail = next;
    if (room->front != start) {
        huge_cache_more(cache, next - start);
        return;
    }
    room->front = next;
    huge_cache_keep_loose(cache, (struct huge_mapping){start, next - start, HUGE_SEVERAL});
}

static void huge_cache_set_left(struct huge_cache *cache, uintptr_t address, size_t bytes) {
    cache->left.address = address;
    __atomic_store_n(&cache->left.bytes, bytes, __ATOMIC_RELAXED);
}

// Ends the room before a part of its address space that may be another's by now; what lies behind
// that is left to a later call, or else forgotten.
static void huge_room_lose(struct huge_cache *cache, size_t bytes) {
    struct huge_room *const room = &cache->room;
    const uintptr_t behind = room->tail + bytes;
    if (cache->left.bytes == 0) {
        huge_cache_set_left(cache, behind, room->end - behind);
    }
    room->end = room->tail;
}

// Moves a piece to the end of what is gathered, where there is room for it; false: it stays, unless
// the kernel has moved a part of it. Then all of it is lost.
static bool huge_room_move(struct huge_cache *cache, unsigned index) {
    struct huge_room *const room = &cache->room;
    const struct huge_mapping piece = cache->pieces[index];
    const enum os_moved moved = os_move(cache->os, piece.address, piece.bytes, room->tail);
    if (moved != OS_MOVED) {
        room->refused = true;
        if (moved != OS_NOT_MOVED) {
            huge_room_lose(cache, piece.bytes);
        }
        if (moved == OS_BOTH_LOST) {
            (void)huge_cache_remove(cache, index);
        }
        return false;
    }
    (void)huge_cache_take_piece(cache, index); // and as much is cached as before
    room->tail += piece.bytes;
    room->whole_from = bits_max(room->whole_from, room->tail);
    return true;
}

// The front of the room, of which `bytes` bytes are left; the last of them may be fresh.
static struct huge_mapping huge_room_cut(struct huge_cache *cache, size_t bytes) {
    struct huge_room *const room = &cache->room;
    const struct huge_mapping part = {room->front, bytes,
                                      room->front < room->whole_from ? HUGE_SEVERAL : HUGE_ONE};
    huge_cache_less(cache, bits_min(bytes, huge_cache_gathered(cache)));
    room->front += bytes;
    room->tail = bits_max(room->tail, room->front);
    return part;
}

// Makes a room of so many bytes; false: the kernel refuses.
static bool huge_room_make(struct huge_cache *cache, size_t bytes) {
    const uintptr_t address = os_map(cache->os, bytes, 1);
    if (address == 0) {
        cache->room.refused = true;
        return false;
    }
    cache->room.front = address;
    cache->room.tail = address;
    cache->room.end = address + bytes;
    cache->room.huge_from = 0;
    cache->room.whole_from = address;
    return true;
}

// Makes a room in place of one that is too small, whose address space is left to a later call.
// False: the kernel refuses, or what was left of one before is still with us.
static bool huge_room_replace(struct huge_cache *cache, size_t bytes) {
    const uintptr_t tail = cache->room.tail;
    const size_t left_bytes = cache->room.end - tail;
    if (cache->left.bytes != 0 || !huge_room_make(cache, bytes)) {
        return false;
    }
    huge_cache_set_left(cache, tail, left_bytes);
    return true;
}

// What cannot be given back is forgotten.
static void huge_cache_drop_left(struct huge_cache *cache) {
    (void)os_unmap(cache->os, cache->left.address, cache->left.bytes);
    huge_cache_set_left(cache, 0, 0);
}

// Leaves the room: what is gathered there becomes a piece, and the rest is given back.
static void huge_room_leave(struct huge_cache *cache) {
    const struct huge_room room = cache->room;
    cache->room =
        (struct huge_room){.refused = room.refused, .wanted = room.wanted, .torn = room.torn};
    cache->bytes -= room.tail - room.front; // for a moment
    if (room.tail > room.front) {
        huge_cache_keep(cache,
                        (struct huge_mapping){room.front, room.tail - room.front, HUGE_SEVERAL});
    }
    if (room.end > room.tail) {
        (void)os_unmap(cache->os, room.tail, room.end - room.tail);
    }
}

MALLOW_INTERNAL void huge_cache_close_room(struct huge_cache *cache) {
    if (cache->left.bytes != 0) {
        huge_cache_drop_left(cache);
    }
    if (cache->room.end != 0 && !huge_cache_is_full(cache)) {
        huge_room_leave(cache);
    }
    cache->room.refused = true;
}

// Whether the room is not yet, or still, one in which faults make huge pages, and is worth a call.
static bool huge_room_differs(const struct huge_cache *cache) {
    const struct huge_room *const room = &cache->room;
    return cache->broad != (room->huge_from != 0) &&
           room->end - room->tail >= 2 * MALLOW_CHUNK_BYTES;
}

// Makes it so. One call.
static void huge_room_adapt(struct huge_cache *cache) {
    struct huge_room *const room = &cache->room;
    const uintptr_t start = bits_align_up(room->tail, MALLOW_CHUNK_BYTES);
    const bool done = os_huge_allow(cache->os, start, room->end - start, cache->broad);
    room->huge_from = done && cache->broad ? start : 0;
    room->whole_from = start;
    if (!done) {
        __atomic_store_n(&cache->broad, false, __ATOMIC_RELAXED);
    }
}

MALLOW_INTERNAL void huge_cache_set_broad(struct huge_cache *cache, bool broad) {
    struct huge_room *const room = &cache->room;
    __atomic_store_n(&cache->broad, broad && !room->refused, __ATOMIC_RELAXED);
    if (cache->broad && room->end - room->tail < HUGE_ROOM_LOW_BYTES &&
        (huge_cache_gathered(cache) == 0 || !huge_cache_is_full(cache))) {
        huge_room_leave(cache);
        (void)huge_room_make(cache, HUGE_ROOM_BYTES);
    }
    if (huge_room_differs(cache)) {
        huge_room_adapt(cache);
    }
}

// Uses a system call that is to spare for a step towards one range: moves a piece, or makes room.
static void huge_cache_gather(struct huge_cache *cache) {
    struct huge_room *const room = &cache->room;
    // A single piece is one range already; all that may be wanted is a room for it to grow in.
    const bool single = cache->count == 1 && huge_cache_gathered(cache) == 0;
    if (unlikely(huge_room_differs(cache))) {
        huge_room_adapt(cache);
        return;
    }
    if (room->refused || room->wanted == 0 || cache->count == 0 ||
        (single &&
         (room->end != 0 || cache->pieces[huge_cache_last(cache)].parts != HUGE_SEVERAL))) {
        return;
    }
    room->wanted--;
    const unsigned index = huge_cache_best(cache, SIZE_MAX);
    const size_t bytes = cache->pieces[index].bytes;
    if (bytes > HUGE_ROOM_BYTES / 4) {
        return;
    }
    if (room->end == 0) {
        (void)huge_room_make(cache, HUGE_ROOM_BYTES);
    } else if (room->end - room->tail >= bytes) {
        huge_room_align(cache, bytes);
        (void)huge_room_move(cache, index);
    } else if (!huge_cache_is_full(cache)) {
        huge_room_leave(cache);
    }
}

// ---- Taking -------------------------------------------------------------------------------------

// The piece, which is larger, cut; the rest stays.
static struct huge_mapping huge_cache_cut(struct huge_cache *cache, unsigned index, size_t bytes) {
    struct huge_mapping piece = cache->pieces[index];
    const struct huge_mapping rest = huge_rest(piece, bytes);
    piece.bytes = bytes;
    if (rest.bytes >= HUGE_PIECE_BYTES_MIN ||
        (rest.bytes != 0 && cache->count < HUGE_COUNT_OF_SMALL)) {
        huge_index_begin_at(cache->index, cache->pieces[index], rest.address, index);
        cache->pieces[index] = rest;
        huge_cache_less(cache, bytes);
        return piece;
    }
    (void)huge_cache_remove(cache, index);
    if (rest.bytes != 0) {
        huge_cache_unmap(cache, rest);
    }
    return piece;
}

// Whether a range of so many parts may be asked to become one of `bytes` bytes. Where the kernel
// may refuse, only with fresh pages at hand that cost no second call; or if there will be no room
// for such, once in a process.
static bool huge_cache_may_grow(const struct huge_cache *cache, enum huge_parts parts,
                                size_t bytes) {
    const bool refuses = parts != HUGE_ONE && cache->room.torn;
    const bool may_refuse = parts != HUGE_ONE || cache->room.torn;
    return !may_refuse || huge_cache_has_fresh(cache, bytes) || (cache->room.refused && !refuses);
}

MALLOW_INTERNAL bool huge_cache_may_ask(const struct huge_cache *cache, size_t bytes) {
    return likely(!cache->room.torn) || bytes >= HUGE_WHOLE_BYTES ||
           huge_cache_has_fresh(cache, bytes);
}

// The piece, which is smaller, as a mapping of `bytes` bytes, or fresh pages; address 0: for these
// there is no room, and a mapping has to be made.
static struct huge_mapping huge_cache_grow(struct huge_cache *cache, unsigned index, size_t bytes) {
    const struct huge_mapping piece = cache->pieces[index];
    if (!huge_cache_may_grow(cache, piece.parts, bytes)) {
        return huge_cache_take_fresh(cache, bytes);
    }
    const uintptr_t address = os_remap(cache->os, piece.address, piece.bytes, bytes, true);
    if (address == 0) {
        cache->room.torn = true;
        cache->pieces[index].parts = HUGE_SEVERAL;
        return huge_cache_take_fresh(cache, bytes);
    }
    (void)huge_cache_remove(cache, index);
    return (struct huge_mapping){address, bytes, HUGE_ONE};
}

// A request, for which `kept` bytes were of use.
MALLOW_INLINE void huge_cache_learn(struct huge_cache *cache, size_t bytes, size_t kept,
                                    size_t live_bytes) {
    if (likely(!cache->regret) || kept >= bytes) {
        return;
    }
    const size_t bound = huge_cache_bound(cache, live_bytes);
    if (bytes <= bound) {
        cache->regret = false;
        cache->worth = bits_min(bound, bits_max(2 * cache->worth, bytes));
    }
}

// A request has found no piece that is large enough. Moves save faults of the next ones if there is
// not enough at hand; of large blocks' pages they save more than they cost also where there is.
static void huge_cache_miss(struct huge_cache *cache, size_t bytes) {
    const size_t enough = bytes < HUGE_AHEAD_BLOCK_BYTES_MIN ? bytes : 2 * bytes;
    if (huge_cache_gathered(cache) < enough) {
        cache->room.wanted = (unsigned)bits_min(cache->room.wanted + HUGE_MOVES_WANTED,
                                                MALLOW_HUGE_CACHE_COUNT);
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
// block is not, for the sake of a few. `best`: bytes of the best piece.
static bool huge_cache_uses_room(const struct huge_cache *cache, size_t bytes, size_t best) {
    return cache->bytes > 0 &&
           cache->room.end - cache->room.front >= bytes &&
           (bytes < HUGE_WHOLE_BYTES ||
            huge_cache_gathered(cache) + best >= bytes / HUGE_WHOLE_SHARE);
}

MALLOW_INTERNAL size_t huge_cache_growth(const struct huge_cache *cache, size_t bytes, bool grows,
                                         struct huge_choice *choice) {
    const unsigned piece = cache->count > 0 ? huge_cache_best(cache, bytes) : HUGE_INDEX_NONE;
    const size_t best = piece != HUGE_INDEX_NONE ? cache->pieces[piece].bytes : 0;
    *choice = (struct huge_choice){piece, false};
    if (best >= bytes) {
        return 0;
    }
    // One that grows is to be of one mapping; and so is one that can have as many pages like that.
    const bool whole = bytes < HUGE_GROWN_BLOCK_BYTES_MIN &&
                       (grows || (best != 0 && huge_cache_gathered(cache) == 0 &&
                                  cache->pieces[piece].parts != HUGE_SEVERAL));
    choice->gathers = !whole && huge_cache_uses_room(cache, bytes, best);
    // What is put together grows by that whether or not a piece moves.
    return bytes - bits_min(bytes, choice->gathers ? huge_cache_gathered(cache) : best);
}

MALLOW_INTERNAL struct huge_mapping huge_cache_take(struct huge_cache *cache, size_t bytes,
                                                    struct huge_choice choice, size_t live_bytes) {
    const unsigned piece = choice.piece;
    if (piece != HUGE_INDEX_NONE) {
        if (cache->pieces[piece].bytes >= bytes) {
            return huge_cache_cut(cache, piece, bytes);
        }
        huge_cache_miss(cache, bytes);
    }
    huge_cache_learn(cache, bytes, choice.gathers ? cache->bytes : 0, live_bytes);
    if (choice.gathers) {
        return huge_cache_take_gathered(cache, bytes, piece);
    }
    if (piece != HUGE_INDEX_NONE && cache->pieces[piece].parts != HUGE_SEVERAL) {
        return huge_cache_grow(cache, piece, bytes);
    }
    return (struct huge_mapping){0, 0, HUGE_ONE};
}

MALLOW_INTERNAL size_t huge_cache_growth_whole(const struct huge_cache *cache, size_t bytes,
                                               unsigned *piece) {
    const unsigned best = cache->count > 0 ? huge_cache_best(cache, bytes) : HUGE_INDEX_NONE;
    const bool serves =
        best != HUGE_INDEX_NONE &&
        (cache->pieces[best].bytes >= bytes || cache->pieces[best].parts != HUGE_SEVERAL);
    *piece = serves ? best : HUGE_INDEX_NONE;
    return bytes - (serves ? bits_min(bytes, cache->pieces[best].bytes) : 0);
}

MALLOW_INTERNAL struct huge_mapping huge_cache_take_whole(struct huge_cache *cache, size_t bytes,
                                                          unsigned piece, size_t live_bytes) {
    const size_t kept = cache->pieces[piece].bytes;
    huge_cache_learn(cache, bytes, kept, live_bytes);
    return kept >= bytes ? huge_cache_cut(cache, piece, bytes)
                         : huge_cache_grow(cache, piece, bytes);
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
        return huge_cache_remove(cache, number);
    }
    // However small the rest is: the block is likely to grow on.
    const struct huge_mapping rest = huge_rest(piece, bytes);
    huge_index_begin_at(cache->index, piece, rest.address, number);
    cache->pieces[number] = rest;
    huge_cache_less(cache, bytes);
    piece.bytes = bytes;
    return piece;
}

MALLOW_INTERNAL struct huge_mapping huge_cache_take_fresh(struct huge_cache *cache, size_t bytes) {
    struct huge_room *const room = &cache->room;
    const struct huge_room before = *room;
    const size_t gathered = huge_cache_gathered(cache);
    if (room->refused || (gathered != 0 && huge_cache_is_full(cache)) ||
        (room->end - room->tail < bytes &&
         !huge_room_replace(cache, bytes + HUGE_ROOM_BYTES))) {
        return (struct huge_mapping){0, 0, HUGE_ONE};
    }
    if (gathered != 0) { // becomes a piece; the call has enough to do
        room->front = room->tail;
        cache->bytes -= gathered;
        huge_cache_keep_loose(cache, (struct huge_mapping){before.front, gathered, HUGE_SEVERAL});
    }
    huge_room_align(cache, bytes);
    const struct huge_mapping part = {room->tail, bytes,
                                      room->tail < room->whole_from ? HUGE_SEVERAL : HUGE_ONE};
    room->tail += bytes;
    room->front = room->tail;
    return part;
}

MALLOW_INTERNAL void huge_cache_unlearn(struct huge_cache *cache, size_t bytes) {
    const size_t spare = cache->worth - bits_min(cache->worth, HUGE_CACHE_WORTH_FIRST);
    cache->worth -= bits_min(spare, bytes);
}

// ---- Giving -------------------------------------------------------------------------------------

// Gives a piece back, of at least `bytes` and not much more if there is one, or part of what is
// gathered.
static void huge_cache_drop(struct huge_cache *cache, size_t bytes) {
    if (cache->count > 0) {
        const unsigned enough = huge_index_enough(cache->index, cache->pieces, bytes);
        huge_cache_unmap(cache, huge_cache_remove(cache, enough));
        return;
    }
    const size_t length = bits_min(bits_align_up(bytes, cache->os->page_bytes),
                                   huge_cache_gathered(cache));
    if (length != 0) {
        huge_cache_unmap(cache, huge_room_cut(cache, length));
    }
}

static void huge_cache_set_debt(struct huge_cache *cache, size_t debt) {
    __atomic_store_n(&cache->debt, debt, __ATOMIC_RELAXED);
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

MALLOW_INTERNAL void huge_cache_give(struct huge_cache *cache, struct huge_mapping mapping,
                                     size_t live_bytes, bool may_enter) {
    const bool has_place = !huge_cache_is_full(cache);
    if (!may_enter && has_place) {
        huge_cache_keep_loose(cache, mapping);
        if (unlikely(os_charge_is_capped(&cache->os->charge))) {
            huge_cache_owe_beyond(cache, huge_cache_limit(cache, live_bytes, 0));
        }
        return;
    }
    if (unlikely(!has_place)) { // what is owed then, a call with a place notes
        huge_cache_unmap(cache, mapping);
        return;
    }
    const size_t limit = huge_cache_limit(cache, live_bytes, mapping.bytes);
    size_t keep = bits_min(mapping.bytes, limit - bits_min(cache->bytes, limit));
    if (keep < mapping.bytes) {
        keep = bits_align_down(keep, cache->os->page_bytes);
        keep = keep >= HUGE_PIECE_BYTES_MIN ? keep : 0;
    }
    if (keep > 0) {
        huge_cache_keep(cache, (struct huge_mapping){mapping.address, keep, mapping.parts});
    }
    if (keep < mapping.bytes) {
        huge_cache_unmap(cache, huge_rest(mapping, keep));
        huge_cache_owe_beyond(cache, limit); // less is live than before, so less may be kept
    } else if (cache->bytes > limit) {
        huge_cache_drop(cache, 0);
    } else {
        huge_cache_gather(cache);
    }
}

MALLOW_INTERNAL void huge_cache_join(struct huge_cache *cache, size_t live_bytes) {
    const struct huge_mapping piece = huge_cache_take_piece(cache, bits_lowest(cache->loose));
    cache->bytes -= piece.bytes; // for a moment
    huge_cache_keep(cache, piece);
    huge_cache_owe_beyond(cache, huge_cache_limit(cache, live_bytes, 0));
}

MALLOW_INTERNAL size_t huge_cache_idle(struct huge_cache *cache) {
    const size_t idle = bits_min(cache->bytes_low_before, cache->bytes_low);
    cache->bytes_low_before = cache->bytes_low;
    cache->bytes_low = cache->bytes;
    return idle;
}

// How much of a range of `have` bytes goes when `bytes` are to: all of it if too little would stay.
static size_t huge_part(const struct huge_cache *cache, size_t have, size_t bytes) {
    const size_t part = bits_min(bits_align_up(bytes, cache->os->page_bytes), have);
    return have - part < HUGE_PIECE_BYTES_MIN ? have : part;
}

MALLOW_INTERNAL struct huge_mapping huge_cache_cut_end(struct huge_cache *cache, size_t bytes) {
    const unsigned number = huge_cache_last(cache);
    struct huge_mapping piece = cache->pieces[number];
    const size_t part = huge_part(cache, piece.bytes, bytes);
    const struct huge_mapping end = huge_rest(piece, piece.bytes - part);
    piece.bytes -= part;
    if (piece.bytes == 0) {
        (void)huge_cache_take_piece(cache, number);
    } else {
        huge_cache_set_piece(cache, number, piece);
    }
    huge_cache_less(cache, part);
    huge_cache_unlearn(cache, part);
    return end;
}

MALLOW_INTERNAL void huge_cache_put_back(struct huge_cache *cache, struct huge_mapping end) {
    if (!huge_cache_is_full(cache)) { // else it is lost
        huge_cache_keep(cache, end);
    }
}

MALLOW_INTERNAL size_t huge_cache_purge_gathered(struct huge_cache *cache, size_t bytes) {
    struct huge_room *const room = &cache->room;
    const size_t part = huge_part(cache, huge_cache_gathered(cache), bytes);
    if (part == 0 || !os_purge(cache->os, room->tail - part, part)) {
        return 0;
    }
    room->tail -= part; // its address space is the room's as before
    huge_cache_less(cache, part);
    huge_cache_unlearn(cache, part);
    return part;
}

MALLOW_INTERNAL void huge_cache_settle(struct huge_cache *cache) {
    if (cache->left.bytes != 0) {
        huge_cache_drop_left(cache);
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
        if (os_unmap(cache->os, piece.address, piece.bytes)) {
            (void)huge_cache_remove(cache, i);
            released += piece.bytes;
        } else if (os_purge(cache->os, piece.address, piece.bytes)) {
            released += piece.bytes;
        }
    }
    return released;
}

MALLOW_INTERNAL size_t huge_cache_purge(struct huge_cache *cache) {
    cache->worth = HUGE_CACHE_WORTH_FIRST;
    huge_cache_set_debt(cache, 0);
    size_t released = huge_cache_purge_pieces(cache);
    if (cache->left.bytes != 0) {
        huge_cache_drop_left(cache);
    }
    if (cache->room.end != 0 && !huge_cache_is_full(cache)) {
        huge_room_leave(cache);
        released += huge_cache_purge_pieces(cache);
    }
    return released;
}
