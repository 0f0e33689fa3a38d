// SPDX-License-Identifier: MIT
// Options: the table, the environment, setting and printing. Complaints go to stderr: see said().
#include "process/process_options.h"

#include <ctype.h>
#include <errno.h>

#include "../unit.h"

static struct process_options options;
static char text[4096]; // what went to stderr

static int begin(void **state) {
    (void)state;
    memset(&options, 0, sizeof options);
    process_options_default(&options);
    return 0;
}

// Reads an environment of one variable; what is said about it is left in `text`.
static const char *said(const char *variable) {
    char *environment[] = {(char *)(uintptr_t)variable, NULL};
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    const int before = dup(2);
    dup2(ends[1], 2);
    process_options_read(&options, environment);
    dup2(before, 2);
    close(before);
    close(ends[1]);
    const ssize_t length = read(ends[0], text, sizeof text - 1);
    text[length > 0 ? length : 0] = '\0';
    close(ends[0]);
    return text;
}

// One line that begins as ours and has `words` in it.
static void assert_complains(const char *variable, const char *words) {
    said(variable);
    if (strncmp(text, "mallow: ", 8) != 0 || strstr(text, words) == NULL ||
        strchr(text, '\n') != text + strlen(text) - 1) {
        fail_msg("%.80s: `%s` expected, said: `%s`", variable, words, text);
    }
}

CASE(a_default_gives_way_to_what_was_set_before_and_after) {
    char buffer[64];
    assert_int_equal(process_options_set_default(&options, "huge_cache", "48M"), 0);
    assert_int_equal(process_options_set_default(&options, "huge_cache", "16M"), 0);
    assert_string_equal(process_options_get(&options, "huge_cache", buffer, sizeof buffer), "16M");
    assert_int_equal(process_options_set(&options, "huge_cache", "1M"), 0);
    assert_int_equal(process_options_set_default(&options, "huge_cache", "48M"), EALREADY);
    assert_string_equal(process_options_get(&options, "huge_cache", buffer, sizeof buffer), "1M");
    assert_string_equal(said("MALLOW_STATS=0"), ""); // to what it is by default
    assert_int_equal(process_options_set_default(&options, "stats", "1"), EALREADY);
    assert_string_equal(process_options_get(&options, "stats", buffer, sizeof buffer), "0");
    assert_complains("MALLOW_LIMIT=much", "much"); // sets nothing
    assert_int_equal(process_options_set_default(&options, "limit", "64M"), 0);
    assert_int_equal(process_options_set_default(&options, "limit", "much"), EINVAL);
    assert_int_equal(process_options_set_default(&options, "huge_cache", "much"), EINVAL);
    assert_int_equal(process_options_set_default(&options, "mode", "realtime"), EBUSY);
    assert_int_equal(process_options_set_default(&options, "none", "1"), ENOENT);
}

CASE(every_row_has_a_name_a_variable_and_a_default_that_its_parser_takes) {
    char buffer[PROCESS_OPTION_TEXT_BYTES];
    for (unsigned i = 0; i < PROCESS_OPTION_COUNT; i++) {
        const struct process_option_row *const row = process_options_row(i);
        assert_non_null(row);
        assert_int_equal(strncmp(row->environment, "MALLOW_", 7), 0);
        assert_int_equal(strlen(row->environment + 7), strlen(row->name));
        for (size_t at = 0; row->name[at] != '\0'; at++) { // in capitals, as it is documented
            assert_int_equal(row->environment[7 + at], toupper((unsigned char)row->name[at]));
        }
        assert_true(strlen(row->help) > 10);
        assert_non_null(process_options_get(&options, row->name, buffer, sizeof buffer));
        assert_string_equal(buffer, row->default_text); // as it is documented
        if (row->settable == OPTION_ALWAYS) {
            assert_int_equal(process_options_set(&options, row->name, row->default_text), 0);
        }
        for (unsigned j = 0; j < i; j++) {
            assert_string_not_equal(row->name, process_options_row(j)->name);
        }
    }
    assert_null(process_options_row(PROCESS_OPTION_COUNT));
    assert_null(process_options_row(UINT32_MAX));
}

