// SPDX-License-Identifier: MIT
// OS: mappings in each of their states, the locks, and that errno is never touched.
#include "os/os.h"

#include <errno.h>
#include <pthread.h>

#include "../unit.h"
#include "base/bits.h"

static struct os os;
static size_t page;

static int begin(void **state) {
    (void)state;
    memset(&os, 0, sizeof os);
    os_init(&os);
    page = os.page_bytes;
    return 0;
}

CASE(the_break_is_what_it_has_grown_by) {
    const uintptr_t before = os_break();
    atomic_store_explicit(&os.break_at_start, before, memory_order_relaxed);
    assert_true(before != 0);
    assert_false(os_is_in_break(&os, before - 1));
    assert_false(os_is_in_break(&os, before));
    assert_ptr_equal(sbrk(64), (void *)before);
    assert_true(os_is_in_break(&os, before));
    assert_true(os_is_in_break(&os, before + 63));
    assert_false(os_is_in_break(&os, before + 64));
    assert_ptr_equal(sbrk(-64), (void *)(before + 64));
    assert_false(os_is_in_break(&os, before));
}

static bool reads(uintptr_t address, unsigned char byte, size_t bytes) {
    return *(const unsigned char *)address == byte &&
           unit_is_all((const void *)address, byte, bytes);
}

static void touch(void *address) {
    *(volatile char *)address = 1;
}

static void look(void *address) {
    (void)*(volatile char *)address;
}

// Whether the access is stopped by the kernel.
static bool faults(void (*access)(void *), uintptr_t address) {
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        access((void *)address);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status);
}

CASE(the_facts_are_those_of_the_process) {
    assert_int_equal(page, (size_t)sysconf(_SC_PAGESIZE));
    assert_true(bits_is_power_of_two(page));
    assert_true(os.address_space_limit >= 1 << 20);
    assert_int_equal(os.map_count, 0);
}

CASE(a_mapping_is_zero_writable_aligned_and_counted) {
    for (size_t alignment = 1; alignment <= (16 << 20); alignment *= 2) {
        const uintptr_t address = os_map(&os, 3 * page, alignment);
        assert_true(address != 0);
        assert_int_equal(address % bits_max(alignment, page), 0);
        assert_true(reads(address, 0, 3 * page));
        memset((void *)address, 0x5a, 3 * page);
        const uint64_t unmaps = os.unmap_count;
        assert_true(os_unmap(&os, address, 3 * page));
        assert_int_equal(os.unmap_count, unmaps + 1);
    }
    assert_int_equal(os.map_count, 25); // one call each
}

CASE(reserved_address_space_cannot_be_touched_until_it_is_committed) {
    const uintptr_t address = os_reserve(&os, 4 << 20, 2 << 20);
    assert_int_equal(address % (2 << 20), 0);
    assert_true(faults(look, address));
    assert_true(os_commit(&os, address + page, 2 * page));
    assert_true(faults(look, address));
    assert_true(faults(look, address + 3 * page));
    assert_true(reads(address + page, 0, 2 * page));
    memset((void *)(address + page), 0x5a, 2 * page);
    assert_true(os_decommit(&os, address + page, page));
    assert_true(faults(look, address + page));
    assert_true(reads(address + 2 * page, 0x5a, page));
    assert_true(os_commit(&os, address + page, page));
    assert_true(reads(address + page, 0, page)); // fresh
    assert_true(os_unmap(&os, address, 4 << 20));
}

CASE(what_is_readable_only_reads_as_zero_and_cannot_be_written) {
    const uintptr_t address = os_reserve(&os, 4 * page, page);
    assert_true(os_commit_readable(&os, address, 2 * page));
    assert_true(reads(address, 0, 2 * page));
    assert_true(faults(touch, address));
    assert_true(os_commit(&os, address, page));
    touch((void *)address);
    assert_true(faults(touch, address + page));
    assert_true(os_unmap(&os, address, 4 * page));
}

