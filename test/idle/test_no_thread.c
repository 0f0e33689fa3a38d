// SPDX-License-Identifier: MIT
// Where no thread is to be had, by option, in a sandbox, under a small limit of memory, because the kernel
// refuses it, or the time, the process's number or to wait, or because the program's thread-local storage is large, free
// memory comes back in small steps of the calls that the program goes on making.
//
//   idle_no_thread off|sandbox|confined|failing|storage|timeless|numberless|restless|late_off|off_crowded|kept
#include "idle.h"

#include "../support/filter.h"

#include <dlfcn.h>
#include <malloc.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>

enum { FILL = 64 << 20, SLACK_KIB = 4000 };

// ---- Threads that fail on request --------------------------------------------------------------------

static atomic_int failures_left;
static atomic_int failures;

int __clone(int (*body)(void *), void *stack, int flags, void *argument, ...)
{
    if (atomic_load(&failures_left) > 0) {
        atomic_fetch_sub(&failures_left, 1);
        atomic_fetch_add(&failures, 1);
        errno = EAGAIN;
        return -1;
    }
    va_list list;
    va_start(list, argument);
    pid_t *const parent = va_arg(list, pid_t *);
    void *const pointer = va_arg(list, void *);
    pid_t *const child = va_arg(list, pid_t *);
    va_end(list);
    int (*real)(int (*)(void *), void *, int, void *, ...) = NULL;
    *(void **)&real = dlsym(RTLD_NEXT, "__clone");
    return real(body, stack, flags, argument, parent, pointer, child);
}

#ifdef TEST_STORAGE
// As part of the program it lies between the library's and the thread pointer.
_Thread_local char storage[TEST_STORAGE];
#endif

// ---- A program that goes on, with little --------------------------------------------------------------

// Each block is the only one of its size class in use, so each free is of the last block of a slab.
static void go_on(unsigned milliseconds)
{
    for (unsigned waited = 0; waited < milliseconds; waited += 5) {
        for (int i = 0; i < 20; i++) {
            unsigned char *const block = fam_malloc(100 * KIB);
            CHECK(block != NULL, "malloc");
            block[0] = 1;
            errno = 4321;
            fam_free(block);
            CHECK(errno == 4321, "free changed errno to %d", errno);
        }
        rest_ms(5);
    }
}

// Large blocks are replaced in any order, so that each free has neighbours to look at.
static void go_on_replacing(void **slots, size_t count, struct chance *chance, unsigned milliseconds)
{
    for (unsigned waited = 0; waited < milliseconds; waited += 5) {
        for (int i = 0; i < 20; i++) {
            void **const slot = &slots[chance_below(chance, count)];
            fam_free(*slot);
            *slot = fam_malloc(150000 + chance_below(chance, 10000));
            CHECK(*slot != NULL, "malloc");
        }
        rest_ms(5);
    }
}

static void fill_and_free(void)
{
    struct load load;
    load_fill(&load, FILL / 2 / 400, 400);
    load_free(&load);
    for (int round = 0; round < 3; round++) {
        load_fill(&load, 3, 10 * MIB);
        load_free(&load);
    }
}

static void expect_steps(size_t before)
{
    fill_and_free();
    const size_t full = process_rss_kib();
    CHECK(full > before + 16 * KIB, "only %zu KiB after %zu", full, before);
    for (int tries = 0; process_rss_kib() > before + SLACK_KIB; tries++) {
        CHECK(tries < 30, "%zu KiB before, %zu with all in use, %zu now", before, full, process_rss_kib());
        CHECK(thread_count() == 1, "%zu threads", thread_count());
        go_on(100);
    }
}

static void expect_steps_beside_large_blocks(size_t before)
{
    static void *slots[64];
    struct chance chance = {13};
    struct load load;
    load_fill(&load, 400, 500000);
    load_free(&load);
    const size_t full = process_rss_kib();
    const size_t live = COUNT_OF(slots) * 160;
    CHECK(full > before + live + 24 * KIB, "only %zu KiB after %zu", full, before);
    for (int tries = 0; process_rss_kib() > before + live + SLACK_KIB; tries++) {
        CHECK(tries < 60, "%zu KiB before, %zu full, %zu now", before, full, process_rss_kib());
        CHECK(thread_count() == 1, "%zu threads", thread_count());
        go_on_replacing(slots, COUNT_OF(slots), &chance, 100);
    }
}

static void set_option(const char *name, const char *value)
{
    int (*set)(const char *, const char *) = NULL;
    *(void **)&set = dlsym(RTLD_DEFAULT, "mw_option_set");
    CHECK(set(name, value) == 0, "mw_option_set of %s", name);
}

