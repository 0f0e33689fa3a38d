// SPDX-License-Identifier: MIT
// Files, read line by line without libc: for the few that describe the machine.
//
// Owns     nothing; the reader is the caller's.
// Threads  any, each with its own reader.
// Holds    no call touches errno or allocates. These calls open and read: a sandbox that allows
//          memory calls alone does not see them unless an option asks for what is in the files.
#ifndef MALLOW_OS_OS_FILE_H
#define MALLOW_OS_OS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config.h"

enum { OS_PATH_BYTES = 512, OS_LINE_BYTES = 768 };

struct os_reader {
    int fd;
    size_t at;
    size_t length;
    char bytes[1024];
};

// Opens for reading; false if that fails. A reader that was opened must be closed.
MALLOW_INTERNAL bool os_reader_open(struct os_reader *reader, const char *path);
MALLOW_INTERNAL void os_reader_close(struct os_reader *reader);

// The next line without its end; what does not fit `line` (OS_LINE_BYTES) is passed over. False at
// the end of the file.
MALLOW_INTERNAL bool os_reader_line(struct os_reader *reader, char *line);

// The first line of a file; false if there is none.
MALLOW_INTERNAL bool os_read_first_line(const char *path, char *line);

// The decimal number at `*text`, which is moved behind it; false (nothing moved) if there is none,
// UINT64_MAX if it is larger than that.
MALLOW_INTERNAL bool os_take_number(const char **text, uint64_t *value);

#endif
