// SPDX-License-Identifier: MIT
// mallow/limit.h, the heartbeat: how far allocations get without one, that it is the same each time, and
// what its function may do.
#include <mallow/limit.h>
#include <mallow/observe.h>
#include <mallow/options.h>

#include "../support/suite.h"

#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 20000, THREADS = 4, RECORDED = 4096, BLOCKS_MAX = 1216, BYTES_MAX = 128 * KIB };
enum { PAUSES = 10, PAUSE_US = 100000 }; // in all: two looks and more at what lies idle

static size_t calls; // of the program, so far
struct record {
    size_t count;
    size_t at[RECORDED]; // number of the call that it came in
};
static struct record beats;

static void note(bool force, uint64_t beat, void *argument)
{
    CHECK(argument == &beats && !force && beat != 0, "beat %zu", (size_t)beat);
    if (beats.count < RECORDED) {
        beats.at[beats.count] = calls;
    }
    beats.count++;
    errno = 7;
}

static void on(mw_heartbeat_function function, void *argument)
{
    CHECK(mw_heartbeat_register(function, argument) == 0, "register");
}

static void off(void)
{
    CHECK(mw_heartbeat_unregister() == 0, "unregister");
}

static void one_function_at_a_time(void **state)
{
    (void)state;
    CHECK(mw_heartbeat_unregister() == ENOENT, "there is none");
    CHECK(mw_heartbeat_register(NULL, NULL) == EINVAL, "no function");
    on(note, &beats);
    CHECK(mw_heartbeat_register(note, NULL) == EEXIST, "there is one");
    off();
    CHECK(mw_heartbeat_unregister() == ENOENT, "it is gone");
    beats.count = 0;
    for (size_t i = 0; i < COUNT; i++) {
        mw_free(mw_malloc(i * 7));
    }
    CHECK(beats.count == 0, "and is not called");
}

// Whatever the size, live blocks grow by so much at most without it.
static void growth_has_it_called(void **state)
{
    (void)state;
    static void *blocks[COUNT];
    for (size_t size = 1; size <= 4 * MIB; size += size / 3 + 1) {
        const size_t count = size < 4096 ? COUNT : (size_t)64 * MIB / size;
        size_t before = beats.count = 0, since = 0, worst = 0;
        on(note, &beats);
        errno = 3;
        for (size_t i = 0; i < count; i++) {
            blocks[i] = i % 2 == 0 ? mw_malloc(size) : mw_calloc(1, size);
            since = beats.count == before ? since + 1 : 0;
            worst = since > worst ? since : worst;
            before = beats.count;
        }
        CHECK(errno == 3, "errno");
        off();
        CHECK(worst <= BLOCKS_MAX && worst * size <= BYTES_MAX, "%zu of %zu bytes without one", worst, size);
        CHECK(size <= 64 * KIB || beats.count >= count, "every block of %zu", size);
        for (size_t i = 0; i < count; i++) {
            mw_free(blocks[i]);
        }
    }
}

// A fixed program, in a process of its own: where were its beats?
static void fixed_program(struct record *record, useconds_t pause_us)
{
    enum { CALLS = 200000 };
    static void *slots[500];
    uint64_t random = 12345;
    on(note, &beats);
    for (calls = 0; calls < CALLS; calls++) {
        CHECK(calls % (CALLS / PAUSES) != 0 || usleep(pause_us) == 0, "pause");
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        void **const slot = &slots[random % 500];
        mw_free(*slot);
        *slot = mw_malloc(random >> 20 & (calls % 64 == 0 ? 0xffff : 0x3ff));
    }
    off();
    *record = beats;
    _exit(0);
}