// What mallopt says is to be kept is, until the option is set.
static void expect_kept_until_set(size_t before)
{
    CHECK(mallopt(M_TRIM_THRESHOLD, -1) == 1, "mallopt");
    fill_and_free();
    go_on(500);
    CHECK(process_rss_kib() > before + 16 * KIB && thread_count() == 1, "%zu KiB after %zu", process_rss_kib(), before);
    set_option("trim_threshold", "64M");
    fill_and_free();
    CHECK(wait_for_threads(2, 100), "%zu threads", thread_count());
    CHECK(wait_for_rss(before + SLACK_KIB, 4000), "%zu KiB before, %zu now", before, process_rss_kib());
}

// Pages inside slabs that are partly in use come back by the same steps; also what a thread has begun with that
// is no longer wanted.
static void expect_steps_in_slabs(bool late)
{
    struct chance chance = {11};
    struct load load;
    const size_t before = process_rss_kib();
    load_fill(&load, FILL / 900, 900);
    load_thin_out(&load, 20, &chance);
    if (late) {
        CHECK(wait_for_threads(2, 100), "%zu threads", thread_count());
        set_option("background", "0");
        CHECK(wait_for_threads(1, 1000), "%zu threads", thread_count());
    }
    const size_t full = process_rss_kib();
    for (int tries = 0; process_rss_kib() > before + FILL / KIB * 35 / 100; tries++) {
        CHECK(tries < 60, "%zu KiB before, %zu full, %zu now", before, full, process_rss_kib());
        CHECK(thread_count() == 1, "%zu threads", thread_count());
        go_on(100);
    }
    load_check(&load);
    load_free(&load);
}

// As by a service manager, before the program begins: nothing that the library sees.
static void refuse(long number)
{
    filter_call(number, SECCOMP_RET_ERRNO | EPERM, 0);
}

// What libc reads without a system call is the time as ever.
static void refuse_the_time_and(long number)
{
    struct timespec now;
    refuse(SYS_clock_gettime);
    refuse(number);
    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0) {
        SKIP_PROGRAM("the time takes a system call");
    }
}

// The thread ends at once: without a pause between its looks it would keep a processor busy.
static void refuse_to_wait(void)
{
    refuse(SYS_futex);
    fill_and_free();
    CHECK(wait_for_threads(1, 2000), "a thread that cannot wait");
}

int main(int count, char **arguments)
{
    const char *const why = count > 1 ? arguments[1] : "";
    struct load load;
    load_fill(&load, 1000, 400);
    load_free(&load);
    const size_t before = process_rss_kib() + FILL / KIB / 200;
    if (strcmp(why, "kept") == 0) {
        expect_kept_until_set(before);
        return 0;
    }
    if (strcmp(why, "off_crowded") == 0) {
        expect_steps_beside_large_blocks(before);
        return 0;
    }
    if (strcmp(why, "sandbox") == 0) {
        fill_and_free();
        CHECK(wait_for_threads(2, 100), "%zu threads", thread_count());
        CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "prctl");
        CHECK(thread_count() == 1, "a thread in a sandbox");
        CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1, "prctl has not passed it on");
        errno = 0;
        CHECK(prctl(-1, 0, 0, 0, 0) == -1 && errno == EINVAL, "prctl of nothing");
        go_on(2000);
    } else if (strcmp(why, "confined") == 0) {
        CHECK(thread_count() == 1, "a thread already");
        const struct rlimit limit = {512 * MIB, 512 * MIB};
        CHECK(setrlimit(RLIMIT_DATA, &limit) == 0, "setrlimit");
    } else if (strcmp(why, "failing") == 0) {
        atomic_store(&failures_left, 1000000);
    } else if (strcmp(why, "timeless") == 0 || strcmp(why, "numberless") == 0) {
        refuse_the_time_and(strcmp(why, "timeless") == 0 ? SYS_clock_gettime : SYS_getpid);
        fill_and_free();
        CHECK(wait_for_threads(1, 2000), "a thread that cannot know the time");
    } else if (strcmp(why, "restless") == 0) {
        refuse_to_wait();
    } else {
        CHECK(strcmp(why, "off") == 0 || strcmp(why, "storage") == 0 || strcmp(why, "late_off") == 0,
              "no such case");
    }
    if (strcmp(why, "late_off") == 0) {
        expect_steps_in_slabs(true);
    }
    expect_steps(before);
    expect_steps_in_slabs(false);
    if (strcmp(why, "failing") == 0) {
        CHECK(atomic_load(&failures) > 0, "none was asked for");
        CHECK(atomic_load(&failures) < 10, "asked %d times in vain", failures);
        atomic_store(&failures_left, 0);
        for (int tries = 0; thread_count() == 1; tries++) { // it is tried again, later
            CHECK(tries < 100, "no thread though it could be had");
            fill_and_free();
            go_on(100);
        }
    }
    return 0;
}
