// SPDX-License-Identifier: MIT
// A library with a thread of its own, which ends before every fork, as OpenBLAS does it. The program is linked with
// it, so its constructor runs before a preloaded library's.
#include "../support/check.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

void fork_joins_begin(void);

enum { KEPT = 1000, STEPS = 5000, BYTES_MAX = 200000 };

static pthread_t thread;
static sem_t ending;
static bool is_running;

// Takes and gives slabs and large blocks, under locks.
static void *work(void *argument)
{
    static void *kept[KEPT];
    unsigned seed = 1;
    sem_wait(&ending);
    for (unsigned i = 0; i < STEPS; i++) {
        seed = seed * 1103515245 + 12345;
        free(kept[i % KEPT]);
        kept[i % KEPT] = malloc((seed >> 8) % BYTES_MAX);
    }
    return argument;
}

static void end(void)
{
    if (is_running) {
        sem_post(&ending);
        pthread_join(thread, NULL);
        is_running = false;
    }
}

__attribute__((constructor)) static void begin(void)
{
    free(malloc(1));
    sem_init(&ending, 0, 0);
    pthread_atfork(end, NULL, NULL);
}

void fork_joins_begin(void)
{
    CHECK(pthread_create(&thread, NULL, work, NULL) == 0, "pthread_create");
    is_running = true;
}
