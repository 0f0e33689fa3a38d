// SPDX-License-Identifier: MIT
// A folder that plays the root of a system: files of /proc and of cgroups, written by the test.
#ifndef MALLOW_TEST_TREE_H
#define MALLOW_TEST_TREE_H

#include "../unit.h"

#include <ftw.h>
#include <sys/stat.h>

static char tree_root[64];

static inline void tree_begin(void) {
    strcpy(tree_root, "/tmp/mallow-tree-XXXXXX");
    assert_non_null(mkdtemp(tree_root));
}

static inline int tree_remove_one(const char *path, const struct stat *status, int kind,
                                  struct FTW *place) {
    (void)status;
    (void)kind;
    (void)place;
    return remove(path);
}

static inline void tree_end(void) {
    assert_int_equal(nftw(tree_root, tree_remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

// Writes a file below the root, with the folders that lead to it.
static inline void tree_write(const char *path, const char *text) {
    char full[600];
    snprintf(full, sizeof full, "%s%s", tree_root, path);
    for (char *at = full + strlen(tree_root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        (void)mkdir(full, 0755);
        *at = '/';
    }
    FILE *const file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

// What the machine has free, where nothing else is known of it.
static inline void tree_set_free(unsigned mebibytes) {
    char text[64];
    snprintf(text, sizeof text, "MemAvailable: %u kB\n", mebibytes << 10);
    tree_write("/proc/meminfo", text);
}

#endif
