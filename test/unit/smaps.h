// SPDX-License-Identifier: MIT
// Unit tests: what the kernel says of a mapping, in /proc/self/smaps.
#ifndef MALLOW_TEST_SMAPS_H
#define MALLOW_TEST_SMAPS_H

#include "unit.h"

// The text after "Name:" in the entry for the mapping that holds `address`.
static inline bool smaps_entry(uintptr_t address, const char *name, char *text, size_t capacity) {
    char line[512];
    bool here = false;
    bool found = false;
    FILE *const file = fopen("/proc/self/smaps", "re");
    assert_non_null(file);
    while (!found && fgets(line, sizeof line, file) != NULL) {
        unsigned long start;
        unsigned long end;
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2) {
            here = address - start < end - start;
        } else if (here && strncmp(line, name, strlen(name)) == 0) {
            snprintf(text, capacity, "%s", line + strlen(name));
            found = true;
        }
    }
    fclose(file);
    return found;
}

static inline size_t smaps_huge_kib(uintptr_t address) {
    char text[512];
    return smaps_entry(address, "AnonHugePages:", text, sizeof text) ? strtoul(text, NULL, 10) : 0;
}

static inline bool smaps_has_flag(uintptr_t address, const char *flag) {
    char text[512];
    assert_true(smaps_entry(address, "VmFlags:", text, sizeof text));
    return strstr(text, flag) != NULL;
}

// Bytes of all mappings with a flag.
static inline size_t smaps_flagged_bytes(const char *flag) {
    char line[512];
    size_t bytes = 0;
    size_t total = 0;
    FILE *const file = fopen("/proc/self/smaps", "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        unsigned long start;
        unsigned long end;
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2) {
            bytes = end - start;
        } else if (strncmp(line, "VmFlags:", 8) == 0 && strstr(line, flag) != NULL) {
            total += bytes;
        }
    }
    fclose(file);
    return total;
}

#endif
