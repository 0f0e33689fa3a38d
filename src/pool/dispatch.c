// SPDX-License-Identifier: MIT
// Dispatch: which core's pool a piece of work goes to, by what was seen of the pools and what came
// of routing before. docs/design/dispatch.md has the reasons.
//
// Owns     what lies in the memory given to it: a view for each core and class, the learned table.
// Threads  one. Pools are read through mw_pool_used_count, which any thread may call.
// Holds    levels, trends, steps and costs are parts per million in fixed point, FRACTION bits;
//          a view's pending == tickets of its core and class that have not come back;
//          every context of a ticket < CONTEXTS.

#include <mallow/dispatch.h>

#include "base/bits.h"
#include "base/compiler.h"

#define DISPATCH_FRACTION     8
#define DISPATCH_LEVEL_SHIFT  1 // Holt: the level takes half of what is new,
#define DISPATCH_TREND_SHIFT  3 // the trend an eighth
#define DISPATCH_STEP_SHIFT   6 // what a piece of work takes: a 64th
#define DISPATCH_VISITS_MAX   1024 // an entry moves by at least 1 / this of what is new,
#define DISPATCH_VISITS_FULL  32   // and counts in full after this many
#define DISPATCH_OCCUPANCIES  16
#define DISPATCH_TRENDS       5
#define DISPATCH_UNSETTLED    6
#define DISPATCH_CONTEXTS     (DISPATCH_OCCUPANCIES * DISPATCH_TRENDS * DISPATCH_UNSETTLED)
#define DISPATCH_HORIZON      8
#define DISPATCH_HORIZON_MAX  ((uint32_t)1 << 20) // so that products of it fit 64 bits
#define DISPATCH_REFUSAL_COST 100000
#define DISPATCH_ALIGNMENT    16

// One class of one core.
struct dispatch_view {
    int64_t level;    // smoothed occupancy
    int64_t trend;    // of it, a round
    uint32_t seen;    // occupancy as it was seen last
    uint32_t pending; // work routed here and not settled
};

// What was learned of a context.
struct dispatch_entry {
    int64_t error;   // what came of it, less what was expected, in the mean
    uint32_t visits; // up to VISITS_MAX
};

struct mw_dispatch {
    struct mw_dispatch_config config; // with defaults filled in
    uint64_t random;
    size_t turn;                    // of round-robin, and where a scan for the least begins
    struct dispatch_view *views;    // [core][class]
    struct dispatch_entry *entries; // [context]
    int64_t *steps;                 // [class]: what a piece of work takes of a core's class
};

// ---- Making -------------------------------------------------------------------------------------

static bool dispatch_config_is_good(const struct mw_dispatch_config *config) {
    return config != NULL && config->core_count >= 1 &&
           config->core_count <= MW_DISPATCH_CORES_MAX && config->class_count >= 1 &&
           config->class_count <= MW_DISPATCH_CLASSES_MAX &&
           (unsigned)config->policy < MW_DISPATCH_POLICY_COUNT;
}

size_t mw_dispatch_bytes(const struct mw_dispatch_config *config) {
    if (!dispatch_config_is_good(config)) {
        return 0;
    }
    const size_t views = config->core_count * config->class_count * sizeof(struct dispatch_view);
    const size_t entries = DISPATCH_CONTEXTS * sizeof(struct dispatch_entry);
    return bits_align_up(sizeof(struct mw_dispatch), DISPATCH_ALIGNMENT) + views + entries +
           config->class_count * sizeof(int64_t);
}

struct mw_dispatch *mw_dispatch_create_in(const struct mw_dispatch_config *config, void *memory,
                                          size_t memory_bytes) {
    const size_t needed = mw_dispatch_bytes(config);
    if (needed == 0 || memory == NULL || memory_bytes < needed ||
        (uintptr_t)memory % DISPATCH_ALIGNMENT != 0) {
        return NULL;
    }
    unsigned char *next = memory;
    for (size_t i = 0; i < needed; i++) { // no memset: there may be no libc
        next[i] = 0;
    }
    struct mw_dispatch *const dispatch = memory;
    dispatch->config = *config;
    if (config->horizon == 0) {
        dispatch->config.horizon = DISPATCH_HORIZON;
    }
    dispatch->config.horizon =
        (uint32_t)bits_min(dispatch->config.horizon, DISPATCH_HORIZON_MAX);
    if (config->refusal_cost == 0) {
        dispatch->config.refusal_cost = DISPATCH_REFUSAL_COST;
    }
    dispatch->random = config->seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    dispatch->random += dispatch->random == 0; // the one state that draws nothing
    next += bits_align_up(sizeof *dispatch, DISPATCH_ALIGNMENT);
    dispatch->views = (struct dispatch_view *)(void *)next;
    next += config->core_count * config->class_count * sizeof(struct dispatch_view);
    dispatch->entries = (struct dispatch_entry *)(void *)next;
    next += DISPATCH_CONTEXTS * sizeof(struct dispatch_entry);
    dispatch->steps = (int64_t *)(void *)next;
    return dispatch;
}

