// SPDX-License-Identifier: MIT
// A server through several days, paced by the clock: requests come in waves, sessions of skewed
// sizes and lives pile up and expire, caches fill and are dropped, big buffers come in bursts, jobs
// run in threads of their own, the pool of workers grows and shrinks, and every night it idles.
//
//   day    morning  day  burst  evening  night  idle | morning ...          | end: all freed, idle
//   load   rising   high high   falling  low    none |
//
// Source   own program.
// Threads  a coordinator, a pool of 2 to 6 workers, jobs. Work belongs to shards, a shard has its
//          own random numbers, and a tick ends when all its shards are done: so each shard's
//          operations are the same whatever the allocator and however late a tick is. A shard's
//          worker changes as the pool does; others free messages, replies and what jobs leave.
// Checks   every block is filled when it comes and read back when it goes; `checksum` is made of
//          what was read; at the end as many bytes have gone as have come.
// Output   begin MS DAY PHASE THREADS      by the schedule, equal under every allocator
//                                          (`exit`: what is resident from then on says nothing)
//          live MS BYTES OPERATIONS        bytes asked for and not yet freed
//          end OPERATIONS CHECKSUM         equal, too
//          own CPU_MS FAULTS LATE_MS       how this run fared

#include "common.h"

#define SHARDS      8
#define POOL_MAX    6
#define JOBS        8
#define JOB_BLOCKS  6000
#define CACHE_SLOTS 2048
#define BUFFERS     4
#define INBOX       256
#define PARTS_MAX   20
#define TICK_MS     20
#define LIVE_TICKS  12

struct block {
    unsigned char *at; // NULL: none
    uint32_t size;
    uint32_t id; // what it is filled with
};

// Who allocates and frees: random numbers, and the books of what it did.
struct account {
    uint64_t seed;
    uint64_t operations;
    uint64_t checksum;
    int64_t live_bytes; // may fall below 0: what others allocated is freed here
    uint32_t next_id;
    uint32_t scale; // sizes of sessions are multiplied by a quarter of this
};

struct session {
    struct session *next; // in its slot of the wheel
    uint32_t count;
    struct block parts[];
};

struct shard {
    struct account books;
    struct session **wheel; // by the tick of expiry, modulo wheel_slots
    struct block cache[CACHE_SLOTS];
    struct block buffers[BUFFERS];
    struct block log; // grows by realloc
    struct block inbox[INBOX];
    struct block outbox[INBOX];
    size_t inbox_count;
    size_t outbox_count;
};

struct job {
    struct account books;
    pthread_t thread;
    struct block *blocks;
    size_t count;
    uint64_t join_tick;
    uint64_t drop_tick;
    enum { JOB_NONE, JOB_RUNS, JOB_LEFT } state;
};

struct phase {
    const char *name;
    uint64_t share; // of a day, in thousandths
    uint64_t load_first, load_last; // of the full rate, in thousandths
    size_t threads;
    uint64_t job_ticks; // a job every so many; 0: none
    bool buffers;
    bool drops_caches; // at its beginning
};

static const struct phase phases[] = {
    {"morning", 150, 100, 1000, 4, 100, false, false},
    {"day", 250, 1000, 800, 6, 50, false, false},
    {"burst", 120, 1000, 1000, 6, 25, true, false},
    {"evening", 130, 800, 100, 4, 100, false, false},
    {"night", 150, 100, 60, 2, 200, false, true},
    {"idle", 200, 0, 0, 2, 0, false, false},
};

static uint64_t wheel_slots;
static uint64_t day_ticks;
static struct shard shards[SHARDS];
static struct job jobs[JOBS];
static struct account front; // the coordinator's

// The pool. `turn` says that there is a tick to do, `pending` how many workers are still at it.
static struct {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    pthread_t threads[POOL_MAX];
    size_t count;
    size_t pending;
    uint64_t turn;
    uint64_t tick;
    bool buffers;
    bool drops_caches;
    bool ends;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER,
          .work = PTHREAD_COND_INITIALIZER,
          .done = PTHREAD_COND_INITIALIZER};

// ---- blocks -------------------------------------------------------------------------------------

static unsigned char filling(uint32_t id) {
    return (unsigned char)((id * UINT32_C(0x9e3779b1)) >> 24);
}

static void *take_raw(struct account *books, size_t size) {
    books->operations++;
    books->live_bytes += (int64_t)size;
    return bench_malloc(size);
}

static void give_raw(struct account *books, void *block, size_t size) {
    books->operations++;
    books->live_bytes -= (int64_t)size;
    free(block);
}

