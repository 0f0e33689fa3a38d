// SPDX-License-Identifier: MIT
// A program whose functions have names of libc's that no C program need know: they come before libc's, for every
// library, and our thread has to do without them. What such a function does is the program's affair: it may want
// a thread that libc has made, as libfaketime's clock does.
#include "../idle/idle.h"

#include <sys/syscall.h>

struct node {
    int value;
    struct node *next;
};

static bool is_ours(void)
{
    return syscall(SYS_gettid) != syscall(SYS_getpid);
}

// An ordinary name for what copies a list; the headers used here happen to know libc's.
__attribute__((visibility("default"))) struct node *own_clone(const struct node *node) __asm__("clone");

struct node *own_clone(const struct node *node)
{
    struct node *const copy = fam_malloc(sizeof *copy);
    CHECK(copy != NULL, "malloc");
    *copy = *node;
    copy->next = node->next != NULL ? own_clone(node->next) : NULL;
    return copy;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *now)
{
    CHECK(!is_ours(), "our thread in the program's clock");
    return (int)syscall(SYS_clock_gettime, clock, now);
}

__attribute__((visibility("default"))) pid_t getpid(void)
{
    CHECK(!is_ours(), "our thread asks the program for its process");
    return 4711;
}

int main(void)
{
    struct node second = {2, NULL};
    const struct node first = {1, &second};
    struct load load;
    for (int tries = 0; thread_count() != 2; tries++) {
        CHECK(tries < 50, "%zu threads", thread_count());
        load_fill(&load, 64 * MIB / 400, 400);
        load_free(&load);
        rest_ms(20);
    }
    struct node *const copy = own_clone(&first);
    CHECK(copy->next->value == 2, "the program's own");
    fam_free(copy->next);
    fam_free(copy);
    CHECK(wait_for_rss(20 * KIB, 3000), "%zu KiB are kept", process_rss_kib());
    CHECK(wait_for_threads(1, 4000), "%zu threads", thread_count());
    return 0;
}
