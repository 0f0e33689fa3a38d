// SPDX-License-Identifier: MIT
// A static program has no malloc of libc's: what looks like a block of it, in a mapping or in the break, is
// forged, and every call that is given it stops the program.
#include "../support/check.h"

#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { IN_USE_BEFORE = 1, MAPPED = 2, BYTES = 65536 };

static void use_free(void *block)
{
    free(block);
}

static void use_realloc(void *block)
{
    free(realloc(block, 100));
}

static void use_realloc_to_none(void *block)
{
    if (realloc(block, 0) != NULL) {
        _exit(1);
    }
}

static void use_usable_size(void *block)
{
    if (malloc_usable_size(block) == 0) {
        _exit(1);
    }
}

static void expect_death(const char *name, void (*use)(void *block), void *block)
{
    const pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        dup2(open("/dev/null", O_WRONLY), 2);
        __asm__ volatile("" : "+r"(block));
        use(block);
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child, "waitpid");
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "%s: status %#x", name, (unsigned)status);
}

static void use_forged(const char *name, void *block)
{
    char text[100];
    static const struct {
        const char *call;
        void (*use)(void *block);
    } uses[] = {{"free", use_free},
                {"realloc", use_realloc},
                {"realloc to none", use_realloc_to_none},
                {"malloc_usable_size", use_usable_size}};
    for (size_t i = 0; i < COUNT_OF(uses); i++) {
        snprintf(text, sizeof text, "%s, %s", uses[i].call, name);
        expect_death(text, uses[i].use, block);
    }
}

int main(void)
{
    size_t *const mapping = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapping != MAP_FAILED, "mmap");
    mapping[1] = BYTES | MAPPED;
    use_forged("in a mapping", mapping + 2);
    char *const grown = sbrk(BYTES);
    CHECK(grown != (void *)-1, "sbrk");
    size_t *const in_break = (size_t *)(((uintptr_t)grown + 15) & ~(uintptr_t)15);
    in_break[1] = 64 | IN_USE_BEFORE;
    use_forged("in the break", in_break + 2);
    return 0;
}
