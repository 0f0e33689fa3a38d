// SPDX-License-Identifier: MIT
// Arena growth: the reservation, committing and decommitting, secondary arenas.
#include <sys/resource.h>

#include "arena/reserve.h"
#include "world.h"

static struct arena_world world;
static struct arena_set *const set = &world.arenas;

static int begin(void **state) {
    (void)state;
    arena_world_begin(&world);
    return 0;
}

static int end(void **state) {
    (void)state;
    arena_world_end(&world);
    return 0;
}

enum { CHUNKS = WORLD_SLICES / MALLOW_CHUNK_SLICES };

// Takes whole chunks until the primary arena has none left; of the first, all but slice 0.
static void use_primary_up(struct arena_span *spans) {
    for (unsigned i = 0; i < CHUNKS; i++) {
        spans[i] = arena_take(set, MALLOW_CHUNK_SLICES - (i == 0), 1);
        assert_true(arena_has_slab(&set->primary, spans[i].slab));
    }
    assert_null(set->secondary);
}

CASE(the_primary_arena_is_a_power_of_two_and_commits_nothing) {
    const struct arena *const primary = &set->primary;
    assert_int_equal(primary->slice_count, WORLD_SLICES);
    assert_int_equal(primary->base % MALLOW_CHUNK_BYTES, 0);
    assert_int_equal(primary->committed_slices, 0);
    assert_true(primary->table_address < (uintptr_t)primary->slabs);
    assert_true((uintptr_t)&primary->slabs[WORLD_SLICES] <= (uintptr_t)primary->remotes);
    assert_true((uintptr_t)&primary->remotes[WORLD_SLICES] <= primary->base);
    assert_int_equal(primary->table_address + primary->table_bytes, primary->base);
    arena_world_check(&world);
}

CASE(the_map_s_further_groups_are_committed_with_the_first_chunk_that_needs_them) {
    enum { CHUNKS_TAKEN = 3 * CHUNK_GROUP_CHUNKS };
    struct arena_set large = {.trim_slices = SIZE_MAX};
    arena_set_init(&large, &world.os, &world.meta, &world.map, (size_t)1 << 30);
    struct arena *const arena = &large.primary;
    const uint64_t maps = world.os.map_count;
    assert_int_equal(arena->map.chunk_count, CHUNK_GROUP_CHUNKS);
    static struct arena_span spans[CHUNKS_TAKEN];
    for (unsigned i = 0; i < CHUNKS_TAKEN; i++) {
        spans[i] = arena_take(&large, MALLOW_CHUNK_SLICES - (i == 0), 1);
        assert_true(arena_has_slab(arena, spans[i].slab));
        const bool beyond = arena->committed_slices > CHUNK_GROUP_CHUNKS * MALLOW_CHUNK_SLICES;
        assert_int_equal(arena->map.chunk_count, beyond ? 512 : CHUNK_GROUP_CHUNKS);
    }
    assert_true(world.os.map_count > maps);
    for (unsigned i = CHUNKS_TAKEN; i-- > 0;) {
        arena_give(&large, spans[i].slab, MALLOW_CHUNK_SLICES - (i == 0));
        arena_world_check_set(&large);
    }
    assert_int_equal(arena_purge_all(&large),
                     (CHUNKS_TAKEN * MALLOW_CHUNK_SLICES - 1) * MALLOW_SLICE_BYTES);
    assert_null(large.secondary);
    arena_world_unmap(&world.os, arena);
}

CASE(headers_are_found_by_masking_the_address_wherever_the_arena_lies) {
    enum { TRIES = 6, TAKEN = 700 };
    uintptr_t spaces[TRIES];
    for (unsigned try = 0; try < TRIES; try++) { // the kernel decides where; not at the same place
        struct arena_set large = {.trim_slices = SIZE_MAX};
        arena_set_init(&large, &world.os, &world.meta, &world.map, (size_t)1 << 30);
        const struct arena *const arena = &large.primary;
        for (size_t slice = 0; slice < arena->slice_count; slice++) {
            const uintptr_t address = arena->base + (slice << MALLOW_SLICE_SHIFT);
            const size_t slot = (address >> MALLOW_SLICE_SHIFT) & (arena->slice_count - 1);
            struct slab *const slab = arena_slab_at(arena, address + 12345);
            assert_ptr_equal(slab, &arena->slabs[slot]);
            assert_int_equal(arena_slice_of(arena, slab), slice);
        }
        for (unsigned i = 0; i < TAKEN; i++) {
            const struct arena_span span = arena_take(&large, 1 + i % 2, 1);
            assert_ptr_equal(arena_slab_at(arena, span.address), span.slab);
            assert_ptr_not_equal(span.slab, arena->slabs); // slot 0 is NULL's
            slab_init_large(span.slab, span.address, 1 + i % 2, 65536);
            struct slab_remote *const remote = arena_remote_of(&large, span.slab);
            assert_int_equal(remote - arena->remotes, span.slab - arena->slabs);
            atomic_store(&remote->posted, 1); // writable
        }
        assert_null(large.secondary);
        arena_world_unmap(&world.os, arena);
        spaces[try] = os_reserve(&world.os, ((size_t)48 << 20) * (try + 1), world.os.page_bytes);
    }
    for (unsigned try = 0; try < TRIES; try++) {
        (void)os_unmap(&world.os, spaces[try], ((size_t)48 << 20) * (try + 1));
    }
}

