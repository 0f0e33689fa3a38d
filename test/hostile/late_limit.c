// SPDX-License-Identifier: MIT
// A program that limits its own address space when it has run for a while: what is left is the program's,
// for blocks of any size and for mappings of its own. A child by vfork that limits itself is another process;
// so is one by a bare clone, as of vsftpd's sessions, whose memory is its own.
//
// A low limit leaves some, too, where the program has one thread; with more it must only do no harm. One of a few
// megabytes, before the first block, leaves what is not taken by the program and the libraries themselves.
//
//   late_limit setrlimit|prlimit|vfork|clone|low|again|tight|crowd
#include "../support/check.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LIMIT_MIB = 640,
    WANTED_MIB = 220, // 256 MiB of it stay reserved for headers, while there are other threads
    LOW_LIMIT_MIB = 160,
    LOW_WANTED_MIB = 60,
    TIGHT_LIMIT_MIB = 24,
    TIGHT_WANTED_MIB = 8,
};

static const struct rlimit limit = {(rlim_t)LIMIT_MIB << 20, (rlim_t)LIMIT_MIB << 20};
static const struct rlimit low_limit = {(rlim_t)LOW_LIMIT_MIB << 20, (rlim_t)LOW_LIMIT_MIB << 20};

static const struct rlimit tight_limit = {(rlim_t)TIGHT_LIMIT_MIB << 20, (rlim_t)TIGHT_LIMIT_MIB << 20};

struct link {
    struct link *next;
};

// All that can be had in blocks of `size`, at most `most`; then it is freed. In MiB.
static size_t fill(size_t size, size_t most)
{
    struct link *list = NULL;
    size_t bytes = 0;
    while (bytes < most) {
        struct link *const link = malloc(size);
        if (link == NULL) {
            break;
        }
        link->next = list;
        list = link;
        bytes += size;
    }
    while (list != NULL) {
        struct link *const next = list->next;
        free(list);
        list = next;
    }
    return bytes >> 20;
}

static int misplaced;

static void *thread_main(void *argument)
{
    free(malloc(100));
    return argument;
}

static void expect_room(size_t wanted)
{
    static const size_t sizes[] = {1000, 50000, 700000, 40000000};
    void *kept[COUNT_OF(sizes)];
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        const size_t had = fill(sizes[i], SIZE_MAX);
        CHECK(had >= wanted, "only %zu MiB in blocks of %zu", had, sizes[i]);
        CHECK(had < LIMIT_MIB, "%zu MiB in blocks of %zu", had, sizes[i]);
        kept[i] = malloc(sizes[i]);
        CHECK(kept[i] != NULL, "a block of %zu when all are freed", sizes[i]);
        memset(kept[i], (int)i, sizes[i] < 4096 ? sizes[i] : 4096);
    }
    const size_t rest = wanted / 3 << 20;
    void *const mapping = mmap(NULL, rest, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapping != MAP_FAILED, "the program's own mapping");
    CHECK(munmap(mapping, rest) == 0, "its end");
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, thread_main, NULL) == 0, "a thread");
    CHECK(pthread_join(thread, NULL) == 0, "its end");
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        free(kept[i]);
    }
}

// Every pointer is still told from a block: a child that frees it ends by abort.
static void expect_caught(const void *pointer)
{
    const pid_t child = fork();
    if (child == 0) {
        (void)close(STDERR_FILENO);
        free((void *)(uintptr_t)pointer);
        _exit(0);
    }
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child, "fork");
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "%p: status %x", pointer, status);
}

static void expect_misuse_caught(void)
{
    char *const block = malloc(5000);
    CHECK(block != NULL, "a block");
    char *const bases[] = {block, (char *)&block, (char *)&misplaced, (char *)(uintptr_t)0x10008};
    for (size_t i = 0; i < COUNT_OF(bases); i++) {
        for (unsigned shift = 4; shift < 47; shift += 3) { // far away, whichever way the masks fall
            expect_caught((char *)((uintptr_t)bases[i] ^ (uintptr_t)1 << shift));
        }
    }
    free(NULL);
    free(block);
    expect_caught(block);
}

static void *sleeper_main(void *argument)
{
    free(malloc(100));
    CHECK(pthread_barrier_wait(argument) <= 0, "barrier");
    (void)pthread_barrier_wait(argument);
    free(malloc(100));
    return NULL;
}