// Where nothing is given back for lying idle: what that leaves behind is met by a later call.
static void the_same_calls_have_the_same_beats(void **state)
{
    (void)state;
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    skip(); // mallopt is the sanitizer's there
#endif
    struct record *const both = mmap(NULL, 2 * sizeof *both, PROT_READ | PROT_WRITE,
                                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(both != MAP_FAILED && usleep(PAUSES * PAUSE_US) == 0, "preparations");
    CHECK(mallopt(M_TRIM_THRESHOLD, -1) == 1, "mallopt");
    beats.count = 0;
    for (int i = 0; i < 2; i++) {
        const pid_t child = fork();
        if (child == 0) {
            fixed_program(&both[i], i == 0 ? PAUSE_US : 0);
        }
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child && status == 0, "child %d: %d", i, status);
    }
    CHECK(both[0].count > 20 && both[0].count == both[1].count, "%zu, %zu", both[0].count, both[1].count);
    CHECK(memcmp(both[0].at, both[1].at, sizeof both[0].at) == 0, "not at the same calls");
    munmap(both, 2 * sizeof *both);
}

// Garbage that the function takes away bit by bit, as much as it likes when it is to.
struct garbage {
    struct garbage *next;
};
static struct garbage *heaped;
static size_t heaped_count, heaped_most, forced;

static void sweep(bool force, uint64_t beat, void *argument)
{
    static uint64_t last;
    CHECK(beat > last && argument == NULL, "monotone");
    last = beat;
    forced += force;
    for (size_t i = 0; heaped != NULL && (force || i < 2 * BLOCKS_MAX); i++) {
        struct garbage *const next = heaped->next;
        mw_free(heaped);
        heaped = next;
        heaped_count--;
    }
    mw_free(mw_malloc(5000)); // none within one
}

static void drop(void *block)
{
    struct garbage *const garbage = block;
    garbage->next = heaped;
    heaped = garbage;
    heaped_most = ++heaped_count > heaped_most ? heaped_count : heaped_most;
}

static void frees_that_are_put_off_are_bounded(void **state)
{
    (void)state;
    on(sweep, NULL);
    for (size_t i = 0; i < 1000000; i++) {
        drop(mw_malloc(48));
    }
    CHECK(heaped_most <= 4 * BLOCKS_MAX, "%zu wait", heaped_most);
    CHECK(forced == 0, "nobody was in need");
    (void)mw_collect(true);
    CHECK(forced == 1 && heaped == NULL, "mw_collect");
    off();
}

static void before_a_request_fails_it_is_called_with_force(void **state)
{
    (void)state;
    const pid_t child = fork();
    if (child == 0) {
        CHECK(mw_option_set("limit", "32M") == 0, "limit");
        for (size_t i = 0; i < 20; i++) {
            drop(mw_malloc(MIB));
        }
        on(sweep, NULL);
        forced = 0;
        static void *kept[24];
        heaped_most = 0;
        for (size_t i = 0; i < 12; i++) { // one by one there is less than needed until all is swept
            kept[i] = mw_malloc(2 * MIB);
            CHECK(kept[i] != NULL, "block %zu", i);
        }
        while (mw_malloc(MIB) != NULL) {
        }
        CHECK(errno == ENOMEM && forced > 0, "forced %zu times", forced);
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "child: %d", status);
}

static _Atomic(bool) gone;
static _Atomic(size_t) inside, after;

static void slowly(bool force, uint64_t beat, void *argument)
{
    (void)force;
    (void)beat;
    (void)argument;
    atomic_fetch_add(&inside, 1);
    after += atomic_load(&gone);
    sched_yield();
    atomic_fetch_sub(&inside, 1);
}

static void *allocate(void *argument)
{
    void *blocks[200] = {NULL};
    (void)argument;
    for (size_t i = 0; i < 60000; i++) {
        mw_free(blocks[i % 200]);
        blocks[i % 200] = mw_malloc(i * 97 % 9000);
    }
    for (size_t i = 0; i < 200; i++) {
        mw_free(blocks[i]);
    }
    return NULL;
}

static void when_it_is_off_nobody_is_in_it(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    on(slowly, NULL);
    for (size_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, allocate, NULL) == 0, "thread");
    }
    for (size_t i = 0; i < 200; i++) {
        usleep(100);
        off();
        atomic_store(&gone, true);
        CHECK(atomic_load(&inside) == 0, "one is in it");
        atomic_store(&gone, false);
        on(slowly, NULL);
    }
    off();
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK(after == 0, "called %zu times", (size_t)after);
}

