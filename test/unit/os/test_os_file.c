// SPDX-License-Identifier: MIT
// Files: lines of any length, numbers.
#include "os/os_file.h"

#include <errno.h>

#include "tree.h"

static int begin(void **state) {
    (void)state;
    tree_begin();
    return 0;
}

static int end(void **state) {
    (void)state;
    tree_end();
    return 0;
}

static const char *path_of(const char *name) {
    static char path[200];
    snprintf(path, sizeof path, "%s%s", tree_root, name);
    return path;
}

CASE(a_file_that_is_not_there_is_said_so_and_errno_kept) {
    struct os_reader reader;
    char line[OS_LINE_BYTES];
    errno = 4711;
    assert_false(os_reader_open(&reader, path_of("/none")));
    assert_false(os_read_first_line(path_of("/none"), line));
    assert_int_equal(errno, 4711);
}

CASE(lines_come_one_by_one_also_without_an_end) {
    struct os_reader reader;
    char line[OS_LINE_BYTES];
    tree_write("/file", "one\n\nthree");
    assert_true(os_reader_open(&reader, path_of("/file")));
    assert_true(os_reader_line(&reader, line));
    assert_string_equal(line, "one");
    assert_true(os_reader_line(&reader, line));
    assert_string_equal(line, "");
    assert_true(os_reader_line(&reader, line));
    assert_string_equal(line, "three");
    assert_false(os_reader_line(&reader, line));
    os_reader_close(&reader);
    tree_write("/empty", "");
    assert_false(os_read_first_line(path_of("/empty"), line));
    assert_string_equal(line, "");
}

CASE(a_long_line_is_cut_and_the_next_one_whole) {
    static char text[9000];
    char line[OS_LINE_BYTES];
    for (unsigned length = OS_LINE_BYTES - 2; length < 8000; length += 517) {
        struct os_reader reader;
        memset(text, 'x', length);
        strcpy(text + length, "\nnext\n");
        tree_write("/long", text);
        assert_true(os_reader_open(&reader, path_of("/long")));
        assert_true(os_reader_line(&reader, line));
        assert_int_equal(strlen(line), length < OS_LINE_BYTES ? length : OS_LINE_BYTES - 1);
        assert_true(os_reader_line(&reader, line));
        assert_string_equal(line, "next");
        os_reader_close(&reader);
    }
}

CASE(a_number_ends_where_its_digits_do_and_stops_at_the_largest) {
    static const struct {
        const char *text;
        uint64_t value;
        const char *rest;
    } rows[] = {
        {"0", 0, ""},
        {"12 kB", 12, " kB"},
        {"18446744073709551615", UINT64_MAX, ""},
        {"18446744073709551616", UINT64_MAX, ""},
        {"99999999999999999999999x", UINT64_MAX, "x"},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *at = rows[i].text;
        uint64_t value = 1;
        assert_true(os_take_number(&at, &value));
        assert_int_equal(value, rows[i].value);
        assert_string_equal(at, rows[i].rest);
    }
    const char *at = "max";
    uint64_t value = 5;
    assert_false(os_take_number(&at, &value));
    assert_string_equal(at, "max");
    assert_int_equal(value, 5);
}

#define FILE_CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    const struct CMUnitTest cases[] = {
        FILE_CASE(a_file_that_is_not_there_is_said_so_and_errno_kept),
        FILE_CASE(lines_come_one_by_one_also_without_an_end),
        FILE_CASE(a_long_line_is_cut_and_the_next_one_whole),
        FILE_CASE(a_number_ends_where_its_digits_do_and_stops_at_the_largest),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
