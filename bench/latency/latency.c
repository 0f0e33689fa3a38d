// SPDX-License-Identifier: MIT
// Latency of malloc and free, from the median to the worst call, in the modes of mode_*.c.
//
// Method   docs/method/latency.md. The allocator is the one that is preloaded; one run says nothing
//          about another: `mallow-bench latency` runs all of them in turn and compares.
// Usage    latency [MODE...] [name=value...]: a MODE is a name, or what precedes its dash, "churn".
//          Without one: the gate, then every mode. `latency list` prints the names.
// Ends     with status 1 when the gate fails, a timed call fails, or a block loses its content.

#include "gate.h"
#include "output.h"

enum { MODES_MAX = 64 };

struct choice {
    char *words[MODES_MAX];
    size_t count;
};

static bool chosen(const struct choice *choice, const char *name) {
    for (size_t i = 0; i < choice->count; i++) {
        const size_t length = strlen(choice->words[i]);
        if (strncmp(choice->words[i], name, length) == 0 &&
            (name[length] == '\0' || name[length] == '-')) {
            return true;
        }
    }
    return choice->count == 0;
}

// Takes the words without '=' out of the arguments.
static int take_words(int argc, char **argv, struct choice *choice) {
    int left = 1;
    for (int i = 1; i < argc; i++) {
        if (strchr(argv[i], '=') != NULL || argv[i][0] == '-') {
            argv[left++] = argv[i];
        } else if (choice->count < MODES_MAX) {
            choice->words[choice->count++] = argv[i];
        }
    }
    return left;
}

static bool known(const char *word, const struct mode *modes, size_t count) {
    static const char *const others[] = {"gate", "startup", "memory", "list"};
    const struct choice alone = {.words = {(char *)(uintptr_t)word}, .count = 1};
    bool found = false;
    for (size_t i = 0; i < BENCH_COUNT(others); i++) {
        found |= strcmp(word, others[i]) == 0;
    }
    for (size_t i = 0; i < count; i++) {
        found |= chosen(&alone, modes[i].name);
    }
    return found;
}

static void print_list(const struct mode *modes, size_t count) {
    printf("gate\nstartup\nmemory\n");
    for (size_t i = 0; i < count; i++) {
        printf("%s\n", modes[i].name);
    }
}

static bool only(const struct choice *choice, const char *word) {
    return choice->count == 1 && strcmp(choice->words[0], word) == 0;
}

static void run_processes(const struct choice *choice, const struct settings *settings,
                          struct output *output) {
    static struct startup_result startup;
    for (uint64_t i = 0; chosen(choice, "startup") && i < settings->starts; i++) {
        process_startup(&startup);
        output_startup(output, &startup);
    }
    for (size_t i = 0; chosen(choice, "memory") && i < MODE_SIZE_COUNT; i++) {
        struct memory_result memory;
        process_memory(&memory, mode_sizes[i], settings->memory);
        output_memory(output, mode_sizes[i], &memory);
    }
}

struct conditions {
    uint64_t pin, fifo, json;
};

// Of nothing there are no figures, and what no program lives to see the end of is a mistake.
static void check_count(const char *name, uint64_t value, uint64_t least) {
    const uint64_t most = UINT64_C(1) << 48;
    if (value < least || value > most) {
        bench_fail("%s=%" PRIu64 ": wanted %" PRIu64 " to 2^48", name, value, least);
    }
}

static void read_options(int argc, char **argv, struct settings *settings,
                         struct conditions *conditions) {
    *settings = (struct settings){.hot = 300000, .single = 1000000, .churn = 4000000,
                                  .mixed = 4000000, .order = 65536, .pipeline = 2000000,
                                  .remote = 4000000, .threads = 2, .thread_steps = 2000000,
                                  .live = 262144, .memory = 64 * BENCH_MIB, .starts = 5};
    *conditions = (struct conditions){.pin = MACHINE_PIN_AUTO, .fifo = MACHINE_FIFO_AUTO};
    const struct bench_option table[] = {
        {"hot", &settings->hot, "blocks of 32 pairs at each size"},
        {"single", &settings->single, "pairs at each size, timed call by call (4 times at 64 B)"},
        {"churn", &settings->churn, "replacements at each size"},
        {"mixed", &settings->mixed, "replacements"},
        {"live", &settings->live, "blocks alive in churn and mixed"},
        {"order", &settings->order, "blocks taken and given back in each of the 100 windows"},
        {"pipeline", &settings->pipeline, "messages"},
        {"remote", &settings->remote, "blocks handed from one thread to the other"},
        {"threads", &settings->threads, "threads of the mode `threads`"},
        {"thread_steps", &settings->thread_steps, "replacements of each of these"},
        {"memory", &settings->memory, "bytes asked for at each size"},
        {"starts", &settings->starts, "processes started"},
        {"pin", &conditions->pin, "processor to run on (9999: choose one, 9998: any)"},
        {"fifo", &conditions->fifo, "SCHED_FIFO: 0 no, 1 yes, 2 on an isolated processor"},
        {"json", &conditions->json, "1: JSON lines"},
    };
    BENCH_OPTIONS(argc, argv, table);
    for (size_t i = 0; i < BENCH_COUNT(table) && table[i].value != &conditions->pin; i++) {
        const bool is_memory = table[i].value == &settings->memory; // a block at least
        if (table[i].value != &settings->threads) { // mode_list_threads looks at that
            check_count(table[i].name, *table[i].value,
                        is_memory ? mode_sizes[MODE_SIZE_COUNT - 1] : 1);
        }
    }
    if (conditions->fifo > MACHINE_FIFO_AUTO) {
        bench_fail("fifo=%" PRIu64 ": wanted 0, 1 or 2", conditions->fifo);
    }
}

static void run_modes(const struct choice *choice, const struct settings *settings,
                      const struct conditions *conditions, const struct mode *modes,
                      size_t count) {
    const uint64_t stolen = machine_stolen_ms();
    struct machine machine;
    machine_prepare(&machine, conditions->pin, (enum machine_fifo)conditions->fifo);
    struct output output = {.json = conditions->json != 0};
    timer_calibrate(&output.timer);
    output_begin(&output, &machine);
    for (size_t i = 0; i < count; i++) {
        if (chosen(choice, modes[i].name)) {
            const struct mode_result result = mode_run(&modes[i], &machine, &output.timer);
            output_mode(&output, &modes[i], &result);
        }
    }
    run_processes(choice, settings, &output);
    output_end(&output, machine_stolen_ms() - stolen);
}

int main(int argc, char **argv) {
    process_child_if_asked(argc, argv);
    // Standard output's buffer would else come from the allocator.
    static char buffer[1 << 16];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);

    struct choice choice = {.count = 0};
    struct settings settings;
    struct conditions conditions;
    argc = take_words(argc, argv, &choice);
    read_options(argc, argv, &settings, &conditions);
    static struct mode modes[MODES_MAX];
    const size_t count = mode_list(&settings, modes, MODES_MAX);
    for (size_t i = 0; i < choice.count; i++) {
        if (!known(choice.words[i], modes, count)) {
            bench_fail("no mode '%s'; see %s list", choice.words[i], argv[0]);
        }
    }
    if (only(&choice, "list")) {
        print_list(modes, count);
        return 0;
    }
    if (chosen(&choice, "gate") && !gate_pass(only(&choice, "gate"))) {
        return 1;
    }
    if (!only(&choice, "gate")) {
        run_modes(&choice, &settings, &conditions, modes, count);
    }
    return 0;
}
