// SPDX-License-Identifier: MIT
// Report: see report.h.
#include "observe/report.h"

#include <stddef.h>

#include "slab/size_class.h"

// One row a figure: its name in JSON, its words, and whether it counts bytes. Characters with room
// for their 0, not pointers: those would be relocated at the start of every program.
struct report_row {
    char name[24];
    char words[48];
    size_t offset;
    bool is_bytes;
};

#define ROW_BYTES(field, words) {#field, words, offsetof(struct snapshot, field), true}
#define ROW_COUNT(field, words) {#field, words, offsetof(struct snapshot, field), false}

static const struct report_row report_rows[] = {
    ROW_COUNT(version, "version of these figures"),
    ROW_BYTES(live_bytes, "live"),
    ROW_COUNT(live_count, "live blocks"),
    ROW_BYTES(small_live_bytes, "live in slabs"),
    ROW_COUNT(small_live_count, "live blocks in slabs"),
    ROW_BYTES(large_live_bytes, "live in spans of their own"),
    ROW_COUNT(large_live_count, "live large blocks"),
    ROW_BYTES(huge_live_bytes, "live in mappings of their own"),
    ROW_COUNT(huge_live_count, "live huge blocks"),
    ROW_COUNT(slab_count, "slabs in use"),
    ROW_BYTES(span_bytes, "address space of slabs and large blocks"),
    ROW_BYTES(free_dirty_bytes, "free, pages kept"),
    ROW_BYTES(huge_cached_bytes, "freed huge blocks, kept"),
    ROW_BYTES(committed_bytes, "readable and writable for blocks"),
    ROW_BYTES(reserved_bytes, "address space reserved"),
    ROW_BYTES(meta_bytes, "committed for our own structures"),
    ROW_BYTES(meta_used_bytes, "of these, in use"),
    ROW_BYTES(resident_bytes, "in memory, of all that"),
    ROW_BYTES(purged_bytes, "given back to the OS so far"),
    ROW_COUNT(heap_count, "heaps made"),
    ROW_COUNT(heap_adopted_count, "heaps of ended threads taken over"),
    ROW_COUNT(os_map_count, "calls of mmap"),
    ROW_COUNT(os_unmap_count, "calls of munmap"),
    ROW_COUNT(os_advise_count, "calls of madvise"),
    ROW_COUNT(os_remap_count, "calls of mremap"),
    ROW_BYTES(held_bytes, "held, as limits count it"),
    ROW_COUNT(refused_count, "requests refused under a limit"),
};

enum { REPORT_ROW_COUNT = sizeof report_rows / sizeof report_rows[0] };

static uint64_t report_value(const struct snapshot *snapshot, const struct report_row *row) {
    return *(const uint64_t *)((const char *)snapshot + row->offset);
}

static void report_flush(struct format *out, int fd) {
    os_write(fd, out->text, format_length(out));
    format_init(out, out->text, out->capacity);
}

MALLOW_INTERNAL void report_text(const struct observe_sources *sources, int fd) {
    struct snapshot snapshot;
    snapshot_take(sources, &snapshot);
    snapshot_measure(sources, &snapshot);
    char line[200];
    struct format out;
    format_init(&out, line, sizeof line);
    format_text(&out, "mallow: statistics\n");
    report_flush(&out, fd);
    for (unsigned i = 0; i < REPORT_ROW_COUNT; i++) {
        const uint64_t value = report_value(&snapshot, &report_rows[i]);
        format_unsigned_wide(&out, value, 16);
        format_text(&out, "  ");
        format_text(&out, report_rows[i].words);
        if (report_rows[i].is_bytes && value >= 1024) {
            format_text(&out, " (");
            format_bytes(&out, value);
            format_text(&out, ")");
        }
        format_text(&out, "\n");
        report_flush(&out, fd);
    }
    format_text(&out, "  block size     slabs      live  capacity\n");
    for (unsigned i = 0; i < MALLOW_CLASS_COUNT; i++) {
        const struct snapshot_class *const row = &snapshot.classes[i];
        if (row->capacity_count == 0) {
            continue;
        }
        format_unsigned_wide(&out, size_class_bytes(i), 12);
        format_unsigned_wide(&out, row->slab_count, 10);
        format_unsigned_wide(&out, row->live_count, 10);
        format_unsigned_wide(&out, row->capacity_count, 10);
        format_text(&out, "\n");
        report_flush(&out, fd);
    }
    report_flush(&out, fd);
}

