// SPDX-License-Identifier: MIT
// The bound of every single call: a child makes calls, its parent steps through them instruction by
// instruction, counts those that lie in the library, and keeps the most that one call took. No call
// may take more than the plan of its pool says, and none of an unattached pool with one option, or two but `remote`, more than 60. Of
// the lanes, whose code is inlined into this program, that code is counted as well.
#define _GNU_SOURCE
#include <mallow/pool_lane.h>

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    BOUND = 60,
    BLOCKS_MAX = 8192,
    LANE = 20, // of a lane's inlined code, before the call that does the rest
};

enum kind { NONE, ALLOC, ALLOC_CLASS, FREE, REMOTE, TAKE, GIVE, FAILED_ALLOC, FAILED_FREE, KINDS };
static const char *const kind_names[] = {"", "alloc", "class", "free", "remote", "take", "give", "refused", "misused"};

// What the child tells its parent, and what the parent found.
struct shared {
    volatile enum kind kind; // of the call that is being made; NONE outside
    volatile unsigned long call;
    unsigned long counts[KINDS];
    unsigned long most[KINDS];
    unsigned planned[KINDS];
};
static struct shared *shared;
static uintptr_t text_first, text_last;

// ---- The child ----------------------------------------------------------------------------------

static struct mw_pool *pool;
static void *blocks[BLOCKS_MAX];
static size_t live;
static uint64_t chance = 88172645463325252u;

static size_t below(size_t bound)
{
    chance ^= chance << 13;
    chance ^= chance >> 7;
    chance ^= chance << 17;
    return chance % bound;
}

static void call_begin(enum kind kind)
{
    shared->call++;
    shared->kind = kind;
}

// A call that failed is counted as such: the parent keeps the count of the last call in `counts`.
static void call_end(enum kind kind)
{
    const enum kind was = shared->kind;
    shared->kind = NONE;
    if (shared->counts[was] > shared->most[kind]) {
        shared->most[kind] = shared->counts[was];
    }
}

static void *counted_alloc(size_t size)
{
    call_begin(ALLOC);
    void *const block = mw_pool_alloc(pool, size);
    call_end(block != NULL ? ALLOC : FAILED_ALLOC);
    return block;
}

static void *counted_alloc_class(size_t index)
{
    call_begin(ALLOC_CLASS);
    void *const block = mw_pool_alloc_class(pool, index);
    call_end(block != NULL ? ALLOC_CLASS : FAILED_ALLOC);
    return block;
}

static enum mw_pool_status counted_free(void *block)
{
    call_begin(FREE);
    const enum mw_pool_status status = mw_pool_free(pool, block);
    call_end(status == MW_POOL_OK ? FREE : FAILED_FREE);
    return status;
}

static enum mw_pool_status counted_remote(void *block)
{
    call_begin(REMOTE);
    const enum mw_pool_status status = mw_pool_free_remote(pool, block);
    call_end(status == MW_POOL_OK ? REMOTE : FAILED_FREE);
    return status;
}

// The inlined calls, where they can be told from the rest of this program.
extern const char __start_lane_text[], __stop_lane_text[];

__attribute__((noinline, section("lane_text"))) static void *lane_take(struct mw_pool_lane *lane)
{
    return mw_pool_take(pool, lane);
}

__attribute__((noinline, section("lane_text"))) static enum mw_pool_status lane_give(struct mw_pool_lane *lane, void *block)
{
    return mw_pool_give(pool, lane, block);
}

static void *counted_take(size_t index)
{
    struct mw_pool_lane *const lane = mw_pool_lane_of(pool, index);
    if (lane == NULL) {
        return counted_alloc_class(index);
    }
    call_begin(TAKE);
    void *const block = lane_take(lane);
    call_end(block != NULL ? TAKE : FAILED_ALLOC);
    return block;
}

static enum mw_pool_status counted_give(size_t index, void *block)
{
    struct mw_pool_lane *const lane = mw_pool_lane_of(pool, index);
    if (lane == NULL) {
        return counted_free(block);
    }
    call_begin(GIVE);
    const enum mw_pool_status status = lane_give(lane, block);
    call_end(status == MW_POOL_OK ? GIVE : FAILED_FREE);
    return status;
}

// Tells the parent to begin, or to stop, stepping.
static void stepping(void)
{
    raise(SIGUSR1);
}

static void *take(const struct mw_pool_config *config)
{
    const size_t index = below(config->class_count);
    switch (below(6)) {
    case 0: return counted_alloc_class(index);
    case 1: return counted_take(index);
    case 2: return counted_alloc(config->classes[index].size_bytes + 1); // of the next class, in this one's cell
    default: return counted_alloc(config->classes[index].size_bytes - below(3));
    }
}

