// SPDX-License-Identifier: MIT
// Reading, not allocating: lists and a tree are built while other blocks come and go, then walked
// many times. Where the allocator put the nodes decides about cache and TLB misses, which no
// benchmark of malloc alone can see.
//
// Source   own program; the question is that of D. Grunwald, B. Zorn, R. Henderson: "Improving the
//          Cache Locality of Memory Allocation", PLDI 1993.
// Checks   the sum over all nodes is the same in every walk.

#include "common.h"

struct node {
    struct node *next;     // of its list
    struct node *child[2]; // of the tree
    uint64_t key;
};

static struct node *make_node(uint64_t *seed, size_t extra) {
    struct node *const node = bench_malloc(sizeof *node + extra);
    *node = (struct node){NULL, {NULL, NULL}, bench_random(seed)};
    return node;
}

static void insert(struct node **root, struct node *node) {
    while (*root != NULL) {
        root = &(*root)->child[node->key > (*root)->key];
    }
    *root = node;
}

static uint64_t look_up(const struct node *root, uint64_t key) {
    uint64_t depth = 0;
    while (root != NULL && root->key != key) {
        root = root->child[key > root->key];
        depth++;
    }
    return depth;
}

enum { PASSING = 10000 };

struct world {
    struct node **heads, **all;
    struct node *root;
    void *passing[PASSING];
    uint64_t seed;
    uint64_t key_sum;
};

// Nodes are made while `noise` other blocks come and go for each of them.
static void build(struct world *w, uint64_t nodes, uint64_t lists, uint64_t noise) {
    for (uint64_t i = 0; i < nodes; i++) {
        for (uint64_t n = 0; n < noise; n++) {
            void **const place = &w->passing[bench_below(&w->seed, PASSING)];
            free(*place);
            *place = bench_malloc(bench_between(&w->seed, 16, 256));
        }
        struct node *const node = make_node(&w->seed, bench_below(&w->seed, 3) * 16);
        w->all[i] = node;
        node->next = w->heads[i % lists];
        w->heads[i % lists] = node;
        insert(&w->root, node);
        w->key_sum += node->key;
    }
}

// All lists from end to end, then look-ups in the tree; returns the nodes visited.
static uint64_t walk(struct world *w, uint64_t nodes, uint64_t lists) {
    uint64_t sum = 0, visited = nodes;
    for (uint64_t list = 0; list < lists; list++) {
        for (const struct node *node = w->heads[list]; node != NULL; node = node->next) {
            sum += node->key;
        }
    }
    if (sum != w->key_sum) {
        bench_fail("the nodes changed");
    }
    for (uint64_t i = 0; i < nodes / 16; i++) {
        visited += look_up(w->root, w->all[bench_below(&w->seed, nodes)]->key);
    }
    return visited;
}

int main(int argc, char **argv) {
    uint64_t nodes = 400000;
    uint64_t lists = 1000;
    uint64_t walks = 15;
    uint64_t noise = 3;
    const struct bench_option table[] = {
        {"nodes", &nodes, "nodes"},
        {"lists", &lists, "lists they stand in"},
        {"walks", &walks, "walks through all lists and look-ups in the tree"},
        {"noise", &noise, "blocks that come and go for each node"},
    };
    BENCH_OPTIONS(argc, argv, table);
    if (nodes == 0 || lists == 0) {
        bench_fail("nodes and lists must be at least 1");
    }

    static struct world world = {.seed = 3};
    world.heads = bench_calloc(lists, sizeof *world.heads);
    world.all = bench_calloc(nodes, sizeof *world.all);
    build(&world, nodes, lists, noise);
    const uint64_t start = bench_now_ns();
    uint64_t visited = 0;
    for (uint64_t i = 0; i < walks; i++) {
        visited += walk(&world, nodes, lists);
    }
    bench_score((double)(bench_now_ns() - start) / (double)visited, "ns/node");
    for (uint64_t i = 0; i < nodes; i++) {
        free(world.all[i]);
    }
    for (size_t i = 0; i < PASSING; i++) {
        free(world.passing[i]);
    }
    free(world.all);
    free(world.heads);
    return 0;
}
