// SPDX-License-Identifier: MIT
// Cgroup: see cgroup.h.
#include "os/cgroup.h"

#include "base/bits.h"
#include "base/format.h"

// Version 1 writes "no limit" as the largest number of whole pages.
#define CGROUP_NO_LIMIT ((uint64_t)1 << 60)

// Joins up to three parts; false if they do not fit.
static bool path_join(char *path, const char *first, const char *second, const char *third) {
    struct format out;
    format_init(&out, path, OS_PATH_BYTES);
    format_text(&out, first);
    format_text(&out, second);
    format_text(&out, third);
    return out.wanted < OS_PATH_BYTES;
}

static size_t text_length(const char *text) {
    size_t length = 0;
    while (text[length] != '\0') {
        length++;
    }
    return length;
}

// Whether a list with commas has the word in it.
static bool list_has(const char *list, const char *word) {
    while (*list != '\0') {
        size_t same = 0;
        while (word[same] != '\0' && list[same] == word[same]) {
            same++;
        }
        if (word[same] == '\0' && (list[same] == '\0' || list[same] == ',')) {
            return true;
        }
        while (*list != '\0' && *list != ',') {
            list++;
        }
        list += *list == ',';
    }
    return false;
}

// Cuts the field at `*at` off at the next separator and moves behind it; NULL at the line's end.
static char *take_field(char **at, char separator) {
    char *const field = *at;
    if (field == NULL) {
        return NULL;
    }
    char *end = field;
    while (*end != '\0' && *end != separator) {
        end++;
    }
    *at = *end == '\0' ? NULL : end + 1;
    *end = '\0';
    return field;
}

// mountinfo writes blanks and the like as \040.
static void unescape(char *text) {
    char *to = text;
    for (const char *from = text; *from != '\0'; to++) {
        if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] >= '0' &&
            from[2] <= '7' && from[3] >= '0' && from[3] <= '7') {
            *to = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
}

// ---- Which groups the process is in -------------------------------------------------------------

struct cgroup_paths {
    char unified[OS_PATH_BYTES]; // version 2; "" if in none
    char memory[OS_PATH_BYTES];  // version 1
};

static void cgroup_paths_read(const char *root, struct cgroup_paths *paths) {
    struct os_reader reader;
    char path[OS_PATH_BYTES];
    char line[OS_LINE_BYTES];
    paths->unified[0] = '\0';
    paths->memory[0] = '\0';
    if (!path_join(path, root, "/proc/self/cgroup", "") || !os_reader_open(&reader, path)) {
        return;
    }
    while (os_reader_line(&reader, line)) { // 4:memory:/a/b, and 0::/a/b for version 2
        char *at = line;
        const char *const number = take_field(&at, ':');
        const char *const controllers = take_field(&at, ':');
        if (at == NULL) {
            continue;
        }
        if (controllers[0] == '\0' && format_same(number, "0")) {
            (void)path_join(paths->unified, at, "", "");
        } else if (list_has(controllers, "memory")) {
            (void)path_join(paths->memory, at, "", "");
        }
    }
    os_reader_close(&reader);
}

// ---- Where their folders are --------------------------------------------------------------------

// Of a path that the kernel writes relative to the process's namespace: whether it leads out of it.
static bool path_is_outside(const char *path) {
    return path[0] == '/' && path[1] == '.' && path[2] == '.';
}

// The part of a group's path below what the mount shows: "" if the mount shows the group itself, or
// does not say.
static const char *path_below(const char *path, const char *mount_root) {
    size_t same = 0;
    if (format_same(mount_root, "/")) {
        mount_root = "";
    }
    while (mount_root[same] != '\0' && path[same] == mount_root[same]) {
        same++;
    }
    const bool inside = mount_root[same] == '\0' && path[same] == '/';
    return inside && !path_is_outside(path) && path[same + 1] != '\0' ? path + same : "";
}

struct cgroup_mount {
    const char *mount_root;
    const char *mount_point;
    bool unified;
};

