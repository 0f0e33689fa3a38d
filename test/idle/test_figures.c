// SPDX-License-Identifier: MIT
// The allocator's own figures against those of the kernel, through filling, thinning out, purging and
// freeing: what it says is resident is what RSS says, but for pages of files, within 2 %.
#include "idle.h"

#include <mallow/observe.h>

static struct {
    size_t rss;
    size_t resident;
} begin;

static struct mw_stats figures(void)
{
    struct mw_stats stats = {.size_bytes = sizeof stats};
    CHECK(mw_stats_get(&stats), "mw_stats_get");
    return stats;
}

// RSS has risen by what the figures say, within 2 % of it (and a little for what is not the allocator's).
static void compare(const char *when)
{
    const size_t resident = figures().resident_bytes / KIB - begin.resident;
    const size_t rss = process_anonymous_kib() - begin.rss;
    dprintf(2, "%-20s RSS %7zu KiB more, resident %7zu\n", when, rss, resident);
    const size_t slack = rss / 50 + 300;
    CHECK(resident < rss + slack && rss < resident + slack, "%s: RSS rose by %zu KiB, resident by %zu",
          when, rss, resident);
}

int main(void)
{
    struct chance chance = {7};
    struct load small;
    struct load huge;
    struct load large;
    fam_free(fam_malloc(100));
    (void)process_anonymous_kib();
    begin.rss = process_anonymous_kib();
    begin.resident = figures().resident_bytes / KIB;
    load_fill(&small, 100000, 700);
    begin.rss += 800; // the list of blocks
    compare("small blocks");
    load_fill(&large, 100, 300 * KIB);
    compare("large blocks");
    load_fill(&huge, 10, 5 * MIB);
    compare("huge blocks");
    load_thin_out(&small, 20, &chance);
    compare("thinned out");
    const uint64_t purged = figures().purged_bytes;
    const size_t before = process_anonymous_kib();
    const size_t released = mw_collect(true);
    compare("collected");
    const size_t fell = before - process_anonymous_kib();
    CHECK(released / KIB < fell + fell / 20 && fell < released / KIB + released / KIB / 20,
          "%zu KiB said to be released, RSS fell by %zu", released / KIB, fell);
    CHECK(figures().purged_bytes - purged <= released, "purged more than released");
    (void)mw_collect(true); // printing has allocated
    const size_t again = mw_collect(true);
    CHECK(again == 0, "%zu bytes a second time, though nothing was used", again);
    load_free(&large);
    load_free(&huge);
    compare("large ones freed");
    const struct mw_stats stats = figures();
    CHECK(stats.resident_bytes <= stats.committed_bytes + stats.meta_bytes, "more than there is");
    load_free(&small);
    begin.rss -= 800;
    mw_collect(true);
    compare("all freed");
    CHECK(figures().free_dirty_bytes == 0 && figures().huge_cached_bytes == 0, "something is kept");
    return 0;
}
