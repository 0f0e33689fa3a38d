// SPDX-License-Identifier: MIT
// A fork just before or just after a system call of the allocator's that gives memory back or moves it:
// those are made with a lock held, and where they would keep others waiting, without. Either by a signal
// handler that has interrupted the very call, which then goes on in the child as well, or by another
// thread, when who makes the call is not in the child. In both, no block may come to lie where nothing is
// mapped any more. Calls are found by seccomp (SIGSYS). A hang shows as SIGALRM. Built for both families.
#include "../support/family.h"
#include "../support/suite.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>

enum { FORKS = 80, BLOCKS = 48, CHILD_STEPS = 80, SECONDS = 100, OURS = 0x6d61 };
enum { TICK_US = 420000, IDLE_STEPS = 50 }; // the allocator's tick, and a little

static struct chance when;
static _Atomic(bool) forks_here;    // the handler itself forks
static _Atomic(bool) forks_beside;  // another thread does, which it tells
static _Atomic(bool) is_wanted;
static _Atomic(unsigned) fork_count;
static volatile sig_atomic_t is_child;
static volatile sig_atomic_t is_nested;
static volatile sig_atomic_t is_idle; // little is needed, and calls are made without a lock

// ---- Calls -----------------------------------------------------------------------------------------

#define TRAP(number)                                                                               \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP)

// All but those with OURS as their sixth argument, which none of them has.
static void trap_calls(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[5])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OURS, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        TRAP(SYS_munmap),
        TRAP(SYS_madvise),
        TRAP(SYS_mremap),
        TRAP(SYS_mprotect),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {COUNT_OF(filter), filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        SKIP_PROGRAM("no seccomp filter: %s", strerror(errno));
    }
}

// The trapped call, made in the handler; its result is the trapped one's.
static void make_call(ucontext_t *context)
{
#if defined(__x86_64__)
    greg_t *const r = context->uc_mcontext.gregs;
    register long r10 __asm__("r10") = r[REG_R10];
    register long r8 __asm__("r8") = r[REG_R8];
    register long r9 __asm__("r9") = OURS;
    long result = r[REG_RAX];
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"(r[REG_RDI]), "S"(r[REG_RSI]), "d"(r[REG_RDX]), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    r[REG_RAX] = result;
#elif defined(__aarch64__)
    unsigned long long *const r = context->uc_mcontext.regs;
    register long x0 __asm__("x0") = (long)r[0];
    register long x1 __asm__("x1") = (long)r[1];
    register long x2 __asm__("x2") = (long)r[2];
    register long x3 __asm__("x3") = (long)r[3];
    register long x4 __asm__("x4") = (long)r[4];
    register long x5 __asm__("x5") = OURS;
    register long x8 __asm__("x8") = (long)r[8];
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5), "r"(x8) : "memory");
    r[0] = (unsigned long long)x0;
#endif
}

static void wait_for(pid_t child)
{
    int status = 0;
    while (waitpid(child, &status, 0) != child) {
    }
    CHECK(!(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM), "a child hangs");
    CHECK(status == 0, "child %u, status %#x", (unsigned)fork_count, (unsigned)status);
    fork_count++;
}

static void be_child(void)
{
    is_child = 1;
    alarm(SECONDS / 3);
}

static void fork_here(void)
{
    const pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        be_child(); // and back to what was interrupted
    } else {
        wait_for(child);
    }
}

// Not for ever: who forks may be waiting for a lock that is held here.
static void await_fork_beside(void)
{
    atomic_store(&is_wanted, true);
    for (unsigned round = 0; round < 100 && atomic_load(&is_wanted); round++) {
        usleep(100);
    }
}

static void at_call(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)info;
    const int error = errno;
    const bool due =
        !is_child && !is_nested && fork_count < FORKS && chance_below(&when, 12) < (is_idle ? 8 : 1);
    const bool before = chance_below(&when, 2) != 0;
    is_nested++;
    if (!before) {
        make_call(context);
    }
    if (due && atomic_load(&forks_here)) {
        fork_here();
    } else if (due && atomic_load(&forks_beside)) {
        await_fork_beside();
    }
    if (before) {
        make_call(context);
    }
    is_nested--;
    errno = error;
}

