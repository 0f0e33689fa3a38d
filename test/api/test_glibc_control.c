// SPDX-License-Identifier: MIT
// glibc's control surface must tell the truth about the heap in use: mallinfo, mallinfo2, malloc_trim,
// malloc_info, malloc_stats. (An allocator that does not define them leaves glibc answering for a heap
// that nobody uses.) Runs preloaded; by hand without preloading it judges glibc. mallopt has its own.
#include "../support/suite.h"

#include <ctype.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>

static size_t live_bytes(void)
{
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd; // hblkhd are the mappings apart, not part of uordblks
}

static void mallinfo2_follows_live_bytes(void **state)
{
    (void)state;
    static const size_t sizes[] = {24, 100, 1000, 5000, 40000, 200000, 3000000};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        const size_t size = sizes[i];
        const size_t count = 20 * MIB / size < 40000 ? 20 * MIB / size : 40000;
        void **const blocks = malloc(count * sizeof *blocks);
        const size_t before = live_bytes();
        for (size_t k = 0; k < count; k++) {
            blocks[k] = malloc(size);
        }
        const size_t asked = size * count;
        const size_t grown = live_bytes() - before;
        if (grown < asked || grown > asked + asked / 3 + count * 32) {
            fail_msg("size %zu: asked for %zu, mallinfo2 tells %zu", size, asked, grown);
        }
        for (size_t k = 0; k < count; k++) {
            free(blocks[k]);
        }
        const size_t after = live_bytes();
        // glibc counts what its thread cache holds as in use: 64 KiB of tolerance, not a share.
        if (after > before + 64 * KIB + 7 * size || before > after + 64 * KIB) {
            fail_msg("size %zu: %zu before, %zu after all was freed", size, before, after);
        }
        free(blocks);
    }
}

static void mallinfo2_adds_up(void **state)
{
    (void)state;
    void *const held = malloc(50000);
    void *const mapped = malloc(9 * MIB);
    const struct mallinfo2 info = mallinfo2();
    assert_int_equal(info.arena, info.uordblks + info.fordblks);
    assert_true(info.uordblks >= 50000);
    assert_true(info.hblks >= 1 ? info.hblkhd >= 9 * MIB : info.uordblks >= 9 * MIB);
    assert_true(info.keepcost <= info.fordblks);
    free(held);
    free(mapped);
}

// Programs divide by it, for the mean size of a free piece.
static void ordblks_counts_free_pieces(void **state)
{
    (void)state;
    static const size_t sizes[] = {24, 160, 1600, 5000};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        void *blocks[64];
        for (size_t j = 0; j < COUNT_OF(blocks); j++) {
            blocks[j] = malloc(sizes[i]);
            assert_non_null(blocks[j]);
        }
        const struct mallinfo2 before = mallinfo2();
        free(blocks[32]);
        const struct mallinfo2 after = mallinfo2();
        assert_true(before.ordblks > 0 || before.fordblks == 0);
        assert_int_equal(after.ordblks, before.ordblks + 1);
        for (size_t j = 0; j < COUNT_OF(blocks); j++) {
            free(j == 32 ? NULL : blocks[j]);
        }
        assert_true(mallinfo2().ordblks > 0 || mallinfo2().fordblks == 0);
    }
}

static void mallinfo_is_mallinfo2_in_int(void **state)
{
    (void)state;
    void *const held = malloc(500000);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    const struct mallinfo narrow = mallinfo();
#pragma GCC diagnostic pop
    const struct mallinfo2 wide = mallinfo2();
    assert_int_equal(narrow.uordblks, (int)wide.uordblks);
    assert_int_equal(narrow.fordblks, (int)wide.fordblks);
    assert_int_equal(narrow.arena, (int)wide.arena);
    assert_int_equal(narrow.hblks, (int)wide.hblks);
    assert_int_equal(narrow.hblkhd, (int)wide.hblkhd);
    free(held);
}

