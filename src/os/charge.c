// SPDX-License-Identifier: MIT
// Charge: see charge.h.
#include "os/charge.h"

#include "base/bits.h"
#include "base/compiler.h"
#include "os/os.h"

#define CHARGE_RESERVE_SHARE 32U
#define CHARGE_RESERVE_MIN ((uint64_t)256 << 10)
#define CHARGE_RESERVE_MAX ((uint64_t)4 << 20)
#define CHARGE_SHED_SHARE 32U
#define CHARGE_SHED_MIN ((uint64_t)1 << 20)

static uint64_t charge_load(const _Atomic(uint64_t) *value) {
    return atomic_load_explicit(value, memory_order_relaxed);
}

static void charge_store(_Atomic(uint64_t) *value, uint64_t bytes) {
    atomic_store_explicit(value, bytes, memory_order_relaxed);
}

MALLOW_INTERNAL void os_charge_init(struct os *os) {
    charge_store(&os->charge.held_bytes, 0);
    os_charge_set(os, UINT64_MAX, UINT64_MAX);
}

MALLOW_INTERNAL uint64_t os_charge_reserve(uint64_t hard_bytes) {
    const uint64_t share = hard_bytes / CHARGE_RESERVE_SHARE;
    return share < CHARGE_RESERVE_MIN   ? CHARGE_RESERVE_MIN
           : share > CHARGE_RESERVE_MAX ? CHARGE_RESERVE_MAX
                                        : share;
}

static void charge_set(struct os_charge *charge, uint64_t hard_bytes, uint64_t soft_bytes,
                       uint64_t reserve) {
    const uint64_t normal_bytes = hard_bytes > reserve ? hard_bytes - reserve : 0;
    soft_bytes = soft_bytes < normal_bytes ? soft_bytes : normal_bytes;
    charge_store(&charge->soft_bytes, soft_bytes);
    charge_store(&charge->caps[OS_CHARGE_SOFT], soft_bytes);
    charge_store(&charge->caps[OS_CHARGE_HARD], normal_bytes);
    charge_store(&charge->caps[OS_CHARGE_SPARE], normal_bytes + reserve / 2);
    charge_store(&charge->caps[OS_CHARGE_RESERVE], hard_bytes);
    charge_store(&charge->shed_mark, 0);
    atomic_store_explicit(&charge->limited, soft_bytes != UINT64_MAX, memory_order_relaxed);
}

MALLOW_INTERNAL void os_charge_set(struct os *os, uint64_t hard_bytes, uint64_t soft_bytes) {
    const uint64_t reserve = hard_bytes != UINT64_MAX ? os_charge_reserve(hard_bytes) : 0;
    charge_set(&os->charge, hard_bytes, soft_bytes, reserve);
}

MALLOW_INTERNAL void os_allowance_set(struct os_charge *allowance, uint64_t hard_bytes,
                                      uint64_t soft_bytes) {
    charge_set(allowance, hard_bytes, soft_bytes, 0);
}

MALLOW_INTERNAL void os_charge_press(struct os *os, bool pressed) {
    struct os_charge *const charge = &os->charge;
    charge_store(&charge->caps[OS_CHARGE_SOFT], pressed ? 0 : charge_load(&charge->soft_bytes));
}

static void charge_raise(struct os_charge *charge, uint32_t event) {
    (void)atomic_fetch_or_explicit(&charge->events, event, memory_order_relaxed);
}

// Above the soft limit the program is asked to shed at once, and again each time that what is held
// has grown by a part of the limit.
static MALLOW_NOINLINE void charge_mark(struct os_charge *charge, enum os_charge_level level,
                                        uint64_t held) {
    uint64_t mark = charge_load(&charge->shed_mark);
    if (level == OS_CHARGE_SOFT) {
        charge_store(&charge->shed_mark, 0);
        return;
    }
    const uint64_t soft_bytes = charge_load(&charge->soft_bytes);
    if (held <= soft_bytes || held < mark) {
        return;
    }
    const uint64_t step = soft_bytes / CHARGE_SHED_SHARE;
    if (atomic_compare_exchange_strong_explicit(
            &charge->shed_mark, &mark, held + (step > CHARGE_SHED_MIN ? step : CHARGE_SHED_MIN),
            memory_order_relaxed, memory_order_relaxed)) {
        charge_raise(charge, OS_CHARGE_SHED_DUE);
    }
}

