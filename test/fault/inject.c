// SPDX-License-Identifier: MIT
// Fault injection by ptrace (see inject.h). At the entry of a chosen call its number is replaced by -1,
// so that the kernel does nothing, and at its exit the result becomes the planned error.
#define _GNU_SOURCE
#include "inject.h"

#include "../support/check.h"

#include <elf.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>

enum { THREADS_MAX = 1024 };

struct traced_thread {
    pid_t id;
    bool fails_now; // the call it is in was suppressed
    bool unmaps;    // its first two arguments became the range that goes
    uint64_t first;
    uint64_t second;
};

struct injector {
    const struct fault_plan *plan;
    struct fault_result *result;
    struct chance chance;
    struct traced_thread threads[THREADS_MAX];
    bool window_open;
};

static unsigned kind_of(uint64_t number)
{
    switch (number) {
    case SYS_mmap: return FAULT_MMAP;
    case SYS_munmap: return FAULT_MUNMAP;
    case SYS_madvise: return FAULT_MADVISE;
    case SYS_mremap: return FAULT_MREMAP;
    case SYS_mprotect: return FAULT_MPROTECT;
    default: return 0;
    }
}

// -1: none at all.
static void change_call(pid_t thread, int number)
{
#if defined(__x86_64__)
    ptrace(PTRACE_POKEUSER, thread, offsetof(struct user_regs_struct, orig_rax), (void *)(long)number);
#elif defined(__aarch64__)
    struct iovec part = {&number, sizeof number};
    ptrace(PTRACE_SETREGSET, thread, (void *)NT_ARM_SYSTEM_CALL, &part);
#else
#error "fault injection knows x86-64 and arm64"
#endif
}

static void set_arguments(pid_t thread, uint64_t first, uint64_t second)
{
#if defined(__x86_64__)
    ptrace(PTRACE_POKEUSER, thread, offsetof(struct user_regs_struct, rdi), (void *)first);
    ptrace(PTRACE_POKEUSER, thread, offsetof(struct user_regs_struct, rsi), (void *)second);
#elif defined(__aarch64__)
    struct user_regs_struct registers;
    struct iovec part = {&registers, sizeof registers};
    ptrace(PTRACE_GETREGSET, thread, (void *)NT_PRSTATUS, &part);
    registers.regs[0] = first;
    registers.regs[1] = second;
    ptrace(PTRACE_SETREGSET, thread, (void *)NT_PRSTATUS, &part);
#endif
}

static void set_result(pid_t thread, int error)
{
#if defined(__x86_64__)
    ptrace(PTRACE_POKEUSER, thread, offsetof(struct user_regs_struct, rax), (void *)(long)-error);
#elif defined(__aarch64__)
    struct user_regs_struct registers;
    struct iovec part = {&registers, sizeof registers};
    ptrace(PTRACE_GETREGSET, thread, (void *)NT_PRSTATUS, &part);
    registers.regs[0] = (unsigned long long)-(long long)error;
    ptrace(PTRACE_SETREGSET, thread, (void *)NT_PRSTATUS, &part);
#endif
}

static void forget_thread(struct injector *injector, pid_t id)
{
    for (size_t i = 0; i < THREADS_MAX; i++) {
        if (injector->threads[i].id == id) {
            injector->threads[i] = (struct traced_thread){.id = -1};
        }
    }
}

static struct traced_thread *thread_of(struct injector *injector, pid_t id)
{
    struct traced_thread *unused = NULL;
    for (size_t i = 0; i < THREADS_MAX; i++) {
        if (injector->threads[i].id == id) {
            return &injector->threads[i];
        }
        if (unused == NULL && injector->threads[i].id <= 0) {
            unused = &injector->threads[i];
        }
        if (injector->threads[i].id == 0) {
            break; // none in use beyond
        }
    }
    if (unused != NULL) {
        *unused = (struct traced_thread){.id = id};
        return unused;
    }
    CHECK(false, "more threads than the injector follows");
}

// ---- What the process has mapped ----------------------------------------------------------------

struct mapped {
    size_t count;
    size_t writable_bytes;        // private
    size_t writable_in_range;     // of these, in [from, from + bytes): replaced or unmapped by the call
    size_t in_range;              // mappings that have a part of it
    bool range_inside_one;        // the range begins and ends inside one mapping: taking it out splits that
};