static void malloc_trim_returns_1_when_it_released(void **state)
{
    (void)state;
    enum { COUNT = 40000, SIZE = 1000 };
    void **const blocks = malloc(COUNT * sizeof *blocks);
    void *const guard = malloc(64); // keeps glibc's heap from shrinking by itself
    malloc_trim(0);
    const size_t base = process_rss_kib();
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = malloc(SIZE);
        memset(blocks[i], 1, SIZE);
    }
    void *const top = malloc(64);
    for (size_t i = 0; i < COUNT; i++) {
        free(blocks[i]);
    }
    const size_t before = process_rss_kib();
    const int released = malloc_trim(0);
    const size_t after = process_rss_kib();
    const int again = malloc_trim(0);
    print_message("base %zu, freed %zu, trimmed %zu KiB; returned %d, then %d\n", base, before, after, released,
                  again);
    if (FIGURES_COUNT) {
        assert_true(after <= base + 2 * KIB);
        assert_int_equal(released, before > after + 64);
        assert_int_equal(again, 0);
    }
    free(top);
    free(guard);
    free(blocks);
}

// ---- A reader of XML as far as malloc_info needs it: tags nest, attributes are quoted -------------

struct xml_reader {
    const char *at;
    char open[64][32];
    int depth;
};

static void xml_name(struct xml_reader *reader, char *name)
{
    size_t length = 0;
    while (isalnum((unsigned char)*reader->at) || *reader->at == '_' || *reader->at == '-') {
        assert_true(length < 31);
        name[length++] = *reader->at++;
    }
    assert_true(length > 0);
    name[length] = '\0';
}

static void xml_skip_space(struct xml_reader *reader)
{
    while (isspace((unsigned char)*reader->at)) {
        reader->at++;
    }
}

static void xml_tag(struct xml_reader *reader)
{
    char name[32];
    reader->at++; // the '<'
    if (*reader->at == '/') {
        reader->at++;
        xml_name(reader, name);
        assert_true(reader->depth > 0);
        assert_string_equal(name, reader->open[--reader->depth]);
    } else {
        xml_name(reader, name);
        assert_true(reader->depth < 64);
        strcpy(reader->open[reader->depth++], name);
        for (xml_skip_space(reader); isalpha((unsigned char)*reader->at); xml_skip_space(reader)) {
            xml_name(reader, name);
            assert_int_equal(*reader->at++, '=');
            assert_int_equal(*reader->at++, '"');
            while (*reader->at != '"') {
                assert_true(*reader->at != '\0' && *reader->at != '<' && *reader->at != '&');
                reader->at++;
            }
            reader->at++;
        }
        if (*reader->at == '/') {
            reader->at++;
            reader->depth--;
        }
    }
    assert_int_equal(*reader->at++, '>');
}

static void malloc_info_writes_well_formed_xml(void **state)
{
    (void)state;
    void *const held = malloc(777777);
    void *small[100];
    for (size_t i = 0; i < COUNT_OF(small); i++) {
        small[i] = malloc(i * 10);
    }
    char text[60000];
    FILE *const file = fmemopen(text, sizeof text, "w");
    assert_int_equal(malloc_info(0, file), 0);
    fclose(file);
    struct xml_reader reader = {.at = text, .depth = 0};
    xml_skip_space(&reader);
    if (strncmp(reader.at, "<?xml", 5) == 0) {
        reader.at = strstr(reader.at, "?>") + 2;
        xml_skip_space(&reader);
    }
    assert_int_equal(strncmp(reader.at, "<malloc version=\"", 17), 0);
    do {
        if (*reader.at == '<') {
            xml_tag(&reader);
        } else {
            assert_true(*reader.at != '\0');
            reader.at++;
        }
    } while (reader.depth > 0);
    xml_skip_space(&reader);
    assert_int_equal(*reader.at, '\0');
    // The last system row is the whole heap: at least what we hold here.
    const char *system_row = NULL;
    for (const char *next = text; (next = strstr(next, "<system type=\"current\" size=\"")) != NULL; next++) {
        system_row = next;
    }
    assert_non_null(system_row);
    assert_true(strtoull(system_row + strlen("<system type=\"current\" size=\""), NULL, 10) +
                    mallinfo2().hblkhd >= 777777);
    for (size_t i = 0; i < COUNT_OF(small); i++) {
        free(small[i]);
    }
    free(held);
}

