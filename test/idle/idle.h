// SPDX-License-Identifier: MIT
// Idle tests: what they share: memory that is filled and freed, and waiting for something to become true
// without a call of the allocator's.
#ifndef TEST_IDLE_H
#define TEST_IDLE_H

#include "../support/family.h"
#include "../support/suite.h"

#include <pthread.h>

// Threads of this process, as the kernel counts them, without ThreadSanitizer's own.
static inline size_t thread_count(void)
{
#ifdef __SANITIZE_THREAD__
    const size_t foreign = 1;
#else
    const size_t foreign = 0;
#endif
    char text[4096];
    const int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0, "/proc/self/stat");
    const ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    CHECK(length > 0, "read");
    text[length] = '\0';
    const char *at = strrchr(text, ')');
    for (int field = 2; field < 20; field++) { // num_threads is the 20th
        at = strchr(at + 1, ' ');
    }
    const size_t count = strtoul(at + 1, NULL, 10);
    return count > foreign ? count - foreign : count; // TSan's is there from the first other one on
}

static inline uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static inline void rest_ms(uint64_t milliseconds)
{
    const uint64_t end = now_ms() + milliseconds;
    for (uint64_t now = now_ms(); now < end; now = now_ms()) {
        const struct timespec rest = {(time_t)((end - now) / 1000), (long)((end - now) % 1000) * 1000000};
        nanosleep(&rest, NULL);
    }
}

// Sanitizers and emulators are slow, and their own memory hides ours.
#ifdef TEST_SCALED
enum { PATIENCE = 8, RSS_IS_OURS = 0 };
#else
enum { PATIENCE = 1, RSS_IS_OURS = 1 };
#endif

// Time is counted in rests, not by the clock: a process that is stopped for a while, or kept waiting on
// a busy machine, has not been idle for as long.
enum { REST_MS = 20 };

// Waits until RSS is at most `kib`; false after `limit_ms`. No patience: where everything is slow, RSS
// is not ours and says nothing, and this is but time for the thread to do its work in.
static inline bool wait_for_rss(size_t kib, uint64_t limit_ms)
{
    for (uint64_t waited = 0; process_rss_kib() > kib; waited += REST_MS) {
        if (waited >= limit_ms) {
            return false;
        }
        rest_ms(REST_MS);
    }
    return true;
}

static inline bool wait_for_threads(size_t count, uint64_t limit_ms)
{
    for (uint64_t waited = 0; thread_count() != count; waited += REST_MS) {
        if (waited >= limit_ms * PATIENCE) {
            return false;
        }
        rest_ms(REST_MS);
    }
    return true;
}

// ---- Memory ------------------------------------------------------------------------------------------

// `count` touched blocks of `size` bytes, listed in memory that is not the allocator's.
struct load {
    unsigned char **blocks;
    size_t count;
    size_t size;
};

void load_fill(struct load *load, size_t count, size_t size);
void load_free(struct load *load); // all that is left of it
void load_check(const struct load *load);
// Frees all but one block in `keep`, at random.
void load_thin_out(struct load *load, size_t keep, struct chance *chance);

#endif
