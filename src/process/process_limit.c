// SPDX-License-Identifier: MIT
// Limits: see process_limit.h.
#include "process/process_limit.h"

#include <time.h>

#include "base/format.h"
#include "process/process.h"

// Pressure is looked at when so much has been taken, and not more often than this.
#define LIMIT_POLL_BYTES ((uint64_t)1 << 20)
#define LIMIT_POLL_US 100000U
// What one look at high pressure gives back at most.
#define LIMIT_PRESSED_BYTES ((size_t)64 << 20)

// ---- From options to bytes ----------------------------------------------------------------------

static void limit_complain(const char *what, const char *name, uint64_t value, const char *why) {
    char line[300];
    struct format out;
    format_init(&out, line, sizeof line);
    format_text(&out, what);
    format_text(&out, name);
    format_text(&out, "=");
    if ((value & PROCESS_OPTION_SHARE) != 0) {
        format_unsigned(&out, value & ~PROCESS_OPTION_SHARE);
        format_text(&out, "%");
    } else {
        format_size(&out, value);
    }
    format_text(&out, why);
    os_tell(2, line, format_length(&out));
}

static bool limit_is_share(uint64_t value) {
    return (value & PROCESS_OPTION_SHARE) != 0;
}

// The bytes that a LIMIT stands for; UINT64_MAX: none.
static uint64_t limit_resolve(const struct process_limit *limit, uint64_t value) {
    if (!limit_is_share(value)) {
        return value != 0 ? value : UINT64_MAX;
    }
    if (limit->base_bytes == UINT64_MAX) {
        return UINT64_MAX;
    }
    const uint64_t percent = value & ~PROCESS_OPTION_SHARE;
    const uint64_t bytes =
        limit->base_bytes / 100 * percent + limit->base_bytes % 100 * percent / 100;
    return bits_max(bytes, PROCESS_OPTION_LIMIT_MIN);
}

// Reads what shares are of, and where the pressure is to be read. A limit that is not set anew
// (`as_before`) stays what it is; one that is does not fall away with the files, where the program
// has another root by now, or no descriptor left.
static MALLOW_COLD void limit_read_system(struct process *process, bool shares, bool as_before) {
    struct process_limit *const limit = &process->limit;
    const char *const root = process->os.root;
    const uint64_t before = limit->hard_bytes != 0 ? limit->base_bytes : UINT64_MAX;
    struct os_cgroup group;
    os_cgroup_read(root, &group);
    const uint64_t machine = os_machine_memory(root);
    limit->base_bytes = bits_min(group.limit_bytes, machine != 0 ? machine : UINT64_MAX);
    limit->unsure = group.outside && group.limit_bytes == UINT64_MAX;
    if (shares && before != UINT64_MAX && (as_before || limit->base_bytes == UINT64_MAX)) {
        limit->base_bytes = before;
    }
    __builtin_memcpy(limit->pressure_path, group.pressure_path, sizeof limit->pressure_path);
}

static MALLOW_COLD void limit_say_shares(const struct process_limit *limit, uint64_t hard,
                                         uint64_t soft) {
    static const char unreadable[] =
        ": no cgroup's limit, nor the machine's memory, can be read; there is no such limit\n";
    static const char outside[] =
        ": the process's cgroup is outside of what is mounted (cgroupfs is to be mounted anew in a "
        "cgroup namespace); of the machine's memory\n";
    const char *const why = limit->base_bytes == UINT64_MAX ? unreadable
                            : limit->unsure                 ? outside
                                                            : NULL;
    if (limit_is_share(hard) && why != NULL) {
        limit_complain("mallow: ", "MALLOW_LIMIT", hard, why);
    }
    if (limit_is_share(soft) && why != NULL) {
        limit_complain("mallow: ", "MALLOW_SOFT_LIMIT", soft, why);
    }
}

