// SPDX-License-Identifier: MIT
// OS, huge pages: reading the system's setting, and making a huge page of small ones where the kernel
// can.
#include "os/os_huge.h"

#include <sys/mman.h>
#include <sys/utsname.h>

#include "../smaps.h"

static struct os os;

static int begin(void **state) {
    (void)state;
    memset(&os, 0, sizeof os);
    os_init(&os);
    return 0;
}

static enum os_huge_setting parse(const char *text) {
    return os_huge_parse(text, strlen(text));
}

CASE(the_setting_is_the_word_in_brackets) {
    assert_int_equal(parse("[always] madvise never\n"), OS_HUGE_ALWAYS);
    assert_int_equal(parse("always [madvise] never\n"), OS_HUGE_ASKED);
    assert_int_equal(parse("always madvise [never]\n"), OS_HUGE_NEVER);
}

CASE(a_text_without_a_setting_means_never) {
    assert_int_equal(parse(""), OS_HUGE_NEVER);
    assert_int_equal(parse("always madvise never"), OS_HUGE_NEVER);
    assert_int_equal(parse("always ["), OS_HUGE_NEVER);
    assert_int_equal(parse("[inherit]"), OS_HUGE_NEVER);
}

// Under every setting but "never" a chunk becomes huge, keeps its contents, and is left with the flags
// that it had, whichever way its mapping was made.
static void promote_a_chunk(bool keeps_small) {
    if (os_huge_setting(&os) == OS_HUGE_NEVER) {
        print_message("the system's setting is never\n");
        skip();
    }
    os.keeps_small = keeps_small;
    os.keeps_by_advice = keeps_small && os_kernel_version() < (6 << 8 | 7);
    unsigned char *const chunk =
        (unsigned char *)os_map(&os, 3 * MALLOW_CHUNK_BYTES, MALLOW_CHUNK_BYTES);
    assert_non_null(chunk);
    for (size_t i = 0; i < MALLOW_CHUNK_BYTES; i += 4096) {
        chunk[i] = (unsigned char)(i / 4096 * 7);
    }
    if (keeps_small) { // "always" would have made a huge page of it
        assert_int_equal(smaps_huge_kib((uintptr_t)chunk), 0);
        assert_true(smaps_has_flag((uintptr_t)chunk, " nh"));
    }
    const enum os_huge_result result = os_huge_promote(&os, (uintptr_t)chunk);
    if (result != OS_HUGE_MADE) {
        print_message("MADV_COLLAPSE: result %d\n", (int)result);
        skip();
    }
    assert_int_equal(smaps_huge_kib((uintptr_t)chunk), MALLOW_CHUNK_BYTES / 1024);
    assert_int_equal(smaps_has_flag((uintptr_t)chunk, " nh"), keeps_small);
    assert_false(smaps_has_flag((uintptr_t)chunk, " hg"));
    for (size_t i = 0; i < MALLOW_CHUNK_BYTES; i += 4096) {
        assert_int_equal(chunk[i], (unsigned char)(i / 4096 * 7));
    }
    // A part that is purged comes back small, and as zero.
    assert_true(os_purge(&os, (uintptr_t)chunk, MALLOW_CHUNK_BYTES));
    assert_int_equal(chunk[5], 0);
    if (keeps_small) {
        assert_int_equal(smaps_huge_kib((uintptr_t)chunk), 0);
    }
    assert_true(os_unmap(&os, (uintptr_t)chunk, 3 * MALLOW_CHUNK_BYTES));
}

CASE(the_version_is_the_one_that_uname_tells) {
    struct utsname name;
    unsigned major = 0;
    unsigned minor = 0;
    assert_int_equal(uname(&name), 0);
    assert_int_equal(sscanf(name.release, "%u.%u", &major, &minor), 2);
    if (os_kernel_version() == 0) {
        skip(); // no vDSO: under an emulator, say
    }
    assert_int_equal(os_kernel_version(), major << 8 | minor);
}

CASE(a_kernel_that_cannot_is_left_to_its_own_policy) {
    assert_false(os_huge_start(&os, 6 << 8));
    assert_false(os.keeps_small);
    assert_false(os.keeps_by_advice);
    os.page_bytes = 65536; // a huge page is no chunk
    assert_false(os_huge_start(&os, 6 << 8 | 12));
    assert_false(os.keeps_small);
}

CASE(an_older_kernel_is_told_by_a_second_call_and_only_where_it_matters) {
    const bool always = os_huge_setting(&os) == OS_HUGE_ALWAYS;
    if (os.page_bytes != 4096) {
        skip();
    }
    assert_true(os_huge_start(&os, 6 << 8 | 1));
    assert_int_equal(os.keeps_small, always);
    assert_int_equal(os.keeps_by_advice, always);
    assert_true(os_huge_start(&os, 6 << 8 | 7));
    assert_true(os.keeps_small);
    os.keeps_by_advice = false;
    assert_true(os_huge_start(&os, 0)); // not known: as if it were new
    assert_true(os.keeps_small);
    assert_false(os.keeps_by_advice);
}

