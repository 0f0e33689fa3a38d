// SPDX-License-Identifier: MIT
// Dispatch: the policies of <mallow/dispatch.h> on the same load, with a pool and a thread a core.
// Prints one line of JSON a policy.
//
// Source   own program; the load is described in load.h.
// Threads  one a core, which owns that core's pool of a mw_pool_set; the main thread routes. Time is
//          in ticks: in each, the main thread observes all pools and routes what arrived; then all
//          cores at once free what ends (their own blocks, and by remote free those of others), and
//          then all at once take blocks, at most `service` each. Barriers lie between, so that a run
//          is the same whenever it is repeated, however the threads are scheduled.
// Delay    work reaches its core `delay` ticks after it was routed, and takes its blocks over some
//          ticks more. Work that gets NULL is refused: it gives back what it has, and is gone.
// Checks   every block carries its work's number, which is compared when it is freed; at the end all
//          pools are empty.

#include "load.h"

#include <mallow/dispatch.h>

enum { NONE = UINT32_MAX, PHASES = 2 };

static const char *const policy_names[MW_DISPATCH_POLICY_COUNT] = {
    "round-robin", "least-occupied", "two-choices", "least-expected", "trend", "learned"};

// What one core knows; only its thread writes it, the main thread reads between the barriers.
struct core {
    struct run *run;
    uint32_t index;
    uint32_t *ending;  // [tick]: list of work that this core frees then
    uint32_t *inbox;   // [tick]: list of work that arrives then
    uint32_t *queue;   // work in the order of its coming; those at the front are being served
    uint32_t queue_first, queue_end;
    uint32_t settled;  // list of work that was served or refused in this tick
};

struct result {
    uint64_t work, refused, refused_routed, blocks, remote;
    uint64_t *latencies; // [ticks]: how many took so long from arrival to the last block
    double spread;       // sum over ticks of the most less the mean occupancy
    double fullest;      // the same of the most
};

struct run {
    struct load load;
    uint32_t cores, delay, service, horizon_ticks;
    struct mw_pool_set *set;
    struct mw_dispatch *dispatch;
    struct mw_dispatch_ticket *tickets; // [work]
    struct core core[LOAD_CORES_MAX];
    pthread_barrier_t barrier;
    uint32_t tick;
    uint32_t ending; // the last tick at which work ends, as far as is known
    bool is_over;
    bool with_threads;
    struct result result;
};

struct block { // what a block holds while it is in use
    struct block *next;
    uint64_t work;
};

// ---- A core --------------------------------------------------------------------------------------

static struct work *work_at(struct run *run, uint32_t number) {
    return &run->load.work[number];
}

static void give_back(struct core *core, uint32_t number) {
    struct work *const work = work_at(core->run, number);
    struct block *block = work->blocks;
    for (uint32_t i = 0; i < work->taken; i++) {
        struct block *const next = block->next;
        if (block->work != number) {
            bench_fail("block of work %u has been overwritten", number);
        }
        if (mw_pool_set_free(core->run->set, core->index, block) != MW_POOL_OK) {
            bench_fail("a block of work %u could not be freed", number);
        }
        block = next;
    }
    work->taken = 0;
    work->blocks = NULL;
}

// True as long as it was given what it asked for.
static bool take(struct core *core, uint32_t number, uint32_t count) {
    struct work *const work = work_at(core->run, number);
    struct mw_pool *const pool = mw_pool_set_get(core->run->set, core->index);
    for (uint32_t i = 0; i < count; i++) {
        struct block *const block = mw_pool_alloc_class(pool, work->class_index);
        if (block == NULL) {
            return false;
        }
        block->next = work->blocks;
        block->work = number;
        work->blocks = block;
        work->taken++;
    }
    return true;
}

static void settle(struct core *core, uint32_t number) {
    work_at(core->run, number)->next = core->settled;
    core->settled = number;
}

static void free_phase(struct core *core) {
    uint32_t number = core->ending[core->run->tick];
    while (number != NONE) {
        const uint32_t next = work_at(core->run, number)->next;
        give_back(core, number);
        number = next;
    }
}