static void look_at_calls(void)
{
    const struct sigaction action = {.sa_sigaction = at_call, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSYS, &action, NULL);
    trap_calls();
    alarm(SECONDS);
}

// Each in a process of its own: after a case cmocka would take SIGSYS back, and the filter stays.
static void in_own_process(void (*run)(void))
{
    const pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); // cmocka would go on with the next case
        signal(SIGBUS, SIG_DFL);
        look_at_calls();
        run();
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child, "waitpid");
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIP) {
        _exit(EXIT_SKIP);
    }
    CHECK(status == 0, "status %#x", (unsigned)status);
}

// ---- Blocks ----------------------------------------------------------------------------------------

struct live {
    unsigned char *block;
    size_t size;
    uint64_t tag;
};

static void replace(struct live *live, struct chance *chance, size_t size)
{
    CHECK(tag_wrong(live->block, live->size, live->tag) == live->size, "contents");
    if (size != 0 && chance_below(chance, 4) == 0) {
        live->block = fam_realloc(live->block, size);
    } else {
        fam_free(live->block);
        live->block = size != 0 ? fam_malloc(size) : NULL;
    }
    CHECK(size == 0 || live->block != NULL, "no memory");
    live->size = size;
    live->tag = chance_next(chance);
    tag_fill(live->block, live->size, live->tag);
}

static size_t any_size(struct chance *chance)
{
    static const size_t most[] = {500, 40 * KIB, 400 * KIB, 4 * MIB};
    return chance_below(chance, most[chance_below(chance, COUNT_OF(most))]) + 1;
}

static void replace_some(struct live *live, struct chance *chance, size_t steps)
{
    for (size_t step = 0; step < steps; step++) {
        if (is_child && chance_below(chance, CHILD_STEPS) == 0) {
            _exit(0);
        }
        replace(&live[chance_below(chance, BLOCKS)], chance, any_size(chance));
    }
}

// Many blocks and few in turn, with time between: what is not needed is given back, a part by each call.
static void come_and_go(struct chance *chance)
{
    struct live live[BLOCKS];
    memset(live, 0, sizeof live);
    while (is_child || fork_count < FORKS) {
        replace_some(live, chance, 2 * BLOCKS);
        for (size_t i = 0; i < BLOCKS - 4; i++) {
            replace(&live[i], chance, 0);
        }
        is_idle = 1;
        for (size_t i = 0; i < 3 * IDLE_STEPS && !is_child; i++) {
            usleep(i % IDLE_STEPS == 0 ? TICK_US : 100);
            fam_free(fam_malloc(300 * KIB));
        }
        is_idle = 0;
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        replace(&live[i], chance, 0);
    }
}

// ---- Cases -----------------------------------------------------------------------------------------

static void fork_in_calls(void)
{
    struct chance chance = {1};
    atomic_store(&forks_here, true);
    come_and_go(&chance);
}

static void in_the_interrupted_call(void **state)
{
    (void)state;
    in_own_process(fork_in_calls);
}

static void *come_and_go_beside(void *argument)
{
    struct chance chance = {2};
    come_and_go(&chance);
    return argument;
}

static void fork_beside_calls(void)
{
    struct chance chance = {3};
    struct live live[BLOCKS];
    static _Alignas(64 * KIB) unsigned char stack[256 * KIB];
    pthread_attr_t attributes;
    pthread_t thread;
    memset(live, 0, sizeof live);
    atomic_store(&forks_beside, true);
    pthread_attr_init(&attributes); // libc would give back a stack of its own with all signals blocked
    pthread_attr_setstack(&attributes, stack, sizeof stack);
    CHECK(pthread_create(&thread, &attributes, come_and_go_beside, NULL) == 0, "pthread_create");
    while (fork_count < FORKS) {
        if (!atomic_load(&is_wanted)) {
            usleep(20);
            continue;
        }
        const pid_t child = fork();
        CHECK(child >= 0, "fork");
        if (child == 0) {
            be_child();
            replace_some(live, &chance, SIZE_MAX);
        }
        atomic_store(&is_wanted, false);
        wait_for(child);
    }
    CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
}

static void by_another_thread(void **state)
{
    (void)state;
    in_own_process(fork_beside_calls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_the_interrupted_call),
        cmocka_unit_test(by_another_thread),
    };
    return suite_run(tests);
}