// What is held now, not what was once: both surfaces tell the same.
static void malloc_info_agrees_with_mallinfo2_after_a_peak(void **state)
{
    (void)state;
    static void *blocks[5000];
    static char text[60000];
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        blocks[i] = malloc(10000);
        memset(blocks[i], 1, 10000);
    }
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        free(blocks[i]);
    }
    malloc_trim(0);
    FILE *const file = fmemopen(text, sizeof text, "w");
    assert_int_equal(malloc_info(0, file), 0);
    fclose(file);
    const char *system_row = NULL;
    static const char words[] = "<system type=\"current\" size=\"";
    for (const char *next = text; (next = strstr(next, words)) != NULL; next++) {
        system_row = next;
    }
    assert_non_null(system_row);
    const size_t told = strtoull(system_row + strlen(words), NULL, 10);
    const size_t arena = mallinfo2().arena;
    if (told > arena + (1 << 20) || arena > told + (1 << 20)) {
        fail_msg("malloc_info: %zu bytes of the system, mallinfo2: %zu", told, arena);
    }
}

static ssize_t write_cancelled(void *unused, const char *text, size_t length)
{
    (void)unused;
    (void)text;
    pthread_testcancel();
    return (ssize_t)length;
}

static void *write_info_cancelled(void *stream)
{
    pthread_cancel(pthread_self());
    const int result = malloc_info(0, stream);
    pthread_testcancel(); // the thread ends here, not before
    return (void *)(uintptr_t)(result == 0 ? 1 : 2);
}

static void malloc_info_leaves_nothing_behind_in_a_thread_that_is_cancelled(void **state)
{
    (void)state;
    FILE *const stream = fopencookie(NULL, "w", (cookie_io_functions_t){.write = write_cancelled});
    assert_non_null(stream);
    setvbuf(stream, NULL, _IONBF, 0);
    const size_t before = live_bytes();
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        void *verdict = NULL;
        assert_int_equal(pthread_create(&thread, NULL, write_info_cancelled, stream), 0);
        assert_int_equal(pthread_join(thread, &verdict), 0);
        assert_ptr_equal(verdict, PTHREAD_CANCELED);
    }
    const size_t after = live_bytes();
    assert_true(after < before + 64 * KIB);
    fclose(stream);
}

static void malloc_info_refuses_options(void **state)
{
    (void)state;
    errno = 0;
    const int result = malloc_info(1, stderr);
    assert_true(result == EINVAL || (result == -1 && errno == EINVAL));
}

static void malloc_stats_prints_to_stderr(void **state)
{
    (void)state;
    FILE *const file = tmpfile();
    const int saved = dup(2);
    fflush(stderr);
    dup2(fileno(file), 2);
    malloc_stats();
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    const long length = lseek(fileno(file), 0, SEEK_END);
    fclose(file);
    assert_true(length > 60);
}

// ---- On the smallest stack that a thread may have: what takes more ends in a fault -----------------

static void *call_everything(void *stream)
{
    free(realloc(malloc(3 * MIB), 200));
    assert_int_equal(malloc_info(0, stream), 0);
    (void)malloc_trim(0);
    return (void *)(uintptr_t)(mallinfo2().arena > 0);
}

static void the_smallest_stack_is_enough(void **state)
{
    (void)state;
    pthread_attr_t attributes;
    pthread_t thread;
    void *verdict = NULL;
    FILE *const stream = fopen("/dev/null", "w");
    assert_non_null(stream);
    pthread_attr_init(&attributes);
    assert_int_equal(pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN), 0);
    assert_int_equal(pthread_create(&thread, &attributes, call_everything, stream), 0);
    assert_int_equal(pthread_join(thread, &verdict), 0);
    assert_non_null(verdict);
    fclose(stream);
    pthread_attr_destroy(&attributes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_smallest_stack_is_enough), // first: stacks of ended threads are larger
        cmocka_unit_test(mallinfo2_follows_live_bytes),
        cmocka_unit_test(mallinfo2_adds_up),
        cmocka_unit_test(ordblks_counts_free_pieces),
        cmocka_unit_test(mallinfo_is_mallinfo2_in_int),
        cmocka_unit_test(malloc_trim_returns_1_when_it_released),
        cmocka_unit_test(malloc_info_writes_well_formed_xml),
        cmocka_unit_test(malloc_info_agrees_with_mallinfo2_after_a_peak),
        cmocka_unit_test(malloc_info_leaves_nothing_behind_in_a_thread_that_is_cancelled),
        cmocka_unit_test(malloc_info_refuses_options),
        cmocka_unit_test(malloc_stats_prints_to_stderr),
    };
    return suite_run(tests);
}