CASE(the_defaults_are_those_of_the_table) {
    assert_int_equal(process_option(&options, stats), 0);
    assert_int_equal(process_option(&options, arena_reserve), UINT64_C(64) << 30);
    assert_int_equal(process_option(&options, huge_threshold), 1 << 20);
    assert_int_equal(process_option(&options, trim_threshold), 64 << 20);
    assert_string_equal(process_option_text(&options, report), "");
    assert_string_equal(process_option_text(&options, mode), "default");
    assert_int_equal(process_option(&options, realtime_reserve), 64 << 20);
}

CASE(the_environment_sets_options_of_every_type_in_either_case) {
    assert_string_equal(said("MALLOW_STATS=1"), "");
    assert_int_equal(process_option(&options, stats), 1);
    assert_string_equal(said("MALLOW_huge_cache=3M"), "");
    assert_int_equal(process_option(&options, huge_cache), 3 << 20);
    assert_string_equal(said("MALLOW_REPORT=/tmp/a=b.json"), "");
    assert_string_equal(process_option_text(&options, report), "/tmp/a=b.json");
    assert_string_equal(said("MALLOW_Verbose=on"), "");
    assert_int_equal(process_option(&options, verbose), 1);
}

CASE(switches_take_eight_words) {
    static const char *const words[] = {"0", "off", "no", "false", "1", "on", "yes", "true"};
    for (unsigned i = 0; i < 8; i++) {
        options.values[PROCESS_OPTION_stats] = i < 4;
        assert_int_equal(process_options_set(&options, "stats", words[i]), 0);
        assert_int_equal(process_option(&options, stats), i >= 4);
    }
    static const char *const others[] = {"", "2", "-1", "ja", "onn", "o", " 1", "true "};
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(process_options_set(&options, "stats", others[i]), EINVAL);
        assert_int_equal(process_option(&options, stats), 1); // as it was
    }
}

CASE(variables_that_are_not_ours_are_passed_over_in_silence) {
    static const char *const variables[] = {"PATH=/bin",     "MALLO_STATS=1", "mallow_stats=1",
                                            "XMALLOW_STATS=1", "MALLOW",      "MALLOW=1",
                                            "STATS=1",       "",              "=",
                                            "MALLOW_STATS",  "MALLOW_LIB=x",  "MALLOW_PEERS=y"};
    for (unsigned i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        assert_string_equal(said(variables[i]), "");
    }
    assert_int_equal(process_option(&options, stats), 0);
}

CASE(an_unknown_option_is_named_in_one_line) {
    assert_complains("MALLOW_LIBS=1", "unknown option MALLOW_LIBS (");
    assert_complains("MALLOW_STATZ=1", "unknown option MALLOW_STATZ (");
    assert_complains("MALLOW_STAT=1", "unknown option MALLOW_STAT (");
    assert_complains("MALLOW_STATSS=1", "unknown option MALLOW_STATSS (");
    assert_complains("MALLOW_=1", "unknown option MALLOW_ (");
}

CASE(a_bad_value_is_named_in_one_line_and_the_default_stays) {
    assert_complains("MALLOW_STATS=maybe", "bad value MALLOW_STATS=maybe: not a switch");
    assert_complains("MALLOW_HUGE_CACHE=12X", "bad value MALLOW_HUGE_CACHE=12X: not a size");
    assert_complains("MALLOW_HUGE_CACHE=99999999999T", "not a size");
    assert_complains("MALLOW_HUGE_CACHE=", "not a size");
    struct process_options fresh = {.values = {0}};
    process_options_default(&fresh);
    assert_memory_equal(options.values, fresh.values, sizeof fresh.values);
}

