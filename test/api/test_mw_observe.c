// SPDX-License-Identifier: MIT
// Statistics and options by the API: the numbers must follow what the program does.
#include "../support/suite.h"

#include <ctype.h>
#include <mallow/observe.h>
#include <mallow/options.h>

static struct mw_stats stats_now(void)
{
    struct mw_stats stats = {.size_bytes = sizeof stats};
    assert_true(mw_stats_get(&stats));
    return stats;
}

static void live_bytes_follow_blocks(size_t size, size_t count)
{
    const struct mw_stats before = stats_now();
    void **const blocks = mw_calloc(count + 1, sizeof *blocks);
    const struct mw_stats start = stats_now();
    uint64_t expected = 0;
    for (size_t i = 0; i < count; i++) {
        blocks[i] = mw_malloc(size);
        expected += mw_usable_size(blocks[i]);
    }
    const struct mw_stats full = stats_now();
    assert_int_equal(full.live_bytes - start.live_bytes, expected);
    assert_int_equal(full.live_count - start.live_count, count);
    assert_true(full.committed_bytes >= full.live_bytes);
    assert_true(full.reserved_bytes >= full.committed_bytes);
    assert_int_equal(full.live_bytes, full.small_live_bytes + full.large_live_bytes + full.huge_live_bytes);
    for (size_t i = 0; i < count; i++) {
        mw_free(blocks[i]);
    }
    mw_free(blocks);
    const struct mw_stats after = stats_now();
    assert_int_equal(after.live_bytes, before.live_bytes);
    assert_int_equal(after.live_count, before.live_count);
}

static void live_bytes_and_counts_are_exact(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 16, 100, 1000, 9000, 70000, 500000, 1048576, 5000000};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        live_bytes_follow_blocks(sizes[i], sizes[i] < 10000 ? 3000 : 20);
    }
}

// Their mappings reach further, to where the alignment begins and behind it.
static void an_alignment_adds_nothing_to_live_bytes(void **state)
{
    (void)state;
    static const size_t sizes[] = {100, 5000, 200000, 1000000, 2000000, 5000000};
    static const size_t alignments[] = {64, 4096, 65536, MIB, 16 * MIB};
    const struct mw_stats before = stats_now();
    for (size_t i = 0; i < COUNT_OF(sizes) * COUNT_OF(alignments); i++) {
        const size_t size = sizes[i / COUNT_OF(alignments)];
        const size_t alignment = alignments[i % COUNT_OF(alignments)];
        void *const aligned = mw_malloc_aligned(size, alignment);
        void *const at = mw_malloc_aligned_at(size, alignment, size / 3);
        const struct mw_stats full = stats_now();
        assert_int_equal(full.live_count - before.live_count, 2);
        assert_int_equal(full.live_bytes - before.live_bytes, mw_usable_size(aligned) + mw_usable_size(at));
        assert_true(full.committed_bytes >= full.live_bytes);
        assert_true(full.held_bytes >= full.live_bytes);
        mw_free(aligned);
        mw_free(at);
    }
    assert_int_equal(stats_now().live_bytes, before.live_bytes);
}

static void stats_know_their_version_and_size(void **state)
{
    (void)state;
    const struct mw_stats stats = stats_now();
    assert_int_equal(stats.version, MALLOW_STATS_VERSION);
    assert_true(stats.heap_count >= 1);
    struct mw_stats small = {.size_bytes = 4, .live_bytes = 99};
    assert_false(mw_stats_get(&small));
    assert_int_equal(small.live_bytes, 99);
    struct mw_stats older = {.size_bytes = offsetof(struct mw_stats, small_live_bytes), .small_live_bytes = 99};
    assert_true(mw_stats_get(&older)); // a caller of an older version gets the fields it knows
    assert_int_equal(older.small_live_bytes, 99);
}

static void classes_add_up_to_the_small_blocks(void **state)
{
    (void)state;
    void *blocks[500];
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        blocks[i] = mw_malloc(100);
    }
    uint64_t live_bytes = 0;
    size_t block_bytes_before = 0;
    struct mw_class_stats row;
    unsigned index = 0;
    bool found = false;
    for (; mw_class_stats_get(index, &row); index++) {
        assert_true(row.block_bytes > block_bytes_before);
        assert_true(row.live_count <= row.capacity_count);
        live_bytes += row.live_count * row.block_bytes;
        block_bytes_before = row.block_bytes;
        found = found || (row.block_bytes == mw_good_size(100) && row.live_count >= COUNT_OF(blocks));
    }
    assert_true(index > 10);
    assert_true(found);
    assert_int_equal(live_bytes, stats_now().small_live_bytes);
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        mw_free(blocks[i]);
    }
}