static struct block take(struct account *books, size_t size) {
    const struct block block = {take_raw(books, size), (uint32_t)size, books->next_id++};
    memset(block.at, filling(block.id), size);
    return block;
}

static void verify(struct account *books, const struct block *block) {
    const unsigned char first = block->at[0];
    const unsigned char middle = block->at[block->size / 2];
    const unsigned char last = block->at[block->size - 1];
    const unsigned char wanted = filling(block->id);
    if (first != wanted || middle != wanted || last != wanted) {
        bench_fail("block %" PRIu32 " of %" PRIu32 " bytes was overwritten", block->id,
                   block->size);
    }
    const uint64_t read = ((uint64_t)first << 16) | ((uint64_t)middle << 8) | last;
    books->checksum = (books->checksum ^ read ^ ((uint64_t)block->id << 32) ^ block->size) *
                      UINT64_C(0x100000001b3);
}

static void give(struct account *books, struct block *block) {
    if (block->at != NULL) {
        verify(books, block);
        give_raw(books, block->at, block->size);
        block->at = NULL;
    }
}

static void resize(struct account *books, struct block *block, size_t size) {
    verify(books, block);
    books->operations++;
    books->live_bytes += (int64_t)size - (int64_t)block->size;
    block->at = bench_realloc(block->at, size);
    if (size > block->size) {
        memset(block->at + block->size, filling(block->id), size - block->size);
    }
    block->size = (uint32_t)size;
}

// Mostly small, a few large: the mean is about 600 bytes.
static size_t skewed_size(struct account *books) {
    static const struct {
        uint32_t below, low, high;
    } table[] = {{620, 16, 128}, {880, 129, 512}, {970, 513, 2048}, {997, 2049, 16384},
                 {1000, 16385, 65536}};
    const uint64_t draw = bench_below(&books->seed, 1000);
    size_t row = 0;
    while (draw >= table[row].below) {
        row++;
    }
    return bench_between(&books->seed, table[row].low, table[row].high) * books->scale / 4;
}

// ---- what a shard does in a tick ----------------------------------------------------------------

// Four of five sessions are short, one in fifty outlives the day.
static uint64_t session_ticks(uint64_t *seed) {
    const uint64_t draw = bench_below(seed, 100);
    if (draw < 80) {
        return 1 + bench_between(seed, day_ticks / 600, day_ticks / 60);
    }
    return draw < 98 ? 1 + bench_between(seed, day_ticks / 12, day_ticks / 4)
                     : bench_between(seed, day_ticks, wheel_slots - 1);
}

static void session_begin(struct shard *shard, uint64_t tick) {
    struct account *const books = &shard->books;
    const uint32_t count = (uint32_t)bench_between(&books->seed, 4, PARTS_MAX);
    struct session *const session =
        take_raw(books, sizeof *session + count * sizeof session->parts[0]);
    session->count = count;
    for (uint32_t i = 0; i < count; i++) {
        session->parts[i] = take(books, skewed_size(books));
    }
    struct session **const slot =
        &shard->wheel[(tick + session_ticks(&books->seed)) % wheel_slots];
    session->next = *slot;
    *slot = session;
}

static void sessions_expire(struct shard *shard, uint64_t slot) {
    struct account *const books = &shard->books;
    while (shard->wheel[slot] != NULL) {
        struct session *const session = shard->wheel[slot];
        shard->wheel[slot] = session->next;
        for (uint32_t i = 0; i < session->count; i++) {
            give(books, &session->parts[i]);
        }
        give_raw(books, session, sizeof *session + session->count * sizeof session->parts[0]);
    }
}

// Popular slots are asked for more often; one answer in eight is stale.
static void cache_look_up(struct shard *shard) {
    struct account *const books = &shard->books;
    const uint64_t one = bench_below(&books->seed, CACHE_SLOTS);
    const uint64_t two = bench_below(&books->seed, CACHE_SLOTS);
    struct block *const entry = &shard->cache[one < two ? one : two];
    if (entry->at == NULL || bench_below(&books->seed, 8) == 0) {
        give(books, entry);
        *entry = take(books, 128 + 2 * skewed_size(books));
    }
}

