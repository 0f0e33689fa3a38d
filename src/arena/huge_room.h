// SPDX-License-Identifier: MIT
// Huge room: address space of the huge cache in which pages of freed blocks are put together.
//
// Owns     the room, and the address space that is left of the one before.
// Threads  under the lock of the huge set, as the cache.
// Holds    what lies between the room's front and its tail is gathered: it has pages, and is
//          counted as kept. What lies behind the tail has none, but for the rest of a huge one that
//          a block has touched (huge_room_align).
//          One system call at most, each.
#ifndef MALLOW_ARENA_HUGE_ROOM_H
#define MALLOW_ARENA_HUGE_ROOM_H

#include "arena/huge_pieces.h"

// Address space of a room; a piece that would fill most of it stays where it is.
#define HUGE_ROOM_BYTES ((size_t)1 << 30)
// With less left of it, one in which faults make huge pages is followed by the next.
#define HUGE_ROOM_LOW_BYTES (HUGE_ROOM_BYTES / 4)

// ---- Its extent ---------------------------------------------------------------------------------

// Makes a room of so many bytes; false: the kernel refuses.
MALLOW_INTERNAL bool huge_room_make(struct huge_cache *cache, size_t bytes);

// Makes a room in place of one that is too small, whose address space is left to a later call.
// False: the kernel refuses, or what was left of one before is still with us.
MALLOW_INTERNAL bool huge_room_replace(struct huge_cache *cache, size_t bytes);

// Gives back what is left of the room before; what cannot be given back is forgotten.
MALLOW_INTERNAL void huge_room_drop_left(struct huge_cache *cache);

// Leaves the room: what is gathered there becomes a piece, and the rest is given back.
MALLOW_INTERNAL void huge_room_leave(struct huge_cache *cache);

// Whether the room is not yet, or still, one in which faults make huge pages, and is worth a call.
MALLOW_INLINE bool huge_room_differs(const struct huge_cache *cache) {
    const struct huge_room *const room = &cache->room;
    return cache->broad != (room->huge_from != 0) &&
           room->end - room->tail >= 2 * MALLOW_CHUNK_BYTES;
}

// Makes it so. One call.
MALLOW_INTERNAL void huge_room_adapt(struct huge_cache *cache);

// ---- What is in it ------------------------------------------------------------------------------

// Of what is handed out from `address` on.
MALLOW_INLINE enum huge_parts huge_room_parts(const struct huge_room *room, uintptr_t address) {
    return address < room->whole_from ? HUGE_SEVERAL : HUGE_ONE;
}

// Puts the tail where the next `bytes` bytes are to begin: on a chunk where faults make huge pages.
// No system call.
MALLOW_INTERNAL void huge_room_align_broad(struct huge_cache *cache, size_t bytes);
MALLOW_INLINE void huge_room_align(struct huge_cache *cache, size_t bytes) {
    if (unlikely(cache->broad)) {
        huge_room_align_broad(cache, bytes);
    }
}

// Moves a piece to the end of what is gathered, where there is room for it; false: it stays, unless
// the kernel has moved a part of it. Then all of it is lost.
MALLOW_INTERNAL bool huge_room_move(struct huge_cache *cache, unsigned index);

// The front of the room, of which `bytes` bytes are left; the last of them may be fresh.
MALLOW_INTERNAL struct huge_mapping huge_room_cut(struct huge_cache *cache, size_t bytes);

// Uses a system call that is to spare for a step towards one range: moves a piece, or makes room.
MALLOW_INTERNAL void huge_room_gather(struct huge_cache *cache);

// Gives as much of what is gathered back; its address space is the room's as before. How much.
MALLOW_INTERNAL size_t huge_room_purge(struct huge_cache *cache, size_t bytes);

#endif
