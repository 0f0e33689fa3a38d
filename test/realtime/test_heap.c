// SPDX-License-Identifier: MIT
// mallow/heap.h: a heap's own thread makes no system call (a seccomp filter of that thread kills the
// process for one), meets no page fault and waits for nobody, while another thread uses malloc, frees
// the heap's blocks, gives everything it can back to the kernel, and is stopped anywhere; what the
// reserve does not hold is NULL with a reason; an ended heap leaves nothing behind.
#define _GNU_SOURCE
#include <mallow/heap.h>
#include <mallow/observe.h>

#include "../support/suite.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RESERVE = 16 << 20, SLOTS = 1024, RING = 256 };

static struct mw_heap *make(size_t reserve)
{
    const struct mw_heap_config config = {
        .size_bytes = sizeof config, .reserve_bytes = reserve, .prefault = true};
    struct mw_heap *heap = NULL;
    CHECK(mw_heap_create(&config, &heap) == MW_HEAP_OK && heap != NULL, "no heap of %zu", reserve);
    return heap;
}

static uint64_t next(uint64_t *chance)
{
    *chance ^= *chance << 13;
    *chance ^= *chance >> 7;
    *chance ^= *chance << 17;
    return *chance;
}

static size_t any_size(uint64_t *chance)
{
    const uint64_t dice = next(chance) % 100;
    return dice < 90 ? 1 + next(chance) % 1000 : dice < 98 ? 1 + next(chance) % 30000 : 1 + next(chance) % 200000;
}

static void what_is_wrong_with_a_configuration_is_said(void **state)
{
    (void)state;
    struct mw_heap *heap = (struct mw_heap *)&heap;
    struct mw_heap_config config = {.size_bytes = sizeof config, .reserve_bytes = 1, .limit_bytes = 1};
    CHECK(mw_heap_create(NULL, &heap) == MW_HEAP_BAD_CONFIG && heap == NULL, "no configuration");
    CHECK(mw_heap_create(&config, NULL) == MW_HEAP_BAD_CONFIG, "no place");
    CHECK(mw_heap_create(&config, &heap) == MW_HEAP_BAD_CONFIG, "a reserve with a limit");
    config = (struct mw_heap_config){.size_bytes = sizeof config, .lock = true};
    CHECK(mw_heap_create(&config, &heap) == MW_HEAP_BAD_CONFIG, "nothing to lock");
    CHECK(strstr(mw_heap_status_text(MW_HEAP_BAD_CONFIG), "lock") != NULL, "its text says so");
    config.reserve_bytes = (size_t)1 << 50;
    CHECK(mw_heap_create(&config, &heap) == MW_HEAP_NO_MEMORY && heap == NULL, "too much");
    config.reserve_bytes = SIZE_MAX;
    CHECK(mw_heap_create(&config, &heap) == MW_HEAP_NO_MEMORY && heap == NULL, "more than there can be");
    config.reserve_bytes = 1;
    config.size_bytes = 3;
    CHECK(mw_heap_create(&config, &heap) == MW_HEAP_BAD_CONFIG, "another structure");
    for (int status = 0; status < 9; status++) {
        CHECK(strlen(mw_heap_status_text((enum mw_heap_status)status)) > 7, "status %d", status);
    }
    mw_heap_destroy(NULL);
}

