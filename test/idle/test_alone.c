// SPDX-License-Identifier: MIT
// What a process may only do, or does otherwise, while it has one thread: entering namespaces, ending by
// pthread_exit in main, forking in a signal's handler that has interrupted a fork, setuid for all of it. The
// thread of ours does not stand in the way.
//
//   idle_alone idle|locked|single|unshare|setns|often|files|cancelled|end|forks|vfork|rights|rights_late|interrupted|
//              namesake|numbers|pinned|lifted|lifted_data|refused|clock
#include "idle.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/single_threaded.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

static void have_a_thread_of(size_t threads)
{
    struct load load;
    for (int tries = 0; thread_count() != threads; tries++) {
        CHECK(tries < 50, "%zu threads", thread_count());
        load_fill(&load, 64 * MIB / 400, 400);
        load_free(&load);
        rest_ms(20);
    }
}

static void have_a_thread(void)
{
    have_a_thread_of(2);
}

// A process with one thread more is refused with EINVAL; without the privilege there are other answers.
static void enter_namespaces(bool by_setns)
{
    if (by_setns) {
        const int own = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
        CHECK(own >= 0, "open: errno %d", errno);
        CHECK(setns(own, CLONE_NEWNS) == 0 || errno != EINVAL, "setns");
        errno = 0;
        CHECK(setns(-1, CLONE_NEWNS) == -1 && errno == EBADF, "setns of nothing: errno %d", errno);
        close(own);
    } else {
        CHECK(unshare(CLONE_NEWUSER) == 0 || errno != EINVAL, "unshare");
        errno = 0;
        CHECK(unshare(CLONE_PARENT) == -1 && errno == EINVAL, "unshare of nothing: errno %d", errno);
    }
    have_a_thread(); // not for good
}

// Joined is not yet gone: the kernel counts a thread for a moment more, a long one where others run.
static void be_alone_often(void)
{
    enum { TIMES = 60, OTHERS = 4 };
    pid_t others[OTHERS];
    for (unsigned i = 0; i < OTHERS; i++) {
        others[i] = fork();
        CHECK(others[i] >= 0, "fork");
        if (others[i] == 0) {
            alarm(20); // should we fail
            for (volatile unsigned turn = 0;; turn++) {
            }
        }
    }
    int error = 0;
    for (unsigned i = 0; i < TIMES && error == 0; i++) {
        have_a_thread();
        error = unshare(CLONE_THREAD) == 0 ? 0 : errno; // asks for no more than one thread
    }
    for (unsigned i = 0; i < OTHERS; i++) {
        CHECK(kill(others[i], SIGKILL) == 0 && waitpid(others[i], NULL, 0) == others[i], "kill");
    }
    CHECK(error == 0, "unshare: errno %d", error);
}

// Whoever waits for the end of a pipe waits for all tables of descriptors that hold it.
static void close_alone(void)
{
    int ends[2];
    char byte;
    CHECK(pipe(ends) == 0 && fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0, "pipe");
    CHECK(unshare(CLONE_FILES) == 0, "unshare: errno %d", errno);
    close(ends[1]);
    CHECK(read(ends[0], &byte, 1) == 0, "somebody else has the pipe's end");
}

// unshare is no place at which a thread is cancelled: one that waits for the end of ours must not be, or
// nobody would ever see that. Often that end comes before it has to wait, so there are some rounds.
static void *unshare_cancelled(void *reached)
{
    pthread_cancel(pthread_self());
    (void)unshare(CLONE_PARENT);
    *(bool *)reached = true;
    pthread_testcancel();
    return NULL;
}

static void be_cancelled_alone(void)
{
    for (unsigned round = 0; round < 20; round++) {
        pthread_t thread;
        bool reached = false;
        CHECK(pthread_create(&thread, NULL, unshare_cancelled, &reached) == 0, "pthread_create");
        CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
        CHECK(reached, "cancelled in unshare");
        have_a_thread();
    }
}

static void at_exit(void)
{
    if (gettid() != getpid()) {
        _exit(3); // in a thread that the program does not know
    }
}

// It comes, does its work, and goes.
static void be_idle(void)
{
    const size_t before = process_rss_kib();
    struct load load;
    load_fill(&load, 64 * MIB / 400, 400);
    load_free(&load);
    CHECK(wait_for_rss(before + 3000, 2000), "%zu KiB before, %zu now", before, process_rss_kib());
    CHECK(wait_for_threads(1, 4000), "%zu threads", thread_count());
}