static _Atomic(int) way; // of one beat: 1: it is inside, 2: it may go

static void wait_inside(bool force, uint64_t beat, void *argument)
{
    (void)force;
    (void)beat;
    CHECK(argument == &way, "another function's argument");
    if (atomic_load(&way) == 0) {
        atomic_store(&way, 1);
        while (atomic_load(&way) != 2) {
            (void)sched_yield();
        }
    }
}

static void *beat_once(void *argument)
{
    (void)argument;
    mw_free(mw_malloc(100 * KIB));
    mw_free(mw_malloc(100 * KIB));
    return NULL;
}

static void *take_off(void *argument)
{
    (void)argument;
    off();
    return NULL;
}

// Until the call that takes one off returns, a beat may be about to pass its argument.
static void while_one_is_taken_off_there_is_no_room_for_another(void **state)
{
    (void)state;
    pthread_t beater;
    pthread_t taker;
    on(wait_inside, &way);
    CHECK(pthread_create(&beater, NULL, beat_once, NULL) == 0, "thread");
    while (atomic_load(&way) != 1) {
        (void)sched_yield();
    }
    CHECK(pthread_create(&taker, NULL, take_off, NULL) == 0, "thread");
    for (unsigned i = 0; i < 100; i++) {
        CHECK(mw_heartbeat_register(note, &beats) == EEXIST, "one is inside, try %u", i);
        CHECK(usleep(500) == 0, "usleep");
    }
    atomic_store(&way, 2);
    CHECK(pthread_join(taker, NULL) == 0 && pthread_join(beater, NULL) == 0, "join");
    on(note, &beats);
    off();
}

static _Thread_local bool is_beater; // not who creates threads, which may allocate

static void *beat_inside(void *argument)
{
    is_beater = true;
    while (atomic_load(&way) == 0) {
        (void)beat_once(argument);
    }
    return NULL;
}

static _Atomic(bool) over;
static _Atomic(int) taken_off; // by so many

static void wait_inside_and_end(bool force, uint64_t beat, void *argument)
{
    if (is_beater) {
        wait_inside(force, beat, argument);
        atomic_store(&over, true);
    }
}

static void *take_off_with_another(void *argument)
{
    (void)argument;
    const int result = mw_heartbeat_unregister();
    CHECK(result == 0 || result == ENOENT, "result %d", result);
    CHECK(atomic_load(&over), "result %d, and one is in it", result);
    atomic_fetch_add(&taken_off, result == 0);
    return NULL;
}

static void who_finds_it_taken_off_waits_for_the_others_as_well(void **state)
{
    (void)state;
    pthread_t beater;
    pthread_t takers[2];
    atomic_store(&way, 0);
    on(wait_inside_and_end, &way);
    CHECK(pthread_create(&beater, NULL, beat_inside, NULL) == 0, "thread");
    while (atomic_load(&way) != 1) {
        (void)sched_yield();
    }
    for (size_t i = 0; i < COUNT_OF(takers); i++) {
        CHECK(pthread_create(&takers[i], NULL, take_off_with_another, NULL) == 0, "thread");
    }
    CHECK(usleep(50000) == 0, "usleep");
    atomic_store(&way, 2);
    for (size_t i = 0; i < COUNT_OF(takers); i++) {
        CHECK(pthread_join(takers[i], NULL) == 0, "join");
    }
    CHECK(pthread_join(beater, NULL) == 0 && taken_off == 1, "taken off by %d", (int)taken_off);
}

static void end_itself(bool force, uint64_t beat, void *argument)
{
    if (is_beater) {
        off();
        CHECK(mw_heartbeat_unregister() == ENOENT, "it is off");
        wait_inside_and_end(force, beat, argument);
    }
}

