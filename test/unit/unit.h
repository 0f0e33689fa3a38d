// SPDX-License-Identifier: MIT
// Unit tests: what every program of test/unit includes: cmocka in the order that it needs, the
// form of a case, chance from a printed seed, and a check that something stops the program.
#ifndef MALLOW_TEST_UNIT_H
#define MALLOW_TEST_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CASE(name) static void name(void **unit_state __attribute__((unused)))

// ---- Chance: splitmix64; TEST_SEED=<seed> repeats a run -----------------------------------------

struct unit_chance {
    uint64_t state;
};

static inline uint64_t unit_next(struct unit_chance *chance) {
    uint64_t mixed = chance->state += UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ (mixed >> 31);
}

static inline unsigned unit_below(struct unit_chance *chance, unsigned bound) {
    return (unsigned)(unit_next(chance) % bound);
}

static inline struct unit_chance unit_chance_begin(void) {
    const char *const text = getenv("TEST_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t seed = text != NULL ? strtoull(text, NULL, 0)
                                       : (uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 20;
    fprintf(stderr, "TEST_SEED=%llu\n", (unsigned long long)seed);
    return (struct unit_chance){seed};
}

// ---- Memory -------------------------------------------------------------------------------------

static inline bool unit_is_all(const void *memory, unsigned char byte, size_t bytes) {
    const unsigned char *const at = (const unsigned char *)memory;
    return bytes == 0 || (at[0] == byte && memcmp(at, at + 1, bytes - 1) == 0);
}

// ---- Death --------------------------------------------------------------------------------------

// Runs `run` in a child: true iff it is stopped by abort() with `words` in what it says on stderr.
static inline bool unit_dies(void (*run)(void *), void *argument, const char *words) {
    int ends[2];
    if (pipe(ends) != 0) {
        return false;
    }
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        signal(SIGILL, SIG_DFL);
        signal(SIGSEGV, SIG_DFL);
        dup2(ends[1], 2);
        run(argument);
        _exit(0);
    }
    close(ends[1]);
    char text[1024];
    size_t length = 0;
    ssize_t got;
    while (length < sizeof text - 1 &&
           (got = read(ends[0], text + length, sizeof text - 1 - length)) > 0) {
        length += (size_t)got;
    }
    text[length] = '\0';
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    const bool dies = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
    if (!dies || strstr(text, words) == NULL) {
        fprintf(stderr, "expected a stop with `%s`; status %x, text: %s\n", words,
                (unsigned)status, text);
        return false;
    }
    return true;
}

#endif