// First come, first served, each at its own rate, until the tick's service is used up.
static void take_phase(struct core *core) {
    struct run *const run = core->run;
    uint32_t number = core->inbox[run->tick];
    while (number != NONE) {
        core->queue[core->queue_end++] = number;
        number = work_at(run, number)->next;
    }
    uint32_t service = run->service;
    uint32_t kept = core->queue_first;
    for (uint32_t at = core->queue_first; at < core->queue_end; at++) {
        number = core->queue[at];
        struct work *const work = work_at(run, number);
        uint32_t count = work->wanted - work->taken;
        count = count < work->rate ? count : work->rate;
        count = count < service ? count : service;
        service -= count;
        if (!take(core, number, count)) {
            give_back(core, number);
            work->wanted = 0; // refused
            settle(core, number);
        } else if (work->taken == work->wanted) {
            settle(core, number);
        } else {
            core->queue[kept++] = number;
        }
    }
    core->queue_end = kept;
}

static void *core_main(void *argument) {
    struct core *const core = argument;
    struct run *const run = core->run;
    if (mw_pool_bind(mw_pool_set_get(run->set, core->index)) != MW_POOL_OK) {
        bench_fail("a pool could not be bound");
    }
    for (;;) {
        pthread_barrier_wait(&run->barrier); // the main thread has routed
        if (run->is_over) {
            return NULL;
        }
        free_phase(core);
        pthread_barrier_wait(&run->barrier);
        take_phase(core);
        pthread_barrier_wait(&run->barrier); // to the main thread
    }
}

// ---- The main thread -----------------------------------------------------------------------------

static void push(struct run *run, uint32_t *list, uint32_t number) {
    work_at(run, number)->next = *list;
    *list = number;
}

static void route(struct run *run, uint32_t number) {
    struct work *const work = work_at(run, number);
    if (!work->is_pinned) {
        run->tickets[number] = mw_dispatch_route(run->dispatch, work->class_index);
        work->core = (uint8_t)run->tickets[number].core_index;
    }
    push(run, &run->core[work->core].inbox[run->tick + run->delay], number);
}

// What the cores have served or refused goes back to the dispatcher, and to where it will end.
static void collect(struct run *run, struct core *core) {
    struct result *const result = &run->result;
    uint32_t number = core->settled;
    core->settled = NONE;
    while (number != NONE) {
        struct work *const work = work_at(run, number);
        const uint32_t next = work->next;
        const bool refused = work->wanted == 0;
        result->work++;
        result->refused += refused;
        result->refused_routed += refused && !work->is_pinned;
        if (!work->is_pinned) {
            const uint64_t share = (uint64_t)work->taken * MW_DISPATCH_FULL /
                                   load_classes[work->class_index].block_count;
            mw_dispatch_settle(run->dispatch, &run->tickets[number], (uint32_t)share, refused);
        }
        if (!refused) {
            const uint32_t took = run->tick - work->arrival;
            result->latencies[took < run->horizon_ticks ? took : run->horizon_ticks - 1]++;
            result->blocks += work->taken;
            const uint32_t freeing = work->freeing == UINT8_MAX ? work->core : work->freeing;
            result->remote += freeing == work->core ? 0 : work->taken;
            const uint32_t end = run->tick + 1 + work->hold;
            if (end >= run->horizon_ticks) {
                bench_fail("work waited too long in a queue");
            }
            run->ending = end > run->ending ? end : run->ending;
            push(run, &run->core[freeing].ending[end], number);
        }
        number = next;
    }
}

static void measure(struct run *run) {
    double sum = 0;
    double most = 0;
    for (uint32_t i = 0; i < run->cores; i++) {
        const double use = mw_pool_occupancy_ppm(mw_pool_set_get(run->set, i)) / 1e6;
        sum += use;
        most = use > most ? use : most;
    }
    run->result.spread += most - sum / run->cores;
    run->result.fullest += most;
}

// The cores' part of a tick; without threads the main thread plays all of them, one after the other,
// which comes to the same.
static void run_phases(struct run *run) {
    if (run->with_threads) {
        for (int i = 0; i < PHASES + 1; i++) {
            pthread_barrier_wait(&run->barrier);
        }
        return;
    }
    for (uint32_t i = 0; i < run->cores; i++) {
        free_phase(&run->core[i]);
    }
    for (uint32_t i = 0; i < run->cores; i++) {
        take_phase(&run->core[i]);
    }
}

