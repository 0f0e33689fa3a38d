// SPDX-License-Identifier: MIT
// Options: the table src/options.def as a struct, a parser and texts.
//
// Owns     nothing; the struct belongs to the process.
// Threads  reading any; setting is not synchronised with use: a new value counts from the next
//          look.
// Holds    every member has its default or a value that the parser accepted.
#ifndef MALLOW_PROCESS_PROCESS_OPTIONS_H
#define MALLOW_PROCESS_PROCESS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config.h"

enum { PROCESS_OPTION_TEXT_BYTES = 256, PROCESS_OPTION_NAME_BYTES = 28 };

enum process_option_index {
#define MALLOW_OPTION(name, type, default_text, unit, settable, help) PROCESS_OPTION_##name,
#include "options.def"
#undef MALLOW_OPTION
    PROCESS_OPTION_COUNT
};

// Place of each text among the texts: most options are numbers.
#define PROCESS_TEXT_PLACE_SWITCH(name)
#define PROCESS_TEXT_PLACE_SIZE(name)
#define PROCESS_TEXT_PLACE_LIMIT(name)
#define PROCESS_TEXT_PLACE_PERCENT(name)
#define PROCESS_TEXT_PLACE_TEXT(name) PROCESS_TEXT_##name,
enum process_text_index {
#define MALLOW_OPTION(name, type, default_text, unit, settable, help)                              \
    PROCESS_TEXT_PLACE_##type(name)
#include "options.def"
#undef MALLOW_OPTION
    PROCESS_TEXT_COUNT
};

enum process_option_type {
    OPTION_SWITCH,
    OPTION_SIZE,
    OPTION_TEXT,
    OPTION_LIMIT,   // 0, a size, or a share
    OPTION_PERCENT, // 0 to 100, also with %
};
enum process_option_when { OPTION_ALWAYS, OPTION_START };

struct process_option_row {
    const char *name;
    char environment[PROCESS_OPTION_NAME_BYTES];
    enum process_option_type type;
    const char *default_text;
    const char *unit;
    enum process_option_when settable;
    const char *help;
};

// The value of a LIMIT that was given as a share: this bit, and the percentage.
#define PROCESS_OPTION_SHARE ((uint64_t)1 << 63)
// The least limit: below it hardly more than our own tables would fit.
#define PROCESS_OPTION_LIMIT_MIN ((uint64_t)4 << 20)

struct process_options {
    uint64_t values[PROCESS_OPTION_COUNT];  // all but texts
    char texts[PROCESS_TEXT_COUNT][PROCESS_OPTION_TEXT_BYTES];
    uint32_t given; // bit i: option i was set by the environment, or by a call but as a default
};
static_assert(PROCESS_OPTION_COUNT <= 32, "a bit an option");

#define process_option(options, name) ((options)->values[PROCESS_OPTION_##name])
#define process_option_text(options, name) ((options)->texts[PROCESS_TEXT_##name])

// Row of the table; NULL beyond its end.
MALLOW_INTERNAL const struct process_option_row *process_options_row(unsigned index);

MALLOW_INTERNAL void process_options_default(struct process_options *options);

// Takes every MALLOW_* of the environment. What cannot be used is said in one line each on stderr.
MALLOW_INTERNAL void process_options_read(struct process_options *options, char **environment);

// Says in one line on stderr that the value of an option is bad; `advice` goes on behind it.
MALLOW_INTERNAL void process_options_complain(const struct process_options *options,
                                              unsigned index, const char *advice);

// Whether a switch or size has the value of the table.
MALLOW_INTERNAL bool process_options_is_default(const struct process_options *options,
                                                unsigned index);

// 0, ENOENT, EINVAL, or EBUSY for an option that is only read at start.
MALLOW_INTERNAL int process_options_set(struct process_options *options, const char *name,
                                        const char *value);

// The same, unless the option was set before: EALREADY, and the value stays.
MALLOW_INTERNAL int process_options_set_default(struct process_options *options, const char *name,
                                                const char *value);

// The value as text in `buffer`; NULL if there is no such option.
MALLOW_INTERNAL const char *process_options_get(const struct process_options *options,
                                                const char *name, char *buffer, size_t capacity);

// One line an option.
MALLOW_INTERNAL void process_options_print(const struct process_options *options, int fd);

#endif
