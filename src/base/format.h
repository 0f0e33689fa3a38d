// SPDX-License-Identifier: MIT
// Format: text into a buffer, without malloc, locale or stdio.
//
// Owns     nothing; the caller gives the memory.
// Holds    length <= capacity - 1, and the text is always terminated; what does not fit is counted
//          in `wanted` and left out.
#ifndef MALLOW_BASE_FORMAT_H
#define MALLOW_BASE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config.h"

struct format {
    char *text;      // the caller's buffer
    size_t capacity; // its bytes; 0 means: only count
    size_t wanted;   // length of the whole text so far
};

MALLOW_INTERNAL void format_init(struct format *out, char *text, size_t capacity);
// Of what is in the buffer, for who writes it out.
MALLOW_INTERNAL size_t format_length(const struct format *out);
MALLOW_INTERNAL void format_text(struct format *out, const char *text);
MALLOW_INTERNAL void format_unsigned(struct format *out, uint64_t value);
// Right-aligned in `width` columns.
MALLOW_INTERNAL void format_unsigned_wide(struct format *out, uint64_t value, unsigned width);
MALLOW_INTERNAL void format_hex(struct format *out, uint64_t value);
// 1536 -> "1.5K": at most one decimal, unit K, M, G or T.
MALLOW_INTERNAL void format_bytes(struct format *out, uint64_t value);
// The same without loss, as format_parse_size takes it: 1536 -> "1536", 2048 -> "2K".
MALLOW_INTERNAL void format_size(struct format *out, uint64_t value);
// Text as a JSON string, quotes included; bytes that are no UTF-8 become U+FFFD.
MALLOW_INTERNAL void format_json_text(struct format *out, const char *text);

// "64M", "1.5" is not taken: digits, then an optional K, M, G or T (either case, "iB" or "B" may
// follow). False on anything else, on overflow and on no digits.
MALLOW_INTERNAL bool format_parse_size(const char *text, uint64_t *value);

// Comparisons that do not need libc, for the time before it is ready.
MALLOW_INTERNAL bool format_same(const char *a, const char *b);
MALLOW_INTERNAL bool format_same_ignoring_case(const char *a, const char *b);

#endif
