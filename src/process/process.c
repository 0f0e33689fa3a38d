// SPDX-License-Identifier: MIT
// Process: see process.h.
#include "process/process.h"

#include <sys/auxv.h>
#include <unistd.h>

#include "arena/arena_broad.h"
#include "base/format.h"
#include "os/os_huge.h"
#include "os/os_thread.h"

// All state that is not a thread's. Zero is a valid beginning.
static struct process process_state;

extern char **environ;
// glibc's dynamic linker: the stack as the kernel left it, from the count of arguments on.
extern void *__libc_stack_end __attribute__((weak));

// libc sets `environ` in its constructor; who asks for memory before that (.preinit_array, an IFUNC
// resolver) has the same options, from behind the arguments on the stack.
static char **process_environment(void) {
    enum { ARGUMENTS_MAX = 1 << 24 };
    if (environ != NULL || &__libc_stack_end == NULL || __libc_stack_end == NULL) {
        return environ;
    }
    const uintptr_t *const words = __libc_stack_end;
    return words[0] <= ARGUMENTS_MAX && words[1 + words[0]] == 0 ? (char **)&words[2 + words[0]]
                                                                 : NULL;
}

static bool process_is_privileged(void) {
    return getauxval(AT_SECURE) != 0;
}

// Makes changed options take effect. The start lock is held.
static void process_apply_options(struct process *process) {
    const struct process_options *const options = &process->options;
    const size_t trim_slices =
        process->os.sealed
            ? SIZE_MAX
            : (size_t)(process_option(options, trim_threshold) >> MALLOW_SLICE_SHIFT);
    __atomic_store_n(&process->arenas.trim_slices, trim_slices, __ATOMIC_RELAXED);
    __atomic_store_n(&process->huges.cache.limit, process_option(options, huge_cache),
                     __ATOMIC_RELAXED);
    process_limit_apply(process, PROCESS_LIMIT_SILENT);
    process->worker.wanted = !process->os.sealed && process_option(options, background) != 0;
    promote_want(&process->worker.promote, process->worker.wanted);
    process->worker.lifts_trim =
        process_options_is_default(options, PROCESS_OPTION_trim_threshold) &&
        (options->given >> PROCESS_OPTION_trim_threshold & 1) == 0;
    worker_adjust_trim(&process->worker);
}

// Ends a change of options. `trims`: the limit of what is kept was set; one that cannot be reached
// means all of it. That is noted with the lock, so that it is of the same call as the option; the
// thread's end is waited for without.
static void process_end_options(struct process *process, bool trims) {
    const bool keeps =
        trims && process_option(&process->options, trim_threshold) == UINT64_MAX;
    if (trims) {
        worker_keep(&process->worker, keeps);
    }
    os_lock_drop(&process->start_lock);
    if (keeps) {
        worker_stop(&process->worker);
    }
}

MALLOW_INTERNAL int process_set_option(struct process *process, const char *name,
                                       const char *value, bool as_default) {
    os_lock_take(&process->start_lock);
    const int error = as_default ? process_options_set_default(&process->options, name, value)
                                 : process_options_set(&process->options, name, value);
    if (error == 0) {
        process_apply_options(process);
    }
    const char *const trim_name = process_options_row(PROCESS_OPTION_trim_threshold)->name;
    process_end_options(process, error == 0 && format_same_ignoring_case(name, trim_name));
    return error;
}

MALLOW_INTERNAL void process_set_trim_threshold(struct process *process, uint64_t bytes) {
    os_lock_take(&process->start_lock);
    process_option(&process->options, trim_threshold) = bytes;
    process->options.given |= UINT32_C(1) << PROCESS_OPTION_trim_threshold;
    process_apply_options(process);
    process_end_options(process, true);
}

// The largest block that has no mapping of its own.
static size_t process_fit_threshold(struct process_options *options) {
    const uint64_t wanted = process_option(options, huge_threshold);
    if (wanted < MALLOW_SLAB_BYTES_MAX || wanted > MALLOW_LARGE_BYTES_MAX) {
        process_options_complain(options, PROCESS_OPTION_huge_threshold,
                                 ": not from 64K to 1M; the default stays\n");
        process_option(options, huge_threshold) = MALLOW_LARGE_BYTES_MAX;
    }
    return process_option(options, huge_threshold);
}

static MALLOW_COLD void process_start_names(struct process *process) {
    const char *const line =
        "mallow: MALLOW_NAME_MAPPINGS=1: the kernel cannot name mappings (from Linux 5.17 on it "
        "can, with CONFIG_ANON_VMA_NAME), or a filter refuses it; it has no effect\n";
    if (!os_name_start(&process->os)) {
        (void)os_tell(2, line, __builtin_strlen(line));
    }
}