// Nor does it stay for what the program has locked and freed, which the kernel does not take back.
static void be_idle_beside_locked_memory(void)
{
    enum { COUNT = 640, SIZE = 100000, LOCKED_MOST = 256 };
    struct load load;
    load_fill(&load, COUNT, SIZE);
    unsigned locked = 0;
    while (locked < LOCKED_MOST && mlock(load.blocks[2 * locked], 1) == 0) {
        locked++;
    }
    if (locked == 0) {
        dprintf(2, "skipped: no memory may be locked\n");
        exit(77);
    }
    load_free(&load);
    have_a_thread();
    CHECK(wait_for_threads(1, 8000), "%zu threads beside %u locked pages", thread_count(), locked);
    CHECK(munlockall() == 0, "munlockall");
}

// Under a limit it is not to come, and where that is lifted again it is.
static void be_confined_for_a_while(int resource)
{
    struct rlimit limit;
    struct rlimit lifted;
    struct load load;
    CHECK(getrlimit(resource, &lifted) == 0, "getrlimit");
    limit = lifted;
    limit.rlim_cur = 600 * MIB;
    CHECK(setrlimit(resource, &limit) == 0, "setrlimit");
    CHECK(wait_for_threads(1, 8000), "%zu threads", thread_count());
    for (int tries = 0; tries < 5; tries++) {
        load_fill(&load, 64 * MIB / 400, 400);
        load_free(&load);
        rest_ms(100);
    }
    CHECK(wait_for_threads(1, 2000), "%zu threads under a limit", thread_count());
    CHECK(prlimit(0, resource, &lifted, &lifted) == 0, "prlimit");
    have_a_thread();
    be_idle();
}

// What the kernel refuses ends nothing: address space is as it was, and memory comes back as before.
static void be_refused(void)
{
    const struct rlimit wrong = {8192, 4096};
    const size_t before = process_status_kib("VmSize");
    CHECK(setrlimit(RLIMIT_AS, &wrong) == -1 && errno == EINVAL, "setrlimit: errno %d", errno);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0) == -1 && errno == EINVAL, "prctl: errno %d", errno);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) == -1 && errno == EFAULT, "a filter: errno %d", errno);
    CHECK(mlockall(0x100) == -1 && errno == EINVAL, "mlockall: errno %d", errno);
    const size_t now = process_status_kib("VmSize");
    CHECK(now + MIB >= before, "%zu KiB of addresses, %zu now", before, now);
    have_a_thread();
    be_idle();
}

static void get_holes_back(void)
{
    enum { COUNT = 200000, SIZE = 200, KEEP = 64 };
    struct load load;
    struct chance chance = {7};
    load_fill(&load, COUNT, SIZE);
    load_thin_out(&load, KEEP, &chance);
    const size_t full = process_rss_kib();
    CHECK(wait_for_rss(full - full / 3, 8000 * (uint64_t)PATIENCE), "%zu KiB with holes, %zu now", full,
          process_rss_kib());
    load_free(&load);
}

// Of a child's clock it may be earlier than when its parent looked last.
static void have_an_earlier_clock(void)
{
    char text[64];
    struct timespec now;
    get_holes_back();
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0, "clock_gettime");
    const int length = snprintf(text, sizeof text, "monotonic -%lld 0\n", (long long)now.tv_sec / 2);
    const int offsets = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
    if (now.tv_sec < 60 || offsets < 0 || unshare(CLONE_NEWTIME) != 0 || write(offsets, text, (size_t)length) != length) {
        exit(77);
    }
    const pid_t child = fork();
    if (child == 0) {
        get_holes_back();
        _exit(0);
    }
    int status = 1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0, "the child: %x", (unsigned)status);
}

// What libc leaves out in a program of one thread it goes on leaving out.
static void be_single(void)
{
    CHECK(thread_count() == 2 && __libc_single_threaded != 0, "libc knows of a thread");
}

// In a program of several threads that ends at a lock of libc's (glibc 2.36): see glibc's
// tst-mallocfork2.
static volatile sig_atomic_t handled;

static void fork_in_handler(int number)
{
    const pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    int status = number;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0, "a child of the handler");
    handled++;
}

