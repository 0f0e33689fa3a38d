// SPDX-License-Identifier: MIT
// mallow/heap.h: which heap a block is of, and the program's value of a heap: of a hundred heaps of both
// kinds, whoever asks, and of whatever is no block of any.
#include <mallow/heap.h>

#include "../support/suite.h"

#include <pthread.h>
#include <sys/mman.h>

enum { HEAPS = 100, BLOCKS = 6000, RESERVED = 4 };

struct place {
    void *block;
    unsigned heap;
};

static struct mw_heap *heaps[HEAPS];
static int values[HEAPS];
static struct place places[BLOCKS];

// Every 25th has a reserve.
static struct mw_heap *make(unsigned index)
{
    const bool reserved = index % (HEAPS / RESERVED) == 0;
    const struct mw_heap_config config = {.size_bytes = sizeof config, .reserve_bytes = reserved ? 48 * MIB : 0};
    struct mw_heap *heap = NULL;
    const enum mw_heap_status status = mw_heap_create(&config, &heap);
    CHECK(status == MW_HEAP_OK, "%s", mw_heap_status_text(status));
    CHECK(mw_heap_value(heap) == NULL, "a new heap has no value");
    mw_heap_set_value(heap, &values[index]);
    return heap;
}

static bool is_reserved(unsigned index)
{
    return index % (HEAPS / RESERVED) == 0;
}

static void begin(void)
{
    struct chance chance = {chance_seed()};
    for (unsigned i = 0; i < HEAPS; i++) {
        heaps[i] = make(i);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        const unsigned index = (unsigned)chance_below(&chance, HEAPS);
        size_t size = chance_size(&chance);
        size = is_reserved(index) && size > 300 * KIB ? size % (300 * KIB) : size;
        const size_t alignment = i % 7 == 0 ? (size_t)16 << chance_below(&chance, 9) : 1;
        places[i] = (struct place){mw_heap_aligned_alloc(heaps[index], alignment, size), index};
        CHECK(places[i].block != NULL, "heap %u: %zu bytes", index, size);
    }
}

static void look(void)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        const struct place *const place = &places[i];
        struct mw_heap *const heap = heaps[place->heap];
        const struct mw_heap *const other = heaps[(place->heap + 1) % HEAPS];
        CHECK(mw_heap_of(place->block) == heap, "block %u of heap %u", i, place->heap);
        CHECK(mw_heap_value(mw_heap_of(place->block)) == &values[place->heap], "its value");
        CHECK(mw_heap_contains(heap, place->block) && !mw_heap_contains(other, place->block), "contains");
        CHECK(mw_heap_of((char *)place->block + 1) == NULL, "no start of a block");
    }
}

static void *look_in_thread(void *nothing)
{
    look();
    return nothing;
}

static void every_block_leads_to_its_heap_and_its_value_in_any_thread(void **state)
{
    (void)state;
    pthread_t threads[3];
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        CHECK(pthread_create(&threads[i], NULL, look_in_thread, NULL) == 0, "pthread_create");
    }
    look();
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        pthread_join(threads[i], NULL);
    }
}

static void what_is_no_block_of_a_heap_is_in_none(void **state)
{
    (void)state;
    static char data[64];
    char *const page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const void *const pointers[] = {NULL,           data,         &state, page, heaps[0], (void *)1,
                                    (void *)-1,     (void *)UINT64_C(0x8000000000000000)};
    for (size_t i = 0; i < COUNT_OF(pointers); i++) {
        CHECK(mw_heap_of(pointers[i]) == NULL, "pointer %zu", i);
        CHECK(!mw_heap_contains(heaps[1], pointers[i]) && !mw_heap_contains(NULL, pointers[i]), "contains %zu", i);
    }
    CHECK(mw_heap_value(NULL) == NULL, "the value of none");
    for (size_t size = 1; size < 20 * MIB; size = size * 5 + 3) { // thin, in slabs, of slices, huge
        void *const block = mw_malloc(size);
        CHECK(mw_heap_of(block) == NULL, "a thread's block of %zu", size);
        mw_free(block);
    }
    munmap(page, 4096);
}

static void a_freed_block_is_in_no_heap_and_a_resized_one_in_the_same(void **state)
{
    (void)state;
    for (unsigned i = 0; i < BLOCKS; i++) {
        struct place *const place = &places[i];
        if (i % 3 == 0) {
            mw_heap_free(heaps[place->heap], place->block);
            CHECK(mw_heap_of(place->block) == NULL, "block %u is free", i);
            place->block = mw_heap_malloc(heaps[place->heap], 100);
        } else if (i % 3 == 1) {
            place->block = mw_heap_realloc(heaps[place->heap], place->block, 1 + i * 37 % 200000);
        }
        CHECK(place->block != NULL, "block %u", i);
    }
    look();
}

static void a_heap_that_has_ended_leaves_its_value_to_no_other(void **state)
{
    (void)state;
    void *const large = mw_heap_malloc(heaps[0], 100000);
    void *const huge = mw_heap_malloc(heaps[1], 2 * MIB);
    mw_heap_destroy(heaps[0]);
    mw_heap_destroy(heaps[1]);
    CHECK(mw_heap_of(large) == NULL && mw_heap_of(huge) == NULL, "blocks of ended heaps");
    heaps[0] = make(0); // checks that it has none
    heaps[1] = make(1);
    for (unsigned i = 0; i < HEAPS; i++) {
        mw_heap_destroy(heaps[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_block_leads_to_its_heap_and_its_value_in_any_thread),
        cmocka_unit_test(what_is_no_block_of_a_heap_is_in_none),
        cmocka_unit_test(a_freed_block_is_in_no_heap_and_a_resized_one_in_the_same),
        cmocka_unit_test(a_heap_that_has_ended_leaves_its_value_to_no_other),
    };
    begin();
    return suite_run(tests);
}