static void process_start_memory(struct process *process) {
    struct process_options *const options = &process->options;
    process_options_default(options);
    char **const environment = process_environment();
    if (environment != NULL && !process_is_privileged()) {
        process_options_read(options, environment);
    }
    os_init(&process->os);
    if (process_option(options, name_mappings) != 0) {
        process_start_names(process);
    }
    process->os.root = process_option_text(options, system_root);
    process_limit_apply(process, PROCESS_LIMIT_COMPLAINS); // before anything is held
    // Without the option the kernel's own policy holds; and where all is brought in at start, as
    // nobody waits for that.
    const bool huge = process_option(options, huge_pages) != 0 && !process_is_realtime(process) &&
                      os_huge_start(&process->os, os_kernel_version());
    process->os.polls_growth = huge;
    process->os.wants_giant = process_option(options, giant_pages) != 0;
    meta_init(&process->meta, &process->os);
    meta_lend(&process->meta, process->first_memory, sizeof process->first_memory);
    address_map_init(&process->map, &process->meta);
    arena_set_init(&process->arenas, &process->os, &process->meta, &process->map,
                   process_option(options, arena_reserve));
    if (process_option(&process->options, giant_pages) != 0) {
        process_start_giant(process);
    }
    huge_set_init(&process->huges, &process->os, &process->meta, &process->map,
                  process_option(options, huge_cache));
    thin_set_init(&process->thins, &process->arenas);
    promote_init(&process->worker.promote, &process->arenas, &process->huges,
                 huge);
    process->worker.faults_huge = huge && process_option(options, huge_faults) != 0;
    process->arenas.raise_step = process->worker.faults_huge ? ARENA_BROAD_RAISE_SLICES : 0;
    process->worker.os = &process->os;
    process->worker.arenas = &process->arenas;
    process->worker.huges = &process->huges;
    process->worker.holes.shared = &process->shared;
    process->shared.os = &process->os;
    process->shared.meta = &process->meta;
    process->shared.arenas = &process->arenas;
    process->shared.huges = &process->huges;
    process->shared.thins = &process->thins;
    process->shared.large_bytes_max = process_fit_threshold(options);
    heap_shared_init(&process->shared);
    process->sources = (struct observe_sources){&process->os, &process->meta, &process->arenas,
                                                &process->huges, &process->shared};
    process_apply_options(process);
    void *const break_now = sbrk(0);
    atomic_store_explicit(&process->os.break_at_start,
                          break_now == (void *)-1 ? UINTPTR_MAX : (uintptr_t)break_now,
                          memory_order_relaxed);
    process_start_realtime(process);
}

// The last round that a thread's destructors are called in is the time to hand the heap on; until
// then other destructors may still allocate. The value is not relied on: a program that mixes up
// its keys may have written another one.
static void process_thread_end(void *value) {
    struct heap *const mine = heap_current();
    if (heap_is_empty(mine)) {
        return;
    }
    if (heap_thread.ended == 0) {
        heap_thread.ended = 2; // once more, after the others' first round
        if (pthread_setspecific(process_state.key, value) == 0) {
            return;
        }
    }
    heap_switch(&heap_empty);
    heap_thread.ended = 1;
    heap_abandon(mine);
}

// Not key 0: that is what a program has in a variable whose key it has not made yet. To such a one
// libc is to say, as ever, that there is no key, and not to hand out our heap as its value.
static void process_start_threads(struct process *process) {
    process->key_valid = pthread_key_create(&process->key, process_thread_end) == 0;
    pthread_key_t next;
    if (process->key_valid && process->key == 0 &&
        pthread_key_create(&next, process_thread_end) == 0) {
        (void)pthread_key_delete(process->key);
        process->key = next;
    }
}

static MALLOW_COLD void process_raise(struct process *process) {
    bool begins = false;
    os_lock_take(&process->start_lock);
    uint32_t phase = atomic_load_explicit(&process->phase, memory_order_relaxed);
    if (phase == PROCESS_RAW) {
        process_start_memory(process);
        phase = PROCESS_MEMORY;
        atomic_store_explicit(&process->phase, phase, memory_order_release);
    }
    if (phase == PROCESS_MEMORY && environ != NULL) {
        // libc is initialised, and so is the thread's storage.
        process_start_threads(process);
        atomic_store_explicit(&process->phase, PROCESS_THREADS, memory_order_release);
        begins = true;
    }
    os_lock_drop(&process->start_lock);
    if (begins) { // without the lock: libc may allocate for it
        process_fork_register(process);
    }
}

MALLOW_INTERNAL struct process *process_if_ready(void) {
    struct process *const process = &process_state;
    return likely(atomic_load_explicit(&process->phase, memory_order_acquire) == PROCESS_THREADS)
               ? process
               : NULL;
}

MALLOW_INTERNAL const struct heap_shared *process_shared(void) {
    return &process_state.shared;
}

