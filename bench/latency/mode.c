// SPDX-License-Identifier: MIT
// Runs a mode: its threads, its windows, its recorders.

#include "mode.h"

const size_t mode_sizes[MODE_SIZE_COUNT] = {16, 32, 64, 128, 256, 512, 1024, 2048, 4096};

struct thread {
    struct load load;
    struct recorder *recorders[2]; // the floor's, the allocator's
    const struct machine *machine;
    pthread_barrier_t *barrier; // NULL for a single thread
};

size_t mode_list(const struct settings *settings, struct mode *modes, size_t room) {
    size_t count = mode_list_single(settings, modes, room);
    count += mode_list_threads(settings, modes + count, room - count);
    return count;
}

static void one_window(struct thread *thread, const struct subject *subject,
                       struct recorder *recorder) {
    struct rusage before, after;
    if (thread->barrier != NULL) {
        pthread_barrier_wait(thread->barrier);
    }
    getrusage(RUSAGE_THREAD, &before);
    thread->load.mode->window(&thread->load, subject, recorder);
    getrusage(RUSAGE_THREAD, &after);
    recorder->faults += (uint64_t)(after.ru_minflt - before.ru_minflt);
    recorder->switches += (uint64_t)(after.ru_nivcsw - before.ru_nivcsw);
    recorder->waits += (uint64_t)(after.ru_nvcsw - before.ru_nvcsw);
}

static void *run_thread(void *argument) {
    struct thread *const thread = argument;
    const struct mode *const mode = thread->load.mode;
    const struct subject *const subjects[2] = {subject_get(mode->floor),
                                               subject_get(SUBJECT_MALLOC)};
    if (thread->barrier != NULL) {
        machine_pin_thread(thread->machine, thread->load.index, mode->thread_count);
    }
    mode->begin(&thread->load);
    for (size_t i = 0; i < 2; i++) {
        one_window(thread, subjects[i], thread->recorders[i]);
        recorder_drop_window(thread->recorders[i]);
        thread->recorders[i]->faults = thread->recorders[i]->switches = 0;
        thread->recorders[i]->waits = 0;
    }
    for (size_t at = 0; at < RECORDER_WINDOWS; at++) {
        for (size_t i = 0; i < 2; i++) {
            const size_t which = (at + i) % 2;
            one_window(thread, subjects[which], thread->recorders[which]);
            recorder_end_window(thread->recorders[which], at);
        }
    }
    if (thread->barrier != NULL) {
        pthread_barrier_wait(thread->barrier);
    }
    mode->end(&thread->load);
    return NULL;
}

static void prepare_thread(struct thread *thread, const struct mode *mode, uint64_t overhead,
                           unsigned index) {
    for (size_t i = 0; i < 2; i++) {
        if (thread->recorders[i] == NULL) {
            thread->recorders[i] = latency_map(sizeof(struct recorder));
        }
        memset(thread->recorders[i], 0, sizeof(struct recorder));
        thread->recorders[i]->overhead = overhead;
    }
    thread->load = (struct load){
        .mode = mode,
        .window_steps = (mode->steps + RECORDER_WINDOWS - 1) / RECORDER_WINDOWS,
        .seed = 1 + index,
        .slots = latency_map(mode->slot_count * sizeof(struct block)),
        .index = index,
    };
}

struct mode_result mode_run(const struct mode *mode, const struct machine *machine,
                            const struct timer *timer) {
    static struct thread threads[MODE_THREADS_MAX];
    const unsigned count = mode->thread_count;
    pthread_barrier_t barrier;
    subject_prepare();
    for (unsigned i = 0; i < count; i++) {
        prepare_thread(&threads[i], mode, timer->overhead, i);
        threads[i].machine = machine;
        threads[i].barrier = count > 1 ? &barrier : NULL;
    }
    if (count == 1) {
        run_thread(&threads[0]);
    } else {
        void *const shared = mode_shared_new(mode);
        pthread_barrier_init(&barrier, NULL, count);
        for (unsigned i = 0; i < count; i++) {
            threads[i].load.shared = shared;
        }
        bench_parallel(run_thread, threads, sizeof threads[0], count);
        pthread_barrier_destroy(&barrier);
        mode_shared_delete(mode, shared);
    }
    for (unsigned i = 0; i < count; i++) {
        munmap(threads[i].load.slots, mode->slot_count * sizeof(struct block));
        for (size_t which = 0; i > 0 && which < 2; which++) {
            recorder_merge(threads[0].recorders[which], threads[i].recorders[which]);
        }
    }
    return (struct mode_result){threads[0].recorders[0], threads[0].recorders[1]};
}
