// SPDX-License-Identifier: MIT
// mallopt: a parameter is honoured (1, and its effect can be seen) or refused (0); it is never taken in
// silence. Each parameter is tried in a process of its own. Runs preloaded; by hand without preloading
// it judges glibc.
#include "../support/suite.h"

#include <malloc.h>
#include <sys/wait.h>

enum { HONOURED = 11, REFUSED = 12 }; // CHECK exits 1

// Runs `trial` in a child; it exits HONOURED or REFUSED, and anything else is a failure.
static int outcome_of(int (*trial)(void))
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        _exit(trial());
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || (WEXITSTATUS(status) != HONOURED && WEXITSTATUS(status) != REFUSED)) {
        fail_msg("trial ended with status %#x", (unsigned)status);
    }
    print_message("%s\n", WEXITSTATUS(status) == HONOURED ? "honoured" : "refused");
    return WEXITSTATUS(status);
}

#define SET_OR_REFUSED(parameter, value)                                                           \
    do {                                                                                           \
        const int result = mallopt(parameter, value);                                              \
        CHECK(result == 0 || result == 1, "mallopt returned %d", result);                          \
        if (result == 0) {                                                                         \
            return REFUSED;                                                                        \
        }                                                                                          \
    } while (0)

static size_t mapped_blocks(void)
{
    return mallinfo2().hblks;
}

static int mmap_threshold_trial(void)
{
    SET_OR_REFUSED(M_MMAP_THRESHOLD, 300 * 1024);
    const size_t before = mapped_blocks();
    void *const below = malloc(200 * KIB);
    CHECK(mapped_blocks() == before, "200 KiB was mapped apart below a threshold of 300 KiB");
    void *const above = malloc(400 * KIB);
    CHECK(mapped_blocks() == before + 1, "400 KiB was not mapped apart above a threshold of 300 KiB");
    free(below);
    free(above);
    return HONOURED;
}

static void mmap_threshold_is_honoured_or_refused(void **state)
{
    (void)state;
    outcome_of(mmap_threshold_trial);
}

// What is refused leaves the threshold as it was.
static int mmap_threshold_refusal_trial(void)
{
    SET_OR_REFUSED(M_MMAP_THRESHOLD, 300 * 1024);
    const size_t before = mapped_blocks();
    static const int values[] = {INT32_MIN, -1, 0, 4096, 2 * 1024 * 1024, INT32_MAX};
    for (size_t i = 0; i < COUNT_OF(values); i++) {
        if (mallopt(M_MMAP_THRESHOLD, values[i]) == 0) {
            void *const above = malloc(400 * KIB);
            CHECK(mapped_blocks() == before + 1, "the refused value %d changed the threshold", values[i]);
            free(above);
        } else {
            void *const above = malloc(values[i] > 0 ? (size_t)values[i] + 5000 : 100);
            CHECK(mapped_blocks() == before + 1, "above %d was not mapped apart", values[i]);
            free(above);
            CHECK(mallopt(M_MMAP_THRESHOLD, 300 * 1024) == 1, "refused what was honoured before");
        }
    }
    return HONOURED;
}

static void mmap_threshold_refused_stays_as_it_was(void **state)
{
    (void)state;
    outcome_of(mmap_threshold_refusal_trial);
}

static int mmap_max_trial(void)
{
    SET_OR_REFUSED(M_MMAP_MAX, 0);
    void *const block = malloc(20 * MIB);
    CHECK(block != NULL && mapped_blocks() == 0, "mapped apart though M_MMAP_MAX is 0");
    free(block);
    return HONOURED;
}

static void mmap_max_is_honoured_or_refused(void **state)
{
    (void)state;
    outcome_of(mmap_max_trial);
}

static size_t rss_after_freeing_kib(size_t total)
{
    const size_t size = 2000;
    const size_t count = total / size;
    void **const blocks = malloc(count * sizeof *blocks);
    for (size_t i = 0; i < count; i++) {
        blocks[i] = malloc(size);
        memset(blocks[i], 1, size);
    }
    for (size_t i = count; i-- > 0;) {
        free(blocks[i]);
    }
    free(blocks);
    return process_rss_kib();
}

static int trim_threshold_low_trial(void)
{
    SET_OR_REFUSED(M_TRIM_THRESHOLD, 128 * 1024);
    const size_t base = process_rss_kib();
    const size_t after = rss_after_freeing_kib(50 * MIB);
    CHECK(after < base + 4 * KIB, "%zu KiB kept over a trim threshold of 128 KiB", after - base);
    return HONOURED;
}

