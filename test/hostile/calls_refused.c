// SPDX-License-Identifier: MIT
// A sandbox lets a program go on and refuses some kind of system call from then on, with an errno, as the
// kernel does where there are too many mappings: `mremap`, `munmap`, `madvise` or several of them. Blocks of up
// to 40 MiB, which are moved, cut and put together, keep what they hold, and never overlap.
#include "../support/filter.h"

#include <sys/wait.h>

enum { SLOTS = 20, ROUNDS = 12, STEPS = 60, STRIDE = 16 << 10 };

static struct {
    unsigned char *block;
    size_t size;
    uint64_t mark;
} slots[SLOTS];

static uint64_t mark_at(size_t slot, size_t offset)
{
    return slots[slot].mark + offset;
}

static void verify(size_t slot, size_t size)
{
    for (size_t i = 0; i + sizeof(uint64_t) <= size; i += STRIDE) {
        uint64_t found;
        memcpy(&found, slots[slot].block + i, sizeof found);
        CHECK(found == mark_at(slot, i), "slot %zu of %zu bytes: changed at %zu", slot, slots[slot].size, i);
    }
}

static void hold(struct chance *chance, size_t slot, unsigned char *block, size_t size)
{
    CHECK(block != NULL, "no %zu bytes", size);
    for (size_t i = 0; i < SLOTS; i++) {
        CHECK(i == slot || slots[i].block == NULL || block >= slots[i].block + slots[i].size ||
                  slots[i].block >= block + size,
              "%p of %zu bytes overlaps %p of %zu", (void *)block, size, (void *)slots[i].block, slots[i].size);
    }
    slots[slot].block = block;
    slots[slot].size = size;
    slots[slot].mark = chance_next(chance);
    for (size_t i = 0; i + sizeof(uint64_t) <= size; i += STRIDE) {
        const uint64_t mark = mark_at(slot, i);
        memcpy(block + i, &mark, sizeof mark);
    }
}

static void work(struct chance *chance, size_t steps)
{
    for (size_t step = 0; step < steps; step++) {
        const size_t slot = chance_below(chance, SLOTS);
        const size_t size = chance_below(chance, chance_below(chance, 3) == 0 ? 3 * MIB : 40 * MIB) + 1;
        const size_t before = slots[slot].block == NULL ? 0 : slots[slot].size;
        verify(slot, before);
        if (chance_below(chance, 4) == 0) {
            unsigned char *const moved = realloc(slots[slot].block, size);
            CHECK(moved != NULL, "realloc to %zu", size);
            slots[slot].block = moved;
            verify(slot, before < size ? before : size);
            hold(chance, slot, moved, size);
            continue;
        }
        errno = 4321;
        free(slots[slot].block);
        CHECK(errno == 4321, "free changed errno to %d", errno);
        slots[slot].block = NULL;
        const bool zeroed = chance_below(chance, 8) == 0;
        unsigned char *const block = zeroed ? calloc(1, size) : malloc(size);
        for (size_t i = 0; zeroed && i < size; i += 512) {
            CHECK(block[i] == 0, "calloc of %zu is not zero at %zu", size, i);
        }
        hold(chance, slot, block, size);
    }
}

// What the first call that is refused was for differs from round to round.
static void round_run(uint64_t seed, int count, char **names)
{
    static const struct {
        const char *name;
        int number;
    } calls[] = {{"mremap", SYS_mremap}, {"munmap", SYS_munmap}, {"madvise", SYS_madvise}};
    struct chance chance = {seed};
    work(&chance, STEPS + chance_below(&chance, STEPS));
    for (int i = 0; i < count; i++) {
        for (size_t j = 0; j < COUNT_OF(calls); j++) {
            if (strcmp(names[i], calls[j].name) == 0) {
                filter_call(calls[j].number, SECCOMP_RET_ERRNO | ENOMEM, SECCOMP_FILTER_FLAG_TSYNC);
            }
        }
    }
    work(&chance, STEPS);
    for (size_t slot = 0; slot < SLOTS; slot++) {
        verify(slot, slots[slot].block == NULL ? 0 : slots[slot].size);
        free(slots[slot].block);
    }
    _exit(0);
}

int main(int count, char **arguments)
{
    for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
        int status;
        const pid_t child = fork();
        CHECK(child >= 0, "fork");
        if (child == 0) {
            round_run(seed, count - 1, arguments + 1);
        }
        CHECK(waitpid(child, &status, 0) == child, "waitpid");
        CHECK(status == 0 || WIFEXITED(status), "round %d: signal %d", (int)seed, WTERMSIG(status));
        if (status != 0) {
            return WEXITSTATUS(status); // it has said why
        }
    }
    return 0;
}
