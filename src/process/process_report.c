// SPDX-License-Identifier: MIT
// Report of a process: see process_report.h.
//
// Owns     `report` of struct process. libc runs the destructor that comes here once, in whichever
//          thread calls exit.
// Holds    the words "symbols" map a name to whether the dynamic linker resolves it to the object
//          that this very function lies in: proof that calls of that name reach us.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // dlsym, dladdr
#endif
#include "process/process_report.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/format.h"
#include "mallow/mallow.h"
#include "observe/report.h"
#include "os/os.h"
#include "os/os_syscall.h"

#pragma weak dlsym
#pragma weak dladdr
#pragma weak dladdr1

static const char *const report_symbols[] = {
    "malloc", "free", "calloc", "realloc", "posix_memalign", "aligned_alloc", "malloc_usable_size",
};

static void report_path(const struct process *process, struct format *out) {
    const char *pattern = process_option_text(&process->options, report);
    char letter[2] = {0, 0};
    for (; *pattern != '\0'; pattern++) {
        if (pattern[0] == '%' && pattern[1] == 'p') {
            format_unsigned(out, (uint64_t)getpid());
            pattern++;
        } else {
            letter[0] = *pattern;
            format_text(out, letter);
        }
    }
}

// Where the program's calls of a name lead. NULL: it is a static executable, where the linker has
// bound every name; it has no dlsym, or, from glibc 2.34 on, one that finds nothing.
static void *report_find(const char *name) {
    return dlsym == NULL || dladdr == NULL ? NULL : dlsym(RTLD_DEFAULT, name);
}

static bool report_is_ours(const char *name) {
    void *const address = report_find(name);
    Dl_info theirs;
    Dl_info ours;
    const ElfW(Sym) *symbol = NULL;
    if (address == NULL) {
        return true;
    }
    if (dladdr1(address, &theirs, (void **)&symbol, RTLD_DL_SYMENT) == 0 ||
        dladdr((const void *)report_symbols, &ours) == 0) {
        return false;
    }
    // An executable that is not position-independent and takes a function's address has a stub of
    // its own for it, under an undefined symbol; the stub leads to the first library that defines
    // the name.
    return theirs.dli_fbase == ours.dli_fbase ||
           (symbol != NULL && symbol->st_shndx == SHN_UNDEF);
}

static void report_symbols_json(struct format *out) {
    format_text(out, "\"symbols\":{");
    for (unsigned i = 0; i < sizeof report_symbols / sizeof report_symbols[0]; i++) {
        format_text(out, i == 0 ? "" : ",");
        format_json_text(out, report_symbols[i]);
        format_text(out, report_is_ours(report_symbols[i]) ? ":true" : ":false");
    }
    format_text(out, "}");
}

MALLOW_INTERNAL bool process_report_is_anothers(void) {
    void *const other = report_find("mw_version_text");
    Dl_info theirs;
    Dl_info allocator;
    return other != NULL && !report_is_ours("mw_version_text") && !report_is_ours("malloc") &&
           dladdr(other, &theirs) != 0 && dladdr(report_find("malloc"), &allocator) != 0 &&
           theirs.dli_fbase == allocator.dli_fbase;
}

// A block of malloc's, whoever serves that name, is it ours?
static bool report_probe(const struct process *process) {
    void *(*allocate)(size_t) = NULL;
    void (*release)(void *) = NULL;
    *(void **)&allocate = report_find("malloc");
    *(void **)&release = report_find("free");
    if (allocate == NULL || release == NULL) {
        return true;
    }
    void *const block = allocate(1);
    const bool owned =
        heap_identify(&process->shared, (uintptr_t)block).kind != HEAP_BLOCK_NONE;
    release(block);
    return owned;
}