static void request(struct shard *shard, struct block *message, uint64_t tick) {
    struct account *const books = &shard->books;
    struct block scratch[12];
    const size_t count = bench_between(&books->seed, 4, BENCH_COUNT(scratch));
    for (size_t i = 0; i < count; i++) {
        scratch[i] = take(books, skewed_size(books));
    }
    resize(books, &scratch[0], scratch[0].size * 2);
    cache_look_up(shard);
    if (bench_below(&books->seed, 10) < 3) {
        session_begin(shard, tick);
    }
    shard->outbox[shard->outbox_count++] = take(books, bench_between(&books->seed, 64, 4096));
    give(books, message);
    for (size_t i = count; i-- > 0;) {
        give(books, &scratch[i]);
    }
}

static void buffers_come_and_go(struct shard *shard) {
    struct account *const books = &shard->books;
    if (bench_below(&books->seed, 12) != 0) {
        return;
    }
    struct block *const buffer = &shard->buffers[bench_below(&books->seed, BUFFERS)];
    if (buffer->at != NULL) {
        give(books, buffer);
        return;
    }
    const uint64_t least = (64 * BENCH_KIB) << bench_below(&books->seed, 6);
    *buffer = take(books, bench_between(&books->seed, least, 2 * least));
    if (bench_below(&books->seed, 4) == 0) {
        resize(books, buffer, buffer->size + buffer->size / 2);
    }
}

static void log_append(struct shard *shard) {
    struct account *const books = &shard->books;
    if (shard->log.at == NULL) {
        shard->log = take(books, 4096);
    } else if (shard->log.size > 512 * BENCH_KIB) {
        give(books, &shard->log);
    } else {
        resize(books, &shard->log, shard->log.size + 2048);
    }
}

static void buffers_and_cache_drop(struct shard *shard) {
    for (size_t i = 0; i < CACHE_SLOTS; i++) {
        give(&shard->books, &shard->cache[i]);
    }
    for (size_t i = 0; i < BUFFERS; i++) {
        give(&shard->books, &shard->buffers[i]);
    }
}

static void shard_tick(struct shard *shard) {
    sessions_expire(shard, pool.tick % wheel_slots);
    if (pool.drops_caches) {
        buffers_and_cache_drop(shard);
    }
    if (pool.buffers) {
        buffers_come_and_go(shard);
    }
    if (shard->inbox_count > 0) {
        log_append(shard);
    }
    for (size_t i = 0; i < shard->inbox_count; i++) {
        request(shard, &shard->inbox[i], pool.tick);
    }
    shard->inbox_count = 0;
}

// ---- the pool -----------------------------------------------------------------------------------

static void *worker(void *argument) {
    const size_t index = (size_t)((pthread_t *)argument - pool.threads);
    pthread_mutex_lock(&pool.lock);
    uint64_t seen = pool.turn;
    if (--pool.pending == 0) {
        pthread_cond_signal(&pool.done);
    }
    for (;;) {
        while (pool.turn == seen) {
            pthread_cond_wait(&pool.work, &pool.lock);
        }
        seen = pool.turn;
        const size_t count = pool.count;
        const bool ends = pool.ends;
        pthread_mutex_unlock(&pool.lock);
        for (size_t i = index; i < SHARDS && !ends; i += count) {
            shard_tick(&shards[i]);
        }
        pthread_mutex_lock(&pool.lock);
        if (--pool.pending == 0) {
            pthread_cond_signal(&pool.done);
        }
        if (ends) {
            pthread_mutex_unlock(&pool.lock);
            return NULL;
        }
    }
}

static void pool_wait_locked(void) {
    while (pool.pending > 0) {
        pthread_cond_wait(&pool.done, &pool.lock);
    }
}

// Lets every worker do one turn, and waits for all.
static void pool_turn(void) {
    pthread_mutex_lock(&pool.lock);
    pool.pending = pool.count;
    pool.turn++;
    pthread_cond_broadcast(&pool.work);
    pool_wait_locked();
    pthread_mutex_unlock(&pool.lock);
}

// Another size: all threads end and `count` new ones begin, so that shards change hands.
static void pool_resize(size_t count) {
    if (count == pool.count) {
        return;
    }
    pool.ends = true;
    pool_turn();
    for (size_t i = 0; i < pool.count; i++) {
        pthread_join(pool.threads[i], NULL);
    }
    pool.ends = false;
    pool.count = count;
    pool.pending = count;
    for (size_t i = 0; i < count; i++) {
        pool.threads[i] = bench_thread(worker, &pool.threads[i]);
    }
    pthread_mutex_lock(&pool.lock);
    pool_wait_locked();
    pthread_mutex_unlock(&pool.lock);
}

// ---- jobs: threads that build something, free nine tenths of it, and end ------------------------

