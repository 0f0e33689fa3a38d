// SPDX-License-Identifier: MIT
// Death tests: writes to memory that is no longer, or never was, the program's. The attacker knows all
// addresses and wants a block to be handed out over static_data or over a living neighbour.
#include "misuse.h"

// Writes the target's address, plain, at every word of a freed block where a link could lie.
static void poison(unsigned char *freed, size_t bytes)
{
    void *const target = victim.static_data + 64;
    for (size_t offset = 0; offset + sizeof target <= bytes; offset += sizeof target) {
        poke(freed + offset, &target, sizeof target);
    }
}

static size_t front_bytes(void)
{
    return victim.size < 64 ? victim.size : 64;
}

void write_to_a_freed_block(void)
{
    free(victim.block);
    poison(victim.block, front_bytes());
}

void poisoned_links_in_freed_blocks(void)
{
    for (size_t i = 0; i < NEIGHBOURS; i += 2) {
        unsigned char *const freed = victim.neighbours[i];
        free(freed);
        victim.neighbours[i] = NULL;
        poison(freed, front_bytes());
    }
    free(victim.block);
    poison(victim.block, front_bytes());
}

// From a living block over its end, into whatever comes behind it.
void overflow_into_a_freed_neighbour(void)
{
    for (size_t i = 1; i < NEIGHBOURS; i += 2) {
        free(victim.neighbours[i]);
    }
    for (size_t i = 0; i < NEIGHBOURS; i += 2) {
        unsigned char *const end = (unsigned char *)hidden(victim.neighbours[i]) + malloc_usable_size(victim.neighbours[i]);
        for (size_t k = 1; k < NEIGHBOURS; k += 2) { // only where a freed block of ours lies there
            if (victim.neighbours[k] == end) {
                poison(end, front_bytes());
            }
        }
    }
    for (size_t i = 1; i < NEIGHBOURS; i += 2) {
        victim.neighbours[i] = NULL;
    }
}

static void *free_it(void *pointer)
{
    free(hidden(pointer));
    return NULL;
}

void write_before_a_remote_free(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, free_it, victim.block) == 0, "pthread_create");
    pthread_join(thread, NULL);
    poison(victim.block, front_bytes());
    free(malloc(victim.size));
}