static void the_reserve_is_the_limit(void **state)
{
    (void)state;
    struct mw_heap *const heap = make(4 << 20);
    struct mw_heap_stats stats = {.size_bytes = sizeof stats};
    CHECK(mw_heap_stats_get(heap, &stats) && stats.reserve_bytes == 4 << 20 && stats.free_bytes == 4 << 20, "stats");
    static void *blocks[1 << 16];
    for (size_t size = 100; size < 400000; size = size * 7 + 11) {
        size_t count = 0;
        errno = 0;
        while ((blocks[count] = mw_heap_malloc(heap, size)) != NULL) {
            memset(blocks[count++], 1, size);
        }
        CHECK(errno == ENOMEM && mw_heap_last_status(heap) == MW_HEAP_EXHAUSTED, "size %zu: errno %d", size, errno);
        CHECK(count * size > 2 << 20 && count * size <= 4 << 20, "%zu blocks of %zu", count, size);
        mw_heap_free(heap, blocks[count / 2]);
        blocks[count / 2] = mw_heap_malloc(heap, size);
        CHECK(blocks[count / 2] != NULL, "what is freed makes room");
        for (size_t i = 0; i < count; i++) {
            if (i % 2 == 0) {
                mw_heap_free(heap, blocks[i]);
            } else {
                mw_free(blocks[i]);
            }
        }
    }
    CHECK(mw_heap_malloc(heap, 3 << 20) == NULL && mw_heap_last_status(heap) == MW_HEAP_TOO_BIG, "too big");
    CHECK(mw_heap_aligned_alloc(heap, (size_t)4 << 20, 8) == NULL && mw_heap_last_status(heap) == MW_HEAP_TOO_BIG, "aligned");
    CHECK(mw_heap_aligned_alloc(heap, 48, 8) == NULL && errno == EINVAL &&
              mw_heap_last_status(heap) == MW_HEAP_BAD_ALIGNMENT, "no power of two");
    CHECK(mw_heap_calloc(heap, SIZE_MAX / 2, 3) == NULL && errno == ENOMEM, "overflow");
    CHECK(mw_heap_stats_get(heap, &stats) && stats.refused_count >= 6, "%zu refused", (size_t)stats.refused_count);
    void *const outside = mw_malloc(100);
    CHECK(outside != NULL, "malloc has nothing to do with it");
    mw_heap_free(heap, outside);
    mw_heap_free(heap, NULL);
    mw_heap_destroy(heap);
}

static void blocks_keep_what_is_in_them(void **state)
{
    (void)state;
    struct mw_heap *const heap = make(RESERVE);
    static struct {
        unsigned char *block;
        size_t size;
    } slots[SLOTS];
    uint64_t chance = 88172645463325252u;
    memset(slots, 0, sizeof slots);
    for (unsigned step = 0; step < 300000; step++) {
        const size_t at = next(&chance) % SLOTS;
        const size_t size = any_size(&chance);
        unsigned char *const old = slots[at].block;
        CHECK(old == NULL || (old[0] == (unsigned char)at && old[slots[at].size - 1] == (unsigned char)at), "slot %zu", at);
        unsigned char *block = NULL;
        if (old == NULL) {
            const unsigned way = step % 3;
            block = way == 0 ? mw_heap_malloc(heap, size) : way == 1 ? mw_heap_calloc(heap, 1, size)
                                                                     : mw_heap_aligned_alloc(heap, 256, size);
            CHECK(block == NULL || way != 1 || (block[0] == 0 && block[size - 1] == 0), "calloc");
            CHECK(way != 2 || (uintptr_t)block % 256 == 0, "aligned");
            CHECK(block == NULL || mw_usable_size(block) >= size, "usable");
        } else if (step % 4 == 0) {
            block = mw_heap_realloc(heap, old, size);
            CHECK(block == NULL || block[0] == (unsigned char)at, "realloc");
            if (block == NULL) {
                continue;
            }
        } else if (step % 2 == 0) {
            mw_heap_free(heap, old);
        } else {
            mw_free(old);
        }
        slots[at].block = block;
        slots[at].size = size;
        if (block != NULL) {
            block[0] = block[size - 1] = (unsigned char)at;
        }
    }
    mw_heap_destroy(heap); // with all that is live
}

static void an_ended_heap_leaves_nothing_behind(void **state)
{
    (void)state;
    struct mw_stats before = {.size_bytes = sizeof before}, after = {.size_bytes = sizeof after};
    mw_heap_destroy(make(RESERVE));
    CHECK(mw_stats_get(&before), "stats");
    for (unsigned round = 0; round < 100; round++) {
        struct mw_heap *const one = make(RESERVE), *const two = make(RESERVE / 2);
        for (unsigned i = 0; i < 1000; i++) {
            void *const block = mw_heap_malloc(i % 2 == 0 ? one : two, 1 + i * 37 % 3000);
            CHECK(block != NULL, "block");
            memset(block, 7, 1);
            if (i % 3 == 0) {
                mw_free(block); // by the way of other threads: posted, and not collected
            }
        }
        mw_heap_destroy(round % 2 == 0 ? one : two);
        mw_heap_destroy(round % 2 == 0 ? two : one);
    }
    CHECK(mw_stats_get(&after), "stats");
    CHECK(after.committed_bytes <= before.committed_bytes + 2 * RESERVE, "%zu bytes after, %zu before",
          (size_t)after.committed_bytes, (size_t)before.committed_bytes);
    CHECK(after.small_live_bytes == before.small_live_bytes, "%zu live", (size_t)after.small_live_bytes);
}