CASE(an_odd_reservation_is_rounded_down_and_a_tiny_one_up_to_a_chunk) {
    static const size_t wanted[] = {0, 1, 3 << 20, (5 << 20) + 1};
    static const size_t got[] = {2 << 20, 2 << 20, 2 << 20, 4 << 20};
    for (unsigned i = 0; i < 4; i++) {
        struct arena_set small = {.dirty_slices = 0};
        arena_set_init(&small, &world.os, &world.meta, &world.map, wanted[i]);
        assert_int_equal(small.primary.slice_count << MALLOW_SLICE_SHIFT, got[i]);
        arena_world_unmap(&world.os, &small.primary);
    }
}

CASE(an_arena_of_one_chunk_has_no_whole_chunk_to_give) {
    struct arena_set small = {.trim_slices = SIZE_MAX};
    arena_set_init(&small, &world.os, &world.meta, &world.map, 2 << 20);
    small.secondary_bytes = MALLOW_CHUNK_BYTES;
    alarm(10); // it looked for one for ever: its slot 0 comes again with every chunk
    for (unsigned count = 1; count <= MALLOW_CHUNK_SLICES; count++) {
        const struct arena_span span = arena_take(&small, count, 1);
        const struct arena_span aligned = arena_take(&small, count, MALLOW_CHUNK_SLICES);
        assert_non_null(span.slab);
        assert_non_null(aligned.slab);
        assert_int_equal(aligned.address % MALLOW_CHUNK_BYTES, 0);
        assert_ptr_not_equal(span.slab, small.primary.slabs);
        arena_give(&small, aligned.slab, count);
        arena_give(&small, span.slab, count);
        (void)arena_purge_all(&small); // secondary arenas go
    }
    alarm(0);
    arena_world_unmap(&world.os, &small.primary);
}

CASE(little_address_space_makes_small_arenas) {
    struct os limited = world.os;
    limited.address_space_limit = 64 << 20;
    struct arena_set small = {.dirty_slices = 0};
    arena_set_init(&small, &limited, &world.meta, &world.map, (size_t)1 << 36);
    assert_int_equal(small.primary.slice_count << MALLOW_SLICE_SHIFT, 4 << 20);
    assert_int_equal(small.secondary_bytes, 4 << 20);
    arena_world_unmap(&world.os, &small.primary);
}

CASE(every_header_can_be_read_before_its_slice_is_committed) {
    for (size_t i = 0; i < WORLD_SLICES; i++) {
        assert_true(unit_is_all(&set->primary.slabs[i], 0, sizeof(struct slab)));
    }
}

CASE(memory_is_committed_as_it_is_needed) {
    size_t before = 0;
    for (unsigned used = 2; used <= WORLD_SLICES; used++) { // slice 0 counts, and is never taken
        const struct arena_span span = arena_take(set, 1, 1);
        assert_ptr_equal(span.slab, &set->primary.slabs[used - 1]);
        const size_t committed = set->primary.committed_slices;
        assert_true(committed >= used);
        assert_true(committed <= used + MALLOW_CHUNK_SLICES);
        assert_true(committed >= before);
        before = committed;
        arena_world_check(&world);
    }
    assert_null(set->secondary);
}

CASE(arena_of_knows_committed_slices_and_answers_any_value) {
    const struct arena_span span = arena_take(set, 1, 1);
    const uintptr_t base = set->primary.base;
    const uintptr_t committed = base + (set->primary.committed_slices << MALLOW_SLICE_SHIFT);
    assert_ptr_equal(arena_of(set, span.address), &set->primary);
    assert_ptr_equal(arena_of(set, committed - 1), &set->primary);
    assert_null(arena_of(set, committed));
    assert_null(arena_of(set, base - 1));
    assert_null(arena_of(set, base + WORLD_RESERVE_BYTES));
    assert_null(arena_of(set, 0));
    assert_null(arena_of(set, UINTPTR_MAX));
    for (unsigned bit = 0; bit < 64; bit++) {
        assert_null(arena_of(set, UINT64_C(1) << bit));
        assert_null(arena_of(set, ~(uintptr_t)0 >> bit));
    }
    assert_null(arena_of(set, (uintptr_t)&span)); // the stack
}

