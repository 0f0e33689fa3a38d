// SPDX-License-Identifier: MIT
// Format: texts, their cutting, and the parser of sizes.
#include "base/format.h"

#include <inttypes.h>

#include "../unit.h"

static char buffer[256];
static struct format out;

static const char *text_of(void (*write)(struct format *, uint64_t), uint64_t value) {
    format_init(&out, buffer, sizeof buffer);
    write(&out, value);
    assert_int_equal(out.wanted, strlen(buffer));
    return buffer;
}

CASE(what_does_not_fit_is_counted_and_left_out_and_nothing_beyond_is_touched) {
    static const char text[] = "0123456789";
    for (size_t capacity = 0; capacity <= 12; capacity++) {
        memset(buffer, 'x', sizeof buffer);
        format_init(&out, buffer, capacity);
        format_text(&out, "01234");
        format_text(&out, "56789");
        assert_int_equal(out.wanted, 10);
        if (capacity > 0) {
            const size_t length = capacity - 1 < 10 ? capacity - 1 : 10;
            assert_int_equal(strlen(buffer), length);
            assert_memory_equal(buffer, text, length);
        }
        assert_true(unit_is_all(buffer + capacity, 'x', sizeof buffer - capacity));
        assert_int_equal(buffer[capacity], 'x');
    }
}

CASE(an_empty_text_is_terminated) {
    memset(buffer, 'x', sizeof buffer);
    format_init(&out, buffer, 1);
    assert_string_equal(buffer, "");
    format_text(&out, "a");
    assert_string_equal(buffer, "");
    assert_int_equal(out.wanted, 1);
}

CASE(numbers_read_as_printf_writes_them) {
    struct unit_chance chance = unit_chance_begin();
    char expected[64];
    for (unsigned i = 0; i < 3000; i++) {
        const uint64_t value = i < 300 ? i : i < 310 ? UINT64_MAX - (i - 300)
                                                     : unit_next(&chance) >> (i % 64);
        snprintf(expected, sizeof expected, "%" PRIu64, value);
        assert_string_equal(text_of(format_unsigned, value), expected);
        snprintf(expected, sizeof expected, "0x%" PRIx64, value);
        assert_string_equal(text_of(format_hex, value), expected);
        format_init(&out, buffer, sizeof buffer);
        format_unsigned_wide(&out, value, 12);
        snprintf(expected, sizeof expected, "%12" PRIu64, value);
        assert_string_equal(buffer, expected);
    }
}

CASE(byte_counts_have_a_unit_and_at_most_one_decimal) {
    static const struct {
        uint64_t value;
        const char *text;
    } rows[] = {
        {0, "0"},           {1023, "1023"},        {1024, "1K"},
        {1536, "1.5K"},     {1024 * 1024, "1M"},   {1024 * 1024 - 1, "1023.9K"},
        {65536, "64K"},     {5 << 19, "2.5M"},     {UINT64_C(1) << 30, "1G"},
        {UINT64_C(64) << 30, "64G"},               {UINT64_C(1) << 40, "1T"},
        {UINT64_C(3) << 52, "12288T"},             {1100, "1K"},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_string_equal(text_of(format_bytes, rows[i].value), rows[i].text);
    }
}

CASE(sizes_are_written_as_they_are_read) {
    static const struct {
        uint64_t value;
        const char *text;
    } rows[] = {
        {0, "0"},           {1023, "1023"},    {1024, "1K"},
        {1536, "1536"},     {65535, "65535"},  {5 << 19, "2560K"},
        {UINT64_C(64) << 30, "64G"},           {UINT64_C(3) << 52, "12288T"},
        {UINT64_MAX, "18446744073709551615"},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint64_t value = 99;
        assert_string_equal(text_of(format_size, rows[i].value), rows[i].text);
        assert_true(format_parse_size(rows[i].text, &value));
        assert_int_equal(value, rows[i].value);
    }
}

CASE(a_json_text_escapes_what_json_demands) {
    format_init(&out, buffer, sizeof buffer);
    format_json_text(&out, "a\"b\\c\n\t\x01\x1f \x7f\xc3\xa4/");
    assert_string_equal(buffer, "\"a\\\"b\\\\c\\u000a\\u0009\\u0001\\u001f \x7f\xc3\xa4/\"");
    format_init(&out, buffer, sizeof buffer);
    format_json_text(&out, "");
    assert_string_equal(buffer, "\"\"");
}

