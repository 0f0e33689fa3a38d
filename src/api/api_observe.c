// SPDX-License-Identifier: MIT
// API: mallow/observe.h, mallow/options.h, and the process calls of mallow/mallow.h.
#include "mallow/observe.h"

#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "api/api.h"
#include "base/format.h"
#include "mallow/options.h"
#include "observe/report.h"
#include "process/process.h"
#include "slab/size_class.h"

size_t mw_collect(bool force) {
    (void)process_beat_run(process_ready(), force);
    return process_collect(force);
}

int mw_version(void) {
    return MALLOW_VERSION_MAJOR * 10000 + MALLOW_VERSION_MINOR * 100 + MALLOW_VERSION_PATCH;
}

const char *mw_version_text(void) {
    return "mallow " MALLOW_VERSION_STRING " (" MALLOW_COMMIT ")";
}

bool mw_stats_get(struct mw_stats *stats) {
    struct snapshot snapshot;
    if (stats->size_bytes < offsetof(struct mw_stats, heap_count)) {
        return false;
    }
    snapshot_take(&process_ready()->sources, &snapshot);
    if (stats->size_bytes >= offsetof(struct mw_stats, resident_bytes) + sizeof(uint64_t)) {
        snapshot_measure(&process_ready()->sources, &snapshot);
    }
    const struct mw_stats full = {
        .size_bytes = stats->size_bytes,
        .version = MALLOW_STATS_VERSION,
        .heap_count = (uint32_t)snapshot.heap_count,
        .live_bytes = snapshot.live_bytes,
        .live_count = snapshot.live_count,
        .small_live_bytes = snapshot.small_live_bytes,
        .large_live_bytes = snapshot.large_live_bytes,
        .huge_live_bytes = snapshot.huge_live_bytes,
        .huge_live_count = snapshot.huge_live_count,
        .slab_count = snapshot.slab_count,
        .span_bytes = snapshot.span_bytes,
        .free_dirty_bytes = snapshot.free_dirty_bytes,
        .huge_cached_bytes = snapshot.huge_cached_bytes,
        .committed_bytes = snapshot.committed_bytes,
        .reserved_bytes = snapshot.reserved_bytes,
        .meta_bytes = snapshot.meta_bytes,
        .meta_used_bytes = snapshot.meta_used_bytes,
        .purged_bytes = snapshot.purged_bytes,
        .heap_adopted_count = snapshot.heap_adopted_count,
        .os_map_count = snapshot.os_map_count,
        .os_unmap_count = snapshot.os_unmap_count,
        .os_advise_count = snapshot.os_advise_count,
        .os_remap_count = snapshot.os_remap_count,
        .held_bytes = snapshot.held_bytes,
        .refused_count = snapshot.refused_count,
        .resident_bytes = snapshot.resident_bytes,
    };
    memcpy(stats, &full, bits_min(stats->size_bytes, sizeof full));
    return true;
}

void mw_stats_print(int fd) {
    report_text(&process_ready()->sources, fd);
}

size_t mw_stats_json(char *buffer, size_t capacity) {
    struct snapshot snapshot;
    struct format out;
    snapshot_take(&process_ready()->sources, &snapshot);
    snapshot_measure(&process_ready()->sources, &snapshot);
    format_init(&out, buffer, capacity);
    report_json(&snapshot, &out);
    return out.wanted;
}

bool mw_class_stats_get(unsigned class_index, struct mw_class_stats *stats) {
    if (class_index >= MALLOW_CLASS_COUNT) {
        return false;
    }
    struct snapshot snapshot;
    snapshot_take(&process_ready()->sources, &snapshot);
    const struct snapshot_class *const row = &snapshot.classes[class_index];
    *stats = (struct mw_class_stats){size_class_bytes(class_index), row->slab_count,
                                     row->live_count, row->capacity_count};
    return true;
}

static uint64_t observe_microseconds(struct timeval time) {
    return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_usec;
}

// Resident pages: the second number of /proc/self/statm; 0 where it cannot be read.
static uint64_t observe_resident_pages(void) {
    char text[128];
    const int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    const ssize_t length = read(fd, text, sizeof text - 1);
    (void)close(fd);
    uint64_t pages = 0;
    ssize_t at = 0;
    while (at < length && text[at] != ' ') {
        at++;
    }
    for (at++; at < length && text[at] >= '0' && text[at] <= '9'; at++) {
        pages = pages * 10 + (uint64_t)(text[at] - '0');
    }
    return pages;
}

void mw_process_info_get(struct mw_process_info *info) {
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage);
    *info = (struct mw_process_info){
        .elapsed_us = worker_clock_us() - process_ready()->start_us,
        .user_us = observe_microseconds(usage.ru_utime),
        .system_us = observe_microseconds(usage.ru_stime),
        .rss_bytes = observe_resident_pages() * api_page_bytes(),
        .peak_rss_bytes = (uint64_t)usage.ru_maxrss * 1024,
        .minor_fault_count = (uint64_t)usage.ru_minflt,
        .major_fault_count = (uint64_t)usage.ru_majflt,
    };
}

bool mw_option_info_get(unsigned index, struct mw_option_info *info) {
    static const char *const types[] = {"switch", "size", "text", "limit", "percent"};
    const struct process_option_row *const row = process_options_row(index);
    if (row == NULL) {
        return false;
    }
    *info = (struct mw_option_info){row->name, row->environment, types[row->type],
                                    row->default_text, row->help};
    return true;
}

int mw_option_set(const char *name, const char *value) {
    return process_set_option(process_ready(), name, value, false);
}

int mw_option_set_default(const char *name, const char *value) {
    return process_set_option(process_ready(), name, value, true);
}

void mw_options_print(int fd) {
    process_options_print(&process_ready()->options, fd);
}

const char *mw_option_get(const char *name, char *buffer, size_t capacity) {
    struct process *const process = process_ready();
    os_lock_take(&process->start_lock);
    const char *const text = process_options_get(&process->options, name, buffer, capacity);
    os_lock_drop(&process->start_lock);
    return text;
}