static void fork_in_forks(void)
{
    const pid_t self = getpid();
    alarm(60);
    CHECK(signal(SIGUSR1, fork_in_handler) != SIG_ERR, "signal");
    const pid_t sender = fork();
    if (sender == 0) {
        // Not always at once: the kernel begins a fork anew that a signal comes into, and on a slow machine one
        // does not end within a millisecond.
        for (unsigned round = 0; kill(self, SIGUSR1) == 0; round++) {
            rest_ms(1 + round % 8);
        }
        _exit(0);
    }
    for (unsigned round = 0; round < 300 || handled < 100; round++) {
        const pid_t child = fork();
        if (child == 0) {
            _exit(0);
        }
        int status = 1;
        while (waitpid(child, &status, 0) == -1 && errno == EINTR) {
        }
        CHECK(child > 0 && status == 0, "a child");
    }
    CHECK(signal(SIGUSR1, SIG_IGN) != SIG_ERR && kill(sender, SIGKILL) == 0, "the sender");
}

// A child by a handler that has interrupted unshare, where that goes on: it may have a thread again.
static volatile sig_atomic_t is_child;
static volatile pid_t handlers_child;

static void fork_once(int number)
{
    (void)number;
    if (handlers_child == 0) {
        handlers_child = fork();
        is_child = handlers_child == 0;
        handlers_child = is_child ? -1 : handlers_child;
    }
}

static void fork_in_unshare(void)
{
    CHECK(signal(SIGALRM, fork_once) != SIG_ERR, "signal");
    for (unsigned round = 0; round < 20; round++) {
        have_a_thread();
        handlers_child = 0;
        const struct itimerval soon = {.it_value = {.tv_usec = 1 + (suseconds_t)round}};
        CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0, "setitimer");
        do {
            (void)unshare(CLONE_PARENT); // refused
        } while (handlers_child == 0);
        if (is_child != 0) {
            have_a_thread();
            _exit(0);
        }
        int status = 1;
        while (waitpid(handlers_child, &status, 0) == -1 && errno == EINTR) {
        }
        CHECK(status == 0, "round %u: the child: %x", round, (unsigned)status);
    }
}

// The first process of a namespace has number 1, and so has a child of its own in the next one: by a system
// call without libc it has what its parent knows of a thread, and would wait for that one's end.
static void have_a_namesake(void)
{
    if (geteuid() != 0 || unshare(CLONE_NEWPID) != 0) {
        exit(77);
    }
    const pid_t first = fork();
    if (first == 0) {
        have_a_thread();
        const pid_t second = (pid_t)syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, NULL, NULL, NULL, NULL);
        if (second == 0) {
            _exit(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ? 0 : 1);
        }
        int status = 1;
        CHECK(second > 0 && waitpid(second, &status, 0) == second, "clone: errno %d", errno);
        _exit(status == 0 ? 0 : 1);
    }
    int status = 1;
    pid_t ended = 0;
    for (unsigned i = 0; i < 500 && ended == 0; i++) { // first processes ignore an alarm
        (void)usleep(20000);
        ended = waitpid(first, &status, WNOHANG);
    }
    if (ended == 0) {
        (void)kill(first, SIGKILL);
    }
    CHECK(first > 0 && ended == first && status == 0, "a namesake waits");
}

// A child by vfork that frees much does not take the thread with it: its parent's comes when it is due.
static void free_in_vfork(void)
{
    CHECK(wait_for_threads(1, 4000), "%zu threads", thread_count());
    struct load load;
    load_fill(&load, 64 * MIB / 400, 400);
    const pid_t child = vfork();
    if (child == 0) {
        load_free(&load);
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, NULL, 0) == child, "vfork");
    rest_ms(1100); // as long as none is tried again
    be_idle();
}

// The users of all threads; how many of them are not `user`.
static size_t count_others(uid_t user)
{
    size_t others = 0;
    DIR *const tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL, "/proc/self/task");
    for (const struct dirent *task = readdir(tasks); task != NULL; task = readdir(tasks)) {
        char name[300];
        char text[2048] = "";
        snprintf(name, sizeof name, "/proc/self/task/%s/status", task->d_name);
        const int fd = open(name, O_RDONLY);
        if (task->d_name[0] == '.' || fd < 0) {
            continue; // or it has ended
        }
        const ssize_t length = read(fd, text, sizeof text - 1);
        close(fd);
        const char *const users = strstr(text, "\nUid:");
        others += length > 0 && users != NULL && strtoul(users + 5, NULL, 10) != user;
    }
    closedir(tasks);
    return others;
}