// With another thread, which may be looking for a header, nothing is moved under its eyes.
static void expect_no_harm(const struct rlimit *first)
{
    pthread_barrier_t barrier;
    pthread_t thread;
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0, "barrier");
    CHECK(pthread_create(&thread, NULL, sleeper_main, &barrier) == 0, "a thread");
    (void)pthread_barrier_wait(&barrier);
    CHECK(setrlimit(RLIMIT_AS, first) == 0, "setrlimit");
    for (size_t i = 0; i < 1000; i++) {
        free(malloc(i * 3000)); // had or not
    }
    (void)pthread_barrier_wait(&barrier);
    CHECK(pthread_join(thread, NULL) == 0, "its end");
}

int main(int count, char **arguments)
{
    const char *const how = count > 1 ? arguments[1] : "";
    if (strcmp(how, "tight") == 0) {
        CHECK(setrlimit(RLIMIT_AS, &tight_limit) == 0, "setrlimit");
        const size_t had = fill(1000, SIZE_MAX);
        CHECK(had >= TIGHT_WANTED_MIB, "only %zu MiB in blocks of 1000", had);
        CHECK(fill(50000, SIZE_MAX) >= TIGHT_WANTED_MIB, "less in blocks of 50000");
        return 0;
    }
    CHECK(fill(1000, 20 << 20) == 20 && fill(3000000, 30 << 20) >= 30, "before");
    void *const early = malloc(5000);
    if (strcmp(how, "vfork") == 0) {
        const pid_t child = vfork();
        if (child == 0) {
            (void)setrlimit(RLIMIT_AS, &limit);
            _exit(0);
        }
        CHECK(child > 0 && waitpid(child, NULL, 0) == child, "vfork");
        CHECK(fill(60000, (size_t)800 << 20) == 800, "the parent is limited as well");
    } else if (strcmp(how, "clone") == 0) {
        const pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
        if (child == 0) {
            CHECK(setrlimit(RLIMIT_AS, &low_limit) == 0, "setrlimit");
            const size_t rest = (size_t)LOW_WANTED_MIB << 20;
            void *const mapping = mmap(NULL, rest, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            CHECK(mapping != MAP_FAILED, "the child's own mapping");
            CHECK(munmap(mapping, rest) == 0, "its end");
            CHECK(fill(60000, SIZE_MAX) >= LOW_WANTED_MIB, "the child's blocks");
            _exit(0);
        }
        int status = 0;
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0, "clone: %x", status);
        CHECK(fill(60000, (size_t)800 << 20) == 800, "the parent is limited as well");
    } else if (strcmp(how, "prlimit") == 0) {
        struct rlimit before;
        CHECK(prlimit(0, RLIMIT_AS, &limit, &before) == 0 && before.rlim_cur != limit.rlim_cur, "prlimit");
        expect_room(WANTED_MIB);
    } else if (strcmp(how, "low") == 0) {
        CHECK(setrlimit(RLIMIT_AS, &low_limit) == 0, "setrlimit");
        expect_room(LOW_WANTED_MIB);
        expect_misuse_caught();
    } else if (strcmp(how, "again") == 0) {
        expect_no_harm(&limit); // no room for a thread of the library's either, from now on
        CHECK(fill(3000000, 60 << 20) >= 60, "within the first limit");
        CHECK(setrlimit(RLIMIT_AS, &low_limit) == 0, "setrlimit");
        expect_room(LOW_WANTED_MIB);
    } else if (strcmp(how, "crowd") == 0) {
        expect_no_harm(&low_limit);
    } else {
        CHECK(strcmp(how, "setrlimit") == 0, "setrlimit, prlimit, vfork, clone, low, again, tight or crowd");
        CHECK(setrlimit(RLIMIT_AS, &limit) == 0, "setrlimit");
        struct rlimit now;
        CHECK(getrlimit(RLIMIT_AS, &now) == 0 && now.rlim_cur == limit.rlim_cur, "not passed on");
        errno = 0;
        CHECK(setrlimit((__rlimit_resource_t)1000, &limit) == -1 && errno == EINVAL, "a limit of nothing");
        expect_room(WANTED_MIB);
    }
    free(early);
    return 0;
}