static void charge_watch(struct os_charge *charge, size_t bytes) {
    const uint64_t poll_bytes = charge_load(&charge->poll_bytes);
    if (poll_bytes != 0 &&
        atomic_fetch_add_explicit(&charge->grown_bytes, bytes, memory_order_relaxed) + bytes >=
            poll_bytes) {
        charge_raise(charge, OS_CHARGE_POLL_DUE);
    }
}

MALLOW_INLINE bool charge_take(struct os_charge *charge, enum os_charge_level level,
                               size_t bytes) {
    const uint64_t cap = charge_load(&charge->caps[level]);
    uint64_t held = charge_load(&charge->held_bytes);
    if (bytes == 0) {
        return true;
    }
    do {
        if (unlikely(bytes > cap || held > cap - bytes)) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&charge->held_bytes, &held, held + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    if (unlikely(level != OS_CHARGE_SOFT) || unlikely(charge_load(&charge->shed_mark) != 0)) {
        charge_mark(charge, level, held + bytes);
    }
    charge_watch(charge, bytes);
    return true;
}

MALLOW_INTERNAL bool os_charge_take(struct os *os, enum os_charge_level level, size_t bytes) {
    return charge_take(&os->charge, level, bytes);
}

MALLOW_INTERNAL bool os_allowance_take(struct os_charge *allowance, enum os_charge_level level,
                                       size_t bytes) {
    const bool taken = charge_take(allowance, level, bytes);
    if (!taken && level == OS_CHARGE_HARD) {
        atomic_fetch_add_explicit(&allowance->refused_count, 1, memory_order_relaxed);
    }
    return taken;
}

MALLOW_INTERNAL void os_allowance_release(struct os_charge *allowance, size_t bytes) {
    atomic_fetch_sub_explicit(&allowance->held_bytes, bytes, memory_order_relaxed);
}

MALLOW_INTERNAL void os_charge_add(struct os *os, size_t bytes) {
    atomic_fetch_add_explicit(&os->charge.held_bytes, bytes, memory_order_relaxed);
}

MALLOW_INTERNAL void os_charge_release(struct os *os, size_t bytes) {
    atomic_fetch_sub_explicit(&os->charge.held_bytes, bytes, memory_order_relaxed);
}

MALLOW_INTERNAL size_t os_charge_room(const struct os *os, size_t own) {
    const uint64_t cap = charge_load(&os->charge.caps[OS_CHARGE_SOFT]);
    const uint64_t held = charge_load(&os->charge.held_bytes);
    const uint64_t others = held > own ? held - own : 0;
    const uint64_t room = cap > others ? cap - others : 0;
    return room < SIZE_MAX / 4 ? (size_t)room : SIZE_MAX / 4;
}

MALLOW_INTERNAL bool os_charge_is_short(const struct os *os, size_t bytes) {
    const uint64_t cap = charge_load(&os->charge.caps[OS_CHARGE_SOFT]);
    return bytes > cap || charge_load(&os->charge.held_bytes) > cap - bytes;
}

MALLOW_INTERNAL bool os_charge_can_fit(const struct os *os, size_t bytes) {
    return bytes <= charge_load(&os->charge.caps[OS_CHARGE_RESERVE]);
}

MALLOW_INTERNAL void os_charge_note_refusal(struct os *os) {
    if (atomic_load_explicit(&os->charge.limited, memory_order_relaxed) != 0) {
        atomic_fetch_add_explicit(&os->charge.refused_count, 1, memory_order_relaxed);
    }
}
