// SPDX-License-Identifier: MIT
// A program watches libc's munmap, madvise, mremap and mmap for memory that goes away, as libraries do
// that register memory with a device (UCX, Open MPI, libfabric): every page that a freed or moved block
// has lost, or exchanged for another, must have been told.
#include "../support/check.h"

#include <malloc.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { RANGES_MAX = 100000 };

static struct range {
    uintptr_t start, end;
} told[RANGES_MAX];
static size_t told_count;

static void tell(void *address, size_t bytes)
{
    const size_t index = __atomic_fetch_add(&told_count, 1, __ATOMIC_RELAXED);
    if (index < RANGES_MAX) {
        told[index] = (struct range){(uintptr_t)address, (uintptr_t)address + bytes};
    }
}

int munmap(void *address, size_t bytes)
{
    tell(address, bytes);
    errno = ERANGE; // it is the allocator's business that its callers do not see that
    return (int)syscall(SYS_munmap, address, bytes);
}

int madvise(void *address, size_t bytes, int advice)
{
    if (advice == MADV_DONTNEED) {
        tell(address, bytes);
    }
    errno = ERANGE;
    return (int)syscall(SYS_madvise, address, bytes, advice);
}

void *mremap(void *address, size_t bytes, size_t new_bytes, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    void *const target = va_arg(list, void *);
    va_end(list);
    tell(address, bytes);
    errno = ERANGE;
    return (void *)syscall(SYS_mremap, address, bytes, new_bytes, flags, target);
}

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if ((flags & MAP_FIXED) != 0) {
        tell(address, bytes);
    }
    return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
}

static bool was_told(uintptr_t page)
{
    const size_t count = __atomic_load_n(&told_count, __ATOMIC_RELAXED);
    for (size_t i = 0; i < count && i < RANGES_MAX; i++) {
        if (page - told[i].start < told[i].end - told[i].start) {
            return true;
        }
    }
    return false;
}

// Whether the page has never gone away: no fresh one is there, nor none.
static bool is_kept(uintptr_t page, size_t page_bytes)
{
    unsigned char resident = 0;
    return syscall(SYS_mincore, page, page_bytes, &resident) == 0 && (resident & 1) != 0;
}

// Takes down the whole pages of what was a block.
enum { PAGES_MAX = 200000 };
static uintptr_t pages[PAGES_MAX];
static size_t page_count;

static void note(const void *block, size_t bytes, size_t page_bytes)
{
    uintptr_t page = ((uintptr_t)block + page_bytes - 1) & ~(uintptr_t)(page_bytes - 1);
    for (; page + page_bytes <= (uintptr_t)block + bytes && page_count < PAGES_MAX; page += page_bytes) {
        pages[page_count++] = page;
    }
}

int main(void)
{
    enum { BLOCKS = 3000 };
    static const size_t sizes[] = {24, 500, 3000, 9000, 70000, 300000, 1500000, 9000000};
    static char *blocks[BLOCKS];
    const size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    size_t lost = 0;
    for (size_t kind = 0; kind < COUNT_OF(sizes); kind++) {
        const size_t count = 60000000 / sizes[kind] < BLOCKS ? 60000000 / sizes[kind] : BLOCKS;
        for (size_t i = 0; i < count; i++) {
            blocks[i] = malloc(sizes[kind]);
            CHECK(blocks[i] != NULL, "malloc");
            memset(blocks[i], 1, sizes[kind]);
            note(blocks[i], sizes[kind], page_bytes);
        }
        errno = 0;
        for (size_t i = 0; i < count; i++) {
            if (i % 8 == 0) {
                blocks[i] = realloc(blocks[i], 3 * sizes[kind]);
                CHECK(blocks[i] != NULL, "realloc");
            }
        }
        for (size_t i = 0; i < count; i++) {
            free(blocks[i]);
        }
        CHECK(errno == 0, "errno is the program's: %d", errno);
    }
    malloc_trim(0);
    for (size_t i = 0; i < page_count; i++) {
        if (!is_kept(pages[i], page_bytes)) {
            lost++;
            CHECK(was_told(pages[i]), "nobody was told that page %zu of %zu is gone", i, page_count);
        }
    }
    CHECK(lost * page_bytes > 8 * MIB, "only %zu pages of %zu have gone", lost, page_count);
    return 0;
}
