// SPDX-License-Identifier: MIT
// Format: see format.h.
#include "base/format.h"

#include "base/bits.h"

static void format_character(struct format *out, char character) {
    if (out->wanted + 1 < out->capacity) {
        out->text[out->wanted] = character;
        out->text[out->wanted + 1] = '\0';
    }
    out->wanted++;
}

MALLOW_INTERNAL void format_init(struct format *out, char *text, size_t capacity) {
    out->text = text;
    out->capacity = capacity;
    out->wanted = 0;
    if (capacity > 0) {
        text[0] = '\0';
    }
}

MALLOW_INTERNAL size_t format_length(const struct format *out) {
    return out->wanted < out->capacity ? out->wanted : out->capacity - (out->capacity != 0);
}

MALLOW_INTERNAL void format_text(struct format *out, const char *text) {
    while (*text != '\0') {
        format_character(out, *text++);
    }
}

MALLOW_INTERNAL void format_unsigned_wide(struct format *out, uint64_t value, unsigned width) {
    char digits[20];
    unsigned count = 0;
    do {
        digits[count++] = (char)('0' + (char)(value % 10));
        value /= 10;
    } while (value != 0);
    for (unsigned pad = count; pad < width; pad++) {
        format_character(out, ' ');
    }
    while (count > 0) {
        format_character(out, digits[--count]);
    }
}

MALLOW_INTERNAL void format_unsigned(struct format *out, uint64_t value) {
    format_unsigned_wide(out, value, 0);
}

MALLOW_INTERNAL void format_hex(struct format *out, uint64_t value) {
    static const char digits[] = "0123456789abcdef";
    format_text(out, "0x");
    int shift = value == 0 ? 0 : (int)(bits_highest(value) & ~3U);
    for (; shift >= 0; shift -= 4) {
        format_character(out, digits[(value >> shift) & 15U]);
    }
}

static const char format_units[] = "BKMGT";

MALLOW_INTERNAL void format_bytes(struct format *out, uint64_t value) {
    unsigned unit = 0;
    uint64_t tenths = 0;
    while (value >= 1024 && unit < 4) {
        tenths = (value & 1023U) * 10 / 1024;
        value >>= 10;
        unit++;
    }
    format_unsigned(out, value);
    if (tenths != 0) {
        format_character(out, '.');
        format_unsigned(out, tenths);
    }
    if (unit != 0) {
        format_character(out, format_units[unit]);
    }
}

MALLOW_INTERNAL void format_size(struct format *out, uint64_t value) {
    unsigned unit = 0;
    while (value != 0 && (value & 1023U) == 0 && unit < 4) {
        value >>= 10;
        unit++;
    }
    format_unsigned(out, value);
    if (unit != 0) {
        format_character(out, format_units[unit]);
    }
}

// Bytes of the character that begins here; 0 if it is none of UTF-8.
static unsigned format_utf8_bytes(const char *text) {
    const unsigned char first = (unsigned char)text[0];
    if (first < 0x80) {
        return 1;
    }
    unsigned least = 0x80; // of the second byte: what is longer than it need be is none,
    unsigned most = 0xbf;  // nor is half a pair of UTF-16, nor what is beyond U+10FFFF
    least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : least;
    most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : most;
    const unsigned char second = (unsigned char)text[1];
    if (first < 0xc2 || first > 0xf4 || second < least || second > most) {
        return 0;
    }
    const unsigned bytes = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    for (unsigned i = 2; i < bytes; i++) {
        if (((unsigned char)text[i] & 0xc0U) != 0x80) {
            return 0;
        }
    }
    return bytes;
}

MALLOW_INTERNAL void format_json_text(struct format *out, const char *text) {
    static const char digits[] = "0123456789abcdef";
    format_character(out, '"');
    for (; *text != '\0'; text++) {
        const unsigned char character = (unsigned char)*text;
        if (character == '"' || character == '\\') {
            format_character(out, '\\');
            format_character(out, *text);
        } else if (character < 0x20) {
            format_text(out, "\\u00");
            format_character(out, digits[character >> 4]);
            format_character(out, digits[character & 15U]);
        } else {
            // A file's name may be any bytes; JSON is UTF-8, and readers take nothing else.
            const unsigned bytes = format_utf8_bytes(text);
            if (bytes == 0) {
                format_text(out, "\\ufffd");
                continue;
            }
            for (unsigned i = 1; i < bytes; i++) {
                format_character(out, *text++);
            }
            format_character(out, *text);
        }
    }
    format_character(out, '"');
}

static char format_lower(char character) {
    return character >= 'A' && character <= 'Z' ? (char)(character - 'A' + 'a') : character;
}

MALLOW_INTERNAL bool format_same_ignoring_case(const char *a, const char *b) {
    while (*a != '\0' && format_lower(*a) == format_lower(*b)) {
        a++;
        b++;
    }
    return format_lower(*a) == format_lower(*b);
}

MALLOW_INTERNAL bool format_same(const char *a, const char *b) {
    while (*a != '\0' && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

MALLOW_INTERNAL bool format_parse_size(const char *text, uint64_t *value) {
    uint64_t number = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        const uint64_t digit = (uint64_t)(*at - '0');
        if (number > (UINT64_MAX - digit) / 10) {
            return false;
        }
        number = number * 10 + digit;
    }
    if (at == text) {
        return false;
    }
    static const char units[] = "kmgt";
    for (unsigned unit = 0; unit < 4; unit++) {
        if (format_lower(*at) != units[unit]) {
            continue;
        }
        const unsigned shift = 10 * (unit + 1);
        if (number > (UINT64_MAX >> shift)) {
            return false;
        }
        number <<= shift;
        at++;
        if (format_lower(at[0]) == 'i' && format_lower(at[1]) == 'b') {
            at++;
        }
        if (format_lower(*at) == 'b') {
            at++;
        }
        break;
    }
    *value = number;
    return *at == '\0';
}