CASE(a_secondary_arena_serves_when_the_primary_is_used_up) {
    struct arena_span spans[CHUNKS];
    use_primary_up(spans);
    const struct arena_span span = arena_take(set, 3, 2);
    assert_non_null(span.slab);
    assert_true(span.zeroed);
    struct arena *const added = set->secondary;
    assert_non_null(added);
    assert_ptr_equal(arena_of(set, span.address), added);
    assert_ptr_equal(arena_slab_at(added, span.address), span.slab);
    slab_init_large(span.slab, span.address, 3, 3 * MALLOW_SLICE_BYTES);
    assert_ptr_equal(arena_remote_of(set, span.slab), &added->remotes[span.slab - added->slabs]);
    assert_true(arena_extend(set, span.slab, 3, 2));
    arena_world_check(&world);
    slab_clear(span.slab);
    arena_give(set, span.slab, 5);
    assert_int_equal(set->dirty_slices, 5);
    arena_world_check(&world);
    // A slice of the primary arena that is free comes first again.
    arena_give(set, spans[1].slab, MALLOW_CHUNK_SLICES);
    assert_int_equal(arena_take(set, 1, 1).address, spans[1].address);
}

CASE(a_secondary_arena_that_is_wholly_free_goes_back_and_its_structure_is_used_again) {
    struct arena_span spans[CHUNKS];
    use_primary_up(spans);
    const struct arena_span span = arena_take(set, 4, 1);
    const struct arena *const structure = set->secondary;
    memset((void *)span.address, 0x5a, 4 * MALLOW_SLICE_BYTES);
    (void)arena_purge_all(set); // in use: it stays
    assert_ptr_equal(set->secondary, structure);
    assert_true(unit_is_all((const void *)span.address, 0x5a, 4 * MALLOW_SLICE_BYTES));
    arena_give(set, span.slab, 4);
    const uint64_t meta_before = world.meta.used_bytes;
    (void)arena_purge_all(set);
    assert_null(set->secondary);
    assert_null(arena_of(set, span.address));
    assert_int_equal(set->dirty_slices, 0);
    arena_world_check(&world);
    const struct arena_span again = arena_take(set, 4, 1);
    assert_non_null(again.slab);
    assert_true(again.zeroed);
    assert_ptr_equal(set->secondary, structure);
    // The map's nodes may lie elsewhere this time; no new arena structure, which is larger.
    assert_true(world.meta.used_bytes - meta_before <= 2 * sizeof(struct address_map_node));
}

CASE(the_tables_of_an_arena_stay_when_it_goes_back_and_serve_the_next) {
    struct arena_span spans[CHUNKS];
    use_primary_up(spans);
    for (unsigned round = 0; round < 3; round++) {
        const struct arena_span span = arena_take(set, 4, 1);
        struct slab *const slab = span.slab;
        assert_non_null(slab);
        assert_true(span.zeroed);
        struct arena *const arena = set->secondary;
        const struct slab *const slabs = arena->slabs;
        slab_init_large(slab, span.address, 4, 4 * MALLOW_SLICE_BYTES);
        struct slab_remote *const remote = arena_remote_of(set, slab);
        atomic_store(&remote->posted, 1); // on some heap's stack
        remote->slab = slab;
        slab_clear(slab);
        arena_give(set, slab, 4);
        // Held: what the tables need, before and after.
        (void)arena_purge_all(set);
        assert_null(set->secondary);
        arena_world_check(&world);
        assert_int_equal(atomic_load(&remote->posted), 1);
        assert_ptr_equal(remote->slab, slab);
        assert_int_equal(slab->kind, SLAB_NONE);
        // Less address space: an arena that is smaller, with the same tables.
        set->secondary_bytes = MALLOW_CHUNK_BYTES << (round % 2);
        const uint64_t held = world.os.charge.held_bytes;
        const struct arena_span again = arena_take(set, 1, 1);
        assert_int_equal(world.os.charge.held_bytes, held + MALLOW_SLICE_BYTES);
        assert_ptr_equal(set->secondary, arena);
        assert_ptr_equal(arena->slabs, slabs);
        assert_int_equal(arena->slice_count, set->secondary_bytes >> MALLOW_SLICE_SHIFT);
        assert_ptr_equal(again.slab, slab);
        assert_int_equal(atomic_load(&remote->posted), 1);
        memset((void *)again.address, 0x5a, MALLOW_SLICE_BYTES);
        arena_world_check(&world);
        arena_give(set, again.slab, 1);
        (void)arena_purge_all(set);
        assert_null(set->secondary);
        assert_null(arena_of(set, again.address));
        set->secondary_bytes = 2 * MALLOW_CHUNK_BYTES;
    }
}