// It does not wait for itself, but others do for it.
static void one_that_takes_itself_off_is_waited_for(void **state)
{
    (void)state;
    pthread_t beater;
    pthread_t taker;
    atomic_store(&way, 0);
    atomic_store(&over, false);
    on(end_itself, &way);
    CHECK(pthread_create(&beater, NULL, beat_inside, NULL) == 0, "thread");
    while (atomic_load(&way) != 1) {
        (void)sched_yield();
    }
    CHECK(pthread_create(&taker, NULL, take_off_with_another, NULL) == 0, "thread");
    CHECK(usleep(50000) == 0, "usleep");
    atomic_store(&way, 2);
    CHECK(pthread_join(taker, NULL) == 0 && pthread_join(beater, NULL) == 0, "join");
}

enum { OTHERS = 60000, OTHERS_A_BEAT = 1000, MOVES_MAX = 1000 };
static struct {
    void *blocks[OTHERS];
    size_t left;
    pthread_barrier_t filled;
    pthread_barrier_t end;
} others;

static void *fill_and_sleep(void *argument)
{
    (void)argument;
    for (others.left = 0; others.left < OTHERS; others.left++) {
        others.blocks[others.left] = mw_malloc(64);
    }
    (void)pthread_barrier_wait(&others.filled);
    (void)pthread_barrier_wait(&others.end);
    return NULL;
}

static void free_others(bool force, uint64_t beat, void *argument)
{
    (void)force;
    (void)beat;
    (void)argument;
    for (size_t i = 0; i < OTHERS_A_BEAT && others.left > 0; i++) {
        mw_free(others.blocks[--others.left]);
    }
}

static uint64_t slabs(void)
{
    struct mw_stats stats = {.size_bytes = sizeof stats};
    CHECK(mw_stats_get(&stats), "stats");
    return stats.slab_count;
}

// What a realloc has spent is not what the frees in its beat may spend: the slabs of a thread that
// sleeps are given up by who frees their last blocks.
static void what_it_frees_amid_a_move_is_given_up(void **state)
{
    (void)state;
    pthread_t sleeper;
    CHECK(mw_option_set("background", "0") == 0, "background");
    CHECK(pthread_barrier_init(&others.filled, NULL, 2) == 0, "barrier");
    CHECK(pthread_barrier_init(&others.end, NULL, 2) == 0, "barrier");
    const uint64_t before = slabs();
    CHECK(pthread_create(&sleeper, NULL, fill_and_sleep, NULL) == 0, "thread");
    (void)pthread_barrier_wait(&others.filled);
    const uint64_t filled = slabs();
    void *block = mw_malloc(20000);
    on(free_others, NULL);
    for (size_t i = 0; others.left > 0; i++) {
        CHECK(i < MOVES_MAX, "%zu blocks are left", others.left);
        block = mw_realloc(block, i % 2 == 0 ? 300000 : 20000);
        CHECK(block != NULL, "move %zu", i);
    }
    off();
    CHECK(slabs() - before < (filled - before) / 4, "%zu slabs before, %zu filled, %zu left",
          (size_t)before, (size_t)filled, (size_t)slabs());
    mw_free(block);
    (void)pthread_barrier_wait(&others.end);
    CHECK(pthread_join(sleeper, NULL) == 0, "join");
    CHECK(mw_option_set("background", "1") == 0, "background");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_function_at_a_time),
        cmocka_unit_test(growth_has_it_called),
        cmocka_unit_test(the_same_calls_have_the_same_beats),
        cmocka_unit_test(frees_that_are_put_off_are_bounded),
        cmocka_unit_test(before_a_request_fails_it_is_called_with_force),
        cmocka_unit_test(when_it_is_off_nobody_is_in_it),
        cmocka_unit_test(while_one_is_taken_off_there_is_no_room_for_another),
        cmocka_unit_test(who_finds_it_taken_off_waits_for_the_others_as_well),
        cmocka_unit_test(one_that_takes_itself_off_is_waited_for),
        cmocka_unit_test(what_it_frees_amid_a_move_is_given_up),
    };
    return suite_run(tests);
}
