// SPDX-License-Identifier: MIT
// The names beneath the names: glibc's __libc_ aliases, which old programs and other libraries call,
// must reach the same heap, in any mixture with the plain names. Runs preloaded.
#include "../support/suite.h"

#include <dlfcn.h>
#include <malloc.h>

static void *symbol(const char *name)
{
    void *const found = dlsym(RTLD_DEFAULT, name);
    if (found == NULL) {
        fail_msg("no symbol %s", name);
    }
    return found;
}

static bool owned(const void *block)
{
    return ((bool (*)(const void *))symbol("mw_is_owned"))(block);
}

static void expect_ours(void *block, size_t size, size_t alignment, const char *name)
{
    if (block == NULL || !owned(block) || (uintptr_t)block % alignment != 0 || malloc_usable_size(block) < size) {
        fail_msg("%s gave %p", name, block);
    }
    memset(block, 1, size);
}

static void aliases_allocate_from_the_same_heap(void **state)
{
    (void)state;
    for (size_t size = 1; size < 3 * MIB; size = size * 3 + 1) {
        void *block = ((void *(*)(size_t))symbol("__libc_malloc"))(size);
        expect_ours(block, size, 16, "__libc_malloc");
        block = realloc(block, size * 2);
        block = ((void *(*)(void *, size_t))symbol("__libc_realloc"))(block, size * 3);
        expect_ours(block, size * 3, 16, "__libc_realloc");
        free(block);
        block = ((void *(*)(size_t, size_t))symbol("__libc_calloc"))(3, size);
        assert_int_equal(nonzero_at(block, 3 * size), 3 * size);
        expect_ours(block, 3 * size, 16, "__libc_calloc");
        ((void (*)(void *))symbol("__libc_cfree"))(block);
        block = ((void *(*)(size_t, size_t))symbol("__libc_memalign"))(1024, size);
        expect_ours(block, size, 1024, "__libc_memalign");
        free(block);
        block = ((void *(*)(size_t))symbol("__libc_valloc"))(size);
        expect_ours(block, size, 4096, "__libc_valloc");
        free(block);
        block = ((void *(*)(size_t))symbol("__libc_pvalloc"))(size);
        expect_ours(block, size, 4096, "__libc_pvalloc");
        free(block);
        assert_int_equal(((int (*)(void **, size_t, size_t))symbol("__posix_memalign"))(&block, 64, size), 0);
        expect_ours(block, size, 64, "__posix_memalign");
        ((void (*)(void *))symbol("__libc_free"))(block);
        assert_false(owned(block));
        void *(*const array)(void *, size_t, size_t) = (void *(*)(void *, size_t, size_t))symbol("__libc_reallocarray");
        block = array(array(NULL, 2, size), 5, size);
        expect_ours(block, 5 * size, 16, "__libc_reallocarray");
        errno = 0;
        assert_null(array(block, SIZE_MAX / 2, 3));
        assert_int_equal(errno, ENOMEM);
        assert_true(owned(block));
        ((void (*)(void *))symbol("vfree"))(block);
        assert_false(owned(block));
    }
}

// Blocks that the C library itself hands out come from the preloaded heap as well.
static void the_c_library_allocates_from_the_same_heap(void **state)
{
    (void)state;
    char *text = NULL;
    assert_true(asprintf(&text, "%d", 12345) == 5);
    expect_ours(text, 6, 16, "asprintf");
    free(text);
    size_t capacity = 0;
    char *line = NULL;
    FILE *const file = tmpfile();
    fputs("one line\n", file);
    rewind(file);
    assert_int_equal(getline(&line, &capacity, file), 9);
    expect_ours(line, capacity, 16, "getline");
    free(line);
    fclose(file);
    char *const copy = strdup("copied");
    expect_ours(copy, 7, 16, "strdup");
    free(copy);
    char *const directory = getcwd(NULL, 0);
    assert_true(owned(directory));
    free(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(aliases_allocate_from_the_same_heap),
        cmocka_unit_test(the_c_library_allocates_from_the_same_heap),
    };
    return suite_run(tests);
}
