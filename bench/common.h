// SPDX-License-Identifier: MIT
// What every benchmark program shares: options, clocks, memory figures, random numbers, threads,
// checked allocation. Header only; C17 and C++17; libc and pthreads, nothing else.
//
// Owns     nothing: every function is static inline and keeps its state in its arguments.
// Holds    none of these functions allocates, so that they do not disturb what is measured;
//          an allocation that fails or a block whose stamp is gone ends the program with status 1.

#ifndef MALLOW_BENCH_COMMON_H
#define MALLOW_BENCH_COMMON_H

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define BENCH_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define BENCH_THREADS_MAX  4096

#define BENCH_KIB (UINT64_C(1) << 10)
#define BENCH_MIB (UINT64_C(1) << 20)
#define BENCH_GIB (UINT64_C(1) << 30)

__attribute__((format(printf, 1, 2), noreturn, unused)) static void bench_fail(const char *format,
                                                                               ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("bench: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

// The compiler must assume that the memory behind `pointer` is read and written here.
static inline void bench_escape(const void *pointer) {
    __asm__ volatile("" : : "r"(pointer) : "memory");
}

// ---- options: `name=value`, or bare values in the order of the table; suffixes k, m, g ----------

struct bench_option {
    const char *name;
    uint64_t *value; // holds the default before the call
    const char *help;
};

static inline uint64_t bench_unit(char suffix) {
    switch (suffix) {
    case 'k':
        return 1000;
    case 'm':
        return 1000000;
    case 'g':
        return 1000000000;
    case 'K':
        return BENCH_KIB;
    case 'M':
        return BENCH_MIB;
    case 'G':
        return BENCH_GIB;
    default:
        return 0;
    }
}

// No sign: strtoull would take -5 for 2^64 - 5.
static inline uint64_t bench_number(const char *text) {
    char *end = NULL;
    errno = 0;
    uint64_t value = strtoull(text, &end, 0);
    if (text[0] < '0' || text[0] > '9' || errno == ERANGE) {
        bench_fail("not a number: %s", text);
    }
    const uint64_t unit = bench_unit(*end);
    if (unit != 0) {
        if (value > UINT64_MAX / unit) {
            bench_fail("not a number: %s", text);
        }
        value *= unit;
        end++;
    }
    if (*end != '\0') {
        bench_fail("trailing text in a number: %s", text);
    }
    return value;
}

static inline void bench_usage(const char *program, const struct bench_option *table,
                               size_t count) {
    printf("usage: %s [name=value | value]...   (k m g: powers of 1000; K M G: of 1024)\n",
           program);
    for (size_t i = 0; i < count; i++) {
        printf("  %-12s %-12" PRIu64 " %s\n", table[i].name, *table[i].value, table[i].help);
    }
    exit(0);
}

static inline void bench_options(int argc, char **argv, const struct bench_option *table,
                                 size_t count) {
    size_t position = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            bench_usage(argv[0], table, count);
        }
        const char *equals = strchr(argv[i], '=');
        if (equals == NULL) {
            if (position >= count) {
                bench_fail("too many arguments; see %s --help", argv[0]);
            }
            *table[position++].value = bench_number(argv[i]);
            continue;
        }
        size_t at = 0;
        const size_t length = (size_t)(equals - argv[i]);
        while (at < count &&
               (strncmp(table[at].name, argv[i], length) != 0 || table[at].name[length] != '\0')) {
            at++;
        }
        if (at == count) {
            bench_fail("unknown option %s; see %s --help", argv[i], argv[0]);
        }
        *table[at].value = bench_number(equals + 1);
    }
}

#define BENCH_OPTIONS(argc, argv, table) bench_options(argc, argv, table, BENCH_COUNT(table))

// ---- clocks -------------------------------------------------------------------------------------

static inline uint64_t bench_clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t bench_now_ns(void) {
    return bench_clock_ns(CLOCK_MONOTONIC);
}

// CPU time, user and system, of all threads of this process.
static inline uint64_t bench_cpu_ns(void) {
    return bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

static inline void bench_sleep_ms(uint64_t ms) {
    struct timespec rest = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    while (nanosleep(&rest, &rest) != 0 && errno == EINTR) {
    }
}

// ---- memory figures, read without allocating ----------------------------------------------------

static inline ssize_t bench_read_file(const char *path, char *buffer, size_t size) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return -1;
    }
    size_t length = 0;
    ssize_t got = 0;
    while (length + 1 < size && (got = read(file, buffer + length, size - 1 - length)) > 0) {
        length += (size_t)got;
    }
    close(file);
    buffer[length] = '\0';
    return (ssize_t)length;
}

