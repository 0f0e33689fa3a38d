// SPDX-License-Identifier: MIT
// Options: see process_options.h.
#include "process/process_options.h"

#include <assert.h>
#include <errno.h>

#include "base/format.h"
#include "os/os.h"

static const char option_prefix[] = "MALLOW_";

enum { OPTION_SHOWN_BYTES = 200 }; // of a bad value, in the line that names it

// The name of the environment's variable: the option's in capitals. `name` is filled up with zeros,
// so that it has a character at each of these places.
#define OPTION_CAPITAL(name, i) ((name)[i] >= 'a' ? (char)((name)[i] - 'a' + 'A') : (name)[i])
#define OPTION_CAPITALS(name, i)                                                                   \
    OPTION_CAPITAL(name, i), OPTION_CAPITAL(name, (i) + 1), OPTION_CAPITAL(name, (i) + 2),         \
        OPTION_CAPITAL(name, (i) + 3)
#define OPTION_ENVIRONMENT(name)                                                                   \
    {'M', 'A', 'L', 'L', 'O', 'W', '_', OPTION_CAPITALS(name, 0), OPTION_CAPITALS(name, 4),        \
     OPTION_CAPITALS(name, 8), OPTION_CAPITALS(name, 12), OPTION_CAPITALS(name, 16)}
#define OPTION_ZEROS "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"

static const struct process_option_row option_rows[] = {
#define MALLOW_OPTION(name, type, default_text, unit, settable, help)                              \
    {#name, OPTION_ENVIRONMENT(#name OPTION_ZEROS), OPTION_##type, default_text, unit,             \
     OPTION_##settable, help},
#include "options.def"
#undef MALLOW_OPTION
};

#define MALLOW_OPTION(name, type, default_text, unit, settable, help)                              \
    static_assert(sizeof "MALLOW_" #name < PROCESS_OPTION_NAME_BYTES, "room for its capitals");
#include "options.def"
#undef MALLOW_OPTION

// The place of each option's text; 0, and not used, for those that are numbers.
static const uint8_t option_text_places[] = {
#define PROCESS_TEXT_OF_SWITCH(name) 0
#define PROCESS_TEXT_OF_SIZE(name) 0
#define PROCESS_TEXT_OF_LIMIT(name) 0
#define PROCESS_TEXT_OF_PERCENT(name) 0
#define PROCESS_TEXT_OF_TEXT(name) PROCESS_TEXT_##name
#define MALLOW_OPTION(name, type, default_text, unit, settable, help) PROCESS_TEXT_OF_##type(name),
#include "options.def"
#undef MALLOW_OPTION
};

MALLOW_INTERNAL const struct process_option_row *process_options_row(unsigned index) {
    return index < PROCESS_OPTION_COUNT ? &option_rows[index] : NULL;
}

static bool option_parse_switch(const char *text, uint64_t *value) {
    static const char *const words[] = {"0", "off", "no", "false", "1", "on", "yes", "true"};
    for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (format_same_ignoring_case(text, words[i])) {
            *value = i >= 4;
            return true;
        }
    }
    return false;
}

// 0 to 100; `sign_wanted`: only with a % behind it.
static bool option_parse_percent(const char *text, bool sign_wanted, uint64_t *value) {
    uint64_t percent = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9' && percent <= 100; at++) {
        percent = percent * 10 + (uint64_t)(*at - '0');
    }
    const bool has_sign = *at == '%';
    if (at == text || percent > 100 || at[has_sign] != '\0' || (sign_wanted && !has_sign)) {
        return false;
    }
    *value = percent;
    return true;
}

static bool option_parse_limit(const char *text, uint64_t *value) {
    uint64_t limit;
    if (option_parse_percent(text, true, &limit)) {
        *value = limit | PROCESS_OPTION_SHARE;
        return limit != 0;
    }
    if (!format_parse_size(text, &limit) || (limit & PROCESS_OPTION_SHARE) != 0) {
        return false;
    }
    *value = limit;
    return limit == 0 || limit >= PROCESS_OPTION_LIMIT_MIN;
}

