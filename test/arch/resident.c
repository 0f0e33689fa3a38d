// SPDX-License-Identifier: MIT
// A small program that says what of it is resident: `anonymous <KiB>`, all of the process, and
// `library <KiB>`, file pages of libmallow.so. With an argument it has two threads before that.
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// The sum of the KiB of `field` over all mappings whose name has `name` in it.
static long resident(const char *field, const char *name, char *text) {
    long sum = 0;
    int counts = 0;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (strchr(line, '-') != NULL && strstr(line, "kB") == NULL) {
            counts = strstr(line, name) != NULL;
        } else if (counts && strncmp(line, field, strlen(field)) == 0) {
            sum += strtol(line + strlen(field), NULL, 10);
        }
    }
    return sum;
}

enum { BLOCKS_PER_THREAD = 2000 };
static void *handed[2][BLOCKS_PER_THREAD];
static pthread_barrier_t all_handed;

// Resizes and frees blocks of its own, frees those of the other thread, and ends.
static void *exchange(void *which) {
    void **mine = which == NULL ? handed[0] : handed[1];
    void **theirs = which == NULL ? handed[1] : handed[0];
    for (size_t i = 0; i < BLOCKS_PER_THREAD; i++) {
        free(malloc(32 + i % 512));
        mine[i] = realloc(malloc(16 + i % 64), 100 + i % 512);
    }
    pthread_barrier_wait(&all_handed);
    for (size_t i = 0; i < BLOCKS_PER_THREAD; i++) {
        free(theirs[i]);
        free(malloc(100 + i % 512));
    }
    return NULL;
}

static int run_threads(void) {
    pthread_t other;
    pthread_t another;
    if (pthread_barrier_init(&all_handed, NULL, 2) != 0 || pthread_create(&other, NULL, exchange, NULL) != 0
        || pthread_create(&another, NULL, exchange, handed) != 0) {
        return 1;
    }
    return pthread_join(other, NULL) + pthread_join(another, NULL);
}

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1 && run_threads() != 0) {
        return 1;
    }
    enum { TEXT_BYTES = 256 << 10 };
    static char text[TEXT_BYTES];
    static char copy[TEXT_BYTES];
    // What a small program does: a few blocks of a few sizes, one of them over and over, and a line.
    void *blocks[8];
    for (size_t i = 0; i < 8; i++) {
        blocks[i] = malloc(24 << i);
        memset(blocks[i], 1, 24);
    }
    for (unsigned i = 0; i < 1000; i++) {
        free(malloc(64));
    }
    puts("small");
    fflush(stdout);
    const int fd = open("/proc/self/smaps", O_RDONLY);
    size_t length = 0;
    for (ssize_t got; fd >= 0 && (got = read(fd, text + length, sizeof text - 1 - length)) > 0;) {
        length += (size_t)got;
    }
    memcpy(copy, text, length);
    const long anonymous = resident("Anonymous:", "", text);
    const long all = resident("Rss:", "libmallow", copy);
    printf("anonymous %ld\nlibrary %ld\n", anonymous, all);
    for (size_t i = 0; i < 8; i++) {
        free(blocks[i]);
    }
    return fd < 0;
}
