// SPDX-License-Identifier: MIT
// Realtime: all memory at start, nothing of the kernel afterwards.
//
// Holds    once `sealed`, no call asks the kernel for memory or gives it back: what is committed,
//          brought in and locked here is all there is, and a request that it cannot serve fails.
#include "base/format.h"
#include "os/os_pages.h"
#include "process/process.h"

// Heaps of threads, and what else has no place in the arena: some 800 threads' worth.
enum { REALTIME_META_BYTES = 3 << 19 };

static void realtime_complain(const char *what, uint64_t bytes) {
    char line[200];
    struct format out;
    format_init(&out, line, sizeof line);
    format_text(&out, "mallow: realtime: ");
    format_text(&out, what);
    format_text(&out, " MALLOW_REALTIME_RESERVE=");
    format_size(&out, bytes);
    format_text(&out, "\n");
    os_tell(2, line, format_length(&out));
}

static void realtime_complain_of_free(uint64_t free_bytes, uint64_t wanted) {
    char what[100];
    struct format out;
    format_init(&out, what, sizeof what);
    format_text(&out, "only ");
    format_bytes(&out, free_bytes);
    format_text(&out, " of memory is free, and half of that brought in, of");
    realtime_complain(what, wanted);
}

MALLOW_INTERNAL bool process_is_realtime(const struct process *process) {
    return format_same_ignoring_case(process_option_text(&process->options, mode), "realtime");
}

// What of the reserve a hard limit leaves room for, beside what is held, threads' heaps and tables.
static uint64_t realtime_fit(const struct process *process, uint64_t wanted) {
    const uint64_t hard = process->limit.hard_bytes;
    const uint64_t beside =
        atomic_load_explicit(&process->os.charge.held_bytes, memory_order_relaxed) +
        REALTIME_META_BYTES + os_charge_reserve(hard) + bits_min(wanted, hard) / 64;
    return hard == UINT64_MAX ? wanted : bits_min(wanted, hard > beside ? hard - beside : 0);
}

// Apart, since programs in other modes do without its code.
static MALLOW_NOINLINE void realtime_take(struct process *process) {
    const uint64_t wanted = process_option(&process->options, realtime_reserve);
    const uint64_t fits = realtime_fit(process, wanted);
    const uint64_t free_bytes = os_free_bytes(process->os.root);
    // Who asks for more than fits is wrong about the machine, and is not to have nearly all of it:
    // half is left.
    const bool is_free = os_fits(fits, free_bytes);
    bool locked = true;
    const size_t got = arena_set_fix(&process->arenas, is_free ? fits : free_bytes / 2,
                                     &process->reserve, &locked);
    const bool meta = meta_fix(&process->meta, REALTIME_META_BYTES, &locked);
    const bool state = os_bring_in((uintptr_t)process, sizeof *process, &locked);
    os_bring_in_image(&locked);
    if (process->reserve.chunk_count == 0) {
        realtime_complain("every request for a block will fail:", wanted);
    } else if (!is_free) {
        realtime_complain_of_free(free_bytes, wanted);
    } else if (got < wanted || !meta || !state) {
        realtime_complain("not all could be reserved and brought in of", wanted);
    } else if (!locked) {
        realtime_complain("brought in, but not locked (see RLIMIT_MEMLOCK):", wanted);
    }
    process->shared.reserve = process->reserve.chunk_count != 0 ? &process->reserve : NULL;
    process->arenas.trim_slices = SIZE_MAX;
    process->huges.cache.limit = 0;
    process->shared.large_bytes_max = MALLOW_LARGE_BYTES_MAX; // no block has a mapping of its own
    // For threads that find no memory for a heap any more: then there is none for this one either.
    atomic_store_explicit(&process->fallback, heap_create_fallback(&process->shared),
                          memory_order_relaxed);
    process->os.sealed = true;
}

MALLOW_INTERNAL void process_start_realtime(struct process *process) {
    const char *const mode = process_option_text(&process->options, mode);
    if (process_is_realtime(process)) {
        realtime_take(process);
    } else if (!format_same_ignoring_case(mode, "default")) {
        process_options_complain(&process->options, PROCESS_OPTION_mode,
                                 ": default or realtime; the default stays\n");
        static const char standard[] = "default";
        __builtin_memcpy(process_option_text(&process->options, mode), standard, sizeof standard);
    }
}
