// SPDX-License-Identifier: MIT
// Test support: what every test program needs and cmocka does not give.
//
// CHECK stops the whole program from any thread (cmocka's asserts may only fail in the main thread) and
// never allocates, because the allocator is what is being tested. The rest is a seeded generator,
// block contents that tell who wrote them, and figures of the process read without malloc.
#ifndef TEST_SUPPORT_CHECK_H
#define TEST_SUPPORT_CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
#define EXIT_SKIP 77
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define TEST_UNUSED __attribute__((unused))

// One line on stderr, then exit code 1. `__VA_ARGS__` is a printf format and its values.
#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            dprintf(2, "%s:%d: CHECK(%s) failed: ", __FILE__, __LINE__, #condition);               \
            dprintf(2, __VA_ARGS__);                                                               \
            dprintf(2, "\n");                                                                      \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

#define SKIP_PROGRAM(...)                                                                          \
    do {                                                                                           \
        dprintf(2, "skipped: " __VA_ARGS__);                                                       \
        dprintf(2, "\n");                                                                          \
        _exit(EXIT_SKIP);                                                                          \
    } while (0)

// ---- Chance: splitmix64, one word of state ------------------------------------------------------

struct chance {
    uint64_t state;
};

static inline uint64_t chance_next(struct chance *chance)
{
    uint64_t word = (chance->state += UINT64_C(0x9e3779b97f4a7c15));
    word = (word ^ (word >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    word = (word ^ (word >> 27)) * UINT64_C(0x94d049bb133111eb);
    return word ^ (word >> 31);
}

static inline size_t chance_below(struct chance *chance, size_t limit)
{
    return (size_t)(chance_next(chance) % limit);
}

// Sizes as programs ask for them: mostly small, sometimes large, seldom huge.
static inline size_t chance_size(struct chance *chance)
{
    const size_t kind = chance_below(chance, 1000);
    if (kind < 850) {
        return chance_below(chance, 512);
    }
    if (kind < 980) {
        return chance_below(chance, 8 * KIB);
    }
    if (kind < 997) {
        return chance_below(chance, 256 * KIB);
    }
    return chance_below(chance, 3 * MIB);
}

// TEST_SEED in the environment, else the clock; printed so that a failing run can be repeated.
static inline uint64_t chance_seed(void)
{
    const char *const text = getenv("TEST_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t seed =
        text != NULL ? strtoull(text, NULL, 0) : (uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 20;
    dprintf(2, "TEST_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

// ---- Contents: each block carries a tag from its first byte to its last -------------------------

static inline unsigned char tag_byte(uint64_t tag, size_t offset)
{
    return (unsigned char)((tag + offset) * 167 + (tag >> 8) + (offset >> 8));
}

// Large blocks are written at their ends and once in each 1,021 bytes between.
static inline size_t tag_step(size_t size, size_t offset)
{
    return size > 16 * KIB && offset >= 64 && offset + 1100 < size ? 1021 : 1;
}

static inline void tag_fill(void *block, size_t size, uint64_t tag)
{
    unsigned char *const bytes = block;
    for (size_t i = 0; i < size; i += tag_step(size, i)) {
        bytes[i] = tag_byte(tag, i);
    }
}

// Index of the first wrong byte, or `size` if all are right.
static inline size_t tag_wrong(const void *block, size_t size, uint64_t tag)
{
    const unsigned char *const bytes = block;
    for (size_t i = 0; i < size; i += tag_step(size, i)) {
        if (bytes[i] != tag_byte(tag, i)) {
            return i;
        }
    }
    return size;
}

static inline size_t nonzero_at(const void *block, size_t size)
{
    const unsigned char *const bytes = block;
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != 0) {
            return i;
        }
    }
    return size;
}

// ---- The process --------------------------------------------------------------------------------

// All of a file under /proc, ended by a zero byte; false: it cannot be opened.
static inline bool read_whole(const char *path, char *text, size_t capacity)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    size_t length = 0;
    ssize_t got;
    while ((got = read(fd, text + length, capacity - 1 - length)) > 0) {
        length += (size_t)got;
    }
    close(fd);
    text[length] = '\0';
    return true;
}

// A row of /proc/self/status in KiB (VmRSS, VmHWM, VmSize), read into the stack; 0 if unreadable.
static inline size_t process_status_kib(const char *row)
{
    char text[8192];
    const int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    size_t length = 0;
    ssize_t got;
    while (length < sizeof text - 1 && (got = read(fd, text + length, sizeof text - 1 - length)) > 0) {
        length += (size_t)got;
    }
    close(fd);
    text[length] = '\0';
    const char *const found = strstr(text, row);
    return found == NULL ? 0 : (size_t)strtoull(found + strlen(row) + 1, NULL, 10);
}

// Exact resident size: /proc/self/status lags by up to 64 pages a CPU, smaps_rollup counts.
static inline size_t process_rollup_kib(const char *name, const char *name_in_status)
{
    char text[2048];
    const int fd = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return process_status_kib(name_in_status);
    }
    const ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    text[got > 0 ? got : 0] = '\0';
    const char *const found = strstr(text, name);
    return found == NULL ? process_status_kib(name_in_status) : (size_t)strtoull(found + strlen(name), NULL, 10);
}

static inline size_t process_rss_kib(void)
{
    return process_rollup_kib("\nRss:", "VmRSS");
}

// Without pages of files: how many of those come in around a fault is chance.
static inline size_t process_anonymous_kib(void)
{
    return process_rollup_kib("\nAnonymous:", "RssAnon");
}

static inline uint64_t now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static inline long minor_faults(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

// Instrumented and emulated builds (TEST_SCALED) are slow and fat: workloads shrink, figures are not
// judged.
#ifdef TEST_SCALED
#define SCALED(count) ((count) / 20 + 1)
#define FIGURES_COUNT false
#else
#define SCALED(count) (count)
#define FIGURES_COUNT true
#endif

#endif
