// SPDX-License-Identifier: MIT
// Death tests: blocks freed twice, in every order that hides the first time.
#include "misuse.h"

#include <signal.h>
#include <sys/wait.h>

static void *remote_call(void *argument)
{
    free(hidden(argument));
    return NULL;
}

static void free_in_another_thread(void *pointer)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, remote_call, pointer) == 0, "pthread_create");
    pthread_join(thread, NULL);
}

static void others_come_and_go(void)
{
    void *others[16];
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        others[i] = malloc(victim.size);
    }
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        free(others[i]);
    }
}

static void free_neighbours(void)
{
    for (size_t i = 0; i < NEIGHBOURS; i++) {
        free(victim.neighbours[i]);
        victim.neighbours[i] = NULL;
    }
}

void double_free(void)
{
    free(victim.block);
    free(hidden(victim.block));
}

void double_free_after_one_other(void)
{
    free(victim.block);
    free(victim.neighbours[3]);
    victim.neighbours[3] = NULL;
    free(hidden(victim.block));
}

void double_free_after_many_others(void)
{
    free(victim.block);
    for (size_t i = 0; i < NEIGHBOURS; i += 2) {
        free(victim.neighbours[i]);
        victim.neighbours[i] = NULL;
    }
    free(hidden(victim.block));
}

void double_free_after_all_neighbours(void)
{
    free(victim.block);
    free_neighbours();
    free(hidden(victim.block));
}

void double_free_after_wiping_the_block(void)
{
    free(victim.block);
    poke(victim.block, (const char[32]){0}, 32);
    free(hidden(victim.block));
}

void double_free_after_scribbling_on_the_block(void)
{
    free(victim.block);
    poke(victim.block, "AAAAAAAABBBBBBBBCCCCCCCCDDDDDDDD", 32);
    free(hidden(victim.block));
}

// The thread is there before the first free: starting one allocates, and what it gets may lie where the
// block lay. A free of that would be a free of somebody's live block, which nobody can tell.
static pthread_barrier_t freed_once;

static void *free_when_told(void *pointer)
{
    free(malloc(victim.size)); // its heap is there, too
    pthread_barrier_wait(&freed_once);
    pthread_barrier_wait(&freed_once);
    free(pointer);
    return NULL;
}

void double_free_second_in_another_thread(void)
{
    pthread_t thread;
    pthread_barrier_init(&freed_once, NULL, 2);
    CHECK(pthread_create(&thread, NULL, free_when_told, victim.block) == 0, "pthread_create");
    pthread_barrier_wait(&freed_once);
    free(victim.block);
    pthread_barrier_wait(&freed_once);
    pthread_join(thread, NULL);
    others_come_and_go();
}

void double_free_first_in_another_thread(void)
{
    free_in_another_thread(victim.block);
    free(hidden(victim.block));
    others_come_and_go();
}

void double_free_both_in_one_other_thread(void)
{
    free_in_another_thread(victim.block);
    free_in_another_thread(victim.block);
    others_come_and_go();
}

static void *free_at_the_barrier(void *barrier)
{
    pthread_barrier_wait(barrier);
    free(hidden(victim.block));
    return NULL;
}

void double_free_from_two_threads_at_once(void)
{
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_t threads[2];
    for (size_t i = 0; i < 2; i++) {
        CHECK(pthread_create(&threads[i], NULL, free_at_the_barrier, &barrier) == 0, "pthread_create");
    }
    for (size_t i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    others_come_and_go();
}

void double_free_after_realloc_moved_it(void)
{
    unsigned char *const old = victim.block;
    victim.block = realloc(victim.block, victim.size * 40); // cannot stay where it is
    if (victim.block == old) {
        _exit(EXIT_SKIP); // it could
    }
    free(hidden(old));
}

static void *allocate_and_end(void *unused)
{
    (void)unused;
    return malloc(victim.size);
}

// The block's first owner is gone: whoever took its slabs over must notice.
void double_free_after_the_thread_ended(void)
{
    pthread_t thread;
    void *block = NULL;
    CHECK(pthread_create(&thread, NULL, allocate_and_end, NULL) == 0, "pthread_create");
    pthread_join(thread, &block);
    free(block);
    free(hidden(block));
    others_come_and_go();
}

// Freed in the parent, and again in the child, which has a copy of everything.
void double_free_across_a_fork(void)
{
    free(victim.block);
    const pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        free(hidden(victim.block));
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child, "waitpid");
    if (WIFSIGNALED(status)) {
        signal(SIGABRT, SIG_DFL);
        raise(WTERMSIG(status)); // the parent ends as the child did
    }
}
