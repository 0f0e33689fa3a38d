// SPDX-License-Identifier: MIT
// A small program that says what of it is resident: `anonymous <KiB>`, all of the process, and
// `library <KiB>`, file pages of libmallow.so.
#include <fcntl.h>
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

int main(void) {
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