CASE(tables_that_are_too_small_wait_for_an_arena_that_fits) {
    struct arena_span spans[CHUNKS];
    use_primary_up(spans);
    set->secondary_bytes = MALLOW_CHUNK_BYTES;
    arena_give(set, arena_take(set, 1, 1).slab, 1);
    (void)arena_purge_all(set);
    struct arena *const small = set->recycled;
    assert_non_null(small);
    set->secondary_bytes = 2 * MALLOW_CHUNK_BYTES;
    const struct arena_span span = arena_take(set, 1, 1);
    assert_ptr_equal(set->recycled, small);
    assert_int_equal(set->secondary->slice_count, 2 * MALLOW_CHUNK_SLICES);
    arena_give(set, span.slab, 1);
    (void)arena_purge_all(set);
    assert_null(set->secondary);
    set->secondary_bytes = MALLOW_CHUNK_BYTES;
    for (unsigned i = 0; i < 2; i++) { // whichever comes first
        assert_non_null(arena_take(set, MALLOW_CHUNK_SLICES, 1).slab);
        arena_world_check(&world);
    }
    assert_null(set->recycled);
}

// 256 MiB have chunks beyond the first group.
CASE(a_large_arena_s_further_groups_come_and_go) {
    struct arena_span spans[CHUNKS];
    use_primary_up(spans);
    set->secondary_bytes = MALLOW_SECONDARY_ARENA_BYTES;
    enum { TAKEN = CHUNK_GROUP_CHUNKS + 2 };
    for (unsigned round = 0; round < 2; round++) {
        static struct arena_span more[TAKEN];
        for (unsigned i = 0; i < TAKEN; i++) {
            more[i] = arena_take(set, MALLOW_CHUNK_SLICES, 1);
            assert_non_null(more[i].slab);
            assert_ptr_equal(arena_of(set, more[i].address), set->secondary);
        }
        assert_true(set->secondary->map.chunk_count > CHUNK_GROUP_CHUNKS);
        arena_world_check(&world);
        for (unsigned i = 0; i < TAKEN; i++) {
            arena_give(set, more[i].slab, MALLOW_CHUNK_SLICES);
        }
        (void)arena_purge_all(set);
        assert_null(set->secondary);
        arena_world_check(&world);
    }
}

CASE(where_every_call_grows_every_other_one_can_prepare_the_tables) {
    enum { FIRST = 3, MANY = 200 };
    struct arena_set large = {.trim_slices = SIZE_MAX};
    arena_set_init(&large, &world.os, &world.meta, &world.map, (size_t)1 << 30);
    struct arena *const arena = &large.primary;
    unsigned quiet = 0;
    for (unsigned i = 0; i < FIRST + MANY; i++) {
        const uint64_t entries = os_entries(&world.os);
        assert_non_null(arena_take(&large, MALLOW_CHUNK_SLICES - (i == 0), 1).slab);
        assert_true(arena->mapped_slices >= arena->committed_slices);
        assert_true(arena->mapped_slices <= arena->committed_slices + MALLOW_CHUNK_SLICES);
        if (i < FIRST) {
            continue;
        }
        assert_true(os_entries(&world.os) <= entries + 1);
        if (os_entries(&world.os) == entries) {
            quiet++;
            arena_prepare(&large);
            assert_true(os_entries(&world.os) <= entries + 1);
        }
    }
    assert_true(quiet >= MANY / 2 - 1);
    arena_world_check_set(&large);
    (void)os_unmap(&world.os, arena->table_address, arena->table_bytes + ((size_t)1 << 30));
}

