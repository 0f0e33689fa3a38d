// SPDX-License-Identifier: MIT
// Adversary: the counted calls, and which programs to run. See adversary.h.
//
//   adversary [--late] [--scale N] [--seed N] [PROGRAM ...]     all of them, in order, if none is named
//
// --late: the allocator's first call is not made before the C library is set up, so that the
// allocator sees its environment.
#include "adversary.h"
#include "callcost_movers.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// Some allocators refuse larger alignments.
enum { ALIGNMENT_GRANTED = 32 << 10 };

static size_t scale = 1;
static uint64_t random_state = 0x9e3779b97f4a7c15U;

static void stop(const char *what, size_t size) {
    fprintf(stderr, "adversary: %s (%zu)\n", what, size);
    abort();
}

void phase(const char *name, bool steady) {
    CALLCOST_REQUEST(CALLCOST_PHASE, name, steady);
    CALLCOST_REQUEST(CALLCOST_BEGIN, CALLCOST_NOTHING, 0);
    CALLCOST_REQUEST(CALLCOST_END, 0, 0);
}

// The size stands in the block's first bytes, so that a block handed out twice is found.
static void *stamp(void *block, size_t size) {
    if (block == NULL) {
        stop("no memory", size);
    }
    if (size >= sizeof size) {
        memcpy(block, &size, sizeof size);
    }
    return block;
}

void *counted_malloc(size_t size) {
    CALLCOST_REQUEST(CALLCOST_BEGIN, CALLCOST_MALLOC, size);
    void *const block = malloc(size);
    CALLCOST_REQUEST(CALLCOST_END, 0, 0);
    return stamp(block, size);
}

void *counted_calloc(size_t count, size_t size) {
    CALLCOST_REQUEST(CALLCOST_BEGIN, CALLCOST_CALLOC, count * size);
    char *const block = calloc(count, size);
    CALLCOST_REQUEST(CALLCOST_END, 0, 0);
    if (block != NULL && count * size > 0 && (block[0] != 0 || block[count * size - 1] != 0)) {
        stop("calloc is not zero", count * size);
    }
    return stamp(block, count * size);
}

void *counted_aligned(size_t alignment, size_t size) {
    CALLCOST_REQUEST(CALLCOST_BEGIN, CALLCOST_ALIGNED_ALLOC, size);
    void *const block = aligned_alloc(alignment, size);
    CALLCOST_REQUEST(CALLCOST_END, 0, 0);
    if (block == NULL && alignment > ALIGNMENT_GRANTED) {
        return counted_malloc(size);
    }
    if (((uintptr_t)block & (alignment - 1)) != 0) {
        stop("not aligned", alignment);
    }
    return stamp(block, size);
}

void *counted_posix(size_t alignment, size_t size) {
    void *block = NULL;
    CALLCOST_REQUEST(CALLCOST_BEGIN, CALLCOST_ALIGNED_ALLOC, size);
    const int error = posix_memalign(&block, alignment, size);
    CALLCOST_REQUEST(CALLCOST_END, 0, 0);
    if (error == 0 && ((uintptr_t)block & (alignment - 1)) != 0) {
        stop("not aligned", alignment);
    }
    return stamp(block, size);
}

void *counted_realloc(void *block, size_t size) {
    size_t before = 0;
    if (block != NULL) {
        memcpy(&before, block, sizeof before);
    }
    CALLCOST_REQUEST(CALLCOST_BEGIN, CALLCOST_REALLOC, size);
    void *const moved = realloc(block, size);
    CALLCOST_REQUEST(CALLCOST_END, 0, 0);
    size_t after = 0;
    if (block != NULL && moved != NULL && size >= sizeof after) {
        memcpy(&after, moved, sizeof after);
        if (after != before) {
            stop("realloc lost what the block held", size);
        }
    }
    return stamp(moved, size);
}

void counted_free(void *block) {
    CALLCOST_REQUEST(CALLCOST_BEGIN, CALLCOST_FREE, 0);
    free(block);
    CALLCOST_REQUEST(CALLCOST_END, 0, 0);
}

size_t random_below(size_t bound) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (size_t)((random_state >> 11) % bound);
}