CASE(purged_pages_read_as_zero_and_their_neighbours_do_not) {
    const uintptr_t address = os_map(&os, 4 * page, page);
    memset((void *)address, 0x5a, 4 * page);
    assert_true(os_purge(&os, address + page, 2 * page));
    assert_int_equal(os.advise_count, 1);
    assert_true(reads(address, 0x5a, page));
    assert_true(reads(address + page, 0, 2 * page));
    assert_true(reads(address + 3 * page, 0x5a, page));
    assert_true(os_unmap(&os, address, 4 * page));
    assert_false(os_purge(&os, address, page)); // nothing is there
}

CASE(remapping_moves_the_pages_and_their_contents) {
    const uintptr_t address = os_map(&os, 2 * page, page);
    memset((void *)address, 0x5a, 2 * page);
    const uintptr_t grown = os_remap(&os, address, 2 * page, 64 * page, true);
    assert_true(grown != 0);
    assert_true(reads(grown, 0x5a, 2 * page));
    assert_true(reads(grown + 2 * page, 0, 62 * page));
    const uintptr_t cut = os_remap(&os, grown, 64 * page, page, false);
    assert_int_equal(cut, grown);
    assert_true(faults(look, grown + page));
    assert_int_equal(os.remap_count, 2);
    assert_true(os_unmap(&os, cut, page));
    assert_int_equal(os_remap(&os, cut, page, 2 * page, true), 0);
}

CASE(moving_puts_pages_in_place_of_others) {
    const uintptr_t source = os_map(&os, 2 * page, 1);
    const uintptr_t target = os_map(&os, 4 * page, 1);
    memset((void *)source, 0x31, 2 * page);
    memset((void *)target, 0x32, 4 * page);
    assert_int_equal(os_move(&os, source, 2 * page, target + page), OS_MOVED);
    assert_false(os_is_mapped(&os, source));
    assert_true(reads(target, 0x32, page));
    assert_true(reads(target + page, 0x31, 2 * page));
    assert_true(reads(target + 3 * page, 0x32, page));
    (void)os_unmap(&os, target, 4 * page);
}

CASE(a_move_that_fails_leaves_no_hole_and_replaces_nothing) {
    const uintptr_t target = os_map(&os, 4 * page, 1);
    const uintptr_t nothing = os_map(&os, page, 1);
    memset((void *)target, 0x33, 4 * page);
    (void)os_unmap(&os, nothing, page);
    // The kernel unmaps the target before it finds that there is nothing to move: filled again. Or
    // it finds out first: then whose pages they are cannot be told, and they stay; and of what was to
    // be moved nothing is there.
    const enum os_moved moved = os_move(&os, nothing, page, target + page);
    assert_true(moved == OS_NOT_MOVED || moved == OS_BOTH_LOST);
    assert_true(os_is_mapped(&os, target + page));
    assert_true(reads(target + page, moved == OS_NOT_MOVED ? 0 : 0x33, page));
    // A range cannot move into itself: refused before anything is unmapped.
    assert_int_equal(os_move(&os, target + 2 * page, 2 * page, target + 3 * page), OS_TARGET_LOST);
    assert_true(reads(target + 2 * page, 0x33, 2 * page));
    (void)os_unmap(&os, target, 4 * page);
}

CASE(a_mapping_with_a_neighbour_does_not_grow_unless_it_may_move) {
    const uintptr_t address = os_reserve(&os, 4 * page, page);
    assert_true(os_commit(&os, address, page));
    memset((void *)address, 0x5a, page);
    assert_int_equal(os_remap(&os, address, page, 2 * page, false), 0);
    assert_true(reads(address, 0x5a, page));
    const uintptr_t moved = os_remap(&os, address, page, 2 * page, true);
    assert_true(moved != 0 && moved != address);
    assert_true(reads(moved, 0x5a, page));
    assert_true(os_unmap(&os, moved, 2 * page));
    assert_true(os_unmap(&os, address + page, 3 * page));
}

CASE(what_the_kernel_refuses_is_zero_or_false) {
    assert_int_equal(os_map(&os, (size_t)1 << 62, page), 0);
    assert_int_equal(os_map(&os, SIZE_MAX - page, 2 * page), 0);
    assert_int_equal(os_map(&os, page, (size_t)1 << 63), 0);
    assert_int_equal(os_reserve(&os, (size_t)1 << 62, page), 0);
    assert_int_equal(os_reserve(&os, 0, page), 0);
    assert_false(os_unmap(&os, 1, page));
    assert_true(os.map_count >= 3);
}