static void limit_say(const struct process *process, uint64_t hard, uint64_t soft) {
    const struct process_limit *const limit = &process->limit;
    if (limit_is_share(hard) || limit_is_share(soft)) {
        limit_say_shares(limit, hard, soft);
    }
    if (limit->soft_bytes != UINT64_MAX && limit->soft_bytes >= limit->hard_bytes) {
        limit_complain("mallow: ", "MALLOW_SOFT_LIMIT", soft,
                       ": not below MALLOW_LIMIT; it has no effect\n");
    }
    if (process_option(&process->options, pressure) != 0 && limit->pressure_path[0] == '\0') {
        limit_complain("mallow: ", "MALLOW_PRESSURE", limit->percent_option | PROCESS_OPTION_SHARE,
                       ": neither the cgroup's memory.pressure nor /proc/pressure/memory can be "
                       "read; it has no effect\n");
    }
}

MALLOW_INTERNAL void process_limit_apply(struct process *process, enum process_limit_voice voice) {
    struct process_limit *const limit = &process->limit;
    const uint64_t hard = process_option(&process->options, limit);
    const uint64_t soft = process_option(&process->options, soft_limit);
    const uint64_t percent = process_option(&process->options, pressure);
    if (limit->hard_bytes != 0 && hard == limit->hard_option && soft == limit->soft_option &&
        percent == limit->percent_option) {
        return;
    }
    const bool shares = limit_is_share(hard) || limit_is_share(soft);
    if (shares || percent != 0) {
        limit_read_system(process, shares,
                          hard == limit->hard_option && soft == limit->soft_option);
    } else {
        limit->base_bytes = UINT64_MAX;
    }
    limit->hard_option = hard;
    limit->soft_option = soft;
    limit->percent_option = percent;
    __atomic_store_n(&limit->hard_bytes, limit_resolve(limit, hard), __ATOMIC_RELAXED);
    __atomic_store_n(&limit->soft_bytes, limit_resolve(limit, soft), __ATOMIC_RELAXED);
    atomic_store_explicit(&limit->pressed, 0, memory_order_relaxed);
    os_charge_set(&process->os, limit->hard_bytes, limit->soft_bytes);
    const bool polls = percent != 0 && limit->pressure_path[0] != '\0';
    atomic_store_explicit(&process->os.charge.poll_bytes, polls ? LIMIT_POLL_BYTES : 0,
                          memory_order_relaxed);
    if (voice == PROCESS_LIMIT_COMPLAINS) {
        limit_say(process, hard, soft);
    }
}

static void limit_format(struct format *out, const char *name, uint64_t bytes) {
    format_text(out, name);
    if (bytes == UINT64_MAX) {
        format_text(out, "none");
    } else {
        format_unsigned(out, bytes);
    }
}

MALLOW_INTERNAL void process_limit_print(const struct process *process, int fd) {
    const struct process_limit *const limit = &process->limit;
    if (limit->hard_bytes == UINT64_MAX && limit->soft_bytes == UINT64_MAX &&
        limit->percent_option == 0) {
        return;
    }
    char line[300 + OS_PATH_BYTES];
    struct format out;
    format_init(&out, line, sizeof line);
    limit_format(&out, "mallow: limits in bytes: hard ", limit->hard_bytes);
    limit_format(&out, ", soft ", limit->soft_bytes);
    limit_format(&out, "; shares are of ", limit->base_bytes);
    if (limit->percent_option != 0 && limit->pressure_path[0] != '\0') {
        format_text(&out, "; pressure from ");
        format_text(&out, limit->pressure_path);
    }
    format_text(&out, "\n");
    os_tell(fd, line, format_length(&out));
}

// ---- Pressure -----------------------------------------------------------------------------------