// 35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
static bool cgroup_mount_parse(char *line, struct cgroup_mount *mount) {
    char *at = line;
    for (unsigned i = 0; i < 3; i++) {
        (void)take_field(&at, ' ');
    }
    char *const mount_root = take_field(&at, ' ');
    char *const mount_point = take_field(&at, ' ');
    const char *field = take_field(&at, ' ');
    while (field != NULL && !format_same(field, "-")) { // options, any number of tags
        field = take_field(&at, ' ');
    }
    const char *const type = take_field(&at, ' ');
    (void)take_field(&at, ' ');
    const char *const options = take_field(&at, ' ');
    if (options == NULL) {
        return false;
    }
    mount->unified = format_same(type, "cgroup2");
    if (!mount->unified && !(format_same(type, "cgroup") && list_has(options, "memory"))) {
        return false;
    }
    unescape(mount_root);
    unescape(mount_point);
    mount->mount_root = mount_root;
    mount->mount_point = mount_point;
    return true;
}

// ---- Limits -------------------------------------------------------------------------------------

// The number that a file holds; UINT64_MAX: none, "max", or version 1's word for that.
static uint64_t cgroup_number_read(const char *folder, const char *file) {
    char path[OS_PATH_BYTES];
    char line[OS_LINE_BYTES];
    if (!path_join(path, folder, "/", file) || !os_read_first_line(path, line)) {
        return UINT64_MAX;
    }
    const char *at = line;
    uint64_t value;
    return os_take_number(&at, &value) && *at == '\0' && value < CGROUP_NO_LIMIT ? value
                                                                                : UINT64_MAX;
}

// The sum of those rows `NAME NUMBER` of a file that have one of two names; 0 if there are none.
static uint64_t rows_sum(const char *path, const char *one, const char *other) {
    struct os_reader reader;
    char line[OS_LINE_BYTES];
    uint64_t sum = 0;
    if (!os_reader_open(&reader, path)) {
        return 0;
    }
    while (os_reader_line(&reader, line)) {
        char *at = line;
        const char *const name = take_field(&at, ' ');
        while (at != NULL && *at == ' ') {
            at++;
        }
        const char *number = at;
        uint64_t value;
        if ((format_same(name, one) || format_same(name, other)) && number != NULL &&
            os_take_number(&number, &value)) {
            sum += bits_min(value, UINT64_MAX - sum);
        }
    }
    os_reader_close(&reader);
    return sum;
}

// What the group's limit leaves beside what is in use and is no page of a file.
static uint64_t cgroup_free_read(const char *folder, bool unified, uint64_t limit) {
    char path[OS_PATH_BYTES];
    const uint64_t used =
        cgroup_number_read(folder, unified ? "memory.current" : "memory.usage_in_bytes");
    if (used == UINT64_MAX || !path_join(path, folder, "/memory.stat", "")) {
        return limit;
    }
    const uint64_t files = unified ? rows_sum(path, "inactive_file", "active_file")
                                   : rows_sum(path, "total_inactive_file", "total_active_file");
    const uint64_t kept = used - bits_min(files, used);
    return limit - bits_min(kept, limit);
}

static bool path_is_readable(const char *path) {
    uint64_t unused;
    return os_pressure_read(path, &unused);
}

// A group's folder, and all above it up to the mount's.
static void cgroup_walk(char *folder, size_t top_length, bool unified, struct os_cgroup *group) {
    char path[OS_PATH_BYTES];
    if (unified && path_join(path, folder, "/memory.pressure", "") && path_is_readable(path)) {
        (void)path_join(group->pressure_path, path, "", "");
    }
    for (size_t length = text_length(folder); length >= top_length;) {
        folder[length] = '\0';
        const uint64_t limit = unified ? bits_min(cgroup_number_read(folder, "memory.max"),
                                                  cgroup_number_read(folder, "memory.high"))
                                       : cgroup_number_read(folder, "memory.limit_in_bytes");
        if (limit != UINT64_MAX) {
            const uint64_t left = cgroup_free_read(folder, unified, limit);
            group->limit_bytes = bits_min(group->limit_bytes, limit);
            group->free_bytes = bits_min(group->free_bytes, left);
        }
        if (length == top_length) {
            break;
        }
        do {
            length--;
        } while (length > top_length && folder[length] != '/');
    }
}