static bool option_parse(struct process_options *options, unsigned index, const char *text) {
    switch (option_rows[index].type) {
    case OPTION_SWITCH:
        return option_parse_switch(text, &options->values[index]);
    case OPTION_SIZE:
        return format_parse_size(text, &options->values[index]);
    case OPTION_LIMIT:
        return option_parse_limit(text, &options->values[index]);
    case OPTION_PERCENT:
        return option_parse_percent(text, false, &options->values[index]);
    case OPTION_TEXT:
    default: {
        struct format out;
        format_init(&out, NULL, 0); // only its length
        format_text(&out, text);
        if (out.wanted >= PROCESS_OPTION_TEXT_BYTES) {
            return false;
        }
        format_init(&out, options->texts[option_text_places[index]], PROCESS_OPTION_TEXT_BYTES);
        format_text(&out, text);
        return true;
    }
    }
}

MALLOW_INTERNAL void process_options_default(struct process_options *options) {
    for (unsigned i = 0; i < PROCESS_OPTION_COUNT; i++) {
        (void)option_parse(options, i, option_rows[i].default_text);
    }
    options->given = 0;
}

MALLOW_INTERNAL bool process_options_is_default(const struct process_options *options,
                                                unsigned index) {
    uint64_t value = 0;
    const char *const text = option_rows[index].default_text;
    return option_rows[index].type == OPTION_SWITCH
               ? option_parse_switch(text, &value) && value == options->values[index]
               : format_parse_size(text, &value) && value == options->values[index];
}

static int option_find(const char *name) {
    for (unsigned i = 0; i < PROCESS_OPTION_COUNT; i++) {
        if (format_same_ignoring_case(name, option_rows[i].name)) {
            return (int)i;
        }
    }
    return -1;
}

// Variables that the tool reads itself, where somebody has them set for all programs.
static MALLOW_COLD bool option_is_the_tools(const char *name) {
    return format_same_ignoring_case(name, "lib") || format_same_ignoring_case(name, "peers");
}

// What the environment holds may be of any length, and several lines: its beginning, in one.
static void option_format_given(struct format *out, const char *given) {
    char shown[OPTION_SHOWN_BYTES];
    struct format words;
    format_init(&words, shown, sizeof shown);
    format_text(&words, given);
    for (char *at = shown; *at != '\0'; at++) {
        const unsigned char character = (unsigned char)*at;
        *at = character < ' ' || character == 0x7f ? '?' : *at;
    }
    format_text(out, shown);
    format_text(out, words.wanted >= sizeof shown ? "..." : "");
}

static void option_complain(const char *what, const char *name, const char *value,
                            const char *advice) {
    char line[400];
    struct format out;
    format_init(&out, line, sizeof line);
    format_text(&out, "mallow: ");
    format_text(&out, what);
    option_format_given(&out, name);
    if (value != NULL) {
        format_text(&out, "=");
        option_format_given(&out, value);
    }
    format_text(&out, advice);
    os_tell(2, line, format_length(&out));
}

// One variable of the environment, "MALLOW_NAME=value".
static void option_take(struct process_options *options, const char *variable) {
    char name[64];
    size_t length = 0;
    while (variable[length] != '=' && variable[length] != '\0' && length + 1 < sizeof name) {
        name[length] = variable[length];
        length++;
    }
    name[length] = '\0';
    if (variable[length] == '\0') {
        return; // no value at all: not a variable
    }
    const char *const value = variable + length + 1;
    const int index =
        variable[length] == '=' ? option_find(name + sizeof option_prefix - 1) : -1;
    if (index < 0) {
        if (option_is_the_tools(name + sizeof option_prefix - 1)) {
            return;
        }
        option_complain("unknown option ", name, NULL, " (`mallow run --help` lists them)\n");
        return;
    }
    if (!option_parse(options, (unsigned)index, value)) {
        static const char *const advice[] = {
            ": not a switch: 0 or 1, on or off; the default stays\n",
            ": not a size: a number with an optional K, M, G or T; the default stays\n",
            ": the text is too long; the default stays\n",
            (": not a limit: 0, a size from 4M to 8388607T, or a share from 1% to 100%; the "
             "default stays\n"),
            ": not a percentage from 0 to 100; the default stays\n",
        };
        // Also where the environment has the name twice, and a good value before this one.
        (void)option_parse(options, (unsigned)index, option_rows[index].default_text);
        options->given &= ~(UINT32_C(1) << index);
        option_complain("bad value ", name, value, advice[option_rows[index].type]);
        return;
    }
    options->given |= UINT32_C(1) << index;
}

