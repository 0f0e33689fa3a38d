// SPDX-License-Identifier: MIT
// Memory of freed huge blocks that is kept serves a program that goes on as it did, counted in page faults:
// vectors that double, zeroed blocks of many sizes, and a block a little larger than all that may be kept.
#define _GNU_SOURCE
#include <mallow/mallow.h>

#include "../support/suite.h"

#include <sys/resource.h>
#include <sys/wait.h>

static long page_faults(void)
{
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0, "getrusage");
    return usage.ru_minflt;
}

// Each load in a process of its own: what was kept before decides.
static void faults_at_most(long most, void (*load)(void))
{
    int status;
    const pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        const long before = page_faults();
        load();
        const long faults = page_faults() - before;
        CHECK(faults <= most, "%ld page faults, at most %ld expected", faults, most);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "status %d", status);
}

static unsigned char *written(unsigned char *block, size_t size)
{
    CHECK(block != NULL, "no %zu bytes", size);
    memset(block, 1, size);
    return block;
}

static void double_a_vector(void)
{
    for (unsigned round = 0; round < 100; round++) {
        size_t size = 64 * KIB;
        unsigned char *vector = written(mw_malloc(size), size);
        for (; size < 4 * MIB; size *= 2) {
            unsigned char *const larger = written(mw_malloc(2 * size), 2 * size);
            memcpy(larger, vector, size);
            mw_free(vector);
            vector = larger;
        }
        mw_free(vector);
    }
}

// 8 MiB of pages a round, in blocks of which those up to 1 MiB lie elsewhere than the others.
static void a_vector_that_doubles_has_its_pages_again(void **state)
{
    (void)state;
    faults_at_most(60000, double_a_vector);
}

static void replace_zeroed_blocks(void)
{
    enum { LIVE = 3, STEPS = 1000 };
    unsigned char *blocks[LIVE] = {NULL};
    struct chance chance = {1};
    for (unsigned step = 0; step < STEPS; step++) {
        const size_t size = 1100000 + chance_below(&chance, 3900000);
        const size_t slot = step < LIVE ? step : chance_below(&chance, LIVE);
        mw_free(blocks[slot]);
        blocks[slot] = mw_calloc(1, size);
        CHECK(nonzero_at(blocks[slot], size) == size, "not zero");
        (void)written(blocks[slot], size);
    }
}

static void zeroed_blocks_of_many_sizes_have_pages_that_are_kept(void **state)
{
    (void)state;
    faults_at_most(500000, replace_zeroed_blocks); // of 745,000 pages; the thread takes its part
}

static void replace_a_block_beyond_the_bound(void)
{
    const size_t size = 32 * MIB + 4096;
    for (unsigned round = 0; round < 30; round++) {
        mw_free(written(mw_malloc(size), size));
    }
}

static void a_block_a_little_beyond_what_may_be_kept_has_most_of_its_pages_again(void **state)
{
    (void)state;
    faults_at_most(60000, replace_a_block_beyond_the_bound); // of 245,000 pages
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_vector_that_doubles_has_its_pages_again),
        cmocka_unit_test(zeroed_blocks_of_many_sizes_have_pages_that_are_kept),
        cmocka_unit_test(a_block_a_little_beyond_what_may_be_kept_has_most_of_its_pages_again),
    };
    return suite_run(tests);
}
