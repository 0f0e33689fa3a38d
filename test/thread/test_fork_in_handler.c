// SPDX-License-Identifier: MIT
// A signal handler that forks may have interrupted any instruction of the allocator's, also where a lock
// is held. As with glibc, a program of one thread forks all the same; in the child, the interrupted call
// goes on after the handler. A hang shows as SIGALRM. Built for both families (see support/family.h).
#include "../support/family.h"
#include "../support/suite.h"

#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

#ifdef TEST_SCALED
enum { FORKS = 60 };
#else
enum { FORKS = 300 };
#endif
enum { BLOCKS = 64, CHILD_STEPS = 300, SECONDS = 60 };

static volatile sig_atomic_t fork_count;
static volatile sig_atomic_t is_child;

static void fork_and_wait(int number)
{
    (void)number;
    const int error = errno;
    const pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        is_child = 1; // and back to what was interrupted
        alarm(SECONDS / 3);
        errno = error;
        return;
    }
    int status = 0;
    while (waitpid(child, &status, 0) != child) {
    }
    CHECK(!(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM), "a child hangs");
    CHECK(status == 0, "child status %#x", (unsigned)status);
    fork_count++;
    errno = error;
}

static void set_timer(long microseconds)
{
    const struct itimerval often = {{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_VIRTUAL, &often, NULL);
}

// Replaces blocks of up to `size_max` bytes until there have been enough forks.
static void replace_blocks(size_t size_max)
{
    struct {
        unsigned char *block;
        size_t size;
        uint64_t tag;
    } live[BLOCKS];
    struct chance chance = {size_max};
    memset(live, 0, sizeof live);
    for (size_t step = 0; fork_count < FORKS && step < (is_child ? CHILD_STEPS : SIZE_MAX);
         step = is_child ? step + 1 : 0) {
        const size_t i = chance_below(&chance, BLOCKS);
        CHECK(tag_wrong(live[i].block, live[i].size, live[i].tag) == live[i].size, "contents");
        fam_free(live[i].block);
        live[i].size = chance_below(&chance, size_max) + 1;
        live[i].block = fam_malloc(live[i].size);
        CHECK(live[i].block != NULL, "malloc(%zu)", live[i].size);
        live[i].size = live[i].size < 300 ? live[i].size : 300; // what is looked at
        live[i].tag = chance_next(&chance);
        tag_fill(live[i].block, live[i].size, live[i].tag);
    }
    if (is_child) {
        _exit(0);
    }
    set_timer(0);
    for (size_t i = 0; i < BLOCKS; i++) {
        fam_free(live[i].block);
    }
}

static void fork_while_replacing(size_t size_max)
{
    const struct sigaction action = {.sa_handler = fork_and_wait, .sa_flags = SA_RESTART};
    sigaction(SIGVTALRM, &action, NULL);
    alarm(SECONDS);
    fork_count = 0;
    set_timer(500);
    replace_blocks(size_max);
    alarm(0);
}

static void among_small_blocks(void **state)
{
    (void)state;
    fork_while_replacing(500);
}

static void among_large_blocks(void **state)
{
    (void)state;
    fork_while_replacing(400 * KIB);
}

static void among_huge_blocks(void **state)
{
    (void)state;
    fork_while_replacing(4 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(among_small_blocks),
        cmocka_unit_test(among_large_blocks),
        cmocka_unit_test(among_huge_blocks),
    };
    return suite_run(tests);
}