CASE(no_call_touches_errno_even_when_it_fails) {
    errno = 1234;
    (void)os_map(&os, (size_t)1 << 62, page);
    (void)os_commit(&os, 1, page);
    (void)os_decommit(&os, 1, page);
    (void)os_unmap(&os, 1, page);
    (void)os_purge(&os, 1, page);
    (void)os_remap(&os, 1, page, page, true);
    (void)os_is_mapped(&os, 1);
    os_write(-1, "text", 4);
    os_pause(64);
    assert_int_equal(errno, 1234);
}

CASE(text_is_written_whole_and_a_closed_descriptor_is_no_harm) {
    int ends[2];
    char text[600];
    char got[600] = {0};
    memset(text, 'm', sizeof text);
    assert_int_equal(pipe(ends), 0);
    os_write(ends[1], text, sizeof text);
    assert_int_equal(read(ends[0], got, sizeof got), sizeof text);
    assert_memory_equal(text, got, sizeof text);
    close(ends[0]);
    close(ends[1]);
    os_write(ends[1], text, sizeof text);
    os_write(-1, text, sizeof text);
}

// ---- Locks --------------------------------------------------------------------------------------

static struct os_lock lock;
static unsigned counter; // under the lock
static _Atomic(unsigned) arrived;

static void *count_up(void *argument) {
    for (unsigned i = 0; i < 20000; i++) {
        os_lock_take(&lock);
        counter++;
        if (i % 1000 == 0) {
            os_pause(64); // long enough for the others to go to sleep
        }
        os_lock_drop(&lock);
    }
    return argument;
}

static void *arrive(void *argument) {
    os_lock_take(&lock);
    atomic_fetch_add(&arrived, 1);
    os_lock_drop(&lock);
    return argument;
}

CASE(a_lock_lets_one_thread_in_at_a_time) {
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    os_lock_renew(&lock);
    counter = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, count_up, NULL), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(counter, THREADS * 20000);
    assert_int_equal(atomic_load(&lock.state), 0);
}

CASE(during_a_fork_the_lock_is_open_to_the_forking_thread_and_to_no_other) {
    pthread_t other;
    os_lock_renew(&lock);
    atomic_store(&arrived, 0);
    os_lock_take_for_fork(&lock, false);
    assert_int_equal(pthread_create(&other, NULL, arrive, NULL), 0);
    for (unsigned depth = 1; depth <= 3; depth++) {
        os_lock_take(&lock);
        assert_int_equal(lock.depth, depth);
    }
    for (unsigned depth = 3; depth > 0; depth--) {
        os_lock_drop(&lock);
        assert_int_equal(lock.depth, depth - 1);
    }
    for (unsigned round = 0; round < 200 && (atomic_load(&lock.state) & 2) == 0; round++) {
        os_pause(64); // until the other thread sleeps
    }
    assert_true(os_lock_is_mine(&lock) && (atomic_load(&lock.state) & 2) != 0);
    assert_int_equal(atomic_load(&arrived), 0);
    os_lock_drop_after_fork(&lock);
    assert_int_equal(pthread_join(other, NULL), 0);
    assert_int_equal(atomic_load(&arrived), 1);
    assert_int_equal(atomic_load(&lock.state), 0);
    assert_int_equal(lock.fork_thread, 0);
}