static void tick_all(struct run *run) {
    uint32_t next = 0;
    run->ending = 0;
    // After the last arrival the run goes on until the last work has ended.
    for (run->tick = 0; run->tick < run->load.ticks || run->result.work < run->load.count ||
                        run->tick <= run->ending;
         run->tick++) {
        if (run->tick == run->horizon_ticks) {
            bench_fail("work was left in a queue");
        }
        mw_dispatch_observe_set(run->dispatch, run->set);
        for (uint32_t i = 0; i < run->cores; i++) {
            collect(run, &run->core[i]);
        }
        while (next < run->load.count && run->load.work[next].arrival == run->tick) {
            route(run, next++);
        }
        if (run->tick < run->load.ticks) {
            measure(run);
        }
        run_phases(run);
    }
    run->is_over = true;
    if (run->with_threads) {
        pthread_barrier_wait(&run->barrier);
    }
}

static uint32_t *lists(uint32_t count) {
    uint32_t *const heads = malloc(count * sizeof *heads);
    if (heads == NULL) {
        bench_fail("no memory");
    }
    memset(heads, 0xff, count * sizeof *heads); // NONE
    return heads;
}

static void make_pools(struct run *run) {
    struct mw_pool_class classes[LOAD_CLASSES] = {0};
    for (unsigned i = 0; i < LOAD_CLASSES; i++) {
        classes[i].size_bytes = load_classes[i].block_bytes;
        classes[i].block_count = load_classes[i].block_count;
    }
    const struct mw_pool_config config = {
        .classes = classes, .class_count = LOAD_CLASSES, .prefault = true, .remote = true};
    if (mw_pool_set_create(&config, run->cores, &run->set) != MW_POOL_OK) {
        bench_fail("the pools could not be made");
    }
}

enum {
    AFTER = 5000, // the longest hold, the longest queue
    TICKS_MAX = 1000000000,
    DELAY_MAX = 500,
    USE_MAX = 1000,
};

static void run_load(struct run *run, struct load load) {
    run->load = load;
    run->horizon_ticks = load.ticks + AFTER;
    run->is_over = false;
    run->tickets = calloc(load.count + 1, sizeof *run->tickets);
    run->result = (struct result){.latencies = calloc(run->horizon_ticks, sizeof(uint64_t))};
    make_pools(run);
    if (run->tickets == NULL || run->result.latencies == NULL ||
        pthread_barrier_init(&run->barrier, NULL, run->cores + 1) != 0) {
        bench_fail("no memory");
    }
    pthread_t threads[LOAD_CORES_MAX];
    for (uint32_t i = 0; i < run->cores; i++) {
        run->core[i] = (struct core){.run = run,
                                     .index = i,
                                     .ending = lists(run->horizon_ticks),
                                     .inbox = lists(run->horizon_ticks + run->delay),
                                     .queue = lists(load.count + 1),
                                     .settled = NONE};
        if (run->with_threads) {
            threads[i] = bench_thread(core_main, &run->core[i]);
        }
    }
    tick_all(run);
    for (uint32_t i = 0; i < run->cores; i++) {
        if (run->with_threads) {
            pthread_join(threads[i], NULL);
        }
        if (mw_pool_occupancy_ppm(mw_pool_set_get(run->set, i)) != 0) {
            bench_fail("pool %u is not empty at the end", i);
        }
        free(run->core[i].ending);
        free(run->core[i].inbox);
        free(run->core[i].queue);
    }
    pthread_barrier_destroy(&run->barrier);
    mw_pool_set_destroy(run->set);
    free(run->tickets);
    free(load.work);
}

static uint32_t latency_at(const struct run *run, double share) {
    const struct result *const result = &run->result;
    const double rank = share * (double)(result->work - result->refused);
    uint64_t seen = 0;
    for (uint32_t ticks = 0; ticks < run->horizon_ticks; ticks++) {
        seen += result->latencies[ticks];
        if ((double)seen >= rank) {
            return ticks;
        }
    }
    return run->horizon_ticks;
}