static void *job_body(void *argument) {
    struct job *const job = argument;
    struct account *const books = &job->books;
    job->count = bench_between(&books->seed, JOB_BLOCKS / 4, JOB_BLOCKS);
    job->blocks = take_raw(books, job->count * sizeof job->blocks[0]);
    for (size_t i = 0; i < job->count; i++) {
        job->blocks[i] = take(books, skewed_size(books));
    }
    for (size_t i = 0; i < job->count; i++) {
        if (bench_below(&books->seed, 10) != 0) {
            give(books, &job->blocks[i]);
        }
    }
    return NULL;
}

static void job_start(struct job *job, uint64_t tick) {
    if (job->state == JOB_NONE) {
        job->books.scale = front.scale;
        job->join_tick = tick + 25;
        job->drop_tick = tick + 200;
        job->state = JOB_RUNS;
        job->thread = bench_thread(job_body, job);
    }
}

static void jobs_tick(uint64_t tick) {
    for (size_t i = 0; i < JOBS; i++) {
        struct job *const job = &jobs[i];
        if (job->state == JOB_RUNS && tick >= job->join_tick) {
            pthread_join(job->thread, NULL);
            job->state = JOB_LEFT;
        }
        if (job->state == JOB_LEFT && tick >= job->drop_tick) {
            for (size_t k = 0; k < job->count; k++) {
                give(&front, &job->blocks[k]);
            }
            give_raw(&front, job->blocks, job->count * sizeof job->blocks[0]);
            job->state = JOB_NONE;
        }
    }
}

// ---- the coordinator ----------------------------------------------------------------------------

// Adds up every account; only while no worker and no job runs, or with what jobs do left out.
static struct account total(void) {
    struct account sum = front;
    for (size_t i = 0; i < SHARDS; i++) {
        sum.operations += shards[i].books.operations;
        sum.live_bytes += shards[i].books.live_bytes;
        sum.checksum = sum.checksum * 31 + shards[i].books.checksum;
    }
    for (size_t i = 0; i < JOBS; i++) {
        if (jobs[i].state != JOB_RUNS) {
            sum.operations += jobs[i].books.operations;
            sum.live_bytes += jobs[i].books.live_bytes;
            sum.checksum = sum.checksum * 31 + jobs[i].books.checksum;
        }
    }
    return sum;
}

static void say_live(uint64_t tick) {
    const struct account sum = total();
    printf("live %" PRIu64 " %" PRId64 " %" PRIu64 "\n", tick * TICK_MS, sum.live_bytes,
           sum.operations);
}