static void *arrive_patiently(void *argument) {
    os_lock_take_patiently(&lock);
    atomic_fetch_add(&arrived, 1);
    os_lock_drop(&lock);
    return argument;
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// So whoever holds the lock for less than 50 ms does not enter the kernel as it lets it go.
CASE(who_waits_patiently_asks_late_to_be_woken) {
    pthread_t other;
    os_lock_renew(&lock);
    atomic_store(&arrived, 0);
    os_lock_take(&lock);
    const int64_t begin_ns = now_ns();
    assert_int_equal(pthread_create(&other, NULL, arrive_patiently, NULL), 0);
    while ((atomic_load(&lock.state) & 2) == 0) {
        os_pause(64);
    }
    assert_true(now_ns() - begin_ns >= 50000000);
    assert_int_equal(atomic_load(&arrived), 0);
    os_lock_drop(&lock);
    assert_int_equal(pthread_join(other, NULL), 0);
    assert_int_equal(atomic_load(&arrived), 1);
    assert_int_equal(atomic_load(&lock.state), 0);
}

static void take_twice(void *argument) {
    os_lock_renew(argument);
    os_lock_take(argument);
    os_lock_take(argument);
}

static void take_twice_patiently(void *argument) {
    os_lock_renew(argument);
    os_lock_take_patiently(argument);
    os_lock_take_patiently(argument);
}

CASE(a_lock_that_its_own_thread_waits_for_stops_the_program) {
    assert_true(unit_dies(take_twice, &lock, "mallow: deadlock at the lock 0x"));
    assert_true(unit_dies(take_twice_patiently, &lock, "mallow: deadlock at the lock 0x"));
}

CASE(a_renewed_lock_is_free_whatever_its_state_was) {
    os_lock_renew(&lock);
    os_lock_take_for_fork(&lock, false);
    os_lock_take(&lock);
    os_lock_renew(&lock);
    assert_true(unit_is_all(&lock, 0, sizeof lock));
    assert_int_equal(atomic_load(&lock.state), 0);
    os_lock_take(&lock);
    os_lock_drop(&lock);
    assert_int_equal(atomic_load(&lock.state), 0);
}

CASE(a_fork_that_interrupts_the_holder_leaves_the_lock_with_it) {
    os_lock_renew(&lock);
    assert_false(os_lock_is_mine(&lock));
    os_lock_take(&lock);
    assert_true(os_lock_is_mine(&lock));
    for (unsigned nested = 0; nested < 2; nested++) { // in the parent
        os_lock_take_for_fork(&lock, true);
        os_lock_take(&lock); // for a handler of the program's
        os_lock_drop(&lock);
    }
    os_lock_drop_after_fork(&lock);
    os_lock_drop_after_fork(&lock);
    assert_true(os_lock_is_mine(&lock));
    os_lock_take_for_fork(&lock, true); // in the child
    os_lock_renew(&lock);
    assert_true(os_lock_is_mine(&lock));
    assert_int_equal(lock.fork_thread, 0);
    os_lock_drop(&lock);
    assert_true(unit_is_all(&lock, 0, sizeof lock));
}

static void *take_and_wait(void *barrier) {
    os_lock_take(&lock);
    pthread_barrier_wait(barrier);
    pthread_barrier_wait(barrier);
    os_lock_drop(&lock);
    return barrier;
}

CASE(a_hurried_fork_leaves_anothers_lock_alone) {
    pthread_barrier_t barrier;
    pthread_t other;
    os_lock_renew(&lock);
    assert_int_equal(pthread_barrier_init(&barrier, NULL, 2), 0);
    assert_int_equal(pthread_create(&other, NULL, take_and_wait, &barrier), 0);
    pthread_barrier_wait(&barrier);
    os_lock_take_for_fork(&lock, true);
    assert_false(os_lock_is_mine(&lock));
    assert_int_equal(lock.fork_thread, 0);
    os_lock_drop_after_fork(&lock);
    assert_int_not_equal(atomic_load(&lock.state), 0);
    pthread_barrier_wait(&barrier);
    assert_int_equal(pthread_join(other, NULL), 0);
    assert_true(unit_is_all(&lock, 0, sizeof lock));
    os_lock_take_for_fork(&lock, true);
    assert_true(os_lock_is_mine(&lock));
    os_lock_drop_after_fork(&lock);
    assert_true(unit_is_all(&lock, 0, sizeof lock));
}

static bool is_pending(int number) {
    sigset_t set;
    sigpending(&set);
    return sigismember(&set, number) == 1;
}

static bool is_blocked(int number) {
    sigset_t set;
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    return sigismember(&set, number) == 1;
}

CASE(a_reader_that_has_gone_is_no_signal_and_the_programs_signals_stay) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    errno = 12345;
    assert_false(os_tell(ends[1], "text", 4)); // SIGPIPE would end this program
    assert_int_equal(errno, 12345);
    assert_false(is_blocked(SIGPIPE) || is_blocked(SIGXFSZ) || is_pending(SIGPIPE));

    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    assert_false(os_tell(ends[1], "text", 4));
    assert_true(is_blocked(SIGPIPE) && !is_blocked(SIGXFSZ) && !is_pending(SIGPIPE));
    pthread_kill(pthread_self(), SIGPIPE); // the program waits for one of its own
    assert_false(os_tell(ends[1], "text", 4));
    assert_true(is_pending(SIGPIPE));
    int taken = 0;
    assert_int_equal(sigwait(&set, &taken), 0);
    assert_false(is_pending(SIGPIPE));
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    close(ends[1]);
}

