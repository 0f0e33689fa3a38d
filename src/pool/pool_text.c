// SPDX-License-Identifier: MIT
// Pool text: a configuration as lines of text, without libc. The form is in mallow/pool.h.
//
// Holds    nothing is checked here that mw_pool_plan checks.
#include <mallow/pool.h>

#include "base/format.h"
#include "config.h"

#define POOL_VALUE_MAX 63 // bytes of a key or a value

// What is being read.
struct pool_text {
    struct mw_pool_config *config;
    struct mw_pool_class *classes;
    size_t limit;
    bool skipping; // in another section
    unsigned given; // bits of the keys that stand once at most
};

// A part of the text.
struct pool_slice {
    const char *at;
    size_t length;
};

static bool pool_is_blank(char character) {
    return character == ' ' || character == '\t' || character == '\r';
}

static struct pool_slice pool_trim(struct pool_slice slice) {
    while (slice.length > 0 && pool_is_blank(slice.at[0])) {
        slice.at++;
        slice.length--;
    }
    while (slice.length > 0 && pool_is_blank(slice.at[slice.length - 1])) {
        slice.length--;
    }
    return slice;
}

// The part before the first `stop`, taken off *rest with it; *found says whether there was one.
static struct pool_slice pool_cut(struct pool_slice *rest, char stop, bool *found) {
    size_t length = 0;
    while (length < rest->length && rest->at[length] != stop) {
        length++;
    }
    const struct pool_slice part = {rest->at, length};
    *found = length < rest->length;
    rest->at += length + *found;
    rest->length -= length + *found;
    return pool_trim(part);
}

// As a terminated text; false if it is too long, or has a 0 in it.
static bool pool_copy(struct pool_slice slice, char text[POOL_VALUE_MAX + 1]) {
    bool whole = slice.length <= POOL_VALUE_MAX;
    for (size_t i = 0; whole && i < slice.length; i++) {
        text[i] = slice.at[i];
        whole = text[i] != '\0';
    }
    text[whole ? slice.length : 0] = '\0';
    return whole;
}

static bool pool_read_size(struct pool_slice slice, size_t *value) {
    char text[POOL_VALUE_MAX + 1];
    uint64_t number = 0;
    if (!pool_copy(slice, text) || !format_parse_size(text, &number) || number > SIZE_MAX) {
        return false;
    }
    *value = (size_t)number;
    return true;
}

// Some editors put a mark of three bytes before a text in UTF-8.
static struct pool_slice pool_pass_mark(struct pool_slice slice) {
    static const unsigned char mark[] = {0xef, 0xbb, 0xbf};
    size_t same = 0;
    while (same < sizeof mark && same < slice.length &&
           (unsigned char)slice.at[same] == mark[same]) {
        same++;
    }
    const size_t passed = same == sizeof mark ? same : 0;
    return (struct pool_slice){slice.at + passed, slice.length - passed};
}

static bool pool_ends_with(struct pool_slice *slice, const char *end, size_t length) {
    if (slice->length < length) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        if (slice->at[slice->length - length + i] != end[i]) {
            return false;
        }
    }
    slice->length -= length;
    *slice = pool_trim(*slice);
    return true;
}

// "12.5", "12.5%" or "125000ppm". Shares above what all can be are read as that and more, so that
// they are rejected as such.
static bool pool_read_share(struct pool_slice slice, uint32_t *ppm) {
    const bool parts = pool_ends_with(&slice, "ppm", 3);
    (void)(parts || pool_ends_with(&slice, "%", 1));
    uint64_t value = 0;
    uint32_t unit = parts ? 1 : MW_POOL_WHOLE / 100;
    bool point = false, digit = false;
    for (size_t i = 0; i < slice.length; i++) {
        const char character = slice.at[i];
        if (character == '.' && !point && !parts) {
            point = true;
            continue;
        }
        if (character < '0' || character > '9' || (point && unit == 1)) {
            return false;
        }
        digit = true;
        unit = point ? unit / 10 : unit;
        value = (point ? value : value * 10) + (uint64_t)(character - '0') * unit;
        value = value > 10 * MW_POOL_WHOLE ? 10 * MW_POOL_WHOLE : value;
    }
    *ppm = (uint32_t)value;
    return digit;
}

// What stands once at most, with bits for what has been given: of a class, and of a configuration.
enum { POOL_GIVEN_SHARE = 1, POOL_GIVEN_ALIGNMENT = 2, POOL_GIVEN_COUNT = 4 };
enum { POOL_GIVEN_SIZE = 1, POOL_GIVEN_SWITCH = 2 }; // the first switch's; the others' follow

// Two values of one key are a mistake: neither is taken for the one that is meant.
static enum mw_pool_status pool_give_once(unsigned *given, unsigned bit) {
    const bool again = (*given & bit) != 0;
    *given |= bit;
    return again ? MW_POOL_TEXT_REPEATED : MW_POOL_OK;
}

