// SPDX-License-Identifier: MIT
// Children by a bare clone, of which no handler of a fork knows, of a program of one thread that has just
// freed much: the background thread is giving that back when they are made. They allocate and free
// themselves, and end; what is live in the parent reads the same in them.
//
// One whose parent's thread has just held a lock of ours, for a microsecond here and there, waits for ever
// (CAVEATS.md): a few may. While that thread held the lock for as long as the kernel took, one in six did, ten
// of these sixty; now none to two do, of a build with assertions on a loaded machine. Between the two lies the limit.
#include "../support/check.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 60, STUCK_MAX = 6, WAIT_MS = 2000, KEPT = 200, KEPT_BYTES = 3000 };

struct link {
    struct link *next;
};

static unsigned char *kept[KEPT];

// Blocks of `size`, `most` bytes in all; then they are freed.
static void fill(size_t size, size_t most)
{
    struct link *list = NULL;
    for (size_t bytes = 0; bytes < most; bytes += size) {
        struct link *const link = malloc(size);
        CHECK(link != NULL, "%zu bytes", size);
        memset(link, 1, size);
        link->next = list;
        list = link;
    }
    while (list != NULL) {
        struct link *const next = list->next;
        free(list);
        list = next;
    }
}

static void take_kept(void)
{
    for (size_t i = 0; i < KEPT; i++) {
        kept[i] = malloc(KEPT_BYTES);
        CHECK(kept[i] != NULL, "a block");
        memset(kept[i], (int)i, KEPT_BYTES);
    }
}

static void free_kept(void)
{
    for (size_t i = 0; i < KEPT; i++) {
        CHECK(kept[i][0] == i % 256 && kept[i][KEPT_BYTES - 1] == i % 256, "block %zu has changed", i);
        free(kept[i]);
    }
}

static void child_main(void)
{
    fill(60000, 4 << 20);
    fill(700, 1 << 20);
    fill(3000000, 6 << 20);
    free_kept();
    _exit(0);
}

// Whether the child ends; one that does not is ended.
static bool has_ended(pid_t child)
{
    int status = 0;
    for (unsigned waited = 0; waitpid(child, &status, WNOHANG) != child; waited++) {
        const struct timespec moment = {0, 1000000};
        if (waited == WAIT_MS) {
            CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child, "its end");
            return false;
        }
        (void)nanosleep(&moment, NULL);
    }
    CHECK(status == 0, "a child: %x", status);
    return true;
}

int main(void)
{
    unsigned stuck = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        take_kept();
        fill(1000, 20 << 20);
        fill(3000000, 30 << 20);
        const pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
        if (child == 0) {
            child_main();
        }
        CHECK(child > 0, "clone");
        stuck += !has_ended(child);
        free_kept();
    }
    CHECK(stuck <= STUCK_MAX, "%u of %d children wait for ever", stuck, ROUNDS);
    return 0;
}