CASE(once_sealed_nothing_is_asked_of_the_kernel) {
    const uintptr_t address = os_map(&os, 4 * page, page);
    memset((void *)address, 7, 4 * page);
    const uint64_t maps = os.map_count, unmaps = os.unmap_count;
    os.sealed = true;
    assert_int_equal(os_map(&os, page, page), 0);
    assert_int_equal(os_reserve(&os, page, page), 0);
    assert_false(os_commit(&os, address, page));
    assert_false(os_commit_readable(&os, address, page));
    assert_false(os_decommit(&os, address, page));
    assert_false(os_purge(&os, address, page));
    assert_false(os_unmap(&os, address, page));
    assert_int_equal(os_remap(&os, address, page, 8 * page, true), 0);
    assert_int_equal(os_move(&os, address, page, address + 2 * page), OS_NOT_MOVED);
    assert_true(reads(address, 7, 4 * page));
    assert_int_equal(os.map_count, maps);
    assert_int_equal(os.unmap_count, unmaps);
    assert_int_equal(os.advise_count + os.remap_count, 0);
    os.sealed = false;
    assert_true(os_unmap(&os, address, 4 * page));
}

#define OS_CASE(name) cmocka_unit_test_setup(name, begin)

int main(void) {
    const struct CMUnitTest cases[] = {
        OS_CASE(the_break_is_what_it_has_grown_by),
        OS_CASE(the_facts_are_those_of_the_process),
        OS_CASE(a_mapping_is_zero_writable_aligned_and_counted),
        OS_CASE(reserved_address_space_cannot_be_touched_until_it_is_committed),
        OS_CASE(what_is_readable_only_reads_as_zero_and_cannot_be_written),
        OS_CASE(purged_pages_read_as_zero_and_their_neighbours_do_not),
        OS_CASE(remapping_moves_the_pages_and_their_contents),
        OS_CASE(moving_puts_pages_in_place_of_others),
        OS_CASE(a_move_that_fails_leaves_no_hole_and_replaces_nothing),
        OS_CASE(a_mapping_with_a_neighbour_does_not_grow_unless_it_may_move),
        OS_CASE(what_the_kernel_refuses_is_zero_or_false),
        OS_CASE(no_call_touches_errno_even_when_it_fails),
        OS_CASE(text_is_written_whole_and_a_closed_descriptor_is_no_harm),
        OS_CASE(a_reader_that_has_gone_is_no_signal_and_the_programs_signals_stay),
        OS_CASE(once_sealed_nothing_is_asked_of_the_kernel),
        OS_CASE(a_lock_lets_one_thread_in_at_a_time),
        OS_CASE(during_a_fork_the_lock_is_open_to_the_forking_thread_and_to_no_other),
        OS_CASE(who_waits_patiently_asks_late_to_be_woken),
        OS_CASE(a_lock_that_its_own_thread_waits_for_stops_the_program),
        OS_CASE(a_renewed_lock_is_free_whatever_its_state_was),
        OS_CASE(a_fork_that_interrupts_the_holder_leaves_the_lock_with_it),
        OS_CASE(a_hurried_fork_leaves_anothers_lock_alone),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
