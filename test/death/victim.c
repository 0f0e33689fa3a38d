// SPDX-License-Identifier: MIT
// Death tests: the victim. `death_victim <misuse> <size>` commits one misuse of the C library's names
// and then goes on as an attacker would: it allocates many blocks and looks whether it gained anything.
//
// Ends by SIGABRT (the allocator stopped it), or exits with
//   0   the misuse was contained: it ran on and nothing was gained
//   42  exploited: a block was handed out twice, over a living one, or outside the heap
//   3   there is no such misuse ("none" is one: the oracle without any misuse must give 0)
#include "misuse.h"

enum { EXPLOITED = 42, ATTEMPTS = 20000, ATTEMPT_BYTES_MAX = 256 * 1024 * 1024 };

struct victim victim;
static uint64_t *attempts[ATTEMPTS + NEIGHBOURS];

static const struct {
    const char *name;
    void (*commit)(void);
} misuses[] = {
#define MISUSE(name, outcome, words) {#name, name},
#include "misuses.def"
#undef MISUSE
};

// By address; without qsort, which may allocate.
static void sort_attempts(size_t count)
{
    for (size_t gap = count / 2; gap > 0; gap /= 2) {
        for (size_t i = gap; i < count; i++) {
            uint64_t *const moving = attempts[i];
            size_t at = i;
            for (; at >= gap && (uintptr_t)attempts[at - gap] > (uintptr_t)moving; at -= gap) {
                attempts[at] = attempts[at - gap];
            }
            attempts[at] = moving;
        }
    }
}

static bool touches(const void *block, const void *start, size_t length)
{
    const uintptr_t address = (uintptr_t)block;
    return address < (uintptr_t)start + length && (uintptr_t)start < address + victim.size;
}

static bool something_was_gained(void)
{
    unsigned char here[64];
    size_t count = 0;
    for (size_t bytes = 0; count < ATTEMPTS && bytes < ATTEMPT_BYTES_MAX; bytes += victim.size) {
        uint64_t *const block = malloc(victim.size);
        CHECK(block != NULL, "malloc");
        if (touches(block, victim.static_data, STATIC_BYTES) || touches(block, here, sizeof here)) {
            return true;
        }
        block[0] = count;
        ((unsigned char *)block)[victim.size - 1] = 0x7e;
        attempts[count++] = block;
    }
    for (size_t i = 0; i < NEIGHBOURS; i++) { // those still alive
        if (victim.neighbours[i] != NULL) {
            if (tag_wrong(victim.neighbours[i], victim.size, i) != victim.size) {
                return true;
            }
            attempts[count++] = (uint64_t *)(void *)victim.neighbours[i];
        }
    }
    sort_attempts(count);
    for (size_t i = 1; i < count; i++) {
        if ((uintptr_t)attempts[i - 1] + victim.size > (uintptr_t)attempts[i]) {
            return true;
        }
    }
    return false;
}

static unsigned char *tagged_block(size_t number)
{
    unsigned char *const block = malloc(victim.size);
    CHECK(block != NULL, "malloc");
    tag_fill(block, victim.size, number);
    return block;
}

int main(int count, char **arguments)
{
    if (count != 3) {
        return 3;
    }
    victim.size = strtoull(arguments[2], NULL, 0);
    for (size_t i = 0; i < NEIGHBOURS / 2; i++) {
        victim.neighbours[i] = tagged_block(i);
    }
    victim.block = tagged_block(NEIGHBOURS);
    for (size_t i = NEIGHBOURS / 2; i < NEIGHBOURS; i++) {
        victim.neighbours[i] = tagged_block(i);
    }
    if (strcmp(arguments[1], "none") == 0) {
        return something_was_gained() ? EXPLOITED : 0;
    }
    for (size_t i = 0; i < COUNT_OF(misuses); i++) {
        if (strcmp(misuses[i].name, arguments[1]) == 0) {
            misuses[i].commit();
            return something_was_gained() ? EXPLOITED : 0;
        }
    }
    return 3;
}
