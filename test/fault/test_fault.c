// SPDX-License-Identifier: MIT
// Every memory call of the system fails in turn: the nth once, for n = 1, 2, 3 ... until a run sees no
// fault; the nth and all later ones; and each by chance. What must hold is checked by the victim.
//
// Arguments: the statically linked victim (or "-"), the dynamic one, the library to preload (or "-").
// TEST_FAULT_STRIDE in the environment tries only every nth place (default 1); TEST_SEED gives the victims
// another load.
#include "inject.h"

#include "../support/suite.h"

#include <signal.h>
#include <sys/wait.h>

static char *static_victim;
static char *dynamic_victim;
static char *library;
static size_t stride = 1;
static uint64_t seed_base;
static size_t faults_injected;

static const struct {
    const char *name;
    unsigned calls;
    int errors[3];
} kinds[] = {
    {"mmap", FAULT_MMAP, {ENOMEM, EAGAIN, EPERM}},
    {"munmap", FAULT_MUNMAP, {ENOMEM, EINVAL, 0}},
    {"madvise", FAULT_MADVISE, {EINVAL, EAGAIN, ENOMEM}},
    {"mremap", FAULT_MREMAP, {ENOMEM, EFAULT, 0}},
    {"mprotect", FAULT_MPROTECT, {ENOMEM, EACCES, 0}},
};

static struct fault_result run(const struct fault_plan *plan, const char *what)
{
    char seed[32];
    char preload[4200];
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)(plan->seed + seed_base + 1));
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", library);
    char *const victim = plan->from_start ? static_victim : dynamic_victim;
    char *const arguments[] = {victim, seed, NULL};
    const bool preloads = !plan->from_start && strcmp(library, "-") != 0;
    char *const environment[] = {preloads ? preload : (char *)"NOTHING=1", NULL};
    struct fault_result result;
    if (!fault_run(plan, arguments, environment, &result)) {
        print_message("tracing is not permitted here\n");
        exit(EXIT_SKIP);
    }
    if (plan->mode != FAULT_ONCE && !result.main_reached) {
        return result; // the C library cannot start a static program without any memory: not ours to judge
    }
    if (!WIFEXITED(result.status) || WEXITSTATUS(result.status) != 0) {
        fail_msg("%s%s, mode %d, n = %zu, %s, victim seed %s: status %#x%s after %zu of %zu calls failed", what,
                 plan->from_start ? " from the start" : "", plan->mode, plan->nth, strerror(plan->error), seed,
                 (unsigned)result.status, result.status == SIGALRM ? " (hangs)" : "", result.calls_failed,
                 result.calls_seen);
    }
    faults_injected += result.calls_failed;
    return result;
}

static void each_call_fails_once(size_t kind, bool from_start)
{
    size_t places = 0;
    for (size_t e = 0; e < COUNT_OF(kinds[kind].errors) && kinds[kind].errors[e] != 0; e++) {
        struct fault_plan plan = {kinds[kind].calls, FAULT_ONCE, 1, kinds[kind].errors[e], e, from_start, false};
        // The later error values are tried at every seventh place.
        for (; run(&plan, kinds[kind].name).calls_failed > 0; plan.nth += e == 0 ? stride : 7 * stride) {
            places++;
        }
    }
    print_message("%s%s: %zu places\n", kinds[kind].name, from_start ? " from the start" : "", places);
}

static void calls_fail_forever(size_t kind, bool from_start)
{
    struct fault_plan plan = {kinds[kind].calls, FAULT_FOREVER, 1, kinds[kind].errors[0], 7, from_start, false};
    while (run(&plan, kinds[kind].name).calls_failed > 0) {
        plan.nth += 1 + plan.nth * stride / 2;
    }
}

static void each_call_fails_once_in_its_turn(void **state)
{
    (void)state;
    for (size_t kind = 0; kind < COUNT_OF(kinds); kind++) {
        each_call_fails_once(kind, false);
    }
}

static void each_call_fails_once_in_its_turn_from_the_first_instruction(void **state)
{
    (void)state;
    if (strcmp(static_victim, "-") == 0) {
        skip();
    }
    for (size_t kind = 0; kind < COUNT_OF(kinds); kind++) {
        each_call_fails_once(kind, true);
    }
}

static void calls_fail_for_ever_from_any_place(void **state)
{
    (void)state;
    for (size_t kind = 0; kind < COUNT_OF(kinds); kind++) {
        calls_fail_forever(kind, false);
        if (strcmp(static_victim, "-") != 0) {
            calls_fail_forever(kind, true);
        }
    }
}

static void all_kinds_fail_for_ever(void **state)
{
    (void)state;
    for (size_t nth = 1; nth < 60; nth += 1 + nth / 2) {
        const struct fault_plan plan = {FAULT_ANY, FAULT_FOREVER, nth, ENOMEM, nth, false, false};
        run(&plan, "all");
    }
}

static void calls_fail_by_chance(void **state)
{
    (void)state;
    static const size_t chances[] = {100, 10, 3};
    for (uint64_t seed = 0; seed < 90; seed += stride) {
        const bool from_start = seed % 2 == 1 && strcmp(static_victim, "-") != 0;
        const int error = seed % 3 == 0 ? EAGAIN : ENOMEM;
        const struct fault_plan plan = {FAULT_ANY, FAULT_RANDOM, chances[seed % COUNT_OF(chances)], error, seed,
                                        from_start, false};
        run(&plan, "any");
    }
    print_message("%zu faults injected in all\n", faults_injected);
}

int main(int count, char **arguments)
{
    if (count != 4) {
        dprintf(2, "usage: test_fault STATIC-VICTIM|- VICTIM LIBRARY|-\n");
        return 2;
    }
    static_victim = arguments[1];
    dynamic_victim = arguments[2];
    library = arguments[3];
    if (getenv("TEST_FAULT_STRIDE") != NULL) {
        stride = strtoull(getenv("TEST_FAULT_STRIDE"), NULL, 0);
    }
    if (getenv("TEST_SEED") != NULL) {
        seed_base = strtoull(getenv("TEST_SEED"), NULL, 0);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_fails_once_in_its_turn),
        cmocka_unit_test(each_call_fails_once_in_its_turn_from_the_first_instruction),
        cmocka_unit_test(calls_fail_for_ever_from_any_place),
        cmocka_unit_test(all_kinds_fail_for_ever),
        cmocka_unit_test(calls_fail_by_chance),
    };
    return suite_run(tests);
}
