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
