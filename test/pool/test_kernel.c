// SPDX-License-Identifier: MIT
// What pools ask of the kernel: a child creates, uses and destroys pools, its parent lists its system
// calls by phase and lets some fail. One mmap and one munmap, nothing in between over 10^8 operations,
// no page fault, no mapping left behind by what fails, and nothing brought in that is not free.
#define _GNU_SOURCE
#include <mallow/pool.h>

#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#if !defined(__x86_64__)
int main(void)
{
    return 77; // the registers of a system call are read and written below
}
#else

enum { CALLS_MAX = 64, LIVE = 4096 };

struct shared {
    volatile bool listing; // the child is between begin() and end()
    volatile long failing; // number of the system call that is to fail, or -1
    unsigned count;
    long calls[CALLS_MAX]; // but those by which files are read
    char meminfo[64];      // instead of /proc/meminfo, if not empty
};
static struct shared *shared;
static unsigned failures;

#define CHECK(condition) check((condition), #condition, __LINE__)
static void check(bool good, const char *text, int line)
{
    if (!good) {
        fprintf(stderr, "line %d: %s\n", line, text);
        failures++;
    }
}

// ---- The child ----------------------------------------------------------------------------------

static void begin(long failing)
{
    shared->count = 0;
    shared->failing = failing;
    shared->listing = true;
}

// Exactly these calls, in this order.
static bool end(unsigned count, const long *calls)
{
    shared->listing = false;
    bool same = shared->count == count;
    for (unsigned i = 0; i < shared->count; i++) {
        same = same && i < count && shared->calls[i] == calls[i];
    }
    for (unsigned i = 0; !same && i < shared->count; i++) {
        fprintf(stderr, "system call %u: %ld\n", i, shared->calls[i]);
    }
    return same;
}

static const struct mw_pool_class classes[] = {{.size_bytes = 16, .share_ppm = MW_POOL_PERCENT(20)},
                                               {.size_bytes = 64, .share_ppm = MW_POOL_PERCENT(50)},
                                               {.size_bytes = 256, .share_ppm = MW_POOL_PERCENT(30)}};

static struct mw_pool_config configuration(void)
{
    return (struct mw_pool_config){.classes = classes, .class_count = 3, .pool_bytes = 8 << 20};
}

static void *live[LIVE];

static bool use(struct mw_pool *pool, unsigned long operations)
{
    uint64_t chance = 88172645463325252u;
    unsigned long done = 0;
    while (done < operations) {
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        void **const slot = &live[chance % LIVE];
        if (*slot == NULL) {
            *slot = mw_pool_alloc(pool, 1 + (chance >> 20) % 256);
            if (*slot == NULL) {
                return false;
            }
            *(volatile char *)*slot = 1;
        } else if (mw_pool_free(pool, *slot) != MW_POOL_OK) {
            return false;
        } else {
            *slot = NULL;
        }
        done++;
    }
    return true;
}

static long faults(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt + usage.ru_majflt;
}

// So that the code that runs later is in memory: its pages are not the pool's.
static void bring_in_code(void)
{
    static _Alignas(64) unsigned char memory[64 << 10];
    struct mw_pool_config config = configuration();
    struct mw_pool *pool = NULL;
    config.memory = memory;
    config.pool_bytes = sizeof memory;
    memset(live, 0, sizeof live);
    CHECK(mw_pool_create(&config, &pool, NULL) == MW_POOL_OK);
    (void)use(pool, 10000);
    CHECK(mw_pool_destroy(pool) == MW_POOL_OK);
}

static void one_map_and_one_unmap(unsigned long operations)
{
    bring_in_code();
    struct mw_pool_config config = configuration();
    config.prefault = true;
    struct mw_pool *pool = NULL;
    memset(live, 0, sizeof live);
    begin(-1);
    const enum mw_pool_status status = mw_pool_create(&config, &pool, NULL);
    CHECK(end(2, (long[]){SYS_mmap, SYS_madvise}));
    CHECK(status == MW_POOL_OK);
    const long before = faults();
    begin(-1);
    const bool served = use(pool, operations);
    CHECK(end(0, NULL));
    CHECK(faults() == before);
    CHECK(served);
    begin(-1);
    const enum mw_pool_status ended = mw_pool_destroy(pool);
    CHECK(end(1, (long[]){SYS_munmap}));
    CHECK(ended == MW_POOL_OK);
}

