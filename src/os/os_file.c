// SPDX-License-Identifier: MIT
// Files: see os_file.h.
#include "os/os_file.h"

#include <errno.h>
#include <fcntl.h>

#include "os/os_syscall.h"

MALLOW_INTERNAL bool os_reader_open(struct os_reader *reader, const char *path) {
    const long fd =
        os_syscall6(SYS_openat, AT_FDCWD, (long)(uintptr_t)path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
    reader->fd = (int)fd;
    reader->at = 0;
    reader->length = 0;
    return fd >= 0;
}

MALLOW_INTERNAL void os_reader_close(struct os_reader *reader) {
    (void)os_syscall6(SYS_close, reader->fd, 0, 0, 0, 0, 0);
}

static bool reader_fill(struct os_reader *reader) {
    long length;
    do {
        length = os_syscall6(SYS_read, reader->fd, (long)(uintptr_t)reader->bytes,
                             (long)sizeof reader->bytes, 0, 0, 0);
    } while (length == -EINTR);
    reader->at = 0;
    reader->length = length > 0 ? (size_t)length : 0;
    return length > 0;
}

MALLOW_INTERNAL bool os_reader_line(struct os_reader *reader, char *line) {
    size_t length = 0;
    bool any = false;
    for (;;) {
        if (reader->at == reader->length && !reader_fill(reader)) {
            break;
        }
        const char byte = reader->bytes[reader->at++];
        any = true;
        if (byte == '\n') {
            break;
        }
        if (length + 1 < OS_LINE_BYTES) {
            line[length++] = byte;
        }
    }
    line[length] = '\0';
    return any;
}

MALLOW_INTERNAL bool os_read_first_line(const char *path, char *line) {
    struct os_reader reader;
    if (!os_reader_open(&reader, path)) {
        return false;
    }
    const bool found = os_reader_line(&reader, line);
    os_reader_close(&reader);
    return found;
}

MALLOW_INTERNAL bool os_take_number(const char **text, uint64_t *value) {
    const char *at = *text;
    uint64_t number = 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        const uint64_t digit = (uint64_t)(*at - '0');
        number = number > (UINT64_MAX - digit) / 10 ? UINT64_MAX : number * 10 + digit;
    }
    if (at == *text) {
        return false;
    }
    *text = at;
    *value = number;
    return true;
}
