// SPDX-License-Identifier: MIT
// MALLOW_MODE=realtime, preloaded: after start no page fault, and no system call (a seccomp filter kills
// the process for any but those that the test itself makes), which means that nobody waits for a lock
// either, whatever other threads do, and wherever they have been stopped; what does not fit is NULL with
// ENOMEM, and everything that comes back can be used again. The reserve is 32 MiB, for threads 96
// (tests.cmake). Where a filter refuses to lock pages and to bring them in by advice (refused), they are
// brought in all the same; where memory for that is missing (unready), the line says no more than that.
#include "../support/filter.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { SLOTS = 4096, STEPS = 2000000, RESERVE = 32 << 20, FILL_MAX = 1 << 17 };

static struct {
    unsigned char *block;
    size_t size;
} slots[SLOTS];
static void *filled[FILL_MAX];
static unsigned char *stack_of_worker;

#define ALLOW(number)                                                                              \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void enter_sandbox(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_getrusage),
        ALLOW(SYS_write),
        ALLOW(SYS_newfstatat), // this and the next: what stdio asks before a CHECK says its line
        ALLOW(SYS_lseek),
        ALLOW(SYS_exit_group),
        ALLOW(SYS_tgkill), // to stop a thread, and what that takes
        ALLOW(SYS_getpid),
        ALLOW(SYS_rt_sigprocmask),
        ALLOW(SYS_rt_sigreturn),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    filter_install(filter, COUNT_OF(filter), SECCOMP_FILTER_FLAG_TSYNC);
}

static long faults(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt + usage.ru_majflt;
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
    const uint64_t dice = next(chance) % 1000;
    return dice < 900 ? 1 + next(chance) % 1000 : dice < 995 ? 1 + next(chance) % 40000 : 1 + next(chance) % 500000;
}

// Everything malloc has; half the reserve live at most, so that nothing may be refused.
static void churn(unsigned long steps, size_t limit, size_t first, size_t count)
{
    uint64_t chance = 88172645463325252u + first;
    size_t live = 0;
    for (unsigned long i = 0; i < steps; i++) {
        const size_t at = first + next(&chance) % count;
        const size_t size = any_size(&chance);
        unsigned char *const old = slots[at].block;
        if (old != NULL) {
            CHECK(old[0] == (unsigned char)at && old[slots[at].size - 1] == (unsigned char)at, "slot %zu", at);
        }
        if (old != NULL && (live + size > limit || i % 4 != 0)) {
            free(old);
            live -= slots[at].size;
            slots[at].block = NULL;
            continue;
        }
        if (live + size > limit) {
            continue;
        }
        unsigned char *const block = old != NULL ? realloc(old, size) : i % 3 == 0 ? calloc(1, size) : malloc(size);
        CHECK(block != NULL, "%zu bytes with %zu live", size, live);
        CHECK(old != NULL || i % 3 != 0 || (block[0] == 0 && block[size - 1] == 0), "calloc");
        live += size - (old != NULL ? slots[at].size : 0);
        slots[at].block = block;
        slots[at].size = size;
        block[0] = block[size - 1] = (unsigned char)at;
    }
    for (size_t at = first; at < first + count; at++) {
        free(slots[at].block);
        slots[at].block = NULL;
    }
}

// Until NULL; returns the bytes.
static size_t fill(size_t size)
{
    size_t count = 0;
    errno = 0;
    while (count < FILL_MAX && (filled[count] = malloc(size)) != NULL) {
        memset(filled[count++], 1, size);
    }
    CHECK(count < FILL_MAX && errno == ENOMEM, "%zu blocks of %zu, errno %d", count, size, errno);
    for (size_t i = 0; i < count; i++) {
        free(filled[i]);
    }
    return count * size;
}