// Who gives up rights gives up those of all threads. `late`: where the library is linked in, when the thread
// next looks.
static void give_up_rights(bool late)
{
    enum { USER = 65533 };
    if (getuid() != 0 || setgroups(0, NULL) != 0) {
        exit(0); // nothing to give up
    }
    have_a_thread();
    CHECK(setresgid(USER, USER, USER) == 0 && setresuid(USER, USER, USER) == 0, "setresuid");
    for (unsigned waited = 0; late && count_others(USER) != 0 && waited < 2000; waited += 10) {
        rest_ms(10);
    }
    CHECK(count_others(USER) == 0, "a thread with the rights of before");
    have_a_thread(); // another one
    CHECK(count_others(USER) == 0, "a new thread with the rights of before");
    CHECK(setuid(0) == -1 && errno == EPERM, "setuid has not passed it on: errno %d", errno);
}

static void expect_users(const char *call, int result, uid_t real, uid_t effective, uid_t saved)
{
    uid_t now[3];
    CHECK(getresuid(&now[0], &now[1], &now[2]) == 0, "getresuid");
    CHECK(result == 0 && now[0] == real && now[1] == effective && now[2] == saved, "%s: %d, users %u %u %u", call,
          result, now[0], now[1], now[2]);
}

static void expect_groups(const char *call, int result, gid_t real, gid_t effective, gid_t saved)
{
    gid_t now[3];
    CHECK(getresgid(&now[0], &now[1], &now[2]) == 0, "getresgid");
    CHECK(result == 0 && now[0] == real && now[1] == effective && now[2] == saved, "%s: %d, groups %u %u %u", call,
          result, now[0], now[1], now[2]);
}

// Each of the names is passed on with its arguments as they are, and so is what libc answers.
static void change_rights(void)
{
    const gid_t wanted[2] = {65501, 65502};
    gid_t groups[64] = {0};
    if (getuid() != 0 || setgroups(2, wanted) != 0) {
        exit(0); // no rights to change
    }
    CHECK(getgroups(64, groups) == 2 && memcmp(groups, wanted, sizeof wanted) == 0, "setgroups");
    CHECK(initgroups("root", 65503) == 0, "initgroups");
    const int count = getgroups(64, groups);
    bool found = false;
    for (int i = 0; i < count; i++) {
        found = found || groups[i] == 65503;
    }
    CHECK(found, "initgroups: %d groups, not the one named", count);
    expect_groups("setresgid", setresgid(0, 0, 0), 0, 0, 0);
    expect_groups("setegid", setegid(65504), 0, 65504, 0);
    expect_groups("setregid", setregid(65505, 65506), 65505, 65506, 65506);
    expect_groups("setresgid", setresgid(65507, 65508, 65509), 65507, 65508, 65509);
    expect_groups("setgid", setgid(65510), 65510, 65510, 65510);
    expect_users("seteuid", seteuid(65511), 0, 65511, 0);
    expect_users("seteuid", seteuid(0), 0, 0, 0);
    expect_users("setreuid", setreuid(65512, 0), 65512, 0, 0);
    expect_users("setresuid", setresuid(65513, 0, 65514), 65513, 0, 65514);
    expect_users("setuid", setuid(65515), 65515, 65515, 65515);
    errno = 0;
    CHECK(setuid(0) == -1 && errno == EPERM, "setuid: errno %d", errno);
    errno = 0;
    CHECK(setregid(0, 0) == -1 && errno == EPERM, "setregid: errno %d", errno);
    errno = 0;
    CHECK(initgroups("root", 0) == -1 && errno == EPERM, "initgroups: errno %d", errno);
}

// The thread of ours has none of the program's descriptors, so that what it opens gets no number of theirs.
static void have_all_numbers(void)
{
    enum { CLOSE_RANGE = 436 };
    char path[64] = "";
    if (syscall(CLOSE_RANGE, UINT32_MAX, UINT32_MAX, 0) != 0) {
        SKIP_PROGRAM("Linux before 5.9");
    }
    DIR *const tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL, "/proc/self/task");
    for (const struct dirent *task = readdir(tasks); task != NULL; task = readdir(tasks)) {
        if (task->d_name[0] != '.' && strtol(task->d_name, NULL, 10) != getpid()) {
            snprintf(path, sizeof path, "/proc/self/task/%.20s/fdinfo/%d", task->d_name, dirfd(tasks));
        }
    }
    CHECK(path[0] != '\0', "there is no other thread");
    for (int tries = 0; access(path, F_OK) == 0; tries++) { // it has just begun
        CHECK(tries < 50, "%s is there", path);
        rest_ms(20);
    }
    CHECK(errno == ENOENT, "%s: errno %d", path, errno);
    closedir(tasks);
}