bool mw_dispatch_set_policy(struct mw_dispatch *dispatch, enum mw_dispatch_policy policy) {
    if ((unsigned)policy >= MW_DISPATCH_POLICY_COUNT) {
        return false;
    }
    dispatch->config.policy = policy;
    return true;
}

void mw_dispatch_set_explore(struct mw_dispatch *dispatch, uint32_t explore_ppm) {
    dispatch->config.explore_ppm = explore_ppm;
}

// ---- Seeing -------------------------------------------------------------------------------------

MALLOW_INLINE struct dispatch_view *dispatch_view_at(const struct mw_dispatch *dispatch,
                                                     size_t core, size_t class_index) {
    return &dispatch->views[core * dispatch->config.class_count + class_index];
}

// Parts of a class: no more than all.
MALLOW_INLINE uint32_t dispatch_share(uint32_t ppm) {
    return ppm < MW_DISPATCH_FULL ? ppm : MW_DISPATCH_FULL;
}

// Fixed point as parts per million; there may be more than a caller's type holds.
MALLOW_INLINE uint32_t dispatch_ppm(int64_t fixed) {
    const int64_t ppm = fixed >> DISPATCH_FRACTION;
    return ppm < (int64_t)UINT32_MAX ? (uint32_t)ppm : UINT32_MAX;
}

// Holt's method: the level is carried on by the trend and corrected by what is seen, the trend by
// how the level moved.
void mw_dispatch_observe(struct mw_dispatch *dispatch, size_t core_index, size_t class_index,
                         uint32_t occupancy_ppm) {
    if (core_index >= dispatch->config.core_count || class_index >= dispatch->config.class_count) {
        return;
    }
    struct dispatch_view *const view = dispatch_view_at(dispatch, core_index, class_index);
    occupancy_ppm = dispatch_share(occupancy_ppm);
    const int64_t seen = (int64_t)occupancy_ppm << DISPATCH_FRACTION;
    const int64_t expected = view->level + view->trend;
    const int64_t level = expected + ((seen - expected) >> DISPATCH_LEVEL_SHIFT);
    view->trend += (level - view->level - view->trend) >> DISPATCH_TREND_SHIFT;
    view->level = level;
    view->seen = occupancy_ppm;
}

void mw_dispatch_observe_set(struct mw_dispatch *dispatch, const struct mw_pool_set *set) {
    const size_t pools = mw_pool_set_count(set);
    const size_t cores = dispatch->config.core_count < pools ? dispatch->config.core_count : pools;
    for (size_t core = 0; core < cores; core++) {
        const struct mw_pool *const pool = mw_pool_set_get(set, core);
        for (size_t index = 0; index < dispatch->config.class_count; index++) {
            const size_t capacity = mw_pool_capacity_count(pool, index);
            const size_t used = mw_pool_used_count(pool, index);
            if (capacity != 0) {
                const uint64_t share = (uint64_t)used * MW_DISPATCH_FULL / capacity;
                mw_dispatch_observe(dispatch, core, index, (uint32_t)share);
            }
        }
    }
}

// ---- Scores -------------------------------------------------------------------------------------

// What the unsettled work will take, as far as is known.
MALLOW_INLINE int64_t dispatch_unsettled(const struct mw_dispatch *dispatch,
                                         const struct dispatch_view *view, size_t class_index) {
    return dispatch->steps[class_index] * (int64_t)view->pending;
}

MALLOW_INLINE int64_t dispatch_expected(const struct mw_dispatch *dispatch,
                                        const struct dispatch_view *view, size_t class_index) {
    return ((int64_t)view->seen << DISPATCH_FRACTION) +
           dispatch_unsettled(dispatch, view, class_index);
}

MALLOW_INLINE int64_t dispatch_forecast(const struct mw_dispatch *dispatch,
                                        const struct dispatch_view *view, size_t class_index) {
    const int64_t carried = view->level + view->trend * (int64_t)dispatch->config.horizon;
    return (carried > 0 ? carried : 0) + dispatch_unsettled(dispatch, view, class_index);
}

