// SPDX-License-Identifier: MIT
// After start a sandbox kills the process for any system call but mmap, munmap, madvise, mremap and
// futex (and write and exit_group, for the test itself). Everything the allocator does must live with
// that, in threads that existed before.
#include "../support/filter.h"

#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

enum { WORKERS = 3, STEPS = 40000, SLOTS = 128 };

static sem_t ready;
static sem_t begin;
static atomic_int done;

#define ALLOW(number)                                                                              \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void enter_sandbox(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_mmap),
        ALLOW(SYS_munmap),
        ALLOW(SYS_madvise),
        ALLOW(SYS_mremap),
        ALLOW(SYS_futex),
        ALLOW(SYS_write),
        ALLOW(SYS_exit_group),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    filter_install(filter, COUNT_OF(filter), SECCOMP_FILTER_FLAG_TSYNC);
}

// Blocks that threads pass to one another: remote frees.
static _Atomic(void *) exchange[64];

static void load(uint64_t seed)
{
    struct chance chance = {seed};
    struct {
        unsigned char *block;
        size_t size;
    } slots[SLOTS];
    memset(slots, 0, sizeof slots);
    for (size_t step = 0; step < STEPS; step++) {
        const size_t slot = chance_below(&chance, SLOTS);
        CHECK(tag_wrong(slots[slot].block, slots[slot].size, slot) == slots[slot].size, "contents");
        if (step % 5 == 0) {
            const size_t place = chance_below(&chance, COUNT_OF(exchange));
            free(atomic_exchange(&exchange[place], slots[slot].block));
            slots[slot].block = NULL;
        } else if (step % 5 == 1) {
            slots[slot].size = chance_size(&chance) + 1;
            slots[slot].block = realloc(slots[slot].block, slots[slot].size);
            CHECK(slots[slot].block != NULL, "realloc");
            tag_fill(slots[slot].block, slots[slot].size, slot);
            continue;
        } else {
            free(slots[slot].block);
        }
        slots[slot].size = step % 500 == 0 ? chance_below(&chance, 20 * MIB) : chance_size(&chance);
        if (step % 7 == 0) {
            slots[slot].block = aligned_alloc((size_t)64 << step % 16, slots[slot].size);
        } else {
            slots[slot].block = step % 2 == 0 ? malloc(slots[slot].size) : calloc(1, slots[slot].size);
        }
        CHECK(slots[slot].block != NULL, "allocation of %zu", slots[slot].size);
        tag_fill(slots[slot].block, slots[slot].size, slot);
        if (step % 9000 == 0) {
            malloc_trim(0);
        }
    }
    for (size_t slot = 0; slot < SLOTS; slot++) {
        free(slots[slot].block);
    }
}

static void *worker(void *argument)
{
    sem_post(&ready); // what the C library does at a thread's start is done
    while (sem_wait(&begin) != 0) {
    }
    load((uint64_t)(uintptr_t)argument);
    atomic_fetch_add(&done, 1);
    do {
        sem_wait(&begin); // never posted again: a thread may not end in here
    } while (atomic_load(&done) > 0);
    return NULL;
}

int main(void)
{
    sem_init(&ready, 0, 0);
    sem_init(&begin, 0, 0);
    free(malloc(1)); // started
    for (uintptr_t i = 1; i <= WORKERS; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, worker, (void *)i) == 0, "pthread_create");
    }
    for (int i = 0; i < WORKERS; i++) {
        sem_wait(&ready);
    }
    enter_sandbox();
    for (int i = 0; i < WORKERS; i++) {
        sem_post(&begin);
    }
    load(99);
    while (atomic_load(&done) < WORKERS) {
    }
    static const char verdict[] = "the sandbox was never violated\n";
    (void)!write(2, verdict, sizeof verdict - 1);
    _exit(0);
}
