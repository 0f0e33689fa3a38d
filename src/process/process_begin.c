// SPDX-License-Identifier: MIT
// Process: what happens when the library is loaded, and when the program ends.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // dladdr
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>

#include "mallow/mallow.h"
#include "observe/report.h"
#include "process/process.h"
#include "process/process_report.h"

// What a program without a dynamic linker lacks. dlopen by its name: a static link warns of it.
#pragma weak dlsym
#pragma weak dladdr
extern ElfW(Dyn) _DYNAMIC[] __attribute__((weak, visibility("hidden")));

// Whether dlclose may take this code away: it is in a plugin that has it linked in. A program has
// DT_DEBUG, and libmallow.so is linked to stay.
static bool process_may_be_unloaded(void) {
    const ElfW(Dyn) *entry = _DYNAMIC;
    if (entry == NULL || dlsym == NULL || dladdr == NULL) {
        return false;
    }
    while (entry->d_tag != DT_NULL && entry->d_tag != DT_DEBUG &&
           !(entry->d_tag == DT_FLAGS_1 && (entry->d_un.d_val & DF_1_NODELETE) != 0)) {
        entry++;
    }
    return entry->d_tag == DT_NULL;
}

// Threads call us when they end, one of ours runs here, and blocks live on.
static void process_stay_loaded(void) {
    Dl_info own;
    void *(*open)(const char *, int) = NULL;
    if (process_may_be_unloaded() && dladdr(_DYNAMIC, &own) != 0) {
        *(void **)&open = dlsym(RTLD_DEFAULT, "dlopen");
    }
    if (open != NULL) {
        (void)open(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    }
}

// Many a program closes stderr before we get to write. If it is closed now, what gets its number
// later is no place for that; nor is what gets the number of the copy, so the file is noted.
static MALLOW_COLD void process_keep_stderr(struct process *process) {
    struct stat file;
    const int copy = fcntl(2, F_DUPFD_CLOEXEC, 100);
    process->stats_fd = copy >= 0 || errno == EBADF ? copy : 2;
    if (fstat(2, &file) == 0) {
        process->stats_file = (struct process_file){file.st_dev, file.st_ino, file.st_rdev};
    }
}

// Whether there are figures at the end.
static bool process_tells(const struct process *process) {
    return process_option(&process->options, stats) != 0 ||
           process_option_text(&process->options, report)[0] != '\0';
}

// As early as a constructor can be.
__attribute__((constructor(101))) static void process_begin(void) {
    struct process *const process = process_ready();
    process_stay_loaded();
    worker_begin(&process->worker);
    // Not by libc's function: it lies where a small program touches nothing else of libc, and the
    // kernel would map pages around it, 20 KiB on the mean.
    process->start_us = worker_clock_us();
    process->stats_fd = 2;
    if (process_tells(process)) {
        process_keep_stderr(process);
    }
    if (process_option(&process->options, verbose) != 0) {
        static const char line[] = "mallow: version " MALLOW_VERSION_STRING "\n";
        os_tell(2, line, sizeof line - 1);
        process_options_print(&process->options, 2);
        process_limit_print(process, 2);
    }
}

// Whether a signal handler ends the program that has interrupted a call of ours, with a lock that
// the figures are taken under.
static MALLOW_COLD bool process_ends_inside(const struct process *process) {
    static const char line[] = "mallow: no figures: a signal handler that has interrupted the "
                               "allocator has ended the program\n";
    if (!process_is_interrupted(process)) {
        return false;
    }
    (void)os_tell(process_report_fd(process), line, sizeof line - 1);
    return true;
}

__attribute__((destructor(101))) static void process_end(void) {
    struct process *const process = process_ready();
    if (!process_tells(process) || process_ends_inside(process) || process_report_is_anothers()) {
        return;
    }
    if (process_option(&process->options, stats) != 0) {
        struct os_hush hush;
        os_hush(&hush);
        report_text(&process->sources, process_report_fd(process));
        os_unhush(&hush);
    }
    if (process_option_text(&process->options, report)[0] != '\0') {
        process_report_write(process);
    }
}