static int trim_threshold_off_trial(void)
{
    SET_OR_REFUSED(M_TRIM_THRESHOLD, -1); // never trim
    const size_t base = process_rss_kib();
    const size_t after = rss_after_freeing_kib(150 * MIB);
    CHECK(after > base + 100 * KIB, "trimmed to %zu KiB with trimming off", after - base);
    for (int i = 0; i < 20; i++) { // nor later, nor by what the program goes on doing
        usleep(100 * 1000);
        free(malloc(100 * KIB));
    }
    const size_t later = process_rss_kib();
    CHECK(later + KIB > after, "%zu KiB with trimming off, then %zu", after, later);
    malloc_trim(0);
    const size_t trimmed = process_rss_kib();
    CHECK(trimmed < base + 8 * KIB, "malloc_trim left %zu KiB", trimmed - base);
    return HONOURED;
}

static void trim_threshold_is_honoured_or_refused(void **state)
{
    (void)state;
    outcome_of(trim_threshold_low_trial);
    outcome_of(trim_threshold_off_trial);
}

static int perturb_trial(void)
{
    SET_OR_REFUSED(M_PERTURB, 0x5a);
    for (size_t size = 1; size < 200000; size = size * 2 + 1) {
        unsigned char *const block = malloc(size);
        for (size_t i = 0; i < size; i++) {
            CHECK(block[i] == (0x5a ^ 0xff), "byte %zu of a new block of %zu is %#x", i, size, block[i]);
        }
        memset(block, 0x11, size);
        unsigned char *const zeroed = calloc(1, size);
        CHECK(nonzero_at(zeroed, size) == size, "calloc after M_PERTURB");
        free(zeroed);
        free(block);
    }
    return HONOURED;
}

static void perturb_is_honoured_or_refused(void **state)
{
    (void)state;
    outcome_of(perturb_trial);
}

// Counts whose effect cannot be seen from outside; 0 or 1 are the only truthful answers, and the heap
// must work after either.
static void arena_counts_are_answered_and_harmless(void **state)
{
    (void)state;
    static const int parameters[] = {M_ARENA_MAX, M_ARENA_TEST, M_TOP_PAD, M_MXFAST, M_NLBLKS, M_GRAIN};
    for (size_t i = 0; i < COUNT_OF(parameters); i++) {
        const int result = mallopt(parameters[i], 1);
        assert_true(result == 0 || result == 1);
    }
    void *const block = malloc(100000);
    assert_non_null(block);
    free(block);
}

// What bounds or tunes structures that are not there holds whatever its value, so programs that insist on it
// go on: at most so many arenas, no bins of blocks kept unmerged, no room ahead of the break. A misuse stops
// the program whatever M_CHECK_ACTION says, as with glibc since 2.26.
static void what_holds_anyway_is_honoured(void **state)
{
    (void)state;
    static const int counts[] = {1, 2, 8, 400, INT32_MAX};
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        assert_int_equal(mallopt(M_ARENA_MAX, counts[i]), 1);
        assert_int_equal(mallopt(M_ARENA_TEST, counts[i]), 1);
        assert_int_equal(mallopt(M_TOP_PAD, counts[i]), 1);
        assert_int_equal(mallopt(M_NLBLKS, counts[i]), 1);
        assert_int_equal(mallopt(M_GRAIN, counts[i]), 1);
    }
    for (int bytes = 0; bytes <= 160; bytes += 16) {
        assert_int_equal(mallopt(M_MXFAST, bytes), 1);
    }
    assert_int_equal(mallopt(M_MXFAST, 161), 0);
    assert_int_equal(mallopt(M_MXFAST, -1), 0);
    assert_int_equal(mallopt(M_CHECK_ACTION, 3), 1);
    assert_int_equal(mallopt(M_PERTURB, 0), 1);
}

static void unknown_parameters_are_refused(void **state)
{
    (void)state;
    static const int unknown[] = {12345, -12345, 100, -100, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < COUNT_OF(unknown); i++) {
        assert_int_equal(mallopt(unknown[i], 1), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mmap_threshold_is_honoured_or_refused),
        cmocka_unit_test(mmap_threshold_refused_stays_as_it_was),
        cmocka_unit_test(mmap_max_is_honoured_or_refused),
        cmocka_unit_test(trim_threshold_is_honoured_or_refused),
        cmocka_unit_test(perturb_is_honoured_or_refused),
        cmocka_unit_test(arena_counts_are_answered_and_harmless),
        cmocka_unit_test(what_holds_anyway_is_honoured),
        cmocka_unit_test(unknown_parameters_are_refused),
    };
    return suite_run(tests);
}