static void give(const struct mw_pool_config *config, size_t at)
{
    void *const block = blocks[at];
    const bool remote = config->remote && below(2) == 0;
    const bool lane = below(4) == 0;
    if ((remote ? counted_remote(block)
         : lane ? counted_give(below(config->class_count), block)
                : counted_free(block)) != MW_POOL_OK) {
        abort();
    }
    blocks[at] = blocks[--live];
    if (below(8) == 0 && counted_free((char *)block + below(2) * 8) == MW_POOL_OK) {
        abort();
    }
    if (below(16) == 0 && counted_give(0, (char *)block + below(2) * 8) == MW_POOL_OK) {
        abort();
    }
}

// Around the edges: nearly full, nearly empty, one word, one group; pairs, stacks and random orders.
static void adversary(const struct mw_pool_config *config, size_t capacity, unsigned operations)
{
    for (unsigned i = 0; i < operations; i++) {
        const unsigned phase = i / 20 % 6;
        const size_t level = phase == 0 ? capacity : phase == 1 ? 0 : phase == 2 ? capacity - 1 : phase == 3 ? 1 : 2;
        const bool growing = phase == 5 ? below(2) == 0 : live < level || (live == level && i % 2 == 0);
        if (growing) {
            void *const block = live < BLOCKS_MAX ? take(config) : NULL;
            if (block != NULL) {
                blocks[live++] = block;
            }
        } else if (live > 0) {
            give(config, phase % 2 == 0 ? live - 1 : below(live));
        }
    }
}

// Fills up without being counted, then empties and fills words and groups with only a few blocks each.
static void sparse(const struct mw_pool_config *config, unsigned operations)
{
    for (size_t i = 0; i < config->class_count; i++) {
        void *block;
        while (live < BLOCKS_MAX && (block = mw_pool_alloc_class(pool, i)) != NULL) {
            blocks[live++] = block;
        }
    }
    stepping();
    for (unsigned i = 0; i < operations && live > 0; i++) {
        give(config, below(live));
    }
    for (unsigned i = 0; i < operations && live < BLOCKS_MAX; i++) {
        void *const block = take(config);
        if (block != NULL) {
            blocks[live++] = block;
        }
    }
    stepping();
}

static void run_child(const struct mw_pool_config *config, void *more, size_t more_bytes)
{
    struct mw_pool_planned plan;
    if (mw_pool_create(config, &pool, NULL) != MW_POOL_OK ||
        (more != NULL && mw_pool_attach(pool, more, more_bytes) != MW_POOL_OK) ||
        mw_pool_describe(pool, &plan, NULL) != MW_POOL_OK) {
        fputs("no pool\n", stderr);
        _exit(3);
    }
    shared->planned[ALLOC] = shared->planned[FAILED_ALLOC] = plan.alloc_instructions;
    shared->planned[ALLOC_CLASS] = plan.alloc_class_instructions;
    shared->planned[FREE] = shared->planned[FAILED_FREE] = plan.free_instructions;
    shared->planned[TAKE] = plan.alloc_class_instructions;
    shared->planned[GIVE] = plan.free_instructions + LANE;
    shared->planned[REMOTE] = plan.remote_instructions;
    size_t capacity = 0;
    for (size_t i = 0; i < config->class_count; i++) {
        capacity += mw_pool_capacity_count(pool, i);
    }
    stepping();
    adversary(config, capacity < 70 ? capacity : 70, 360);
    stepping();
    sparse(config, 60);
    _exit(0);
}

// ---- The parent ---------------------------------------------------------------------------------

static uintptr_t instruction_of(pid_t child)
{
    unsigned long registers[64];
    struct iovec part = {registers, sizeof registers};
    if (ptrace(PTRACE_GETREGSET, child, (void *)NT_PRSTATUS, &part) != 0) {
        return 0;
    }
#if defined(__x86_64__)
    return registers[16];
#else
    return registers[32];
#endif
}

static int watch(pid_t child)
{
    bool steps = false;
    unsigned long call = 0;
    int status = 0;
    waitpid(child, &status, 0);
    while (!WIFEXITED(status) && !WIFSIGNALED(status)) {
        const int number = WSTOPSIG(status);
        steps = number == SIGUSR1 ? !steps : steps;
        if (steps && shared->kind != NONE) {
            const uintptr_t at = instruction_of(child);
            if (call != shared->call) {
                call = shared->call;
                shared->counts[shared->kind] = 0;
            }
            shared->counts[shared->kind] +=
                (at >= text_first && at < text_last) ||
                (at >= (uintptr_t)__start_lane_text && at < (uintptr_t)__stop_lane_text);
        }
        const long pass = number == SIGUSR1 || number == SIGTRAP || number == SIGSTOP ? 0 : number;
        if (ptrace(steps ? PTRACE_SINGLESTEP : PTRACE_CONT, child, NULL, (void *)pass) != 0) {
            break;
        }
        waitpid(child, &status, 0);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static int find_text(struct dl_phdr_info *info, size_t bytes, void *wanted)
{
    (void)bytes;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *const part = &info->dlpi_phdr[i];
        const uintptr_t first = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD && (uintptr_t)wanted - first < part->p_memsz) {
            text_first = first;
            text_last = first + part->p_memsz;
            return 1;
        }
    }
    return 0;
}

