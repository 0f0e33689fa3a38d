// SPDX-License-Identifier: MIT
// Ten blocks that nothing leads to, and one read of a freed block: for valgrind's memcheck.
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) static void lose(void)
{
    for (int i = 0; i < 10; i++) {
        volatile char *const block = malloc(1000);
        block[0] = 1;
    }
}

int main(void)
{
    lose();
    volatile char *const block = malloc(50);
    free((void *)(size_t)block);
    printf("%d\n", block[3]);
    return 0;
}
