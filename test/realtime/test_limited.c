// SPDX-License-Identifier: MIT
// MALLOW_MODE=realtime with a hard limit below the reserve: what is taken at start stays below it, is
// most of it, and can be used up; there is no block above 1 MiB, and no good size is said for one. The
// limit is 24 MiB, the reserve 64 (tests.cmake).
#include "../support/check.h"

#include <mallow/limit.h>
#include <mallow/mallow.h>
#include <mallow/observe.h>

int main(void)
{
    struct mw_limits limits = {.size_bytes = sizeof limits};
    size_t bytes = 0;
    CHECK(mw_limits_get(&limits) && limits.limit_bytes == 24 * MIB, "limit");
    CHECK(limits.held_bytes <= limits.limit_bytes, "%zu held at start", (size_t)limits.held_bytes);
    CHECK(mw_good_size(MIB) == MIB && mw_good_size(MIB + 1) == MIB + 1 && mw_malloc(MIB + 1) == NULL, "above a MiB");
    CHECK(mw_good_size(MIB - 1) == MIB, "below a MiB");
    while (mw_malloc(1000) != NULL) {
        bytes += 1000;
    }
    CHECK(errno == ENOMEM, "errno");
    CHECK(bytes > 16 * MIB && bytes < 24 * MIB, "%zu bytes could be had", bytes);
    CHECK(mw_limits_get(&limits) && limits.held_bytes <= limits.limit_bytes, "%zu held", (size_t)limits.held_bytes);
    struct mw_stats stats = {.size_bytes = sizeof stats};
    CHECK(mw_stats_get(&stats) && stats.resident_bytes <= limits.limit_bytes, "%zu resident",
          (size_t)stats.resident_bytes);
    return 0;
}
