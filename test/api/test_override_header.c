// SPDX-License-Identifier: MIT
// mallow/override.h in one of two files, with a mallow built without the override: this file's names are
// mallow's, called or handed on; the other's stay libc's; and what libc allocates is freed here.
#define _GNU_SOURCE
#include <mallow/override.h>

#include "../support/suite.h"

#include <dirent.h>

void *other_malloc(size_t size); // override_header_other.c
void other_free(void *block);

static void every_name_gives_blocks_of_mallow(void **state)
{
    (void)state;
    void *pages = NULL;
    CHECK(posix_memalign(&pages, 4096, 100) == 0, "posix_memalign");
    void *const array = reallocarray(NULL, 3, 40);
    void *resized = NULL;
    CHECK(reallocarr(&resized, 5, 20) == 0, "reallocarr");
    void *const blocks[] = {malloc(10),
                            calloc(3, 7),
                            realloc(malloc(30), 3000),
                            reallocf(malloc(30), 3000),
                            array,
                            resized,
                            pages,
                            aligned_alloc(64, 128),
                            memalign(256, 10),
                            valloc(10),
                            pvalloc(10),
                            strdup("text"),
                            strndup("text", 2),
                            realpath("/usr/..", NULL)};
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        CHECK(mw_is_owned(blocks[i]), "block %zu", i);
        CHECK(malloc_usable_size(blocks[i]) == malloc_size(blocks[i]) && malloc_size(blocks[i]) > 0, "size %zu", i);
    }
    CHECK(malloc_good_size(10) >= 10, "malloc_good_size");
    for (size_t i = 0; i + 3 < COUNT_OF(blocks); i++) {
        free(blocks[i]);
    }
    cfree(blocks[11]);
    free_sized(blocks[12], 3);
    free_aligned_sized(blocks[13], 1, 2);
}

static void a_name_that_is_handed_on_is_mallows_too(void **state)
{
    (void)state;
    void *(*const volatile make)(size_t) = malloc;
    void (*const volatile end)(void *) = free;
    CHECK(make == mw_malloc && end == mw_free, "not renamed");
    end(make(10));
}

static void a_file_without_the_header_has_libcs(void **state)
{
    (void)state;
    void *const block = other_malloc(100);
    CHECK(!mw_is_owned(block), "the override is linked");
    other_free(block);
}

static void what_libc_allocates_is_freed_and_resized(void **state)
{
    (void)state;
    char *line = NULL;
    size_t capacity = 0;
    FILE *const file = fopen("/proc/self/status", "r");
    CHECK(file != NULL && getline(&line, &capacity, file) > 0, "getline");
    CHECK(!mw_is_owned(line), "libc's");
    char first[8];
    memcpy(first, line, sizeof first);
    line = realloc(line, 100000);
    CHECK(mw_is_owned(line) && memcmp(first, line, sizeof first) == 0, "realloc of libc's block");
    free(line);
    fclose(file);
    char *text = NULL;
    CHECK(asprintf(&text, "%d and %d", 1, 2) > 0, "asprintf");
    free(text);
    struct dirent **entries = NULL;
    const int count = scandir("/", &entries, NULL, alphasort);
    CHECK(count > 0, "scandir");
    for (int i = 0; i < count; i++) {
        free(entries[i]);
    }
    free(entries);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_name_gives_blocks_of_mallow),
        cmocka_unit_test(a_name_that_is_handed_on_is_mallows_too),
        cmocka_unit_test(a_file_without_the_header_has_libcs),
        cmocka_unit_test(what_libc_allocates_is_freed_and_resized),
    };
    return suite_run(tests);
}