void **array_make(size_t count) {
    void *const array = mmap(NULL, count * sizeof(void *), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (array == MAP_FAILED) {
        stop("no room for an array", count);
    }
    return array;
}

void array_drop(void **array, size_t count) {
    munmap(array, count * sizeof(void *));
}

void array_shuffle(void **array, size_t count) {
    for (size_t i = count; i > 1; i--) {
        const size_t other = random_below(i);
        void *const block = array[i - 1];
        array[i - 1] = array[other];
        array[other] = block;
    }
}

void array_reverse(void **array, size_t count) {
    for (size_t i = 0; i < count / 2; i++) {
        void *const block = array[i];
        array[i] = array[count - 1 - i];
        array[count - 1 - i] = block;
    }
}

size_t scaled(size_t count) {
    return count * scale;
}

// ---- Threads ------------------------------------------------------------------------------------

struct thread_job {
    void (*body)(void *);
    void *argument;
};

static void *thread_begin(void *argument) {
    const struct thread_job job = *(const struct thread_job *)argument;
    job.body(job.argument);
    CALLCOST_REQUEST(CALLCOST_UNTIL_END, CALLCOST_THREAD_END, 0);
    return NULL;
}

// In place of libc's: threads of the allocator's own are none, lest the figures depend on when they
// run and on what they hold locked. It may have them by either.
typedef int thread_clone(int (*body)(void *), void *stack, int flags, void *argument, ...);
static _Thread_local bool thread_is_ours;
static thread_clone *next_clone;

int __clone(int (*body)(void *), void *stack, int flags, void *argument, ...) {
    va_list list;
    va_start(list, argument);
    pid_t *const parent = va_arg(list, pid_t *);
    void *const pointer = va_arg(list, void *);
    pid_t *const child = va_arg(list, pid_t *);
    va_end(list);
    if (next_clone == NULL) {
        return *parent = 1;
    }
    return next_clone(body, stack, flags, argument, parent, pointer, child);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *),
                   void *argument) {
    if (!thread_is_ours) {
        *thread = pthread_self();
        return 0;
    }
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = NULL;
    *(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
    return create(thread, attributes, body, argument);
}

int thread_create(pthread_t *thread, void *(*body)(void *), void *argument) {
    thread_is_ours = true;
    const int error = pthread_create(thread, NULL, body, argument);
    thread_is_ours = false;
    return error;
}

void thread_run(void (*body)(void *), void *argument) {
    struct thread_job job = {body, argument};
    pthread_t thread;
    if (thread_create(&thread, thread_begin, &job) != 0 || pthread_join(thread, NULL) != 0) {
        stop("no thread", 0);
    }
}

// ---- The allocator's own thread -----------------------------------------------------------------

// Frees so much that an allocator with a thread for idle memory starts it now: once in a while some
// call pays for that. It is a program of its own, "helper", in which the thread is really created;
// before the others it is done uncounted, and without the thread.
static void helper_start(bool counted) {
    enum { COUNT = 300, SIZE = 65 << 10 };
    static void *blocks[COUNT];
    thread_is_ours = counted; // libc's own functions
    *(void **)&next_clone = counted ? dlsym(RTLD_NEXT, "__clone") : NULL;
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = counted ? counted_malloc(SIZE) : malloc(SIZE);
        memset(blocks[i], 1, 1);
    }
    for (size_t i = 0; i < COUNT; i++) {
        if (counted) {
            counted_free(blocks[i]);
        } else {
            free(blocks[i]);
        }
    }
    thread_is_ours = false;
    next_clone = NULL;
}

static void adversary_helper(void) {
    phase("the allocator's own thread starts", false);
    helper_start(true);
    struct stat tasks; // a folder a thread, besides the two that every folder has links to
    if (stat("/proc/self/task", &tasks) == 0) {
        fprintf(stderr, "helper: %d threads\n", (int)tasks.st_nlink - 2);
    }
}

// ---- A crowd ------------------------------------------------------------------------------------

// So many threads have allocated, and are alive: each has a heap.
static pthread_barrier_t crowd_there;
static pthread_barrier_t crowd_over;

static void *crowd_join(void *argument) {
    free(malloc(24));
    pthread_barrier_wait(&crowd_there);
    pthread_barrier_wait(&crowd_over);
    return argument;
}

