// SPDX-License-Identifier: MIT
// The constructor of a library, and later its destructor, wait for a thread that makes a call which passes
// something on to a function that is found by name: a look-up then would wait for the dlopen, for ever.
//
// Arguments: reallocarray | rights | nothrow | libc_block, the library (waiting_plugin.c).
#include "../api/check.h"

#include <cstring>
#include <dlfcn.h>
#include <gnu/lib-names.h>
#include <grp.h>
#include <new>
#include <unistd.h>

enum { SECONDS_MAX = 60 };

static const char *what;
static void *libc_blocks[2]; // of the C library's own malloc
static unsigned runs;
static unsigned taken;

// So the nothrow forms are the C++ run-time's, which call these.
void *operator new(std::size_t size)
{
    taken++;
    void *const block = malloc(size);
    if (block == nullptr) {
        throw std::bad_alloc();
    }
    return block;
}
void operator delete(void *block) noexcept { free(block); }
void operator delete(void *block, std::size_t) noexcept { free(block); }

static void call_reallocarray()
{
    void *const block = reallocarray(nullptr, 10, 10);
    CHECK(block != nullptr);
    free(block);
}

// initgroups is left out: it reads files, by libraries that libc itself opens.
static void call_rights()
{
    const uid_t user = geteuid();
    const gid_t group = getegid();
    CHECK(setuid(user) == 0 && seteuid(user) == 0 && setreuid(user, user) == 0 && setresuid(user, user, user) == 0);
    CHECK(setgid(group) == 0 && setegid(group) == 0 && setregid(group, group) == 0 &&
              setresgid(group, group, group) == 0);
    const unsigned far_too_many = 1u << 20;
    CHECK(setgroups(far_too_many, &group) == -1);
}

static void call_nothrow()
{
    const unsigned before = taken;
    char *const one = new (std::nothrow) char;
    char *const array = new (std::nothrow) char[100];
    operator delete(one);
    operator delete(array);
    CHECK(taken == before + 2);
    const std::align_val_t alignment{64};
    operator delete(operator new(100, alignment, std::nothrow), alignment);
    operator delete[](operator new[](100, alignment, std::nothrow), alignment);
}

extern "C" void *program_work(void *)
{
    if (strcmp(what, "reallocarray") == 0) {
        call_reallocarray();
    } else if (strcmp(what, "rights") == 0) {
        call_rights();
    } else if (strcmp(what, "nothrow") == 0) {
        call_nothrow();
    } else {
        free(libc_blocks[runs % 2]);
    }
    runs++;
    return nullptr;
}

int main(int count, char **arguments)
{
    CHECK(count == 3);
    what = arguments[1];
    if (strcmp(what, "libc_block") == 0) {
        void *const libc = dlopen(LIBC_SO, RTLD_LAZY | RTLD_NOLOAD);
        void *(*libc_malloc)(size_t);
        *reinterpret_cast<void **>(&libc_malloc) = dlsym(libc, "__libc_malloc");
        for (void *&block : libc_blocks) {
            block = libc_malloc(100);
        }
    }
    (void)alarm(SECONDS_MAX);
    void *const library = dlopen(arguments[2], RTLD_NOW);
    CHECK(library != nullptr);
    CHECK(dlclose(library) == 0 && runs == 2);
    return 0;
}
