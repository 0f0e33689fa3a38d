// SPDX-License-Identifier: MIT
// Fault tests: the victim, a verified load of the C library's names. Linked statically with the
// allocator for faults from the first instruction on, or run with the library preloaded.
//
// Checks   NULL comes with ENOMEM; free keeps errno; no block changes by itself; zeroed memory is zero;
//          after the window of faults malloc(1 MiB) works within 100 calls, and the whole load then runs
//          without any failure.
#include "inject.h"

#include "../support/check.h"

#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/syscall.h>

enum { SLOTS = 64, WINDOW_STEPS = 400, AFTER_STEPS = 150, RECOVERY_CALLS_MAX = 100, HANG_SECONDS = 30 };

static struct {
    unsigned char *block;
    size_t size;
    uint64_t tag;
} slots[SLOTS];

static struct chance chance;
static bool faults_possible;
static size_t nulls_seen;

// The other thread frees what it is handed: remote frees under faults.
static void *handed_over;
static sem_t hand_over;
static sem_t handed_back;
static bool have_other_thread;

static void *other_thread(void *unused)
{
    (void)unused;
    for (;;) {
        sem_wait(&hand_over);
        errno = 4321;
        free(handed_over);
        CHECK(errno == 4321, "a remote free changed errno to %d", errno);
        sem_post(&handed_back);
    }
}

static size_t load_size(void)
{
    switch (chance_below(&chance, 16)) {
    case 0: // the largest are put together out of several that were freed
        return chance_below(&chance, chance_below(&chance, 3) == 0 ? 20 * MIB : 3 * MIB);
    case 1:
    case 2: return chance_below(&chance, 400 * KIB);
    case 3:
    case 4: return chance_below(&chance, 200 * KIB);
    case 5: return chance_below(&chance, 20 * KIB);
    default: return chance_below(&chance, 1500);
    }
}

static void *judged(void *block, size_t size)
{
    if (block == NULL) {
        CHECK(errno == ENOMEM, "NULL for %zu bytes with errno %d", size, errno);
        CHECK(faults_possible, "NULL for %zu bytes without any fault", size);
        nulls_seen++;
    }
    return block;
}

static void verify(size_t slot)
{
    const size_t wrong = tag_wrong(slots[slot].block, slots[slot].size, slots[slot].tag);
    CHECK(wrong == slots[slot].size, "byte %zu of %zu changed", wrong, slots[slot].size);
}

static void release(size_t slot)
{
    verify(slot);
    if (have_other_thread && slots[slot].block != NULL && chance_below(&chance, 4) == 0) {
        handed_over = slots[slot].block;
        sem_post(&hand_over);
        while (sem_wait(&handed_back) != 0) {
        }
    } else {
        errno = 1234;
        free(slots[slot].block);
        CHECK(errno == 1234, "free changed errno to %d", errno);
    }
    slots[slot].block = NULL;
    slots[slot].size = 0;
}

static void store(size_t slot, unsigned char *block, size_t size)
{
    slots[slot].block = block;
    slots[slot].size = block == NULL ? 0 : size;
    slots[slot].tag = chance_next(&chance);
    tag_fill(block, slots[slot].size, slots[slot].tag);
}

static void resize(size_t slot)
{
    if (slots[slot].block == NULL) {
        return;
    }
    const size_t size = load_size() + 1;
    const size_t before = slots[slot].size;
    verify(slot);
    errno = 0;
    unsigned char *const moved = judged(realloc(slots[slot].block, size), size);
    if (moved == NULL) {
        verify(slot); // as it was
        return;
    }
    if (before <= size) {
        CHECK(tag_wrong(moved, before, slots[slot].tag) == before, "realloc lost contents");
    }
    store(slot, moved, size);
}

static void step(void)
{
    const size_t slot = chance_below(&chance, SLOTS);
    const size_t size = load_size();
    switch (chance_below(&chance, 10)) {
    case 0:
    case 1: resize(slot); return;
    case 2: {
        release(slot);
        errno = 0;
        unsigned char *const block = judged(calloc(1, size), size);
        CHECK(block == NULL || nonzero_at(block, size) == size, "calloc of %zu is not zero", size);
        store(slot, block, size);
        return;
    }
    case 3: {
        release(slot);
        const size_t alignment = (size_t)16 << chance_below(&chance, 12);
        errno = 0;
        unsigned char *const block = judged(aligned_alloc(alignment, size), size);
        CHECK((uintptr_t)block % alignment == 0, "alignment %zu", alignment);
        store(slot, block, size);
        return;
    }
    case 4:
        release(slot);
        if (chance_below(&chance, 8) == 0) {
            malloc_trim(0);
        }
        return;
    default:
        release(slot);
        errno = 0;
        store(slot, judged(malloc(size), size), size);
    }
}

static void recover(void)
{
    for (int i = 0; i < RECOVERY_CALLS_MAX; i++) {
        void *const block = malloc(MIB);
        if (block != NULL) {
            memset(block, 1, MIB);
            free(block);
            return;
        }
    }
    CHECK(false, "no 1 MiB within %d calls after the faults ended", RECOVERY_CALLS_MAX);
}

int main(int count, char **arguments)
{
    alarm(HANG_SECONDS);
    chance.state = count > 1 ? strtoull(arguments[1], NULL, 0) : 1;
    pthread_t other;
    sem_init(&hand_over, 0, 0);
    sem_init(&handed_back, 0, 0);
    pthread_attr_t small_stack;
    pthread_attr_init(&small_stack);
    pthread_attr_setstacksize(&small_stack, 256 * KIB);
    have_other_thread = pthread_create(&other, &small_stack, other_thread, NULL) == 0;

    syscall(FAULT_WINDOW_OPENS);
    faults_possible = true;
    for (int i = 0; i < WINDOW_STEPS; i++) {
        step();
    }
    syscall(FAULT_WINDOW_CLOSES);
    recover();
    faults_possible = false;
    for (int i = 0; i < AFTER_STEPS; i++) {
        step();
    }
    for (size_t slot = 0; slot < SLOTS; slot++) {
        release(slot);
    }
    _exit(0);
}
