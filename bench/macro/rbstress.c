// SPDX-License-Identifier: MIT
// What the heap of a scripting language goes through: an ordered map from strings to strings, whose
// nodes, keys and values are blocks of their own; entries come, go, and have their values rebuilt by
// concatenation. Each thread has its own map.
//
// Source   after the "rbstress" workload (a Ruby benchmark of object and string churn) as the mimalloc
//          suite describes it; the map is a treap: R. Seidel, C. Aragon, "Randomized Search Trees",
//          Algorithmica 16 (1996). Own program.
// Checks   order of keys and number of entries at the end; the checksum depends on the seeds alone.

#include "common.h"

struct node {
    struct node *child[2];
    uint64_t priority;
    char *key;
    char *value;
};

struct map {
    struct node *root;
    uint64_t count;
    uint64_t seed;
};

struct worker {
    uint64_t steps;
    uint64_t entries;
    uint64_t seed;
    uint64_t checksum;
};

static char *make_key(uint64_t number) {
    char text[48];
    const int length = snprintf(text, sizeof text, "object:%llx:%0*llu",
                                (unsigned long long)(number * 2654435761u % 1000003u),
                                (int)(number % 20), (unsigned long long)number);
    char *const key = bench_malloc((size_t)length + 1);
    memcpy(key, text, (size_t)length + 1);
    return key;
}

static char *make_value(uint64_t *seed) {
    const size_t length = bench_between(seed, 8, bench_below(seed, 16) == 0 ? 1000 : 100);
    char *const value = bench_malloc(length + 1);
    memset(value, 'a' + (int)(length % 26), length);
    value[length] = '\0';
    return value;
}

// left + right, in a new block, as a string class does it.
static char *join(char *left, const char *right) {
    const size_t left_length = strlen(left), right_length = strlen(right);
    char *const both = bench_malloc(left_length + right_length + 1);
    memcpy(both, left, left_length);
    memcpy(both + left_length, right, right_length + 1);
    free(left);
    return both;
}

// Cuts a value into words, each a block, and joins them again: what a script does to its strings.
static uint64_t cut_and_join(const char *value) {
    enum { WORD = 12, WORDS_MAX = 16 };
    char *words[WORDS_MAX];
    size_t count = 0;
    for (; *value != '\0' && count < WORDS_MAX; count++) {
        const size_t length = strnlen(value, WORD);
        words[count] = bench_malloc(length + 1);
        memcpy(words[count], value, length);
        words[count][length] = '\0';
        value += length;
    }
    char *text = bench_calloc(1, 1);
    for (size_t i = 0; i < count; i++) {
        text = join(text, words[i]);
        free(words[i]);
    }
    const uint64_t length = strlen(text);
    free(text);
    return length;
}

static void rotate(struct node **link, int side) {
    struct node *const top = *link, *const up = top->child[side];
    top->child[side] = up->child[1 - side];
    up->child[1 - side] = top;
    *link = up;
}

// Takes over `key`; frees it when the entry exists already.
static struct node *put(struct map *map, struct node **link, char *key) {
    if (*link == NULL) {
        struct node *const node = bench_calloc(1, sizeof *node);
        node->priority = bench_random(&map->seed);
        node->key = key;
        node->value = make_value(&map->seed);
        map->count++;
        *link = node;
        return node;
    }
    const int order = strcmp(key, (*link)->key);
    if (order == 0) {
        free(key);
        return *link;
    }
    const int side = order > 0;
    struct node *const found = put(map, &(*link)->child[side], key);
    if ((*link)->child[side]->priority > (*link)->priority) {
        rotate(link, side);
    }
    return found;
}

static void drop_node(struct node *node) {
    free(node->key);
    free(node->value);
    free(node);
}

static bool take_out(struct map *map, const char *key) {
    struct node **link = &map->root;
    while (*link != NULL) {
        struct node *const node = *link;
        const int order = strcmp(key, node->key);
        if (order != 0) {
            link = &node->child[order > 0];
            continue;
        }
        while (node->child[0] != NULL &&
               node->child[1] != NULL) { // sink it to a place with one child
            const int side = node->child[1]->priority > node->child[0]->priority;
            rotate(link, side);
            link = &(*link)->child[1 - side];
        }
        *link = node->child[node->child[0] == NULL];
        drop_node(node);
        map->count--;
        return true;
    }
    return false;
}

static uint64_t drop_all(struct node *node, const char **last, uint64_t *checksum) {
    if (node == NULL) {
        return 0;
    }
    uint64_t count = drop_all(node->child[0], last, checksum);
    if (*last != NULL && strcmp(*last, node->key) >= 0) {
        bench_fail("the keys are out of order");
    }
    *last = node->key;
    *checksum = *checksum * 31 + strlen(node->value);
    count += 1 + drop_all(node->child[1], last, checksum);
    return count;
}

static void free_all(struct node *node) {
    if (node != NULL) {
        free_all(node->child[0]);
        free_all(node->child[1]);
        drop_node(node);
    }
}

static void *work(void *argument) {
    struct worker *const self = argument;
    struct map map = {NULL, 0, self->seed};
    for (uint64_t step = 0; step < self->steps; step++) {
        char *const key = make_key(bench_below(&map.seed, self->entries * 2));
        const uint64_t what = bench_below(&map.seed, 4);
        if (what == 0) {
            take_out(&map, key);
            free(key);
            continue;
        }
        struct node *const node = put(&map, &map.root, key);
        if (what == 1) {
            char *const tail = make_value(&map.seed);
            node->value = join(node->value, tail);
            free(tail);
        } else if (what == 2 || strlen(node->value) > 2000) {
            free(node->value);
            node->value = make_value(&map.seed);
        }
        self->checksum += cut_and_join(node->value);
    }
    const char *last = NULL;
    if (drop_all(map.root, &last, &self->checksum) != map.count) {
        bench_fail("entries were lost");
    }
    free_all(map.root);
    return NULL;
}

int main(int argc, char **argv) {
    uint64_t threads = 1;
    uint64_t steps = 1000000;
    uint64_t entries = 200000;
    const struct bench_option table[] = {
        {"threads", &threads, "threads"},
        {"steps", &steps, "steps in all"},
        {"entries", &entries, "entries, about, over all threads"},
    };
    BENCH_OPTIONS(argc, argv, table);
    if (threads == 0 || threads > BENCH_THREADS_MAX || entries < threads) {
        bench_fail("threads must be 1 to %d, entries at least as many", BENCH_THREADS_MAX);
    }

    static struct worker items[BENCH_THREADS_MAX];
    for (uint64_t i = 0; i < threads; i++) {
        items[i] = (struct worker){steps / threads, entries / threads, i, 0};
    }
    const uint64_t start = bench_now_ns();
    bench_parallel(work, items, sizeof items[0], threads);
    const double taken = (double)(bench_now_ns() - start) / 1e9;
    uint64_t checksum = 0;
    for (uint64_t i = 0; i < threads; i++) {
        checksum ^= items[i].checksum;
    }
    printf("checksum %016" PRIx64 "\n", checksum);
    bench_score(taken, "s");
    return 0;
}
