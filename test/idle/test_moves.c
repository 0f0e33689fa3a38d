// SPDX-License-Identifier: MIT
// Programs all of whose calls make their system call: blocks above 1 MiB that are aligned at an offset, or
// zeroed and aligned, and moved by a resize. What is kept of those freed has a bound all the same, and
// comes back while the program is idle.
//
//   idle_moves thread|no_thread|starts
#include "idle.h"

#include <mallow/heap.h>

enum { ROUNDS = 120, BLOCK = 10 * MIB, KEPT_KIB = 700 * KIB, WAIT_MS = 20000 };

static struct mw_heap *heap;

static void *moved_at_offset(void)
{
    void *const block = mw_malloc_aligned_at(BLOCK, 16, 8);
    memset(block, 1, BLOCK);
    return mw_realloc_aligned_at(block, BLOCK + MIB, 16, 8);
}

static void *moved_from_offset(void)
{
    void *const block = mw_calloc_aligned_at(1, BLOCK, 1 << 16, 16);
    memset(block, 1, BLOCK);
    return mw_recalloc(block, 3, BLOCK);
}

static void *moved_zeroed(void)
{
    void *const block = mw_zalloc_aligned(BLOCK, 2 * MIB);
    memset(block, 1, BLOCK);
    unsigned char *const moved = mw_rezalloc_aligned(block, 2 * BLOCK, 2 * MIB);
    for (size_t i = BLOCK; i < 2 * BLOCK; i += 4096) {
        CHECK(moved[i - 1] == (i == BLOCK) && moved[i] == 0, "byte %zu", i);
    }
    return moved;
}

static void *moved_in_a_heap(void)
{
    void *const block = mw_heap_zalloc_aligned(heap, BLOCK, 2 * MIB);
    memset(block, 1, BLOCK);
    return mw_heap_rezalloc_aligned(heap, block, 2 * BLOCK, 2 * MIB);
}

// Each a little larger than any before.
static void *moved_and_never_of_a_size(void)
{
    static size_t more;
    void *const block = mw_zalloc_aligned_at(BLOCK + more, 16, 8);
    memset(block, 1, BLOCK + more);
    more += 8192;
    return mw_rezalloc_aligned_at(block, BLOCK + more, 16, 8);
}

static void *grown_by_steps(void)
{
    unsigned char *block = NULL;
    for (size_t bytes = 1; bytes < 24000000; bytes = bytes * 3 / 2 + 64) {
        block = mw_realloc_aligned_at(block, bytes, 64, 16);
        memset(block, 1, bytes);
    }
    return block;
}

// One that lives on, and is moved by each call.
static void move_on(void)
{
    enum { MOVES = 110, FIRST = 20 * MIB, STEP = 64 * KIB };
    size_t most = 0;
    unsigned char *block = mw_malloc_aligned_at(FIRST, 16, 8);
    memset(block, 1, FIRST);
    for (size_t bytes = FIRST + STEP; bytes <= FIRST + MOVES * STEP; bytes += STEP) {
        block = mw_realloc_aligned_at(block, bytes, 16, 8);
        CHECK(block != NULL && block[bytes - STEP - 1] == 1, "moved on");
        memset(block + bytes - STEP, 1, STEP);
        const size_t kib = process_rss_kib();
        most = kib > most ? kib : most;
    }
    dprintf(2, "%-26s RSS %6zu KiB at most\n", "moved on", most);
    CHECK(!RSS_IS_OURS || most < KEPT_KIB, "moved on: RSS %zu KiB", most);
    mw_free(block);
}

static void repeat(const char *what, void *(*round)(void), bool thread)
{
    size_t most = 0;
    for (size_t i = 0; i < ROUNDS; i++) {
        void *const block = round();
        CHECK(block != NULL, "%s", what);
        mw_free(block);
        const size_t kib = process_rss_kib();
        most = kib > most ? kib : most;
    }
    dprintf(2, "%-26s RSS %6zu KiB at most, then %zu\n", what, most, process_rss_kib());
    CHECK(!RSS_IS_OURS || most < KEPT_KIB, "%s: RSS %zu KiB", what, most);
    CHECK(!thread || wait_for_rss(6 * KIB, WAIT_MS), "%s: %zu KiB stay of nothing", what, process_rss_kib());
}

// Of calls that are all of this kind, and keep something, the fourth starts the thread. No earlier one
// does: most of them are followed by a call with its system call to spare.
static void start(void)
{
    enum { MOVES = 6, STARTS = 4 };
    size_t threads[MOVES + 1] = {0}; // told apart from the moves: to print calls malloc and free
    void *block = mw_malloc_aligned_at(BLOCK, 16, 8);
    for (size_t i = 1; i <= MOVES; i++) {
        block = mw_realloc_aligned_at(block, BLOCK + i * 64 * KIB, 16, 8);
        threads[i] = thread_count();
    }
    for (size_t i = 1; i <= MOVES; i++) {
        CHECK(threads[i] == (i < STARTS ? 1U : 2U), "move %zu: %zu threads", i, threads[i]);
    }
    mw_free(block);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "starts") == 0) {
        start();
        return 0;
    }
    const bool thread = argc < 2 || strcmp(argv[1], "no_thread") != 0;
    const struct mw_heap_config config = {.size_bytes = sizeof config};
    (void)process_rss_kib(); // whatever that allocates
    move_on();
    repeat("grown by steps", grown_by_steps, thread);
    repeat("moved at an offset", moved_at_offset, thread);
    repeat("moved from an offset", moved_from_offset, thread);
    repeat("moved zeroed", moved_zeroed, thread);
    repeat("never of a size", moved_and_never_of_a_size, thread);
    CHECK(mw_heap_create(&config, &heap) == MW_HEAP_OK, "mw_heap_create");
    repeat("moved in a heap", moved_in_a_heap, thread);
    mw_heap_destroy(heap);
    return 0;
}
