// SPDX-License-Identifier: MIT
// A misuse ends the program by SIGABRT whatever becomes of the line on stderr: nobody reads the pipe any
// more, the file may not grow, the disk is full, there is no stderr, or the thread has none. And so does a signal handler that
// allocates and has interrupted malloc, where SIGABRT has a handler that allocates too: with a line or two.
#include "../support/filter.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

enum { HANG_SECONDS = 60 };

static void misuse(void)
{
    void *block = malloc(100);
    free(block);
    __asm__ volatile("" : "+r"(block));
    free(block);
    _exit(3);
}

static void to_a_pipe_without_a_reader(void)
{
    int ends[2];
    CHECK(pipe(ends) == 0, "pipe");
    close(ends[0]);
    dup2(ends[1], 2);
    misuse();
}

static void to_a_file_that_may_not_grow(void)
{
    static const struct rlimit none = {0, 0};
    char name[] = "/tmp/mallow-last-line-XXXXXX";
    const int file = mkstemp(name);
    CHECK(file >= 0, "mkstemp");
    unlink(name);
    dup2(file, 2);
    CHECK(setrlimit(RLIMIT_FSIZE, &none) == 0, "setrlimit");
    misuse();
}

static void to_a_full_disk(void)
{
    dup2(open("/dev/full", O_WRONLY), 2);
    misuse();
}

static void to_nobody(void)
{
    close(2);
    misuse();
}

static void *misuse_without_descriptors(void *unused)
{
    enum { CLOSE_RANGE = 436, UNSHARE = 2 };
    (void)unused;
    const uint64_t all = UINT64_MAX; // libc's function leaves some out
    CHECK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, NULL, sizeof all) == 0, "signals");
    if (syscall(CLOSE_RANGE, 0, UINT32_MAX, UNSHARE) != 0) {
        _exit(EXIT_SKIP); // before Linux 5.9
    }
    misuse();
    return NULL;
}

// As our thread is one.
static void in_a_thread_without_descriptors(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, misuse_without_descriptors, NULL) == 0, "pthread_create");
    pthread_join(thread, NULL);
    _exit(3);
}

static void use_memory(int number)
{
    static void *blocks[200];
    (void)number;
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        blocks[i] = malloc(60000);
    }
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        free(blocks[i]);
    }
}

// Every mmap from now on is interrupted by a signal: malloc's, with its lock held.
static void deadlock_twice(void)
{
    signal(SIGABRT, use_memory);
    signal(SIGSYS, use_memory);
    filter_call(SYS_mmap, SECCOMP_RET_TRAP, 0);
    for (size_t i = 0; i < 100000; i++) {
        void *volatile block = malloc(60000);
        (void)block;
    }
    _exit(3);
}

static int end_of(void (*act)(void), int stderr_instead)
{
    const pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        alarm(HANG_SECONDS);
        if (stderr_instead >= 0) {
            dup2(stderr_instead, 2);
        }
        act();
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child, "waitpid");
    return status;
}

static void expect_abort(const char *name, void (*act)(void))
{
    const int status = end_of(act, -1);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "%s: status %#x", name, (unsigned)status);
}

static void expect_lines(const char *name, void (*act)(void), int lines_max)
{
    char text[4096] = "";
    char path[] = "/tmp/mallow-last-line-XXXXXX";
    const int file = mkstemp(path);
    CHECK(file >= 0, "mkstemp");
    unlink(path);
    const int status = end_of(act, file);
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIP) {
        return;
    }
    const ssize_t length = pread(file, text, sizeof text - 1, 0);
    int lines = 0;
    for (ssize_t i = 0; i < length; i++) {
        lines += text[i] == '\n';
    }
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && lines >= 1 && lines <= lines_max,
          "%s: status %#x, %d lines: %.200s", name, (unsigned)status, lines, text);
    close(file);
}

int main(void)
{
    expect_abort("a pipe without a reader", to_a_pipe_without_a_reader);
    expect_abort("a file that may not grow", to_a_file_that_may_not_grow);
    expect_abort("a full disk", to_a_full_disk);
    expect_abort("no stderr", to_nobody);
    expect_lines("a thread without descriptors", in_a_thread_without_descriptors, 1);
    expect_lines("a deadlock", deadlock_twice, 2);
    return 0;
}