static struct mapped read_mapped(pid_t id, uintptr_t from, size_t bytes)
{
    struct mapped mapped = {0, 0, 0, 0, false};
    char path[64];
    char line[4400];
    snprintf(path, sizeof path, "/proc/%d/maps", id);
    FILE *const file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        unsigned long start;
        unsigned long end;
        char mode[8];
        if (sscanf(line, "%lx-%lx %7s", &start, &end, mode) != 3) {
            continue;
        }
        mapped.count++;
        mapped.in_range += start < from + bytes && from < end;
        mapped.range_inside_one |= start < from && from + bytes < end;
        if (mode[1] == 'w' && mode[3] == 'p') {
            const uintptr_t low = start > from ? start : from;
            const uintptr_t high = end < from + bytes ? end : from + bytes;
            mapped.writable_bytes += end - start;
            mapped.writable_in_range += low < high ? high - low : 0;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return mapped;
}

static bool is_fixed(const struct __ptrace_syscall_info *call)
{
    return (call->entry.args[3] & (MAP_FIXED | 0x100000)) != 0;
}

// The kernel's rules (mm/mmap.c, mm/vma.c, mm/mremap.c): no mmap beyond the limit; no split at it.
static bool exceeds_ceiling(struct injector *injector, pid_t id, const struct __ptrace_syscall_info *call)
{
    const size_t limit = injector->plan->nth;
    const uintptr_t from = call->entry.args[0];
    const struct mapped now = read_mapped(id, from, call->entry.args[1]);
    if (now.count > injector->result->most) {
        injector->result->most = now.count;
    }
    switch (call->entry.nr) {
    case SYS_mmap: return now.count > limit || (is_fixed(call) && now.count >= limit && now.range_inside_one);
    case SYS_munmap:
    case SYS_mprotect: return now.count >= limit && now.range_inside_one;
    case SYS_mremap: return call->entry.args[2] > call->entry.args[1] || (call->entry.args[3] & MREMAP_FIXED) != 0
                                ? now.count + 3 >= limit
                                : false;
    default: return false;
    }
}

static bool exceeds_commit(struct injector *injector, pid_t id, const struct __ptrace_syscall_info *call)
{
    const size_t limit = injector->plan->nth << 20;
    const uint64_t *const args = call->entry.args;
    const bool replaces = call->entry.nr != SYS_mmap || is_fixed(call);
    const struct mapped now = read_mapped(id, replaces ? args[0] : 0, replaces ? args[1] : 0);
    size_t wanted = 0;
    if (now.writable_bytes >> 20 > injector->result->most) {
        injector->result->most = now.writable_bytes >> 20;
    }
    if (call->entry.nr == SYS_mmap && (args[2] & PROT_WRITE) != 0 && (args[3] & MAP_SHARED) == 0) {
        wanted = args[1] - now.writable_in_range;
    } else if (call->entry.nr == SYS_mprotect && (args[2] & PROT_WRITE) != 0) {
        wanted = args[1] - now.writable_in_range;
    } else if (call->entry.nr == SYS_mremap && args[2] > args[1]) {
        wanted = args[2] - args[1];
    }
    return wanted != 0 && now.writable_bytes + wanted > limit;
}

// The kernel's rule (mm/mremap.c, vma_to_resize), which comes after what is at the target has been unmapped.
static bool is_joined(pid_t id, const struct __ptrace_syscall_info *call)
{
    const uint64_t *const args = call->entry.args;
    return args[2] >= args[1] && read_mapped(id, args[0], args[1]).in_range > 1;
}

// Takes the flags of huge and giant pages from a mapping, at the entry of mmap.
static void make_ordinary(pid_t thread, uint64_t flags)
{
    flags &= ~((uint64_t)MAP_HUGETLB | (uint64_t)0x3f << 26);
#if defined(__x86_64__)
    ptrace(PTRACE_POKEUSER, thread, offsetof(struct user_regs_struct, r10), (void *)flags);
#elif defined(__aarch64__)
    struct user_regs_struct registers;
    struct iovec part = {&registers, sizeof registers};
    ptrace(PTRACE_GETREGSET, thread, (void *)NT_PRSTATUS, &part);
    registers.regs[3] = flags;
    ptrace(PTRACE_SETREGSET, thread, (void *)NT_PRSTATUS, &part);
#endif
}

// A system with nth giant pages. What it is asked for must be one of them, and in its place.
static bool exceeds_giant(struct injector *injector, pid_t id, const struct __ptrace_syscall_info *call)
{
    const uint64_t *const args = call->entry.args;
    if (call->entry.nr != SYS_mmap || (args[3] & MAP_HUGETLB) == 0) {
        return false;
    }
    CHECK(args[3] >> 26 == 30 && args[1] == (uint64_t)1 << 30 && args[0] % args[1] == 0 && is_fixed(call),
          "mmap of %zu bytes at %p, flags %lx", (size_t)args[1], (void *)args[0], (unsigned long)args[3]);
    if (++injector->result->calls_seen > injector->plan->nth) {
        return true;
    }
    make_ordinary(id, args[3]);
    return false;
}

static bool must_fail(struct injector *injector, pid_t id, const struct __ptrace_syscall_info *call)
{
    const uint64_t number = call->entry.nr;
    if (!injector->window_open || (kind_of(number) & injector->plan->calls) == 0) {
        return false;
    }
    if (injector->plan->mode == FAULT_GIANT) {
        return exceeds_giant(injector, id, call);
    }
    const size_t seen = ++injector->result->calls_seen;
    switch (injector->plan->mode) {
    case FAULT_ONCE: return seen == injector->plan->nth;
    case FAULT_FOREVER: return seen >= injector->plan->nth;
    case FAULT_CEILING: return exceeds_ceiling(injector, id, call);
    case FAULT_COMMIT: return exceeds_commit(injector, id, call);
    case FAULT_JOINED: return is_joined(id, call);
    default: return chance_below(&injector->chance, injector->plan->nth) == 0;
    }
}

// Does nothing in place of the call, or unmaps what it was to replace.
static void suppress(const struct injector *injector, struct traced_thread *thread,
                     const struct __ptrace_syscall_info *call)
{
    const uint64_t *const args = call->entry.args;
    const bool moves = call->entry.nr == SYS_mremap && (args[3] & MREMAP_FIXED) != 0;
    const bool replaces = moves || (call->entry.nr == SYS_mmap && (args[3] & MAP_FIXED) != 0);
    thread->unmaps = injector->plan->unmaps && replaces;
    if (thread->unmaps) {
        thread->first = args[0];
        thread->second = args[1];
        set_arguments(thread->id, moves ? args[4] : args[0], moves ? args[2] : args[1]);
    }
    change_call(thread->id, thread->unmaps ? SYS_munmap : -1);
}

static void at_system_call(struct injector *injector, pid_t id)
{
    struct __ptrace_syscall_info info;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, id, (void *)sizeof info, &info) <= 0) {
        return; // the thread is gone
    }
    struct traced_thread *const thread = thread_of(injector, id);
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
        if (info.entry.nr == FAULT_WINDOW_OPENS || info.entry.nr == FAULT_WINDOW_CLOSES) {
            injector->window_open = info.entry.nr == FAULT_WINDOW_OPENS;
            injector->result->main_reached = true;
        }
        thread->fails_now = must_fail(injector, id, &info);
        if (thread->fails_now) {
            suppress(injector, thread, &info);
        }
    } else if (info.op == PTRACE_SYSCALL_INFO_EXIT && thread->fails_now) {
        if (thread->unmaps) {
            set_arguments(id, thread->first, thread->second); // the program's registers
        }
        set_result(id, injector->plan->error);
        injector->result->calls_failed++;
        thread->fails_now = false;
    }
}

