// SPDX-License-Identifier: MIT
// Adversary, actors: threads that take, give, resize and replace blocks in turn, a burst at a time, of
// which each is drawn: whose blocks, of what sizes, by which call, in what order; and threads that
// end, and begin with any of that. What program it is, the seed says.
#include "adversary.h"

#include <malloc.h>
#include <semaphore.h>
#include <stdlib.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

enum { ACTORS = 64, GROUPS = 48, GROUP_BLOCKS = 8000, SIZES = 8, BURSTS = 1500, WAYS = 5 };
enum { WAY_POSIX = WAYS + 1 };

struct group {
    void **blocks;
    size_t *sizes;
    size_t count;
};

enum burst_kind { BURST_TAKE, BURST_GIVE, BURST_RESIZE, BURST_REPLACE };

struct burst {
    enum burst_kind kind;
    struct group *group;
    size_t count;
    unsigned call;        // by which blocks are taken; WAYS: any; WAY_POSIX: posix_memalign
    size_t alignment;     // at most
    size_t sizes[SIZES];  // in turn, each with up to `spread` more
    size_t size_count;
    size_t spread;
};

struct actor {
    pthread_t thread;
    sem_t begin;
    sem_t end;
    struct burst burst;
    bool alive;
    bool leaves;
};

static struct group groups[GROUPS];
static struct actor actors[ACTORS];
static size_t live_bytes;
static size_t live_max;

// Every order of magnitude as often.
static size_t random_size(size_t first, size_t last) {
    size_t size = last;
    while (size > first && random_below(3) != 0) {
        size /= 2;
    }
    return size / 2 + random_below(size / 2 + 1) + 1;
}

static size_t burst_size(const struct burst *burst, size_t i) {
    return burst->sizes[i % burst->size_count] + random_below(burst->spread + 1);
}

static size_t burst_alignment(const struct burst *burst) {
    size_t alignment = 16;
    while (alignment < burst->alignment && random_below(4) != 0) {
        alignment *= 2;
    }
    return alignment;
}

static void *burst_take(const struct burst *burst, size_t size) {
    if (burst->call == WAY_POSIX) {
        return counted_posix(burst_alignment(burst), size);
    }
    switch (burst->call < WAYS ? burst->call : random_below(WAYS)) {
    case 0:
        return counted_calloc(1, size);
    case 1:
        return counted_aligned(burst_alignment(burst), size);
    case 2:
        return counted_realloc(NULL, size);
    default:
        return counted_malloc(size);
    }
}

// Forwards, backwards, or in any order.
static void group_arrange(struct group *group) {
    const size_t order = random_below(3);
    for (size_t i = group->count; order > 0 && i > 1; i--) {
        const size_t other = order == 1 ? group->count - i : random_below(i);
        if (order == 1 && other >= i - 1) {
            break;
        }
        void *const block = group->blocks[i - 1];
        const size_t size = group->sizes[i - 1];
        group->blocks[i - 1] = group->blocks[other];
        group->sizes[i - 1] = group->sizes[other];
        group->blocks[other] = block;
        group->sizes[other] = size;
    }
}

static void group_put(struct group *group, size_t i, void *block, size_t size) {
    group->blocks[i] = block;
    group->sizes[i] = size;
    live_bytes += size;
}

static void burst_run(const struct burst *burst) {
    struct group *const group = burst->group;
    size_t count = burst->count;
    if (burst->kind != BURST_TAKE) {
        count = count < group->count ? count : group->count;
    }
    if (burst->kind == BURST_GIVE || burst->kind == BURST_RESIZE) {
        group_arrange(group);
    }
    for (size_t i = 0; i < count; i++) {
        size_t size = burst_size(burst, i);
        if (burst->kind == BURST_TAKE) {
            if (group->count == GROUP_BLOCKS || live_bytes > live_max) {
                return;
            }
            group_put(group, group->count, burst_take(burst, size), size);
            group->count++;
            continue;
        }
        const size_t at = burst->kind == BURST_GIVE      ? group->count - 1
                          : burst->kind == BURST_REPLACE ? random_below(group->count)
                                                         : i;
        live_bytes -= group->sizes[at];
        if (live_bytes > live_max) {
            size = group->sizes[at] / 2 + 1;
        }
        if (burst->kind == BURST_RESIZE) {
            group_put(group, at, counted_realloc(group->blocks[at], size), size);
            continue;
        }
        counted_free(group->blocks[at]);
        if (burst->kind == BURST_GIVE) {
            group->count--;
        } else {
            group_put(group, at, burst_take(burst, size), size);
        }
    }
}

static void *actor_begin(void *argument) {
    struct actor *const actor = argument;
    for (;;) {
        sem_wait(&actor->begin);
        if (actor->leaves) {
            break;
        }
        burst_run(&actor->burst);
        sem_post(&actor->end);
    }
    CALLCOST_REQUEST(CALLCOST_UNTIL_END, CALLCOST_THREAD_END, 0);
    return NULL;
}

static void actor_run(struct actor *actor, const struct burst *burst) {
    if (!actor->alive) {
        sem_init(&actor->begin, 0, 0);
        sem_init(&actor->end, 0, 0);
        actor->leaves = false;
        actor->alive = true;
        if (thread_create(&actor->thread, actor_begin, actor) != 0) {
            abort();
        }
    }
    actor->burst = *burst;
    sem_post(&actor->begin);
    sem_wait(&actor->end);
}

