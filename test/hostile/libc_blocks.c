// SPDX-License-Identifier: MIT
// Blocks of libc's own malloc, of every size and alignment, are told from what is nobody's, without a fault;
// also by kernels before 5.14, which do not know MADV_POPULATE_READ, and where a filter refuses madvise.
#include "../support/filter.h"

#include <dlfcn.h>
#include <gnu/lib-names.h>
#include <malloc.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

static void *(*libc_malloc)(size_t);
static void *(*libc_memalign)(size_t, size_t);

// `advice`: which madvise fails; 0: every one.
static void refuse(unsigned advice, unsigned error)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(advice != 0 ? BPF_JMP | BPF_JEQ | BPF_K : BPF_JMP | BPF_JGE | BPF_K, advice, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    filter_install(filter, COUNT_OF(filter), 0);
}

static void use_blocks_of_libc(void)
{
    for (size_t size = 24; size < 3 * MIB; size *= 2) {
        char *block = libc_malloc(size);
        CHECK(malloc_usable_size(block) >= size, "usable size of %zu bytes", size);
        memset(block, 0x5a, size);
        block = realloc(block, size * 2);
        CHECK(block != NULL && block[0] == 0x5a && block[size - 1] == 0x5a, "realloc of %zu bytes", size);
        free(block);
        free(libc_malloc(size));
        for (size_t alignment = 32; alignment <= 64 * MIB; alignment *= 2) {
            block = libc_memalign(alignment, size);
            CHECK(malloc_usable_size(block) >= size, "%zu bytes, aligned by %zu", size, alignment);
            memset(block, 0x5a, size);
            block = realloc(block, size * 2);
            CHECK(block[0] == 0x5a && block[size - 1] == 0x5a, "%zu bytes, aligned by %zu", size, alignment);
            free(block);
            free(libc_memalign(alignment, size));
        }
    }
}

static void expect_death(const char *name, void *address)
{
    const pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        dup2(open("/dev/null", O_WRONLY), 2);
        __asm__ volatile("" : "+r"(address));
        free(address);
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child, "waitpid");
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "%s: status %#x", name, (unsigned)status);
}

static void free_what_is_nobodys(void)
{
    char *const pages = mmap(NULL, 8 * 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED, "mmap");
    CHECK(mprotect(pages + 65536, 65536, PROT_READ | PROT_WRITE) == 0, "mprotect");
    CHECK(munmap(pages + 4 * 65536, 65536) == 0, "munmap");
    expect_death("the start of a mapping", pages + 65536);
    expect_death("a mapping", pages + 65536 + 64);
    expect_death("memory without access", pages + 3 * 65536);
    expect_death("unmapped memory", pages + 4 * 65536 + 64);
    expect_death("an address of the kernel's", (void *)0xffff800000001000);
    expect_death("no address", (void *)0x0001234500000000);
}

static void under(unsigned advice, unsigned error)
{
    const pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        refuse(advice, error);
        use_blocks_of_libc();
        free_what_is_nobodys();
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child, "waitpid");
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIP) {
        _exit(EXIT_SKIP);
    }
    CHECK(status == 0, "advice %u refused by %u: status %#x", advice, error, (unsigned)status);
}

int main(void)
{
    enum { POPULATE_READ = 22 };
    void *const libc = dlopen(LIBC_SO, RTLD_LAZY | RTLD_NOLOAD);
    CHECK(libc != NULL, "dlopen: %s", dlerror());
    libc_malloc = (void *(*)(size_t))dlsym(libc, "__libc_malloc"); // libc's own, even so
    libc_memalign = (void *(*)(size_t, size_t))dlsym(libc, "__libc_memalign");
    CHECK(libc_malloc != NULL && libc_memalign != NULL, "dlsym: %s", dlerror());
    use_blocks_of_libc();
    free_what_is_nobodys();
    under(POPULATE_READ, EINVAL);
    under(0, EPERM);
    under(0, ENOSYS);
    return 0;
}
