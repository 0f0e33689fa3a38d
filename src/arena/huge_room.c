// SPDX-License-Identifier: MIT
// Huge room: see huge_room.h.
#include "arena/huge_room.h"

#include "os/os_huge.h"

// Where the tail is to be for what comes next to begin on a chunk, if as much fits then and what is
// passed over has a place.
static uintptr_t huge_room_next(const struct huge_cache *cache, size_t bytes) {
    const struct huge_room *const room = &cache->room;
    const uintptr_t next = bits_align_up(room->tail, MALLOW_CHUNK_BYTES);
    const bool has_place = huge_cache_gathered(cache) != 0 || !huge_pieces_are_full(cache);
    return huge_cache_is_broad(cache) && has_place && next <= room->end &&
                   room->end - next >= bytes
               ? next
               : room->tail;
}

// What is passed over may have pages: the rest of a huge one that the block before has touched.
// Behind gathered pages it counts as gathered, otherwise it becomes a piece.
MALLOW_INTERNAL void huge_room_align_broad(struct huge_cache *cache, size_t bytes) {
    struct huge_room *const room = &cache->room;
    const uintptr_t start = room->tail;
    const uintptr_t next = huge_room_next(cache, bytes);
    if (next == start) {
        return;
    }
    room->tail = next;
    if (room->front != start) {
        huge_pieces_count_more(cache, next - start);
        return;
    }
    room->front = next;
    huge_pieces_keep_loose(cache, (struct huge_mapping){start, next - start, HUGE_SEVERAL});
}

static void huge_room_set_left(struct huge_cache *cache, uintptr_t address, size_t bytes) {
    cache->left.address = address;
    __atomic_store_n(&cache->left.bytes, bytes, __ATOMIC_RELAXED);
}

// Ends the room before a part of its address space that may be another's by now; what lies behind
// that is left to a later call, or else forgotten.
static void huge_room_lose(struct huge_cache *cache, size_t bytes) {
    struct huge_room *const room = &cache->room;
    const uintptr_t behind = room->tail + bytes;
    if (cache->left.bytes == 0) {
        huge_room_set_left(cache, behind, room->end - behind);
    }
    room->end = room->tail;
}

MALLOW_INTERNAL bool huge_room_move(struct huge_cache *cache, unsigned index) {
    struct huge_room *const room = &cache->room;
    const struct huge_mapping piece = cache->pieces[index];
    const enum os_moved moved = os_move(cache->os, piece.address, piece.bytes, room->tail);
    if (moved != OS_MOVED) {
        room->still = moved == OS_NOT_MOVED && piece.parts != HUGE_ONE;
        room->refused = !room->still;
        huge_pieces_set_apart(cache, true);
        if (moved != OS_NOT_MOVED) {
            huge_room_lose(cache, piece.bytes);
        }
        if (moved == OS_BOTH_LOST) {
            (void)huge_pieces_remove(cache, index);
        }
        return false;
    }
    (void)huge_pieces_take(cache, index); // and as much is cached as before
    room->tail += piece.bytes;
    room->whole_from = bits_max(room->whole_from, room->tail);
    return true;
}

MALLOW_INTERNAL struct huge_mapping huge_room_cut(struct huge_cache *cache, size_t bytes) {
    struct huge_room *const room = &cache->room;
    const struct huge_mapping part = {room->front, bytes, huge_room_parts(room, room->front)};
    huge_pieces_count_less(cache, bits_min(bytes, huge_cache_gathered(cache)));
    room->front += bytes;
    room->tail = bits_max(room->tail, room->front);
    return part;
}

MALLOW_INTERNAL bool huge_room_make(struct huge_cache *cache, size_t bytes) {
    const uintptr_t address = os_map(cache->os, bytes, 1);
    if (address == 0) {
        cache->room.refused = true;
        return false;
    }
    cache->room.begin = address;
    cache->room.front = address;
    cache->room.tail = address;
    cache->room.end = address + bytes;
    cache->room.huge_from = 0;
    cache->room.whole_from = address;
    if (cache->room.still && cache->index != NULL) {
        huge_pieces_set_apart(cache, false);
    }
    return true;
}

MALLOW_INTERNAL bool huge_room_replace(struct huge_cache *cache, size_t bytes) {
    const uintptr_t tail = cache->room.tail;
    const size_t left_bytes = cache->room.end - tail;
    if (cache->left.bytes != 0 || !huge_room_make(cache, bytes)) {
        return false;
    }
    huge_room_set_left(cache, tail, left_bytes);
    return true;
}

MALLOW_INTERNAL void huge_room_drop_left(struct huge_cache *cache) {
    (void)os_unmap(cache->os, cache->left.address, cache->left.bytes);
    huge_room_set_left(cache, 0, 0);
}

MALLOW_INTERNAL void huge_room_leave(struct huge_cache *cache) {
    const struct huge_room room = cache->room;
    cache->room = (struct huge_room){.refused = room.refused,
                                     .still = room.still,
                                     .wanted = room.wanted,
                                     .torn = room.torn};
    cache->bytes -= room.tail - room.front; // for a moment
    if (room.tail > room.front) {
        huge_pieces_keep(cache,
                        (struct huge_mapping){room.front, room.tail - room.front, HUGE_SEVERAL});
    }
    if (room.end > room.tail) {
        (void)os_unmap(cache->os, room.tail, room.end - room.tail);
    }
}

MALLOW_INTERNAL void huge_room_adapt(struct huge_cache *cache) {
    struct huge_room *const room = &cache->room;
    const uintptr_t start = bits_align_up(room->tail, MALLOW_CHUNK_BYTES);
    const bool done = os_huge_allow(cache->os, start, room->end - start, cache->broad);
    room->huge_from = done && cache->broad ? start : 0;
    room->whole_from = start;
    if (!done) {
        __atomic_store_n(&cache->broad, false, __ATOMIC_RELAXED);
    }
}

MALLOW_INTERNAL void huge_room_gather(struct huge_cache *cache) {
    struct huge_room *const room = &cache->room;
    // A single piece is one range already; all that may be wanted is a room for it to grow in.
    const bool single = cache->count == 1 && huge_cache_gathered(cache) == 0;
    if (unlikely(huge_room_differs(cache))) {
        huge_room_adapt(cache);
        return;
    }
    if (room->refused || room->still || room->wanted == 0 || cache->count == 0 ||
        (single &&
         (room->end != 0 || cache->pieces[huge_pieces_last(cache)].parts != HUGE_SEVERAL))) {
        return;
    }
    room->wanted--;
    const unsigned index = huge_pieces_best(cache, SIZE_MAX);
    const size_t bytes = cache->pieces[index].bytes;
    if (bytes > HUGE_ROOM_BYTES / 4) {
        return;
    }
    if (room->end == 0) {
        (void)huge_room_make(cache, HUGE_ROOM_BYTES);
    } else if (room->end - room->tail >= bytes) {
        huge_room_align(cache, bytes);
        (void)huge_room_move(cache, index);
    } else if (!huge_pieces_are_full(cache)) {
        huge_room_leave(cache);
    }
}

MALLOW_INTERNAL size_t huge_room_purge(struct huge_cache *cache, size_t bytes) {
    struct huge_room *const room = &cache->room;
    const size_t part = huge_pieces_part(cache, huge_cache_gathered(cache), bytes);
    if (part == 0 || !os_purge(cache->os, room->tail - part, part)) {
        return 0;
    }
    room->tail -= part;
    huge_pieces_count_less(cache, part);
    return part;
}