static void report_process_json(struct format *out) {
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage);
    static const char *const names[] = {"user_us", "system_us", "peak_rss_bytes", "minor_faults",
                                        "major_faults"};
    const uint64_t values[] = {
        (uint64_t)usage.ru_utime.tv_sec * 1000000 + (uint64_t)usage.ru_utime.tv_usec,
        (uint64_t)usage.ru_stime.tv_sec * 1000000 + (uint64_t)usage.ru_stime.tv_usec,
        (uint64_t)usage.ru_maxrss * 1024,
        (uint64_t)usage.ru_minflt,
        (uint64_t)usage.ru_majflt,
    };
    format_text(out, "\"process\":{");
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        format_text(out, i == 0 ? "" : ",");
        format_json_text(out, names[i]);
        format_text(out, ":");
        format_unsigned(out, values[i]);
    }
    format_text(out, "}");
}

static bool report_is_file(int fd, const struct process_file *file) {
    struct stat now;
    return fstat(fd, &now) == 0 && now.st_dev == file->holder && now.st_ino == file->number &&
           now.st_rdev == file->device;
}

MALLOW_INTERNAL int process_report_fd(const struct process *process) {
    const struct process_file *const file = &process->stats_file;
    if (file->number == 0 || report_is_file(process->stats_fd, file)) {
        return process->stats_fd;
    }
    return report_is_file(2, file) ? 2 : -1;
}

static void report_complain(const struct process *process, const char *path) {
    char line[PROCESS_OPTION_TEXT_BYTES + 100];
    struct format out;
    format_init(&out, line, sizeof line);
    format_text(&out, "mallow: the file of MALLOW_REPORT cannot be written: ");
    format_text(&out, path);
    format_text(&out, "\n");
    (void)os_tell(process_report_fd(process), line, format_length(&out));
}

// Processes may have been given the same file, as the commands of a pipe are: it gets one whole
// report after the other. Nobody waits for ever, though: a lock may be a stopped process's.
static void report_take_turns(int fd) {
    enum { TRIES = 100, PAUSE_NS = 10000000 };
    _Atomic(uint32_t) nobody = 0; // that is who wakes us
    for (unsigned i = 0;
         i < TRIES && os_syscall6(SYS_flock, fd, LOCK_EX | LOCK_NB, 0, 0, 0, 0) == -EWOULDBLOCK;
         i++) {
        os_wait(&nobody, 0, PAUSE_NS);
    }
    (void)os_syscall6(SYS_ftruncate, fd, 0, 0, 0, 0, 0); // a pipe or a terminal cannot be
}

MALLOW_INTERNAL void process_report_write(struct process *process) {
    char path[PROCESS_OPTION_TEXT_BYTES + 20];
    struct format name;
    format_init(&name, path, sizeof path);
    report_path(process, &name);
    // The open of a pipe by name would wait for a reader, for ever if none comes.
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644);
    if (fd < 0) {
        report_complain(process, path);
        return;
    }
    (void)fcntl(fd, F_SETFL, 0); // a reader that is slow is waited for
    struct snapshot snapshot;
    snapshot_take(&process->sources, &snapshot);
    snapshot_measure(&process->sources, &snapshot);
    char executable[256];
    const ssize_t length = readlink("/proc/self/exe", executable, sizeof executable - 1);
    executable[length > 0 ? length : 0] = '\0';
    struct format out;
    format_init(&out, process->report, sizeof process->report);
    format_text(&out, "{\"mallow\":\"" MALLOW_VERSION_STRING "\",\"pid\":");
    format_unsigned(&out, (uint64_t)getpid());
    format_text(&out, ",\"exe\":");
    format_json_text(&out, executable);
    format_text(&out, ",");
    report_symbols_json(&out);
    format_text(&out, report_probe(process) ? ",\"probe_owned\":true," : ",\"probe_owned\":false,");
    report_process_json(&out);
    format_text(&out, ",\"stats\":");
    report_json(&snapshot, &out);
    format_text(&out, "}\n");
    report_take_turns(fd);
    if (!os_tell(fd, process->report, format_length(&out))) {
        report_complain(process, path);
    }
    (void)close(fd);
}