static void without_prefault_only_one_map(void)
{
    struct mw_pool_config config = configuration();
    struct mw_pool *pool = NULL;
    begin(-1);
    (void)mw_pool_create(&config, &pool, NULL);
    CHECK(end(1, (long[]){SYS_mmap}));
    begin(-1);
    const enum mw_pool_status grown = mw_pool_grow(pool, 1 << 20);
    CHECK(end(1, (long[]){SYS_mmap}));
    CHECK(grown == MW_POOL_OK);
    begin(-1);
    (void)mw_pool_destroy(pool);
    CHECK(end(2, (long[]){SYS_munmap, SYS_munmap}));
}

static void locked_memory_is_locked(void)
{
    struct mw_pool_config config = configuration();
    config.lock = true;
    config.pool_bytes = 4 << 20;
    struct mw_pool *pool = NULL;
    begin(-1);
    const enum mw_pool_status status = mw_pool_create(&config, &pool, NULL);
    CHECK(end(2, (long[]){SYS_mmap, SYS_mlock}) || status == MW_POOL_LOCK_FAILED);
    if (status == MW_POOL_OK) {
        const long before = faults();
        for (size_t i = 0; i < config.pool_bytes; i += 4096) {
            (void)*((volatile char *)pool + i);
        }
        CHECK(faults() == before);
        // Attached memory, which may be locked, too, is not unlocked.
        static _Alignas(64) unsigned char attached[64 << 10];
        CHECK(mw_pool_attach(pool, attached, sizeof attached) == MW_POOL_OK);
        begin(-1);
        const enum mw_pool_status ended = mw_pool_destroy(pool);
        CHECK(end(1, (long[]){SYS_munmap}));
        CHECK(ended == MW_POOL_OK);
    }
}

static void what_is_rejected_asks_for_nothing(void)
{
    static const struct mw_pool_class short_of[] = {{.size_bytes = 16, .share_ppm = MW_POOL_PERCENT(99)}};
    struct mw_pool_config config = configuration();
    config.classes = short_of;
    config.class_count = 1;
    struct mw_pool *pool = NULL;
    begin(-1);
    const enum mw_pool_status status = mw_pool_create(&config, &pool, NULL);
    CHECK(end(0, NULL));
    CHECK(status == MW_POOL_SHARES_BELOW_WHOLE && pool == NULL);
}

static void what_fails_is_undone(void)
{
    static const struct {
        long failing;
        bool prefault, lock;
        enum mw_pool_status status;
        unsigned count;
        long calls[3];
    } rows[] = {
        {SYS_mmap, true, false, MW_POOL_MAP_FAILED, 1, {SYS_mmap}},
        {SYS_madvise, true, false, MW_POOL_PREFAULT_FAILED, 3, {SYS_mmap, SYS_madvise, SYS_munmap}},
        {SYS_mlock, false, true, MW_POOL_LOCK_FAILED, 3, {SYS_mmap, SYS_mlock, SYS_munmap}},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct mw_pool_config config = configuration();
        config.prefault = rows[i].prefault;
        config.lock = rows[i].lock;
        struct mw_pool *pool = (struct mw_pool *)1;
        errno = 12345;
        begin(rows[i].failing);
        const enum mw_pool_status status = mw_pool_create(&config, &pool, NULL);
        CHECK(end(rows[i].count, rows[i].calls));
        CHECK(status == rows[i].status && pool == NULL && errno == 12345);
        struct mw_pool_set *set = (struct mw_pool_set *)1;
        begin(rows[i].failing);
        const enum mw_pool_status set_status = mw_pool_set_create(&config, 2, &set);
        CHECK(end(rows[i].count, rows[i].calls));
        CHECK(set_status == rows[i].status && set == NULL);
    }
    struct mw_pool_config config = configuration();
    struct mw_pool *pool = NULL;
    CHECK(mw_pool_create(&config, &pool, NULL) == MW_POOL_OK);
    begin(SYS_munmap);
    const enum mw_pool_status status = mw_pool_destroy(pool);
    CHECK(end(1, (long[]){SYS_munmap}));
    CHECK(status == MW_POOL_UNMAP_FAILED);
    CHECK(mw_pool_destroy(pool) == MW_POOL_NOT_A_POOL); // it is still mapped, and no pool
}

static void pretend_free(const char *path, unsigned kib)
{
    FILE *const file = fopen(path, "w");
    fprintf(file, "MemAvailable: %u kB\n", kib);
    fclose(file);
    strcpy(shared->meminfo, path);
}