CASE(that_nothing_is_ahead_any_more_is_noticed) {
    enum { SPANS = 1200, STEPS = 30000 };
    struct unit_chance chance = unit_chance_begin();
    struct arena_set large = {.trim_slices = SIZE_MAX};
    arena_set_init(&large, &world.os, &world.meta, &world.map, (size_t)1 << 30);
    struct arena *const arena = &large.primary;
    struct arena_span spans[SPANS] = {{.slab = NULL}};
    unsigned counts[SPANS];
    unsigned missing = 0;
    for (unsigned step = 0; step < STEPS; step++) {
        const unsigned i = unit_below(&chance, SPANS);
        if (spans[i].slab != NULL) {
            arena_give(&large, spans[i].slab, counts[i]);
            spans[i].slab = NULL;
        } else {
            const unsigned most = unit_below(&chance, 4) == 0 ? MALLOW_CHUNK_SLICES : 12;
            counts[i] = 1 + unit_below(&chance, most);
            spans[i] = arena_take(&large, counts[i], 1);
            assert_non_null(spans[i].slab);
        }
        const bool ahead = arena_has_ahead(arena);
        const enum arena_low low = arena_is_low(&large);
        assert_true(ahead || low != ARENA_NOT_LOW);
        missing += !ahead;
        if (low != ARENA_NOT_LOW && unit_below(&chance, 3) == 0) {
            const size_t committed = arena->committed_slices;
            const uint64_t entries = os_entries(&world.os);
            arena_prepare(&large);
            assert_true(os_entries(&world.os) <= entries + 1);
            assert_true(arena->committed_slices > committed || low != ARENA_LOW_SLICES);
            assert_true(arena_is_low(&large) != ARENA_LOW_SLICES || !arena_has_ahead(arena));
        }
    }
    assert_true(missing > 0);
    assert_true(arena->committed_slices > 2 * CHUNK_GROUP_CHUNKS * MALLOW_CHUNK_SLICES);
    arena_world_check_set(&large);
    (void)os_unmap(&world.os, arena->table_address, arena->table_bytes + ((size_t)1 << 30));
}

// As beyond 8 GiB: what is ahead is said by the second word of its row.
CASE(what_is_ahead_in_a_later_word_is_ahead) {
    struct arena_set large = {.trim_slices = SIZE_MAX};
    arena_set_init(&large, &world.os, &world.meta, &world.map, (size_t)1 << 30);
    struct arena *const arena = &large.primary;
    do {
        assert_non_null(arena_take(&large, 1, 1).slab);
        arena_prepare(&large);
    } while (arena_is_low(&large) != ARENA_NOT_LOW || arena->free_slices < 9);
    arena->map.word_count = 2;
    const uint64_t enough = chunk_map_rows_from(ARENA_FIRST_AHEAD_SLICES);
    arena->map.summary[1].present = enough;
    while ((arena->map.summary[0].present & enough) != 0) {
        assert_non_null(arena_take(&large, 1, 1).slab);
    }
    assert_int_equal(arena_is_low(&large), ARENA_NOT_LOW);
    arena->map.summary[1].present = 0;
    while (arena->free_slices != 0) {
        assert_non_null(arena_take(&large, 1, 1).slab);
    }
    assert_int_equal(arena_is_low(&large), ARENA_LOW_SLICES);
    arena->map.word_count = 1;
    (void)os_unmap(&world.os, arena->table_address, arena->table_bytes + ((size_t)1 << 30));
}

CASE(a_limit_that_comes_late_leaves_what_is_in_use_and_a_share) {
    enum { MANY = 70 };
    static const size_t limits[] = {(size_t)1 << 20, (size_t)1 << 30};
    for (unsigned try = 0; try < 2; try++) {
        struct arena_set large = {.trim_slices = SIZE_MAX};
        arena_set_init(&large, &world.os, &world.meta, &world.map, (size_t)1 << 30);
        struct arena *const arena = &large.primary;
        struct arena_span spans[MANY];
        for (unsigned i = 0; i < 3; i++) {
            spans[i] = arena_take(&large, MALLOW_CHUNK_SLICES, 1);
            memset((void *)spans[i].address, 0x11, MALLOW_CHUNK_BYTES);
        }
        const size_t committed = arena->committed_slices;
        arena_confine(&large, limits[try]);
        const size_t left = arena->limit_slices;
        assert_int_equal(left, try == 0 ? bits_align_up(committed, MALLOW_CHUNK_SLICES) : 1024);
        assert_int_equal(large.secondary_bytes,
                         try == 0 ? 2 * MALLOW_ARENA_BYTES_MIN : (size_t)64 << 20);
        // The rest is anybody's: what the kernel puts there is found by the address map.
        const uintptr_t end = arena->base + (left << MALLOW_SLICE_SHIFT);
        const size_t rest = ((size_t)1 << 30) - (left << MALLOW_SLICE_SHIFT);
        const uintptr_t other =
            os_reserve(&world.os, rest - MALLOW_CHUNK_BYTES, world.os.page_bytes);
        assert_true(other != 0);
        for (unsigned i = 3; i < MANY; i++) {
            spans[i] = arena_take(&large, MALLOW_CHUNK_SLICES, 1);
            assert_non_null(spans[i].slab);
            struct arena *const of = arena_of(&large, spans[i].address);
            assert_ptr_equal(arena_slab_at(of, spans[i].address), spans[i].slab);
            assert_true(of != arena || spans[i].address < end);
            slab_init_large(spans[i].slab, spans[i].address, MALLOW_CHUNK_SLICES, 65536);
            atomic_store(&arena_remote_of(&large, spans[i].slab)->posted, 0); // writable
            memset((void *)spans[i].address, 0x22, MALLOW_SLICE_BYTES);
        }
        assert_true(arena->committed_slices <= left);
        assert_true(arena_is_prepared(arena));
        arena_world_check_set(&large);
        for (unsigned i = 0; i < 3; i++) {
            assert_true(unit_is_all((const void *)spans[i].address, 0x11, MALLOW_CHUNK_BYTES));
        }
        for (size_t slot = 0; slot < arena->slice_count; slot++) { // any may be asked about
            (void)*(volatile uint8_t *)&arena->slabs[slot].kind;
        }
        arena_confine(&large, limits[try]); // once more: nothing happens
        assert_int_equal(arena->limit_slices, left);
        arena_unconfine(&large, SIZE_MAX);
        assert_int_equal(arena->limit_slices, left);
        assert_int_equal(large.secondary_bytes, MALLOW_SECONDARY_ARENA_BYTES);
        for (struct arena *of = large.secondary; of != NULL; of = of->next) {
            arena_world_unmap(&world.os, of);
        }
        arena_world_unmap(&world.os, arena);
        assert_true(os_unmap(&world.os, other, rest - MALLOW_CHUNK_BYTES));
    }
}

