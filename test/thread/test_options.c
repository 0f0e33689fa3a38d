// SPDX-License-Identifier: MIT
// Options set by several threads at once, while others allocate: what one has set, no other undoes,
// and it counts when the call returns.
#include <mallow/limit.h>
#include <mallow/mallow.h>
#include <mallow/options.h>

#include "../support/suite.h"

#include <pthread.h>
#include <stdatomic.h>

enum { ROUNDS = 1000 };

static pthread_barrier_t begin, end;
static _Atomic(bool) over;

static void set_to(const char *name, uint64_t value)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    CHECK(mw_option_set(name, text) == 0, "%s=%s", name, text);
}

static uint64_t soft_of(unsigned round) { return 64 * MIB + round * 65536; }
static uint64_t hard_of(unsigned round) { return 1024 * MIB + round * 65536; }

static void check_counts(const char *name, uint64_t counts, uint64_t wanted, unsigned round)
{
    CHECK(counts == wanted, "round %u: %s counts as %llu, set to %llu", round, name,
          (unsigned long long)counts, (unsigned long long)wanted);
}

static void *set_soft(void *argument)
{
    (void)argument;
    for (unsigned round = 0; round < ROUNDS; round++) {
        (void)pthread_barrier_wait(&begin);
        set_to("soft_limit", soft_of(round));
        CHECK(mw_option_set("soft_limit", "5Q") == EINVAL, "a bad value");
        (void)pthread_barrier_wait(&end);
    }
    return NULL;
}

static void *set_others(void *argument)
{
    (void)argument;
    for (unsigned round = 0; !over; round++) {
        set_to("trim_threshold", (round % 64) * MIB);
        set_to("huge_cache", (round % 32) * MIB);
        if (round % 64 == 0) {
            set_to("pressure", round / 64 % 2 * 50); // reads files
        }
    }
    set_to("pressure", 0);
    return NULL;
}

static void *allocate(void *argument)
{
    (void)argument;
    unsigned char *blocks[32] = {NULL};
    for (size_t step = 0; !over; step++) {
        unsigned char **const place = &blocks[step * 11 % 32];
        mw_free(*place);
        *place = mw_malloc(step % 13 * 150000);
        CHECK(*place != NULL, "step %zu", step);
        **place = 1;
    }
    for (size_t i = 0; i < 32; i++) {
        mw_free(blocks[i]);
    }
    return NULL;
}

static void several_threads_set_options(void **state)
{
    (void)state;
    static void *(*const bodies[])(void *) = {set_soft, set_others, allocate};
    enum { BODIES = sizeof bodies / sizeof *bodies };
    pthread_t threads[BODIES];
    CHECK(pthread_barrier_init(&begin, NULL, 2) == 0 && pthread_barrier_init(&end, NULL, 2) == 0,
          "barriers");
    for (size_t i = 0; i < BODIES; i++) {
        CHECK(pthread_create(&threads[i], NULL, bodies[i], NULL) == 0, "thread");
    }
    for (unsigned round = 0; round < ROUNDS; round++) {
        char text[32];
        struct mw_limits now = {.size_bytes = sizeof now};
        (void)pthread_barrier_wait(&begin);
        set_to("limit", hard_of(round));
        CHECK(mw_limits_get(&now), "limits");
        check_counts("limit", now.limit_bytes, hard_of(round), round);
        CHECK(mw_option_get("limit", text, sizeof text) != NULL, "get");
        (void)pthread_barrier_wait(&end);
        CHECK(mw_limits_get(&now), "limits");
        check_counts("limit", now.limit_bytes, hard_of(round), round);
        check_counts("soft_limit", now.soft_bytes, soft_of(round), round);
    }
    over = true;
    for (size_t i = 0; i < BODIES; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0, "join");
    }
    struct mw_limits now = {.size_bytes = sizeof now};
    CHECK(mw_limits_get(&now) && !now.pressed, "no pressure is looked at");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_threads_set_options),
    };
    return suite_run(tests);
}
