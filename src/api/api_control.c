// SPDX-License-Identifier: MIT
// API, for glibc's control surface: the figures and settings behind mallinfo, mallopt and their
// like.
#include <unistd.h>

#include "api/api.h"
#include "arena/arena_broad.h"
#include "base/format.h"
#include "observe/report.h"
#include "os/os_thread.h"
#include "process/process.h"

// Headers are to take less than 1/this of a limit of address space.
enum { API_HEADER_SHARE = 64 };

MALLOW_INTERNAL void api_control_totals(struct api_totals *totals) {
    struct snapshot snapshot;
    snapshot_take(&process_ready()->sources, &snapshot);
    size_t free_in_slabs = 0;
    size_t free_count = snapshot.thin_free_count;
    for (unsigned i = 0; i < MALLOW_CLASS_COUNT; i++) {
        free_count += snapshot.classes[i].capacity_count - snapshot.classes[i].live_count;
    }
    const size_t live = snapshot.small_live_bytes + snapshot.large_live_bytes;
    free_in_slabs = snapshot.span_bytes - live;
    // Committed but never touched memory is not counted: glibc's top is not either before it is
    // taken.
    *totals = (struct api_totals){
        .arena_bytes = snapshot.span_bytes + snapshot.free_dirty_bytes,
        .live_bytes = live,
        .free_bytes = free_in_slabs + snapshot.free_dirty_bytes,
        .free_count = free_count + (snapshot.free_dirty_bytes != 0), // the arena's as one piece
        .huge_bytes = snapshot.huge_mapped_bytes,
        .huge_count = snapshot.huge_live_count,
        .releasable_bytes = snapshot.free_dirty_bytes,
    };
}

MALLOW_INTERNAL void api_control_stats(int fd) {
    report_text(&process_ready()->sources, fd);
}

// The text is too long for the stack of a small thread, and the figures are without it.
MALLOW_INTERNAL char *api_control_xml(size_t *length) {
    enum { TEXT_BYTES = 16384 };
    struct snapshot snapshot;
    struct format out;
    snapshot_take(&process_ready()->sources, &snapshot);
    char *const text = api_malloc(TEXT_BYTES);
    if (text != NULL) {
        format_init(&out, text, TEXT_BYTES);
        report_xml(&snapshot, &out);
        *length = format_length(&out);
    }
    return text;
}

MALLOW_INTERNAL int api_control_set_trim_threshold(long bytes) {
    struct process *const process = process_ready();
    // -1 means never, as it does there.
    process_set_trim_threshold(process, bytes < 0 ? UINT64_MAX : (uint64_t)bytes);
    return 1;
}

MALLOW_INTERNAL bool api_control_set_mmap_threshold(long bytes) {
    struct process *const process = process_ready();
    // Sealed: nothing is mapped any more, so what is above a lower threshold could not be had.
    if (bytes < (long)MALLOW_SLAB_BYTES_MAX || bytes > (long)MALLOW_LARGE_BYTES_MAX ||
        process->os.sealed) {
        return false;
    }
    // A mapping is a mebibyte at least, which below a limit would be gone for blocks of an eighth.
    if (os_limit(&process->os) != SIZE_MAX || os_charge_is_capped(&process->os.charge)) {
        return true;
    }
    process->options.values[PROCESS_OPTION_huge_threshold] = (uint64_t)bytes;
    __atomic_store_n(&process->shared.large_bytes_max, (size_t)bytes, __ATOMIC_RELAXED);
    return true;
}

// Before a call after which there is to be no thread of ours any more. A signal handler that has
// interrupted a call of ours does not wait for the thread (false): that ends later, when it has
// nothing to do, and whatever becomes of the call.
static bool control_part(struct process *process) {
    if (process_is_interrupted(process)) {
        worker_bar(&process->worker);
        return false;
    }
    return worker_part(&process->worker);
}

MALLOW_INTERNAL bool api_sandbox_begins(void) {
    return control_part(process_ready());
}

// In a sandbox not even a lock that somebody else holds may be waited for: so they stay parted.
MALLOW_INTERNAL void api_sandbox_ends(bool barred) {
    struct process *const process = process_ready();
    if (barred) {
        worker_bar(&process->worker);
    } else {
        worker_rejoin(&process->worker);
    }
}

// Nor here: where the rights change, it ends when it next looks (worker_has_other_rights), as where
// the library is linked in.
MALLOW_INTERNAL void api_parting_begins(void) {
    struct process *const process = process_ready();
    if (!process_is_interrupted(process)) {
        (void)worker_part(&process->worker);
    }
}

// What the call has interrupted is the same as when it began.
MALLOW_INTERNAL void api_parting_ends(void) {
    struct process *const process = process_ready();
    if (!process_is_interrupted(process)) {
        worker_rejoin(&process->worker);
    }
}

// In a child by vfork nothing is done: the memory is its parent's. One by a bare clone, where no
// handler of fork has run, has its own; in a sandbox that question may not be allowed.
static bool control_owns_memory(const struct process *process) {
    const pid_t id = process->os.process_id;
    return id == os_process_number() ||
           (id != 0 && !worker_is_barred_for_good(&process->worker) && os_thread_is_apart_from(id));
}

MALLOW_INTERNAL void api_confinement_begins(size_t limit) {
    struct process *const process = process_ready();
    if (process->os.sealed || process_is_interrupted(process) || !control_owns_memory(process) ||
        !os_confine(&process->os, limit)) {
        return;
    }
    huge_confine(&process->huges);
    meta_confine(&process->meta);
    arena_confine(&process->arenas, limit);
    arena_shorten_secondary(&process->arenas);
    if (process->arenas.primary.header_bytes <= limit / API_HEADER_SHARE ||
        worker_is_barred_for_good(&process->worker)) {
        return; // little of it, or a sandbox that may not like a file to be opened
    }
    const bool parted = worker_part(&process->worker);
    if (os_thread_is_only()) {
        heap_confine(&process->shared);
    }
    if (parted) {
        worker_rejoin(&process->worker);
    }
}

MALLOW_INTERNAL void api_confinement_ends(size_t limit) {
    struct process *const process = process_ready();
    const bool limited = os_is_confined(&process->os) || worker_may_afford(&process->worker);
    if (!limited || process->os.sealed || process_is_interrupted(process) ||
        !control_owns_memory(process)) {
        return;
    }
    if (os_unconfine(&process->os, limit)) {
        arena_unconfine(&process->arenas, limit);
    }
    huge_unconfine(&process->huges);
    worker_afford(&process->worker);
}

// The kernel purges no locked page.
MALLOW_INTERNAL struct api_locking api_locking_begins(void) {
    struct process *const process = process_ready();
    struct api_locking locking = {control_part(process), false};
    if (!process_is_interrupted(process)) {
        arena_broad_end(&process->arenas);
        locking.closed = huge_lock_begins(&process->huges);
    }
    return locking;
}

MALLOW_INTERNAL void api_locking_ends(struct api_locking locking, bool locked) {
    struct process *const process = process_ready();
    if (!locked && locking.closed) {
        huge_lock_ends(&process->huges);
    }
    if (locked && locking.parted) {
        worker_bar(&process->worker);
    }
    if (locking.parted) {
        worker_rejoin(&process->worker);
    }
}
