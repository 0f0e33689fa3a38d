// SPDX-License-Identifier: MIT
// Pool text and presets: what is read, what is refused and on which line, and that no text whatever
// does harm.
#include <mallow/pool.h>

#include "pools.h"

static struct mw_pool_config config;
static struct mw_pool_class classes[8];
static struct mw_pool_text_error where;

static enum mw_pool_status parse(const char *text) {
    memset(classes, 0, sizeof classes);
    where.line = 0;
    return mw_pool_config_parse(text, strlen(text), &config, classes, 8, &where);
}

CASE(a_file_with_an_allocator_section_is_read) {
    assert_int_equal(parse("[network]\nport=16381\nclass=nonsense\n\n"
                           "[allocator]\r\n# pools\r\npool_size=64M\r\nclass=64,60\r\n"
                           " class = 256 , 30 \nclass=1024,10 # the rest\n"
                           "[log]\nlevel=3\n[/etc/log/of/another/program/with/a/name/of/its/"
                           "own/that/is/longer/than/any/key]\nlevel=4"),
                     MW_POOL_OK);
    assert_int_equal(config.pool_bytes, 64 << 20);
    assert_int_equal(config.class_count, 3);
    assert_ptr_equal(config.classes, classes);
    static const size_t sizes[] = {64, 256, 1024};
    static const uint32_t shares[] = {600000, 300000, 100000};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(classes[i].size_bytes, sizes[i]);
        assert_int_equal(classes[i].share_ppm, shares[i]);
        assert_int_equal(classes[i].block_count, 0);
    }
    struct mw_pool_planned plan;
    assert_int_equal(mw_pool_plan(&config, &plan, NULL), MW_POOL_OK);
}

CASE(shares_have_decimals_percents_and_parts) {
    assert_int_equal(parse("pool_size=1M\nclass=16,12.5\nclass=32,0.0001%\nclass=48,37 %\n"
                           "class=64,499999ppm\nclass=80,100.0000"),
                     MW_POOL_OK);
    assert_int_equal(classes[0].share_ppm, 125000);
    assert_int_equal(classes[1].share_ppm, 1);
    assert_int_equal(classes[2].share_ppm, 370000);
    assert_int_equal(classes[3].share_ppm, 499999);
    assert_int_equal(classes[4].share_ppm, 1000000);
}

CASE(counts_alignments_and_switches_are_read) {
    assert_int_equal(parse("class=4K,count=100,align=4K\nclass=24,align=8,count=7\nfallback=on\n"
                           "prefault=yes\nlock=Off\nremote=1\ncheck_owner=TRUE\n"),
                     MW_POOL_OK);
    assert_int_equal(classes[0].size_bytes, 4096);
    assert_int_equal(classes[0].block_count, 100);
    assert_int_equal(classes[0].alignment_bytes, 4096);
    assert_int_equal(classes[1].alignment_bytes, 8);
    assert_true(config.fallback && config.prefault && !config.lock && config.remote &&
                config.check_owner);
    assert_int_equal(config.pool_bytes, 0);
}

CASE(a_byte_order_mark_is_passed_over) {
    assert_int_equal(parse("\xef\xbb\xbf[pool]\r\nclass=64,count=3\r\n"), MW_POOL_OK);
    assert_int_equal(config.class_count, 1);
    assert_int_equal(parse("\xef\xbb"), MW_POOL_TEXT_SYNTAX);
    assert_int_equal(parse("class=64,count=3\n\xef\xbb\xbf"), MW_POOL_TEXT_SYNTAX); // in front only
}

