// SPDX-License-Identifier: MIT
// mallow: a dispatcher of work over per-core pools.
//
// Each core has a pool of its own, whose occupancy any thread can read without a lock
// (mw_pool_used_count). A dispatcher looks at these occupancies from time to time, and says for each
// piece of work which core shall have it, so that work is refused as rarely as can be. What it sees
// is always older than what the work will find: between the routing and the first allocation lies a
// queue, and the work that was routed before it. The policies differ in what they make of that.
//
//   round      round                for each work       each outcome
//   observe -> observe -> ...       route -> ticket ->  settle
//
// Unless a declaration says otherwise, every call below
//   - is for one thread at a time for one dispatcher (the one that routes);
//   - never enters the kernel, never blocks, allocates nothing, leaves errno alone;
//   - is integer arithmetic alone: with the same seed and calls, the same decisions anywhere.
// The calls are in libmallow and, being freestanding, in libmallow-pool.a.
#ifndef MALLOW_DISPATCH_H
#define MALLOW_DISPATCH_H

#include <mallow/pool.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MW_DISPATCH_CORES_MAX 1024
#define MW_DISPATCH_CLASSES_MAX 64
#define MW_DISPATCH_FULL 1000000 // occupancy of a full class, in parts per million

enum mw_dispatch_policy {
    // One core after the other, whatever is seen. O(1).
    MW_DISPATCH_ROUND_ROBIN = 0,
    // The core that was seen with the lowest occupancy of the work's class. O(cores).
    MW_DISPATCH_LEAST_OCCUPIED = 1,
    // The less occupied of two cores drawn at random (Mitzenmacher, IEEE TPDS 2001). O(1).
    MW_DISPATCH_TWO_CHOICES = 2,
    // The core with the lowest occupancy seen plus the work routed there and not settled, at what such
    // work has been seen to take. O(cores).
    MW_DISPATCH_LEAST_EXPECTED = 3,
    // The same, with the occupancy carried on for `horizon` rounds along a linear trend (Holt's double
    // exponential smoothing). O(cores).
    MW_DISPATCH_TREND = 4,
    // The core with the lowest cost, learned: what is expected as above, corrected by a table over
    // occupancy, trend and unsettled work that holds by how much it was wrong there in the mean. What
    // came of a routing is the occupancy when the work had settled, and `refusal_cost` more if it was
    // refused (a contextual bandit). O(cores).
    MW_DISPATCH_LEARNED = 5,
};
#define MW_DISPATCH_POLICY_COUNT 6

// Begin with a zeroed structure: 0 stands for the default of each but the first two.
struct mw_dispatch_config {
    size_t core_count;              // 1 ... MW_DISPATCH_CORES_MAX
    size_t class_count;             // classes of the pools, 1 ... MW_DISPATCH_CLASSES_MAX
    enum mw_dispatch_policy policy;
    uint32_t horizon;               // rounds from routing to settling, roughly; default 8; above 2^20: 2^20
    uint32_t explore_ppm;           // learned: decisions at random, per million; default 0
    uint32_t refusal_cost;          // learned: in parts per million of occupancy; default 100,000
    uint64_t seed;                  // of the random draws
};

// What was decided for one piece of work. Kept by the caller until mw_dispatch_settle.
struct mw_dispatch_ticket {
    uint32_t core_index;
    uint32_t class_index;
    uint32_t context;      // which entry of the table it will teach
    uint32_t expected_ppm; // what was expected
};

struct mw_dispatch; // lies in the caller's memory

// Bytes of memory for a dispatcher; 0 if the configuration is out of the limits above. ANY THREAD.
MW_API size_t mw_dispatch_bytes(const struct mw_dispatch_config *config);

// Makes a dispatcher in memory of at least that many bytes, aligned to 16; NULL if the configuration,
// the size or the alignment will not do. Nothing else is to be given up at its end. O(bytes).
MW_API struct mw_dispatch *mw_dispatch_create_in(const struct mw_dispatch_config *config, void *memory,
                                                 size_t memory_bytes);

// Another policy from now on; what has been seen and learned stays. False if it is none.
MW_API bool mw_dispatch_set_policy(struct mw_dispatch *dispatch, enum mw_dispatch_policy policy);

// The share of decisions at random, from now on: to stop exploring after a training.
MW_API void mw_dispatch_set_explore(struct mw_dispatch *dispatch, uint32_t explore_ppm);

// What is seen of one class of one core: live blocks per million of its capacity. Once a round for
// each; an index out of range is passed over. O(1).
MW_API void mw_dispatch_observe(struct mw_dispatch *dispatch, size_t core_index, size_t class_index,
                                uint32_t occupancy_ppm);

// A round for all cores and classes: reads the pools of the set, whose owners may run meanwhile.
// O(cores * classes), two relaxed loads each.
MW_API void mw_dispatch_observe_set(struct mw_dispatch *dispatch, const struct mw_pool_set *set);

// The core for a piece of work that will allocate from this class (0 if out of range). The ticket must
// come back once.
MW_API struct mw_dispatch_ticket mw_dispatch_route(struct mw_dispatch *dispatch, size_t class_index);

// What came of it: the work has allocated what it needs, `taken_ppm` per million of the class's
// capacity, or was refused. O(1).
MW_API void mw_dispatch_settle(struct mw_dispatch *dispatch, const struct mw_dispatch_ticket *ticket,
                               uint32_t taken_ppm, bool refused);

// Work routed to a core and not settled; 0 for an index out of range.
MW_API uint32_t mw_dispatch_pending_count(const struct mw_dispatch *dispatch, size_t core_index);

// What the policy's arithmetic says of a core now, for this class, in parts per million of occupancy
// (0 at least): the lower, the better. Round-robin: 0. For tests and displays.
MW_API uint32_t mw_dispatch_score(const struct mw_dispatch *dispatch, size_t core_index,
                                  size_t class_index);

#ifdef __cplusplus
}
#endif

#endif