static void check_one_thread(void)
{
    // Blocks of up to 1 MiB are served whatever threshold is asked for, here and by tests.cmake: there
    // are no mappings of their own.
    CHECK(mallopt(M_MMAP_THRESHOLD, 64 << 10) == 0, "a threshold for mappings in realtime mode");
    CHECK(mallopt(M_TRIM_THRESHOLD, -1) == 1, "nothing is trimmed in realtime mode");
    enter_sandbox();
    const long before = faults();
    churn(STEPS, RESERVE / 4, 0, SLOTS);
    static const size_t sizes[] = {300, 5000, 70000, 600000, 300};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        const size_t bytes = fill(sizes[i]);
        CHECK(bytes > RESERVE / 2 && bytes <= RESERVE, "%zu bytes in blocks of %zu", bytes, sizes[i]);
    }
    errno = 0;
    CHECK(malloc(3 << 20) == NULL && errno == ENOMEM, "larger than any block of this mode");
    errno = 0;
    CHECK(malloc(1 << 30) == NULL && errno == ENOMEM, "larger than the reserve");
    churn(STEPS / 4, RESERVE / 4, 0, SLOTS);
    (void)malloc_trim(0);
    free(NULL);
    CHECK(faults() == before, "%ld page faults", faults() - before);
}

static atomic_uint ready, go, done;

static void *worker(void *first)
{
    unsigned char stack[64 << 10];
    memset(stack, 1, sizeof stack); // the stack's pages are the thread's own affair
    stack_of_worker = stack;
    free(malloc(10));
    atomic_fetch_add(&ready, 1);
    while (atomic_load(&go) == 0) {
    }
    churn(STEPS / 8, RESERVE / 16, (size_t)first, SLOTS / 4);
    atomic_fetch_add(&done, 1);
    while (atomic_load(&go) == 1) {
    }
    return NULL;
}

static void check_threads(void)
{
    pthread_t threads[3];
    for (size_t i = 0; i < 3; i++) {
        CHECK(pthread_create(&threads[i], NULL, worker, (void *)((i + 1) * (SLOTS / 4))) == 0, "thread");
    }
    while (atomic_load(&ready) < 3) {
    }
    enter_sandbox();
    const long before = faults();
    atomic_store(&go, 1);
    churn(STEPS / 8, RESERVE / 16, 0, SLOTS / 4);
    while (atomic_load(&done) < 3) {
    }
    CHECK(faults() == before, "%ld page faults", faults() - before);
}

// More threads than there is memory for heaps of their own: they share one, and what ends is taken over.
enum { MANY = 1200 };

static void *hold_a_block(void *hold)
{
    unsigned char *const block = malloc(100);
    CHECK(block != NULL, "thread %u of %u has no block", atomic_load(&ready), (unsigned)MANY);
    block[99] = 1;
    atomic_fetch_add(&ready, 1);
    while (hold != NULL && atomic_load(&go) == 0) {
        usleep(1000);
    }
    free(block);
    return NULL;
}

static void check_many(void)
{
    static pthread_t threads[MANY];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    for (size_t i = 0; i < MANY; i++) {
        CHECK(pthread_create(&threads[i], &small, hold_a_block, &go) == 0, "thread %zu", i);
    }
    while (atomic_load(&ready) < MANY) {
        usleep(1000);
    }
    atomic_store(&go, 1);
    for (size_t i = 0; i < MANY; i++) {
        pthread_join(threads[i], NULL);
    }
    for (size_t i = 0; i < MANY; i++) {
        CHECK(pthread_create(&threads[0], &small, hold_a_block, NULL) == 0, "thread %zu", i);
        pthread_join(threads[0], NULL);
    }
}

// Stops a thread wherever it is, in malloc or out of it.
static atomic_uint stopped, stop_wanted;

static void stop_here(int number)
{
    (void)number;
    atomic_store(&stopped, 1);
    while (atomic_load(&stop_wanted) != 0) {
    }
    atomic_store(&stopped, 0);
}

// Slabs and large blocks come and go all the time: what takes most of the ways to the reserve.
static void *busy_worker(void *unused)
{
    unsigned char stack[64 << 10];
    memset(stack, 1, sizeof stack);
    stack_of_worker = stack;
    (void)unused;
    void *blocks[64] = {NULL};
    uint64_t chance = 12345;
    free(malloc(10));
    atomic_fetch_add(&ready, 1);
    for (;;) {
        void **const block = &blocks[next(&chance) % COUNT_OF(blocks)];
        free(*block);
        *block = malloc(next(&chance) % 3 == 0 ? 70000 + next(&chance) % 300000 : 2000 + next(&chance) % 60000);
    }
    return NULL;
}