static unsigned failures;

static void check(const char *name, struct mw_pool_config config, bool attach, bool plain)
{
    memset(shared, 0, sizeof *shared);
    void *const more = attach ? aligned_alloc(4096, 1 << 18) : NULL;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        run_child(&config, more, 1 << 18);
    }
    const int status = watch(child);
    printf("%-34s", name);
    for (enum kind kind = ALLOC; kind < KINDS; kind++) {
        if (shared->most[kind] == 0) {
            continue;
        }
        const unsigned bound = kind == GIVE || kind == FAILED_FREE ? BOUND + LANE : BOUND;
        const bool good = shared->most[kind] <= shared->planned[kind] && (!plain || shared->most[kind] <= bound);
        printf(" %s %lu/%u%s", kind_names[kind], shared->most[kind], shared->planned[kind], good ? "" : " TOO MANY");
        failures += !good;
    }
    printf("\n");
    const bool reached = shared->most[ALLOC] > 15 && shared->most[FREE] > 15 && shared->most[FAILED_FREE] > 5;
    if (status != 0 || !reached) {
        printf("%s: child ended with %d, counts %s\n", name, status, reached ? "whole" : "missing");
        failures++;
    }
    free(more);
}

int main(void)
{
    static struct mw_pool_class many[MW_POOL_CLASSES_MAX], far[MW_POOL_CLASSES_MAX], wide[MW_POOL_CLASSES_MAX], dense[MW_POOL_CLASSES_MAX], crowded[12];
    static const struct mw_pool_class one[] = {{.size_bytes = 64, .block_count = 8190}};
    static const struct mw_pool_class single[] = {{.size_bytes = 64, .block_count = 1}};
    static const struct mw_pool_class three[] = {
        {.size_bytes = 16, .block_count = 200}, {.size_bytes = 48, .block_count = 65}, {.size_bytes = 400, .block_count = 64}};
    static const struct mw_pool_class tiny[] = {
        {.size_bytes = 16, .block_count = 1}, {.size_bytes = 48, .block_count = 2}, {.size_bytes = 400, .block_count = 1}};
    // Sizes just above the first of two to an octave are told by the cell that ends behind it.
    static const struct mw_pool_class uneven[] = {
        {.size_bytes = 20000, .block_count = 1}, {.size_bytes = 30000, .block_count = 1}, {.size_bytes = 45000, .block_count = 2}};
    for (size_t i = 0; i < MW_POOL_CLASSES_MAX; i++) {
        many[i] = (struct mw_pool_class){.size_bytes = 16 * (i + 1), .block_count = 1 + i % 3};
        wide[i] = (struct mw_pool_class){.size_bytes = 16 * (i + 1), .block_count = 16};
        dense[i] = (struct mw_pool_class){.size_bytes = i == 0 ? 1 << 20 : 20000 + 16 * i, .block_count = 1};
        far[i] = (struct mw_pool_class){.size_bytes = 20000 + 16 * i, .block_count = 1 + i % 3};
    }
    for (size_t i = 0; i < 12; i++) { // more to a cell than there is memory for cells
        crowded[i] = (struct mw_pool_class){.size_bytes = i == 11 ? (1 << 21) - 8 : (1 << 20) + 8 * (i + 1), .alignment_bytes = 8, .block_count = 1};
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || dl_iterate_phdr(find_text, dlsym(RTLD_DEFAULT, "mw_pool_alloc")) != 1) {
        fputs("no library\n", stderr);
        return 3;
    }
    // Parent and child on one processor: they take turns anyway, and to wake another one is slow.
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET((size_t)sched_getcpu(), &here);
    (void)sched_setaffinity(0, sizeof here, &here);
    printf("most instructions of a call / bound in the plan\n");
    check("one class, 8190 blocks", (struct mw_pool_config){.classes = one, .class_count = 1}, false, true);
    check("one block", (struct mw_pool_config){.classes = single, .class_count = 1}, false, true);
    check("three classes", (struct mw_pool_config){.classes = three, .class_count = 3}, false, true);
    check("three classes, few blocks", (struct mw_pool_config){.classes = tiny, .class_count = 3}, false, true);
    check("256 classes", (struct mw_pool_config){.classes = many, .class_count = 256}, false, true);
    check("256 classes, 16 blocks each", (struct mw_pool_config){.classes = wide, .class_count = 256}, false, true);
    check("256 classes, big ones", (struct mw_pool_config){.classes = far, .class_count = 256}, false, true);
    check("fallback", (struct mw_pool_config){.classes = tiny, .class_count = 3, .fallback = true}, false, true);
    check("fallback, 64 classes", (struct mw_pool_config){.classes = many, .class_count = 64, .fallback = true}, false, true);
    check("remote", (struct mw_pool_config){.classes = tiny, .class_count = 3, .remote = true}, false, true);
    check("remote, 256 classes", (struct mw_pool_config){.classes = many, .class_count = 256, .remote = true}, false, true);
    check("remote, 8190 blocks", (struct mw_pool_config){.classes = one, .class_count = 1, .remote = true}, false, true);
    check("owner checked", (struct mw_pool_config){.classes = tiny, .class_count = 3, .check_owner = true}, false, true);
    check("owner checked, 256 classes", (struct mw_pool_config){.classes = many, .class_count = 256, .check_owner = true}, false, true);
    check("256 classes in 4 KiB", (struct mw_pool_config){.classes = dense, .class_count = 256}, false, true);
    check("fallback, 256 classes", (struct mw_pool_config){.classes = many, .class_count = 256, .fallback = true}, false, true);
    check("fallback, big classes", (struct mw_pool_config){.classes = far, .class_count = 64, .fallback = true}, false, true);
    check("fallback, owner checked", (struct mw_pool_config){.classes = tiny, .class_count = 3, .fallback = true, .check_owner = true}, false, true);
    check("owner checked, big classes", (struct mw_pool_config){.classes = far, .class_count = 256, .check_owner = true}, false, true);
    check("fallback, uneven classes", (struct mw_pool_config){.classes = uneven, .class_count = 3, .fallback = true}, false, true);
    check("owner checked, uneven classes", (struct mw_pool_config){.classes = uneven, .class_count = 3, .check_owner = true}, false, true);
    // Blocks too big to be found by multiplying: address space, hardly any of it touched.
    static const struct mw_pool_class giant[] = {{.size_bytes = ((size_t)5 << 32) + 48, .block_count = 3}};
    void *const space = mmap(NULL, (size_t)64 << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space != MAP_FAILED) {
        check("blocks of 20 GiB", (struct mw_pool_config){.classes = giant, .class_count = 1, .memory = space, .pool_bytes = (size_t)64 << 30}, false, true);
    }
    printf("with bounds of their own\n");
    check("fallback, 200 classes", (struct mw_pool_config){.classes = many, .class_count = 200, .fallback = true}, false, false);
    check("crowded cells", (struct mw_pool_config){.classes = crowded, .class_count = 12}, false, false);
    check("crowded cells, fallback", (struct mw_pool_config){.classes = crowded, .class_count = 12, .fallback = true}, false, false);
    check("crowded cells, owner checked", (struct mw_pool_config){.classes = crowded, .class_count = 12, .check_owner = true}, false, false);
    if (space != MAP_FAILED) {
        check("blocks of 20 GiB, remote", (struct mw_pool_config){.classes = giant, .class_count = 1, .memory = space, .pool_bytes = (size_t)64 << 30, .remote = true}, false, false);
    }
    check("fallback, 256 big classes", (struct mw_pool_config){.classes = far, .class_count = 256, .fallback = true}, false, false);
    check("fallback, owner checked, big ones", (struct mw_pool_config){.classes = far, .class_count = 64, .fallback = true, .check_owner = true}, false, false);
    check("the same, 256 classes", (struct mw_pool_config){.classes = far, .class_count = 256, .fallback = true, .check_owner = true}, false, false);
    check("attached memory", (struct mw_pool_config){.classes = three, .class_count = 3}, true, false);
    check("attached memory, remote", (struct mw_pool_config){.classes = three, .class_count = 3, .remote = true}, true, false);
    check("remote, big classes", (struct mw_pool_config){.classes = far, .class_count = 256, .remote = true}, false, false);
    check("remote, owner checked", (struct mw_pool_config){.classes = tiny, .class_count = 3, .remote = true, .check_owner = true}, false, false);
    check("remote, fallback", (struct mw_pool_config){.classes = tiny, .class_count = 3, .remote = true, .fallback = true}, false, false);
    check("remote, fallback, more blocks", (struct mw_pool_config){.classes = three, .class_count = 3, .remote = true, .fallback = true}, false, false);
    check("all of it", (struct mw_pool_config){.classes = many, .class_count = 256, .remote = true, .fallback = true, .check_owner = true}, false, false);
    check("all of it, big classes", (struct mw_pool_config){.classes = far, .class_count = 256, .remote = true, .fallback = true, .check_owner = true}, false, false);
    return failures == 0 ? 0 : 1;
}