// Value of a `Name:  123 kB` line of /proc/self/status in bytes; 0 when there is none.
static inline uint64_t bench_status_bytes(const char *name) {
    char text[8192];
    if (bench_read_file("/proc/self/status", text, sizeof text) <= 0) {
        return 0;
    }
    const char *line = strstr(text, name);
    return line == NULL ? 0 : strtoull(line + strlen(name), NULL, 10) * BENCH_KIB;
}

static inline uint64_t bench_rss_bytes(void) {
    return bench_status_bytes("\nVmRSS:");
}
static inline uint64_t bench_mapped_bytes(void) {
    return bench_status_bytes("\nVmSize:");
}

static inline uint64_t bench_peak_rss_bytes(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_maxrss * BENCH_KIB;
}

static inline double bench_mb(uint64_t bytes) {
    return (double)bytes / (double)BENCH_MIB;
}

// ---- random numbers: splitmix64 (Steele, Lea, Flood 2014); any seed, equal everywhere -----------

static inline uint64_t bench_random(uint64_t *state) {
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

// Uniform in [0, limit); the bias of the multiply-shift is below 2^-32 for the limits used here.
static inline uint64_t bench_below(uint64_t *state, uint64_t limit) {
    return ((bench_random(state) >> 32) * limit) >> 32;
}

static inline uint64_t bench_between(uint64_t *state, uint64_t low, uint64_t high) {
    return low + bench_below(state, high - low + 1);
}

// ---- checked allocation -------------------------------------------------------------------------

static inline void *bench_need(void *block, size_t size) {
    if (block == NULL) {
        bench_fail("an allocation of %zu bytes failed", size);
    }
    return block;
}

static inline void *bench_malloc(size_t size) {
    return bench_need(malloc(size), size);
}
static inline void *bench_calloc(size_t n, size_t size) {
    return bench_need(calloc(n, size), size);
}

static inline void *bench_realloc(void *block, size_t size) {
    return bench_need(realloc(block, size), size);
}

// First and last byte of a block carry a tag made of its address and size.
static inline unsigned char bench_tag(const void *block, size_t size) {
    return (unsigned char)(((uintptr_t)block >> 4) * 31 + size * 7 + 1);
}

static inline void bench_stamp(void *block, size_t size) {
    unsigned char *const bytes = (unsigned char *)block;
    if (size > 0) {
        bytes[0] = bytes[size - 1] = bench_tag(block, size);
    }
}

static inline void bench_check(const void *block, size_t size) {
    const unsigned char *const bytes = (const unsigned char *)block;
    const unsigned char tag = bench_tag(block, size);
    if (size > 0 && (bytes[0] != tag || bytes[size - 1] != tag)) {
        bench_fail("the block of %zu bytes at %p was overwritten", size, block);
    }
}

// ---- threads ------------------------------------------------------------------------------------

static inline pthread_t bench_thread(void *(*body)(void *), void *argument) {
    pthread_t thread;
    const int error = pthread_create(&thread, NULL, body, argument);
    if (error != 0) {
        bench_fail("pthread_create: %s", strerror(error));
    }
    return thread;
}

// Runs body(&items[i]) in one thread each and waits for all.
static inline void bench_parallel(void *(*body)(void *), void *items, size_t item_size,
                                  size_t count) {
    static pthread_t threads[BENCH_THREADS_MAX];
    if (count > BENCH_THREADS_MAX) {
        bench_fail("at most %d threads", BENCH_THREADS_MAX);
    }
    for (size_t i = 0; i < count; i++) {
        threads[i] = bench_thread(body, (char *)items + i * item_size);
    }
    for (size_t i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
    }
}

// ---- results ------------------------------------------------------------------------------------

// One of several figures; `mallow-bench classics` reads these lines.
static inline void bench_figure(const char *name, double value, const char *unit) {
    printf("figure %-24s %14.6g %s\n", name, value, unit);
}

static inline void bench_score(double value, const char *unit) {
    printf("score %.6g %s\n", value, unit);
    fflush(stdout);
}

#endif
