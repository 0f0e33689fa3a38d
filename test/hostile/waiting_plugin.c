// SPDX-License-Identifier: MIT
// A library whose constructor and destructor have a thread do what the program says, and wait for it. The
// dynamic linker holds its lock meanwhile.
#include <pthread.h>
#include <stdlib.h>

extern void *program_work(void *argument);

static void have_it_done(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, program_work, NULL) != 0 || pthread_join(thread, NULL) != 0) {
        abort();
    }
}

__attribute__((constructor)) static void begin(void)
{
    have_it_done();
}

__attribute__((destructor)) static void end(void)
{
    have_it_done();
}