// Falling fast, falling, level, rising, rising fast: by what it comes to over the horizon.
MALLOW_INLINE unsigned dispatch_trend_place(const struct mw_dispatch *dispatch, int64_t trend) {
    const int64_t change = (trend * (int64_t)dispatch->config.horizon) >> DISPATCH_FRACTION;
    const int64_t slow = MW_DISPATCH_FULL / 100;
    const int64_t fast = MW_DISPATCH_FULL / 20;
    return (unsigned)((change > -fast) + (change > -slow) + (change > slow) + (change > fast));
}

// Nothing, then up to 1 %, 2 %, 4 %, 8 % of the class, and more.
MALLOW_INLINE unsigned dispatch_unsettled_place(int64_t unsettled) {
    const uint64_t percents =
        (uint64_t)(unsettled >> DISPATCH_FRACTION) / (MW_DISPATCH_FULL / 100);
    const unsigned place = unsettled == 0 ? 0 : 1 + bits_log2_ceil(percents + 1);
    return place < DISPATCH_UNSETTLED ? place : DISPATCH_UNSETTLED - 1;
}

MALLOW_INLINE uint32_t dispatch_context(const struct mw_dispatch *dispatch,
                                        const struct dispatch_view *view, size_t class_index) {
    uint32_t occupancy = view->seen / (MW_DISPATCH_FULL / DISPATCH_OCCUPANCIES);
    if (occupancy >= DISPATCH_OCCUPANCIES) {
        occupancy = DISPATCH_OCCUPANCIES - 1;
    }
    const unsigned trend = dispatch_trend_place(dispatch, view->trend);
    const int64_t unsettled = dispatch_unsettled(dispatch, view, class_index);
    return (occupancy * DISPATCH_TRENDS + trend) * DISPATCH_UNSETTLED +
           dispatch_unsettled_place(unsettled);
}

MALLOW_INLINE int64_t dispatch_error(const struct dispatch_entry *entry) {
    const int64_t known =
        entry->visits < DISPATCH_VISITS_FULL ? entry->visits : DISPATCH_VISITS_FULL;
    return entry->error * known / DISPATCH_VISITS_FULL;
}

// What is seen and unsettled, and by how much that was wrong where it looked like this before.
MALLOW_INLINE int64_t dispatch_learned(const struct mw_dispatch *dispatch,
                                       const struct dispatch_view *view, size_t class_index) {
    const struct dispatch_entry *const entry =
        &dispatch->entries[dispatch_context(dispatch, view, class_index)];
    const int64_t expected = dispatch_expected(dispatch, view, class_index);
    // Between the middles of two steps of occupancy, what lies between their errors.
    const uint32_t step = MW_DISPATCH_FULL / DISPATCH_OCCUPANCIES;
    const int64_t offset = (int64_t)(view->seen % step) - step / 2;
    const size_t row = DISPATCH_TRENDS * DISPATCH_UNSETTLED;
    const size_t at = (size_t)(entry - dispatch->entries);
    const struct dispatch_entry *other = entry;
    if (offset < 0 && at >= row) {
        other = entry - row;
    } else if (offset > 0 && at + row < DISPATCH_CONTEXTS) {
        other = entry + row;
    }
    const int64_t near = offset < 0 ? -offset : offset;
    const int64_t error =
        (dispatch_error(entry) * (step - near) + dispatch_error(other) * near) / step;
    const int64_t score = expected + error;
    return score > 0 ? score : 0;
}

MALLOW_INLINE int64_t dispatch_score(const struct mw_dispatch *dispatch, size_t core,
                                     size_t class_index) {
    const struct dispatch_view *const view = dispatch_view_at(dispatch, core, class_index);
    switch (dispatch->config.policy) {
    case MW_DISPATCH_LEAST_OCCUPIED:
    case MW_DISPATCH_TWO_CHOICES:
        return (int64_t)view->seen << DISPATCH_FRACTION;
    case MW_DISPATCH_LEAST_EXPECTED:
        return dispatch_expected(dispatch, view, class_index);
    case MW_DISPATCH_TREND:
        return dispatch_forecast(dispatch, view, class_index);
    case MW_DISPATCH_LEARNED:
        return dispatch_learned(dispatch, view, class_index);
    case MW_DISPATCH_ROUND_ROBIN:
    default:
        return 0;
    }
}

uint32_t mw_dispatch_score(const struct mw_dispatch *dispatch, size_t core_index,
                           size_t class_index) {
    if (core_index >= dispatch->config.core_count || class_index >= dispatch->config.class_count) {
        return 0;
    }
    return dispatch_ppm(dispatch_score(dispatch, core_index, class_index));
}

uint32_t mw_dispatch_pending_count(const struct mw_dispatch *dispatch, size_t core_index) {
    if (core_index >= dispatch->config.core_count) {
        return 0;
    }
    uint32_t count = 0;
    for (size_t index = 0; index < dispatch->config.class_count; index++) {
        count += dispatch_view_at(dispatch, core_index, index)->pending;
    }
    return count;
}

