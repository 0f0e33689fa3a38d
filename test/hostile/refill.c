// SPDX-License-Identifier: MIT
// Under a limit of memory (see launch --as, --data): fill up with blocks of one size, free all, fill
// with another size. Memory freed in one size must serve any other: at least 90 % of what a fresh
// process gets in that size, and failure leaves nothing broken.
//
//   refill LEAST-MIB     the test; blocks of 1,000 bytes must reach LEAST-MIB at first
//   refill --alone SIZE  what a fresh process gets, in bytes, on stdout
#include "../support/check.h"

#include <spawn.h>
#include <sys/wait.h>

struct links {
    struct links *next;
};

// Blocks hold the list themselves, so that counting needs no memory of its own.
static struct links *held;

static size_t fill(size_t size)
{
    size_t bytes = 0;
    for (;;) {
        errno = 0;
        struct links *const block = malloc(size);
        if (block == NULL) {
            CHECK(errno == ENOMEM, "errno %d with NULL for %zu bytes", errno, size);
            return bytes;
        }
        memset(block, 0x6b, size);
        block->next = held;
        held = block;
        bytes += size;
    }
}

static void free_all(void)
{
    while (held != NULL) {
        struct links *const next = held->next;
        for (size_t i = sizeof *held; i < 16; i++) {
            CHECK(((unsigned char *)held)[i] == 0x6b, "contents changed");
        }
        free(held);
        held = next;
    }
}

// What a fresh process under the same limit gets.
static size_t bytes_alone(char *program, size_t size)
{
    char size_text[32];
    char answer[32] = "";
    int ends[2];
    snprintf(size_text, sizeof size_text, "%zu", size);
    CHECK(pipe(ends) == 0, "pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    char *const arguments[] = {program, (char *)"--alone", size_text, NULL};
    pid_t child = 0;
    CHECK(posix_spawn(&child, program, &actions, NULL, arguments, environ) == 0, "posix_spawn %s", program);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    CHECK(read(ends[0], answer, sizeof answer - 1) > 0, "the process alone said nothing");
    close(ends[0]);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "the process alone failed");
    return strtoull(answer, NULL, 10);
}

int main(int count, char **arguments)
{
    if (count == 3) {
        dprintf(1, "%zu\n", fill(strtoull(arguments[2], NULL, 0)));
        _exit(0);
    }
    CHECK(count == 2, "one argument");
    const size_t least = strtoull(arguments[1], NULL, 0) * MIB;
    static const size_t sizes[] = {1000, 64, 30000, 4096, 300000, 16, 1500000, 200, 100000, 1000, 5000000, 48};
    size_t alone[COUNT_OF(sizes)];
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        alone[i] = bytes_alone(arguments[0], sizes[i]);
    }
    CHECK(alone[0] >= least, "only %zu KiB of %zu are usable", alone[0] / KIB, least / KIB);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        const size_t bytes = fill(sizes[i]);
        free_all();
        dprintf(2, "blocks of %zu: %zu KiB, alone %zu KiB\n", sizes[i], bytes / KIB, alone[i] / KIB);
        CHECK(bytes + sizes[i] >= alone[i] - alone[i] / 10, "too little for blocks of %zu after other sizes", sizes[i]);
        void *const again = malloc(100);
        CHECK(again != NULL, "malloc(100) after all was freed");
        free(again);
    }
    return 0;
}