static enum mw_pool_status pool_read_class(struct pool_text *text, struct pool_slice value) {
    struct mw_pool_class class = {0};
    unsigned given = 0;
    bool more = false;
    if (!pool_read_size(pool_cut(&value, ',', &more), &class.size_bytes)) {
        return MW_POOL_TEXT_NUMBER;
    }
    while (more) {
        struct pool_slice part = pool_cut(&value, ',', &more);
        bool named = false, valid = false;
        unsigned bit = POOL_GIVEN_SHARE;
        char key[POOL_VALUE_MAX + 1];
        const struct pool_slice head = pool_cut(&part, '=', &named);
        part = pool_trim(part);
        if (!named) {
            valid = pool_read_share(head, &class.share_ppm);
        } else if (pool_copy(head, key) && format_same(key, "align")) {
            bit = POOL_GIVEN_ALIGNMENT;
            valid = pool_read_size(part, &class.alignment_bytes);
        } else if (format_same(key, "count")) {
            bit = POOL_GIVEN_COUNT;
            valid = pool_read_size(part, &class.block_count);
        } else {
            return MW_POOL_TEXT_KEY;
        }
        const enum mw_pool_status status = pool_give_once(&given, bit);
        if (!valid || status != MW_POOL_OK) {
            return valid ? status : MW_POOL_TEXT_NUMBER;
        }
    }
    if (text->config->class_count == text->limit) {
        return MW_POOL_TOO_MANY_CLASSES;
    }
    text->classes[text->config->class_count++] = class;
    return MW_POOL_OK;
}

static enum mw_pool_status pool_read_preset(struct pool_text *text, const char *name) {
    const struct mw_pool_preset *const preset = mw_pool_preset_find(name);
    if (preset == NULL) {
        return MW_POOL_UNKNOWN_PRESET;
    }
    if (preset->class_count > text->limit - text->config->class_count) {
        return MW_POOL_TOO_MANY_CLASSES;
    }
    for (size_t i = 0; i < preset->class_count; i++) {
        text->classes[text->config->class_count++] = preset->classes[i];
    }
    return MW_POOL_OK;
}

// *bit receives what stands for it in pool_text.given.
static bool *pool_find_switch(struct mw_pool_config *config, const char *key, unsigned *bit) {
    bool *const switches[] = {&config->fallback, &config->prefault, &config->lock,
                              &config->remote, &config->check_owner};
    static const char *const names[] = {"fallback", "prefault", "lock", "remote", "check_owner"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (format_same(key, names[i])) {
            *bit = (unsigned)POOL_GIVEN_SWITCH << i;
            return switches[i];
        }
    }
    return NULL;
}

static enum mw_pool_status pool_read_switch(const char *value, bool *to) {
    static const char *const names[] = {"off", "on", "no", "yes", "false", "true", "0", "1"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (format_same_ignoring_case(value, names[i])) {
            *to = i % 2 != 0;
            return MW_POOL_OK;
        }
    }
    return MW_POOL_TEXT_SWITCH;
}

static enum mw_pool_status pool_read_line(struct pool_text *text, struct pool_slice line) {
    bool found = false;
    line = pool_trim(pool_cut(&line, '#', &found));
    if (line.length == 0 || line.at[0] == ';') {
        return MW_POOL_OK;
    }
    char key[POOL_VALUE_MAX + 1], word[POOL_VALUE_MAX + 1];
    if (line.at[0] == '[') {
        (void)pool_copy(line, key); // a longer name is another's
        text->skipping = !format_same(key, "[pool]") && !format_same(key, "[allocator]");
        return line.at[line.length - 1] == ']' ? MW_POOL_OK : MW_POOL_TEXT_SYNTAX;
    }
    if (text->skipping) {
        return MW_POOL_OK;
    }
    const struct pool_slice head = pool_cut(&line, '=', &found);
    const struct pool_slice value = pool_trim(line);
    if (!found || head.length == 0) {
        return MW_POOL_TEXT_SYNTAX;
    }
    if (!pool_copy(head, key)) {
        return MW_POOL_TEXT_KEY;
    }
    if (format_same(key, "class")) {
        return pool_read_class(text, value);
    }
    if (format_same(key, "pool_size")) {
        return pool_read_size(value, &text->config->pool_bytes)
                   ? pool_give_once(&text->given, POOL_GIVEN_SIZE)
                   : MW_POOL_TEXT_NUMBER;
    }
    (void)pool_copy(value, word);
    if (format_same(key, "preset")) {
        return pool_read_preset(text, word);
    }
    unsigned bit = 0;
    bool *const to = pool_find_switch(text->config, key, &bit);
    if (to == NULL) {
        return MW_POOL_TEXT_KEY;
    }
    const enum mw_pool_status status = pool_read_switch(word, to);
    return status == MW_POOL_OK ? pool_give_once(&text->given, bit) : status;
}

enum mw_pool_status mw_pool_config_parse(const char *text, size_t length,
                                         struct mw_pool_config *config,
                                         struct mw_pool_class *classes, size_t limit,
                                         struct mw_pool_text_error *error) {
    if ((text == NULL && length != 0) || config == NULL || classes == NULL) {
        return MW_POOL_NULL_ARGUMENT;
    }
    *config = (struct mw_pool_config){.classes = classes};
    struct pool_text state = {.config = config, .classes = classes, .limit = limit};
    struct pool_slice rest = pool_pass_mark((struct pool_slice){text, length});
    bool more = true;
    for (size_t line = 1; more; line++) {
        const enum mw_pool_status status = pool_read_line(&state, pool_cut(&rest, '\n', &more));
        if (error != NULL) {
            error->line = line;
        }
        if (status != MW_POOL_OK) {
            return status;
        }
    }
    bool shares = false;
    for (size_t i = 0; i < config->class_count; i++) {
        shares = shares || classes[i].share_ppm != 0;
    }
    return shares && config->pool_bytes == 0 ? MW_POOL_TEXT_NO_SIZE : MW_POOL_OK;
}