static void report_member(struct format *out, const char *name, uint64_t value, bool first) {
    format_text(out, first ? "" : ",");
    format_json_text(out, name);
    format_text(out, ":");
    format_unsigned(out, value);
}

MALLOW_INTERNAL void report_json(const struct snapshot *snapshot, struct format *out) {
    format_text(out, "{");
    for (unsigned i = 0; i < REPORT_ROW_COUNT; i++) {
        report_member(out, report_rows[i].name, report_value(snapshot, &report_rows[i]), i == 0);
    }
    format_text(out, ",\"classes\":[");
    bool first = true;
    for (unsigned i = 0; i < MALLOW_CLASS_COUNT; i++) {
        const struct snapshot_class *const row = &snapshot->classes[i];
        if (row->capacity_count == 0) {
            continue;
        }
        format_text(out, first ? "{" : ",{");
        first = false;
        report_member(out, "block_bytes", size_class_bytes(i), true);
        report_member(out, "slab_count", row->slab_count, false);
        report_member(out, "live_count", row->live_count, false);
        report_member(out, "capacity_count", row->capacity_count, false);
        format_text(out, "}");
    }
    format_text(out, "]}");
}

static void report_xml_pair(struct format *out, const char *tag, const char *type, uint64_t count,
                            uint64_t bytes) {
    format_text(out, "<");
    format_text(out, tag);
    format_text(out, " type=\"");
    format_text(out, type);
    if (count != UINT64_MAX) {
        format_text(out, "\" count=\"");
        format_unsigned(out, count);
    }
    format_text(out, "\" size=\"");
    format_unsigned(out, bytes);
    format_text(out, "\"/>\n");
}

MALLOW_INTERNAL void report_xml(const struct snapshot *snapshot, struct format *out) {
    format_text(out, "<malloc version=\"mallow-1\">\n<heap nr=\"0\">\n<sizes>\n");
    // As mallinfo's: what the arena has is one piece.
    uint64_t free_count = snapshot->thin_free_count + (snapshot->free_dirty_bytes != 0);
    uint64_t free_bytes = snapshot->thin_free_bytes + snapshot->free_dirty_bytes;
    for (unsigned i = 0; i < MALLOW_CLASS_COUNT; i++) {
        const struct snapshot_class *const row = &snapshot->classes[i];
        const uint64_t unused = row->capacity_count - row->live_count;
        if (row->slab_count == 0 || unused == 0) {
            continue;
        }
        const uint64_t block_bytes = size_class_bytes(i);
        format_text(out, "<size from=\"");
        format_unsigned(out, i == 0 ? 1 : size_class_bytes(i - 1) + 1);
        format_text(out, "\" to=\"");
        format_unsigned(out, block_bytes);
        format_text(out, "\" total=\"");
        format_unsigned(out, unused * block_bytes);
        format_text(out, "\" count=\"");
        format_unsigned(out, unused);
        format_text(out, "\"/>\n");
        free_count += unused;
        free_bytes += unused * block_bytes;
    }
    format_text(out, "</sizes>\n</heap>\n");
    report_xml_pair(out, "total", "fast", 0, 0);
    report_xml_pair(out, "total", "rest", free_count, free_bytes);
    report_xml_pair(out, "total", "mmap", snapshot->huge_live_count,
                    snapshot->huge_mapped_bytes);
    // As mallinfo's arena: in use, or free with its pages; not all that was ever made writable.
    report_xml_pair(out, "system", "current", UINT64_MAX,
                    snapshot->span_bytes + snapshot->free_dirty_bytes);
    report_xml_pair(out, "system", "max", UINT64_MAX, snapshot->committed_bytes);
    report_xml_pair(out, "aspace", "total", UINT64_MAX, snapshot->reserved_bytes);
    format_text(out, "</malloc>\n");
}
