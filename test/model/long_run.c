// SPDX-License-Identifier: MIT
// The long runner: random operations of several threads against tags and a bitmap of live 16-byte
// granules, fast enough for 10^8 operations and more. Built for both families (support/family.h).
//
//   long_run [OPERATIONS [THREADS [SEED]]]      default 10,000,000 operations, 4 threads
//
// Checks   no granule belongs to two live blocks (one bit each, set after allocation, cleared before
//          free, in a table that covers the heap's addresses by hashing whole 1 MiB windows);
//          contents; zeroed memory; alignment; usable size; remote frees through exchange places.
#include "../support/family.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { SLOTS = 4096, PLACES = 1024, WINDOW_SHIFT = 20, WINDOWS = 1 << 16, WORDS_A_WINDOW = (1 << WINDOW_SHIFT) / 16 / 64 };

struct block {
    unsigned char *address;
    uint32_t size;
    uint32_t tag;
};

// One window of 1 MiB of address space: who it is, and a bit for each 16 bytes of it.
struct window {
    _Atomic uintptr_t number;
    _Atomic(_Atomic uint64_t *) bits;
};

static struct window windows[WINDOWS];
static _Atomic(struct block *) places[PLACES];
static size_t operations_a_thread;
static uint64_t seed;

static _Atomic uint64_t *bits_of(uintptr_t window_number)
{
    for (uintptr_t probe = window_number * 40503;; probe++) {
        struct window *const window = &windows[probe % WINDOWS];
        uintptr_t found = 0;
        if (atomic_compare_exchange_strong(&window->number, &found, window_number)) {
            _Atomic uint64_t *const bits = mmap(NULL, WORDS_A_WINDOW * sizeof(uint64_t), PROT_READ | PROT_WRITE,
                                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            CHECK(bits != MAP_FAILED, "mmap for the model");
            atomic_store(&window->bits, bits);
            return bits;
        }
        if (found == window_number) {
            _Atomic uint64_t *bits;
            while ((bits = atomic_load_explicit(&window->bits, memory_order_acquire)) == NULL) {
            }
            return bits;
        }
    }
}

// Flips the bits of all granules of a block; each must have been `before`.
static void flip(const struct block *block, bool before)
{
    uintptr_t granule = (uintptr_t)block->address / 16;
    const uintptr_t end = ((uintptr_t)block->address + (block->size > 0 ? block->size : 1) + 15) / 16;
    while (granule < end) {
        const unsigned shift = (unsigned)(granule % 64);
        const uintptr_t count = end - granule < 64 - shift ? end - granule : 64 - shift;
        const uint64_t mask = (count == 64 ? UINT64_MAX : ((UINT64_C(1) << count) - 1)) << shift;
        _Atomic uint64_t *const word = bits_of(granule >> (WINDOW_SHIFT - 4)) + granule / 64 % WORDS_A_WINDOW;
        const uint64_t old = atomic_fetch_xor_explicit(word, mask, memory_order_relaxed);
        CHECK((old & mask) == (before ? mask : 0), "%p of %u bytes overlaps another block", (void *)block->address,
              block->size);
        granule += count;
    }
}

// Small blocks carry their tag in every byte, large ones in their first 48 and last 16.
static void fill(const struct block *block)
{
    const size_t front = block->size < 64 ? block->size : 48;
    memset(block->address, (int)(block->tag & 0xff), front);
    if (block->size >= 64) {
        memset(block->address + block->size - 16, (int)(block->tag & 0xff), 16);
    }
}

static void verify_front(const struct block *block, size_t size)
{
    const size_t front = size < 64 ? size : 48;
    for (size_t i = 0; i < front; i++) {
        CHECK(block->address[i] == (block->tag & 0xff), "byte %zu of %u changed", i, block->size);
    }
}

static void verify(const struct block *block)
{
    verify_front(block, block->size);
    for (size_t i = block->size - (block->size >= 64 ? 16 : 0); i < block->size; i++) {
        CHECK(block->address[i] == (block->tag & 0xff), "byte %zu of %u changed", i, block->size);
    }
}

static void admit(struct block *block, void *address, size_t size, uint64_t word)
{
    CHECK(address != NULL && (uintptr_t)address % 16 == 0, "allocation of %zu gave %p", size, address);
    block->address = address;
    block->size = (uint32_t)size;
    block->tag = (uint32_t)(word >> 40);
    flip(block, false);
    fill(block);
}

static void release(struct block *block)
{
    if (block->address != NULL) {
        verify(block);
        flip(block, true);
        fam_free(block->address);
        block->address = NULL;
        block->size = 0;
    }
}

static void resize(struct block *block, size_t size, uint64_t word)
{
    if (block->address == NULL) {
        return;
    }
    const size_t kept = size < block->size ? size : block->size;
    verify(block);
    flip(block, true);
    block->address = fam_realloc(block->address, size + 1);
    CHECK(block->address != NULL, "realloc to %zu", size);
    verify_front(block, kept < 64 && block->size >= 64 ? (kept < 48 ? kept : 48) : kept);
    admit(block, block->address, size + 1, word);
}

// Leaves a copy of the slot's block where any thread may take and free it.
static void hand_over(struct block *block, size_t place)
{
    struct block *parcel = fam_malloc(sizeof *parcel);
    CHECK(parcel != NULL, "malloc");
    *parcel = *block;
    block->address = NULL;
    block->size = 0;
    parcel = atomic_exchange(&places[place], parcel);
    if (parcel != NULL) {
        release(parcel);
        fam_free(parcel);
    }
}

static void *worker(void *argument)
{
    struct chance chance = {seed + (uint64_t)(uintptr_t)argument * 7919};
    struct block *const slots = mmap(NULL, SLOTS * sizeof *slots, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(slots != MAP_FAILED, "mmap for the slots");
    for (size_t i = 0; i < operations_a_thread; i++) {
        const uint64_t word = chance_next(&chance);
        struct block *const block = &slots[word % SLOTS];
        const size_t size = word >> 32 & 0x3ff ? (word >> 12) % 600 : chance_size(&chance);
        switch ((word >> 44) % 16) {
        case 0: hand_over(block, (word >> 20) % PLACES); break;
        case 1: resize(block, size, word); break;
        case 2:
            release(block);
            block->address = fam_calloc(1, size);
            CHECK(block->address != NULL && nonzero_at(block->address, size) == size, "calloc of %zu", size);
            admit(block, block->address, size, word);
            break;
        case 3:
            release(block);
            admit(block, fam_aligned_alloc((size_t)16 << (word >> 50) % 9, size), size, word);
            break;
        case 4:
        case 5:
        case 6: release(block); break;
        default:
            release(block);
            admit(block, fam_malloc(size), size, word);
        }
    }
    for (size_t slot = 0; slot < SLOTS; slot++) {
        release(&slots[slot]);
    }
    munmap(slots, SLOTS * sizeof *slots);
    return NULL;
}

int main(int count, char **arguments)
{
    const size_t operations = SCALED(count > 1 ? strtoull(arguments[1], NULL, 0) : 10000000);
    const size_t threads = count > 2 ? strtoull(arguments[2], NULL, 0) : 4;
    CHECK(threads >= 1 && threads <= 64, "1 to 64 threads");
    seed = count > 3 ? strtoull(arguments[3], NULL, 0) : chance_seed();
    operations_a_thread = operations / threads;
    pthread_t others[64];
    const uint64_t start = now_ns(CLOCK_MONOTONIC);
    for (uintptr_t i = 1; i < threads; i++) {
        CHECK(pthread_create(&others[i], NULL, worker, (void *)i) == 0, "pthread_create");
    }
    worker(NULL);
    for (size_t i = 1; i < threads; i++) {
        pthread_join(others[i], NULL);
    }
    for (size_t place = 0; place < PLACES; place++) {
        if (places[place] != NULL) {
            release(places[place]);
            fam_free(places[place]);
        }
    }
    printf("%zu operations, %zu threads, %.1f s: no violation\n", operations, threads,
           (double)(now_ns(CLOCK_MONOTONIC) - start) / 1e9);
    return 0;
}
