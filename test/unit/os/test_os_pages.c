// SPDX-License-Identifier: MIT
// OS pages: what is brought in faults no more and keeps its contents.
#include "os/os_pages.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../unit.h"

enum { PAGES = 64 };

static size_t page;
static unsigned char *memory;

static int begin(void **state) {
    (void)state;
    page = os_page_size();
    memory = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? -1 : 0;
}

static int end(void **state) {
    (void)state;
    return munmap(memory, PAGES * page);
}

static long fault_count(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt + usage.ru_majflt;
}

// Page faults of a write to every page. Not instrumented: a sanitizer's shadow of the memory would
// fault besides.
__attribute__((no_sanitize("address", "thread"))) static long touch_all(void) {
    const long before = fault_count();
    for (size_t i = 0; i < PAGES; i++) {
        ((volatile unsigned char *)memory)[i * page] = 1;
    }
    return fault_count() - before;
}

CASE(the_page_size_is_the_kernel_s) {
    assert_int_equal(page, (size_t)sysconf(_SC_PAGESIZE));
}

CASE(what_is_not_brought_in_faults) { // or the cases below show nothing
    (void)madvise(memory, PAGES * page, MADV_NOHUGEPAGE);
    assert_true(touch_all() >= PAGES / 16);
}

CASE(prefaulted_memory_faults_no_more_and_keeps_what_it_had) {
    memory[3 * page] = 77;
    errno = 0;
    assert_true(os_prefault((uintptr_t)memory, PAGES * page));
    assert_int_equal(errno, 0);
    assert_int_equal(memory[3 * page], 77);
    assert_int_equal(memory[4 * page], 0);
    assert_int_equal(touch_all(), 0);
}

CASE(memory_that_is_not_there_is_not_prefaulted) {
    assert_int_equal(munmap(memory, PAGES * page), 0);
    assert_false(os_prefault((uintptr_t)memory, PAGES * page));
    assert_false(os_lock_pages((uintptr_t)memory, PAGES * page));
    bool locked = true;
    assert_false(os_bring_in((uintptr_t)memory, PAGES * page, &locked));
    assert_false(locked);
    assert_int_equal(begin(NULL), 0);
}

enum { CHILD_SKIPS = 77 };

// Every madvise of this process gets `error` from now on.
static bool refuse_advice(int error) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof rules / sizeof rules[0], rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

CASE(a_kernel_that_goes_on_asking_for_another_try_is_not_waited_for_for_ever) {
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(20);
        if (!refuse_advice(EAGAIN)) {
            _exit(CHILD_SKIPS);
        }
        _exit(os_prefault((uintptr_t)memory, PAGES * page) ? 1 : 0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == CHILD_SKIPS) {
        skip();
    }
    assert_int_equal(status, 0);
}

CASE(bringing_in_takes_whole_pages_around_any_range) {
    for (int lock = 0; lock < 2; lock++) {
        bool locked = lock != 0;
        assert_true(os_bring_in((uintptr_t)memory + 100, (PAGES - 1) * page, &locked));
        assert_true(lock != 0 || !locked);
        assert_int_equal(touch_all(), 0);
        assert_true(!locked || os_unlock_pages((uintptr_t)memory, PAGES * page));
    }
}

CASE(a_lock_that_is_refused_still_brings_in) {
    struct rlimit old, none = {0, 0};
    if (geteuid() == 0 || getrlimit(RLIMIT_MEMLOCK, &old) != 0) {
        skip(); // root may lock whatever it likes
    }
    none.rlim_max = old.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &none), 0);
    bool locked = true;
    assert_true(os_bring_in((uintptr_t)memory, PAGES * page, &locked));
    assert_false(locked);
    assert_int_equal(touch_all(), 0);
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &old), 0);
}

static unsigned char untouched[64 << 10];

// Page faults of reading it all; not instrumented either.
__attribute__((no_sanitize("address", "thread"))) static long read_image(void) {
    const long before = fault_count();
    for (size_t i = 0; i < sizeof untouched; i += page) {
        (void)((volatile unsigned char *)untouched)[i];
    }
    return fault_count() - before;
}

CASE(the_image_of_the_program_is_brought_in) {
    bool locked = true;
    os_bring_in_image(&locked);
    assert_int_equal(read_image(), 0);
    if (locked) {
        (void)munlockall();
    }
}

#define PAGES_CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    const struct CMUnitTest cases[] = {
        PAGES_CASE(the_page_size_is_the_kernel_s),
        PAGES_CASE(what_is_not_brought_in_faults),
        PAGES_CASE(prefaulted_memory_faults_no_more_and_keeps_what_it_had),
        PAGES_CASE(memory_that_is_not_there_is_not_prefaulted),
        PAGES_CASE(a_kernel_that_goes_on_asking_for_another_try_is_not_waited_for_for_ever),
        PAGES_CASE(bringing_in_takes_whole_pages_around_any_range),
        PAGES_CASE(a_lock_that_is_refused_still_brings_in),
        PAGES_CASE(the_image_of_the_program_is_brought_in),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
