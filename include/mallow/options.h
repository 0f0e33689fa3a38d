// SPDX-License-Identifier: MIT
// mallow: reading and setting the run-time options.
//
// Every option exists once, in src/options.def: name, type, default, unit and help. From the
// environment it is set as MALLOW_<NAME> (ignored in setuid and setgid programs); from code by the
// calls below, by its lower-case name. Values: 0/1/on/off/yes/no/true/false for switches; a number
// with an optional K, M, G or T (powers of 1024; KiB and KB say the same) for sizes; for limits 0
// (none), such a size from 4M on, or a share as 80%; 0 to 100 for percentages; text otherwise.
#ifndef MALLOW_OPTIONS_H
#define MALLOW_OPTIONS_H

#include <mallow/mallow.h>

#ifdef __cplusplus
extern "C" {
#endif

// One row of the table. Strings are constants of the library.
struct mw_option_info {
    const char *name;         // "huge_cache"
    const char *environment;  // "MALLOW_HUGE_CACHE"
    const char *type;         // "switch", "size", "text", "limit" or "percent"
    const char *default_text; // as it would be written
    const char *help;         // one sentence
};

// Row `index` of the table; false when there are no more.
MW_API bool mw_option_info_get(unsigned index, struct mw_option_info *info);

// Sets an option for calls from now on. 0, ENOENT (no such option), EINVAL (bad value) or EBUSY
// (only settable at start). Errors are returned, not printed.
// Any thread; it counts when the call returns. One call at a time, under a short lock; limits that
// are shares, and pressure, read files of the kernel's when they change. A trim_threshold of 2^64 - 1
// keeps all, as mallopt(M_TRIM_THRESHOLD, -1) does, and waits for the end of the background thread.
MW_API int mw_option_set(const char *name, const char *value);

// A default of the program's own: the same, unless the environment, mw_option_set or mallopt has set the
// option already, and later calls of those win. EALREADY then: the value stays.
MW_API int mw_option_set_default(const char *name, const char *value);

// Writes every option's value to file descriptor `fd`, a line each, as MALLOW_VERBOSE does.
MW_API void mw_options_print(int fd);

// The current value as text in `buffer` (cut to fit), as mw_option_set takes it; NULL if there is no such
// option, or no room (capacity 0). None of the names and values may be NULL.
MW_API const char *mw_option_get(const char *name, char *buffer, size_t capacity);

#ifdef __cplusplus
}
#endif

#endif