static void json_has_snprintf_rules_and_balanced_braces(void **state)
{
    (void)state;
    const size_t length = mw_stats_json(NULL, 0);
    assert_true(length > 100);
    char *const text = mw_malloc(length + 200);
    memset(text, '?', length + 200);
    const size_t again = mw_stats_json(text, length + 200);
    assert_int_equal(strlen(text), again);
    assert_int_equal(text[0], '{');
    int depth = 0;
    for (size_t i = 0; i < again; i++) {
        depth += text[i] == '{' || text[i] == '[';
        depth -= text[i] == '}' || text[i] == ']';
        assert_true(depth > 0 || i + 2 >= again);
    }
    assert_int_equal(depth, 0);
    assert_non_null(strstr(text, "\"live_bytes\""));
    char small[16];
    memset(small, '?', sizeof small);
    assert_true(mw_stats_json(small, 10) > 100);
    assert_int_equal(strlen(small), 9);
    assert_int_equal(small[10], '?');
    mw_free(text);
}

static void printed_statistics_reach_the_descriptor(void **state)
{
    (void)state;
    FILE *const file = tmpfile();
    mw_stats_print(fileno(file));
    assert_true(lseek(fileno(file), 0, SEEK_END) > 200);
    fclose(file);
}

static void process_info_agrees_with_the_kernel(void **state)
{
    (void)state;
    struct mw_process_info info;
    mw_process_info_get(&info);
    if (FIGURES_COUNT) {
        assert_in_range(info.rss_bytes, process_rss_kib() * KIB / 2, process_rss_kib() * KIB * 2);
        assert_true(info.peak_rss_bytes >= info.rss_bytes / 2);
    }
    assert_true(info.minor_fault_count > 0);
    assert_true(info.elapsed_us < 600u * 1000000u);
}

static void collect_gives_memory_back(void **state)
{
    (void)state;
    enum { COUNT = 30000 };
    void **const blocks = mw_malloc(COUNT * sizeof *blocks);
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = mw_malloc(1000);
        memset(blocks[i], 1, 1000);
    }
    const size_t full = process_rss_kib();
    for (size_t i = 0; i < COUNT; i++) {
        mw_free(blocks[i]);
    }
    const size_t before = process_rss_kib();
    const size_t released = mw_collect(true) / KIB;
    const size_t after = process_rss_kib();
    mw_free(blocks);
    if (FIGURES_COUNT) {
        assert_true(after + 26 * KIB < full);
        assert_true(released + 2 * KIB >= before - after); // what it says is what it did
    }
}

static void every_option_can_be_read_and_set_or_says_why_not(void **state)
{
    (void)state;
    struct mw_option_info info;
    unsigned index = 0;
    for (; mw_option_info_get(index, &info); index++) {
        char buffer[200];
        assert_non_null(mw_option_get(info.name, buffer, sizeof buffer));
        assert_int_equal(strncmp(info.environment, "MALLOW_", 7), 0);
        assert_int_equal(strlen(info.environment), 7 + strlen(info.name));
        for (size_t i = 0; i <= strlen(info.name); i++) {
            assert_int_equal(info.environment[7 + i], toupper((unsigned char)info.name[i]));
        }
        assert_true(strlen(info.help) > 10);
        const int result = mw_option_set(info.name, info.default_text);
        assert_true(result == 0 || result == EBUSY);
        if (strcmp(info.type, "text") != 0 && result == 0) {
            assert_int_equal(mw_option_set(info.name, "nonsense"), EINVAL);
            assert_int_equal(mw_option_set(info.name, ""), EINVAL);
            assert_int_equal(mw_option_set(info.name, "12Q"), EINVAL);
            assert_int_equal(mw_option_set(info.name, "-1"), EINVAL);
            assert_int_equal(mw_option_set(info.name, "99999999999999999999999"), EINVAL);
        }
    }
    assert_true(index >= 5);
    assert_int_equal(mw_option_set("no_such_option", "1"), ENOENT);
    assert_null(mw_option_get("no_such_option", (char[8]){0}, 8));
}

static void a_size_option_takes_suffixes(void **state)
{
    (void)state;
    char buffer[64];
    assert_int_equal(mw_option_set("huge_cache", "8M"), 0);
    const char *const text = mw_option_get("huge_cache", buffer, sizeof buffer);
    assert_true(strcmp(text, "8M") == 0 || strcmp(text, "8388608") == 0);
    assert_int_equal(mw_option_set("huge_cache", "32M"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(live_bytes_and_counts_are_exact),
        cmocka_unit_test(an_alignment_adds_nothing_to_live_bytes),
        cmocka_unit_test(stats_know_their_version_and_size),
        cmocka_unit_test(classes_add_up_to_the_small_blocks),
        cmocka_unit_test(json_has_snprintf_rules_and_balanced_braces),
        cmocka_unit_test(printed_statistics_reach_the_descriptor),
        cmocka_unit_test(process_info_agrees_with_the_kernel),
        cmocka_unit_test(collect_gives_memory_back),
        cmocka_unit_test(every_option_can_be_read_and_set_or_says_why_not),
        cmocka_unit_test(a_size_option_takes_suffixes),
    };
    return suite_run(tests);
}