static void actor_leave(struct actor *actor) {
    if (actor->alive) {
        actor->leaves = true;
        sem_post(&actor->begin);
        pthread_join(actor->thread, NULL);
        actor->alive = false;
    }
}

// What kind of program it is.
struct play {
    size_t actors;
    size_t size_max;
    size_t burst_max;
    size_t weights[BURST_REPLACE + 1];
    size_t lives; // bursts, about; 0: for ever
    unsigned call;
    size_t sizes[SIZES]; // of all bursts
    size_t size_count;   // 0: each draws its own
};

// The largest of them.
static size_t burst_draw_sizes(struct burst *burst, const struct play *play) {
    const size_t last = random_size(64, play->size_max);
    burst->size_count = play->size_count;
    if (play->size_count == 0) {
        burst->size_count = 1 + random_below(SIZES);
    }
    size_t most = 0;
    for (size_t i = 0; i < burst->size_count; i++) {
        burst->sizes[i] = play->size_count == 0 ? random_size(16, last) : play->sizes[i];
        most = burst->sizes[i] > most ? burst->sizes[i] : most;
    }
    return most;
}

static struct burst play_burst(const struct play *play) {
    struct burst burst = {.group = &groups[random_below(GROUPS)], .call = play->call};
    size_t sum = 0;
    for (size_t i = 0; i <= BURST_REPLACE; i++) {
        sum += play->weights[i];
    }
    size_t choice = random_below(sum);
    while (choice >= play->weights[burst.kind]) {
        choice -= play->weights[burst.kind++];
    }
    const size_t most = burst_draw_sizes(&burst, play);
    burst.spread = random_below(2) == 0 ? 0 : random_below(most);
    burst.alignment = (size_t)16 << random_below(17);
    const size_t fit = 4 * MIB / (most + burst.spread) + 1;
    burst.count = 1 + random_below(random_size(16, play->burst_max));
    burst.count = burst.count < fit ? burst.count : fit;
    if (burst.kind == BURST_GIVE && random_below(2) == 0) {
        burst.count = GROUP_BLOCKS;
    }
    return burst;
}

static struct play play_draw(void) {
    static const size_t size_max[] = {KIB, 64 * KIB, MIB, 4 * MIB, 32 * MIB};
    struct play play = {.actors = random_below(random_below(3) == 0 ? ACTORS : 8)};
    play.size_max = size_max[random_below(5)];
    play.burst_max = random_size(16, GROUP_BLOCKS);
    play.lives = random_below(3) == 0 ? 0 : random_size(4, 100);
    play.call = (unsigned)random_below(WAYS + 1);
    live_max = random_size(4 * MIB, 256 * MIB);
    for (size_t i = 0; i <= BURST_REPLACE; i++) {
        play.weights[i] = random_below(4) + (i <= BURST_GIVE ? 1 : 0);
    }
    return play;
}

static void play_run(const struct play *play) {
    for (size_t i = 0; i < GROUPS; i++) {
        groups[i].blocks = array_make(GROUP_BLOCKS);
        groups[i].sizes = (size_t *)array_make(GROUP_BLOCKS);
    }
    for (size_t i = 0; i < scaled(BURSTS); i++) {
        const struct burst burst = play_burst(play);
        const size_t index = random_below(play->actors + 1);
        if (index == 0) {
            burst_run(&burst);
        } else {
            actor_run(&actors[index - 1], &burst);
        }
        if (play->lives != 0 && play->actors != 0 && random_below(play->lives) == 0) {
            actor_leave(&actors[random_below(play->actors)]);
        }
    }
    for (size_t i = 0; i < GROUPS; i++) {
        for (size_t j = 0; j < groups[i].count; j++) {
            counted_free(groups[i].blocks[j]);
        }
    }
    for (size_t i = 0; i < ACTORS; i++) {
        actor_leave(&actors[i]);
    }
}

void adversary_actors(void) {
    phase("actors, in turn", false);
    const struct play play = play_draw();
    play_run(&play);
}

// Their blocks are of the same sizes throughout, so that those who come want what those who have ended
// left, while others still free it.
void adversary_mortals(void) {
    phase("actors that end, of few sizes", false);
    struct play play = play_draw();
    play.actors = 1 + random_below(random_below(2) == 0 ? ACTORS : 8);
    play.lives = 1 + random_below(8);
    play.size_count = 1 + random_below(SIZES);
    const size_t last = random_size(64, 32 * KIB);
    for (size_t i = 0; i < play.size_count; i++) {
        play.sizes[i] = random_size(16, last);
    }
    play_run(&play);
}

// Mostly huge blocks, the more of the first calls of threads, and of few kinds of call.
void adversary_giants(void) {
    phase("actors with huge blocks", false);
    struct play play = play_draw();
    play.size_max = random_below(2) == 0 ? 4 * MIB : 32 * MIB;
    play.lives = random_below(2) == 0 ? play.lives : 1 + random_below(4);
    play.call = random_below(2) == 0 ? WAY_POSIX : play.call;
    play_run(&play);
}