static uint64_t limit_now_us(void) {
    struct timespec now = {0, 0};
    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void limit_pressed(struct process *process) {
    (void)heap_relieve(&process->shared, LIMIT_PRESSED_BYTES);
    (void)process_shed_run(&process->shed, MALLOW_SHED_PRESSURE, 0,
                           atomic_load_explicit(&process->os.charge.held_bytes,
                                                memory_order_relaxed));
}

static void limit_press(struct process *process, bool is) {
    if (is != (atomic_load_explicit(&process->limit.pressed, memory_order_relaxed) != 0)) {
        atomic_store_explicit(&process->limit.pressed, is, memory_order_relaxed);
        os_charge_press(&process->os, is);
    }
}

// Compares the time that tasks waited since the last look with the time that has passed. The start
// lock is held: no option changes meanwhile.
static bool limit_look(struct process *process, uint64_t before, uint64_t now) {
    struct process_limit *const limit = &process->limit;
    uint64_t stalled_us;
    if (limit->percent_option == 0) {
        return false;
    }
    if (!os_pressure_read(limit->pressure_path, &stalled_us)) {
        // The group is gone, the root is another one, or there is no descriptor to be had: nothing
        // says that there is pressure, and what is read next is of a longer time.
        limit->stalled_us = UINT64_MAX;
        limit_press(process, false);
        return false;
    }
    const uint64_t stalled_before = limit->stalled_us;
    limit->stalled_us = stalled_us;
    if (before == 0 || stalled_us < stalled_before) {
        return false; // nothing to compare with
    }
    const uint64_t percent = (stalled_us - stalled_before) * 100 / (now - before);
    const bool was = atomic_load_explicit(&limit->pressed, memory_order_relaxed) != 0;
    // Once pressed, until it is half as high.
    const bool is = percent >= limit->percent_option ||
                    (was && 2 * percent >= limit->percent_option);
    limit_press(process, is);
    return is;
}

static void limit_poll(struct process *process) {
    struct process_limit *const limit = &process->limit;
    const uint64_t now = limit_now_us();
    uint64_t before = atomic_load_explicit(&limit->polled_us, memory_order_relaxed);
    atomic_store_explicit(&process->os.charge.grown_bytes, 0, memory_order_relaxed);
    if (now - before < LIMIT_POLL_US ||
        !atomic_compare_exchange_strong_explicit(&limit->polled_us, &before, now,
                                                 memory_order_acq_rel, memory_order_relaxed)) {
        return;
    }
    os_lock_take(&process->start_lock);
    const bool is = limit_look(process, before, now);
    os_lock_drop(&process->start_lock);
    if (is) {
        limit_pressed(process);
    }
}

// ---- What is due --------------------------------------------------------------------------------

MALLOW_INTERNAL bool process_attend(struct process *process) {
    struct os_charge *const charge = &process->os.charge;
    const uint32_t events =
        atomic_fetch_and_explicit(&charge->events, OS_CHARGE_BEAT, memory_order_relaxed);
    if ((events & OS_CHARGE_POLL_DUE) != 0) {
        limit_poll(process);
    }
    if ((events & OS_CHARGE_SHED_DUE) != 0) {
        const uint64_t held = atomic_load_explicit(&charge->held_bytes, memory_order_relaxed);
        const uint64_t soft = atomic_load_explicit(&charge->soft_bytes, memory_order_relaxed);
        if (held > soft) { // or somebody has freed enough meanwhile
            (void)process_shed_run(&process->shed, MALLOW_SHED_SOFT_LIMIT, held - soft, held);
        }
    }
    if ((events & OS_CHARGE_BEAT) != 0) {
        (void)process_beat_run(process, false);
    }
    return (events & OS_CHARGE_BEAT) != 0;
}

MALLOW_INTERNAL bool process_shed_for(struct process *process, size_t wanted_bytes) {
    const uint64_t held =
        atomic_load_explicit(&process->os.charge.held_bytes, memory_order_relaxed);
    // No room can be made for more than the limit; where there is none, or the kernel's alone, for
    // more than all that is held.
    if (atomic_load_explicit(&process->os.charge.caps[OS_CHARGE_HARD], memory_order_relaxed) ==
                UINT64_MAX
            ? wanted_bytes > held
            : !os_charge_can_fit(&process->os, wanted_bytes)) {
        return false;
    }
    const bool beaten = process_beat_run(process, true);
    return process_shed_run(&process->shed, MALLOW_SHED_REFUSED, wanted_bytes, held) || beaten;
}