CASE(limits_are_none_a_size_from_4_mib_on_or_a_share) {
    static const struct {
        const char *text;
        uint64_t value;
    } good[] = {
        {"0", 0},
        {"4M", 4 << 20},
        {"2G", UINT64_C(2) << 30},
        {"1%", PROCESS_OPTION_SHARE | 1},
        {"100%", PROCESS_OPTION_SHARE | 100},
    };
    for (unsigned i = 0; i < sizeof good / sizeof good[0]; i++) {
        char buffer[16];
        assert_int_equal(process_options_set(&options, "limit", good[i].text), 0);
        assert_int_equal(process_option(&options, limit), good[i].value);
        assert_string_equal(process_options_get(&options, "limit", buffer, sizeof buffer),
                            good[i].text);
    }
    static const char *const bad[] = {"",     "%",   "0%",   "101%", "1000%", "80 %", "-1",
                                      "3M",   "1",   "80%%", "%80",  "0x10",  "12X",  "99999999999T",
                                      "4.5G", "max", "9223372036854775808"};
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(process_options_set(&options, "soft_limit", bad[i]), EINVAL);
        assert_int_equal(process_option(&options, soft_limit), 0);
    }
    assert_complains("MALLOW_LIMIT=101%", "bad value MALLOW_LIMIT=101%: not a limit: 0, a size");
    assert_complains("MALLOW_SOFT_LIMIT=2M", "bad value MALLOW_SOFT_LIMIT=2M: not a limit");
    assert_complains("MALLOW_LIMIT=8388608T", ": not a limit: 0, a size from 4M to 8388607T, or");
}

CASE(percentages_are_0_to_100_with_or_without_a_sign) {
    assert_int_equal(process_options_set(&options, "pressure", "10"), 0);
    assert_int_equal(process_option(&options, pressure), 10);
    assert_int_equal(process_options_set(&options, "pressure", "100%"), 0);
    assert_int_equal(process_option(&options, pressure), 100);
    assert_complains("MALLOW_PRESSURE=101", "bad value MALLOW_PRESSURE=101: not a percentage");
    assert_complains("MALLOW_PRESSURE=", "not a percentage");
    assert_complains("MALLOW_PRESSURE=5.5", "not a percentage");
    assert_int_equal(process_option(&options, pressure), 0); // the default, as the line says
}

CASE(a_value_of_any_length_makes_one_line_at_most) {
    static char variable[3000];
    for (unsigned length = 1; length < 2900; length += 97) {
        snprintf(variable, sizeof variable, "MALLOW_HUGE_CACHE=%0*d", (int)length, 0);
        variable[strlen(variable) - 1] = '!';
        assert_complains(variable, "bad value MALLOW_HUGE_CACHE=");
        assert_non_null(strstr(text, ": not a size: ")); // whatever the length, why
        assert_int_equal(process_option(&options, huge_cache), 32 << 20);
    }
    assert_complains("MALLOW_HUGE_CACHE=a\nb\033[2J", "MALLOW_HUGE_CACHE=a?b?[2J: not a size");
    assert_complains("MALLOW_A\nB=1", "unknown option MALLOW_A?B (");
}

CASE(a_text_that_is_too_long_is_refused_whole) {
    static char variable[1000];
    snprintf(variable, sizeof variable, "MALLOW_REPORT=%0*d", PROCESS_OPTION_TEXT_BYTES - 1, 7);
    assert_string_equal(said(variable), "");
    assert_int_equal(strlen(process_option_text(&options, report)), PROCESS_OPTION_TEXT_BYTES - 1);
    (void)begin(NULL);
    snprintf(variable, sizeof variable, "MALLOW_REPORT=%0*d", PROCESS_OPTION_TEXT_BYTES, 7);
    assert_complains(variable, "bad value MALLOW_REPORT=");
    assert_string_equal(process_option_text(&options, report), "");
    snprintf(variable, sizeof variable, "MALLOW_MODE=%0*d", PROCESS_OPTION_TEXT_BYTES, 7);
    assert_complains(variable, "bad value MALLOW_MODE=");
    assert_string_equal(process_option_text(&options, mode), "default");
}

CASE(setting_tells_why_it_cannot) {
    assert_int_equal(process_options_set(&options, "nothing", "1"), ENOENT);
    assert_int_equal(process_options_set(&options, "", "1"), ENOENT);
    assert_int_equal(process_options_set(&options, "MALLOW_STATS", "1"), ENOENT);
    assert_int_equal(process_options_set(&options, "arena_reserve", "1G"), EBUSY);
    assert_int_equal(process_options_set(&options, "report", "/tmp/x"), EBUSY);
    assert_int_equal(process_options_set(&options, "huge_cache", "many"), EINVAL);
    assert_int_equal(process_option(&options, arena_reserve), UINT64_C(64) << 30);
    assert_int_equal(process_option(&options, huge_cache), 32 << 20);
    assert_int_equal(process_options_set(&options, "HUGE_CACHE", "0"), 0);
    assert_int_equal(process_option(&options, huge_cache), 0);
}

