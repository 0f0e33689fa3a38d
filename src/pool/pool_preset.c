// SPDX-License-Identifier: MIT
// Pool presets: classes and shares that have served as starting points. What they are worth to a
// program, its own figures say: mw_pool_stats.
#include <mallow/pool.h>

#include "base/format.h"
#include "config.h"

#define POOL_SHARE(size, percent) {(size), 0, 0, MW_POOL_PERCENT(percent)}
#define POOL_LINED(size, percent) {(size), MALLOW_CACHE_LINE, 0, MW_POOL_PERCENT(percent)}
#define POOL_PRESET(name, text, classes) {name, text, classes, sizeof(classes) / sizeof(classes)[0]}

static const struct mw_pool_class pool_max_throughput[] = {POOL_SHARE(16, 100)};
static const struct mw_pool_class pool_min_overhead[] = {POOL_SHARE(4096, 100)};
static const struct mw_pool_class pool_balanced[] = {POOL_SHARE(64, 60), POOL_SHARE(256, 30),
                                                     POOL_SHARE(1024, 10)};
static const struct mw_pool_class pool_low_latency[] = {POOL_SHARE(32, 80), POOL_SHARE(128, 20)};
static const struct mw_pool_class pool_game[] = {POOL_SHARE(32, 20), POOL_SHARE(64, 25),
                                                 POOL_SHARE(128, 25), POOL_SHARE(512, 20),
                                                 POOL_SHARE(2048, 10)};
static const struct mw_pool_class pool_hft[] = {POOL_LINED(64, 50), POOL_LINED(128, 30),
                                                POOL_LINED(256, 20)};
static const struct mw_pool_class pool_embedded[] = {POOL_SHARE(16, 40), POOL_SHARE(32, 30),
                                                     POOL_SHARE(64, 20), POOL_SHARE(128, 10)};

static const struct mw_pool_preset pool_presets[] = {
    POOL_PRESET("max-throughput", "as many blocks as possible, all of 16 bytes",
                pool_max_throughput),
    POOL_PRESET("min-overhead", "pages: the least bookkeeping", pool_min_overhead),
    POOL_PRESET("balanced", "small, medium and large objects", pool_balanced),
    POOL_PRESET("low-latency", "few small classes that stay in the cache", pool_low_latency),
    POOL_PRESET("game", "components, events, particles and assets' headers", pool_game),
    POOL_PRESET("hft", "orders and messages, each on cache lines of its own", pool_hft),
    POOL_PRESET("embedded", "small objects in little memory", pool_embedded),
};

const struct mw_pool_preset *mw_pool_preset_at(size_t preset_index) {
    return preset_index < sizeof pool_presets / sizeof pool_presets[0] ? &pool_presets[preset_index]
                                                                       : NULL;
}

const struct mw_pool_preset *mw_pool_preset_find(const char *name) {
    const struct mw_pool_preset *preset = NULL;
    for (size_t i = 0; name != NULL && (preset = mw_pool_preset_at(i)) != NULL; i++) {
        if (format_same(preset->name, name)) {
            return preset;
        }
    }
    return NULL;
}
