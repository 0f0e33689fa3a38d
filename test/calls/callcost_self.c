// SPDX-License-Identifier: MIT
// A program whose calls are known, for callcost to count: each phase's name says what must come out.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "callcost.h"

static char bytes[1 << 20];

static void begin(const char *expected) {
    CALLCOST_REQUEST(CALLCOST_PHASE, expected, 0);
    CALLCOST_REQUEST(CALLCOST_BEGIN, CALLCOST_NOTHING, 0);
    CALLCOST_REQUEST(CALLCOST_END, 0, 0);
}

#define COUNTED(size, code)                                                                        \
    do {                                                                                           \
        CALLCOST_REQUEST(CALLCOST_BEGIN, CALLCOST_MALLOC, size);                                   \
        code;                                                                                      \
        CALLCOST_REQUEST(CALLCOST_END, 0, 0);                                                      \
    } while (0)

static void kernel(void) {
    (void)syscall(SYS_getppid);
}

static void *other_thread(void *barrier) {
    for (unsigned i = 0; i < 1000; i++) {
        __asm__ volatile(".rept 1000; nop; .endr");
    }
    pthread_barrier_wait(barrier);
    return NULL;
}

int main(void) {
    void *(*volatile set)(void *, int, size_t) = memset;
    CALLCOST_REQUEST(CALLCOST_MOVER, (char *)(unsigned long)set - 2048,
                     (char *)(unsigned long)set + 4096);
    VALGRIND_DISCARD_TRANSLATIONS((char *)(unsigned long)set - 2048, 6144);

    begin("{'max_instructions': 0, 'max_system_calls': 0, 'calls': 1}");
    COUNTED(1, (void)0);

    begin("{'max_instructions': 1000, 'max_size': 7, 'calls': 1}");
    COUNTED(7, __asm__ volatile(".rept 1000; nop; .endr"));

    // The largest of several, and its number: each empty bracket of a phase is a call too.
    begin("{'max_instructions': 300, 'instructions': 600, 'max_size': 3, 'calls': 3}");
    COUNTED(1, __asm__ volatile(".rept 100; nop; .endr"));
    COUNTED(3, __asm__ volatile(".rept 300; nop; .endr"));
    COUNTED(2, __asm__ volatile(".rept 200; nop; .endr"));

    begin("{'max_system_calls': 3, 'system_calls': 4, 'system_calls_size': 2}");
    COUNTED(1, kernel());
    COUNTED(2, kernel(); kernel(); kernel());

    // A megabyte takes thousands of instructions, which are the caller's bytes.
    begin("{'max_instructions': [1, 60], 'max_moved': [4000, 2000000]}");
    COUNTED(1, set(bytes, 1, sizeof bytes));
#if defined(__x86_64__)
    begin("{'max_instructions': [1, 20], 'max_moved': [1048576, 1048577]}");
    COUNTED(1, {
        void *target = bytes;
        size_t count = sizeof bytes;
        __asm__ volatile("rep stosb" : "+D"(target), "+c"(count) : "a"(0) : "memory");
    });
#endif
    // What another thread does meanwhile is not counted.
    begin("{'max_instructions': [1, 100000], 'max_system_calls': [1, 1000]}");
    pthread_barrier_t barrier;
    pthread_t thread;
    pthread_barrier_init(&barrier, NULL, 2);
    if (pthread_create(&thread, NULL, other_thread, &barrier) != 0) {
        abort();
    }
    COUNTED(1, pthread_barrier_wait(&barrier));
    return pthread_join(thread, NULL);
}