// The kernel would not refuse, but kill for it.
static void more_than_is_free_is_not_brought_in(void)
{
    static const struct {
        size_t bytes;
        bool prefault, lock, refused;
    } rows[] = {{32 << 20, true, false, true},  {32 << 20, false, true, true},  {32 << 20, false, false, false},
                {17 << 20, true, false, false}, {20 << 20, true, false, true}, {8 << 20, true, false, false}};
    char path[] = "/tmp/test-kernel-XXXXXX";
    close(mkstemp(path));
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        pretend_free(path, rows[i].bytes == 8 << 20 ? 1 << 10 : 20 << 10);
        struct mw_pool_config config = configuration();
        config.pool_bytes = rows[i].bytes;
        config.prefault = rows[i].prefault;
        config.lock = rows[i].lock;
        const enum mw_pool_status wanted = rows[i].refused ? MW_POOL_PREFAULT_FAILED : MW_POOL_OK;
        const long calls[] = {SYS_mmap, SYS_madvise};
        struct mw_pool *pool = NULL;
        errno = 12345;
        begin(-1);
        const enum mw_pool_status status = mw_pool_create(&config, &pool, NULL);
        CHECK(end(rows[i].refused ? 0 : rows[i].prefault ? 2 : 1, calls));
        CHECK(status == wanted && (pool == NULL) == rows[i].refused && errno == 12345);
        CHECK(rows[i].refused || mw_pool_destroy(pool) == MW_POOL_OK);
        struct mw_pool_set *set = NULL;
        config.pool_bytes = rows[i].bytes / 2;
        CHECK(mw_pool_set_create(&config, 2, &set) == wanted);
        CHECK(rows[i].refused || mw_pool_set_destroy(set) == MW_POOL_OK);
    }
    struct mw_pool_config config = configuration();
    struct mw_pool *pool = NULL;
    config.prefault = true;
    CHECK(mw_pool_create(&config, &pool, NULL) == MW_POOL_OK);
    CHECK(mw_pool_grow(pool, 32 << 20) == MW_POOL_PREFAULT_FAILED);
    CHECK(mw_pool_destroy(pool) == MW_POOL_OK);
    // What lies in memory already, nobody can tell.
    config.pool_bytes = 32 << 20;
    config.memory = mmap(NULL, 32 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    CHECK(mw_pool_create(&config, &pool, NULL) == MW_POOL_OK && mw_pool_destroy(pool) == MW_POOL_OK);
    munmap(config.memory, 32 << 20);
    shared->meminfo[0] = '\0';
    unlink(path);
}

static void a_set_is_one_mapping(void)
{
    struct mw_pool_config config = configuration();
    config.pool_bytes = 1 << 20;
    config.prefault = true;
    struct mw_pool_set *set = NULL;
    begin(-1);
    const enum mw_pool_status status = mw_pool_set_create(&config, 4, &set);
    CHECK(end(2, (long[]){SYS_mmap, SYS_madvise}));
    CHECK(status == MW_POOL_OK && mw_pool_set_count(set) == 4);
    begin(-1);
    (void)mw_pool_set_destroy(set);
    CHECK(end(1, (long[]){SYS_munmap}));
}

static void a_set_gives_up_what_its_pools_have_grown_by(void)
{
    struct mw_pool_config config = configuration();
    config.pool_bytes = 1 << 20;
    struct mw_pool_set *set = NULL;
    CHECK(mw_pool_set_create(&config, 3, &set) == MW_POOL_OK);
    CHECK(mw_pool_grow(mw_pool_set_get(set, 0), 1 << 20) == MW_POOL_OK);
    CHECK(mw_pool_grow(mw_pool_set_get(set, 2), 1 << 20) == MW_POOL_OK);
    CHECK(mw_pool_grow(mw_pool_set_get(set, 2), 1 << 20) == MW_POOL_OK);
    CHECK(mw_pool_destroy(mw_pool_set_get(set, 0)) == MW_POOL_OK); // with what it has grown by
    begin(-1);
    const enum mw_pool_status status = mw_pool_set_destroy(set);
    CHECK(end(3, (long[]){SYS_munmap, SYS_munmap, SYS_munmap}));
    CHECK(status == MW_POOL_OK);
}

static void big_alignments_are_one_mapping_too(void)
{
    static const struct mw_pool_class aligned[] = {
        {.size_bytes = 2 << 20, .alignment_bytes = 2 << 20, .block_count = 3}};
    const struct mw_pool_config config = {.classes = aligned, .class_count = 1};
    struct mw_pool *pool = NULL;
    begin(-1);
    (void)mw_pool_create(&config, &pool, NULL);
    CHECK(end(1, (long[]){SYS_mmap}));
    for (int i = 0; i < 3; i++) {
        void *const block = mw_pool_alloc(pool, 2 << 20);
        CHECK(block != NULL && (uintptr_t)block % (2 << 20) == 0);
        memset(block, 1, 2 << 20);
    }
    CHECK(mw_pool_alloc(pool, 1) == NULL);
    begin(-1);
    (void)mw_pool_destroy(pool);
    CHECK(end(1, (long[]){SYS_munmap}));
}

