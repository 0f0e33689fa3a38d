// SPDX-License-Identifier: MIT
// Start-up and memory, in processes of their own.

#include "process.h"

#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

static void send_all(int file, const void *data, size_t size) {
    const char *bytes = data;
    while (size > 0) {
        const ssize_t sent = write(file, bytes, size);
        if (sent <= 0) {
            bench_fail("a child's result could not be sent: %s", strerror(errno));
        }
        bytes += sent;
        size -= (size_t)sent;
    }
}

// ---- in the child -------------------------------------------------------------------------------

static void child_startup(uint64_t main_ns, uint64_t spawned_ns, int file) {
    const uint64_t before = bench_now_ns();
    void *const first = bench_malloc(PROCESS_FILL_BYTES);
    const uint64_t after = bench_now_ns();
    bench_stamp(first, PROCESS_FILL_BYTES);
    struct timer timer;
    timer_calibrate(&timer);
    struct startup_result *const result = latency_map(sizeof *result);
    struct recorder *const recorder = latency_map(sizeof *recorder);
    recorder->overhead = timer.overhead;
    result->ready_ns = main_ns - spawned_ns;
    result->first_ns = after - before;
    const struct subject *const subject = subject_get(SUBJECT_MALLOC);
    const uint64_t start = bench_now_ns();
    for (size_t i = 0; i < PROCESS_FILL_BLOCKS; i++) {
        *(unsigned char *)mode_allocate(subject, PROCESS_FILL_BYTES, recorder) = 1;
    }
    result->fill_ns = bench_now_ns() - start;
    result->calls = recorder->series[SERIES_MALLOC].window;
    send_all(file, result, sizeof *result);
}

static void child_memory(size_t size, uint64_t bytes, int file) {
    const size_t count = bytes / size;
    void **const blocks = latency_map(count * sizeof(void *));
    struct memory_result result = {.asked_bytes = count * size};
    const uint64_t before = bench_rss_bytes();
    for (size_t i = 0; i < count; i++) {
        blocks[i] = bench_malloc(size);
        memset(blocks[i], 1, size);
    }
    const uint64_t full = bench_rss_bytes();
    uint64_t seed = 1;
    for (size_t left = count; left > 0; left--) {
        const size_t at = bench_below(&seed, left);
        free(blocks[at]);
        blocks[at] = blocks[left - 1];
    }
    const uint64_t after = bench_rss_bytes();
    result.live_bytes = full > before ? full - before : 0;
    result.kept_bytes = after > before ? after - before : 0;
    send_all(file, &result, sizeof result);
}

// child=startup FILE SPAWNED | child=memory FILE SIZE BYTES
void process_child_if_asked(int argc, char **argv) {
    const uint64_t main_ns = bench_now_ns();
    if (argc == 4 && strcmp(argv[1], "child=startup") == 0) {
        child_startup(main_ns, bench_number(argv[3]), (int)bench_number(argv[2]));
        _exit(0);
    }
    if (argc == 5 && strcmp(argv[1], "child=memory") == 0) {
        child_memory(bench_number(argv[3]), bench_number(argv[4]), (int)bench_number(argv[2]));
        _exit(0);
    }
}

// ---- in the parent ------------------------------------------------------------------------------

static void receive_all(int file, void *data, size_t size, const char *what) {
    char *bytes = data;
    while (size > 0) {
        const ssize_t got = read(file, bytes, size);
        if (got <= 0) {
            bench_fail("the process of mode %s ended without a result", what);
        }
        bytes += got;
        size -= (size_t)got;
    }
}

// Runs the child whose arguments follow `child=...` and the file; NULL where there is none.
static void run_child(char *what, char *third, char *fourth, void *result, size_t size) {
    int ends[2];
    char file[16];
    if (pipe(ends) != 0) {
        bench_fail("pipe: %s", strerror(errno));
    }
    snprintf(file, sizeof file, "%d", ends[1]);
    char program[] = "/proc/self/exe";
    char *arguments[] = {program, what, file, third, fourth, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    pid_t child = 0;
    const int error = posix_spawn(&child, program, &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (error != 0) {
        bench_fail("cannot run itself again: %s", strerror(error));
    }
    receive_all(ends[0], result, size, what);
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) {
        bench_fail("%s: wait status %d", what, status);
    }
}

void process_startup(struct startup_result *result) {
    char what[] = "child=startup";
    char now[32];
    snprintf(now, sizeof now, "%" PRIu64, bench_now_ns());
    run_child(what, now, NULL, result, sizeof *result);
}

void process_memory(struct memory_result *result, size_t size, uint64_t bytes) {
    char what[] = "child=memory";
    char sizes[2][32];
    snprintf(sizes[0], sizeof sizes[0], "%zu", size);
    snprintf(sizes[1], sizeof sizes[1], "%" PRIu64, bytes);
    run_child(what, sizes[0], sizes[1], result, sizeof *result);
}
