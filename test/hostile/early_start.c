// SPDX-License-Identifier: MIT
// Allocation at the edges of a program's life: in an IFUNC resolver (thread-local storage is not set up
// yet), in .preinit_array, in the first constructor with a thread, in atexit and in the last destructor.
// Blocks made at each edge are checked and freed at a later one.
#include "../support/check.h"

#include <pthread.h>

enum { EDGES = 6, BLOCK_BYTES = 300 };
static unsigned char *blocks[EDGES];
static int edges_seen;

static void at_edge(int edge)
{
    for (int earlier = 0; earlier < edge; earlier++) {
        if (blocks[earlier] != NULL) {
            CHECK(tag_wrong(blocks[earlier], BLOCK_BYTES, (uint64_t)earlier) == BLOCK_BYTES,
                  "the block of edge %d changed before edge %d", earlier, edge);
        }
    }
    for (size_t size = 8; size < 4 * MIB; size *= 5) {
        void *block = malloc(size);
        CHECK(block != NULL, "malloc(%zu) at edge %d", size, edge);
        memset(block, edge, size);
        block = realloc(block, size * 2);
        CHECK(block != NULL, "realloc at edge %d", edge);
        free(block);
        block = calloc(1, size);
        CHECK(block != NULL && nonzero_at(block, size) == size, "calloc at edge %d", edge);
        free(block);
    }
    blocks[edge] = malloc(BLOCK_BYTES);
    CHECK(blocks[edge] != NULL, "malloc at edge %d", edge);
    tag_fill(blocks[edge], BLOCK_BYTES, (uint64_t)edge);
    edges_seen++;
}

// ---- Edge 0: while the dynamic linker relocates. Only malloc and free themselves: other symbols of
// this program may not be bound yet, and no thread-local storage may be used.
static int answer(void)
{
    return 42;
}

static void *resolver_block;

static int (*resolve_answer(void))(void)
{
    void *const block = malloc(100);
    free(malloc(5000));
    resolver_block = block;
    return answer;
}

int resolved_answer(void) __attribute__((ifunc("resolve_answer")));

// ---- Edge 1: before the constructors ----------------------------------------------------------------

static void preinit(int count, char **arguments, char **environment)
{
    (void)count;
    (void)arguments;
    (void)environment;
    at_edge(1);
}

__attribute__((section(".preinit_array"), used)) static void (*preinit_entry)(int, char **, char **) = preinit;

// ---- Edge 2: the first constructor, and a thread born in it -------------------------------------------

static void *early_thread(void *unused)
{
    (void)unused;
    at_edge(3);
    return NULL;
}

__attribute__((constructor(101))) static void first_constructor(void)
{
    at_edge(2);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, early_thread, NULL) == 0, "pthread_create in a constructor");
    pthread_join(thread, NULL);
}

// ---- Edges 4 and 5: after main ------------------------------------------------------------------------

static void at_exit(void)
{
    at_edge(4);
}

__attribute__((destructor(101))) static void last_destructor(void)
{
    at_edge(5);
    for (int edge = 0; edge < EDGES; edge++) {
        free(blocks[edge]);
    }
    CHECK(edges_seen == EDGES - 1, "%d edges were seen", edges_seen);
    static const char verdict[] = "every edge was passed\n";
    (void)!write(1, verdict, sizeof verdict - 1);
}

int main(void)
{
    CHECK(resolved_answer() == 42, "the resolver");
    CHECK(resolver_block != NULL, "malloc in the resolver");
    memset(resolver_block, 1, 100);
    free(resolver_block);
    atexit(at_exit);
    return 0;
}