// A thread that has bound itself to a processor, and may keep that busy, has the thread of ours begun: which
// is not bound to it as well, but may run where the first thread of the process may.
static void *have_a_thread_pinned(void *processor)
{
    CHECK(pthread_setaffinity_np(pthread_self(), sizeof(cpu_set_t), processor) == 0, "affinity");
    have_a_thread_of(3);
    return NULL;
}

static void pin_the_beginner(void)
{
    cpu_set_t all;
    cpu_set_t one;
    pthread_t thread;
    CPU_ZERO(&one);
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0, "affinity");
    if (CPU_COUNT(&all) < 2) {
        SKIP_PROGRAM("one processor");
    }
    for (int i = 0; CPU_COUNT(&one) == 0; i++) {
        if (CPU_ISSET(i, &all)) {
            CPU_SET(i, &one);
        }
    }
    CHECK(wait_for_threads(1, 4000), "%zu threads", thread_count());
    CHECK(pthread_create(&thread, NULL, have_a_thread_pinned, &one) == 0, "pthread_create");
    CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
    size_t others = 0;
    for (int tries = 0; others == 0; tries++) { // it has just begun
        CHECK(tries < 50, "our thread is bound to the processor of the one that has begun it");
        rest_ms(20);
        DIR *const tasks = opendir("/proc/self/task");
        CHECK(tasks != NULL, "/proc/self/task");
        for (const struct dirent *task = readdir(tasks); task != NULL; task = readdir(tasks)) {
            const pid_t number = (pid_t)strtol(task->d_name, NULL, 10);
            cpu_set_t its;
            others += number > 0 && number != getpid() && sched_getaffinity(number, sizeof its, &its) == 0 &&
                      CPU_EQUAL(&its, &all);
        }
        closedir(tasks);
    }
}

int main(int count, char **arguments)
{
    const char *const what = count > 1 ? arguments[1] : "";
    have_a_thread();
    if (strcmp(what, "end") == 0) {
        CHECK(atexit(at_exit) == 0, "atexit");
        pthread_exit(NULL);
    } else if (strcmp(what, "often") == 0) {
        be_alone_often();
    } else if (strcmp(what, "files") == 0) {
        close_alone();
    } else if (strcmp(what, "cancelled") == 0) {
        be_cancelled_alone();
    } else if (strcmp(what, "idle") == 0) {
        be_idle();
    } else if (strcmp(what, "locked") == 0) {
        be_idle_beside_locked_memory();
    } else if (strcmp(what, "lifted") == 0) {
        be_confined_for_a_while(RLIMIT_AS);
    } else if (strcmp(what, "lifted_data") == 0) {
        be_confined_for_a_while(RLIMIT_DATA);
    } else if (strcmp(what, "refused") == 0) {
        be_refused();
    } else if (strcmp(what, "clock") == 0) {
        have_an_earlier_clock();
    } else if (strcmp(what, "single") == 0) {
        be_single();
    } else if (strcmp(what, "forks") == 0) {
        fork_in_forks();
    } else if (strcmp(what, "vfork") == 0) {
        free_in_vfork();
    } else if (strcmp(what, "interrupted") == 0) {
        fork_in_unshare();
    } else if (strcmp(what, "namesake") == 0) {
        have_a_namesake();
    } else if (strcmp(what, "numbers") == 0) {
        have_all_numbers();
    } else if (strcmp(what, "pinned") == 0) {
        pin_the_beginner();
    } else if (strncmp(what, "rights", 6) == 0) {
        give_up_rights(strcmp(what, "rights_late") == 0);
    } else if (strcmp(what, "change_rights") == 0) {
        change_rights();
    } else {
        CHECK(strcmp(what, "unshare") == 0 || strcmp(what, "setns") == 0, "no such case");
        enter_namespaces(strcmp(what, "setns") == 0);
    }
    return 0;
}