MALLOW_INTERNAL struct process *process_ready(void) {
    struct process *const process = &process_state;
    if (unlikely(process_if_ready() == NULL)) {
        process_raise(process);
    }
    return process;
}

// Before libc has begun a thread has no storage of its own to note it in.
MALLOW_INTERNAL MALLOW_COLD struct heap *process_enter_bare(struct process *process) {
    struct heap_shared *const shared = &process->shared;
    if (process_if_ready() != NULL) {
        if (atomic_load_explicit(&shared->bare, memory_order_relaxed) == NULL &&
            atomic_exchange_explicit(&process->bare_is_begun, 1, memory_order_relaxed) == 0) {
            heap_begin_bare(shared, &process->bare);
        }
        const struct heap *const bare = atomic_load_explicit(&shared->bare, memory_order_acquire);
        if (bare != NULL) {
            heap_switch(bare);
        }
    }
    return heap_current();
}

static struct heap *process_enter_fallback(struct process *process) {
    os_lock_take(&process->fallback_lock);
    struct heap *heap = atomic_load_explicit(&process->fallback, memory_order_relaxed);
    if (heap == NULL) {
        heap = heap_create_fallback(&process->shared);
        if (heap == NULL) {
            os_lock_drop(&process->fallback_lock);
            return NULL;
        }
        atomic_store_explicit(&process->fallback, heap, memory_order_relaxed);
    }
    // A thread that frees into it may be collecting just now; that is short.
    for (unsigned round = 0; !heap_claim(heap); round++) {
        os_pause(round);
    }
    return heap;
}

MALLOW_INTERNAL struct heap *process_enter(void) {
    struct heap *const heap = heap_current();
    if (!heap_is_empty(heap)) {
        return heap;
    }
    // process_enter_own says so as well, 22 instructions later (test/calls, adversary leavers).
    struct heap *const own = heap_thread.ended != 1 ? process_enter_own() : NULL;
    return own != NULL ? own : process_enter_fallback(process_ready());
}

static MALLOW_NOINLINE void process_note_thread(struct heap *heap) {
    atomic_store_explicit(&heap->thread_top, os_this_thread(), memory_order_relaxed);
    atomic_store_explicit(&heap->thread, os_thread_number(), memory_order_release);
}

MALLOW_INTERNAL MALLOW_NOINLINE struct heap *process_enter_own(void) {
    struct process *const process = process_ready();
    if (atomic_load_explicit(&process->phase, memory_order_relaxed) != PROCESS_THREADS ||
        heap_thread.ended == 1) {
        return NULL;
    }
    struct heap *const heap = heap_adopt_or_create(&process->shared);
    if (heap == NULL) {
        return NULL;
    }
    // Not for the first one: a program with one thread need not touch what this takes.
    if (atomic_load_explicit(&process->shared.heap_count, memory_order_relaxed) > 1) {
        process_note_thread(heap);
    }
    heap->attention =
        atomic_load_explicit(&process->os.charge.events, memory_order_relaxed) != 0;
    // The heap first: setting a key beyond the first block of them allocates.
    heap_switch(heap);
    if (process->key_valid) {
        (void)pthread_setspecific(process->key, heap);
    }
    return heap;
}

MALLOW_INTERNAL void process_leave(struct heap *heap) {
    struct process *const process = &process_state;
    if (heap != NULL && heap == atomic_load_explicit(&process->fallback, memory_order_relaxed)) {
        // A call that has done something leaves what is posted to the next.
        int work = heap_call_work();
        heap_unclaim(heap, &work);
        os_lock_drop(&process->fallback_lock);
    }
}

MALLOW_INTERNAL size_t process_collect(bool force) {
    struct process *const process = process_ready();
    struct heap *const heap = process_enter();
    if (process->os.sealed) { // nothing is to be given back, and no lock to be taken
        if (heap != NULL) {
            while (heap_drain(heap, MALLOW_DRAIN_BUDGET, true) > 0) {
            }
            process_leave(heap);
        }
        return 0;
    }
    if (heap != NULL) {
        while (heap_drain(heap, MALLOW_DRAIN_BUDGET, true) > 0) {
        }
        if (force) {
            heap_release_spare(heap);
        }
        process_leave(heap);
    }
    // The heap of threads that have ended is visited as any other is: a fork that waits for who
    // holds it has the lock that this waits for.
    size_t released = heap_holes_collect(&process->worker.holes, heap_current(),
                                         worker_looks_by(&process->worker), NULL);
    (void)thin_idle_look(&process->thins, true);
    released += thin_idle_purge(&process->thins, UINT32_MAX);
    return released + huge_purge_all(&process->huges) + arena_purge_all(&process->arenas);
}

MALLOW_INTERNAL MALLOW_COLD bool process_polls_late(struct process *process) {
    return huge_owed(&process->huges) >= HUGE_LATE_BYTES_MAX || worker_is_overdue(&process->worker);
}
