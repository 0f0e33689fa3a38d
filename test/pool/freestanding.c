// SPDX-License-Identifier: MIT
// A program without libc: linked with -nostdlib and libmallow-pool.a alone. It makes
// a pool in an array, runs it dry, frees in another order, is refused what is wrong, and ends with a
// status of 0 through the one system call that a process cannot do without.
#include <mallow/pool.h>

#if !defined(__OPTIMIZE__) // where the compiler calls them for what is no call
void *memset(void *memory, int byte, size_t bytes)
{
    volatile unsigned char *to = memory;
    for (size_t i = 0; i < bytes; i++) {
        to[i] = (unsigned char)byte;
    }
    return memory;
}

void *memcpy(void *restrict memory, const void *restrict from, size_t bytes)
{
    volatile unsigned char *to = memory;
    for (size_t i = 0; i < bytes; i++) {
        to[i] = ((const unsigned char *)from)[i];
    }
    return memory;
}
#endif

static _Alignas(64) unsigned char memory[1 << 16];
static void *blocks[4096];
static struct mw_pool_class classes[4];

static int run(void)
{
    static const char text[] = "pool_size=64K\nclass=16,40\nclass=48,40\nclass=512,20\nremote=on\n";
    struct mw_pool_config config;
    struct mw_pool *pool = NULL;
    size_t count = 0;
    if (mw_pool_config_parse(text, sizeof text - 1, &config, classes, 4, NULL) != MW_POOL_OK) {
        return 1;
    }
    config.memory = memory;
    if (mw_pool_create_in(&config, &pool, NULL) != MW_POOL_OK) {
        return 2;
    }
    for (size_t index = 0; index < 3; index++) {
        while ((blocks[count] = mw_pool_alloc_class(pool, index)) != NULL) {
            count++;
        }
    }
    if (mw_pool_last_status(pool) != MW_POOL_EXHAUSTED || mw_pool_occupancy_ppm(pool) != MW_POOL_WHOLE) {
        return 3;
    }
    for (size_t i = 0; i < count; i++) {
        void *const block = blocks[i * 7919 % count]; // a prime: every block once
        const enum mw_pool_status status = i % 2 == 0 ? mw_pool_free(pool, block) : mw_pool_free_remote(pool, block);
        if (status != MW_POOL_OK || mw_pool_free(pool, block) != MW_POOL_DOUBLE_FREE) {
            return 4;
        }
    }
    return mw_pool_occupancy_ppm(pool) == 0 && mw_pool_free(pool, &count) == MW_POOL_FOREIGN ? 0 : 5;
}

// exit_group
#if defined(__x86_64__)
__attribute__((used, force_align_arg_pointer)) static void start(void)
{
    __asm__ volatile("syscall" : : "a"(231L), "D"((long)run()) : "rcx", "r11", "memory");
}

__asm__(".globl _start\n_start:\n    call start\n");
#else
__attribute__((used)) static void start(void)
{
    register long status __asm__("x0") = run();
    register long number __asm__("x8") = 94;
    __asm__ volatile("svc 0" : : "r"(status), "r"(number) : "memory");
}

__asm__(".globl _start\n_start:\n    bl start\n");
#endif