CASE(no_mapping_of_ours_may_get_a_huge_page_and_that_costs_no_call) {
    if (os_kernel_version() < (6 << 8 | 7) || os_huge_setting(&os) == OS_HUGE_NEVER) {
        skip();
    }
    assert_true(os_huge_start(&os, os_kernel_version()));
    const uint64_t before = os_entries(&os);
    const uintptr_t mapped = os_map(&os, 3 * MALLOW_CHUNK_BYTES, 1);
    assert_int_equal(os_entries(&os) - before, 1);
    const uintptr_t reserved = os_reserve(&os, 3 * MALLOW_CHUNK_BYTES, 1);
    assert_true(os_commit(&os, reserved, 2 * MALLOW_CHUNK_BYTES));
    assert_true(os_commit_readable(&os, reserved + 2 * MALLOW_CHUNK_BYTES, MALLOW_CHUNK_BYTES));
    assert_int_equal(os_entries(&os) - before, 4);
    const uintptr_t grown =
        os_remap(&os, mapped, 3 * MALLOW_CHUNK_BYTES, 5 * MALLOW_CHUNK_BYTES, true);
    assert_true(smaps_has_flag(grown, " nh"));
    assert_true(smaps_has_flag(reserved, " nh"));
    assert_true(smaps_has_flag(reserved + 2 * MALLOW_CHUNK_BYTES, " nh"));
    assert_true(os_unmap(&os, grown, 5 * MALLOW_CHUNK_BYTES));
    assert_true(os_unmap(&os, reserved, 3 * MALLOW_CHUNK_BYTES));
}

CASE(page_faults_are_counted) {
    const uintptr_t address = os_map(&os, MALLOW_CHUNK_BYTES, 1);
    const uint64_t before = os_fault_count();
    assert_true(before > 0);
    for (size_t i = 0; i < 100; i++) {
        *(volatile char *)(address + i * os.page_bytes) = 1;
    }
    assert_true(os_fault_count() - before >= (os.page_bytes == 4096 ? 100 : 1));
    assert_true(os_unmap(&os, address, MALLOW_CHUNK_BYTES));
}

CASE(what_a_child_shares_is_not_own) {
    const uintptr_t address = os_map(&os, MALLOW_CHUNK_BYTES, MALLOW_CHUNK_BYTES);
    int pipe_ends[2];
    char byte = 0;
    memset((void *)address, 1, MALLOW_CHUNK_BYTES / 2);
    if (os.page_bytes != 4096 || access("/proc/self/pagemap", R_OK) != 0) {
        assert_false(access("/proc/self/pagemap", R_OK) != 0 && os_huge_is_own(address));
        skip();
    }
    assert_true(os_huge_is_own(address));
    assert_int_equal(pipe(pipe_ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        close(pipe_ends[1]);
        _exit(read(pipe_ends[0], &byte, 1) != 0); // when the parent is done
    }
    close(pipe_ends[0]);
    assert_false(os_huge_is_own(address));
    memset((void *)address, 2, MALLOW_CHUNK_BYTES / 2); // copied: each has its own
    assert_true(os_huge_is_own(address));
    memset((void *)(address + MALLOW_CHUNK_BYTES / 2), 3, 4096);
    close(pipe_ends[1]);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(os_huge_is_own(address));
    assert_true(os_unmap(&os, address, MALLOW_CHUNK_BYTES));
}

CASE(a_chunk_becomes_huge) {
    promote_a_chunk(false);
}

CASE(a_chunk_that_is_kept_off_huge_pages_becomes_huge_and_is_kept_off_again) {
    promote_a_chunk(true);
}

// As by a program for a block of its own, which would get small pages otherwise after giving some back.
CASE(what_the_program_has_asked_huge_pages_for_stays_so) {
    if (os_huge_setting(&os) == OS_HUGE_NEVER || !os_huge_start(&os, os_kernel_version())) {
        skip();
    }
    const uintptr_t chunk = os_map(&os, 2 * MALLOW_CHUNK_BYTES, MALLOW_CHUNK_BYTES);
    assert_int_equal(madvise((void *)chunk, 2 * MALLOW_CHUNK_BYTES, MADV_HUGEPAGE), 0);
    memset((void *)chunk, 1, 2 * MALLOW_CHUNK_BYTES);
    const enum os_huge_result result = os_huge_promote(&os, chunk);
    if (result != OS_HUGE_MADE) {
        print_message("MADV_COLLAPSE: result %d\n", (int)result);
        skip();
    }
    assert_true(smaps_has_flag(chunk, " hg"));
    assert_false(smaps_has_flag(chunk, " nh"));
    assert_true(os_unmap(&os, chunk, 2 * MALLOW_CHUNK_BYTES));
}

CASE(what_is_not_mapped_does_not_become_huge) {
    const uintptr_t address = os_map(&os, MALLOW_CHUNK_BYTES, MALLOW_CHUNK_BYTES);
    assert_true(os_unmap(&os, address, MALLOW_CHUNK_BYTES));
    assert_int_not_equal(os_huge_promote(&os, address), OS_HUGE_MADE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_setting_is_the_word_in_brackets, begin),
        cmocka_unit_test_setup(a_text_without_a_setting_means_never, begin),
        cmocka_unit_test_setup(the_version_is_the_one_that_uname_tells, begin),
        cmocka_unit_test_setup(a_kernel_that_cannot_is_left_to_its_own_policy, begin),
        cmocka_unit_test_setup(
            an_older_kernel_is_told_by_a_second_call_and_only_where_it_matters, begin),
        cmocka_unit_test_setup(
            no_mapping_of_ours_may_get_a_huge_page_and_that_costs_no_call, begin),
        cmocka_unit_test_setup(page_faults_are_counted, begin),
        cmocka_unit_test_setup(what_a_child_shares_is_not_own, begin),
        cmocka_unit_test_setup(a_chunk_becomes_huge, begin),
        cmocka_unit_test_setup(
            a_chunk_that_is_kept_off_huge_pages_becomes_huge_and_is_kept_off_again, begin),
        cmocka_unit_test_setup(what_the_program_has_asked_huge_pages_for_stays_so, begin),
        cmocka_unit_test_setup(what_is_not_mapped_does_not_become_huge, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