// ---- Routing ------------------------------------------------------------------------------------

// xorshift64* (Vigna, ACM TOMS 2016); below `limit`.
static uint64_t dispatch_draw(struct mw_dispatch *dispatch, uint64_t limit) {
    uint64_t x = dispatch->random;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    dispatch->random = x;
    return (((x * UINT64_C(0x2545F4914F6CDD1D)) >> 32) * limit) >> 32;
}

// The core with the lowest score. Equal ones take turns: the scan begins one further each time.
static size_t dispatch_least(struct mw_dispatch *dispatch, size_t class_index) {
    const size_t cores = dispatch->config.core_count;
    size_t core = dispatch->turn;
    size_t best = core;
    int64_t lowest = INT64_MAX;
    for (size_t i = 0; i < cores; i++) {
        const int64_t score = dispatch_score(dispatch, core, class_index);
        if (score < lowest) {
            lowest = score;
            best = core;
        }
        core = core + 1 == cores ? 0 : core + 1;
    }
    return best;
}

static size_t dispatch_less_of_two(struct mw_dispatch *dispatch, size_t class_index) {
    const size_t cores = dispatch->config.core_count;
    const size_t first = (size_t)dispatch_draw(dispatch, cores);
    const size_t second = (size_t)dispatch_draw(dispatch, cores);
    const int64_t first_score = dispatch_score(dispatch, first, class_index);
    return dispatch_score(dispatch, second, class_index) < first_score ? second : first;
}

static size_t dispatch_choose(struct mw_dispatch *dispatch, size_t class_index) {
    const struct mw_dispatch_config *const config = &dispatch->config;
    switch (config->policy) {
    case MW_DISPATCH_ROUND_ROBIN:
        return dispatch->turn;
    case MW_DISPATCH_TWO_CHOICES:
        return dispatch_less_of_two(dispatch, class_index);
    case MW_DISPATCH_LEARNED:
        if (config->explore_ppm != 0 && dispatch_draw(dispatch, 1000000) < config->explore_ppm) {
            return (size_t)dispatch_draw(dispatch, config->core_count);
        }
        return dispatch_least(dispatch, class_index);
    case MW_DISPATCH_LEAST_OCCUPIED:
    case MW_DISPATCH_LEAST_EXPECTED:
    case MW_DISPATCH_TREND:
    default:
        return dispatch_least(dispatch, class_index);
    }
}

struct mw_dispatch_ticket mw_dispatch_route(struct mw_dispatch *dispatch, size_t class_index) {
    const size_t known = class_index < dispatch->config.class_count ? class_index : 0;
    const size_t core = dispatch_choose(dispatch, known);
    dispatch->turn = dispatch->turn + 1 == dispatch->config.core_count ? 0 : dispatch->turn + 1;
    struct dispatch_view *const view = dispatch_view_at(dispatch, core, known);
    const struct mw_dispatch_ticket ticket = {
        .core_index = (uint32_t)core,
        .class_index = (uint32_t)known,
        .context = dispatch_context(dispatch, view, known),
        .expected_ppm = dispatch_ppm(dispatch_expected(dispatch, view, known)),
    };
    view->pending++;
    return ticket;
}

// ---- Learning -----------------------------------------------------------------------------------

void mw_dispatch_settle(struct mw_dispatch *dispatch, const struct mw_dispatch_ticket *ticket,
                        uint32_t taken_ppm, bool refused) {
    const size_t classes = dispatch->config.class_count;
    if (ticket->core_index >= dispatch->config.core_count || ticket->class_index >= classes ||
        ticket->context >= DISPATCH_CONTEXTS) {
        return;
    }
    struct dispatch_view *const view =
        dispatch_view_at(dispatch, ticket->core_index, ticket->class_index);
    view->pending -= view->pending != 0;
    int64_t *const step = &dispatch->steps[ticket->class_index];
    if (!refused) { // what a refused one would have taken is not known
        const int64_t taken = (int64_t)dispatch_share(taken_ppm) << DISPATCH_FRACTION;
        *step = *step == 0 ? taken : *step + ((taken - *step) >> DISPATCH_STEP_SHIFT);
    }
    const int64_t came = (int64_t)view->seen + (refused ? dispatch->config.refusal_cost : 0);
    const int64_t error = (came - (int64_t)ticket->expected_ppm) * (1 << DISPATCH_FRACTION);
    struct dispatch_entry *const entry = &dispatch->entries[ticket->context];
    entry->visits += entry->visits < DISPATCH_VISITS_MAX;
    entry->error += (error - entry->error) / (int64_t)entry->visits;
}