static void cgroup_limits_read(const char *root, const struct cgroup_paths *paths,
                               struct os_cgroup *group) {
    struct os_reader reader;
    char path[OS_PATH_BYTES];
    char line[OS_LINE_BYTES];
    if (!path_join(path, root, "/proc/self/mountinfo", "") || !os_reader_open(&reader, path)) {
        return;
    }
    while (os_reader_line(&reader, line)) {
        struct cgroup_mount mount;
        if (!cgroup_mount_parse(line, &mount)) {
            continue;
        }
        const char *const of = mount.unified ? paths->unified : paths->memory;
        if (of[0] == '\0' || !path_join(path, root, mount.mount_point, "")) {
            continue;
        }
        group->outside =
            group->outside || path_is_outside(of) || path_is_outside(mount.mount_root);
        const size_t top_length = text_length(path);
        if (path_join(path, root, mount.mount_point, path_below(of, mount.mount_root))) {
            cgroup_walk(path, top_length, mount.unified, group);
        }
    }
    os_reader_close(&reader);
}

MALLOW_INTERNAL void os_cgroup_read(const char *root, struct os_cgroup *group) {
    struct cgroup_paths paths;
    char path[OS_PATH_BYTES];
    group->limit_bytes = UINT64_MAX;
    group->free_bytes = UINT64_MAX;
    group->outside = false;
    group->pressure_path[0] = '\0';
    cgroup_paths_read(root, &paths);
    cgroup_limits_read(root, &paths, group);
    if (group->pressure_path[0] == '\0' && path_join(path, root, "/proc/pressure/memory", "") &&
        path_is_readable(path)) {
        (void)path_join(group->pressure_path, path, "", "");
    }
}

MALLOW_INTERNAL uint64_t os_machine_memory(const char *root) {
    static const char name[] = "MemTotal:";
    char path[OS_PATH_BYTES];
    char line[OS_LINE_BYTES];
    if (!path_join(path, root, "/proc/meminfo", "") || !os_read_first_line(path, line)) {
        return 0;
    }
    const char *at = line;
    for (size_t i = 0; name[i] != '\0'; i++) {
        if (*at++ != name[i]) {
            return 0;
        }
    }
    while (*at == ' ') {
        at++;
    }
    uint64_t kibibytes;
    return os_take_number(&at, &kibibytes) && kibibytes < UINT64_MAX >> 10 ? kibibytes << 10 : 0;
}

MALLOW_INTERNAL uint64_t os_machine_free(const char *root) {
    static const char name[] = "MemAvailable:";
    char path[OS_PATH_BYTES];
    const uint64_t kibibytes =
        path_join(path, root, "/proc/meminfo", "") ? rows_sum(path, name, name) : 0;
    return kibibytes != 0 && kibibytes < UINT64_MAX >> 10 ? kibibytes << 10 : UINT64_MAX;
}

MALLOW_INTERNAL uint64_t os_free_bytes(const char *root) {
    struct os_cgroup group;
    os_cgroup_read(root, &group);
    return bits_min(group.free_bytes, os_machine_free(root));
}

// some avg10=0.00 avg60=0.00 avg300=0.00 total=12345
MALLOW_INTERNAL bool os_pressure_read(const char *path, uint64_t *stalled_us) {
    static const char total[] = "total=";
    char line[OS_LINE_BYTES];
    if (!os_read_first_line(path, line) || line[0] != 's') {
        return false;
    }
    char *at = line;
    for (const char *field = take_field(&at, ' '); field != NULL; field = take_field(&at, ' ')) {
        size_t same = 0;
        while (total[same] != '\0' && field[same] == total[same]) {
            same++;
        }
        const char *number = field + same;
        if (total[same] == '\0') {
            return os_take_number(&number, stalled_us);
        }
    }
    return false;
}