// Whatever the arena's place, and however much of it is in use.
CASE(the_part_of_the_headers_that_stays_holds_all_slices_and_none_in_its_first_slot) {
    enum { BATCH = 256 };
    for (size_t whole = BATCH; whole <= (size_t)1 << 14; whole *= 2) {
        for (size_t rotation = 0; rotation < whole; rotation += BATCH) {
            for (size_t in_use = 1; in_use <= whole; in_use = in_use * 3 / 2 + 31) {
                const size_t batches = bits_align_up(in_use, BATCH);
                const struct arena arena = {
                    .limit_slices = in_use,
                    .header_slices = batches,
                    .remote_slices = batches,
                    .slot_mask = whole - 1,
                    .rotation = rotation,
                    .header_bytes = whole * sizeof(struct slab),
                };
                const struct arena_part part = arena_header_part(&arena);
                if (part.count == 0) {
                    assert_true(rotation == 0 || rotation + 2 * batches > whole / 2 ||
                                rotation % (whole / 2) == 0);
                    continue;
                }
                assert_true(part.count < whole && (part.count & (part.count - 1)) == 0);
                assert_int_equal(part.first % part.count, 0);
                assert_true(part.first < rotation);
                assert_true(rotation + batches <= part.first + part.count);
            }
        }
    }
}

// Wherever the kernel has put it: in one place of 256, say, 64 MiB of headers would stay.
CASE(of_an_arena_with_little_in_use_few_headers_stay) {
    uintptr_t between[64]; // so that the next lies elsewhere
    for (unsigned i = 0; i < 64; i++) {
        struct arena_set large = {.trim_slices = SIZE_MAX};
        arena_set_init(&large, &world.os, &world.meta, &world.map, (size_t)1 << 30);
        assert_non_null(arena_take(&large, MALLOW_CHUNK_SLICES, 1).slab);
        arena_confine(&large, (size_t)64 << 20);
        const struct arena_part part = arena_header_part(&large.primary);
        assert_true(part.count != 0 && part.count <= 1024);
        arena_world_unmap(&world.os, &large.primary);
        between[i] = os_reserve(&world.os, MALLOW_CHUNK_BYTES, world.os.page_bytes);
    }
    for (unsigned i = 0; i < 64; i++) {
        assert_true(os_unmap(&world.os, between[i], MALLOW_CHUNK_BYTES));
    }
}

