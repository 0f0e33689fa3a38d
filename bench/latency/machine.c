// SPDX-License-Identifier: MIT
// What /sys and /proc say about the processors, and where our threads run. Nothing here allocates.

#include "machine.h"

#define FIFO_PRIORITY 10

static void read_line(const char *path, char *text, size_t size) {
    if (bench_read_file(path, text, size) <= 0) {
        text[0] = '\0';
    }
    text[strcspn(text, "\n")] = '\0';
}

bool machine_parse_list(const char *text, cpu_set_t *set) {
    CPU_ZERO(set);
    while (*text != '\0') {
        char *end = NULL;
        const long first = strtol(text, &end, 10);
        if (end == text) {
            return false;
        }
        long last = first;
        if (*end == '-') {
            text = end + 1;
            last = strtol(text, &end, 10);
            if (end == text) {
                return false;
            }
        }
        if (first < 0 || last < first || last >= CPU_SETSIZE || (*end != ',' && *end != '\0')) {
            return false;
        }
        for (long processor = first; processor <= last; processor++) {
            CPU_SET((size_t)processor, set);
        }
        text = *end == ',' ? end + 1 : end;
    }
    return true;
}

static bool pin_to(int processor) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)processor, &set);
    return sched_setaffinity(0, sizeof set, &set) == 0;
}

static void fill_processors(struct machine *machine, const cpu_set_t *set) {
    machine->processor_count = 0;
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET((size_t)i, set)) {
            machine->processors[machine->processor_count++] = i;
        }
    }
}

// The isolated processors if we may use them, else those that we may use. The kernel takes isolated
// ones out of the set that a process begins with; they are had by asking for them.
static void choose_processors(struct machine *machine) {
    cpu_set_t allowed, isolated;
    CPU_ZERO(&allowed);
    sched_getaffinity(0, sizeof allowed, &allowed);
    if (machine_parse_list(machine->isolated, &isolated) && CPU_COUNT(&isolated) > 0 &&
        sched_setaffinity(0, sizeof isolated, &isolated) == 0) {
        sched_getaffinity(0, sizeof isolated, &isolated);
        sched_setaffinity(0, sizeof allowed, &allowed);
        machine->on_isolated = true;
        fill_processors(machine, &isolated);
        return;
    }
    fill_processors(machine, &allowed);
}

static void ask_for_fifo(struct machine *machine, enum machine_fifo fifo) {
    if (fifo == MACHINE_FIFO_OFF || (fifo == MACHINE_FIFO_AUTO && !machine->on_isolated)) {
        return;
    }
    const struct sched_param parameters = {.sched_priority = FIFO_PRIORITY};
    machine->fifo = sched_setscheduler(0, SCHED_FIFO, &parameters) == 0;
}

static bool is_isolated(const struct machine *machine, int processor) {
    cpu_set_t isolated;
    return machine_parse_list(machine->isolated, &isolated) &&
           CPU_ISSET((size_t)processor, &isolated);
}

void machine_prepare(struct machine *machine, uint64_t pin, enum machine_fifo fifo) {
    *machine = (struct machine){.rt_runtime_us = -1, .pinned = -1};
    char text[64];
    read_line("/sys/devices/system/cpu/isolated", machine->isolated, sizeof machine->isolated);
    read_line("/sys/devices/system/cpu/nohz_full", machine->nohz_full, sizeof machine->nohz_full);
    read_line("/sys/devices/system/clocksource/clocksource0/current_clocksource",
              machine->clocksource, sizeof machine->clocksource);
    read_line("/proc/sys/kernel/sched_rt_runtime_us", text, sizeof text);
    machine->rt_runtime_us = text[0] == '\0' ? -1 : strtol(text, NULL, 10);
    read_line("/proc/loadavg", text, sizeof text);
    machine->load = strtod(text, NULL);
    if (strchr(machine->nohz_full, '(') != NULL) { // "(null)": none
        machine->nohz_full[0] = '\0';
    }
    choose_processors(machine);
    if (pin == MACHINE_PIN_AUTO && machine->processor_count > 0) {
        // Not the first: most interrupts are served there.
        pin = (uint64_t)machine->processors[machine->processor_count - 1];
    }
    if (pin < CPU_SETSIZE && pin_to((int)pin)) {
        machine->pinned = (int)pin;
    } else if (pin != MACHINE_PIN_AUTO && pin != MACHINE_PIN_NONE) {
        bench_fail("pin=%" PRIu64 ": this processor may not be used", pin);
    }
    machine->on_isolated = machine->pinned >= 0 && is_isolated(machine, machine->pinned);
    ask_for_fifo(machine, fifo);
}

void machine_pin_thread(const struct machine *machine, size_t index, size_t count) {
    if (machine->pinned < 0) {
        return;
    }
    if (count <= machine->processor_count) {
        pin_to(machine->processors[machine->processor_count - 1 - index]);
        return;
    }
    cpu_set_t all;
    CPU_ZERO(&all);
    for (size_t i = 0; i < machine->processor_count; i++) {
        CPU_SET((size_t)machine->processors[i], &all);
    }
    sched_setaffinity(0, sizeof all, &all);
}

uint64_t machine_stolen_ms(void) {
    char text[512];
    read_line("/proc/stat", text, sizeof text);
    const char *at = strncmp(text, "cpu ", 4) == 0 ? text + 4 : "";
    uint64_t value = 0;
    for (int column = 0; column < 8 && *at != '\0'; column++) {
        char *end = NULL;
        value = strtoull(at, &end, 10);
        at = end;
    }
    return value * 1000 / (uint64_t)sysconf(_SC_CLK_TCK);
}
