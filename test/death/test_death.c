// SPDX-License-Identifier: MIT
// Death tests: every misuse of misuses.def at every size, in a process of its own under the preloaded
// library. A trap is SIGABRT after exactly one line on stderr that begins with "mallow: " and holds the
// words of the table. A crash inside the allocator is a failure everywhere, and so is any gain.
//
// Arguments: the victim program, the library to preload (or "-" to judge the C library by hand).
#include "../support/suite.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

enum { TEXT_MAX = 2000, REPORT_MAX = 6000, EXPLOITED = 42, RACE_ROUNDS = 20 };
enum outcome { TRAP, NO_GAIN };

static const char *victim_program;
static const char *library;
static const size_t sizes[] = {32, 200, 1500, 40000, 300000, 3000000};

struct death {
    int status;
    char text[TEXT_MAX];
};

static void run_victim(const char *misuse, size_t size, struct death *death)
{
    char size_text[32];
    char preload[4200];
    snprintf(size_text, sizeof size_text, "%zu", size);
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", library);
    char *const arguments[] = {(char *)victim_program, (char *)misuse, size_text, NULL};
    char *const environment[] = {strcmp(library, "-") == 0 ? (char *)"NOTHING=1" : preload, NULL};
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    pid_t child = 0;
    assert_int_equal(posix_spawn(&child, victim_program, &actions, NULL, arguments, environment), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    size_t length = 0;
    ssize_t got;
    while (length < TEXT_MAX - 1 && (got = read(ends[0], death->text + length, TEXT_MAX - 1 - length)) > 0) {
        length += (size_t)got;
    }
    death->text[length] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &death->status, 0), child);
}

// What is wrong with this end, or NULL.
static const char *complaint(const struct death *death, enum outcome expected, const char *words)
{
    if (WIFSIGNALED(death->status) && WTERMSIG(death->status) == SIGABRT) {
        if (strncmp(death->text, "mallow: ", 8) != 0) {
            return "the message does not begin with \"mallow: \"";
        }
        const char *const line_end = strchr(death->text, '\n');
        if (line_end == NULL || line_end[1] != '\0') {
            return "the message is not one line";
        }
        return strstr(death->text, words) != NULL ? NULL : "the message lacks the expected words";
    }
    if (WIFSIGNALED(death->status)) {
        return "crashed";
    }
    if (WEXITSTATUS(death->status) == EXPLOITED) {
        return "EXPLOITED";
    }
    if (WEXITSTATUS(death->status) == EXIT_SKIP) {
        return NULL; // there was nothing to misuse
    }
    if (WEXITSTATUS(death->status) != 0) {
        return "the victim itself failed";
    }
    return expected == TRAP ? "ran on" : NULL;
}

static void expect(const char *misuse, enum outcome expected, const char *words)
{
    char report[REPORT_MAX];
    size_t length = 0;
    const int rounds = strstr(misuse, "at_once") != NULL ? RACE_ROUNDS : 1;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        for (int round = 0; round < rounds; round++) {
            struct death death;
            run_victim(misuse, sizes[i], &death);
            const char *const wrong = complaint(&death, expected, words);
            if (wrong != NULL && length < REPORT_MAX - 400) {
                length += (size_t)snprintf(report + length, 300, "\n  size %zu: %s (status %#x) %.150s", sizes[i], wrong,
                                           (unsigned)death.status, death.text);
                break;
            }
        }
    }
    if (length > 0) {
        fail_msg("%s:%s", misuse, report);
    }
}

#define MISUSE(name, outcome, words)                                                               \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        expect(#name, outcome, words);                                                             \
    }
#include "misuses.def"
#undef MISUSE

// The oracle itself: without a misuse it must find nothing.
static void no_misuse_gains_nothing(void **state)
{
    (void)state;
    expect("none", NO_GAIN, "");
}

int main(int count, char **arguments)
{
    if (count != 3) {
        dprintf(2, "usage: test_death VICTIM LIBRARY\n");
        return 2;
    }
    victim_program = arguments[1];
    library = arguments[2];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_misuse_gains_nothing),
#define MISUSE(name, outcome, words) cmocka_unit_test(name),
#include "misuses.def"
#undef MISUSE
    };
    return suite_run(tests);
}
