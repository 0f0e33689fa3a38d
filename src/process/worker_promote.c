// SPDX-License-Identifier: MIT
// Worker, between looks: it gives back what calls owe, and makes huge pages. See worker.h.
//
// Holds    while the kernel makes a huge page, page faults and changes of mappings in other threads
//          wait. So none is made while the program does either (the last look and everything since
//          saw fewer than PROMOTE_FAULTS_MAX faults and PROMOTE_ENTRIES_MAX of mallow's own calls),
//          they are made one at a time, and PROMOTE_REST_SHARE times as long as one has taken
//          passes before the next: on a machine that is loaded, where one takes long, they are
//          rare. So the kernel is at it for at most 4 % of the time.
#include "process/worker.h"

#include "arena/arena_broad.h"
#include "arena/huge_faults.h"
#include "base/bits.h"
#include "os/os_huge.h"

enum {
    PROMOTE_FAULTS_MAX = 16,   // page faults in an interval
    PROMOTE_ENTRIES_MAX = 4,   // calls of mallow's to the kernel
    PROMOTE_GAP_US = 20000,    // between one huge page and the next, at least
    PROMOTE_REST_SHARE = 25,   // times as long as one has taken
    PROMOTE_REST_MAX_US = 2000000, // the worst is as good as over then
    WORKER_PAY_US = 10000,     // between looks at what is owed, while much is kept
    WORKER_BROAD_US = 2000,    // between looks at growth by large blocks, at least
};

MALLOW_INTERNAL bool worker_may_promote(struct worker *worker) {
    if (!atomic_load_explicit(&worker->promote_asked, memory_order_acquire)) {
        if (worker->promote.able && (os_huge_setting(worker->os) == OS_HUGE_NEVER ||
                                     os_limit(worker->os) != SIZE_MAX)) {
            promote_deny(&worker->promote);
        }
        atomic_store_explicit(&worker->promote_asked, true, memory_order_release);
    }
    return worker->promote.able;
}

MALLOW_INTERNAL bool worker_cannot_promote(const struct worker *worker) {
    return atomic_load_explicit(&worker->promote_asked, memory_order_acquire) &&
           !worker->promote.able;
}

MALLOW_INTERNAL void worker_look_for_faults(struct worker *worker) {
    if (worker->faults_huge && !worker->faults_asked) {
        // A room is charged whole where the kernel does not overcommit.
        worker->faults_huge = worker_may_promote(worker) && os_overcommits();
        worker->faults_asked = true;
    }
    if (worker->faults_huge) {
        huge_faults_look(worker->huges);
        arena_broad_tick(worker->arenas);
    }
}

// When to look again whether the program grows by large blocks: soon while it grows at all, as each
// stretch of address space on huge pages is used up in milliseconds; and else ever later.
static uint64_t worker_broaden_until(struct worker *worker, uint64_t now_us, uint64_t until_us) {
    if (!worker->faults_huge || !worker->faults_asked || huge_is_limited(worker->os)) {
        return until_us;
    }
    if (worker->broad_at_us <= now_us) {
        const uint64_t entries = os_entries(worker->os);
        const uint64_t later_us =
            arena_broad_look(worker->arenas) ? 0 : 2 * worker->broad_wait_us;
        worker->broad_wait_us =
            bits_min(bits_max(later_us, WORKER_BROAD_US), (uint64_t)MALLOW_TICK_MS * 1000);
        worker->broad_at_us = now_us + worker->broad_wait_us;
        worker->calm_entries += os_entries(worker->os) - entries;
    }
    return bits_min(until_us, worker->broad_at_us);
}

// What faults and calls there have been so far is the program's time before this look.
static void worker_mark(struct worker *worker) {
    worker->calm_faults = os_fault_count();
    worker->calm_entries = os_entries(worker->os);
}

static bool worker_is_calm(const struct worker *worker) {
    return os_entries(worker->os) - worker->calm_entries <= PROMOTE_ENTRIES_MAX &&
           os_fault_count() - worker->calm_faults <= PROMOTE_FAULTS_MAX;
}

MALLOW_INTERNAL bool worker_look_for_huge(struct worker *worker, uint64_t own_entries) {
    if (!worker_may_promote(worker)) {
        return false;
    }
    worker->calm_entries += own_entries;
    worker->calm = worker_is_calm(worker);
    (void)promote_look(&worker->promote);
    worker_mark(worker);
    return worker->promote.left;
}

// Makes one huge page, or finds that there is none to make or that it is not the time.
static void worker_make_huge(struct worker *worker) {
    if (!worker->calm || !worker_is_calm(worker)) {
        worker->calm = false; // until the next look
        return;
    }
    const uint64_t entries = os_entries(worker->os);
    const uint64_t faults = os_fault_count();
    const uint64_t start_us = worker_clock_us();
    (void)promote_one(&worker->promote);
    const uint64_t end_us = worker_clock_us();
    const uint64_t rest_us =
        bits_min((end_us - start_us) * PROMOTE_REST_SHARE, PROMOTE_REST_MAX_US);
    worker->promote_at_us = end_us + bits_max(rest_us, PROMOTE_GAP_US);
    worker->calm_entries += os_entries(worker->os) - entries;
    worker->calm_faults += os_fault_count() - faults;
}

MALLOW_INTERNAL void worker_pay(struct worker *worker) {
    huge_give_late(worker->huges);
    size_t huge_bytes = huge_take_debt(worker->huges);
    size_t arena_bytes = arena_take_debt(worker->arenas);
    (void)worker_purge_huge(worker, &huge_bytes);
    (void)worker_purge_slices(worker, &arena_bytes);
    if (unlikely(huge_bytes + arena_bytes != 0)) { // broken off: owed as before
        (void)huge_owe(worker->huges, huge_bytes);
        (void)arena_owe(worker->arenas, arena_bytes);
    }
}

// When to look again whether something is owed. While so much is kept that growth may make it so
// at any time, that is soon: a program that grows a huge block, and makes no slow call besides,
// touches it meanwhile.
static uint64_t worker_pay_until(struct worker *worker, uint64_t now_us, uint64_t until_us) {
    if (arena_kept(worker->arenas) + huge_kept(worker->huges) < MALLOW_WORK_BYTES) {
        return until_us;
    }
    const uint64_t entries = os_entries(worker->os);
    worker_pay(worker);
    worker->calm_entries += os_entries(worker->os) - entries;
    return bits_min(until_us, now_us + WORKER_PAY_US);
}

MALLOW_INTERNAL bool worker_rest(struct worker *worker, uint32_t bell) {
    uint64_t now_us = worker_clock_us();
    const uint64_t end_us = now_us + (uint64_t)MALLOW_TICK_MS * 1000;
    while (now_us != 0 && now_us < end_us && // 0: a filter refuses the time
           atomic_load_explicit(&worker->bell, memory_order_relaxed) == bell) {
        uint64_t until_us = end_us;
        if (worker->promote.left && worker->calm) {
            if (worker->promote_at_us <= now_us) {
                worker_make_huge(worker);
                now_us = worker_clock_us();
            }
            until_us = worker->promote.left && worker->calm
                           ? bits_min(end_us, worker->promote_at_us)
                           : end_us;
        }
        until_us = worker_pay_until(worker, now_us, until_us);
        until_us = worker_broaden_until(worker, now_us, until_us);
        if (until_us > now_us) {
            if (!os_wait(&worker->bell, bell, (until_us - now_us) * 1000)) {
                return false;
            }
            now_us = worker_clock_us();
        }
    }
    return true;
}