static void print(const struct run *run, uint64_t seed, unsigned policy) {
    const struct result *const r = &run->result;
    printf("{\"policy\":\"%s\",\"seed\":%" PRIu64 ",\"cores\":%u,\"delay\":%u,\"work\":%" PRIu64
           ",\"refused\":%" PRIu64 ",\"refused_routed\":%" PRIu64 ",\"blocks\":%" PRIu64
           ",\"remote\":%" PRIu64 ",\"p50\":%u,\"p99\":%u,\"p999\":%u,\"max\":%u"
           ",\"spread\":%.5f,\"fullest\":%.5f}\n",
           policy_names[policy], seed, run->cores, run->delay, r->work, r->refused,
           r->refused_routed, r->blocks, r->remote, latency_at(run, 0.5), latency_at(run, 0.99),
           latency_at(run, 0.999), latency_at(run, 1), r->spread / run->load.ticks,
           r->fullest / run->load.ticks);
    fflush(stdout);
}

// Every policy is warmed up, and the learned one trained, on another load; then they are measured.
static void run_policy(struct run *run, uint64_t seed, unsigned policy, uint64_t ticks,
                       uint64_t training, double use) {
    const struct mw_dispatch_config config = {
        .core_count = run->cores,
        .class_count = LOAD_CLASSES,
        .policy = (enum mw_dispatch_policy)policy,
        .horizon = run->delay + 8,
        .explore_ppm = 100000,
        .seed = seed,
    };
    const size_t bytes = mw_dispatch_bytes(&config);
    void *const memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    run->dispatch = memory == NULL ? NULL : mw_dispatch_create_in(&config, memory, bytes);
    if (run->dispatch == NULL) {
        bench_fail("the dispatcher could not be made");
    }
    run_load(run, load_make(seed + 1000000, (uint32_t)training, run->cores, use));
    free(run->result.latencies);
    mw_dispatch_set_explore(run->dispatch, 0);
    run_load(run, load_make(seed, (uint32_t)ticks, run->cores, use));
    print(run, seed, policy);
    free(run->result.latencies);
    free(memory);
}

static void check(const char *name, uint64_t value, uint64_t least, uint64_t most) {
    if (value < least || value > most) {
        bench_fail("%s=%" PRIu64 ": wanted %" PRIu64 " to %" PRIu64, name, value, least, most);
    }
}

int main(int argc, char **argv) {
    uint64_t seed = 1, cores = 8, ticks = 10000, training = 20000, delay = 8, service = 60, use = 60;
    uint64_t threads = 1;
    uint64_t only = MW_DISPATCH_POLICY_COUNT;
    const struct bench_option table[] = {
        {"seed", &seed, "of the load and of the draws"},
        {"cores", &cores, "pools, and threads that own them"},
        {"ticks", &ticks, "of arrivals, measured"},
        {"training", &training, "ticks of another load before"},
        {"delay", &delay, "ticks from routing to the core's queue"},
        {"service", &service, "blocks that a core can take in a tick"},
        {"use", &use, "percent of all blocks in use in the mean, were nothing refused"},
        {"threads", &threads, "0: the main thread plays the cores; the result is the same"},
        {"policy", &only, "only this one, 0 to 5"},
    };
    BENCH_OPTIONS(argc, argv, table);
    check("cores", cores, 1, LOAD_CORES_MAX);
    check("ticks", ticks, 1, TICKS_MAX);
    check("training", training, 1, TICKS_MAX);
    check("service", service, 1, TICKS_MAX);
    check("delay", delay, 0, DELAY_MAX);
    check("use", use, 0, USE_MAX);
    check("policy", only, 0, MW_DISPATCH_POLICY_COUNT); // the last: all
    static struct run run;
    run.cores = (uint32_t)cores;
    run.delay = (uint32_t)delay;
    run.service = (uint32_t)service;
    run.with_threads = threads != 0;
    for (unsigned policy = 0; policy < MW_DISPATCH_POLICY_COUNT; policy++) {
        if (only == policy || only >= MW_DISPATCH_POLICY_COUNT) {
            run_policy(&run, seed, policy, ticks, training, (double)use / 100);
        }
    }
    return 0;
}