// ---- Beside a thread that does everything else --------------------------------------------------

static _Atomic(void *) ring[RING];
static atomic_uint ready, stopped, stop_wanted;

static void stop_here(int number)
{
    (void)number;
    atomic_store(&stopped, 1);
    while (atomic_load(&stop_wanted) != 0) {
    }
    atomic_store(&stopped, 0);
}

static void *busy(void *unused)
{
    (void)unused;
    static void *blocks[64];
    uint64_t chance = 987654321;
    for (unsigned i = 0;; i++) {
        const uint64_t at = next(&chance) % 64;
        mw_free(blocks[at]);
        blocks[at] = mw_malloc(next(&chance) % 5 == 0 ? 2000000 : 1 + next(&chance) % 300000);
        mw_free(atomic_exchange(&ring[next(&chance) % RING], NULL));
        if (i % 64 == 0) {
            (void)mw_collect(true);
        }
        if (i == 1000) {
            atomic_store(&ready, 1);
        }
    }
    return NULL;
}

#define ALLOW(number)                                                                              \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

// Of this thread alone.
static bool enter_sandbox(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_getrusage),
        ALLOW(SYS_tgkill),
        ALLOW(SYS_getpid),
        ALLOW(SYS_rt_sigprocmask),
        ALLOW(SYS_write),
        ALLOW(SYS_exit_group),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    const struct sock_fprog program = {COUNT_OF(filter), filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

static long faults(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_minflt + usage.ru_majflt;
}

static void *slots[SLOTS];

static void work(struct mw_heap *heap, uint64_t *chance, unsigned steps)
{
    for (unsigned step = 0; step < steps; step++) {
        const size_t at = next(chance) % SLOTS;
        if (slots[at] == NULL) {
            slots[at] = mw_heap_malloc(heap, any_size(chance));
            if (slots[at] != NULL) {
                memset(slots[at], 3, 1);
            }
        } else if (next(chance) % 2 == 0) {
            mw_heap_free(heap, atomic_exchange(&ring[next(chance) % RING], slots[at]));
            slots[at] = NULL;
        } else {
            mw_heap_free(heap, slots[at]);
            slots[at] = NULL;
        }
    }
}

static int run_child(void)
{
    pthread_t thread;
    uint64_t chance = 1234567;
    const struct sigaction action = {.sa_handler = stop_here, .sa_flags = SA_RESTART};
    unsigned char stack[64 << 10];
    memset(stack, 1, sizeof stack);
    memset(slots, 1, sizeof slots);
    memset(slots, 0, sizeof slots);
    sigaction(SIGUSR1, &action, NULL);
    struct mw_heap *const heap = make(3 * RESERVE);
    if (pthread_create(&thread, NULL, busy, stack) != 0) {
        return 2;
    }
    work(heap, &chance, 1000);
    pthread_kill(thread, 0); // resolved, and its pages there
    while (atomic_load(&ready) == 0) {
    }
    (void)faults();
    if (!enter_sandbox()) {
        return 77;
    }
    const long before = faults();
    for (unsigned round = 0; round < 1500; round++) {
        work(heap, &chance, 300);
        atomic_store(&stop_wanted, 1);
        pthread_kill(thread, SIGUSR1);
        while (atomic_load(&stopped) == 0) {
        }
        work(heap, &chance, 1000);
        atomic_store(&stop_wanted, 0);
        while (atomic_load(&stopped) != 0) {
        }
    }
    return faults() == before ? 0 : 3;
}

static void no_call_no_fault_no_wait_beside_a_busy_and_stopped_thread(void **state)
{
    (void)state;
    const pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        alarm(100); // a wait for the stopped thread would be for ever
        _exit(run_child());
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        printf("no seccomp filter: nothing was tested here\n");
        return;
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", status);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_wrong_with_a_configuration_is_said),
        cmocka_unit_test(the_reserve_is_the_limit),
        cmocka_unit_test(blocks_keep_what_is_in_them),
        cmocka_unit_test(an_ended_heap_leaves_nothing_behind),
        cmocka_unit_test(no_call_no_fault_no_wait_beside_a_busy_and_stopped_thread),
    };
    return suite_run(tests);
}