// With a lock, sooner or later the other thread would be stopped while it has it.
static void check_stopped(void)
{
    pthread_t thread;
    const struct sigaction action = {.sa_handler = stop_here};
    sigaction(SIGUSR1, &action, NULL);
    CHECK(pthread_create(&thread, NULL, busy_worker, NULL) == 0, "thread");
    while (atomic_load(&ready) < 1) {
    }
    churn(1000, RESERVE / 16, 0, SLOTS / 4);
    pthread_kill(thread, 0); // resolved, and its pages there
    enter_sandbox();
    for (unsigned round = 0; round < 3000; round++) {
        atomic_store(&stop_wanted, 1);
        pthread_kill(thread, SIGUSR1);
        while (atomic_load(&stopped) == 0) {
        }
        for (unsigned i = 0; i < 4; i++) {
            churn(40, RESERVE / 4, 0, 40);
            void *const block = malloc(100000 + 65536 * i);
            CHECK(block != NULL, "round %u", round);
            free(block);
        }
        atomic_store(&stop_wanted, 0);
        while (atomic_load(&stopped) != 0) {
        }
    }
}

static size_t locked_kilobytes(void)
{
    char line[128];
    size_t kilobytes = 0;
    FILE *const file = fopen("/proc/self/status", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        (void)sscanf(line, "VmLck: %zu", &kilobytes);
    }
    if (file != NULL) {
        fclose(file);
    }
    return kilobytes;
}

// From the first instruction on, as by a service manager.
static void begin_again_without_advice(char **arguments, unsigned error)
{
    if (getenv("TEST_BEGUN_AGAIN") != NULL) {
        return;
    }
    setenv("TEST_BEGUN_AGAIN", "1", 1);
    filter_call(SYS_madvise, SECCOMP_RET_ERRNO | error, 0);
    filter_call(SYS_mlock, SECCOMP_RET_ERRNO | error, 0);
    execv("/proc/self/exe", arguments);
    CHECK(false, "execv: %s", strerror(errno));
}

// Reads a byte of each page of the object that malloc is part of.
static int read_library(struct dl_phdr_info *object, size_t size, void *base)
{
    (void)size;
    for (unsigned i = 0; object->dlpi_addr == (uintptr_t)base && i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *const part = &object->dlpi_phdr[i];
        const char *const bytes = (const char *)(object->dlpi_addr + part->p_vaddr);
        for (size_t at = 0; part->p_type == PT_LOAD && at < part->p_memsz; at += 4096) {
            (void)*(const volatile char *)&bytes[at];
        }
    }
    return 0;
}

static void check_without_advice(char **arguments, bool is_known)
{
    begin_again_without_advice(arguments, is_known ? ENOMEM : EPERM);
    Dl_info info;
    CHECK(dladdr((void *)(uintptr_t)malloc, &info) != 0, "dladdr");
    const long start = faults();
    dl_iterate_phdr(read_library, info.dli_fbase);
    const long before = faults();
    CHECK(before - start <= 4, "%ld page faults in the library", before - start); // the loader's own
    CHECK(fill(5000) > RESERVE / 2, "not all is there");
    const long after = faults(); // some for this program and the library's own text
    CHECK(is_known || after - before < RESERVE / 4096 / 10, "%ld page faults", after - before);
}

int main(int count, char **arguments)
{
    memset(slots, 1, sizeof slots);
    memset(slots, 0, sizeof slots);
    memset(filled, 1, sizeof filled);
    const char *const what = count > 1 ? arguments[1] : "one";
    if (strcmp(what, "locked") == 0) {
        struct rlimit limit;
        getrlimit(RLIMIT_MEMLOCK, &limit);
        if (limit.rlim_cur < 2u * RESERVE && geteuid() != 0) {
            SKIP_PROGRAM("RLIMIT_MEMLOCK is %zu", (size_t)limit.rlim_cur);
        }
        CHECK(locked_kilobytes() >= RESERVE >> 10, "%zu kB are locked", locked_kilobytes());
    } else if (strcmp(what, "threads") == 0) {
        check_threads();
    } else if (strcmp(what, "many") == 0) {
        check_many();
    } else if (strcmp(what, "refused") == 0 || strcmp(what, "unready") == 0) {
        check_without_advice(arguments, strcmp(what, "unready") == 0);
    } else if (strcmp(what, "stopped") == 0) {
        check_stopped();
    } else {
        check_one_thread();
    }
    static const char line[] = "passed\n";
    CHECK(write(1, line, sizeof line - 1) > 0, "write");
    _exit(0);
}
