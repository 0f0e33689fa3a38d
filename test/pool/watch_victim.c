// SPDX-License-Identifier: MIT
// One mistake with the blocks of a pool, for a tool that watches memory: watch_victim WHAT. With "none"
// it makes none, in a pool over static memory that is given up at the end, and used for something else.
#include <mallow/pool.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Alignas(64) unsigned char memory[65536];

static struct mw_pool *make(void)
{
    static const struct mw_pool_class classes[] = {{.size_bytes = 48, .share_ppm = MW_POOL_PERCENT(40)},
                                                   {.size_bytes = 200, .share_ppm = MW_POOL_PERCENT(60)}};
    const struct mw_pool_config config = {
        .classes = classes, .class_count = 2, .memory = memory, .pool_bytes = sizeof memory, .remote = true};
    struct mw_pool *pool = NULL;
    return mw_pool_create_in(&config, &pool, NULL) == MW_POOL_OK ? pool : NULL;
}

static int use(struct mw_pool *pool)
{
    enum mw_pool_status status;
    unsigned char *blocks[60];
    void *found = NULL;
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 60; i++) {
            blocks[i] = mw_pool_debug_alloc(pool, i % 2 == 0 ? 40 : 180, &status);
            if (blocks[i] == NULL || status != MW_POOL_OK) {
                return 1;
            }
            memset(blocks[i], (int)i, i % 2 == 0 ? 48 : 208);
        }
        for (unsigned i = 0; i < 60; i++) {
            status = i % 3 == 0 ? mw_pool_debug_free_remote(pool, blocks[i]) : mw_pool_debug_free(pool, blocks[i]);
            if (status != MW_POOL_OK || mw_pool_debug_free(pool, blocks[i]) != MW_POOL_DOUBLE_FREE) {
                return 1;
            }
        }
    }
    return mw_pool_debug_check(pool, &found) != MW_POOL_OK;
}

// Several, since a register or a dead word of the stack may still lead to the last one.
__attribute__((noinline)) static void lose(struct mw_pool *pool)
{
    enum mw_pool_status status;
    for (unsigned i = 0; i < 10; i++) {
        volatile unsigned char *const block = mw_pool_debug_alloc(pool, 200, &status);
        block[0] = 1;
    }
}

int main(int argument_count, char **arguments)
{
    const char *const what = argument_count > 1 ? arguments[1] : "none";
    enum mw_pool_status status;
    static void *other; // memcheck looks for lost blocks where malloc has given one as well
    struct mw_pool *const pool = make();
    other = malloc(1);
    unsigned char *const before = mw_pool_alloc(pool, 48); // by the ordinary call
    if (pool == NULL || before == NULL || other == NULL || mw_pool_debug_begin(pool) != MW_POOL_OK) {
        return 1;
    }
    before[0] = 1;
    if (mw_pool_debug_free(pool, before) != MW_POOL_OK || use(pool) != 0) {
        return 1;
    }
    volatile unsigned char *block = mw_pool_debug_alloc(pool, 200, &status);
    if (strcmp(what, "read") == 0 || strcmp(what, "write") == 0) {
        mw_pool_debug_free(pool, (void *)(size_t)block);
        if (what[0] == 'r') {
            return block[17] == 1;
        }
        block[17] = 1;
    } else if (strcmp(what, "unwritten") == 0) {
        puts(block[17] == 1 ? "one" : "another");
    } else if (strcmp(what, "lost") == 0) {
        lose(pool);
    } else if (mw_pool_debug_free(pool, (void *)(size_t)block) != MW_POOL_OK ||
               mw_pool_debug_end(pool) != MW_POOL_OK || mw_pool_alloc(pool, 200) == NULL) {
        return 1;
    } else {
        memset(memory, 1, sizeof memory); // the pool is given up
    }
    puts("done");
    return 0;
}