CASE(what_is_wrong_has_a_status_and_a_line) {
    static const struct {
        const char *text;
        enum mw_pool_status status;
        size_t line;
    } rows[] = {
        {"pool_size=1M\nclass\n", MW_POOL_TEXT_SYNTAX, 2},
        {"=5", MW_POOL_TEXT_SYNTAX, 1},
        {"[pool", MW_POOL_TEXT_SYNTAX, 1},
        {"\n\npool-size=1M", MW_POOL_TEXT_KEY, 3},
        {"class=64,color=3", MW_POOL_TEXT_KEY, 1},
        {"pool_size=", MW_POOL_TEXT_NUMBER, 1},
        {"pool_size=1.5M", MW_POOL_TEXT_NUMBER, 1},
        {"pool_size=99999999999999999999", MW_POOL_TEXT_NUMBER, 1},
        {"class=x,5", MW_POOL_TEXT_NUMBER, 1},
        {"class=64,", MW_POOL_TEXT_NUMBER, 1},
        {"class=64,5.12345", MW_POOL_TEXT_NUMBER, 1},
        {"class=64,-5", MW_POOL_TEXT_NUMBER, 1},
        {"class=64,5,x", MW_POOL_TEXT_NUMBER, 1},
        {"class=64,5,6", MW_POOL_TEXT_REPEATED, 1},
        {"class=64,0,100", MW_POOL_TEXT_REPEATED, 1},
        {"class=64,5\nclass=32,5,align=8,align=8", MW_POOL_TEXT_REPEATED, 2},
        {"class=64,count=0,count=5", MW_POOL_TEXT_REPEATED, 1},
        {"[pool]\npool_size=1M\n[allocator]\npool_size=2M", MW_POOL_TEXT_REPEATED, 4},
        {"pool_size=0\npool_size=1M", MW_POOL_TEXT_REPEATED, 2},
        {"lock=on\nremote=on\nlock=off", MW_POOL_TEXT_REPEATED, 3},
        {"check_owner=off\ncheck_owner=off", MW_POOL_TEXT_REPEATED, 2},
        {"class=64,5.5ppm", MW_POOL_TEXT_NUMBER, 1},
        {"class=64,count=", MW_POOL_TEXT_NUMBER, 1},
        {"fallback=maybe", MW_POOL_TEXT_SWITCH, 1},
        {"preset=best", MW_POOL_UNKNOWN_PRESET, 1},
        {"class=64,100", MW_POOL_TEXT_NO_SIZE, 1},
        {"class=1,count=1\nclass=1,count=1\nclass=1,count=1\nclass=1,count=1\nclass=1,count=1\n"
         "class=1,count=1\nclass=1,count=1\nclass=1,count=1\nclass=1,count=1\n",
         MW_POOL_TOO_MANY_CLASSES, 9},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(parse(rows[i].text), rows[i].status);
        assert_int_equal(where.line, rows[i].line);
    }
    assert_int_equal(mw_pool_config_parse(NULL, 5, &config, classes, 8, NULL), MW_POOL_NULL_ARGUMENT);
    assert_int_equal(mw_pool_config_parse(NULL, 0, &config, classes, 8, NULL), MW_POOL_OK);
}

CASE(huge_shares_are_not_taken_for_small_ones) {
    assert_int_equal(parse("pool_size=1M\nclass=16,4294967396\n"), MW_POOL_OK); // 2^32 + 100
    struct mw_pool_planned plan;
    assert_int_equal(mw_pool_plan(&config, &plan, NULL), MW_POOL_SHARES_ABOVE_WHOLE);
}

CASE(every_preset_is_a_pool) {
    size_t count = 0;
    const struct mw_pool_preset *preset;
    while ((preset = mw_pool_preset_at(count)) != NULL) {
        char text[128];
        snprintf(text, sizeof text, "pool_size=1M\npreset=%s\n", preset->name);
        assert_int_equal(parse(text), MW_POOL_OK);
        assert_int_equal(config.class_count, preset->class_count);
        struct mw_pool_planned plan;
        assert_int_equal(mw_pool_plan(&config, &plan, NULL), MW_POOL_OK);
        assert_true(plan.overhead_ppm <= 12000); // of so small a pool; embedded is half 16 bytes
        assert_ptr_equal(mw_pool_preset_find(preset->name), preset);
        assert_true(strlen(preset->text) > 10);
        count++;
    }
    assert_int_equal(count, 7);
    assert_null(mw_pool_preset_find("none"));
    assert_null(mw_pool_preset_find(NULL));
}

CASE(no_text_does_harm) {
    struct unit_chance chance = unit_chance_begin();
    static const char *const parts[] = {"class",  "=",  ",", "64",    "\n", "pool_size", "[pool]", "[",
                                        "preset", "on", "%", "align", "#",  "count",     " ",      "ppm",
                                        "]",      ".",  "1", "game",  ";",  "\r",        "\0",     "\xff"};
    for (int i = 0; i < 20000; i++) {
        char text[256];
        size_t length = 0;
        const unsigned wanted = unit_below(&chance, 40);
        for (unsigned part = 0; part < wanted; part++) {
            const char *const word = parts[unit_below(&chance, sizeof parts / sizeof parts[0])];
            const size_t bytes = word[0] == '\0' ? 1 : strlen(word);
            if (length + bytes <= sizeof text) {
                memcpy(text + length, word, bytes);
                length += bytes;
            }
        }
        char *const exact = malloc(length + 1); // a sanitizer sees what lies beyond
        memcpy(exact, text, length);
        const enum mw_pool_status status =
            mw_pool_config_parse(exact, length, &config, classes, 8, &where);
        assert_string_not_equal(mw_pool_status_name(status), "?");
        assert_true(config.class_count <= 8);
        free(exact);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_with_an_allocator_section_is_read),
        cmocka_unit_test(shares_have_decimals_percents_and_parts),
        cmocka_unit_test(counts_alignments_and_switches_are_read),
        cmocka_unit_test(a_byte_order_mark_is_passed_over),
        cmocka_unit_test(what_is_wrong_has_a_status_and_a_line),
        cmocka_unit_test(huge_shares_are_not_taken_for_small_ones),
        cmocka_unit_test(every_preset_is_a_pool),
        cmocka_unit_test(no_text_does_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
