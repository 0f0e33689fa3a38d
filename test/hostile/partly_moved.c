// SPDX-License-Identifier: MIT
// A program registers parts of its blocks of several mebibytes with a userfaultfd, as one does that watches
// which pages are written, and frees the blocks without taking that back. From Linux 6.17 on the kernel moves
// such a block's first part and refuses the rest (`mremap`). No block may lie where nothing is mapped, or
// another block is, and blocks keep what they hold.
#include "../support/check.h"

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

enum { SLOTS = 16, STEPS = 2000, STRIDE = 64 << 10, PAGE = 4096, USER_FAULTS_ONLY = 1 };

static struct {
    unsigned char *block;
    size_t size;
    uint64_t mark;
} slots[SLOTS];

static int watch_open(void)
{
    struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP};
    const int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | USER_FAULTS_ONLY);
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0) {
        SKIP_PROGRAM("no userfaultfd: %s", strerror(errno));
    }
    return fd;
}

// The second half of a block, in whole pages; nothing of it is protected yet.
static void watch(int fd, size_t slot)
{
    const uintptr_t begin = ((uintptr_t)slots[slot].block + slots[slot].size / 2) & -(uintptr_t)PAGE;
    const uintptr_t end = ((uintptr_t)slots[slot].block + slots[slot].size) & -(uintptr_t)PAGE;
    struct uffdio_register range = {.range = {begin, end - begin}, .mode = UFFDIO_REGISTER_MODE_WP};
    if (ioctl(fd, UFFDIO_REGISTER, &range) != 0) {
        SKIP_PROGRAM("no userfaultfd that watches writes: %s", strerror(errno));
    }
}

static void verify(size_t slot)
{
    for (size_t i = 0; i + sizeof(uint64_t) <= slots[slot].size; i += STRIDE) {
        uint64_t found;
        memcpy(&found, slots[slot].block + i, sizeof found);
        CHECK(found == slots[slot].mark + i, "slot %zu of %zu bytes: changed at %zu", slot, slots[slot].size, i);
    }
}

static void hold(struct chance *chance, size_t slot)
{
    slots[slot].size = (2 + chance_below(chance, 20)) * MIB;
    slots[slot].block = malloc(slots[slot].size);
    slots[slot].mark = chance_next(chance);
    CHECK(slots[slot].block != NULL, "no %zu bytes", slots[slot].size);
    for (size_t i = 0; i + sizeof(uint64_t) <= slots[slot].size; i += STRIDE) {
        const uint64_t mark = slots[slot].mark + i;
        memcpy(slots[slot].block + i, &mark, sizeof mark);
    }
}

int main(void)
{
    struct chance chance = {1};
    const int fd = watch_open();
    for (size_t step = 0; step < STEPS; step++) {
        const size_t slot = chance_below(&chance, SLOTS);
        if (slots[slot].block == NULL) {
            hold(&chance, slot);
            continue;
        }
        verify(slot);
        if (chance_below(&chance, 2) == 0) {
            watch(fd, slot);
        }
        free(slots[slot].block);
        slots[slot].block = NULL;
    }
    for (size_t slot = 0; slot < SLOTS; slot++) {
        if (slots[slot].block != NULL) {
            verify(slot);
        }
    }
    return 0;
}