MALLOW_INTERNAL void process_options_read(struct process_options *options, char **environment) {
    for (char **at = environment; *at != NULL; at++) {
        size_t same = 0;
        while (same < sizeof option_prefix - 1 && (*at)[same] == option_prefix[same]) {
            same++;
        }
        if (same == sizeof option_prefix - 1) {
            option_take(options, *at);
        }
    }
}

static int option_set(struct process_options *options, const char *name, const char *value,
                      bool as_default) {
    const int index = option_find(name);
    if (index < 0) {
        return ENOENT;
    }
    if (option_rows[index].settable == OPTION_START) {
        return EBUSY;
    }
    const uint64_t before = options->values[index];
    if (!option_parse(options, (unsigned)index, value)) {
        options->values[index] = before;
        return EINVAL;
    }
    if (as_default && (options->given >> index & 1) != 0) {
        options->values[index] = before; // those that are settable at any time are numbers
        return EALREADY;
    }
    options->given |= (as_default ? UINT32_C(0) : UINT32_C(1)) << index;
    return 0;
}

MALLOW_INTERNAL int process_options_set(struct process_options *options, const char *name,
                                        const char *value) {
    return option_set(options, name, value, false);
}

MALLOW_INTERNAL int process_options_set_default(struct process_options *options, const char *name,
                                                const char *value) {
    return option_set(options, name, value, true);
}

static void option_format(const struct process_options *options, unsigned index,
                          struct format *out) {
    if (option_rows[index].type == OPTION_TEXT) {
        format_text(out, options->texts[option_text_places[index]]);
    } else if (option_rows[index].type == OPTION_SIZE) {
        format_size(out, options->values[index]);
    } else if (option_rows[index].type == OPTION_LIMIT &&
               (options->values[index] & PROCESS_OPTION_SHARE) == 0) {
        format_size(out, options->values[index]);
    } else if (option_rows[index].type == OPTION_LIMIT) {
        format_unsigned(out, options->values[index] & ~PROCESS_OPTION_SHARE);
        format_text(out, "%");
    } else {
        format_unsigned(out, options->values[index]);
    }
}

MALLOW_INTERNAL void process_options_complain(const struct process_options *options,
                                              unsigned index, const char *advice) {
    char value[PROCESS_OPTION_TEXT_BYTES];
    struct format out;
    format_init(&out, value, sizeof value);
    option_format(options, index, &out);
    option_complain("bad value ", option_rows[index].environment, value, advice);
}

MALLOW_INTERNAL const char *process_options_get(const struct process_options *options,
                                                const char *name, char *buffer, size_t capacity) {
    const int index = option_find(name);
    if (index < 0 || capacity == 0) {
        return NULL;
    }
    struct format out;
    format_init(&out, buffer, capacity);
    option_format(options, (unsigned)index, &out);
    return buffer;
}

MALLOW_INTERNAL void process_options_print(const struct process_options *options, int fd) {
    for (unsigned i = 0; i < PROCESS_OPTION_COUNT; i++) {
        char line[400];
        struct format out;
        format_init(&out, line, sizeof line);
        format_text(&out, "mallow: option ");
        format_text(&out, option_rows[i].name);
        format_text(&out, " = ");
        option_format(options, i, &out);
        format_text(&out, "\n");
        os_tell(fd, line, format_length(&out));
    }
}