CASE(headers_that_are_not_needed_are_given_back_and_are_no_longer_the_arenas) {
    struct arena_set large = {.trim_slices = SIZE_MAX};
    arena_set_init(&large, &world.os, &world.meta, &world.map, (size_t)1 << 30);
    struct arena *const arena = &large.primary;
    const size_t whole = arena->header_bytes;
    struct arena_span span = arena_take(&large, MALLOW_CHUNK_SLICES, 1);
    arena_confine(&large, (size_t)64 << 20);
    os_lock_take(&large.lock);
    const struct arena_part part = arena_header_part(arena);
    if (part.count != 0) { // one place in 32 or so has its slices where the table wraps round
        arena_cut_headers(&large, part);
        assert_int_equal(arena->header_bytes, part.count * sizeof(struct slab));
        assert_true(arena_has_slab(arena, span.slab));
        assert_false(arena_has_slab(arena, &arena->slabs[part.first] - 1));
        assert_false(arena_has_slab(arena, &arena->slabs[part.first + part.count]));
        const size_t margin = 2 * ((size_t)64 << 10);
        assert_true(os_resident(&world.os, (uintptr_t)arena->slabs, whole) <= 2 * margin);
        for (size_t slot = 0; slot < part.count; slot++) { // any may be asked about
            (void)*(volatile uint8_t *)&arena->slabs[part.first + slot].kind;
        }
        assert_int_equal(arena_header_part(arena).count, 0); // it is as small as it can be
    }
    os_lock_drop(&large.lock);
    while (arena->committed_slices < arena->limit_slices) { // what is in use may still grow
        span = arena_take(&large, MALLOW_CHUNK_SLICES, 1);
        assert_non_null(span.slab);
        slab_init_large(span.slab, span.address, MALLOW_CHUNK_SLICES, 65536);
        atomic_store(&arena_remote_of(&large, span.slab)->posted, 0);
    }
    arena_world_check_set(&large);
    for (struct arena *of = large.secondary; of != NULL; of = of->next) {
        arena_world_unmap(&world.os, of);
    }
    arena_world_unmap(&world.os, arena);
}

// As where the limit of mappings is reached: an arena of any length would need headers, so one try a
// request is enough. Each refused call would cost the tries of all lengths.
CASE(an_arena_without_headers_is_not_tried_again_at_half_the_length) {
    struct arena_span spans[CHUNKS];
    use_primary_up(spans);
    set->secondary_bytes = MALLOW_SECONDARY_ARENA_BYTES;
    assert_non_null(meta_take(&world.meta, sizeof(struct arena))); // so that there is room for one
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_DATA, &before), 0);
    const struct rlimit little = {1, before.rlim_max}; // 0 is none to the kernel
    const uint64_t maps = world.os.map_count;
    assert_int_equal(setrlimit(RLIMIT_DATA, &little), 0);
    const bool obeyed = os_map(&world.os, 64 << 10, 1) == 0; // an emulator does not
    const struct arena_span refused =
        obeyed ? arena_take(set, MALLOW_CHUNK_SLICES, 1) : (struct arena_span){.slab = NULL};
    assert_int_equal(setrlimit(RLIMIT_DATA, &before), 0);
    assert_null(refused.slab);
    if (obeyed) {
        assert_in_range(world.os.map_count - maps, 2, 8);
    }
    const struct arena_span span = arena_take(set, MALLOW_CHUNK_SLICES, 1);
    assert_non_null(span.slab);
    assert_int_equal(set->secondary->slice_count << MALLOW_SLICE_SHIFT, MALLOW_SECONDARY_ARENA_BYTES);
    arena_give(set, span.slab, MALLOW_CHUNK_SLICES);
    arena_world_check(&world);
}

CASE(several_secondary_arenas_are_told_apart) {
    struct arena_span spans[CHUNKS];
    struct arena_span more[7];
    use_primary_up(spans);
    for (unsigned i = 0; i < 7; i++) { // two chunks each: four arenas
        more[i] = arena_take(set, MALLOW_CHUNK_SLICES, 1);
        assert_non_null(more[i].slab);
        const struct arena *const arena = arena_of(set, more[i].address + 1);
        assert_ptr_equal(arena_slab_at(arena, more[i].address), more[i].slab);
    }
    unsigned count = 0;
    for (const struct arena *arena = set->secondary; arena != NULL; arena = arena->next) {
        count++;
    }
    assert_int_equal(count, 4);
    for (unsigned i = 0; i < 7; i++) {
        arena_give(set, more[i].slab, MALLOW_CHUNK_SLICES);
        arena_world_check(&world);
    }
    assert_true(arena_purge_all(set) > 0);
    assert_null(set->secondary);
}

CASE(the_free_end_of_an_arena_is_decommitted_down_to_what_is_in_use) {
    const struct arena_span low = arena_take(set, 5, 1);
    const struct arena_span high = arena_take(set, MALLOW_CHUNK_SLICES, MALLOW_CHUNK_SLICES);
    memset((void *)high.address, 0x5a, MALLOW_CHUNK_BYTES);
    const size_t committed = set->primary.committed_slices;
    (void)arena_decommit_all(set); // everything above `high`, if anything
    assert_true(set->primary.committed_slices >= 2 * MALLOW_CHUNK_SLICES);
    arena_give(set, high.slab, MALLOW_CHUNK_SLICES);
    const size_t before = set->primary.committed_slices;
    assert_true(before <= committed);
    assert_int_equal(arena_decommit_all(set), (before - 6) << MALLOW_SLICE_SHIFT);
    assert_int_equal(set->primary.committed_slices, 6); // slice 0, and the five
    assert_int_equal(set->dirty_slices, 0);
    assert_ptr_equal(arena_of(set, low.address), &set->primary);
    assert_null(arena_of(set, high.address));
    arena_world_check(&world);
    assert_int_equal(arena_decommit_all(set), 0);
    // It is committed again when it is needed, and reads as zero.
    const struct arena_span again = arena_take(set, MALLOW_CHUNK_SLICES, MALLOW_CHUNK_SLICES);
    assert_int_equal(again.address, high.address);
    assert_true(again.zeroed);
    assert_true(unit_is_all((const void *)again.address, 0, MALLOW_CHUNK_BYTES));
    arena_world_check(&world);
}

