// SPDX-License-Identifier: MIT
// An allocator to preload that is wrong in one way, named by BROKEN: what the latency harness must
// notice.
//
//   none        correct
//   count       correct; says at the end how often malloc was called
//   null        every 50,000th malloc fails
//   twice       every 5,000th malloc gives the block that the one before gave
//   misaligned  every block lies 8 bytes off
//   calloc      zeroes nothing
//   realloc     keeps nothing
//   later       `null`, from the 400,000th on: past the gate, in what is timed
//
// Holds    memory comes from one mapping and is never used again but by size, so that a block freed
//          twice does no harm.
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ROOM (UINT64_C(8) << 30)

struct head {
    uint64_t size;
    struct head *next;
};

enum { CLASSES = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned char *room;
static uint64_t used;
static uint64_t calls;
static struct head *free_lists[CLASSES];
static const char *mode;
static void *last;
static uint64_t last_size;

static int is(const char *name)
{
    if (mode == NULL) {
        const char *const chosen = getenv("BROKEN");
        mode = chosen == NULL ? "none" : chosen;
    }
    return strcmp(mode, name) == 0;
}

static unsigned class_of(uint64_t size)
{
    return size <= 16 ? 4 : 64 - (unsigned)__builtin_clzll(size - 1);
}

// Powers of two behind a head of 16 bytes, aligned to `alignment`; only those of 16 are used again.
static void *take(uint64_t size, uint64_t alignment)
{
    if (size > ROOM / 4) {
        return NULL;
    }
    const unsigned class_index = class_of(size);
    if (alignment <= 16 && free_lists[class_index] != NULL) {
        struct head *const head = free_lists[class_index];
        free_lists[class_index] = head->next;
        return head + 1;
    }
    if (room == NULL) {
        room = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    used = ((used + sizeof(struct head) + alignment - 1) & ~(alignment - 1)) - sizeof(struct head);
    struct head *const head = (struct head *)(room + used);
    head->size = UINT64_C(1) << class_index;
    used += sizeof *head + head->size + 16;
    return used > ROOM ? NULL : head + 1;
}

static void *wrongly(uint64_t size)
{
    const uint64_t number = ++calls;
    if ((is("null") && number % 50000 == 0) || (is("later") && number > 400000 && number % 50000 == 0)) {
        return NULL;
    }
    if (is("twice") && number % 5000 == 0 && last != NULL && last_size >= size) {
        return last;
    }
    void *const block = take(size + 8, 16);
    last = block;
    last_size = size;
    return is("misaligned") && block != NULL ? (char *)block + 8 : block;
}

__attribute__((destructor)) static void say_count(void)
{
    if (is("count")) {
        dprintf(2, "malloc was called %llu times\n", (unsigned long long)calls);
    }
}

void *malloc(size_t size)
{
    pthread_mutex_lock(&lock);
    void *const block = wrongly(size);
    pthread_mutex_unlock(&lock);
    return block;
}

static struct head *head_of(void *block)
{
    return (struct head *)((uintptr_t)block & ~(uintptr_t)15) - 1;
}

void free(void *block)
{
    if (block == NULL) {
        return;
    }
    pthread_mutex_lock(&lock);
    struct head *const head = head_of(block);
    const unsigned class_index = class_of(head->size);
    head->next = free_lists[class_index];
    // Two of the same on a list would be given twice in every mode.
    if (head->next != head && !is("twice")) {
        free_lists[class_index] = head;
    }
    pthread_mutex_unlock(&lock);
}

void *calloc(size_t count, size_t size)
{
    size_t bytes = 0;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        return NULL;
    }
    void *const block = malloc(bytes);
    if (block != NULL && !is("calloc")) {
        memset(block, 0, bytes);
    }
    return block;
}

void *realloc(void *block, size_t size)
{
    void *const moved = malloc(size);
    if (block != NULL && moved != NULL && !is("realloc")) {
        const uint64_t had = head_of(block)->size - 8;
        memcpy(moved, block, had < size ? had : size);
    }
    free(block);
    return moved;
}

int posix_memalign(void **block, size_t alignment, size_t size)
{
    pthread_mutex_lock(&lock);
    *block = take(size + 8, alignment < 16 ? 16 : alignment);
    pthread_mutex_unlock(&lock);
    return *block == NULL ? 12 : 0;
}

void *aligned_alloc(size_t alignment, size_t size)
{
    void *block = NULL;
    return posix_memalign(&block, alignment, size) == 0 ? block : NULL;
}

size_t malloc_usable_size(void *block)
{
    return block == NULL ? 0 : head_of(block)->size - 8;
}