static void become_traced(char *const arguments[], char *const environment[])
{
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) {
        _exit(126);
    }
    raise(SIGSTOP);
    execve(arguments[0], arguments, environment);
    _exit(127);
}

bool fault_run(const struct fault_plan *plan, char *const arguments[], char *const environment[],
               struct fault_result *result)
{
    struct injector injector = {.plan = plan, .result = result, .chance = {plan->seed}};
    *result = (struct fault_result){0};
    const pid_t main_thread = fork();
    if (main_thread == 0) {
        become_traced(arguments, environment);
    }
    int status = 0;
    if (waitpid(main_thread, &status, __WALL) != main_thread || !WIFSTOPPED(status)) {
        return false;
    }
    const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SETOPTIONS, main_thread, NULL, (void *)options) != 0) {
        kill(main_thread, SIGKILL);
        waitpid(main_thread, &status, __WALL);
        return false;
    }
    ptrace(PTRACE_SYSCALL, main_thread, NULL, NULL);
    for (;;) {
        const pid_t id = waitpid(-1, &status, __WALL);
        CHECK(id > 0, "waitpid");
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (id == main_thread) {
                result->status = status;
                return true;
            }
            forget_thread(&injector, id);
            continue;
        }
        const int stop = WSTOPSIG(status);
        long deliver = 0;
        if (stop == (SIGTRAP | 0x80)) {
            at_system_call(&injector, id);
        } else if (status >> 8 == (SIGTRAP | PTRACE_EVENT_EXEC << 8)) {
            injector.window_open = plan->from_start;
        } else if (status >> 16 == 0 && stop != SIGSTOP) {
            deliver = stop;
        }
        ptrace(PTRACE_SYSCALL, id, NULL, (void *)deliver);
    }
}