CASE(a_json_text_is_utf8_whatever_it_is_made_of) {
    static const struct {
        const char *text;
        const char *json;
    } rows[] = {
        {"\xc2\x80 \xdf\xbf", "\"\xc2\x80 \xdf\xbf\""},
        {"\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80", "\"\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\""},
        {"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", "\"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\""},
        {"caf\xe9/ls", "\"caf\\ufffd/ls\""},
        {"\x80", "\"\\ufffd\""},
        {"\xc1\xbf", "\"\\ufffd\\ufffd\""},                     // longer than it need be
        {"\xe0\x9f\xbf", "\"\\ufffd\\ufffd\\ufffd\""},           // the same
        {"\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\""},           // half a pair
        {"\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\""}, // beyond the last
        {"\xf5", "\"\\ufffd\""},
        {"\xc3", "\"\\ufffd\""}, // cut off
        {"\xe2\x82", "\"\\ufffd\\ufffd\""},
        {"\xf0\x9f\x98\"", "\"\\ufffd\\ufffd\\ufffd\\\"\""},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        format_init(&out, buffer, sizeof buffer);
        format_json_text(&out, rows[i].text);
        assert_string_equal(buffer, rows[i].json);
    }
}

CASE(sizes_are_read_with_or_without_a_unit) {
    static const struct {
        const char *text;
        uint64_t value;
    } rows[] = {
        {"0", 0},
        {"1", 1},
        {"007", 7},
        {"64k", 64 << 10},
        {"64K", 64 << 10},
        {"2M", 2 << 20},
        {"2MB", 2 << 20},
        {"2MiB", 2 << 20},
        {"2mib", 2 << 20},
        {"3G", UINT64_C(3) << 30},
        {"5T", UINT64_C(5) << 40},
        {"18446744073709551615", UINT64_MAX},
        {"16777215T", UINT64_C(16777215) << 40},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint64_t value = 99;
        assert_true(format_parse_size(rows[i].text, &value));
        assert_int_equal(value, rows[i].value);
    }
}

CASE(anything_else_is_no_size) {
    static const char *const texts[] = {
        "",     " ",    "K",     "-1",   "+1",  " 1",  "1 ",    "1.5",  "1.5M",
        "1KK",  "1Q",   "1iB",   "1B",   "0x10", "1KiBs", "1e3", "18446744073709551616",
        "99999999999999999999999", "16777216T", "18014398509481984K", "off", "1 M", "1Mi b",
    };
    for (unsigned i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        uint64_t value = 99;
        if (format_parse_size(texts[i], &value)) {
            fail_msg("`%s` was read as %" PRIu64, texts[i], value);
        }
    }
}

CASE(comparisons_look_at_the_whole_text) {
    assert_true(format_same("", ""));
    assert_true(format_same("stats", "stats"));
    assert_false(format_same("stats", "Stats"));
    assert_false(format_same("stats", "stat"));
    assert_false(format_same("stat", "stats"));
    assert_false(format_same("", "s"));
    assert_true(format_same_ignoring_case("sTaTs", "StAtS"));
    assert_true(format_same_ignoring_case("AZ[z", "az[Z"));
    assert_false(format_same_ignoring_case("[", "{")); // 32 apart, but no letters
    assert_false(format_same_ignoring_case("@", "`"));
    assert_false(format_same_ignoring_case("stats", "stat"));
    assert_false(format_same_ignoring_case("stat", "stats"));
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(what_does_not_fit_is_counted_and_left_out_and_nothing_beyond_is_touched),
        cmocka_unit_test(an_empty_text_is_terminated),
        cmocka_unit_test(numbers_read_as_printf_writes_them),
        cmocka_unit_test(byte_counts_have_a_unit_and_at_most_one_decimal),
        cmocka_unit_test(sizes_are_written_as_they_are_read),
        cmocka_unit_test(a_json_text_escapes_what_json_demands),
        cmocka_unit_test(a_json_text_is_utf8_whatever_it_is_made_of),
        cmocka_unit_test(sizes_are_read_with_or_without_a_unit),
        cmocka_unit_test(anything_else_is_no_size),
        cmocka_unit_test(comparisons_look_at_the_whole_text),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
