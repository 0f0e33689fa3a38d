// SPDX-License-Identifier: MIT
// Report: the figures of a snapshot as text, JSON and XML.
#include "observe/report.h"

#include <inttypes.h>

#include "observe_world.h"

static char text[16384];
static char expected[200];

// Every figure another number, so that a row with the wrong one is seen.
static struct snapshot numbered(void) {
    struct snapshot snapshot = {.version = 1};
    const size_t words = offsetof(struct snapshot, classes) / sizeof(uint64_t);
    for (size_t i = 1; i < words; i++) {
        const uint64_t value = 1000000 + i;
        memcpy((char *)&snapshot + i * sizeof value, &value, sizeof value);
    }
    snapshot.classes[3] = (struct snapshot_class){2, 5, 2000};
    snapshot.classes[79] = (struct snapshot_class){1, 8, 8};
    snapshot.classes[5] = (struct snapshot_class){0, 4, 4}; // thin blocks alone
    return snapshot;
}

static struct format begin(void) {
    struct format out;
    memset(text, 'x', sizeof text);
    format_init(&out, text, sizeof text);
    return out;
}

static void assert_holds(const char *part) {
    if (strstr(text, part) == NULL) {
        fail_msg("`%s` is missing in: %s", part, text);
    }
}

static void assert_member(const char *name, uint64_t value) {
    snprintf(expected, sizeof expected, "\"%s\":%" PRIu64 ",", name, value);
    assert_holds(expected);
}

CASE(the_json_object_has_every_figure_of_the_snapshot) {
    const struct snapshot snapshot = numbered();
    struct format out = begin();
    report_json(&snapshot, &out);
    assert_int_equal(out.wanted, strlen(text));
    assert_int_equal(text[0], '{');
    assert_string_equal(text + out.wanted - 3, "}]}");
#define MEMBER(field) assert_member(#field, snapshot.field)
    MEMBER(version);
    MEMBER(live_bytes);
    MEMBER(live_count);
    MEMBER(small_live_bytes);
    MEMBER(small_live_count);
    MEMBER(large_live_bytes);
    MEMBER(large_live_count);
    MEMBER(huge_live_bytes);
    MEMBER(huge_live_count);
    MEMBER(slab_count);
    MEMBER(span_bytes);
    MEMBER(free_dirty_bytes);
    MEMBER(huge_cached_bytes);
    MEMBER(committed_bytes);
    MEMBER(reserved_bytes);
    MEMBER(meta_bytes);
    MEMBER(meta_used_bytes);
    MEMBER(purged_bytes);
    MEMBER(heap_count);
    MEMBER(heap_adopted_count);
    MEMBER(os_map_count);
    MEMBER(os_unmap_count);
    MEMBER(os_advise_count);
    MEMBER(os_remap_count);
    MEMBER(resident_bytes);
#undef MEMBER
    assert_holds("\"classes\":[{\"block_bytes\":64,\"slab_count\":2,\"live_count\":5,"
                 "\"capacity_count\":2000},{\"block_bytes\":96,\"slab_count\":0,\"live_count\":4,"
                 "\"capacity_count\":4},{\"block_bytes\":65536,\"slab_count\":1,\"live_count\":8,"
                 "\"capacity_count\":8}]}");
}

CASE(braces_brackets_and_quotes_are_paired) {
    const struct snapshot snapshot = numbered();
    struct format out = begin();
    report_json(&snapshot, &out);
    int braces = 0;
    int brackets = 0;
    int quotes = 0;
    for (const char *at = text; *at != '\0'; at++) {
        braces += (*at == '{') - (*at == '}');
        brackets += (*at == '[') - (*at == ']');
        quotes += *at == '"';
        assert_true(braces >= 0 && brackets >= 0);
    }
    assert_int_equal(braces, 0);
    assert_int_equal(brackets, 0);
    assert_int_equal(quotes % 2, 0);
    assert_null(strstr(text, ",,"));
    assert_null(strstr(text, ",}"));
    assert_null(strstr(text, "{,"));
}

CASE(a_small_buffer_is_filled_and_terminated_and_the_whole_length_told) {
    const struct snapshot snapshot = numbered();
    struct format out = begin();
    report_json(&snapshot, &out);
    const size_t whole = out.wanted;
    static char start[101];
    memcpy(start, text, 100);
    format_init(&out, text, 101);
    report_json(&snapshot, &out);
    assert_int_equal(out.wanted, whole);
    assert_string_equal(text, start);
}

CASE(the_xml_names_free_blocks_by_size_and_the_totals) {
    const struct snapshot snapshot = numbered();
    struct format out = begin();
    report_xml(&snapshot, &out);
    assert_int_equal(strncmp(text, "<malloc version=\"", 17), 0);
    assert_string_equal(text + out.wanted - 10, "</malloc>\n");
    assert_holds("<size from=\"49\" to=\"64\" total=\"127680\" count=\"1995\"/>");
    assert_null(strstr(text, "to=\"65536\"")); // none of these is free
    snprintf(expected, sizeof expected,
             "<total type=\"rest\" count=\"%" PRIu64 "\" size=\"%" PRIu64 "\"/>",
             1995 + snapshot.thin_free_count + 1,
             127680 + snapshot.thin_free_bytes + snapshot.free_dirty_bytes);
    assert_holds(expected);
    snprintf(expected, sizeof expected, "type=\"mmap\" count=\"%" PRIu64 "\" size=\"%" PRIu64 "\"",
             snapshot.huge_live_count, snapshot.huge_mapped_bytes);
    assert_holds(expected);
    snprintf(expected, sizeof expected, "<system type=\"current\" size=\"%" PRIu64 "\"/>",
             snapshot.span_bytes + snapshot.free_dirty_bytes);
    assert_holds(expected);
    unsigned opened = 0;
    unsigned closed = 0;
    for (const char *at = text; *at != '\0'; at++) {
        opened += *at == '<';
        closed += *at == '>';
    }
    assert_int_equal(opened, closed);
}

CASE(the_text_has_a_row_for_each_class_in_use_and_goes_to_the_descriptor) {
    static struct heap_world world;
    heap_world_begin(&world);
    for (unsigned i = 0; i < 3; i++) {
        assert_true(heap_allocate(world.heap, 5000, false) != 0);
    }
    const struct observe_sources sources = observe_world_sources(&world);
    FILE *const file = tmpfile();
    assert_non_null(file);
    report_text(&sources, fileno(file));
    rewind(file);
    const size_t length = fread(text, 1, sizeof text - 1, file);
    text[length] = '\0';
    fclose(file);
    assert_int_equal(strncmp(text, "mallow: statistics\n", 19), 0);
    assert_holds("           15360  live (15K)\n");
    assert_holds("               3  live blocks\n");
    snprintf(expected, sizeof expected, "        5120         1         3        %2u\n",
             size_class_capacity(size_class_of(5000)));
    assert_holds(expected);
    assert_null(strstr(text, "\n        4096 ")); // not in use
    heap_world_end(&world);
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(the_json_object_has_every_figure_of_the_snapshot),
        cmocka_unit_test(braces_brackets_and_quotes_are_paired),
        cmocka_unit_test(a_small_buffer_is_filled_and_terminated_and_the_whole_length_told),
        cmocka_unit_test(the_xml_names_free_blocks_by_size_and_the_totals),
        cmocka_unit_test(the_text_has_a_row_for_each_class_in_use_and_goes_to_the_descriptor),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