static void the_callers_memory_stays_the_callers(void)
{
    struct mw_pool_config config = configuration();
    config.pool_bytes = 1 << 20;
    config.memory = aligned_alloc(64, 1 << 20);
    struct mw_pool *pool = NULL;
    begin(-1);
    const enum mw_pool_status status = mw_pool_create(&config, &pool, NULL);
    const enum mw_pool_status ended = mw_pool_destroy(pool);
    CHECK(end(0, NULL));
    CHECK(status == MW_POOL_OK && ended == MW_POOL_OK);
    free(config.memory);
}

static void a_part_of_the_callers_memory_is_not_left_locked(void)
{
    struct mw_pool_config config = configuration();
    config.pool_bytes = 1 << 20;
    config.lock = true;
    char *const memory = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED && mprotect(memory + (1 << 19), 1 << 19, PROT_NONE) == 0); // cannot come in
    config.memory = memory;
    struct mw_pool *pool = NULL;
    begin(-1);
    const enum mw_pool_status status = mw_pool_create(&config, &pool, NULL);
    CHECK(end(2, (long[]){SYS_mlock, SYS_munlock}));
    CHECK(status == MW_POOL_LOCK_FAILED && pool == NULL);
    CHECK(munmap(memory, 1 << 20) == 0);
}

// ---- The parent ---------------------------------------------------------------------------------

static bool reads_files(long call)
{
    return call == SYS_openat || call == SYS_read || call == SYS_close;
}

// The path of an open lies where it lies here, too: this process has been forked from.
static void mislead(const unsigned long *registers, pid_t child)
{
    char path[sizeof "/proc/meminfo"] = "";
    struct iovec here = {path, sizeof path};
    struct iovec there = {(void *)registers[13], sizeof path}; // rsi
    if (shared->meminfo[0] != '\0' && registers[15] == SYS_openat &&
        process_vm_readv(child, &here, 1, &there, 1, 0) == sizeof path && strcmp(path, "/proc/meminfo") == 0) {
        unsigned long changed[27];
        memcpy(changed, registers, sizeof changed);
        changed[13] = (unsigned long)shared->meminfo;
        struct iovec part = {changed, sizeof changed};
        ptrace(PTRACE_SETREGSET, child, (void *)NT_PRSTATUS, &part);
    }
}

static void watch(pid_t child)
{
    bool inside = false, failed = false;
    int status = 0;
    waitpid(child, &status, 0);
    ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL));
    while (!WIFEXITED(status) && !WIFSIGNALED(status)) {
        if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
            unsigned long registers[27]; // 10: the result; 15: the number
            struct iovec part = {registers, sizeof registers};
            ptrace(PTRACE_GETREGSET, child, (void *)NT_PRSTATUS, &part);
            inside = !inside;
            if (inside) {
                mislead(registers, child);
            }
            if (inside && shared->listing) {
                if (!reads_files((long)registers[15]) && shared->count < CALLS_MAX) {
                    shared->calls[shared->count++] = (long)registers[15];
                }
                failed = (long)registers[15] == shared->failing;
                if (failed) {
                    registers[15] = (unsigned long)-1;
                    ptrace(PTRACE_SETREGSET, child, (void *)NT_PRSTATUS, &part);
                }
            } else if (!inside && failed) {
                registers[10] = (unsigned long)-ENOMEM;
                ptrace(PTRACE_SETREGSET, child, (void *)NT_PRSTATUS, &part);
                failed = false;
            }
        }
        const int number = WSTOPSIG(status);
        const long pass = number == SIGSTOP || (number & 0x7f) == SIGTRAP ? 0 : number;
        ptrace(PTRACE_SYSCALL, child, NULL, (void *)pass);
        waitpid(child, &status, 0);
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int count, char **arguments)
{
    const unsigned long operations = count > 1 ? strtoul(arguments[1], NULL, 0) : 100000000;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        one_map_and_one_unmap(operations);
        without_prefault_only_one_map();
        locked_memory_is_locked();
        what_is_rejected_asks_for_nothing();
        what_fails_is_undone();
        more_than_is_free_is_not_brought_in();
        a_set_is_one_mapping();
        a_set_gives_up_what_its_pools_have_grown_by();
        big_alignments_are_one_mapping_too();
        the_callers_memory_stays_the_callers();
        a_part_of_the_callers_memory_is_not_left_locked();
        _exit(failures == 0 ? 0 : 1);
    }
    watch(child);
    printf("%lu operations between one mmap and one munmap: %s\n", operations, failures == 0 ? "nothing else" : "FAILED");
    return failures == 0 ? 0 : 1;
}
#endif