// Sleeps until the tick is due; returns how late it was, in ns.
static uint64_t wait_for(uint64_t start_ns, uint64_t tick) {
    const uint64_t due = start_ns + tick * TICK_MS * 1000000;
    const struct timespec at = {(time_t)(due / 1000000000), (long)(due % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) {
    }
    return bench_now_ns() - due;
}

// New messages for every shard, and the replies of the tick before freed.
static void deliver(uint64_t requests) {
    for (size_t i = 0; i < SHARDS; i++) {
        struct shard *const shard = &shards[i];
        for (size_t k = 0; k < shard->outbox_count; k++) {
            give(&front, &shard->outbox[k]);
        }
        shard->outbox_count = 0;
    }
    for (uint64_t i = 0; i < requests; i++) {
        struct shard *const shard = &shards[i % SHARDS];
        if (shard->inbox_count < INBOX) {
            shard->inbox[shard->inbox_count++] =
                take(&front, bench_between(&front.seed, 64, 2048));
        }
    }
}

static void scale_all(uint32_t scale) {
    front.scale = scale;
    for (size_t i = 0; i < SHARDS; i++) {
        shards[i].books.scale = scale;
    }
}

// One phase from its first tick on; returns the tick after it.
static uint64_t phase_run(const struct phase *phase, uint64_t first, uint64_t rate,
                          uint64_t start_ns, uint64_t *late_ns) {
    const uint64_t ticks = day_ticks * phase->share / 1000;
    uint64_t owed = 0; // thousandths of a request, carried from tick to tick
    for (uint64_t at = 0; at < ticks && phase->load_first > 0; at++) {
        const uint64_t late = wait_for(start_ns, first + at);
        *late_ns = late > *late_ns ? late : *late_ns;
        const uint64_t load =
            (phase->load_first * (ticks - at) + phase->load_last * at) / ticks;
        owed += rate * TICK_MS * load / 1000 * bench_between(&front.seed, 50, 150) / 100;
        deliver(owed / 1000);
        owed %= 1000;
        pool.tick = first + at;
        pool.buffers = phase->buffers;
        pool.drops_caches = phase->drops_caches && at == 0;
        pool_turn();
        jobs_tick(pool.tick);
        if (phase->job_ticks != 0 && at % phase->job_ticks == 0) {
            job_start(&jobs[bench_below(&front.seed, JOBS)], pool.tick);
        }
        if (pool.tick % LIVE_TICKS == 0) {
            say_live(pool.tick);
        }
    }
    return first + ticks;
}

// What a phase may have left unfinished, before the rest in which no call is made.
static void settle(uint64_t tick) {
    deliver(0);
    jobs_tick(UINT64_MAX - 1);
    say_live(tick);
}

static void begin(uint64_t tick, uint64_t day, const char *name, size_t threads) {
    pool_resize(threads);
    printf("begin %" PRIu64 " %" PRIu64 " %s %zu\n", tick * TICK_MS, day, name, threads);
    fflush(stdout);
}

static void drop_everything(void) {
    for (size_t i = 0; i < SHARDS; i++) {
        for (uint64_t slot = 0; slot < wheel_slots; slot++) {
            sessions_expire(&shards[i], slot);
        }
        buffers_and_cache_drop(&shards[i]);
        give(&shards[i].books, &shards[i].log);
        give_raw(&shards[i].books, shards[i].wheel, wheel_slots * sizeof shards[i].wheel[0]);
    }
}

static void set_up(uint64_t seed) {
    front.seed = seed;
    for (size_t i = 0; i < SHARDS; i++) {
        struct account *const books = &shards[i].books;
        books->seed = bench_random(&seed);
        shards[i].wheel = take_raw(books, wheel_slots * sizeof shards[i].wheel[0]);
        memset(shards[i].wheel, 0, wheel_slots * sizeof shards[i].wheel[0]);
    }
    for (size_t i = 0; i < JOBS; i++) {
        jobs[i].books.seed = bench_random(&seed);
    }
}

int main(int argc, char **argv) {
    uint64_t ms = 1200000, days = 10, rate = 6000, seed = 11;
    const struct bench_option table[] = {
        {"ms", &ms, "how long it runs"},
        {"days", &days, "cycles of load in that time"},
        {"rate", &rate, "requests per second at full load"},
        {"seed", &seed, "of all random numbers"},
    };
    BENCH_OPTIONS(argc, argv, table);
    static char buffer[1 << 16]; // so that stdio allocates none
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    const uint64_t rest_ms = ms / (5 * days + 1); // at the end, as long as every idle phase
    day_ticks = (ms - rest_ms) / days / TICK_MS;
    if (days == 0 || day_ticks < 20) {
        bench_fail("a day must have at least %d ms", 20 * TICK_MS);
    }
    wheel_slots = day_ticks * 5 / 2;
    set_up(seed);

    const uint64_t start_ns = bench_now_ns();
    uint64_t late_ns = 0;
    uint64_t tick = 0;
    static const uint32_t scales[] = {4, 6, 5}; // what is stored changes from day to day
    for (uint64_t day = 0; day < days; day++) {
        scale_all(scales[day % BENCH_COUNT(scales)]);
        for (size_t i = 0; i < BENCH_COUNT(phases); i++) {
            if (phases[i].load_first == 0) {
                settle(tick);
            }
            begin(tick, day, phases[i].name, phases[i].threads);
            tick = phase_run(&phases[i], tick, rate, start_ns, &late_ns);
        }
        // Sessions that expired while nothing ran go before the next day begins.
        wait_for(start_ns, tick);
        for (size_t i = 0; i < SHARDS; i++) {
            const uint64_t idle = day_ticks * phases[BENCH_COUNT(phases) - 1].share / 1000;
            for (uint64_t at = tick - idle; at < tick; at++) {
                sessions_expire(&shards[i], at % wheel_slots);
            }
        }
        say_live(tick);
    }
    drop_everything();
    settle(tick);
    begin(tick, days, "end", 2);
    tick += rest_ms / TICK_MS;
    wait_for(start_ns, tick);
    begin(tick, days, "exit", 2);
    const struct account sum = total();
    if (sum.live_bytes != 0) {
        bench_fail("%" PRId64 " bytes are left", sum.live_bytes);
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("end %" PRIu64 " %016" PRIx64 "\n", sum.operations, sum.checksum);
    printf("own %" PRIu64 " %ld %" PRIu64 "\n", bench_cpu_ns() / 1000000, usage.ru_minflt,
           late_ns / 1000000);
    fflush(stdout);
    return 0;
}