CASE(what_is_fixed_is_all_there_is_once_the_kernel_is_sealed_off) {
    bool locked = false;
    struct reserve reserve;
    const size_t bytes = 5 * MALLOW_CHUNK_BYTES / 2 + 1;
    const size_t fixed = arena_set_fix(set, bytes, &reserve, &locked);
    assert_true(fixed >= bytes && fixed < bytes + MALLOW_SLICE_BYTES);
    assert_int_equal(set->primary.committed_slices, fixed >> MALLOW_SLICE_SHIFT);
    arena_world_check_set(set);
    world.os.sealed = true;
    struct arena_span spans[WORLD_SLICES];
    size_t count = 0;
    assert_null(arena_take(set, 1, 1).slab); // all of it is set apart
    while ((spans[count] = reserve_take(&reserve, 1, 1)).slab != NULL) {
        count++;
    }
    assert_true(count + 1 >= fixed >> MALLOW_SLICE_SHIFT && count <= fixed >> MALLOW_SLICE_SHIFT);
    assert_null(set->secondary);
    while (count > 0) {
        arena_give(set, spans[--count].slab, 1);
    }
    assert_int_equal(arena_purge_all(set), 0);
    assert_int_equal(arena_decommit_all(set), 0);
    arena_world_check_set(set);
    world.os.sealed = false;
}

CASE(more_than_the_arena_cannot_be_fixed) {
    bool locked = false;
    struct reserve reserve;
    assert_int_equal(arena_set_fix(set, SIZE_MAX / 2, &reserve, &locked), WORLD_RESERVE_BYTES);
}

#define ARENA_CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    const struct CMUnitTest cases[] = {
        ARENA_CASE(the_primary_arena_is_a_power_of_two_and_commits_nothing),
        ARENA_CASE(the_map_s_further_groups_are_committed_with_the_first_chunk_that_needs_them),
        ARENA_CASE(headers_are_found_by_masking_the_address_wherever_the_arena_lies),
        ARENA_CASE(an_odd_reservation_is_rounded_down_and_a_tiny_one_up_to_a_chunk),
        ARENA_CASE(an_arena_of_one_chunk_has_no_whole_chunk_to_give),
        ARENA_CASE(little_address_space_makes_small_arenas),
        ARENA_CASE(every_header_can_be_read_before_its_slice_is_committed),
        ARENA_CASE(memory_is_committed_as_it_is_needed),
        ARENA_CASE(arena_of_knows_committed_slices_and_answers_any_value),
        ARENA_CASE(a_secondary_arena_serves_when_the_primary_is_used_up),
        ARENA_CASE(a_secondary_arena_that_is_wholly_free_goes_back_and_its_structure_is_used_again),
        ARENA_CASE(the_tables_of_an_arena_stay_when_it_goes_back_and_serve_the_next),
        ARENA_CASE(tables_that_are_too_small_wait_for_an_arena_that_fits),
        ARENA_CASE(a_large_arena_s_further_groups_come_and_go),
        ARENA_CASE(where_every_call_grows_every_other_one_can_prepare_the_tables),
        ARENA_CASE(that_nothing_is_ahead_any_more_is_noticed),
        ARENA_CASE(what_is_ahead_in_a_later_word_is_ahead),
        ARENA_CASE(a_limit_that_comes_late_leaves_what_is_in_use_and_a_share),
        ARENA_CASE(the_part_of_the_headers_that_stays_holds_all_slices_and_none_in_its_first_slot),
        ARENA_CASE(of_an_arena_with_little_in_use_few_headers_stay),
        ARENA_CASE(headers_that_are_not_needed_are_given_back_and_are_no_longer_the_arenas),
        ARENA_CASE(an_arena_without_headers_is_not_tried_again_at_half_the_length),
        ARENA_CASE(several_secondary_arenas_are_told_apart),
        ARENA_CASE(what_is_fixed_is_all_there_is_once_the_kernel_is_sealed_off),
        ARENA_CASE(more_than_the_arena_cannot_be_fixed),
        ARENA_CASE(the_free_end_of_an_arena_is_decommitted_down_to_what_is_in_use),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