static void adversary_crowd(void) {
    enum { CROWD = 16 };
    pthread_t threads[CROWD];
    pthread_barrier_init(&crowd_there, NULL, CROWD + 1);
    pthread_barrier_init(&crowd_over, NULL, CROWD + 1);
    for (size_t i = 0; i < CROWD; i++) {
        if (thread_create(&threads[i], crowd_join, NULL) != 0) {
            stop("no thread", i);
        }
    }
    pthread_barrier_wait(&crowd_there);
    adversary_sizes();
    adversary_orders();
    adversary_random();
    adversary_aligned();
    adversary_trim();
    adversary_realloc();
    adversary_moves();
    pthread_barrier_wait(&crowd_over);
    for (size_t i = 0; i < CROWD; i++) {
        pthread_join(threads[i], NULL);
    }
}

// ---- Start --------------------------------------------------------------------------------------

static const struct program {
    const char *name;
    void (*run)(void);
} programs[] = {
    {"sizes", adversary_sizes},       {"orders", adversary_orders},
    {"fragment", adversary_fragment}, {"churn", adversary_churn},
    {"random", adversary_random},     {"aligned", adversary_aligned},
    {"remote", adversary_remote},     {"abandoned", adversary_abandoned},
    {"threads", adversary_threads},   {"contended", adversary_contended},
    {"large", adversary_large},       {"growth", adversary_growth},
    {"trim", adversary_trim},         {"realloc", adversary_realloc},
    {"huge", adversary_huge},         {"huge_growth", adversary_huge_growth},
    {"huge_many", adversary_huge_many}, {"bursts", adversary_bursts},
    {"exits", adversary_exits},       {"trims", adversary_trims},
    {"resizes", adversary_resizes},   {"newcomers", adversary_newcomers},
    {"sweep", adversary_sweep},       {"moves", adversary_moves},
    {"trades", adversary_trades},     {"crowd", adversary_crowd},
    {"posts", adversary_posts},       {"rows", adversary_rows}, // each by itself alone, if it is named
    {"actors", adversary_actors},     // likewise, with several seeds
    {"mortals", adversary_mortals},   {"giants", adversary_giants},
    {"helper", adversary_helper},     {"leavers", adversary_leavers},
    {"tenants", adversary_tenants},   {"regrown", adversary_regrown},
    {"reserve", adversary_reserve}, // in the realtime mode
};
enum { PROGRAM_COUNT = sizeof programs / sizeof programs[0], ALL_COUNT = PROGRAM_COUNT - 10 };

// Before any library's constructor: the first call of the process, which sets the allocator up.
static void first_call(int count, char **arguments, char **environment) {
    (void)environment;
    if (count > 1 && strcmp(arguments[1], "--late") == 0) {
        return;
    }
    phase("first call of the process", false);
    counted_free(counted_malloc(24));
}
__attribute__((section(".preinit_array"), used)) static void (*const first)(int, char **,
                                                                           char **) = first_call;

static const struct program *program_find(const char *name) {
    for (size_t i = 0; i < PROGRAM_COUNT; i++) {
        if (strcmp(programs[i].name, name) == 0) {
            return &programs[i];
        }
    }
    fprintf(stderr, "adversary: no program %s\n", name);
    exit(2);
}

int main(int count, char **arguments) {
    int index = count > 1 && strcmp(arguments[1], "--late") == 0 ? 2 : 1;
    callcost_tell_movers();
    if (count < 2 || strcmp(arguments[count - 1], "helper") != 0) {
        helper_start(false);
    }
    if (index + 1 < count && strcmp(arguments[index], "--scale") == 0) {
        scale = strtoul(arguments[index + 1], NULL, 10);
        index += 2;
    }
    if (index + 1 < count && strcmp(arguments[index], "--seed") == 0) {
        random_state += strtoul(arguments[index + 1], NULL, 10) * UINT64_C(0x2545f4914f6cdd1d);
        index += 2;
    }
    if (index < count) {
        for (; index < count; index++) {
            program_find(arguments[index])->run();
        }
    } else {
        for (size_t i = 0; i < ALL_COUNT; i++) {
            programs[i].run();
        }
    }
    fflush(NULL);
    _exit(0); // the helper, which has no thread, cannot be joined
}