CASE(a_value_reads_back_as_text_cut_to_the_buffer) {
    char buffer[8];
    assert_ptr_equal(process_options_get(&options, "arena_reserve", buffer, 8), buffer);
    assert_string_equal(buffer, "64G");
    assert_string_equal(process_options_get(&options, "stats", buffer, 8), "0");
    assert_string_equal(process_options_get(&options, "report", buffer, 8), "");
    assert_string_equal(process_options_get(&options, "arena_reserve", buffer, 3), "64");
    assert_string_equal(process_options_get(&options, "arena_reserve", buffer, 1), "");
    assert_null(process_options_get(&options, "arena_reserve", buffer, 0));
    assert_null(process_options_get(&options, "nothing", buffer, 8));
}

CASE(a_value_reads_back_as_it_was_set) {
    static const char *const sizes[] = {"0", "1", "65535", "33554433", "2560K", "18446744073709551615"};
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char buffer[32];
        assert_int_equal(process_options_set(&options, "huge_cache", sizes[i]), 0);
        assert_string_equal(process_options_get(&options, "huge_cache", buffer, 32), sizes[i]);
    }
    char buffer[32];
    assert_int_equal(process_options_set(&options, "limit", "4194305"), 0);
    assert_string_equal(process_options_get(&options, "limit", buffer, 32), "4194305");
    assert_int_equal(process_options_set(&options, "limit", "80%"), 0);
    assert_string_equal(process_options_get(&options, "limit", buffer, 32), "80%");
    assert_int_equal(process_options_set(&options, "pressure", "10"), 0);
    assert_string_equal(process_options_get(&options, "pressure", buffer, 32), "10");
}

CASE(printing_gives_one_line_an_option) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    process_options_print(&options, ends[1]);
    close(ends[1]);
    const ssize_t length = read(ends[0], text, sizeof text - 1);
    close(ends[0]);
    assert_true(length > 0);
    text[length] = '\0';
    unsigned lines = 0;
    for (const char *at = text; *at != '\0'; at = strchr(at, '\n') + 1) {
        assert_int_equal(strncmp(at, "mallow: option ", 15), 0);
        assert_non_null(strchr(at, '\n'));
        lines++;
    }
    assert_int_equal(lines, PROCESS_OPTION_COUNT);
    assert_non_null(strstr(text, "mallow: option trim_threshold = 64M\n"));
}

#define OPTION_CASE(name) cmocka_unit_test_setup(name, begin)

int main(void) {
    const struct CMUnitTest cases[] = {
        OPTION_CASE(a_default_gives_way_to_what_was_set_before_and_after),
        OPTION_CASE(every_row_has_a_name_a_variable_and_a_default_that_its_parser_takes),
        OPTION_CASE(the_defaults_are_those_of_the_table),
        OPTION_CASE(the_environment_sets_options_of_every_type_in_either_case),
        OPTION_CASE(switches_take_eight_words),
        OPTION_CASE(variables_that_are_not_ours_are_passed_over_in_silence),
        OPTION_CASE(an_unknown_option_is_named_in_one_line),
        OPTION_CASE(a_bad_value_is_named_in_one_line_and_the_default_stays),
        OPTION_CASE(limits_are_none_a_size_from_4_mib_on_or_a_share),
        OPTION_CASE(percentages_are_0_to_100_with_or_without_a_sign),
        OPTION_CASE(a_value_of_any_length_makes_one_line_at_most),
        OPTION_CASE(a_text_that_is_too_long_is_refused_whole),
        OPTION_CASE(setting_tells_why_it_cannot),
        OPTION_CASE(a_value_reads_back_as_text_cut_to_the_buffer),
        OPTION_CASE(a_value_reads_back_as_it_was_set),
        OPTION_CASE(printing_gives_one_line_an_option),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
